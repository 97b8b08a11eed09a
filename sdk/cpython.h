/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/cpython.h - the C API of the CPython that is in this process, found at run time.
 *
 * One binary for CPython 3.8 and newer: no Python headers, no libpython linked.  cpython_load()
 * looks the names up with dlsym(RTLD_DEFAULT), so it works in a static python and with a shared
 * libpython; a libpython that an embedder loaded RTLD_LOCAL is found by its file name.
 *
 * Threads: cpython_load() needs no GIL and may run on any thread, before Py_Initialize() too.  The
 * functions in the struct need what CPython's manual says, nearly always the GIL.
 * It does not start an interpreter and knows nothing of CPython's inner structures, except the two
 * fields of a type that calling by vectorcall needs before 3.11 (there it is an inline function).
 */
#ifndef SDK_CPYTHON_H
#define SDK_CPYTHON_H

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct cpython_object PyObject; /* the names are CPython's own, so its manual applies */
typedef intptr_t Py_ssize_t;
typedef PyObject *(*PyCFunction)(PyObject *self, PyObject *args);

struct cpython_method { /* PyMethodDef */
    const char *name;
    PyCFunction call; /* cast of what `flags` promises */
    int flags;
    const char *doc;
};

/* self, positional and keyword arguments as the caller had them: no tuple, no dict is made. */
typedef PyObject *(*PyCFunctionFastKeywords)(PyObject *self, PyObject *const *args, Py_ssize_t n,
                                             PyObject *kwnames);

struct cpython_slot { /* PyType_Slot */
    int slot;
    void *pfunc;
};

struct cpython_type_spec { /* PyType_Spec */
    const char *name;
    int basicsize, itemsize;
    unsigned int flags;
    struct cpython_slot *slots;
};

struct cpython_allocator { /* PyMemAllocatorEx */
    void *ctx;
    void *(*malloc)(void *ctx, size_t size);
    void *(*calloc)(void *ctx, size_t n, size_t size);
    void *(*realloc)(void *ctx, void *block, size_t size);
    void (*free)(void *ctx, void *block);
};

enum { /* methodobject.h */
    METH_VARARGS = 0x1,
    METH_KEYWORDS = 0x2,
    METH_NOARGS = 0x4,
    METH_O = 0x8,
    METH_CLASS = 0x10,
    METH_STATIC = 0x20,
    METH_FASTCALL = 0x80
};
enum { Py_single_input = 256, Py_file_input = 257, Py_eval_input = 258 }; /* compile.h */
#define CPYTHON_ARGUMENTS_OFFSET ((size_t)1 << 63) /* PY_VECTORCALL_ARGUMENTS_OFFSET */

/* result, name, arguments.  In every CPython from 3.8 to 3.15. */
#define CPYTHON_FUNCTIONS(X) \
    X(const char *, Py_GetVersion, (void)) \
    X(int, Py_IsInitialized, (void)) \
    X(void, Py_IncRef, (PyObject *)) \
    X(void, Py_DecRef, (PyObject *)) \
    X(int, Py_AddPendingCall, (int (*)(void *), void *)) \
    X(int, PyGILState_Ensure, (void)) \
    X(void, PyGILState_Release, (int)) \
    X(int, PyGILState_Check, (void)) \
    X(void *, PyGILState_GetThisThreadState, (void)) \
    X(void *, PyEval_SaveThread, (void)) \
    X(void, PyEval_RestoreThread, (void *)) \
    X(PyObject *, PyEval_GetBuiltins, (void)) \
    X(PyObject *, PyEval_GetFrame, (void)) \
    X(PyObject *, PyEval_EvalCode, (PyObject *, PyObject *, PyObject *)) \
    X(PyObject *, PyRun_StringFlags, (const char *, int, PyObject *, PyObject *, void *)) \
    X(PyObject *, Py_CompileStringExFlags, (const char *, const char *, int, void *, int)) \
    X(int, PyThreadState_SetAsyncExc, (unsigned long, PyObject *)) \
    X(PyObject *, PyImport_ImportModule, (const char *)) \
    X(PyObject *, PyImport_AddModule, (const char *)) \
    X(PyObject *, PyImport_GetModuleDict, (void)) \
    X(PyObject *, PyImport_GetModule, (PyObject *)) \
    X(PyObject *, PyModule_GetDict, (PyObject *)) \
    X(PyObject *, PySys_GetObject, (const char *)) \
    X(int, PySys_SetObject, (const char *, PyObject *)) \
    X(PyObject *, PyObject_GetAttrString, (PyObject *, const char *)) \
    X(int, PyObject_SetAttrString, (PyObject *, const char *, PyObject *)) \
    X(int, PyObject_HasAttrString, (PyObject *, const char *)) \
    X(PyObject *, PyObject_GetAttr, (PyObject *, PyObject *)) \
    X(int, PyObject_SetAttr, (PyObject *, PyObject *, PyObject *)) \
    X(PyObject *, PyObject_GenericGetAttr, (PyObject *, PyObject *)) \
    X(PyObject *, PyObject_GetItem, (PyObject *, PyObject *)) \
    X(int, PyObject_SetItem, (PyObject *, PyObject *, PyObject *)) \
    X(PyObject *, PyObject_Call, (PyObject *, PyObject *, PyObject *)) \
    X(PyObject *, PyObject_CallObject, (PyObject *, PyObject *)) \
    X(PyObject *, PyObject_CallFunction, (PyObject *, const char *, ...)) \
    X(PyObject *, PyObject_CallMethod, (PyObject *, const char *, const char *, ...)) \
    X(PyObject *, PyObject_CallFunctionObjArgs, (PyObject *, ...)) \
    X(PyObject *, PyObject_CallMethodObjArgs, (PyObject *, PyObject *, ...)) \
    X(PyObject *, PyObject_Str, (PyObject *)) \
    X(PyObject *, PyObject_Repr, (PyObject *)) \
    X(PyObject *, PyObject_Type, (PyObject *)) \
    X(int, PyObject_IsInstance, (PyObject *, PyObject *)) \
    X(int, PyObject_IsSubclass, (PyObject *, PyObject *)) \
    X(int, PyObject_IsTrue, (PyObject *)) \
    X(int, PyObject_RichCompareBool, (PyObject *, PyObject *, int)) \
    X(Py_ssize_t, PyObject_Size, (PyObject *)) \
    X(PyObject *, PyObject_GetIter, (PyObject *)) \
    X(PyObject *, PyIter_Next, (PyObject *)) \
    X(int, PyCallable_Check, (PyObject *)) \
    X(PyObject *, PyDict_New, (void)) \
    X(PyObject *, PyDict_Copy, (PyObject *)) \
    X(int, PyDict_Update, (PyObject *, PyObject *)) \
    X(void, PyDict_Clear, (PyObject *)) \
    X(PyObject *, PyDict_GetItem, (PyObject *, PyObject *)) \
    X(PyObject *, PyDict_GetItemWithError, (PyObject *, PyObject *)) \
    X(PyObject *, PyDict_GetItemString, (PyObject *, const char *)) \
    X(int, PyDict_SetItem, (PyObject *, PyObject *, PyObject *)) \
    X(int, PyDict_SetItemString, (PyObject *, const char *, PyObject *)) \
    X(int, PyDict_DelItemString, (PyObject *, const char *)) \
    X(int, PyDict_Next, (PyObject *, Py_ssize_t *, PyObject **, PyObject **)) \
    X(Py_ssize_t, PyDict_Size, (PyObject *)) \
    X(PyObject *, PyList_New, (Py_ssize_t)) \
    X(int, PyList_Append, (PyObject *, PyObject *)) \
    X(Py_ssize_t, PyList_Size, (PyObject *)) \
    X(PyObject *, PyList_GetItem, (PyObject *, Py_ssize_t)) \
    X(PyObject *, PyTuple_New, (Py_ssize_t)) \
    X(PyObject *, PyTuple_Pack, (Py_ssize_t, ...)) \
    X(Py_ssize_t, PyTuple_Size, (PyObject *)) \
    X(PyObject *, PyTuple_GetItem, (PyObject *, Py_ssize_t)) \
    X(int, PyTuple_SetItem, (PyObject *, Py_ssize_t, PyObject *)) \
    X(PyObject *, PyUnicode_FromString, (const char *)) \
    X(PyObject *, PyUnicode_FromStringAndSize, (const char *, Py_ssize_t)) \
    X(PyObject *, PyUnicode_DecodeUTF8, (const char *, Py_ssize_t, const char *)) \
    X(PyObject *, PyUnicode_InternFromString, (const char *)) \
    X(const char *, PyUnicode_AsUTF8AndSize, (PyObject *, Py_ssize_t *)) \
    X(int, PyUnicode_CompareWithASCIIString, (PyObject *, const char *)) \
    X(PyObject *, PyUnicode_AsEncodedString, (PyObject *, const char *, const char *)) \
    X(int, PyBytes_AsStringAndSize, (PyObject *, char **, Py_ssize_t *)) \
    X(PyObject *, PyBytes_FromStringAndSize, (const char *, Py_ssize_t)) \
    X(PyObject *, PyLong_FromLongLong, (long long)) \
    X(PyObject *, PyLong_FromUnsignedLongLong, (unsigned long long)) \
    X(PyObject *, PyLong_FromVoidPtr, (void *)) \
    X(long long, PyLong_AsLongLong, (PyObject *)) \
    X(unsigned long long, PyLong_AsUnsignedLongLong, (PyObject *)) \
    X(PyObject *, PyFloat_FromDouble, (double)) \
    X(double, PyFloat_AsDouble, (PyObject *)) \
    X(PyObject *, PyNumber_Float, (PyObject *)) \
    X(PyObject *, PyBool_FromLong, (long)) \
    X(PyObject *, PyErr_Occurred, (void)) \
    X(void, PyErr_Clear, (void)) \
    X(void, PyErr_Fetch, (PyObject **, PyObject **, PyObject **)) \
    X(void, PyErr_Restore, (PyObject *, PyObject *, PyObject *)) \
    X(void, PyErr_NormalizeException, (PyObject **, PyObject **, PyObject **)) \
    X(void, PyErr_SetString, (PyObject *, const char *)) \
    X(PyObject *, PyErr_Format, (PyObject *, const char *, ...)) \
    X(int, PyErr_ExceptionMatches, (PyObject *)) \
    X(int, PyErr_GivenExceptionMatches, (PyObject *, PyObject *)) \
    X(PyObject *, PyDescr_NewMethod, (PyObject *, struct cpython_method *)) \
    X(PyObject *, PyCFunction_NewEx, (struct cpython_method *, PyObject *, PyObject *)) \
    X(PyObject *, PyMethod_New, (PyObject *, PyObject *)) \
    X(PyObject *, PyWeakref_NewRef, (PyObject *, PyObject *)) \
    X(PyObject *, PyWeakref_GetObject, (PyObject *)) \
    X(PyObject *, PyCapsule_New, (void *, const char *, void (*)(PyObject *))) \
    X(void *, PyCapsule_GetPointer, (PyObject *, const char *)) \
    X(PyObject *, PyType_FromSpec, (struct cpython_type_spec *)) \
    X(int, PyType_IsSubtype, (PyObject *, PyObject *)) \
    X(unsigned long, PyType_GetFlags, (PyObject *)) \
    X(void, PyType_Modified, (PyObject *)) \
    X(void *, PyType_GetSlot, (PyObject *, int)) \
    X(PyObject *, PyType_GenericAlloc, (PyObject *, Py_ssize_t)) \
    X(PyObject *, PyType_GenericNew, (PyObject *, PyObject *, PyObject *)) \
    X(void *, PyInterpreterState_Main, (void)) \
    X(PyObject *, PyInterpreterState_GetDict, (void *)) \
    X(void *, PyThreadState_New, (void *)) \
    X(void *, PyThreadState_Get, (void)) \
    X(void, PyMem_Free, (void *)) \
    X(void, PyMem_GetAllocator, (int, struct cpython_allocator *)) \
    X(void, PyMem_SetAllocator, (int, struct cpython_allocator *))

/* Not in every version: NULL where it is not.  Ask before calling. */
#define CPYTHON_OPTIONAL(X) \
    X(int, Py_IsFinalizing, (void))                                              /* 3.13 */ \
    X(int, _Py_IsFinalizing, (void))                                             /* to 3.12 */ \
    X(PyObject *, PyObject_Vectorcall, (PyObject *, PyObject *const *, size_t, PyObject *)) \
    X(PyObject *, PyErr_GetRaisedException, (void))                              /* 3.12 */ \
    X(PyObject *, PyFrame_GetVarString, (PyObject *, const char *))              /* 3.12 */ \
    X(int, PyContextVar_Get, (PyObject *, PyObject *, PyObject **))              /* 3.7.1 */ \
    X(void, PyErr_SetRaisedException, (PyObject *))                              /* 3.12 */ \
    X(PyObject *, _PyObject_MakeTpCall, (void))  /* called only by cpython_vectorcall() */ \
    X(void *, PyInterpreterState_Get, (void))                                    /* 3.9 */ \
    X(void *, _PyInterpreterState_Get, (void))                                   /* 3.8 */ \
    X(void *, PyThreadState_GetUnchecked, (void))                                /* 3.13 */ \
    X(void *, _PyThreadState_UncheckedGet, (void))                               /* to 3.12 */

/* Objects that are variables of the interpreter. */
#define CPYTHON_OBJECTS(X) \
    X(_Py_NoneStruct) X(_Py_TrueStruct) X(_Py_FalseStruct) X(_Py_NotImplementedStruct) \
    X(PyType_Type) X(PyBaseObject_Type) X(PyUnicode_Type) X(PyBytes_Type) X(PyLong_Type) \
    X(PyFloat_Type) X(PyBool_Type) X(PyDict_Type) X(PyList_Type) X(PyTuple_Type) \
    X(PyFunction_Type) X(PyMethodDescr_Type) X(PyCode_Type) X(PyMethod_Type) X(PyModule_Type) \
    X(PyCell_Type) X(PySet_Type) X(PyFrozenSet_Type) X(PyByteArray_Type) X(PyComplex_Type)
/* Variables that point to an object. */
#define CPYTHON_POINTERS(X) \
    X(PyExc_BaseException) X(PyExc_Exception) X(PyExc_SystemExit) X(PyExc_KeyboardInterrupt) \
    X(PyExc_RuntimeError) X(PyExc_TypeError) X(PyExc_ValueError) X(PyExc_AttributeError) \
    X(PyExc_SyntaxError) X(PyExc_RecursionError) X(PyExc_MemoryError)

struct cpython {
    uint32_t version;    /* PY_VERSION_HEX: 0x030b02f0; 0: not loaded */
    const char *missing; /* the first required name that was not found, NULL: none */
    void *runtime;       /* &_PyRuntime, NULL when it is not exported */
#define CPYTHON_FIELD(result, name, args) result(*name) args;
    CPYTHON_FUNCTIONS(CPYTHON_FIELD)
    CPYTHON_OPTIONAL(CPYTHON_FIELD)
#undef CPYTHON_FIELD
#define CPYTHON_FIELD(name) PyObject *name;
    CPYTHON_OBJECTS(CPYTHON_FIELD)
    CPYTHON_POINTERS(CPYTHON_FIELD)
#undef CPYTHON_FIELD
};

/* Is it at least CPython 3.minor? */
static inline bool cpython_since(const struct cpython *py, unsigned minor)
{
    return py->version >= (0x03000000u | minor << 16);
}

/* Take the first of several that has begun, else the first. */
static inline int cpython_is_libpython(struct dl_phdr_info *info, size_t size, void *ret)
{
    void **found = (void **)ret;
    const char *base = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    (void)size;
    if (!base || strncmp(base, "/libpython3", 11) != 0)
        return 0;
    void *library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    void *address = library ? dlsym(library, "Py_IsInitialized") : NULL;
    int (*begun)(void) = NULL;
    memcpy(&begun, &address, sizeof(begun));
    bool runs = begun && begun();
    if (!library || (*found && !runs)) {
        if (library)
            (void)dlclose(library);
        return 0;
    }
    if (*found)
        (void)dlclose(*found);
    *found = library;
    return runs;
}

#define CPYTHON_PYPY \
    "this is PyPy, not CPython: its native stacks are all that can be read; no code is run in it"

/* Is the file of an executable or library a PyPy? */
static inline bool cpython_is_pypy(const char *path)
{
    const char *base = path ? strrchr(path, '/') : NULL;
    base = base ? base + 1 : path;
    return base && (strncmp(base, "libpypy", 7) == 0 || strncmp(base, "pypy", 4) == 0);
}

static inline int cpython_find_pypy(struct dl_phdr_info *info, size_t size, void *ret)
{
    (void)size;
    (void)ret;
    return cpython_is_pypy(info->dlpi_name);
}

/* "3.11.2 (main, ...)" or "3.13.0rc1 ..." as PY_VERSION_HEX; 0 when it is not such a text. */
static inline uint32_t cpython_parse_version(const char *text)
{
    uint32_t part[3] = {0};
    const char *p = text;
    for (int i = 0; i < 3; i++) {
        if (*p < '0' || *p > '9')
            return 0;
        while (*p >= '0' && *p <= '9' && part[i] < 256)
            part[i] = part[i] * 10 + (uint32_t)(*p++ - '0');
        if (part[i] > 255 || (i < 2 && *p++ != '.'))
            return 0;
    }
    uint32_t level = *p == 'a' ? 0xa0 : *p == 'b' ? 0xb0 : *p == 'r' ? 0xc0 : 0xf0;
    if (level != 0xf0)
        p += *p == 'r' ? 2 : 1;
    uint32_t serial = level != 0xf0 && *p >= '0' && *p <= '9' ? (uint32_t)(*p - '0') : 0;
    return part[0] << 24 | part[1] << 16 | part[2] << 8 | level | serial;
}

/* Find everything.  0; -ENODEV: there is no CPython in this process; -ENOTSUP: it is older than
 * 3.8; -ENOSYS: it lacks a name that every CPython has (py->missing says which).        [any] */
static inline int cpython_load(struct cpython *py)
{
    *py = (struct cpython){.version = 0};
    void *from = RTLD_DEFAULT;
    void *get_version = dlsym(from, "Py_GetVersion");
    if (!get_version) {
        void *library = NULL;
        (void)dl_iterate_phdr(cpython_is_libpython, &library);
        if (!library)
            return -ENODEV;
        from = library; /* the reference stays: we may be in its functions as long as we live */
        get_version = dlsym(from, "Py_GetVersion");
        if (!get_version)
            return -ENODEV;
    }
    __extension__ const char *(*version)(void) = (const char *(*)(void))get_version;
    uint32_t hex = cpython_parse_version(version());
    if (hex < 0x03080000u)
        return -ENOTSUP;
    py->runtime = dlsym(from, "_PyRuntime");
    void *address;
    /* memcpy: ISO C has no conversion from an object pointer to a function pointer */
#define CPYTHON_OPTION(result, name, args) \
    address = dlsym(from, #name); \
    memcpy(&py->name, &address, sizeof(address));
#define CPYTHON_NEED(result, name, args) \
    CPYTHON_OPTION(result, name, args) if (!address && !py->missing) py->missing = #name;
    CPYTHON_FUNCTIONS(CPYTHON_NEED)
    CPYTHON_OPTIONAL(CPYTHON_OPTION)
#undef CPYTHON_NEED
#undef CPYTHON_OPTION
#define CPYTHON_NEED(name) \
    py->name = (PyObject *)dlsym(from, #name); \
    if (!py->name && !py->missing) \
        py->missing = #name;
    CPYTHON_OBJECTS(CPYTHON_NEED)
#undef CPYTHON_NEED
    /* before Py_Initialize() these are still NULL inside: then load again later */
#define CPYTHON_NEED(name) \
    address = dlsym(from, #name); \
    py->name = address ? *(PyObject **)address : NULL; \
    if (!address && !py->missing) \
        py->missing = #name;
    CPYTHON_POINTERS(CPYTHON_NEED)
#undef CPYTHON_NEED
    if (py->missing)
        return -ENOSYS;
    py->version = hex;
    return 0;
}

/* Is there no interpreter to work with: not begun, or ending?                            [any] */
static inline bool cpython_gone(const struct cpython *py)
{
    if (!py->version || !py->Py_IsInitialized())
        return true;
    return py->Py_IsFinalizing    ? py->Py_IsFinalizing() != 0
           : py->_Py_IsFinalizing ? py->_Py_IsFinalizing() != 0
                                  : false;
}

/* PyObject_Vectorcall() for every version; nargsf may carry CPYTHON_ARGUMENTS_OFFSET. */
static inline PyObject *cpython_vectorcall(const struct cpython *py, PyObject *callable,
                                           PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (py->PyObject_Vectorcall)
        return py->PyObject_Vectorcall(callable, args, nargsf, kwnames);
    /* 3.8 to 3.10: what abstract.h did inline.  The type is the object's second word; in it the
     * slot offset stands at 56 and the flags at 168 (object.h), bit 11: the type has the slot. */
    Py_ssize_t nargs = (Py_ssize_t)(nargsf & ~CPYTHON_ARGUMENTS_OFFSET);
    const char *type;
    memcpy(&type, (const char *)callable + sizeof(void *), sizeof(type));
    unsigned long flags;
    Py_ssize_t slot;
    memcpy(&flags, type + 168, sizeof(flags));
    memcpy(&slot, type + 56, sizeof(slot));
    if ((flags & 1ul << 11) && slot > 0) {
        PyObject *(*call)(PyObject *, PyObject *const *, size_t, PyObject *);
        memcpy(&call, (const char *)callable + slot, sizeof(call));
        if (call)
            return call(callable, args, nargsf, kwnames);
    }
    void *make = NULL;
    memcpy(&make, &py->_PyObject_MakeTpCall, sizeof(make));
    if (!make) {
        py->PyErr_SetString(py->PyExc_RuntimeError, "probing: no way to call this object");
        return NULL;
    }
    if (!cpython_since(py, 9)) {
        PyObject *(*call)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
        memcpy(&call, &make, sizeof(call));
        return call(callable, args, nargs, kwnames);
    }
    PyObject *(*call)(void *, PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
    memcpy(&call, &make, sizeof(call));
    return call(py->PyThreadState_Get(), callable, args, nargs, kwnames);
}

#endif
