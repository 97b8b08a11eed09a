/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/report/cuda_suspicions.c - what a report's figures mean: is the host too slow for
 * the device, and what else seems wrong.
 *
 * One thread, of the command; no state.  Each sentence has its figure and what to do.
 */
#include "report.h"

#define HOST_SHARE 0.1   /* of the time idle for the host: from there on it is told */
#define LAUNCH_SHARE 0.5 /* of that the calls that launch take: then it is they */
#define SYNC_SHARE 0.1
#define COPY_SHARE 0.1
#define COLLECTIVE_SHARE 0.2
#define ALLOCATIONS_STEP 1.0 /* calls a step that allocate device memory */
#define ALLOCATION_SHARE 0.02

static double host_share(const struct cuda_report *r)
{
    return cuda_share(r->all.figure[DEVICE_IDLE_HOST], r->all.figure[DEVICE_WALL]);
}

/* While the device waited for the host, how much of that could the calls themselves have been? */
static bool is_launching(const struct cuda_report *r)
{
    return r->all.figure[DEVICE_LAUNCH] >= LAUNCH_SHARE * r->all.figure[DEVICE_IDLE_HOST];
}

static double mean_of(double sum, double n)
{
    return n > 0 ? sum / n : (double)NAN;
}

void cuda_launch_words(const struct cuda_report *r, char *ret, size_t size)
{
    double kernel_us = mean_of(r->kernel_ns, r->kernels) / 1e3;
    double launch_us = mean_of(r->launch_ns, r->launched) / 1e3;
    double queued_us = mean_of(r->queued_ns, r->launched) / 1e3;
    if (!(r->launched > 0))
        (void)snprintf(ret, size, "not known: no call that launches was seen");
    else if (host_share(r) < HOST_SHARE)
        (void)snprintf(ret, size,
                       "no: the device waits for the host %.1f %% of the time; kernels stand in "
                       "its queue for %.1f us on average",
                       100 * host_share(r), queued_us);
    else if (is_launching(r))
        (void)snprintf(ret, size,
                       "yes: the device waits for the host %.1f %% of the time; kernels take %.1f "
                       "us on average, a call that launches one %.1f",
                       100 * host_share(r), kernel_us, launch_us);
    else
        (void)snprintf(ret, size,
                       "no, but host-bound: the device waits for the host %.1f %% of the time, and "
                       "launching is %.1f %%; the rest of it the host does something else",
                       100 * host_share(r),
                       100 * cuda_share(r->all.figure[DEVICE_LAUNCH], r->all.figure[DEVICE_WALL]));
}

__attribute__((format(printf, 2, 3))) static void suspect(struct cuda_report *r, const char *format,
                                                          ...)
{
    va_list args;
    if (r->n_suspicions == CUDA_SUSPICIONS)
        return;
    va_start(args, format);
    (void)vsnprintf(r->suspicions[r->n_suspicions++], sizeof(r->suspicions[0]), format, args);
    va_end(args);
}

static void suspect_host(struct cuda_report *r)
{
    if (host_share(r) < HOST_SHARE || !(r->launched > 0))
        return;
    if (is_launching(r))
        suspect(r, "launch-bound: larger batches, CUDA graphs or torch.compile give the device "
                   "more to do by each call");
    else
        suspect(r, "the host is late: probing flamegraph --mode wall shows what it does between "
                   "launches, probing torch whether it waits for data");
}

static void suspect_waits(struct cuda_report *r)
{
    const double *f = r->all.figure;
    double sync = cuda_share(f[DEVICE_IDLE_SYNC], f[DEVICE_WALL]);
    double copy = cuda_share(f[DEVICE_IDLE_COPY], f[DEVICE_WALL]);
    if (sync >= SYNC_SHARE)
        suspect(r,
                "the device is idle %.1f %% of the time after the host has waited for it%s%s: "
                ".item(), .cpu(), print of a tensor and torch.cuda.synchronize() do that",
                100 * sync, r->n_waits && r->waits[0].module[0] ? ", most in module " : "",
                r->n_waits ? r->waits[0].module : "");
    if (copy >= COPY_SHARE)
        suspect(r,
                "the device is idle %.1f %% of the time after copies for which the host waits: "
                "pin_memory=True and non_blocking=True",
                100 * copy);
    if (cuda_share(f[DEVICE_COLLECTIVE], f[DEVICE_WALL]) >= COLLECTIVE_SHARE)
        suspect(r,
                "%.1f %% of the time only collectives run: they are not overlapped, or wait for "
                "another rank (probing torch says which)",
                100 * cuda_share(f[DEVICE_COLLECTIVE], f[DEVICE_WALL]));
}

static void suspect_memory(struct cuda_report *r)
{
    double pageable = 0, wall = r->all.figure[DEVICE_WALL];
    for (uint32_t i = 0; i < r->n_copies; i++)
        if (strcmp(r->copies[i].from, "pageable") == 0)
            pageable += r->copies[i].total_ns;
    if (cuda_share(pageable, wall) >= COPY_SHARE)
        suspect(r, "copies from pageable memory take %.1f %% of the time: pin_memory=True",
                100 * cuda_share(pageable, wall));
    if ((r->steps >= 1 && r->allocations >= ALLOCATIONS_STEP * r->steps) ||
        cuda_share(r->allocation_ns, wall) >= ALLOCATION_SHARE)
        suspect(r,
                "device memory was allocated by %.0f calls (%.1f ms in all): a caching allocator "
                "does that at the beginning only, or when it is short of memory",
                r->allocations, r->allocation_ns / 1e6);
}

void cuda_suspect(struct cuda_report *r)
{
    suspect_host(r);
    suspect_waits(r);
    suspect_memory(r);
}
