/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/report_profile.c - `torch profile`: torch's own profiler for some steps, its
 * trace in a file.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

#define NS_PER_S UINT64_C(1000000000)

struct trace {
    const struct probing_report_api *api;
    struct probing_report_file *file; /* NULL: nobody wants it */
};

static int take_piece(void *arg, const void *bytes, size_t n)
{
    const struct trace *t = arg;
    return t->file != NULL ? t->api->file_write(t->file, bytes, n) : 0;
}

static int ask_for_trace(struct trace *t, const struct torch_capture *wanted)
{
    char seconds[32];
    const char *words[] = {"torch_profile", wanted->steps, wanted->skip, seconds};
    uint64_t rounded = (wanted->timeout_ns + NS_PER_S - 1) / NS_PER_S;
    (void)snprintf(seconds, sizeof(seconds), "%llu", (unsigned long long)rounded);
    return t->api->call(t->api, 4, words, take_piece, t);
}

/* Show what it cost the loop, and what took the time. */
static int show_capture(const struct probing_report_api *a)
{
    static const char *const statements[] = {
        "select first_step, steps, events, round(captured_sec * 1000, 3) as captured_ms, "
        "round(start_sec * 1000, 3) as start_ms, "
        "round(stop_sec * 1000, 3) as stop_ms, "
        "round(max_gil_hold_sec * 1000, 3) as max_gil_hold_ms, note from torch.capture",
        "select name, kind, calls, round(duration * 1000, 3) as total_ms, "
        "round(self_sec * 1000, 3) as self_ms, round(max_sec * 1000, 3) as longest_ms "
        "from torch.ops order by self_sec desc limit 10"};
    int r = 0;
    for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]) && r >= 0; i++) {
        const char *words[] = {"query", statements[i]};
        r = a->call(a, 2, words, /* piece= */ NULL, NULL);
    }
    return r;
}

int torch_capture(const struct probing_report_api *a, const struct torch_capture *wanted,
                  const char *path)
{
    struct trace t = {.api = a};
    char line[80];
    if (a->target != PROBING_TARGET_LIVE)
        return report_fail(a, -ESRCH, "%s is dead or does not answer: nothing can be captured",
                           a->target_text);
    int r = path != NULL ? a->file_open(a, path, &t.file) : 0;
    if (r < 0)
        return r;
    (void)snprintf(line, sizeof(line), "waiting for %s steps to end", wanted->steps);
    a->say(a, line);
    r = ask_for_trace(&t, wanted);
    if (t.file != NULL)
        r = a->file_close(t.file, r);
    if (r == -ENOENT)
        return a->no_plugin(a);
    return r < 0 ? r : show_capture(a);
}
