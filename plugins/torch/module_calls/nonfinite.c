/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_calls/nonfinite.c - the watch for numbers that are none: the first module of
 * a step that gives a NaN or an infinity, in its output or else in the gradients of its parameters.
 *
 * Threads: any that holds the GIL.
 * A gradient is asked for by the thread that called its module only: that of another one may be on
 * its way out just then, and crash whoever reads it (model_reader.c).
 * Gradients become bad from the loss on: of the modules that were called, the last one that has a
 * bad one is where it began, or something between it and the ones after it.
 */
#include "module_calls/module_calls.h"

#include <math.h>
#include <stdio.h>

#include "module_registry/registry.h"
#include "python/pyobject.h"
#include "python/tensor.h"
#include "steps/call_thread.h"
#include "variables/variable_rows.h"

#define TEXT_BYTES 256u
#define OUTPUTS_MAX 16
#define DEPTH_MAX 3     /* of lists, tuples and dicts in one another */
#define CALLS_MAX 4096u /* of a step, the newest */

static uint64_t told_step, told_life; /* lock: the GIL; where a NaN was told last */
static uint64_t backwards;            /* lock: the GIL; whose gradients were looked at */
static struct {
    uint64_t step, life, n; /* n: calls of that step */
    struct {
        PyObject *object; /* valid while names_find() gives this serial for it */
        uint64_t serial, name;
        const struct thread *thread; /* compared */
    } all[CALLS_MAX];
} calls; /* lock: the GIL */

/* fn for a value, or for each of a list, tuple or dict of them, until it gives true. */
static bool each_tensor(PyObject *value, int depth, bool (*fn)(PyObject *, void *), void *arg)
{
    struct cpython *py = &python.api;
    PyObject *type = object_type(value), *key, *item;
    if (tensor_is(value))
        return fn(value, arg);
    bool list = py->PyType_IsSubtype(type, py->PyList_Type);
    bool tuple = !list && py->PyType_IsSubtype(type, py->PyTuple_Type);
    bool dict = !list && !tuple && py->PyType_IsSubtype(type, py->PyDict_Type), found = false;
    Py_ssize_t n = list ? py->PyList_Size(value) : tuple ? py->PyTuple_Size(value) : 0, at = 0;
    for (Py_ssize_t i = 0; i < n && i < OUTPUTS_MAX && depth < DEPTH_MAX && !found; i++)
        found = each_tensor(list ? py->PyList_GetItem(value, i) : py->PyTuple_GetItem(value, i),
                            depth + 1, fn, arg);
    for (int i = 0; dict && i < OUTPUTS_MAX && depth < DEPTH_MAX && !found &&
                    py->PyDict_Next(value, &at, &key, &item);
         i++)
        found = each_tensor(item, depth + 1, fn, arg);
    return found;
}

static bool is_bad(PyObject *tensor, void *unused)
{
    (void)unused;
    return tensor_is_bad(tensor);
}

static bool count_nonfinite(PyObject *tensor, void *arg)
{
    struct tensor_figures f, *sum = arg;
    if (tensor_inspect(tensor, &f) == 0) {
        sum->n += f.n;
        sum->n_nan += f.n_nan;
        sum->n_infinite += f.n_infinite;
    }
    return false;
}

static void report_output(uint64_t module, PyObject *const *args, Py_ssize_t n, PyObject *result)
{
    struct tensor_figures out = {.n = 0};
    char text[TEXT_BYTES], numbers[TEXT_BYTES / 2];
    bool before = false;
    (void)each_tensor(result, 0, count_nonfinite, &out);
    for (Py_ssize_t i = 1; i < n && i <= OUTPUTS_MAX && !before; i++)
        before = each_tensor(args[i], 0, is_bad, NULL);
    double bad = (double)(out.n_nan + out.n_infinite);
    (void)snprintf(numbers, sizeof(numbers), "%lld NaN and %lld infinite of %lld",
                   (long long)out.n_nan, (long long)out.n_infinite, (long long)out.n);
    (void)snprintf(text, sizeof(text), "%s in its output; %s",
                   bad > 0 ? numbers : "NaN or infinite, more numbers than are counted",
                   before ? "its input has some already" : "its input is finite");
    variables_add(module, "nonfinite", "Tensor", bad > 0 ? &bad : NULL, text);
}

static void note_call(uint64_t name, PyObject *object)
{
    const struct module *m = names_find(object);
    if (calls.step != steps.step || calls.life != torch_state.life)
        calls.n = 0;
    calls.step = steps.step;
    calls.life = torch_state.life;
    if (!m)
        return;
    calls.all[calls.n % CALLS_MAX].object = object;
    calls.all[calls.n % CALLS_MAX].serial = m->serial;
    calls.all[calls.n % CALLS_MAX].thread = call_thread();
    calls.all[calls.n++ % CALLS_MAX].name = name;
}

static bool is_told(void)
{
    return told_life == torch_state.life && told_step == steps.step + 1;
}

void nonfinite_watch(uint64_t module, PyObject *const *args, Py_ssize_t n, PyObject *result)
{
    PyObject *guard;
    if (is_told())
        return;
    if (!backward_inside(call_thread())) /* else it was called before, in its place */
        note_call(module, args[0]);
    if (!tensor_quiet(&guard))
        return;
    if (each_tensor(result, 0, is_bad, NULL)) {
        told_life = torch_state.life;
        told_step = steps.step + 1;
        report_output(module, args, n, result);
    }
    tensor_loud(guard);
}

/* ---- gradients ---- */

/* true: it has a bad one, and that is told; ret_any: it has gradients. */
static bool tell_gradient(PyObject *module, uint64_t name, bool last, bool *ret_any)
{
    struct cpython *py = &python.api;
    PyObject *dict = object_dict(module), *key, *parameter;
    PyObject *list = dict ? py->PyDict_GetItemString(dict, "_parameters") : NULL;
    struct tensor_figures f;
    char text[TEXT_BYTES];
    Py_ssize_t at = 0;
    bool found = false;
    list = list && object_is(list, py->PyDict_Type) ? py->PyDict_Copy(list) : NULL;
    while (list && !found && py->PyDict_Next(list, &at, &key, &parameter)) {
        PyObject *gradient = tensor_is(parameter) ? object_get(parameter, "grad") : NULL;
        Py_ssize_t n;
        const char *which = py->PyUnicode_AsUTF8AndSize(key, &n);
        *ret_any = *ret_any || (gradient && tensor_is(gradient));
        if (gradient && which && tensor_is_bad(gradient)) {
            bool counted = tensor_inspect(gradient, &f) == 0;
            double bad = counted ? (double)(f.n_nan + f.n_infinite) : (double)NAN;
            found = true;
            if (counted)
                (void)snprintf(text, sizeof(text), "%lld NaN and %lld infinite of %lld",
                               (long long)f.n_nan, (long long)f.n_infinite, (long long)f.n);
            size_t used = counted ? strlen(text) : 0;
            (void)snprintf(text + used, sizeof(text) - used, "%s in the gradient of %.80s; %s",
                           counted ? "" : "NaN or infinite, more numbers than are counted", which,
                           last ? "of those with gradients it was called last"
                                : "modules called after it have finite ones");
            variables_add(name, "nonfinite", "gradient", &bad, text);
        }
        py->PyErr_Clear();
        py->Py_DecRef(gradient);
    }
    py->Py_DecRef(list);
    py->Py_DecRef(dict);
    return found;
}

void nonfinite_watch_gradients(void)
{
    PyObject *guard;
    bool any = false, found = false;
    if (is_told() || calls.step != steps.step || calls.life != torch_state.life ||
        !tensor_quiet(&guard))
        return;
    backwards++;
    uint64_t least = calls.n > CALLS_MAX ? calls.n - CALLS_MAX : 0;
    for (uint64_t i = calls.n; i > least && !found; i--) {
        PyObject *object = calls.all[(i - 1) % CALLS_MAX].object;
        struct module *m = names_find(object);
        if (!m || m->read_after == backwards ||
            m->serial != calls.all[(i - 1) % CALLS_MAX].serial ||
            calls.all[(i - 1) % CALLS_MAX].thread != call_thread())
            continue;
        m->read_after = backwards; /* called once more before: they are the same */
        python.api.Py_IncRef(object);
        bool last = !any;
        found = tell_gradient(object, calls.all[(i - 1) % CALLS_MAX].name, last, &any);
        python.api.Py_DecRef(object);
    }
    if (found) {
        told_life = torch_state.life;
        told_step = steps.step + 1;
    }
    tensor_loud(guard);
}
