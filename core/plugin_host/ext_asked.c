/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/ext_asked.c - what the core asks of plugins' extensions: why a table has no rows
 * ("probing.empty/1"), and what the plugin costs ("probing.cost/1").
 *
 * Threads: workers.  A plugin that does not answer is not waited for: the answer goes without it.
 */
#include <errno.h>
#include <probing/ext/draft/cost.h>
#include <probing/ext/draft/empty.h>
#include <stdio.h>

#include "core/base/clock.h"
#include "core/plugin_host/internal.h"

#define COSTS_MAX 64            /* rows of one plugin in probing.overhead */
#define ASIDE_NS (2 * NS_PER_S) /* for what is a note beside an answer: then it is missing */

/* ---- tables without rows ---- */

struct why_call {
    struct plugin_call call; /* first; its subject is the table */
    char text[PROBING_EMPTY_BYTES];
};

static int why_in_plugin(struct plugin_call *call)
{
    struct why_call *c = (struct why_call *)call;
    struct plugin *p = call->plugin;
    const struct probing_empty_1 *part = p->api.extension(p->self, PROBING_EMPTY_1);
    if (!part || part->size < sizeof(*part) || !part->why)
        return -ENOENT;
    return part->why(p->self, call->subject, c->text, sizeof(c->text));
}

static int ask_why(struct plugin *p, const char *name, char *text, size_t size)
{
    bool left;
    struct why_call *c = p->api.extension ? plugin_call_new(sizeof(*c), p, "why", name) : NULL;
    if (!c)
        return -ENOENT;
    c->call.run = why_in_plugin;
    c->call.limit_ns = ASIDE_NS;
    int rc = plugin_call(&c->call, &left);
    if (left)
        return -ENOENT;
    (void)snprintf(text, size, "%.*s", (int)sizeof(c->text) - 1, c->text);
    plugin_call_free(&c->call);
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

struct cost_call {
    struct plugin_call call; /* first */
    uint32_t n;
    struct probing_cost costs[COSTS_MAX];
};

static int costs_in_plugin(struct plugin_call *call)
{
    struct cost_call *c = (struct cost_call *)call;
    struct plugin *p = call->plugin;
    const struct probing_cost_1 *part = p->api.extension(p->self, PROBING_COST_1);
    bool fits = part && part->size >= sizeof(*part) && part->cost;
    for (; fits && c->n < COSTS_MAX; c->n++) {
        c->costs[c->n] = (struct probing_cost){.size = sizeof(c->costs[c->n])};
        if (part->cost(p->self, c->n, &c->costs[c->n]) < 0)
            break;
    }
    return 0;
}

/* The names of costs are read while the plugin is kept from being stopped. */
static int costs_of(struct plugin *p, int (*fn)(void *, const struct probing_cost *), void *arg)
{
    bool left;
    int rc = 0;
    struct cost_call *c = p->api.extension ? plugin_call_new(sizeof(*c), p, "cost", p->name) : NULL;
    if (!c)
        return 0;
    c->call.run = costs_in_plugin;
    c->call.limit_ns = ASIDE_NS;
    c->call.ready_too = true;
    int asked = plugin_call(&c->call, &left);
    if (left)
        return 0;
    if (asked == 0 && plugin_enter_ready(p, /* m= */ NULL)) {
        for (uint32_t i = 0; i < c->n && rc == 0; i++)
            rc = fn(arg, &c->costs[i]);
        plugin_leave(p, NULL);
    }
    plugin_call_free(&c->call);
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
