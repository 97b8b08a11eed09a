/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/gc_walk.c - see gc_walk.h.
 *
 * gc.get_objects() makes a list of all that a generation has, in one piece: 20 ms of 170,000
 * objects.  The collector's own lists are rings, from CPython 3.8 to 3.13 of one form, before each
 * object:
 *
 *     uintptr_t next     the next object's; the head's at the end
 *     uintptr_t prev     the two lowest bits are flags
 *
 * A new object is the last of the youngest generation, so that the head of its ring is behind it.
 * In struct _gc_runtime_state (pycore_gc.h, pycore_pymem.h in 3.8) three generations of 24 bytes
 * are followed by a pointer to the first of them and by the generation of gc.freeze(), which is
 * proved before any of it is believed.  A list of ours is moved along as a mark: no object of the
 * program's is kept by us.  Younger objects come first, for an object only ever gets older.
 *
 * Whoever gets the GIL between two slices may be in the midst of a collection, whose finalizers
 * give it up, or freeze all: then the mark is in another ring than it was put into.
 */
#include "python/gc_walk.h"
#include "python/pyobject.h"

#define RING_BYTES 16u
#define HEAD_BYTES 24u /* struct gc_generation: a ring, threshold and count */
#define FIRST_BYTES 8u /* PyGC_Head *generation0 */
#define FLAGS UINT64_C(3)

struct ring {
    uint64_t next, prev;
};

static struct ring *ring_at(uint64_t address)
{
    return (struct ring *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr) */
}

static uint64_t ring_of(const PyObject *object)
{
    return (uint64_t)(uintptr_t)object - RING_BYTES;
}

static uint64_t prev_of(uint64_t address)
{
    return ring_at(address)->prev & ~FLAGS;
}

static void set_prev(uint64_t address, uint64_t to)
{
    struct ring *r = ring_at(address);
    r->prev = to | (r->prev & FLAGS);
}

/* Takes the mark out of where it is, and puts it behind another. */
static void move_behind(uint64_t mark, uint64_t to)
{
    uint64_t next = ring_at(mark)->next, previous = prev_of(mark);
    ring_at(previous)->next = next;
    set_prev(next, previous);
    next = ring_at(to)->next;
    ring_at(to)->next = mark;
    set_prev(mark, to);
    ring_at(mark)->next = next;
    set_prev(next, mark);
}

/* Its neighbours lead back to it: nothing but a ring's head does so. */
static bool is_ring(uint64_t head)
{
    uint64_t next = ring_at(head)->next, previous = prev_of(head);
    if (next % sizeof(void *) != 0 || next == 0 || previous == 0)
        return false;
    return next == head ? previous == head
                        : prev_of(next) == head && ring_at(previous)->next == head;
}

/* How often a generation, or an older one, was collected: then its ring is in another order. */
static int64_t collections_of(int generation)
{
    struct cpython *py = &python.api;
    PyObject *gc = py->PyImport_ImportModule("gc");
    PyObject *stats = gc ? py->PyObject_CallMethod(gc, "get_stats", NULL) : NULL;
    int64_t n = 0;
    for (int i = generation; stats && i < GC_WALK_GENERATIONS && i < py->PyList_Size(stats); i++)
        n += object_number_in(py->PyList_GetItem(stats, i), "collections");
    py->PyErr_Clear();
    py->Py_DecRef(stats);
    py->Py_DecRef(gc);
    return n;
}

/* Are these the heads of the interpreter's rings? */
static bool find_heads(struct gc_walk *w)
{
    uint64_t head = ring_at(ring_of(w->mark))->next;
    uint64_t behind = head + GC_WALK_GENERATIONS * HEAD_BYTES;
    if (head == 0 || head % sizeof(void *) != 0 || ring_at(behind)->next != head)
        return false;
    for (int i = 0; i < GC_WALK_GENERATIONS; i++)
        w->heads[i] = head + (uint64_t)i * HEAD_BYTES;
    w->heads[GC_WALK_GENERATIONS] = behind + FIRST_BYTES;
    for (int i = 0; i < GC_WALK_RINGS; i++)
        if (!is_ring(w->heads[i]))
            return false;
    return true;
}

bool gc_walk_begin(struct gc_walk *w)
{
    struct cpython *py = &python.api;
    *w = (struct gc_walk){.generation = 0};
    if (cpython_since(py, 14) || !(w->mark = py->PyList_New(0)))
        return false;
    if (find_heads(w)) {
        w->collections = collections_of(0);
        move_behind(ring_of(w->mark), w->heads[0]);
        return true;
    }
    py->Py_DecRef(w->mark);
    py->PyErr_Clear();
    return false;
}

static bool is_head(const struct gc_walk *w, uint64_t address)
{
    bool is = false;
    for (int i = 0; i < GC_WALK_RINGS; i++)
        is = is || w->heads[i] == address;
    return is;
}

static void go_to(struct gc_walk *w, int generation)
{
    w->generation = generation;
    w->collections = collections_of(generation);
    move_behind(ring_of(w->mark), w->heads[generation]);
}

/* Begin anew after a collection: all else went into an older generation, which comes later. */
static void keep_order(struct gc_walk *w)
{
    if (collections_of(w->generation) == w->collections)
        return;
    w->begun_again += w->generation + 1 == GC_WALK_GENERATIONS;
    go_to(w, w->generation);
}

bool gc_walk_slice(struct gc_walk *w, int (*visit)(PyObject *object, void *arg), void *arg)
{
    uint64_t mark = ring_of(w->mark);
    keep_order(w);
    for (int more = 1; more;) {
        uint64_t next = ring_at(mark)->next;
        if (!is_head(w, next)) {
            move_behind(mark, next);
            more = visit((PyObject *)(uintptr_t)(next + RING_BYTES), arg); /* NOLINT */
        } else if (next != w->heads[w->generation]) { /* it was taken along into another ring */
            go_to(w, w->generation);
        } else if (w->generation + 1 < GC_WALK_GENERATIONS) {
            go_to(w, w->generation + 1);
        } else {
            return false;
        }
    }
    return true;
}

void gc_walk_end(struct gc_walk *w)
{
    python.api.Py_DecRef(w->mark);
    python.api.PyErr_Clear();
}
