/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/flame.h - where the command's profiles come from.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_FLAME_H
#define CLI_COMMANDS_FLAME_H

#include "cli/cli.h"
#include "core/flame/flame.h"

#define FLAME_MAX_BYTES ((size_t)4 << 30)

/* From the tables python.samples and python.stacks; where, in_time: as flame_ask_samples(). */
int flame_read(struct flame *f, const struct target *t, const char *where, bool in_time);
/* Folded stacks of a file, "a;b;c 12"; an optional second number goes nowhere. */
int flame_read_folded(struct flame *f, const char *path);
/* flame_modules.c: calls of modules, from python.torch_trace, by time; with f->mode memory by what
 * they leave allocated on the GPU in a step.  where: as for flame_read(). */
int flame_read_modules(struct flame *f, const struct target *t, const char *where);

struct flame_module {        /* a module's own time, without that of modules inside */
    const char *root, *name; /* live with the flame; root: the model it was called in */
    int64_t own_ns[2];       /* forward, backward */
    int64_t calls;           /* forwards */
};
/* The slowest modules, at most `max`, the slowest first; gives how many.  ret_roots: how many
 * models there are; ret_steps: of how many steps. */
int flame_sum_modules(struct flame *f, const struct target *t, const char *where,
                      struct flame_module *ret, uint32_t max, uint32_t *ret_roots,
                      int64_t *ret_steps);

#endif
