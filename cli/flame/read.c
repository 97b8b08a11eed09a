/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/flame/read.c - a profile from the tables of a process, living or dead, or from a folded file.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/flame/flame.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define MEMORY_MAX ((size_t)4 << 30)

void flame_init(struct flame *f)
{
    *f = (struct flame){.title = "", .mode = "cpu"};
    arena_init(&f->arena, MEMORY_MAX);
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

/* Room for one more of an array that doubles; false: no memory. */
static bool room_for(void **array, uint32_t n, size_t size)
{
    if (n & (n - 1) || (n == 0 && *array != NULL))
        return true;
    void *more = n < UINT32_MAX / 2 ? realloc(*array, (n ? n * (size_t)2 : 1) * size) : NULL;
    if (more == NULL)
        return false;
    *array = more;
    return true;
}

static const char *keep(struct flame *f, const char *text, size_t n)
{
    char *copy = arena_zalloc(&f->arena, n + 1, 1);
    if (copy != NULL)
        memcpy(copy, text, n);
    return copy != NULL ? copy : "";
}

static uint32_t hash_text(const char *text)
{
    uint32_t hash = UINT32_C(2166136261); /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT32_C(16777619);
    return hash;
}

static bool grow_slots(struct flame *f)
{
    uint32_t room = f->label_room ? f->label_room * 2 : 1024;
    uint32_t *slots = calloc(room, sizeof(*slots));
    if (slots == NULL)
        return false;
    for (uint32_t i = 0; i < f->n_labels; i++) {
        uint32_t at = hash_text(f->labels[i]) & (room - 1);
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
    uint32_t at = hash_text(text) & (f->label_room - 1);
    for (; f->label_slots[at]; at = (at + 1) & (f->label_room - 1))
        if (strcmp(f->labels[f->label_slots[at] - 1], text) == 0)
            return f->label_slots[at] - 1;
    if (!room_for((void **)&f->labels, f->n_labels, sizeof(*f->labels)))
        return UINT32_MAX;
    f->labels[f->n_labels++] = keep(f, text, strlen(text));
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
    int n = snprintf(text, sizeof text, "%s", frame->func);
    if (n > 0 && (size_t)n < sizeof text && where[0] != '\0' && f->lines && frame->line > 0)
        (void)snprintf(text + n, sizeof text - (size_t)n, " (%s:%d)", where, frame->line);
    else if (n > 0 && (size_t)n < sizeof text && where[0] != '\0')
        (void)snprintf(text + n, sizeof text - (size_t)n, " (%s)", where);
    for (char *p = text; *p != '\0'; p++)
        if (*p == ';' || *p == '\n') /* folded stacks are told apart by these */
            *p = ':';
    return flame_label(f, text);
}

/* ---- rows ---- */

static const char *text_cell(struct flame *f, const struct json *c)
{
    return c->type == JSON_STRING ? keep(f, c->text, c->size) : "";
}

static int64_t int_cell(const struct json *c)
{
    return c->type == JSON_NUMBER ? c->integer : 0;
}

static int no_begin(void *self, const struct export_column *columns, uint32_t n, struct buf *out)
{
    (void)self;
    (void)columns;
    (void)n;
    (void)out;
    return 0;
}

static int no_end(void *self, struct buf *out)
{
    (void)self;
    (void)out;
    return 0;
}

/* stack_id, depth, frame_type, func, file, lineno, module; by stack_id and depth. */
static int stack_row(void *self, const struct json *const *c, struct buf *out)
{
    struct flame *f = self;
    int64_t id = int_cell(c[0]);
    (void)out;
    if (f->n_stacks == 0 || f->stacks[f->n_stacks - 1].id != id) {
        if (!room_for((void **)&f->stacks, f->n_stacks, sizeof(*f->stacks)))
            return err_set(-ENOMEM, "no memory for the stacks");
        f->stacks[f->n_stacks++] = (struct flame_stack){.id = id, .first = f->n_places};
    }
    if (!room_for((void **)&f->frames, f->n_frames, sizeof(*f->frames)) ||
        !room_for((void **)&f->places, f->n_places, sizeof(*f->places)))
        return err_set(-ENOMEM, "no memory for the stacks");
    struct flame_frame *frame = &f->frames[f->n_frames];
    *frame = (struct flame_frame){.python = strcmp(text_cell(f, c[2]), "python") == 0,
                                  .func = text_cell(f, c[3]),
                                  .file = text_cell(f, c[4]),
                                  .line = (int32_t)int_cell(c[5]),
                                  .module = text_cell(f, c[6])};
    frame->label = label_of(f, frame);
    f->places[f->n_places++] = f->n_frames++;
    f->stacks[f->n_stacks - 1].n++;
    return frame->label == UINT32_MAX ? err_set(-ENOMEM, "no memory for the frames") : 0;
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

/* ts, thread_id, thread_name, stack_id, value, count */
static int sample_row(void *self, const struct json *const *c, struct buf *out)
{
    struct flame *f = self;
    (void)out;
    struct flame_sample s = {.thread = int_cell(c[1]),
                             .thread_name = text_cell(f, c[2]),
                             .stack = stack_numbered(f, int_cell(c[3])),
                             .value = int_cell(c[4]),
                             .count = int_cell(c[5])};
    if (c[0]->type == JSON_STRING)
        (void)export_time(c[0]->text, &s.ts);
    if (s.stack == UINT32_MAX || s.value <= 0)
        return 0; /* its stack was dropped by age, or it waited and waiting is not asked for */
    if (!room_for((void **)&f->samples, f->n_samples, sizeof(*f->samples)))
        return err_set(-ENOMEM, "no memory for the samples");
    f->samples[f->n_samples++] = s;
    f->total += s.value;
    return 0;
}

static const char *value_of(const char *mode)
{
    return strcmp(mode, "cpu") == 0 ? "cpu_ns" : "wall_ns";
}

int flame_read(struct flame *f, const struct target *t, const char *where, bool in_time)
{
    struct export_writer w = {.begin = no_begin, .row = stack_row, .end = no_end, .self = f};
    const char *only = strcmp(f->mode, "gil") == 0 ? " and gil = 1" : "";
    struct buf sql;
    buf_init(&sql, 1u << 20);
    (void)buf_addf(&sql,
                   "select stack_id, depth, frame_type, func, file, lineno, module from "
                   "python.stacks where stack_id in (select stack_id from python.samples where "
                   "true%s) order by stack_id, depth",
                   where);
    int r = answer_rows(t, buf_text(&sql), &w);
    buf_reset(&sql);
    w.row = sample_row;
    if (in_time)
        (void)buf_addf(&sql,
                       "select ts, thread_id, thread_name, stack_id, %s, 1 from python.samples "
                       "where true%s%s order by thread_id, ts",
                       value_of(f->mode), where, only);
    else
        (void)buf_addf(&sql,
                       "select null, thread_id, max(thread_name), stack_id, sum(%s), count(*) from "
                       "python.samples where true%s%s group by thread_id, stack_id",
                       value_of(f->mode), where, only);
    if (r == 0)
        r = answer_rows(t, buf_text(&sql), &w);
    buf_done(&sql);
    return r;
}

/* ---- folded files ---- */

/* "a;b;c 12" or "a;b;c 12 14" (then the last counts). */
static int folded_line(struct flame *f, char *line)
{
    char *last = strrchr(line, ' ');
    uint64_t value;
    if (last == NULL || parse_u64(last + 1, &value) < 0)
        return line[0] == '\0' || line[0] == '#'
                   ? 0
                   : err_set(-EBADMSG, "'%.60s' is no folded stack: frames;with;these 12", line);
    *last = '\0';
    if (!room_for((void **)&f->stacks, f->n_stacks, sizeof(*f->stacks)) ||
        !room_for((void **)&f->samples, f->n_samples, sizeof(*f->samples)))
        return err_set(-ENOMEM, "no memory for the stacks");
    struct flame_stack *s = &f->stacks[f->n_stacks];
    *s = (struct flame_stack){.id = f->n_stacks, .first = f->n_places};
    /* innermost first, so from the end */
    for (char *at = line; at != NULL;) {
        char *cut = strrchr(line, ';'), *name = cut != NULL ? cut + 1 : line;
        if (!room_for((void **)&f->frames, f->n_frames, sizeof(*f->frames)) ||
            !room_for((void **)&f->places, f->n_places, sizeof(*f->places)))
            return err_set(-ENOMEM, "no memory for the stacks");
        f->frames[f->n_frames] = (struct flame_frame){.func = keep(f, name, strlen(name)),
                                                      .file = "",
                                                      .module = "",
                                                      .label = flame_label(f, name)};
        f->places[f->n_places++] = f->n_frames++;
        s->n++;
        if (cut != NULL)
            *cut = '\0';
        at = cut;
    }
    f->samples[f->n_samples++] = (struct flame_sample){
        .thread_name = "", .stack = f->n_stacks++, .value = (int64_t)value, .count = 1};
    f->total += (int64_t)value;
    return 0;
}

int flame_read_folded(struct flame *f, const char *path)
{
    char *line = NULL;
    size_t room = 0;
    int r = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return err_set(-errno, "%s cannot be read: %s", path, strerror(errno));
    while (r == 0 && getline(&line, &room, file) > 0) {
        line[strcspn(line, "\r\n")] = '\0';
        r = folded_line(f, line);
    }
    free(line);
    (void)fclose(file);
    return r;
}
