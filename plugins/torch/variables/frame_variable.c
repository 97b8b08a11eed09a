/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/frame_variable.c - variables in the frames of the thread that asks.
 *
 * Threads: any that holds the GIL.
 * A variable is read where the interpreter keeps it: asking a frame for f_locals would keep all of
 * its variables alive.
 * Where a name is in a function is found out once for each code object, which never changes; the
 * next time only its place is read.  A function that gets another code has another place.
 */
#include "python/pyobject.h"
#include "variables/exprs.h"

#define FRAMES_MAX 256u
#define PLACES 512u /* a power of two: names times functions that are below a training step */
#define NO_PLACE (-1)

enum inside { OUTSIDE, INSIDE, BY_SELF }; /* BY_SELF: the class of `self` tells, in each frame */

struct variable_place { /* of an expression's variable in a function */
    PyObject *code;     /* owned: nothing else gets its address; NULL: a free place */
    uint32_t number;    /* the expression's */
    enum inside inside; /* the function that the expression wants */
    Py_ssize_t at;      /* NO_PLACE: it has no such variable */
    bool global;        /* of a module, whose variables are global ones */
};

static struct variable_place places[PLACES]; /* lock: the GIL */
static uint32_t checked_life; /* lock: the GIL; of the plugin, when `readable` was found out */
static bool readable;         /* lock: the GIL; frames are laid out as we know them */
static PyObject *cell_type;   /* lock: the GIL; borrowed: a static type */

/* ---- frames ---- */

static PyObject *code_of(PyObject *frame) /* new reference */
{
    return python.more.PyFrame_GetCode ? python.more.PyFrame_GetCode(frame)
                                       : object_get(frame, "f_code");
}

/* Give the caller, new reference; takes the frame's. */
static PyObject *caller_of(PyObject *frame)
{
    struct cpython *py = &python.api;
    PyObject *back = python.more.PyFrame_GetBack ? python.more.PyFrame_GetBack(frame)
                                                 : object_get(frame, "f_back");
    py->Py_DecRef(frame);
    if (back != py->_Py_NoneStruct)
        return back;
    py->Py_DecRef(back);
    return NULL;
}

/* The places of a frame's variables.  (3.8 to 3.10: frameobject.h; 3.11: pycore_frame.h.)  From
 * 3.12 on there is a function for it. */
static PyObject *const *room_of(PyObject *frame)
{
    const struct cpython *py = &python.api;
    const char *p = (const char *)frame, *inner;
    if (!cpython_since(py, 10))
        return (PyObject *const *)(p + 360);
    if (!cpython_since(py, 11))
        return (PyObject *const *)(p + 352);
    memcpy(&inner, p + 24, sizeof(inner));
    return (PyObject *const *)(inner + 72);
}

/* Find a word in a tuple of names, -1: it is not there; ret_count: how many there are. */
static Py_ssize_t index_in(PyObject *code, const char *names, const char *word, size_t n,
                           Py_ssize_t *ret_count)
{
    struct cpython *py = &python.api;
    PyObject *tuple = object_get(code, names);
    Py_ssize_t found = -1, size;
    *ret_count = tuple ? py->PyTuple_Size(tuple) : 0;
    for (Py_ssize_t i = 0; i < *ret_count && found < 0; i++) {
        const char *text = py->PyUnicode_AsUTF8AndSize(py->PyTuple_GetItem(tuple, i), &size);
        if (text && (size_t)size == n && memcmp(text, word, n) == 0)
            found = i;
    }
    py->PyErr_Clear();
    py->Py_DecRef(tuple);
    return found;
}

/* Variables that inner functions use too stand behind the others, those of 3.11 that are arguments
 * excepted.  Gives the place of one of them, -1: it is none. */
static Py_ssize_t cell_of(PyObject *code, const char *word, size_t n)
{
    struct cpython *py = &python.api;
    Py_ssize_t n_locals, n_cells, other, size;
    (void)index_in(code, "co_varnames", word, n, &n_locals);
    Py_ssize_t cell = index_in(code, "co_cellvars", word, n, &n_cells), before = 0;
    PyObject *tuple = cell < 0 ? NULL : object_get(code, "co_cellvars");
    for (Py_ssize_t i = 0; tuple && i < cell; i++) {
        const char *text = py->PyUnicode_AsUTF8AndSize(py->PyTuple_GetItem(tuple, i), &size);
        before += !cpython_since(py, 11) || !text ||
                  index_in(code, "co_varnames", text, (size_t)size, &other) < 0;
    }
    py->PyErr_Clear();
    py->Py_DecRef(tuple);
    return cell < 0 ? -1 : n_locals + before;
}

/* Find the place where a function keeps a variable, NO_PLACE: it has none of that name.  If the
 * interpreter has a function that finds it, only whether there is one counts. */
static Py_ssize_t find_local(PyObject *code, const char *word, size_t n)
{
    Py_ssize_t count, at = NO_PLACE;
    if (!cpython_since(&python.api, 11)) /* an argument's own place is empty then */
        at = cell_of(code, word, n);
    if (at < 0)
        at = index_in(code, "co_varnames", word, n, &count);
    if (at < 0)
        at = cell_of(code, word, n);
    if (at < 0 && python.more.PyFrame_GetVar)
        at = index_in(code, "co_freevars", word, n, &count);
    return at < 0 ? NO_PLACE : at;
}

/* Its value, new reference; NULL: it has none now. */
static PyObject *local_at(PyObject *frame, Py_ssize_t at, PyObject *name)
{
    struct cpython *py = &python.api;
    PyObject *value = NULL;
    if (python.more.PyFrame_GetVar) {
        value = python.more.PyFrame_GetVar(frame, name);
        py->PyErr_Clear();
        return value;
    }
    memcpy(&value, room_of(frame) + at, sizeof(value));
    if (value && object_type(value) == cell_type)
        return object_get(value, "cell_contents"); /* an inner function uses it too */
    py->Py_IncRef(value);
    return value;
}

/* By its name alone. */
static PyObject *local_of(PyObject *frame, PyObject *code, const char *word)
{
    struct cpython *py = &python.api;
    Py_ssize_t at = find_local(code, word, strlen(word));
    PyObject *name = at == NO_PLACE ? NULL : py->PyUnicode_FromString(word);
    PyObject *value = name ? local_at(frame, at, name) : NULL;
    py->Py_DecRef(name);
    return value;
}

static PyObject *look_back(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    struct cpython *py = &python.api;
    PyObject *frame = python.more.PyEval_GetFrame(),
             *code = frame ? object_get(frame, "f_code") : NULL;
    (void)self;
    (void)kwnames;
    cell_type = n == 4 ? object_type(args[3]) : NULL;
    PyObject *third = code ? local_of(frame, code, "third") : NULL;
    PyObject *other = code ? local_of(frame, code, "other") : NULL;
    PyObject *shared = code ? local_of(frame, code, "shared") : NULL;
    readable = n == 4 && third == args[0] && other == args[1] && shared == args[2];
    py->Py_DecRef(shared);
    py->Py_DecRef(third);
    py->Py_DecRef(other);
    py->Py_DecRef(code);
    py->Py_IncRef(py->_Py_NoneStruct);
    return py->_Py_NoneStruct;
}

/* Are frames laid out as we think?  Tried on a function of our own. */
bool exprs_usable(void)
{
    static struct cpython_method method = {"look", NULL, METH_FASTCALL | METH_KEYWORDS, NULL};
    static const char text[] = "def f(first, *, other=(2,)):\n"
                               "    third, shared = [first], [other]\n"
                               "    def inner(): return first, shared\n"
                               "    return look(third, other, shared, inner.__closure__[0])\n"
                               "f(1)\n";
    struct cpython *py = &python.api;
    if (checked_life == torch_state.life)
        return readable;
    checked_life = torch_state.life;
    readable = false;
    memcpy(&method.call, &(PyCFunctionFastKeywords){look_back}, sizeof(method.call));
    PyObject *globals = py->PyDict_New(), *look = py->PyCFunction_NewEx(&method, NULL, NULL);
    if (globals && look && py->PyDict_SetItemString(globals, "look", look) == 0 &&
        py->PyDict_SetItemString(globals, "__builtins__", py->PyEval_GetBuiltins()) == 0)
        py->Py_DecRef(py->PyRun_StringFlags(text, Py_file_input, globals, globals, NULL));
    py->PyErr_Clear();
    py->Py_DecRef(look);
    py->Py_DecRef(globals);
    return readable;
}

/* ---- places ---- */

static bool is_text(PyObject *value, const char *text, size_t n)
{
    Py_ssize_t size;
    const char *own = value && object_is(value, python.api.PyUnicode_Type)
                          ? python.api.PyUnicode_AsUTF8AndSize(value, &size)
                          : NULL;
    python.api.PyErr_Clear();
    return own && (size_t)size == n && memcmp(own, text, n) == 0;
}

/* "Trainer.step" before 3.11, where code does not know its class: by that of `self`. */
static bool is_method(PyObject *frame, PyObject *code, const struct expression *e)
{
    size_t n = e->func_n;
    while (n && e->func[n - 1] != '.')
        n--;
    struct cpython *py = &python.api;
    PyObject *self = local_of(frame, code, "self");
    PyObject *order = self ? object_of_type(object_type(self), "__mro__") : NULL;
    Py_ssize_t size = order && object_is(order, py->PyTuple_Type) ? py->PyTuple_Size(order) : 0;
    bool is = false;
    for (Py_ssize_t i = 0; i < size && !is; i++) {
        PyObject *name = object_of_type(py->PyTuple_GetItem(order, i), "__name__");
        is = is_text(name, e->func, n - 1);
        py->Py_DecRef(name);
    }
    py->Py_DecRef(order);
    py->Py_DecRef(self);
    return is;
}

/* Is this the function that the expression names?  "Trainer.step" is a part of what 3.11's code
 * knows, "main.<locals>.Trainer.step". */
static enum inside find_inside(const struct expression *e, PyObject *code, PyObject *func)
{
    struct cpython *py = &python.api;
    if (e->func_n == 0 || is_text(func, e->func, e->func_n))
        return INSIDE;
    size_t last = e->func_n;
    while (last && e->func[last - 1] != '.')
        last--;
    if (!last || !is_text(func, e->func + last, e->func_n - last))
        return OUTSIDE;
    PyObject *whole = object_get(code, "co_qualname");
    Py_ssize_t n = 0;
    const char *text = whole ? py->PyUnicode_AsUTF8AndSize(whole, &n) : NULL;
    size_t before = text && (size_t)n >= e->func_n ? (size_t)n - e->func_n : 0;
    bool is = text && (size_t)n >= e->func_n && memcmp(text + before, e->func, e->func_n) == 0 &&
              (before == 0 || text[before - 1] == '.');
    py->PyErr_Clear();
    py->Py_DecRef(whole);
    return !whole ? BY_SELF : is ? INSIDE : OUTSIDE;
}

static struct variable_place find_place(const struct expression *e, PyObject *code)
{
    PyObject *func = object_get(code, "co_name");
    struct variable_place p = {.code = code, .number = e->number, .at = NO_PLACE};
    p.inside = func ? find_inside(e, code, func) : OUTSIDE;
    python.api.Py_DecRef(func);
    if (p.inside == OUTSIDE)
        return p;
    p.at = find_local(code, e->name, e->first_n);
    p.global = !(object_number(object_get(code, "co_flags")) & 1); /* CO_OPTIMIZED: a function's */
    return p;
}

static struct variable_place place_of(const struct expression *e, PyObject *code)
{
    struct cpython *py = &python.api;
    size_t hash = ((uintptr_t)code >> 4) * 31 + e->number;
    struct variable_place *p = &places[(hash ^ hash >> 9) % PLACES];
    if (p->code == code && p->number == e->number)
        return *p;
    struct variable_place found = find_place(e, code);
    PyObject *old = p->code;
    *p = found;
    py->Py_IncRef(code);
    py->Py_DecRef(old);
    return found;
}

void exprs_forget(void)
{
    for (size_t i = 0; i < PLACES; i++) {
        PyObject *code = places[i].code;
        places[i].code = NULL;
        python.api.Py_DecRef(code);
    }
}

static PyObject *global_of(PyObject *frame, PyObject *name)
{
    struct cpython *py = &python.api;
    PyObject *globals = object_get(frame, "f_globals"), *found = NULL;
    if (globals && object_is(globals, py->PyDict_Type))
        found = py->PyDict_GetItem(globals, name);
    py->Py_IncRef(found);
    py->PyErr_Clear();
    py->Py_DecRef(globals);
    return found;
}

/* The value in one frame, new reference. */
static PyObject *in_frame(const struct expression *e, PyObject *frame, PyObject *code,
                          const char **ret_why)
{
    const struct variable_place p = place_of(e, code);
    if (p.inside == OUTSIDE || (p.at == NO_PLACE && !p.global))
        return NULL;
    if (p.inside == BY_SELF && !is_method(frame, code, e))
        return NULL;
    PyObject *found = p.at == NO_PLACE ? NULL : local_at(frame, p.at, e->first);
    if (!found && p.global)
        found = global_of(frame, e->first);
    return exprs_follow(e, found, ret_why);
}

static uint64_t function_of(PyObject *code)
{
    PyObject *name = object_get(code, "co_name");
    Py_ssize_t n;
    const char *text = name && object_is(name, python.api.PyUnicode_Type)
                           ? python.api.PyUnicode_AsUTF8AndSize(name, &n)
                           : NULL;
    uint64_t id = object_intern_often(text);
    python.api.PyErr_Clear();
    python.api.Py_DecRef(name);
    return id;
}

PyObject *exprs_find(const struct expression *e, uint64_t *ret_func, const char **ret_why)
{
    struct cpython *py = &python.api;
    PyObject *frame = python.more.PyEval_GetFrame(), *value = NULL;
    bool known = false;
    *ret_func = PROBING_NULL_ID;
    *ret_why = NULL;
    py->Py_IncRef(frame);
    for (uint32_t i = 0; frame && !value && i < FRAMES_MAX; i++) {
        PyObject *code = code_of(frame);
        value = code ? in_frame(e, frame, code, ret_why) : NULL;
        if (value || (*ret_why && !known)) {
            *ret_func = function_of(code);
            known = true;
        }
        py->Py_DecRef(code);
        frame = caller_of(frame);
    }
    py->Py_DecRef(frame);
    return value;
}
