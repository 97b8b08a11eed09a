/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/dist/collective_args.c - what an operation of a process group is: the group, and
 * the tensors that go in.
 *
 * Threads: any that holds the GIL.
 * Groups are asked once, and the texts of shapes and types are made once, or they would take longer
 * than a small operation itself.  Tensors of other classes are not asked: that may run Python code.
 */
#include "dist/collective.h"
#include "python/pyobject.h"
#include "python/tensor.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/hash.h"

#define GROUPS_MAX 64u
#define TENSORS_MAX 256u /* looked at, of one operation */
#define TEXT_BYTES 256u
#define DIMS_MAX 12u
#define SHAPES 64u /* remembered; a power of two */
#define TYPES_MAX 16u
#define OPS_MAX 64u /* names of operations; a power of two, about twice as many as there are */

struct group {
    PyObject *object; /* an address: valid while `weak` says so */
    PyObject *weak;   /* owned */
    int64_t rank, size, seq;
    int64_t *members;            /* owned; [size] their ranks in the job; NULL: not known */
    uint64_t name, ranks;        /* interned */
    char text[COMM_GROUP_BYTES]; /* its name */
};

/* The tensors that an operation works on, added up. */
struct load {
    uint32_t n;
    int64_t bytes;
    uint64_t shape, dtype; /* of the first tensor, interned */
    bool known, on_cpu;
};

struct shape {
    int64_t dims[DIMS_MAX];
    uint32_t n;
    uint64_t text; /* interned */
    bool used;
};

struct type {
    PyObject *object; /* owned: there are a few, and they live as long as torch */
    int64_t bytes;    /* of an element; PROBING_NULL_I64: not known */
    uint64_t text;    /* interned */
};

static struct group groups[GROUPS_MAX]; /* lock: the GIL */
static uint32_t next_group;             /* lock: the GIL */
static struct shape shapes[SHAPES];     /* lock: the GIL */
static struct type types[TYPES_MAX];    /* lock: the GIL */
static uint32_t next_type;              /* lock: the GIL */
static struct {
    const char *name; /* compared only: a literal, or one that torch's function has */
    uint64_t text;    /* interned */
} ops[OPS_MAX];       /* lock: the GIL */
static struct {
    PyObject *shape, *dtype, *is_cpu, *is_meta; /* attribute names, owned */
} names;                                        /* lock: the GIL */

/* str(value), interned without a "torch." before it; takes the reference. */
static uint64_t text_of(PyObject *value)
{
    char text[TEXT_BYTES];
    object_text(value, text, sizeof(text));
    return object_intern(strncmp(text, "torch.", 6) == 0 ? text + 6 : text);
}

static void read_ranks(PyObject *group, struct group *g)
{
    struct cpython *py = &python.api;
    PyObject *list = groups_ranks(group);
    bool is = list && object_is(list, py->PyList_Type) && py->PyList_Size(list) == g->size;
    g->members = is ? malloc((size_t)g->size * sizeof(*g->members)) : NULL;
    for (int64_t i = 0; g->members && i < g->size; i++)
        g->members[i] = groups_rank(list, i);
    g->ranks = text_of(list);
}

/* A rank of the group as that of the job. */
static int64_t rank_in_job(const struct group *g, int64_t rank)
{
    return g && g->members && rank >= 0 && rank < g->size ? g->members[rank] : PROBING_NULL_I64;
}

static struct group *group_of(PyObject *object)
{
    struct cpython *py = &python.api;
    for (uint32_t i = 0; i < GROUPS_MAX; i++)
        if (groups[i].object == object && groups[i].weak &&
            py->PyWeakref_GetObject(groups[i].weak) == object)
            return &groups[i];
    struct group made = {.object = object, .weak = py->PyWeakref_NewRef(object, NULL)};
    py->PyErr_Clear();
    if (!made.weak)
        return NULL;
    made.rank = object_ask(object, "rank");
    made.size = object_ask(object, "size");
    groups_name(object, made.text, sizeof(made.text));
    made.name = object_intern(made.text);
    read_ranks(object, &made);
    struct group *g = &groups[next_group++ % GROUPS_MAX];
    PyObject *old = g->weak;
    free(g->members);
    *g = made;
    py->Py_DecRef(old);
    return g;
}

static uint64_t text_of_shape(const int64_t *dims, uint32_t n)
{
    char text[TEXT_BYTES] = "[";
    size_t at = 1;
    for (uint32_t i = 0; i < n && at < sizeof(text) - 32; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%lld", i ? ", " : "",
                               (long long)dims[i]);
    (void)snprintf(text + at, sizeof(text) - at, "]");
    return object_intern(text);
}

static uint64_t shape_of(const int64_t *dims, uint32_t n)
{
    uint64_t hash = n;
    for (uint32_t i = 0; i < n; i++)
        hash = hash_spread(hash ^ (uint64_t)dims[i]);
    struct shape *s = &shapes[hash >> 58 & (SHAPES - 1)];
    if (s->used && s->n == n && memcmp(s->dims, dims, n * sizeof(*dims)) == 0)
        return s->text;
    *s = (struct shape){.n = n, .text = text_of_shape(dims, n), .used = true};
    memcpy(s->dims, dims, n * sizeof(*dims));
    return s->text;
}

static PyObject *get_attribute(PyObject *object, PyObject **name, const char *text)
{
    struct cpython *py = &python.api;
    if (!*name)
        *name = py->PyUnicode_InternFromString(text);
    PyObject *value = *name ? py->PyObject_GetAttr(object, *name) : NULL;
    if (!value)
        py->PyErr_Clear();
    return value;
}

/* Its type, and how large an element is. */
static const struct type *type_of(PyObject *tensor)
{
    struct cpython *py = &python.api;
    PyObject *object = get_attribute(tensor, &names.dtype, "dtype");
    for (uint32_t i = 0; i < TYPES_MAX && object; i++)
        if (types[i].object == object) {
            py->Py_DecRef(object);
            return &types[i];
        }
    if (!object)
        return NULL;
    struct type *t = &types[next_type++ % TYPES_MAX];
    PyObject *old = t->object;
    py->Py_IncRef(object);
    *t = (struct type){.object = object, .bytes = object_ask(tensor, "element_size")};
    t->text = text_of(object);
    py->Py_DecRef(old);
    return t;
}

/* Its sizes; -1: they are no plain numbers, or too many. */
static int dims_of(PyObject *tensor, int64_t *dims)
{
    struct cpython *py = &python.api;
    PyObject *shape = get_attribute(tensor, &names.shape, "shape");
    Py_ssize_t n = shape && object_is(shape, py->PyTuple_Type) ? py->PyTuple_Size(shape) : -1;
    if (n > (Py_ssize_t)DIMS_MAX)
        n = -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *size = py->PyTuple_GetItem(shape, i);
        dims[i] = object_is(size, py->PyLong_Type) ? py->PyLong_AsLongLong(size) : -1;
        if (dims[i] < 0)
            n = -1;
    }
    if (n < 0)
        py->PyErr_Clear();
    py->Py_DecRef(shape);
    return (int)n;
}

static bool is_true(PyObject *tensor, PyObject **name, const char *text)
{
    PyObject *value = get_attribute(tensor, name, text);
    python.api.Py_DecRef(value); /* a constant of the interpreter */
    return value == python.api._Py_TrueStruct;
}

static void add_tensor(struct load *load, PyObject *tensor)
{
    int64_t dims[DIMS_MAX];
    int n = tensor_is(tensor) ? dims_of(tensor, dims) : -1;
    const struct type *type = n >= 0 ? type_of(tensor) : NULL;
    if (!type || type->bytes < 0) {
        load->known = false;
        return;
    }
    if (load->n++ == 0) {
        load->shape = shape_of(dims, (uint32_t)n);
        load->dtype = type->text;
        load->on_cpu = is_true(tensor, &names.is_cpu, "is_cpu");
    }
    int64_t bytes = type->bytes;
    for (int i = 0; i < n; i++)
        if (__builtin_mul_overflow(bytes, dims[i], &bytes))
            load->known = false;
    load->known = load->known && !__builtin_add_overflow(load->bytes, bytes, &load->bytes);
}

/* A tensor, or lists of them in lists. */
static void add_all(struct load *load, PyObject *value, int depth)
{
    struct cpython *py = &python.api;
    bool list = object_is(value, py->PyList_Type), tuple = object_is(value, py->PyTuple_Type);
    Py_ssize_t n = list ? py->PyList_Size(value) : tuple ? py->PyTuple_Size(value) : 0;
    if (!list && !tuple)
        add_tensor(load, value);
    for (Py_ssize_t i = 0; i < n && depth < 2 && load->known; i++) {
        if (load->n >= TENSORS_MAX)
            load->known = false;
        else
            add_all(load, list ? py->PyList_GetItem(value, i) : py->PyTuple_GetItem(value, i),
                    depth + 1);
    }
}

/* The number of the argument that goes in: most operations have it first, these have the output
 * first. */
static Py_ssize_t input_of(const char *op)
{
    static const char *const second[] = {"gather", "scatter", "alltoall", "all_to_all"};
    for (size_t i = 0; i < sizeof(second) / sizeof(second[0]); i++)
        if (strstr(op, second[i]))
            return 2;
    return 1;
}

uint64_t comm_op(const char *op)
{
    uintptr_t at = hash_spread((uintptr_t)op >> 2) >> 58 & (OPS_MAX - 1);
    if (ops[at].name != op) {
        ops[at].name = op;
        ops[at].text = object_intern(op);
    }
    return ops[at].text;
}

static void fill_about(struct comm_about *ret, struct group *g, const struct load *load)
{
    *ret = (struct comm_about){.rank = g ? g->rank : PROBING_NULL_I64,
                               .size = g ? g->size : PROBING_NULL_I64,
                               .job_rank = g ? rank_in_job(g, g->rank) : PROBING_NULL_I64,
                               .tag = PROBING_NULL_I64,
                               .seq = g ? ++g->seq : PROBING_NULL_I64,
                               .src = PROBING_NULL_I64,
                               .dst = PROBING_NULL_I64,
                               .bytes = load->known && load->n ? load->bytes : PROBING_NULL_I64,
                               .group_name = g ? g->name : PROBING_NULL_ID,
                               .ranks = g ? g->ranks : PROBING_NULL_ID,
                               .shape = load->n ? load->shape : PROBING_NULL_ID,
                               .dtype = load->n ? load->dtype : PROBING_NULL_ID,
                               .on_cpu = load->known && load->on_cpu};
    if (g)
        memcpy(ret->group, g->text, sizeof(ret->group));
}

/* A number that is an argument, or what an argument of options has as its root. */
static int64_t number_of(PyObject *argument)
{
    if (object_is(argument, python.api.PyLong_Type)) {
        python.api.Py_IncRef(argument);
        return object_number(argument);
    }
    return object_number(object_get(argument, "rootRank"));
}

/* Fill in the giver and the getter, where that is one rank: ranks of the job. */
static void fill_ends(struct comm_about *a, const struct group *g, const char *op,
                      PyObject *const *args, Py_ssize_t n)
{
    static const struct {
        const char *op;
        Py_ssize_t at;  /* of the argument that tells the other rank; 0: none does */
        bool gives;     /* that one gives, else it gets */
        Py_ssize_t tag; /* of that argument; 0: it has none */
    } kinds[] = {{"send", 2, false, 3},   {"recv", 2, true, 3},    {"recv_anysource", 0, true, 2},
                 {"reduce", 2, false, 0}, {"gather", 3, false, 0}, {"broadcast", 2, true, 0},
                 {"scatter", 3, true, 0}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(op, kinds[i].op) != 0)
            continue;
        int64_t other =
            kinds[i].at && n > kinds[i].at ? number_of(args[kinds[i].at]) : PROBING_NULL_I64;
        bool all = kinds[i].gives && other == a->rank; /* the root gives to all others */
        other = rank_in_job(g, other);
        a->src = kinds[i].gives ? other : a->job_rank;
        a->dst = !kinds[i].gives ? other : all ? PROBING_NULL_I64 : a->job_rank;
        if (kinds[i].tag && n > kinds[i].tag)
            a->tag = number_of(args[kinds[i].tag]);
    }
}

void comm_describe(const char *op, PyObject *const *args, Py_ssize_t n, struct comm_about *ret)
{
    struct load load = {.on_cpu = true};
    Py_ssize_t input = input_of(op);
    PyObject *guard;
    load.known = tensor_quiet(&guard);
    if (load.known && n > input && !strstr(op, "barrier"))
        add_all(&load, args[input], 0);
    if (load.known && load.n == 0 && input > 1 && n > input) /* only the source of a scatter has */
        add_all(&load, args[1], 0);
    tensor_loud(guard);
    struct group *g = group_of(args[0]);
    fill_about(ret, g, &load);
    fill_ends(ret, g, op, args, n);
}

bool comm_describe_tensors(PyObject *group, PyObject *tensors, struct comm_about *ret)
{
    struct load load = {.on_cpu = true};
    PyObject *guard, *first = tensors;
    load.known = tensor_quiet(&guard);
    if (load.known)
        add_all(&load, tensors, 0);
    if (object_is(first, python.api.PyList_Type) && python.api.PyList_Size(first) > 0)
        first = python.api.PyList_GetItem(first, 0);
    bool real = load.known && (load.on_cpu || !is_true(first, &names.is_meta, "is_meta"));
    tensor_loud(guard);
    if (real)
        fill_about(ret, group ? group_of(group) : NULL, &load);
    return real;
}

void comm_about_forget(void)
{
    struct cpython *py = &python.api;
    PyObject **held[] = {&names.shape, &names.dtype, &names.is_cpu, &names.is_meta};
    for (uint32_t i = 0; i < GROUPS_MAX; i++) {
        PyObject *weak = groups[i].weak;
        free(groups[i].members);
        groups[i] = (struct group){.object = NULL};
        py->Py_DecRef(weak);
    }
    for (uint32_t i = 0; i < TYPES_MAX; i++) {
        PyObject *object = types[i].object;
        types[i] = (struct type){.object = NULL};
        py->Py_DecRef(object);
    }
    object_drop_all(held, PROBING_LENGTH(held));
}
