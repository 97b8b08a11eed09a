/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/empty_reason.c - why a table of this plugin has no rows, for whoever has asked for
 * them.
 *
 * Threads: workers, without the GIL: what is read here is _Atomic, or under the settings' lock.
 */
#include "declarations.h"

#include <errno.h>
#include <stdio.h>

#include "dist/collective.h"
#include "steps/step.h"

#define NO_STEP                                                                                \
    "no step has ended since the torch plugin was loaded: optimizer.step() or probing.step() " \
    "ends one"

static uint64_t steps_seen(void)
{
    return __atomic_load_n(&steps.step, __ATOMIC_RELAXED) -
           __atomic_load_n(&steps.first_step, __ATOMIC_RELAXED);
}

static int put_reason(char *text, uint32_t size, const char *why)
{
    (void)snprintf(text, size, "%s", why);
    return 0;
}

static int why_variables(const struct settings *set, char *text, uint32_t size)
{
    if (!set->exprs[0])
        return put_reason(text, size,
                          "torch.variables is empty: config torch.variables=loss,lr,grad_norm");
    if (set->rate <= 0 && !set->every && !set->exprs_chosen)
        return put_reason(
            text, size,
            "torch.profiling is off: config torch.profiling=on, or name what to keep in "
            "torch.variables");
    if (steps_seen() == 0)
        return put_reason(text, size, NO_STEP);
    (void)snprintf(text, size,
                   "none of torch.variables (%.150s) was there at the end of %llu steps",
                   set->exprs, (unsigned long long)steps_seen());
    return 0;
}

static int why_trace(const struct settings *set, char *text, uint32_t size)
{
    if (set->rate <= 0 && !set->every)
        return put_reason(
            text, size, "torch.profiling is off (torch.sample_rate=0): config torch.profiling=on");
    if (set->layers[0]) {
        (void)snprintf(text, size,
                       "none of torch.modules (%.150s) has been called since the torch plugin was "
                       "loaded",
                       set->layers);
        return 0;
    }
    return put_reason(
        text, size,
        "no module of torch has been called and no optimizer has stepped since the torch "
        "plugin was loaded");
}

static int why_timing(const struct settings *set, char *text, uint32_t size)
{
    (void)set;
    if (steps_seen() == 0)
        return put_reason(text, size, NO_STEP);
    return put_reason(
        text, size,
        "one step has ended since the torch plugin was loaded, and its begin was not seen; "
        "times are known from the second step on");
}

static int why_device(const struct settings *set, char *text, uint32_t size)
{
    return put_reason(text, size,
                      set->device_times
                          ? "no work on a GPU was measured: CUDA is not in use, or what was "
                            "queued has not ended"
                          : "torch.device_times is off: config torch.device_times=on");
}

static int why_comm(const struct settings *set, char *text, uint32_t size)
{
    (void)set;
    return put_reason(
        text, size,
        "no operation of torch.distributed has been called from Python since the torch "
        "plugin was loaded (what DDP's C++ starts is in python.ddp_timing)");
}

static int why_ddp(const struct settings *set, char *text, uint32_t size)
{
    (void)set;
    return put_reason(text, size, "no DistributedDataParallel has reported an iteration");
}

static int why_stuck(const struct settings *set, char *text, uint32_t size)
{
    (void)set;
    uint32_t limit_s = atomic_load_explicit(&dist.timeout_s, memory_order_relaxed);
    if (limit_s == 0)
        return put_reason(text, size, "torch.comm_timeout is 0, so nothing is reported");
    (void)snprintf(text, size, "no operation of a process group has waited for %u s", limit_s);
    return 0;
}

static int why_capture(const struct settings *set, char *text, uint32_t size)
{
    (void)set;
    return put_reason(text, size, "nothing was captured; run probing torch profile");
}

static int why_tensors(const struct settings *set, char *text, uint32_t size)
{
    (void)set;
    return put_reason(text, size, "no tensor is alive that Python knows");
}

static int why_blocks(const struct settings *set, char *text, uint32_t size)
{
    (void)set;
    return put_reason(
        text, size,
        "torch's caching allocator has no block here (memory.torch_allocator says why)");
}

static int why_loaders(const struct settings *set, char *text, uint32_t size)
{
    (void)set;
    return put_reason(text, size, "no DataLoader with workers is being iterated");
}

int empty_why(void *self, const char *table, char *text, uint32_t size)
{
    static const struct {
        const char *table;
        int (*why)(const struct settings *set, char *text, uint32_t size);
    } all[] = {
        {"python.variables", why_variables},
        {"python.torch_trace", why_trace},
        {"python.torch_step_timing", why_timing},
        {"python.torch_device_time", why_device},
        {"python.comm_collective", why_comm},
        {"python.ddp_timing", why_ddp},
        {"python.comm_stuck", why_stuck},
        {"torch.ops", why_capture},
        {"torch.capture", why_capture},
        {"torch.loaders", why_loaders},
        {"memory.torch", why_tensors},
        {"memory.torch_blocks", why_blocks},
    };
    struct settings set;
    (void)self;
    settings_take_over(&set);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(table, all[i].table) == 0)
            return all[i].why(&set, text, size);
    return -ENOENT;
}
