/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_api.c - the functions of struct probing_host: what a plugin may call, and
 * the guards through which its own functions are called back.
 *
 * Threads: as plugin.h tags each function.  Every way into a plugin's code passes plugin_enter(),
 * so that a plugin is never called before it runs or after it has been stopped.
 */
#include <errno.h>
#include <fcntl.h>
#include <probing/ext/draft/cost.h>
#include <probing/ext/draft/descriptor.h>
#include <probing/ext/draft/note.h>
#include <probing/ext/draft/rows.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <probing/ext/draft/empty.h>

#include "core/base/clock.h"
#include "core/base/own_descriptors.h"
#include "core/plugin_host/internal.h"
#include "core/ring/ring.h"

#define COSTS_MAX 64 /* rows of one plugin in probing.overhead */

/* Kept with the plugin over all its loads: a table or a topic of the same name finds its part. */
struct plugin_part {
    struct plugin_part *next;
    struct plugin *plugin;
    char *name;
    struct table *table; /* of a table, else NULL */
    int (*scan)(void *self, struct probing_rows *out);
    void (*handle)(void *self, const char *topic, const void *p, uint32_t n);
    int subscription; /* id, 0: none now */
};

/* ---- in and out of a plugin's code ---- */

void plugin_left(struct plugin *p)
{
    if (atomic_load_explicit(&p->state, memory_order_seq_cst) == PLUGIN_RUNNING)
        return;
    (void)pthread_mutex_lock(&p->host->plugins_lock);
    (void)pthread_cond_broadcast(&p->host->plugins_changed);
    (void)pthread_mutex_unlock(&p->host->plugins_lock);
}

/* The count goes up before the state is read, and stopping writes the state before it reads the
 * count (both seq_cst): one of the two sees the other. */
static bool enter(struct plugin *p, struct call_mark *m, bool ready_too)
{
    atomic_fetch_add_explicit(&p->running, 1, memory_order_seq_cst);
    int state = atomic_load_explicit(&p->state, memory_order_seq_cst);
    if (state == PLUGIN_RUNNING || (ready_too && state == PLUGIN_READY)) {
        if (m) {
            m->plugin = p->name;
            call_begin(m);
        }
        return true;
    }
    atomic_fetch_sub_explicit(&p->running, 1, memory_order_seq_cst);
    plugin_left(p);
    return false;
}

bool plugin_enter(struct plugin *p, struct call_mark *m)
{
    return enter(p, m, false);
}

bool plugin_enter_ready(struct plugin *p, struct call_mark *m)
{
    return enter(p, m, true);
}

void plugin_leave(struct plugin *p, const struct call_mark *m)
{
    if (m)
        call_end(m);
    atomic_fetch_sub_explicit(&p->running, 1, memory_order_seq_cst);
    plugin_left(p);
}

static int guarded_scan(void *self, struct probing_rows *out)
{
    struct plugin_part *part = self;
    struct call_mark mark = {.function = "scan", .name = part->name, .object = out};
    if (!plugin_enter(part->plugin, &mark))
        return err_set(-ESHUTDOWN,
                       "%s is computed by plugin %s, which does not run: plugin load %s",
                       part->name, part->plugin->name, part->plugin->name);
    err_clear();
    int rc = part->scan(part->plugin->self, out);
    plugin_leave(part->plugin, &mark);
    return rc;
}

static void guarded_handle(void *arg, const char *topic, const void *payload, uint32_t size)
{
    struct plugin_part *part = arg;
    struct call_mark mark = {.function = "handler", .name = part->name};
    if (!plugin_enter(part->plugin, &mark))
        return;
    plugin_handler_begin(part->plugin);
    part->handle(part->plugin->self, topic, payload, size);
    plugin_handler_end(part->plugin);
    plugin_leave(part->plugin, &mark);
}

/* ---- what the plugin calls ---- */

static void plugin_api_log(const struct probing_host *f, int level, const char *text)
{
    struct plugin *p = f->core;
    if (!host_is_off(p->host))
        host_logs(p->host, level, p->name,
                  given_text(text) ? text : "(the text is at an address that cannot be read)");
}

static int plugin_api_fail(const struct probing_host *f, int code, const char *text)
{
    struct plugin *p = f->core;
    if (host_is_off(p->host))
        return code;
    return err_set(code < 0 ? code : -EIO, "%s",
                   given_text(text) ? text : "failed without giving a reason");
}

/* Of "probing.note/1". */
static void note_set(const struct probing_host *f, const char *text)
{
    struct plugin *p = f->core;
    if (!host_is_off(p->host) && given_text(text))
        plugin_text_set(p, &p->reason, text);
}

int note_offer(struct host *h)
{
    static const struct probing_note_1 part = {.size = sizeof(part), .set = note_set};
    return host_extension_add(h, PROBING_NOTE_1, &part);
}

/* Of "probing.rows/1". */
static int rows_wanted(const struct probing_rows *out, uint32_t column)
{
    return column < out->table->n_columns && (!out->want || out->want[column]);
}

int rows_offer(struct host *h)
{
    static const struct probing_rows_1 part = {.size = sizeof(part), .wanted = rows_wanted};
    return host_extension_add(h, PROBING_ROWS_1, &part);
}

/* Of "probing.descriptor/1". */
static int descriptor_ours(int fd)
{
    return descriptor_is_ours(fd);
}

/* The linker sends these to core/compat/descriptors.c. */
static int descriptor_open(const char *path, int flags, unsigned mode)
{
    return open(path, flags, mode);
}

static int descriptor_close(int fd)
{
    return close(fd);
}

static void descriptors_came(const int *fds, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        descriptor_note(fds[i]);
    descriptor_end_low();
}

int descriptors_offer(struct host *h)
{
    static const struct probing_descriptor_1 part = {.size = sizeof(part),
                                                     .is_ours = descriptor_ours,
                                                     .open = descriptor_open,
                                                     .close = descriptor_close,
                                                     .begin = descriptor_begin,
                                                     .end = descriptors_came};
    return host_extension_add(h, PROBING_DESCRIPTOR_1, &part);
}

static struct plugin_part *part_find(struct plugin *p, const char *name, bool table)
{
    for (struct plugin_part *part = p->parts; part; part = part->next)
        if (strcmp(part->name, name) == 0 && (part->scan != NULL || part->table) == table)
            return part;
    return NULL;
}

static struct plugin_part *part_add(struct plugin *p, const char *name)
{
    struct plugin_part *part = calloc(1, sizeof(*part));
    char *copy = strdup(name);
    if (!part || !copy) {
        free(part);
        free(copy);
        (void)err_set(-ENOMEM, "no memory for '%s'", name);
        return NULL;
    }
    part->plugin = p;
    part->name = copy;
    part->next = p->parts;
    p->parts = part;
    return part;
}

static int plugin_api_table(const struct probing_host *f, const struct probing_table_desc *given,
                            struct probing_table **ret)
{
    struct plugin *p = f->core;
    struct probing_table_desc d = {0};
    struct table *t = NULL;

    if (host_is_off(p->host))
        return -ESHUTDOWN;
    if (!ret)
        return err_set(-EINVAL, "table() needs a place for its answer");
    int rc = given_table(given);
    if (rc < 0)
        return rc;
    memcpy(&d, given, sizeof(d));
    d.size = sizeof(d);
    struct plugin_part *part = part_find(p, d.name, true);
    if (!part)
        part = part_add(p, d.name);
    if (!part)
        return -ENOMEM;
    part->scan = d.scan;
    if (d.scan) {
        d.scan = guarded_scan;
        rc = tables_add(p->host->tables, p->name, &d, part, &t);
    } else {
        rc = p->host->store.table_add(p->host->store.arg, p->name, &d, NULL, &t);
    }
    if (rc < 0)
        return rc;
    part->table = t;
    atomic_store_explicit(&t->owner, p, memory_order_release);
    *ret = (struct probing_table *)t;
    return 0;
}

static int plugin_api_wanted(const struct probing_table *t)
{
    return atomic_load_explicit(&((const struct table *)t)->wanted, memory_order_relaxed);
}

static int plugin_api_append(struct probing_table *t, uint64_t ts, const union probing_cell *cells,
                             uint32_t n, const void *tail, uint32_t tail_n)
{
    return ring_append((struct table *)t, ts, cells, n, tail, tail_n);
}

static int plugin_api_intern(const struct probing_host *f, const void *bytes, size_t n,
                             uint64_t *ret_id)
{
    struct plugin *p = f->core;
    if (host_is_off(p->host))
        return -ESHUTDOWN;
    return p->host->store.intern(p->host->store.arg, bytes, n, ret_id);
}

static int plugin_api_emit(struct probing_rows *out, const union probing_cell *cells, uint32_t n)
{
    return out->row(out, cells, n);
}

static int plugin_api_command(const struct probing_host *f, const struct probing_command *c)
{
    struct plugin *p = f->core;
    if (host_is_off(p->host))
        return -ESHUTDOWN;
    int rc = given_command(c);
    return rc < 0 ? rc : command_add(p->host, p, p->name, c, NULL);
}

static int plugin_api_reply(struct probing_reply *out, const void *text, size_t n)
{
    return out->write(out, text, n);
}

static int plugin_api_cancelled(const struct probing_reply *out)
{
    return atomic_load_explicit(&out->cancelled, memory_order_acquire) != 0;
}

static int plugin_api_publish(const struct probing_host *f, const char *topic, const void *payload,
                              uint32_t n)
{
    struct plugin *p = f->core;
    return host_publish(p->host, topic, payload, n);
}

static int plugin_api_subscribe(const struct probing_host *f, const char *topic,
                                void (*fn)(void *, const char *, const void *, uint32_t))
{
    struct plugin *p = f->core;
    if (host_is_off(p->host))
        return -ESHUTDOWN;
    if (!given_text(topic) || !given_bytes((const void *)(uintptr_t)fn, 1))
        return err_set(-EINVAL, "subscribe() needs a topic and a function");
    struct plugin_part *part = part_find(p, topic, false);
    if (part && part->subscription)
        return err_set(-EEXIST, "topic '%s' is subscribed already", topic);
    if (!part)
        part = part_add(p, topic);
    if (!part)
        return -ENOMEM;
    part->handle = fn;
    int id = host_subscribe(p->host, topic, guarded_handle, part);
    if (id < 0)
        return id;
    part->subscription = id;
    return 0;
}

static int plugin_api_every(const struct probing_host *f, uint64_t period_ns,
                            void (*fn)(void *, uint64_t))
{
    struct plugin *p = f->core;
    if (host_is_off(p->host))
        return -ESHUTDOWN;
    if (!given_bytes((const void *)(uintptr_t)fn, 1))
        return err_set(-EINVAL, "every() needs a function");
    return timer_add(p->host, p, period_ns, fn);
}

/* ---- tables without rows ---- */

static int ask_why(struct plugin *p, const char *name, char *text, size_t size)
{
    const struct probing_empty_1 *part = NULL;
    struct call_mark mark = {.function = "extension", .name = PROBING_EMPTY_1};
    int rc = -ENOENT;
    if (!p->api.extension || !plugin_enter(p, &mark))
        return rc;
    part = p->api.extension(p->self, PROBING_EMPTY_1);
    if (part && part->size >= sizeof(*part) && part->why)
        rc = part->why(p->self, name, text, (uint32_t)size);
    plugin_leave(p, &mark);
    text[size - 1] = '\0';
    return rc;
}

int host_why_empty(void *host, const struct table *t, char *text, size_t size)
{
    char name[160];
    struct host *h = host;
    struct plugin *p = atomic_load_explicit(&t->owner, memory_order_acquire);
    if (host_is_off(h) || !p)
        return -ENOENT;
    if (atomic_load_explicit(&t->retired, memory_order_acquire)) {
        (void)pthread_mutex_lock(&h->plugins_lock);
        bool known = p->reason && p->reason[0];
        (void)snprintf(text, size, "plugin %s, which fills it, does not run%s%s (plugin load %s)",
                       p->name, known ? ": " : "", known ? p->reason : "", p->name);
        (void)pthread_mutex_unlock(&h->plugins_lock);
        return 0;
    }
    if (!atomic_load_explicit(&t->wanted, memory_order_relaxed)) {
        (void)snprintf(text, size, "it is switched off (state in probing.tables)");
        return 0;
    }
    (void)snprintf(name, sizeof(name), "%s.%s", t->schema, t->name);
    return ask_why(p, name, text, size);
}

/* ---- what plugins cost ---- */

static int costs_of(struct plugin *p, int (*fn)(void *, const struct probing_cost *), void *arg)
{
    const struct probing_cost_1 *part = NULL;
    struct call_mark mark = {.function = "extension", .name = PROBING_COST_1};
    int rc = 0;
    if (!p->api.extension || !plugin_enter_ready(p, &mark))
        return 0;
    part = p->api.extension(p->self, PROBING_COST_1);
    bool fits = part && part->size >= sizeof(*part) && part->cost;
    for (uint32_t i = 0; fits && i < COSTS_MAX && rc == 0; i++) {
        struct probing_cost c = {.size = sizeof(c)};
        if (part->cost(p->self, i, &c) < 0)
            break;
        rc = fn(arg, &c);
    }
    plugin_leave(p, &mark);
    return rc;
}

int host_costs_each(struct host *h, int (*fn)(void *arg, const struct probing_cost *c), void *arg)
{
    uint32_t n = host_is_off(h) ? 0 : atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = costs_of(atomic_load_explicit(&h->plugins[i], memory_order_acquire), fn, arg);
    return rc;
}

/* ---- extensions ---- */

static const void *core_part(struct host *h, const char *id)
{
    const void *part = NULL;
    (void)pthread_mutex_lock(&h->extensions_lock);
    for (uint32_t i = 0; i < h->n_extensions && !part; i++)
        if (strcmp(h->extensions[i].id, id) == 0)
            part = h->extensions[i].part;
    (void)pthread_mutex_unlock(&h->extensions_lock);
    return part;
}

/* self: who asks, NULL: the core. */
static const void *find_part(struct host *h, struct plugin *self, const char *id)
{
    if (host_is_off(h) || !id)
        return NULL;
    const void *part = core_part(h, id);
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    for (uint32_t i = 0; i < n && !part; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        struct call_mark mark = {.function = "extension", .name = id};
        if (p == self || !p->api.extension || !plugin_enter_ready(p, &mark))
            continue;
        part = p->api.extension(p->self, id);
        if (part && self) /* while `self` runs, `p` may not be stopped */
            atomic_fetch_or_explicit(&p->users, UINT64_C(1) << self->index, memory_order_release);
        plugin_leave(p, &mark);
    }
    return part;
}

static const void *plugin_api_extension(const struct probing_host *f, const char *id)
{
    struct plugin *self = f->core;
    return find_part(self->host, self, id);
}

const void *host_extension(struct host *h, const char *id)
{
    return find_part(h, NULL, id);
}

void plugin_api_init(struct plugin *p)
{
    p->face = (struct probing_host){
        .size = sizeof(struct probing_host),
        .abi = PROBING_ABI,
        .version = p->host->version,
        .core = p,
        .log = plugin_api_log,
        .fail = plugin_api_fail,
        .table = plugin_api_table,
        .wanted = plugin_api_wanted,
        .append = plugin_api_append,
        .intern = plugin_api_intern,
        .emit = plugin_api_emit,
        .command = plugin_api_command,
        .reply = plugin_api_reply,
        .cancelled = plugin_api_cancelled,
        .publish = plugin_api_publish,
        .subscribe = plugin_api_subscribe,
        .every = plugin_api_every,
        .now = clock_now,
        .extension = plugin_api_extension,
    };
}

/* Parts stay: a query may hold a table of ours, whose scan then answers that the plugin stopped. */
void plugin_api_stop(struct plugin *p)
{
    timers_remove(p->host, p);
    for (struct plugin_part *part = p->parts; part; part = part->next) {
        if (part->table)
            atomic_store_explicit(&part->table->retired, true, memory_order_release);
        if (part->subscription)
            host_unsubscribe(p->host, part->subscription);
        part->subscription = 0;
    }
}

void plugin_api_free(struct plugin *p)
{
    while (p->parts) {
        struct plugin_part *part = p->parts;
        p->parts = part->next;
        free(part->name);
        free(part);
    }
}
