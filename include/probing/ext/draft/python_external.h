/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/python_external.h - "python.external/1", by the python plugin: stacks of
 * another process, which is only read.
 *
 * The command `probing` loads the plugin's file itself and asks its extension() with self NULL; no
 * init() has run.  What the plugin does in a process from inside it does here from outside, with
 * the same code: nothing is written there, nothing is stopped.
 *
 * Draft: may change until two programs use it; the id stays.
 */
#ifndef PROBING_EXT_PYTHON_EXTERNAL_H
#define PROBING_EXT_PYTHON_EXTERNAL_H

#include <probing/plugin.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_PYTHON_EXTERNAL_1 "python.external/1"

struct probing_python_process {
    uint32_t size;    /* sizeof(struct probing_python_process) */
    int32_t pid;      /* as we see it */
    uint32_t version; /* PY_VERSION_HEX of its CPython; 0: native stacks only, see `why` */
    uint32_t reserved;
    /* Give the address of a variable or function of that CPython; 0: it has none of that name. */
    uint64_t (*address)(void *arg, const char *name);
    void *arg;
    const char *why; /* version 0: what is wrong with its Python, in a line; "": it has none */
    const struct probing_python_process *next; /* another CPython in that process; NULL: none */
};

struct probing_python_external_1 {
    uint32_t size, reserved;
    /* The command backtrace.  Of the host fail, reply, cancelled and extension("probing.stack/1")
     * are used, which looks at the threads of that process.  One call at a time.   [worker] */
    int (*backtrace)(const struct probing_host *h, const struct probing_python_process *p, int argc,
                     const char *const *argv, struct probing_reply *out);
};

#ifdef __cplusplus
}
#endif
#endif
