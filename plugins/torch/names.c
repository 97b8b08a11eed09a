/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/names.c - from a module's address to its name as named_modules() gives it.
 *
 * Threads: any that holds the GIL.
 * It keeps no module alive: a weak reference's callback removes the entry before the address can
 * be used again.  It runs no Python code of the user's: trees are read from the modules' own
 * dicts.  Children of script modules are not in a dict and stay unknown.
 */
#include "tensor.h"

#include <errno.h>
#include <stdlib.h>

#define TYPE_NAME 24         /* offset of tp_name in PyTypeObject, 3.8 to 3.13 */
#define PATH_MAX_BYTES 2048u /* a longer name stays unknown */
#define DEPTH_MAX 256u       /* of a tree of modules */
#define WALK_PERIOD_NS UINT64_C(1000000000)
#define WALK_SHARE 1000u /* walks take at most one part in so many of the time */
#define FRUITLESS_MAX 8u /* then strange modules are taken for what they seem to be */
#define FIRST_SLOTS 1024u
#define KINDS 4096u
#define KINDS_SHIFT 52 /* 64 - log2(KINDS) */

struct walk {
    struct module *root;
    uint64_t number;
    bool has_params, quiet; /* quiet: tensors may be asked for their device */
    size_t deep;
    char path[PATH_MAX_BYTES];
};

static struct module **slots;           /* lock: the GIL; open addressing, n_slots a power of two */
static size_t n_slots, n_modules;       /* lock: the GIL */
static uint64_t last_serial, last_walk; /* lock: the GIL */
static uint32_t walking;  /* lock: the GIL; a walk may lose it while garbage is collected */
static bool forget_later; /* lock: the GIL; stop() came during a walk */

static size_t slot_of(const PyObject *object)
{
    return (size_t)(((uintptr_t)object >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (n_slots - 1);
}

struct module *names_find(const PyObject *object)
{
    if (!n_slots)
        return NULL;
    for (size_t i = slot_of(object); slots[i]; i = (i + 1) & (n_slots - 1))
        if (slots[i]->object == object)
            return slots[i];
    return NULL;
}

static int grow(void)
{
    size_t old_n = n_slots;
    struct module **old = slots;
    size_t wider = old_n ? old_n * 2 : FIRST_SLOTS;
    struct module **wide = calloc(wider, sizeof(struct module *));
    if (!wide)
        return -ENOMEM;
    slots = wide;
    n_slots = wider;
    for (size_t k = 0; k < old_n; k++) {
        if (!old[k])
            continue;
        size_t i = slot_of(old[k]->object);
        while (slots[i])
            i = (i + 1) & (n_slots - 1);
        slots[i] = old[k];
    }
    free(old);
    return 0;
}

/* Take an entry out; those that were pushed behind it move up. */
static void take_out(const struct module *m)
{
    size_t hole = slot_of(m->object);
    while (slots[hole] != m)
        hole = (hole + 1) & (n_slots - 1);
    n_modules--;
    slots[hole] = NULL;
    for (size_t i = (hole + 1) & (n_slots - 1); slots[i]; i = (i + 1) & (n_slots - 1)) {
        struct module *next = slots[i];
        slots[i] = NULL;
        size_t at = slot_of(next->object);
        while (slots[at])
            at = (at + 1) & (n_slots - 1);
        slots[at] = next;
    }
}

/* The weak reference's callback: `address` is a Python int made when the entry was. */
static PyObject *forget(PyObject *address, PyObject *weak)
{
    struct cpython *py = &torch_state.py;
    PyObject *object = (PyObject *)(uintptr_t)py->PyLong_AsUnsignedLongLong(address);
    struct module *m = names_find(object);
    if (m && m->weak == weak) {
        take_out(m);
        free(m);
        py->Py_DecRef(weak);
    }
    py->Py_IncRef(py->_Py_NoneStruct);
    return py->_Py_NoneStruct;
}

static PyObject *watch(PyObject *object)
{
    static struct cpython_method method = {"probing_module_died", forget, METH_O, NULL};
    struct cpython *py = &torch_state.py;
    PyObject *address = py->PyLong_FromVoidPtr(object);
    PyObject *callback = address ? py->PyCFunction_NewEx(&method, address, NULL) : NULL;
    PyObject *weak = callback ? py->PyWeakref_NewRef(object, callback) : NULL;
    py->Py_DecRef(address);
    py->Py_DecRef(callback);
    if (!weak)
        py->PyErr_Clear();
    return weak;
}

/* The entry of an object, made when there is none; NULL: no memory, or no weak reference. */
static struct module *entry(PyObject *object)
{
    struct module *m = names_find(object);
    if (m)
        return m;
    PyObject *weak = watch(object); /* may collect garbage, and so run anything */
    m = names_find(object);
    if (!weak || m) {
        torch_state.py.Py_DecRef(weak);
        return m;
    }
    m = calloc(1, sizeof(*m));
    if (!m || (n_modules * 2 >= n_slots && grow() < 0)) {
        free(m);
        torch_state.py.Py_DecRef(weak);
        return NULL;
    }
    m->object = object;
    m->cuda = -1;
    m->weak = weak;
    m->serial = ++last_serial;
    size_t i = slot_of(object);
    while (slots[i])
        i = (i + 1) & (n_slots - 1);
    slots[i] = m;
    n_modules++;
    return m;
}

PyObject *names_dict(PyObject *object)
{
    PyObject *dict = torch_state.more.PyObject_GenericGetDict(object, NULL);
    if (!dict)
        torch_state.py.PyErr_Clear();
    return dict;
}

static uint64_t interned(const char *text, size_t n)
{
    uint64_t id;
    if (!torch_state.live || torch_state.host->intern(torch_state.host, text, n, &id) < 0)
        return PROBING_NULL_ID;
    return id;
}

const char *names_type_text(PyObject *object)
{
    const char *name;
    memcpy(&name, (const char *)object_type(object) + TYPE_NAME, sizeof(name));
    return name;
}

const char *names_class_text(PyObject *object)
{
    const char *name = names_type_text(object), *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

uint64_t names_class(PyObject *object)
{
    const char *name = names_class_text(object);
    return interned(name, strlen(name));
}

static bool is_dict(PyObject *object)
{
    return object &&
           torch_state.py.PyType_IsSubtype(object_type(object), torch_state.py.PyDict_Type);
}

static bool is_module(PyObject *object)
{
    return torch_state.py.PyType_IsSubtype(object_type(object), torch_state.module_class) != 0;
}

static int cuda_number(const char *device)
{
    int n = 0;
    if (strncmp(device, "cuda:", 5) != 0)
        return -1;
    for (const char *p = device + 5; *p >= '0' && *p <= '9' && n < INT16_MAX; p++)
        n = n * 10 + (*p - '0');
    return n;
}

/* "cuda:0" of the first parameter.  Other classes than Parameter itself could run Python code. */
static uint64_t device_of(PyObject *dict, bool quiet, bool *ret_has_params, int *ret_cuda)
{
    struct cpython *py = &torch_state.py;
    PyObject *parameters = py->PyDict_GetItem(dict, torch_state.text_parameters);
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (is_dict(parameters) && py->PyDict_Next(parameters, &at, &name, &value)) {
        if (value == py->_Py_NoneStruct)
            continue;
        *ret_has_params = true;
        if (object_type(value) != torch_state.parameter_class || !quiet)
            return PROBING_NULL_ID;
        PyObject *device = py->PyObject_GetAttrString(value, "device");
        PyObject *text = device ? py->PyObject_Str(device) : NULL;
        Py_ssize_t n;
        const char *bytes = text ? py->PyUnicode_AsUTF8AndSize(text, &n) : NULL;
        uint64_t id = bytes ? interned(bytes, (size_t)n) : PROBING_NULL_ID;
        *ret_cuda = bytes ? cuda_number(bytes) : -1;
        py->PyErr_Clear();
        py->Py_DecRef(text);
        py->Py_DecRef(device);
        return id;
    }
    return PROBING_NULL_ID;
}

/* Is a name like a pattern, in which * stands for anything? */
static bool is_like(const char *pattern, size_t pattern_n, const char *name, size_t n)
{
    size_t p = 0, i = 0, star = SIZE_MAX, mark = 0;
    while (i < n) {
        if (p < pattern_n && pattern[p] == '*') {
            star = p++;
            mark = i;
        } else if (p < pattern_n && pattern[p] == name[i]) {
            p++;
            i++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            i = ++mark;
        } else {
            return false;
        }
    }
    while (p < pattern_n && pattern[p] == '*')
        p++;
    return p == pattern_n;
}

static bool is_listed(const char *list, const char *name, size_t n)
{
    for (const char *p = list; *p;) {
        size_t word = strcspn(p, ",");
        if (is_like(p, word, name, n))
            return true;
        p += word + (p[word] == ',');
    }
    return false;
}

static void set_name(struct module *m, const char *path, size_t n)
{
    if (n == 0) {
        path = names_class_text(m->object);
        n = strlen(path);
    }
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)path[i]) * UINT64_C(0x100000001b3);
    if (m->name == PROBING_NULL_ID || m->path_hash != hash)
        m->name = n < PATH_MAX_BYTES ? interned(path, n) : PROBING_NULL_ID;
    m->path_hash = hash;
    m->unwanted = torch_state.set.layers[0] && !is_listed(torch_state.set.layers, path, n);
    m->layers_version = torch_state.set.layers_version;
}

static void walk(struct walk *w, PyObject *object, size_t path_n);

static void walk_children(struct walk *w, PyObject *dict, size_t path_n)
{
    struct cpython *py = &torch_state.py;
    PyObject *children = py->PyDict_GetItem(dict, torch_state.text_modules);
    if (!is_dict(children))
        return;
    py->Py_IncRef(children);
    PyObject *key, *child;
    Py_ssize_t at = 0, n;
    while (py->PyDict_Next(children, &at, &key, &child)) {
        if (child == py->_Py_NoneStruct || !is_module(child) ||
            !py->PyType_IsSubtype(object_type(key), py->PyUnicode_Type))
            continue;
        py->Py_IncRef(child);
        const char *name = py->PyUnicode_AsUTF8AndSize(key, &n);
        if (name && path_n + (size_t)n + 1 < sizeof(w->path)) {
            size_t end = path_n;
            if (end)
                w->path[end++] = '.';
            memcpy(w->path + end, name, (size_t)n);
            walk(w, child, end + (size_t)n);
        }
        py->PyErr_Clear();
        py->Py_DecRef(child);
    }
    py->Py_DecRef(children);
}

/* Depth first, each module once: the order and the names of named_modules(). */
static void walk(struct walk *w, PyObject *object, size_t path_n)
{
    struct module *m = entry(object);
    if (!m || m->walk == w->number || w->deep >= DEPTH_MAX)
        return;
    PyObject *dict = names_dict(object);
    m = names_find(object); /* the dict may have been made, and garbage collected meanwhile */
    if (!dict || !m) {
        torch_state.py.Py_DecRef(dict);
        return;
    }
    m->walk = w->number;
    m->root_object = w->root->object;
    m->root_serial = w->root->serial;
    m->is_child = w->deep > 0;
    set_name(m, w->path, path_n);
    bool above = w->has_params;
    w->has_params = false;
    m->cuda = -1;
    m->device = device_of(dict, w->quiet, &w->has_params, &m->cuda);
    w->deep++;
    walk_children(w, dict, path_n);
    w->deep--;
    m->has_params = w->has_params; /* its own or below it */
    w->has_params |= above;
    torch_state.py.Py_DecRef(dict);
}

/* The caller holds `object`.  NULL: there is no memory, or stop() came meanwhile. */
static struct module *walk_root(PyObject *object)
{
    struct module *root = entry(object);
    struct walk *w = root ? malloc(sizeof(*w)) : NULL;
    PyObject *guard;
    if (!w)
        return NULL;
    uint64_t begin = torch_state.now();
    w->root = root;
    w->number = ++last_walk;
    w->has_params = false;
    w->deep = 0;
    walking++;
    w->quiet = tensor_quiet(&guard);
    walk(w, object, 0);
    tensor_loud(guard);
    free(w);
    if (--walking == 0 && forget_later) {
        names_forget_all();
        return NULL;
    }
    if (!torch_state.live)
        return NULL;
    root->walked_ns = torch_state.now();
    root->walk_cost_ns = root->walked_ns - begin;
    call_thread()->walks_ns += root->walk_cost_ns;
    return root;
}

/* The root that a module was named from, if that one still lives. */
static struct module *root_of(const struct module *m)
{
    struct module *root = m->root_object ? names_find(m->root_object) : NULL;
    return root && root->serial == m->root_serial ? root : NULL;
}

static bool walk_is_due(const struct module *root, uint64_t now_ns)
{
    uint64_t pause = root->walk_cost_ns * WALK_SHARE;
    return now_ns - root->walked_ns >= (pause > WALK_PERIOD_NS ? pause : WALK_PERIOD_NS);
}

struct module *names_top(PyObject *object, uint64_t now_ns)
{
    struct module *m = names_find(object);
    struct module *root = m ? root_of(m) : NULL;
    if (!root)
        return walk_root(object);
    if ((root == m && walk_is_due(root, now_ns)) ||
        m->layers_version != torch_state.set.layers_version) {
        PyObject *holder = root->object;
        torch_state.py.Py_IncRef(holder);
        root = walk_root(holder);
        if (root)
            root->fruitless = 0;
        torch_state.py.Py_DecRef(holder);
        m = names_find(object);
    }
    return m;
}

struct module *names_learn(PyObject *object, struct module *top)
{
    struct module *root = top ? root_of(top) : NULL;
    if (root && root->fruitless < FRUITLESS_MAX) { /* it may be new in the tree */
        PyObject *holder = root->object;
        torch_state.py.Py_IncRef(holder);
        root = walk_root(holder);
        struct module *found = names_find(object);
        if (root && !found)
            root->fruitless++;
        torch_state.py.Py_DecRef(holder);
        if (found)
            return found;
    }
    return walk_root(object);
}

static PyObject *all_objects(void)
{
    struct cpython *py = &torch_state.py;
    PyObject *gc = py->PyImport_ImportModule("gc");
    PyObject *list = gc ? py->PyObject_CallMethod(gc, "get_objects", NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(gc);
    return list;
}

/* Mark the children of one module; its own entry is made too. */
static void mark_children(PyObject *object)
{
    struct cpython *py = &torch_state.py;
    PyObject *dict = entry(object) ? names_dict(object) : NULL;
    PyObject *children = dict ? py->PyDict_GetItem(dict, torch_state.text_modules) : NULL;
    PyObject *key, *child;
    Py_ssize_t at = 0;
    if (is_dict(children))
        py->Py_IncRef(children);
    else
        children = NULL;
    while (children && py->PyDict_Next(children, &at, &key, &child)) {
        py->Py_IncRef(child); /* entry() may collect garbage */
        struct module *m = child != object && is_module(child) ? entry(child) : NULL;
        if (m)
            m->is_child = true;
        py->Py_DecRef(child);
    }
    py->Py_DecRef(children);
    py->Py_DecRef(dict);
}

/* What a class is to us.  A process has 100,000s of objects of some 1,000 classes, and waits while
 * we look at them all. */
struct kind {
    const PyObject *class;
    bool module, optimizer, loader;
};

static const struct kind *kind_of(struct kind *kinds, PyObject *class)
{
    struct kind *k = &kinds[((uintptr_t) class >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> KINDS_SHIFT];
    if (k->class != class) {
        k->class = class;
        k->module = torch_state.py.PyType_IsSubtype(class, torch_state.module_class);
        k->optimizer = torch_state.py.PyType_IsSubtype(class, torch_state.optimizer_class);
        k->loader = data_is_iterator(class);
    }
    return k;
}

/* Modules of `list` go to `modules`, optimizers to the caller, iterators of DataLoaders to data.c.
 */
static int sort_out(PyObject *list, PyObject *modules, void (*optimizer)(PyObject *))
{
    struct cpython *py = &torch_state.py;
    struct kind *kinds = calloc(KINDS, sizeof(*kinds));
    Py_ssize_t n = py->PyList_Size(list);
    int rc = kinds ? 0 : -ENOMEM;
    for (Py_ssize_t i = 0; i < n && rc == 0; i++) {
        PyObject *object = py->PyList_GetItem(list, i);
        const struct kind *k = kind_of(kinds, object_type(object));
        if (k->module && py->PyList_Append(modules, object) < 0)
            rc = -ENOMEM;
        else if (k->optimizer)
            optimizer(object);
        else if (k->loader)
            data_remember(object);
    }
    free(kinds);
    return rc;
}

int names_scan(void (*optimizer)(PyObject *))
{
    struct cpython *py = &torch_state.py;
    forget_later = false; /* what a walk still holds from before is as true as ever */
    PyObject *list = all_objects();
    PyObject *modules = list ? py->PyList_New(0) : NULL;
    int rc = modules ? sort_out(list, modules, optimizer) : -ENOMEM;
    py->Py_DecRef(list);
    Py_ssize_t n = rc == 0 ? py->PyList_Size(modules) : 0;
    for (Py_ssize_t i = 0; i < n; i++)
        mark_children(py->PyList_GetItem(modules, i));
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *object = py->PyList_GetItem(modules, i);
        struct module *m = names_find(object);
        if (m && !m->is_child)
            walk_root(object);
    }
    py->Py_DecRef(modules);
    py->PyErr_Clear();
    return rc;
}

uint32_t names_roots(PyObject **ret, uint64_t *ret_serials, uint32_t n)
{
    uint32_t found = 0;
    for (size_t i = 0; i < n_slots && found < n; i++)
        if (slots[i] && slots[i]->root_object == slots[i]->object) {
            ret[found] = slots[i]->object;
            ret_serials[found++] = slots[i]->serial;
        }
    return found;
}

void names_forget_all(void)
{
    forget_later = walking != 0;
    if (forget_later)
        return;
    struct module **old = slots;
    size_t n = n_slots;
    slots = NULL;
    n_slots = n_modules = 0;
    for (size_t i = 0; i < n; i++) {
        if (!old[i])
            continue;
        torch_state.py.Py_DecRef(old[i]->weak);
        free(old[i]);
    }
    free(old);
}
