/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_contract.c - what the core and a plugin owe each other in a call.
 *
 * The core marks each call of a plugin's function, by which the report of a crash names it.  A call
 * of the plugin's that breaks a rule of plugin.h is refused, and said once for each function.
 *
 * Threads: whichever made the call; what append() was given wrongly is said later, because it may
 * be called in a signal handler.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/plugin_host/internal.h"

/* emit() and reply() are given no host, and what they are given may be gone. */
static struct host *_Atomic living;

void contract_begin(struct host *h)
{
    atomic_store_explicit(&living, h, memory_order_release);
}

void contract_end(const struct host *h)
{
    struct host *mine = (struct host *)(uintptr_t)h;
    (void)atomic_compare_exchange_strong_explicit(&living, &mine, NULL, memory_order_acq_rel,
                                                  memory_order_relaxed);
}

static void say_once(struct plugin *p, enum contract_function f, const char *text)
{
    char line[ERR_TEXT_BYTES + sizeof(CONTRACT_WORDS)];
    uint32_t bit = UINT32_C(1) << f;
    if (host_is_off(p->host) ||
        atomic_fetch_or_explicit(&p->broken_rules, bit, memory_order_relaxed) & bit)
        return;
    (void)snprintf(line, sizeof(line), CONTRACT_WORDS "%s", text);
    host_logs(p->host, PROBING_WARN, p->name, line);
    (void)pthread_mutex_lock(&p->host->plugins_lock);
    bool free_place = !p->reason || !p->reason[0];
    (void)pthread_mutex_unlock(&p->host->plugins_lock);
    if (free_place)
        plugin_text_set(p, &p->reason, line);
}

int contract_broken(struct plugin *p, enum contract_function f, int code, const char *format, ...)
{
    char text[ERR_TEXT_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (p)
        say_once(p, f, text);
    return err_set(code, "%s", text);
}

int contract_control(struct plugin *p, enum contract_function f, const char *function)
{
    char name[16] = "";
    struct control *c = &p->host->control;

    (void)pthread_mutex_lock(&c->mutex);
    bool started = c->started; /* before that the caller is alone */
    (void)pthread_mutex_unlock(&c->mutex);
    if (!started || control_is_here(p->host))
        return 0;
    (void)prctl(PR_GET_NAME, name);
    return contract_broken(p, f, -EWOULDBLOCK,
                           "%s() was called on thread %d (%s); call it on the control thread: in "
                           "init, configure, start, stop, or a handler of a topic",
                           function, (int)syscall(SYS_gettid), name);
}

int contract_holds(const struct probing_host *f, const char *name, const char *value)
{
    struct plugin *p = f->core;
    const struct call_mark *m = call_innermost();
    if (!m || m->plugin != p->name || strcmp(m->function, "configure") != 0)
        return contract_broken(p, CONTRACT_HOLDS, -EWOULDBLOCK,
                               "holds() of setting %.80s outside of configure()", name);
    return setting_holds(f, name, value);
}

int contract_result(struct plugin *p, const char *function, const char *name, int rc, int most)
{
    return rc <= most
               ? rc
               : contract_broken(p, CONTRACT_RESULT, -EPROTO,
                                 "%s of %.80s returned %d; on failure it returns a negative errno "
                                 "(-EIO, not EIO)",
                                 function, name, rc);
}

bool contract_inside(const void *object)
{
    const struct call_mark *m = call_innermost();
    while (m && m->object != object)
        m = m->outer;
    return m && object;
}

int contract_outside(const void *caller, enum contract_function f, const char *function,
                     const char *of)
{
    struct host *h = atomic_load_explicit(&living, memory_order_acquire);
    struct plugin *p = NULL;
    struct link_map *map = NULL;
    Dl_info info;
    char name[16] = "";

    if (h && dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) && map) {
        const char *plugin = host_plugin_at(h, map->l_addr);
        p = plugin ? plugin_find(h, plugin) : NULL;
    }
    (void)prctl(PR_GET_NAME, name);
    return contract_broken(p, f, -EWOULDBLOCK,
                           "%s() was called on thread %d (%s) outside of the %s that its first "
                           "argument belongs to; call it inside of that, on its thread",
                           function, (int)syscall(SYS_gettid), name, of);
}

/* ---- rows that append() refused, or that had no ids of texts ---- */

static void say_misuse(struct table *t)
{
    char text[ERR_TEXT_BYTES];
    uint32_t how = atomic_exchange_explicit(&t->misuse, 0, memory_order_acquire);
    struct plugin *p = atomic_load_explicit(&t->owner, memory_order_acquire);
    const char *table = atomic_load_explicit(&t->name, memory_order_acquire);

    if (how == 0 || !p)
        return;
    (void)snprintf(text, sizeof(text),
                   t->scan ? "append() to table %s, whose rows scan() makes"
                           : "append() to table %s with %u cells, and it has %u columns; such rows "
                             "are not kept",
                   table, atomic_load_explicit(&t->misuse_cells, memory_order_relaxed), t->n_cells);
    if (how & TABLE_MORE_CELLS)
        say_once(p, CONTRACT_APPEND, text);
    (void)snprintf(text, sizeof(text),
                   "append() to table %s with a tail, and it has none; such rows are not kept",
                   table);
    if (how & TABLE_NO_TAIL)
        say_once(p, CONTRACT_APPEND_TAIL, text);
    (void)snprintf(text, sizeof(text),
                   "append() to table %s with a cell of a text that is no id of intern(); such "
                   "cells are NULL",
                   table);
    if (how & TABLE_NO_ID)
        say_once(p, CONTRACT_APPEND_ID, text);
}

void contract_look(struct host *h)
{
    if (!tables_misused())
        return;
    for (uint32_t id = 1; id <= TABLES_MAX; id++) {
        struct table *t = tables_by_id(h->tables, id);
        if (t)
            say_misuse(t);
    }
}

/* ---- calls of a plugin's functions ---- */

int plugin_call_constructors(struct plugin *p, int file, const char *path, void **ret_handle)
{
    struct call_mark mark = {.plugin = p->name, .function = "constructor"};
    call_begin(&mark);
    int rc = image_map(file, p->name, path, ret_handle);
    call_end(&mark);
    return rc;
}

int plugin_call_init(struct plugin *p)
{
    struct call_mark mark = {.plugin = p->name, .function = "init"};
    call_begin(&mark);
    int rc = p->api.init(&p->face, &p->self);
    call_end(&mark);
    return rc;
}

int plugin_call_configure(struct plugin *p, const char *name, const char *value)
{
    struct call_mark mark = {.plugin = p->name, .function = "configure", .name = name};
    call_begin(&mark);
    int rc = p->api.configure ? p->api.configure(p->self, name, value) : 0;
    call_end(&mark);
    return contract_result(p, "configure()", name, rc, 0);
}

int plugin_call_start(struct plugin *p)
{
    struct call_mark mark = {.plugin = p->name, .function = "start"};
    call_begin(&mark);
    int rc = p->api.start ? p->api.start(p->self) : 0;
    call_end(&mark);
    return rc;
}

int plugin_call_stop(struct plugin *p)
{
    struct call_mark mark = {.plugin = p->name, .function = "stop"};
    call_begin(&mark);
    int rc = p->api.stop ? p->api.stop(p->self) : 0;
    call_end(&mark);
    return rc;
}

void plugin_call_destroy(struct plugin *p)
{
    struct call_mark mark = {.plugin = p->name, .function = "destroy"};
    call_begin(&mark);
    p->api.destroy(p->self);
    call_end(&mark);
}

void plugin_call_fork(struct plugin *p, int phase)
{
    struct call_mark mark = {.plugin = p->name, .function = "fork"};
    call_begin(&mark);
    p->api.fork(p->self, phase);
    call_end(&mark);
}
