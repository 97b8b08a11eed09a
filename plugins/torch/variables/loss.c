/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/loss.c - what is known of a step without a variable of the program's: the
 * loss, by what a training_step() or the model gave under that name, else by what backward() was
 * called on; the learning rate that its optimizer has; the norm of the gradients that were clipped.
 *
 * Threads: any that holds the GIL.
 * It is read at once, and no tensor is kept: one that is kept keeps its graph's memory.  On the CPU
 * its number is there by then; from a GPU it comes later, by cuda_events.c.
 */
#include "variables/loss.h"

#include <errno.h>

#include "device/device.h"
#include "python/pyobject.h"
#include "python/tensor.h"
#include "steps/call_thread.h"
#include "variables/variable_rows.h"

#define FUNC_BYTES 200u
#define CLIP_MODULE "torch.nn.utils.clip_grad"
#define CLIP_NAME "_get_total_norm"

enum source { SOURCE_BACKWARD, SOURCE_FORWARD, SOURCE_STEP }; /* the later ones are better */

struct scalar { /* of a step */
    bool there;
    const struct thread *thread; /* compared only */
    uint64_t step;
    uint64_t func;    /* interned */
    const char *type; /* "Tensor" */
    int rc;           /* of tensor_inspect() */
    double value;
    bool meta;       /* it has no numbers */
    uint64_t ticket; /* device_number()'s, 0: it is read already, or never */
};

static struct {
    struct scalar of[N_KNOWN];
    enum source source;       /* of the loss */
    PyObject *clip, *clipped; /* what stands at CLIP_NAME, and what stood there; owned */
} last;                       /* lock: the GIL */

/* ---- names ---- */

enum known loss_known(const struct expression *e)
{
    static const char *const names[N_KNOWN] = {
        [KNOWN_LOSS] = "loss", [KNOWN_RATE] = "lr", [KNOWN_NORM] = "grad_norm"};
    for (int i = KNOWN_LOSS; i < N_KNOWN && e->func_n == 0; i++)
        if (strlen(names[i]) == e->name_n && memcmp(e->name, names[i], e->name_n) == 0)
            return (enum known)i;
    return KNOWN_NOTHING;
}

uint32_t loss_wanted(const char *exprs)
{
    uint32_t wanted = 0;
    while (*exprs) {
        struct expression e;
        size_t n = exprs_length(exprs, ",");
        if (exprs_parse(exprs, n, &e))
            wanted |= 1u << loss_known(&e);
        exprs += n + (exprs[n] == ',');
    }
    return wanted & ~(1u << KNOWN_NOTHING);
}

static bool is_wanted(enum known which)
{
    return variables.known >> which & 1;
}

/* ---- what is seen ---- */

static bool is_now(const struct scalar *s, const struct thread *t)
{
    return s->there && s->thread == t && s->step == steps.step;
}

/* Tensors quiet.  false: it is no single number. */
static bool read_scalar(PyObject *value, struct scalar *s)
{
    struct cpython *py = &python.api;
    struct tensor_figures f = {.n = 0};
    s->type = object_class_text(value);
    if (object_is(value, py->PyFloat_Type) || object_is(value, py->PyLong_Type)) {
        s->value = py->PyFloat_AsDouble(value);
        bool is = !py->PyErr_Occurred();
        py->PyErr_Clear();
        return is;
    }
    if (!tensor_is(value))
        return false;
    s->rc = tensor_inspect(value, &f);
    PyObject *meta = s->rc == -EXDEV ? object_get(value, "is_meta") : NULL;
    py->Py_DecRef(meta); /* a constant of the interpreter */
    s->value = f.first;
    s->meta = meta == py->_Py_TrueStruct;
    return s->rc < 0 || f.n == 1;
}

bool loss_is_one(PyObject *value)
{
    struct scalar s = {.rc = 0};
    return read_scalar(value, &s);
}

static bool take_scalar(const struct thread *t, enum known which, PyObject *value, const char *func)
{
    struct scalar s = {.there = true, .thread = t, .step = steps.step};
    PyObject *guard = NULL;
    bool tensor = tensor_is(value);
    if (tensor && !tensor_quiet(&guard))
        return false;
    bool one = read_scalar(value, &s);
    if (one && s.rc == -EXDEV && !s.meta)
        s.ticket = variables_ticket(value);
    if (tensor)
        tensor_loud(guard);
    if (!one)
        return false;
    s.func = object_intern_often(func);
    last.of[which] = s;
    return true;
}

/* "SGD.param_groups"; no printf: once a step. */
static void put_name(char *room, PyObject *object, const char *attribute)
{
    const char *class = object_class_text(object);
    size_t most = FUNC_BYTES - strlen(attribute) - 1, n = strnlen(class, most);
    memcpy(room, class, n);
    memcpy(room + n, attribute, strlen(attribute) + 1);
}

static void take_loss(const struct thread *t, enum source source, PyObject *value, const char *func)
{
    if (is_now(&last.of[KNOWN_LOSS], t) && last.source > source)
        return;
    if (tensor_is(value) && take_scalar(t, KNOWN_LOSS, value, func))
        last.source = source;
}

/* Find what has the name `loss` in a model's result, new reference. */
static PyObject *loss_in(PyObject *result)
{
    struct cpython *py = &python.api;
    PyObject *dict = NULL, *value = NULL;
    if (object_is(result, py->PyDict_Type)) {
        value = object_item(result, "loss");
    } else if (!object_is(result, py->PyTuple_Type) && !object_is(result, py->PyList_Type)) {
        dict = object_dict(result);
        value = object_item(dict, "loss");
    }
    py->PyErr_Clear();
    py->Py_IncRef(value);
    py->Py_DecRef(dict);
    return value;
}

void loss_forward(const struct thread *t, PyObject *module, PyObject *result)
{
    char func[FUNC_BYTES];
    if (!is_wanted(KNOWN_LOSS) || tensor_is(result) || t->micro == PROBING_NULL_I64)
        return;
    PyObject *value = loss_in(result);
    put_name(func, module, ".forward");
    if (value)
        take_loss(t, SOURCE_FORWARD, value, func);
    python.api.Py_DecRef(value);
}

PyObject *loss_training_step(PyObject *hook, PyObject *const *args, size_t nargsf,
                             PyObject *kwnames)
{
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    if (!result || !hook_works(hook) || !is_wanted(KNOWN_LOSS))
        return result;
    work_begin();
    PyObject *value = tensor_is(result) ? NULL : loss_in(result);
    if (value || tensor_is(result))
        take_loss(call_thread(), SOURCE_STEP, value ? value : result, "training_step");
    python.api.Py_DecRef(value);
    work_end();
    return result;
}

/* args: of the engine's run_backward().  grad() comes by, too: it accumulates nothing. */
void loss_backward(const struct thread *t, PyObject *args, PyObject *kwargs)
{
    struct cpython *py = &python.api;
    PyObject *adds = kwargs ? py->PyDict_GetItemString(kwargs, "accumulate_grad") : NULL;
    PyObject *tensors = py->PyTuple_Size(args) > 0 ? py->PyTuple_GetItem(args, 0) : NULL;
    if (is_wanted(KNOWN_LOSS) && adds == py->_Py_TrueStruct && tensors &&
        object_is(tensors, py->PyTuple_Type) && py->PyTuple_Size(tensors) == 1)
        take_loss(t, SOURCE_BACKWARD, py->PyTuple_GetItem(tensors, 0), "backward");
    py->PyErr_Clear();
}

void loss_optimizer(const struct thread *t, PyObject *optimizer)
{
    struct cpython *py = &python.api;
    char func[FUNC_BYTES];
    if (!is_wanted(KNOWN_RATE))
        return;
    PyObject *dict = object_dict(optimizer), *groups = object_item(dict, "param_groups");
    bool some = groups && object_is(groups, py->PyList_Type) && py->PyList_Size(groups) > 0;
    PyObject *rate = some ? object_item(py->PyList_GetItem(groups, 0), "lr") : NULL;
    py->Py_IncRef(rate);
    py->PyErr_Clear();
    py->Py_DecRef(dict);
    put_name(func, optimizer, ".param_groups");
    if (rate)
        (void)take_scalar(t, KNOWN_RATE, rate, func);
    py->Py_DecRef(rate);
}

/* ---- gradients that are clipped ---- */

static PyObject *clip_note(PyObject *self, PyObject *norm)
{
    struct cpython *py = &python.api;
    (void)self;
    if (torch_on() && torch_state.live && is_wanted(KNOWN_NORM))
        (void)take_scalar(call_thread(), KNOWN_NORM, norm, "clip_grad_norm_");
    py->Py_IncRef(py->_Py_NoneStruct);
    return py->_Py_NoneStruct;
}

/* A function of Python's, new reference: dynamo has guards on the code and the closure of what it
 * has traced through, and what is no function fails them at once.  There it leaves out the note. */
static PyObject *clip_wrapper(PyObject *original)
{
    static const char text[] = "def make(original, note, is_compiling):\n"
                               "    def _get_total_norm(*args, **kwargs):\n"
                               "        total_norm = original(*args, **kwargs)\n"
                               "        if not is_compiling():\n"
                               "            note(total_norm)\n"
                               "        return total_norm\n"
                               "    return _get_total_norm\n";
    static struct cpython_method method = {"probing_norm", clip_note, METH_O, NULL};
    struct cpython *py = &python.api;
    PyObject *globals = py->PyDict_New(), *made = NULL;
    PyObject *note = py->PyCFunction_NewEx(&method, NULL, NULL);
    PyObject *compiling = object_get(object_module("torch.compiler"), "is_compiling");
    if (globals && py->PyDict_SetItemString(globals, "__builtins__", py->PyEval_GetBuiltins()) == 0)
        py->Py_DecRef(py->PyRun_StringFlags(text, Py_file_input, globals, globals, NULL));
    PyObject *make = globals ? py->PyDict_GetItemString(globals, "make") : NULL;
    if (make && note && compiling)
        made = py->PyObject_CallFunctionObjArgs(make, original, note, compiling, NULL);
    py->PyErr_Clear();
    py->Py_DecRef(compiling);
    py->Py_DecRef(note);
    py->Py_DecRef(globals);
    return made;
}

/* Programs have clip_grad_norm_() under names of their own; what it calls is looked up anew each
 * time.  (torch 2.6; older ones have no such function.) */
void loss_find(void)
{
    struct cpython *py = &python.api;
    PyObject *module = object_module(CLIP_MODULE);
    if (last.clip || !module)
        return;
    last.clipped = object_get(module, CLIP_NAME);
    last.clip = last.clipped ? clip_wrapper(last.clipped) : NULL;
    if (last.clip)
        (void)py->PyObject_SetAttrString(module, CLIP_NAME, last.clip);
    py->PyErr_Clear();
}

/* Put the original back; anything that somebody else has put there since stays. */
void loss_forget(void)
{
    struct cpython *py = &python.api;
    PyObject *module = object_module(CLIP_MODULE), *now = object_get(module, CLIP_NAME);
    if (last.clip && now == last.clip)
        (void)py->PyObject_SetAttrString(module, CLIP_NAME, last.clipped);
    py->PyErr_Clear();
    py->Py_DecRef(now);
    py->Py_DecRef(last.clip);
    py->Py_DecRef(last.clipped);
    memset(&last, 0, sizeof(last));
}

/* ---- a step's end ---- */

bool loss_add(enum known which, const char *name)
{
    struct scalar *s = &last.of[which];
    if (!is_now(s, call_thread()))
        return false;
    s->there = false;
    if (device_claim(s->ticket, s->func, name, variables_add_later))
        return true;
    if (s->rc < 0)
        variables_add(s->func, name, s->type, NULL, variables_why_not(s->rc, s->meta));
    else
        variables_add_number(s->func, name, s->type, s->value);
    return true;
}
