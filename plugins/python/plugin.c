/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/plugin.c - the python plugin: works with the CPython that is in the process.
 *
 * init, start, stop, destroy on [control].  It adds the commands backtrace, eval and repl, the
 * table python.backtrace and the parts "python.gil/1" and "python.frames/1".  No hook of the
 * interpreter is touched, and nothing of it runs in the user's threads unless a profiler calls it
 * there.  Where there is no Python, backtrace shows native stacks and the rest says why.
 */
#include <errno.h>
#include <probing/ext/draft/python.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/backtrace_external.h"
#include "commands/interpreter_hooks.h"
#include "exec/bindings.h"
#include "exec/entry.h"
#include "exec/offsets_proof.h"
#include "inspect/offsets.h"
#include "inspect/signal_frames.h"
#include "internal.h"
#include "lib/proc/maps.h"
#include "package_api/coordinates.h"
#include "package_api/package_bridge.h"
#include "package_api/user_tables.h"
#include "plugin_files.h"
#include "plugin_malloc.h"
#include "trace/trace.h"
#include "trace/trace_event.h"

#define BEGUN_NS UINT64_C(100000000) /* how often we look whether the interpreter has begun */
#define PROOF_NS PROBING_NS_PER_S    /* for the GIL to come, where a start waits for it */

/* python.gil/1's call() has no self.  Written on [control] in start() and stop(), read by any. */
static struct plugin *the_plugin;
static struct probing_python_gil_1 gil_part;

static struct cpython_method *const all_natives[] = {
    debug_natives,       session_natives,       tables_natives, trace_natives, trace_slot_natives,
    trace_entry_natives, trace_monitor_natives, watch_natives,  NULL};

static int gil_call(int (*fn)(void *arg), void *arg, uint64_t timeout_ns)
{
    struct plugin *p = __atomic_load_n(&the_plugin, __ATOMIC_ACQUIRE);
    return p ? runner_call(p->runner, fn, arg, timeout_ns) : -ENODEV;
}

/* Is there a libpython that dlmopen() has put where we cannot call it? */
static bool is_elsewhere(void)
{
    char room[PROC_MAPS_ROOM];
    struct proc_lines l;
    struct proc_mapping m;
    bool found = false;
    if (proc_maps_open(&l, getpid(), room, sizeof(room)) < 0)
        return false;
    while (!found && proc_maps_next(&l, &m))
        found = m.executable && strstr(m.path, "/libpython3") != NULL;
    proc_lines_close(&l);
    return found;
}

static void explain_load(const struct cpython *py, int code, char *ret, size_t size)
{
    if (code == -ENODEV && dl_iterate_phdr(cpython_find_pypy, NULL))
        (void)snprintf(ret, size, "%s", CPYTHON_PYPY);
    else if (code == -ENODEV && is_elsewhere())
        (void)snprintf(ret, size,
                       "the CPython of this process was loaded by dlmopen into a namespace of its "
                       "own: its stacks can be read from outside only, by backtrace --external");
    else if (code == -ENODEV)
        (void)snprintf(ret, size,
                       "there is no CPython in this process (if one came since: plugin stop "
                       "python, plugin load python)");
    else if (code == -ENOTSUP)
        (void)snprintf(ret, size, "this CPython is older than 3.8, the oldest that is supported");
    else
        (void)snprintf(ret, size, "this Python does not export %s: it is not a usual CPython",
                       py->missing ? py->missing : "its functions");
}

static int no_python_run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    const struct plugin *p = self;
    (void)argc;
    (void)argv;
    (void)out;
    return p->host->fail(p->host, -ENODEV, p->no_python);
}

/* Commands and tables that need Python are there all the same, and say why they have no answer. */
static int add_commands(struct plugin *p)
{
    static const struct probing_command *const all[] = {&eval_command, &complete_command,
                                                        &debug_command, &trace_command};
    int r = p->host->command(p->host, &backtrace_command);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && r == 0; i++) {
        struct probing_command c = *all[i];
        if (p->no_python[0])
            c.run = no_python_run;
        r = p->host->command(p->host, &c);
    }
    return r;
}

/* The tables of what Python does. */
static int add_tables(struct plugin *p)
{
    natives_host = p->host;
    natives_offer(all_natives);
    int r = tables_init(p);
    if (r == 0)
        r = events_init(p);
    if (r == 0)
        r = trace_calls_init(p);
    if (r == 0)
        r = watch_init(p);
    if (r == 0)
        r = offer_init(p);
    return r < 0 ? r : written_init(p);
}

static int python_init(const struct probing_host *h, void **ret_self)
{
    memory_take(h);
    files_take(h);
    struct plugin *p = calloc(1, sizeof(*p));
    if (!p)
        return h->fail(h, -ENOMEM, "no memory");
    p->host = h;
    int r = cpython_load(&p->py);
    if (r < 0) {
        explain_load(&p->py, r, p->no_python, sizeof(p->no_python));
        p->py = (struct cpython){.version = 0};
        h->log(h, PROBING_INFO, p->no_python);
    }
    (void)pthread_mutex_init(&p->stacks, NULL);
    struct probing_table *table;
    r = p->no_python[0] ? 0 : runner_new(&p->py, &p->runner);
    if (r == 0)
        r = h->table(h, &backtrace_table, &table);
    if (r == 0)
        r = add_commands(p);
    if (r == 0 && p->runner)
        r = add_tables(p);
    if (r < 0) {
        runner_free(p->runner);
        (void)pthread_mutex_destroy(&p->stacks);
        free(p);
        return r;
    }
    *ret_self = p;
    return 0;
}

static int python_configure(void *self, const char *name, const char *value)
{
    return watch_configure(self, name, value);
}

/* [worker] The core may be in the process before the interpreter is; and the GIL that a proof of a
 * new CPython needs may be long in coming. */
static void look_again(void *self, uint64_t now)
{
    struct plugin *p = self;
    (void)now;
    if (cpython_gone(&p->py))
        return;
    if (!atomic_load_explicit(&p->begun, memory_order_relaxed))
        entry_open(&p->py);
    if (offsets_proof(&p->py) == OFFSETS_UNPROVED && proof_try(p, BEGUN_NS) == 0)
        frames_open(p);
    if (atomic_exchange_explicit(&p->begun, true, memory_order_relaxed))
        return;
    offer_start(p);
    watch_start(p);
}

static int python_start(void *self)
{
    struct plugin *p = self;
    if (!p->runner)
        return 0;
    int r = runner_start(p->runner);
    if (r < 0)
        return p->host->fail(p->host, r, "no thread for Python code");
    bool begun = !cpython_gone(&p->py);
    if (begun)
        entry_open(&p->py);
    offsets_prove_again();
    bool proved = proof_try(p, PROOF_NS) == 0;
    frames_open(p);
    gil_part = (struct probing_python_gil_1){sizeof(gil_part), p->py.version, gil_call};
    __atomic_store_n(&the_plugin, p, __ATOMIC_RELEASE);
    atomic_store_explicit(&p->begun, begun, memory_order_relaxed);
    if (begun) {
        offer_start(p);
        watch_start(p);
    }
    return begun && proved ? 0 : p->host->every(p->host, BEGUN_NS, look_again);
}

static int python_stop(void *self)
{
    struct plugin *p = self;
    if (!p->runner)
        return 0;
    debug_stop_session();
    if (trace_stop(p))
        return p->host->fail(p->host, -EBUSY,
                             "hooks of `trace` cannot be removed because the GIL is not available");
    if (watch_stop(p))
        return p->host->fail(p->host, -EBUSY,
                             "hooks for python.exceptions, gc or imports cannot be removed because "
                             "the GIL is not available");
    if (offer_stop(p))
        return p->host->fail(p->host, -EBUSY, "the program is adding a row to a table of its own");
    if (runner_stop(p->runner)) {
        offer_start(p);
        watch_start(p);
        return p->host->fail(p->host, -EBUSY,
                             "a command or a table of probing is inside the interpreter; eject "
                             "again in a moment (backtrace --all shows thread probing/python)");
    }
    __atomic_store_n(&the_plugin, NULL, __ATOMIC_RELEASE);
    session_forget(p);
    frames_close();
    return 0;
}

static void python_fork(void *self, int phase)
{
    struct plugin *p = self;
    if (phase == PROBING_FORK_CHILD && p->runner) {
        entry_forked();
        runner_forked(p->runner);
        frames_forked();
        trace_forked();
        offer_forked();
        coordinates_forked();
        watch_forked();
    }
}

static void python_destroy(void *self)
{
    struct plugin *p = self;
    runner_free(p->runner);
    (void)pthread_mutex_destroy(&p->stacks);
    free(p);
}

static const void *python_extension(void *self, const char *id)
{
    const struct plugin *p = self;
    if (strcmp(id, PROBING_PYTHON_EXTERNAL_1) == 0)
        return &external_part;
    if (p && !p->runner)
        return NULL;
    if (strcmp(id, PROBING_PYTHON_FRAMES_1) == 0)
        return &frames_part;
    if (strcmp(id, PROBING_PYTHON_COORDINATES_1) == 0)
        return &coordinates_part;
    return strcmp(id, PROBING_PYTHON_GIL_1) == 0 ? &gil_part : NULL;
}

static const struct probing_view views[] = {
    {"profiling_data",
     "select ts as timestamp, name as operation_name, duration_ns / 1e6 as duration_ms from "
     "python.trace_event where duration_ns is not null",
     "durations of operations: spans", NULL},
    {"python.facts",
     "select name, version as value from python.modules where version <> '' and strpos(name, '.') "
     "= "
     "0",
     "versions of imported packages, as `cluster diff` compares them", NULL}};

/* A span's end tells of its begin, too. */
static const struct probing_track tracks[] = {
    {.name = "spans",
     .doc = "calls that trace watches, spans and events of `import probing`, on their threads",
     .sql = "select * from python.trace_event where record_type <> 'span_start' and {when}",
     .newest = "select max(ts) from python.trace_event"}};

/* Measured by tests/hostile/test_limits_table.py. */
#define MIB (UINT64_C(1) << 20)
static const struct probing_resource resources[] = {
    {.name = "address_space", .takes = 272 * MIB}, {.name = "data", .takes = 40 * MIB},
    {.name = "memory", .takes = 16 * MIB},         {.name = "mappings", .takes = 56},
    {.name = "descriptors", .takes = 2},           {.name = "threads", .takes = 3},
};

static const struct probing_declarations declarations = {.size = sizeof(declarations),
                                                         .n_resources = PROBING_LENGTH(resources),
                                                         .resource_size = sizeof(resources[0]),
                                                         .resources = resources,
                                                         .n_views =
                                                             sizeof(views) / sizeof(views[0]),
                                                         .view_size = sizeof(views[0]),
                                                         .views = views,
                                                         .n_tracks = 1,
                                                         .track_size = sizeof(tracks[0]),
                                                         .tracks = tracks};

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin),
    .abi = PROBING_ABI,
    .name = "python",
    .version = PROBING_VERSION,
    .doc = "reads the stacks of every thread without the GIL, and runs Python code in the process",
    .config = watch_settings,
    .config_size = sizeof(struct probing_config),
    .init = python_init,
    .configure = python_configure,
    .start = python_start,
    .stop = python_stop,
    .fork = python_fork,
    .destroy = python_destroy,
    .extension = python_extension,
    .declares = &declarations,
};
