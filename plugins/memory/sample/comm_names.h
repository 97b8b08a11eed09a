/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/comm_names.h - what the threads of samples are called.
 *
 * The sampler's thread.
 */
#ifndef MEMORY_SAMPLE_COMM_NAMES_H
#define MEMORY_SAMPLE_COMM_NAMES_H

#include <probing/ext/draft/python_frames.h>
#include <probing/plugin.h>
#include <stdint.h>

#include "sampling/sample_pool.h"

#define COMM_NAMES 256u /* threads whose names are kept */

struct comm_names {
    struct {
        int32_t tid;
        uint64_t comm, id, ns;
    } names[COMM_NAMES];
};

/* The name of a sample's thread in threading, or else in the kernel: a number of intern(). */
uint64_t comm_names_of(struct comm_names *t, const struct probing_host *host,
                       const struct probing_python_frames_1 *python, const struct sample_slot *x,
                       uint64_t now);

#endif
