/* SPDX-License-Identifier: Apache-2.0
 *
 * core/builtin/metrics_table.c - probing.metrics: what the command "metrics" tells, a row each.
 *
 * Threads: workers, one scan each.  The text is ours (metrics.c), so its form is known.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/builtin/builtin.h"

#define NAME_BYTES 200
#define LABELS_BYTES 4096

/* The lines above the rows of a family: "# TYPE probing_table_rows gauge". */
struct family {
    char type[16], unit[16], help[512];
};

static void take_head(const char *line, struct family *f)
{
    const char *name = line + strlen("# TYPE "), *value = strchr(name, ' ');
    if (!value)
        return; /* "# EOF" */
    if (strncmp(line, "# TYPE", 6) == 0) {
        *f = (struct family){.type = ""};
        (void)snprintf(f->type, sizeof(f->type), "%s", value + 1);
    } else if (strncmp(line, "# UNIT", 6) == 0) {
        (void)snprintf(f->unit, sizeof(f->unit), "%s", value + 1);
    } else if (strncmp(line, "# HELP", 6) == 0) {
        (void)snprintf(f->help, sizeof(f->help), "%s", value + 1);
    }
}

/* "name{label="a } b"} 1.5": the value stands behind the last blank. */
static int give_value(const char *line, const struct family *f, struct probing_rows *out)
{
    char name[NAME_BYTES], labels[LABELS_BYTES];
    size_t n = strcspn(line, "{ ");
    const char *value = strrchr(line, ' '), *open = line[n] == '{' ? line + n : NULL;
    if (!value || n >= sizeof(name) || (open && (size_t)(value - open) >= sizeof(labels)))
        return 0;
    (void)snprintf(name, sizeof(name), "%.*s", (int)n, line);
    (void)snprintf(labels, sizeof(labels), "%.*s", open ? (int)(value - open - 2) : 0,
                   open ? open + 1 : "");
    const union probing_cell row[] = {{.s = name},
                                      {.s = f->type},
                                      {.s = f->unit[0] ? f->unit : NULL},
                                      {.s = labels},
                                      {.f = strtod(value, NULL)},
                                      {.s = f->help}};
    return out->row(out, row, 6);
}

static int scan_metrics(void *self, struct probing_rows *out)
{
    struct family f = {.type = ""};
    struct buf text;
    int rc = metrics_text(self, &text);
    char *rest = NULL;
    for (char *line = rc == 0 && text.size > 0 ? strtok_r(text.data, "\n", &rest) : NULL;
         line && rc == 0; line = strtok_r(NULL, "\n", &rest))
        if (line[0] == '#')
            take_head(line, &f);
        else
            rc = give_value(line, &f, out);
    buf_done(&text);
    return rc;
}

int metrics_table_add(struct core *c)
{
    static const struct probing_column columns[] = {
        {.name = "name", .type = PROBING_STR, .doc = "as /metrics calls it"},
        {.name = "type", .type = PROBING_STR, .doc = "counter or gauge"},
        {.name = "unit", .type = PROBING_STR, .doc = "seconds, bytes; NULL: it has none"},
        {.name = "labels",
         .type = PROBING_STR,
         .doc = "as in OpenMetrics: table=\"x.rows\",reason=\"store\"; empty: none"},
        {.name = "value", .type = PROBING_F64, .doc = "what it is now"},
        {.name = "help", .type = PROBING_STR, .doc = "what it means"}};
    static const struct probing_table_desc desc = {
        .size = sizeof(desc),
        .column_size = sizeof(struct probing_column),
        .name = "probing.metrics",
        .doc = "what /metrics tells: counters of probing and its process, and what plugins declare",
        .columns = columns,
        .n_columns = 6,
        .scan = scan_metrics};
    return host_table_add(c->host, &desc, c);
}
