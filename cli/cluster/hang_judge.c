/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/hang_judge.c - what a stack says of a rank, and what all of them say together.
 */
#include "cli/cluster/hang_judge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANGES_SHOWN 12

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

/* "job.py:9"; "libc.so.6+0x85f14" where the function is not known; else nothing: a native frame's
 * place in its function differs between ranks that do the same. */
static void where_of(const struct json *frame, char *ret, size_t size)
{
    if (is_python(frame))
        (void)snprintf(ret, size, "%s:%lld", base_name(json_text(frame, "file", "?")),
                       (long long)json_int(frame, "line", 0));
    else if (strcmp(json_text(frame, "func", "?"), "?") == 0)
        (void)snprintf(ret, size, "%s+%s", base_name(json_text(frame, "module", "?")),
                       json_text(frame, "offset", "?"));
    else
        ret[0] = '\0';
}

/* The functions of torch.distributed by which a program waits for other ranks, and what stands
 * below them when C++ waits by itself (backward() of DistributedDataParallel). */
static bool is_operation(const struct json *frame)
{
    static const char *const libraries[] = {"c10d::",     "gloo::",   "ncclAll",  "ncclBroadcast",
                                            "ncclReduce", "ncclSend", "ncclRecv", "ncclGroupEnd",
                                            "MPI_",       "PMPI_"};
    const char *func = json_text(frame, "func", "");

    if (is_python(frame)) {
        const char *file = base_name(json_text(frame, "file", ""));
        return strcmp(file, "distributed_c10d.py") == 0 ||
               strcmp(file, "_functional_collectives.py") == 0;
    }
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
        if (strncmp(func, libraries[i], strlen(libraries[i])) == 0)
            return true;
    return false;
}

/* Of an installed package, or of Python itself: not what the user wrote. */
static bool is_library(const struct json *frame)
{
    const char *file = json_text(frame, "file", "");

    return strstr(file, "/site-packages/") != NULL || strstr(file, "/dist-packages/") != NULL ||
           strstr(file, "/lib/python") != NULL || file[0] == '<';
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

static void doing_of(const struct json *thread, char *ret, size_t size)
{
    const char *call = json_text(thread, "syscall", "");

    (void)snprintf(ret, size, "%s%s%s", json_text(thread, "state", "?"), call[0] ? " in " : "",
                   call);
}

static void take_main(struct hang_rank *r, const struct json *thread, const struct json *frames)
{
    const struct json *operation = operation_of(frames), *place = place_of(frames);
    char name[HANG_OPERATION] = "", where[HANG_PLACE / 2] = "";

    if (operation != NULL)
        (void)snprintf(name, sizeof(name), "%s", json_text(operation, "func", "?"));
    if (place != NULL)
        where_of(place, where, sizeof(where));
    bool same = r->looks == 0 || strcmp(name, r->operation) == 0;
    if (!same || r->state == HANG_MOVES)
        r->state = HANG_MOVES;
    else
        r->state = name[0] != '\0' ? HANG_WAITS : HANG_ELSEWHERE;
    memcpy(r->operation, name, sizeof(name));
    (void)snprintf(r->place, sizeof(r->place), "%.90s%s%s",
                   place != NULL ? json_text(place, "func", "?") : "?", where[0] ? "  " : "",
                   where);
    doing_of(thread, r->doing, sizeof(r->doing));
    r->looks++;
}

struct planted {
    char where[HANG_PLACE];
};

static int plant(const struct hang_rank *r, const struct json *thread, const struct json *frames,
                 const struct hang_frames *wanted, struct stack_tree *tree)
{
    struct planted *room = calloc(frames->size + 1, sizeof(*room));
    struct tree_frame *places = calloc(frames->size + 1, sizeof(*places));
    size_t at = frames->size, n = 0; /* from the outermost in: filled from the end */
    char doing[HANG_OPERATION];
    int rc = -ENOMEM;

    if (room != NULL && places != NULL) {
        for (const struct json *f = frames->first; f != NULL && at > 0; f = f->next) {
            if (!wanted->native && !is_python(f))
                continue;
            at--;
            n++;
            where_of(f, room[at].where, sizeof(room[at].where));
            places[at] = (struct tree_frame){json_text(f, "func", "?"), room[at].where};
        }
        doing_of(thread, doing, sizeof(doing));
        rc = stack_tree_add(tree, r->rank, places + at, n, doing);
    }
    free(places);
    free(room);
    return rc;
}

int hang_look(struct hang_rank *r, const struct json *answer, const struct hang_frames *wanted,
              struct stack_tree *tree)
{
    const struct json *threads = answer->type == JSON_OBJECT ? json_get(answer, "threads") : NULL;
    bool seen = false;
    int rc = 0;

    if (threads == NULL || threads->type != JSON_ARRAY)
        return -EBADMSG;
    for (const struct json *t = threads->first; t != NULL && rc == 0; t = t->next) {
        const struct json *frames = t->type == JSON_OBJECT ? json_get(t, "frames") : NULL;
        if (frames == NULL || frames->type != JSON_ARRAY || frames->size > STACK_TREE_FRAMES)
            return -EBADMSG;
        if (!seen)
            take_main(r, t, frames); /* the main thread comes first */
        if (tree != NULL && (!seen || wanted->all_threads))
            rc = plant(r, t, frames, wanted, tree);
        seen = true;
    }
    return rc == 0 && !seen ? -ENODATA : rc;
}

/* ---- all of them ---- */

size_t hang_awaited(const struct hang_rank *ranks, size_t n, bool *which)
{
    size_t waiting = 0, moving = 0, elsewhere = 0;

    for (size_t i = 0; i < n; i++) {
        waiting += ranks[i].state == HANG_WAITS;
        moving += ranks[i].state == HANG_MOVES;
        elsewhere += ranks[i].state == HANG_ELSEWHERE;
    }
    bool any = waiting > 0 && moving == 0;
    for (size_t i = 0; i < n; i++)
        which[i] = any && ranks[i].state == HANG_ELSEWHERE;
    return any ? elsewhere : 0;
}

struct saying {
    const struct hang_rank *ranks;
    size_t n;
    const char *one, *many;
    struct buf *ret;
};

static bool is_alike(const struct hang_rank *a, const struct hang_rank *b)
{
    if (a->state != b->state)
        return false;
    return a->state == HANG_WAITS ? strcmp(a->operation, b->operation) == 0
           : a->state == HANG_ELSEWHERE
               ? strcmp(a->place, b->place) == 0 && strcmp(a->doing, b->doing) == 0
               : true;
}

/* "3 ranks: 0-1,3" of all that are like rank `at`, and not before it; 0: one before it was. */
static size_t add_alike(const struct saying *s, size_t at)
{
    int64_t *alike = calloc(s->n, sizeof(*alike));
    size_t n = 0;

    for (size_t i = 0; i < at; i++)
        if (alike == NULL || is_alike(&s->ranks[i], &s->ranks[at])) {
            free(alike);
            return 0;
        }
    for (size_t i = at; i < s->n && alike != NULL; i++)
        if (is_alike(&s->ranks[i], &s->ranks[at]))
            alike[n++] = s->ranks[i].rank;
    (void)buf_addf(s->ret, "%s ", n == 1 ? s->one : s->many);
    rank_ranges(alike, n, RANGES_SHOWN, s->ret);
    if (n > 1)
        (void)buf_addf(s->ret, " (%zu)", n);
    free(alike);
    return n;
}

static size_t say_each(const struct saying *s, enum hang_state state)
{
    size_t kinds = 0;

    for (size_t i = 0; i < s->n; i++) {
        const struct hang_rank *r = &s->ranks[i];
        size_t n = r->state == state ? add_alike(s, i) : 0;
        if (n == 0)
            continue;
        kinds++;
        if (state == HANG_WAITS)
            (void)buf_addf(s->ret, " %s in %s\n", n == 1 ? "waits" : "wait", r->operation);
        else if (state == HANG_ELSEWHERE)
            (void)buf_addf(s->ret, " %s in no collective: %s (%s)\n", n == 1 ? "is" : "are",
                           r->place, r->doing);
        else
            (void)buf_addf(s->ret, " %s: not the same at each look\n", n == 1 ? "moves" : "move");
    }
    return kinds;
}

static size_t count(const struct saying *s, enum hang_state state)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++)
        n += s->ranks[i].state == state;
    return n;
}

static const char *conclusion(size_t waiting, size_t elsewhere, size_t moving, size_t operations)
{
    if (moving > 0)
        return "Nothing hangs: some move. Who is slow, a longer look tells (--looks).\n";
    if (waiting == 0)
        return "Nobody waits in a collective.\n";
    if (elsewhere > 0)
        return "Those that wait are waiting for the others.\n";
    if (operations > 1)
        return "They wait in different operations: the ranks do not run the same program, or not "
               "in the same order.\n";
    return "All that answered wait in the same operation: what is missing is a rank that was not "
           "asked, the network, or a device.\n";
}

void hang_verdict(const struct hang_rank *ranks, size_t n, const char *one, const char *many,
                  struct buf *ret)
{
    const struct saying s = {.ranks = ranks, .n = n, .one = one, .many = many, .ret = ret};
    size_t waiting = count(&s, HANG_WAITS), elsewhere = count(&s, HANG_ELSEWHERE);
    size_t moving = count(&s, HANG_MOVES);

    if (waiting + elsewhere + moving == 0)
        return;
    size_t operations = say_each(&s, HANG_WAITS);
    (void)say_each(&s, HANG_ELSEWHERE);
    (void)say_each(&s, HANG_MOVES);
    (void)buf_adds(ret, conclusion(waiting, elsewhere, moving, operations));
}
