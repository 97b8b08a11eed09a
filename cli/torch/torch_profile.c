/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/torch/torch_profile.c - `torch profile`: torch's own profiler for some steps, its trace in a
 * file.
 *
 * One thread.
 */
#include "cli/torch/torch.h"

#include <errno.h>
#include <probing/client.h>
#include <stdio.h>
#include <string.h>

#include "cli/target/query_client.h"
#include "cli/ui/atomic_output.h"
#include "cli/ui/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"

static int take_piece(void *arg, const struct probing_client_event *e)
{
    FILE *file = arg; /* NULL: nobody wants it */
    if (e->kind == PROBING_CLIENT_DONE && e->status < 0)
        return err_set(e->status, "%s", e->text[0] != '\0' ? e->text : strerror(-e->status));
    if (e->kind == PROBING_CLIENT_DROPPED)
        return err_set(-EPIPE, "a part of the trace was lost on the way");
    if (e->kind == PROBING_CLIENT_DATA && file != NULL &&
        fwrite(e->text, 1, e->size, file) != e->size)
        return err_set(-EIO, "the trace cannot be written: %s", strerror(errno));
    return 0;
}

static int ask(const struct target *t, FILE *file, const struct torch_capture *wanted)
{
    char seconds[32];
    const char *words[] = {"torch_profile", wanted->steps, wanted->skip, seconds};
    uint64_t rounded = (wanted->timeout_ns + NS_PER_S - 1) / NS_PER_S;
    static volatile sig_atomic_t *const stop = &cli_interrupted;
    struct probing_client *client = NULL;
    int r = target_connect(t, &client);
    if (r < 0)
        return r;
    (void)snprintf(seconds, sizeof seconds, "%llu", (unsigned long long)rounded);
    int64_t id = probing_client_start_run(client, 4, words, /* timeout_ns= */ 0);
    r = id < 0 ? (int)id
               : probing_client_stream(client, take_piece, file, /* timeout_ns= */ 0, stop);
    if (r != 0 && id > 0)
        (void)probing_client_cancel(client, id);
    probing_client_free(client);
    return r;
}

/* What it cost the loop, and what took the time. */
static int show(const struct target *t)
{
    static const char *const statements[] = {
        "select first_step, steps, events, round(captured_sec * 1000, 3) as captured_ms, "
        "round(start_sec * 1000, 3) as stood_for_start_ms, "
        "round(stop_sec * 1000, 3) as for_stop_ms, "
        "round(hold_sec * 1000, 3) as for_export_ms, note from torch.capture",
        "select name, kind, calls, round(duration * 1000, 3) as total_ms, "
        "round(self_sec * 1000, 3) as self_ms, round(longest_sec * 1000, 3) as longest_ms "
        "from torch.ops order by self_sec desc limit 10"};
    int r = 0;
    for (size_t i = 0; i < sizeof statements / sizeof statements[0] && r >= 0; i++) {
        const char *words[] = {"query", statements[i]};
        r = live_run(t, 2, words);
    }
    return r;
}

int torch_capture(const struct target *t, const struct torch_capture *wanted, const char *path)
{
    struct output out = {.file = NULL};
    if (target_is_files(t))
        return err_set(-ESRCH, "%s is dead or does not answer: nothing can be captured", t->text);
    int r = path != NULL ? output_open(&out, path) : 0;
    if (r < 0)
        return r;
    terminal_say("waiting for %s steps to end", wanted->steps);
    r = ask(t, out.file, wanted);
    if (path != NULL)
        r = output_close(&out, r);
    if (r == -ENOENT)
        return torch_err_no_plugin(t);
    return r < 0 ? r : show(t);
}
