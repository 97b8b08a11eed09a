/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/exprs.c - the names in the setting `exprs`: what they may be, and what stands
 * for one of them in the frames of the thread that asks.
 *
 * Threads: any that holds the GIL; exprs_length() and exprs_check() anywhere.
 * A variable is read where the interpreter keeps it: asking a frame for f_locals would keep all of
 * its variables alive.  Names go through objects' own dicts, slots, items of dicts, lists and
 * tuples: nothing of the program runs.
 */
#include "steps/exprs.h"
#include "modules/tensor.h"
#include "python/pyobject.h"

#include <stdlib.h>

#define FRAMES_MAX 256u
#define GETTERS_MAX 4u /* properties of properties */

static uint32_t checked_life; /* lock: the GIL; of the plugin, when `readable` was found out */
static bool readable;         /* lock: the GIL; frames are laid out as we know them */
static PyObject *cell_type;   /* lock: the GIL; borrowed: a static type */

/* ---- as text ---- */

size_t exprs_length(const char *p, const char *stops)
{
    size_t i = 0;
    char quote = 0;
    int depth = 0;
    for (; p[i] && (depth || quote || !strchr(stops, p[i])); i++) {
        if (quote ? p[i] == quote : depth && (p[i] == '"' || p[i] == '\''))
            quote = quote ? 0 : p[i];
        else if (!quote)
            depth += p[i] == '[' ? 1 : p[i] == ']' && depth ? -1 : 0;
    }
    return i;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t word_length(const char *p)
{
    size_t n = 0;
    while (is_letter(p[n]) || is_digit(p[n]))
        n++;
    return n;
}

/* Of one part: "name" or "0" (of a Sequential) after a dot, [1], [-1], ["key"]; 0: it is none. */
static size_t part_length(const char *p)
{
    if (*p == '.')
        return word_length(p + 1) ? 1 + word_length(p + 1) : 0;
    if (*p != '[')
        return 0;
    size_t n = 1;
    if (p[1] == '"' || p[1] == '\'') {
        const char *end = strchr(p + 2, p[1]);
        return end && end > p + 2 && end[1] == ']' ? (size_t)(end + 2 - p) : 0;
    }
    n += p[1] == '-';
    size_t digits = strspn(p + n, "0123456789");
    return digits && digits < 10 && p[n + digits] == ']' ? n + digits + 1 : 0;
}

/* "train", "Trainer.step", "<module>". */
static bool is_function(const char *p, size_t n)
{
    bool angled = n > 2 && p[0] == '<' && p[n - 1] == '>', part = false;
    for (size_t i = angled; i < n - angled; i++) {
        if (p[i] == '.' ? !part : !is_letter(p[i]) && !is_digit(p[i]))
            return false;
        part = p[i] != '.';
    }
    return part && !is_digit(*p);
}

bool exprs_parse(const char *p, size_t n, struct expression *ret)
{
    struct expression e = {.name = p, .func = "", .first_n = word_length(p)};
    e.name_n = e.first_n;
    for (size_t part = 1; part && e.name_n < n && e.first_n; e.name_n += part)
        if ((part = part_length(p + e.name_n)) == 0)
            break;
    if (e.first_n == 0 || is_digit(*p) || e.name_n > n || e.name_n >= EXPRS_NAME_BYTES)
        return false;
    if (e.name_n < n) {
        e.func = p + e.name_n + 1;
        e.func_n = n - e.name_n - 1;
        if (p[e.name_n] != '@' || !is_function(e.func, e.func_n))
            return false;
    }
    *ret = e;
    return true;
}

/* ---- frames ---- */

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
    struct cpython *py = &torch_state.py;
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
    if (value && object_type(value) == cell_type)
        return object_get(value, "cell_contents"); /* an inner function uses it too */
    py->Py_IncRef(value);
    return value;
}

static PyObject *look_back(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    struct cpython *py = &torch_state.py;
    PyObject *frame = torch_state.more.PyEval_GetFrame(),
             *code = frame ? object_get(frame, "f_code") : NULL;
    (void)self;
    (void)kwnames;
    cell_type = n == 4 ? object_type(args[3]) : NULL;
    PyObject *third = code ? local_of(frame, code, "third", 5) : NULL;
    PyObject *other = code ? local_of(frame, code, "other", 5) : NULL;
    PyObject *shared = code ? local_of(frame, code, "shared", 6) : NULL;
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

/* ---- the parts of a name ---- */

/* Something that a type has, as `type` itself gives it: no metaclass is asked.  New reference. */
static PyObject *of_type(PyObject *type, const char *name)
{
    struct cpython *py = &torch_state.py;
    PyObject *text = py->PyUnicode_InternFromString(name);
    PyObject *value = text ? py->PyObject_GenericGetAttr(type, text) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(text);
    return value;
}

/* What the classes of an object have under a name, new reference. */
static PyObject *of_classes(PyObject *object, PyObject *name)
{
    struct cpython *py = &torch_state.py;
    PyObject *order = of_type(object_type(object), "__mro__"), *found = NULL;
    Py_ssize_t n = order && object_is(order, py->PyTuple_Type) ? py->PyTuple_Size(order) : 0;
    for (Py_ssize_t i = 0; i < n && !found; i++) {
        PyObject *dict = of_type(py->PyTuple_GetItem(order, i), "__dict__"); /* a proxy of one */
        found = dict ? py->PyObject_GetItem(dict, name) : NULL;
        py->PyErr_Clear();
        py->Py_DecRef(dict);
    }
    py->Py_DecRef(order);
    return found;
}

static bool is_plain(PyObject *value)
{
    struct cpython *py = &torch_state.py;
    PyObject *const types[] = {py->PyFloat_Type, py->PyLong_Type, py->PyUnicode_Type,
                               py->PyDict_Type,  py->PyList_Type, py->PyTuple_Type};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (object_is(value, types[i]))
            return true;
    return value == py->_Py_NoneStruct || tensor_is(value);
}

static PyObject *attribute_in(PyObject *object, PyObject *name, uint32_t depth,
                              const char **ret_why);

/* What a property gives that does nothing but give it. */
static PyObject *of_getter(PyObject *object, PyObject *names, uint32_t depth, const char **ret_why)
{
    struct cpython *py = &torch_state.py;
    Py_ssize_t n = py->PyTuple_Size(names);
    py->Py_IncRef(object);
    for (Py_ssize_t i = 0; i < n && object; i++) {
        PyObject *outer = object;
        object = attribute_in(outer, py->PyTuple_GetItem(names, i), depth + 1, ret_why);
        py->Py_DecRef(outer);
    }
    return object;
}

/* Of a slot, a namedtuple's field, a class's own value, or a property that gives an attribute.
 * Anything else is code. */
static PyObject *of_class(PyObject *object, PyObject *name, uint32_t depth, const char **ret_why)
{
    struct cpython *py = &torch_state.py;
    PyObject *found = of_classes(object, name), *value = NULL, *names = NULL;
    const char *kind = found ? names_class_text(found) : "";
    if (found && is_plain(found))
        return found;
    if (strcmp(kind, "member_descriptor") == 0 || strcmp(kind, "_tuplegetter") == 0)
        value = py->PyObject_GenericGetAttr(object, name);
    else if (found && depth < GETTERS_MAX && (names = getter_names(found)) != NULL)
        value = of_getter(object, names, depth, ret_why);
    else if (found)
        *ret_why = "not read: a property or the like, whose code would run";
    py->PyErr_Clear();
    py->Py_DecRef(names);
    py->Py_DecRef(found);
    return value;
}

/* Of a tensor that keeps one: asking another one makes torch warn. */
static PyObject *gradient_of(PyObject *tensor, const char **ret_why)
{
    struct cpython *py = &torch_state.py;
    PyObject *leaf = object_get(tensor, "is_leaf"), *keeps = object_get(tensor, "retains_grad");
    bool has = leaf == py->_Py_TrueStruct || keeps == py->_Py_TrueStruct;
    py->Py_DecRef(leaf);
    py->Py_DecRef(keeps);
    if (!has)
        *ret_why = "not read: a tensor that keeps no gradient";
    return has ? object_get(tensor, "grad") : NULL;
}

/* Modules' own is known: it looks where we have looked. */
static bool has_getattr(PyObject *object)
{
    struct cpython *py = &torch_state.py;
    PyObject *name = py->PyUnicode_InternFromString("__getattr__");
    PyObject *own = name ? of_classes(object, name) : NULL;
    PyObject *known = own ? object_get(torch_state.module_class, "__getattr__") : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(known);
    py->Py_DecRef(own);
    py->Py_DecRef(name);
    return own && own != known;
}

static PyObject *attribute_in(PyObject *object, PyObject *name, uint32_t depth,
                              const char **ret_why)
{
    static const char *const more[] = {"_parameters", "_buffers", "_modules"};
    struct cpython *py = &torch_state.py;
    PyObject *found = NULL, *dict = tensor_is(object) ? NULL : names_dict(object);
    if (dict && object_is(dict, py->PyDict_Type))
        found = py->PyDict_GetItem(dict, name);
    for (size_t i = 0; i < 3 && !found && dict && object_is(object, torch_state.module_class);
         i++) {
        PyObject *inner = py->PyDict_GetItemString(dict, more[i]);
        if (inner && object_is(inner, py->PyDict_Type))
            found = py->PyDict_GetItem(inner, name);
    }
    py->Py_IncRef(found);
    if (tensor_is(object) && py->PyUnicode_CompareWithASCIIString(name, "grad") == 0)
        found = gradient_of(object, ret_why);
    else if (!found)
        found = of_class(object, name, depth, ret_why);
    if (!found && !*ret_why && !tensor_is(object) && has_getattr(object))
        *ret_why = "not read: only its class's __getattr__() could tell, whose code would run";
    py->PyErr_Clear();
    py->Py_DecRef(dict);
    return found;
}

static PyObject *attribute_of(PyObject *object, const char *word, size_t n, const char **ret_why)
{
    struct cpython *py = &torch_state.py;
    PyObject *name = py->PyUnicode_FromStringAndSize(word, (Py_ssize_t)n);
    PyObject *found = name ? attribute_in(object, name, /* depth= */ 0, ret_why) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(name);
    return found;
}

/* [1], [-1], ["key"]: of dicts, lists and tuples, never by a method of the program's. */
static PyObject *item_of(PyObject *object, const char *word, size_t n, const char **ret_why)
{
    struct cpython *py = &torch_state.py;
    PyObject *found = NULL;
    if (!object_is(object, py->PyDict_Type) && !object_is(object, py->PyList_Type) &&
        !object_is(object, py->PyTuple_Type)) {
        *ret_why = "not read: [...] of what is no dict, list or tuple: its code would run";
        return NULL;
    }
    if (*word == '"' || *word == '\'') {
        PyObject *key = py->PyUnicode_FromStringAndSize(word + 1, (Py_ssize_t)n - 2);
        found = key && object_is(object, py->PyDict_Type) ? py->PyDict_GetItem(object, key) : NULL;
        py->Py_DecRef(key);
    } else {
        long long at = strtoll(word, NULL, 10);
        bool list = object_is(object, py->PyList_Type), tuple = object_is(object, py->PyTuple_Type);
        Py_ssize_t size = list ? py->PyList_Size(object) : tuple ? py->PyTuple_Size(object) : 0;
        at += at < 0 ? size : 0;
        if (at >= 0 && at < size)
            found = list ? py->PyList_GetItem(object, at) : py->PyTuple_GetItem(object, at);
        if (object_is(object, py->PyDict_Type)) {
            PyObject *key = py->PyLong_FromLongLong(at);
            found = key ? py->PyDict_GetItem(object, key) : NULL;
            py->Py_DecRef(key);
        }
    }
    py->PyErr_Clear();
    py->Py_IncRef(found);
    return found;
}

/* The variable in one frame, new reference. */
static PyObject *in_frame(const struct expression *e, PyObject *frame, PyObject *code,
                          const char **ret_why)
{
    struct cpython *py = &torch_state.py;
    PyObject *found = local_of(frame, code, e->name, e->first_n);
    int64_t flags = object_number(object_get(code, "co_flags"));
    bool module = !(flags & 1); /* CO_OPTIMIZED: a function's */
    PyObject *globals = !found && module ? object_get(frame, "f_globals") : NULL;
    PyObject *name =
        globals ? py->PyUnicode_FromStringAndSize(e->name, (Py_ssize_t)e->first_n) : NULL;
    if (name && object_is(globals, py->PyDict_Type)) {
        found = py->PyDict_GetItem(globals, name);
        py->Py_IncRef(found);
    }
    py->PyErr_Clear();
    py->Py_DecRef(name);
    py->Py_DecRef(globals);
    for (size_t at = e->first_n; found && at < e->name_n;) {
        const char *part = e->name + at;
        size_t n = part_length(part);
        PyObject *outer = found;
        found = *part == '.' ? attribute_of(outer, part + 1, n - 1, ret_why)
                             : item_of(outer, part + 1, n - 2, ret_why);
        py->Py_DecRef(outer);
        at += n;
    }
    return found;
}

static bool is_text(PyObject *value, const char *text, size_t n)
{
    Py_ssize_t size;
    const char *own = value && object_is(value, torch_state.py.PyUnicode_Type)
                          ? torch_state.py.PyUnicode_AsUTF8AndSize(value, &size)
                          : NULL;
    torch_state.py.PyErr_Clear();
    return own && (size_t)size == n && memcmp(own, text, n) == 0;
}

/* "Trainer.step" before 3.11, where code does not know it: by the class of `self`. */
static bool is_method(PyObject *frame, PyObject *code, const char *class, size_t n)
{
    struct cpython *py = &torch_state.py;
    PyObject *self = local_of(frame, code, "self", 4);
    PyObject *order = self ? of_type(object_type(self), "__mro__") : NULL;
    Py_ssize_t size = order && object_is(order, py->PyTuple_Type) ? py->PyTuple_Size(order) : 0;
    bool is = false;
    for (Py_ssize_t i = 0; i < size && !is; i++) {
        PyObject *name = of_type(py->PyTuple_GetItem(order, i), "__name__");
        is = is_text(name, class, n);
        py->Py_DecRef(name);
    }
    py->Py_DecRef(order);
    py->Py_DecRef(self);
    return is;
}

static bool is_in(const struct expression *e, PyObject *frame, PyObject *code, PyObject *func)
{
    struct cpython *py = &torch_state.py;
    if (e->func_n == 0 || is_text(func, e->func, e->func_n))
        return true;
    size_t last = e->func_n;
    while (last && e->func[last - 1] != '.')
        last--;
    if (!last || !is_text(func, e->func + last, e->func_n - last))
        return false;
    PyObject *whole = object_get(code, "co_qualname"); /* 3.11: "main.<locals>.Trainer.step" */
    Py_ssize_t n = 0;
    const char *text = whole ? py->PyUnicode_AsUTF8AndSize(whole, &n) : NULL;
    size_t before = text && (size_t)n >= e->func_n ? (size_t)n - e->func_n : 0;
    bool is = text && (size_t)n >= e->func_n && memcmp(text + before, e->func, e->func_n) == 0 &&
              (before == 0 || text[before - 1] == '.');
    py->PyErr_Clear();
    if (!whole)
        is = is_method(frame, code, e->func, last - 1);
    py->Py_DecRef(whole);
    return is;
}

PyObject *exprs_find(const struct expression *e, PyObject **ret_func, const char **ret_why)
{
    struct cpython *py = &torch_state.py;
    PyObject *frame = torch_state.more.PyEval_GetFrame(), *value = NULL;
    *ret_func = NULL;
    *ret_why = NULL;
    py->Py_IncRef(frame);
    for (uint32_t i = 0; frame && frame != py->_Py_NoneStruct && !value && i < FRAMES_MAX; i++) {
        PyObject *code = object_get(frame, "f_code"), *func = object_get(code, "co_name");
        if (func && is_in(e, frame, code, func))
            value = in_frame(e, frame, code, ret_why);
        if (value || (*ret_why && !*ret_func))
            *ret_func = func;
        else
            py->Py_DecRef(func);
        py->Py_DecRef(code);
        frame = object_get_from(frame, "f_back");
    }
    py->Py_DecRef(frame);
    return value;
}
