/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_registry/registry.h - the modules that live, found by their addresses;
 * inlined where each call of a module asks.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_MODULE_REGISTRY_REGISTRY_H
#define TORCH_MODULE_REGISTRY_REGISTRY_H

#include "internal.h"
#include "lib/hash.h"

#define REGISTRY_HASH_SHIFT 20

/* The modules that live, by their addresses: registry.c. */
extern struct registry {
    struct module **slots; /* open addressing */
    size_t mask;           /* a power of two less one; no slots: 0, and `slots` is one empty slot */
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

#endif
