/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/sample_test.c - samples as threads take them: how many, what they stand
 * for, and that signals, jumps, cancellation and forks in any moment leave nothing behind.
 */
#include "sample/sample.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probing_sdk.h"
#include "sample/estimate.h"
#include "sample/sampling.h"
#include "tests/test.h"

static uint64_t now(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

static const struct probing_host host = {.size = sizeof(host), .now = now};
static struct sample_pool *slots;
static struct live_table *table;

static bool begin(uint64_t mean)
{
    if (!table && !CHECK_INT(live_table_new(LIVE_MAX, &table), 0))
        return false;
    if (!CHECK_INT(sample_pool_new(SAMPLE_SLOTS_MAX, 0, &slots), 0))
        return false;
    sampling_begin(&(struct sampling){.host = &host, .live = table, .slots = slots, .mean = mean});
    memory_thread = (struct memory_thread){.chance = 12345};
    return true;
}

/* After threads that were cancelled, or left by a jump, while they ended one: what those held stays
 * in the table. */
static void end_with_losses(void)
{
    CHECK_INT(sampling_end(), 0);
    sample_pool_free(slots);
}

static void end(void)
{
    end_with_losses();
    for (size_t i = 0; i < PROBING_LENGTH(memory_filter); i++)
        if (!CHECK_INT(memory_filter[i], 0))
            return;
}

struct sums {
    double bytes, count, variance;
    uint32_t samples;
};

static void drain(struct sums *to)
{
    struct live_seen e;
    for (struct sample_slot *x; (x = sample_slot_next(slots)) != NULL;
         sample_slot_release(slots, x)) {
        if (CHECK(live_read(table, (uint32_t)x->user[OF_ENTRY], &e))) {
            double weight = estimate_weight(e.size, e.mean);
            to->count += weight;
            to->bytes += weight * (double)e.size;
            to->variance += estimate_variance(weight) * (double)e.size * (double)e.size;
            to->samples++;
        }
    }
}

/* As the sampler's thread does it: those that have ended are taken first, so that the stack of each
 * has been here before its entry is given back.  How many had ended. */
static uint32_t turn(struct sums *to)
{
    uint32_t n = 0, next, i = live_ended(table);
    drain(to);
    for (; i; i = next, n++) {
        next = atomic_load_explicit(&live_at(table, i)->next, memory_order_relaxed);
        live_release(table, i);
    }
    return n;
}

__attribute__((noinline)) static void allocated(uint64_t address, size_t n)
{
    memory_allocated((void *)(uintptr_t)address, n, MEMORY_MALLOC, __builtin_frame_address(0));
}

static bool within(double estimate, double truth, double variance)
{
    double off = estimate > truth ? estimate - truth : truth - estimate;
    if (off <= 4 * estimate_root(variance))
        return true;
    printf("# %g, truth %g, standard error %g\n", estimate, truth, estimate_root(variance));
    return false;
}

TEST(what_samples_stand_for_is_what_was_allocated)
{
    static const size_t sizes[] = {16, 48, 64, 1000, 30000, 64, 500000, 16};
    struct sums s = {.samples = 0};
    double truth = 0;
    if (!begin(65536))
        return;
    for (uint32_t i = 0; i < 200000; i++) {
        size_t n = sizes[i % PROBING_LENGTH(sizes)];
        allocated(0x10000 + 16 * (uint64_t)i, n);
        truth += (double)n;
        drain(&s);
    }
    CHECK(s.samples > 20000);
    CHECK(within(s.bytes, truth, s.variance));
    CHECK_INT(live_count(table), s.samples);
    for (uint32_t i = 0; i < 200000; i++) {
        memory_freed((void *)(uintptr_t)(0x10000 + 16 * (uint64_t)i));
        memory_freed((void *)(uintptr_t)(0x10000 + 16 * (uint64_t)i)); /* it is none any more */
    }
    CHECK_INT(turn(&s), s.samples);
    CHECK_INT(live_count(table), 0);
    end();
}

TEST(another_mean_is_heard_of_at_once)
{
    struct sums before = {.samples = 0}, after = {.samples = 0}, off = {.samples = 0};
    uint64_t address = 1 << 20;
    if (!begin(UINT64_C(1) << 40))
        return;
    for (uint32_t i = 0; i < 100000; i++)
        allocated(address += 128, 100);
    drain(&before);
    CHECK_INT(before.samples, 0); /* one in a hundred thousand such runs has one */
    sampling_set_mean(65536);
    double truth = 0;
    for (uint32_t i = 0; i < 1000000; i++, drain(&after)) {
        allocated(address += 128, 100);
        truth += 100;
    }
    /* the first megabyte may pass unseen */
    CHECK(after.samples > 1300 && within(after.bytes, truth, after.variance + 1e12));
    sampling_set_mean(UINT64_C(1) << 40);
    for (uint32_t i = 0; i < 100000; i++)
        allocated(address += 128, 100);
    drain(&off);
    CHECK(off.samples < 40);
    end();
}

TEST(a_mean_that_changes_all_the_time_is_as_right)
{
    struct sums s = {.samples = 0};
    double truth = 0;
    if (!begin(65536))
        return;
    for (uint32_t i = 0; i < 2000000; i++) {
        allocated((UINT64_C(1) << 32) + 128 * (uint64_t)i, 100);
        truth += 100;
        if (i % 700 == 0)
            sampling_set_mean(i % 1400 ? 16384 : 65536);
        (void)turn(&s);
    }
    CHECK(s.samples > 4000);
    CHECK(within(s.bytes, truth, s.variance));
    end();
}

TEST(without_a_free_slot_a_sample_has_no_stack)
{
    struct sampling_counts a, b;
    uint32_t bare = 0;
    if (!begin(1024))
        return;
    sampling_counts(&a);
    for (uint64_t i = 1; i <= SAMPLE_SLOTS_MAX + 36; i++)
        allocated(i << 20, (size_t)1 << 46); /* due, however far samples are from each other */
    sampling_counts(&b);
    CHECK_INT(b.taken - a.taken, SAMPLE_SLOTS_MAX + 36);
    CHECK_INT(b.bare - a.bare, 36);
    for (uint32_t i = live_told(table); i; bare++)
        i = atomic_load_explicit(&live_at(table, i)->next_bare, memory_order_relaxed);
    CHECK_INT(bare, 36);
    end();
}

/* In pieces of 64 bytes, up to 256 MiB: 262,144 samples, if nothing were done. */
TEST(samples_thin_out_where_the_reader_does_not_come)
{
    struct sampling_counts a, b;
    struct sums s = {.samples = 0};
    const uint32_t pieces = 1u << 22;
    if (!begin(1024))
        return;
    sampling_counts(&a);
    for (uint64_t i = 0; i < pieces; i++)
        allocated((UINT64_C(1) << 32) + 64 * i, 64);
    sampling_counts(&b);
    CHECK_INT(b.bare, a.bare);
    CHECK(sampling_mean() > 1024 && sampling_mean() == sampling_widest());
    CHECK(b.means - a.means > UINT64_C(1) << 26);
    CHECK_INT(sampling_widest_since(), sampling_mean());
    uint64_t most = sampling_mean();
    drain(&s);
    CHECK_INT(s.samples, b.taken - a.taken);
    CHECK(s.samples > SAMPLE_SLOTS_MAX / 2);
    CHECK(within(s.bytes, 64.0 * pieces, s.variance));
    sampling_set_mean(2048); /* as density_adapt() does it */
    CHECK(sampling_mean() == 2048 && sampling_widest() == most);
    CHECK_INT(sampling_widest_since(), most);
    CHECK_INT(sampling_widest_since(), 2048);
    end();
}

/* Right on average, too, where it is always on the way up: of many such times. */
TEST(what_thins_out_is_not_biased)
{
    double bytes = 0, variance = 0, truth = 0;
    uint64_t address = UINT64_C(1) << 32;
    for (uint32_t round = 0; round < 200; round++) {
        struct sums s = {.samples = 0};
        if (!begin(256))
            return;
        memory_thread.chance = 1000 + round;
        for (uint64_t i = 0; i < 100000; i++, truth += 64)
            allocated(address += 64, 64);
        drain(&s);
        bytes += s.bytes;
        variance += s.variance;
        end();
    }
    CHECK(within(bytes, truth, variance));
}

TEST(what_was_freed_unseen_ends_when_its_address_comes_again)
{
    struct sums s = {.samples = 0};
    if (!begin(1024))
        return;
    allocated(0x5000, 1 << 20);
    allocated(0x5000, 1 << 20);
    CHECK_INT(turn(&s), 1);
    CHECK_INT(live_count(table), 1);
    memory_freed((void *)(uintptr_t)0x5000);
    CHECK(!memory_is_sampled((void *)(uintptr_t)0x5000));
    CHECK_INT(turn(&s), 1);
    end();
}

/* One that a thread is resizing while sampling ends and begins comes back, as nobody's sample. */
TEST(a_block_is_resized_while_sampling_ends_and_begins)
{
    struct sums s = {.samples = 0};
    void *p = (void *)(uintptr_t)0x5000, *q = (void *)(uintptr_t)0x6000;
    if (!begin(1024))
        return;
    allocated(0x5000, 1 << 20);
    allocated(0x6000, 1 << 20);
    drain(&s);
    uint32_t moving = memory_moving(p), other = memory_moving(q);
    end();
    memory_moved(other); /* while nothing is sampled */
    if (!begin(1024))
        return;
    allocated(0x7000, 1 << 20);
    memory_unmoved(p, moving);
    CHECK(!memory_is_sampled(p) && memory_moving(p) == 0);
    drain(&s);
    CHECK_INT(s.samples, 3);
    CHECK_INT(turn(&s), 1); /* that of before */
    CHECK_INT(live_count(table), 1);
    end();
    CHECK_INT(live_count(table), 0);
}

TEST(resized_blocks)
{
    struct sums s = {.samples = 0};
    void *p = (void *)(uintptr_t)0x5000;
    if (!begin(1024))
        return;
    allocated(0x5000, 1 << 20);
    drain(&s);
    CHECK_INT(s.samples, 1);
    uint32_t moving = memory_moving(p);
    CHECK(moving && !memory_is_sampled(p));
    memory_unmoved(p, moving);
    CHECK(memory_is_sampled(p));
    moving = memory_moving(p);
    memory_moved(moving);
    CHECK(!memory_is_sampled(p));
    CHECK_INT(memory_moving(p), 0);
    CHECK_INT(turn(&s), 1);
    end();
}

/* ---- at any moment ---- */

static _Atomic uint64_t handled;
static sigjmp_buf back;
static volatile sig_atomic_t jumps;

static void on_signal(int number)
{
    (void)number;
    uint64_t n = atomic_fetch_add_explicit(&handled, 1, memory_order_relaxed);
    allocated((UINT64_C(1) << 40) + n * 16, 4096);
    if (n % 3 == 0)
        memory_freed((void *)(uintptr_t)((UINT64_C(1) << 40) + n * 16));
    if (jumps)
        siglongjmp(back, 1);
}

static void tick_each(int us)
{
    const struct itimerval it = {{0, us}, {0, us}};
    (void)setitimer(ITIMER_REAL, &it, NULL);
}

static void allocate_under_signals(bool jump, uint32_t wanted)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct sampling_counts a, b;
    struct sums s = {.samples = 0};
    volatile uint64_t address = UINT64_C(1) << 30;
    if (!begin(4096))
        return;
    sampling_counts(&a);
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGALRM, &action, NULL);
    atomic_store_explicit(&handled, 0, memory_order_relaxed);
    tick_each(50);
    (void)sigsetjmp(back, 1);
    jumps = jump;
    while (atomic_load_explicit(&handled, memory_order_relaxed) < wanted) {
        address += 16;
        errno = 77;
        allocated(address, 2048);
        if (!CHECK_INT(errno, 77))
            break;
        memory_freed((void *)(uintptr_t)address);
        jumps = 0; /* not out of this loop's own bookkeeping */
        (void)turn(&s);
        jumps = jump;
    }
    jumps = 0;
    tick_each(0);
    (void)signal(SIGALRM, SIG_IGN);
    (void)turn(&s);
    sampling_counts(&b);
    CHECK(b.taken > a.taken + wanted / 2);
    CHECK_INT(memory_thread.inside, 0);
    int free_ones = 0;
    while (sample_slot_take(slots))
        free_ones++;
    CHECK_INT(free_ones, SAMPLE_SLOTS_MAX); /* none was lost on the way */
    if (jump)
        end_with_losses();
    else
        end();
}

TEST(handlers_that_allocate)
{
    allocate_under_signals(/* jump= */ false, 5000);
}

TEST(handlers_that_do_not_return)
{
    allocate_under_signals(/* jump= */ true, 5000);
}

static void *allocate_for_ever(void *arg)
{
    int old;
    /* NOLINTNEXTLINE(cert-pos47-c): what programs should not do, and do. */
    (void)pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    for (uint64_t i = 0;; i++) {
        allocated(*(uint64_t *)arg + i % 1024 * 16, 4096);
        memory_freed((void *)(uintptr_t)(*(uint64_t *)arg + i % 1024 * 16));
    }
    return NULL;
}

TEST(threads_that_are_cancelled_anywhere)
{
    struct sums s = {.samples = 0};
    if (!begin(4096))
        return;
    for (uint32_t i = 0; i < 200; i++) {
        pthread_t thread;
        uint64_t from = (uint64_t)(i + 1) << 32;
        if (!CHECK_INT(pthread_create(&thread, NULL, allocate_for_ever, &from), 0))
            break;
        (void)nanosleep(&(struct timespec){.tv_nsec = 300000 + 1000 * i}, NULL);
        (void)pthread_cancel(thread);
        (void)pthread_join(thread, NULL);
        (void)turn(&s);
    }
    int free_ones = 0;
    while (sample_slot_take(slots))
        free_ones++;
    CHECK_INT(free_ones, SAMPLE_SLOTS_MAX);
    end_with_losses();
}

TEST(a_child_samples_nothing_however_it_was_made)
{
    struct sampling_counts a, b;
    if (!begin(4096))
        return;
    allocated(0x7000, 1 << 20);
    for (int told = 0; told < 2; told++) {
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        if (child == 0) {
            if (told)
                sampling_forked();
            sampling_counts(&a);
            for (uint64_t i = 1; i < 1000; i++)
                allocated(i << 20, 1 << 20);
            memory_freed((void *)(uintptr_t)0x7000);
            sampling_counts(&b);
            _exit(a.taken == b.taken ? 0 : 1);
        }
        int status = -1;
        CHECK_INT(waitpid(child, &status, 0), child);
        CHECK_INT(status, 0);
    }
    end();
}

/* Threads that allocate and free, and hand blocks to each other, while it begins and ends. */
static _Atomic bool over;

static void *churn(void *arg)
{
    uint64_t from = *(uint64_t *)arg, i = 0;
    for (; !atomic_load_explicit(&over, memory_order_relaxed); i++) {
        allocated(from + i % 512 * 16, 1024);
        if (i >= 256)
            memory_freed((void *)(uintptr_t)(from + (i - 256) % 512 * 16));
    }
    for (uint64_t k = 0; k < 512; k++)
        memory_freed((void *)(uintptr_t)(from + k * 16));
    return NULL;
}

TEST(it_begins_and_ends_while_threads_allocate)
{
    pthread_t threads[4];
    uint64_t from[4];
    struct sums s = {.samples = 0};
    atomic_store_explicit(&over, false, memory_order_relaxed);
    for (uint64_t i = 0; i < 4; i++) {
        from[i] = (i + 1) << 32;
        CHECK_INT(pthread_create(&threads[i], NULL, churn, &from[i]), 0);
    }
    for (int round = 0; round < 100 && begin(16384); round++) {
        for (uint64_t until = now() + PROBING_NS_PER_MS; now() < until;) {
            (void)turn(&s);
        }
        if (!CHECK_INT(sampling_end(), 0))
            break;
        sample_pool_free(slots);
    }
    atomic_store_explicit(&over, true, memory_order_relaxed);
    for (int i = 0; i < 4; i++)
        (void)pthread_join(threads[i], NULL);
    CHECK(s.samples > 100);
    if (begin(16384)) /* all that was held has come back */
        end();
    CHECK_INT(live_count(table), 0);
    CHECK_INT(live_room(table), 1);
}

int main(void)
{
    RUN(what_samples_stand_for_is_what_was_allocated);
    RUN(another_mean_is_heard_of_at_once);
    RUN(a_mean_that_changes_all_the_time_is_as_right);
    RUN(without_a_free_slot_a_sample_has_no_stack);
    RUN(samples_thin_out_where_the_reader_does_not_come);
    RUN(what_thins_out_is_not_biased);
    RUN(what_was_freed_unseen_ends_when_its_address_comes_again);
    RUN(a_block_is_resized_while_sampling_ends_and_begins);
    RUN(resized_blocks);
    RUN(handlers_that_allocate);
    RUN(a_child_samples_nothing_however_it_was_made);
    RUN(it_begins_and_ends_while_threads_allocate);
#if !defined(__SANITIZE_THREAD__) /* it runs handlers in calls of its own, whatever is masked */
    RUN(handlers_that_do_not_return);
    RUN(threads_that_are_cancelled_anywhere);
#else
    (void)test_handlers_that_do_not_return;
    (void)test_threads_that_are_cancelled_anywhere;
#endif
    return test_end();
}
