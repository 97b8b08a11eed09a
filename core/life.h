/* SPDX-License-Identifier: Apache-2.0
 *
 * core/life.h - what the files directly in core/ share: all parts of the core in one struct, and
 * the place on disk where this process is found.
 *
 * There is one struct probing a process, and it lives in core/probing.c.
 */
#ifndef CORE_LIFE_H
#define CORE_LIFE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/buf.h"
#include "core/ring/table.h"

struct crash;
struct event;
struct host;
struct scripts;
struct server;
struct sql;
struct store;

#define PLACE_BYTES 1024

/* ---- where this process is found (place.c) ---- */

/*     <root>/<pid>-<start time>[.<n>]/      private (0700); <n> from 2: after exec, or an earlier
 *                                           life that did not leave in good order (resume.c)
 *         info                              text, "key: value" lines; "left: yes": ejected
 *         sock, door, token, token-read     the ways in, while the core runs
 *         data.mdb, held                    the store; locked while somebody has it
 *         rings, strings, lock.mdb          files, or links to the same name below `fast`
 *         failed                            one line: why the core could not start
 *
 *     /dev/shm/probing-<uid>/<pid>-<start time>[.<n>]/    `fast`: memory instead of disk
 *         rings, strings, lock.mdb
 *         home                              where the directory is; locked while the core lives
 *
 * <root> is PROBING_DATA_DIR, else /tmp/probing-<uid>, else /dev/shm/probing-<uid>. */
struct place {
    char directory[PLACE_BYTES];
    char fast[PLACE_BYTES]; /* on a memory file system; "": none, all is in `directory` */
    uint64_t start_time;    /* clock ticks since boot, proc(5) */
    bool resumed;           /* the directory is of an earlier life, which left in good order */
};

/* resume: the version whose directory may be gone on with, NULL: a new directory. */
int place_make(const char *data_dir, const char *resume, struct place *ret);
/* Links in the directory for what lies in `fast`, where the store has not made them itself. */
int place_link(const struct place *p);
/* The core has left in good order: bring what lies in `fast` home to the directory, so that no
 * memory is held for a life that is over.  What cannot be brought stays where it is, linked. */
void place_settle(const struct place *p);
int place_copy(const char *from_path, const char *to_path); /* without what is zero */
int place_info(const struct place *p, const char *version, int64_t utc_offset);
int place_info_text(const struct place *p, struct buf *text); /* all but the check */
void place_failed(const struct place *p, const char *why);
int place_path(const struct place *p, const char *name, char ret[PLACE_BYTES]);

/* ---- an earlier life in the same process (resume.c) ---- */

bool resume_can(const char *directory, const char *version);
void resume_names(struct place *p);
/* Count the rows again that earlier lives lost; before place_info(). */
void resume_losses(const struct place *p, struct tables *tables);
/* The text of `info` for a directory that is left; to be written when all is closed. */
void resume_note(const struct place *p, struct tables *tables, struct buf *ret);

/* ---- what dead processes left (sweep.c) ---- */

#define FAST_ROOT "/dev/shm/probing-%u" /* our uid */

/* Write `home` beside the memory files, so that others know whose they are, and keep it locked
 * while we live.  Its descriptor, or -1: none. */
int home_write(const struct place *p);

struct sweep_limits {
    uint64_t keep_ns, max_bytes; /* of all data of the dead below one root; 0: no limit */
    bool (*go_on)(void *arg);    /* called where nothing is open; false: end now */
    void *arg;
};
/* Take away what is beyond the limits, oldest first, and memory files whose data directory has
 * gone.  Gives how many directories were removed. */
uint32_t sweep_run(const struct place *own, const struct sweep_limits *limits);

/* ---- what a forked child inherits (child.c) ---- */

#define INHERITED_FDS 16
#define INHERITED_MAPS 16

/* The store's open files and the maps it writes through, so that a child can let go of them with
 * system calls only.  A count is set when what it counts is written, and cleared before the store
 * goes. */
struct inherited {
    struct inherited_fd {
        int fd;
        dev_t device;
        ino_t inode; /* what fd must still be */
    } fds[INHERITED_FDS];
    struct inherited_map {
        uintptr_t at;
        size_t size;
    } maps[INHERITED_MAPS];
    _Atomic uint32_t n_fds, n_maps;
};

void inherited_note(struct inherited *in, const struct place *p);
void inherited_forget(struct inherited *in);
void inherited_drop(struct inherited *in); /* [child] */

/* The plugin path: `own` (may be empty), then directories beside the file that holds `code`. */
int plugin_path(const void *code, const char *own, struct buf *ret);

/* ---- our own settings (config.c) ---- */

#define SETTINGS_BYTES 16384                   /* all "key=value" lines of one start */
#define DEFAULT_BYTES ((uint64_t)1 << 30)      /* bytes: max_memory=1GB */
#define DEFAULT_DEAD_BYTES ((uint64_t)2 << 30) /* bytes: max_dead=2GB */
#define DEFAULT_KEEP_NS (7 * 86400 * NS_PER_S) /* ns: retention=7d */

struct core;

/* What must be known before there is a host, or where there is none: in a fork handler. */
struct config {
    char text[SETTINGS_BYTES]; /* the lines of this start */
    char data_dir[PLACE_BYTES], plugin_path[4096], token[256], read_token[256];
    bool afresh;         /* not in the directory of an earlier life */
    _Atomic bool follow; /* probing.follow_fork: a forked child gets a life of its own */
};

/* Read environment and lines into c->config, and into c->host when there is one.  A setting that
 * is wrong is logged there, never a reason not to start. */
int config_read(struct core *c);
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

/* ---- one core a process (guard.c) ---- */

/* A descriptor to hold while the core lives; -1: it cannot be had, and *ret_sibling says whether
 * that is because another copy of the core in this process holds it. */
int guard_take(bool *ret_sibling);

/* ---- what is exported (probing.c) ---- */

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char probing_version[];
EXPORT int probing_start(const char *settings);

/* ---- the core ---- */

struct core {
    struct tables *tables;
    struct store *store;
    struct sql *sql;
    struct host *host;
    struct scripts *scripts;
    struct server *server;
    struct crash *crash;
    struct place place;
    struct config *config;
    struct inherited inherited;
    int home_fd;   /* keeps `home` locked; -1: none */
    bool follower; /* this life began with a fork */
    pthread_t plugin_thread;
    bool plugin_thread_made;
    struct event *plugins_loaded;
    char plugins[1024]; /* to load at the start, with ',' between */
    const char *version;
    void (*stop)(void *arg); /* ask for the end; returns at once */
    void *stop_arg;
};

/* Under this no fork goes by (probing.c). */
void life_lock(void);
void life_unlock(void);

/* All parts, in order (parts.c); version, config, plugins_loaded are set. */
int parts_start(struct core *c);
void parts_stop(struct core *c); /* last come, first gone; a half-started core too */

int commands_add(
    struct core *c); /* commands.c: query, tables, plugin ..., config ..., info, eject */
int metrics_command_add(struct core *c);    /* metrics.c: metrics */
int flamegraph_command_add(struct core *c); /* flamegraph.c: flamegraph */
/* process.c: cpu.tasks, process.memory, process.envs, probing.overhead, probing.clients */
int process_tables_add(struct core *c);
int queries_settings_add(struct core *c); /* queries.c: query.memory, query.timeout ... */

#endif
