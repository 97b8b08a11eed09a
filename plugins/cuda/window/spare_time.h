/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/window/spare_time.h - has the program time to spare while it launches?
 *
 * Threads: one at a time.
 *
 * What a device runs it would have run without us, too: a program cannot be quicker than that.  So
 * tracing can have held it up for no longer than the device ran nothing.  Kernels of NCCL do not
 * count as something: they may be waiting for a rank that is late.  Nor is a device's time that of
 * all who launch: one thread keeps it busy while another waits for each of its own kernels.  So
 * work that began as soon as it was launched is counted, too: what had stood in a queue would have
 * begun no earlier.
 */
#ifndef CUDA_WINDOW_SPARE_TIME_H
#define CUDA_WINDOW_SPARE_TIME_H

#include <stdbool.h>
#include <stdint.h>

#define SPARE_DEVICES 64u

struct spare_time {
    uint64_t begun_ns, part_ns; /* the window; the newer one of two parts, of a second each */
    struct {
        uint64_t until_ns; /* what ran has ended; 0: nothing was seen */
        uint64_t from_ns[2], busy_ns[2];
    } devices[SPARE_DEVICES];
    uint64_t works[2], late[2];
};

void spare_begin(struct spare_time *s, uint64_t now_ns); /* a window */
/* Work in the order of its begins.  launched_ns: the call had returned; 0: it was not seen. */
void spare_worked(struct spare_time *s, uint32_t device, uint64_t start_ns, uint64_t end_ns,
                  uint64_t launched_ns, bool collective);
/* Give, for the last seconds that are known, the share in which the idlest device that worked ran
 * nothing, and the share of work that began at once.  1: nothing is known. */
void spare_look(struct spare_time *s, uint64_t now_ns, double *ret_idle, double *ret_late);

#endif
