/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/remote_target.h - targets on another machine: "ssh:HOST/..." and
 * "relay:HOST:PORT/...".
 *
 * One thread.  0, or -errno with err_set() done.
 */
#ifndef CLI_TARGET_REMOTE_TARGET_H
#define CLI_TARGET_REMOTE_TARGET_H

#include <stdbool.h>
#include <stdint.h>

struct link_member;
struct target;

/* "ssh:HOST", "ssh:HOST/WHAT", "relay:HOST:PORT/WHAT". */
struct remote_name {
    bool listens; /* relay: */
    char host[300];
    const char *what; /* behind the slash, "": nothing, which is all that is there */
};
bool remote_name_read(const char *text, struct remote_name *ret); /* false: it is none */
/* Can it be asked at all: -EINVAL and misuse where its host is no name, or has no port. */
int remote_name_check(const struct remote_name *r);
/* Is it one process: a pid, a path? */
bool remote_name_is_one(const struct remote_name *r);
/* Its host's number; starts the way to it where that is new. */
int remote_host(const struct remote_name *r, uint32_t *ret);
/* The words that ask a host who is there: for link_run_begin(). */
#define REMOTE_LIST_WORDS 3
void remote_list_words(const char *what, const char *ret[REMOTE_LIST_WORDS]);
/* One process there, as target_resolve() finds it. */
int remote_resolve(const char *text, const struct remote_name *r, struct target *ret);
/* Make a target of a member there.  text: as the user wrote it; lives as long as the target. */
void remote_target(const char *text, const struct remote_name *r, const struct link_member *m,
                   struct target *ret);
/* Give what is left there when its process has ended: its files are asked.  false: it is none. */
bool remote_died(const struct target *t, struct target *ret);

#endif
