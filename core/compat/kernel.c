/* SPDX-License-Identifier: Apache-2.0
 *
 * core/compat/kernel.c - what we measure by, asked of the kernel and not of libc.
 *
 * A library that is preloaded may stand before libc's functions: libfaketime sets clocks and makes
 * them run faster, others answer for files.  The program is to see that; what we say of it is to
 * be true.  Calls of `clock_gettime` in what a release links become `kernel_clock_gettime`, and so
 * on, those of libraries in it too (scripts/tools/glibc_floor.py).  Answers are those of libc: -1
 * and errno.  Each makes the system call that libc makes, and none is a cancellation point.
 *
 * Threads: any; async-signal-safe, but for the two that wait for a lock.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_US 1000
#define US_PER_S 1000000

typedef int clock_reader(clockid_t clock, struct timespec *ret); /* 0 or -errno */
typedef int cond_waiter(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
typedef int lock_waiter(pthread_rwlock_t *lock, const struct timespec *until);

int kernel_clock_gettime(clockid_t clock, struct timespec *ret);
int kernel_clock_getres(clockid_t clock, struct timespec *ret);
int kernel_gettimeofday(struct timeval *ret, void *zone);
time_t kernel_time(time_t *ret);
clock_t kernel_clock(void);
int kernel_nanosleep(const struct timespec *time, struct timespec *ret_left);
unsigned kernel_alarm(unsigned seconds);
int kernel_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int kernel_getrusage(int who, struct rusage *ret);
int kernel_getrlimit(int resource, struct rlimit *ret);
int kernel_utimensat(int dir, const char *path, const struct timespec times[2], int flags);
int kernel_statfs(const char *path, struct statfs *ret);
int kernel_fstatfs(int fd, struct statfs *ret);
int kernel_open(const char *path, int flags, ...);
int kernel_open64(const char *path, int flags, ...);
int kernel_openat(int dir, const char *path, int flags, ...);
ssize_t kernel_read(int fd, void *bytes, size_t n);
ssize_t kernel_pread(int fd, void *bytes, size_t n, off_t at);
ssize_t kernel_pread64(int fd, void *bytes, size_t n, off_t at);
ssize_t kernel_readlink(const char *path, char *ret, size_t size);
ssize_t kernel_readlinkat(int dir, const char *path, char *ret, size_t size);
ssize_t kernel_process_vm_readv(pid_t pid, const struct iovec *own, unsigned long n_own,
                                const struct iovec *theirs, unsigned long n, unsigned long flags);
int kernel_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until);
int kernel_pthread_rwlock_timedrdlock(pthread_rwlock_t *lock, const struct timespec *until);

/* ---- system calls ---- */

#if defined(__x86_64__)
static long call_kernel(long number, const long a[6])
{
    long result;
    register long d __asm__("r10") = a[3], e __asm__("r8") = a[4], f __asm__("r9") = a[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(d), "r"(e), "r"(f)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static long call_kernel(long number, const long a[6])
{
    register long n __asm__("x8") = number, x0 __asm__("x0") = a[0], x1 __asm__("x1") = a[1];
    register long x2 __asm__("x2") = a[2], x3 __asm__("x3") = a[3], x4 __asm__("x4") = a[4];
    register long x5 __asm__("x5") = a[5];
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(n), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#error "no system calls for this processor"
#endif

static long set_errno(long result)
{
    if (result >= 0 || result < -4095)
        return result;
    errno = (int)-result;
    return -1;
}

long kernel_syscall(long number, ...);
long kernel_syscall(long number, ...)
{
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    return set_errno(call_kernel(number, a));
}

#define CALL(number, ...) kernel_call(number, (const long[6]){__VA_ARGS__})

static long kernel_call(long number, const long a[6])
{
    return set_errno(call_kernel(number, a));
}

static long pointer_word(const void *pointer)
{
    return (long)(intptr_t)pointer;
}

/* ---- clocks: by the vdso, as libc does ---- */

static int ask_kernel(clockid_t clock, struct timespec *ret)
{
    return (int)call_kernel(SYS_clock_gettime, (const long[6]){clock, pointer_word(ret)});
}

struct vdso {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *hash, *gnu_hash;
};

/* false: the kernel has given none, or it is not whole. */
static bool vdso_read(struct vdso *v)
{
    const char *start = (const char *)getauxval(AT_SYSINFO_EHDR);
    const ElfW(Ehdr) *head = (const void *)start;
    const ElfW(Dyn) *d = NULL;
    if (!start || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0)
        return false;
    const ElfW(Phdr) *p = (const void *)(start + head->e_phoff);
    for (const ElfW(Phdr) *end = p + head->e_phnum; p < end; p++) {
        if (p->p_type == PT_LOAD && !v->base)
            v->base = (uintptr_t)start + p->p_offset - p->p_vaddr;
        if (p->p_type == PT_DYNAMIC)
            d = (const void *)(start + p->p_offset);
    }
    for (; v->base && d && d->d_tag != DT_NULL; d++) {
        const void *at = (const void *)(v->base + d->d_un.d_ptr);
        v->symbols = d->d_tag == DT_SYMTAB ? at : v->symbols;
        v->strings = d->d_tag == DT_STRTAB ? at : v->strings;
        v->hash = d->d_tag == DT_HASH ? at : v->hash;
        v->gnu_hash = d->d_tag == DT_GNU_HASH ? at : v->gnu_hash;
    }
    return v->symbols && v->strings && (v->hash || v->gnu_hash);
}

/* GNU's table has buckets of chains, and says nothing of how many symbols there are. */
static uint32_t vdso_symbols(const struct vdso *v)
{
    if (v->hash)
        return v->hash[1];
    const uint32_t *h = v->gnu_hash, *buckets = h + 4 + h[2] * (sizeof(ElfW(Addr)) / sizeof(*h));
    const uint32_t *chains = buckets + h[0];
    uint32_t last = 0;
    for (uint32_t i = 0; i < h[0]; i++)
        last = buckets[i] > last ? buckets[i] : last;
    if (last < h[1])
        return 0;
    while (!(chains[last - h[1]] & 1))
        last++;
    return last + 1;
}

/* The names are those of x86-64 and aarch64. */
static clock_reader *find_in_vdso(const char *name, const char *or_name, clock_reader *otherwise)
{
    struct vdso v = {0};
    uint32_t n = vdso_read(&v) ? vdso_symbols(&v) : 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *own = v.strings + v.symbols[i].st_name;
        if (v.symbols[i].st_shndx != SHN_UNDEF &&
            (strcmp(own, name) == 0 || strcmp(own, or_name) == 0))
            return (clock_reader *)(v.base + v.symbols[i].st_value);
    }
    return otherwise;
}

static int find_and_ask(clockid_t clock, struct timespec *ret);

static _Atomic(clock_reader *) reader = find_and_ask;

static int find_and_ask(clockid_t clock, struct timespec *ret)
{
    clock_reader *found =
        find_in_vdso("__vdso_clock_gettime", "__kernel_clock_gettime", ask_kernel);
    atomic_store_explicit(&reader, found, memory_order_relaxed);
    return found(clock, ret);
}

static int clock_answer(int result)
{
    if (result == 0)
        return 0;
    errno = -result;
    return -1;
}

int kernel_clock_gettime(clockid_t clock, struct timespec *ret)
{
    return clock_answer(atomic_load_explicit(&reader, memory_order_relaxed)(clock, ret));
}

static int ask_resolution(clockid_t clock, struct timespec *ret)
{
    return (int)call_kernel(SYS_clock_getres, (const long[6]){clock, pointer_word(ret)});
}

int kernel_clock_getres(clockid_t clock, struct timespec *ret)
{
    return clock_answer(
        find_in_vdso("__vdso_clock_getres", "__kernel_clock_getres", ask_resolution)(clock, ret));
}

int kernel_gettimeofday(struct timeval *ret, void *zone)
{
    struct timespec t = {0};
    int result = kernel_clock_gettime(CLOCK_REALTIME, &t);
    *ret = (struct timeval){t.tv_sec, t.tv_nsec / NS_PER_US};
    if (zone)
        memset(zone, 0, sizeof(struct timezone));
    return result;
}

time_t kernel_time(time_t *ret)
{
    struct timespec t = {0};
    (void)kernel_clock_gettime(CLOCK_REALTIME, &t);
    if (ret)
        *ret = t.tv_sec;
    return t.tv_sec;
}

clock_t kernel_clock(void)
{
    struct timespec t;
    if (kernel_clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == -1)
        return -1;
    return (clock_t)(t.tv_sec * US_PER_S + t.tv_nsec / NS_PER_US); /* CLOCKS_PER_SEC is 10^6 */
}

/* ---- waits ---- */

int kernel_nanosleep(const struct timespec *time, struct timespec *ret_left)
{
    return (int)CALL(SYS_nanosleep, pointer_word(time), pointer_word(ret_left));
}

unsigned kernel_alarm(unsigned seconds)
{
    struct itimerval set = {.it_value.tv_sec = seconds}, old = {0};
    (void)CALL(SYS_setitimer, ITIMER_REAL, pointer_word(&set), pointer_word(&old));
    return (unsigned)(old.it_value.tv_sec + (old.it_value.tv_usec > 0));
}

int kernel_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
#ifdef SYS_poll
    return (int)CALL(SYS_poll, pointer_word(fds), (long)n, timeout_ms);
#else
    struct timespec t = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    return (int)CALL(SYS_ppoll, pointer_word(fds), (long)n, timeout_ms < 0 ? 0 : pointer_word(&t),
                     0, 0);
#endif
}

/* The addresses of libc's own waits; only libc knows how its locks look inside. */
static void *find_in_libc(const char *name)
{
    static const char *const libraries[] = {"libc.so.6", "libpthread.so.0"}; /* before 2.34 */
    void *found = NULL;
    for (int i = 0; i < 2 && !found; i++) {
        void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        found = library ? dlsym(library, name) : NULL;
    }
    return found ? found : dlsym(RTLD_DEFAULT, name);
}

static _Atomic(cond_waiter *) wait_for_cond;
static _Atomic(lock_waiter *) wait_for_lock;

/* Before anybody waits with a lock held that the dynamic linker's user may want. */
__attribute__((constructor(101))) static void find_waits(void)
{
    void *cond = find_in_libc("pthread_cond_timedwait");
    void *lock = find_in_libc("pthread_rwlock_timedrdlock");
    atomic_store_explicit(&wait_for_cond, (cond_waiter *)cond, memory_order_release);
    atomic_store_explicit(&wait_for_lock, (lock_waiter *)lock, memory_order_release);
}

int kernel_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    if (!atomic_load_explicit(&wait_for_cond, memory_order_acquire))
        find_waits(); /* linked without constructors: the client's library */
    return atomic_load_explicit(&wait_for_cond, memory_order_acquire)(cond, mutex, until);
}

int kernel_pthread_rwlock_timedrdlock(pthread_rwlock_t *lock, const struct timespec *until)
{
    if (!atomic_load_explicit(&wait_for_lock, memory_order_acquire))
        find_waits();
    return atomic_load_explicit(&wait_for_lock, memory_order_acquire)(lock, until);
}

/* ---- the process and its files ---- */

int kernel_getrusage(int who, struct rusage *ret)
{
    return (int)CALL(SYS_getrusage, who, pointer_word(ret));
}

int kernel_getrlimit(int resource, struct rlimit *ret)
{
    return (int)CALL(SYS_prlimit64, 0, resource, 0, pointer_word(ret));
}

int kernel_utimensat(int dir, const char *path, const struct timespec times[2], int flags)
{
    return (int)CALL(SYS_utimensat, dir, pointer_word(path), pointer_word(times), flags);
}

int kernel_statfs(const char *path, struct statfs *ret)
{
    return (int)CALL(SYS_statfs, pointer_word(path), pointer_word(ret));
}

int kernel_fstatfs(int fd, struct statfs *ret)
{
    return (int)CALL(SYS_fstatfs, fd, pointer_word(ret));
}

int kernel_openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    unsigned mode =
        flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, unsigned) : 0;
    va_end(args);
    return (int)CALL(SYS_openat, dir, pointer_word(path), flags, mode);
}

int kernel_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    unsigned mode =
        flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, unsigned) : 0;
    va_end(args);
    return kernel_openat(AT_FDCWD, path, flags, mode);
}

int kernel_open64(const char *path, int flags, ...) __attribute__((alias("kernel_open")));

ssize_t kernel_read(int fd, void *bytes, size_t n)
{
    return CALL(SYS_read, fd, pointer_word(bytes), (long)n);
}

ssize_t kernel_pread(int fd, void *bytes, size_t n, off_t at)
{
    return CALL(SYS_pread64, fd, pointer_word(bytes), (long)n, at);
}

ssize_t kernel_pread64(int fd, void *bytes, size_t n, off_t at)
{
    return kernel_pread(fd, bytes, n, at);
}

ssize_t kernel_readlinkat(int dir, const char *path, char *ret, size_t size)
{
    return CALL(SYS_readlinkat, dir, pointer_word(path), pointer_word(ret), (long)size);
}

ssize_t kernel_readlink(const char *path, char *ret, size_t size)
{
#ifdef SYS_readlink
    return CALL(SYS_readlink, pointer_word(path), pointer_word(ret), (long)size);
#else
    return kernel_readlinkat(AT_FDCWD, path, ret, size);
#endif
}

ssize_t kernel_process_vm_readv(pid_t pid, const struct iovec *own, unsigned long n_own,
                                const struct iovec *theirs, unsigned long n, unsigned long flags)
{
    return CALL(SYS_process_vm_readv, pid, pointer_word(own), (long)n_own, pointer_word(theirs),
                (long)n, (long)flags);
}
