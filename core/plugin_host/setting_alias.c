/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/setting_alias.c - other names of settings: what plugins declare, and "probing."
 * before any of them.  By any of them a setting is changed from outside: on the control thread,
 * within the time that a plugin's configure() has.
 *
 * Threads: any; what is adopted, checked and changed, on the control thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plugin_file/declared.h"
#include "core/plugin_host/internal.h"

#define PREFIX "probing."

/* The field writes probing.torch.profiling for torch.profiling. */
const char *host_setting_name(const char *name)
{
    size_t n = strlen(PREFIX);
    return strncmp(name, PREFIX, n) == 0 && strchr(name + n, '.') ? name + n : name;
}

/* Among what one plugin declares. */
static bool resolve_in(const struct declared *d, const char *name, char ret[2 * HOST_NAME_BYTES])
{
    for (uint32_t i = 0; i < d->all.n_aliases; i++)
        if (strcmp(d->all.aliases[i].name, name) == 0) {
            (void)snprintf(ret, 2 * HOST_NAME_BYTES, "%s.%s", d->plugin, d->all.aliases[i].setting);
            return true;
        }
    return false;
}

const char *alias_resolve(struct host *h, const char *name, char ret[2 * HOST_NAME_BYTES])
{
    bool known = false;
    name = host_setting_name(name);
    (void)pthread_mutex_lock(&h->installed.mutex);
    for (struct declared *d = h->installed.taken; d && !known; d = d->next)
        known = resolve_in(d, name, ret);
    for (struct declared *d = h->installed.found; d && !known; d = d->next)
        known = resolve_in(d, name, ret);
    (void)pthread_mutex_unlock(&h->installed.mutex);
    return known ? ret : name;
}

/* An owner is here, and has no such setting. */
static bool is_nobodys(struct host *h, const char *name)
{
    size_t n = strcspn(name, ".");
    bool owner = false;
    (void)pthread_mutex_lock(&h->settings.mutex);
    for (struct setting *s = h->settings.first; s && !owner; s = s->next)
        owner = !s->pending && strncmp(s->owner, name, n) == 0 && s->owner[n] == '\0';
    bool is = owner && strncmp(name, "table.", 6) != 0 && !setting_find(h, name);
    (void)pthread_mutex_unlock(&h->settings.mutex);
    return is;
}

const char *alias_resolve_installed(struct host *h, const char *name, char ret[2 * HOST_NAME_BYTES])
{
    const char *own = alias_resolve(h, name, ret);
    if (own == ret || !is_nobodys(h, own))
        return own;
    host_declared_find(h);
    return alias_resolve(h, name, ret);
}

const char *host_config_name(struct host *h, const char *name, char *ret)
{
    return alias_resolve(h, name, ret);
}

bool host_config_alias(struct host *h, const char *name)
{
    char own[2 * HOST_NAME_BYTES], owner[HOST_NAME_BYTES];
    const char *after = strrchr(name, '.');

    if (host_is_off(h))
        return false;
    if (alias_resolve(h, name, own) == own)
        return true;
    /* PROBING_TORCH_EXPRS is a setting of the plugin that there is; SAMPLE_RATE of none. */
    after = after ? after + 1 : name;
    (void)snprintf(owner, sizeof(owner), "%.*s", (int)strcspn(after, "_"), after);
    if (plugin_find(h, owner) || image_is_there(h, owner))
        return false;
    host_declared_find(h);
    return alias_resolve(h, name, own) == own;
}

bool host_setting_has_owner(struct host *h, const char *name)
{
    char own[2 * HOST_NAME_BYTES], owner[HOST_NAME_BYTES];
    struct buf named;
    bool has;

    name = alias_resolve_installed(h, name, own);
    (void)snprintf(owner, sizeof(owner), "%.*s", (int)strcspn(name, "."), name);
    (void)pthread_mutex_lock(&h->settings.mutex);
    has = setting_owner_known(h, owner, strlen(owner));
    (void)pthread_mutex_unlock(&h->settings.mutex);
    if (has || strcmp(owner, "table") == 0 || plugin_find(h, owner) || image_is_there(h, owner))
        return true;
    buf_init(&named, sizeof(own) * 64);
    has = host_config_get(h, "probing.plugins", &named) == 0 && strstr(buf_text(&named), owner);
    buf_done(&named);
    return has;
}

/* ---- when the plugin comes ---- */

static bool has_setting(const struct probing_plugin *api, const char *name)
{
    const struct probing_config *c = api->config;
    while (c && c->name && strcmp(c->name, name) != 0)
        c = (const struct probing_config *)((const char *)c + api->config_size);
    return c && c->name;
}

int aliases_check(struct plugin *p, const struct declared *d, const struct probing_plugin *api)
{
    struct host *h = p->host;
    char own[2 * HOST_NAME_BYTES];

    for (uint32_t i = 0; i < d->all.n_aliases; i++) {
        const struct probing_alias *a = &d->all.aliases[i];
        if (!has_setting(api, a->setting))
            return err_set(-EINVAL, "alias %u ('%s') is of '%s', which is no setting of it", i,
                           a->name, a->setting);
        (void)pthread_mutex_lock(&h->settings.mutex);
        const struct setting *s = setting_find(h, a->name);
        bool taken = s && !s->pending;
        (void)pthread_mutex_unlock(&h->settings.mutex);
        if (taken)
            return err_set(-EINVAL, "alias %u ('%s') is the name of a setting that there is", i,
                           a->name);
        const char *other = alias_resolve(h, a->name, own);
        if (other == own &&
            (strncmp(own, d->plugin, strlen(d->plugin)) != 0 || own[strlen(d->plugin)] != '.'))
            return err_set(-EINVAL, "alias %u ('%s') is %s already", i, a->name, own);
    }
    return 0;
}

/* Take over the value that was set by that name before somebody knew what it means. */
static void adopt_value(struct host *h, const char *kept, const char *plugin, const char *setting)
{
    char name[2 * HOST_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%s.%s", plugin, setting);
    (void)pthread_mutex_lock(&h->settings.mutex);
    struct setting *from = setting_find(h, kept), *to = setting_find(h, name);
    if (from && from->pending && to && from != to) {
        if (!to->value) {
            to->value = from->value;
            from->value = NULL;
        }
        from->gone = true;
    }
    (void)pthread_mutex_unlock(&h->settings.mutex);
}

void aliases_adopt(struct host *h, const struct declared *d)
{
    char kept[DECLARED_NAME_BYTES];
    for (uint32_t i = 0; i < d->all.n_aliases; i++) {
        const struct probing_alias *a = &d->all.aliases[i];
        adopt_value(h, a->name, d->plugin, a->setting);
        if (strncmp(a->name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        /* PROBING_SAMPLE_RATE was taken for sample.rate */
        (void)snprintf(kept, sizeof(kept), "%s", a->name + strlen(PREFIX));
        char *line = strchr(kept, '_');
        if (line) {
            *line = '.';
            adopt_value(h, kept, d->plugin, a->setting);
        }
    }
}

/* ---- changing one from outside ---- */

/* The plugin that is asked when the setting changes.  NULL: none is. */
static struct plugin *plugin_of_setting(struct host *h, const char *name)
{
    (void)pthread_mutex_lock(&h->settings.mutex);
    struct setting *s = setting_find(h, name);
    struct plugin *p = s ? s->plugin : NULL;
    (void)pthread_mutex_unlock(&h->settings.mutex);
    return p;
}

/* Its configure() has the time that its start() has. */
static int set_of_plugin(struct plugin *p, const struct change *wanted)
{
    size_t name = strlen(wanted->name) + 1, value = strlen(wanted->value) + 1;
    struct host *h = wanted->host;
    bool inside;
    struct change *c = malloc(sizeof(*c) + name + value);
    if (!c)
        return err_set(-ENOMEM, "no memory to set '%.80s'", wanted->name);
    *c = (struct change){.host = h, .name = c->text, .value = c->text + name};
    memcpy(c->text, wanted->name, name);
    memcpy(c->text + name, wanted->value, value);
    int rc = control_call(h, setting_change, c, free, plugin_limit_ns(h), &inside);
    return inside ? plugin_give_up(h, p->name, "configure") : rc;
}

int host_config_set(struct host *h, const char *name, const char *value)
{
    char own[2 * HOST_NAME_BYTES];
    struct change c = {.host = h, .value = value};
    if (host_is_off(h))
        return -ESHUTDOWN;
    c.name = alias_resolve_installed(h, name, own);
    struct plugin *p = plugin_of_setting(h, c.name);
    return p ? set_of_plugin(p, &c) : host_on_control(h, setting_change, &c);
}
