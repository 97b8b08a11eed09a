/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/torch_place.h - "torch.place/1", by the torch plugin: which module's call a
 * thread was inside of, and in which step, a while ago.
 *
 * For those who learn later that something was asked for at that moment, as of work on a device.
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_TORCH_PLACE_H
#define PROBING_EXT_TORCH_PLACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_TORCH_PLACE_1 "torch.place/1"

struct probing_torch_place {
    uint32_t size, reserved; /* size: sizeof(struct probing_torch_place), set by the caller */
    int64_t step;    /* local_step of python.torch_trace; PROBING_NULL_I64: not known any more */
    uint64_t module; /* the innermost one, an optimizer's class too, or PROBING_NULL_ID; interned */
};

struct probing_torch_place_1 {
    uint32_t size, reserved;
    /* 1: somebody will ask of what is from now on; 0: no more.  Each must be undone by the other;
     * without it nothing is remembered.                                                 [any] */
    void (*remember)(int on);
    /* ts: CLOCK_MONOTONIC ns.  Only calls that have ended since are known, and of steps that are
     * sampled; of those thousands.  0, or -ENOENT: neither is known.                    [any] */
    int (*at)(int32_t tid, uint64_t ts, struct probing_torch_place *ret);
};

#ifdef __cplusplus
}
#endif
#endif
