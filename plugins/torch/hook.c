/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/hook.c - a C callable put in the place of a Python function, and taken out again.
 *
 * Threads: any that holds the GIL.
 * It does not know what it hooks.  A method descriptor of CPython would be simpler, but torch asks
 * bound methods for __func__, __code__ and attributes of its own (lr_scheduler, export, dynamo): so
 * the hook binds as a function does and forwards every attribute to the function it stands for.
 * torch.compile calls what it does not know in a class without `self`, except an instancemethod, at
 * which it goes back to the interpreter (2.13, _dynamo/variables/user_defined.py): so one of those
 * stands around the hook in a class, but for Module.__call__, which dynamo is told of.
 * A hook that somebody kept beyond stop() passes calls on, for ever: this code stays mapped.
 */
#include "torch.h"

#include <errno.h>
#include <stdlib.h>

/* Offsets in PyTypeObject, the same from 3.8 to 3.13 (object.h; see cpython_vectorcall()). */
#define TYPE_NAME 24
#define TYPE_VECTORCALL_OFFSET 56
#define TYPE_FLAGS 168
#define FLAG_VECTORCALL (1ul << 11)
#define FLAG_METHOD_DESCRIPTOR (1ul << 17) /* m.f(x) calls f(m, x): no bound method is made */
#define FLAGS_DEFAULT (1ul << 18)          /* Py_TPFLAGS_DEFAULT as of 3.8 */
#define PLACES_MAX 4096u /* hooks at a time: optimizers and their classes are few */

enum {
    SLOT_CALL = 50,
    SLOT_DEALLOC = 52,
    SLOT_DESCR_GET = 54,
    SLOT_GETATTRO = 58,
    SLOT_METHODS = 64,
    SLOT_SETATTRO = 69
}; /* typeslots.h */

struct hook { /* a Python object */
    intptr_t refcnt;
    PyObject *type;
    hook_call call;
    PyObject *original;
    const char *name;
    ptrdiff_t vectorcall; /* where `original` keeps its own; 0: it is called as any object is */
    bool works;           /* it is in its place; else somebody kept it, and it only passes on */
};

struct place {
    PyObject *owner; /* a class, or a weak reference to an instance; owned */
    const char *name;
    PyObject *hook;   /* owned */
    PyObject *stands; /* what is there: the hook, or what calls it; owned */
    bool instance;
};

static struct place *places; /* lock: the GIL */
static uint32_t n_places;    /* lock: the GIL */
static PyObject *hook_type;  /* lock: the GIL; made once, lives as long as the interpreter */

PyObject *hook_pass(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    struct hook *h = (struct hook *)hook;
    hook_call call;
    if (h->vectorcall == 0)
        return cpython_vectorcall(&torch_state.py, h->original, args,
                                  nargsf & ~CPYTHON_ARGUMENTS_OFFSET, kwnames);
    memcpy(&call, (const char *)h->original + h->vectorcall, sizeof(call));
    return call(h->original, args, nargsf, kwnames);
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

static void hook_free(PyObject *object)
{
    struct hook *h = (struct hook *)object;
    torch_state.py.Py_DecRef(h->original);
    torch_state.more.PyObject_Free(object);
    torch_state.py.Py_DecRef(hook_type);
}

static PyObject *hook_bind(PyObject *hook, PyObject *object, PyObject *class)
{
    (void)class;
    if (object && object != torch_state.py._Py_NoneStruct)
        return torch_state.py.PyMethod_New(hook, object);
    torch_state.py.Py_IncRef(hook);
    return hook;
}

/* What makes a hook a hook must not come from the function: it would lead past us. */
static bool is_own_attribute(PyObject *name)
{
    static const char *const own[] = {"__get__", "__call__", "__class__", "__copy__",
                                      "__deepcopy__"};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (torch_state.py.PyUnicode_CompareWithASCIIString(name, own[i]) == 0)
            return true;
    return false;
}

static PyObject *hook_get(PyObject *hook, PyObject *name)
{
    if (is_own_attribute(name))
        return torch_state.py.PyObject_GenericGetAttr(hook, name);
    return torch_state.py.PyObject_GetAttr(((struct hook *)hook)->original, name);
}

static int hook_set(PyObject *hook, PyObject *name, PyObject *value)
{
    return torch_state.py.PyObject_SetAttr(((struct hook *)hook)->original, name, value);
}

/* Functions are not copied, they are shared; the copy of an optimizer gets the one without us. */
static PyObject *hook_copy(PyObject *hook, PyObject *unused)
{
    (void)unused;
    PyObject *original = hook_original(hook);
    torch_state.py.Py_IncRef(original);
    return original;
}

/* A type with a vectorcall slot; PyType_FromSpec() of 3.8 cannot say where that is. */
static int make_type(void)
{
    static struct cpython_method methods[] = {
        {"__copy__", hook_copy, METH_NOARGS, NULL},
        {"__deepcopy__", hook_copy, METH_O, NULL},
        {NULL, NULL, 0, NULL},
    };
    void *call, *dealloc, *get, *getattro, *setattro;
    memcpy(&call, &torch_state.more.PyVectorcall_Call, sizeof(call));
    memcpy(&dealloc, &(void (*)(PyObject *)){hook_free}, sizeof(dealloc));
    memcpy(&get, &(PyObject * (*)(PyObject *, PyObject *, PyObject *)){hook_bind}, sizeof(get));
    memcpy(&getattro, &(PyObject * (*)(PyObject *, PyObject *)){hook_get}, sizeof(getattro));
    memcpy(&setattro, &(int (*)(PyObject *, PyObject *, PyObject *)){hook_set}, sizeof(setattro));
    struct cpython_slot slots[] = {
        {SLOT_CALL, call},
        {SLOT_DEALLOC, dealloc},
        {SLOT_DESCR_GET, get},
        {SLOT_GETATTRO, getattro},
        {SLOT_SETATTRO, setattro},
        {SLOT_METHODS, methods},
        {0, NULL},
    };
    struct cpython_type_spec spec = {
        .name = "probing.hook",
        .basicsize = (int)sizeof(struct hook),
        .flags = FLAGS_DEFAULT | FLAG_METHOD_DESCRIPTOR,
        .slots = slots,
    };
    PyObject *type = torch_state.py.PyType_FromSpec(&spec);
    if (!type) {
        torch_state.py.PyErr_Clear();
        return -ENOMEM;
    }
    Py_ssize_t offset = offsetof(struct hook, call);
    memcpy((char *)type + TYPE_VECTORCALL_OFFSET, &offset, sizeof(offset));
    unsigned long flags;
    memcpy(&flags, (char *)type + TYPE_FLAGS, sizeof(flags));
    flags |= FLAG_VECTORCALL | FLAG_METHOD_DESCRIPTOR;
    memcpy((char *)type + TYPE_FLAGS, &flags, sizeof(flags));
    hook_type = type;
    return 0;
}

static PyObject *new_hook(PyObject *original, const char *name, hook_call call, Py_ssize_t offset)
{
    if (!hook_type && make_type() < 0)
        return NULL;
    struct hook *h = (struct hook *)torch_state.py.PyType_GenericAlloc(hook_type, 0);
    if (!h) {
        torch_state.py.PyErr_Clear();
        return NULL;
    }
    torch_state.py.Py_IncRef(original);
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

static int add_place(PyObject *owner, const char *name, PyObject *hook, PyObject *stands,
                     bool instance)
{
    if (n_places >= PLACES_MAX)
        return -ENOSPC;
    if ((n_places & (n_places - 1)) == 0) { /* full at every power of two */
        size_t room = n_places ? n_places * 2 : 1;
        struct place *grown = realloc(places, room * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        places = grown;
    }
    torch_state.py.Py_IncRef(owner);
    torch_state.py.Py_IncRef(hook);
    torch_state.py.Py_IncRef(stands);
    places[n_places++] = (struct place){owner, name, hook, stands, instance};
    return 0;
}

/* An object's own attribute, borrowed; NULL: it has none. */
static PyObject *own_attribute(PyObject *object, const char *name, bool instance)
{
    PyObject *dict =
        instance ? names_dict(object) : torch_state.py.PyObject_GetAttrString(object, "__dict__");
    if (!dict) {
        torch_state.py.PyErr_Clear();
        return NULL;
    }
    PyObject *text = torch_state.py.PyUnicode_FromString(name);
    PyObject *value = text ? torch_state.py.PyObject_GetItem(dict, text) : NULL;
    torch_state.py.PyErr_Clear();
    torch_state.py.Py_DecRef(text);
    torch_state.py.Py_DecRef(dict);
    torch_state.py.Py_DecRef(value); /* its owner holds it */
    return value;
}

static bool is_placed(const PyObject *object)
{
    for (uint32_t i = 0; i < n_places; i++)
        if (places[i].stands == object)
            return true;
    return false;
}

/* Let `stands`, which calls `hook`, stand in its place. */
static int place(PyObject *owner, PyObject *kept, const char *name, PyObject *hook,
                 PyObject *stands, bool instance)
{
    struct cpython *py = &torch_state.py;
    int rc = add_place(kept, name, hook, stands, instance);
    if (rc == 0 && py->PyObject_SetAttrString(owner, name, stands) != 0) {
        py->PyErr_Clear();
        py->Py_DecRef(hook); /* what add_place() took; the caller's is left */
        py->Py_DecRef(stands);
        py->Py_DecRef(kept);
        n_places--;
        rc = -ENOTSUP;
    }
    ((struct hook *)hook)->works = rc == 0;
    return rc;
}

/* Our hook in what stands in a class, new reference; NULL: it is none. */
static PyObject *kept_hook(PyObject *stands)
{
    struct cpython *py = &torch_state.py;
    PyObject *inner = stands;
    if (strcmp(names_class_text(stands), "instancemethod") == 0)
        inner = py->PyObject_GetAttrString(stands, "__func__");
    else
        py->Py_IncRef(inner);
    py->PyErr_Clear();
    if (inner && hook_is(inner))
        return inner;
    py->Py_DecRef(inner);
    return NULL;
}

/* Let the hook stand in the place; `plain`: itself, also in a class. */
static int put(PyObject *owner, PyObject *kept, const char *name, hook_call call, bool instance,
               bool plain)
{
    struct cpython *py = &torch_state.py;
    PyObject *original = own_attribute(owner, name, instance);
    if (!original)
        return -ENOENT;
    if (is_placed(original))
        return 0;
    PyObject *hook = kept_hook(original); /* somebody put it back after a stop(): it works again */
    if (!hook)
        hook = make_hook(original, name, call, instance);
    if (!hook)
        return -ENOTSUP;
    PyObject *stands = NULL;
    if (!instance && !plain && torch_state.more.PyInstanceMethod_New)
        stands = torch_state.more.PyInstanceMethod_New(hook);
    py->PyErr_Clear();
    int rc = place(owner, kept, name, hook, stands ? stands : hook, instance);
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
    struct cpython *py = &torch_state.py;
    PyObject *original = own_attribute(class, name, /* instance= */ false);
    const char *type = original ? names_class_text(original) : "";
    if (!original || is_placed(original))
        return original ? 0 : -ENOENT;
    if (strcmp(type, "instancemethod") != 0 || !torch_state.more.PyInstanceMethod_New)
        return -ENOTSUP;
    memcpy(&method.call, &(PyCFunctionFastKeywords){call_hook}, sizeof(method.call));
    PyObject *hook = new_hook(original, name, call, /* offset= */ 0);
    PyObject *function = hook ? py->PyCFunction_NewEx(&method, hook, NULL) : NULL;
    PyObject *stands = function ? torch_state.more.PyInstanceMethod_New(function) : NULL;
    int rc = stands ? place(class, class, name, hook, stands, /* instance= */ false) : -ENOMEM;
    py->PyErr_Clear();
    py->Py_DecRef(stands);
    py->Py_DecRef(function);
    py->Py_DecRef(hook);
    return rc;
}

int hook_class(PyObject *class, const char *name, hook_call call)
{
    return put(class, class, name, call, /* instance= */ false, /* plain= */ false);
}

int hook_class_plain(PyObject *class, const char *name, hook_call call)
{
    return put(class, class, name, call, /* instance= */ false, /* plain= */ true);
}

int hook_instance(PyObject *object, const char *name, hook_call call)
{
    PyObject *weak = torch_state.py.PyWeakref_NewRef(object, NULL);
    if (!weak) {
        torch_state.py.PyErr_Clear();
        return -ENOTSUP;
    }
    int rc = put(object, weak, name, call, /* instance= */ true, /* plain= */ true);
    torch_state.py.Py_DecRef(weak);
    return rc;
}

/* 1: somebody else stands there now. */
static int restore(struct place *p)
{
    struct cpython *py = &torch_state.py;
    PyObject *owner = p->instance ? py->PyWeakref_GetObject(p->owner) : p->owner;
    int kept = 0;
    ((struct hook *)p->hook)->works = false;
    if (owner && owner != py->_Py_NoneStruct) {
        py->Py_IncRef(owner);
        PyObject *now = own_attribute(owner, p->name, p->instance);
        PyObject *original = ((struct hook *)p->hook)->original;
        if (now != p->stands || py->PyObject_SetAttrString(owner, p->name, original) != 0)
            kept = now != NULL;
        py->PyErr_Clear();
        py->Py_DecRef(owner);
    }
    py->Py_DecRef(p->owner);
    py->Py_DecRef(p->hook);
    py->Py_DecRef(p->stands);
    return kept;
}

int hook_restore_all(void)
{
    int kept = 0;
    while (n_places) { /* the newest first: a hook may stand on another */
        struct place last = places[--n_places];
        kept += restore(&last);
    }
    free(places);
    places = NULL;
    return kept;
}
