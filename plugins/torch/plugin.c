/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/plugin.c - the torch plugin: its tables, and its life in the process.
 *
 * Threads: [control] for what the core calls.  install.c has what is done to torch.
 */
#include <probing/ext/draft/empty.h>
#include <probing/ext/draft/python.h>
#include <probing/ext/draft/torch_step.h>

#include "declarations.h"
#include "dist/collective.h"
#include "install.h"
#include "memory/tensor_look.h"
#include "module_calls/module_calls.h"
#include "plugin_files.h"
#include "profiler/profile_run.h"
#include "settings.h"
#include "steps/dataloader.h"
#include "steps/loop_table.h"
#include "steps/recent_calls.h"
#include "steps/step.h"
#include "variables/variable_rows.h"

#define GIL_WAIT_NS (5 * PROBING_NS_PER_S) /* below the core's own limit, plugin_timeout */
#define LOOK_NS PROBING_NS_PER_S

/* Runs fn(ret_why) with the GIL; -errno: *ret_why says why, and lives for ever. */
static int call_with_gil(int (*fn)(void *), const char **ret_why)
{
    const struct probing_host *h = torch_state.host;
    const struct probing_python_gil_1 *gil = h->extension(h, PROBING_PYTHON_GIL_1);
    if (!gil)
        return torch_refuse(ret_why, -ENOENT,
                            "plugin python is not loaded (plugin load python) or found "
                            "no Python here");
    int rc = gil->call(fn, ret_why, GIL_WAIT_NS);
    if (rc == -ETIMEDOUT)
        return torch_refuse(ret_why, rc,
                            "no thread of the program gave up the GIL for 5 s (backtrace "
                            "shows which holds it)");
    if (rc == -ENODEV && !*ret_why)
        return torch_refuse(ret_why, rc,
                            "no Python interpreter runs in this process yet, or it is ending");
    return rc;
}

static void inspect_each_second(void *self, uint64_t now_ns)
{
    stuck_inspect(self, now_ns);
    loop_inspect(now_ns);
}

static int start_plugin(void *self)
{
    (void)self;
    const struct probing_host *h = torch_state.host;
    const char *why = NULL;
    int rc = call_with_gil(install_do, &why);
    /* The program begins, or one of its threads keeps the GIL, as torch 1.13's does while it waits
     * for other ranks: tried again, as before `import torch`. */
    if (rc == -ENODEV || rc == -ETIMEDOUT)
        rc = -EAGAIN;
    if (rc < 0)
        return h->fail(h, rc, why ? why : "the hooks could not be put in");
    settings_begin();
    if (h->every(h, LOOK_NS, inspect_each_second) < 0)
        h->log(h, PROBING_WARN, "torch: no timer is left: operations that wait are not told");
    return 0;
}

/* Not while a thread is in the middle of something; -EAGAIN then.  With the GIL. */
static int undo_install(void *unused)
{
    return torch_state.at_work > 0 ? -EAGAIN : install_undo(unused);
}

static int undo_when_idle(const char **ret_why)
{
    uint64_t until = probing_clock_ns(CLOCK_MONOTONIC) + GIL_WAIT_NS;
    int rc;
    while ((rc = call_with_gil(undo_install, ret_why)) == -EAGAIN &&
           probing_clock_ns(CLOCK_MONOTONIC) < until)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return rc == -EAGAIN ? torch_refuse(ret_why, -EBUSY,
                                        "a thread is in the middle of a step's end, and "
                                        "does not come out of it: Python code that runs "
                                        "there waits (backtrace shows it)")
                         : rc;
}

static int stop_plugin(void *self)
{
    (void)self;
    const struct probing_host *h = torch_state.host;
    const char *why = NULL;
    if (capture_quit() < 0)
        return h->fail(h, -EBUSY,
                       "torch's profiler runs for `torch profile`, and the step at "
                       "whose end it stops does not end");
    atomic_store_explicit(&torch_state.on, false, memory_order_relaxed);
    int rc = undo_when_idle(&why);
    if (rc == -ENODEV) /* the interpreter has gone, and the hooks with it */
        return 0;
    if (rc < 0)
        return h->fail(h, -EBUSY, why ? why : "the hooks could not be taken out");
    if (rc > 0)
        h->log(h, PROBING_WARN,
               "torch: something has wrapped our hooks since; there they stay and "
               "only pass calls on");
    return 0;
}

static int configure_plugin(void *self, const char *name, const char *value)
{
    (void)self;
    return settings_configure(name, value);
}

static int init_plugin(const struct probing_host *h, void **ret_self)
{
    static struct probing_table *computed;
    static const struct {
        const struct probing_table_desc *desc;
        struct probing_table **ret;
    } tables[] = {
        {&trace_table, &steps.trace},   {&timing_table, &steps.timing},
        {&comm_table, &dist.comm},      {&variables_table, &variables.table},
        {&device_table, &device_times}, {&data_table, &computed},
        {&recorder_table, &computed},   {&groups_table, &computed},
        {&loop_table, &computed},       {&stuck_table, &dist.stuck},
        {&ddp_table, &dist.ddp},        {&snapshot_table, &dist.snapshot},
        {&ops_table, &computed},        {&waiting_table, &computed},
        {&capture_table, &computed},    {&modules_table, &computed},
        {&gradients_table, &computed},  {&tensor_table, &computed},
        {&allocator_table, &computed},  {&block_table, &computed},
    };
    files_take(h);
    torch_state.host = h;
    torch_state.now = h->now;
    torch_state.append = h->append;
    settings_init();
    int rc = 0;
    for (size_t i = 0; i < PROBING_LENGTH(tables) && rc == 0; i++) {
        rc = h->table(h, tables[i].desc, tables[i].ret);
        if (rc < 0)
            return probing_failf(h, rc, "the table %s could not be made", tables[i].desc->name);
    }
    if ((rc = h->command(h, &trace_command)) < 0)
        return h->fail(h, rc, "the command torch_profile could not be made");
    *ret_self = &torch_state;
    return 0;
}

static void forked_plugin(void *self, int phase)
{
    (void)self;
    if (phase != PROBING_FORK_CHILD)
        return;
    atomic_store_explicit(&torch_state.on, false, memory_order_relaxed);
    steps.counts = false;    /* it has tables of its own */
    torch_state.at_work = 0; /* others' threads are not here */
}

static void destroy_plugin(void *self)
{
    (void)self; /* stop_plugin() has given everything back */
}

static int64_t step_now(void)
{
    if (!atomic_load_explicit(&torch_state.on, memory_order_relaxed))
        return -1;
    return (int64_t)__atomic_load_n(&steps.step, __ATOMIC_RELAXED);
}

static const void *find_extension(void *self, const char *id)
{
    static const struct probing_torch_step_1 part = {.size = sizeof(part), .now = step_now};
    static const struct probing_empty_1 empty = {.size = sizeof(empty), .why = empty_why};
    (void)self;
    return strcmp(id, PROBING_TORCH_STEP_1) == 0    ? (const void *)&part
           : strcmp(id, PROBING_TORCH_PLACE_1) == 0 ? (const void *)&recent_part
           : strcmp(id, PROBING_EMPTY_1) == 0       ? &empty
                                                    : NULL;
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(probing_plugin_v1),
    .abi = PROBING_ABI,
    .name = "torch",
    .version = PROBING_VERSION,
    .doc = "times of every module and optimizer step, without changing the training code",
    .config = settings_table,
    .config_size = sizeof(struct probing_config),
    .init = init_plugin,
    .configure = configure_plugin,
    .start = start_plugin,
    .stop = stop_plugin,
    .fork = forked_plugin,
    .destroy = destroy_plugin,
    .extension = find_extension,
    .declares = &torch_declares,
};
