/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/watcher.c - the thread that asks devices, and what it was told last.
 *
 * Threads: its own asks, and writes `known` under the lock for as long as a copy takes; [control]
 * starts and stops it; workers copy `known`.
 */
#define _GNU_SOURCE
#include "watcher.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/own_thread.h"
#include "lib/proc/patience.h"
#include "live_environment.h"
#include "nvml/nvml_reader.h"

#define STACK_BYTES (512u * 1024) /* NVML's own calls need some of it */
#define NICE 10
#define FIND_NS (30 * PROBING_NS_PER_S) /* between two looks for a driver */
#define LIST_NS (60 * PROBING_NS_PER_S) /* between two lists of devices */
#define STOP_NS (2 * PROBING_NS_PER_S)
#define SHARE 200u       /* of a core, that looks may take: 1 / this; then they come less often */
#define MEASURE_TICK 10u /* each so manieth look, what the driver measures while we wait */

struct watcher {
    const struct probing_host *host;
    void (*row)(void *self, const struct gpu_device *, const struct gpu_look *,
                const struct gpu_look *);
    void *self;
    pthread_t thread;
    bool running; /* [control] only */
    _Atomic bool forked, ended;
    _Atomic int32_t tid; /* 0: it has not run yet */
    _Atomic uint64_t interval_ns;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool stop, leaving; /* leaving: the thread has seen it, and ends */
    struct known known;

    /* The thread's own: */
    struct nvml nvml;
    struct gpu_device devices[GPU_DEVICES_MAX];
    struct gpu_look before[GPU_DEVICES_MAX], now[GPU_DEVICES_MAX];
    struct gpu_processes processes;
    uint32_t n;
    uint64_t listed_ns, sought_ns, looks;
};

/* ---- what is told to others ---- */

static void note_asking(struct watcher *w, uint32_t device, bool on)
{
    (void)pthread_mutex_lock(&w->lock);
    w->known.asking = device;
    w->known.asking_ns = on ? w->host->now() : 0;
    (void)pthread_mutex_unlock(&w->lock);
}

static void tell_none(struct watcher *w, const char *why)
{
    (void)pthread_mutex_lock(&w->lock);
    w->known.begun = true;
    w->known.ready = false;
    w->known.n = w->known.processes.n = 0;
    (void)snprintf(w->known.why, sizeof(w->known.why), "%s", why);
    (void)pthread_mutex_unlock(&w->lock);
}

static void publish_look(struct watcher *w)
{
    struct known *k = &w->known;
    (void)pthread_mutex_lock(&w->lock);
    k->begun = k->ready = true;
    k->why[0] = '\0';
    k->n = w->n;
    k->cuda_version = w->nvml.cuda_version;
    (void)snprintf(k->driver, sizeof(k->driver), "%s", w->nvml.driver);
    (void)snprintf(k->maker, sizeof(k->maker), "NVIDIA");
    memcpy(k->devices, w->devices, w->n * sizeof(k->devices[0]));
    memcpy(k->looks_of, w->now, w->n * sizeof(k->looks_of[0]));
    k->processes.n = w->processes.n;
    k->processes.left_out = w->processes.left_out;
    memcpy(k->processes.all, w->processes.all, w->processes.n * sizeof(w->processes.all[0]));
    (void)pthread_mutex_unlock(&w->lock);
}

/* ---- the thread ---- */

static void read_visible(struct watcher *w)
{
    char list[4096], order[32];
    int listed = live_environment("CUDA_VISIBLE_DEVICES", list, sizeof(list));
    int ordered = live_environment("CUDA_DEVICE_ORDER", order, sizeof(order));
    cuda_visible(listed > 0 ? list : NULL, ordered > 0 ? order : NULL, w->devices, w->n);
    for (uint32_t i = 0; i < w->n && (listed < 0 || ordered < 0); i++)
        w->devices[i].visible = w->devices[i].ordinal = -1;
}

/* One that is lost does not say any more who it is. */
static void keep_names(struct watcher *w, const struct gpu_device *old, uint32_t n_old)
{
    for (uint32_t i = 0; i < w->n; i++)
        for (uint32_t k = 0; k < n_old && !w->devices[i].uuid[0]; k++)
            if (old[k].index == w->devices[i].index && old[k].partition == w->devices[i].partition)
                w->devices[i] = old[k];
}

/* Looks at devices that are the same go on from each other. */
static void keep_looks(struct watcher *w, const struct gpu_device *old, uint32_t n_old)
{
    struct gpu_look looks[GPU_DEVICES_MAX];
    memcpy(looks, w->now, sizeof(looks));
    for (uint32_t i = 0; i < w->n; i++) {
        w->now[i].ns = 0;
        for (uint32_t k = 0; k < n_old; k++)
            if (old[k].uuid[0] && strcmp(old[k].uuid, w->devices[i].uuid) == 0)
                w->now[i] = looks[k];
    }
}

static int list_devices(struct watcher *w, char *why)
{
    struct gpu_device old[GPU_DEVICES_MAX];
    uint32_t n_old = w->n;
    memcpy(old, w->devices, n_old * sizeof(old[0]));
    int n = nvml_list(&w->nvml, w->devices, why);
    w->n = n > 0 ? (uint32_t)n : 0;
    keep_names(w, old, n_old);
    if (n > 0)
        keep_looks(w, old, n_old);
    return n;
}

/* Is there a driver, and the list of its devices not too old?  False: not now. */
static bool prepare_look(struct watcher *w, uint64_t now)
{
    char why[NVML_WHY_BYTES] = "";
    int rc = 0;
    if (!w->nvml.ready && w->sought_ns && now - w->sought_ns < FIND_NS)
        return false;
    note_asking(w, GPU_DEVICES_MAX, true);
    if (!w->nvml.ready) {
        w->sought_ns = now;
        w->listed_ns = 0;
        rc = nvml_begin(&w->nvml, why);
    }
    if (rc == 0 && (!w->listed_ns || now - w->listed_ns >= LIST_NS)) {
        rc = list_devices(w, why);
        w->listed_ns = now;
    }
    note_asking(w, GPU_DEVICES_MAX, false);
    if (rc < 0)
        tell_none(w, why);
    return rc >= 0;
}

static bool is_stopping(struct watcher *w)
{
    (void)pthread_mutex_lock(&w->lock);
    bool stop = w->stop;
    w->leaving = stop;
    (void)pthread_mutex_unlock(&w->lock);
    return stop;
}

static void take_look(struct watcher *w)
{
    bool same = true;
    w->processes.n = w->processes.left_out = 0;
    read_visible(w);
    for (uint32_t i = 0; i < w->n && !is_stopping(w); i++) {
        bool measure = w->looks % MEASURE_TICK == i % MEASURE_TICK; /* in turn */
        w->before[i] = w->now[i];
        note_asking(w, i, true);
        int rc = nvml_look(&w->nvml, i, measure, &w->now[i], &w->processes);
        note_asking(w, i, false);
        if (rc < 0) /* it wants to be begun again: at the next turn, not in half a minute */
            w->sought_ns = 0;
        if (rc < 0)
            return;
        same = same && (w->now[i].state == w->before[i].state || w->before[i].ns == 0);
        w->row(w->self, &w->devices[i], &w->before[i], &w->now[i]);
    }
    if (!same)
        w->listed_ns = 0;
    w->looks++;
}

static void wait_for(struct watcher *w, uint64_t ns)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t at = (uint64_t)until.tv_sec * PROBING_NS_PER_S + (uint64_t)until.tv_nsec + ns;
    until = (struct timespec){.tv_sec = (time_t)(at / PROBING_NS_PER_S),
                              .tv_nsec = (long)(at % PROBING_NS_PER_S)};
    (void)pthread_mutex_lock(&w->lock);
    if (!w->stop)
        (void)pthread_cond_timedwait(&w->changed, &w->lock, &until);
    (void)pthread_mutex_unlock(&w->lock);
}

static void *watcher_thread(void *arg)
{
    struct watcher *w = arg;
    (void)prctl(PR_SET_NAME, "probing/gpu");
    atomic_store_explicit(&w->tid, (int32_t)syscall(SYS_gettid), memory_order_relaxed);
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    while (!is_stopping(w)) {
        uint64_t begun = w->host->now(), cpu = probing_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        if (prepare_look(w, begun)) {
            take_look(w);
            publish_look(w);
        }
        uint64_t least = (probing_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu) * SHARE;
        uint64_t interval = atomic_load_explicit(&w->interval_ns, memory_order_relaxed);
        uint64_t took = w->host->now() - begun;
        uint64_t pause = least > interval ? least : interval;
        wait_for(w, pause > took ? pause - took : interval / 10 + 1);
    }
    nvml_end(&w->nvml);
    atomic_store_explicit(&w->ended, true, memory_order_release);
    return NULL;
}

/* ---- others ---- */

struct known *watcher_known(struct watcher *w)
{
    struct known *copy = malloc(sizeof(*copy));
    if (!copy || atomic_load_explicit(&w->forked, memory_order_relaxed)) {
        free(copy); /* the lock may be held by a thread that this child has not */
        return NULL;
    }
    (void)pthread_mutex_lock(&w->lock);
    *copy = w->known;
    (void)pthread_mutex_unlock(&w->lock);
    return copy;
}

void watcher_note(struct watcher *w, char *text, size_t size)
{
    text[0] = '\0';
    if (atomic_load_explicit(&w->forked, memory_order_relaxed))
        return;
    (void)pthread_mutex_lock(&w->lock);
    const struct known *k = &w->known;
    uint64_t since = k->asking_ns ? w->host->now() - k->asking_ns : 0;
    if (since >= WATCHER_SLOW_NS && k->asking < k->n)
        (void)snprintf(text, size, "the driver has not answered about GPU %u for a while",
                       k->devices[k->asking].index);
    else if (since >= WATCHER_SLOW_NS)
        (void)snprintf(text, size, "the GPU driver has not answered for a while");
    else if (k->begun && !k->ready)
        (void)snprintf(text, size, "waiting: %s; looked for again every %d s", k->why,
                       (int)(FIND_NS / PROBING_NS_PER_S));
    else if (k->ready && k->n == 0)
        (void)snprintf(text, size, "the driver (%.40s) shows no GPU to this process", k->driver);
    else if (k->ready && k->processes.left_out)
        (void)snprintf(text, size, "%u processes on GPUs are not listed: there are too many",
                       k->processes.left_out);
    (void)pthread_mutex_unlock(&w->lock);
}

void watcher_set(struct watcher *w, uint64_t interval_ns)
{
    atomic_store_explicit(&w->interval_ns, interval_ns, memory_order_relaxed);
    (void)pthread_mutex_lock(&w->lock);
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
}

/* ---- begin and end ---- */

int watcher_new(const struct probing_host *h,
                void (*row)(void *self, const struct gpu_device *d, const struct gpu_look *before,
                            const struct gpu_look *now),
                void *self, struct watcher **ret)
{
    pthread_condattr_t monotonic;
    struct watcher *w = calloc(1, sizeof(*w));
    if (!w)
        return h->fail(h, -ENOMEM, "no memory to look at GPUs");
    w->host = h;
    w->row = row;
    w->self = self;
    w->interval_ns = PROBING_NS_PER_S;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    *ret = w;
    return 0;
}

void watcher_free(struct watcher *w)
{
    /* In a child the lock and the condition are of a thread that is not there. */
    if (w && !atomic_load_explicit(&w->forked, memory_order_relaxed)) {
        (void)pthread_cond_destroy(&w->changed);
        (void)pthread_mutex_destroy(&w->lock);
    }
    free(w);
}

int watcher_start(struct watcher *w)
{
    w->stop = w->leaving = false;
    w->nvml.host = w->host;
    w->nvml.own_pid = getpid();
    w->sought_ns = w->listed_ns = 0;
    atomic_store_explicit(&w->ended, false, memory_order_relaxed);
    atomic_store_explicit(&w->tid, 0, memory_order_relaxed);
    int rc = own_thread_start(&w->thread, STACK_BYTES, watcher_thread, w);
    w->running = rc == 0;
    return rc < 0 ? w->host->fail(w->host, rc, "no thread to look at GPUs") : 0;
}

/* Nobody can end a thread that waits for the driver: it goes on when that answers. */
static int give_up(struct watcher *w)
{
    (void)pthread_mutex_lock(&w->lock);
    w->stop = w->leaving;
    (void)pthread_mutex_unlock(&w->lock);
    return w->host->fail(w->host, -EBUSY, "the GPU driver does not answer; try again when it does");
}

int watcher_stop(struct watcher *w)
{
    if (!w->running || atomic_load_explicit(&w->forked, memory_order_relaxed))
        return 0; /* a child has no such thread */
    (void)pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
    struct patience p = {.limit_ns = STOP_NS};
    while (!atomic_load_explicit(&w->ended, memory_order_acquire))
        if (!patience_rest(&p, atomic_load_explicit(&w->tid, memory_order_relaxed)))
            return give_up(w);
    (void)pthread_join(w->thread, NULL);
    w->running = false;
    return 0;
}

void watcher_forked(struct watcher *w)
{
    atomic_store_explicit(&w->forked, true, memory_order_relaxed);
}
