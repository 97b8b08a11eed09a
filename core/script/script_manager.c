/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/script_manager.c - the scripts of a process: start, list, stop; the command and the
 * table.
 *
 * Threads: workers.  A script that has ended stays in the list until one of its name is started.
 */
#include "core/script/script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/script/internal.h"

#define LIVING_MAX 32
#define ENDED_MAX 32 /* that are still listed; of more the oldest is forgotten */
#define SCRIPTS_MAX (LIVING_MAX + ENDED_MAX)
#define SOURCE_MAX_BYTES ((size_t)1 << 20)
#define LOAD_NS (2 * NS_PER_S) /* a script whose first lines take longer is said to run */
#define END_NS (5 * NS_PER_S)  /* a stopped one ends at once: more, and it gets no time to run */
#define LUA_STACK ((size_t)1 << 20) /* bytes: Lua's C calls nest up to 200 deep */

static const char *const state_names[] = {[SCRIPT_LOADING] = "running",
                                          [SCRIPT_RUNNING] = "running",
                                          [SCRIPT_ENDED] = "ended",
                                          [SCRIPT_FAILED] = "failed",
                                          [SCRIPT_STOPPED] = "stopped"};

const char *script_state_name(int state)
{
    return state_names[state];
}

static int state_of(const struct script *s)
{
    return atomic_load_explicit(&s->state, memory_order_acquire);
}

static bool is_running(const struct script *s)
{
    return state_of(s) == SCRIPT_LOADING || state_of(s) == SCRIPT_RUNNING;
}

static void script_free(struct script *s)
{
    event_done(&s->wake);
    event_done(&s->loaded);
    event_done(&s->ended);
    (void)pthread_mutex_destroy(&s->mutex);
    free(s->source);
    free(s);
}

static struct script *script_new(struct scripts *all, const char *name, const char *source,
                                 size_t size)
{
    struct script *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->owner = all;
    s->started = clock_now();
    s->size = size;
    (void)snprintf(s->name, sizeof(s->name), "%s", name);
    (void)snprintf(s->topic, sizeof(s->topic), "script.%s", name);
    (void)pthread_mutex_init(&s->mutex, NULL);
    s->source = malloc(size + 1);
    if (s->source)
        memcpy(s->source, source, size);
    bool made = s->source && event_init(&s->wake) == 0;
    made = made && event_init(&s->loaded) == 0;
    made = made && event_init(&s->ended) == 0;
    if (made)
        return s;
    free(s->source); /* an event that was made holds no memory */
    free(s);
    return NULL;
}

static struct script *find_script(struct scripts *all, const char *name)
{
    for (struct script *s = all->first; s; s = s->next)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

/* lock held.  Takes *at, which has ended, out of the list. */
static void forget_script(struct script **at)
{
    struct script *s = *at;
    *at = s->next;
    (void)pthread_join(s->thread, NULL); /* it has ended: no wait */
    script_free(s);
}

/* lock held.  The name is free, or its owner has ended and is forgotten.  Only those that live
 * count against the limit: the list is newest first, so that the oldest ended ones go. */
static int make_room(struct scripts *all, const char *name)
{
    uint32_t n_living = 0, n_ended = 0;
    for (struct script **at = &all->first; *at;) {
        struct script *s = *at;
        bool same = strcmp(s->name, name) == 0, lives = is_running(s);
        if (same && (lives || s->users > 0))
            return err_set(-EEXIST, "script '%s' runs already; script stop %s first", name, name);
        n_living += lives;
        n_ended += !lives;
        if (!lives && s->users == 0 && (same || n_ended >= ENDED_MAX))
            forget_script(at);
        else
            at = &s->next;
    }
    return n_living < LIVING_MAX
               ? 0
               : err_set(-ENOSPC, "%d scripts run already; script stop one of them", LIVING_MAX);
}

/* 1: its lines still run. */
static int run_for(struct scripts *all, const char *name, const char *source, size_t size,
                   uint64_t limit_ns)
{
    if (!text_is_name(name))
        return err_set(-EINVAL, "'%.80s' is not a script's name: [a-z][a-z0-9_]*", name);
    if (size > SOURCE_MAX_BYTES)
        return err_set(-E2BIG, "a script may have at most %zu bytes", SOURCE_MAX_BYTES);
    struct script *s = script_new(all, name, source, size);
    if (!s)
        return err_set(-ENOMEM, "no memory for script '%s'", name);
    (void)pthread_mutex_lock(&all->mutex);
    int rc = make_room(all, name);
    if (rc == 0)
        rc = share_keep(all);
    if (rc == 0)
        rc = thread_start(&s->thread, "probing/lua", LUA_STACK, script_thread, s);
    if (rc < 0) {
        (void)pthread_mutex_unlock(&all->mutex);
        script_free(s);
        return rc;
    }
    s->next = all->first;
    all->first = s;
    s->users = 1;
    (void)pthread_mutex_unlock(&all->mutex);
    (void)event_wait(&s->loaded, limit_ns);
    (void)pthread_mutex_lock(&s->mutex);
    if (state_of(s) == SCRIPT_FAILED)
        rc = err_set(-EINVAL, "%s", s->error);
    else if (state_of(s) == SCRIPT_LOADING)
        rc = 1;
    (void)pthread_mutex_unlock(&s->mutex);
    (void)pthread_mutex_lock(&all->mutex);
    s->users--;
    (void)pthread_mutex_unlock(&all->mutex);
    return rc;
}

int scripts_run(struct scripts *all, const char *name, const char *source, size_t size)
{
    int rc = run_for(all, name, source, size, LOAD_NS);
    return rc < 0 ? rc : 0;
}

int scripts_run_within(struct scripts *all, const char *name, const char *source, size_t size,
                       uint64_t limit_ns)
{
    int rc = run_for(all, name, source, size, limit_ns);
    if (rc <= 0)
        return rc;
    (void)scripts_stop(all, name);
    return err_set(-ETIMEDOUT, "it ran for more than %g s without pause, so it was stopped",
                   (double)limit_ns / 1e9);
}

static bool wait_end(struct script *s, uint64_t limit)
{
    while (is_running(s) && clock_now() < limit)
        (void)event_wait(&s->ended, NS_PER_S / 10); /* another may have taken the flag */
    return !is_running(s);
}

int scripts_stop(struct scripts *all, const char *name)
{
    const char *names[SCRIPTS_MAX];
    size_t n = 0;
    int rc = 0;

    (void)pthread_mutex_lock(&all->mutex);
    struct script *s = find_script(all, name);
    for (struct script *at = all->first; at && n < SCRIPTS_MAX; at = at->next)
        names[n++] = at->name;
    if (!s) {
        const char *near = text_nearest(name, names, n);
        rc = near ? err_set(-ENOENT, "no script '%.80s'; did you mean '%s'?", name, near)
                  : err_set(-ENOENT, "no script '%.80s' runs; script list shows them", name);
    } else if (!is_running(s)) {
        rc = err_set(-ENOENT, "script '%s' does not run (%s)", name, state_names[state_of(s)]);
    } else {
        s->users++;
    }
    (void)pthread_mutex_unlock(&all->mutex);
    if (rc < 0)
        return rc;
    script_interrupt(s);
    if (!wait_end(s, clock_now() + END_NS))
        rc = err_set(-EBUSY,
                     "script '%s' has not ended in %g s: its thread gets no time to run, or waits "
                     "for a setting's plugin; it ends when it does",
                     name, (double)END_NS / 1e9);
    (void)pthread_mutex_lock(&all->mutex);
    s->users--;
    (void)pthread_mutex_unlock(&all->mutex);
    return rc;
}

/* ---- the command and the table ---- */

static int run_run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct scripts *all = self;
    if (argc != 3)
        return err_set(
            -EINVAL,
            "usage: script run NAME SOURCE; the source is one argument, the text of the program");
    int rc = scripts_run(all, argv[1], argv[2], strlen(argv[2]));
    return rc < 0 ? rc : host_replyf(out, "script %s runs\n", argv[1]);
}

static int run_stop(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    if (argc != 2)
        return err_set(-EINVAL, "script stop NAME; script list shows them");
    int rc = scripts_stop(self, argv[1]);
    return rc < 0 ? rc : host_replyf(out, "script %s has stopped\n", argv[1]);
}

struct script_view {
    char name[SCRIPT_NAME_BYTES], error[ERR_TEXT_BYTES];
    int state;
    uint64_t started, rows, cpu_ns, throttled_ns, memory_bytes, errors;
};

static int each_script(struct scripts *all, int (*fn)(void *arg, const struct script_view *v),
                       void *arg)
{
    struct script_view *views = calloc(SCRIPTS_MAX, sizeof(*views));
    uint32_t n = 0;
    int rc = 0;

    if (!views)
        return err_set(-ENOMEM, "no memory to list scripts");
    (void)pthread_mutex_lock(&all->mutex);
    for (struct script *s = all->first; s && n < SCRIPTS_MAX; s = s->next, n++) {
        (void)snprintf(views[n].name, sizeof(views[n].name), "%s", s->name);
        (void)pthread_mutex_lock(&s->mutex);
        (void)snprintf(views[n].error, sizeof(views[n].error), "%s", s->error);
        (void)pthread_mutex_unlock(&s->mutex);
        views[n].state = state_of(s);
        views[n].started = s->started;
        views[n].rows = atomic_load_explicit(&s->rows, memory_order_relaxed);
        views[n].cpu_ns = atomic_load_explicit(&s->share.cpu_ns, memory_order_relaxed);
        views[n].throttled_ns = atomic_load_explicit(&s->share.throttled_ns, memory_order_relaxed);
        views[n].memory_bytes = atomic_load_explicit(&s->memory.mapped_bytes, memory_order_relaxed);
        views[n].errors = atomic_load_explicit(&s->errors, memory_order_relaxed);
    }
    (void)pthread_mutex_unlock(&all->mutex);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = fn(arg, &views[i]);
    free(views);
    return rc;
}

struct listing {
    struct probing_reply *out;
    uint32_t n;
};

static int list_line(void *arg, const struct script_view *v)
{
    struct listing *l = arg;
    l->n++;
    return host_replyf(
        l->out, "%-24s %-8s %8llu rows  cpu %.2f s, throttled %.2f s, %.1f MB, %llu errors%s%s\n",
        v->name, state_names[v->state], (unsigned long long)v->rows, (double)v->cpu_ns / 1e9,
        (double)v->throttled_ns / 1e9, (double)v->memory_bytes / 1e6, (unsigned long long)v->errors,
        v->error[0] ? ", the last: " : "", v->error);
}

static int run_list(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)argv;
    if (argc != 1)
        return err_set(-EINVAL, "script list takes no arguments");
    struct listing l = {.out = out};
    int rc = each_script(self, list_line, &l);
    return rc == 0 && l.n == 0
               ? host_replyf(out, "no script was started here; script run FILE.lua starts one\n")
               : rc;
}

static int table_row(void *arg, const struct script_view *v)
{
    struct probing_rows *out = arg;
    const union probing_cell row[] = {{.s = v->name},
                                      {.s = state_names[v->state]},
                                      {.i = (int64_t)v->started},
                                      {.s = v->error[0] ? v->error : NULL},
                                      {.i = (int64_t)v->rows},
                                      {.i = (int64_t)v->cpu_ns},
                                      {.i = (int64_t)v->throttled_ns},
                                      {.i = (int64_t)v->memory_bytes},
                                      {.i = (int64_t)v->errors}};
    return out->row(out, row, sizeof(row) / sizeof(row[0]));
}

static int scan_scripts(void *self, struct probing_rows *out)
{
    return each_script(self, table_row, out);
}

static int add_commands(struct scripts *all)
{
    static const struct probing_command commands[] = {
        {.size = sizeof(struct probing_command),
         .flags = PROBING_WRITES,
         .name = "script run",
         .usage = "NAME SOURCE",
         .doc = "start a Lua script from its text",
         .run = run_run},
        {.size = sizeof(struct probing_command),
         .flags = PROBING_WRITES | HOST_URGENT | HOST_LASTS,
         .name = "script stop",
         .usage = "NAME",
         .doc = "stop a script; its rows stay",
         .run = run_stop},
        {.size = sizeof(struct probing_command),
         .flags = HOST_URGENT | HOST_LASTS,
         .name = "script list",
         .usage = "",
         .doc = "scripts and their states",
         .run = run_list}};
    int rc = 0;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]) && rc == 0; i++)
        rc = host_command_add(all->host, "script", &commands[i], all);
    return rc;
}

int scripts_new(const struct scripts_options *o, struct scripts **ret)
{
    static const struct probing_column columns[] = {
        {.name = "name", .type = PROBING_STR, .doc = "as script run named it"},
        {.name = "state", .type = PROBING_STR, .doc = "running, ended, failed or stopped"},
        {.name = "started_at",
         .type = PROBING_TIME,
         .unit = PROBING_NS,
         .doc = "when it was started"},
        {.name = "error", .type = PROBING_STR, .doc = "Lua's message of its last error"},
        {.name = "rows",
         .type = PROBING_I64,
         .unit = PROBING_COUNT,
         .doc = "rows it added to tables"},
        {.name = "cpu_ns",
         .type = PROBING_I64,
         .unit = PROBING_NS,
         .doc = "processor time of its thread and of what ran for it, such as queries"},
        {.name = "throttled_ns",
         .type = PROBING_I64,
         .unit = PROBING_NS,
         .doc = "time it waited because it had used its share of a processor"},
        {.name = "memory_bytes",
         .type = PROBING_I64,
         .unit = PROBING_BYTES,
         .doc = "memory of its Lua state"},
        {.name = "errors", .type = PROBING_I64, .unit = PROBING_COUNT, .doc = "errors so far"}};
    static const struct probing_table_desc desc = {.size = sizeof(desc),
                                                   .column_size = sizeof(columns[0]),
                                                   .name = "probing.scripts",
                                                   .doc = "Lua scripts in this process",
                                                   .columns = columns,
                                                   .n_columns =
                                                       sizeof(columns) / sizeof(columns[0]),
                                                   .scan = scan_scripts};

    struct scripts *all = calloc(1, sizeof(*all));
    if (!all)
        return err_set(-ENOMEM, "no memory for scripts");
    all->host = o->host;
    all->sql = o->sql;
    all->store = *o->store;
    all->version = o->version;
    (void)pthread_mutex_init(&all->mutex, NULL);
    (void)pthread_mutex_init(&all->limits, NULL);
    if (event_init(&all->run) < 0) {
        free(all);
        return err_set(-ENOMEM, "no memory for scripts");
    }
    int rc = host_table_add(all->host, &desc, all);
    if (rc == 0)
        rc = add_commands(all);
    if (rc < 0) {
        free(all);
        return rc;
    }
    *ret = all;
    return 0;
}

/* One that has not ended in END_NS (it waits for a plugin that sets a setting) is left to end by
 * itself: what it still touches, its own struct and this one, is then left too. */
void scripts_free(struct scripts *all)
{
    bool left = false;

    if (!all)
        return;
    (void)pthread_mutex_lock(&all->mutex);
    struct script *s = all->first;
    for (struct script *at = s; at; at = at->next)
        script_interrupt(at);
    all->first = NULL; /* from here on the keeper sees none */
    (void)pthread_mutex_unlock(&all->mutex);
    share_keep_end(all);
    uint64_t limit = clock_now() + END_NS;
    while (s) {
        struct script *next = s->next;
        if (wait_end(s, limit)) {
            (void)pthread_join(s->thread, NULL);
            script_free(s);
        } else {
            (void)pthread_detach(s->thread);
            left = true;
        }
        s = next;
    }
    if (left)
        return;
    event_done(&all->run);
    (void)pthread_mutex_destroy(&all->limits);
    (void)pthread_mutex_destroy(&all->mutex);
    free(all);
}
