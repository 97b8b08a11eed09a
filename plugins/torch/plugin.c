/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/plugin.c - the torch plugin: its tables, and its life in the process.
 *
 * Threads: [control] for what the core calls.  What it does to torch is in install.c.
 */
#include "device/device.h"
#include "dist/collective.h"
#include "install.h"
#include "memory/tensor_look.h"
#include "profiler/profile_run.h"
#include "python/pyobject.h"
#include "steps/recent_calls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <probing/ext/draft/empty.h>
#include <probing/ext/draft/python.h>
#include <probing/ext/draft/torch_step.h>

#include "plugin_files.h"

#define GIL_WAIT_NS (5 * PROBING_NS_PER_S) /* below the core's own limit, plugin_timeout */
#define LONGEST_REASON 200
#define LOOK_NS PROBING_NS_PER_S

static const struct probing_column trace_columns[N_TRACE] = {
    COORDINATE_COLUMNS,
    PROBING_I64_COLUMN(
        "seq", PROBING_COUNT,
        "number of the call in this step, from 0, in the order in which calls began"),
    PROBING_STR_COLUMN("module",
                       "name as in named_modules(); for a root its class or an optimizer"),
    PROBING_STR_COLUMN(
        "stage", "what has ended: 'post forward', 'recomputed forward' (inside a backward, as a "
                 "checkpoint's), 'post backward', 'post step', 'skipped step' (a GradScaler's, "
                 "after an overflow) or 'post data' (a DataLoader's next())"),
    PROBING_F64_COLUMN("duration", PROBING_SECONDS,
                       "time inside the call; on a GPU until its work is queued; for a recomputed "
                       "forward until the checkpoint had what it needs"),
    PROBING_F64_COLUMN("time_offset", PROBING_SECONDS,
                       "time from the begin of the step to the end of this call"),
    PROBING_STR_COLUMN("device", "device of the module's first own parameter; NULL: it has none"),
    PROBING_F64_COLUMN("allocated", PROBING_MB,
                       "device memory in use; NULL: not measured, as without a GPU"),
    PROBING_F64_COLUMN("allocated_delta", PROBING_MB,
                       "change of `allocated` by this call; NULL: not measured"),
    PROBING_F64_COLUMN("max_allocated", PROBING_MB, "peak of it; NULL: not measured"),
    PROBING_F64_COLUMN("max_allocated_delta", PROBING_MB,
                       "change of the peak by this call; NULL: not measured"),
    PROBING_F64_COLUMN("cached", PROBING_MB,
                       "device memory held by torch's allocator; NULL: not measured"),
    PROBING_F64_COLUMN("max_cached", PROBING_MB, "peak of it; NULL: not measured"),
};

static const struct probing_column timing_columns[N_TIMING] = {
    COORDINATE_COLUMNS,
    PROBING_F64_COLUMN("step_duration_sec", PROBING_SECONDS,
                       "time from the end of the previous step to the end of this one"),
    PROBING_F64_COLUMN(
        "forward_sec", PROBING_SECONDS,
        "time in top-level forward passes; in training, those of modules in training mode"),
    PROBING_F64_COLUMN(
        "backward_sec", PROBING_SECONDS,
        "time in Tensor.backward() and in autograd's engine when it is called otherwise, such as "
        "by torch.autograd.grad(); on a GPU until the work is queued; without waiting for other "
        "ranks (comm_sec)"),
    PROBING_F64_COLUMN("optimizer_sec", PROBING_SECONDS,
                       "time in step() of optimizers and GradScalers"),
    PROBING_F64_COLUMN("dataloader_sec", PROBING_SECONDS,
                       "time spent waiting in next() of DataLoaders"),
    PROBING_F64_COLUMN(
        "comm_sec", PROBING_SECONDS,
        "time in operations of torch.distributed that Python calls, and waiting for them; without "
        "the Python code of torch.distributed around them, 5 to 20 us each; and what a backward "
        "waits for other ranks when its gradients are computed (DDP, not on a GPU)"),
    PROBING_F64_COLUMN("other_sec", PROBING_SECONDS,
                       "the rest of the step, so that the parts add up"),
    PROBING_F64_COLUMN("evaluation_sec", PROBING_SECONDS,
                       "part of other_sec: calls of models outside of training, as a validation "
                       "makes them"),
    PROBING_F64_COLUMN("overhead_sec", PROBING_SECONDS,
                       "cost of probing itself, measured on one module call in 61"),
    PROBING_I64_COLUMN("sampled", PROBING_PLAIN, "1: this step has rows in python.torch_trace"),
    PROBING_F64_COLUMN("sample_rate", PROBING_PLAIN, "share of the steps that are to have rows"),
    PROBING_STR_COLUMN("step_end",
                       "what ended the step: optimizer, backward (followed by a forward, without "
                       "an optimizer), forward (a second one of the model) or probing.step"),
    PROBING_I64_COLUMN("is_shadow", PROBING_PLAIN,
                       "1: the step has no rows, to measure what rows cost (torch.baseline_every)"),
    PROBING_I64_COLUMN("shadow_normal", PROBING_COUNT,
                       "number of steps between two shadow steps; NULL: there are none"),
    PROBING_I64_COLUMN("shadow_baseline", PROBING_COUNT,
                       "number of consecutive shadow steps; NULL: there are none"),
    PROBING_STR_COLUMN(
        "sample_mode",
        "how the steps with rows are chosen: every (one in this many) or rate (a share)"),
};

struct torch torch_state;           /* lock: see internal.h */
static char reason[LONGEST_REASON]; /* lock: start() and stop() come one at a time */

int plugin_refuse(int code, const char *text)
{
    (void)snprintf(reason, sizeof(reason), "%s", text);
    return code;
}

/* ---- without a host ---- */

static uint64_t no_now(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

static void no_log(const struct probing_host *h, int level, const char *text)
{
    (void)h;
    (void)level;
    (void)text;
}

static int no_table(const struct probing_table *t)
{
    (void)t;
    return 0;
}

static int no_append(struct probing_table *t, uint64_t ts, const union probing_cell *cells,
                     uint32_t n, const void *tail, uint32_t tail_n)
{
    (void)t;
    (void)ts;
    (void)cells;
    (void)n;
    (void)tail;
    (void)tail_n;
    return -ESHUTDOWN;
}

static int no_intern(const struct probing_host *h, const void *p, size_t n, uint64_t *ret_id)
{
    (void)h;
    (void)p;
    (void)n;
    (void)ret_id;
    return -ESHUTDOWN;
}

static int no_emit(struct probing_rows *out, const union probing_cell *cells, uint32_t n)
{
    (void)out;
    (void)cells;
    (void)n;
    return -ESHUTDOWN;
}

static const void *no_extension(const struct probing_host *h, const char *id)
{
    (void)h;
    (void)id;
    return NULL;
}

/* A call in flight may still ask when we have ended, and the core with us. */
static const struct probing_host no_host = {.size = sizeof(no_host),
                                            .abi = PROBING_ABI,
                                            .version = "",
                                            .log = no_log,
                                            .wanted = no_table,
                                            .append = no_append,
                                            .intern = no_intern,
                                            .emit = no_emit,
                                            .now = no_now,
                                            .extension = no_extension};

void plugin_leave_host(void)
{
    torch_state.host = &no_host;
    torch_state.now = no_now;
    torch_state.append = no_append;
}

void plugin_reset_rows(void)
{
    struct torch *s = &torch_state;
    for (int i = 0; i < N_TRACE; i++)
        s->row[i] = probing_null(trace_columns[i].type);
    coordinates_begin(s->host->extension(s->host, PROBING_PYTHON_COORDINATES_1));
    static const char *const stages[N_STAGES] = {
        [STAGE_FORWARD] = "post forward",   [STAGE_RECOMPUTED] = "recomputed forward",
        [STAGE_BACKWARD] = "post backward", [STAGE_STEP] = "post step",
        [STAGE_SKIPPED] = "skipped step",   [STAGE_DATA] = "post data"};
    static const char *const steppers[N_STEPPERS] = {
        "", [STEPPER_FORWARD] = "forward", [STEPPER_BACKWARD] = "backward",
        [STEPPER_OPTIMIZER] = "optimizer", [STEPPER_CALL] = "probing.step"};
    for (int i = 0; i < N_STAGES; i++)
        s->stages[i] = object_intern(stages[i]);
    for (int i = 0; i < N_STEPPERS; i++)
        s->steppers[i] = object_intern(steppers[i]);
    s->hooked = 0;
    s->stepper = STEPPER_NONE;
    s->has_optimizer = s->has_ddp = false;
    s->last_optimizer = NULL;
    s->sample_debt = 1;                    /* the first step has rows */
    s->step = s->counts ? s->step + 1 : 0; /* of another load rows are there already */
    __atomic_store_n(&s->first_step, s->step, __ATOMIC_RELAXED); /* empty_reason.c asks */
    s->counts = true;
    s->backwards = 0;
    s->loop.thread = NULL;
    s->loop.tid = 0;
    step_begin(0);
}

static int with_gil(int (*fn)(void *))
{
    const struct probing_host *h = torch_state.host;
    const struct probing_python_gil_1 *gil = h->extension(h, PROBING_PYTHON_GIL_1);
    if (!gil)
        return plugin_refuse(-ENOENT, "plugin python is not loaded (plugin load python) or found "
                                      "no Python here");
    int rc = gil->call(fn, NULL, GIL_WAIT_NS);
    if (rc == -ETIMEDOUT)
        return plugin_refuse(rc, "no thread of the program gave up the GIL for 5 s (backtrace "
                                 "shows which holds it)");
    if (rc == -ENODEV && !reason[0])
        return plugin_refuse(rc, "no Python interpreter runs in this process yet, or it is ending");
    return rc;
}

static void look(void *self, uint64_t now_ns)
{
    stuck_inspect(self, now_ns);
    loop_inspect(now_ns);
}

static int start(void *self)
{
    (void)self;
    const struct probing_host *h = torch_state.host;
    reason[0] = '\0';
    int rc = with_gil(install_do);
    /* The program begins, or one of its threads keeps the GIL, as torch 1.13's does while it waits
     * for other ranks: tried again, as before `import torch`. */
    if (rc == -ENODEV || rc == -ETIMEDOUT)
        rc = -EAGAIN;
    if (rc < 0)
        return h->fail(h, rc, reason[0] ? reason : "the hooks could not be put in");
    settings_begin();
    if (h->every(h, LOOK_NS, look) < 0)
        h->log(h, PROBING_WARN, "torch: no timer is left: operations that wait are not told");
    return 0;
}

/* Not while a thread is in the middle of something; -EAGAIN then.  With the GIL. */
static int undo(void *unused)
{
    return torch_state.at_work > 0 ? -EAGAIN : install_undo(unused);
}

static int undo_when_idle(void)
{
    uint64_t until = probing_clock_ns(CLOCK_MONOTONIC) + GIL_WAIT_NS;
    int rc;
    while ((rc = with_gil(undo)) == -EAGAIN && probing_clock_ns(CLOCK_MONOTONIC) < until)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return rc == -EAGAIN ? plugin_refuse(-EBUSY, "a thread is in the middle of a step's end, and "
                                                 "does not come out of it: Python code that runs "
                                                 "there waits (backtrace shows it)")
                         : rc;
}

static int stop(void *self)
{
    (void)self;
    const struct probing_host *h = torch_state.host;
    reason[0] = '\0';
    if (capture_quit() < 0)
        return h->fail(h, -EBUSY,
                       "torch's profiler runs for `torch profile`, and the step at "
                       "whose end it stops does not end");
    atomic_store_explicit(&torch_state.on, false, memory_order_relaxed);
    int rc = undo_when_idle();
    if (rc == -ENODEV) /* the interpreter has gone, and the hooks with it */
        return 0;
    if (rc < 0)
        return h->fail(h, -EBUSY, reason);
    if (rc > 0)
        h->log(h, PROBING_WARN,
               "torch: something has wrapped our hooks since; there they stay and "
               "only pass calls on");
    return 0;
}

static int configure(void *self, const char *name, const char *value)
{
    (void)self;
    return settings_configure(name, value);
}

static int init(const struct probing_host *h, void **ret_self)
{
    static const struct probing_table_desc trace = PROBING_TABLE(
        "python.torch_trace", trace_columns, "every call of every torch module and optimizer");
    static const struct probing_table_desc timing = PROBING_TABLE(
        "python.torch_step_timing", timing_columns, "parts of the time of each training step");
    files_take(h);
    torch_state.host = h;
    torch_state.now = h->now;
    torch_state.append = h->append;
    settings_init();
    int rc = h->table(h, &trace, &torch_state.trace);
    if (rc < 0)
        return h->fail(h, rc, "the table python.torch_trace could not be made");
    rc = h->table(h, &timing, &torch_state.timing);
    if (rc < 0)
        return h->fail(h, rc, "the table python.torch_step_timing could not be made");
    struct probing_table *computed;
    if ((rc = h->table(h, &comm_table, &torch_state.comm)) < 0 ||
        (rc = h->table(h, &variables_table, &torch_state.variables)) < 0 ||
        (rc = h->table(h, &device_table, &torch_state.device_time)) < 0 ||
        (rc = h->table(h, &data_table, &computed)) < 0 ||
        (rc = h->table(h, &recorder_table, &computed)) < 0 ||
        (rc = h->table(h, &groups_table, &computed)) < 0 ||
        (rc = h->table(h, &loop_table, &computed)) < 0 ||
        (rc = h->table(h, &stuck_table, &torch_state.stuck)) < 0 ||
        (rc = h->table(h, &ddp_table, &torch_state.ddp)) < 0 ||
        (rc = h->table(h, &snapshot_table, &torch_state.snapshot)) < 0 ||
        (rc = h->table(h, &ops_table, &computed)) < 0 ||
        (rc = h->table(h, &waiting_table, &computed)) < 0 ||
        (rc = h->table(h, &capture_table, &computed)) < 0 ||
        (rc = h->table(h, &modules_table, &computed)) < 0 ||
        (rc = h->table(h, &gradients_table, &computed)) < 0 ||
        (rc = h->table(h, &tensor_table, &computed)) < 0 ||
        (rc = h->table(h, &allocator_table, &computed)) < 0 ||
        (rc = h->table(h, &block_table, &computed)) < 0 || (rc = h->command(h, &trace_command)) < 0)
        return h->fail(h, rc, "a table of torch's could not be made");
    *ret_self = &torch_state;
    return 0;
}

static void forked(void *self, int phase)
{
    (void)self;
    if (phase != PROBING_FORK_CHILD)
        return;
    atomic_store_explicit(&torch_state.on, false, memory_order_relaxed);
    torch_state.counts = false; /* it has tables of its own */
    torch_state.at_work = 0;    /* others' threads are not here */
}

static void destroy(void *self)
{
    (void)self; /* stop() has given everything back */
}

static int64_t step_now(void)
{
    if (!atomic_load_explicit(&torch_state.on, memory_order_relaxed))
        return -1;
    return (int64_t)__atomic_load_n(&torch_state.step, __ATOMIC_RELAXED);
}

static const void *extension(void *self, const char *id)
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
    .init = init,
    .configure = configure,
    .start = start,
    .stop = stop,
    .fork = forked,
    .destroy = destroy,
    .extension = extension,
    .declares = &torch_declares,
};
