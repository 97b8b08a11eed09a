/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/hook.c - a C callable put in the place of a Python function, and taken out
 * again.
 *
 * Threads: any that holds the GIL.
 * It does not know what it hooks.  A method descriptor of CPython would be simpler, but torch asks
 * bound methods for __func__, __code__ and attributes of its own (lr_scheduler, export, dynamo): so
 * the hook binds as a function does and forwards every attribute to the function it stands for, its
 * __class__ too: isinstance(), inspect and dynamo take it for that function.
 * torch.compile calls what it does not know in a class without `self`, except an instancemethod, at
 * which it goes back to the interpreter (2.13, _dynamo/variables/user_defined.py): so one of those
 * stands around the hook in a class, but for Module.__call__, which dynamo is told of.
 * A hook that somebody kept beyond stop() passes calls on, for ever: this code stays mapped.
 * We keep nothing alive: neither owners nor hooks, which their owners' attributes hold.
 */
#include "python/hook.h"
#include "python/pyobject.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Offsets in PyTypeObject, the same from 3.8 to 3.15 (object.h; see cpython_vectorcall()). */
#define TYPE_NAME 24
#define TYPE_VECTORCALL_OFFSET 56
#define TYPE_FLAGS 168
#define TYPE_WEAKLIST_OFFSET 208
#define DESCRIPTOR_METHOD 40 /* d_method in PyMethodDescrObject, likewise (descrobject.h) */
#define FLAG_GC (1u << 14)
#define FLAG_VECTORCALL (1ul << 11)
#define FLAG_METHOD_DESCRIPTOR (1ul << 17) /* m.f(x) calls f(m, x): no bound method is made */
#define FLAGS_DEFAULT (1ul << 18)          /* Py_TPFLAGS_DEFAULT as of 3.8 */
#define PLACES_MAX 4096u /* hooks at a time: optimizers and their classes are few */

enum {
    SLOT_CALL = 50,
    SLOT_DEALLOC = 52,
    SLOT_DESCR_GET = 54,
    SLOT_GETATTRO = 58,
    SLOT_HASH = 59,
    SLOT_METHODS = 64,
    SLOT_REPR = 66,
    SLOT_RICHCOMPARE = 67,
    SLOT_SETATTRO = 69,
    SLOT_TRAVERSE = 71
}; /* typeslots.h */

enum { COMPARE_EQ = 2, COMPARE_NE = 3 }; /* object.h */

struct hook_place {
    PyObject *owner; /* a weak reference to a class, an instance or a module; owned */
    const char *name;
    PyObject *hook; /* borrowed: hook_free() takes the place out */
    bool instance;
};

static struct hook_place *places;  /* lock: the GIL */
static uint32_t n_places;          /* lock: the GIL */
static uint32_t places_room;       /* lock: the GIL */
static PyObject *hook_type;        /* lock: the GIL; made once, lives as long as the interpreter */
static struct {                    /* lock: the GIL; a method of C that is ours now */
    struct cpython_method *method; /* NULL: none */
    hook_c_call original;
} swapped;

PyObject *hook_pass(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const struct hook *h = (const struct hook *)hook;
    if (h->vectorcall == 0)
        return cpython_vectorcall(&python.api, h->original, args,
                                  nargsf & ~CPYTHON_ARGUMENTS_OFFSET, kwnames);
    return hook_pass_fast(hook, args, nargsf, kwnames);
}

PyObject *hook_original(PyObject *hook)
{
    return ((struct hook *)hook)->original;
}

const char *hook_name(PyObject *hook)
{
    return ((struct hook *)hook)->name;
}

bool hook_works(PyObject *hook)
{
    return ((struct hook *)hook)->works && torch_on();
}

bool hook_is(PyObject *object)
{
    return hook_type && object_type(object) == hook_type;
}

/* Take out the places of a hook that is dying. */
static void forget_places(const PyObject *hook)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n_places; i++) {
        if (places[i].hook == hook)
            python.api.Py_DecRef(places[i].owner);
        else
            places[kept++] = places[i];
    }
    n_places = kept;
}

static void hook_free(PyObject *object)
{
    struct hook *h = (struct hook *)object;
    python.more.PyObject_GC_UnTrack(object);
    if (h->weak_references)
        python.more.PyObject_ClearWeakRefs(object);
    forget_places(object);
    python.api.Py_DecRef(h->original);
    python.more.PyObject_GC_Del(object);
    python.api.Py_DecRef(hook_type);
}

/* A class holds its hook, the hook a function, and that its class: the collector must see it. */
static int hook_traverse(PyObject *object, int (*visit)(PyObject *, void *), void *arg)
{
    PyObject *original = ((struct hook *)object)->original;
    int rc = original ? visit(original, arg) : 0;
    return rc == 0 && cpython_since(&python.api, 9) ? visit(hook_type, arg) : rc;
}

static PyObject *hook_bind(PyObject *hook, PyObject *object, PyObject *class)
{
    (void)class;
    if (object && object != python.api._Py_NoneStruct)
        return python.api.PyMethod_New(hook, object);
    python.api.Py_IncRef(hook);
    return hook;
}

/* The attributes that make a hook one must not come from the function: they would lead past us. */
static bool is_own_attribute(PyObject *name)
{
    static const char *const own[] = {"__get__",      "__call__",   "__copy__",
                                      "__deepcopy__", "__reduce__", "__reduce_ex__"};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (python.api.PyUnicode_CompareWithASCIIString(name, own[i]) == 0)
            return true;
    return false;
}

static PyObject *hook_get(PyObject *hook, PyObject *name)
{
    if (is_own_attribute(name))
        return python.api.PyObject_GenericGetAttr(hook, name);
    return python.api.PyObject_GetAttr(((struct hook *)hook)->original, name);
}

static int hook_set(PyObject *hook, PyObject *name, PyObject *value)
{
    return python.api.PyObject_SetAttr(((struct hook *)hook)->original, name, value);
}

/* Functions are not copied, they are shared; the copy of an optimizer gets the one without us. */
static PyObject *hook_copy(PyObject *hook, PyObject *unused)
{
    (void)unused;
    PyObject *original = hook_original(hook);
    python.api.Py_IncRef(original);
    return original;
}

/* Pickled by its name, as a function is: without us it is the function that is found there. */
static PyObject *hook_reduce(PyObject *hook, PyObject *unused)
{
    struct cpython *py = &python.api;
    PyObject *original = hook_original(hook);
    (void)unused;
    PyObject *name = py->PyObject_GetAttrString(original, "__qualname__");
    const char *text = name ? py->PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    const char *dot = text ? strrchr(text, '.') : NULL;
    if (!text || strcmp(dot ? dot + 1 : text, hook_name(hook)) == 0)
        return name;
    py->Py_DecRef(name); /* it stands under another one's: "Module._call_impl" is `__call__`, too */
    PyObject *copy = py->PyImport_ImportModule("copy");
    PyObject *same = copy ? py->PyObject_GetAttrString(copy, "copy") : NULL;
    PyObject *arguments = same ? py->PyTuple_Pack(1, original) : NULL;
    PyObject *result = arguments ? py->PyTuple_Pack(2, same, arguments) : NULL;
    py->Py_DecRef(copy);
    py->Py_DecRef(same);
    py->Py_DecRef(arguments);
    return result;
}

static PyObject *hook_repr(PyObject *hook)
{
    return python.api.PyObject_Repr(hook_original(hook));
}

/* torch's operators are found in dicts by the hash of the function that they call. */
static Py_ssize_t hook_hash(PyObject *hook)
{
    return python.more.PyObject_Hash(hook_original(hook));
}

/* Equal to the function it stands for: a class with a __torch_function__ looks for what is called
 * in a dict that it made before we came. */
static PyObject *hook_compare(PyObject *a, PyObject *b, int op)
{
    struct cpython *py = &python.api;
    PyObject *left = hook_is(a) ? hook_original(a) : a;
    PyObject *right = hook_is(b) ? hook_original(b) : b;
    PyObject *result = py->_Py_NotImplementedStruct; /* then they are compared by their addresses */
    if (left == right && op == COMPARE_EQ)
        result = py->_Py_TrueStruct;
    if (left == right && op == COMPARE_NE)
        result = py->_Py_FalseStruct;
    py->Py_IncRef(result);
    return result;
}

/* Set what PyType_FromSpec() of 3.8 cannot say. */
static void complete_type(PyObject *type)
{
    unsigned long flags;
    Py_ssize_t offset = offsetof(struct hook, call);
    memcpy((char *)type + TYPE_VECTORCALL_OFFSET, &offset, sizeof(offset));
    offset = offsetof(struct hook, weak_references);
    memcpy((char *)type + TYPE_WEAKLIST_OFFSET, &offset, sizeof(offset));
    memcpy(&flags, (char *)type + TYPE_FLAGS, sizeof(flags));
    flags |= FLAG_VECTORCALL | FLAG_METHOD_DESCRIPTOR;
    memcpy((char *)type + TYPE_FLAGS, &flags, sizeof(flags));
}

static int make_type(void)
{
    static struct cpython_method methods[] = {
        {"__copy__", hook_copy, METH_NOARGS, NULL},
        {"__deepcopy__", hook_copy, METH_O, NULL},
        {"__reduce__", hook_reduce, METH_NOARGS, NULL},
        {"__reduce_ex__", hook_reduce, METH_O, NULL},
        {NULL, NULL, 0, NULL},
    };
    void *call, *dealloc, *get, *getattro, *hash, *repr, *compare, *setattro, *traverse;
    memcpy(&call, &python.more.PyVectorcall_Call, sizeof(call));
    memcpy(&dealloc, &(void (*)(PyObject *)){hook_free}, sizeof(dealloc));
    memcpy(&get, &(PyObject * (*)(PyObject *, PyObject *, PyObject *)){hook_bind}, sizeof(get));
    memcpy(&getattro, &(PyObject * (*)(PyObject *, PyObject *)){hook_get}, sizeof(getattro));
    memcpy(&hash, &(Py_ssize_t(*)(PyObject *)){hook_hash}, sizeof(hash));
    memcpy(&repr, &(PyObject * (*)(PyObject *)){hook_repr}, sizeof(repr));
    memcpy(&compare, &(PyObject * (*)(PyObject *, PyObject *, int)){hook_compare}, sizeof(compare));
    memcpy(&setattro, &(int (*)(PyObject *, PyObject *, PyObject *)){hook_set}, sizeof(setattro));
    memcpy(&traverse, &(int (*)(PyObject *, int (*)(PyObject *, void *), void *)){hook_traverse},
           sizeof(traverse));
    struct cpython_slot slots[] = {
        {SLOT_CALL, call},
        {SLOT_DEALLOC, dealloc},
        {SLOT_DESCR_GET, get},
        {SLOT_GETATTRO, getattro},
        {SLOT_HASH, hash},
        {SLOT_REPR, repr},
        {SLOT_RICHCOMPARE, compare},
        {SLOT_SETATTRO, setattro},
        {SLOT_TRAVERSE, traverse},
        {SLOT_METHODS, methods},
        {0, NULL},
    };
    struct cpython_type_spec spec = {
        .name = "probing.hook",
        .basicsize = (int)sizeof(struct hook),
        .flags = FLAGS_DEFAULT | FLAG_METHOD_DESCRIPTOR | FLAG_GC,
        .slots = slots,
    };
    PyObject *type = python.api.PyType_FromSpec(&spec);
    if (!type) {
        python.api.PyErr_Clear();
        return -ENOMEM;
    }
    complete_type(type);
    hook_type = type;
    return 0;
}

static PyObject *new_hook(PyObject *original, const char *name, hook_call call, Py_ssize_t offset)
{
    if (!hook_type && make_type() < 0)
        return NULL;
    struct hook *h = (struct hook *)python.api.PyType_GenericAlloc(hook_type, 0);
    if (!h) {
        python.api.PyErr_Clear();
        return NULL;
    }
    python.api.Py_IncRef(original);
    h->original = original;
    h->name = name;
    h->vectorcall = offset;
    h->call = call;
    return (PyObject *)h;
}

/* A hook for `original`, new reference; NULL when it has no vectorcall, or does not bind as a
 * function in a class does. */
static PyObject *make_hook(PyObject *original, const char *name, hook_call call, bool instance)
{
    const char *type = (const char *)object_type(original);
    unsigned long flags;
    Py_ssize_t offset;
    memcpy(&flags, type + TYPE_FLAGS, sizeof(flags));
    memcpy(&offset, type + TYPE_VECTORCALL_OFFSET, sizeof(offset));
    if (!(flags & FLAG_VECTORCALL) || offset <= 0 ||
        (!instance && !(flags & FLAG_METHOD_DESCRIPTOR)))
        return NULL;
    hook_call own;
    memcpy(&own, (const char *)original + offset, sizeof(own));
    return new_hook(original, name, call, own ? offset : 0); /* pybind11's functions have none */
}

static int add_place(PyObject *owner, const char *name, PyObject *hook, bool instance)
{
    if (n_places >= PLACES_MAX)
        return -ENOSPC;
    if (n_places == places_room) {
        uint32_t room = n_places ? n_places * 2 : 8;
        struct hook_place *grown = realloc(places, room * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        places = grown;
        places_room = room;
    }
    PyObject *weak = python.api.PyWeakref_NewRef(owner, NULL); /* may collect garbage */
    python.api.PyErr_Clear();
    if (!weak)
        return -ENOTSUP;
    places[n_places++] = (struct hook_place){weak, name, hook, instance};
    return 0;
}

/* An object's own attribute, borrowed; NULL: it has none. */
static PyObject *own_attribute(PyObject *object, const char *name, bool instance)
{
    PyObject *dict =
        instance ? object_dict(object) : python.api.PyObject_GetAttrString(object, "__dict__");
    if (!dict) {
        python.api.PyErr_Clear();
        return NULL;
    }
    PyObject *text = python.api.PyUnicode_FromString(name);
    PyObject *value = text ? python.api.PyObject_GetItem(dict, text) : NULL;
    python.api.PyErr_Clear();
    python.api.Py_DecRef(text);
    python.api.Py_DecRef(dict);
    python.api.Py_DecRef(value); /* its owner holds it */
    return value;
}

/* Our hook in what stands somewhere, new reference; NULL: it is none. */
static PyObject *kept_hook(PyObject *stands)
{
    struct cpython *py = &python.api;
    PyObject *inner = stands;
    py->Py_IncRef(inner);
    static const struct {
        const char *type, *attribute;
    } around[] = {{"instancemethod", "__func__"}, {"builtin_function_or_method", "__self__"}};
    for (size_t i = 0; i < sizeof(around) / sizeof(around[0]) && inner && !hook_is(inner); i++) {
        if (strcmp(object_class_text(inner), around[i].type) != 0)
            continue;
        PyObject *outer = inner;
        inner = py->PyObject_GetAttrString(outer, around[i].attribute);
        py->Py_DecRef(outer);
    }
    py->PyErr_Clear();
    if (inner && hook_is(inner))
        return inner;
    py->Py_DecRef(inner);
    return NULL;
}

static bool is_placed(const PyObject *owner, const PyObject *hook)
{
    for (uint32_t i = 0; i < n_places; i++)
        if (places[i].hook == hook && python.api.PyWeakref_GetObject(places[i].owner) == owner)
            return true;
    return false;
}

PyObject *hook_owner(const PyObject *hook)
{
    for (uint32_t i = 0; i < n_places; i++) {
        PyObject *owner = places[i].hook == hook && places[i].instance
                              ? python.api.PyWeakref_GetObject(places[i].owner)
                              : NULL;
        if (owner && owner != python.api._Py_NoneStruct)
            return owner;
    }
    return NULL;
}

/* Let `stands`, which calls `hook`, stand in its place.  The caller holds the hook. */
static int place_hook(PyObject *owner, const char *name, PyObject *hook, PyObject *stands,
                      bool instance)
{
    struct cpython *py = &python.api;
    int rc = add_place(owner, name, hook, instance);
    if (rc == 0 && py->PyObject_SetAttrString(owner, name, stands) != 0) {
        py->PyErr_Clear();
        forget_places(hook);
        rc = -ENOTSUP;
    }
    ((struct hook *)hook)->works = rc == 0;
    return rc;
}

/* Let the hook stand in the place; `plain`: itself, also in a class. */
static int put_hook(PyObject *owner, const char *name, hook_call call, bool instance, bool plain)
{
    struct cpython *py = &python.api;
    PyObject *original = own_attribute(owner, name, instance);
    if (!original)
        return -ENOENT;
    PyObject *hook = kept_hook(original); /* somebody put it back after a stop(): it works again */
    if (hook && is_placed(owner, hook)) {
        py->Py_DecRef(hook);
        return 0;
    }
    if (!hook)
        hook = make_hook(original, name, call, instance);
    if (!hook)
        return -ENOTSUP;
    PyObject *stands = NULL;
    if (!instance && !plain && python.more.PyInstanceMethod_New)
        stands = python.more.PyInstanceMethod_New(hook);
    py->PyErr_Clear();
    int rc = place_hook(owner, name, hook, stands ? stands : hook, instance);
    py->Py_DecRef(stands);
    py->Py_DecRef(hook);
    return rc;
}

static PyObject *call_hook(PyObject *hook, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    return ((struct hook *)hook)->call(hook, args, (size_t)n, kwnames);
}

/* pybind11 asks of a method whether it is C++ or was overridden in Python, and must see C++. */
int hook_method(PyObject *class, const char *name, hook_call call)
{
    static struct cpython_method method = {"probing_hook", NULL, METH_FASTCALL | METH_KEYWORDS,
                                           NULL};
    struct cpython *py = &python.api;
    PyObject *original = own_attribute(class, name, /* instance= */ false);
    PyObject *hook = original ? kept_hook(original) : NULL;
    if (!original || hook) {
        py->Py_DecRef(hook);
        return original ? 0 : -ENOENT;
    }
    if (strcmp(object_class_text(original), "instancemethod") != 0 ||
        !python.more.PyInstanceMethod_New)
        return -ENOTSUP;
    memcpy(&method.call, &(PyCFunctionFastKeywords){call_hook}, sizeof(method.call));
    hook = new_hook(original, name, call, /* offset= */ 0);
    PyObject *function = hook ? py->PyCFunction_NewEx(&method, hook, NULL) : NULL;
    PyObject *stands = function ? python.more.PyInstanceMethod_New(function) : NULL;
    int rc = stands ? place_hook(class, name, hook, stands, /* instance= */ false) : -ENOMEM;
    py->PyErr_Clear();
    py->Py_DecRef(stands);
    py->Py_DecRef(function);
    py->Py_DecRef(hook);
    return rc;
}

int hook_class(PyObject *class, const char *name, hook_call call)
{
    return put_hook(class, name, call, /* instance= */ false, /* plain= */ false);
}

int hook_class_plain(PyObject *class, const char *name, hook_call call)
{
    return put_hook(class, name, call, /* instance= */ false, /* plain= */ true);
}

int hook_instance(PyObject *object, const char *name, hook_call call)
{
    return put_hook(object, name, call, /* instance= */ true, /* plain= */ true);
}

/* Its entry in a table of C's; NULL: it is no such method. */
static struct cpython_method *entry_of(PyObject *class, const char *name)
{
    struct cpython *py = &python.api;
    struct cpython_method *method = NULL;
    PyObject *descriptor = py->PyObject_GetAttrString(class, name);
    py->PyErr_Clear();
    if (descriptor && object_type(descriptor) == py->PyMethodDescr_Type)
        memcpy(&method, (char *)descriptor + DESCRIPTOR_METHOD, sizeof(method));
    py->Py_DecRef(descriptor); /* its class holds it */
    bool fits = method && method->name && strcmp(method->name, name) == 0 &&
                method->flags == (METH_VARARGS | METH_KEYWORDS);
    return fits ? method : NULL;
}

/* As memcpy(), but where the memory is not to be written to: -EFAULT. */
static int try_write(void *to, const void *from, size_t n)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == -1)
        return -errno;
    bool done = write(ends[1], from, n) == (ssize_t)n && read(ends[0], to, n) == (ssize_t)n;
    (void)close(ends[0]);
    (void)close(ends[1]);
    return done ? 0 : -EFAULT;
}

int hook_c_method(PyObject *class, const char *name, hook_c_call call)
{
    struct cpython_method *method = swapped.method ? NULL : entry_of(class, name);
    if (!method)
        return -ENOTSUP;
    memcpy(&swapped.original, &method->call, sizeof(swapped.original));
    int rc = try_write(&method->call, &call, sizeof(call));
    swapped.method = rc == 0 ? method : NULL;
    return rc;
}

PyObject *hook_c_pass(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return swapped.original(self, args, kwargs); /* it outlives stop() */
}

static void restore_c_method(void)
{
    if (swapped.method)
        memcpy(&swapped.method->call, &swapped.original, sizeof(swapped.original));
    swapped.method = NULL;
}

/* 1: somebody else stands there now. */
static int restore_place(const struct hook_place *p)
{
    struct cpython *py = &python.api;
    PyObject *owner = py->PyWeakref_GetObject(p->owner), *hook = p->hook;
    int kept = 0;
    py->Py_IncRef(hook); /* the owner's attribute was what held it */
    ((struct hook *)hook)->works = false;
    if (owner && owner != py->_Py_NoneStruct) {
        py->Py_IncRef(owner);
        PyObject *now = own_attribute(owner, p->name, p->instance);
        PyObject *ours = now ? kept_hook(now) : NULL;
        if (ours != hook || py->PyObject_SetAttrString(owner, p->name, hook_original(hook)) != 0)
            kept = now != NULL;
        py->PyErr_Clear();
        py->Py_DecRef(ours);
        py->Py_DecRef(owner);
    }
    py->Py_DecRef(p->owner);
    py->Py_DecRef(hook);
    return kept;
}

int hook_restore_all(void)
{
    int kept = 0;
    restore_c_method();
    while (n_places) { /* the newest first: a hook may stand on another */
        struct hook_place last = places[--n_places];
        kept += restore_place(&last);
    }
    free(places);
    places = NULL;
    places_room = 0;
    return kept;
}
