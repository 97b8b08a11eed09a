/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/identity.h - whose a process is, and who may ask it.
 *
 * Any thread; no lock, no allocation.  The core asks for itself, the command for others, so that
 * both mean the same.  Nothing is kept: a process may change its ids at any time.
 */
#ifndef SDK_LIB_PROC_IDENTITY_H
#define SDK_LIB_PROC_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc_file.h"

enum { IDENTITY_REAL, IDENTITY_EFFECTIVE, IDENTITY_SAVED, IDENTITY_FILES };

struct proc_identity {
    uint32_t uid[4], gid[4]; /* real, effective, saved, of the file system */
    uint64_t permitted;      /* capabilities, bit number: capabilities(7) */
    bool secure;             /* AT_SECURE, or it may not be seen from here: getauxval(3) */
    bool dumpable;           /* prctl(2); of another process of root true where it is not known */
};

/* The calling thread's ids: code of ours on it may do what they allow. */
void identity_own(struct proc_identity *ret);
/* The ids of a process, by its first thread; 0, or -errno as proc_status_of(). */
int identity_of(pid_t pid, struct proc_identity *ret);

/* Do its ids differ from each other?  It runs for one user with the rights of another: a setuid
 * program, or a daemon that has put on a user's rights for a while. */
bool identity_is_mixed(const struct proc_identity *of);
/* False for a program that has other rights than the user who started it: its environment, and the
 * home that this names, come from somebody who may not trace it. */
bool identity_believes_environment(const struct proc_identity *of);
/* The user to whom its files, sockets and plugins must belong.  If the ids differ, this is root if
 * root is among them, else the saved one: never an id that is put on for a while. */
uint32_t identity_owner(const struct proc_identity *of);
uint32_t identity_group(const struct proc_identity *of);
/* getenv() where the environment of the calling thread is believed, else NULL. */
const char *identity_getenv(const char *name);
bool identity_own_believes_environment(void);
/* identity_owner() of the calling thread. */
uint32_t identity_own_owner(void);

/* ---- who may ask ---- */

/* A process that connected to a unix socket. */
struct identity_peer {
    pid_t pid;          /* 0: in a pid namespace around ours */
    uint32_t uid, gid;  /* effective, when it connected: the kernel keeps them for the socket */
    uint64_t permitted; /* capabilities, PROC_UNKNOWN: not to be seen, or in another namespace */
    bool below;         /* it is in a user namespace below ours */
};

enum identity_refusal {
    IDENTITY_MAY_ASK,
    IDENTITY_OTHER_USER,  /* another uid */
    IDENTITY_MIXED_IDS,   /* the process's ids differ from each other */
    IDENTITY_OTHER_GROUP, /* another gid: newgrp(1), sg(1) */
    IDENTITY_NOT_DUMPABLE,
    IDENTITY_CAPABILITIES, /* the process has some */
    IDENTITY_LESSER_ROOT,  /* root without capabilities that the process has, or without those that
                            * make root more than a user */
    IDENTITY_NAMESPACE     /* the peer is in a user namespace below ours */
};

/* Is it in another user namespace than we, one in which we have rights?  Then it lies below ours,
 * and capabilities in it are none here. */
bool identity_is_below(pid_t pid);
/* 0, or -errno of getsockopt(2). */
int identity_peer_of(int fd, struct identity_peer *ret);
/* The kernel's rule for ptrace(2) (PTRACE_MODE_ATTACH_REALCREDS), without that of yama, as far as a
 * socket proves it.  uid and gid are proof.  permitted and below are read by a pid, behind which
 * there may be another program by now, so they can only refuse: what a process has in capabilities
 * is for root alone. */
enum identity_refusal identity_may_ask(const struct identity_peer *peer,
                                       const struct proc_identity *of);
/* The same of the calling thread, as its ids are now; the process itself may always ask. */
enum identity_refusal identity_own_answer(const struct identity_peer *peer);
/* Why not, and what to do, as the end of a sentence. */
const char *identity_why(enum identity_refusal refusal);

#endif
