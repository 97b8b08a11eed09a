/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/identity.c - see identity.h.
 *
 * Any thread.  Its own ids are read in /proc, as those of others: a seccomp filter of the program
 * may end it for a getresuid(2) that it never made itself.
 */
#include "sdk/lib/proc/identity.h"

#include <elf.h>
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sdk/lib/proc/task.h"

#define AUXV_BYTES 2048 /* Linux gives a program some twenty pairs of 16 bytes */
#define HAS(capability) (UINT64_C(1) << (capability))
/* Either makes root more than a user whose number is 0: it may trace others, or become them. */
#define OVER_USERS (HAS(CAP_SYS_PTRACE) | HAS(CAP_SETUID))

/* ---- reading ---- */

static void take_ids(const struct proc_status *s, struct proc_identity *ret)
{
    for (int i = 0; i < 4; i++) {
        ret->uid[i] = (uint32_t)s->uid[i];
        ret->gid[i] = (uint32_t)s->gid[i];
    }
    ret->permitted = s->permitted;
}

/* "thread-self" came with Linux 3.17. */
static int read_own(struct proc_status *ret)
{
    char room[2048];
    struct proc_lines l;
    int rc = proc_lines_open(&l, "/proc/thread-self/status", room, sizeof(room));
    if (rc == 0)
        rc = proc_status_parse(&l, ret);
    proc_lines_close(&l);
    rc = rc == 0 ? 0 : proc_status_of(0, (pid_t)syscall(SYS_gettid), ret);
    return rc == 0 && (ret->uid[0] == PROC_UNKNOWN || ret->gid[0] == PROC_UNKNOWN) ? -EPROTO : rc;
}

void identity_own(struct proc_identity *ret)
{
    struct proc_status s;
    *ret = (struct proc_identity){.permitted = PROC_UNKNOWN};
    if (read_own(&s) == 0) {
        take_ids(&s, ret);
    } else { /* no /proc: capabilities that are not known are for root alone */
        for (int i = 0; i < 4; i++) {
            ret->uid[i] = i == IDENTITY_REAL ? getuid() : geteuid();
            ret->gid[i] = i == IDENTITY_REAL ? getgid() : getegid();
        }
    }
    ret->secure = getauxval(AT_SECURE) != 0;
    ret->dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1;
}

/* As the kernel shows it to those who may trace the process. */
static bool is_secure(pid_t pid)
{
    char text[AUXV_BYTES];
    Elf64_auxv_t pair;
    int64_t n = proc_read(pid, 0, "auxv", text, sizeof(text));
    for (int64_t at = 0; at + (int64_t)sizeof(pair) <= n; at += (int64_t)sizeof(pair)) {
        memcpy(&pair, text + at, sizeof(pair));
        if (pair.a_type == AT_SECURE)
            return pair.a_un.a_val != 0;
    }
    return true;
}

/* The files of a process that is not dumpable are root's. */
static bool is_dumpable(pid_t pid, const struct proc_identity *of)
{
    char path[PROC_PATH_BYTES];
    struct stat st;
    proc_path(pid, 0, "stat", path);
    return stat(path, &st) == 0 && st.st_uid == of->uid[IDENTITY_EFFECTIVE] &&
           st.st_gid == of->gid[IDENTITY_EFFECTIVE];
}

int identity_of(pid_t pid, struct proc_identity *ret)
{
    struct proc_identity id;
    struct proc_status s;
    int rc = pid == 0 ? 0 : proc_status_of(pid, 0, &s);
    if (rc < 0)
        return rc;
    if (pid == 0) {
        identity_own(ret);
        return 0;
    }
    if (s.uid[0] == PROC_UNKNOWN || s.gid[0] == PROC_UNKNOWN)
        return -EPROTO;
    take_ids(&s, &id);
    id.secure = is_secure(pid);
    id.dumpable = is_dumpable(pid, &id);
    *ret = id;
    return 0;
}

/* ---- judging ---- */

/* r, e and s are all this one. */
static bool all_are(const uint32_t ids[4], uint32_t id)
{
    return ids[IDENTITY_REAL] == id && ids[IDENTITY_EFFECTIVE] == id && ids[IDENTITY_SAVED] == id;
}

static bool is_among(const uint32_t ids[4], uint32_t id)
{
    return ids[IDENTITY_REAL] == id || ids[IDENTITY_EFFECTIVE] == id || ids[IDENTITY_SAVED] == id;
}

bool identity_is_mixed(const struct proc_identity *of)
{
    return !all_are(of->uid, of->uid[IDENTITY_FILES]) || !all_are(of->gid, of->gid[IDENTITY_FILES]);
}

bool identity_believes_environment(const struct proc_identity *of)
{
    return !of->secure && !identity_is_mixed(of);
}

bool identity_own_believes_environment(void)
{
    struct proc_identity own;
    identity_own(&own);
    return identity_believes_environment(&own);
}

const char *identity_getenv(const char *name)
{
    return identity_own_believes_environment() ? getenv(name) : NULL;
}

/* The file system's id is not asked: it is the one that a thread of ours sets. */
static uint32_t owner_among(const uint32_t ids[4])
{
    return !all_are(ids, ids[IDENTITY_REAL]) && is_among(ids, 0) ? 0 : ids[IDENTITY_SAVED];
}

uint32_t identity_owner(const struct proc_identity *of)
{
    return owner_among(of->uid);
}

uint32_t identity_group(const struct proc_identity *of)
{
    return owner_among(of->gid);
}

uint32_t identity_own_owner(void)
{
    struct proc_identity own;
    identity_own(&own);
    return identity_owner(&own);
}

/* ---- who may ask ---- */

enum namespace { NAMESPACE_SAME, NAMESPACE_BELOW, NAMESPACE_UNSEEN };

/* The kernel shows the link only to those who have rights over that namespace.  Above the first one
 * there is none. */
static enum namespace namespace_of(pid_t pid)
{
    static const char first[] = "user:[4026531837]"; /* PROC_USER_INIT_INO of the kernel */
    char path[PROC_PATH_BYTES], peer[64], own[64];
    proc_path(pid, 0, "ns/user", path);
    ssize_t n = readlink(path, peer, sizeof(peer));
    ssize_t m = readlink("/proc/self/ns/user", own, sizeof(own));
    if (m <= 0)
        return NAMESPACE_UNSEEN;
    if (n <= 0)
        return m == (ssize_t)sizeof(first) - 1 && memcmp(own, first, sizeof(first) - 1) == 0
                   ? NAMESPACE_SAME
                   : NAMESPACE_UNSEEN;
    return n == m && memcmp(peer, own, (size_t)n) == 0 ? NAMESPACE_SAME : NAMESPACE_BELOW;
}

bool identity_is_below(pid_t pid)
{
    return namespace_of(pid) == NAMESPACE_BELOW;
}

int identity_peer_of(int fd, struct identity_peer *ret)
{
    struct ucred who;
    struct proc_status s;
    socklen_t n = sizeof(who);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) != 0)
        return -errno;
    enum namespace where = who.pid > 0 ? namespace_of(who.pid) : NAMESPACE_UNSEEN;
    *ret = (struct identity_peer){.pid = who.pid,
                                  .uid = who.uid,
                                  .gid = who.gid,
                                  .permitted = PROC_UNKNOWN,
                                  .below = where == NAMESPACE_BELOW};
    if (where == NAMESPACE_SAME && proc_status_of(who.pid, 0, &s) == 0)
        ret->permitted = s.permitted;
    return 0;
}

enum identity_refusal identity_may_ask(const struct identity_peer *peer,
                                       const struct proc_identity *of)
{
    bool same_user = all_are(of->uid, peer->uid), same_group = all_are(of->gid, peer->gid);
    if (peer->below)
        return IDENTITY_NAMESPACE;
    if (peer->uid == 0) {
        bool lacks = peer->permitted != PROC_UNKNOWN && (of->permitted & ~peer->permitted) != 0;
        bool alike = same_user && same_group && of->dumpable;
        return lacks || (!alike && (peer->permitted & OVER_USERS) == 0) ? IDENTITY_LESSER_ROOT
                                                                        : IDENTITY_MAY_ASK;
    }
    if (!same_user)
        return is_among(of->uid, peer->uid) ? IDENTITY_MIXED_IDS : IDENTITY_OTHER_USER;
    if (!same_group)
        return is_among(of->gid, peer->gid) ? IDENTITY_MIXED_IDS : IDENTITY_OTHER_GROUP;
    return !of->dumpable        ? IDENTITY_NOT_DUMPABLE
           : of->permitted != 0 ? IDENTITY_CAPABILITIES
                                : IDENTITY_MAY_ASK;
}

enum identity_refusal identity_own_answer(const struct identity_peer *peer)
{
    struct proc_identity own;
    identity_own(&own);
    return peer->pid == getpid() ? IDENTITY_MAY_ASK : identity_may_ask(peer, &own);
}

const char *identity_why(enum identity_refusal refusal)
{
    switch (refusal) {
    case IDENTITY_MAY_ASK:
        return "it may ask";
    case IDENTITY_OTHER_USER:
        return "this process belongs to another user; ask as that user or as root";
    case IDENTITY_MIXED_IDS:
        return "this process has the ids of several users or groups (setuid, seteuid); ask as root";
    case IDENTITY_OTHER_GROUP:
        return "its group is not that of this process, as after newgrp or sg; ask with the same "
               "group or as root";
    case IDENTITY_NOT_DUMPABLE:
        return "this process is not dumpable, as after setuid or prctl(PR_SET_DUMPABLE, 0); ask as "
               "root";
    case IDENTITY_CAPABILITIES:
        return "this process has capabilities, which its user has not; ask as root";
    case IDENTITY_LESSER_ROOT:
        return "it is root without the capabilities of this process, or without CAP_SYS_PTRACE and "
               "CAP_SETUID";
    case IDENTITY_NAMESPACE:
        return "it is in a user namespace below that of this process";
    }
    return "unknown";
}
