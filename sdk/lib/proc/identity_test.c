/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/identity_test.c - whose a process is: plain ones, and those that have put on or off
 * the rights of another.
 */
#include "sdk/lib/proc/identity.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

#define SYS_PTRACE (UINT64_C(1) << 19)
#define SETUID (UINT64_C(1) << 7)

static struct proc_identity plain(uint32_t uid)
{
    return (struct proc_identity){
        .uid = {uid, uid, uid, uid}, .gid = {uid, uid, uid, uid}, .dumpable = true};
}

static struct identity_peer peer(uint32_t uid, uint64_t permitted)
{
    return (struct identity_peer){.pid = 4711, .uid = uid, .gid = uid, .permitted = permitted};
}

static enum identity_refusal ask(struct identity_peer p, struct proc_identity of)
{
    return identity_may_ask(&p, &of);
}

TEST(users_and_groups)
{
    struct proc_identity of = plain(1000);
    CHECK_INT(ask(peer(1000, 0), of), IDENTITY_MAY_ASK);
    CHECK_INT(ask(peer(1000, PROC_UNKNOWN), of), IDENTITY_MAY_ASK);
    CHECK_INT(ask(peer(1001, PROC_UNKNOWN), of), IDENTITY_OTHER_USER);
    CHECK_INT(ask(peer(0, PROC_UNKNOWN), of), IDENTITY_MAY_ASK);
    struct identity_peer p = peer(1000, 0);
    p.gid = 7;
    CHECK_INT(ask(p, of), IDENTITY_OTHER_GROUP);
    p = peer(1000, 0);
    p.below = true;
    CHECK_INT(ask(p, of), IDENTITY_NAMESPACE);
    of.dumpable = false;
    CHECK_INT(ask(peer(1000, UINT64_MAX >> 1), of), IDENTITY_NOT_DUMPABLE);
    CHECK_INT(ask(peer(0, SYS_PTRACE), of), IDENTITY_MAY_ASK);
    for (int i = IDENTITY_MAY_ASK; i <= IDENTITY_NAMESPACE; i++)
        CHECK(identity_why((enum identity_refusal)i)[0] != '\0');
}

/* Each of the three ids by itself, of users and of groups. */
TEST(ids_that_differ)
{
    for (int i = IDENTITY_REAL; i <= IDENTITY_SAVED; i++) {
        struct proc_identity of = plain(0);
        of.uid[i] = 1000;
        CHECK(identity_is_mixed(&of) && !identity_believes_environment(&of));
        CHECK_INT(identity_owner(&of), 0);
        CHECK_INT(ask(peer(1000, 0), of), IDENTITY_MIXED_IDS);
        CHECK_INT(ask(peer(0, PROC_UNKNOWN), of), IDENTITY_MAY_ASK);
        of = plain(1000);
        of.gid[i] = 42;
        CHECK(identity_is_mixed(&of));
        CHECK_INT(identity_owner(&of), 1000);
        CHECK_INT(identity_group(&of), of.gid[IDENTITY_SAVED]);
        CHECK_INT(ask(peer(1000, 0), of), IDENTITY_MIXED_IDS);
    }
    /* A program that is setuid to a user who is not root. */
    struct proc_identity of = plain(2000);
    of.uid[IDENTITY_REAL] = of.uid[IDENTITY_EFFECTIVE] = 1000;
    CHECK_INT(identity_owner(&of), 2000);
    CHECK_INT(ask(peer(1000, 0), of), IDENTITY_MIXED_IDS);
    CHECK_INT(ask(peer(2000, 0), of), IDENTITY_MIXED_IDS);
    /* A file server's thread. */
    of = plain(0);
    of.uid[IDENTITY_FILES] = 1000;
    CHECK(identity_is_mixed(&of));
    CHECK_INT(identity_owner(&of), 0);
    of = plain(1000);
    CHECK(!identity_is_mixed(&of) && identity_believes_environment(&of));
    of.secure = true;
    CHECK(!identity_believes_environment(&of));
}

TEST(capabilities)
{
    const uint64_t docker = UINT64_C(0xa80425fb), all = UINT64_MAX >> 23;
    struct proc_identity of = plain(1000);
    of.permitted = 1 << 10;
    CHECK_INT(ask(peer(1000, 0), of), IDENTITY_CAPABILITIES);
    CHECK_INT(ask(peer(1000, all), of), IDENTITY_CAPABILITIES); /* no proof */
    CHECK_INT(ask(peer(0, all), of), IDENTITY_MAY_ASK);
    CHECK_INT(ask(peer(0, SYS_PTRACE), of), IDENTITY_LESSER_ROOT);
    of = plain(0);
    of.permitted = docker;
    CHECK_INT(ask(peer(0, docker), of), IDENTITY_MAY_ASK);
    CHECK_INT(ask(peer(0, docker & ~SETUID), of), IDENTITY_LESSER_ROOT);
    of.permitted = all;
    CHECK_INT(ask(peer(0, docker), of), IDENTITY_LESSER_ROOT); /* of a container, on the host */
    CHECK_INT(ask(peer(0, PROC_UNKNOWN), of), IDENTITY_MAY_ASK);
    of = plain(0); /* both without any */
    CHECK_INT(ask(peer(0, 0), of), IDENTITY_MAY_ASK);
    CHECK_INT(ask(peer(0, 0), plain(1000)), IDENTITY_LESSER_ROOT);
    CHECK_INT(ask(peer(0, docker), plain(1000)), IDENTITY_MAY_ASK);
}

TEST(own_and_by_number)
{
    struct proc_identity own, seen;
    struct identity_peer p;
    int pair[2];
    identity_own(&own);
    CHECK_INT(own.uid[IDENTITY_EFFECTIVE], geteuid());
    CHECK_INT(own.gid[IDENTITY_REAL], getgid());
    CHECK_INT(identity_own_owner(), identity_owner(&own));
    CHECK_INT(identity_of(getpid(), &seen), 0);
    CHECK(memcmp(own.uid, seen.uid, sizeof(own.uid)) == 0);
    CHECK(memcmp(own.gid, seen.gid, sizeof(own.gid)) == 0);
    CHECK(own.permitted == seen.permitted && own.secure == seen.secure);
    CHECK_INT(own.dumpable, seen.dumpable);
    CHECK_INT(identity_of(0, &seen), 0);
    CHECK_INT(seen.permitted, own.permitted);
    CHECK(identity_of(INT32_MAX, &seen) < 0);
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    CHECK_INT(identity_peer_of(pair[0], &p), 0);
    CHECK(p.pid == getpid() && p.uid == geteuid() && p.gid == getegid() && !p.below);
    CHECK_INT(p.permitted, own.permitted);
    CHECK_INT(close(pair[0]) + close(pair[1]), 0);
    CHECK_INT(identity_peer_of(pair[0], &p), -EBADF);
}

/* A daemon of root's with a user's rights for a while, seen from outside. */
TEST(put_on_for_a_while)
{
    struct proc_identity own, seen;
    identity_own(&own);
    if (own.uid[IDENTITY_EFFECTIVE] != 0 || (own.permitted & SETUID) == 0) {
        printf("# skipped: only root can put on the rights of another\n");
        return;
    }
    int ready[2];
    char byte;
    CHECK_INT(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        bool right = syscall(SYS_setresuid, -1, 65534, -1) == 0;
        identity_own(&own);
        right = right && identity_is_mixed(&own) && !own.dumpable && own.permitted != 0 &&
                identity_own_owner() == 0 && own.uid[IDENTITY_FILES] == 65534;
        byte = right ? 'y' : 'n';
        (void)!write(ready[1], &byte, 1);
        for (;;)
            (void)pause();
    }
    CHECK_INT(read(ready[0], &byte, 1), 1);
    CHECK_INT(byte, 'y');
    CHECK_INT(identity_of(child, &seen), 0);
    CHECK(identity_is_mixed(&seen) && !seen.dumpable && seen.permitted != 0 && !seen.secure);
    CHECK_INT(identity_owner(&seen), 0);
    CHECK_INT(kill(child, SIGKILL), 0);
    CHECK_INT(waitpid(child, NULL, 0), child);
    CHECK_INT(close(ready[0]) + close(ready[1]), 0);
}

int main(void)
{
    RUN(users_and_groups);
    RUN(ids_that_differ);
    RUN(capabilities);
    RUN(own_and_by_number);
    RUN(put_on_for_a_while);
    return test_end();
}
