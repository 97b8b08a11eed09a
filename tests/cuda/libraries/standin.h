/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/cuda/libraries/standin.h - what the parts of the stand-in for libcupti share.
 */
#ifndef TESTS_CUDA_STANDIN_H
#define TESTS_CUDA_STANDIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "tests/cuda/cupti_figures.h"

/* Whoever loads it declares what it calls. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))
#define UNKNOWN_KIND 61u
#define UNKNOWN_BYTES 64u
#define HELD 64
#define USERS 4
#define CALL_IDS 1024

typedef void requested_fn(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void completed_fn(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                          size_t valid);
typedef void requested_v2_fn(uint8_t **buffer, size_t *size, size_t *max_records, void *info);
typedef void completed_v2_fn(uint8_t *buffer, size_t size, size_t valid, void *info);

struct held {
    uint8_t *bytes;
    size_t size, valid;
};

/* The takers of records: the first by the old interface, the others as subscribers. */
struct user {
    bool there; /* a subscriber is; by the old interface: something was registered or enabled */
    char name[64];
    requested_fn *requested;
    completed_fn *completed;
    requested_v2_fn *requested_v2;
    completed_v2_fn *completed_v2;
    bool enabled[64];
    int thread_type;
    struct held now, late[HELD];
    uint32_t n_late;
    size_t dropped;
};

extern struct standin {
    pthread_mutex_t lock;
    const struct cupti_version *_Atomic version;
    struct user users[USERS];
    uint8_t sharing;                /* as CUPTI_ACTIVITY_ATTR_MULTIPLE_SUBSCRIBER_STATE */
    uint32_t correlation, calls[4]; /* calls: enable, disable, flush, register */
    bool holds, kernels_first, tears;
    int result; /* of enabling, from now on */
    int64_t clock_offset;
    bool chosen[2][CALL_IDS]; /* of the old interface: calls of the runtime, of the driver */
} s;

struct made { /* a record */
    uint32_t kind;
    uint32_t call; /* its number, of a call */
    const struct cupti_layout *layout;
    uint8_t bytes[256];
};

const struct cupti_version *version(void); /* that it plays */
uint64_t now(void);                        /* of its clock */
size_t size_of(uint32_t kind);             /* of a record; 0: there are none of that kind */

struct made make(uint32_t kind);
#define PUT(m, field, value) figures_put((m).layout, (m).bytes, field, (uint64_t)(value))
void add(struct made *m);                                    /* for all who want its kind */
void add_to(struct user *u, struct made *m);                 /* with the lock; if it wants it */
void add_bytes(struct user *u, const void *bytes, size_t n); /* with the lock */
void give_back(struct user *u);                              /* its buffer; with the lock */
void request(const struct user *u, struct held *ret);        /* a buffer; without the lock */
void complete(const struct user *u, const struct held *b);   /* without the lock */

bool standin_enabled(uint32_t kind); /* by anybody */
int standin_subscribers(void);

#endif
