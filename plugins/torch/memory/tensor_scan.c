/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/memory/tensor_scan.c - all tensors that the garbage collector knows, and the
 * optimizers, in a time that is bounded.
 *
 * Threads: with the GIL, between tensor_quiet() and tensor_loud().  It is given up every few
 * milliseconds, where gc_walk.h knows this CPython, and no reference is held then.
 * Others' collectors show their objects one by one, or make a list of them, which cannot be cut
 * short: so a process that has very many is asked for its youngest only.  Tensors of classes with
 * code of their own are counted, not asked.
 */
#include "lib/array.h"
#include "memory/tensor_look.h"
#include "python/gc_walk.h"
#include "python/pyobject.h"
#include "python/tensor.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/hash.h"

#define CLASSES 4096u
#define CLASSES_SHIFT 52           /* 64 - log2(CLASSES) */
#define CLOCK_EVERY 1024u          /* objects; and tensors, each some microseconds: */
#define CLOCK_EVERY_TENSOR 16u     /* between two looks at the clock */
#define SLICE_NS UINT64_C(1000000) /* until the GIL is given up; as much again for the tensors */
#define SLICE_CLOCK_EVERY 128u
#define SLICE_TENSORS 64u
#define AGAIN_MOST 4u /* then the rest comes in one piece: a program that collects all the time */
#define BLOCKS_MAX INT64_C(2000000) /* of Python's allocator: about 600,000 objects, 60 ms */
#define FOUND_MAX (1u << 20)

enum object_class { CLASS_NOTHING, CLASS_TENSOR, CLASS_FOREIGN, CLASS_OPTIMIZER };

struct scan {
    struct tensor_look *look;
    uint64_t cpu_until_ns, until_ns;
    uint32_t shown;
    struct known_class {
        const PyObject *class;
        enum object_class is;
    } * classes;
    PyObject **found; /* tensors and optimizers, owned until they were looked into */
    uint32_t n, room;
    bool slices;
    uint64_t slice_until_ns;
    struct number_index seen; /* tensors, by address: in slices one may be shown again */
};

static enum object_class classify_class(struct scan *s, PyObject *class)
{
    struct cpython *py = &python.api;
    struct known_class *k = &s->classes[hash_spread((uintptr_t) class >> 4) >> CLASSES_SHIFT];
    if (k->class == class)
        return k->is;
    k->class = class;
    k->is = class == python.tensor_class || class == python.parameter_class ? CLASS_TENSOR
            : py->PyType_IsSubtype(class, python.tensor_class)              ? CLASS_FOREIGN
            : py->PyType_IsSubtype(class, python.optimizer_class)           ? CLASS_OPTIMIZER
                                                                            : CLASS_NOTHING;
    return k->is;
}

static void count_foreign(struct tensor_look *l, PyObject *object)
{
    const PyObject *class = object_type(object);
    uint32_t i = 0;
    while (i < l->n_foreign && l->foreign[i].class != class)
        i++;
    if (i == FOREIGN_MAX)
        i--; /* and the class that stands there has too many */
    struct foreign_class *f = &l->foreign[i];
    if (i == l->n_foreign) {
        l->n_foreign++;
        f->class = class;
        (void)snprintf(f->name, sizeof(f->name), "%s", object_class_text(object));
    }
    f->n++;
}

static bool keep_object(struct scan *s, PyObject *object)
{
    PyObject **larger = array_grow(s->found, s->n, &s->room, sizeof(*larger), FOUND_MAX);
    if (!larger) {
        s->look->no_memory = true;
        return false;
    }
    s->found = larger;
    python.api.Py_IncRef(object);
    s->found[s->n++] = object;
    return true;
}

/* From now on there is so much time. */
static void give_time(struct scan *s)
{
    s->cpu_until_ns = probing_clock_ns(CLOCK_THREAD_CPUTIME_ID) + SCAN_CPU_NS / 2;
    s->until_ns = torch_state.now() + SCAN_NS / 2;
}

static bool is_late(const struct scan *s)
{
    return probing_clock_ns(CLOCK_THREAD_CPUTIME_ID) > s->cpu_until_ns ||
           torch_state.now() > s->until_ns;
}

/* An object's count of references, in its first word (since 3.12 the lower half of it).  0: it is
 * being freed. */
static bool is_alive(const PyObject *object)
{
    uint32_t count;
    memcpy(&count, object, sizeof(count));
    return count != 0;
}

/* Once, however often it is shown.  Without memory it is counted too often, and that is said. */
static bool is_new(struct scan *s, const PyObject *object)
{
    if (!s->slices)
        return true;
    if (number_find(&s->seen, (uintptr_t)object))
        return false;
    s->look->no_memory = !number_put(&s->seen, (uintptr_t)object, 0) || s->look->no_memory;
    return true;
}

/* 0: no more of them. */
static int visit_object(PyObject *object, void *arg)
{
    struct scan *s = arg;
    if (++s->shown % CLOCK_EVERY == 0 && is_late(s)) {
        s->look->late = true;
        return 0;
    }
    enum object_class is = classify_class(s, object_type(object));
    if (is == CLASS_NOTHING || !is_alive(object) || !is_new(s, object))
        return 1;
    if (is == CLASS_FOREIGN)
        count_foreign(s->look, object);
    return is == CLASS_FOREIGN || keep_object(s, object);
}

static int visit_in_slice(PyObject *object, void *arg)
{
    struct scan *s = arg;
    int more = visit_object(object, s);
    if (s->n >= SLICE_TENSORS ||
        (s->shown % SLICE_CLOCK_EVERY == 0 && torch_state.now() > s->slice_until_ns))
        return 0;
    return more;
}

static void visit_generation(struct scan *s, PyObject *gc, int generation)
{
    struct cpython *py = &python.api;
    PyObject *list = py->PyObject_CallMethod(gc, "get_objects", "i", generation);
    Py_ssize_t n = list ? py->PyList_Size(list) : 0;
    for (Py_ssize_t i = 0; i < n && visit_object(py->PyList_GetItem(list, i), s); i++)
        ;
    py->PyErr_Clear();
    py->Py_DecRef(list);
}

/* The oldest generation has nearly all: how many is not known before. */
static void visit_lists(struct scan *s)
{
    struct cpython *py = &python.api;
    PyObject *gc = py->PyImport_ImportModule("gc");
    bool many = object_ask(object_module("sys"), "getallocatedblocks") > BLOCKS_MAX;
    for (int generation = 0; gc && generation < (many ? 2 : 3) && !s->look->late; generation++)
        visit_generation(s, gc, generation);
    s->look->late = s->look->late || many || !gc;
    py->PyErr_Clear();
    py->Py_DecRef(gc);
}

static void look_into(struct scan *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (!tensor_is(s->found[i]))
            owners_of_optimizer(s->look, s->found[i]);
    for (uint32_t i = 0; i < s->n && !s->look->late; i++) {
        if (tensor_is(s->found[i]))
            (void)look_add(s->look, s->found[i], true);
        s->look->late = s->look->late || (i % CLOCK_EVERY_TENSOR == 0 && is_late(s));
    }
    for (uint32_t i = 0; i < s->n; i++)
        python.api.Py_DecRef(s->found[i]);
    s->n = 0;
}

/* Others get the GIL here.  A class may go meanwhile, and another one come where it was. */
static void let_others(struct scan *s, uint64_t *begin_ns)
{
    s->look->took_ns += torch_state.now() - *begin_ns;
    python.api.PyEval_RestoreThread(python.api.PyEval_SaveThread());
    *begin_ns = torch_state.now();
    memset(s->classes, 0, CLASSES * sizeof(*s->classes));
}

/* false: this CPython is not known. */
static bool scan_in_slices(struct scan *s, uint64_t *begin_ns)
{
    struct gc_walk walk;
    if (!gc_walk_begin(&walk))
        return false;
    s->slices = true;
    s->cpu_until_ns += SCAN_CPU_NS / 2; /* found and asked in one go */
    s->until_ns += SCAN_NS / 2;
    for (bool more = true; more && !s->look->late && !s->look->no_memory;) {
        s->slice_until_ns = torch_state.now() + SLICE_NS;
        more = gc_walk_slice(&walk, visit_in_slice, s);
        look_into(s);
        s->look->late = s->look->late || (more && is_late(s));
        if (walk.begun_again < AGAIN_MOST)
            let_others(s, begin_ns);
    }
    gc_walk_end(&walk);
    return true;
}

void tensor_scan(struct tensor_look *l)
{
    uint64_t begin_ns = torch_state.now();
    struct scan s = {.look = l};
    give_time(&s);
    l->scanned = true;
    s.classes = calloc(CLASSES, sizeof(*s.classes));
    l->no_memory = l->no_memory || !s.classes;
    if (s.classes && !scan_in_slices(&s, &begin_ns)) {
        if (python.more.PyUnstable_GC_VisitObjects)
            python.more.PyUnstable_GC_VisitObjects(visit_object, &s);
        else
            visit_lists(&s);
        give_time(&s);
        look_into(&s);
    }
    free(s.seen.slots);
    free(s.found);
    free(s.classes);
    l->took_ns += torch_state.now() - begin_ns;
}
