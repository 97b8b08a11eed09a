/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/coordinates.c - where in a job and in its training the process is: the first
 * cells of every row of ours, and of the python plugin's.
 *
 * Threads: any that holds the GIL.
 * A process group may be made at any time: before each call of a model, each operation of a group
 * and at each step's end the default one is looked at, which is one attribute.
 */
#include "steps/coordinates.h"

#include "python/pyobject.h"
#include "steps/call_thread.h"

static const struct probing_python_coordinates_1 *shared; /* lives as long as the process */
static PyObject *world;      /* owned; torch 2: its attribute `_default_pg`; torch 1: `WORLD` */
static PyObject *world_name; /* owned */
static PyObject *seen;       /* an address: the default group that was asked; NULL: none */

static void set_cell(int which, union probing_cell cell)
{
    __atomic_store_n(&steps.row[COL_COORDINATES + which].u, cell.u, __ATOMIC_RELAXED);
    if (shared)
        __atomic_store_n(&shared->cells[which].u, cell.u, __ATOMIC_RELAXED);
    trace_row_changed();
}

/* The environment, which torch.distributed corrects. */
static void read_again(void)
{
    if (shared)
        shared->read();
    for (int i = PROBING_RANK; shared && i < PROBING_COORDINATES; i++)
        set_cell(i,
                 (union probing_cell){.u = __atomic_load_n(&shared->cells[i].u, __ATOMIC_RELAXED)});
}

void coordinates_begin(const struct probing_python_coordinates_1 *part)
{
    shared = part && part->n == PROBING_COORDINATES ? part : NULL;
    coordinates_set_global(PROBING_NULL_I64);
    read_again();
}

void coordinates_find(void)
{
    static const struct {
        const char *object, *group;
    } places[] = {{"_world", "_default_pg"}, {"GroupMember", "WORLD"}};
    PyObject *module = object_module("torch.distributed.distributed_c10d");
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && module && !world; i++) {
        PyObject *object = object_get(module, places[i].object);
        PyObject *group = object_get(object, places[i].group);
        if (group) {
            world = object;
            world_name = python.api.PyUnicode_InternFromString(places[i].group);
            python.api.PyErr_Clear();
            python.api.Py_IncRef(object);
        }
        python.api.Py_DecRef(group);
        python.api.Py_DecRef(object);
    }
    coordinates_look();
}

/* rank() and size() of the default group are the job's; a group that we are not in has none. */
static void ask_group(PyObject *group)
{
    int64_t rank = object_ask(group, "rank"), size = object_ask(group, "size");
    if (rank == PROBING_NULL_I64 || rank < 0 || size <= rank)
        return;
    set_cell(PROBING_RANK, (union probing_cell){.i = rank});
    set_cell(PROBING_WORLD_SIZE, (union probing_cell){.i = size});
}

void coordinates_look(void)
{
    struct cpython *py = &python.api;
    PyObject *group = world && world_name ? py->PyObject_GetAttr(world, world_name) : NULL;
    if (!group)
        py->PyErr_Clear();
    bool some = group && group != py->_Py_NoneStruct;
    if (some && group != seen) {
        read_again(); /* LOCAL_RANK may have been set before the group was made */
        ask_group(group);
    }
    seen = some ? group : NULL;
    py->Py_DecRef(group);
}

void coordinates_set_global(int64_t step)
{
    set_cell(PROBING_GLOBAL_STEP, (union probing_cell){.i = step});
}

void coordinates_set_role(const char *text)
{
    set_cell(PROBING_ROLE, (union probing_cell){.u = object_intern(text)});
}

void coordinates_set_step(bool counted)
{
    int64_t step = counted ? (int64_t)steps.step : PROBING_NULL_I64;
    if (shared)
        __atomic_store_n(&shared->cells[PROBING_LOCAL_STEP].i, step, __ATOMIC_RELAXED);
}

void coordinates_ends(const struct thread *t, uint64_t end_ns)
{
    (void)t;
    (void)end_ns;
    coordinates_look();
}

void coordinates_ended(const struct thread *t, uint64_t end_ns)
{
    (void)t;
    (void)end_ns;
    coordinates_set_step(/* counted= */ true);
}

void coordinates_forget(void)
{
    coordinates_set_global(PROBING_NULL_I64);
    coordinates_set_step(/* counted= */ false);
    python.api.Py_DecRef(world);
    python.api.Py_DecRef(world_name);
    world = world_name = seen = NULL;
    shared = NULL;
}

void coordinates_put(union probing_cell *row)
{
    const struct thread *t = call_thread();
    bool known = t->training && t->step == steps.step;
    memcpy(row, steps.row, N_COORDINATES * sizeof(*row));
    row[COL_MICRO_STEP].i = known ? t->last_micro : PROBING_NULL_I64;
    row[COL_LOCAL_STEP].i = (int64_t)steps.step;
}

void coordinates_of(int64_t step, union probing_cell *row)
{
    for (int i = 0; i < N_COORDINATES; i++)
        row[i].u = __atomic_load_n(&steps.row[i].u, __ATOMIC_RELAXED);
    row[COL_MICRO_STEP].i = PROBING_NULL_I64;
    row[COL_LOCAL_STEP].i = step;
}
