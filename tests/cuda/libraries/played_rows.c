/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/cuda/libraries/played_rows.c - a plugin under the name of `cuda` that has its tables and
 * traces nothing: its rows are those of files, so that what reports make of them is known before.
 *
 * Its command is `play FILE`.  A line of the file is the number of a table in struct trace_tables,
 * how many ns ago the row was made, and its cells, with tabs between: an integer, `'text`, `'` for
 * no text, `-` for no integer, and a number with a point.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cuda/trace/tables.h"
#include "plugins/cuda/trace/tracer.h"

static const struct probing_host *host;
static struct {
    struct trace_tables cuda;
    struct probing_table *steps; /* of plugin torch, as far as it is asked for here; last */
} tables;

static union probing_cell cell_of(const char *text)
{
    union probing_cell c;
    if (text[0] == '\'')
        c.u = text[1] ? probing_intern_text(host, text + 1) : PROBING_NULL_ID;
    else if (strchr(text, '.'))
        c.f = strtod(text, NULL);
    else
        c.i = strcmp(text, "-") == 0 ? PROBING_NULL_I64 : strtoll(text, NULL, 10);
    return c;
}

static int line_of(char *line, uint64_t now)
{
    struct probing_table *const *all = (struct probing_table *const *)&tables;
    union probing_cell cells[64];
    uint32_t n = 0;
    char *at = NULL, *table = strtok_r(line, "\t\n", &at), *ago = strtok_r(NULL, "\t\n", &at);
    for (char *word = strtok_r(NULL, "\t\n", &at); word && n < 64;
         word = strtok_r(NULL, "\t\n", &at))
        cells[n++] = cell_of(word);
    return host->append(all[atoi(table)], now - strtoull(ago, NULL, 10), cells, n, NULL, 0);
}

static int play(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    char line[8192];
    int rc = 0, n = 0;
    FILE *f = argc == 2 ? fopen(argv[1], "re") : NULL;
    (void)self;
    if (!f)
        return host->fail(host, -ENOENT, "play FILE");
    for (uint64_t now = host->now(); rc == 0 && fgets(line, sizeof(line), f); n++)
        rc = line_of(line, now);
    (void)fclose(f);
    return rc < 0 ? probing_failf(host, rc, "line %d", n) : probing_replyf(host, out, "%d\n", n);
}

static int init(const struct probing_host *h, void **ret_self)
{
    static const struct probing_command command = {
        .size = sizeof(command), .name = "play", .usage = "FILE", .doc = "add rows", .run = play};
    host = h;
    *ret_self = &tables;
    static const struct probing_column columns[] = {
        PROBING_F64_COLUMN("step_duration_sec", PROBING_SECONDS, "as plugin torch has it")};
    static const struct probing_table_desc steps =
        PROBING_TABLE("python.torch_step_timing", columns, "as far as it is needed");
    int rc = tables_new(h, &tables.cuda);
    if (rc == 0)
        rc = h->table(h, &steps, &tables.steps);
    return rc == 0 ? h->command(h, &command) : rc;
}

static void destroy(void *self)
{
    (void)self;
}

extern const struct probing_declarations cuda_declares;
static const struct probing_config settings[] = {TRACER_SETTINGS, {.name = NULL}}; /* of aliases */

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {.size = sizeof(probing_plugin_v1),
                                                                .abi = PROBING_ABI,
                                                                .name = "cuda",
                                                                .version = "1",
                                                                .doc = "rows, for a test",
                                                                .config = settings,
                                                                .config_size = sizeof(settings[0]),
                                                                .init = init,
                                                                .destroy = destroy,
                                                                .declares = &cuda_declares};
