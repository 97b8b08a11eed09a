/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_leaks.c - what a plugin leaves behind when it is gone: threads,
 * descriptors, handlers.
 *
 * Threads: control only, around init, start, stop and destroy.  A thread that is born inside of
 * these has the name that the control thread bears meanwhile, so it is known for the plugin's.  A
 * descriptor may have been opened by the program at the same moment: that is said.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/plugin_host/internal.h"
#include "sdk/lib/proc/task.h"

#define LISTED 4096              /* of threads and descriptors; with more nothing is said */
#define ENDING_NS (NS_PER_S / 2) /* a thread that was joined is shown by /proc a little longer */

struct leak_list {
    uint32_t n;
    bool whole;
    int ids[LISTED];
};

/* What is there before a call into the plugin. */
struct leak_before {
    struct leak_list threads, fds;
};

static void list(const char *folder, struct leak_list *ret)
{
    struct proc_numbers all;
    struct proc_number one;

    ret->n = 0;
    ret->whole = proc_numbers_open(&all, folder) == 0;
    while (proc_numbers_next(&all, &one)) {
        if ((int)one.value == all.fd)
            continue;
        if (ret->n == LISTED) {
            ret->whole = false;
            break;
        }
        ret->ids[ret->n++] = (int)one.value;
    }
    ret->whole = ret->whole && all.error == 0;
    proc_numbers_close(&all);
}

static bool has(const struct leak_list *l, int id)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->ids[i] == id)
            return true;
    return false;
}

static void name_of(const struct plugin *p, char ret[16])
{
    (void)snprintf(ret, 16, "plugin %.8s", p->name);
}

void leak_begin(struct plugin *p)
{
    char name[16];

    name_of(p, name);
    p->before = malloc(sizeof(*p->before));
    if (p->before) {
        list("/proc/self/task", &p->before->threads);
        list("/proc/self/fd", &p->before->fds);
    }
    (void)prctl(PR_SET_NAME, name);
}

/* Our own connections: what is accepted bears the listener's address. */
static bool is_ours(int fd)
{
    struct sockaddr_un a = {.sun_family = AF_UNSPEC};
    socklen_t size = sizeof(a) - 1;

    if (getsockname(fd, (struct sockaddr *)&a, &size) == -1 || a.sun_family != AF_UNIX)
        return false;
    const char *slash = strrchr(a.sun_path, '/');
    return slash && (strcmp(slash, "/sock") == 0 || strcmp(slash, "/door") == 0);
}

static void note_fds(struct plugin *p, const struct leak_list *now)
{
    struct stat st;

    for (uint32_t i = 0; i < now->n && p->n_born_fds < LEAK_MOST; i++) {
        int fd = now->ids[i];
        if (has(&p->before->fds, fd) || fstat(fd, &st) == -1 || is_ours(fd))
            continue;
        p->born_fds[p->n_born_fds++] =
            (struct born_fd){.fd = fd, .device = st.st_dev, .inode = st.st_ino};
    }
}

void leak_end(struct plugin *p, bool is_control)
{
    struct leak_list *now = p->before ? malloc(sizeof(*now)) : NULL;

    if (is_control) /* else the thread was left to it, and has been told its name */
        (void)prctl(PR_SET_NAME, "probing/control");
    if (now && p->before->threads.whole) {
        list("/proc/self/task", now);
        for (uint32_t i = 0; now->whole && i < now->n && p->n_born_threads < LEAK_MOST; i++)
            if (!has(&p->before->threads, now->ids[i]))
                p->born_threads[p->n_born_threads++] = now->ids[i];
    }
    if (now && p->before->fds.whole) {
        list("/proc/self/fd", now);
        if (now->whole)
            note_fds(p, now);
    }
    free(now);
    free(p->before);
    p->before = NULL;
}

/* ---- what is left ---- */

/* Its thread: by the name that it was born with, or because it blocks all signals as the control
 * thread does and as threads of the program do not. */
static bool is_its_thread(const struct plugin *p, pid_t tid, char ret_name[32])
{
    struct proc_status s;
    char name[16];

    name_of(p, name);
    if (proc_comm_of(0, tid, ret_name, PROC_COMM_BYTES) < 0 || proc_status_of(0, tid, &s) < 0)
        return false;
    if (strcmp(ret_name, name) == 0)
        return true;
    return strncmp(ret_name, "probing/", 8) != 0 && s.blocked != PROC_UNKNOWN &&
           __builtin_popcountll(s.blocked) > 40;
}

static uint32_t threads_left(const struct plugin *p, char ret_name[32])
{
    uint32_t n = 0;
    char name[32];

    for (uint32_t i = 0; i < p->n_born_threads; i++)
        if (is_its_thread(p, p->born_threads[i], name) && n++ == 0)
            memcpy(ret_name, name, sizeof(name));
    return n;
}

static uint32_t fds_left(const struct plugin *p, char *ret_first, size_t size)
{
    char path[64];
    struct stat st;
    uint32_t n = 0;

    ret_first[0] = '\0';
    for (uint32_t i = 0; i < p->n_born_fds; i++) {
        const struct born_fd *b = &p->born_fds[i];
        if (fstat(b->fd, &st) == -1 || st.st_dev != b->device || st.st_ino != b->inode)
            continue;
        if (n++ > 0)
            continue;
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", b->fd);
        ssize_t length = readlink(path, ret_first, size - 1);
        ret_first[length > 0 ? length : 0] = '\0';
    }
    return n;
}

/* Handlers that are code of its file. */
static void handlers_left(const struct plugin *p, struct buf *ret)
{
    Dl_info own, at;
    struct sigaction a;
    const char *between = "";

    if (!p->api.init || !dladdr((const void *)(uintptr_t)p->api.init, &own))
        return;
    for (int signo = 1; signo < NSIG; signo++) {
        if (sigaction(signo, NULL, &a) == -1 || a.sa_handler == SIG_DFL ||
            a.sa_handler == SIG_IGN || !dladdr((const void *)(uintptr_t)a.sa_handler, &at) ||
            at.dli_fbase != own.dli_fbase)
            continue;
        (void)buf_addf(ret, "%s%d", between, signo);
        between = ", ";
    }
}

void leak_forget(struct plugin *p)
{
    p->n_born_threads = p->n_born_fds = 0;
}

static void tell(struct plugin *p, struct buf *ret)
{
    uint64_t until = clock_monotonic() + ENDING_NS;
    char name[32] = "", file[256];
    struct buf handlers;
    const char *between = "it has left ";

    uint32_t threads = threads_left(p, name);
    while (threads > 0 && clock_monotonic() < until) {
        (void)poll(NULL, 0, 5);
        threads = threads_left(p, name);
    }
    if (threads > 0) {
        (void)buf_addf(ret, "%s%u thread%s running (\"%s\")", between, threads,
                       threads > 1 ? "s" : "", name);
        between = ", ";
    }
    uint32_t fds = fds_left(p, file, sizeof(file));
    if (fds > 0) {
        (void)buf_addf(ret, "%s%u descriptor%s open that came while it was called (%.200s)",
                       between, fds, fds > 1 ? "s" : "", file);
        between = ", ";
    }
    buf_init(&handlers, 1024);
    handlers_left(p, &handlers);
    if (handlers.size > 0)
        (void)buf_addf(ret, "%sits handler of signal %s", between, buf_text(&handlers));
    buf_done(&handlers);
    leak_forget(p);
}

uint32_t leak_threads(const struct plugin *p)
{
    char name[32];
    return threads_left(p, name);
}

int leak_refuse(struct plugin *p, const char *step, int code, const char *why)
{
    struct buf left;

    buf_init(&left, 1024);
    tell(p, &left);
    int rc = plugin_refuse(p, step, code, "%s%s%s", why, left.size ? "; " : "", buf_text(&left));
    buf_done(&left);
    return rc;
}

void leak_stopped(struct plugin *p, int rc)
{
    struct buf text;

    buf_init(&text, 1024);
    if (rc > 0)
        (void)buf_addf(&text, "its stop() gave %d, which is neither 0 nor a negative errno; ", rc);
    tell(p, &text);
    plugin_text_set(p, &p->reason, buf_text(&text));
    if (text.size > 0)
        host_log(p->host, PROBING_WARN, "plugin %s: %s", p->name, buf_text(&text));
    buf_done(&text);
}

void host_plugin_note(struct host *h, const char *name, struct buf *ret)
{
    struct plugin *p = plugin_find(h, name);

    (void)pthread_mutex_lock(&h->plugins_lock);
    if (p && p->reason)
        (void)buf_adds(ret, p->reason);
    (void)pthread_mutex_unlock(&h->plugins_lock);
}
