/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/comm.c - torch.distributed: every operation of a process group that Python starts.
 *
 * Threads: any that holds the GIL.
 *
 * The hooks stand on the methods of ProcessGroup and on Work.wait, below torch.distributed's own
 * functions: so it does not matter how a program got hold of those.  An operation's time is from
 * its start to the end of the wait for it.  On a GPU nobody waits for it on the CPU: then there is
 * no duration.  What C++ starts by itself (DDP's buckets) does not come by here; where torch keeps
 * a flight recorder it is in python.torch_nccl_flight_record.
 */
#include "comm.h"
#include "tensor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GROUPS_MAX 64u
#define PENDING_MAX (COMM_WAITS_MAX - CALLS_MAX) /* not waited for yet; the oldest give way */
#define CALLS_MAX 64u    /* under way at a time; more are not seen in torch.waiting */
#define TENSORS_MAX 256u /* looked at, of one operation */
#define TEXT_BYTES 256u

enum {
    COL_STEPS,
    COL_OP,
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
    N_COMM
};

struct group {
    PyObject *object; /* an address: valid while `weak` says so */
    PyObject *weak;   /* owned */
    int64_t rank, size, seq;
    uint64_t name, ranks;        /* interned */
    char text[COMM_GROUP_BYTES]; /* its name */
};

struct pending {
    PyObject *work;               /* an address: valid while `weak` says so */
    PyObject *weak;               /* owned; NULL: the slot is free */
    const PyObject *code;         /* of the function that started it; compared only */
    uint64_t begin_ns, called_ns; /* called_ns: inside the call that started it */
    bool on_cpu;
    const char *op;
    char group[COMM_GROUP_BYTES];
    int64_t tid;       /* of who started it; of who waits, once somebody does */
    uint64_t waits_ns; /* since when; 0: nobody does */
    union probing_cell row[N_COMM];
};

/* What an operation works on, added up. */
struct load {
    uint32_t n;
    int64_t bytes;
    uint64_t shape, dtype; /* of the first tensor, interned */
    bool known, on_cpu;
};

static struct group groups[GROUPS_MAX];      /* lock: the GIL */
static struct pending pendings[PENDING_MAX]; /* lock: the GIL */
static uint32_t next_group, next_pending;    /* lock: the GIL */
static struct pending *calls[CALLS_MAX]; /* lock: the GIL; under way, each on its thread's stack */
static _Atomic uint64_t moved_ns;        /* relaxed */
static bool found;                       /* lock: the GIL */

static const struct probing_column columns[N_COMM] = {
    {.name = "steps", .type = PROBING_I64, .doc = "local_step"},
    {.name = "op", .type = PROBING_STR, .doc = "the group's method: allreduce, broadcast ..."},
    {.name = "group_rank", .type = PROBING_I64, .doc = "ours, in the group"},
    {.name = "group_size", .type = PROBING_I64, .unit = PROBING_COUNT, .doc = "processes in it"},
    {.name = "participate_ranks", .type = PROBING_STR, .doc = "of the whole job; NULL: not told"},
    {.name = "tensor_shape", .type = PROBING_STR, .doc = "of the first tensor that goes in"},
    {.name = "tensor_dtype", .type = PROBING_STR, .doc = "of the same"},
    {.name = "bytes", .type = PROBING_I64, .unit = PROBING_BYTES, .doc = "of all that go in"},
    {.name = "duration_ms",
     .type = PROBING_F64,
     .doc = "milliseconds from the start to the end of the wait; NULL: on a GPU, or nobody waited"},
    {.name = "wait_ms",
     .type = PROBING_F64,
     .doc = "milliseconds that the thread stood in the call and in the wait"},
    {.name = "async_op", .type = PROBING_I64, .doc = "1: somebody else waited than who started it"},
    {.name = "seq", .type = PROBING_I64, .doc = "number of the operation in its group, from 1"},
    {.name = "group_name", .type = PROBING_STR, .doc = "as torch names it"},
};

static PyObject *get(PyObject *object, const char *name)
{
    PyObject *value = torch_state.py.PyObject_GetAttrString(object, name);
    torch_state.py.PyErr_Clear();
    return value;
}

static int64_t whole_number(PyObject *value)
{
    struct cpython *py = &torch_state.py;
    int64_t n = PROBING_NULL_I64;
    if (value && py->PyType_IsSubtype(object_type(value), py->PyLong_Type))
        n = py->PyLong_AsLongLong(value);
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return n;
}

static int64_t ask(PyObject *object, const char *method)
{
    PyObject *value = torch_state.py.PyObject_CallMethod(object, method, NULL);
    torch_state.py.PyErr_Clear();
    return whole_number(value);
}

/* str(value), interned, and its beginning in `room`; takes the reference. */
static uint64_t text_of(PyObject *value, char *room, size_t size)
{
    struct cpython *py = &torch_state.py;
    uint64_t id = PROBING_NULL_ID;
    PyObject *text = value && value != py->_Py_NoneStruct ? py->PyObject_Str(value) : NULL;
    Py_ssize_t n = 0;
    const char *bytes = text ? py->PyUnicode_AsUTF8AndSize(text, &n) : NULL;
    if (bytes && n > 6 && strncmp(bytes, "torch.", 6) == 0 && !strchr(bytes, '(')) {
        bytes += 6; /* torch.float32 */
        n -= 6;
    }
    (void)snprintf(room, size, "%s", bytes ? bytes : "");
    if (bytes && n < (Py_ssize_t)TEXT_BYTES &&
        torch_state.host->intern(torch_state.host, bytes, (size_t)n, &id) < 0)
        id = PROBING_NULL_ID;
    py->PyErr_Clear();
    py->Py_DecRef(text);
    py->Py_DecRef(value);
    return id;
}

static uint64_t ranks_of(PyObject *group)
{
    struct cpython *py = &torch_state.py;
    PyObject *module = py->PyDict_GetItemString(py->PyImport_GetModuleDict(),
                                                "torch.distributed.distributed_c10d");
    PyObject *function = module ? get(module, "get_process_group_ranks") : NULL;
    PyObject *list = function ? py->PyObject_CallFunctionObjArgs(function, group, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(function);
    return text_of(list, NULL, 0);
}

static struct group *group_of(PyObject *object)
{
    struct cpython *py = &torch_state.py;
    for (uint32_t i = 0; i < GROUPS_MAX; i++)
        if (groups[i].object == object && groups[i].weak &&
            py->PyWeakref_GetObject(groups[i].weak) == object)
            return &groups[i];
    struct group made = {.object = object, .weak = py->PyWeakref_NewRef(object, NULL)};
    py->PyErr_Clear();
    if (!made.weak)
        return NULL;
    made.rank = ask(object, "rank");
    made.size = ask(object, "size");
    groups_name(object, made.text, sizeof(made.text));
    if (torch_state.host->intern(torch_state.host, made.text, strlen(made.text), &made.name) < 0 ||
        !made.text[0])
        made.name = PROBING_NULL_ID;
    made.ranks = ranks_of(object);
    struct group *g = &groups[next_group++ % GROUPS_MAX];
    PyObject *old = g->weak;
    *g = made;
    py->Py_DecRef(old);
    return g;
}

static void add_tensor(struct load *load, PyObject *tensor)
{
    struct cpython *py = &torch_state.py;
    if (object_type(tensor) != torch_state.tensor_class &&
        object_type(tensor) != torch_state.parameter_class) {
        load->known = false; /* another class may run Python code */
        return;
    }
    int64_t n = ask(tensor, "numel"), size = ask(tensor, "element_size");
    if (load->n++ == 0) {
        PyObject *shape = get(tensor, "shape");
        PyObject *list =
            shape ? py->PyObject_CallFunctionObjArgs(py->PyList_Type, shape, NULL) : NULL;
        py->PyErr_Clear();
        py->Py_DecRef(shape);
        load->shape = text_of(list, NULL, 0);
        load->dtype = text_of(get(tensor, "dtype"), NULL, 0);
        PyObject *cpu = get(tensor, "is_cpu");
        load->on_cpu = cpu == py->_Py_TrueStruct;
        py->Py_DecRef(cpu);
    }
    if (n >= 0 && size >= 0)
        load->bytes += n * size;
    else
        load->known = false;
}

/* A tensor, or lists of them in lists. */
static void add_all(struct load *load, PyObject *value, int depth)
{
    struct cpython *py = &torch_state.py;
    bool list = py->PyType_IsSubtype(object_type(value), py->PyList_Type);
    bool tuple = py->PyType_IsSubtype(object_type(value), py->PyTuple_Type);
    Py_ssize_t n = list ? py->PyList_Size(value) : tuple ? py->PyTuple_Size(value) : 0;
    if (!list && !tuple)
        add_tensor(load, value);
    for (Py_ssize_t i = 0; i < n && depth < 2 && load->known; i++) {
        if (load->n >= TENSORS_MAX)
            load->known = false;
        else
            add_all(load, list ? py->PyList_GetItem(value, i) : py->PyTuple_GetItem(value, i),
                    depth + 1);
    }
}

/* Which argument goes in: most operations have it first, these have what comes out first. */
static Py_ssize_t input_of(const char *op)
{
    static const char *const second[] = {"gather", "reduce_scatter", "alltoall", "all_to_all"};
    for (size_t i = 0; i < sizeof(second) / sizeof(second[0]); i++)
        if (strstr(op, second[i]))
            return 2;
    return 1;
}

static const PyObject *code_now(void)
{
    PyObject *frame = torch_state.more.PyEval_GetFrame();
    PyObject *code = frame ? get(frame, "f_code") : NULL;
    torch_state.py.Py_DecRef(code); /* the frame holds it; it is only compared */
    return code;
}

static double milliseconds(uint64_t ns)
{
    return (double)ns / 1e6;
}

static void add_row(const struct pending *p, uint64_t end_ns)
{
    (void)torch_state.host->append(torch_state.comm, end_ns, p->row, N_COMM, NULL, 0);
}

static void describe(struct pending *p, const char *op, PyObject *const *args, Py_ssize_t n)
{
    struct group *g = group_of(args[0]);
    struct load load = {.on_cpu = true};
    Py_ssize_t input = input_of(op);
    PyObject *guard;
    load.known = tensor_quiet(&guard);
    if (load.known && n > input && !strstr(op, "barrier"))
        add_all(&load, args[input], 0);
    tensor_loud(guard);
    for (int i = 0; i < N_COMM; i++)
        p->row[i].i = PROBING_NULL_I64;
    p->row[COL_DURATION_MS].u = p->row[COL_WAIT_MS].u = PROBING_NULL_F64;
    p->row[COL_STEPS].i = (int64_t)torch_state.step;
    p->row[COL_RANKS].u = g ? g->ranks : PROBING_NULL_ID;
    p->row[COL_GROUP_NAME].u = g ? g->name : PROBING_NULL_ID;
    p->row[COL_SHAPE].u = load.shape;
    p->row[COL_DTYPE].u = load.dtype;
    if (torch_state.host->intern(torch_state.host, op, strlen(op), &p->row[COL_OP].u) < 0)
        p->row[COL_OP].u = PROBING_NULL_ID;
    p->op = op;
    p->tid = (int64_t)syscall(SYS_gettid);
    if (g) {
        memcpy(p->group, g->text, sizeof(p->group));
        p->row[COL_GROUP_RANK].i = g->rank;
        p->row[COL_GROUP_SIZE].i = g->size;
        p->row[COL_GROUP_SEQ].i = ++g->seq;
    }
    if (load.known && load.n)
        p->row[COL_BYTES].i = load.bytes;
    p->on_cpu = load.known && load.on_cpu;
}

/* Those that nobody will wait for any more have a row without a duration. */
static void sweep(void)
{
    struct cpython *py = &torch_state.py;
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        struct pending *p = &pendings[i];
        if (p->weak && py->PyWeakref_GetObject(p->weak) == py->_Py_NoneStruct) {
            PyObject *weak = p->weak;
            p->row[COL_ASYNC].i = 1;
            p->row[COL_WAIT_MS].f = milliseconds(p->called_ns);
            add_row(p, torch_state.now());
            p->weak = NULL;
            py->Py_DecRef(weak);
        }
    }
}

static void await(struct pending *p, PyObject *work)
{
    struct cpython *py = &torch_state.py;
    sweep();
    p->weak = py->PyWeakref_NewRef(work, NULL);
    py->PyErr_Clear();
    p->work = work;
    struct pending *slot = &pendings[next_pending++ % PENDING_MAX];
    PyObject *old = slot->weak;
    *slot = *p;
    py->Py_DecRef(old);
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

static PyObject *comm_start(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t n = hook_nargs(nargsf);
    if (!hook_works(hook) || n < 1)
        return hook_pass(hook, args, nargsf, kwnames);
    struct thread *t = call_thread();
    uint32_t life = t->life;
    struct pending p = {.work = NULL};
    bool wanted = torch_state.host->wanted(torch_state.comm);
    uint64_t called_ns = torch_state.now();
    if (wanted)
        describe(&p, hook_name(hook), args, n);
    p.begin_ns = torch_state.now();
    t->walks_ns += p.begin_ns - called_ns;
    p.waits_ns = p.begin_ns;
    comm_moved(p.begin_ns);
    uint32_t noted = wanted ? note_call(&p) : CALLS_MAX;
    enum phase before = step_phase(t, PHASE_COMM, p.begin_ns);
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    if (noted < CALLS_MAX && calls[noted] == &p)
        calls[noted] = NULL;
    if (t->life != life || !torch_on())
        return result;
    uint64_t end_ns = torch_state.now();
    (void)step_phase(t, before, end_ns);
    comm_moved(end_ns);
    p.waits_ns = 0;
    if (!wanted || !result)
        return result;
    p.called_ns = end_ns - p.begin_ns;
    if (result != torch_state.py._Py_NoneStruct) {
        p.code = code_now();
        await(&p, result);
        t->walks_ns += torch_state.now() - end_ns;
        return result;
    }
    p.row[COL_ASYNC].i = 0; /* it has waited itself */
    p.row[COL_WAIT_MS].f = milliseconds(p.called_ns);
    if (p.on_cpu)
        p.row[COL_DURATION_MS].f = p.row[COL_WAIT_MS].f;
    add_row(&p, end_ns);
    return result;
}

static struct pending *pending_of(PyObject *work)
{
    for (uint32_t i = 0; i < PENDING_MAX; i++)
        if (pendings[i].weak && pendings[i].work == work &&
            torch_state.py.PyWeakref_GetObject(pendings[i].weak) == work)
            return &pendings[i];
    return NULL;
}

static PyObject *comm_wait(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (!hook_works(hook) || hook_nargs(nargsf) < 1)
        return hook_pass(hook, args, nargsf, kwnames);
    struct thread *t = call_thread();
    uint32_t life = t->life;
    PyObject *work = args[0];
    uint64_t begin_ns = torch_state.now();
    enum phase before = step_phase(t, PHASE_COMM, begin_ns);
    struct pending *p = pending_of(work);
    if (p) {
        p->waits_ns = begin_ns;
        p->tid = (int64_t)syscall(SYS_gettid);
    }
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    if (t->life != life || !torch_on())
        return result;
    uint64_t end_ns = torch_state.now();
    (void)step_phase(t, before, end_ns);
    comm_moved(end_ns);
    p = pending_of(work); /* others may have come meanwhile */
    if (p)
        p->waits_ns = 0;
    if (!p || !result)
        return result;
    PyObject *weak = p->weak;
    if (p->on_cpu)
        p->row[COL_DURATION_MS].f = milliseconds(end_ns - p->begin_ns);
    p->row[COL_WAIT_MS].f = milliseconds(p->called_ns + end_ns - begin_ns);
    p->row[COL_ASYNC].i = code_now() != p->code;
    add_row(p, end_ns);
    p->weak = NULL;
    torch_state.py.Py_DecRef(weak);
    return result;
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
    struct cpython *py = &torch_state.py;
    PyObject *module =
        py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "torch._C._distributed_c10d");
    if (found || !module)
        return;
    PyObject *group = get(module, "ProcessGroup"), *work = get(module, "Work");
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]) && group && work; i++)
        (void)hook_method(group, ops[i], comm_start);
    if (group && work)
        (void)hook_method(work, "wait", comm_wait);
    found = group && work;
    py->Py_DecRef(group);
    py->Py_DecRef(work);
}

void comm_forget(void)
{
    struct cpython *py = &torch_state.py;
    found = false;
    comm_moved(0);
    memset(calls, 0, sizeof(calls));
    for (uint32_t i = 0; i < GROUPS_MAX; i++) {
        PyObject *weak = groups[i].weak;
        groups[i] = (struct group){.object = NULL};
        py->Py_DecRef(weak);
    }
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        PyObject *weak = pendings[i].weak;
        pendings[i].weak = NULL;
        py->Py_DecRef(weak);
    }
}

static void describe_wait(const struct pending *p, struct comm_wait *ret)
{
    const union probing_cell *row = p->row;
    *ret = (struct comm_wait){.op = p->op,
                              .rank = row[COL_GROUP_RANK].i,
                              .size = row[COL_GROUP_SIZE].i,
                              .seq = row[COL_GROUP_SEQ].i,
                              .step = row[COL_STEPS].i,
                              .ranks = row[COL_RANKS].u,
                              .tid = p->tid,
                              .begin_ns = p->begin_ns,
                              .waits_ns = p->waits_ns};
    memcpy(ret->group, p->group, sizeof(ret->group));
}

uint32_t comm_waits(struct comm_wait *ret)
{
    struct cpython *py = &torch_state.py;
    uint32_t n = 0;
    for (uint32_t i = 0; i < PENDING_MAX && torch_on(); i++)
        if (pendings[i].weak && py->PyWeakref_GetObject(pendings[i].weak) != py->_Py_NoneStruct)
            describe_wait(&pendings[i], &ret[n++]);
    for (uint32_t i = 0; i < CALLS_MAX && torch_on(); i++)
        if (calls[i])
            describe_wait(calls[i], &ret[n++]);
    return n;
}

const struct probing_table_desc comm_table = {
    .size = sizeof(comm_table),
    .column_size = sizeof(struct probing_column),
    .name = "python.comm_collective",
    .columns = columns,
    .n_columns = N_COMM,
    .doc = "operations of torch.distributed's process groups that Python starts",
};
