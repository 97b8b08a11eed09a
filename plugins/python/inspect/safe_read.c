/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/safe_read.c - guarded reads of memory, ours or another process's, by the
 * kernel.
 *
 * Any thread.  A sandbox may filter process_vm_readv (older container profiles do): then
 * /proc/PID/mem is read, which needs no permission that we lack.
 *
 * Our own memory is read by process_vm_writev to ourselves: what is asked for is the side that the
 * kernel copies from directly, and our buffer the one whose pages it looks up and pins.  The other
 * way round it would do that for each piece: thirty pieces take 7 us then, and 1 us so.
 */
#include "inspect/safe_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/proc/proc_file.h"

#define PIECES 1024 /* a system call: IOV_MAX */
#define PAGE 4096

/* A forked child that wrote "to itself" by a pid it remembers would write into its parent.  So the
 * pid is kept where the kernel puts zeros for the child (Linux 4.14; before: as from afar). */
static const pid_t *keep_pid(pid_t pid)
{
    pid_t *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, PAGE, MADV_WIPEONFORK)) {
        (void)munmap(page, PAGE);
        return NULL;
    }
    *page = pid;
    return page;
}

static void forget_pid(struct peek *p)
{
    if (p->own)
        (void)munmap((void *)(uintptr_t)p->own, PAGE);
    p->own = NULL;
}

int peek_open(struct peek *p, pid_t pid, uint64_t known)
{
    int probe = 1, copy = 0;
    char path[PROC_PATH_BYTES];
    *p = (struct peek){.pid = pid ? pid : getpid(), .mem = -1};
    if (!known)
        known = (uint64_t)(uintptr_t)&probe;
    p->own = pid ? NULL : keep_pid(p->pid);
    if (p->own && peek_bytes(p, known, &copy, sizeof(copy)) == 0)
        return 0;
    forget_pid(p);
    if (peek_bytes(p, known, &copy, sizeof(copy)) == 0)
        return 0;
    proc_path(pid, 0, "mem", path);
    p->mem = open(path, O_RDONLY | O_CLOEXEC);
    if (p->mem == -1)
        return -errno;
    if (peek_bytes(p, known, &copy, sizeof(copy)) == 0)
        return 0;
    peek_close(p);
    return -EPERM;
}

void peek_close(struct peek *p)
{
    if (p->mem != -1)
        (void)close(p->mem);
    p->mem = -1;
    forget_pid(p);
}

static bool in_range(uint64_t address, size_t size)
{
    /* below: the first page is never mapped; above: user space ends, pread's offset is signed */
    return address >= 4096 && address < INT64_MAX - size;
}

/* At most PIECES of them; how many bytes. */
static size_t read_to(const struct peek *p, const struct iovec *from, size_t n,
                      const struct iovec *to, size_t n_to)
{
    /* the bare calls: a sanitizer's own would take freed memory for a mistake of ours */
    int64_t got = p->own ? syscall(SYS_process_vm_writev, *p->own, from, n, to, n_to, 0ul)
                         : syscall(SYS_process_vm_readv, p->pid, to, n_to, from, n, 0ul);
    return got > 0 ? (size_t)got : 0;
}

static size_t read_some(const struct peek *p, const struct iovec *from, size_t n, void *ret,
                        size_t size)
{
    struct iovec to = {ret, size};
    return read_to(p, from, n, &to, 1);
}

size_t peek_both(const struct peek *p, const struct iovec *pieces, size_t n,
                 const struct iovec to[2])
{
    return p->mem == -1 ? read_to(p, pieces, n, to, to[1].iov_len ? 2 : 1) : 0;
}

size_t peek_some(const struct peek *p, uint64_t address, void *ret, size_t size)
{
    struct iovec from = peek_piece(address, size);
    if (!in_range(address, size))
        return 0;
    if (p->mem != -1) {
        ssize_t n = pread(p->mem, ret, size, (off_t)address);
        return n > 0 ? (size_t)n : 0;
    }
    return read_some(p, &from, 1, ret, size);
}

int peek_bytes(const struct peek *p, uint64_t address, void *ret, size_t size)
{
    return peek_some(p, address, ret, size) == size ? 0 : -EFAULT;
}

size_t peek_pieces(const struct peek *p, const struct iovec *pieces, size_t n, uint8_t *to)
{
    size_t got = 0;
    for (size_t done = 0; done < n;) {
        size_t some = 0, want = 0;
        while (some < PIECES && done + some < n && (p->mem == -1 || some == 0) &&
               in_range(address_of(pieces[done + some].iov_base), pieces[done + some].iov_len))
            want += pieces[done + some++].iov_len;
        if (!some)
            return got; /* no address */
        size_t now = p->mem != -1 ? peek_some(p, address_of(pieces[done].iov_base), to + got, want)
                                  : read_some(p, pieces + done, some, to + got, want);
        got += now;
        done += some;
        if (now != want)
            return got;
    }
    return got;
}
