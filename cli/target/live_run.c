/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/live_run.c - see live_run.h.
 *
 * One thread.  Ctrl-C cancels what runs in the target and leaves cleanly.
 */
#include "cli/target/live_run.h"

#include <errno.h>
#include <probing/client.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/target/core_lookup.h"
#include "cli/target/target.h"
#include "cli/terminal/fit_text.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/pager.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "sdk/lib/buf.h"

#define ANSWER_MAX_BYTES (1u << 20)

static int put_answer(struct live_stream *s, const struct probing_client_event *e)
{
    if (e->whole && !s->whole && isatty(STDOUT_FILENO) != 1)
        terminal_say("this statement aggregates, limits or reads current state, so its whole "
                     "answer follows each time");
    s->whole = s->whole || e->whole;
    if (e->whole && s->people)
        return fit_screen(e->text, e->size);
    if (e->whole)
        terminal_clear();
    return fwrite(e->text, 1, e->size, stdout) == e->size ? 0 : -EPIPE;
}

static int on_event(void *arg, const struct probing_client_event *e)
{
    struct live_stream *s = arg;
    int rc;

    switch (e->kind) {
    case PROBING_CLIENT_DATA:
        if (s->starts)
            return 0; /* that it runs */
        rc = put_answer(s, e);
        return rc == 0 && fflush(stdout) == EOF ? -EPIPE : rc;
    case PROBING_CLIENT_EVENT:
        return s->on_published != NULL ? s->on_published(s, e) : 0;
    case PROBING_CLIENT_DROPPED:
        terminal_say("%llu messages were lost because this client reads too slowly",
                     (unsigned long long)e->dropped);
        return 0;
    case PROBING_CLIENT_LATE:
        terminal_say("%llu rows came after their bucket had been sent and are in none (setting "
                     "query.watermark_delay)",
                     (unsigned long long)e->late);
        return 0;
    case PROBING_CLIENT_DONE:
        if (e->status < 0)
            return err_set(e->status, "%s", e->text[0] != '\0' ? e->text : strerror(-e->status));
        if (e->size > 0)
            terminal_say("%s", e->text);
        if (e->id == s->ids[0])
            s->status = e->status;
        s->starts = s->starts && e->id != s->ids[0];
        return s->ended && !s->starts ? 1 : e->status;
    }
    return 0;
}

int live_stream_follow(struct probing_client *c, struct live_stream *s)
{
    static volatile sig_atomic_t *const stop = &cli_interrupted;
    int r = client_failed(c, probing_client_stream(c, on_event, s, /* timeout_ns= */ 0, stop));

    if (r == -ECANCELED && cli_interrupted)
        for (int i = 0; i < 3; i++)
            if (s->ids[i] > 0)
                (void)probing_client_cancel(c, s->ids[i]);
    return r != 0 && !s->ended ? r : s->status;
}

int live_run(const struct target *t, int argc, const char *const *argv)
{
    struct probing_client *c = NULL;
    struct live_stream s = {.status = 0};
    int rc = target_connect(t, &c);

    if (rc < 0)
        return rc;
    s.ids[0] = probing_client_start_run(c, argc, argv, /* timeout_ns= */ 0);
    rc = s.ids[0] < 0 ? (int)s.ids[0] : live_stream_follow(c, &s);
    probing_client_free(c);
    return rc;
}

static int to_text(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

int live_tell(const struct target *t, int argc, const char *const *argv)
{
    struct probing_client *c = NULL;
    struct buf answer;
    int status = 0, rc = target_connect(t, &c);

    buf_init(&answer, ANSWER_MAX_BYTES);
    if (rc == 0)
        rc = probing_client_run(c, argc, argv, /* timeout_ns= */ 0, to_text, &answer, &status);
    if (rc == 0 && status > 0)
        rc = err_set(-EIO, "%s %s failed: %s", argv[0], argv[1], buf_text(&answer));
    buf_done(&answer);
    probing_client_free(c);
    return rc == 0 && status < 0 ? status : rc;
}

int live_list(const struct target *t, int argc, char **argv, const char *sql)
{
    char width[16];
    const char *json[] = {"query", "--format", "json", "--", sql};
    const char *words[5] = {argv[0], argv[1], "--width", width, NULL};

    if (argc <= 3 && strcmp(argv[argc - 1], "--json") == 0)
        return live_run(t, 5, json);
    if (cli_width() == 0 || argc > 2)
        return live_run(t, argc, (const char *const *)argv);
    (void)snprintf(width, sizeof(width), "%u", cli_width());
    words[argc] = "--width";
    words[argc + 1] = width;
    return live_run(t, argc + 2, words);
}
