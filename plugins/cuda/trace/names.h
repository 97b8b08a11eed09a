/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/names.h - texts of records as ids: kernels' names, calls' names, sizes of
 * grids, and the words for CUPTI's numbers.
 *
 * Threads: one at a time.
 */
#ifndef CUDA_TRACE_NAMES_H
#define CUDA_TRACE_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "cupti/cuda_calls.h"
#include "cupti/cupti_session.h"

struct call_name {
    uint64_t id; /* interned; PROBING_NULL_ID: not known */
    enum call_class class;
};

struct names;

int names_new(const struct probing_host *host, struct names **ret); /* 0 or -ENOMEM */
void names_free(struct names *n);
/* Look again: another program's code may be at the addresses by now. */
void names_forget(struct names *n);
/* A kernel's name as a person writes it, at most 1,023 bytes; where CUPTI says that it is, and
 * nothing is believed of the address.
 * ret_collective: it is one of NCCL's. */
uint64_t names_kernel(struct names *n, const char *at, bool *ret_collective);
/* A call's, by CUPTI's number. */
const struct call_name *names_call(struct names *n, struct session *s, bool driver, uint32_t id);
/* "128x1x1"; PROBING_NULL_ID where too many different ones were seen. */
uint64_t names_size(struct names *n, const int32_t size[3]);

enum words { WORDS_COPY, WORDS_MEMORY, WORDS_SYNC, WORDS_OVERHEAD, WORDS_OPERATION, N_WORDS };
/* A number of CUPTI's in words; one that is new: "kind 12". */
uint64_t names_word(struct names *n, enum words which, uint32_t number);

#endif
