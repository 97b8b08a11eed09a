/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_judge_signs.c - which signs of its process and its host
 * set a rank apart, and which of them say that it slows communication down: see straggler_judge.h.
 *
 * Pure; one thread.
 */
#include <math.h>
#include <stdlib.h>

#include "straggler_frontier.h"

#define LOST_PACKETS (1u << SIGN_NETWORK_BAD | 1u << SIGN_RETRANS)
#define TAKEN_AWAY (1u << SIGN_CPU_THROTTLED | 1u << SIGN_STEAL)
#define PUT_BEHIND (1u << SIGN_NICE | 1u << SIGN_FEW_CPUS)

/* Less is not worth telling. */
static const double least[N_SIGNS] = {[SIGN_CPU_THROTTLED] = 0.01,
                                      [SIGN_CPU_TAKEN] = 100,
                                      [SIGN_CPU_WAIT] = 0.05,
                                      [SIGN_CPU_USED] = 0.2,
                                      [SIGN_PAGE_FAULTS] = 5,
                                      [SIGN_MEMORY_WAIT] = 0.02,
                                      [SIGN_DISK_WAIT] = 0.02,
                                      [SIGN_DISK_READ] = 1e6,
                                      [SIGN_GC] = 0.01,
                                      [SIGN_STOPPED] = 0.02,
                                      [SIGN_NETWORK_BAD] = 1,
                                      [SIGN_RUNQ_WAIT] = JUDGE_RUNQ_WAIT,
                                      [SIGN_NICE] = 1,
                                      [SIGN_FEW_CPUS] = 1,
                                      [SIGN_STEAL] = 0.02,
                                      [SIGN_SWAP] = 1e6,
                                      [SIGN_RETRANS] = 0.001};

static const enum judge_sign of_machine[] = {SIGN_CPU_WAIT,    SIGN_MEMORY_WAIT, SIGN_DISK_WAIT,
                                             SIGN_NETWORK_BAD, SIGN_STEAL,       SIGN_SWAP,
                                             SIGN_RETRANS};

void judge_level_signs(double *signs, const uint32_t *ranks, uint32_t n)
{
    float *of = n > 1 ? calloc(n, sizeof(*of)) : NULL;
    for (size_t i = 0; i < sizeof(of_machine) / sizeof(of_machine[0]) && of != NULL; i++) {
        uint32_t n_known = 0;
        for (uint32_t r = 0; r < n; r++) {
            double value = signs[(size_t)ranks[r] * N_SIGNS + of_machine[i]];
            if (!isnan(value))
                of[n_known++] = (float)value;
        }
        double middle = n_known > 0 ? (double)middle_of(of, n_known) : (double)NAN;
        for (uint32_t r = 0; r < n; r++)
            signs[(size_t)ranks[r] * N_SIGNS + of_machine[i]] = middle;
    }
    free(of);
}

/* Gather the other ranks' values of a sign, where they are known.  room: n_ranks. */
static uint32_t others_of(const double *signs, uint32_t n_ranks, uint32_t rank, int sign,
                          float *room)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < n_ranks; r++) {
        double value = signs[(size_t)r * N_SIGNS + (size_t)sign];
        if (r != rank && !isnan(value))
            room[n++] = (float)value;
    }
    return n;
}

uint32_t judge_signs(const double *signs, uint32_t n_ranks, uint32_t rank)
{
    uint32_t found = 0;
    float *of = signs != NULL && n_ranks > 0 ? calloc(n_ranks, sizeof(*of)) : NULL;
    for (int i = 0; i < N_SIGNS && of != NULL; i++) {
        double own = signs[(size_t)rank * N_SIGNS + (size_t)i];
        uint32_t n = others_of(signs, n_ranks, rank, i, of);
        if (isnan(own) || n == 0)
            continue;
        double middle = middle_of(of, n), sigma = sigma_of(of, n, (float)middle);
        double more = fmax(fmax(least[i], fabs(middle) / 2), JUDGE_LATE_SIGMA * sigma);
        found |= (i == SIGN_FEW_CPUS ? middle - own : own - middle) >= more ? 1u << i : 0;
    }
    free(of);
    bool explained = (found & (TAKEN_AWAY | PUT_BEHIND | 1u << SIGN_RUNQ_WAIT)) != 0;
    return explained ? found & ~(1u << SIGN_STOPPED)
                     : found; /* without a processor it stands, too */
}

/* The longest wait for a processor that another rank has. */
static double longest_other_wait(const double *signs, uint32_t n_ranks, uint32_t rank)
{
    double most = 0;
    for (uint32_t r = 0; r < n_ranks; r++)
        if (r != rank)
            most = fmax(most, signs[(size_t)r * N_SIGNS + SIGN_RUNQ_WAIT]); /* not of a NAN */
    return most;
}

/* Threads cannot wait for more than all of the time: where all ranks wait for most of it, nobody
 * waits half as long again.  So whoever is put behind needs to be the one that waits longest only;
 * and who is not, by far: on a machine where all wait, some wait more by chance. */
static bool waits_most(const double *signs, uint32_t n_ranks, uint32_t rank, bool put_behind)
{
    double own = signs[(size_t)rank * N_SIGNS + SIGN_RUNQ_WAIT];
    double most = longest_other_wait(signs, n_ranks, rank);
    return own >=
           (put_behind ? most + JUDGE_RUNQ_WAIT : fmax(JUDGE_RUNQ_ALONE, JUDGE_RUNQ_GAP * most));
}

bool judge_slows(const double *signs, uint32_t n_ranks, uint32_t rank, bool links_known,
                 struct judge_finding *ret)
{
    uint32_t lost = links_known ? LOST_PACKETS & ~(1u << SIGN_RETRANS) : LOST_PACKETS;
    uint32_t found = judge_signs(signs, n_ranks, rank);
    bool behind = (found & PUT_BEHIND) != 0, most = waits_most(signs, n_ranks, rank, behind);
    bool waits = behind ? most || (found & 1u << SIGN_RUNQ_WAIT) != 0
                        : most && (found & 1u << SIGN_RUNQ_WAIT) != 0;
    ret->kind = found & lost ? LATE_LINK : LATE_STARVED;
    ret->signs = found | (waits ? 1u << SIGN_RUNQ_WAIT : 0);
    return (found & (lost | TAKEN_AWAY)) != 0 || waits;
}
