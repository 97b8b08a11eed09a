/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/pyobject.c - what is asked of Python's objects where speed does not matter.
 *
 * Threads: any that holds the GIL; object_lookup() on [worker] asks for it.
 */
#include "python/pyobject.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <probing/ext/draft/python.h>

#define GIL_WAIT_NS UINT64_C(2000000000)
#define TYPE_NAME 24 /* offset of tp_name in PyTypeObject, 3.8 to 3.15 */
#define ERROR_BYTES 240
#define OFTEN 64       /* texts that are kept, */
#define OFTEN_BYTES 56 /* each at most so long */

int object_lookup(int (*fn)(void *arg), void *arg)
{
    const struct probing_host *h = torch_state.host;
    const struct probing_python_gil_1 *gil = h->extension(h, PROBING_PYTHON_GIL_1);
    int rc = torch_on() && gil ? gil->call(fn, arg, GIL_WAIT_NS) : 0;
    if (rc == -ETIMEDOUT)
        return h->fail(h, rc, "the interpreter did not give up the GIL for 2 s");
    return rc == -ENODEV ? h->fail(h, rc, "the interpreter is ending") : rc;
}

int object_scan(struct probing_rows *out, size_t size, int (*look)(void *found),
                int (*emit)(struct probing_rows *out, const void *found))
{
    const struct probing_host *h = torch_state.host;
    void *found = calloc(1, size);
    if (!found)
        return h->fail(h, -ENOMEM, "no memory");
    int rc = object_lookup(look, found);
    if (rc == 0)
        rc = emit(out, found);
    free(found);
    return probing_scanned(rc);
}

PyObject *object_module(const char *name)
{
    struct cpython *py = &python.api;
    return py->PyDict_GetItemString(py->PyImport_GetModuleDict(), name);
}

PyObject *object_get(PyObject *object, const char *name)
{
    PyObject *value = object ? python.api.PyObject_GetAttrString(object, name) : NULL;
    python.api.PyErr_Clear();
    return value;
}

PyObject *object_get_from(PyObject *object, const char *name)
{
    PyObject *value = object_get(object, name);
    python.api.Py_DecRef(object);
    return value;
}

PyObject *object_of_type(PyObject *type, const char *name)
{
    struct cpython *py = &python.api;
    PyObject *text = py->PyUnicode_InternFromString(name);
    PyObject *value = text ? py->PyObject_GenericGetAttr(type, text) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(text);
    return value;
}

int64_t object_number(PyObject *value)
{
    struct cpython *py = &python.api;
    int64_t n = PROBING_NULL_I64;
    if (value && object_is(value, py->PyLong_Type))
        n = py->PyLong_AsLongLong(value);
    if (py->PyErr_Occurred()) /* of more than 64 bits */
        n = PROBING_NULL_I64;
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return n;
}

int64_t object_ask(PyObject *object, const char *method)
{
    PyObject *value = python.api.PyObject_CallMethod(object, method, NULL);
    python.api.PyErr_Clear();
    return object_number(value);
}

PyObject *object_item(PyObject *dict, const char *name)
{
    bool is = dict && object_is(dict, python.api.PyDict_Type);
    return is ? python.api.PyDict_GetItemString(dict, name) : NULL;
}

int64_t object_number_in(PyObject *dict, const char *name)
{
    struct cpython *py = &python.api;
    PyObject *value = dict ? py->PyDict_GetItemString(dict, name) : NULL;
    py->Py_IncRef(value);
    return object_number(value);
}

void object_drop_all(PyObject **const *held, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        PyObject *object = *held[i];
        *held[i] = NULL;
        python.api.Py_DecRef(object);
    }
}

void object_text(PyObject *value, char *room, size_t size)
{
    struct cpython *py = &python.api;
    PyObject *text = value && value != py->_Py_NoneStruct ? py->PyObject_Str(value) : NULL;
    Py_ssize_t n = 0;
    const char *bytes = text ? py->PyUnicode_AsUTF8AndSize(text, &n) : NULL;
    (void)snprintf(room, size, "%s", bytes ? bytes : "");
    size_t end = strlen(room);
    while (end > 0 && ((unsigned char)bytes[end] & 0xc0) == 0x80) /* cut inside a letter */
        room[--end] = '\0';
    py->PyErr_Clear();
    py->Py_DecRef(text);
    py->Py_DecRef(value);
}

uint64_t object_intern(const char *text)
{
    return probing_intern_text(torch_state.host, text && *text ? text : NULL);
}

/* At each step the same few texts are asked for, and interning takes a lock. */
uint64_t object_intern_often(const char *text)
{
    static struct {
        char text[OFTEN_BYTES];
        uint64_t id;
        uint32_t life; /* of the plugin: a forked child has ids of its own */
    } known[OFTEN];    /* lock: the GIL */
    size_t n = text ? strlen(text) : 0;
    if (n == 0 || n >= OFTEN_BYTES)
        return object_intern(text);
    size_t at = (n * 7 + (unsigned char)text[0] + 5u * (unsigned char)text[n - 1]) % OFTEN;
    if (known[at].life == torch_state.life && strcmp(known[at].text, text) == 0)
        return known[at].id;
    uint64_t id = torch_state.live ? object_intern(text) : PROBING_NULL_ID;
    memcpy(known[at].text, text, n + 1);
    known[at].id = id;
    known[at].life = id == PROBING_NULL_ID ? 0 : torch_state.life;
    return id;
}

PyObject *object_dict(PyObject *object)
{
    PyObject *dict = python.more.PyObject_GenericGetDict(object, NULL);
    if (!dict)
        python.api.PyErr_Clear();
    return dict;
}

PyObject *object_attribute(PyObject *object, PyObject *name)
{
    struct cpython *py = &python.api;
    PyObject *value = NULL;
    if (python.more._PyType_Lookup && !python.more._PyType_Lookup(object_type(object), name)) {
        value = py->PyObject_GenericGetAttr(object, name);
    } else { /* a class has it too, maybe as a property */
        PyObject *dict = object_dict(object);
        value = dict ? py->PyDict_GetItem(dict, name) : NULL;
        py->Py_IncRef(value);
        py->Py_DecRef(dict);
    }
    py->PyErr_Clear();
    return value;
}

const char *object_type_text(PyObject *object)
{
    const char *name;
    memcpy(&name, (const char *)object_type(object) + TYPE_NAME, sizeof(name));
    return name;
}

const char *object_class_text(PyObject *object)
{
    const char *name = object_type_text(object), *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

uint64_t object_class(PyObject *object)
{
    return object_intern_often(object_class_text(object));
}

bool object_is(PyObject *object, PyObject *class)
{
    return python.api.PyType_IsSubtype(object_type(object), class);
}

/* Would str() of it run a function in Python? */
static bool is_spoken_by_c(PyObject *class)
{
    PyObject *function = object_get(class, "__str__");
    bool is = function && strcmp(object_class_text(function), "wrapper_descriptor") == 0;
    python.api.Py_DecRef(function);
    return is;
}

uint64_t object_error(void)
{
    struct cpython *py = &python.api;
    PyObject *class = NULL, *value = NULL, *traceback = NULL;
    char said[ERROR_BYTES] = "", text[2 * ERROR_BYTES];
    py->PyErr_Fetch(&class, &value, &traceback);
    if (value && (object_type(value) == py->PyUnicode_Type || is_spoken_by_c(object_type(value)))) {
        py->Py_IncRef(value);
        object_text(value, said, sizeof(said));
    }
    said[strcspn(said, "\n")] = '\0';
    PyObject *name = object_get(class, "__name__");
    object_text(name, text, ERROR_BYTES);
    size_t used = strlen(text);
    if (said[0])
        (void)snprintf(text + used, sizeof(text) - used, "%s%s", used ? ": " : "", said);
    py->PyErr_Restore(class, value, traceback);
    return object_intern(text);
}
