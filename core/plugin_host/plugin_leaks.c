/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_leaks.c - what a plugin leaves behind when it is gone: threads,
 * descriptors, handlers.
 *
 * Threads: control only, around init, start, stop and destroy.  A thread that is born inside of
 * these has the name that the control thread bears meanwhile, so it is known for the plugin's.  A
 * descriptor is known by what it is of, for its number is given again when another thread closes
 * one meanwhile.  It may have been opened by another thread at the same moment: that is said.
 */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
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
#include "sdk/lib/hash.h"
#include "sdk/lib/proc/task.h"

#define LISTED 4096 /* of threads and descriptors; with more nothing is said */
/* A thread that was joined is shown by /proc a little longer, and what another thread has just
 * opened to read is closed by then. */
#define ENDING_NS (NS_PER_S / 2)

struct leak_list {
    uint32_t n;
    bool whole;
    struct {
        int id;
        uint64_t what; /* of a descriptor: what it is of */
    } list[LISTED];
};

/* The threads and descriptors that were there before a call into the plugin. */
struct leak_before {
    struct leak_list threads, fds;
};

/* Give what a descriptor is of, as one number; 0: it is not open.  Descriptors without a file of
 * their own (eventfd, epoll) share an inode, and have a name for each kind. */
static uint64_t what_is(int fd)
{
    char path[40], text[64];
    struct stat st;

    if (fstat(fd, &st) == -1)
        return 0;
    uint64_t what = hash_bytes(HASH_FNV, &st.st_dev, sizeof(st.st_dev));
    what = hash_bytes(what, &st.st_ino, sizeof(st.st_ino));
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, text, sizeof(text));
    if (n > 11 && memcmp(text, "anon_inode:", 11) == 0)
        what = hash_bytes(what, text, (size_t)n);
    return what | 1;
}

static uint64_t is_a_thread(int tid)
{
    (void)tid;
    return 1;
}

/* what_of: 0 of one that has gone since the folder was read. */
static void list_folder(const char *folder, uint64_t (*what_of)(int id), struct leak_list *ret)
{
    struct proc_numbers all;
    struct proc_number one;

    ret->n = 0;
    ret->whole = proc_numbers_open(&all, folder) == 0;
    while (proc_numbers_next(&all, &one)) {
        uint64_t what = (int)one.value == all.fd ? 0 : what_of((int)one.value);
        if (what == 0)
            continue;
        if (ret->n == LISTED) {
            ret->whole = false;
            break;
        }
        ret->list[ret->n].id = (int)one.value;
        ret->list[ret->n++].what = what;
    }
    ret->whole = ret->whole && all.error == 0;
    proc_numbers_close(&all);
}

static bool list_has(const struct leak_list *l, int id, uint64_t what)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->list[i].id == id)
            return l->list[i].what == what;
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
        list_folder("/proc/self/task", is_a_thread, &p->before->threads);
        list_folder("/proc/self/fd", what_is, &p->before->fds);
    }
    (void)prctl(PR_SET_NAME, name);
}

/* The address that a socket is bound to; false: it is no socket, or not bound. */
static bool bound_at(int fd, struct sockaddr_storage *ret)
{
    socklen_t size = sizeof(*ret) - 1;

    *ret = (struct sockaddr_storage){.ss_family = AF_UNSPEC};
    return getsockname(fd, (struct sockaddr *)ret, &size) == 0;
}

/* Are two sockets bound at one place?  A connection bears its listener's port, or its path. */
static bool same_place(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const struct sockaddr_un *one = (const void *)a, *other = (const void *)b;

    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_port ==
               ((const struct sockaddr_in *)b)->sin_port;
    if (a->ss_family == AF_INET6)
        return ((const struct sockaddr_in6 *)a)->sin6_port ==
               ((const struct sockaddr_in6 *)b)->sin6_port;
    return a->ss_family == AF_UNIX && (one->sun_path[0] != '\0' || one->sun_path[1] != '\0') &&
           memcmp(one->sun_path, other->sun_path, sizeof(one->sun_path)) == 0;
}

/* A client of the core or of the program, taken in at a place that was listened at before. */
static bool is_a_client(const struct leak_list *before, int fd)
{
    struct sockaddr_storage at, place;

    if (!bound_at(fd, &at))
        return false;
    for (uint32_t i = 0; i < before->n; i++) {
        int listens = 0, other = before->list[i].id;
        socklen_t size = sizeof(listens);
        if (getsockopt(other, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens &&
            bound_at(other, &place) && same_place(&at, &place) &&
            what_is(other) == before->list[i].what)
            return true;
    }
    return false;
}

static void note_fds(struct plugin *p, const struct leak_list *now)
{
    const struct leak_list *before = &p->before->fds;

    for (uint32_t i = 0; i < now->n && p->n_born_fds < LEAK_MOST; i++) {
        int fd = now->list[i].id;
        uint64_t what = now->list[i].what;
        if (!list_has(before, fd, what) && !is_a_client(before, fd))
            p->born_fds[p->n_born_fds++] = (struct born_fd){.fd = fd, .what = what};
    }
}

void leak_end(struct plugin *p, bool is_control)
{
    struct leak_list *now = p->before ? malloc(sizeof(*now)) : NULL;

    if (is_control) /* else the thread was left to it, and has been told its name */
        (void)prctl(PR_SET_NAME, "probing/control");
    if (now && p->before->threads.whole) {
        list_folder("/proc/self/task", is_a_thread, now);
        for (uint32_t i = 0; now->whole && i < now->n && p->n_born_threads < LEAK_MOST; i++)
            if (!list_has(&p->before->threads, now->list[i].id, now->list[i].what))
                p->born_threads[p->n_born_threads++] = now->list[i].id;
    }
    if (now && p->before->fds.whole) {
        list_folder("/proc/self/fd", what_is, now);
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
    uint32_t n = 0;

    ret_first[0] = '\0';
    for (uint32_t i = 0; i < p->n_born_fds; i++) {
        const struct born_fd *b = &p->born_fds[i];
        if (what_is(b->fd) != b->what || n++ > 0)
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

static void tell_leaks(struct plugin *p, struct buf *ret)
{
    uint64_t until = clock_monotonic() + ENDING_NS;
    char name[32] = "", file[256];
    struct buf handlers;
    const char *between = "it has left ";

    uint32_t threads = threads_left(p, name), fds = fds_left(p, file, sizeof(file));
    while (threads + fds > 0 && clock_monotonic() < until) {
        (void)poll(NULL, 0, 5);
        threads = threads_left(p, name);
        fds = fds_left(p, file, sizeof(file));
    }
    if (threads > 0) {
        (void)buf_addf(ret, "%s%u thread%s running (\"%s\")", between, threads,
                       threads > 1 ? "s" : "", name);
        between = ", ";
    }
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
    tell_leaks(p, &left);
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
    tell_leaks(p, &text);
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
