/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/flame_read.c - a profile from the tables of a process, living or dead, or from a folded file.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/flame.h"
#include "core/base/err.h"
#include "core/base/text.h"

/* ---- rows ---- */

static const char *text_cell(const struct json *c)
{
    return c->type == JSON_STRING ? c->text : "";
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
    const struct flame_frame frame = {.python = strcmp(text_cell(c[2]), "python") == 0,
                                      .func = text_cell(c[3]),
                                      .file = text_cell(c[4]),
                                      .line = (int32_t)int_cell(c[5]),
                                      .module = text_cell(c[6])};
    (void)out;
    int r = flame_add_stack(self, int_cell(c[0]));
    return r < 0 ? r : flame_add_frame(self, &frame);
}

/* ts, thread_id, thread_name, stack_id, value, count */
static int sample_row(void *self, const struct json *const *c, struct buf *out)
{
    struct flame_sample s = {.thread = int_cell(c[1]),
                             .thread_name = text_cell(c[2]),
                             .value = int_cell(c[4]),
                             .count = int_cell(c[5])};
    (void)out;
    if (c[0]->type == JSON_STRING)
        (void)export_time(c[0]->text, &s.ts);
    return flame_add_sample(self, int_cell(c[3]), &s);
}

int flame_read(struct flame *f, const struct target *t, const char *where, bool in_time)
{
    struct export_writer w = {.begin = no_begin, .row = stack_row, .end = no_end, .self = f};
    struct buf sql;
    buf_init(&sql, 1u << 20);
    flame_ask_stacks(where, &sql);
    int r = answer_rows(t, buf_text(&sql), &w);
    buf_reset(&sql);
    flame_ask_samples(f, where, in_time, &sql);
    w.row = sample_row;
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
    int64_t id = f->n_stacks;
    int r = flame_add_stack(f, id);
    /* innermost first, so from the end */
    for (char *at = line; at != NULL && r == 0;) {
        char *cut = strrchr(line, ';');
        const struct flame_frame frame = {
            .func = cut != NULL ? cut + 1 : line, .file = "", .module = ""};
        r = flame_add_frame(f, &frame);
        if (cut != NULL)
            *cut = '\0';
        at = cut;
    }
    const struct flame_sample s = {.thread_name = "", .value = (int64_t)value, .count = 1};
    return r < 0 ? r : flame_add_sample(f, id, &s);
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
