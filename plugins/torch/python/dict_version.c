/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/dict_version.c - has a dict changed since it was looked at?
 *
 * Threads: any that holds the GIL.
 * To 3.13 a dict has a number that each change makes another one.  From 3.14 on CPython is asked to
 * call us when one of the dicts that we have looked at changes (PyDict_Watch: nothing of the
 * program notices), and what we know of a dict ends with it.
 * It keeps no dict alive, and after versions_end() none is watched.
 */
#include "python/dict_version.h"

#include <stdlib.h>

#include "lib/hash.h"

#define TAG 24        /* offset of ma_version_tag in PyDictObject, 3.8 to 3.13 (dictobject.h) */
#define DEALLOCATED 5 /* PyDict_EVENT_DEALLOCATED (cpython/dictobject.h) */
#define FIRST_SLOTS 256u

struct watched {
    PyObject *dict; /* never followed but to unwatch it; NULL: this slot is free */
    uint64_t version;
};

static bool tags;              /* lock: the GIL; dicts have the number */
static int watcher = -1;       /* lock: the GIL; our number among CPython's; below 0: none */
static struct watched *slots;  /* lock: the GIL; open addressing, n_slots a power of two */
static size_t n_slots, n_used; /* lock: the GIL */
static uint64_t last;          /* lock: the GIL; 0 is no version */

static uint64_t tag_of(const PyObject *dict)
{
    uint64_t version;
    memcpy(&version, (const char *)dict + TAG, sizeof(version));
    return version;
}

static size_t slot_of(const PyObject *dict)
{
    return (size_t)(hash_spread((uintptr_t)dict >> 4) >> 20) & (n_slots - 1);
}

static struct watched *find_watched(const PyObject *dict)
{
    if (!n_slots)
        return NULL;
    for (size_t i = slot_of(dict); slots[i].dict; i = (i + 1) & (n_slots - 1))
        if (slots[i].dict == dict)
            return &slots[i];
    return NULL;
}

static void put_watched(struct watched w)
{
    size_t i = slot_of(w.dict);
    while (slots[i].dict)
        i = (i + 1) & (n_slots - 1);
    slots[i] = w;
}

static bool grow_slots(void)
{
    struct watched *old = slots;
    size_t old_n = n_slots, wider = old_n ? 2 * old_n : FIRST_SLOTS;
    struct watched *wide = calloc(wider, sizeof(*wide));
    if (!wide)
        return false;
    slots = wide;
    n_slots = wider;
    for (size_t i = 0; i < old_n; i++)
        if (old[i].dict)
            put_watched(old[i]);
    free(old);
    return true;
}

/* Take one out; those that were pushed behind it move up. */
static void take_out(struct watched *w)
{
    size_t i = (size_t)(w - slots);
    w->dict = NULL;
    n_used--;
    for (i = (i + 1) & (n_slots - 1); slots[i].dict; i = (i + 1) & (n_slots - 1)) {
        struct watched next = slots[i];
        slots[i].dict = NULL;
        put_watched(next);
    }
}

/* CPython is about to change a dict, or to free it. */
static int note_change(int event, PyObject *dict, PyObject *key, PyObject *value)
{
    struct watched *w = find_watched(dict);
    (void)key;
    (void)value;
    if (w && event == DEALLOCATED)
        take_out(w);
    else if (w)
        w->version = ++last;
    return 0;
}

static bool find_tags(void)
{
    struct cpython *py = &python.api;
    PyObject *none = py->_Py_NoneStruct;
    PyObject *dict = cpython_since(py, 14) ? NULL : py->PyDict_New();
    uint64_t empty = dict ? tag_of(dict) : 0;
    bool found = dict && py->PyDict_SetItem(dict, none, none) == 0 && tag_of(dict) != empty;
    uint64_t full = found ? tag_of(dict) : 0;
    found = found && py->PyDict_GetItem(dict, none) && tag_of(dict) == full;
    py->PyErr_Clear();
    py->Py_DecRef(dict);
    return found;
}

bool versions_begin(void)
{
    const struct python_more *more = &python.more;
    tags = find_tags();
    if (!tags && watcher < 0 && more->PyDict_AddWatcher && more->PyDict_ClearWatcher &&
        more->PyDict_Watch && more->PyDict_Unwatch) {
        watcher = more->PyDict_AddWatcher(note_change);
        python.api.PyErr_Clear(); /* others may have taken all of the eight */
    }
    return tags || watcher >= 0;
}

uint64_t versions_of(PyObject *dict)
{
    if (tags)
        return tag_of(dict);
    struct watched *w = find_watched(dict);
    if (w)
        return w->version;
    if (watcher < 0 || (2 * n_used >= n_slots && !grow_slots()))
        return 0;
    if (python.more.PyDict_Watch(watcher, dict) < 0) {
        python.api.PyErr_Clear();
        return 0;
    }
    n_used++;
    put_watched((struct watched){dict, ++last});
    return last;
}

void versions_end(void)
{
    for (size_t i = 0; i < n_slots; i++)
        if (slots[i].dict)
            (void)python.more.PyDict_Unwatch(watcher, slots[i].dict);
    if (watcher >= 0)
        (void)python.more.PyDict_ClearWatcher(watcher);
    python.api.PyErr_Clear();
    watcher = -1;
    free(slots);
    slots = NULL;
    n_slots = n_used = 0;
}
