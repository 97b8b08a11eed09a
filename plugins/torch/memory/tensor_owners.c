/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/memory/tensor_owners.c - whose a storage is: parameters, buffers and gradients of
 * models, and what optimizers keep for them.
 *
 * Threads: with the GIL, between tensor_quiet() and tensor_loud(); models on the thread that calls
 * them (model_reader.c).
 * Dicts of modules and optimizers are read as they are: nothing of the program's runs.
 */
#include "memory/tensor_look.h"
#include "module_registry/module_names.h"
#include "python/pyobject.h"
#include "python/tensor.h"

#include <stdio.h>

#define DEPTH_MAX 256u
#define NEST_MAX 3u /* lists and dicts in each other in an optimizer's state */
#define PATH_BYTES 320u

struct model_walk {
    struct tensor_look *look;
    bool own;
    struct tensor_owner at; /* root and module of what is read now */
    char path[PATH_BYTES];
};

static const char *text_of(PyObject *key)
{
    Py_ssize_t n;
    const char *text = object_is(key, python.api.PyUnicode_Type)
                           ? python.api.PyUnicode_AsUTF8AndSize(key, &n)
                           : NULL;
    python.api.PyErr_Clear();
    return text ? text : "?";
}

/* A tensor of a class with code of its own may be made of plain ones (a DTensor's local part), in
 * its dict or its slots: what it leads to is asked of the garbage collector, which runs no code. */
static void own_parts(struct model_walk *w, PyObject *tensor, const struct tensor_owner *owner)
{
    struct cpython *py = &python.api;
    PyObject *gc = py->PyImport_ImportModule("gc");
    PyObject *parts = gc ? py->PyObject_CallMethod(gc, "get_referents", "O", tensor) : NULL;
    Py_ssize_t n = parts ? py->PyList_Size(parts) : 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *part = py->PyList_GetItem(parts, i), *key, *value;
        if (tensor_is(part))
            look_own(w->look, look_add(w->look, part, false), owner);
        Py_ssize_t at = 0;
        while (object_type(part) == py->PyDict_Type && py->PyDict_Next(part, &at, &key, &value)) {
            py->Py_IncRef(value);
            if (tensor_is(value))
                look_own(w->look, look_add(w->look, value, false), owner);
            py->Py_DecRef(value);
        }
    }
    py->PyErr_Clear();
    py->Py_DecRef(parts);
    py->Py_DecRef(gc);
}

static void own_gradient(struct model_walk *w, PyObject *parameter, struct tensor_owner owner)
{
    PyObject *gradient = object_get(parameter, "grad");
    owner.kind = TENSOR_GRADIENT;
    if (gradient && tensor_is(gradient))
        look_own(w->look, look_add(w->look, gradient, false), &owner);
    python.api.Py_DecRef(gradient);
}

static void read_tensors(struct model_walk *w, PyObject *object, const char *which,
                         enum tensor_kind kind)
{
    struct cpython *py = &python.api;
    PyObject *name = py->PyUnicode_InternFromString(which), *key, *value;
    PyObject *tensors = name ? names_attribute_dict(object, name) : NULL;
    Py_ssize_t at = 0;
    py->PyErr_Clear();
    py->Py_DecRef(name);
    while (tensors && py->PyDict_Next(tensors, &at, &key, &value)) {
        if (!py->PyType_IsSubtype(object_type(value), python.tensor_class))
            continue; /* None */
        struct tensor_owner owner = w->at;
        owner.kind = kind;
        owner.name = look_text(w->look, text_of(key));
        py->Py_IncRef(value);
        look_param(w->look, value, &owner);
        if (tensor_is(value))
            look_own(w->look, look_add(w->look, value, false), &owner);
        else
            own_parts(w, value, &owner);
        if (kind == TENSOR_PARAMETER && w->own && tensor_is(value))
            own_gradient(w, value, owner);
        py->Py_DecRef(value);
    }
    py->Py_DecRef(tensors);
}

static void read_module(struct model_walk *w, PyObject *object, uint32_t depth)
{
    struct cpython *py = &python.api;
    struct module *m = names_find(object);
    if ((m && m->listed == w->look->listing) || depth > DEPTH_MAX)
        return;
    if (m)
        m->listed = w->look->listing;
    w->at.module = w->path[0] ? look_text(w->look, w->path) : w->at.root;
    read_tensors(w, object, "_parameters", TENSOR_PARAMETER);
    read_tensors(w, object, "_buffers", TENSOR_BUFFER);
    PyObject *children = names_children(object), *key, *child;
    Py_ssize_t at = 0;
    size_t length = strlen(w->path);
    while (children && py->PyDict_Next(children, &at, &key, &child)) {
        if (!names_is_module(child))
            continue;
        py->Py_IncRef(child);
        (void)snprintf(w->path + length, sizeof(w->path) - length, "%s%s", length ? "." : "",
                       text_of(key));
        read_module(w, child, depth + 1);
        w->path[length] = '\0';
        py->Py_DecRef(child);
    }
    py->Py_DecRef(children);
}

void owners_of_module(struct tensor_look *l, PyObject *root, bool own)
{
    struct model_walk w = {.look = l, .own = own};
    l->listing = l->listing ? l->listing : names_new_listing();
    l->untold = l->untold || !own;
    w.at.root = look_text(l, object_class_text(root));
    read_module(&w, root, 0);
}

/* ---- optimizers ---- */

static void own_state(struct tensor_look *l, const PyObject *param, const char *name,
                      PyObject *value, uint32_t depth)
{
    struct cpython *py = &python.api;
    PyObject *key, *part;
    Py_ssize_t at = 0;
    py->Py_IncRef(value);
    if (tensor_is(value))
        look_state(l, look_add(l, value, false), param, name);
    else if (depth < NEST_MAX && object_is(value, py->PyDict_Type))
        while (py->PyDict_Next(value, &at, &key, &part)) {
            py->Py_IncRef(key);
            own_state(l, param, object_is(key, py->PyUnicode_Type) ? text_of(key) : name, part,
                      depth + 1);
            py->Py_DecRef(key);
        }
    else if (depth < NEST_MAX && object_type(value) == py->PyList_Type)
        for (; at < py->PyList_Size(value); at++)
            own_state(l, param, name, py->PyList_GetItem(value, at), depth + 1);
    py->Py_DecRef(value);
}

/* Its dict `state`: a parameter, and what is kept for it by name. */
void owners_of_optimizer(struct tensor_look *l, PyObject *optimizer)
{
    struct cpython *py = &python.api;
    PyObject *name = py->PyUnicode_InternFromString("state"), *param, *value;
    PyObject *state = name ? names_attribute_dict(optimizer, name) : NULL;
    Py_ssize_t at = 0;
    py->PyErr_Clear();
    py->Py_DecRef(name);
    while (state && py->PyDict_Next(state, &at, &param, &value))
        own_state(l, param, "?", value, 0);
    py->Py_DecRef(state);
}
