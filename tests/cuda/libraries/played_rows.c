/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/cuda/libraries/played_rows.c - a plugin under the name of `cuda` that has its tables and
 * traces nothing: its rows are those of files, so that what reports make of them is known before.
 *
 * Its command is `play FILE`.  A line of the file is the number of a table in struct trace_tables,
 * how many ns ago the row was made, and its cells, with tabs between: an integer, `'text`, `'` for
 * no text and `-` for no integer.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cuda/trace/tables.h"

static const struct probing_host *host;
static struct trace_tables tables;

static union probing_cell cell_of(const char *text)
{
    union probing_cell c;
    if (text[0] == '\'')
        c.u = text[1] ? probing_intern_text(host, text + 1) : PROBING_NULL_ID;
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
    int rc = tables_new(h, &tables);
    return rc == 0 ? h->command(h, &command) : rc;
}

static void destroy(void *self)
{
    (void)self;
}

extern const struct probing_declarations cuda_declares;

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {.size = sizeof(probing_plugin_v1),
                                                                .abi = PROBING_ABI,
                                                                .name = "cuda",
                                                                .version = "1",
                                                                .doc = "rows, for a test",
                                                                .init = init,
                                                                .destroy = destroy,
                                                                .declares = &cuda_declares};
