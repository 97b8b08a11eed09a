/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/process_view.c - what a process with a core has: tables, threads, descriptors ..., and
 * what has come between two looks.
 *
 * One thread.
 */
#include "cli/target/process_view.h"

#include <probing/client.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/target/core_lookup.h"
#include "cli/target/target.h"
#include "sdk/lib/proc/task.h"

#define ANSWER_BYTES ((size_t)1 << 20)

/* The first column of an answer, a line each. */
void process_ask(const struct target *t, const char *sql, struct buf *ret)
{
    const char *const words[] = {"query", "--format", "csv", sql};
    struct probing_client *client = NULL;

    buf_init(ret, ANSWER_BYTES);
    if (target_connect(t, &client) < 0 || client_command(client, 4, words, ret) < 0)
        buf_reset(ret);
    probing_client_free(client);
}

static void view_folder(const struct target *t, const char *place, const char *folder, bool links,
                        struct buf *ret)
{
    struct proc_numbers all;
    struct proc_number one;
    char path[PROC_PATH_BYTES], text[400], name[24];

    buf_init(ret, ANSWER_BYTES);
    proc_path(t->pid, 0, folder, path);
    (void)proc_numbers_open(&all, path);
    while (proc_numbers_next(&all, &one)) {
        ssize_t n;
        (void)snprintf(name, sizeof(name), "%llu", (unsigned long long)one.value);
        if (links) {
            n = readlinkat(all.fd, name, text, sizeof(text) - 1);
            text[n > 0 ? n : 0] = '\0';
        } else {
            n = proc_comm_of(t->pid, (pid_t)one.value, text, sizeof(text)) == 0 ? 1 : 0;
            text[strcspn(text, "\n")] = '\0';
        }
        /* The core's own come and go. */
        bool ours = links ? strncmp(text, place, strlen(place)) == 0 ||
                                strncmp(text, "socket:", 7) == 0 || strncmp(text, "/proc/", 6) == 0
                          : strncmp(text, "probing/", 8) == 0;
        if (n > 0 && !ours)
            (void)buf_addf(ret, "%s %s\n", name, text);
    }
    proc_numbers_close(&all);
}

void process_look(const struct target *t, const char *place, struct process_view *v)
{
    struct proc_status s;

    process_ask(t, "select schema || '.' || name from probing.tables order by 1", &v->tables);
    process_ask(t, "select name from probing.commands order by 1", &v->commands);
    process_ask(t, "select name from probing.settings order by 1", &v->settings);
    view_folder(t, place, "task", /* links= */ false, &v->threads);
    view_folder(t, place, "fd", /* links= */ true, &v->files);
    v->caught = proc_status_of(t->pid, 0, &s) == 0 && s.caught != PROC_UNKNOWN ? s.caught : 0;
}

void process_view_done(struct process_view *v)
{
    buf_done(&v->tables);
    buf_done(&v->commands);
    buf_done(&v->settings);
    buf_done(&v->threads);
    buf_done(&v->files);
}

static bool has_line(struct buf *b, const char *line, size_t n)
{
    for (const char *at = buf_text(b); *at != '\0';) {
        size_t length = strcspn(at, "\r\n");
        if (length == n && memcmp(at, line, n) == 0)
            return true;
        at += length;
        at += strspn(at, "\r\n");
    }
    return false;
}

/* The lines that have come, with ", " between; gives how many. */
uint32_t process_came(struct buf *before, struct buf *after, struct buf *ret)
{
    uint32_t n = 0;

    buf_init(ret, ANSWER_BYTES);
    for (const char *at = buf_text(after); *at != '\0';) {
        size_t length = strcspn(at, "\r\n");
        if (length > 0 && !has_line(before, at, length))
            (void)buf_addf(ret, "%s%.*s", n++ > 0 ? ", " : "", (int)length, at);
        at += length;
        at += strspn(at, "\r\n");
    }
    return n;
}
