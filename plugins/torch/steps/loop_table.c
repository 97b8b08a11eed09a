/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/loop_table.c - the table torch.loop: what the thread that ends steps is doing
 * now.
 *
 * Threads: the loop's own with the GIL; the table is filled on [worker] without it: a loop that
 * holds the GIL and stands is seen, too.  There the process's memory is looked at once a second.
 */
#include "steps/loop_table.h"
#include "lib/proc/task.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <probing/ext/draft/memory.h>

#define LOOKS 120     /* seconds of memory */
#define WARM_UP 10    /* looks: the first steps of a loop make what stays for good */
#define HEAP_LOOKS 10 /* from one measurement of our own heap to the next */

static struct {
    uint64_t ns[LOOKS];
    int64_t bytes[LOOKS]; /* private memory, without ours */
    uint64_t n;           /* looks so far */
    int64_t own;          /* our own heap, bytes */
    int64_t kept;         /* by the program's allocator, since torch's profiler ran for us */
} mem;                    /* lock: mutex */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static const struct probing_column columns[] = {
    PROBING_I64_COLUMN(
        "tid", PROBING_PLAIN,
        "thread that ended a step last; before that, the first that called a module"),
    PROBING_I64_COLUMN("steps", PROBING_COUNT, "number of steps that have ended"),
    PROBING_F64_COLUMN("step_sec", PROBING_SECONDS,
                       "time since the last step ended; NULL: none has ended"),
    PROBING_STR_COLUMN(
        "phase", "phase that the thread is in: waiting for data, forward, backward, optimizer, "
                 "communication or other"),
    PROBING_F64_COLUMN("phase_sec", PROBING_SECONDS, "how long it has been in this phase"),
    PROBING_I64_COLUMN("rss_bytes", PROBING_BYTES, "resident memory of the process"),
    PROBING_I64_COLUMN(
        "rss_before_bytes", PROBING_BYTES,
        "least private memory (RssAnon, VmSwap) in the older half of the time that was "
        "observed, without probing's heap and what torch's profiler took for it"),
    PROBING_I64_COLUMN("rss_after_bytes", PROBING_BYTES,
                       "likewise in the newer half: memory that the process does not give back"),
    PROBING_F64_COLUMN("rss_span_sec", PROBING_SECONDS,
                       "time from the middle of the older half to the middle of the newer half"),
};

int64_t loop_rss(void)
{
    struct proc_stat s;
    if (proc_stat_of(0, 0, &s) < 0 || s.rss_pages == PROC_UNKNOWN)
        return 0;
    return (int64_t)s.rss_pages * sysconf(_SC_PAGESIZE);
}

/* Pages of files are not the program's growth: whoever reads its libraries, as we do for stacks,
 * makes them resident. */
int64_t loop_private(void)
{
    struct proc_status s;
    if (proc_status_of(0, 0, &s) < 0 || s.anon_bytes == PROC_UNKNOWN)
        return 0;
    return (int64_t)s.anon_bytes + (s.swap_bytes == PROC_UNKNOWN ? 0 : (int64_t)s.swap_bytes);
}

static int64_t own_heap(void)
{
    const struct probing_memory_1 *m =
        torch_state.host->extension(torch_state.host, PROBING_MEMORY_1);
    bool can = m && m->size > offsetof(struct probing_memory_1, resident) && m->resident;
    uint64_t files;
    return can ? (int64_t)m->resident(&files) : 0;
}

void loop_inspect(uint64_t now_ns)
{
    static uint64_t looks; /* [worker], never two at once */
    if (!__atomic_load_n(&steps.loop.tid, __ATOMIC_ACQUIRE) || looks++ < WARM_UP)
        return;
    int64_t bytes = loop_private(), own = looks % HEAP_LOOKS == 1 ? own_heap() : -1;
    if (!bytes)
        return;
    (void)pthread_mutex_lock(&mutex);
    if (own >= 0)
        mem.own = own;
    mem.ns[mem.n % LOOKS] = now_ns;
    mem.bytes[mem.n++ % LOOKS] = bytes - mem.own - mem.kept;
    (void)pthread_mutex_unlock(&mutex);
}

void loop_kept(int64_t bytes)
{
    (void)pthread_mutex_lock(&mutex);
    mem.kept += bytes > 0 ? bytes : 0;
    (void)pthread_mutex_unlock(&mutex);
}

/* The least of some looks, counted from the newest back. */
static int64_t least_bytes(uint64_t from, uint64_t to)
{
    int64_t found = INT64_MAX;
    for (uint64_t i = from; i < to; i++) {
        int64_t bytes = mem.bytes[(mem.n - 1 - i) % LOOKS];
        found = bytes < found ? bytes : found;
    }
    return found;
}

static void fill_memory(union probing_cell *cells)
{
    int64_t now = loop_rss();
    cells[0].i = now ? now : PROBING_NULL_I64;
    cells[1].i = cells[2].i = PROBING_NULL_I64;
    cells[3].u = PROBING_NULL_F64;
    (void)pthread_mutex_lock(&mutex);
    uint64_t n = mem.n < LOOKS ? mem.n : LOOKS, half = n / 2;
    if (half) {
        uint64_t old_ns = mem.ns[(mem.n - n) % LOOKS], new_ns = mem.ns[(mem.n - 1) % LOOKS];
        cells[1].i = least_bytes(half, n);
        cells[2].i = least_bytes(0, half);
        cells[3].f = probing_seconds(new_ns - old_ns) / 2;
    }
    (void)pthread_mutex_unlock(&mutex);
}

void loop_is(const struct thread *t)
{
    if (t == steps.loop.thread)
        return;
    steps.loop.thread = t;
    step_loop_phase(t->phase, torch_state.now());
    __atomic_store_n(&steps.loop.tid, (int64_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
}

void loop_ended(const struct thread *t, uint64_t end_ns)
{
    (void)end_ns;
    loop_is(t);
}

static double seconds_since(uint64_t then_ns)
{
    uint64_t now_ns = torch_state.now();
    return now_ns > then_ns ? probing_seconds(now_ns - then_ns) : 0;
}

static int scan_loop(void *self, struct probing_rows *out)
{
    static const char *const names[N_PHASES] = {
        [PHASE_OTHER] = "other",         [PHASE_DATA] = "waiting for data",
        [PHASE_FORWARD] = "forward",     [PHASE_BACKWARD] = "backward",
        [PHASE_OPTIMIZER] = "optimizer", [PHASE_COMM] = "communication"};
    int64_t tid = __atomic_load_n(&steps.loop.tid, __ATOMIC_ACQUIRE);
    int64_t n_steps = (int64_t)__atomic_load_n(&steps.step, __ATOMIC_RELAXED);
    union probing_cell none = {.u = PROBING_NULL_F64};
    union probing_cell cells[] = {
        {.i = PROBING_NULL_I64}, {.i = n_steps}, none, {.s = NULL}, none, none, none, none, none};
    (void)self;
    if (!torch_on())
        return 0;
    if (tid) {
        uint64_t since_ns = __atomic_load_n(&steps.loop.since_ns, __ATOMIC_ACQUIRE);
        enum phase phase = __atomic_load_n(&steps.loop.phase, __ATOMIC_RELAXED);
        uint64_t ended_ns = __atomic_load_n(&steps.begin_ns, __ATOMIC_RELAXED);
        cells[0].i = tid;
        if (ended_ns)
            cells[2].f = seconds_since(ended_ns);
        cells[3].s = names[phase];
        cells[4].f = seconds_since(since_ns > ended_ns ? since_ns : ended_ns);
    }
    fill_memory(cells + 5);
    int rc = torch_state.host->emit(out, cells, sizeof(cells) / sizeof(cells[0]));
    return probing_scanned(rc);
}

const struct probing_table_desc loop_table = PROBING_COMPUTED_TABLE(
    "loop", columns, scan_loop,
    "what the thread that runs the training loop is doing now, and since when");
