/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_registry/module_names.c - from a module's address to its name as
 * named_modules() gives it.
 *
 * Threads: any that holds the GIL.
 * It runs no Python code of the user's: trees are read from the modules' own attributes.  Children
 * of script modules are not in a dict and stay unknown.
 * A tree is walked again when one of its dicts of children has changed, which is looked for in each
 * step, and now and then for what else may have (a device).
 */
#include "module_registry/module_names.h"
#include "lib/array.h"
#include "python/dict_version.h"
#include "python/pyobject.h"
#include "python/tensor.h"
#include "steps/call_thread.h"

#include <stdlib.h>

#include "lib/hash.h"

#define PATH_MAX_BYTES 2048u /* a longer name stays unknown */
#define DEPTH_MAX 256u       /* of a tree of modules */
#define WALK_PERIOD_NS PROBING_NS_PER_S
#define WALK_SHARE 1000u /* walks take at most one part in so many of the time */
#define FRUITLESS_MAX 8u /* then strange modules are taken for what they seem to be */
#define CHECK_PERIOD_NS UINT64_C(10000000)
#define BRANCHES_MAX 65536u
#define OTHERS_MAX 8u /* trees that a module is in beside the one it was called in last */

struct branch { /* a module with children, and where its dict of them stood at the last walk */
    PyObject *object;
    uint64_t serial;
    PyObject *dict; /* compared only */
    uint64_t version;
};

struct walk {
    struct module *root;
    uint64_t number;
    bool has_params, quiet; /* quiet: tensors may be asked for their device */
    size_t deep;
    struct branch *branches;
    uint32_t n_branches, room;
    char path[PATH_MAX_BYTES];
};

static uint64_t last_walk; /* lock: the GIL */
static uint32_t walking;   /* lock: the GIL; a walk may lose it while garbage is collected */
static bool forget_later;  /* lock: the GIL; stop() came during a walk */
static bool has_versions;  /* lock: the GIL; changes of dicts are told */

static uint64_t intern_live(const char *text, size_t n)
{
    return torch_state.live ? probing_intern(torch_state.host, text, n) : PROBING_NULL_ID;
}

static bool is_dict(PyObject *object)
{
    return object && python.api.PyType_IsSubtype(object_type(object), python.api.PyDict_Type);
}

bool names_is_module(PyObject *object)
{
    return python.api.PyType_IsSubtype(object_type(object), python.module_class) != 0;
}

PyObject *names_attribute_dict(PyObject *object, PyObject *name)
{
    PyObject *dict = object_attribute(object, name);
    if (is_dict(dict))
        return dict;
    python.api.Py_DecRef(dict);
    return NULL;
}

uint64_t names_new_listing(void)
{
    static uint64_t last; /* lock: the GIL */
    return ++last;
}

bool names_training(PyObject *object)
{
    PyObject *value = object_attribute(object, python.text_training);
    if (!value) /* torch.compile's wrapper has a property for it */
        value = python.api.PyObject_GetAttr(object, python.text_training);
    python.api.PyErr_Clear();
    python.api.Py_DecRef(value); /* compared only */
    return value == python.api._Py_TrueStruct;
}

PyObject *names_children(PyObject *object)
{
    return names_attribute_dict(object, python.text_modules);
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
static uint64_t device_of(PyObject *parameters, bool quiet, bool *ret_has_params, int *ret_cuda)
{
    struct cpython *py = &python.api;
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (parameters && py->PyDict_Next(parameters, &at, &name, &value)) {
        if (value == py->_Py_NoneStruct)
            continue;
        *ret_has_params = true;
        if (object_type(value) != python.parameter_class || !quiet)
            return PROBING_NULL_ID;
        PyObject *device = py->PyObject_GetAttrString(value, "device");
        PyObject *text = device ? py->PyObject_Str(device) : NULL;
        Py_ssize_t n;
        const char *bytes = text ? py->PyUnicode_AsUTF8AndSize(text, &n) : NULL;
        uint64_t id = bytes ? intern_live(bytes, (size_t)n) : PROBING_NULL_ID;
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

static void set_name(struct naming *at, PyObject *object, const char *path, size_t n)
{
    if (n == 0) {
        path = object_class_text(object);
        n = strlen(path);
    }
    uint64_t hash = hash_bytes(HASH_FNV, path, n);
    if (at->name == PROBING_NULL_ID || at->path_hash != hash)
        at->name = n < PATH_MAX_BYTES ? intern_live(path, n) : PROBING_NULL_ID;
    at->path_hash = hash;
    at->unwanted = steps.set.layers[0] && !is_listed(steps.set.layers, path, n);
    at->layers_version = steps.set.layers_version;
}

static bool is_root_of(const struct module *root, const struct naming *at)
{
    return root && at->root == root->object && at->root_serial == root->serial;
}

/* The root that a module was named from, if that one still lives. */
static struct module *root_of(const struct naming *at)
{
    struct module *root = at->root ? names_find(at->root) : NULL;
    return is_root_of(root, at) ? root : NULL;
}

/* Let a module's name in another tree be the one that holds; false: it has none there. */
static bool turn_to(struct module *m, const struct module *root)
{
    for (struct naming *other = m->others; other; other = other->next) {
        if (!is_root_of(root, other))
            continue;
        struct naming *next = other->next, was = m->at;
        m->at = *other;
        *other = was;
        other->next = next;
        return true;
    }
    return false;
}

/* A module of two trees: keep its name in the other one, forget those of trees that are gone. */
static void put_aside(struct module *m)
{
    uint32_t n = root_of(&m->at) != NULL;
    for (struct naming **link = &m->others; *link;) {
        struct naming *other = *link;
        if (n < OTHERS_MAX && root_of(other)) {
            link = &other->next;
            n++;
            continue;
        }
        *link = other->next;
        free(other);
    }
    struct naming *kept = root_of(&m->at) ? malloc(sizeof(*kept)) : NULL;
    if (kept) {
        *kept = m->at;
        kept->next = m->others;
        m->others = kept;
    }
    m->at = (struct naming){.name = PROBING_NULL_ID};
}

static void note_branch(struct walk *w, const struct module *m, PyObject *dict)
{
    if (!has_versions || python.api.PyDict_Size(dict) == 0)
        return;
    struct branch *grown =
        array_grow(w->branches, w->n_branches, &w->room, sizeof(*grown), BRANCHES_MAX);
    if (!grown)
        return;
    w->branches = grown;
    w->branches[w->n_branches++] = (struct branch){m->object, m->serial, dict, versions_of(dict)};
}

bool names_is_ddp(PyObject *module)
{
    return strcmp(object_class_text(module), "DistributedDataParallel") == 0;
}

static void walk_module(struct walk *w, PyObject *object, size_t path_n);

static void walk_children(struct walk *w, PyObject *children, size_t path_n)
{
    struct cpython *py = &python.api;
    PyObject *key, *child;
    Py_ssize_t at = 0, n;
    while (py->PyDict_Next(children, &at, &key, &child)) {
        if (child == py->_Py_NoneStruct || !names_is_module(child) ||
            !py->PyType_IsSubtype(object_type(key), py->PyUnicode_Type))
            continue;
        py->Py_IncRef(child);
        const char *name = py->PyUnicode_AsUTF8AndSize(key, &n);
        if (name && path_n + (size_t)n + 1 < sizeof(w->path)) {
            size_t end = path_n;
            if (end)
                w->path[end++] = '.';
            memcpy(w->path + end, name, (size_t)n);
            walk_module(w, child, end + (size_t)n);
        }
        py->PyErr_Clear();
        py->Py_DecRef(child);
    }
}

/* Depth first, each module once: the order and the names of named_modules(). */
static void walk_module(struct walk *w, PyObject *object, size_t path_n)
{
    struct cpython *py = &python.api;
    struct module *m = names_entry(object);
    if (!m || m->at.walk == w->number || w->deep >= DEPTH_MAX)
        return;
    PyObject *children = names_children(object);
    PyObject *parameters = names_attribute_dict(object, python.text_parameters);
    m = names_find(object); /* a dict may have been made, and garbage collected meanwhile */
    if (m) {
        if (!is_root_of(w->root, &m->at) && !turn_to(m, w->root))
            put_aside(m);
        m->at.walk = w->number;
        m->at.root = w->root->object;
        m->at.root_serial = w->root->serial;
        m->is_child = w->deep > 0;
        registry.has_ddp |= names_is_ddp(object);
        set_name(&m->at, object, w->path, path_n);
        bool above = w->has_params;
        w->has_params = false;
        m->cuda = -1;
        m->device = device_of(parameters, w->quiet, &w->has_params, &m->cuda);
        if (children) {
            note_branch(w, m, children);
            w->deep++;
            walk_children(w, children, path_n);
            w->deep--;
        }
        m->has_params = w->has_params; /* its own or below it */
        w->has_params |= above;
    }
    py->Py_DecRef(parameters);
    py->Py_DecRef(children);
}

struct module *names_walk(PyObject *object)
{
    struct module *root = names_entry(object);
    struct walk *w = root ? malloc(sizeof(*w)) : NULL;
    PyObject *guard;
    if (!w)
        return NULL;
    uint64_t begin = torch_state.now();
    w->root = root;
    w->number = ++last_walk;
    w->has_params = false;
    w->deep = 0;
    w->branches = NULL;
    w->n_branches = w->room = 0;
    walking++;
    w->quiet = tensor_quiet(&guard);
    walk_module(w, object, 0);
    tensor_loud(guard);
    free(root->branches);
    root->branches = w->branches;
    root->n_branches = w->n_branches;
    free(w);
    if (--walking == 0 && forget_later) {
        names_forget_all();
        return NULL;
    }
    if (!torch_state.live)
        return NULL;
    root->walked_ns = root->checked_ns = torch_state.now();
    root->checked_step = steps.step;
    root->walk_cost_ns = root->walked_ns - begin;
    call_thread()->walks_ns += root->walk_cost_ns;
    return root;
}

/* Has a dict of children in its tree changed since the walk? */
static bool is_changed(struct module *root)
{
    if (!has_versions)
        return root->fruitless++ < FRUITLESS_MAX;
    bool same = true;
    for (uint32_t i = 0; i < root->n_branches && same; i++) {
        const struct branch *b = &root->branches[i];
        const struct module *m = names_find(b->object);
        same = m && m->serial == b->serial;
        PyObject *children = same ? names_children(b->object) : NULL;
        same = same && children == b->dict && versions_of(children) == b->version;
        python.api.Py_DecRef(children);
    }
    return !same;
}

static bool walk_is_due(struct module *root, uint64_t now_ns)
{
    uint64_t pause = root->walk_cost_ns * WALK_SHARE;
    if (now_ns - root->walked_ns >= (pause > WALK_PERIOD_NS ? pause : WALK_PERIOD_NS)) {
        root->fruitless = 0;
        return true;
    }
    if (!has_versions ||
        (root->checked_step == steps.step && now_ns - root->checked_ns < CHECK_PERIOD_NS))
        return false;
    root->checked_step = steps.step;
    root->checked_ns = now_ns;
    return is_changed(root);
}

/* The same, of a root that nobody else may hold. */
static struct module *walk_again(const struct module *root)
{
    PyObject *holder = root->object;
    python.api.Py_IncRef(holder);
    struct module *again = names_walk(holder);
    python.api.Py_DecRef(holder);
    return again;
}

struct module *names_top(PyObject *object, uint64_t now_ns)
{
    struct module *m = names_find(object);
    struct module *root = m ? root_of(&m->at) : NULL;
    if (root && (walk_is_due(root, now_ns) || m->at.layers_version != steps.set.layers_version)) {
        root = walk_again(root);
        m = names_find(object);
    }
    if (!root || !m || m->at.walk != root->at.walk) /* it is new, or no longer in that tree */
        root = m = names_walk(object);
    if (root)
        root->tid = call_thread()->tid;
    return m;
}

struct module *names_inside(struct module *m, PyObject *object, struct thread *t)
{
    struct module *root = root_of(&t->top->at);
    if (m && root && turn_to(m, root) && m->at.walk == root->at.walk)
        return m;
    if (!m && root && is_changed(root)) { /* it may be new in the tree */
        root = walk_again(root);
        m = names_find(object);
        t->walk = root ? root->at.walk : NO_WALK;
    }
    root = m ? root_of(&m->at) : NULL; /* it is called from there, but is in a tree of its own */
    if (!root || m->at.walk != root->at.walk || m->at.layers_version != steps.set.layers_version)
        m = names_walk(object);
    return m;
}

void names_begin(void)
{
    forget_later = registry.has_ddp = false;
    has_versions = versions_begin();
}

void names_forget_all(void)
{
    forget_later = walking != 0;
    if (!forget_later)
        registry_forget_all();
}
