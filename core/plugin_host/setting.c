/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/setting.c - settings: one list of all owners', checked by type and range, set
 * live.
 *
 * Threads: values are read under the lock from anywhere and changed on the control thread only,
 * after their owner has agreed.  Settings for a plugin that is not here are kept for it.
 */
#include <errno.h>
#include <probing/ext/draft/setting.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/plugin_host/internal.h"

#define SETTINGS_MAX 1024
#define VALUE_MAX_BYTES 4096
#define RETENTION_HEAD "table." /* settings of this form are not the host's: the store takes them */
#define RETENTION_TAIL ".keep"
#define RETENTION_DOC                                                                             \
    "how much of the table to keep: 2h, 100MB, 2h|100MB (whichever is reached first); 0: as for " \
    "all tables"

/* ---- is a value of the right kind ---- */

static int number_of(const char *owner, const char *name, uint32_t unit, int64_t min, int64_t max,
                     const char *value, int64_t *ret)
{
    uint64_t amount = 0;
    bool flag;

    if (parse_i64(value, ret) == 0)
        return 0;
    if (unit == PROBING_NS && parse_ns(value, &amount) == 0 && amount <= INT64_MAX) {
        *ret = (int64_t)amount;
        return 0;
    }
    if (unit == PROBING_BYTES && parse_bytes(value, &amount) == 0 && amount <= INT64_MAX) {
        *ret = (int64_t)amount;
        return 0;
    }
    if (min == 0 && max == 1 && parse_bool(value, &flag) == 0) {
        *ret = flag;
        return 0;
    }
    return err_set(-EINVAL, "%s.%s must be %s, not '%.80s'", owner, name,
                   unit == PROBING_NS      ? "a time like 250ms, 10s, 5m or 1d"
                   : unit == PROBING_BYTES ? "a size like 4096, 64KB, 10MB or 1GB"
                   : min == 0 && max == 1  ? "on or off"
                                           : "a whole number",
                   value);
}

/* In words that the setting takes: 10ms, not 10000000. */
static int out_of_range(const char *owner, const char *name, uint32_t unit,
                        const int64_t numbers[3])
{
    char text[3][TEXT_AMOUNT_BYTES];
    for (int i = 0; i < 3; i++) {
        (void)snprintf(text[i], sizeof(text[i]), "%lld", (long long)numbers[i]);
        if (unit == PROBING_NS)
            text_ns(numbers[i], text[i]);
        else if (unit == PROBING_BYTES)
            text_bytes(numbers[i], text[i]);
    }
    return err_set(-ERANGE, "%s.%s is %s to %s, not %s", owner, name, text[0], text[1], text[2]);
}

/* Check, and write what the owner gets: numbers without their unit. */
static int check_value(const char *owner, const char *name, uint32_t type, uint32_t unit,
                       int64_t min, int64_t max, const char *value, char *ret_plain)
{
    int64_t number;
    double real;

    if (strlen(value) >= VALUE_MAX_BYTES)
        return err_set(-ERANGE, "%s.%s takes at most %d bytes", owner, name, VALUE_MAX_BYTES - 1);
    if (strchr(value, '\n'))
        return err_set(-EINVAL, "%s.%s takes one line only", owner, name);
    if (type == PROBING_I64) {
        int rc = number_of(owner, name, unit, min, max, value, &number);
        if (rc < 0)
            return rc;
        if ((min || max) && (number < min || number > max))
            return out_of_range(owner, name, unit, (const int64_t[]){min, max, number});
        (void)snprintf(ret_plain, VALUE_MAX_BYTES, "%lld", (long long)number);
        return 0;
    }
    if (type == PROBING_F64 && parse_f64(value, strlen(value), &real) < 0)
        return err_set(-EINVAL, "%s.%s must be a number, not '%.80s'", owner, name, value);
    (void)snprintf(ret_plain, VALUE_MAX_BYTES, "%s", value);
    return 0;
}

int settings_check(const char *owner, const struct probing_config *table, uint32_t stride)
{
    char *plain = malloc(VALUE_MAX_BYTES);
    int rc = plain ? 0 : -ENOMEM;

    if (stride < sizeof(struct probing_config))
        rc = err_set(-EINVAL,
                     "settings of '%s': stride %u is smaller than struct probing_config (%zu); "
                     "set .config_size",
                     owner, stride, sizeof(struct probing_config));
    for (uint32_t i = 0; rc == 0; i++) {
        const struct probing_config *c =
            (const struct probing_config *)((const char *)table + (size_t)i * stride);
        if (!c->name)
            break;
        if (i >= SETTINGS_MAX)
            rc = err_set(-EINVAL, "settings of '%s' do not end with a NULL name", owner);
        else if (!text_is_name(c->name) || !c->value || !c->doc)
            rc = err_set(-EINVAL,
                         "setting %u of '%s' ('%.60s') has a bad name, no default or no doc", i,
                         owner, c->name);
        else if (c->type != PROBING_I64 && c->type != PROBING_F64 && c->type != PROBING_STR)
            rc = err_set(-EINVAL, "setting %s.%s has type %u: a setting is I64, F64 or STR", owner,
                         c->name, c->type);
        else
            rc = check_value(owner, c->name, c->type, c->unit, c->min, c->max, c->value, plain);
    }
    free(plain);
    return rc;
}

/* ---- the list ---- */

static struct setting *find_setting(struct host *h, const char *owner, size_t owner_n,
                                    const char *name)
{
    for (struct setting *s = h->settings.first; s; s = s->next)
        if (!s->gone && strncmp(s->owner, owner, owner_n) == 0 && s->owner[owner_n] == '\0' &&
            strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

static void setting_free(struct setting *s)
{
    if (!s)
        return;
    free(s->owner);
    free(s->name);
    free(s->value);
    free(s->fallback);
    free(s->doc);
    free(s);
}

static struct setting *add_setting(struct host *h, const char *owner, size_t owner_n,
                                   const char *name)
{
    struct setting *s = calloc(1, sizeof(*s)), **end = &h->settings.first;
    uint32_t n = 0;

    if (!s)
        return NULL;
    s->owner = strndup(owner, owner_n);
    s->name = strdup(name);
    s->pending = true;
    for (; *end; end = &(*end)->next)
        n++;
    if (!s->owner || !s->name || n >= SETTINGS_MAX) {
        setting_free(s);
        return NULL;
    }
    *end = s;
    return s;
}

/* A setting becomes known: what was kept for it stays when it fits, else it is told and dropped. */
static int adopt_setting(struct host *h, const char *owner, const struct probing_config *c,
                         struct plugin *p, int (*set)(void *, const char *, const char *),
                         void *self)
{
    char *fallback = strdup(c->value), *doc = strdup(c->doc);
    int rc = 0;

    (void)pthread_mutex_lock(&h->settings.mutex);
    struct setting *s = find_setting(h, owner, strlen(owner), c->name);
    if (!s)
        s = add_setting(h, owner, strlen(owner), c->name);
    if (!s || !fallback || !doc) {
        rc = err_set(-ENOMEM, "no room for setting %s.%s", owner, c->name);
        free(fallback);
        free(doc);
    } else {
        free(s->fallback);
        free(s->doc);
        s->fallback = fallback;
        s->doc = doc;
        s->type = c->type;
        s->unit = c->unit;
        s->flags = c->flags;
        s->min = c->min;
        s->max = c->max;
        s->pending = false;
        s->set = set;
        s->self = self;
        s->plugin = p;
    }
    (void)pthread_mutex_unlock(&h->settings.mutex);
    return rc;
}

static int adopt_all(struct host *h, const char *owner, const struct probing_config *table,
                     uint32_t stride, struct plugin *p,
                     int (*set)(void *, const char *, const char *), void *self)
{
    int rc = 0;
    const struct probing_config *c = table;
    while (rc == 0 && c && c->name) {
        rc = adopt_setting(h, owner, c, p, set, self);
        c = (const struct probing_config *)((const char *)c + stride);
    }
    return rc;
}

int host_settings_add(struct host *h, const char *owner, const struct probing_config *table,
                      uint32_t stride, int (*set)(void *self, const char *name, const char *value),
                      void *self)
{
    int rc = settings_check(owner, table, stride);
    return rc < 0 ? rc : adopt_all(h, owner, table, stride, NULL, set, self);
}

int settings_add_plugin(struct host *h, struct plugin *p)
{
    const struct declared *d = atomic_load_explicit(&p->declared, memory_order_relaxed);
    int rc = adopt_all(h, p->name, p->api.config, p->api.config_size, p, NULL, NULL);
    if (rc == 0 && d)
        aliases_adopt(h, d);
    return rc;
}

/* Give one setting's value to the plugin, before its start. */
static int configure_one(struct plugin *p, const struct setting *s, const char *value, char *plain)
{
    int rc = check_value(s->owner, s->name, s->type, s->unit, s->min, s->max, value, plain);
    if (rc < 0)
        return rc;
    err_clear();
    rc = plugin_call_configure(p, s->name, plain);
    if (rc < 0)
        return err_set(rc, "%s=%.200s: %s", s->name, value,
                       err_text()[0] ? err_text() : strerror(-rc));
    return 0;
}

int settings_configure(struct host *h, struct plugin *p)
{
    char *value = malloc(VALUE_MAX_BYTES), *plain = malloc(VALUE_MAX_BYTES);
    int rc = value && plain ? 0 : -ENOMEM;

    for (struct setting *s = h->settings.first; s && rc == 0; s = s->next) {
        if (strcmp(s->owner, p->name) != 0)
            continue;
        if (s->pending) {
            host_log(h, PROBING_WARN,
                     "plugin %s has no setting '%s'; the value is kept but not used", p->name,
                     s->name);
            continue;
        }
        (void)pthread_mutex_lock(&h->settings.mutex);
        (void)snprintf(value, VALUE_MAX_BYTES, "%s", s->value ? s->value : s->fallback);
        (void)pthread_mutex_unlock(&h->settings.mutex);
        rc = configure_one(p, s, value, plain);
    }
    free(value);
    free(plain);
    return rc;
}

int settings_each(struct host *h, int (*fn)(void *arg, const struct setting *s, const char *value),
                  void *arg)
{
    char *value = malloc(VALUE_MAX_BYTES);
    int rc = value ? 0 : err_set(-ENOMEM, "no memory to list settings");

    (void)pthread_mutex_lock(&h->settings.mutex);
    struct setting *s = h->settings.first;
    (void)pthread_mutex_unlock(&h->settings.mutex);
    while (s && rc == 0) {
        (void)pthread_mutex_lock(&h->settings.mutex);
        const char *text = s->value ? s->value : s->fallback;
        (void)snprintf(value, VALUE_MAX_BYTES, "%s", text ? text : "");
        struct setting *next = s->next;
        bool gone = s->gone;
        (void)pthread_mutex_unlock(&h->settings.mutex);
        rc = gone ? 0 : fn(arg, s, value);
        s = next;
    }
    free(value);
    return rc;
}

void settings_free(struct host *h)
{
    while (h->settings.first) {
        struct setting *s = h->settings.first;
        h->settings.first = s->next;
        setting_free(s);
    }
}

/* ---- get and set ---- */

/* "table.<name>.keep", the name with its schema or without: how long the table's name is; 0: it is
 * no such setting. */
static size_t retention_name(const char *name)
{
    size_t n = strlen(name), around = strlen(RETENTION_HEAD) + strlen(RETENTION_TAIL);
    if (n <= around || strncmp(name, RETENTION_HEAD, strlen(RETENTION_HEAD)) != 0 ||
        strcmp(name + n - strlen(RETENTION_TAIL), RETENTION_TAIL) != 0)
        return 0;
    return n - around;
}

/* The same as a text of its own; -EINVAL when it cannot be a table's. */
static int retention_table(const char *name, char ret[2 * HOST_NAME_BYTES])
{
    size_t n = retention_name(name);
    char part[HOST_NAME_BYTES];

    if (n < 2 * HOST_NAME_BYTES) {
        (void)snprintf(ret, 2 * HOST_NAME_BYTES, "%.*s", (int)n, name + strlen(RETENTION_HEAD));
        const char *dot = strchr(ret, '.');
        size_t schema_n = dot ? (size_t)(dot - ret) : 0;
        (void)snprintf(part, sizeof(part), "%.*s", (int)schema_n, ret);
        if (schema_n < sizeof(part) && (!dot || text_is_name(part)) &&
            text_is_name(dot ? dot + 1 : ret))
            return 0;
    }
    return err_set(
        -EINVAL, "'%.120s' does not name a table; write table.NAME.keep or table.SCHEMA.NAME.keep",
        name);
}

/* Do both name one table: "python.steps", its name alone, or "python_steps" as the environment has
 * it?  Each ends with RETENTION_TAIL. */
static bool same_table(const char *a, const char *b)
{
    size_t n = strlen(a), tail = strlen(RETENTION_TAIL);
    const char *dot_a = memchr(a, '.', n - tail), *dot_b = memchr(b, '.', strlen(b) - tail);
    if (dot_a && dot_b)
        return strcmp(a, b) == 0;
    if (dot_a || dot_b)
        if (strcmp(dot_a ? dot_a + 1 : a, dot_b ? dot_b + 1 : b) == 0)
            return true;
    for (size_t i = 0; i <= n; i++)
        if (a[i] != b[i] && !((a[i] == '.' && b[i] == '_') || (a[i] == '_' && b[i] == '.')))
            return false;
    return true;
}

/* Find the setting of a table's retention, by whichever name it was set.  lock: settings.mutex */
static struct setting *find_retention(struct host *h, const char *name)
{
    const char *wanted = name + strlen(RETENTION_HEAD);
    for (struct setting *s = h->settings.first; s; s = s->next)
        if (!s->gone && strcmp(s->owner, "table") == 0 && same_table(s->name, wanted))
            return s;
    return NULL;
}

static int split_name(const char *name, size_t *ret_owner_n)
{
    const char *dot = strchr(name, '.');
    char owner[HOST_NAME_BYTES];

    if (retention_name(name)) {
        *ret_owner_n = (size_t)(dot - name);
        return 0;
    }
    if (!dot || dot == name || (size_t)(dot - name) >= sizeof(owner))
        return err_set(-EINVAL, "'%.80s' is not a setting's name: OWNER.NAME, as in server.listen",
                       name);
    (void)snprintf(owner, sizeof(owner), "%.*s", (int)(dot - name), name);
    if (!text_is_name(owner) || !text_is_name(dot + 1))
        return err_set(-EINVAL, "'%.80s' is not a setting's name: OWNER.NAME, as in server.listen",
                       name);
    *ret_owner_n = (size_t)(dot - name);
    return 0;
}

/* lock held.  -ENOENT with the nearest full name. */
static int refuse_unknown(struct host *h, const char *name)
{
    const char *names[SETTINGS_MAX];
    char *texts[SETTINGS_MAX];
    uint32_t n = 0;

    for (struct setting *s = h->settings.first; s && n < SETTINGS_MAX; s = s->next) {
        size_t size = strlen(s->owner) + strlen(s->name) + 2;
        texts[n] = malloc(size);
        if (!texts[n])
            break;
        (void)snprintf(texts[n], size, "%s.%s", s->owner, s->name);
        names[n] = texts[n];
        n++;
    }
    const char *near = text_nearest(name, names, n);
    int rc = near ? err_set(-ENOENT, "unknown setting '%.80s'; did you mean '%s'?", name, near)
                  : err_set(-ENOENT, "unknown setting '%.80s'; 'config' lists them", name);
    while (n > 0)
        free(texts[--n]);
    return rc;
}

struct setting *setting_find(struct host *h, const char *name)
{
    const char *dot = strchr(name, '.');
    return dot ? find_setting(h, name, (size_t)(dot - name), dot + 1) : NULL;
}

int host_config_get(struct host *h, const char *name, struct buf *ret)
{
    size_t n;
    char own[2 * HOST_NAME_BYTES];
    if (host_is_off(h))
        return -ESHUTDOWN;
    name = alias_resolve(h, name, own);
    int rc = split_name(name, &n);
    if (rc < 0)
        return rc;
    (void)pthread_mutex_lock(&h->settings.mutex);
    struct setting *s =
        retention_name(name) ? find_retention(h, name) : find_setting(h, name, n, name + n + 1);
    if (!s)
        rc = refuse_unknown(h, name);
    else
        rc = buf_adds(ret, s->value ? s->value : s->fallback ? s->fallback : "");
    (void)pthread_mutex_unlock(&h->settings.mutex);
    return rc;
}

bool settings_start_with(struct host *h, const char *plugin)
{
    (void)pthread_mutex_lock(&h->settings.mutex);
    const struct setting *s = find_setting(h, "probing", strlen("probing"), "plugins");
    const char *all = !s ? NULL : s->value ? s->value : s->fallback;
    bool found = all && text_is_listed(all, plugin, strlen(plugin));
    (void)pthread_mutex_unlock(&h->settings.mutex);
    return found;
}

bool setting_owner_known(struct host *h, const char *owner, size_t n)
{
    for (struct setting *s = h->settings.first; s; s = s->next)
        if (!s->pending && strncmp(s->owner, owner, n) == 0 && s->owner[n] == '\0')
            return true;
    return false;
}

static int keep_value(struct host *h, struct setting *s, const char *value)
{
    char *copy = strdup(value);
    if (!copy)
        return err_set(-ENOMEM, "no memory for a setting");
    (void)pthread_mutex_lock(&h->settings.mutex);
    char *old = s->value;
    s->value = copy;
    (void)pthread_mutex_unlock(&h->settings.mutex);
    free(old);
    return 0;
}

/* probing_setting_1's: a plugin tells, while it is being configured, what else holds by that. */
int setting_holds(const struct probing_host *f, const char *name, const char *value)
{
    struct plugin *p = f->core;
    char *plain = malloc(VALUE_MAX_BYTES);
    (void)pthread_mutex_lock(&p->host->settings.mutex);
    struct setting *s = find_setting(p->host, p->name, strlen(p->name), name);
    (void)pthread_mutex_unlock(&p->host->settings.mutex);
    int rc = !plain ? err_set(-ENOMEM, "no memory for a setting")
             : s && !s->pending
                 ? check_value(s->owner, s->name, s->type, s->unit, s->min, s->max, value, plain)
                 : err_set(-ENOENT, "%s has no setting '%.120s'", p->name, name);
    free(plain);
    return rc < 0 ? rc : keep_value(p->host, s, value);
}

int settings_offer(struct host *h)
{
    static const struct probing_setting_1 part = {.size = sizeof(part), .holds = contract_holds};
    return host_extension_add(h, PROBING_SETTING_1, &part);
}

/* Ask the owner.  Its code runs without a lock held; on control nobody else changes settings. */
static int tell_owner(struct host *h, struct setting *s, const char *value, char *plain)
{
    int rc = check_value(s->owner, s->name, s->type, s->unit, s->min, s->max, value, plain);
    if (rc < 0)
        return rc;
    struct plugin *p = s->plugin;
    bool runs = p ? atomic_load_explicit(&p->state, memory_order_acquire) == PLUGIN_RUNNING
                  : h->control.started;
    if (runs && !(s->flags & PROBING_LIVE))
        return err_set(-EBUSY,
                       p ? "%s.%s cannot change while the plugin runs: plugin stop %s, set it, "
                           "plugin load %s"
                         : "%s.%s can only be set when the core enters the process (PROBING_... in "
                           "the environment, or inject -D)",
                       s->owner, s->name, s->owner, s->owner);
    err_clear();
    if (p && runs && plugin_enter(p, /* m= */ NULL)) {
        rc = plugin_configure(p, s->name, plain);
    } else if (!p && s->set) {
        rc = s->set(s->self, s->name, plain);
    }
    if (rc < 0 && !err_text()[0])
        return err_set(rc, "%s.%s=%.200s was refused: %s", s->owner, s->name, value, strerror(-rc));
    return rc < 0 ? rc : 0;
}

/* A setting that comes into being when it is first set: any table may be named, also one that is
 * still to come (then 1). */
static int set_retention(struct host *h, const char *name, const char *value)
{
    static const size_t owner_n = sizeof(RETENTION_HEAD) - 2;
    char table[2 * HOST_NAME_BYTES];
    int waits = retention_table(name, table);
    if (waits == 0)
        waits = h->store.keep ? h->store.keep(h->store.arg, table, value)
                              : err_set(-ENOTSUP, "'%.120s': nothing is kept here", name);
    if (waits < 0)
        return waits;
    char *fallback = strdup(""), *doc = strdup(RETENTION_DOC);
    (void)pthread_mutex_lock(&h->settings.mutex);
    struct setting *s = find_retention(h, name);
    bool vague = s && strchr(table, '.') && strcmp(s->name, name + owner_n + 1) != 0;
    if (vague)
        s->gone = true;
    if (!s || vague)
        s = add_setting(h, name, owner_n, name + owner_n + 1);
    if (s && s->pending && fallback && doc) {
        s->fallback = fallback;
        s->doc = doc;
        s->type = PROBING_STR;
        s->flags = PROBING_LIVE;
        s->pending = false;
        fallback = doc = NULL;
    }
    (void)pthread_mutex_unlock(&h->settings.mutex);
    free(fallback);
    free(doc);
    if (!s || s->pending)
        return err_set(-ENOMEM, "no room for setting '%.120s'", name);
    int rc = keep_value(h, s, value);
    return rc < 0 ? rc : waits;
}

int setting_change(void *arg)
{
    struct change *c = arg;
    struct host *h = c->host;
    size_t n;
    int rc = split_name(c->name, &n);
    if (rc < 0)
        return rc;
    if (retention_name(c->name))
        return set_retention(h, c->name, c->value);
    (void)pthread_mutex_lock(&h->settings.mutex);
    struct setting *s = find_setting(h, c->name, n, c->name + n + 1);
    if (!s && setting_owner_known(h, c->name, n))
        rc = refuse_unknown(h, c->name);
    else if (!s)
        s = add_setting(h, c->name, n, c->name + n + 1);
    (void)pthread_mutex_unlock(&h->settings.mutex);
    if (rc < 0)
        return rc;
    if (!s || strlen(c->value) >= VALUE_MAX_BYTES)
        return err_set(-ENOSPC, "no room for setting '%.80s'", c->name);
    if (s->pending) {
        rc = keep_value(h, s, c->value);
        return rc < 0 ? rc : 1;
    }
    char *plain = malloc(VALUE_MAX_BYTES);
    if (!plain)
        return err_set(-ENOMEM, "no memory for a setting");
    rc = tell_owner(h, s, c->value, plain);
    free(plain);
    return rc < 0 ? rc : keep_value(h, s, c->value);
}
