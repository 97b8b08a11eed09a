/* SPDX-License-Identifier: Apache-2.0
 *
 * core/flame/profile.c - a profile as it comes together: samples, and the stacks that they are of.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/flame/flame.h"
#include "sdk/lib/hash.h"

#define TITLE_NAME 60 /* bytes of a name in a title */
#define NEAR 8        /* frames of a stack that a new one is compared with */

void flame_init(struct flame *f, size_t max_bytes)
{
    *f = (struct flame){.title = "", .mode = "cpu", .width = FLAME_WIDTH, .left_bytes = max_bytes};
    arena_init(&f->arena, max_bytes);
}

void flame_done(struct flame *f)
{
    free(f->frames);
    free(f->stacks);
    free(f->samples);
    free(f->places);
    free(f->labels);
    free(f->label_slots);
    arena_done(&f->arena);
}

/* Room for one more of an array that doubles; false: no memory, or more than is allowed. */
static bool room_for(struct flame *f, void **array, uint32_t n, size_t size)
{
    if (n & (n - 1) || (n == 0 && *array != NULL))
        return true;
    size_t grown = (n ? n : 1) * size;
    if (n >= UINT32_MAX / 2 || grown > f->left_bytes)
        return false;
    void *more = realloc(*array, (n ? n * (size_t)2 : 1) * size);
    if (more == NULL)
        return false;
    f->left_bytes -= grown;
    *array = more;
    return true;
}

static const char *keep_text(struct flame *f, const char *text, size_t n)
{
    char *copy = arena_zalloc(&f->arena, n + 1, 1);
    if (copy != NULL)
        memcpy(copy, text, n);
    return copy != NULL ? copy : "";
}

static uint32_t hash_of(const char *text)
{
    return (uint32_t)hash_text(HASH_FNV, text);
}

static bool grow_slots(struct flame *f)
{
    uint32_t room = f->label_room ? f->label_room * 2 : 1024;
    uint32_t *slots = calloc(room, sizeof(*slots));
    if (slots == NULL)
        return false;
    for (uint32_t i = 0; i < f->n_labels; i++) {
        uint32_t at = hash_of(f->labels[i]) & (room - 1);
        while (slots[at])
            at = (at + 1) & (room - 1);
        slots[at] = i + 1;
    }
    free(f->label_slots);
    f->label_slots = slots;
    f->label_room = room;
    return true;
}

uint32_t flame_label(struct flame *f, const char *text)
{
    if (f->n_labels * 2 >= f->label_room && !grow_slots(f))
        return UINT32_MAX;
    uint32_t at = hash_of(text) & (f->label_room - 1);
    for (; f->label_slots[at]; at = (at + 1) & (f->label_room - 1))
        if (strcmp(f->labels[f->label_slots[at] - 1], text) == 0)
            return f->label_slots[at] - 1;
    if (!room_for(f, (void **)&f->labels, f->n_labels, sizeof(*f->labels)))
        return UINT32_MAX;
    f->labels[f->n_labels++] = keep_text(f, text, strlen(text));
    f->label_slots[at] = f->n_labels;
    return f->n_labels - 1;
}

/* "train (train.py)" or "train (train.py:12)", "malloc (libc.so.6)". */
static uint32_t label_of(struct flame *f, const struct flame_frame *frame)
{
    char text[1600];
    const char *where = frame->file[0] != '\0' ? frame->file : frame->module;
    const char *slash = strrchr(where, '/');
    where = slash != NULL ? slash + 1 : where;
    int n = snprintf(text, sizeof(text), "%s", frame->func);
    if (n > 0 && (size_t)n < sizeof(text) && where[0] != '\0' && f->lines && frame->line > 0)
        (void)snprintf(text + n, sizeof(text) - (size_t)n, " (%s:%d)", where, frame->line);
    else if (n > 0 && (size_t)n < sizeof(text) && where[0] != '\0')
        (void)snprintf(text + n, sizeof(text) - (size_t)n, " (%s)", where);
    for (char *p = text; *p != '\0'; p++)
        if (*p == ';' || *p == '\n') /* folded stacks are told apart by these */
            *p = ':';
    return flame_label(f, text);
}

static int no_room(void)
{
    return err_set(-ENOMEM,
                   "the profile is too large for the memory it may use; ask for less time");
}

static bool add_place(struct flame *f, uint32_t **ret_place)
{
    if (!room_for(f, (void **)&f->frames, f->n_frames, sizeof(*f->frames)) ||
        !room_for(f, (void **)&f->places, f->n_places, sizeof(*f->places)))
        return false;
    *ret_place = &f->places[f->n_places];
    return true;
}

int flame_add_stack(struct flame *f, int64_t id)
{
    if (f->n_stacks > 0 && f->stacks[f->n_stacks - 1].id == id)
        return 0;
    if (!room_for(f, (void **)&f->stacks, f->n_stacks, sizeof(*f->stacks)))
        return no_room();
    f->stacks[f->n_stacks++] = (struct flame_stack){.id = id, .first = f->n_places};
    return 0;
}

/* Code of the core or of one of our plugins, as the loader names it, or the file that a plugin's
 * sealed copy is of.  A stranger's plugin is code like any other. */
static bool is_ours(const char *module)
{
    static const char *const plugins[] = {"/plugins/profile.so", "/plugins/python.so",
                                          "/plugins/torch.so"};
    const char *slash = strrchr(module, '/'), *base = slash != NULL ? slash + 1 : module;
    size_t n = strlen(module);
    bool ours = strncmp(base, "memfd:probing", 13) == 0 || strncmp(base, "libprobing", 10) == 0;
    for (size_t i = 0; i < sizeof(plugins) / sizeof(plugins[0]) && !ours; i++) {
        size_t size = strlen(plugins[i]);
        ours = n > size && strcmp(module + n - size, plugins[i]) == 0;
    }
    return ours;
}

static bool is_frame(const struct flame_frame *a, const struct flame_frame *b)
{
    return a->line == b->line && a->python == b->python && strcmp(a->func, b->func) == 0 &&
           strcmp(a->file, b->file) == 0 && strcmp(a->module, b->module) == 0;
}

/* The frame of these that the last stack has near by, as a recursion has; UINT32_MAX: none. */
static uint32_t find_near(const struct flame *f, const struct flame_frame *given)
{
    const struct flame_stack *stack = &f->stacks[f->n_stacks - 1];
    for (uint32_t i = 1; i <= stack->n && i <= NEAR; i++) {
        uint32_t number = f->places[f->n_places - i];
        if (is_frame(&f->frames[number], given))
            return number;
    }
    return UINT32_MAX;
}

int flame_add_frame(struct flame *f, const struct flame_frame *given)
{
    static const struct flame_frame ours = {.func = "[probing]", .file = "", .module = ""};
    struct flame_stack *stack = &f->stacks[f->n_stacks - 1];
    uint32_t *place;
    if (!given->python && is_ours(given->module)) {
        if (stack->n > 0)
            return 0;
        given = &ours;
    }
    if (given->module[0] == '\0' && strcmp(given->func, FLAME_BROKEN) == 0)
        stack->broken = true;
    if (!add_place(f, &place))
        return no_room();
    *place = find_near(f, given);
    if (*place != UINT32_MAX) {
        f->n_places++;
        stack->n++;
        return 0;
    }
    struct flame_frame *frame = &f->frames[f->n_frames];
    *frame = *given;
    frame->func = keep_text(f, given->func, strlen(given->func));
    frame->file = keep_text(f, given->file, strlen(given->file));
    frame->module = keep_text(f, given->module, strlen(given->module));
    frame->label = label_of(f, frame);
    *place = f->n_frames++;
    f->n_places++;
    stack->n++;
    return frame->label == UINT32_MAX ? no_room() : 0;
}

int flame_replace(struct flame *f, struct flame_stack *s, const uint32_t *frames, uint32_t n)
{
    uint32_t first = f->n_places;
    for (uint32_t i = 0; i < n; i++) {
        if (!room_for(f, (void **)&f->places, f->n_places, sizeof(*f->places)))
            return no_room();
        f->places[f->n_places++] = frames[i];
    }
    s->first = first;
    s->n = n;
    return 0;
}

static uint32_t stack_numbered(const struct flame *f, int64_t id)
{
    uint32_t low = 0, high = f->n_stacks;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (f->stacks[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < f->n_stacks && f->stacks[low].id == id ? low : UINT32_MAX;
}

int flame_add_sample(struct flame *f, int64_t stack, const struct flame_sample *given)
{
    struct flame_sample s = *given;
    if (s.value <= 0)
        return 0; /* it waited, and waiting is not asked for */
    s.id = stack;
    if (!room_for(f, (void **)&f->samples, f->n_samples, sizeof(*f->samples)))
        return no_room();
    s.thread_name = keep_text(f, given->thread_name, strlen(given->thread_name));
    f->samples[f->n_samples++] = s;
    f->n_given += s.count;
    return 0;
}

int flame_join(struct flame *f)
{
    uint32_t n = 0;
    f->total = 0;
    for (uint32_t i = 0; i < f->n_samples; i++) {
        struct flame_sample *s = &f->samples[i];
        s->stack = stack_numbered(f, s->id);
        if (s->stack == UINT32_MAX) {
            f->n_lost += s->count;
            continue;
        }
        f->total += s->value;
        f->n_sampled += !f->stacks[s->stack].sampled;
        f->stacks[s->stack].sampled = true;
        f->samples[n++] = *s;
    }
    f->n_samples = n;
    f->joined = true;
    return flame_mend(f);
}

void flame_tell_lost(const struct flame *f, char *ret, size_t size)
{
    ret[0] = '\0';
    if (f->n_lost > 0)
        (void)snprintf(ret, size,
                       "%lld of %lld samples are left out: their stacks are not there any more, as "
                       "retention takes the oldest away",
                       (long long)f->n_lost, (long long)f->n_given);
    size_t n = strlen(ret);
    (void)snprintf(ret + n, size - n, "%s%s", n && f->missing[0] ? "; " : "", f->missing);
}

void flame_ask_samples(const char *sql, bool in_time, struct buf *ret)
{
    if (in_time)
        (void)buf_addf(
            ret,
            "select ts, thread_id, thread_name, stack_id, value, count from (%s) s order "
            "by thread_id, ts",
            sql);
    else
        (void)buf_addf(ret,
                       "select null, thread_id, max(thread_name), stack_id, sum(value), sum(count) "
                       "from (%s) s group by thread_id, stack_id",
                       sql);
}

/* The next word's begin and size, of a path its last part; what follows it. */
static const char *next_word(const char *at, const char **ret, int *ret_n)
{
    at += strspn(at, " ");
    size_t n = strcspn(at, " ");
    const char *end = at + n;
    for (const char *p = at; p < end; p++)
        if (*p == '/')
            at = p + 1;
    *ret = at;
    *ret_n = (int)(end - at);
    return end;
}

void flame_title(char *ret, size_t size, const char *command, const char *who, const char *what)
{
    const char *name, *word;
    int n_name, n;
    const char *rest = next_word(command, &name, &n_name);
    rest = next_word(rest, &word, &n);
    bool module = n == 2 && strncmp(word, "-m", 2) == 0;
    if (module)
        (void)next_word(rest, &word, &n);
    bool script = n > 3 && strncmp(word + n - 3, ".py", 3) == 0;
    const char *between = module && n > 0 ? " -m " : script ? " " : "";
    n = between[0] == '\0' ? 0 : n < TITLE_NAME ? n : TITLE_NAME;
    n_name = n_name < TITLE_NAME ? n_name : TITLE_NAME;
    if (n_name == 0)
        (void)snprintf(ret, size, "%.200s: %s", who, what);
    else
        (void)snprintf(ret, size, "%.*s%s%.*s (%.200s): %s", n_name, name, between, n, word, who,
                       what);
}
