/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_api.c - the functions of struct probing_host: what a plugin may call, and
 * the guards through which its own functions are called back.
 *
 * Threads: as plugin.h tags each function.  Every way into a plugin's code passes plugin_enter(),
 * so that a plugin is never called before it runs or after it has been stopped; what somebody waits
 * for passes plugin_call(), so that it can be left.
 */
#include <errno.h>
#include <fcntl.h>
#include <probing/ext/draft/descriptor.h>
#include <probing/ext/draft/note.h>
#include <probing/ext/draft/rows.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/guest/own_descriptors.h"
#include "core/plugin_host/internal.h"
#include "core/ring/ring.h"

#define LOWEST_TEXT 65536u /* vm.mmap_min_addr: the kernel maps nothing below */

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
static bool enter_call(struct plugin *p, struct call_mark *m, bool ready_too)
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
    return enter_call(p, m, false);
}

bool plugin_enter_ready(struct plugin *p, struct call_mark *m)
{
    return enter_call(p, m, true);
}

void plugin_leave(struct plugin *p, const struct call_mark *m)
{
    if (m)
        call_end(m);
    atomic_fetch_sub_explicit(&p->running, 1, memory_order_seq_cst);
    plugin_left(p);
}

/* The plugin has rows of its own to fill, which outlive the query's. */
struct scan_call {
    struct plugin_call call;  /* first */
    struct probing_rows face; /* what the plugin is given */
    struct probing_rows *rows;
    struct plugin_part *part;
    bool want[TABLE_COLUMNS_MAX];
};

static int row_through(struct probing_rows *face, const union probing_cell *cells, uint32_t n)
{
    struct scan_call *c = face->arg;
    if (!plugin_call_enter(&c->call))
        return -ECANCELED;
    int rc = c->rows->row(c->rows, cells, n);
    plugin_call_exit(&c->call);
    return rc;
}

static bool rows_unwanted(struct plugin_call *call)
{
    struct scan_call *c = (struct scan_call *)call;
    return c->rows->row(c->rows, NULL, 0) < 0;
}

static int scan_in_plugin(struct plugin_call *call)
{
    struct scan_call *c = (struct scan_call *)call;
    int rc = c->part->scan(call->plugin->self, &c->face);
    return contract_result(call->plugin, "scan()", c->part->name, rc, 0);
}

static int scan_result(const struct scan_call *c, int rc)
{
    const struct plugin_part *part = c->part;
    if (c->call.n_refused > 0)
        return err_set(-ESHUTDOWN, "%s is computed by plugin %s, which was stopped meanwhile",
                       part->name, part->plugin->name);
    return rc == -ESHUTDOWN && !err_text()[0]
               ? err_set(rc, "%s is computed by plugin %s, which does not run: plugin load %s",
                         part->name, part->plugin->name, part->plugin->name)
               : rc;
}

static int guarded_scan(void *self, struct probing_rows *out)
{
    struct plugin_part *part = self;
    char name[2 * HOST_NAME_BYTES];
    bool left;

    (void)snprintf(name, sizeof(name), "%s.%s", out->table->schema, out->table->name);
    struct scan_call *c = plugin_call_new(sizeof(*c), part->plugin, "scan", name);
    if (!c)
        return -ENOMEM;
    if (out->want)
        memcpy(c->want, out->want, out->table->n_columns * sizeof(*c->want));
    c->call.run = scan_in_plugin;
    c->call.object = &c->face;
    c->call.unwanted = rows_unwanted;
    c->face = (struct probing_rows){
        .table = out->table, .row = row_through, .arg = c, .want = out->want ? c->want : NULL};
    c->rows = out;
    c->part = part;
    err_clear();
    int rc = plugin_call(&c->call, &left);
    if (left)
        return rc;
    rc = scan_result(c, rc);
    plugin_call_free(&c->call);
    return rc;
}

static void guarded_handle(void *arg, const char *topic, const void *payload, uint32_t size)
{
    struct plugin_part *part = arg;
    struct call_mark mark = {.function = "handler", .name = part->name};
    if (!plugin_enter(part->plugin, &mark))
        return;
    if (plugin_handler_begin(part->plugin)) {
        part->handle(part->plugin->self, topic, payload, size);
        plugin_handler_end(part->plugin);
    }
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

/* The function of "probing.note/1". */
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

/* The function of "probing.rows/1". */
static int rows_wanted(const struct probing_rows *out, uint32_t column)
{
    return column < out->table->n_columns && (!out->want || out->want[column]);
}

int rows_offer(struct host *h)
{
    static const struct probing_rows_1 part = {.size = sizeof(part), .wanted = rows_wanted};
    return host_extension_add(h, PROBING_ROWS_1, &part);
}

/* The functions of "probing.descriptor/1". */
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
    int rc = contract_control(p, CONTRACT_TABLE, "table");
    rc = rc < 0 ? rc : given_table(given);
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
    if (__builtin_expect(!t, 0)) /* table() failed, and nobody has looked */
        return -EINVAL;
    return ring_append((struct table *)t, ts, cells, n, tail, tail_n);
}

static int plugin_api_intern(const struct probing_host *f, const void *bytes, size_t n,
                             uint64_t *ret_id)
{
    struct plugin *p = f->core;
    if (host_is_off(p->host))
        return -ESHUTDOWN;
    if ((!bytes && n) || !ret_id)
        return contract_broken(p, CONTRACT_INTERN, -EINVAL, "intern() of %zu bytes without %s", n,
                               ret_id ? "an address" : "a place for the id");
    return p->host->store.intern(p->host->store.arg, bytes, n, ret_id);
}

/* An id of intern(), a boolean, an error: no text lies so low, and reading it would be the end. */
static bool is_no_text(const char *text)
{
    return text && (uintptr_t)text < LOWEST_TEXT;
}

static int emit_wrong(const struct table *t, const union probing_cell *cells, uint32_t n)
{
    struct plugin *p = atomic_load_explicit(&t->owner, memory_order_acquire);
    const char *name = atomic_load_explicit(&t->name, memory_order_acquire);
    if (!cells || n != t->n_columns)
        return contract_broken(p, CONTRACT_EMIT, -EINVAL,
                               "emit() to table %s with %u cells%s, and it has %u columns", name, n,
                               cells ? "" : " at no address", t->n_columns);
    uint32_t i = 0;
    while (i < n && (t->columns[i].type != PROBING_STR || !is_no_text(cells[i].s)))
        i++;
    return contract_broken(p, CONTRACT_EMIT_TEXT, -EINVAL,
                           "emit() to table %s with %p for the text of column %s; emit() takes the "
                           "address of a text, append() an id of intern()",
                           name, (const void *)cells[i].s, i < n ? t->columns[i].name : "?");
}

static int plugin_api_emit(struct probing_rows *out, const union probing_cell *cells, uint32_t n)
{
    if (!contract_inside(out))
        return contract_outside(__builtin_return_address(0), CONTRACT_EMIT_THREAD, "emit",
                                "scan()");
    const struct table *t = out->table;
    bool right = n == 0 || (cells && n == t->n_columns);
    for (uint32_t i = 0; i < n && right; i++)
        right = t->columns[i].type != PROBING_STR || (out->want && !out->want[i]) ||
                !is_no_text(cells[i].s);
    return right ? out->row(out, cells, n) : emit_wrong(t, cells, n);
}

static int plugin_api_command(const struct probing_host *f, const struct probing_command *c)
{
    struct plugin *p = f->core;
    if (host_is_off(p->host))
        return -ESHUTDOWN;
    int rc = contract_control(p, CONTRACT_COMMAND, "command");
    rc = rc < 0 ? rc : given_command(c);
    return rc < 0 ? rc : command_add(p->host, p, p->name, c, NULL);
}

static int plugin_api_reply(struct probing_reply *out, const void *text, size_t n)
{
    if (!contract_inside(out))
        return contract_outside(__builtin_return_address(0), CONTRACT_REPLY, "reply", "run()");
    if (!text && n)
        return err_set(-EINVAL, "reply() of %zu bytes without an address", n);
    return out->write(out, text, n);
}

static int plugin_api_cancelled(const struct probing_reply *out)
{
    return command_is_cancelled(out);
}

static int plugin_api_publish(const struct probing_host *f, const char *topic, const void *payload,
                              uint32_t n)
{
    struct plugin *p = f->core;
    uint32_t size = 0;
    if (payload && n >= sizeof(size))
        memcpy(&size, payload, sizeof(size));
    if (!topic || (n > 0 && size != n))
        return contract_broken(
            p, CONTRACT_PUBLISH, -EINVAL,
            "publish() of topic %.80s with %u bytes that do not begin with their "
            "number, a uint32_t",
            topic ? topic : "NULL", n);
    return host_publish(p->host, topic, payload, n);
}

static int plugin_api_subscribe(const struct probing_host *f, const char *topic,
                                void (*fn)(void *, const char *, const void *, uint32_t))
{
    struct plugin *p = f->core;
    if (host_is_off(p->host))
        return -ESHUTDOWN;
    int rc = contract_control(p, CONTRACT_SUBSCRIBE, "subscribe");
    if (rc < 0)
        return rc;
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
    int rc = contract_control(p, CONTRACT_EVERY, "every");
    if (rc < 0)
        return rc;
    if (!given_bytes((const void *)(uintptr_t)fn, 1))
        return err_set(-EINVAL, "every() needs a function");
    return timer_add(p->host, p, period_ns, fn);
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

struct part_call {
    struct plugin_call call; /* first; its subject is the extension */
    const void *part;
};

static int part_in_plugin(struct plugin_call *call)
{
    struct plugin *p = call->plugin;
    ((struct part_call *)call)->part = p->api.extension(p->self, call->subject);
    return 0;
}

/* A part that plugin `p` offers.  user: the plugin that keeps `p` from stopping; NULL: the core. */
static const void *part_of(struct plugin *p, const struct plugin *user, const char *id)
{
    bool left;
    struct part_call *c = plugin_call_new(sizeof(*c), p, "extension", id);
    if (!c)
        return NULL;
    c->call.run = part_in_plugin;
    c->call.limit_ns = plugin_limit_ns(p->host);
    c->call.ready_too = c->call.always = true;
    (void)plugin_call(&c->call, &left);
    if (left)
        return NULL;
    const void *part = c->part;
    plugin_call_free(&c->call);
    if (!part || !user)
        return part;
    /* While `user` runs, `p` may not be stopped: the mark comes before the look at its state. */
    atomic_fetch_or_explicit(&p->users, UINT64_C(1) << user->index, memory_order_release);
    bool there = plugin_enter_ready(p, /* m= */ NULL);
    if (there)
        plugin_leave(p, NULL);
    else
        atomic_fetch_and_explicit(&p->users, ~(UINT64_C(1) << user->index), memory_order_release);
    return there ? part : NULL;
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
        if (p != self && p->api.extension)
            part = part_of(p, self, id);
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
    atomic_store_explicit(&p->broken_rules, 0, memory_order_relaxed);
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
