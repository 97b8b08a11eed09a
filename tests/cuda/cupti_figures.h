/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/cuda/cupti_figures.h - records as CUPTI's own headers lay them out: made here field by
 * field, by name, for tests of who reads them.
 */
#ifndef TESTS_CUDA_CUPTI_FIGURES_H
#define TESTS_CUDA_CUPTI_FIGURES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct cupti_layout {
    const char *record, *structure;
    uint16_t size;
    struct {
        const char *name;
        uint16_t offset, bytes;
    } fields[20]; /* up to the first without a name */
};

struct cupti_version {
    const char *name;
    uint32_t api;
    uint8_t layouts[11];
};

#include "tests/cuda/cupti_layouts.h"

#define CUPTI_VERSIONS (sizeof(versions) / sizeof(versions[0]))

static inline const struct cupti_layout *figures_of(const struct cupti_version *v,
                                                    const char *record)
{
    for (size_t i = 0; i < sizeof(v->layouts); i++)
        if (strcmp(layouts[v->layouts[i]].record, record) == 0)
            return &layouts[v->layouts[i]];
    abort();
}

/* Put a number into a field; a field that the version does not have is a mistake of the test's. */
static inline void figures_put(const struct cupti_layout *l, uint8_t *record, const char *field,
                               uint64_t value)
{
    for (size_t i = 0; i < sizeof(l->fields) / sizeof(l->fields[0]) && l->fields[i].name; i++) {
        if (strcmp(l->fields[i].name, field) != 0)
            continue;
        memcpy(record + l->fields[i].offset, &value, /* little endian */
               l->fields[i].bytes <= sizeof(value) ? l->fields[i].bytes : sizeof(value));
        return;
    }
    abort();
}

#endif
