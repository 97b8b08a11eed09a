/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/dist/collective.c - torch.distributed: every operation of a process group that
 * Python starts.
 *
 * Threads: any that holds the GIL.
 *
 * The hooks stand on the methods of ProcessGroup and on Work.wait, below torch.distributed's own
 * functions: so it does not matter how a program got hold of those.  (Functional operators are in
 * collective_functional.c.)  An operation's time is from its start to the end of the wait for it.
 * On a GPU nobody waits for it on the CPU: then there is no duration.  Operations that C++ starts
 * by itself (DDP's buckets) do not come by here; if torch keeps a flight recorder they are in
 * python.torch_nccl_flight_record.
 */
#include "dist/collective.h"
#include "python/hook.h"
#include "python/pyobject.h"
#include "steps/call_thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PENDING_MAX (COMM_WAITS_MAX - CALLS_MAX) /* not waited for yet; the oldest give way */
#define CALLS_MAX 64u   /* under way at a time; more are not seen in torch.waiting */
#define SWEEP_EVERY 64u /* operations that are waited for: a program may have no steps */
#define CODES_MAX 64u

enum {
    COL_OP = N_COORDINATES,
    COL_GROUP_RANK,
    COL_GROUP_SIZE,
    COL_RANKS,
    COL_SHAPE,
    COL_DTYPE,
    COL_BYTES,
    COL_DURATION_MS,
    COL_WAIT_MS,
    COL_ASYNC,
    COL_GROUP_SEQ,
    COL_GROUP_NAME,
    COL_ERROR,
    COL_SRC,
    COL_DST,
    N_COMM
};

struct caller {           /* a function of Python */
    const PyObject *code; /* compared only */
    bool of_torch;        /* one of torch.distributed's own */
};

struct pending {
    PyObject *work; /* or a storage; an address: valid while `weak` says so */
    PyObject *weak; /* owned; NULL: the slot is free */
    struct caller starter;
    uint64_t begin_ns, called_ns; /* called_ns: inside the call that started it */
    const char *op;
    struct comm_about about;
    bool functional;
    int64_t tid;       /* of who started it; of who waits, once somebody does */
    uint64_t waits_ns; /* since when; 0: nobody does */
    union probing_cell row[N_COMM];
};

struct dist dist;
static struct pending pendings[PENDING_MAX]; /* lock: the GIL; the newest before next_pending */
static uint32_t next_pending, n_pending;     /* lock: the GIL */
static struct pending *calls[CALLS_MAX]; /* lock: the GIL; under way, each on its thread's stack */
static _Atomic uint64_t moved_ns;        /* relaxed */
static bool found;                       /* lock: the GIL */
static PyObject *of_torch[CODES_MAX];    /* lock: the GIL; code of torch's own functions, owned */
static uint32_t n_of_torch;              /* lock: the GIL */

static const struct probing_column columns[N_COMM] = {
    COORDINATE_COLUMNS,
    PROBING_STR_COLUMN(
        "op",
        "method of the process group (allreduce ...) or functional operator (all_reduce ...)"),
    GROUP_COLUMNS,
    PROBING_STR_COLUMN(
        "tensor_shape",
        "shape of the first input tensor; for a receiver of scatter, of the output tensor"),
    PROBING_STR_COLUMN("tensor_dtype", "dtype of the same tensor"),
    PROBING_I64_COLUMN("bytes", PROBING_BYTES, "size of all input tensors"),
    PROBING_F64_COLUMN(
        "duration_ms", PROBING_PLAIN,
        "milliseconds from the call to the end of the wait; 4 to 20 us less than the "
        "program's own clock shows, since torch.distributed's Python code around it is not in "
        "it, and up to 110 us less where other work fills the processor's caches meanwhile; "
        "NULL: the operation runs on a GPU, or nothing waited for it"),
    PROBING_F64_COLUMN("wait_ms", PROBING_PLAIN,
                       "milliseconds that the thread spent in the call and in the wait"),
    PROBING_I64_COLUMN(
        "async_op", PROBING_PLAIN,
        "1: something other than its caller waited for it; always so for functional operators"),
    PROBING_I64_COLUMN("seq", PROBING_PLAIN, "number of the operation in its group, from 1"),
    PROBING_STR_COLUMN("group_name", "name of the group, as torch calls it"),
    PROBING_STR_COLUMN("error", "exception that it ended with"),
    PROBING_I64_COLUMN(
        "src_rank", PROBING_PLAIN,
        "rank in the job that sends, for send, recv, broadcast, scatter, reduce and gather; "
        "NULL: all ranks send, or it is not known"),
    PROBING_I64_COLUMN(
        "dst_rank", PROBING_PLAIN,
        "rank in the job that receives; NULL for the root of a broadcast or scatter: all "
        "others receive"),
};

static bool is_of_torch(PyObject *code)
{
    static const char file[] = "distributed_c10d.py";
    struct cpython *py = &python.api;
    for (uint32_t i = 0; i < n_of_torch; i++)
        if (of_torch[i] == code)
            return true;
    PyObject *name = object_get(code, "co_filename");
    Py_ssize_t n = 0;
    const char *text = name ? py->PyUnicode_AsUTF8AndSize(name, &n) : NULL;
    bool is = text && n >= (Py_ssize_t)sizeof(file) && strcmp(text + n - strlen(file), file) == 0;
    py->PyErr_Clear();
    py->Py_DecRef(name);
    if (is && n_of_torch < CODES_MAX) {
        py->Py_IncRef(code);
        of_torch[n_of_torch++] = code;
    }
    return is;
}

static struct caller caller_now(void)
{
    struct cpython *py = &python.api;
    PyObject *frame = python.more.PyEval_GetFrame(), *code = NULL;
    if (frame && python.more.PyFrame_GetCode)
        code = python.more.PyFrame_GetCode(frame);
    else
        code = object_get(frame, "f_code");
    struct caller caller = {.code = code, .of_torch = code && is_of_torch(code)};
    py->Py_DecRef(code); /* the frame holds it */
    return caller;
}

/* One system call a thread, not two an operation. */
static int64_t this_tid(void)
{
    static _Thread_local struct {
        int64_t tid;
        uint32_t life; /* of the plugin: a forked process is another one, and so has another */
    } known;
    if (known.life != torch_state.life) {
        known.tid = (int64_t)syscall(SYS_gettid);
        known.life = torch_state.life;
    }
    return known.tid;
}

/* Did a function wait for what it, or for torch one of torch's functions, has started? */
static bool is_same(const struct caller *a, const struct caller *b)
{
    return a->code == b->code || (a->of_torch && b->of_torch);
}

static double to_milliseconds(uint64_t ns)
{
    return (double)ns / 1e6;
}

static void add_row(const struct pending *p, uint64_t end_ns)
{
    (void)torch_state.host->append(dist.comm, end_ns, p->row, N_COMM, NULL, 0);
}

static void describe_pending(struct pending *p, const struct comm_call *c)
{
    const struct comm_about *a = &c->about;
    p->about = *a;
    p->op = c->op;
    p->functional = c->functional;
    p->tid = this_tid();
    coordinates_look();
    coordinates_put(p->row);
    p->row[COL_OP].u = comm_op(c->op);
    p->row[COL_GROUP_RANK].i = a->rank;
    p->row[COL_GROUP_SIZE].i = a->size;
    p->row[COL_RANKS].u = a->ranks;
    p->row[COL_SHAPE].u = a->shape;
    p->row[COL_DTYPE].u = a->dtype;
    p->row[COL_BYTES].i = a->bytes;
    p->row[COL_DURATION_MS].u = p->row[COL_WAIT_MS].u = PROBING_NULL_F64;
    p->row[COL_ASYNC].i = PROBING_NULL_I64;
    p->row[COL_GROUP_SEQ].i = a->seq;
    p->row[COL_GROUP_NAME].u = a->group_name;
    p->row[COL_ERROR].u = PROBING_NULL_ID;
    p->row[COL_SRC].i = a->src;
    p->row[COL_DST].i = a->dst;
}

/* Nobody will wait for it any more, or we can remember no more: a row without a duration. */
static void give_up(struct pending *p)
{
    PyObject *weak = p->weak;
    p->row[COL_ASYNC].i = 1;
    p->row[COL_WAIT_MS].f = to_milliseconds(p->called_ns);
    add_row(p, torch_state.now());
    p->weak = NULL;
    n_pending--;
    python.api.Py_DecRef(weak);
}

static void sweep_pendings(void)
{
    struct cpython *py = &python.api;
    for (uint32_t i = 0; i < PENDING_MAX && n_pending; i++)
        if (pendings[i].weak && py->PyWeakref_GetObject(pendings[i].weak) == py->_Py_NoneStruct)
            give_up(&pendings[i]);
}

static void add_pending(struct pending *p, PyObject *work)
{
    struct cpython *py = &python.api;
    if (next_pending % SWEEP_EVERY == 0)
        sweep_pendings();
    p->weak = work ? py->PyWeakref_NewRef(work, NULL) : NULL;
    py->PyErr_Clear();
    p->work = work;
    struct pending *slot = &pendings[next_pending++ % PENDING_MAX];
    if (slot->weak)
        give_up(slot);
    *slot = *p;
    n_pending += p->weak != NULL;
}

void comm_ended(const struct thread *t, uint64_t end_ns)
{
    (void)t;
    sweep_pendings();
    comm_moved(end_ns);
}

uint64_t comm_moved_ns(void)
{
    return atomic_load_explicit(&moved_ns, memory_order_relaxed);
}

void comm_moved(uint64_t now_ns)
{
    atomic_store_explicit(&moved_ns, now_ns, memory_order_relaxed);
}

/* Note a call that is under way, which may be all there ever is of it; gives where. */
static uint32_t note_call(struct pending *p)
{
    uint32_t i = 0;
    while (i < CALLS_MAX && calls[i])
        i++;
    if (i < CALLS_MAX)
        calls[i] = p;
    return i;
}

/* The call that started an operation has ended. */
static void end_start(struct pending *p, struct thread *t, PyObject *result, uint64_t end_ns)
{
    p->called_ns = end_ns - p->begin_ns;
    if (result && result != python.api._Py_NoneStruct) {
        PyObject *storage = p->functional ? comm_functional_storage(result) : NULL;
        if (!p->functional)
            p->starter = caller_now();
        add_pending(p, p->functional ? storage : result);
        python.api.Py_DecRef(storage);
        t->walks_ns += torch_state.now() - end_ns;
        return;
    }
    p->row[COL_ASYNC].i = 0; /* it has waited itself */
    p->row[COL_ERROR].u = result ? PROBING_NULL_ID : object_error();
    p->row[COL_WAIT_MS].f = to_milliseconds(p->called_ns);
    if (p->about.on_cpu)
        p->row[COL_DURATION_MS].f = p->row[COL_WAIT_MS].f;
    add_row(p, end_ns);
}

PyObject *comm_call(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames,
                    const struct comm_call *c)
{
    struct thread *t = call_thread();
    uint32_t life = t->life;
    struct pending p; /* set where it is wanted: it is large */
    uint32_t noted = CALLS_MAX;
    uint64_t begin_ns = c->called_ns;
    if (c->wanted) {
        p.work = p.weak = NULL;
        work_begin();
        describe_pending(&p, c);
        work_end();
        p.begin_ns = p.waits_ns = c->called_ns;
        begin_ns = torch_state.now();
        t->walks_ns += begin_ns - c->called_ns;
        noted = note_call(&p);
    }
    comm_moved(begin_ns);
    enum phase before = step_phase(t, PHASE_COMM, begin_ns);
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    if (noted < CALLS_MAX && calls[noted] == &p)
        calls[noted] = NULL;
    if (t->life != life || !torch_on())
        return result;
    uint64_t end_ns = torch_state.now();
    (void)step_phase(t, before, end_ns);
    comm_moved(end_ns);
    p.waits_ns = 0;
    if (c->wanted) {
        work_begin();
        end_start(&p, t, result, end_ns);
        work_end();
    }
    return result;
}

static PyObject *comm_start(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t n = hook_nargs(nargsf);
    if (!hook_works(hook) || n < 1)
        return hook_pass(hook, args, nargsf, kwnames);
    struct comm_call c = {.op = hook_name(hook),
                          .called_ns = torch_state.now(),
                          .wanted = torch_state.host->wanted(dist.comm)};
    work_begin();
    if (c.wanted)
        comm_describe(c.op, args, n, &c.about);
    work_end();
    return comm_call(hook, args, nargsf, kwnames, &c);
}

/* The newest first: it is mostly that one which is waited for. */
static struct pending *pending_of(PyObject *work)
{
    uint32_t left = work ? n_pending : 0;
    for (uint32_t i = 1; i <= PENDING_MAX && left; i++) {
        struct pending *p = &pendings[(next_pending - i) % PENDING_MAX];
        left -= p->weak != NULL;
        if (p->weak && p->work == work && python.api.PyWeakref_GetObject(p->weak) == work)
            return p;
    }
    return NULL;
}

/* Somebody has waited for it: its row.  One that failed has it at once: it may be the last. */
static void end_wait(struct pending *p, bool failed, uint64_t begin_ns, uint64_t end_ns)
{
    struct cpython *py = &python.api;
    PyObject *weak = p->weak, *class = NULL, *value = NULL, *traceback = NULL;
    bool apart = true; /* functional ones are always waited for by a call of its own */
    if (failed) {
        p->row[COL_ERROR].u = object_error();
        py->PyErr_Fetch(&class, &value, &traceback);
    }
    if (!p->functional) {
        const struct caller waiter = caller_now();
        apart = !is_same(&waiter, &p->starter);
    }
    if (p->about.on_cpu)
        p->row[COL_DURATION_MS].f = to_milliseconds(end_ns - p->begin_ns);
    p->row[COL_WAIT_MS].f = to_milliseconds(p->called_ns + end_ns - begin_ns);
    p->row[COL_ASYNC].i = apart;
    add_row(p, end_ns);
    p->weak = NULL;
    n_pending--;
    py->Py_DecRef(weak);
    if (failed)
        py->PyErr_Restore(class, value, traceback);
}

PyObject *comm_wait(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames,
                    PyObject *work)
{
    struct thread *t = call_thread();
    uint32_t life = t->life;
    uint64_t begin_ns = torch_state.now();
    enum phase before = step_phase(t, PHASE_COMM, begin_ns);
    struct pending *p = pending_of(work);
    if (p) {
        p->waits_ns = begin_ns;
        p->tid = this_tid();
    }
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    if (t->life != life || !torch_on())
        return result;
    uint64_t end_ns = torch_state.now();
    (void)step_phase(t, before, end_ns);
    comm_moved(end_ns);
    p = pending_of(work); /* others may have come meanwhile */
    if (p) {
        p->waits_ns = 0;
        work_begin();
        end_wait(p, !result, begin_ns, end_ns);
        work_end();
    }
    return result;
}

static PyObject *work_wait(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (!hook_works(hook) || hook_nargs(nargsf) < 1)
        return hook_pass(hook, args, nargsf, kwnames);
    return comm_wait(hook, args, nargsf, kwnames, args[0]);
}

void comm_find(void)
{
    static const char *const ops[] = {"broadcast",
                                      "allreduce",
                                      "allreduce_coalesced",
                                      "reduce",
                                      "allgather",
                                      "_allgather_base",
                                      "all_gather_single",
                                      "allgather_coalesced",
                                      "all_gather_single_coalesced",
                                      "allgather_into_tensor_coalesced",
                                      "gather",
                                      "scatter",
                                      "reduce_scatter",
                                      "_reduce_scatter_base",
                                      "reduce_scatter_single",
                                      "reduce_scatter_single_coalesced",
                                      "reduce_scatter_tensor_coalesced",
                                      "alltoall",
                                      "alltoall_base",
                                      "all_to_all_single",
                                      "send",
                                      "recv",
                                      "recv_anysource",
                                      "barrier",
                                      "monitored_barrier"};
    struct cpython *py = &python.api;
    PyObject *module = object_module("torch._C._distributed_c10d");
    struct comm_join unused[COMM_JOINS_MAX];
    comm_functional_find();
    if (found || !module)
        return;
    (void)comm_joins(unused); /* what stands there from now on is known since now */
    PyObject *group = object_get(module, "ProcessGroup"), *work = object_get(module, "Work");
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]) && group && work; i++)
        (void)hook_method(group, ops[i], comm_start);
    if (group && work)
        (void)hook_method(work, "wait", work_wait);
    found = group && work;
    py->Py_DecRef(group);
    py->Py_DecRef(work);
}

void comm_forget(void)
{
    struct cpython *py = &python.api;
    found = false;
    comm_moved(0);
    memset(calls, 0, sizeof(calls));
    comm_about_forget();
    comm_functional_forget();
    comm_joins_forget();
    while (n_of_torch)
        py->Py_DecRef(of_torch[--n_of_torch]);
    n_pending = 0;
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        PyObject *weak = pendings[i].weak;
        pendings[i].weak = NULL;
        py->Py_DecRef(weak);
    }
}

static void describe_wait(const struct pending *p, struct comm_wait *ret)
{
    *ret = (struct comm_wait){.op = p->op,
                              .about = p->about,
                              .step = p->row[COL_LOCAL_STEP].i,
                              .tid = p->tid,
                              .begin_ns = p->begin_ns,
                              .waits_ns = p->waits_ns};
}

uint32_t comm_waits(struct comm_wait *ret)
{
    struct cpython *py = &python.api;
    uint32_t n = 0;
    for (uint32_t i = 0; i < PENDING_MAX && torch_on(); i++)
        if (pendings[i].weak && py->PyWeakref_GetObject(pendings[i].weak) != py->_Py_NoneStruct)
            describe_wait(&pendings[i], &ret[n++]);
    for (uint32_t i = 0; i < CALLS_MAX && torch_on(); i++)
        if (calls[i])
            describe_wait(calls[i], &ret[n++]);
    return n;
}

const struct probing_table_desc comm_table =
    PROBING_TABLE("python.comm_collective", columns,
                  "operations of torch.distributed's process groups that Python code starts");
