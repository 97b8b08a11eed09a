/* SPDX-License-Identifier: Apache-2.0
 *
 * core/runtime/core_settings.c - the core's own settings: their tables, what each does, and where
 * they come from.
 *
 * Threads: reading, the core's main thread while it starts; the set functions, any worker (the host
 * calls them one at a time).  The environment is read from /proc and not by getenv(), because the
 * program may change it in another thread meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/crash/crash.h"
#include "core/plugin_host/plugin_host.h"
#include "core/runtime/internal.h"
#include "core/server/server.h"
#include "core/store/store.h"
#include "sdk/lib/proc/environ_now.h"
#include "sdk/lib/proc/identity.h"

#define ENVIRON_MAX_BYTES ((size_t)16 << 20)

/* ---- the tables ---- */

static int set_probing(void *self, const char *name, const char *value);
static int set_server(void *self, const char *name, const char *value);
static int set_crash(void *self, const char *name, const char *value);

static const struct probing_config probing_settings[] = {
    {.name = "plugins",
     .value = "python",
     .doc = "plugins to load when the core starts, separated by commas",
     .type = PROBING_STR},
    {.name = "max_memory",
     .value = "1GB",
     .doc = "maximum size of all stored rows together",
     .type = PROBING_I64,
     .unit = PROBING_BYTES,
     .flags = PROBING_LIVE,
     .min = 1 << 20,
     .max = INT64_C(1) << 46},
    {.name = "retention",
     .value = "7d",
     .doc = "rows older than this are removed; 0: no row is removed for its age",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .flags = PROBING_LIVE,
     .min = 0,
     .max = INT64_MAX},
    {.name = "max_offline_data",
     .value = "2GB",
     .doc = "bytes that the data of all ended processes may take together; the oldest is removed "
            "first",
     .type = PROBING_I64,
     .unit = PROBING_BYTES,
     .min = 0,
     .max = INT64_C(1) << 46},
    {.name = "follow_fork",
     .value = "off",
     .doc = "on: a forked child that lives longer than 100 ms gets its own core and data directory",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .min = 0,
     .max = 1},
    {.name = "plugin_timeout",
     .value = "10s",
     .doc = "maximum duration of a plugin's init, start, stop or event handler; a call that takes "
            "longer is abandoned",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .flags = PROBING_LIVE,
     .min = NS_PER_S / 10,
     .max = 3600 * NS_PER_S},
    {.name = "data_dir",
     .value = "",
     .doc = "directory in which data directories are made; empty: /tmp/probing-<uid>",
     .type = PROBING_STR},
    {.name = "plugin_path",
     .value = "",
     .doc = "directories that are searched for plugins first, separated by colons",
     .type = PROBING_STR},
    {.name = "new_data_dir",
     .value = "off",
     .doc = "on: always make a new data directory; off: resume the one that an earlier core in "
            "this process left",
     .type = PROBING_I64,
     .min = 0,
     .max = 1},
    {.name = "startup_script",
     .value = "",
     .doc = "absolute path of a Lua script to run when the core starts; empty: probing.lua, where "
            "one is found (docs/lua.md); off: none",
     .type = PROBING_STR},
    {.name = "log_level",
     .value = "info",
     .doc = "lowest level that probing.log keeps: error, warn, info or debug",
     .type = PROBING_STR,
     .flags = PROBING_LIVE},
    {.name = NULL}};

static const struct probing_config server_settings[] = {
    {.name = "listen",
     .value = "",
     .doc = "TCP address to listen on, 127.0.0.1:9922 or :9922; empty: the local socket only",
     .type = PROBING_STR,
     .flags = PROBING_LIVE},
    {.name = NULL}};

static const struct probing_config crash_settings[] = {
    {.name = "handler",
     .value = "off",
     .doc = "write the stacks of all threads to the data directory when the process crashes",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .min = 0,
     .max = 1},
    {.name = "alt_stack",
     .value = "on",
     .doc = "while crash.handler is on, give threads an alternate signal stack, so that a stack "
            "overflow can be reported",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .min = 0,
     .max = 1},
    {.name = NULL}};

uint64_t config_number(struct core *c, const char *name, uint64_t otherwise,
                       int (*parse)(const char *, uint64_t *))
{
    struct buf b;
    uint64_t value = otherwise;
    buf_init(&b, 256);
    if (host_config_get(c->host, name, &b) < 0 ||
        (parse_u64(buf_text(&b), &value) < 0 && parse(buf_text(&b), &value) < 0))
        value = otherwise;
    buf_done(&b);
    return value;
}

static int set_level(struct core *c, const char *value)
{
    static const struct {
        const char *name;
        int level;
    } levels[] = {{"error", PROBING_ERROR},
                  {"warn", PROBING_WARN},
                  {"info", PROBING_INFO},
                  {"debug", PROBING_DEBUG}};
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (strcmp(levels[i].name, value) == 0) {
            host_log_level(c->host, levels[i].level);
            return 0;
        }
    }
    return err_set(-EINVAL, "probing.log_level is error, warn, info or debug, not '%.40s'", value);
}

static int set_probing(void *self, const char *name, const char *value)
{
    struct core *c = self;
    uint64_t number = 0;
    if (strcmp(name, "log_level") == 0)
        return set_level(c, value);
    static const char *const at_start[] = {"plugins",  "max_offline_data", "new_data_dir",
                                           "data_dir", "plugin_path",      "startup_script"};
    for (size_t i = 0; i < sizeof(at_start) / sizeof(at_start[0]); i++)
        if (strcmp(name, at_start[i]) == 0)
            return 0; /* known before there is a host */
    int rc = parse_u64(value, &number);
    if (rc < 0)
        return rc;
    if (strcmp(name, "plugin_timeout") == 0) {
        host_call_limit(c->host, number);
        return 0;
    }
    if (strcmp(name, "follow_fork") == 0) {
        atomic_store_explicit(&c->config->follow, number != 0, memory_order_relaxed);
        return 0;
    }
    bool bytes = strcmp(name, "max_memory") == 0;
    /* The other of the two is asked as it stands: this one is kept only when we return. */
    store_set_limits(
        c->store,
        bytes ? number : config_number(c, "probing.max_memory", DEFAULT_BYTES, parse_bytes),
        bytes ? config_number(c, "probing.retention", DEFAULT_RETENTION_NS, parse_ns) : number);
    return 0;
}

static int set_server(void *self, const char *name, const char *value)
{
    struct core *c = self;
    (void)name;
    return c->server ? server_listen(c->server, value) : 0;
}

static int set_crash(void *self, const char *name, const char *value)
{
    struct core *c = self;
    bool on = value[0] == '1';
    return strcmp(name, "handler") == 0 ? crash_switch(c->crash, on)
                                        : crash_alt_stack(c->crash, on);
}

static bool is_ours(const struct probing_config *table, const char *name)
{
    while (table->name && strcmp(table->name, name) != 0)
        table++;
    return table->name != NULL;
}

/* Whoever sets something of a plugin wants the plugin; off, 0 and nothing are no wish. */
static void want_plugin(struct config *own, const char *name, size_t n, const char *value)
{
    size_t used = strlen(own->wanted);
    if (!text_is_off(value) && !text_is_listed(own->wanted, name, n) &&
        used + n + 2 <= sizeof(own->wanted))
        (void)snprintf(own->wanted + used, sizeof(own->wanted) - used, ",%.*s", (int)n, name);
}

int config_want_plugins(struct core *c)
{
    struct buf all;
    int rc = 0;
    buf_init(&all, 1024);
    (void)host_config_get(c->host, "probing.plugins", &all);
    if (all.size > 0) {
        for (const char *at = c->config->wanted; *at == ',';) {
            size_t n = strcspn(++at, ",");
            if (!text_is_listed(buf_text(&all), at, n))
                (void)buf_addf(&all, ",%.*s", (int)n, at);
            at += n;
        }
        rc = all.failed ? all.failed : host_config_set(c->host, "probing.plugins", buf_text(&all));
    }
    buf_done(&all);
    return rc;
}

/* One setting by its full name; what is wrong with it is logged, never a reason not to start. */
static int apply_setting(struct core *c, const char *name, const char *value)
{
    struct config *own = c->config;
    int rc = 0;
    name = host_setting_name(name);
    if (strcmp(name, "probing.new_data_dir") == 0)
        own->afresh = strcmp(value, "1") == 0 || strcmp(value, "on") == 0;
    if (strcmp(name, "probing.data_dir") == 0)
        (void)snprintf(own->data_dir, sizeof(own->data_dir), "%s", value);
    if (strcmp(name, "probing.plugin_path") == 0)
        (void)snprintf(own->plugin_path, sizeof(own->plugin_path), "%s", value);
    if (strcmp(name, "probing.startup_script") == 0)
        (void)snprintf(own->lua, sizeof(own->lua), "%s", value);
    if (strcmp(name, "probing.token") == 0) /* secrets are in no list of settings */
        (void)snprintf(own->token, sizeof(own->token), "%s", value);
    else if (strcmp(name, "probing.read_token") == 0)
        (void)snprintf(own->read_token, sizeof(own->read_token), "%s", value);
    else if (c->host && (rc = host_config_set(c->host, name, value)) < 0)
        host_log(c->host, PROBING_WARN, "a setting given at the start was ignored: %s", err_text());
    if (rc > 0 && strncmp(name, "table.", 6) != 0) /* kept for a plugin that is not here */
        want_plugin(own, name, strcspn(name, "."), value);
    return 0;
}

/* ---- where they come from ---- */

static int read_lines(const char *settings,
                      int (*line)(void *arg, const char *key, const char *value), void *arg)
{
    char *copy = strdup(settings ? settings : "");
    int rc = copy ? 0 : err_set(-ENOMEM, "no memory for settings");

    for (char *at = copy; at && rc == 0;) {
        char *end = strchr(at, '\n');
        if (end)
            *end = '\0';
        char *equals = strchr(at, '=');
        if (equals) {
            *equals = '\0';
            rc = line(arg, at, equals + 1);
        } else if (at[0]) {
            rc = err_set(-EINVAL, "'%.80s' is not a setting: NAME=VALUE", at);
        }
        at = end ? end + 1 : NULL;
    }
    free(copy);
    return rc;
}

/* Variables PREFIX... of an environment. */
static int read_environment(const struct buf *all, const char *prefix,
                            int (*environment)(void *arg, const char *key, const char *value),
                            void *arg)
{
    const char *end = all->data + all->size;
    size_t n = strlen(prefix);
    int rc = 0;
    for (const char *at = all->data; at && at < end && rc == 0; at += strlen(at) + 1) {
        const char *equals = strchr(at, '=');
        char key[128];
        if (strncmp(at, prefix, n) != 0 || !equals ||
            (size_t)(equals - at - (ptrdiff_t)n) >= sizeof(key))
            continue;
        (void)snprintf(key, sizeof(key), "%.*s", (int)(equals - at - (ptrdiff_t)n), at + n);
        rc = environment(arg, key, equals + 1);
    }
    return rc;
}

int environment_read(const char *prefix,
                     int (*environment)(void *arg, const char *key, const char *value), void *arg)
{
    struct buf b;
    if (!identity_own_believes_environment())
        return 0;
    buf_init(&b, ENVIRON_MAX_BYTES);
    int rc = proc_environ_own(&b);
    rc = rc < 0 ? err_set(rc, "the environment is too large")
                : read_environment(&b, prefix, environment, arg);
    buf_done(&b);
    return rc;
}

int settings_read(const char *settings,
                  int (*environment)(void *arg, const char *key, const char *value),
                  int (*line)(void *arg, const char *key, const char *value), void *arg)
{
    int rc = environment_read("PROBE_", environment, arg); /* the oldest names come first */
    if (rc == 0)
        rc = environment_read("PROBING_", environment, arg);
    return rc < 0 ? rc : read_lines(settings, line, arg);
}

/* PROBING_TORCH_DETECT_NAN is torch.detect_nan, PROBING_MAX_MEMORY is probing.max_memory; a few
 * have names of their own, and plugins have others. */
static int from_environment(void *arg, const char *key, const char *value)
{
    struct core *c = arg;
    char name[160], lower[128], other[300];
    size_t n = strlen(key);

    if (strcmp(key, "TARGET") == 0 || strncmp(key, "LAUNCH", 6) == 0)
        return 0;                 /* the command's and preload.c's, not ours */
    if (strcmp(key, "ADDR") == 0) /* PROBE_ADDR, the oldest name */
        return apply_setting(c, "server.listen", value);
    if (strcmp(key, "PORT") == 0) {
        (void)snprintf(other, sizeof(other), "%s%.250s", strchr(value, ':') ? "" : ":", value);
        return apply_setting(c, "server.listen", value[0] ? other : "");
    }
    if (strcmp(key, "RETENTION_DAYS") == 0) {
        (void)snprintf(other, sizeof(other), "%.250sd", value);
        return apply_setting(c, "probing.retention", other);
    }
    if (strcmp(key, "CRASH") == 0)
        return apply_setting(c, "crash.handler", value);
    if (strcmp(key, "PPROF") == 0) { /* as inject --pprof */
        want_plugin(c->config, "profile", strlen("profile"), value);
        return 0;
    }
    for (size_t i = 0; i <= n; i++)
        lower[i] = key[i] >= 'A' && key[i] <= 'Z' ? (char)(key[i] + ('a' - 'A')) : key[i];
    (void)snprintf(name, sizeof(name), "probing.%s", lower);
    if (n > 11 && strncmp(lower, "table_", 6) == 0 && strcmp(lower + n - 5, "_keep") == 0) {
        /* PROBING_TABLE_PYTHON_TORCH_TRACE_KEEP: the store takes the table's name so, too */
        (void)snprintf(name, sizeof(name), "table.%.*s.keep", (int)(n - 11), lower + 6);
        return apply_setting(c, name, value);
    }
    char *underscore = strchr(lower, '_');
    bool ours = is_ours(probing_settings, lower) || strcmp(lower, "token") == 0 ||
                strcmp(lower, "read_token") == 0;
    (void)snprintf(name, sizeof(name), "probing.%s", lower);
    if (!ours && c->host && host_config_alias(c->host, name))
        return apply_setting(c, name, value);
    if (!ours && !underscore)
        return 0; /* PROBING_SOMETHING of somebody else */
    if (!ours)
        *underscore = '.';
    (void)snprintf(name, sizeof(name), "%s%s", ours ? "probing." : "", lower);
    return apply_setting(c, name, value);
}

static int from_line(void *arg, const char *key, const char *value)
{
    if (strncmp(key, "PROBING_", 8) == 0 && strlen(key) < 120)
        return from_environment(arg, key + 8, value);
    return apply_setting(arg, key, value);
}

int config_read(struct core *c)
{
    if (c->host && !identity_own_believes_environment())
        host_log(c->host, PROBING_INFO,
                 "no setting is taken from the environment: this process has other rights than the "
                 "user who started it, or has put on another's (setuid, capabilities, seteuid)");
    return settings_read(c->config->text, from_environment, from_line, c);
}

int config_add(struct core *c)
{
    static const struct {
        const char *owner;
        const struct probing_config *table;
        int (*set)(void *self, const char *name, const char *value);
    } all[] = {{"probing", probing_settings, set_probing},
               {"server", server_settings, set_server},
               {"crash", crash_settings, set_crash}};
    int rc = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && rc == 0; i++)
        rc = host_settings_add(c->host, all[i].owner, all[i].table, sizeof(all[i].table[0]),
                               all[i].set, c);
    return rc;
}
