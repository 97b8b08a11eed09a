/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/link.h - other machines as this command sees them: hosts, connections to the sockets of
 * processes there, and commands that run there.
 *
 * A process beside this one (broker.c) holds the remote shells and their relays, and has one
 * socket to us and to our children: what is asked for comes with the descriptors that are to be
 * served.  It listens nowhere, has no file, and ends when the last of us has.
 *
 * One thread.  0 or -errno with err_set().  What comes from a host is checked, and counts for that
 * host alone.
 */
#ifndef CLI_LINK_LINK_H
#define CLI_LINK_LINK_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sdk/lib/buf.h"

#define LINK_RSH "ssh -T -o BatchMode=yes -o ConnectTimeout=10"
#define LINK_WHY 700
#define LINK_UNKNOWN (-1)

/* ---- hosts ---- */

/* How hosts are reached from now on; NULL or 0: as PROBING_RSH, PROBING_REMOTE and
 * PROBING_RELAY_DEGREE say, or as usual. */
void link_configure(const char *rsh, const char *program, uint32_t degree);

/* Start relays there, several as a tree; nothing waits.  Their numbers follow each other from
 * *ret_first on.  One that is known already is asked anew only where it is `lost`. */
int link_hosts(const char *const *names, uint32_t n, uint32_t *ret_first);
/* A relay that listens at "HOST:PORT". */
int link_listener(const char *name, uint32_t *ret);
/* Is it known, and lost, and is it time to try again?  After each try in vain the time doubles,
 * from a second to ten minutes. */
bool link_is_due(const char *name, bool listens);
/* The number of a host that was named to one of these; -ENOENT without words. */
int link_known(const char *name, bool listens, uint32_t *ret);
/* "ssh:HOST" or "relay:HOST:PORT"; NULL: we have not named it.  Until the next call. */
const char *link_name_of(uint32_t host);

struct link_host {
    bool reached, awaited;       /* awaited: its relay has been started and has said nothing yet */
    bool merges;                 /* it is of our build, and so are all that may stand before it */
    uint32_t first;              /* the host whose relay we have started, and that it is behind */
    char why[LINK_WHY];          /* it is neither */
    char build[96], name[64];    /* as it says */
    int64_t offset_ns, error_ns; /* its clock (UTC) minus ours, and how far that may be from the
                                  * truth: half of the shortest round trip.  error_ns
                                  * LINK_UNKNOWN: not measured */
};
/* As it is now.  Only the clock of one that is reached is waited for, for 2 s at most: who is not
 * there has had its time when it was asked who is there, and does not get it again. */
int link_host_of(uint32_t host, struct link_host *ret);

/* How long a host has to say who is there, or to do what is asked besides; 0: as usual, which is
 * what the second gives unless the first was called. */
void link_set_timeout(uint64_t ns);
uint64_t link_timeout(uint64_t usual_ns);

/* ---- members ---- */

/* A process of another machine, as its relay has named it. */
struct link_member {
    uint32_t host;
    const char *what;      /* what to give -t there: a pid, a data directory */
    const char *directory; /* of the living: where its socket is */
    int64_t pid, start_time;
    bool alive; /* its socket answers; else what there is of it is read there */
    bool dead;  /* its process has ended; else it is stopped, or has no core */
    char host_name[64];
    bool has_clock;        /* it is known how far */
    int64_t clock_step_ns; /* its clock is from that of its machine */
    char why[LINK_WHY];    /* it cannot be asked; "" */
};

/* A line of `probing relay --list`, of that host.  It lives as long as this process, or until all
 * are forgotten.  -EBADMSG. */
int link_member_read(uint32_t host, const char *line, size_t size, const struct link_member **ret);
/* The member as a question to its relay names it: "PID START DIRECTORY" of one that lives, of
 * others what to give -t there.  Read, its texts are those of `place`. */
#define LINK_PLACE_BYTES 4200
int link_member_place(const struct link_member *m, struct buf *ret);
int link_member_from_place(const char *place, struct link_member *ret);
/* For who looks again and again: no target that has one is left. */
void link_members_forget(void);

/* A descriptor that is as connected to its socket.  *ret_note: what became of it is there when the
 * connection has ended: a number of enum probing_client_end as text, a blank, a sentence. */
int link_open(const struct link_member *m, int *ret_fd, int *ret_note);

/* ---- commands that run there ---- */

struct link_run {
    int out, err, end; /* to be polled; -1: ended */
    struct buf ending;
    int status; /* of the command there, or -errno with `why`; when end is -1 */
    char why[LINK_WHY];
};

/* `probing argv...` there. */
int link_run_begin(uint32_t host, int argc, const char *const *argv, struct link_run *ret);
/* Ask a relay that stands before all of them a question about members (merge_protocol.h); else the
 * same. */
int link_merge_begin(uint32_t host, const struct buf *question, struct link_run *ret);
/* Fill three polls, which link_run_turn() is given back.  fn gets what comes (error: of its
 * standard error); below 0 ends it.  1: all has come and `status` stands, 0: more comes, -errno. */
void link_run_polls(const struct link_run *r, struct pollfd polls[3]);
int link_run_turn(struct link_run *r, const struct pollfd polls[3],
                  int (*fn)(void *arg, bool error, const char *data, size_t size), void *arg);
void link_run_end(struct link_run *r); /* which ends what runs there */

/* All of it: gives its exit code, or -errno. */
int link_run_all(uint32_t host, int argc, const char *const *argv,
                 int (*fn)(void *arg, bool error, const char *data, size_t size), void *arg);
/* The same, to our standard output and error. */
int link_run_print(const struct link_member *m, int argc, const char *const *argv);

/* Put a text from a host as it is to be said here: "probing -t 4242 inject" names the host, too.
 * One line or several; ret: cut where it is too small, always with its NUL. */
void link_hints(uint32_t host, const char *text, char *ret, size_t size);

/* To our standard error, what a command there has said on its own.  0 or -EPIPE. */
int link_print_words(uint32_t host, const char *data, size_t size);

/* The descriptor that children keep; -1: none. */
int link_descriptor(void);
/* Children of a relay ask the hosts below it over this socket to its broker. */
void link_adopt(int control);

#endif
