/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/loss.c - the loss of a step where no function that runs at its end has it: what the
 * model gave under the name `loss`, else what backward() was called on.
 *
 * Threads: any that holds the GIL.
 * It is read at once, and no tensor is kept: one that is kept keeps its graph's memory.  On the CPU
 * its number is there by then; on another device it is not read, as that would wait for it.
 */
#include <errno.h>
#include <stdio.h>

#include "object.h"
#include "tensor.h"
#include "variables.h"

#define FUNC_BYTES 200u

enum source { SOURCE_NONE, SOURCE_BACKWARD, SOURCE_FORWARD }; /* the later ones are better */

static struct {
    const struct thread *thread; /* compared only */
    uint64_t step;
    enum source source;
    uint64_t func; /* interned */
    int rc;        /* of tensor_look() */
    double value;
    bool meta; /* it has no numbers */
} last;        /* lock: the GIL */

bool loss_wanted(const char *exprs)
{
    while (*exprs) {
        struct expression e;
        size_t n = exprs_length(exprs, ",");
        if (exprs_parse(exprs, n, &e) && loss_is(&e))
            return true;
        exprs += n + (exprs[n] == ',');
    }
    return false;
}

bool loss_is(const struct expression *e)
{
    return e->func_n == 0 && e->name_n == 4 && memcmp(e->name, "loss", 4) == 0;
}

static void take(const struct thread *t, enum source source, PyObject *value, const char *func)
{
    struct cpython *py = &torch_state.py;
    struct tensor_figures f = {.n = 0};
    PyObject *guard;
    bool newer = last.thread != t || last.step != torch_state.step;
    if ((!newer && last.source > source) || !tensor_is(value) || !tensor_quiet(&guard))
        return;
    int rc = tensor_look(value, &f);
    PyObject *meta = rc == -EXDEV ? object_get(value, "is_meta") : NULL;
    tensor_loud(guard);
    py->Py_DecRef(meta); /* a constant of the interpreter */
    if (rc == 0 && f.n != 1)
        return;
    last.thread = t;
    last.step = torch_state.step;
    last.source = source;
    last.func = object_intern(func);
    last.rc = rc;
    last.value = f.first;
    last.meta = meta == py->_Py_TrueStruct;
}

void loss_forward(const struct thread *t, PyObject *module, PyObject *result)
{
    struct cpython *py = &torch_state.py;
    char func[FUNC_BYTES];
    PyObject *dict = NULL, *value = NULL;
    if (tensor_is(result) || t->micro == PROBING_NULL_I64)
        return;
    if (object_is(result, py->PyDict_Type)) {
        value = py->PyDict_GetItemString(result, "loss");
    } else if (!object_is(result, py->PyTuple_Type) && !object_is(result, py->PyList_Type)) {
        dict = names_dict(result);
        value = dict && object_is(dict, py->PyDict_Type) ? py->PyDict_GetItemString(dict, "loss")
                                                         : NULL;
    }
    py->PyErr_Clear();
    (void)snprintf(func, sizeof(func), "%s.forward", names_class_text(module));
    if (value) {
        py->Py_IncRef(value);
        take(t, SOURCE_FORWARD, value, func);
        py->Py_DecRef(value);
    }
    py->Py_DecRef(dict);
}

/* args: of the engine's run_backward().  grad() comes by, too: it accumulates nothing. */
void loss_backward(const struct thread *t, PyObject *args, PyObject *kwargs)
{
    struct cpython *py = &torch_state.py;
    PyObject *adds = kwargs ? py->PyDict_GetItemString(kwargs, "accumulate_grad") : NULL;
    PyObject *tensors = py->PyTuple_Size(args) > 0 ? py->PyTuple_GetItem(args, 0) : NULL;
    if (adds == py->_Py_TrueStruct && tensors && object_is(tensors, py->PyTuple_Type) &&
        py->PyTuple_Size(tensors) == 1)
        take(t, SOURCE_BACKWARD, py->PyTuple_GetItem(tensors, 0), "backward");
    py->PyErr_Clear();
}

bool loss_add(const char *name)
{
    const struct thread *t = call_thread();
    if (last.source == SOURCE_NONE || last.thread != t || last.step != torch_state.step)
        return false;
    last.source = SOURCE_NONE;
    if (last.rc < 0)
        variables_add(last.func, name, "Tensor", NULL, variables_why_not(last.rc, last.meta));
    else
        variables_add_number(last.func, name, "Tensor", last.value);
    return true;
}
