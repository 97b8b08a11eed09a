/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables.c - variables of the training loop at each step's end, and the watch for
 * numbers that are none.
 *
 * Threads: any that holds the GIL.
 * A variable is read where the interpreter keeps it: asking a frame for f_locals would keep all of
 * its variables alive.  Dotted names go through objects' own dicts: nothing of the program runs.
 */
#include <errno.h>
#include <stdio.h>

#include "tensor.h"
#include "torch.h"

#define WORD_BYTES 128u
#define TEXT_BYTES 256u
#define FRAMES_MAX 256u
#define OUTPUTS_MAX 16
#define DEPTH_MAX 3 /* of lists, tuples and dicts in one another */

enum { COL_LOCAL_STEP_, COL_FUNC, COL_NAME, COL_TYPE, COL_VALUE_F64, N_VARIABLES };

static const struct probing_column columns[N_VARIABLES] = {
    {.name = "local_step", .type = PROBING_I64, .doc = "the step that has ended"},
    {.name = "func", .type = PROBING_STR, .doc = "function whose variable it is; or a module"},
    {.name = "name",
     .type = PROBING_STR,
     .doc = "as in torch.exprs; of a tensor with several numbers .min, .max, .mean, .norm, .nan"},
    {.name = "value_type", .type = PROBING_STR, .doc = "class of the value"},
    {.name = "value_f64", .type = PROBING_F64, .doc = "the value, if it is a number"},
};

const struct probing_table_desc variables_table = {
    .size = sizeof(variables_table),
    .column_size = sizeof(struct probing_column),
    .name = "python.variables",
    .columns = columns,
    .n_columns = N_VARIABLES,
    .tail_type = PROBING_STR,
    .tail_name = "value",
    .doc = "variables of the program at each step's end (torch.exprs), and what torch.nan finds",
};

static uint32_t checked_life; /* lock: the GIL; of the plugin, when `readable` was found out */
static bool readable;         /* lock: the GIL; frames are laid out as we know them */
static uint64_t told_step, told_life; /* lock: the GIL; where a NaN was told last */

/* ---- rows ---- */

static uint64_t intern(const char *text)
{
    uint64_t id;
    if (torch_state.host->intern(torch_state.host, text, strlen(text), &id) < 0)
        return PROBING_NULL_ID;
    return id;
}

static void add_row(uint64_t func, const char *name, const char *type, const double *number,
                    const char *text)
{
    union probing_cell row[N_VARIABLES];
    row[COL_LOCAL_STEP_].i = (int64_t)torch_state.step;
    row[COL_FUNC].u = func;
    row[COL_NAME].u = intern(name);
    row[COL_TYPE].u = intern(type);
    row[COL_VALUE_F64].u = PROBING_NULL_F64;
    if (number && *number == *number)
        row[COL_VALUE_F64].f = *number;
    (void)torch_state.host->append(torch_state.variables, torch_state.now(), row, N_VARIABLES, text,
                                   (uint32_t)strlen(text));
}

static void add_number(uint64_t func, const char *name, const char *type, double number)
{
    char text[64] = "nan"; /* printf knows it with a sign, too */
    if (number == number)
        (void)snprintf(text, sizeof(text), "%.9g", number);
    add_row(func, name, type, &number, text);
}

static void add_tensor(uint64_t func, const char *name, PyObject *tensor)
{
    struct tensor_figures f;
    int rc = tensor_look(tensor, &f);
    if (rc < 0) {
        add_row(func, name, "Tensor", NULL,
                rc == -EXDEV   ? "not read: that would wait for its device"
                : rc == -E2BIG ? "not read: too large"
                               : "not read: its type or layout");
        return;
    }
    if (f.n == 1) {
        add_number(func, name, "Tensor", f.first);
        return;
    }
    const struct {
        const char *name;
        double value;
    } parts[] = {{"min", f.min},
                 {"max", f.max},
                 {"mean", f.mean},
                 {"norm", f.norm},
                 {"nan", (double)f.n_nan}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && f.n; i++) {
        char full[WORD_BYTES + 8];
        (void)snprintf(full, sizeof(full), "%s.%s", name, parts[i].name);
        add_number(func, full, "Tensor", parts[i].value);
    }
}

static void add_value(uint64_t func, const char *name, PyObject *value)
{
    struct cpython *py = &torch_state.py;
    PyObject *type = object_type(value);
    if (py->PyType_IsSubtype(type, py->PyFloat_Type)) {
        add_number(func, name, "float", py->PyFloat_AsDouble(value));
    } else if (value == py->_Py_TrueStruct || value == py->_Py_FalseStruct) {
        double number = value == py->_Py_TrueStruct;
        add_row(func, name, "bool", &number, number != 0 ? "True" : "False");
    } else if (py->PyType_IsSubtype(type, py->PyLong_Type)) {
        long long n = py->PyLong_AsLongLong(value);
        if (!py->PyErr_Occurred())
            add_number(func, name, "int", (double)n);
    } else if (py->PyType_IsSubtype(type, py->PyUnicode_Type)) {
        Py_ssize_t n;
        const char *bytes = py->PyUnicode_AsUTF8AndSize(value, &n);
        if (bytes && n < (Py_ssize_t)TEXT_BYTES)
            add_row(func, name, "str", NULL, bytes);
    } else if (py->PyType_IsSubtype(type, torch_state.tensor_class)) {
        add_tensor(func, name, value);
    }
    py->PyErr_Clear();
}

/* ---- frames ---- */

static PyObject *get(PyObject *object, const char *name)
{
    PyObject *value = torch_state.py.PyObject_GetAttrString(object, name);
    torch_state.py.PyErr_Clear();
    return value;
}

/* Where a frame keeps its variables.  (3.8 to 3.10: frameobject.h; 3.11: pycore_frame.h.)  From
 * 3.12 on there is a function for it. */
static PyObject *const *room_of(PyObject *frame)
{
    const struct cpython *py = &torch_state.py;
    const char *p = (const char *)frame, *inner;
    if (!cpython_since(py, 10))
        return (PyObject *const *)(p + 360);
    if (!cpython_since(py, 11))
        return (PyObject *const *)(p + 352);
    memcpy(&inner, p + 24, sizeof(inner));
    return (PyObject *const *)(inner + 72);
}

/* Where a word stands in a tuple of names, -1: nowhere; ret_count: how many there are. */
static Py_ssize_t index_in(PyObject *code, const char *names, const char *word, size_t n,
                           Py_ssize_t *ret_count)
{
    struct cpython *py = &torch_state.py;
    PyObject *tuple = get(code, names);
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
    struct cpython *py = &torch_state.py;
    Py_ssize_t n_locals, n_cells, other, size;
    (void)index_in(code, "co_varnames", word, n, &n_locals);
    Py_ssize_t cell = index_in(code, "co_cellvars", word, n, &n_cells), before = 0;
    PyObject *tuple = cell < 0 ? NULL : get(code, "co_cellvars");
    for (Py_ssize_t i = 0; tuple && i < cell; i++) {
        const char *text = py->PyUnicode_AsUTF8AndSize(py->PyTuple_GetItem(tuple, i), &size);
        before += !cpython_since(py, 11) || !text ||
                  index_in(code, "co_varnames", text, (size_t)size, &other) < 0;
    }
    py->PyErr_Clear();
    py->Py_DecRef(tuple);
    return cell < 0 ? -1 : n_locals + before;
}

/* A local variable, new reference; NULL: there is none, or it has no value now. */
static PyObject *local_of(PyObject *frame, PyObject *code, const char *word, size_t n)
{
    struct cpython *py = &torch_state.py;
    Py_ssize_t count;
    if (torch_state.more.PyFrame_GetVar) {
        PyObject *name = py->PyUnicode_FromStringAndSize(word, (Py_ssize_t)n);
        PyObject *found = name ? torch_state.more.PyFrame_GetVar(frame, name) : NULL;
        py->PyErr_Clear();
        py->Py_DecRef(name);
        return found;
    }
    Py_ssize_t at = index_in(code, "co_varnames", word, n, &count);
    if (at < 0)
        at = cell_of(code, word, n);
    PyObject *value = NULL;
    if (at >= 0)
        memcpy(&value, room_of(frame) + at, sizeof(value));
    if (value && strcmp(names_class_text(value), "cell") == 0)
        return get(value, "cell_contents"); /* an inner function uses it too */
    py->Py_IncRef(value);
    return value;
}

static PyObject *look_back(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    struct cpython *py = &torch_state.py;
    PyObject *frame = torch_state.more.PyEval_GetFrame(),
             *code = frame ? get(frame, "f_code") : NULL;
    (void)self;
    (void)kwnames;
    PyObject *third = code ? local_of(frame, code, "third", 5) : NULL;
    PyObject *other = code ? local_of(frame, code, "other", 5) : NULL;
    PyObject *shared = code ? local_of(frame, code, "shared", 6) : NULL;
    readable = n == 3 && third == args[0] && other == args[1] && shared == args[2];
    py->Py_DecRef(shared);
    py->Py_DecRef(third);
    py->Py_DecRef(other);
    py->Py_DecRef(code);
    py->Py_IncRef(py->_Py_NoneStruct);
    return py->_Py_NoneStruct;
}

/* Are frames laid out as we think?  Tried on a function of our own. */
static bool check_layout(void)
{
    static struct cpython_method method = {"look", NULL, METH_FASTCALL | METH_KEYWORDS, NULL};
    static const char text[] = "def f(first, *, other=(2,)):\n"
                               "    third, shared = [first], [other]\n"
                               "    def inner(): return first, shared\n"
                               "    return look(third, other, shared)\n"
                               "f(1)\n";
    struct cpython *py = &torch_state.py;
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

/* One step of a dotted name through objects' own dicts; takes the reference, gives a new one. */
static PyObject *part_of(PyObject *object, const char *word, size_t n)
{
    static const char *const more[] = {"_parameters", "_buffers", "_modules"};
    struct cpython *py = &torch_state.py;
    PyObject *name = py->PyUnicode_FromStringAndSize(word, (Py_ssize_t)n), *found = NULL;
    PyObject *dict = names_dict(object);
    if (name && dict && py->PyType_IsSubtype(object_type(dict), py->PyDict_Type))
        found = py->PyDict_GetItem(dict, name);
    for (size_t i = 0; i < 3 && !found && name && dict &&
                       py->PyType_IsSubtype(object_type(object), torch_state.module_class);
         i++) {
        PyObject *inner = py->PyDict_GetItemString(dict, more[i]);
        if (inner && py->PyType_IsSubtype(object_type(inner), py->PyDict_Type))
            found = py->PyDict_GetItem(inner, name);
    }
    py->Py_IncRef(found);
    if (!found && n == 4 && memcmp(word, "grad", 4) == 0 && tensor_is(object))
        found = get(object, "grad");
    py->PyErr_Clear();
    py->Py_DecRef(dict);
    py->Py_DecRef(name);
    py->Py_DecRef(object);
    return found;
}

struct expression {
    const char *name, *func;        /* func: "" for whatever function has it, the innermost first */
    size_t name_n, func_n, first_n; /* first_n: of the name, up to its first dot */
};

/* The variable in one frame, new reference. */
static PyObject *in_frame(const struct expression *e, PyObject *frame, PyObject *code)
{
    struct cpython *py = &torch_state.py;
    PyObject *found = local_of(frame, code, e->name, e->first_n), *flags = get(code, "co_flags");
    bool module = flags && !(py->PyLong_AsLongLong(flags) & 1); /* CO_OPTIMIZED: a function's */
    PyObject *globals = !found && module ? get(frame, "f_globals") : NULL;
    PyObject *name =
        globals ? py->PyUnicode_FromStringAndSize(e->name, (Py_ssize_t)e->first_n) : NULL;
    if (name && py->PyType_IsSubtype(object_type(globals), py->PyDict_Type)) {
        found = py->PyDict_GetItem(globals, name);
        py->Py_IncRef(found);
    }
    py->PyErr_Clear();
    py->Py_DecRef(name);
    py->Py_DecRef(globals);
    py->Py_DecRef(flags);
    size_t at = e->first_n;
    while (found && at < e->name_n) {
        size_t n = strcspn(e->name + at + 1, ".@,");
        found = part_of(found, e->name + at + 1, n);
        at += 1 + n;
    }
    return found;
}

static void add_expression(const struct expression *e)
{
    struct cpython *py = &torch_state.py;
    PyObject *frame = torch_state.more.PyEval_GetFrame();
    py->Py_IncRef(frame);
    bool done = false;
    for (uint32_t i = 0; frame && frame != py->_Py_NoneStruct && !done && i < FRAMES_MAX; i++) {
        PyObject *code = get(frame, "f_code"), *func = code ? get(code, "co_name") : NULL;
        Py_ssize_t n = 0;
        const char *text = func ? py->PyUnicode_AsUTF8AndSize(func, &n) : NULL;
        bool right = text && (e->func_n == 0 ||
                              ((size_t)n == e->func_n && memcmp(text, e->func, e->func_n) == 0));
        PyObject *value = right ? in_frame(e, frame, code) : NULL;
        if (value) {
            char name[WORD_BYTES];
            (void)snprintf(name, sizeof(name), "%.*s", (int)e->name_n, e->name);
            add_value(intern(text), name, value);
            done = true;
        }
        PyObject *back = get(frame, "f_back");
        py->Py_DecRef(value);
        py->Py_DecRef(func);
        py->Py_DecRef(code);
        py->Py_DecRef(frame);
        frame = back;
    }
    py->PyErr_Clear();
    py->Py_DecRef(frame);
}

void variables_step(void)
{
    const char *p = torch_state.set.exprs;
    PyObject *guard;
    if (!*p || !torch_state.host->wanted(torch_state.variables) || !check_layout() ||
        !tensor_quiet(&guard))
        return;
    while (*p) {
        size_t n = strcspn(p, ",");
        struct expression e = {.name = p, .name_n = strcspn(p, ",@"), .func = ""};
        e.first_n = strcspn(p, ",@.");
        if (e.name_n < n) {
            e.func = p + e.name_n + 1;
            e.func_n = n - e.name_n - 1;
        }
        if (e.name_n && e.name_n < WORD_BYTES)
            add_expression(&e);
        p += n + (p[n] == ',');
    }
    tensor_loud(guard);
}

/* ---- numbers that are none ---- */

/* fn for a value, or for each of a list, tuple or dict of them, until it gives true. */
static bool each_tensor(PyObject *value, int depth, bool (*fn)(PyObject *, void *), void *arg)
{
    struct cpython *py = &torch_state.py;
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

static bool count(PyObject *tensor, void *arg)
{
    struct tensor_figures f, *sum = arg;
    if (tensor_look(tensor, &f) == 0) {
        sum->n += f.n;
        sum->n_nan += f.n_nan;
        sum->n_infinite += f.n_infinite;
    }
    return false;
}

static void tell(uint64_t module, PyObject *const *args, Py_ssize_t n, PyObject *result)
{
    struct tensor_figures out = {.n = 0};
    char text[TEXT_BYTES], numbers[TEXT_BYTES / 2];
    bool before = false;
    (void)each_tensor(result, 0, count, &out);
    for (Py_ssize_t i = 1; i < n && i <= OUTPUTS_MAX && !before; i++)
        before = each_tensor(args[i], 0, is_bad, NULL);
    double bad = (double)(out.n_nan + out.n_infinite);
    (void)snprintf(numbers, sizeof(numbers), "%lld NaN and %lld infinite of %lld",
                   (long long)out.n_nan, (long long)out.n_infinite, (long long)out.n);
    (void)snprintf(text, sizeof(text), "%s in its output; %s",
                   bad > 0 ? numbers : "NaN or infinite, more numbers than are counted",
                   before ? "its input has some already" : "its input is finite");
    add_row(module, "nonfinite", "Tensor", bad > 0 ? &bad : NULL, text);
}

void variables_watch(uint64_t module, PyObject *const *args, Py_ssize_t n, PyObject *result)
{
    PyObject *guard;
    if (told_life == torch_state.life && told_step == torch_state.step + 1)
        return;
    if (!tensor_quiet(&guard))
        return;
    if (each_tensor(result, 0, is_bad, NULL)) {
        told_life = torch_state.life;
        told_step = torch_state.step + 1;
        tell(module, args, n, result);
    }
    tensor_loud(guard);
}
