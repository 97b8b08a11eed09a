/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/flamegraph/flame.h - where the command's profiles come from.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_FLAMEGRAPH_FLAME_H
#define CLI_COMMANDS_FLAMEGRAPH_FLAME_H

#include <probing/plugin.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/flame/flame.h"

struct target;

#define FLAME_MAX_BYTES ((size_t)4 << 30)

/* Folded stacks of a file, "a;b;c 12"; an optional second number goes nowhere. */
int flame_read_folded(struct flame *f, const char *path);
/* ---- flame_modes.c: what plugins declare ---- */

struct flame_mode {
    bool is_known, is_loaded;
    const char *plugin;
    struct probing_flame mode;
    struct arena texts;
};
/* name NULL: what is drawn where none is named; of its plugin, as that is set to take samples now.
 * -EINVAL: there is none with that name; -ENOENT: its plugin is not loaded, and could take no
 * samples when it were.  Then, too, the caller flame_mode_done()s. */
int flame_mode_find(const struct target *t, const char *name, struct flame_mode *ret);
void flame_mode_done(struct flame_mode *m);
/* Give fn the modes of plugins that are installed. */
void flame_mode_words(void (*fn)(void *arg, const char *word, const char *doc), void *arg);
/* when: a condition on ts, "true" for all.  in_time: samples one by one, where it has stacks. */
int flame_read_mode(struct flame *f, const struct target *t, const struct flame_mode *m,
                    const char *when, bool in_time);
/* The plugin that takes samples in the process, for a time. */
struct flame_sampler { /* as it was before */
    bool ran;
    char plugin[64];
    char name[2][160];  /* settings: what it takes, and how often */
    char value[2][160]; /* "" when not known */
    bool changed[2];
};
/* A plugin that is loaded now takes what it is set to, unless a mode was named: then m becomes
 * that.  Stop it also when this fails. */
int flame_sampler_start(const struct target *t, bool named, const char *rate, struct flame_mode *m,
                        struct flame_sampler *ret);
int flame_sampler_stop(const struct target *t, const struct flame_sampler *kept);
/* ---- flamegraph.c ---- */

/* Write the graph that `fill` puts in, as the words of the command say. */
int flamegraph_filled(int argc, char **argv, int (*fill)(void *arg, struct flame *f), void *arg);
/* ---- flame_read.c: stacks by number, and samples of them ---- */

/* Statements without {when}. */
int flame_read_stacks(struct flame *f, const struct target *t, const char *stacks);
int flame_read_samples(struct flame *f, const struct target *t, const char *samples, bool in_time);

#endif
