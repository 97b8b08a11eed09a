/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/unsampled.c - bytes counted by the distance between samples.
 */
#include "unsampled.h"

#include <stdatomic.h>

#include "estimate.h"

#define LEVELS 42u /* distances of 1 byte to SAMPLING_MEAN_MAX, each twice the one before */
#define MILLION 1e6
#define LITTLE 1.01 /* times what was asked for: rounded */

static struct {
    /* Beside samples; and how many were due in them, in millionths. */
    _Atomic uint64_t bytes[LEVELS], due[LEVELS];
    _Atomic uint64_t asked;
    _Atomic uint64_t bytes_before[LEVELS], due_before[LEVELS]; /* unsampled_since() */
} g;

static uint32_t level_of(uint64_t mean)
{
    uint32_t level = 63 - (uint32_t)__builtin_clzll(mean | 1);
    return level < LEVELS ? level : LEVELS - 1;
}

void unsampled_ask(uint64_t mean)
{
    atomic_store_explicit(&g.asked, mean, memory_order_relaxed);
}

void unsampled_begin(void)
{
    for (uint32_t i = 0; i < LEVELS; i++) {
        atomic_store_explicit(&g.bytes[i], 0, memory_order_relaxed);
        atomic_store_explicit(&g.due[i], 0, memory_order_relaxed);
        atomic_store_explicit(&g.bytes_before[i], 0, memory_order_relaxed);
        atomic_store_explicit(&g.due_before[i], 0, memory_order_relaxed);
    }
}

void unsampled_add(uint64_t mean, uint64_t bytes)
{
    uint32_t level = level_of(mean);
    double due = (double)bytes / (double)(mean ? mean : 1) * MILLION;
    (void)atomic_fetch_add_explicit(&g.bytes[level], bytes, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&g.due[level], (uint64_t)due, memory_order_relaxed);
}

/* The most bytes that can be without a sample although one would have been due: those that were
 * allocated at the largest distances. */
static double most_of(const uint64_t *bytes, const uint64_t *due)
{
    double asked = (double)atomic_load_explicit(&g.asked, memory_order_relaxed), most = 0, left = 1;
    for (uint32_t i = LEVELS; i > 0 && left > 0; i--) {
        double all = (double)due[i - 1] / MILLION, share = all > left ? left / all : 1;
        most += share * (double)bytes[i - 1];
        left -= share * all;
    }
    return most < LITTLE * asked ? 0 : estimate_root(most * most - asked * asked);
}

double unsampled_bytes(void)
{
    uint64_t bytes[LEVELS], due[LEVELS];
    for (uint32_t i = 0; i < LEVELS; i++) {
        bytes[i] = atomic_load_explicit(&g.bytes[i], memory_order_relaxed);
        due[i] = atomic_load_explicit(&g.due[i], memory_order_relaxed);
    }
    return most_of(bytes, due);
}

/* 0 where another thread begins anew meanwhile. */
static uint64_t count_since(_Atomic uint64_t *count, _Atomic uint64_t *before, bool begin_anew)
{
    uint64_t all = atomic_load_explicit(count, memory_order_relaxed);
    uint64_t then = atomic_load_explicit(before, memory_order_relaxed);
    if (begin_anew)
        atomic_store_explicit(before, all, memory_order_relaxed);
    return all > then ? all - then : 0;
}

double unsampled_since(bool begin_anew)
{
    uint64_t bytes[LEVELS], due[LEVELS];
    for (uint32_t i = 0; i < LEVELS; i++) {
        bytes[i] = count_since(&g.bytes[i], &g.bytes_before[i], begin_anew);
        due[i] = count_since(&g.due[i], &g.due_before[i], begin_anew);
    }
    return most_of(bytes, due);
}
