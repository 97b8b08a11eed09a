/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/many/stand_in/other_clock.c - another machine's wall clock, preloaded into a process of
 * this one: OTHER_CLOCK_NS further than ours.  Any thread.
 *
 * A function that stands before libc's is not enough: probing asks the vdso.  So the function in
 * there, of which each process has a copy when it writes to it, jumps here.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#define PAGE_BYTES 4096
#define VDSO_MOST (16 * PAGE_BYTES) /* it has two pages today */
#define SHOWN __attribute__((visibility("default")))

static long long ahead;

/* 0 or -errno, as in the vdso. */
static int other_clock(clockid_t clock, struct timespec *t)
{
    if (syscall(SYS_clock_gettime, clock, t) == -1)
        return -errno;
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return 0;
    long long ns = (long long)t->tv_sec * NS_PER_S + t->tv_nsec + ahead;
    t->tv_sec = (time_t)(ns / NS_PER_S);
    t->tv_nsec = (long)(ns % NS_PER_S);
    return 0;
}

#if defined(__x86_64__)
#define NAME "__vdso_clock_gettime"
static const unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
#define ADDRESS 2 /* mov $address, %rax; jmp *%rax */
#elif defined(__aarch64__)
#define NAME "__kernel_clock_gettime"
static const unsigned char jump[] = {0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0};
#define ADDRESS 8 /* ldr x16, 8; br x16 */
#endif

/* The mapping cannot be split, so all of it is to be made writable at once. */
static void open_vdso(void)
{
    uintptr_t start = getauxval(AT_SYSINFO_EHDR);
    size_t size = PAGE_BYTES;
    while (mprotect((void *)start, size, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        if ((size += PAGE_BYTES) > VDSO_MOST)
            abort(); /* the test would measure nothing */
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("OTHER_CLOCK_NS");
    void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    char *at = vdso ? dlsym(vdso, NAME) : NULL;
    uintptr_t address = (uintptr_t)other_clock;
    ahead = text ? atoll(text) : 0;
    if (!at)
        abort();
    open_vdso();
    memcpy(at, jump, sizeof(jump));
    memcpy(at + ADDRESS, &address, sizeof(address));
    __builtin___clear_cache(at, at + sizeof(jump));
}

SHOWN int gettimeofday(struct timeval *t, void *zone)
{
    struct timespec now;
    (void)zone;
    int rc = clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return rc;
}

SHOWN time_t time(time_t *ret)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}
