/* SPDX-License-Identifier: Apache-2.0
 *
 * core/compat/glibc.c - functions that glibc 2.17 did not have, so that we load there too.
 * Threads: any; each is as async-signal-safe as the system call below it.
 * Nobody calls these by name: a release build redirects calls of `stat` to `floor_stat` and so on
 * (scripts/tools/glibc_floor.py).  Answers are those of the real ones: -1 and errno.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436 /* the same on every architecture since Linux 5.9 */
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* Linux 5.3 */
#endif

/* glibc 2.35's struct dl_find_object, as far as the compiler's unwinder reads it. */
struct floor_object {
    unsigned long long flags;
    void *start;
    void *end;
    struct link_map *map;
    void *eh_frame_hdr;
    unsigned long long reserved[7];
};

typedef int find_object(void *pc, struct floor_object *ret_object);

static find_object *real_find_object; /* written once, before any other code of ours runs */

int floor__dl_find_object(void *pc, struct floor_object *ret_object);
int floor_fstatat(int dir, const char *path, struct stat *ret_st, int flags);
int floor_stat(const char *path, struct stat *ret_st);
int floor_lstat(const char *path, struct stat *ret_st);
int floor_fstat(int fd, struct stat *ret_st);
int floor_fstatat64(int dir, const char *path, struct stat *ret_st, int flags);
int floor_stat64(const char *path, struct stat *ret_st);
int floor_lstat64(const char *path, struct stat *ret_st);
int floor_fstat64(int fd, struct stat *ret_st);
int floor_gettid(void);
int floor_memfd_create(const char *name, unsigned flags);
int floor_close_range(unsigned first, unsigned last, int flags);
int floor_pidfd_open(int pid, unsigned flags);
ssize_t floor_getrandom(void *bytes, size_t n, unsigned flags);
ssize_t floor_copy_file_range(int in, int64_t *in_at, int out, int64_t *out_at, size_t n,
                              unsigned flags);
int floor_timer_create(clockid_t clock, struct sigevent *event, timer_t *ret_timer);
int floor_timer_settime(timer_t timer, int flags, const struct itimerspec *set,
                        struct itimerspec *ret_old);
int floor_timer_gettime(timer_t timer, struct itimerspec *ret_left);
int floor_timer_getoverrun(timer_t timer);
int floor_timer_delete(timer_t timer);
void *floor_reallocarray(void *old, size_t n, size_t size);
void floor_explicit_bzero(void *bytes, size_t n);

/* On the 64-bit systems we build for, the kernel's struct stat is libc's. */
int floor_fstatat(int dir, const char *path, struct stat *ret_st, int flags)
{
    return (int)syscall(SYS_newfstatat, dir, path, ret_st, flags);
}

int floor_stat(const char *path, struct stat *ret_st)
{
    return floor_fstatat(AT_FDCWD, path, ret_st, 0);
}

int floor_lstat(const char *path, struct stat *ret_st)
{
    return floor_fstatat(AT_FDCWD, path, ret_st, AT_SYMLINK_NOFOLLOW);
}

int floor_fstat(int fd, struct stat *ret_st)
{
    return (int)syscall(SYS_fstat, fd, ret_st);
}

int floor_fstatat64(int dir, const char *path, struct stat *ret_st, int flags)
{
    return floor_fstatat(dir, path, ret_st, flags);
}

int floor_stat64(const char *path, struct stat *ret_st)
{
    return floor_stat(path, ret_st);
}

int floor_lstat64(const char *path, struct stat *ret_st)
{
    return floor_lstat(path, ret_st);
}

int floor_fstat64(int fd, struct stat *ret_st)
{
    return floor_fstat(fd, ret_st);
}

int floor_gettid(void)
{
    return (int)syscall(SYS_gettid);
}

int floor_memfd_create(const char *name, unsigned flags)
{
    return (int)syscall(SYS_memfd_create, name, flags);
}

int floor_close_range(unsigned first, unsigned last, int flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

int floor_pidfd_open(int pid, unsigned flags)
{
    return (int)syscall(SYS_pidfd_open, pid, flags);
}

ssize_t floor_getrandom(void *bytes, size_t n, unsigned flags)
{
    return syscall(SYS_getrandom, bytes, n, flags);
}

ssize_t floor_copy_file_range(int in, int64_t *in_at, int out, int64_t *out_at, size_t n,
                              unsigned flags)
{
    return syscall(SYS_copy_file_range, in, in_at, out, out_at, n, flags);
}

/* Timers were in librt before glibc 2.34.  Straight to the kernel, they need no library more; what
 * is missing is SIGEV_THREAD, which nobody here wants. */
int floor_timer_create(clockid_t clock, struct sigevent *event, timer_t *ret_timer)
{
    int id = 0;
    if (event && event->sigev_notify == SIGEV_THREAD) {
        errno = ENOTSUP;
        return -1;
    }
    if (syscall(SYS_timer_create, clock, event, &id) == -1)
        return -1;
    *ret_timer = (timer_t)(intptr_t)id;
    return 0;
}

int floor_timer_settime(timer_t timer, int flags, const struct itimerspec *set,
                        struct itimerspec *ret_old)
{
    return (int)syscall(SYS_timer_settime, (int)(intptr_t)timer, flags, set, ret_old);
}

int floor_timer_gettime(timer_t timer, struct itimerspec *ret_left)
{
    return (int)syscall(SYS_timer_gettime, (int)(intptr_t)timer, ret_left);
}

int floor_timer_getoverrun(timer_t timer)
{
    return (int)syscall(SYS_timer_getoverrun, (int)(intptr_t)timer);
}

int floor_timer_delete(timer_t timer)
{
    return (int)syscall(SYS_timer_delete, (int)(intptr_t)timer);
}

void *floor_reallocarray(void *old, size_t n, size_t size)
{
    size_t whole;
    if (__builtin_mul_overflow(n, size, &whole)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(old, whole);
}

void floor_explicit_bzero(void *bytes, size_t n)
{
    memset(bytes, 0, n);
    __asm__ volatile("" : : "r"(bytes) : "memory"); /* the compiler must not see it unused */
}

/* libgcc_eh.a asks this for the unwind table of an address.  Where libc has it, it takes no lock,
 * which is why we hand through to it; the walk below is what older unwinders did anyway. */
__attribute__((constructor(101))) static void find_real_find_object(void)
{
    real_find_object = (find_object *)dlsym(RTLD_DEFAULT, "_dl_find_object");
}

struct search {
    uintptr_t pc;
    struct floor_object *ret_object;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *search = arg;
    uintptr_t table = 0;
    struct floor_object found = {0};
    (void)size;
    for (uint32_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_GNU_EH_FRAME)
            table = at;
        if (p->p_type == PT_LOAD && search->pc >= at && search->pc - at < p->p_memsz) {
            found.start = (void *)at;
            found.end = (void *)(at + p->p_memsz);
        }
    }
    if (!found.end || !table)
        return 0;
    found.eh_frame_hdr = (void *)table;
    *search->ret_object = found;
    return 1;
}

int floor__dl_find_object(void *pc, struct floor_object *ret_object)
{
    if (real_find_object)
        return real_find_object(pc, ret_object);
    struct search search = {.pc = (uintptr_t)pc, .ret_object = ret_object};
    return dl_iterate_phdr(look_at, &search) ? 0 : -1;
}
