/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/trace.c - functions that are watched: what runs at each of their calls, and the
 * command `trace`.
 *
 * The hooks run in the user's threads with the GIL; trace.py puts them in and takes them out on the
 * runner's thread, with the GIL too, so a slot changes under nobody.  [worker] follows what is told
 * of calls through a bounded queue.  A hook whose slot has gone does nothing but go on.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "natives.h"
#include "plugin.h"

#define SLOTS 64       /* bits of a client's set */
#define DEPTH 256      /* calls of watched functions inside each other, of one thread */
#define COPY_DEPTH 150 /* 3.11: there each such call takes C stack that it would not take else */
#define LINES 1024     /* of the queue; a power of two */
#define LINE_TEXT 200  /* bytes of attributes that are shown as they come */
#define TAIL_MAX 4000  /* bytes of attributes that are kept */
#define LOOK_NS UINT64_C(100000000)  /* how often a client is told */
#define GIL_NS UINT64_C(10000000000) /* to take hooks out */
#define RECURSION_3_11 \
    32 /* tstate->recursion_remaining; recursion_limit follows it (cpython 3.11) */

enum phase { RETURNED, RAISED, YIELDED, PHASES };
static const char *const phase_names[PHASES] = {"return", "raise", "yield"};

struct slot {                  /* all: lock: the GIL, but what is _Atomic */
    PyObject *key;             /* code (3.12), function (to 3.10) or its copy (3.11); NULL: free */
    PyObject *args, *result;   /* trace.py's describe_args() and _result(); NULL: not asked for */
    PyObject *variable_value;  /* describe_value(); NULL: calls are watched, not a variable */
    PyObject *function, *code; /* 3.11: the real ones */
    void *entry;               /* to 3.10: the function's own vectorcall */
    uint64_t name_id, variable_id, life;
    int64_t limit; /* calls; 0: none */
    char name[120], variable[64];
    _Atomic bool live;
    _Atomic int64_t calls, raised, total_ns;
};

struct call {
    uint64_t began, span, life;
    PyObject *text; /* what was told of the arguments, or last of the variable; or NULL */
    uint32_t slot;
};

struct line { /* what clients see as it comes */
    uint64_t ts, duration_ns;
    int32_t tid;
    uint32_t slot;
    enum phase phase;
    char text[LINE_TEXT];
};

static struct slot slots[SLOTS];
static uint64_t lives, phase_ids[PHASES], call_id; /* lock: the GIL; ids since trace_init() */
static _Atomic uint64_t spans;
static _Atomic bool any; /* a slot is taken */
static __thread struct call calls[DEPTH];
static __thread uint32_t n_calls, too_deep;

static const struct probing_host *host; /* written in trace_init(), before a slot is taken */
static struct probing_table *events, *variables;

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static struct line queue[LINES]; /* lock: queue_lock */
static uint64_t queued;          /* lock: queue_lock; lines ever */
static _Atomic int followers;

static struct {
    pthread_mutex_t lock; /* from a client's words until its slots are known */
    uint64_t slots, duration_ns;
    bool keep;
    PyObject *finish; /* trace.py's; lock: the GIL */
} asked = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- rows ---- */

static void show(uint32_t slot, uint64_t ts, uint64_t duration_ns, enum phase phase,
                 const char *text, size_t n)
{
    if (atomic_load_explicit(&followers, memory_order_relaxed) == 0)
        return;
    (void)pthread_mutex_lock(&queue_lock);
    struct line *l = &queue[queued++ % LINES];
    *l = (struct line){.ts = ts, .duration_ns = duration_ns, .slot = slot, .phase = phase};
    l->tid = (int32_t)syscall(SYS_gettid);
    if (n >= sizeof(l->text)) {
        n = sizeof(l->text) - 4;
        memcpy(l->text + n, "...", 4);
    }
    memcpy(l->text, text, n);
    (void)pthread_mutex_unlock(&queue_lock);
}

static const char *utf8_of(PyObject *text, size_t *ret_n)
{
    Py_ssize_t n = 0;
    const char *utf8 = text ? natives_py.PyUnicode_AsUTF8AndSize(text, &n) : NULL;
    if (text && !utf8)
        natives_py.PyErr_Clear(); /* a lone surrogate */
    *ret_n = utf8 ? (size_t)n : 0;
    return utf8 ? utf8 : "";
}

/* Cut at TAIL_MAX, between characters. */
static size_t cut(const char *text, size_t n)
{
    if (n > TAIL_MAX)
        for (n = TAIL_MAX; n > 0 && (text[n] & 0xc0) == 0x80; n--)
            continue;
    return n;
}

static void call_row(struct slot *s, const struct call *c, uint64_t now, enum phase phase,
                     PyObject *attributes)
{
    size_t n;
    const char *text = utf8_of(attributes, &n);
    uint64_t parent = n_calls > 0 ? calls[n_calls - 1].span : 0;
    const union probing_cell cells[] = {
        {.u = call_id},
        {.i = PROBING_NULL_I64},
        {.i = (int64_t)c->span},
        {.i = parent ? (int64_t)parent : PROBING_NULL_I64},
        {.u = s->name_id},
        {.u = phase_ids[phase]},
        {.i = (int64_t)(now - c->began)},
    };
    (void)host->append(events, now, cells, sizeof(cells) / sizeof(cells[0]), n ? text : NULL,
                       (uint32_t)cut(text, n));
    show(c->slot, now, now - c->began, phase, text, n);
}

/* ---- a call begins and ends ---- */

/* An error of our own code must not become one of the user's; but what a signal handler of theirs
 * raised while our code ran is theirs.  true: it goes on to them. */
static bool is_theirs(void)
{
    const struct cpython *py = &natives_py;
    if (!py->PyErr_Occurred())
        return false;
    if (!py->PyErr_ExceptionMatches(py->PyExc_RecursionError) &&
        !py->PyErr_ExceptionMatches(py->PyExc_MemoryError))
        return true;
    py->PyErr_Clear();
    return false;
}

static void forget(struct call *c)
{
    if (c->text)
        natives_py.Py_DecRef(c->text);
    c->text = NULL;
}

/* NULL: too many inside each other, this one is not measured. */
static struct call *enter(uint32_t i)
{
    if (n_calls == DEPTH) { /* left behind by what was taken out meanwhile, or really so deep */
        too_deep++;
        return NULL;
    }
    struct call *c = &calls[n_calls++];
    *c = (struct call){.slot = i, .life = slots[i].life};
    c->span = atomic_fetch_add_explicit(&spans, 1, memory_order_relaxed) + 1;
    return c;
}

/* The newest call of the slot's; those above it never ended as far as we saw. */
static struct call *innermost(uint32_t i)
{
    for (uint32_t n = n_calls; n > 0; n--)
        if (calls[n - 1].slot == i && calls[n - 1].life == slots[i].life) {
            while (n_calls > n)
                forget(&calls[--n_calls]);
            return &calls[n - 1];
        }
    return NULL;
}

/* false: an exception of the user's is set. */
static bool leave(uint32_t i, enum phase phase, PyObject *value)
{
    struct slot *s = &slots[i];
    uint64_t now = host->now();
    struct call *found = innermost(i);
    if (!found)
        return true;
    struct call c = *found;
    n_calls--;
    PyObject *text = c.text;
    bool good = true;
    if (text && value && s->result) {
        text = natives_py.PyObject_CallFunctionObjArgs(s->result, c.text, value, NULL);
        good = !is_theirs();
    } else if (text) {
        natives_py.Py_IncRef(text);
    }
    int64_t count = atomic_fetch_add_explicit(&s->calls, 1, memory_order_relaxed) + 1;
    if (phase == RAISED)
        (void)atomic_fetch_add_explicit(&s->raised, 1, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&s->total_ns, (int64_t)(now - c.began), memory_order_relaxed);
    if (!s->limit || count <= s->limit)
        call_row(s, &c, now, phase, text);
    if (s->limit && count >= s->limit)
        atomic_store_explicit(&s->live, false, memory_order_relaxed);
    if (text)
        natives_py.Py_DecRef(text);
    forget(&c);
    return good;
}

static bool is_live(uint32_t i)
{
    return atomic_load_explicit(&slots[i].live, memory_order_relaxed);
}

/* ---- a variable ---- */

static void variable_row(struct slot *s, uint32_t i, int64_t line, PyObject *told)
{
    const struct cpython *py = &natives_py;
    size_t n, type_n;
    const char *text = utf8_of(py->PyTuple_GetItem(told, 0), &n);
    const char *type = utf8_of(py->PyTuple_GetItem(told, 1), &type_n);
    PyObject *number = py->PyTuple_GetItem(told, 2);
    uint64_t type_id, now = host->now();
    union probing_cell value = {.u = PROBING_NULL_F64};
    if (number != py->_Py_NoneStruct)
        value.f = py->PyFloat_AsDouble(number);
    if (host->intern(host, type, type_n < 200 ? type_n : 200, &type_id) < 0)
        type_id = PROBING_NULL_ID;
    const union probing_cell cells[] = {
        {.i = PROBING_NULL_I64}, {.u = s->name_id}, {.i = line},
        {.u = s->variable_id},   {.u = type_id},    value,
    };
    (void)host->append(variables, now, cells, sizeof(cells) / sizeof(cells[0]), text,
                       (uint32_t)cut(text, n));
    char shown[LINE_TEXT];
    int length = snprintf(shown, sizeof(shown), "%s = %.150s", s->variable, text);
    (void)atomic_fetch_add_explicit(&s->calls, 1, memory_order_relaxed);
    show(i, now, (uint64_t)line, RETURNED, shown, (size_t)length);
    if (s->limit && atomic_load_explicit(&s->calls, memory_order_relaxed) >= s->limit)
        atomic_store_explicit(&s->live, false, memory_order_relaxed);
}

/* A row when the value is not what it was.  false: an exception of the user's is set. */
static bool look(uint32_t i, int64_t line)
{
    const struct cpython *py = &natives_py;
    struct slot *s = &slots[i];
    struct call *c = innermost(i);
    PyObject *frame = py->PyEval_GetFrame();
    PyObject *value = c && frame ? py->PyFrame_GetVarString(frame, s->variable) : NULL;
    if (!value) { /* not assigned yet */
        if (c && frame)
            py->PyErr_Clear();
        return true;
    }
    PyObject *told = py->PyObject_CallFunctionObjArgs(s->variable_value, value, NULL);
    py->Py_DecRef(value);
    if (!told)
        return !is_theirs();
    PyObject *text = py->PyTuple_GetItem(told, 0);
    int same = c->text ? py->PyObject_RichCompareBool(c->text, text, /* Py_EQ= */ 2) : 0;
    if (same <= 0) {
        py->Py_IncRef(text);
        forget(c);
        c->text = text;
        variable_row(s, i, line, told);
    }
    py->Py_DecRef(told);
    return true;
}

/* ---- 3.12 and newer: sys.monitoring calls these ---- */

/* {name: value} of the frame's parameters.  New; NULL: an exception is set. */
static PyObject *parameters(PyObject *code, PyObject *frame)
{
    const struct cpython *py = &natives_py;
    PyObject *names = py->PyObject_GetAttrString(code, "co_varnames");
    PyObject *values = py->PyDict_New();
    int64_t n = 0;
    static const char *const counts[] = {"co_argcount", "co_kwonlyargcount", "co_flags"};
    for (int k = 0; k < 3; k++) {
        PyObject *count = py->PyObject_GetAttrString(code, counts[k]);
        int64_t some = count ? py->PyLong_AsLongLong(count) : 0;
        n += k < 2 ? some : ((some & 4) != 0) + ((some & 8) != 0); /* *args, **kwargs */
        if (count)
            py->Py_DecRef(count);
    }
    for (int64_t i = 0; names && values && i < n && i < 32; i++) {
        PyObject *name = py->PyTuple_GetItem(names, i);
        size_t length;
        PyObject *value = py->PyFrame_GetVarString(frame, utf8_of(name, &length));
        if (!value) {
            py->PyErr_Clear();
            continue;
        }
        (void)py->PyDict_SetItem(values, name, value);
        py->Py_DecRef(value);
    }
    if (names)
        py->Py_DecRef(names);
    return values;
}

/* Ask describe_args(code, (positional, named)) for a call's text.  false: theirs is set. */
static bool describe(struct slot *s, struct call *c, PyObject *code, PyObject *positional,
                     PyObject *named)
{
    const struct cpython *py = &natives_py;
    PyObject *values = py->PyTuple_Pack(2, positional, named);
    uint64_t life = c->life;
    PyObject *text = values ? py->PyObject_CallFunctionObjArgs(s->args, code, values, NULL) : NULL;
    if (values)
        py->Py_DecRef(values);
    if (text && n_calls > 0 && &calls[n_calls - 1] == c && c->life == life)
        c->text = text;
    else if (text)
        py->Py_DecRef(text);
    return text || !is_theirs();
}

static bool started(uint32_t i, PyObject *code)
{
    const struct cpython *py = &natives_py;
    struct slot *s = &slots[i];
    struct call *c = enter(i);
    bool good = true;
    if (c && s->args) {
        PyObject *frame = py->PyEval_GetFrame();
        PyObject *none = py->PyTuple_New(0), *named = frame ? parameters(code, frame) : NULL;
        if (none && named)
            good = describe(s, c, code, none, named);
        if (none)
            py->Py_DecRef(none);
        if (named)
            py->Py_DecRef(named);
    }
    if (c)
        c->began = host->now();
    return good;
}

static PyObject *on_start(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    bool good = true;
    (void)self;
    for (uint32_t i = 0; n > 0 && i < SLOTS; i++)
        if (slots[i].key == args[0] && is_live(i))
            good = started(i, args[0]) && good;
    return good ? natives_none() : NULL;
}

static PyObject *ended(PyObject *const *args, Py_ssize_t n, enum phase phase)
{
    bool good = true;
    for (uint32_t i = SLOTS; n > 0 && i-- > 0;) {
        if (slots[i].key != args[0] || !slots[i].life)
            continue;
        if (slots[i].variable_value) { /* its line is not known here */
            good = (phase == RAISED || !is_live(i) || look(i, PROBING_NULL_I64)) && good;
            struct call *c = innermost(i);
            if (c) {
                forget(c);
                n_calls--;
            }
        } else {
            good = leave(i, phase, phase == RAISED ? NULL : n > 2 ? args[2] : NULL) && good;
        }
    }
    return good ? natives_none() : NULL;
}

static PyObject *on_return(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    return ended(args, n, RETURNED);
}

static PyObject *on_yield(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    return ended(args, n, YIELDED);
}

static PyObject *on_unwind(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    return ended(args, n, RAISED);
}

static PyObject *on_line(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    bool good = true;
    (void)self;
    for (uint32_t i = 0; n > 1 && i < SLOTS; i++)
        if (slots[i].key == args[0] && slots[i].variable_value && is_live(i))
            good = look(i, natives_py.PyLong_AsLongLong(args[1])) && good;
    return good ? natives_none() : NULL;
}

/* ---- to 3.11: in the way of each call ---- */

static PyObject *named_arguments(PyObject *const *args, PyObject *kwnames)
{
    const struct cpython *py = &natives_py;
    PyObject *named = py->PyDict_New();
    Py_ssize_t n = kwnames ? py->PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; named && i < n; i++)
        (void)py->PyDict_SetItem(named, py->PyTuple_GetItem(kwnames, i), args[i]);
    return named;
}

static bool describe_call(struct slot *s, struct call *c, PyObject *function, PyObject *const *args,
                          size_t nargs, PyObject *kwnames)
{
    const struct cpython *py = &natives_py;
    PyObject *code = py->PyObject_GetAttrString(function, "__code__");
    PyObject *positional = py->PyTuple_New((Py_ssize_t)nargs);
    PyObject *named = named_arguments(args + nargs, kwnames);
    for (size_t i = 0; positional && i < nargs; i++) {
        py->Py_IncRef(args[i]);
        (void)py->PyTuple_SetItem(positional, (Py_ssize_t)i, args[i]);
    }
    bool good = true;
    if (code && positional && named)
        good = describe(s, c, code, positional, named);
    PyObject *made[] = {code, positional, named};
    for (int i = 0; i < 3; i++)
        if (made[i])
            py->Py_DecRef(made[i]);
    return good;
}

typedef PyObject *(*vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);

/* Around a call of `function` by `go`; slot < 0: nobody asks any more. */
static PyObject *measured(int slot, vectorcall go, PyObject *function, PyObject *const *args,
                          size_t nargsf, PyObject *kwnames)
{
    uint32_t i = (uint32_t)slot;
    struct call *c = slot >= 0 && is_live(i) ? enter(i) : NULL;
    if (!c)
        return go(function, args, nargsf, kwnames);
    uint64_t life = c->life;
    if (slots[i].args &&
        !describe_call(&slots[i], c, function, args, nargsf & ~CPYTHON_ARGUMENTS_OFFSET, kwnames)) {
        n_calls--;
        return NULL;
    }
    c->began = host->now();
    PyObject *result = go(function, args, nargsf, kwnames);
    if (slots[i].life != life) /* taken out meanwhile */
        return result;
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    if (!result)
        natives_py.PyErr_Fetch(&type, &value, &trace);
    bool good = leave(i, result ? RETURNED : RAISED, result);
    if (!result) {
        natives_py.PyErr_Clear();
        natives_py.PyErr_Restore(type, value, trace);
    } else if (!good) {
        natives_py.Py_DecRef(result);
        result = NULL;
    }
    return result;
}

static void *entry_read(PyObject *function)
{
    const char *type;
    Py_ssize_t at;
    void *entry;
    memcpy(&type, (const char *)function + sizeof(void *), sizeof(type));
    memcpy(&at, type + 56, sizeof(at)); /* tp_vectorcall_offset: see cpython_vectorcall() */
    memcpy(&entry, (const char *)function + at, sizeof(entry));
    return entry;
}

static void entry_write(PyObject *function, void *entry)
{
    const char *type;
    Py_ssize_t at;
    memcpy(&type, (const char *)function + sizeof(void *), sizeof(type));
    memcpy(&at, type + 56, sizeof(at));
    memcpy((char *)function + at, &entry, sizeof(entry));
}

static PyObject *traced_entry(PyObject *function, PyObject *const *args, size_t nargsf,
                              PyObject *kwnames)
{
    vectorcall go;
    int slot = 0;
    while (slot < SLOTS && slots[slot].key != function)
        slot++;
    if (slot == SLOTS) /* cannot be: it is put back before the slot is freed */
        return NULL;
    memcpy(&go, &slots[slot].entry, sizeof(go));
    return measured(slot, go, function, args, nargsf, kwnames);
}

/* trace_entry(slot, function, in): 3.8 to 3.10. */
static PyObject *trace_entry(PyObject *self, PyObject *args)
{
    const struct cpython *py = &natives_py;
    (void)self;
    struct slot *s = &slots[py->PyLong_AsLongLong(py->PyTuple_GetItem(args, 0)) & (SLOTS - 1)];
    PyObject *function = py->PyTuple_GetItem(args, 1);
    bool in = py->PyObject_IsTrue(py->PyTuple_GetItem(args, 2)) == 1;
    vectorcall ours = traced_entry;
    void *entry;
    memcpy(&entry, &ours, sizeof(entry));
    if (in) {
        s->entry = entry_read(function);
        entry_write(function, entry);
    } else if (entry_read(function) == entry) {
        entry_write(function, s->entry);
    }
    return natives_none();
}

/* 3.11: what the code put in place calls.  self: (slot, life, copy of the function). */
static PyObject *traced_copy(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    const struct cpython *py = &natives_py;
    int slot = (int)py->PyLong_AsLongLong(py->PyTuple_GetItem(self, 0));
    uint64_t life = (uint64_t)py->PyLong_AsLongLong(py->PyTuple_GetItem(self, 1));
    PyObject *copy = py->PyTuple_GetItem(self, 2);
    struct slot *s = &slots[slot];
    static __thread uint32_t depth;
    char *state = py->PyThreadState_Get();
    int left;
    if (s->life == life && depth >= COPY_DEPTH) { /* the real code again: it needs no C stack */
        atomic_store_explicit(&s->live, false, memory_order_relaxed);
        (void)py->PyObject_SetAttrString(s->function, "__code__", s->code);
    }
    /* Two calls stand between the caller and the function: they are not the user's to pay. */
    memcpy(&left, state + RECURSION_3_11, sizeof(left));
    left += 2;
    memcpy(state + RECURSION_3_11, &left, sizeof(left));
    depth++;
    PyObject *result = measured(s->life == life ? slot : -1, py->PyObject_Vectorcall, copy, args,
                                (size_t)n, kwnames);
    depth--;
    memcpy(&left, state + RECURSION_3_11, sizeof(left));
    left -= 2;
    memcpy(state + RECURSION_3_11, &left, sizeof(left));
    return result;
}

/* trace_wrapper(slot, copy, function, code): what the stub calls. */
static PyObject *trace_wrapper(PyObject *self, PyObject *args)
{
    static struct cpython_method method = {"call", NULL, METH_FASTCALL | METH_KEYWORDS, NULL};
    const struct cpython *py = &natives_py;
    PyCFunctionFastKeywords call = traced_copy;
    (void)self;
    struct slot *s = &slots[py->PyLong_AsLongLong(py->PyTuple_GetItem(args, 0)) & (SLOTS - 1)];
    memcpy(&method.call, &call, sizeof(call));
    s->function = py->PyTuple_GetItem(args, 2);
    s->code = py->PyTuple_GetItem(args, 3);
    py->Py_IncRef(s->function);
    py->Py_IncRef(s->code);
    PyObject *life = py->PyLong_FromLongLong((long long)s->life);
    PyObject *owner =
        life ? py->PyTuple_Pack(3, py->PyTuple_GetItem(args, 0), life, py->PyTuple_GetItem(args, 1))
             : NULL;
    PyObject *made = owner ? py->PyCFunction_NewEx(&method, owner, NULL) : NULL;
    if (life)
        py->Py_DecRef(life);
    if (owner)
        py->Py_DecRef(owner);
    return made;
}

/* ---- slots ---- */

/* A reference of ours to a tuple's item; NULL for None. */
static PyObject *keep(PyObject *tuple, Py_ssize_t at)
{
    PyObject *item = natives_py.PyTuple_GetItem(tuple, at);
    if (item == natives_py._Py_NoneStruct)
        return NULL;
    natives_py.Py_IncRef(item);
    return item;
}

static void copy_text(char *ret, size_t size, PyObject *text)
{
    size_t n;
    const char *utf8 = utf8_of(text, &n);
    (void)snprintf(ret, size, "%s", utf8);
}

static uint64_t id_of(const char *text)
{
    uint64_t id;
    return host->intern(host, text, strlen(text), &id) < 0 ? PROBING_NULL_ID : id;
}

/* trace_slot(name, key, describe or None, limit, variable or None, describe_value or None) */
static PyObject *trace_slot(PyObject *self, PyObject *args)
{
    const struct cpython *py = &natives_py;
    uint32_t i = 0;
    (void)self;
    while (i < SLOTS && slots[i].key)
        i++;
    if (i == SLOTS) {
        py->PyErr_SetString(py->PyExc_RuntimeError, "64 functions are watched already");
        return NULL;
    }
    struct slot *s = &slots[i];
    PyObject *both = py->PyTuple_GetItem(args, 2);
    *s = (struct slot){.life = ++lives};
    copy_text(s->name, sizeof(s->name), py->PyTuple_GetItem(args, 0));
    s->name_id = id_of(s->name);
    s->limit = py->PyLong_AsLongLong(py->PyTuple_GetItem(args, 3));
    if (both != py->_Py_NoneStruct) {
        s->args = keep(both, 0);
        s->result = keep(both, 1);
    }
    if (py->PyTuple_GetItem(args, 4) != py->_Py_NoneStruct) {
        copy_text(s->variable, sizeof(s->variable), py->PyTuple_GetItem(args, 4));
        s->variable_id = id_of(s->variable);
        s->variable_value = keep(args, 5);
    }
    s->key = keep(args, 1);
    atomic_store_explicit(&s->live, true, memory_order_relaxed);
    atomic_store_explicit(&any, true, memory_order_relaxed);
    return py->PyLong_FromLongLong(i);
}

static PyObject *trace_free(PyObject *self, PyObject *number)
{
    const struct cpython *py = &natives_py;
    struct slot *s = &slots[py->PyLong_AsLongLong(number) & (SLOTS - 1)];
    PyObject *held[] = {s->key, s->args, s->result, s->variable_value, s->function, s->code};
    bool left = false;
    (void)self;
    *s = (struct slot){.life = 0};
    for (uint32_t i = 0; i < SLOTS; i++)
        left = left || slots[i].key;
    atomic_store_explicit(&any, left, memory_order_relaxed);
    for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++)
        if (held[i])
            py->Py_DecRef(held[i]);
    return natives_none();
}

/* (calls, raised, mean ns, is it live) */
static PyObject *trace_count(PyObject *self, PyObject *number)
{
    const struct cpython *py = &natives_py;
    uint32_t i = (uint32_t)py->PyLong_AsLongLong(number) & (SLOTS - 1);
    int64_t n = atomic_load_explicit(&slots[i].calls, memory_order_relaxed);
    int64_t ns = atomic_load_explicit(&slots[i].total_ns, memory_order_relaxed);
    const int64_t numbers[] = {n, atomic_load_explicit(&slots[i].raised, memory_order_relaxed),
                               n ? ns / n : 0, is_live(i)};
    PyObject *all = py->PyTuple_New(4);
    (void)self;
    for (int k = 0; all && k < 4; k++)
        (void)py->PyTuple_SetItem(all, k, py->PyLong_FromLongLong(numbers[k]));
    return all;
}

/* trace_follow(slots, duration ns, keep, finish): what the client's command goes on with. */
static PyObject *trace_follow(PyObject *self, PyObject *args)
{
    const struct cpython *py = &natives_py;
    (void)self;
    asked.slots = py->PyLong_AsUnsignedLongLong(py->PyTuple_GetItem(args, 0));
    asked.duration_ns = (uint64_t)py->PyLong_AsLongLong(py->PyTuple_GetItem(args, 1));
    asked.keep = py->PyObject_IsTrue(py->PyTuple_GetItem(args, 2)) == 1;
    if (!asked.finish)
        asked.finish = keep(args, 3);
    return natives_none();
}

#define FAST(function) __extension__(PyCFunction)(void (*)(void))(function)
struct cpython_method trace_natives[] = {
    {"on_start", FAST(on_start), METH_FASTCALL, NULL},
    {"on_return", FAST(on_return), METH_FASTCALL, NULL},
    {"on_yield", FAST(on_yield), METH_FASTCALL, NULL},
    {"on_unwind", FAST(on_unwind), METH_FASTCALL, NULL},
    {"on_line", FAST(on_line), METH_FASTCALL, NULL},
    {"trace_slot", trace_slot, METH_VARARGS, NULL},
    {"trace_free", trace_free, METH_O, NULL},
    {"trace_count", trace_count, METH_O, NULL},
    {"trace_entry", trace_entry, METH_VARARGS, NULL},
    {"trace_wrapper", trace_wrapper, METH_VARARGS, NULL},
    {"trace_follow", trace_follow, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- the command ---- */

struct finish {
    uint64_t slots;
};

/* With the GIL, on the runner's thread. */
static int finish_job(void *arg)
{
    struct finish *f = arg;
    const struct cpython *py = &natives_py;
    PyObject *set = asked.finish ? py->PyLong_FromUnsignedLongLong(f->slots) : NULL;
    PyObject *done = set ? py->PyObject_CallFunctionObjArgs(asked.finish, set, NULL) : NULL;
    int result = done || !asked.finish ? 0 : -EIO;
    py->PyErr_Clear();
    if (set)
        py->Py_DecRef(set);
    if (done)
        py->Py_DecRef(done);
    if (asked.finish && f->slots == UINT64_MAX && result == 0) {
        py->Py_DecRef(asked.finish);
        asked.finish = NULL;
    }
    return result;
}

static int finish(struct plugin *p, uint64_t set)
{
    for (uint32_t i = 0; i < SLOTS; i++) /* whatever comes of the rest: no work for it any more */
        if (set >> i & 1)
            atomic_store_explicit(&slots[i].live, false, memory_order_relaxed);
    struct finish f = {set};
    return runner_call(p->runner, finish_job, &f, GIL_NS);
}

static void put_time(FILE *f, uint64_t ns)
{
    if (ns >= 1000000000)
        (void)fprintf(f, "%9.3f s ", (double)ns / 1e9);
    else if (ns >= 1000000)
        (void)fprintf(f, "%9.3f ms", (double)ns / 1e6);
    else
        (void)fprintf(f, "%9.3f us", (double)ns / 1e3);
}

static void put_line(FILE *f, const struct line *l)
{
    struct timespec wall;
    struct tm t;
    (void)clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t utc =
        (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec - (host->now() - l->ts);
    time_t seconds = (time_t)(utc / 1000000000u);
    if (!gmtime_r(&seconds, &t))
        return;
    (void)fprintf(f, "%02d:%02d:%02d.%06d %7d  ", t.tm_hour, t.tm_min, t.tm_sec,
                  (int)(utc % 1000000000u / 1000), l->tid);
    const struct slot *s = &slots[l->slot];
    if (s->variable[0]) {
        (void)fprintf(f, "%s", s->name);
        if ((int64_t)l->duration_ns != PROBING_NULL_I64)
            (void)fprintf(f, ":%lld", (long long)l->duration_ns);
        (void)fprintf(f, "  %s\n", l->text);
        return;
    }
    put_time(f, l->duration_ns);
    (void)fprintf(f, "  %-6s  %s%s%s\n", phase_names[l->phase], s->name, l->text[0] ? "  " : "",
                  l->text);
}

struct follower {
    uint64_t set, at, lost;
};

/* Send what has come for this client since the last time. */
static int send_lines(struct follower *w, struct probing_reply *out)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return -ENOMEM;
    (void)pthread_mutex_lock(&queue_lock);
    if (queued - w->at > LINES) {
        w->lost += queued - w->at - LINES;
        w->at = queued - LINES;
    }
    for (; w->at < queued; w->at++)
        if (w->set >> queue[w->at % LINES].slot & 1)
            put_line(f, &queue[w->at % LINES]);
    (void)pthread_mutex_unlock(&queue_lock);
    (void)fclose(f);
    int r = size ? host->reply(out, text, size) : 0;
    free(text);
    return r;
}

static bool all_done(uint64_t set)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        if (set >> i & 1 && is_live(i))
            return false;
    return true;
}

static void send_summary(const struct follower *w, struct probing_reply *out)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        const struct slot *s = &slots[i];
        char text[300];
        int64_t n = atomic_load_explicit(&s->calls, memory_order_relaxed);
        if (!(w->set >> i & 1) || !s->life)
            continue;
        int64_t ns = atomic_load_explicit(&s->total_ns, memory_order_relaxed);
        if (s->variable[0])
            (void)snprintf(text, sizeof(text), "%s in %s: %lld values\n", s->variable, s->name,
                           (long long)n);
        else
            (void)snprintf(text, sizeof(text), "%s: %lld calls, %lld raised, mean %.3f ms\n",
                           s->name, (long long)n,
                           (long long)atomic_load_explicit(&s->raised, memory_order_relaxed),
                           n ? (double)ns / (double)n / 1e6 : 0.0);
        (void)host->reply(out, text, strlen(text));
    }
    if (w->lost) {
        char text[120];
        (void)snprintf(text, sizeof(text), "%llu calls came too fast to be shown here\n",
                       (unsigned long long)w->lost);
        (void)host->reply(out, text, strlen(text));
    }
}

/* Until the client goes, its time is over, or all limits are reached. */
static void stream(struct plugin *p, struct follower *w, uint64_t duration_ns,
                   struct probing_reply *out)
{
    uint64_t until = duration_ns ? host->now() + duration_ns : UINT64_MAX;
    for (;;) {
        uint64_t now = host->now();
        bool last = now >= until || all_done(w->set);
        if (send_lines(w, out) < 0 || host->cancelled(out) || last)
            return;
        runner_lock(p->runner); /* an event with a limit: nobody need wake us */
        runner_sleep(p->runner, until - now < LOOK_NS ? until - now : LOOK_NS);
        runner_unlock(p->runner);
    }
}

static int trace_run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct plugin *p = self;
    (void)pthread_mutex_lock(&asked.lock);
    asked.slots = 0;
    (void)atomic_fetch_add_explicit(&followers, 1, memory_order_relaxed);
    (void)pthread_mutex_lock(&queue_lock);
    struct follower w = {.at = queued};
    (void)pthread_mutex_unlock(&queue_lock);
    int r = eval_tool(p, argc, argv, out);
    w.set = asked.slots;
    uint64_t duration_ns = asked.duration_ns;
    bool stays = asked.keep;
    (void)pthread_mutex_unlock(&asked.lock);
    if (r == 0 && w.set && stays) {
        static const char text[] = "watched until `trace --stop`; rows come into "
                                   "python.trace_event, of variables into python.watched\n";
        r = host->reply(out, text, sizeof(text) - 1);
    } else if (r == 0 && w.set) {
        stream(p, &w, duration_ns, out);
        send_summary(&w, out);
    }
    (void)atomic_fetch_sub_explicit(&followers, 1, memory_order_relaxed);
    if (w.set && !stays && finish(p, w.set) < 0)
        r = host->fail(host, -ETIMEDOUT,
                       "the functions could not be left: the GIL is not to be had; nothing is "
                       "recorded any more, and `trace --stop` takes the rest out later");
    return r;
}

const struct probing_command trace_command = {
    .size = sizeof(struct probing_command),
    .flags = PROBING_WRITES,
    .name = "trace",
    .usage = "[--args] [--watch VARIABLE] [--duration TIME] [--limit N] [--keep] "
             "MODULE.FUNCTION... | --list | --stop [NAME]",
    .doc = "Watch calls of Python functions, or a variable in one; rows go to python.trace_event "
           "and python.watched",
    .run = trace_run,
};

/* ---- tables, in and out ---- */

static const struct probing_column event_columns[] = {
    {"record_type", PROBING_STR, PROBING_PLAIN, "call, span_start, span_end or event", {0}},
    {"trace_id", PROBING_I64, PROBING_PLAIN, "the outermost span; NULL: a call", {0}},
    {"span_id", PROBING_I64, PROBING_PLAIN, "of this call or span", {0}},
    {"parent_id", PROBING_I64, PROBING_PLAIN, "the call or span around it in its thread", {0}},
    {"name", PROBING_STR, PROBING_PLAIN, "as it was given to trace or span()", {0}},
    {"phase", PROBING_STR, PROBING_PLAIN, "how a call or span ended: return, raise, yield", {0}},
    {"duration_ns", PROBING_I64, PROBING_NS, "from begin to end; NULL: no end", {0}},
};

static const struct probing_table_desc event_table = {
    .size = sizeof(struct probing_table_desc),
    .column_size = sizeof(struct probing_column),
    .name = "python.trace_event",
    .doc = "Calls of functions that `trace` watches, and spans and events of `import probing`",
    .columns = event_columns,
    .n_columns = sizeof(event_columns) / sizeof(event_columns[0]),
    .tail_type = PROBING_STR,
    .tail_name = "attributes",
};

static const struct probing_column variable_columns[] = {
    {"local_step", PROBING_I64, PROBING_COUNT, "step of the training; NULL: not known", {0}},
    {"func", PROBING_STR, PROBING_PLAIN, "the function as it was named to trace", {0}},
    {"lineno", PROBING_I64, PROBING_PLAIN, "line about to run; NULL: it returns", {0}},
    {"name", PROBING_STR, PROBING_PLAIN, "the variable", {0}},
    {"value_type", PROBING_STR, PROBING_PLAIN, "its type", {0}},
    {"value_f64", PROBING_F64, PROBING_PLAIN, "its value when it is a number", {0}},
};

static const struct probing_table_desc variable_table = {
    .size = sizeof(struct probing_table_desc),
    .column_size = sizeof(struct probing_column),
    .name = "python.watched",
    .doc = "Values that watched variables took, one row each time they changed",
    .columns = variable_columns,
    .n_columns = sizeof(variable_columns) / sizeof(variable_columns[0]),
    .tail_type = PROBING_STR,
    .tail_name = "value",
};

int trace_init(struct plugin *p)
{
    host = p->host;
    int r = host->table(host, &event_table, &events);
    if (r == 0)
        r = host->table(host, &variable_table, &variables);
    if (r == 0)
        r = host->command(host, &trace_command);
    for (int i = 0; i < PHASES && r == 0; i++)
        phase_ids[i] = id_of(phase_names[i]);
    call_id = id_of("call");
    return r;
}

int trace_stop(struct plugin *p)
{
    if (!atomic_load_explicit(&any, memory_order_relaxed) && !asked.finish)
        return 0;
    return finish(p, UINT64_MAX);
}

void trace_forked(void)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        atomic_store_explicit(&slots[i].live, false, memory_order_relaxed);
}
