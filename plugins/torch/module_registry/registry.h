/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_registry/registry.h - the modules that live, found by their addresses;
 * inlined where each call of a module asks.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_MODULE_REGISTRY_REGISTRY_H
#define TORCH_MODULE_REGISTRY_REGISTRY_H

#include "lib/hash.h"
#include "python/python_api.h"

#define REGISTRY_HASH_SHIFT 20

/* A module's name in one tree. */
struct naming {
    uint64_t walk; /* number of the walk of that tree that came by last */
    uint64_t name; /* interned, or PROBING_NULL_ID */
    uint32_t layers_version;
    bool unwanted;  /* not in the setting `layers` */
    PyObject *root; /* valid while root_serial matches what names_find(root) gives */
    uint64_t root_serial;
    uint64_t path_hash; /* of the text behind `name`: saves interning it again */
    struct naming *next;
};

#define NO_WALK UINT64_MAX /* no module was seen in it */

/* One module that lives: its names, and what belongs to the root of a tree.  The fields that each
 * call reads are in the first cache line. */
struct module {
    _Alignas(CACHE_LINE) PyObject *object; /* borrowed: the weak reference's callback ends this */
    uint64_t device;                       /* interned, or PROBING_NULL_ID */
    int cuda;                              /* number of that device, -1: it is none of CUDA's */
    bool has_params, is_child;
    bool large;              /* its graph is too large to look for its backward */
    uint64_t read_after;     /* nonfinite.c: number of the backward its gradients were read after */
    uint8_t agreed;          /* backward.c: walks of its graph that found what was known */
    struct naming at;        /* in the tree that it was seen in last */
    struct naming *others;   /* in other trees that it is a part of; owned */
    PyObject *weak;          /* owned */
    uint64_t serial;         /* never used twice, unlike an address */
    struct branch *branches; /* a root's: module_names.c; owned */
    uint32_t n_branches;
    uint32_t calls;                    /* in training mode, in `step` */
    uint64_t step;                     /* a top-level module's: the step that `calls` belongs to */
    uint64_t listed;                   /* number of the listing that came by last */
    int64_t tid;                       /* a root's: of the thread that called it last; 0: none */
    uint64_t walked_ns, walk_cost_ns;  /* a root's: when and how long it was walked */
    uint64_t checked_ns, checked_step; /* likewise when it was looked at for changes */
    uint32_t fruitless;                /* walks for a strange module, where dicts tell no changes */
};

/* The modules that live, by their addresses. */
extern struct registry {
    struct module **slots; /* open addressing */
    size_t mask;           /* a power of two less one; no slots: 0, and `slots` is one empty slot */
    bool has_ddp;          /* a DistributedDataParallel was there, or has been called */
} registry;                /* lock: the GIL */

static inline size_t registry_slot(const PyObject *object)
{
    return (size_t)(hash_spread((uintptr_t)object >> 4) >> REGISTRY_HASH_SHIFT) & registry.mask;
}

/* names_find() */
static inline struct module *registry_find(const PyObject *object)
{
    struct module *m;
    for (size_t i = registry_slot(object); (m = registry.slots[i]); i = (i + 1) & registry.mask)
        if (m->object == object)
            break;
    return m;
}

/* Likewise, not inlined. */
struct module *names_find(const PyObject *object);
/* The entry of an object, made when there is none; NULL: no memory, or no weak reference. */
struct module *names_entry(PyObject *object);
/* Addresses and serials of modules that are in no other one; at most n. */
uint32_t names_roots(PyObject **ret, uint64_t *ret_serials, uint32_t n);
void registry_forget_all(void);

#endif
