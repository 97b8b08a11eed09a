/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/datadir.h - data directories as the command finds them: whose they are, and whether
 * their process lives.
 *
 * One thread.  0, or -errno with err_set() done.
 */
#ifndef CLI_TARGET_DATADIR_H
#define CLI_TARGET_DATADIR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct datadir;

/* Give fn the directories below the roots that are believed, to root those of all users.  says:
 * name those not believed, on stderr, where the user has asked for directories: others may leave
 * anything in /tmp and /dev/shm.  fn gives non-zero to stop. */
int directory_each(int (*fn)(void *arg, const struct datadir *d), void *arg, bool says);
/* A line "key: value" of a data directory's info file; -ENOENT; -EBADMSG: the file is damaged, what
 * it says may be wrong, and is given where it is there. */
int directory_info(const struct datadir *d, const char *key, char *ret, size_t size);
/* Is the process that wrote this directory still the one with its pid, and no zombie? */
bool directory_alive(const struct datadir *d, pid_t *ret_pid);
/* Does a process have the store of this directory open, seen from here or not? */
bool directory_held(const struct datadir *d);
/* Read whose it is from its name, "<pid>-<start time>", as a core calls it: that cannot be damaged.
 * false: it has another name. */
bool directory_named(const struct datadir *d, uint64_t *ret_pid, uint64_t *ret_started);
/* The newest directory of a process that had this pid, and of that very one unless start_time is 0.
 * Only of the users that are wanted: others of that name are no answer, but may be named. */
struct directory_newest {
    pid_t pid;
    uint64_t start_time;
    uid_t owners[3];  /* whose it may be: who asks, or who the living process is */
    char path[4096];  /* "": none */
    uint32_t n;       /* how many there are, */
    uint32_t others;  /* and of others, */
    char other[4096]; /* the newest of which */
    uid_t other_owner;
    struct timespec time, other_time;
};
void directory_newest(struct directory_newest *ret);
/* Has the core of a living process gone from this directory: left in good order, or with an exec?
 * (One that is just starting has not opened its socket yet.) */
bool directory_is_over(const char *directory);
/* Is its process invisible from here (another pid namespace, a directory that both see)? */
bool directory_lives_elsewhere(const char *directory);

#endif
