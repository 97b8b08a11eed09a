/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/clock.c - the cycle counter, turned into CLOCK_MONOTONIC by a line redrawn often.
 *
 * ns = offset + counter * rate.  clock_calibrate() measures where the kernel's clock is and draws
 * the next line from where the last one stands now, steered to meet the kernel two seconds later:
 * time never goes back by calibration.  Lines are numbered, and odd and even ones take turns in two
 * places: a reader whose line is no longer the last when it has read it asks the kernel instead.
 * Nobody spins, so signal handlers may read.
 */
#include "core/base/clock.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define CALIBRATE_FIRST (50 * NS_PER_MS) /* ns: shortest measure that gives a rate good to 1e-6 */
#define CALIBRATE_EACH (500 * NS_PER_MS) /* ns: more often adds noise, not truth */
#define MEET_S 2 /* seconds: no less than what goes by until the next look, or it swings about it */
#define OFF_TOO_FAR (NS_PER_MS / 2) /* ns: so wrong a counter was stopped or moved */
#if defined(__x86_64__)
#define RATE_SHIFT 64 /* so that a product's upper half are ns: counters of more than 1 GHz */
#else
#define RATE_SHIFT 58 /* more than 16 MHz; aarch64 has 19 MHz to 1 GHz */
#endif
#define RATE_MOST ((unsigned __int128)UINT64_MAX)

struct line {
    _Atomic uint64_t offset; /* ns where the counter is 0, which may lie before time began */
    _Atomic uint64_t rate;   /* ns per count, times 2^RATE_SHIFT */
};

_Static_assert(CLOCK_REALTIME == 0 && CLOCK_MONOTONIC == 1, "they index moved[]");

struct anchor {
    uint64_t counter, ns;
};

/* Written by the calibrating thread only. */
static struct {
    _Alignas(64) _Atomic uint64_t number; /* of the last line, never twice; 0: ask the kernel */
    struct line lines[2];                 /* at number % 2 */
} drawn;
static uint64_t last_number;       /* calibrating thread only */
static _Atomic int64_t utc_offset; /* 0: not yet taken */
static struct anchor first;        /* calibrating thread only; counter 0: none */
static _Atomic int64_t moved[2];   /* clock_move(): CLOCK_REALTIME, CLOCK_MONOTONIC */
static int8_t counter_is_safe;     /* calibrating thread only; 0: not asked, 1 yes, -1 no */

#if defined(__x86_64__)
static inline uint64_t counter_read(void)
{
    return __rdtsc();
}
#elif defined(__aarch64__)
static inline uint64_t counter_read(void)
{
    uint64_t value;
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(value));
    return value;
}
#else
static inline uint64_t counter_read(void)
{
    return 0; /* never used: ask_counter() says no */
}
#endif

static uint64_t kernel_ns(clockid_t clock)
{
    struct timespec t = {0};
    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec +
           (uint64_t)atomic_load_explicit(&moved[clock], memory_order_relaxed);
}

/* Apart, so that clock_now() needs no stack. */
__attribute__((noinline)) uint64_t clock_monotonic(void)
{
    return kernel_ns(CLOCK_MONOTONIC);
}

static inline uint64_t ns_of(uint64_t counter, uint64_t rate)
{
    return (uint64_t)((unsigned __int128)counter * rate >> RATE_SHIFT);
}

uint64_t clock_now(void)
{
    uint64_t number = atomic_load_explicit(&drawn.number, memory_order_acquire);
    const struct line *l = &drawn.lines[number & 1];
    /* Acquire, so that the second look at the number comes after these on every processor. */
    uint64_t offset = atomic_load_explicit(&l->offset, memory_order_acquire);
    uint64_t rate = atomic_load_explicit(&l->rate, memory_order_acquire);
    uint64_t counter = counter_read();
    if (number == 0 || atomic_load_explicit(&drawn.number, memory_order_relaxed) != number)
        return clock_monotonic();
    return offset + ns_of(counter, rate);
}

/* Does the first `limit` bytes of a file hold the word? */
static bool file_has(const char *path, const char *word, bool whole)
{
    char text[16384];
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return false;
    while (n < sizeof(text) - 1) {
        ssize_t got = read(fd, text + n, sizeof(text) - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    (void)close(fd);
    text[n] = '\0';
    if (whole)
        return strncmp(text, word, strlen(word)) == 0 && text[strlen(word)] == '\n';
    return strstr(text, word) != NULL;
}

static bool ask_counter(void)
{
#if defined(__x86_64__)
    return file_has("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc",
                    true) &&
           file_has("/proc/cpuinfo", " constant_tsc", false) &&
           file_has("/proc/cpuinfo", " nonstop_tsc", false);
#elif defined(__aarch64__)
    return file_has("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                    "arch_sys_counter", true);
#else
    return false;
#endif
}

/* Counter and kernel clock at one moment: the tightest of some tries. */
static struct anchor measure_anchor(void)
{
    struct anchor best = {0};
    uint64_t best_width = UINT64_MAX;
    for (int i = 0; i < 8; i++) {
        uint64_t before = counter_read();
        uint64_t ns = clock_monotonic();
        uint64_t width = counter_read() - before;
        if (width < best_width) {
            best_width = width;
            best = (struct anchor){.counter = before + width / 2, .ns = ns};
        }
    }
    return best;
}

static void draw_line(uint64_t counter, uint64_t ns, uint64_t rate)
{
    struct line *l = &drawn.lines[++last_number & 1];
    /* Release: whoever sees a new field also sees, on its second look, that the line which was here
     * is not the last. */
    atomic_store_explicit(&l->offset, ns - ns_of(counter, rate), memory_order_release);
    atomic_store_explicit(&l->rate, rate, memory_order_release);
    atomic_store_explicit(&drawn.number, last_number, memory_order_release);
}

/* The time by the line in use at a counter value. */
static uint64_t stands_at(uint64_t counter)
{
    const struct line *l = &drawn.lines[last_number & 1];
    return atomic_load_explicit(&l->offset, memory_order_relaxed) +
           ns_of(counter, atomic_load_explicit(&l->rate, memory_order_relaxed));
}

static void start_over(struct anchor now)
{
    atomic_store_explicit(&drawn.number, 0, memory_order_release);
    first = now;
}

void clock_calibrate(void)
{
    if (counter_is_safe == 0)
        counter_is_safe = ask_counter() ? 1 : -1;
    if (counter_is_safe < 0)
        return;
    struct anchor now = measure_anchor();
    bool running = atomic_load_explicit(&drawn.number, memory_order_relaxed) != 0;
    if (first.counter == 0) {
        first = now;
        return;
    }
    uint64_t passed = now.ns - first.ns;
    if (passed < (running ? CALIBRATE_EACH : CALIBRATE_FIRST))
        return;
    if (now.counter <= first.counter) {
        start_over(now);
        return;
    }
    unsigned __int128 rate =
        ((unsigned __int128)passed << RATE_SHIFT) / (now.counter - first.counter);
    uint64_t ns = now.ns;
    if (running) {
        ns = stands_at(now.counter);
        int64_t behind = (int64_t)(now.ns - ns);
        if (behind > (int64_t)OFF_TOO_FAR || behind < -(int64_t)OFF_TOO_FAR) {
            start_over(now);
            return;
        }
        rate += (unsigned __int128)((__int128)(rate / (MEET_S * NS_PER_S)) * behind);
    }
    if (rate > RATE_MOST) { /* a counter too slow */
        start_over(now);
        return;
    }
    draw_line(now.counter, ns, (uint64_t)rate);
    if (running)
        first = now;
}

void clock_move(int64_t monotonic_ns, int64_t utc_ns)
{
    atomic_store_explicit(&moved[CLOCK_MONOTONIC], monotonic_ns, memory_order_relaxed);
    atomic_store_explicit(&moved[CLOCK_REALTIME], utc_ns, memory_order_relaxed);
}

void clock_utc_offset_keep(int64_t offset)
{
    atomic_store_explicit(&utc_offset, offset, memory_order_release);
}

/* The tightest of some looks: whoever is held up between two clocks has read two moments. */
static int64_t measure_utc(void)
{
    uint64_t least = UINT64_MAX;
    int64_t best = 0;
    for (int i = 0; i < 4; i++) {
        uint64_t before = clock_monotonic();
        uint64_t utc = kernel_ns(CLOCK_REALTIME);
        uint64_t width = clock_monotonic() - before;
        if (width < least) {
            least = width;
            best = (int64_t)(utc - (before + width / 2));
        }
    }
    return best;
}

int64_t clock_utc_offset(void)
{
    int64_t offset = atomic_load_explicit(&utc_offset, memory_order_acquire);
    if (offset)
        return offset;
    int64_t fresh = measure_utc();
    if (atomic_compare_exchange_strong_explicit(&utc_offset, &offset, fresh, memory_order_acq_rel,
                                                memory_order_acquire))
        return fresh;
    return offset;
}
