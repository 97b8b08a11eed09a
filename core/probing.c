/* SPDX-License-Identifier: Apache-2.0
 *
 * core/probing.c - the life of the core in a process: how it starts, forks and leaves.
 *
 * Threads: probing_start() runs on a thread of the host that may hold any lock of libc, so it makes
 * one thread and nothing else; all the rest is done by that thread, "probing/main", which waits for
 * the end and then undoes everything.  The code stays mapped afterwards: other threads may still
 * return into it, and entering again costs nothing.
 *
 * Exported are probing_version, probing_start, probing_stop and probing_why; preload.c calls the
 * second when the library came with the program.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/base/thread.h"
#include "core/base/version.h"
#include "core/crash/crash.h"
#include "core/host/host.h"
#include "core/life.h"
#include "core/ring/ring.h"
#include "core/script/script.h"
#include "core/server/server.h"
#include "core/sql/sql.h"
#include "core/store/store.h"

#define SETTINGS_BYTES 16384 /* all "key=value" lines of one start */
#define MAIN_STACK ((size_t)512 << 10)
#define MAIN_STACK_MOST ((size_t)8 << 20)      /* the host's thread-local storage lives on it too */
#define DEFAULT_BYTES ((uint64_t)1 << 30)      /* bytes: max_memory=1GB, see the table below */
#define DEFAULT_DEAD_BYTES ((uint64_t)2 << 30) /* bytes: max_dead=2GB */
#define DEFAULT_KEEP_NS (7 * 86400 * NS_PER_S) /* ns: retention=7d */
#define PLUGINS_NS (2 * NS_PER_S) /* the door opens by then, whatever a plugin's start waits for */
#define QUIET_NS (2 * NS_PER_S) /* commands that still run get this long before they are cut off */
#define WATCH_NS NS_PER_S       /* between looks at plugins that may hang */
#define AGAIN_NS (NS_PER_S / 2) /* until a plugin that said "not yet" is tried again */
#define STOP_NS (20 * NS_PER_S) /* how long probing_stop() waits */
#define FOLLOW_MS 100           /* ms: a child that lives shorter is no life of its own */
#define FORK_WAIT_NS (NS_PER_S / 40) /* how long a fork waits for a start or stop going on */
#define SIBLING_FDS 4096             /* descriptors looked at to find another copy of the core */

enum { IDLE, STARTING, RUNNING, STOPPING, CHILD };

/* The one global. */
static struct probing {
    _Atomic int state;
    struct core core; /* written by main under `life`, read by it and by fork handlers */
    struct inherited inherited;
    pthread_rwlock_t life; /* write: while a part comes or goes; read: around a fork */
    struct event stop, stopped, plugins_loaded;
    bool events_made, atfork_made; /* main's only; for ever */
    _Atomic int stop_result;
    int guard_fd; /* the abstract socket that says "here"; -1: none */
    int home_fd;  /* main's only: keeps `home` locked; -1: none */
    char settings[SETTINGS_BYTES];
    char data_dir[PLACE_BYTES], own_path[4096], token[256],
        read_token[256]; /* main's only: settings before there is a host */
    bool afresh;         /* likewise */
    _Atomic bool follow; /* probing.follow_fork: a forked child gets a life of its own */
    bool follower;       /* main's only: this life began with a fork */
    bool following; /* a child whose life is about to begin; what it knows of its parent is whole */
    pthread_t plugin_thread; /* main's only */
    bool plugin_thread_made;
    char plugins[1024];
} g = {.life = PTHREAD_RWLOCK_INITIALIZER, .guard_fd = -1, .home_fd = -1};

/* Whether this thread's fork holds `life`: the other thread-local of the core is the ring's. */
static __thread bool fork_locked __attribute__((tls_model("initial-exec")));

EXPORT int probing_stop(void);
EXPORT extern char probing_why[ERR_TEXT_BYTES];

const char probing_version[] = PROBING_VERSION;

/* Why the last start failed, "" while it goes on or went well.  There may be no directory to say it
 * in, so whoever entered the process reads it from its memory. */
char probing_why[ERR_TEXT_BYTES];

/* ---- settings ---- */

static int set_probing(void *self, const char *name, const char *value);
static int set_server(void *self, const char *name, const char *value);
static int set_crash(void *self, const char *name, const char *value);

static const struct probing_config probing_settings[] = {
    {.name = "plugins",
     .value = "python",
     .doc = "plugins loaded at the start, with ',' between",
     .type = PROBING_STR},
    {.name = "max_memory",
     .value = "1GB",
     .doc = "bytes that all stored rows may take together",
     .type = PROBING_I64,
     .unit = PROBING_BYTES,
     .flags = PROBING_LIVE,
     .min = 1 << 20,
     .max = INT64_C(1) << 46},
    {.name = "retention",
     .value = "7d",
     .doc = "rows older than this are removed; 0: none is",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .flags = PROBING_LIVE,
     .min = 0,
     .max = INT64_MAX},
    {.name = "max_dead",
     .value = "2GB",
     .doc = "bytes that the data of dead processes may take together; the oldest go first",
     .type = PROBING_I64,
     .unit = PROBING_BYTES,
     .min = 0,
     .max = INT64_C(1) << 46},
    {.name = "follow_fork",
     .value = "off",
     .doc = "on: a forked child that lives longer than 100 ms gets a core and directory of its own",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .min = 0,
     .max = 1},
    {.name = "plugin_timeout",
     .value = "10s",
     .doc = "a plugin's init, start, stop or event handler that takes longer is given up",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .flags = PROBING_LIVE,
     .min = NS_PER_S / 10,
     .max = 3600 * NS_PER_S},
    {.name = "data_dir",
     .value = "",
     .doc = "where data directories are made; empty: /tmp/probing-<uid>",
     .type = PROBING_STR},
    {.name = "plugin_path",
     .value = "",
     .doc = "directories where plugins are looked for first, with ':' between",
     .type = PROBING_STR},
    {.name = "afresh",
     .value = "off",
     .doc = "on: a new directory, also where an earlier life in this process left one to go on in",
     .type = PROBING_I64,
     .min = 0,
     .max = 1},
    {.name = "log_level",
     .value = "info",
     .doc = "error, warn, info or debug: what probing.log keeps",
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
    {.name = "stacks",
     .value = "on",
     .doc = "meanwhile lend threads an alternate signal stack, so that an overflow can be told",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .min = 0,
     .max = 1},
    {.name = NULL}};

static uint64_t number_setting(const char *name, uint64_t otherwise,
                               int (*parse)(const char *, uint64_t *))
{
    struct buf b;
    uint64_t value = otherwise;
    buf_init(&b, 256);
    if (host_config_get(g.core.host, name, &b) < 0 ||
        (parse_u64(buf_text(&b), &value) < 0 && parse(buf_text(&b), &value) < 0))
        value = otherwise;
    buf_done(&b);
    return value;
}

static int set_level(const char *value)
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
            host_log_level(g.core.host, levels[i].level);
            return 0;
        }
    }
    return err_set(-EINVAL, "probing.log_level is error, warn, info or debug, not '%.40s'", value);
}

static int set_probing(void *self, const char *name, const char *value)
{
    (void)self;
    uint64_t number = 0;
    if (strcmp(name, "log_level") == 0)
        return set_level(value);
    static const char *const at_start[] = {"plugins", "max_dead", "afresh", "data_dir",
                                           "plugin_path"};
    for (size_t i = 0; i < sizeof(at_start) / sizeof(at_start[0]); i++)
        if (strcmp(name, at_start[i]) == 0)
            return 0; /* known before there is a host */
    int r = parse_u64(value, &number);
    if (r < 0)
        return r;
    if (strcmp(name, "plugin_timeout") == 0) {
        host_call_limit(g.core.host, number);
        return 0;
    }
    if (strcmp(name, "follow_fork") == 0) {
        atomic_store_explicit(&g.follow, number != 0, memory_order_relaxed);
        return 0;
    }
    bool bytes = strcmp(name, "max_memory") == 0;
    /* The other of the two is asked as it stands: this one is kept only when we return. */
    store_set_limits(
        g.core.store,
        bytes ? number : number_setting("probing.max_memory", DEFAULT_BYTES, parse_bytes),
        bytes ? number_setting("probing.retention", DEFAULT_KEEP_NS, parse_ns) : number);
    return 0;
}

static int set_server(void *self, const char *name, const char *value)
{
    (void)self;
    (void)name;
    return g.core.server ? server_listen(g.core.server, value) : 0;
}

static int set_crash(void *self, const char *name, const char *value)
{
    bool on = value[0] == '1';
    return strcmp(name, "handler") == 0 ? crash_switch(self, on) : crash_lend(self, on);
}

static bool is_ours(const struct probing_config *table, const char *name)
{
    while (table->name && strcmp(table->name, name) != 0)
        table++;
    return table->name != NULL;
}

/* One setting by its full name; what is wrong with it is logged, never a reason not to start. */
static int apply(const char *name, const char *value)
{
    struct core *c = &g.core;
    if (strcmp(name, "probing.afresh") == 0)
        g.afresh = strcmp(value, "1") == 0 || strcmp(value, "on") == 0;
    if (strcmp(name, "probing.data_dir") == 0)
        (void)snprintf(g.data_dir, sizeof(g.data_dir), "%s", value);
    if (strcmp(name, "probing.plugin_path") == 0)
        (void)snprintf(g.own_path, sizeof(g.own_path), "%s", value);
    if (strcmp(name, "probing.token") == 0) /* secrets are in no list of settings */
        (void)snprintf(g.token, sizeof(g.token), "%s", value);
    else if (strcmp(name, "probing.read_token") == 0)
        (void)snprintf(g.read_token, sizeof(g.read_token), "%s", value);
    else if (c->host && host_config_set(c->host, name, value) < 0)
        host_log(c->host, PROBING_WARN, "setting from the start ignored: %s", err_text());
    return 0;
}

/* PROBING_TORCH_RATE is torch.rate, PROBING_MAX_MEMORY is probing.max_memory; a few have names of
 * their own. */
static int from_environment(void *arg, const char *key, const char *value)
{
    char name[160], lower[128], other[300];
    size_t n = strlen(key);

    (void)arg;
    if (strcmp(key, "TARGET") == 0 || strncmp(key, "LAUNCH", 6) == 0)
        return 0; /* the command's and preload.c's, not ours */
    if (strcmp(key, "ADDR") == 0) /* PROBE_ADDR, the oldest name */
        return apply("server.listen", value);
    if (strcmp(key, "PORT") == 0) {
        (void)snprintf(other, sizeof(other), "%s%.250s", strchr(value, ':') ? "" : ":", value);
        return apply("server.listen", value[0] ? other : "");
    }
    if (strcmp(key, "RETENTION_DAYS") == 0) {
        (void)snprintf(other, sizeof(other), "%.250sd", value);
        return apply("probing.retention", other);
    }
    if (strcmp(key, "CRASH") == 0)
        return apply("crash.handler", value);
    for (size_t i = 0; i <= n; i++)
        lower[i] = key[i] >= 'A' && key[i] <= 'Z' ? (char)(key[i] + ('a' - 'A')) : key[i];
    if (n > 11 && strncmp(lower, "table_", 6) == 0 && strcmp(lower + n - 5, "_keep") == 0) {
        /* PROBING_TABLE_PYTHON_TORCH_TRACE_KEEP: the store takes the table's name so, too */
        (void)snprintf(name, sizeof(name), "table.%.*s.keep", (int)(n - 11), lower + 6);
        return apply(name, value);
    }
    char *underscore = strchr(lower, '_');
    bool ours = is_ours(probing_settings, lower) || strcmp(lower, "token") == 0 ||
                strcmp(lower, "read_token") == 0;
    if (!ours && !underscore)
        return 0; /* PROBING_SOMETHING of somebody else */
    if (!ours)
        *underscore = '.';
    (void)snprintf(name, sizeof(name), "%s%s", ours ? "probing." : "", lower);
    return apply(name, value);
}

static int from_line(void *arg, const char *key, const char *value)
{
    if (strncmp(key, "PROBING_", 8) == 0 && strlen(key) < 120)
        return from_environment(arg, key + 8, value);
    return apply(key, value);
}

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

static int store_keep_of(void *arg, const char *table, const char *text)
{
    return store_keep(arg, table, text);
}

static void ask_to_stop(void *arg)
{
    int running = RUNNING; /* from here on whoever starts us is told to try again */
    (void)arg;
    (void)atomic_compare_exchange_strong_explicit(&g.state, &running, STOPPING,
                                                  memory_order_acq_rel, memory_order_relaxed);
    event_raise(&g.stop);
}

/* ---- start ---- */

static void stop_store(struct core *c)
{
    inherited_forget(&g.inherited);
    store_free(c->store);
    c->store = NULL;
    tables_free(c->tables);
    c->tables = NULL;
    if (g.home_fd != -1)
        (void)close(g.home_fd);
    g.home_fd = -1;
}

static int start_store(struct core *c)
{
    struct store_options o = {.directory = c->place.directory,
                              .fast_directory = c->place.fast[0] ? c->place.fast : NULL,
                              .max_bytes = DEFAULT_BYTES,
                              .resume = c->place.resumed,
                              .keep_ns = DEFAULT_KEEP_NS};
    int r = tables_new(&c->tables);
    if (r == 0)
        r = store_create(&o, c->tables, &c->store);
    if (r == 0)
        r = place_link(&c->place);
    if (r == 0)
        resume_losses(&c->place, c->tables);
    if (r == 0)
        r = place_info(&c->place, PROBING_VERSION, store_utc_offset(c->store));
    g.home_fd = home_write(&c->place);
    if (r == 0)
        inherited_note(&g.inherited, &c->place);
    return r < 0 ? r : sql_new(c->tables, c->store, &c->sql);
}

/* The earlier life's directory cannot be gone on with after all: its rows stay there. */
static int start_store_afresh(struct core *c)
{
    stop_store(c);
    place_settle(&c->place);
    int r = place_make(g.data_dir, /* resume= */ NULL, &c->place);
    return r < 0 ? r : start_store(c);
}

static void crash_says(void *arg, int level, const char *text)
{
    host_logs(arg, level, "crash", text);
}

static const void *crash_asks(void *arg, const char *id)
{
    return host_extension(arg, id);
}

static int start_crash(struct core *c)
{
    struct crash_options o = {.directory = c->place.directory,
                              .log = crash_says,
                              .extension = crash_asks,
                              .arg = c->host};
    int r = crash_new(&o, &c->crash);
    if (r == 0)
        r = crash_tables_add(c->tables, c->place.directory);
    if (r == 0)
        r = crash_status_add(c->tables, c->crash);
    return r < 0 ? r
                 : host_settings_add(c->host, "crash", crash_settings, sizeof(crash_settings[0]),
                                     set_crash, c->crash);
}

static int start_host(struct core *c, struct host_store *store)
{
    struct buf path;
    buf_init(&path, 16384);
    int r = plugin_path(probing_version, g.own_path, &path);
    struct host_options o = {.version = PROBING_VERSION,
                             .plugin_path = buf_text(&path),
                             .tables = c->tables,
                             .store = *store,
                             .mapped_files = g.follower};
    if (r == 0)
        r = host_new(&o, &c->host);
    buf_done(&path);
    if (r == 0)
        r = host_settings_add(c->host, "probing", probing_settings, sizeof(probing_settings[0]),
                              set_probing, NULL);
    if (r == 0)
        r = host_settings_add(c->host, "server", server_settings, sizeof(server_settings[0]),
                              set_server, NULL);
    if (r == 0)
        r = start_crash(c);
    if (r == 0)
        r = settings_read(g.settings, from_environment, from_line,
                          NULL); /* the rest, now with a host */
    if (r == 0 && g.follower)    /* it may have been set live in the parent: its children too */
        r = host_config_set(c->host, "probing.follow_fork", "on");
    if (r == 0)
        r = host_stack_add(c->host);
    if (r == 0)
        r = commands_add(c);
    if (r == 0)
        r = metrics_command_add(c);
    if (r == 0)
        r = store_about_add(c->store);
    return r;
}

/* TCP is an extra: when it cannot be had the local socket still answers, and the log says why. */
static int start_server(struct core *c)
{
    char sock[PLACE_BYTES], token[PLACE_BYTES], door[PLACE_BYTES];
    struct buf listen;

    int r = place_path(&c->place, "sock", sock);
    if (r == 0)
        r = place_path(&c->place, "token", token);
    if (r == 0)
        r = place_path(&c->place, "door", door);
    if (r == 0)
        r = host_door_open(c->host, door);
    if (r < 0)
        return r;
    struct server_options o = {.host = c->host,
                               .sql = c->sql,
                               .socket_path = sock,
                               .token_path = token,
                               .token = g.token[0] ? g.token : NULL,
                               .read_token = g.read_token[0] ? g.read_token : NULL,
                               .version = PROBING_VERSION};
    r = server_new(&o, &c->server);
    if (r < 0)
        return r;
    buf_init(&listen, 1024);
    /* A child's parent has the port. */
    if (!g.follower && host_config_get(c->host, "server.listen", &listen) >= 0 && listen.size > 0 &&
        server_listen(c->server, buf_text(&listen)) < 0)
        host_log(c->host, PROBING_ERROR, "server.listen=%s: %s", buf_text(&listen), err_text());
    buf_done(&listen);
    return 0;
}

static bool has_python(void)
{
    return dlsym(RTLD_DEFAULT, "Py_GetVersion") != NULL;
}

/* "python" goes out of the default list when there is no interpreter in this process. */
static void choose_plugins(struct core *c)
{
    struct buf b;
    if (g.follower) /* what ran in the parent stands there */
        return;
    buf_init(&b, sizeof(g.plugins) - 1);
    g.plugins[0] = '\0';
    if (host_config_get(c->host, "probing.plugins", &b) < 0)
        goto out;
    if (strcmp(buf_text(&b), "python") == 0 && !has_python())
        goto out;
    (void)snprintf(g.plugins, sizeof(g.plugins), "%s", buf_text(&b));
out:
    buf_done(&b);
}

static void *load_plugins(void *arg)
{
    struct core *c = arg;
    (void)host_plugin_load_all(c->host, g.plugins);
    event_raise(&g.plugins_loaded);
    return NULL;
}

/* On a thread of its own, so that a plugin whose start hangs does not keep the door shut. */
static int start_plugins(struct core *c)
{
    choose_plugins(c);
    if (!g.plugins[0])
        return 0;
    int r = thread_start(&g.plugin_thread, "probing/load", 0, load_plugins, c);
    if (r < 0)
        return r;
    g.plugin_thread_made = true;
    if (!event_wait(&g.plugins_loaded, PLUGINS_NS))
        host_log(c->host, PROBING_WARN, "plugins (%s) take long to start; going on without waiting",
                 g.plugins);
    return 0;
}

static void lock_life(void)
{
    (void)pthread_rwlock_wrlock(&g.life);
}

static void unlock_life(void)
{
    (void)pthread_rwlock_unlock(&g.life);
}

static int start_parts(struct core *c)
{
    struct host_store store = {
        .table_add = store_add, .intern = store_intern, .keep = store_keep_of};

    /* A first look for what must be known before there is a host; nothing else is kept of it. */
    int r = settings_read(g.settings, from_environment, from_line, NULL);
    if (r == 0)
        r = place_make(g.data_dir, g.afresh ? NULL : PROBING_VERSION, &c->place);
    if (r < 0)
        return r;
    lock_life();
    r = start_store(c);
    if (r < 0 && c->place.resumed)
        r = start_store_afresh(c);
    store.arg = c->store;
    if (r == 0)
        r = start_host(c, &store);
    struct scripts_options scripts = {
        .host = c->host, .sql = c->sql, .store = &store, .version = PROBING_VERSION};
    if (r == 0)
        r = scripts_new(&scripts, &c->scripts);
    if (r == 0)
        r = host_start(c->host);
    unlock_life();
    if (r == 0)
        r = start_plugins(c);
    lock_life();
    if (r == 0)
        r = start_server(c);
    unlock_life();
    return r;
}

/* ---- stop ---- */

static void remove_ways_in(const struct place *p)
{
    static const char *const names[] = {"sock", "door", "token", "token-read"};
    char path[PLACE_BYTES];
    for (size_t i = 0; p->directory[0] && i < sizeof(names) / sizeof(names[0]); i++)
        if (place_path(p, names[i], path) == 0)
            (void)unlink(path);
}

/* Last come, first gone; works on a half-started core too. */
static void stop_parts(struct core *c)
{
    struct buf note;

    buf_init(&note, (size_t)8 << 20);
    if (c->host)
        (void)host_quiet(c->host, QUIET_NS);
    if (g.plugin_thread_made)
        (void)pthread_join(g.plugin_thread, NULL);
    g.plugin_thread_made = false;
    lock_life();
    struct server *server = c->server;
    c->server = NULL;
    server_free(server);
    scripts_free(c->scripts);
    c->scripts = NULL;
    if (c->crash)
        (void)crash_switch(c->crash, false);
    host_free(c->host);
    c->host = NULL;
    crash_free(c->crash);
    c->crash = NULL;
    sql_free(c->sql);
    c->sql = NULL;
    if (c->store && store_drain(c->store) == 0)
        resume_note(&c->place, c->tables, &note);
    stop_store(c);
    unlock_life();
    remove_ways_in(&c->place);
    place_settle(&c->place);
    if (note.size > 0)
        (void)place_info_text(&c->place, &note); /* else: this directory is not gone on with */
    buf_done(&note);
}

static void forget_guard(void)
{
    if (g.guard_fd != -1)
        (void)close(g.guard_fd);
    g.guard_fd = -1;
}

/* ---- beginning ---- */

static void *live(void *arg);

/* The abstract socket "@probing-<pid>" belongs to the copy of the core that came first.  Gives its
 * descriptor, -1 when it cannot be had, and sets *ret_sibling when it is ours: then a descriptor of
 * this process has that name.  (Containers may share abstract names but not pids, so a name that
 * is taken proves nothing.)  System calls only. */
static int take_guard(bool *ret_sibling)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX}, other;
    static const char prefix[] = "probing-";
    char digits[12];
    size_t n = 0, at = 1;

    memcpy(name.sun_path + at, prefix, sizeof(prefix) - 1);
    at += sizeof(prefix) - 1;
    for (unsigned pid = (unsigned)getpid(); pid; pid /= 10)
        digits[n++] = (char)('0' + pid % 10);
    while (n > 0)
        name.sun_path[at++] = digits[--n];
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + at);

    *ret_sibling = false;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd == -1)
        return -1;
    if (bind(fd, (struct sockaddr *)&name, size) == 0)
        return fd;
    (void)close(fd);
    for (int i = 0; i < SIBLING_FDS && !*ret_sibling; i++) {
        socklen_t got = sizeof(other);
        *ret_sibling = getsockname(i, (struct sockaddr *)&other, &got) == 0 && got == size &&
                       memcmp(&other, &name, size) == 0;
    }
    return -1;
}

static int make_thread(void *(*run)(void *))
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, old;
    int e = EINVAL;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    for (size_t stack = MAIN_STACK; e == EINVAL && stack <= MAIN_STACK_MOST; stack *= 2) {
        e = pthread_attr_init(&attr);
        if (e)
            break;
        (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        e = pthread_attr_setstacksize(&attr, stack);
        if (e == 0)
            e = pthread_create(&thread, &attr, run, NULL);
        (void)pthread_attr_destroy(&attr);
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -e;
}

/* A child that is entered by itself starts from nothing.  What the parent had is not freed: another
 * thread of the parent may have been changing it while the fork went by. */
static void begin_in_child(void)
{
    g.life = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
    g.core = (struct core){.version = PROBING_VERSION};
    g.events_made = g.plugin_thread_made = false;
    g.home_fd = g.guard_fd = -1; /* closed when it was forked */
    inherited_forget(&g.inherited);
    host_begin_in_child();
    crash_begin_in_child();
}

/* ---- fork ---- */

/* The thread of a forked child that is followed.  It was made in the child's fork handler, where
 * glibc has put its own locks in order already, and does nothing at first: a child that execs or
 * ends within this time has had an idle thread, and no more. */
static void *follow_fork(void *arg)
{
    int state = CHILD;
    bool sibling = false;
    struct buf plugins;

    (void)prctl(PR_SET_NAME, "probing/follow", 0, 0, 0);
    (void)poll(NULL, 0, FOLLOW_MS);
    if (!atomic_compare_exchange_strong_explicit(&g.state, &state, STARTING, memory_order_acq_rel,
                                                 memory_order_acquire))
        return NULL; /* somebody has entered it meanwhile */
    buf_init(&plugins, sizeof(g.plugins) - 1);
    (void)host_plugins_of_parent(g.core.host, &plugins);
    (void)snprintf(g.plugins, sizeof(g.plugins), "%s", buf_text(&plugins));
    buf_done(&plugins);
    begin_in_child();
    g.guard_fd = take_guard(&sibling);
    g.following = false;
    g.follower = true;
    return live(arg);
}

static struct timespec fork_limit(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t); /* what pthread_rwlock_timedrdlock() counts by */
    t.tv_nsec += (long)FORK_WAIT_NS;
    t.tv_sec += t.tv_nsec / (long)NS_PER_S;
    t.tv_nsec %= (long)NS_PER_S;
    return t;
}

static void fork_before(void)
{
    int state = atomic_load_explicit(&g.state, memory_order_acquire);
    fork_locked = false;
    if (state == IDLE || state == CHILD)
        return;
    struct timespec limit = fork_limit();
    fork_locked = pthread_rwlock_timedrdlock(&g.life, &limit) == 0;
    if (fork_locked && g.core.host)
        host_fork(g.core.host, PROBING_FORK_BEFORE);
}

static void fork_parent(void)
{
    if (!fork_locked)
        return;
    if (g.core.host)
        host_fork(g.core.host, PROBING_FORK_PARENT);
    fork_locked = false;
    (void)pthread_rwlock_unlock(&g.life);
}

/* Off: our threads are not here.  Without the lock a part may be half made or half gone,
 * so its pointers are left alone and only what is certain is closed.  Gives whether this child is
 * to be followed.                                                                       [child] */
static bool fork_child(void)
{
    bool follow =
        (fork_locked || g.following) && atomic_load_explicit(&g.follow, memory_order_relaxed);
    if (atomic_load_explicit(&g.state, memory_order_relaxed) == IDLE)
        return false;
    atomic_store_explicit(&g.state, CHILD, memory_order_relaxed);
    ring_disable_in_child();
    if (fork_locked) {
        if (g.core.store)
            store_disable_in_child(g.core.store);
        if (g.core.server)
            server_disable_in_child(g.core.server);
        if (g.core.host)
            host_disable_in_child(g.core.host);
    }
    crash_disable_in_child();
    inherited_drop(&g.inherited);
    if (g.guard_fd != -1)
        (void)close(g.guard_fd);
    g.guard_fd = -1;
    fork_locked = false;
    return g.following = follow;
}

/* A thread in a fork handler is against POSIX and sound with glibc: fork() puts malloc's, the
 * loader's and the stack cache's locks in order before it calls the handlers of the child.  Nobody
 * gets one who has not asked for it. */
static void fork_in_child(void)
{
    if (fork_child())
        (void)make_thread(follow_fork);
}

/* ---- main ---- */

static void *live(void *arg);
static int make_once(void)
{
    if (!g.events_made) {
        int r = event_init(&g.stop);
        if (r == 0)
            r = event_init(&g.stopped);
        if (r == 0)
            r = event_init(&g.plugins_loaded);
        if (r < 0)
            return r;
        g.events_made = true;
    }
    if (!g.atfork_made && pthread_atfork(fork_before, fork_parent, fork_in_child))
        return err_set(-ENOMEM, "no memory for fork handlers");
    g.atfork_made = true;
    return 0;
}

/* A sweep works under `life`, so that no child inherits what it has open; here a fork may go by.
 * event_wait() lowers the flag, and live() wants to see it too. */
static bool nobody_wants_us_to_stop(void *arg)
{
    (void)arg;
    unlock_life();
    lock_life();
    if (!event_wait(&g.stop, 0))
        return true;
    event_raise(&g.stop);
    return false;
}

static void sweep(struct core *c)
{
    struct sweep_limits limits = {
        .keep_ns = number_setting("probing.retention", DEFAULT_KEEP_NS, parse_ns),
        .max_bytes = number_setting("probing.max_dead", DEFAULT_DEAD_BYTES, parse_bytes),
        .go_on = nobody_wants_us_to_stop};
    lock_life();
    uint32_t n = sweep_run(&c->place, &limits);
    unlock_life();
    if (n > 0)
        host_log(c->host, PROBING_INFO,
                 "data of %u dead processes removed (probing.retention, "
                 "probing.max_dead)",
                 n);
}

/* The first byte comes last: a reader sees the whole line or none. */
static void tell_why(const char *why)
{
    (void)snprintf(probing_why + 1, sizeof(probing_why) - 1, "%s", why[0] ? why + 1 : "");
    __atomic_store_n(&probing_why[0], why[0], __ATOMIC_RELEASE);
}

static void finish(void)
{
    forget_guard();
    atomic_store_explicit(&g.state, IDLE, memory_order_release);
    event_raise(&g.stopped);
}

static void *live(void *arg)
{
    struct core *c = &g.core;
    (void)arg;
    (void)prctl(PR_SET_NAME, "probing/main", 0, 0, 0);
    *c = (struct core){.version = PROBING_VERSION, .stop = ask_to_stop};
    g.data_dir[0] = g.own_path[0] = g.token[0] = g.read_token[0] = '\0';
    g.afresh = false;

    int r = make_once();
    if (r < 0) {
        tell_why(err_why(r));
        forget_guard();
        atomic_store_explicit(&g.state, IDLE, memory_order_release);
        return NULL;
    }
    /* Whatever an earlier life left raised is lowered. */
    (void)event_wait(&g.stop, 0);
    (void)event_wait(&g.stopped, 0);
    (void)event_wait(&g.plugins_loaded, 0);
    r = start_parts(c);
    if (r < 0) {
        char why[ERR_TEXT_BYTES];
        (void)snprintf(why, sizeof(why), "%s", err_why(r));
        stop_parts(c);
        place_failed(&c->place, why);
        tell_why(why);
        finish();
        return NULL;
    }
    atomic_store_explicit(&g.state, RUNNING, memory_order_release);
    sweep(c);
    do {
        uint32_t waiting;
        do {
            waiting = host_plugins_again(c->host);
            host_watch(c->host);
        } while (!event_wait(&g.stop, waiting ? AGAIN_NS : WATCH_NS));
        /* An eject has done both already; probing_stop() has not. */
        bool here = host_leave(c->host, NULL) == 0;
        r = host_plugins_stop(c->host);
        atomic_store_explicit(&g.stop_result, r, memory_order_release);
        if (r < 0 && here)
            host_stay(c->host);
        if (r < 0) { /* a plugin's code may still run: stay, and say so */
            atomic_store_explicit(&g.state, RUNNING, memory_order_release);
            event_raise(&g.stopped);
        }
    } while (r < 0);
    atomic_store_explicit(&g.state, STOPPING, memory_order_release);
    stop_parts(c);
    finish();
    return NULL;
}

/* ---- on the borrowed thread ---- */

/* Start the core; settings: lines "NAME=VALUE", or NULL.  0: it is starting (the directory's `sock`
 * appears when it is ready, `failed` when it cannot); 1: it or another copy of it runs already;
 * -EAGAIN: it is just leaving; -E2BIG; -errno. */
int probing_start(const char *settings)
{
    int state = IDLE, r = 0;
    bool sibling = false;
    size_t n = settings ? strnlen(settings, SETTINGS_BYTES) : 0;

    if (n == SETTINGS_BYTES)
        return -E2BIG;
    while (!atomic_compare_exchange_weak_explicit(&g.state, &state, STARTING, memory_order_acq_rel,
                                                  memory_order_acquire))
        if (state != IDLE && state != CHILD)
            return state == STOPPING ? -EAGAIN : 1;
    if (state == CHILD)
        begin_in_child();
    g.follower = g.following = false;
    g.guard_fd = take_guard(&sibling);
    if (sibling) {
        r = 1;
    } else {
        if (n)
            memcpy(g.settings, settings, n);
        g.settings[n] = '\0';
        probing_why[0] = '\0';
        r = make_thread(live);
    }
    if (r != 0) {
        forget_guard();
        atomic_store_explicit(&g.state, IDLE, memory_order_release);
    }
    return r;
}

/* Leave the process, as `eject` does, and wait for it.  0, -ESRCH: not here, -EBUSY: code of a
 * plugin may still run, -ETIMEDOUT.  For tests and a process's owner; never from a handler. */
int probing_stop(void)
{
    if (atomic_load_explicit(&g.state, memory_order_acquire) != RUNNING)
        return -ESRCH;
    (void)event_wait(&g.stopped, 0); /* what an eject that was refused has left raised */
    atomic_store_explicit(&g.stop_result, 0, memory_order_release);
    event_raise(&g.stop);
    if (!event_wait(&g.stopped, STOP_NS))
        return -ETIMEDOUT;
    return atomic_load_explicit(&g.stop_result, memory_order_acquire);
}
