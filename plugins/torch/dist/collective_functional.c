/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/dist/collective_functional.c - functional collectives: torch.ops._c10d_functional,
 * which DTensor, and so tensor parallel, and compiled graphs use.
 *
 * Threads: any that holds the GIL.
 *
 * They go past ProcessGroup's methods in Python.  An operator of torch is an object whose __call__
 * calls its attribute `_op`: the hooks stand there, so that neither the object nor its class
 * changes, by which dynamo and graphs know it; of the attribute torch asks only its hash, its names
 * and, for torch.jit.script(), its address.  A call that is only traced has no row.  C++'s own
 * operations do not come by here: the backward of `_c10d_functional_autograd`, graphs compiled with
 * a wrapper in C++.  torch.ops.c10d_functional calls these or the groups.
 */
#include "dist/collective.h"
#include "python/hook.h"
#include "python/pyobject.h"
#include "python/tensor.h"

#define OPERATORS_MAX 96u

static struct {
    const PyObject *function; /* that stood in `_op`: compared only, its hook holds it */
    PyObject *hook;           /* its address only */
    const char *name;
} operators[OPERATORS_MAX];  /* lock: the GIL */
static uint32_t n_operators; /* lock: the GIL */
static struct {
    PyObject *group_class, *resolve, *modes, *storage; /* owned */
} known;                                               /* lock: the GIL */
static bool found;                                     /* lock: the GIL */

/* NULL: it stood in no operator that we know. */
static const char *name_of(const PyObject *function)
{
    for (uint32_t i = 0; i < n_operators; i++)
        if (operators[i].function == function)
            return operators[i].name;
    return NULL;
}

/* Modes get calls before anybody else, and make them again when they are to happen. */
static bool has_modes(void)
{
    struct cpython *py = &python.api;
    PyObject *n = known.modes ? cpython_vectorcall(py, known.modes, NULL, 0, NULL) : NULL;
    py->PyErr_Clear();
    return object_number(n) != 0;
}

/* The group that an operator is given, by its name or itself: its last argument.  New reference;
 * NULL: not found. */
static PyObject *group_of(PyObject *const *args, Py_ssize_t n)
{
    struct cpython *py = &python.api;
    PyObject *last = n > 1 ? args[n - 1] : NULL, *group = NULL;
    if (!last || !known.group_class)
        return NULL;
    if (object_is(last, known.group_class)) {
        py->Py_IncRef(last);
        return last;
    }
    if (known.resolve && object_is(last, py->PyUnicode_Type))
        group = cpython_vectorcall(py, known.resolve, &last, 1, NULL);
    py->PyErr_Clear();
    return group;
}

/* Its tensors; NULL: none of those that are there have data. */
static PyObject *tensors_of(PyObject *const *args, Py_ssize_t n)
{
    struct cpython *py = &python.api;
    for (Py_ssize_t i = 0; i < n && i < 4; i += 3) { /* batch_p2p_ops has them fourth */
        PyObject *first = args[i];
        if (object_is(first, py->PyList_Type) && py->PyList_Size(first) > 0)
            first = py->PyList_GetItem(first, 0);
        if (tensor_is(first))
            return args[i];
    }
    return NULL;
}

PyObject *comm_functional_storage(PyObject *result)
{
    struct cpython *py = &python.api;
    PyObject *guard, *storage = NULL;
    if (object_is(result, py->PyList_Type))
        result = py->PyList_Size(result) > 0 ? py->PyList_GetItem(result, 0) : py->_Py_NoneStruct;
    if (!tensor_is(result) || !known.storage)
        return NULL;
    if (tensor_quiet(&guard))
        storage = cpython_vectorcall(py, known.storage, &result, 1, NULL);
    py->PyErr_Clear();
    tensor_loud(guard);
    return storage;
}

static PyObject *call_operator(PyObject *hook, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames)
{
    Py_ssize_t n = hook_nargs(nargsf);
    PyObject *tensors = hook_works(hook) ? tensors_of(args, n) : NULL;
    if (!tensors || has_modes())
        return hook_pass(hook, args, nargsf, kwnames);
    struct comm_call c = {
        .op = name_of(hook_original(hook)), .called_ns = torch_state.now(), .functional = true};
    PyObject *group = group_of(args, n);
    bool real = c.op && comm_describe_tensors(group, tensors, &c.about);
    python.api.Py_DecRef(group);
    if (!real)
        return hook_pass(hook, args, nargsf, kwnames);
    c.wanted = torch_state.host->wanted(dist.comm);
    return comm_call(hook, args, nargsf, kwnames, &c);
}

static PyObject *wait_tensor(PyObject *hook, PyObject *const *args, size_t nargsf,
                             PyObject *kwnames)
{
    Py_ssize_t n = hook_nargs(nargsf);
    if (!hook_works(hook) || n < 1 || !tensor_is(args[0]) || has_modes())
        return hook_pass(hook, args, nargsf, kwnames);
    PyObject *storage = comm_functional_storage(args[0]);
    PyObject *result = comm_wait(hook, args, nargsf, kwnames, storage);
    python.api.Py_DecRef(storage);
    return result;
}

/* torch.jit.script() finds an operator by the address of that function: it is to find it by the
 * hook's, too.  NULL: no more. */
static void tell_jit(PyObject *hook, PyObject *function)
{
    struct cpython *py = &python.api;
    PyObject *table = object_get(object_module("torch.jit._builtins"), "_builtin_table");
    PyObject *key = py->PyLong_FromVoidPtr(hook), *known_by = NULL;
    if (function)
        known_by = py->PyLong_FromVoidPtr(function);
    if (table && key && object_is(table, py->PyDict_Type)) {
        PyObject *value = known_by ? py->PyDict_GetItem(table, known_by) : NULL;
        if (value)
            (void)py->PyDict_SetItem(table, key, value);
        else if (!function)
            py->Py_DecRef(py->PyObject_CallMethod(table, "pop", "OO", key, py->_Py_NoneStruct));
    }
    py->PyErr_Clear();
    py->Py_DecRef(known_by);
    py->Py_DecRef(key);
    py->Py_DecRef(table);
}

/* An operator, or one of its overloads. */
static void hook_operator(PyObject *operator, const char * name)
{
    hook_call call = strcmp(name, "wait_tensor") == 0 ? wait_tensor : call_operator;
    if (n_operators >= OPERATORS_MAX || hook_instance(operator, "_op", call) < 0)
        return;
    PyObject *hook = object_get(operator, "_op");
    if (hook && hook_is(hook)) {
        tell_jit(hook, hook_original(hook));
        operators[n_operators].function = hook_original(hook);
        operators[n_operators].hook = hook;
        operators[n_operators++].name = name;
    }
    python.api.Py_DecRef(hook); /* the operator holds it */
}

static void hook_namespace(PyObject *space)
{
    static const char *const names[] = {"wait_tensor",
                                        "all_reduce",
                                        "all_reduce_",
                                        "all_reduce_coalesced",
                                        "all_reduce_coalesced_",
                                        "all_gather_into_tensor",
                                        "all_gather_into_tensor_out",
                                        "all_gather_into_tensor_coalesced",
                                        "reduce_scatter_tensor",
                                        "reduce_scatter_tensor_out",
                                        "reduce_scatter_tensor_coalesced",
                                        "all_to_all_single",
                                        "broadcast",
                                        "broadcast_",
                                        "isend",
                                        "irecv",
                                        "batch_p2p_ops"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && space; i++) {
        PyObject *operator= object_get(space, names[i]);
        PyObject *overload = object_get(operator, "default");
        if (operator&& overload) {
            hook_operator(operator, names[i]);
            hook_operator(overload, names[i]);
        }
        python.api.Py_DecRef(overload);
        python.api.Py_DecRef(operator);
    }
}

void comm_functional_find(void)
{
    struct cpython *py = &python.api;
    PyObject *module = object_module("torch._C._distributed_c10d");
    if (found || !module || !object_module("torch.distributed._functional_collectives"))
        return;
    found = true;
    known.group_class = object_get(module, "ProcessGroup");
    known.resolve = object_get(module, "_resolve_process_group");
    known.modes = object_get(object_module("torch._C"), "_len_torch_dispatch_stack");
    known.storage = object_get(python.tensor_class, "untyped_storage");
    PyObject *ops = NULL;
    if (known.modes && known.storage)
        ops = object_get(object_module("torch"), "ops");
    static const char *const spaces[] = {"_c10d_functional", "_c10d_functional_autograd"};
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]) && ops; i++) {
        PyObject *space = object_get(ops, spaces[i]);
        hook_namespace(space);
        py->Py_DecRef(space);
    }
    py->Py_DecRef(ops);
}

void comm_functional_forget(void)
{
    PyObject **held[] = {&known.group_class, &known.resolve, &known.modes, &known.storage};
    object_drop_all(held, PROBING_LENGTH(held));
    while (n_operators)
        tell_jit(operators[--n_operators].hook, NULL);
    found = false;
}
