/* SPDX-License-Identifier: Apache-2.0
 *
 * core/datadir/own_dir.h - where this process is found on disk and in memory files, what an earlier
 * life of it left there, what dead processes left beside it, and what a forked child lets go of.
 *
 * Threads: one, the core's main thread, where nothing else is said.
 */
#ifndef CORE_DATADIR_OWN_DIR_H
#define CORE_DATADIR_OWN_DIR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/catalog/catalog.h"
#include "sdk/lib/buf.h"

#define DATADIR_PATH_BYTES 1024

/* ---- where this process is found (own_dir.c) ---- */

/*     <root>/<pid>-<start time>[.<n>]/      private (0700); <n> from 2: after exec, or an earlier
 *                                           life that did not leave in good order (resume.c)
 *         info                              text, "key: value" lines; "left: yes": ejected
 *         sock, door, token, token-read     the ways in, while the core runs
 *         declared                          what plugins declare, for those who read it later
 *         data.mdb, held                    the store; locked while somebody has it
 *         rings, strings, lock.mdb          files, or links to the same name below `fast`
 *         failed                            one line: why the core could not start
 *
 *     /dev/shm/probing-<uid>/<pid>-<start time>[.<n>]/    `fast`: memory instead of disk
 *         rings, strings, lock.mdb
 *         home                              where the directory is; locked while the core lives
 *
 * <root> is PROBING_DATA_DIR, which must be of use then; else probing-<uid> in /tmp, /var/tmp or
 * /dev/shm, whichever first takes data; where somebody else has made that before us, one with a
 * name that nobody could know, probing-<uid>.<random>. */
struct own_dir {
    char directory[DATADIR_PATH_BYTES];
    char fast[DATADIR_PATH_BYTES]; /* on a memory file system; "": none, all is in `directory` */
    uint64_t start_time;           /* clock ticks since boot, proc(5) */
    bool resumed;   /* the directory is of an earlier life, which left in good order */
    char note[512]; /* why it is not where it would be, and what to do; "": it is */
    /* The directory's id, made at random with it: pids and start times come again, in containers
     * of one machine too.  "": the kernel gave none, or the directory is older than such ids. */
    char instance_id[40];
};

/* resume: the version whose directory may be gone on with, NULL: a new directory. */
int own_dir_make(const char *data_dir, const char *resume, struct own_dir *ret);
/* Links in the directory for what lies in `fast`, where the store has not made them itself. */
int own_dir_link(const struct own_dir *p);
/* The core has left in good order: bring what lies in `fast` home to the directory, so that no
 * memory is held for a life that is over.  What cannot be brought stays where it is, linked. */
void own_dir_settle(const struct own_dir *p);
struct datadir;
void own_dir_bring(const struct datadir *fast, const struct datadir *home); /* the same */
/* A file of the one into the other, without what is zero. */
int own_dir_copy(const struct datadir *from, const struct datadir *to, const char *name);
int own_dir_info(const struct own_dir *p, const char *version, int64_t utc_offset);
int own_dir_info_text(const struct own_dir *p, struct buf *text); /* all but the check */
void own_dir_failed(const struct own_dir *p, const char *why);
/* Has somebody taken the directory away, or the socket in it, so that nobody can come in? */
bool own_dir_is_gone(const struct own_dir *p);
int own_dir_path(const struct own_dir *p, const char *name, char ret[DATADIR_PATH_BYTES]);

/* ---- an earlier life in the same process (resume.c) ---- */

bool resume_can(const char *directory, const char *version);
void resume_names(struct own_dir *p);
/* The rows have the same numbers as before, so the id is the same. */
void resume_instance_id(struct own_dir *p);
/* Go on by the clock of the earlier life: before the store is made. */
void resume_clock(const struct own_dir *p);
/* Count the rows again that earlier lives lost; before own_dir_info(). */
void resume_losses(const struct own_dir *p, struct tables *tables);
/* The text of `info` for a directory that is left; to be written when all is closed. */
void resume_note(const struct own_dir *p, struct tables *tables, struct buf *ret);

/* ---- what dead processes left (gc.c) ---- */

/* Write `home` beside the memory files, so that others know whose they are, and keep it locked
 * while we live.  Its descriptor, or -1: none. */
int home_write(const struct own_dir *p);

struct sweep_limits {
    uint64_t keep_ns, max_bytes; /* of all data of the dead below one root; 0: no limit */
    bool (*go_on)(void *arg);    /* called where nothing is open; false: end now */
    void *arg;
};
/* Take away what is beyond the limits, oldest first, and memory files whose data directory has
 * gone; bring those of other dead processes home.  Gives how many directories were removed. */
uint32_t sweep_run(const struct own_dir *own, const struct sweep_limits *limits);

#endif
