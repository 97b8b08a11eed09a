/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_file/sealed_copy.c - the copy of a plugin's file that is loaded.
 *
 * Any thread.  Memory here is mapped, never the host's malloc: a plugin may have megabytes.
 */
#include "core/plugin_file/sealed_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/guest/own_descriptors.h"
#include "core/plugin_file/internal.h"
#include "sdk/lib/proc/task.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010u /* Linux 6.3 */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif
#ifndef O_TMPFILE
#define O_TMPFILE (020000000 | O_DIRECTORY)
#endif

#define FILE_MAX_BYTES ((off_t)1 << 30) /* a plugin larger than this is no plugin */
#define LABEL_BYTES 249 /* of a memfd with its NUL: what the kernel takes, less "memfd:" */
#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

static bool is_sealed(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals != -1 && (seals & SEALS) == SEALS;
}

/* A filter of system calls may end the process at a call it does not know, so where there is one
 * nothing is asked that an ordinary program would not. */
static bool is_filtered(void)
{
    struct proc_status s;
    return proc_status_of(0, 0, &s) < 0 || s.seccomp != 0;
}

/* Memory and file systems may be closed to code (noexec, a security module). */
static bool can_execute(int fd)
{
    void *at = mmap(NULL, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (at != MAP_FAILED)
        (void)munmap(at, 1);
    return at != MAP_FAILED;
}

/* The copy is called after the file, so that symbols are looked for there
 * (core/stack/process.c). */
static int make_memory(int from, const char *name)
{
    static const unsigned flags[] = {MFD_EXEC, 0, MFD_NOEXEC_SEAL};
    char label[LABEL_BYTES] = "probing-plugin:", path[32];
    size_t n = strlen(label);
    int fd = -1;

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", from);
    ssize_t size = readlink(path, label + n, sizeof(label) - n);
    if (size <= 0 || (size_t)size == sizeof(label) - n) /* no name, or too long a one */
        (void)snprintf(label + n, sizeof(label) - n, "%.63s", name);
    else
        label[n + (size_t)size] = '\0';
    descriptor_begin();
    for (int i = 0; i < 3 && fd == -1; i++)
        fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags[i]);
    return descriptor_end(fd);
}

/* Nobody but us can open it: it has no name. */
static int make_file(void)
{
    static const char *const folders[] = {"/dev/shm", "/tmp", "/var/tmp"};
    int fd = -1;

    for (int i = 0; i < 3 && fd == -1; i++)
        fd = open(folders[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0700);
    return fd;
}

static int copy_file(int from, int to, off_t *ret_size)
{
    char bytes[16384];
    off_t at = 0;
    ssize_t n;

    while ((n = pread(from, bytes, sizeof(bytes), at)) > 0) {
        if (at + n > FILE_MAX_BYTES)
            return err_set(-ENOEXEC, "it is larger than %lld MB and no plugin",
                           (long long)(FILE_MAX_BYTES >> 20));
        if (pwrite(to, bytes, (size_t)n, at) != n)
            return err_set(-ENOTSUP, "no room for a copy of the plugin: %s", strerror(errno));
        at += n;
    }
    if (n < 0)
        return err_set(-errno, "cannot read the plugin's file: %s", strerror(errno));
    *ret_size = at;
    return 0;
}

static int check_copy(int fd, struct elf_facts *ret)
{
    struct stat st;

    if (fstat(fd, &st) == -1 || st.st_size > FILE_MAX_BYTES)
        return err_set(-ENOEXEC, "it is not a file that could be a plugin");
    if (st.st_size == 0)
        return err_set(-ENOEXEC, "it is empty; is it complete?");
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return err_set(-errno, "cannot map the plugin's file: %s", strerror(errno));
    int rc = elf_check(at, (size_t)st.st_size, ret);
    (void)munmap(at, (size_t)st.st_size);
    return rc;
}

/* Freeze the copy without what follows the last segment (debug information).  The content is frozen
 * before it is looked at, the size before it is believed. */
static int freeze_file(int fd, bool memory, struct elf_facts *ret)
{
    struct stat st;

    if (memory && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW) == -1)
        return err_set(-ENOTSUP, "memory cannot be sealed here: %s", strerror(errno));
    int rc = check_copy(fd, ret);
    if (rc < 0)
        return rc;
    (void)ftruncate(fd, (off_t)ret->used);
    if (memory && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == -1)
        return err_set(-ENOTSUP, "memory cannot be sealed here: %s", strerror(errno));
    if (fstat(fd, &st) == -1 || (uint64_t)st.st_size < ret->used)
        return err_set(-ESTALE, "the copy of the plugin was cut by somebody");
    return 0;
}

static int copy_into(int made, bool memory, int from, int *ret_fd, struct elf_facts *ret)
{
    off_t size;

    int rc = copy_file(from, made, &size);
    if (rc == 0)
        rc = freeze_file(made, memory, ret);
    if (rc == 0) {
        *ret_fd = made;
        return 0;
    }
    (void)close(made);
    return rc;
}

int seal_copy(int fd, const char *name, int *ret_fd, struct elf_facts *ret)
{
    if (is_sealed(fd) && can_execute(fd)) {
        int rc = check_copy(fd, ret);
        int copied = rc == 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
        if (rc == 0 && copied == -1)
            return err_set(-errno, "no descriptor for the plugin: %s", strerror(errno));
        *ret_fd = copied;
        return rc;
    }
    for (int memory = is_filtered() ? 0 : 1; memory >= 0; memory--) {
        int made = memory ? make_memory(fd, name) : make_file();
        if (made == -1)
            continue;
        int rc = ftruncate(made, 1) == 0 && can_execute(made)
                     ? copy_into(made, memory, fd, ret_fd, ret)
                     : (close(made), -ENOTSUP);
        if (rc != -ENOTSUP)
            return rc;
    }
    return err_set(-ENOTSUP,
                   "neither sealed memory nor a file without a name can be executed here");
}

/* Read, not mapped: it may be cut while we look. */
int seal_bytes(int fd, int64_t max, char **ret, size_t *ret_size, size_t *ret_room)
{
    off_t size;
    struct stat st;

    if (fstat(fd, &st) == -1 || st.st_size > max)
        return err_set(-ENOEXEC, "it is not a file that could be a plugin");
    size_t room = (size_t)st.st_size + 1;
    char *bytes = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return err_set(-ENOMEM, "no memory to look at the plugin's file");
    for (size = 0; size < st.st_size;) {
        ssize_t n = pread(fd, bytes + size, (size_t)(st.st_size - size), size);
        if (n <= 0)
            break;
        size += n;
    }
    *ret = bytes;
    *ret_size = (size_t)size;
    *ret_room = room;
    if (size > 0)
        return 0;
    (void)munmap(bytes, room);
    return err_set(-ENOEXEC, "it is empty; is it complete?");
}

int sealed_inspect(int fd, struct elf_facts *ret)
{
    char *bytes;
    size_t size, room;

    int rc = seal_bytes(fd, FILE_MAX_BYTES, &bytes, &size, &room);
    if (rc < 0)
        return rc;
    rc = elf_check(bytes, size, ret);
    (void)munmap(bytes, room);
    return rc;
}
