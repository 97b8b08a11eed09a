/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/e2e/plugins/wrong.c - declarations that must be refused: -DWRONG=... is what the one view
 * would be right without, -DMORE=... other members of the declarations.
 */
#include <probing/plugin.h>

#ifndef WRONG
#define WRONG
#endif
#ifndef MORE
#define MORE
#endif
#define UNREADABLE ((void *)8)

#pragma GCC diagnostic ignored "-Woverride-init"

static const struct probing_config settings[] = {
    {.name = "pace", .value = "1", .doc = "nothing", .type = PROBING_I64}, {.name = NULL}};
static const struct probing_view views[] = {
    {.name = "wrong_view", .sql = "select 1 as one", .doc = "one", WRONG}};
static const struct probing_metric metrics[] = {
    {.name = "rate", .sql = "select 1 as value", .help = "a", .kind = PROBING_GAUGE},
    {.name = "rate", .sql = "select 2 as value", .help = "b", .kind = PROBING_GAUGE},
    {.name = "other", .sql = "select 2 as value", .help = "b", .kind = 9}};
static const struct probing_alias aliases[] = {{"old.pace", "speed"},
                                               {"probing.retention", "pace"}};
static const struct probing_flame flames[] = {
    {.name = "wrong", .doc = "d", .sql = "drop table x", .unit = PROBING_NS},
    {.name = "half", .doc = "d", .sql = "select 1", .unit = PROBING_NS, .stacks = "drop table x"},
    {.name = "set", .doc = "d", .sql = "select 1", .unit = PROBING_NS, .setting = "mode cpu"},
    {.name = "less", .doc = "d", .sql = "select 1", .unit = PROBING_NS, .missing = "drop table x"}};

static const struct probing_table_name tables[] = {{"bare"}};

static const struct probing_track tracks[] = {{.name = "wrong", .doc = "d", .sql = "delete from x"},
                                              {.name = "a b", .doc = "d", .sql = "select 1"}};

static const struct probing_panel panels[] = {
    {.name = "wrong", .doc = "d", .sql = "select 1 as a", .kind = 3, .rows = 1},
    {.name = "wrong", .doc = "d", .sql = "select 1 as a", .kind = PROBING_LINES, .rows = 65}};

static const struct probing_resource resources[] = {{.name = "sockets", .takes = 1},
                                                    {.name = "data", .takes = UINT64_MAX}};

static const struct probing_declarations declarations = {.size = sizeof(declarations),
                                                         .n_views = 1,
                                                         .view_size = sizeof(views[0]),
                                                         .metric_size = sizeof(metrics[0]),
                                                         .alias_size = sizeof(aliases[0]),
                                                         .flame_size = sizeof(flames[0]),
                                                         .views = views,
                                                         .metrics = metrics,
                                                         .aliases = aliases,
                                                         .flames = flames,
                                                         .table_size = sizeof(tables[0]),
                                                         .tables = tables,
                                                         .track_size = sizeof(tracks[0]),
                                                         .tracks = tracks,
                                                         .panel_size = sizeof(panels[0]),
                                                         .panels = panels,
                                                         .resource_size = sizeof(resources[0]),
                                                         .resources = resources,
                                                         MORE};

static int init(const struct probing_host *h, void **ret_self)
{
    (void)h;
    *ret_self = NULL;
    return 0;
}

static void destroy(void *self)
{
    (void)self;
}

#ifndef DECLARES
#define DECLARES &declarations
#endif

#ifdef OLD /* as a plugin of 1.0 was built: its struct ends before `declares` */
PROBING_EXPORT const struct {
    uint32_t size, abi;
    const char *name, *version, *doc;
    const struct probing_config *config;
    uint32_t config_size, min_minor;
    int (*init)(const struct probing_host *h, void **ret_self);
    int (*configure)(void *self, const char *name, const char *value);
    int (*start)(void *self);
    int (*stop)(void *self);
    void (*fork)(void *self, int phase);
    void (*destroy)(void *self);
    const void *(*extension)(void *self, const char *id);
} old_struct __asm__("probing_plugin_v1") = {.size = sizeof(old_struct),
                                             .abi = 1u << 16,
                                             .name = "wrong",
                                             .version = "1",
                                             .doc = "of 1.0",
                                             .config = settings,
                                             .config_size = sizeof(settings[0]),
                                             .init = init,
                                             .destroy = destroy};
#else
PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {.size = sizeof(probing_plugin_v1),
                                                                .abi = PROBING_ABI,
                                                                .name = "wrong",
                                                                .version = "1",
                                                                .doc = "declares what is wrong",
                                                                .config = settings,
                                                                .config_size = sizeof(settings[0]),
                                                                .init = init,
                                                                .destroy = destroy,
                                                                .declares = DECLARES};
#endif
