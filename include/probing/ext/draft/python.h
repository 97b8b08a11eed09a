/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/python.h - "python.gil/1", by the python plugin: run C code with the GIL.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_PYTHON_H
#define PROBING_EXT_PYTHON_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_PYTHON_GIL_1 "python.gil/1"

struct probing_python_gil_1 {
    uint32_t size, version; /* version: PY_VERSION_HEX of the interpreter, 0x030b02f0 */
    /* Call fn(arg) on the plugin's own Python thread, holding the GIL; give what it gave.
     * fn must be short, must not leave an exception set, and must own all that `arg` points to
     * until it has run.  -ETIMEDOUT: the GIL could not be had in timeout_ns; then fn will never
     * run.  -ENODEV: no interpreter, or it is finalizing.  The caller must not hold the GIL.
     *                                                               [control] [worker] */
    int (*call)(int (*fn)(void *arg), void *arg, uint64_t timeout_ns);
};

#ifdef __cplusplus
}
#endif
#endif
