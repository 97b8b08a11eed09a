/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/exprs.c - the names in the setting `exprs`: what they may be, and where
 * their parts lead from a variable on, which frame_variable.c finds.
 *
 * Threads: any that holds the GIL; exprs_length() and exprs_parse() anywhere.
 * Names go through objects' own dicts, slots, items of dicts, lists and tuples: nothing of the
 * program runs.
 */
#include "variables/exprs.h"
#include "python/pyobject.h"
#include "python/tensor.h"

#include <stdlib.h>

#define GETTERS_MAX 4u /* properties of properties */

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

/* Measure a part: "name" or "0" (of a Sequential) after a dot, [1], [-1], ["key"]; 0: not one. */
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

/* ---- the parts of a name ---- */

/* Find a name in the classes of an object, new reference. */
static PyObject *of_classes(PyObject *object, PyObject *name)
{
    struct cpython *py = &python.api;
    PyObject *order = object_of_type(object_type(object), "__mro__"), *found = NULL;
    Py_ssize_t n = order && object_is(order, py->PyTuple_Type) ? py->PyTuple_Size(order) : 0;
    for (Py_ssize_t i = 0; i < n && !found; i++) {
        PyObject *dict =
            object_of_type(py->PyTuple_GetItem(order, i), "__dict__"); /* a proxy of one */
        found = dict ? py->PyObject_GetItem(dict, name) : NULL;
        py->PyErr_Clear();
        py->Py_DecRef(dict);
    }
    py->Py_DecRef(order);
    return found;
}

static bool is_plain(PyObject *value)
{
    struct cpython *py = &python.api;
    PyObject *const types[] = {py->PyFloat_Type, py->PyLong_Type, py->PyUnicode_Type,
                               py->PyDict_Type,  py->PyList_Type, py->PyTuple_Type};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (object_is(value, types[i]))
            return true;
    return value == py->_Py_NoneStruct || tensor_is(value);
}

static PyObject *attribute_in(PyObject *object, PyObject *name, uint32_t depth,
                              const char **ret_why);

/* Read a property that does nothing but give an attribute. */
static PyObject *of_getter(PyObject *object, PyObject *names, uint32_t depth, const char **ret_why)
{
    struct cpython *py = &python.api;
    Py_ssize_t n = py->PyTuple_Size(names);
    py->Py_IncRef(object);
    for (Py_ssize_t i = 0; i < n && object; i++) {
        PyObject *outer = object;
        object = attribute_in(outer, py->PyTuple_GetItem(names, i), depth + 1, ret_why);
        py->Py_DecRef(outer);
    }
    return object;
}

/* Read a slot, a namedtuple's field, a class's own value, or a property that gives an attribute.
 * Anything else is code. */
static PyObject *of_class(PyObject *object, PyObject *name, uint32_t depth, const char **ret_why)
{
    struct cpython *py = &python.api;
    PyObject *found = of_classes(object, name), *value = NULL, *names = NULL;
    const char *kind = found ? object_class_text(found) : "";
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

/* Read the gradient of a tensor that keeps one: asking another one makes torch warn. */
static PyObject *gradient_of(PyObject *tensor, const char **ret_why)
{
    struct cpython *py = &python.api;
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
    struct cpython *py = &python.api;
    PyObject *name = py->PyUnicode_InternFromString("__getattr__");
    PyObject *own = name ? of_classes(object, name) : NULL;
    PyObject *known = own ? object_get(python.module_class, "__getattr__") : NULL;
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
    struct cpython *py = &python.api;
    PyObject *found = NULL, *dict = tensor_is(object) ? NULL : object_dict(object);
    if (dict && object_is(dict, py->PyDict_Type))
        found = py->PyDict_GetItem(dict, name);
    for (size_t i = 0; i < 3 && !found && dict && object_is(object, python.module_class); i++) {
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
    struct cpython *py = &python.api;
    PyObject *name = py->PyUnicode_FromStringAndSize(word, (Py_ssize_t)n);
    PyObject *found = name ? attribute_in(object, name, /* depth= */ 0, ret_why) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(name);
    return found;
}

/* [1], [-1], ["key"]: of dicts, lists and tuples, never by a method of the program's. */
static PyObject *item_of(PyObject *object, const char *word, size_t n, const char **ret_why)
{
    struct cpython *py = &python.api;
    PyObject *found = NULL;
    if (!object_is(object, py->PyDict_Type) && !object_is(object, py->PyList_Type) &&
        !object_is(object, py->PyTuple_Type)) {
        *ret_why = "not read: [...] of what is not a dict, list or tuple: its code would run";
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

PyObject *exprs_follow(const struct expression *e, PyObject *variable, const char **ret_why)
{
    PyObject *found = variable;
    for (size_t at = e->first_n; found && at < e->name_n;) {
        const char *part = e->name + at;
        size_t n = part_length(part);
        PyObject *outer = found;
        found = *part == '.' ? attribute_of(outer, part + 1, n - 1, ret_why)
                             : item_of(outer, part + 1, n - 2, ret_why);
        python.api.Py_DecRef(outer);
        at += n;
    }
    return found;
}
