/* SPDX-License-Identifier: Apache-2.0
 *
 * core/runtime/lifecycle.c - the life of the core in a process: how it starts, forks and leaves.
 *
 * What it consists of is made and undone in components.c.
 *
 * Threads: probing_start() runs on a thread of the host that may hold any lock of libc, so it makes
 * one thread and nothing else; all the rest is done by that thread, "probing/main", which waits for
 * the end and then undoes everything.  The code stays mapped afterwards: other threads may still
 * return into it, and entering again costs nothing.
 *
 * Exported are probing_version, probing_start, probing_stop and probing_why; preload.c calls the
 * second when the library came with the program.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/rights.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/crash/crash.h"
#include "core/guest/heap.h"
#include "core/guest/loaded_name.h"
#include "core/guest/mmap_guard.h"
#include "core/guest/own_descriptors.h"
#include "core/guest/owned_signals.h"
#include "core/guest/thread.h"
#include "core/guest/thread_sched.h"
#include "core/plugin_host/plugin_host.h"
#include "core/ring/ring.h"
#include "core/runtime/internal.h"
#include "core/server/server.h"
#include "core/store/store.h"
#include "sdk/lib/own_thread.h"

#define MAIN_STACK ((size_t)512 << 10)
#define AGAIN_NS (NS_PER_S / 2)      /* until a plugin that said "not yet" is tried again */
#define STOP_NS (20 * NS_PER_S)      /* how long probing_stop() waits */
#define FOLLOW_MS 100                /* ms: a child that lives shorter is no life of its own */
#define FORK_WAIT_NS (NS_PER_S / 40) /* how long a fork waits for a start or stop going on */

enum { IDLE, STARTING, RUNNING, STOPPING, CHILD };

/* The ways a followed child knows its plugins until it has them: not at all; as those that run in
 * its parent's host; by a list.  It may itself fork at any moment of its start. */
enum { NO_PLUGINS, PARENTS_PLUGINS, LISTED_PLUGINS };

/* The one global. */
static struct probing {
    _Atomic int state;
    struct core core;      /* written by main under `life`, read by it and by fork handlers */
    struct config config;  /* main's only, but for `follow` */
    pthread_rwlock_t life; /* write: while a part comes or goes; read: around a fork */
    struct event stop, stopped, plugins_loaded;
    bool events_made; /* main's only; for ever */
    bool atfork_made; /* of who starts the core; for ever */
    _Atomic int stop_result;
    int guard_fd;          /* the abstract socket that says "here"; -1: none */
    uint32_t places;       /* of standard_places_take() */
    _Atomic int following; /* NO_PLUGINS: this is no child whose life is about to begin */
    char list[sizeof(((struct core *)0)->plugins)]; /* whole where `following` says so */
} g = {.life = PTHREAD_RWLOCK_INITIALIZER, .guard_fd = -1};

/* The state of this thread's fork; the core's other thread-local is the ring's. */
static __thread struct {
    bool locked;   /* it holds `life` */
    uint64_t seen; /* of descriptors_fork_before() */
} forking __attribute__((tls_model("initial-exec")));

EXPORT int probing_stop(void);
EXPORT extern char probing_why[ERR_TEXT_BYTES];

const char probing_version[] = PROBING_VERSION;

/* Why the last start failed, "" while it goes on or went well.  There may be no directory to say it
 * in, so whoever entered the process reads it from its memory. */
char probing_why[ERR_TEXT_BYTES];

static void ask_to_stop(void *arg)
{
    int running = RUNNING; /* from here on whoever starts us is told to try again */
    (void)arg;
    (void)atomic_compare_exchange_strong_explicit(&g.state, &running, STOPPING,
                                                  memory_order_acq_rel, memory_order_relaxed);
    event_raise(&g.stop);
}

void lifecycle_lock(void)
{
    (void)pthread_rwlock_wrlock(&g.life);
}

void lifecycle_unlock(void)
{
    (void)pthread_rwlock_unlock(&g.life);
}

/* The first that there is, and the last. */
static void forget_guard(void)
{
    if (g.guard_fd != -1)
        (void)close(g.guard_fd);
    g.guard_fd = -1;
    standard_places_give_back(g.places);
    g.places = 0;
}

/* Under `life`, so that no child has a copy that nobody knows. */
static void raise_guard(void)
{
    lifecycle_lock();
    int fd = g.guard_fd == -1 ? -1 : fcntl(g.guard_fd, F_DUPFD_CLOEXEC, 0);
    if (fd != -1) {
        (void)close(g.guard_fd);
        g.guard_fd = fd;
    }
    lifecycle_unlock();
}

static void watch_guard(void)
{
    bool sibling;
    if (!file_is_closed(g.guard_fd))
        return;
    lifecycle_lock();
    forget_guard();
    g.guard_fd = guard_take(&sibling);
    lifecycle_unlock();
    raise_guard();
}

/* ---- beginning ---- */

static void *core_thread(void *arg);

/* A child that is entered by itself starts from nothing.  What the parent had is not freed: another
 * thread of the parent may have been changing it while the fork went by. */
static void begin_in_child(void)
{
    g.life = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
    g.core = (struct core){.home_fd = -1};
    g.events_made = false;
    host_begin_in_child();
    crash_begin_in_child();
}

/* ---- fork ---- */

/* The thread of a forked child that is followed.  It was made in the child's fork handler, where
 * glibc has put its own locks in order already, and does nothing at first: a child that execs or
 * ends within this time has had an idle thread, and no more. */
static void *follow_fork(void *arg)
{
    int state = CHILD;
    bool sibling = false;

    (void)prctl(PR_SET_NAME, "probing/follow", 0, 0, 0);
    schedule_normalize();
    (void)poll(NULL, 0, FOLLOW_MS);
    if (!atomic_compare_exchange_strong_explicit(&g.state, &state, STARTING, memory_order_acq_rel,
                                                 memory_order_acquire))
        return NULL; /* somebody has entered it meanwhile */
    if (atomic_load_explicit(&g.following, memory_order_relaxed) == PARENTS_PLUGINS) {
        struct buf plugins;
        buf_init(&plugins, sizeof(g.list) - 1);
        (void)host_plugins_of_parent(g.core.host, &plugins);
        bool all = !atomic_load_explicit(&g.core.plugins_come, memory_order_acquire);
        (void)snprintf(g.list, sizeof(g.list), "%s", all ? buf_text(&plugins) : g.core.plugins);
        buf_done(&plugins);
        atomic_store_explicit(&g.following, LISTED_PLUGINS, memory_order_release);
    }
    begin_in_child();
    memcpy(g.core.plugins, g.list, sizeof(g.list));
    g.places = standard_places_take(/* before_main= */ false);
    g.guard_fd = guard_take(&sibling);
    g.core.follower = true;
    return core_thread(arg);
}

static struct timespec fork_limit(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t); /* what pthread_rwlock_timedrdlock() counts by */
    t.tv_nsec += (long)FORK_WAIT_NS;
    t.tv_sec += t.tv_nsec / (long)NS_PER_S;
    t.tv_nsec %= (long)NS_PER_S;
    return t;
}

static void fork_parts(void)
{
    int state = atomic_load_explicit(&g.state, memory_order_acquire);
    forking.locked = false;
    if (state == IDLE || state == CHILD)
        return;
    struct timespec limit = fork_limit();
    forking.locked = pthread_rwlock_timedrdlock(&g.life, &limit) == 0;
    if (forking.locked && g.core.host)
        host_fork(g.core.host, PROBING_FORK_BEFORE);
}

/* Handlers of others may need the heap before a fork; and who has the heap may be about to open a
 * file, which waits for a fork. */
static void fork_before(void)
{
    fork_parts();
    heap_fork_before();
    forking.seen = descriptors_fork_before();
}

static void fork_parent(void)
{
    descriptors_fork_after();
    heap_fork_after();
    if (!forking.locked)
        return;
    if (g.core.host)
        host_fork(g.core.host, PROBING_FORK_PARENT);
    forking.locked = false;
    (void)pthread_rwlock_unlock(&g.life);
}

/* Off: our threads are not here.  Without the lock a part may be half made or half gone, so its
 * pointers are left alone; what the process has open and mapped for us is known all the same.
 * Gives whether this child is to be followed: while the core runs its host is whole, whoever holds
 * the lock for longer than a fork waits, as a sweep does that gets no processor.        [child] */
static bool fork_child(void)
{
    int following = atomic_load_explicit(&g.following, memory_order_relaxed);
    int state = atomic_load_explicit(&g.state, memory_order_relaxed);
    descriptors_drop(forking.seen);
    shared_mappings_drop();
    if (state == IDLE)
        return false;
    if (following == NO_PLUGINS && (forking.locked || state == RUNNING) &&
        atomic_load_explicit(&g.config.follow, memory_order_relaxed))
        following = PARENTS_PLUGINS;
    atomic_store_explicit(&g.state, CHILD, memory_order_relaxed);
    ring_disable_in_child();
    if (forking.locked) {
        if (g.core.store)
            store_disable_in_child(g.core.store);
        if (g.core.host)
            host_disable_in_child(g.core.host);
    }
    crash_disable_in_child();
    signals_disable_in_child();
    mapped_disable_in_child();
    g.guard_fd = -1;
    g.places = 0;
    forking.locked = false;
    atomic_store_explicit(&g.following, following, memory_order_relaxed);
    return following != NO_PLUGINS;
}

/* A thread in a fork handler is against POSIX and sound with glibc: fork() puts malloc's, the
 * loader's and the stack cache's locks in order before it calls the handlers of the child.  Nobody
 * gets one who has not asked for it. */
static void fork_in_child(void)
{
    heap_fork_after();
    if (fork_child())
        (void)own_thread_start_detached(NULL, MAIN_STACK, follow_fork, NULL);
}

/* ---- main ---- */

static void *core_thread(void *arg);
static int make_once(void)
{
    if (!g.events_made) {
        int rc = event_init(&g.stop);
        if (rc == 0)
            rc = event_init(&g.stopped);
        if (rc == 0)
            rc = event_init(&g.plugins_loaded);
        if (rc < 0)
            return rc;
        g.events_made = true;
    }
    return 0;
}

/* A sweep works under `life`, so that no child inherits what it has open; here a fork may go by.
 * event_wait() lowers the flag, and core_thread() wants to see it too. */
static bool nobody_wants_us_to_stop(void *arg)
{
    (void)arg;
    lifecycle_unlock();
    lifecycle_lock();
    if (!event_wait(&g.stop, 0))
        return true;
    event_raise(&g.stop);
    return false;
}

static void sweep_directories(struct core *c)
{
    struct sweep_limits limits = {
        .keep_ns = config_number(c, "probing.retention", DEFAULT_RETENTION_NS, parse_ns),
        .max_bytes = config_number(c, "probing.max_offline_data", DEFAULT_DEAD_BYTES, parse_bytes),
        .go_on = nobody_wants_us_to_stop};
    lifecycle_lock();
    uint32_t n = sweep_run(&c->place, &limits);
    lifecycle_unlock();
    if (n > 0)
        host_log(c->host, PROBING_INFO,
                 "removed the data of %u processes that have ended (probing.retention, "
                 "probing.max_offline_data)",
                 n);
}

/* The first byte comes last: a reader sees the whole line or none. */
/* Without its socket, and without TCP, nobody could ask us, tell us to leave, or enter afresh. */
static void leave_if_alone(struct core *c)
{
    if (!own_dir_is_gone(&c->place) || server_address(c->server)[0])
        return;
    host_log(c->host, PROBING_ERROR, "%s was removed, so the core leaves the process",
             c->place.directory);
    event_raise(&g.stop);
}

static void tell_why(const char *why)
{
    (void)snprintf(probing_why + 1, sizeof(probing_why) - 1, "%s", why[0] ? why + 1 : "");
    __atomic_store_n(&probing_why[0], why[0], __ATOMIC_RELEASE);
}

static void finish_core(void)
{
    forget_guard();
    atomic_store_explicit(&g.state, IDLE, memory_order_release);
    event_raise(&g.stopped);
}

static void *core_thread(void *arg)
{
    struct core *c = &g.core;
    (void)arg;
    (void)prctl(PR_SET_NAME, "probing/main", 0, 0, 0);
    schedule_normalize(); /* all threads of ours come from this one */
    loaded_name_forget(probing_version);
    raise_guard();
    int rc = make_once();
    /* The parts of an earlier life are gone; `follower` and `plugins` may be set for this one. */
    c->version = probing_build;
    c->stop = ask_to_stop;
    c->config = &g.config;
    c->plugins_loaded = &g.plugins_loaded;
    c->again = &g.stop;
    c->home_fd = -1;
    c->place = (struct own_dir){0};
    g.config.data_dir[0] = g.config.plugin_path[0] = '\0';
    g.config.token[0] = g.config.read_token[0] = '\0';
    g.config.afresh = false;

    rc = rc < 0 ? rc : rights_take();
    if (rc < 0) {
        tell_why(err_why(rc));
        forget_guard();
        atomic_store_explicit(&g.state, IDLE, memory_order_release);
        return NULL;
    }
    /* Whatever an earlier life left raised is lowered. */
    (void)event_wait(&g.stop, 0);
    (void)event_wait(&g.stopped, 0);
    (void)event_wait(&g.plugins_loaded, 0);
    rc = parts_start(c);
    if (rc < 0) {
        char why[ERR_TEXT_BYTES];
        (void)snprintf(why, sizeof(why), "%s", err_why(rc));
        parts_stop(c);
        own_dir_failed(&c->place, why);
        tell_why(why);
        finish_core();
        return NULL;
    }
    /* In this order: a fork between has a child that is followed by what is listed. */
    atomic_store_explicit(&g.state, RUNNING, memory_order_release);
    atomic_store_explicit(&g.following, NO_PLUGINS, memory_order_release);
    sweep_directories(c);
    do {
        uint64_t now = clock_monotonic(), before, rest_ns;
        do {
            before = now;
            now = clock_monotonic();
            heap_trim(now - before);
            watch_guard();
            leave_if_alone(c);
            bool waits = host_plugins_again(c->host) > 0;
            rest_ns = parts_watch(c);
            rest_ns = waits ? AGAIN_NS : rest_ns;
        } while (!event_wait(&g.stop, rest_ns));
        /* An eject has done both already; probing_stop() has not. */
        bool here = host_leave(c->host, NULL) == 0;
        rc = host_plugins_stop(c->host, /* force= */ false);
        atomic_store_explicit(&g.stop_result, rc, memory_order_release);
        if (rc < 0 && here)
            host_stay(c->host);
        if (rc < 0) { /* a plugin's code may still run: stay, and say so */
            atomic_store_explicit(&g.state, RUNNING, memory_order_release);
            event_raise(&g.stopped);
        }
    } while (rc < 0);
    atomic_store_explicit(&g.state, STOPPING, memory_order_release);
    parts_stop(c);
    finish_core();
    return NULL;
}

/* ---- on the borrowed thread ---- */

/* Start the core; settings: lines "NAME=VALUE", or NULL.  0: it is starting (the directory's `sock`
 * appears when it is ready, `failed` when it cannot); 1: it or another copy of it runs already;
 * -EAGAIN: it is just leaving; -EUSERS: no thread can be made; -E2BIG; -errno. */
int probing_start(const char *settings)
{
    int state = IDLE, rc = 0;
    bool sibling = false;
    size_t n = settings ? strnlen(settings, SETTINGS_BYTES) : 0;

    if (n == SETTINGS_BYTES)
        return -E2BIG;
    while (!atomic_compare_exchange_weak_explicit(&g.state, &state, STARTING, memory_order_acq_rel,
                                                  memory_order_acquire))
        if (state != IDLE && state != CHILD)
            return state == STOPPING ? -EAGAIN : 1;
    if (state == CHILD)
        begin_in_child();
    g.core.follower = false;
    atomic_store_explicit(&g.following, NO_PLUGINS, memory_order_relaxed);
    /* Before we have anything that a child should not have.  The same thread has just loaded this
     * code, so it may call what allocates. */
    if (!g.atfork_made)
        rc = -pthread_atfork(fork_before, fork_parent, fork_in_child);
    g.atfork_made = rc == 0;
    if (rc == 0) {
        g.places = standard_places_take(/* before_main= */ false);
        g.guard_fd = guard_take(&sibling);
    }
    if (sibling) {
        rc = 1;
    } else if (rc == 0) {
        if (n)
            memcpy(g.config.text, settings, n);
        g.config.text[n] = '\0';
        probing_why[0] = '\0';
        rc = own_thread_start_detached(NULL, MAIN_STACK, core_thread, NULL);
        rc = rc == -EAGAIN ? -EUSERS : rc; /* the other meaning is not this one */
    }
    if (rc != 0) {
        forget_guard();
        atomic_store_explicit(&g.state, IDLE, memory_order_release);
    }
    return rc;
}

/* Leave the process, as `eject` does, and wait for it.  0, -ESRCH: not here, -EBUSY: code of a
 * plugin may still run, -ETIMEDOUT.  For tests and a process's owner; never from a handler. */
int probing_stop(void)
{
    if (atomic_load_explicit(&g.state, memory_order_acquire) != RUNNING)
        return -ESRCH;
    (void)event_wait(&g.stopped, 0); /* what an eject that was refused has left raised */
    atomic_store_explicit(&g.stop_result, 0, memory_order_release);
    event_raise(&g.stop);
    if (!event_wait(&g.stopped, STOP_NS))
        return -ETIMEDOUT;
    return atomic_load_explicit(&g.stop_result, memory_order_acquire);
}
