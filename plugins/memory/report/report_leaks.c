/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/report_leaks.c - `probing memory --leaks`: what grows and is not freed, and
 * what has grown without being a leak; in words and as JSON.
 *
 * One thread.
 */
#include "growth.h"

#define CALLERS 6u
#define SHARES 3u
#define HARDLY 4         /* the program has grown by less than such a part of what is told */
#define LITTLE_PART 10   /* of the program's growth, ... */
#define LITTLE_BYTES 8e6 /* ... or of the kernel's count: arenas grow and shrink in steps */

/* ---- words ---- */

struct words {
    char text[1200];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void add_words(struct words *to, const char *format,
                                                            ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(to->text + to->n, sizeof(to->text) - to->n, format, args);
    va_end(args);
    if (n > 0)
        to->n = to->n + (size_t)n < sizeof(to->text) ? to->n + (size_t)n : sizeof(to->text) - 1;
}

static void add_place(struct words *to, const struct leak_frame *frame)
{
    const char *slash = strrchr(frame->file, '/');
    add_words(to, "%.80s", frame->function);
    if (*frame->file)
        add_words(to, " %.60s", slash ? slash + 1 : frame->file);
    if (*frame->file && is_number(frame->line))
        add_words(to, ":%.0f", frame->line);
}

/* By which functions of the program most of it came: "..." is what libraries have between, and
 * where it came by several. */
static void show_callers(const struct growth *g, const struct leak *leak)
{
    struct words text = {.n = 0};
    uint32_t n = 0;
    bool passed = false;
    for (uint32_t i = 0; i < leak->n_frames && n < CALLERS; i++) {
        const struct leak_frame *frame = &leak->frames[i];
        if (!frame->own || !frame->is_shared) {
            passed = true;
            continue;
        }
        add_words(&text, "%s%s", n++ ? " < " : "", passed ? "... < " : "");
        add_place(&text, frame);
        passed = false;
    }
    if (n > 0)
        g->w->api->print_wrapped(g->w->api, "      ", text.text, text.n);
}

static uint32_t growing_stacks(const struct leak *leak)
{
    uint32_t n = 0;
    while (n < leak->n_stacks && leak->stacks[n].bytes > 0)
        n++;
    return n;
}

static void show_shares(const struct growth *g, const struct leak *leak)
{
    struct words text = {.n = 0};
    uint32_t n = growing_stacks(leak);
    add_words(&text, "by stack: ");
    for (uint32_t i = 0; i < n && i < SHARES; i++) {
        const struct leak_stack *x = &leak->stacks[i];
        add_words(&text, "%s%.0f %% ", i ? ", " : "", 100 * x->bytes / leak->at.bytes);
        if (x->apart.function) {
            add_place(&text, &x->apart);
            add_words(&text, " ");
        }
        add_words(&text, "(stack_id %lld)", (long long)x->stack_id);
    }
    if (n > SHARES)
        add_words(&text, ", and %u stacks more", n - SHARES);
    g->w->api->print_wrapped(g->w->api, "      ", text.text, text.n);
}

static void show_leak(const struct growth *g, const struct leak *leak)
{
    const struct alive *alive = &g->alive[leak->number];
    struct words name = {.n = 0}, text = {.n = 0};
    char size[32];
    add_words(&name, "%s%s", leak->is_below ? "below " : "", leak->at.function);
    const char *slash = strrchr(leak->at.file, '/');
    if (*leak->at.file)
        add_words(&name, "  %s", slash ? slash + 1 : leak->at.file);
    if (*leak->at.file && is_number(leak->at.line))
        add_words(&name, ":%.0f", leak->at.line);
    report_place(g->w, name.text, leak->at.bytes, growth_error(g, leak->growth.variance));
    report_mb(alive->bytes, size);
    add_words(&text, "%s alive in %.0f pieces, the oldest for %.0f s; ", size, alive->count,
              alive->age_ns / 1e9);
    if (leak->n_stacks == 1)
        add_words(&text, "stack_id %lld", (long long)leak->stacks[0].stack_id);
    else
        add_words(&text, "on %u stacks, of which %u have grown", leak->n_stacks,
                  growing_stacks(leak));
    g->w->api->print_wrapped(g->w->api, "      ", text.text, text.n);
    show_callers(g, leak);
    if (leak->n_stacks > 1)
        show_shares(g, leak);
}

static const char *const reasons[] = {
    [LEAK_FOUND] = "more leaks than are shown",
    [LEAK_SMALL] = "it is small",
    [LEAK_BY_CHANCE] = "chance may explain it: it is of few samples",
    [LEAK_AS_BEFORE] = "there was about as much of it before",
    [LEAK_FEW] = "only a few blocks have come",
    [LEAK_PAUSES] = "it did not grow in every part of the time, or grows ever less",
    [LEAK_FREED] = "what came early in the time has been freed since",
};

static void show_others(const struct growth *g)
{
    if (g->n_others)
        report_printf(g->w->api, "%shas grown, but not as a leak does (estimate +- its error)\n\n",
                      g->n ? "\n" : "");
    for (uint32_t i = 0; i < g->n_others; i++) {
        const struct leak_other *x = &g->others[i];
        growth_show_other(g, x);
        g->w->api->print_wrapped(g->w->api, "      ", reasons[x->why], strlen(reasons[x->why]));
    }
}

/* ---- how it compares with what the kernel counts ---- */

/* Bytes that the program keeps more than it did and that have no stack; 0: not worth a line. */
static double without_stack(const struct growth *g)
{
    double rest = g->kept - g->stacks;
    bool much = rest > LITTLE_BYTES && rest > g->kept / LITTLE_PART &&
                rest > 2 * growth_error(g, g->variance);
    return much ? rest : 0;
}

static void show_kept(const struct growth *g)
{
    struct words text = {.n = 0};
    char kept[32], rest[32];
    double told = 0;
    for (uint32_t i = 0; i < g->n; i++)
        told += g->found[i].at.bytes;
    report_mb(g->kept > 0 ? g->kept : 0, kept);
    report_mb(without_stack(g), rest);
    if (without_stack(g) > 0)
        add_words(&text,
                  "what the program keeps has grown by %s in this time; %s of that have no stack: "
                  "they were allocated where sampling does not see (probing memory says where), or "
                  "are free again and the allocator holds them",
                  kept, rest);
    else if (g->n && g->kept < told / HARDLY)
        /* what takes the place of what was there before sampling began seems to grow */
        add_words(&text,
                  "but what the program keeps has grown by %s in this time: this may fill what the "
                  "allocator held, or take the place of what was there before sampling began",
                  kept);
    g->w->api->print_wrapped(g->w->api, "", text.text, text.n);
}

/* Less than so many bytes would not have been told; NAN: not known. */
static double smallest_told(const struct growth *g)
{
    struct numbers mean = numbers_unknown();
    if (g->w->api->target != PROBING_TARGET_LIVE ||
        g->w->api->ask(g->w->api, "select sample_bytes from memory.sampling", take_numbers, &mean) <
            0)
        return (double)NAN;
    return leak_find_fewest(g->find) * mean.value[0];
}

static void show_nothing(const struct growth *g)
{
    struct words text = {.n = 0};
    double least = smallest_told(g);
    char size[32];
    add_words(
        &text,
        "nothing grows and stays%s: in %.0f s no stack, and no group of stacks, has grown all "
        "the time by more than chance explains (%u were judged)",
        g->n_others ? " all the time" : "", g->span.end - g->span.from,
        leak_find_questions(g->find));
    report_mb(least, size);
    if (is_number(least))
        add_words(&text, "; less than some %s would not have been told", size);
    g->w->api->print_wrapped(g->w->api, "", text.text, text.n);
}

static void show_end(const struct growth *g)
{
    struct words text = {.n = 0};
    add_words(&text,
              "the process has ended, and freed most of what it had %.1f s before it was "
              "last heard of; this is of the time before that",
              g->span.heard - g->span.end);
    if (is_number(g->span.heard)) {
        g->w->api->print_wrapped(g->w->api, "", text.text, text.n);
        report_printf(g->w->api, "\n");
    }
}

static void show_leaks(const struct growth *g)
{
    struct words text = {.n = 0};
    show_end(g);
    if (g->n)
        report_printf(g->w->api, "grows and is not freed (estimate +- its error)\n\n");
    else
        show_nothing(g);
    for (uint32_t i = 0; i < g->n; i++)
        show_leak(g, &g->found[i]);
    if (!g->n && g->n_others)
        report_printf(g->w->api, "\n");
    show_others(g);
    if (g->n || g->n_others)
        report_printf(g->w->api, "\n");
    show_kept(g);
    if (g->n == 0)
        return;
    add_words(&text,
              "in %.0f s%s, of %u stacks and groups that were judged; a stack: select * from "
              "memory.stacks where stack_id = ...; all in a picture: flamegraph memory_leaked",
              g->span.end - g->span.from,
              g->span.from > g->span.asked + 1 ? " (there are no rows of before)" : "",
              leak_find_questions(g->find));
    g->w->api->print_wrapped(g->w->api, "", text.text, text.n);
}

/* ---- JSON ---- */

static void json_at(struct report_json *j, const struct leak_frame *at)
{
    json_text(j, "function_name", at->function ? at->function : "");
    json_text(j, "file", at->file ? at->file : "");
    json_number(j, "lineno", at->line);
}

static void json_leak(const struct growth *g, struct report_json *j, const struct leak *leak)
{
    const struct alive *alive = &g->alive[leak->number];
    json_item(j);
    json_at(j, &leak->at);
    json_key(j, "is_below");
    report_printf(j->api, "%s", leak->is_below ? "true" : "false");
    json_number(j, "grown_bytes", leak->at.bytes);
    json_number(j, "grown_bytes_error", growth_error(g, leak->growth.variance));
    json_number(j, "alive_bytes", alive->bytes);
    json_number(j, "count", alive->count);
    json_number(j, "age_ns", alive->age_ns);
    json_list(j, "stacks");
    for (uint32_t i = 0; i < leak->n_stacks; i++) {
        json_item(j);
        json_number(j, "stack_id", (double)leak->stacks[i].stack_id);
        json_number(j, "grown_bytes", leak->stacks[i].bytes);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_list(j, "callers");
    for (uint32_t i = 0; i < leak->n_frames; i++) {
        if (!leak->frames[i].own || !leak->frames[i].is_shared)
            continue;
        json_item(j);
        json_at(j, &leak->frames[i]);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

static void show_json(const struct growth *g)
{
    struct report_json j = {.api = g->w->api};
    g->w->api->exact(g->w->api);
    json_open(&j, '{');
    json_number(&j, "seconds", g->span.end - g->span.from);
    json_number(&j, "judged", leak_find_questions(g->find));
    json_number(&j, "smallest_told_bytes", smallest_told(g));
    json_list(&j, "leaks");
    for (uint32_t i = 0; i < g->n; i++)
        json_leak(g, &j, &g->found[i]);
    json_close(&j, ']');
    json_key(&j, "no_leaks");
    growth_json_others(g, &j, reasons);
    json_number(&j, "program_grown_bytes", g->kept);
    json_number(&j, "stacks_grown_bytes", g->stacks);
    json_number(&j, "stacks_grown_bytes_error", growth_error(g, g->variance));
    json_number(&j, "without_stack_bytes", without_stack(g));
    json_number(&j, "freed_before_end_sec", g->span.heard - g->span.end);
    report_printf(g->w->api, "}\n");
}

int leaks_show(const struct memory_args *w)
{
    struct growth g;
    int rc = growth_leaks(w, &g);
    if (rc == 0 && w->json)
        show_json(&g);
    else if (rc == 0)
        show_leaks(&g);
    growth_done(&g);
    return rc;
}
