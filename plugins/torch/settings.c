/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/settings.c - what the user sets, from one setting each or all in one line.
 *
 * Threads: [control] writes, under the mutex; hooks take a copy at each step's begin.
 * It does not read the expressions and names in the lists: variables.c and module_names.c do.
 */
#include "settings.h"

#include <errno.h>
#include <probing/ext/draft/setting.h>
#include <stdio.h>

#include "dist/collective.h"
#include "module_calls/module_calls.h"
#include "variables/exprs.h"

#define EVERY_MAX 1000000
#define RATE_GRAIN 1e-6
#define BASELINE "100"
#define EXPRS "loss,lr,grad_norm" /* what loss.c knows */
#define COMM_TIMEOUT "30"
#define WORD_BYTES 64

const struct probing_config settings_table[] = {
    {.name = "sample_every",
     .value = "1",
     .doc = "record one step in this many; 1: every step, 0: as torch.sample_rate says",
     .type = PROBING_I64,
     .unit = PROBING_COUNT,
     .flags = PROBING_LIVE,
     .min = 0,
     .max = EVERY_MAX},
    {.name = "sample_rate",
     .value = "1",
     .doc = "share of the steps that are recorded, 0 to 1",
     .type = PROBING_F64,
     .flags = PROBING_LIVE},
    {.name = "modules",
     .value = "",
     .flags = PROBING_LIVE,
     .type = PROBING_STR,
     .doc = "modules to record, separated by commas, with * as a wildcard; empty: all"},
    {.name = "baseline_every",
     .value = BASELINE,
     .type = PROBING_I64,
     .unit = PROBING_COUNT,
     .doc = "record no rows for one step in this many, to measure what rows cost; 0: never",
     .flags = PROBING_LIVE,
     .min = 0,
     .max = EVERY_MAX},
    {.name = "backward",
     .value = "off",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .max = 1,
     .doc = "record the backward of modules, too; overhead_sec includes its cost"},
    {.name = "memory",
     .value = "off",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .max = 1,
     .doc = "measure GPU memory at each module call; off: only at the end of each step"},
    {.name = "device_times",
     .value = "off",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .max = 1,
     .doc = "measure how long calls take on the GPU, with events in its streams, in "
            "python.torch_device_time"},
    {.name = "variables",
     .value = EXPRS,
     .flags = PROBING_LIVE,
     .type = PROBING_STR,
     .doc = "variables to record at the end of each step, such as loss,lr,acc1@train; empty: none"},
    {.name = "detect_nan",
     .value = "off",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .max = 1,
     .doc = "record the first module of a step that has a NaN or an infinity in its output, or "
            "else in its gradients"},
    {.name = "comm_timeout",
     .value = COMM_TIMEOUT,
     .type = PROBING_I64,
     .unit = PROBING_SECONDS,
     .flags = PROBING_LIVE,
     .min = 0,
     .max = EVERY_MAX,
     .doc = "seconds after which an operation of a process group that still waits is reported; 0: "
            "never"},
    {.name = "profiling",
     .value = "",
     .flags = PROBING_LIVE,
     .type = PROBING_STR,
     .doc = "several settings at once: on, off or a sample rate, then variables=..., modules=..., "
            "backward=on"},
    {.name = NULL},
};

static bool begun; /* [control]; before that, defaults do not undo `profiling` */

static int set_rate(struct settings *s, const char *text)
{
    double rate = 0, unit = 1;
    const char *p = text;
    for (; *p >= '0' && *p <= '9' && rate <= 1; p++)
        rate = rate * 10 + (*p - '0');
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9'; p++)
            rate += (unit /= 10) * (*p - '0');
    if (p == text || *p || rate > 1)
        return probing_failf(torch_state.host, -EINVAL,
                             "torch.sample_rate is a share of the steps, 0 to 1, not '%.80s'",
                             text);
    if (s->every && rate > s->rate - RATE_GRAIN && rate < s->rate + RATE_GRAIN)
        return 0; /* `every` says it already */
    s->every = rate >= 1 ? 1 : 0;
    s->rate = rate;
    return 0;
}

static int set_count(const char *name, const char *text, uint32_t min, uint32_t *ret)
{
    uint64_t n;
    if (probing_parse_u64(text, EVERY_MAX, &n) < 0 || n < min)
        return probing_failf(torch_state.host, -EINVAL,
                             "torch.%.80s is a whole number, at most 1000000", name);
    *ret = (uint32_t)n;
    return 0;
}

static int set_switch(const char *name, const char *text, bool *ret)
{
    bool on = strcmp(text, "1") == 0 || strcmp(text, "on") == 0;
    if (!on && strcmp(text, "0") != 0 && strcmp(text, "off") != 0)
        return probing_failf(torch_state.host, -EINVAL, "torch.%.80s is on or off", name);
    *ret = on;
    return 0;
}

/* Words with commas between, blanks around them left out. */
static int set_list(const char *name, const char *text, char *ret)
{
    char list[LIST_BYTES];
    size_t n = 0;
    if (strlen(text) >= LIST_BYTES)
        return probing_failf(torch_state.host, -ERANGE, "torch.%.80s is too long", name);
    for (const char *p = text; *p;) {
        size_t skip = strspn(p, ", "), word = exprs_length(p + skip, ",");
        p += skip;
        size_t kept = word;
        while (kept && p[kept - 1] == ' ')
            kept--;
        if (kept && n)
            list[n++] = ',';
        memcpy(list + n, p, kept);
        n += kept;
        p += word;
    }
    list[n] = '\0';
    if (*text && !n)
        return probing_failf(torch_state.host, -EINVAL, "torch.%.80s names nothing; empty: none",
                             name);
    memcpy(ret, list, n + 1);
    return 0;
}

/* "loss@train,acc1": names of variables, not expressions of Python. */
static int set_exprs(const char *text, char *ret)
{
    char list[LIST_BYTES];
    struct expression e;
    int rc = set_list("variables", text, list);
    for (const char *p = list; rc == 0 && *p;) {
        size_t n = exprs_length(p, ",");
        if (!exprs_parse(p, n, &e)) {
            char one[81];
            (void)snprintf(one, sizeof(one), "%.*s", (int)(n < 80 ? n : 80), p);
            rc = probing_failf(
                torch_state.host, -EINVAL,
                "torch.variables needs names like loss, loss@train, meter.avg@Trainer.step or "
                "metrics[\"acc\"], and computes nothing (of a tensor, item, min, max, mean and "
                "norm come by themselves): '%s'",
                one);
        }
        p += n + (p[n] == ',');
    }
    if (rc == 0)
        memcpy(ret, list, strlen(list) + 1);
    return rc;
}

/* Names that parts of torch.profiling had before: they are still taken. */
static const char *part_name(const char *name)
{
    static const char *const older[][2] = {
        {"every", "sample_every"},
        {"baseline", "baseline_every"},
        {"shadow_every", "baseline_every"},
        {"exprs", "variables"}, /* as the Rust probing says it */
        {"layers", "modules"},
        {"nan", "detect_nan"},
    };
    for (size_t i = 0; i < sizeof(older) / sizeof(older[0]); i++)
        if (strcmp(name, older[i][0]) == 0)
            return older[i][1];
    return name;
}

static int set_one(struct settings *s, const char *name, const char *value)
{
    name = part_name(name);
    if (strcmp(name, "sample_rate") == 0)
        return set_rate(s, value);
    if (strcmp(name, "sample_every") == 0) {
        int rc = set_count(name, value, 0, &s->every);
        if (rc == 0 && s->every)
            s->rate = 1.0 / s->every;
        return rc;
    }
    if (strcmp(name, "baseline_every") == 0)
        return set_count(name, value, 0, &s->baseline);
    if (strcmp(name, "comm_timeout") == 0) {
        uint32_t seconds;
        int rc = set_count(name, value, 0, &seconds);
        if (rc == 0)
            atomic_store_explicit(&dist.timeout_s, seconds, memory_order_relaxed);
        return rc;
    }
    if (strcmp(name, "backward") == 0)
        return set_switch(name, value, &s->backward);
    if (strcmp(name, "detect_nan") == 0)
        return set_switch(name, value, &s->nan);
    if (strcmp(name, "memory") == 0)
        return set_switch(name, value, &s->memory);
    if (strcmp(name, "device_times") == 0)
        return set_switch(name, value, &s->device_times);
    if (strcmp(name, "variables") == 0) {
        int rc = set_exprs(value, s->exprs);
        s->exprs_chosen = strcmp(s->exprs, EXPRS) != 0;
        return rc;
    }
    if (strcmp(name, "modules") == 0) {
        s->layers_version++;
        return set_list(name, value, s->layers);
    }
    if (strcmp(name, "rate") == 0) /* as the Rust probing says it */
        return set_rate(s, value);
    return probing_failf(
        torch_state.host, -EINVAL,
        "torch.profiling has no part '%.80s'; there are on, off, a rate, variables=, "
        "modules=, sample_rate=, sample_every=, backward=, detect_nan=, memory=, device_times=, "
        "baseline_every=",
        name);
}

static int set_word(struct settings *s, const char *word)
{
    if (strcmp(word, "on") == 0 || strcmp(word, "true") == 0)
        return set_rate(s, "1");
    if (strcmp(word, "off") == 0 || strcmp(word, "false") == 0)
        return set_rate(s, "0");
    if (strncmp(word, "random:", 7) == 0 || strncmp(word, "ordered:", 8) == 0)
        return set_rate(s, strchr(word, ':') + 1); /* as the Rust probing says it */
    if ((*word >= '0' && *word <= '9') || *word == '.')
        return set_rate(s, word);
    return set_one(s, word, "");
}

/* "on,exprs=loss@train,acc1@train,modules=encoder.*": a word without `=` belongs to the list before
 * it. */
static int set_profiling(struct settings *s, const char *line)
{
    char text[2 * LIST_BYTES], *part = text;
    int rc = strlen(line) < sizeof(text)
                 ? 0
                 : probing_failf(torch_state.host, -ERANGE, "torch.%s is too long", "profiling");
    if (rc == 0)
        memcpy(text, line, strlen(line) + 1);
    while (rc == 0 && part && *(part += strspn(part, " "))) {
        char *equals = part + exprs_length(part, ",=");
        if (*equals != '=') {
            char *next = *equals ? equals + 1 : NULL;
            *equals = '\0';
            rc = set_word(s, part);
            part = next;
            continue;
        }
        *equals = '\0';
        char *value = equals + 1, *end = value + exprs_length(value, ",");
        const char *name = part_name(part);
        bool list = strcmp(name, "variables") == 0 || strcmp(name, "modules") == 0;
        while (list && *end && end[1 + exprs_length(end + 1, ",=")] != '=')
            end += 1 + exprs_length(end + 1, ",");
        char *next = *end ? end + 1 : NULL;
        *end = '\0';
        rc = set_one(s, part, value);
        part = next;
    }
    return rc;
}

static bool is_default(const char *name, const char *value)
{
    for (const struct probing_config *c = settings_table; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return strcmp(c->value, value) == 0 ||
                   (strcmp(c->value, "off") == 0 && strcmp(value, "0") == 0);
    return false;
}

/* Tell `config` what holds now that did not before; but for the one that is being set. */
static void tell_others(const struct settings *old, const struct settings *new, const char *name)
{
    const struct probing_host *h = torch_state.host;
    const struct probing_setting_1 *part = h->extension(h, PROBING_SETTING_1);
    char every[16], rate[32], baseline[16];
    (void)snprintf(every, sizeof(every), "%u", new->every);
    (void)snprintf(rate, sizeof(rate), "%.6g", new->rate);
    (void)snprintf(baseline, sizeof(baseline), "%u", new->baseline);
    const struct {
        const char *name, *value;
        bool changed;
    } all[] = {
        {"sample_every", every, new->every != old->every},
        {"sample_rate", rate, new->rate < old->rate || new->rate > old->rate},
        {"baseline_every", baseline, new->baseline != old->baseline},
        {"backward", new->backward ? "on" : "off", new->backward != old->backward},
        {"memory", new->memory ? "on" : "off", new->memory != old->memory},
        {"device_times", new->device_times ? "on" : "off", new->device_times != old->device_times},
        {"detect_nan", new->nan ? "on" : "off", new->nan != old->nan},
        {"variables", new->exprs, strcmp(new->exprs, old->exprs) != 0},
        {"modules", new->layers, strcmp(new->layers, old->layers) != 0},
        {"profiling", "", begun}}; /* else it still comes, and the last one set is right */
    for (size_t i = 0; part && i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].changed && strcmp(all[i].name, name) != 0)
            (void)part->holds(h, all[i].name, all[i].value);
}

int settings_configure(const char *name, const char *value)
{
    if (!begun && is_default(name, value))
        return 0;
    struct settings old, next;
    settings_take_over(&old);
    next = old;
    int rc =
        strcmp(name, "profiling") == 0 ? set_profiling(&next, value) : set_one(&next, name, value);
    if (rc == 0 && begun && next.backward && !module_calls.has_backward &&
        strcmp(name, "backward") == 0) /* in a line for all torches the log says it */
        rc = probing_failf(torch_state.host, -ENOTSUP, "%s", BACKWARD_WITHOUT_ORDER);
    if (rc < 0)
        return rc;
    settings_hand(&next);
    tell_others(&old, &next, name);
    return 0;
}

void settings_init(void)
{
    begun = false;
    struct settings old, first;
    settings_take_over(&old);
    first = (struct settings){.every = 1, .rate = 1, .layers_version = old.layers_version + 1};
    (void)set_count("baseline_every", BASELINE, 0, &first.baseline);
    (void)set_one(&first, "comm_timeout", COMM_TIMEOUT);
    (void)set_one(&first, "variables", EXPRS);
    settings_hand(&first);
}

void settings_begin(void)
{
    begun = true;
}
