/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/core_lookup.h - the way from a pid to the core that lives in it: its directory, its
 * sockets, a client.
 *
 * One thread.  0, or -errno with err_set() done.
 */
#ifndef CLI_TARGET_CORE_LOOKUP_H
#define CLI_TARGET_CORE_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct buf;
struct probing_client;

/* The data directory of a living process, by its mapped data file.  -ENOENT: no core answers in it;
 * *ret is "", or the directory of one that starts; -ETIMEDOUT: the process did not let us look. */
int directory_of(pid_t pid, char *ret, size_t size);
/* Give fn each process of this machine that a core answers in, until it gives below 0.  One that
 * cannot be looked at is left out, and named. */
int directory_each_living(int (*fn)(void *arg, pid_t pid, const char *directory), void *arg);
/* The same; one that starts is waited for, some seconds. */
int directory_await(pid_t pid, char *ret, size_t size);
/* Is it the user who owns what that process makes (sdk/lib/proc/identity.h)? */
bool process_is_of(pid_t pid, unsigned uid);
/* The process that must listen in a directory; NULL: the one that it is called after. */
struct endpoint_owner {
    pid_t pid;
    uint64_t start_time; /* 0: not known */
};
/* A client that stops at Ctrl-C and whose errors are our reasons.  NULL: no memory.  token, and who
 * is asked for one: <probing/client.h>. */
struct probing_client *client_new(const char *token, const char *(*find_token)(void *arg, int fd),
                                  void *arg);
/* Give the result of a client's call, but -ESTALE where it failed because the process runs another
 * program now (exec), and its core ended with the one before.  The reason stays.  Every way to ask
 * a living process goes through this, so a step of a command never calls that a death. */
int client_failed(struct probing_client *c, int rc);
/* Add the answer of a core's command to `answer`, within 10 s.  0, or -errno when it could not be
 * asked or said no. */
int client_command(struct probing_client *c, int argc, const char *const *argv, struct buf *answer);
/* To the core that lives in a directory: nobody else is ever spoken to, whoever made it. */
int endpoint_connect(const char *directory, const struct endpoint_owner *who,
                     struct probing_client **ret);
/* Begin to connect `c` to the core there; as target_begin(). */
int endpoint_begin(const char *directory, const struct endpoint_owner *who,
                   struct probing_client *c);
/* A connected descriptor of the socket `name`; type: SOCK_SEQPACKET ...  Caller closes. */
int endpoint_dial(const char *directory, const struct endpoint_owner *who, const char *name,
                  int type);

#endif
