/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/target.h - the process, files or machine that `-t` names: finds out which it is, and
 * connects to it.
 *
 * One thread.  0, or -errno with err_set() done.
 */
#ifndef CLI_TARGET_TARGET_H
#define CLI_TARGET_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct answer_ask;
struct link_member;
struct probing_client;
struct probing_report_member;

#define DEFAULT_PORT 9922 /* of the seeds' READMEs */

enum target_kind {
    TARGET_NONE,  /* not given */
    TARGET_LIVE,  /* a process that answers: at a unix socket, or over TCP */
    TARGET_FILES, /* a directory whose process is dead or stopped */
    TARGET_MANY,  /* several at once: `answer` asks them */
    TARGET_THERE, /* of another machine, and no core answers in it: commands run there, `answer`
                   * asks its files there */
    TARGET_BARE   /* a process without a core: it can be entered; with a directory, it was left */
};

struct target {
    enum target_kind kind;
    const char *text;     /* as the user wrote it */
    bool by_environment;  /* PROBING_TARGET did */
    pid_t pid;            /* 0: not local */
    uint64_t start_time;  /* of pid, when it was named by it; 0: not known */
    char directory[4096]; /* data directory as we can open it, "" when remote */
    char host[256];       /* TCP */
    uint16_t port;
    uint32_t
        directories; /* of files: how many there are with that pid; `directory` is the newest */
    uint32_t others; /* of files: how many there are of other users with that pid */
    uid_t owner;     /* of files: whose they are, and who may have put anything into them */
    bool stopped;    /* the process is SIGSTOPped (or traced): it cannot answer */
    const struct link_member *there; /* of another machine, by its relay: cli/link/link.h; NULL */
    /* For TARGET_MANY and TARGET_THERE: as answer_bytes() of target/query_client.h; that of the
     * first also says who they are. */
    int (*answer)(const struct target *t, const struct answer_ask *ask,
                  int (*fn)(void *arg, const char *data, size_t size), void *arg);
    /* Answers a statement over all ranks (global.SCHEMA.TABLE), whatever the target is; NULL: that
     * is not asked here.  EXIT_FAILED: the answer lacks some of them, and that was said. */
    int (*answer_global)(const struct target *t, const struct answer_ask *ask,
                         int (*fn)(void *arg, const char *data, size_t size), void *arg);
    int (*each)(const struct target *t, int (*fn)(void *arg, const struct probing_report_member *m),
                void *arg);
    void *many;
};

/* Find out what `text` names: pid, host:port, host, [v6]:port, unix socket, data directory, or one
 * of these behind "ssh:HOST/" or "relay:HOST:PORT/". */
int target_resolve(const char *text, struct target *ret);

/* target_connect() says on stderr, once, when the core is of another build than we; of a living
 * target target_reach() does not, who says it by target_compare_builds() or in other words. */
int target_connect(const struct target *t, struct probing_client **ret);
int target_reach(const struct target *t, struct probing_client **ret);
void target_compare_builds(const struct target *t, const struct probing_client *c);
/* Begin to, without waiting, where it is TARGET_LIVE and of no relay: client_turn() of
 * sdk/client/door.h goes on.  -EAGAIN, without words: its queue is full, try again.
 * room: TOKEN_BYTES, as long as *ret. */
int target_begin(const struct target *t, char *room, struct probing_client **ret);
/* rc, with more words where it is known why a process that should answer is silent. */
int target_explain_silence(const struct target *t, int rc);
char target_state(pid_t pid); /* as in /proc/PID/stat: 'Z', 'T' ...; '?': none */
/* Stopped by a signal, held by a debugger, or its cgroup is frozen: it is there, and cannot run. */
struct target_halt {
    char is[112];    /* "stopped": after "it is" */
    char remedy[64]; /* "continue it with: kill -CONT 12" */
};
/* ret: NULL, it is not asked why.  false: it may run (or has ended).  Of one that is only traced,
 * as by strace, that takes some looks. */
bool target_halted(pid_t pid, struct target_halt *ret);
/* It has ended, and its parent has not asked yet; one whose first thread alone has ended runs. */
bool target_is_zombie(pid_t pid);
/* A process that is there, but on its way out of the kernel: what to say; NULL: it may answer.
 * One that writes its core dump is for as long as that takes. */
const char *target_ends(pid_t pid);
/* Are the files to be read: of a dead, a stopped, or a process that was left? */
bool target_is_files(const struct target *t);
/* Say on stderr whose files are read, where they are not ours, and what else there is. */
void target_say_whose(const struct target *t);

#endif
