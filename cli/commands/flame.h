/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/flame.h - where the command's profiles come from.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_FLAME_H
#define CLI_COMMANDS_FLAME_H

#include <probing/plugin.h>

#include "cli/cli.h"
#include "core/flame/flame.h"

#define FLAME_MAX_BYTES ((size_t)4 << 30)

/* From the tables python.samples and python.stacks; where, in_time: as flame_ask_samples(). */
int flame_read(struct flame *f, const struct target *t, const char *where, bool in_time);
/* Folded stacks of a file, "a;b;c 12"; an optional second number goes nowhere. */
int flame_read_folded(struct flame *f, const char *path);
/* ---- flame_modes.c: what plugins declare ---- */

struct flame_mode {
    bool is_known;
    const char *plugin;
    struct probing_flame mode;
    struct arena texts;
};
/* -EINVAL: there is none with that name; -ENOENT: its plugin is not loaded.  Then, too, the caller
 * flame_mode_done()s. */
int flame_mode_find(const struct target *t, const char *name, struct flame_mode *ret);
void flame_mode_done(struct flame_mode *m);
/* Those of plugins that are installed. */
void flame_mode_words(void (*fn)(void *arg, const char *word, const char *doc), void *arg);
/* when: a condition on ts, "true" for all. */
int flame_read_mode(struct flame *f, const struct target *t, const struct flame_mode *m,
                    const char *when);

#endif
