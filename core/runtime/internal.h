/* SPDX-License-Identifier: Apache-2.0
 *
 * core/runtime/internal.h - how the core starts, is set, forks and leaves: what this folder's files
 * share.
 */
#ifndef CORE_RUNTIME_INTERNAL_H
#define CORE_RUNTIME_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/clock.h"
#include "core/core.h"

/* ---- descriptors 0 to 2 where the process has closed them (standard_places.c) ---- */

/* So that none of ours gets such a number; gives which, for the other one.  before_main: they stay,
 * and take what is written. */
uint32_t standard_places_take(bool before_main);
void standard_places_give_back(uint32_t taken);

/* ---- our own settings (core_settings.c) ---- */

#define SETTINGS_BYTES 16384                        /* all "key=value" lines of one start */
#define DEFAULT_BYTES ((uint64_t)1 << 30)           /* bytes: max_memory=1GB */
#define DEFAULT_DEAD_BYTES ((uint64_t)2 << 30)      /* bytes: max_offline_data=2GB */
#define DEFAULT_RETENTION_NS (7 * 86400 * NS_PER_S) /* ns: retention=7d */

struct core;

/* The settings needed before there is a host, or where there is none: in a fork handler. */
struct config {
    char text[SETTINGS_BYTES]; /* the lines of this start */
    char data_dir[DATADIR_PATH_BYTES], plugin_path[4096], token[256], read_token[256];
    char
        lua[DATADIR_PATH_BYTES]; /* startup_script: a path, "off", or empty: see startup_script.c */
    char wanted[256];            /* plugins of which something was set, each behind a ',' */
    bool afresh;                 /* not in the directory of an earlier life */
    _Atomic bool follow;         /* probing.follow_fork: a forked child gets a life of its own */
};

/* Read environment and lines into c->config, and into c->host when there is one.  A setting that
 * is wrong is logged there, never a reason not to start. */
int config_read(struct core *c);
/* Put the plugins of which environment and lines have set something into probing.plugins; not where
 * that is empty, which asks for none.  After config_read(), before the host starts. */
int config_want_plugins(struct core *c);
int config_add(struct core *c); /* our tables of settings into c->host; c->crash is there */
/* A setting of ours as it stands; `parse` for one with a unit. */
uint64_t config_number(struct core *c, const char *name, uint64_t otherwise,
                       int (*parse)(const char *, uint64_t *));
/* Every PROBE_* (the old names), then every PROBING_* of the environment as it was at exec, then
 * the lines "key=value" of `settings`: fn(arg, key, value) in that order.  Keys of the environment
 * come without their prefix. */
int settings_read(const char *settings,
                  int (*environment)(void *arg, const char *key, const char *value),
                  int (*line)(void *arg, const char *key, const char *value), void *arg);

/* The variables whose names begin with `prefix`, of the environment as it was at exec. */
int environment_read(const char *prefix,
                     int (*environment)(void *arg, const char *key, const char *value), void *arg);

/* Run the user's probing.lua, where there is one; it stays as the script `probing` if it asks for
 * more.  What is wrong with it is logged (startup_script.c). */
void run_startup_script(struct core *c);

/* ---- one core a process (single_instance.c) ---- */

/* A descriptor to hold while the core lives; -1: it cannot be had, and *ret_sibling says whether
 * that is because another copy of the core in this process holds it. */
int guard_take(bool *ret_sibling);

/* ---- what is exported (lifecycle.c) ---- */

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char probing_version[];
EXPORT int probing_start(const char *settings);

/* ---- the parts of the core (components.c) ---- */

/* Under this no fork goes by (lifecycle.c). */
void lifecycle_lock(void);
void lifecycle_unlock(void);

/* Plugins that hang, and what the program has closed of ours.  Gives when it wants to be called
 * again, ns. */
uint64_t parts_watch(struct core *c);
/* All parts, in order (components.c); version, config, plugins_loaded are set. */
int parts_start(struct core *c);
void parts_stop(struct core *c); /* last come, first gone; a half-started core too */

#endif
