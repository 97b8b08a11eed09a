/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/torch_step.h - "torch.step/1", by the torch plugin: which training step runs.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_TORCH_STEP_H
#define PROBING_EXT_TORCH_STEP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_TORCH_STEP_1 "torch.step/1"

struct probing_torch_step_1 {
    uint32_t size, reserved;
    /* local_step of python.torch_trace, now; -1: no steps are counted.              [signal] */
    int64_t (*now)(void);
};

#ifdef __cplusplus
}
#endif
#endif
