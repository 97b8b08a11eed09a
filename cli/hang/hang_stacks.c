/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang_stacks.c - what a stack says of a rank, and what is kept of it.
 */
#include "cli/hang/hang_judge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/hang/hang_waits.h"
#include "core/base/printable.h"

/* ---- one stack ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static bool is_python(const struct json *frame)
{
    return strcmp(json_text(frame, "type", ""), "python") == 0;
}

/* "job.py:9"; the library where the function is not known; else nothing: a native frame's place in
 * its function differs between ranks that do the same. */
static void where_of(const struct json *frame, char *ret, size_t size)
{
    if (is_python(frame))
        (void)snprintf(ret, size, "%s:%lld", base_name(json_text(frame, "file", "?")),
                       (long long)json_int(frame, "line", 0));
    else if (strcmp(json_text(frame, "func", "?"), "?") == 0)
        (void)snprintf(ret, size, "%s", base_name(json_text(frame, "module", "?")));
    else
        ret[0] = '\0';
}

/* How names of native functions begin by which a program waits for other ranks, or for a device
 * that may wait for them. */
static const char *const waits[] = {
    "c10d::",       "gloo::",    "ncclAll",        "ncclBroadcast",  "ncclReduce",
    "ncclSend",     "ncclRecv",  "ncclGroupEnd",   "ncclCommInit",   "MPI_",
    "PMPI_",        "ccl::",     "cudaStreamSync", "cudaDeviceSync", "cudaEventSync",
    "cuStreamSync", "cuCtxSync", "cuEventSync",    "hipStreamSync",  "hipDeviceSync",
    "hipEventSync"};

/* Does it wait, in torch.distributed's own files?  get_rank() and its like wait for nobody, and a
 * function that begins with '_' helps one that stands further out. */
static bool is_group_call(const struct json *frame)
{
    const char *file = base_name(json_text(frame, "file", ""));
    const char *func = json_text(frame, "func", "");

    if (strcmp(file, "distributed_c10d.py") != 0 && strcmp(file, "_functional_collectives.py") != 0)
        return false;
    return func[0] != '_' && strncmp(func, "get_", 4) != 0 && strncmp(func, "is_", 3) != 0;
}

static bool is_operation(const struct json *frame)
{
    const char *func = json_text(frame, "func", "");

    if (is_python(frame))
        return is_group_call(frame);
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
        if (strncmp(func, waits[i], strlen(waits[i])) == 0)
            return true;
    return false;
}

/* Is it of an installed package, or of Python itself, and not what the user wrote? */
static bool is_library(const struct json *frame)
{
    const char *file = json_text(frame, "file", "");

    return strstr(file, "/site-packages/") != NULL || strstr(file, "/dist-packages/") != NULL ||
           strstr(file, "/lib/python") != NULL || file[0] == '<' || file[0] == '?' ||
           file[0] == '\0';
}

/* Frames come from the innermost out: the first Python one of the group's functions tells more
 * than the C++ that it has called. */
static const struct json *operation_of(const struct json *frames)
{
    const struct json *native = NULL;

    for (const struct json *f = frames->first; f != NULL; f = f->next) {
        if (!is_operation(f))
            continue;
        if (is_python(f))
            return f;
        native = f;
    }
    return native;
}

static const struct json *place_of(const struct json *frames)
{
    const struct json *any = NULL;

    for (const struct json *f = frames->first; f != NULL; f = f->next) {
        if (is_python(f) && !is_library(f))
            return f;
        if (any == NULL || (is_python(f) && !is_python(any)))
            any = f;
    }
    return any;
}

static const struct json *innermost_python(const struct json *frames)
{
    const struct json *f = frames->first;

    while (f != NULL && !is_python(f))
        f = f->next;
    return f;
}

static void doing_of(const struct json *thread, char *ret, size_t size)
{
    const char *call = json_text(thread, "syscall", "");

    (void)snprintf(ret, size, "%s%s%s", json_text(thread, "state", "?"), call[0] ? " in " : "",
                   call);
}

static void name_of(const struct json *frame, char *ret, size_t size)
{
    char where[80];

    where_of(frame, where, sizeof(where));
    (void)snprintf(ret, size, "%.90s%s%s", json_text(frame, "func", "?"),
                   where[0] != '\0' ? ", " : "", where);
}

/* "train, job.py:14", and behind it, where it is wanted, the function of a library that it has
 * called. */
static void describe_place(const struct json *frames, bool library, char ret[HANG_PLACE])
{
    const struct json *place = place_of(frames), *inner = innermost_python(frames);
    char name[HANG_PLACE / 2], called[HANG_PLACE / 2];

    (void)snprintf(ret, HANG_PLACE, "?");
    if (place == NULL)
        return;
    name_of(place, name, sizeof(name));
    if (library && inner != NULL && inner != place && is_python(place)) {
        name_of(inner, called, sizeof(called));
        (void)snprintf(ret, HANG_PLACE, "%.190s, in %.190s", name, called);
    } else {
        (void)snprintf(ret, HANG_PLACE, "%s", name);
    }
}

/* Take the name of the operation, a C++ one without its arguments. */
static void take_operation(const struct json *frame, char ret[HANG_OPERATION])
{
    const char *name = json_text(frame, "func", "?");
    size_t n = is_python(frame) ? strlen(name) : strcspn(name, "(");

    (void)snprintf(ret, HANG_OPERATION, "%.*s", (int)(n < HANG_OPERATION ? n : HANG_OPERATION - 1),
                   name);
}

/* ---- whom an operation is with ---- */

/* The n-th number of "0-3,8-56/8"; HANG_UNKNOWN: there are fewer. */
static int64_t nth_rank(const char *text, int64_t n)
{
    struct hang_range r;

    for (; hang_range_next(&text, &r); n -= (r.last - r.first) / r.step + 1)
        if (n <= (r.last - r.first) / r.step)
            return r.first + n * r.step;
    return HANG_UNKNOWN;
}

/* An argument as a rank of the job: `src` is one, `group_src` is one of the group. */
static int64_t rank_in(const struct json *locals, const char *name, const char *in_group,
                       const char *ranks)
{
    int64_t rank = json_int(locals, name, HANG_UNKNOWN),
            n = json_int(locals, in_group, HANG_UNKNOWN);

    if (rank != HANG_UNKNOWN || n < 0)
        return rank;
    return ranks[0] != '\0' ? nth_rank(ranks, n) : n;
}

/* None, or an object with what plugin python knows of a group.  false: another one. */
static bool take_group(const struct json *group, struct hang_call *c)
{
    if (group == NULL || group->type == JSON_NULL)
        return group != NULL;
    const struct json *is = group->type == JSON_OBJECT ? json_get(group, "default") : NULL;
    if (is != NULL)
        return true;
    if (group->type == JSON_OBJECT) {
        (void)snprintf(c->group, sizeof(c->group), "%s", json_text(group, "name", ""));
        (void)snprintf(c->ranks, sizeof(c->ranks), "%s", json_text(group, "ranks", ""));
    }
    return c->ranks[0] != '\0' && strlen(json_text(group, "ranks", "")) < sizeof(c->ranks);
}

/* From the arguments of a function of torch.distributed. */
static void take_call(const struct json *frame, struct hang_call *c)
{
    static const char *const peers[][2] = {{"dst", "group_dst"}, {"src", "group_src"}};
    const struct json *locals = frame != NULL ? json_get(frame, "locals") : NULL;

    *c = (struct hang_call){.peer = HANG_UNKNOWN, .tag = HANG_UNKNOWN};
    if (locals == NULL || locals->type != JSON_OBJECT || !take_group(json_get(locals, "group"), c))
        return;
    c->known = true;
    for (size_t i = 0; i < sizeof(peers) / sizeof(peers[0]); i++) {
        if (json_get(locals, peers[i][0]) == NULL)
            continue;
        c->peer = rank_in(locals, peers[i][0], peers[i][1], c->ranks);
        c->known = c->peer != HANG_UNKNOWN; /* recv() from any rank waits for none */
    }
    if (c->known && c->peer != HANG_UNKNOWN)
        c->tag = json_int(locals, "tag", HANG_UNKNOWN);
}

/* ---- which thread speaks for the rank ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

/* It waits for threads of the program, or runs an event loop, and none of the program's own code
 * has been called from there: the training is another thread's (Ray Train, a server). */
static bool hands_over(const struct json *frames)
{
    for (const struct json *f = frames->first; f != NULL; f = f->next) {
        const char *file = json_text(f, "file", "");
        if (!is_python(f))
            continue;
        if (!is_library(f))
            return false;
        if (strstr(file, "/asyncio/") != NULL || strstr(file, "/concurrent/futures/") != NULL ||
            strstr(file, "/site-packages/ray/") != NULL ||
            (strcmp(base_name(file), "threading.py") == 0 &&
             ends_with(json_text(f, "func", ""), "join")))
            return true;
    }
    return false;
}

/* Threads of torch and of NCCL that have no Python wait in their functions for ever. */
static bool is_in_operation(const struct json *thread)
{
    const struct json *frames = json_get(thread, "frames");

    return innermost_python(frames) != NULL && operation_of(frames) != NULL;
}

static bool runs_own_code(const struct json *thread)
{
    const struct json *place = place_of(json_get(thread, "frames"));

    return place != NULL && is_python(place) && !is_library(place);
}

static const struct json *first_of(const struct json *threads, int64_t tid,
                                   bool (*is)(const struct json *thread))
{
    const struct json *found = NULL;

    for (const struct json *t = threads->first->next; t != NULL; t = t->next)
        if (is(t) && (found == NULL || json_int(t, "tid", 0) == tid))
            found = t;
    return found;
}

/* ---- one answer ---- */

/* Threads on which backward() runs where there are devices: the main one only waits for them. */
static bool is_of_autograd(const struct json *thread)
{
    return strncmp(json_text(thread, "name", ""), "pt_autograd", 11) == 0;
}

static const struct json *operation_of_main(const struct json *threads)
{
    const struct json *found = NULL;

    for (const struct json *t = threads->first; t != NULL && found == NULL; t = t->next)
        if (t == threads->first || is_of_autograd(t))
            found = operation_of(json_get(t, "frames"));
    return found;
}

/* tid: of the one that spoke at the look before. */
static const struct json *speaker_of(const struct json *threads, int64_t tid)
{
    const struct json *found = NULL;

    if (operation_of_main(threads) == NULL && hands_over(json_get(threads->first, "frames")))
        found = first_of(threads, tid, is_in_operation);
    else
        return threads->first;
    if (found == NULL)
        found = first_of(threads, tid, runs_own_code);
    return found != NULL ? found : threads->first;
}

/* A name that Python has made up has a number, and differs between ranks that do the same. */
static void add_thread(const struct json *thread, char place[HANG_PLACE])
{
    const char *name = json_text(thread, "name", "");
    size_t n = strlen(place);

    if (name[0] == '\0' || strncmp(name, "Thread-", 7) == 0)
        (void)snprintf(place + n, HANG_PLACE - n, " (not its main thread)");
    else
        (void)snprintf(place + n, HANG_PLACE - n, " (thread %.40s)", name);
}

static const struct json *take_speaker(struct hang_rank *r, const struct json *threads)
{
    const struct json *speaker = speaker_of(threads, r->tid);
    const struct json *frames = json_get(speaker, "frames");
    const struct json *operation =
        speaker == threads->first ? operation_of_main(threads) : operation_of(frames);
    int64_t tid = speaker == threads->first ? 0 : json_int(speaker, "tid", 0);
    char name[HANG_OPERATION] = "";

    if (operation != NULL)
        take_operation(operation, name);
    bool same = r->looks == 0 || (tid == r->tid && strcmp(name, r->operation) == 0);
    if (!same || r->state == HANG_MOVES)
        r->state = HANG_MOVES;
    else
        r->state = name[0] != '\0' ? HANG_WAITS : HANG_ELSEWHERE;
    r->tid = tid;
    r->by_python = operation != NULL && is_python(operation);
    memcpy(r->operation, name, sizeof(name));
    take_call(r->by_python ? operation : NULL, &r->call);
    describe_place(frames, /* library= */ operation == NULL, r->place);
    if (speaker != threads->first)
        add_thread(speaker, r->place);
    doing_of(speaker, r->doing, sizeof(r->doing));
    r->looks++;
    return speaker;
}

static void write_stack(const struct json *thread, struct buf *b)
{
    char doing[HANG_OPERATION], where[80];
    const char *sep = "";

    doing_of(thread, doing, sizeof(doing));
    (void)buf_adds(b, "{\"doing\":");
    (void)json_add_text(b, doing, strlen(doing));
    (void)buf_adds(b, ",\"frames\":[");
    const struct json *frames = json_get(thread, "frames");
    for (const struct json *f = frames->first; f != NULL; f = f->next, sep = ",") {
        const char *func = json_text(f, "func", "?");
        where_of(f, where, sizeof(where));
        (void)buf_addf(b, "%s[\"%s\",", sep, is_python(f) ? "python" : "native");
        (void)json_add_text(b, func, strlen(func));
        (void)buf_addc(b, ',');
        (void)json_add_text(b, where, strlen(where));
        (void)buf_addc(b, ']');
    }
    (void)buf_adds(b, "]}");
}

int hang_look(struct hang_rank *r, const struct json *answer, bool all_threads, bool brief,
              struct buf *stacks)
{
    const struct json *threads = answer->type == JSON_OBJECT ? json_get(answer, "threads") : NULL;

    if (threads == NULL || threads->type != JSON_ARRAY)
        return -EBADMSG;
    for (const struct json *t = threads->first; t != NULL; t = t->next) {
        const struct json *frames = t->type == JSON_OBJECT ? json_get(t, "frames") : NULL;
        if (frames == NULL || frames->type != JSON_ARRAY || frames->size > STACK_TREE_FRAMES)
            return -EBADMSG;
    }
    if (threads->first == NULL)
        return -ENODATA;
    const struct json *speaker = take_speaker(r, threads); /* the main thread comes first */
    if (stacks == NULL || (brief && r->state == HANG_WAITS))
        return 0;
    buf_reset(stacks);
    (void)buf_addc(stacks, '[');
    for (const struct json *t = threads->first; t != NULL; t = t->next) {
        if (!all_threads && t != speaker)
            continue;
        (void)buf_adds(stacks, stacks->size > 1 ? "," : "");
        write_stack(t, stacks);
    }
    (void)buf_addc(stacks, ']');
    return stacks->failed == 0 ? 0 : stacks->failed == -ENOBUFS ? -E2BIG : stacks->failed;
}

/* ---- stacks that were written above, here or on another machine ---- */

static const char *item_text(const struct json *frame, int which)
{
    const struct json *one = frame->type == JSON_ARRAY ? frame->first : NULL;

    for (; which > 0 && one != NULL; which--)
        one = one->next;
    return one != NULL && one->type == JSON_STRING ? one->text : "?";
}

/* Without native frames, and without those of Python's own that only import a module. */
static bool is_told(const struct json *frame)
{
    return strcmp(item_text(frame, 0), "python") == 0 &&
           strncmp(item_text(frame, 2), "<frozen ", 8) != 0;
}

/* A copy that cannot break a line. */
struct planted {
    char func[300], where[80];
};

/* As it may be shown on a line. */
static void take_shown(char *room, size_t size, const char *text)
{
    struct buf shown;

    buf_init(&shown, HANG_STACK_BYTES);
    (void)printable_add(&shown, text, strlen(text), PRINTABLE_LINE);
    (void)snprintf(room, size, "%s", buf_text(&shown));
    buf_done(&shown);
}

static int plant_one(struct stack_tree *tree, int64_t rank, const struct json *stack, bool python)
{
    const struct json *frames = stack->type == JSON_OBJECT ? json_get(stack, "frames") : NULL;
    char doing[HANG_OPERATION];

    if (frames == NULL || frames->type != JSON_ARRAY || frames->size > STACK_TREE_FRAMES)
        return -EBADMSG;
    struct planted *room = calloc(frames->size + 1, sizeof(*room));
    struct tree_frame *places = calloc(frames->size + 1, sizeof(*places));
    size_t at = frames->size, n = 0; /* from the outermost in: filled from the end */
    bool any = false;
    int rc = room == NULL || places == NULL ? -ENOMEM : 0;
    for (const struct json *f = frames->first; rc == 0 && f != NULL; f = f->next)
        any = any || strcmp(item_text(f, 0), "python") == 0;
    for (const struct json *f = frames->first; rc == 0 && f != NULL && at > 0; f = f->next) {
        if (python && any && !is_told(f))
            continue;
        at--;
        n++;
        take_shown(room[at].func, sizeof(room[at].func), item_text(f, 1));
        take_shown(room[at].where, sizeof(room[at].where), item_text(f, 2));
        places[at] = (struct tree_frame){room[at].func, room[at].where};
    }
    take_shown(doing, sizeof(doing), json_text(stack, "doing", "?"));
    if (rc == 0)
        rc = stack_tree_add(tree, rank, places + at, n, doing);
    free(places);
    free(room);
    return rc;
}

int hang_plant(struct stack_tree *tree, int64_t rank, const struct json *stacks, bool python)
{
    int rc = stacks->type == JSON_ARRAY ? 0 : -EBADMSG;

    for (const struct json *s = stacks->first; rc == 0 && s != NULL; s = s->next)
        rc = plant_one(tree, rank, s, python);
    return rc;
}
