/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/capture.c - `torch profile`: torch's own profiler for some steps, its trace in a file.
 *
 * One thread.  The file appears under its name when it is whole, never before.
 */
#include "cli/torch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/answer.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "sdk/client/client.h"

struct capture {
    char temporary[4096];
    FILE *file;  /* NULL: nobody wants it */
    bool direct; /* into what is there, which is no plain file: there is no temporary one */
};

static int take_piece(void *arg, const struct client_event *e)
{
    struct capture *c = arg;
    if (e->kind == CLIENT_DONE && e->status < 0)
        return err_set(e->status, "%s", e->text[0] != '\0' ? e->text : strerror(-e->status));
    if (e->kind == CLIENT_DROPPED)
        return err_set(-EPIPE, "a part of the trace was lost on the way");
    if (e->kind == CLIENT_DATA && c->file != NULL &&
        fwrite(e->text, 1, e->size, c->file) != e->size)
        return err_set(-EIO, "the trace cannot be written: %s", strerror(errno));
    return 0;
}

static int ask(const struct target *t, struct capture *c, const char *steps, const char *skip)
{
    const char *words[] = {"torch_profile", steps, skip};
    static volatile sig_atomic_t *const stop = &cli_interrupted;
    struct probing_client *client = NULL;
    int r = target_connect(t, &client);
    if (r < 0)
        return r;
    int64_t id = client_start_run(client, 3, words, /* timeout_ns= */ 0);
    r = id < 0 ? (int)id : client_stream(client, take_piece, c, /* timeout_ns= */ 0, stop);
    if (r != 0 && id > 0)
        (void)client_cancel(client, id);
    client_close(client);
    return r;
}

static int open_file(struct capture *c, const char *path)
{
    struct stat what;
    if (path == NULL)
        return 0;
    if (stat(path, &what) == 0 && S_ISDIR(what.st_mode))
        return err_set(-EISDIR, "%s is a directory", path);
    c->direct = stat(path, &what) == 0 && !S_ISREG(what.st_mode); /* a pipe, /dev/stdout */
    if (c->direct) {
        c->file = fopen(path, "we");
        return c->file != NULL ? 0
                               : err_set(-errno, "%s cannot be written: %s", path, strerror(errno));
    }
    int n = snprintf(c->temporary, sizeof c->temporary, "%s.%d.part", path, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof c->temporary)
        return err_set(-ENAMETOOLONG, "the path '%.60s...' is too long", path);
    c->file = fopen(c->temporary, "wxe");
    return c->file != NULL ? 0 : err_set(-errno, "%s cannot be written: %s", path, strerror(errno));
}

static int close_file(struct capture *c, const char *path, int r)
{
    if (c->file == NULL)
        return r;
    if (fclose(c->file) == EOF && r == 0)
        r = err_set(-errno, "%s cannot be written: %s", path, strerror(errno));
    if (c->direct)
        return r;
    if (r == 0 && rename(c->temporary, path) == -1)
        r = err_set(-errno, "%s cannot be written: %s", path, strerror(errno));
    if (r != 0)
        (void)unlink(c->temporary);
    return r;
}

/* What it cost the loop, and what took the time. */
static int show(const struct target *t)
{
    static const char *const statements[] = {
        "select first_step, steps, events, round(captured_sec * 1000, 3) as captured_ms, "
        "round(start_sec * 1000, 3) as stood_for_start_ms, "
        "round(stop_sec * 1000, 3) as for_stop_ms, "
        "round(hold_sec * 1000, 3) as for_export_ms from torch.capture",
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

int torch_capture(const struct target *t, const char *steps, const char *skip, const char *path)
{
    struct capture c = {.file = NULL};
    if (target_is_files(t))
        return err_set(-ESRCH, "%s is dead or does not answer: nothing can be captured", t->text);
    int r = open_file(&c, path);
    if (r < 0)
        return r;
    fprintf(stderr, "probing: waiting for %s steps to end\n", steps != NULL ? steps : "3");
    r = close_file(&c, path, ask(t, &c, steps != NULL ? steps : "3", skip != NULL ? skip : "0"));
    if (r == -ENOENT)
        return err_set(r, "%s has no torch plugin: probing -t %s plugin load torch", t->text,
                       t->text);
    return r < 0 ? r : show(t);
}
