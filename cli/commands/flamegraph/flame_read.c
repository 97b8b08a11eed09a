/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/flamegraph/flame_read.c - a profile from the tables of a process, living or dead, or
 * from a folded file.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/flamegraph/flame.h"
#include "cli/export/plain_name.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "core/base/err.h"
#include "core/base/text.h"

/* ---- rows ---- */

/* stack_id, depth, frame_type, func, file, lineno, module; by stack_id and depth. */
static int stack_row(void *self, const struct sql_value *c, uint32_t n)
{
    struct flame *f = self;
    if (n != 7)
        return err_set(-EPROTO, "stacks of %u columns, not 7", n);
    const struct flame_frame frame = {.python = strcmp(answer_text(&c[2]), "python") == 0,
                                      .func = cli_plain_name(answer_text(&c[3])),
                                      .file = answer_text(&c[4]),
                                      .line = (int32_t)answer_int(&c[5]),
                                      .module = answer_text(&c[6])};
    int rc = flame_add_stack(f, answer_int(&c[0]));
    if (rc == 0)
        rc = flame_add_frame(f, &frame);
    return rc;
}

/* ts, thread_id, thread_name, stack_id, value, count */
static int sample_row(void *self, const struct sql_value *c, uint32_t n)
{
    if (n != 6)
        return err_set(-EPROTO, "samples of %u columns, not 6", n);
    const struct flame_sample s = {.ts = c[0].type == SQL_TIMESTAMP ? c[0].integer : 0,
                                   .thread = answer_int(&c[1]),
                                   .thread_name = answer_text(&c[2]),
                                   .value = answer_int(&c[4]),
                                   .count = answer_int(&c[5])};
    return flame_add_sample(self, answer_int(&c[3]), &s);
}

/* Nobody who draws a picture has written the statement: where in it something lacks is no help. */
static int without_place(int rc)
{
    char why[ERR_TEXT_BYTES];
    const char *text = err_text();

    if (rc >= 0 || strncmp(text, "line ", 5) != 0 || strstr(text, ": ") == NULL)
        return rc;
    (void)snprintf(why, sizeof(why), "%s", strstr(text, ": ") + 2);
    return err_set(rc, "%s", why);
}

int flame_read_stacks(struct flame *f, const struct target *t, const char *stacks)
{
    const struct answer_sink to = {.arg = f, .row = stack_row};
    return without_place(answer_read(t, stacks, &to));
}

int flame_read_samples(struct flame *f, const struct target *t, const char *samples, bool in_time)
{
    const struct answer_sink to = {.arg = f, .row = sample_row};
    struct buf sql;
    buf_init(&sql, 1u << 20);
    flame_ask_samples(samples, in_time, &sql);
    int rc = without_place(answer_read(t, buf_text(&sql), &to));
    f->counted = true;
    buf_done(&sql);
    return rc;
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
                   : err_set(-EBADMSG, "'%.60s' is not a folded stack such as: main;train;step 12",
                             line);
    *last = '\0';
    int64_t id = f->n_stacks;
    int rc = flame_add_stack(f, id);
    /* innermost first, so from the end */
    for (char *at = line; at != NULL && rc == 0;) {
        char *cut = strrchr(line, ';');
        const struct flame_frame frame = {
            .func = cut != NULL ? cut + 1 : line, .file = "", .module = ""};
        rc = flame_add_frame(f, &frame);
        if (cut != NULL)
            *cut = '\0';
        at = cut;
    }
    const struct flame_sample s = {.thread_name = "", .value = (int64_t)value, .count = 1};
    return rc < 0 ? rc : flame_add_sample(f, id, &s);
}

int flame_read_folded(struct flame *f, const char *path)
{
    char *line = NULL;
    size_t room = 0;
    int rc = 0;
    f->mode = FLAME_NUMBERS;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return err_set(-errno, "%s cannot be read: %s", path, strerror(errno));
    while (rc == 0 && getline(&line, &room, file) > 0) {
        line[strcspn(line, "\r\n")] = '\0';
        rc = folded_line(f, line);
    }
    free(line);
    (void)fclose(file);
    return rc < 0 ? rc : flame_join(f);
}
