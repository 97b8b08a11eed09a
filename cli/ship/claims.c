/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/claims.c - whose rows are ours to send: of two `probing ship` with state files of their
 * own, one sends the rows of a process and the other is told so.
 *
 * One thread.  Locks of fcntl() on ranges of one file, which the kernel takes from who dies, and
 * which hold between machines where the file system is NFS (unless it is mounted with nolock):
 *
 *     0             NAMES_MAX * NAME_BYTES         PROCESSES
 *     |  who: "4711 node1\n", each in a place      |  one byte a process, by the hash of its id;
 *     |  that it has locked while it lives         |  behind the end of the file: nothing is there
 *
 * Such locks are the process's: it must have the file open once only.  What the file says is
 * anybody's who may write to the folder, and serves for words only.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/ship/ship.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "sdk/lib/hash.h"

#define NAMES_MAX 1024 /* who come later have no name there */
#define NAME_BYTES 128
#define PROCESSES ((off_t)1 << 32)

/* cmd: F_SETLK or F_GETLK.  0 or -errno. */
static int lock_range(int fd, int cmd, off_t at, off_t size, struct flock *ret)
{
    *ret = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = size};
    return fcntl(fd, cmd, ret) == -1 ? -errno : 0;
}

static bool is_held(int rc)
{
    return rc == -EAGAIN || rc == -EACCES;
}

static void write_name(const struct ship_claims *c)
{
    char text[NAME_BYTES + 1], host[80] = "";
    struct flock lock;

    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(text, sizeof(text), "%-*.*s\n", NAME_BYTES - 1, NAME_BYTES - 1, "");
    int n = snprintf(text, sizeof(text), "%d %s", (int)getpid(), host);
    text[n] = ' ';
    for (off_t i = 0; i < NAMES_MAX; i++)
        if (lock_range(c->fd, F_SETLK, i * NAME_BYTES, NAME_BYTES, &lock) == 0) {
            ssize_t done = pwrite(c->fd, text, NAME_BYTES, i * NAME_BYTES);
            (void)done; /* on a full disk it has no name */
            return;
        }
}

int ship_claims_open(int folder, const char *name, struct ship_claims *ret)
{
    static uint32_t made; /* one thread */
    struct stat st;
    struct flock lock;
    int fd = openat(folder, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    /* A second name would be that of a file which somebody wants us to write over. */
    int rc = fd == -1 || fstat(fd, &st) == -1          ? -errno
             : S_ISREG(st.st_mode) && st.st_nlink == 1 ? 0
                                                       : -EPERM;

    ship_claims_close(ret);
    if (rc == 0 && lock_range(fd, F_GETLK, PROCESSES, 1, &lock) < 0) {
        terminal_say("the file system of %s has no locks (%s): that no other `probing ship` sends "
                     "the same rows there cannot be known",
                     name, strerror(errno));
        (void)close(fd);
        fd = -1;
    }
    if (rc < 0) {
        if (fd != -1)
            (void)close(fd);
        return err_set(rc, "the lock %s cannot be opened: %s", name,
                       rc == -EPERM ? "it is no file of its own" : strerror(-rc));
    }
    *ret = (struct ship_claims){.fd = fd, .made = ++made};
    if (fd != -1)
        write_name(ret);
    return 0;
}

/* The names of those who live and are not us, "process 4711 on node1"; only: of this one, if it is
 * there.  How many there are. */
static uint32_t read_names(const struct ship_claims *c, int64_t only, char *ret, size_t size)
{
    char text[NAME_BYTES + 1], host[NAME_BYTES];
    struct flock lock;
    uint32_t n = 0;

    ret[0] = '\0';
    for (off_t i = 0; i < NAMES_MAX; i++) {
        ssize_t got = pread(c->fd, text, NAME_BYTES, i * NAME_BYTES);
        int pid = 0;
        if (got <= 0)
            break;
        text[got] = '\0';
        if (lock_range(c->fd, F_GETLK, i * NAME_BYTES, NAME_BYTES, &lock) < 0 ||
            lock.l_type == F_UNLCK || sscanf(text, "%9d %100s", &pid, host) != 2 ||
            (only > 0 && only != pid))
            continue;
        size_t at = strlen(ret);
        (void)snprintf(ret + at, size - at, "%sprocess %d on %s", at > 0 ? ", " : "", pid, host);
        n++;
    }
    return n;
}

static int report_taken(const struct ship_claims *c, off_t at)
{
    char names[400] = "";
    struct flock lock;
    uint32_t n = 0;

    /* The kernel names the holder on this machine; of one on another it may say nothing, or
     * anything. */
    if (lock_range(c->fd, F_GETLK, at, 1, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid > 0)
        n = read_names(c, lock.l_pid, names, sizeof(names));
    if (n == 0)
        n = read_names(c, 0, names, sizeof(names));
    return err_set(-EBUSY,
                   "another `probing ship` (%s%s) sends its rows there, with another state file: "
                   "two would send them twice. End one of the two",
                   n > 1 ? "one of " : "", n > 0 ? names : "it has left no name");
}

static off_t place_of(const struct ship_source *s)
{
    return PROCESSES + (off_t)(hash_text(HASH_FNV, s->id) >> 2);
}

int ship_claims_take(const struct ship_claims *c, struct ship_source *s)
{
    off_t at = place_of(s);
    struct flock lock;

    if (c->made == 0 || c->fd == -1 || s->claimed == c->made)
        return 0;
    int rc = lock_range(c->fd, F_SETLK, at, 1, &lock);
    if (rc < 0)
        return is_held(rc)
                   ? report_taken(c, at)
                   : err_set(-EAGAIN, "the lock on its rows cannot be had: %s", strerror(-rc));
    s->claimed = c->made;
    return 0;
}

void ship_claims_close(struct ship_claims *c)
{
    if (c->made != 0 && c->fd != -1)
        (void)close(c->fd);
    *c = (struct ship_claims){.made = 0};
}
