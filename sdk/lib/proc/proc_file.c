/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/proc_file.c - files and folders of /proc by system calls alone: opendir() and
 * snprintf() are nothing for a signal handler.
 *
 * Any thread, handlers too.
 */
#include "sdk/lib/proc/proc_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sdk/lib/proc/digits.h"

#define NAME_BYTES 32

static char *append_text(char *at, const char *text, size_t max)
{
    size_t n = strnlen(text, max);
    memcpy(at, text, n);
    return at + n;
}

static char *put_number(char *at, pid_t number)
{
    char digits[12];
    size_t n = 0;
    for (uint32_t rest = number > 0 ? (uint32_t)number : 0; rest > 0 || n == 0; rest /= 10)
        digits[n++] = (char)('0' + rest % 10);
    while (n > 0)
        *at++ = digits[--n];
    return at;
}

void proc_path(pid_t pid, pid_t tid, const char *name, char ret[PROC_PATH_BYTES])
{
    char *at = append_text(ret, "/proc/", NAME_BYTES);
    at = pid == 0 ? append_text(at, "self", NAME_BYTES) : put_number(at, pid);
    if (tid != 0)
        at = put_number(append_text(at, "/task/", NAME_BYTES), tid);
    if (name)
        at = append_text(append_text(at, "/", 1), name, NAME_BYTES);
    *at = '\0';
}

int64_t proc_read_fd(int fd, char *ret, size_t size)
{
    size_t done = 0;
    int64_t n = 1;
    while (n > 0 && done < size - 1) {
        do {
            n = read(fd, ret + done, size - 1 - done);
        } while (n == -1 && errno == EINTR);
        done += n > 0 ? (size_t)n : 0;
    }
    if (n == -1)
        done = 0; /* a part of it would pass for the whole */
    ret[done] = '\0';
    return n == -1 ? -errno : (int64_t)done;
}

int64_t proc_read_path(const char *path, char *ret, size_t size)
{
    ret[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return -errno;
    int64_t n = proc_read_fd(fd, ret, size);
    (void)close(fd);
    return n;
}

int64_t proc_read(pid_t pid, pid_t tid, const char *name, char *ret, size_t size)
{
    char path[PROC_PATH_BYTES];
    proc_path(pid, tid, name, path);
    return proc_read_path(path, ret, size);
}

/* ---- folders ---- */

struct kernel_dirent { /* getdents64(2) */
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

void proc_numbers_of(struct proc_numbers *n, int fd)
{
    n->fd = fd;
    n->error = 0;
    n->size = n->at = 0;
}

int proc_numbers_open(struct proc_numbers *n, const char *path)
{
    proc_numbers_of(n, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    n->error = n->fd == -1 ? -errno : 0;
    return n->error;
}

int proc_threads_open(struct proc_numbers *n, pid_t pid)
{
    char path[PROC_PATH_BYTES];
    proc_path(pid, 0, "task", path);
    return proc_numbers_open(n, path);
}

bool proc_numbers_next(struct proc_numbers *n, struct proc_number *ret)
{
    for (;;) {
        if (n->at >= n->size) {
            n->size = n->fd == -1 ? 0 : syscall(SYS_getdents64, n->fd, n->block, sizeof(n->block));
            n->at = 0;
            if (n->size == -1)
                n->error = -errno;
            if (n->size <= 0)
                return false;
        }
        const struct kernel_dirent *e =
            (const struct kernel_dirent *)(const void *)((const char *)n->block + n->at);
        const char *end = proc_digits(e->name, 10, &ret->value);
        ret->inode = e->inode;
        n->at += e->size;
        if (end && *end == '\0')
            return true;
    }
}

void proc_numbers_close(struct proc_numbers *n)
{
    if (n->fd != -1)
        (void)close(n->fd);
    n->fd = -1;
    n->size = n->at = 0;
}

void proc_close_descriptors(int keep)
{
    struct proc_numbers all;
    struct proc_number one;
    (void)proc_numbers_open(&all, "/proc/self/fd");
    while (proc_numbers_next(&all, &one))
        if (one.value > STDERR_FILENO && (int)one.value != all.fd && (int)one.value != keep)
            (void)close((int)one.value);
    proc_numbers_close(&all);
}

/* ---- environ ---- */

const char *proc_environ_find(const char *text, size_t size, const char *name)
{
    size_t n = strlen(name);
    for (size_t at = 0; at < size; at += strlen(text + at) + 1)
        if (size - at > n && memcmp(text + at, name, n) == 0 && text[at + n] == '=')
            return text + at + n + 1;
    return NULL;
}
