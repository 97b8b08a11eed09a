/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/flame_sampler.c - the plugin that takes samples in the process, for a time.
 *
 * One thread.
 */
#include <errno.h>
#include <probing/client.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands/flame.h"
#include "cli/target/query_client.h"
#include "core/base/err.h"

static int to_text(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

/* Say a command to the process; its answer goes nowhere. */
static int tell(const struct target *t, int n, const char *const *words)
{
    struct probing_client *c = NULL;
    struct buf answer;
    int status = 0, rc = target_connect(t, &c);
    buf_init(&answer, 1u << 20);
    if (rc == 0)
        rc = probing_client_run(c, n, words, /* timeout_ns= */ 0, to_text, &answer, &status);
    if (rc == 0 && status > 0)
        rc = err_set(-EIO, "%s %s failed: %s", words[0], words[1], buf_text(&answer));
    buf_done(&answer);
    probing_client_free(c);
    return rc == 0 && status < 0 ? status : rc;
}

static int set(const struct target *t, const char *name, const char *value)
{
    const char *words[] = {"config", "set", name, value};
    return tell(t, 4, words);
}

static int load_sampler(const struct target *t, const char *plugin)
{
    char file[4096], note[ERR_TEXT_BYTES];
    const char *words[] = {"plugin", "load", plugin};
    if (t->host[0] != '\0' || plugin_find(plugin, file, sizeof(file)) < 0)
        return tell(t, 3, words); /* what is in the target's own plugin path */
    return upload_plugin(t, plugin, file, note, sizeof(note));
}

static int change(const struct target *t, struct flame_sampler *k, int i, const char *value)
{
    char sql[300];
    (void)snprintf(sql, sizeof(sql), "select value from probing.settings where name = '%s'",
                   k->name[i]);
    int rc = answer_word(t, sql, k->value[i], sizeof(k->value[i]));
    if (rc < 0 || value == NULL || strcmp(value, k->value[i]) == 0)
        return rc;
    k->changed[i] = true;
    return set(t, k->name[i], value);
}

int flame_sampler_start(const struct target *t, bool named, const char *rate, struct flame_mode *m,
                        struct flame_sampler *k)
{
    *k = (struct flame_sampler){.ran = answer_plugin_runs(t, m->plugin)};
    (void)snprintf(k->plugin, sizeof(k->plugin), "%s", m->plugin);
    int rc = k->ran ? 0 : load_sampler(t, m->plugin);
    if (rc == 0 && !k->ran && !named) {
        flame_mode_done(m);
        rc = flame_mode_find(t, NULL, m);
    }
    if (rc == 0 && m->mode.setting == NULL)
        rc = err_set(-EINVAL, "flamegraph %s takes no samples", m->mode.name);
    if (rc < 0)
        return rc;
    const char *equals = strchr(m->mode.setting, '=');
    (void)snprintf(k->name[0], sizeof(k->name[0]), "%s.%.*s", k->plugin,
                   (int)(equals - m->mode.setting), m->mode.setting);
    (void)snprintf(k->name[1], sizeof(k->name[1]), "%s.rate", k->plugin);
    rc = change(t, k, 0, equals + 1);
    return rc < 0 || rate == NULL ? rc : change(t, k, 1, rate);
}

int flame_sampler_stop(const struct target *t, const struct flame_sampler *k)
{
    const char *words[] = {"plugin", "stop", k->plugin};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++)
        if (k->changed[i] && k->value[i][0] != '\0')
            rc = set(t, k->name[i], k->value[i]);
    int stopped = k->ran ? 0 : tell(t, 3, words);
    return rc < 0 ? rc : stopped;
}
