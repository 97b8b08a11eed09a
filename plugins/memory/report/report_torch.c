/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/report_torch.c - whose torch's tensors are: parameters, gradients, what
 * optimizers keep, and the rest.
 *
 * One thread.  All of it comes from memory.torch, which plugin torch has; where that is not loaded
 * there is nothing to tell, or that it could be.
 */
#include <errno.h>

#include "report.h"

#define KINDS_MAX 64u /* of kinds and devices */

struct torch_part {
    char device[32], kind[32], note[REPORT_NOTE_BYTES];
    double bytes, storages;
};

struct torch_parts {
    uint32_t n;
    struct torch_part all[KINDS_MAX];
};

static int take_torch(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct torch_parts *p = arg;
    if (n < 5 || p->n == KINDS_MAX)
        return 0;
    struct torch_part *one = &p->all[p->n++];
    (void)snprintf(one->device, sizeof(one->device), "%s", cell_text(&cells[0]));
    (void)snprintf(one->kind, sizeof(one->kind), "%s", cell_text(&cells[1]));
    one->bytes = cell_number(&cells[2]);
    one->storages = cell_number(&cells[3]);
    (void)snprintf(one->note, sizeof(one->note), "%s", cell_text(&cells[4]));
    return 0;
}

/* 0, or what ask() gives: -ENOENT, plugin torch is not loaded. */
static int ask_torch(const struct memory_args *w, struct torch_parts *p)
{
    p->n = 0;
    if (w->api->target != PROBING_TARGET_LIVE)
        return -ENOENT;
    return w->api->ask(
        w->api,
        "select device, kind, sum(bytes), sum(storages), max(case when bytes is null then note "
        "end) from memory.torch group by device, kind order by device, 3 desc limit 64",
        take_torch, p);
}

static int take_any(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    (void)cells;
    (void)n;
    *(bool *)arg = true;
    return 0;
}

/* Say so if plugin python sees torch, but plugin torch is not loaded. */
static void show_absent(const struct memory_args *w)
{
    char text[240];
    bool there = false;
    if (w->api->ask(w->api, "select name from python.modules where name = 'torch'", take_any,
                    &there) < 0 ||
        !there)
        return;
    (void)snprintf(text, sizeof(text),
                   "torch's tensors (parameters, gradients, optimizer state ...) are told by "
                   "plugin torch: probing -t %.60s plugin load torch",
                   w->api->target_text);
    report_printf(w->api, "\n");
    w->api->print_wrapped(w->api, "", text, strlen(text));
}

static const char *words_of(const char *kind)
{
    static const char *const words[][2] = {{"parameter", "parameters"},
                                           {"gradient", "gradients"},
                                           {"optimizer state", "optimizer state"},
                                           {"buffer", "buffers"},
                                           {"activation", "activations that stay"},
                                           {"other", "other tensors"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(kind, words[i][0]) == 0)
            return words[i][1];
    return kind;
}

/* Say what could not be counted. */
static void show_note(const struct memory_args *w, const struct torch_part *one)
{
    char text[REPORT_NOTE_BYTES + 64];
    (void)snprintf(text, sizeof(text), "%s: %s", words_of(one->kind), one->note);
    w->api->print_wrapped(w->api, "      ", text, strlen(text));
}

void torch_show(const struct memory_args *w)
{
    static struct torch_parts p; /* one thread */
    double whole = 0;
    int rc = ask_torch(w, &p);
    if (rc == -ENOENT || rc == -EINVAL) {
        if (w->api->target == PROBING_TARGET_LIVE)
            show_absent(w);
        return;
    }
    if (rc < 0)
        report_printf(w->api, "\ntorch's tensors could not be asked for just now: select * from "
                              "memory.torch says why\n");
    for (uint32_t i = 0; i < p.n; i++)
        whole = p.all[i].bytes > whole ? p.all[i].bytes : whole;
    if (rc < 0 || p.n == 0)
        return;
    report_printf(w->api, "\ntorch's tensors, by storage, between two steps\n\n");
    for (uint32_t i = 0; i < p.n; i++) {
        const struct torch_part *one = &p.all[i];
        char words[64];
        bool on_cpu = strcmp(one->device, "cpu") == 0 || !*one->device;
        (void)snprintf(words, sizeof(words), "%.30s%s%.24s", words_of(one->kind),
                       on_cpu ? "" : ", ", on_cpu ? "" : one->device);
        if (is_number(one->bytes) && one->bytes > 0)
            report_bar(w, words, one->bytes, whole);
        if (*one->note)
            show_note(w, one);
    }
}

void torch_show_json(const struct memory_args *w, struct report_json *j)
{
    static struct torch_parts p; /* one thread */
    if (ask_torch(w, &p) < 0)
        return;
    json_list(j, "torch");
    for (uint32_t i = 0; i < p.n; i++) {
        struct report_json one = {.api = w->api, .begun = i > 0};
        json_item(&one);
        json_text(&one, "device", p.all[i].device);
        json_text(&one, "kind", p.all[i].kind);
        json_number(&one, "bytes", p.all[i].bytes);
        json_number(&one, "storages", p.all[i].storages);
        json_text(&one, "note", p.all[i].note);
        json_close(&one, '}');
    }
    json_close(j, ']');
}
