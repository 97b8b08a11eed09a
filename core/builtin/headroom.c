/* SPDX-License-Identifier: Apache-2.0
 *
 * core/builtin/headroom.c - probing.limits: what each part takes of each limit, and what is left.
 *
 * Threads: [worker].  The table itself stands in core/guest/headroom_table.c.
 */
#include <stdio.h>
#include <string.h>

#include "core/builtin/builtin.h"
#include "core/core.h"
#include "core/guest/headroom_table.h"
#include "core/plugin_file/declared.h"
#include "core/plugin_host/plugin_host.h"

static const struct room_part kept = {.name = "the program"};

static int part_rows(struct probing_rows *out, const struct room_part *part)
{
    int rc = 0;
    for (int i = 0; i < ROOM_LIMITS && rc == 0; i++) {
        bool is_kept = part == &kept;
        uint64_t takes = is_kept ? room_margin(i) : part->takes[i];
        uint64_t left = is_kept ? room_of(0, i) : 0;
        const union probing_cell row[] = {
            {.s = part->name},
            {.s = room_limit_name(i)},
            {.i = (int64_t)takes},
            {.i = (int64_t)part->each_thread[i]},
            {.i = is_kept && left < INT64_MAX ? (int64_t)left : PROBING_NULL_I64}};
        if (is_kept || takes > 0 || part->each_thread[i] > 0)
            rc = out->row(out, row, 5);
    }
    return rc;
}

static int plugin_rows(void *arg, const struct declared *d)
{
    struct room_part part = room_undeclared;
    char name[80];
    (void)snprintf(name, sizeof(name), "plugin %s", d->plugin);
    declared_takes(d, &part);
    part.name = name;
    return part_rows(arg, &part);
}

static int scan_limits(void *self, struct probing_rows *out)
{
    static const struct room_part *const parts[] = {&kept,       &room_library, &room_core,
                                                    &room_crash, &room_listen,  &room_undeclared};
    struct core *c = self;
    int rc = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && rc == 0; i++)
        rc = part_rows(out, parts[i]);
    return rc < 0 ? rc : host_declared_each(c->host, /* stopped= */ true, plugin_rows, out);
}

int limits_table_add(struct core *c)
{
    static const struct probing_column columns[] = {
        {.name = "part",
         .type = PROBING_STR,
         .doc =
             "the core, an option of it or a plugin that was loaded; the program: what it keeps"},
        {.name = "resource",
         .type = PROBING_STR,
         .doc = "address_space, locked_memory, data (private memory), memory (of the cgroup), "
                "mappings, descriptors, threads, file_size or signals"},
        {.name = "takes",
         .type = PROBING_I64,
         .doc = "bytes, or how many, that this part takes at most in usual use"},
        {.name = "each_thread",
         .type = PROBING_I64,
         .doc = "what it takes more for each thread of the program"},
        {.name = "available",
         .type = PROBING_I64,
         .doc =
             "how much the process may still take; NULL: there is no limit, or not this part's"}};
    static const struct probing_table_desc table = {
        .size = sizeof(struct probing_table_desc),
        .column_size = sizeof(columns[0]),
        .name = "probing.limits",
        .doc = "what each part of probing takes of each limit of the process",
        .columns = columns,
        .n_columns = sizeof(columns) / sizeof(columns[0]),
        .scan = scan_limits};
    return host_table_add(c->host, &table, c);
}
