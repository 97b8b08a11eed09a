/* SPDX-License-Identifier: Apache-2.0
 *
 * core/runtime/components.c - the parts of the core, made in order and undone in the other.
 *
 * Threads: the core's main thread.  A part comes or goes under `life`, so that no fork sees half of
 * it; plugins start on a thread of their own, since what a plugin does may hang.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/rights.h"
#include "core/base/version.h"
#include "core/builtin/builtin.h"
#include "core/crash/crash.h"
#include "core/guest/headroom_table.h"
#include "core/guest/owned_signals.h"
#include "core/guest/thread.h"
#include "core/plugin_host/plugin_host.h"
#include "core/runtime/internal.h"
#include "core/script/script.h"
#include "core/server/server.h"
#include "core/sql/sql.h"
#include "core/store/store.h"

#define PLUGINS_NS (2 * NS_PER_S) /* the door opens by then, whatever a plugin's start waits for */
#define QUIET_NS (2 * NS_PER_S) /* commands that still run get this long before they are cut off */

/* ---- store and scripts speak through these ---- */

static int store_add(void *arg, const char *schema, const struct probing_table_desc *d, void *self,
                     struct table **ret)
{
    return store_table_add(arg, schema, d, self, ret);
}

static int store_intern(void *arg, const void *p, size_t n, uint64_t *ret_id)
{
    return intern(store_interns(arg), p, n, ret_id);
}

static int store_retention_of(void *arg, const char *table, const char *text)
{
    return store_retention_set(arg, table, text);
}

/* ---- start ---- */

static void stop_store(struct core *c)
{
    store_free(c->store);
    c->store = NULL;
    tables_free(c->tables);
    c->tables = NULL;
    if (c->home_fd != -1)
        (void)close(c->home_fd);
    c->home_fd = -1;
}

static int start_store(struct core *c)
{
    struct store_options o = {.directory = c->place.directory,
                              .fast_directory = c->place.fast[0] ? c->place.fast : NULL,
                              .max_bytes = DEFAULT_BYTES,
                              .resume = c->place.resumed,
                              .keep_ns = DEFAULT_RETENTION_NS};
    c->home_fd = home_write(&c->place); /* first: a life that ends early is found by it */
    resume_clock(&c->place);
    int rc = tables_new(&c->tables);
    if (rc == 0)
        rc = store_create(&o, c->tables, &c->store);
    if (rc == 0)
        rc = own_dir_link(&c->place);
    if (rc == 0)
        resume_losses(&c->place, c->tables);
    if (rc == 0)
        rc = own_dir_info(&c->place, PROBING_VERSION, store_utc_offset(c->store));
    return rc < 0 ? rc : sql_new(c->tables, c->store, &c->sql);
}

uint64_t parts_watch(struct core *c)
{
    /* One after the other: the server finds its own eventfd among those that are new. */
    uint64_t rest_ns = server_watch(c->server) ? NS_PER_S : host_watch(c->host);
    bool home = file_is_closed(c->home_fd);
    if (!home && store_is_held(c->store))
        return rest_ns; /* a fork need not wait for what follows */
    rights_keep();
    lifecycle_lock();
    store_hold_again(c->store);
    if (home) {
        (void)close(c->home_fd); /* the number is free for others of ours */
        c->home_fd = home_write(&c->place);
    }
    lifecycle_unlock();
    return rest_ns;
}

/* The earlier life's directory cannot be gone on with after all: its rows stay there. */
static int start_store_afresh(struct core *c)
{
    stop_store(c);
    own_dir_settle(&c->place);
    int rc = own_dir_make(c->config->data_dir, /* resume= */ NULL, &c->place);
    return rc < 0 ? rc : start_store(c);
}

static void crash_says(void *arg, int level, const char *text)
{
    host_logs(arg, level, "crash", text);
}

static const void *crash_asks(void *arg, const char *id)
{
    return host_extension(arg, id);
}

static const char *crash_plugin(void *arg, uint64_t bias)
{
    return host_plugin_at(arg, bias);
}

static int start_crash(struct core *c)
{
    struct crash_options o = {.directory = c->place.directory,
                              .log = crash_says,
                              .extension = crash_asks,
                              .plugin_at = crash_plugin,
                              .arg = c->host};
    int rc = crash_new(&o, &c->crash);
    if (rc == 0)
        rc = crash_tables_add(c->tables, c->place.directory);
    if (rc == 0)
        rc = crash_status_add(c->tables, c->crash);
    return rc;
}

/* The plugin path: `own` (may be empty), then directories beside the file that holds `code`. */
static int plugin_path(const void *code, const char *own, struct buf *ret)
{
    char real[PATH_MAX];
    Dl_info info;

    if (own && own[0])
        (void)buf_addf(ret, "%s:", own);
    /* A core that came as a memfd has no directory; its plugins come through the door. */
    if (dladdr(code, &info) && info.dli_fname && strncmp(info.dli_fname, "/proc/", 6) != 0 &&
        realpath(info.dli_fname, real)) {
        char *slash = strrchr(real, '/');
        *slash = '\0';
        (void)buf_addf(ret, "%s/plugins:%s", real, real);
    }
    return ret->failed;
}

/* Let the engine ask the host about tables that are empty or unknown. */
static void ask_host(struct core *c)
{
    const struct sql_unknown unknown = {
        .find = host_declared_find, .why = host_why_no_table, .arg = c->host};
    sql_ask_why(c->sql, host_why_empty, c->host);
    sql_ask_unknown(c->sql, &unknown);
}

static int start_host(struct core *c, struct host_store *store)
{
    struct buf path;
    buf_init(&path, 16384);
    int rc = plugin_path(probing_version, c->config->plugin_path, &path);
    struct host_options o = {.version = probing_build,
                             .plugin_path = buf_text(&path),
                             .tables = c->tables,
                             .store = *store,
                             .declares = declarations_of(c),
                             .mapped_files = c->follower,
                             .again = c->again};
    if (rc == 0)
        rc = host_new(&o, &c->host);
    buf_done(&path);
    if (rc == 0)
        ask_host(c);
    if (rc == 0)
        rc = start_crash(c);
    if (rc == 0)
        rc = config_add(c);
    if (rc == 0)
        rc = queries_settings_add(c);
    if (rc == 0)
        rc = host_stack_add(c->host);
    if (rc == 0)
        rc = host_signal_add(c->host);
    if (rc == 0)
        rc = host_loss_add(c->host);
    if (rc == 0)
        rc = commands_add(c);
    if (rc == 0)
        rc = metrics_command_add(c);
    if (rc == 0)
        rc = metrics_table_add(c);
    if (rc == 0)
        rc = process_tables_add(c);
    if (rc == 0)
        rc = flamegraph_command_add(c);
    if (rc == 0)
        rc = declarations_add(c);
    if (rc == 0)
        rc = limits_table_add(c);
    if (rc == 0)
        rc = store_about_add(c->store);
    return rc;
}

/* The user's file first, then what this start was given: that wins.  Before the host starts, so
 * that every setting may be made. */
static int set_and_start(struct core *c)
{
    run_startup_script(c);
    lifecycle_lock();
    int rc = config_read(c);
    if (rc == 0)
        rc = c->follower ? host_config_set(c->host, "probing.plugins", c->plugins)
                         : config_want_plugins(c);
    if (rc == 0 && c->follower) /* it may have been set live in the parent: its children too */
        rc = host_config_set(c->host, "probing.follow_fork", "on");
    if (rc == 0)
        rc = host_start(c->host);
    lifecycle_unlock();
    return rc;
}

/* TCP is an extra: when it cannot be had the local socket still answers, and the log says why. */
static int start_server(struct core *c)
{
    char sock[DATADIR_PATH_BYTES], token[DATADIR_PATH_BYTES], door[DATADIR_PATH_BYTES];
    struct buf listen;

    int rc = own_dir_path(&c->place, "sock", sock);
    if (rc == 0)
        rc = own_dir_path(&c->place, "token", token);
    if (rc == 0)
        rc = own_dir_path(&c->place, "door", door);
    if (rc == 0)
        rc = host_upload_socket_open(c->host, door);
    if (rc < 0)
        return rc;
    struct server_options o = {.host = c->host,
                               .sql = c->sql,
                               .socket_path = sock,
                               .token_path = token,
                               .token = c->config->token[0] ? c->config->token : NULL,
                               .read_token =
                                   c->config->read_token[0] ? c->config->read_token : NULL,
                               .version = probing_build};
    if (c->place.note[0])
        host_log(c->host, PROBING_WARN, "data are in %s: %s", c->place.directory, c->place.note);
    rc = server_new(&o, &c->server);
    if (rc < 0)
        return rc;
    buf_init(&listen, 1024);
    /* A child's parent has the port. */
    if (!c->follower && host_config_get(c->host, "server.listen", &listen) >= 0 &&
        listen.size > 0 && server_listen(c->server, buf_text(&listen)) < 0)
        host_log(c->host, PROBING_ERROR, "server.listen=%s: %s", buf_text(&listen), err_text());
    buf_done(&listen);
    return 0;
}

static void choose_plugins(struct core *c)
{
    struct buf b;
    if (c->follower) /* what ran in the parent stands there */
        return;
    buf_init(&b, sizeof(c->plugins) - 1);
    c->plugins[0] = '\0';
    if (host_config_get(c->host, "probing.plugins", &b) >= 0)
        (void)snprintf(c->plugins, sizeof(c->plugins), "%s", buf_text(&b));
    buf_done(&b);
}

static void *load_plugins(void *arg)
{
    struct core *c = arg;
    (void)host_plugin_load_all(c->host, c->plugins);
    atomic_store_explicit(&c->plugins_come, false, memory_order_release);
    event_raise(c->plugins_loaded);
    return NULL;
}

/* On a thread of its own, so that a plugin whose start hangs does not keep the door shut. */
static int start_plugins(struct core *c)
{
    choose_plugins(c);
    if (!c->plugins[0])
        return 0;
    atomic_store_explicit(&c->plugins_come, true, memory_order_release);
    int rc = thread_start(&c->plugin_thread, "probing/load", 0, load_plugins, c);
    if (rc < 0)
        return rc;
    c->plugin_thread_made = true;
    if (!event_wait(c->plugins_loaded, PLUGINS_NS))
        host_log(c->host, PROBING_WARN,
                 "plugins (%s) take long to start; the core continues without waiting for them",
                 c->plugins);
    return 0;
}

int parts_start(struct core *c)
{
    struct host_store store = {
        .table_add = store_add, .intern = store_intern, .keep = store_retention_of};

    /* Whoever enters a process has looked already; a program that begins with the core has not. */
    int rc = room_begin();
    /* A first look for what must be known before there is a host; nothing else is kept of it. */
    if (rc == 0)
        rc = config_read(c);
    if (rc == 0)
        rc = own_dir_make(c->config->data_dir, c->config->afresh ? NULL : PROBING_VERSION,
                          &c->place);
    if (rc < 0)
        return rc;
    lifecycle_lock();
    rc = start_store(c);
    if (rc < 0 && c->place.resumed)
        rc = start_store_afresh(c);
    store.arg = c->store;
    if (rc == 0)
        rc = start_host(c, &store);
    struct scripts_options scripts = {
        .host = c->host, .sql = c->sql, .store = &store, .version = PROBING_VERSION};
    if (rc == 0)
        rc = scripts_new(&scripts, &c->scripts);
    lifecycle_unlock();
    rc = rc < 0 ? rc : set_and_start(c);
    if (rc == 0)
        rc = start_plugins(c);
    lifecycle_lock();
    if (rc == 0)
        rc = start_server(c);
    lifecycle_unlock();
    return rc;
}

/* ---- stop ---- */

static void remove_ways_in(const struct own_dir *p)
{
    static const char *const names[] = {"sock", "door", "token", "token-read", "token-address"};
    char path[DATADIR_PATH_BYTES];
    for (size_t i = 0; p->directory[0] && i < sizeof(names) / sizeof(names[0]); i++)
        if (own_dir_path(p, names[i], path) == 0)
            (void)unlink(path);
}

static void tell_kept_signals(struct core *c)
{
    struct buf kept;
    buf_init(&kept, 4096);
    host_stack_off(c->host);
    if (signals_kept(&kept) > 0)
        host_log(c->host, PROBING_WARN, "%s", buf_text(&kept));
    buf_done(&kept);
}

void parts_stop(struct core *c)
{
    struct buf note;

    rights_keep(); /* all that is removed below is in our directory */
    buf_init(&note, (size_t)8 << 20);
    if (c->host)
        (void)host_quiet(c->host, QUIET_NS);
    if (c->plugin_thread_made)
        (void)pthread_join(c->plugin_thread, NULL);
    c->plugin_thread_made = false;
    lifecycle_lock();
    struct server *server = c->server;
    c->server = NULL;
    server_free(server);
    scripts_free(c->scripts);
    c->scripts = NULL;
    if (c->crash)
        (void)crash_switch(c->crash, false);
    if (c->host)
        tell_kept_signals(c);
    bool whole = host_free(c->host);
    c->host = NULL;
    crash_free(c->crash);
    c->crash = NULL;
    sql_free(c->sql);
    c->sql = NULL;
    if (c->store && store_drain(c->store) == 0)
        resume_note(&c->place, c->tables, &note);
    if (!whole) /* a thread inside a plugin may still add rows, which go nowhere */
        c->tables = NULL;
    stop_store(c);
    lifecycle_unlock();
    remove_ways_in(&c->place);
    own_dir_settle(&c->place);
    if (note.size > 0)
        (void)own_dir_info_text(&c->place, &note); /* else: this directory is not gone on with */
    buf_done(&note);
}
