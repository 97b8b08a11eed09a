/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/hook/wrappers.c - our functions before malloc() and its family: what each program
 * thread runs at each allocation.
 *
 * The common path is a subtraction or a byte's look-up and a jump: what is left goes through a
 * second, cold function that the first one jumps to, so its frame is the one that the program
 * called.  No lock, no allocation, errno untouched.
 */
#include "wrappers.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "count.h"

/* The function behind a wrapper, by the wrapper's type. */
#define REAL(fn) ((__typeof__(&fn))atomic_load_explicit(&real_##fn, memory_order_relaxed))
#define BEHIND(fn) static _Atomic uintptr_t real_##fn

/* ---- malloc ---- */

static void *wrap_malloc(size_t n);
static void *wrap_calloc(size_t count, size_t n);
static void *wrap_realloc(void *p, size_t n);
static void *wrap_reallocarray(void *p, size_t count, size_t n);
static void wrap_free(void *p);
static void wrap_free_sized(void *p, size_t n);
static void wrap_free_aligned_sized(void *p, size_t align, size_t n);
static int wrap_posix_memalign(void **ret, size_t align, size_t n);
static void *wrap_memalign(size_t align, size_t n); /* aligned_alloc() too */
static void *wrap_aligned_alloc(size_t align, size_t n);
static void *wrap_valloc(size_t n);
static void *wrap_pvalloc(size_t n);
static void wrap_cfree(void *p);
BEHIND(wrap_malloc);
BEHIND(wrap_calloc);
BEHIND(wrap_realloc);
BEHIND(wrap_reallocarray);
BEHIND(wrap_free);
BEHIND(wrap_free_sized);
BEHIND(wrap_free_aligned_sized);
BEHIND(wrap_posix_memalign);
BEHIND(wrap_memalign);
BEHIND(wrap_aligned_alloc);
BEHIND(wrap_valloc);
BEHIND(wrap_pvalloc);
BEHIND(wrap_cfree);

COLD void *malloc_due(size_t n)
{
    void *p = REAL(wrap_malloc)(n);
    if (p)
        memory_allocated(p, n, MEMORY_MALLOC, FRAME);
    return p;
}

static void *wrap_malloc(size_t n)
{
    return not_due(n) ? REAL(wrap_malloc)(n) : malloc_due(n);
}

COLD void *calloc_due(size_t count, size_t n)
{
    void *p = REAL(wrap_calloc)(count, n);
    if (p)
        memory_allocated(p, count * n, MEMORY_MALLOC, FRAME);
    return p;
}

static void *wrap_calloc(size_t count, size_t n)
{
    size_t all;
    bool common = !__builtin_mul_overflow(count, n, &all) && not_due(all);
    return common ? REAL(wrap_calloc)(count, n) : calloc_due(count, n);
}

COLD void *realloc_due(void *p, size_t n)
{
    uint32_t moving = before_resize(p);
    void *q = REAL(wrap_realloc)(p, n);
    resized(p, moving, q, n);
    if (q)
        memory_allocated(q, n, MEMORY_MALLOC, FRAME);
    return q;
}

static void *wrap_realloc(void *p, size_t n)
{
    return !memory_is_sampled(p) && not_due(n) ? REAL(wrap_realloc)(p, n) : realloc_due(p, n);
}

static void *wrap_reallocarray(void *p, size_t count, size_t n)
{
    uint32_t moving = before_resize(p);
    void *q = REAL(wrap_reallocarray)(p, count, n);
    resized(p, moving, q, count * n);
    if (q)
        memory_allocated(q, count * n, MEMORY_MALLOC, FRAME);
    return q;
}

static void wrap_free(void *p)
{
    going(p);
    REAL(wrap_free)(p);
}

static void wrap_free_sized(void *p, size_t n)
{
    going(p);
    REAL(wrap_free_sized)(p, n);
}

static void wrap_free_aligned_sized(void *p, size_t align, size_t n)
{
    going(p);
    REAL(wrap_free_aligned_sized)(p, align, n);
}

static void wrap_cfree(void *p)
{
    going(p);
    REAL(wrap_cfree)(p);
}

static int wrap_posix_memalign(void **ret, size_t align, size_t n)
{
    int rc = REAL(wrap_posix_memalign)(ret, align, n);
    if (rc == 0 && *ret)
        memory_allocated(*ret, n, MEMORY_MALLOC, FRAME);
    return rc;
}

static void *wrap_memalign(size_t align, size_t n)
{
    void *p = REAL(wrap_memalign)(align, n);
    if (p)
        memory_allocated(p, n, MEMORY_MALLOC, FRAME);
    return p;
}

static void *wrap_aligned_alloc(size_t align, size_t n)
{
    void *p = REAL(wrap_aligned_alloc)(align, n);
    if (p)
        memory_allocated(p, n, MEMORY_MALLOC, FRAME);
    return p;
}

static void *wrap_valloc(size_t n)
{
    void *p = REAL(wrap_valloc)(n);
    if (p)
        memory_allocated(p, n, MEMORY_MALLOC, FRAME);
    return p;
}

static void *wrap_pvalloc(size_t n)
{
    void *p = REAL(wrap_pvalloc)(n);
    if (p)
        memory_allocated(p, n, MEMORY_MALLOC, FRAME);
    return p;
}

/* ---- operator new and delete: names as C++ compilers write them ---- */

/* An exception of theirs goes through our frame, which has nothing to undo. */
#define NEW(name, parameters, arguments)                                      \
    static void *wrap##name parameters;                                       \
    BEHIND(wrap##name);                                                       \
    COLD void *due##name parameters                                           \
    {                                                                         \
        void *p = REAL(wrap##name) arguments;                                 \
        if (p)                                                                \
            memory_allocated(p, n, MEMORY_MALLOC, FRAME);                     \
        return p;                                                             \
    }                                                                         \
    static void *wrap##name parameters                                        \
    {                                                                         \
        return not_due(n) ? REAL(wrap##name) arguments : due##name arguments; \
    }

#define DELETE(name, parameters, arguments) \
    static void wrap##name parameters;      \
    BEHIND(wrap##name);                     \
    static void wrap##name parameters       \
    {                                       \
        going(p);                           \
        REAL(wrap##name) arguments;         \
    }

typedef const void *nothrow; /* a reference to std::nothrow */

NEW(_Znwm, (size_t n), (n))
NEW(_Znam, (size_t n), (n))
NEW(_ZnwmRKSt9nothrow_t, (size_t n, nothrow t), (n, t))
NEW(_ZnamRKSt9nothrow_t, (size_t n, nothrow t), (n, t))
NEW(_ZnwmSt11align_val_t, (size_t n, size_t align), (n, align))
NEW(_ZnamSt11align_val_t, (size_t n, size_t align), (n, align))
NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t n, size_t align, nothrow t), (n, align, t))
NEW(_ZnamSt11align_val_tRKSt9nothrow_t, (size_t n, size_t align, nothrow t), (n, align, t))
DELETE(_ZdlPv, (void *p), (p))
DELETE(_ZdaPv, (void *p), (p))
DELETE(_ZdlPvm, (void *p, size_t n), (p, n))
DELETE(_ZdaPvm, (void *p, size_t n), (p, n))
DELETE(_ZdlPvRKSt9nothrow_t, (void *p, nothrow t), (p, t))
DELETE(_ZdaPvRKSt9nothrow_t, (void *p, nothrow t), (p, t))
DELETE(_ZdlPvSt11align_val_t, (void *p, size_t align), (p, align))
DELETE(_ZdaPvSt11align_val_t, (void *p, size_t align), (p, align))
DELETE(_ZdlPvmSt11align_val_t, (void *p, size_t n, size_t align), (p, n, align))
DELETE(_ZdaPvmSt11align_val_t, (void *p, size_t n, size_t align), (p, n, align))
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, (void *p, size_t align, nothrow t), (p, align, t))
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, (void *p, size_t align, nothrow t), (p, align, t))

/* ---- mappings ---- */

static void *wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
static void *wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset);
static int wrap_munmap(void *p, size_t n);
static void *wrap_mremap(void *p, size_t old, size_t n, int flags, ...);
BEHIND(wrap_mmap);
BEHIND(wrap_mmap64);
BEHIND(wrap_munmap);
BEHIND(wrap_mremap);

/* Memory of its own that may be written.  Address space that is only reserved is no memory yet, and
 * a file's pages are the page cache's; what is mapped for a pool whose blocks are counted
 * themselves is not counted twice. */
static inline bool is_memory(int prot, int flags)
{
    return flags & MAP_ANONYMOUS && prot & PROT_WRITE && !memory_thread.inside;
}

static inline void count_mapping(void *p, size_t n, int prot, int flags, const void *frame)
{
    if (p != MAP_FAILED && is_memory(prot, flags))
        memory_allocated(p, n, MEMORY_MMAP, frame);
}

/* MAP_FIXED takes away what is there. */
static inline void is_replacing(void *at, int flags)
{
    if (flags & MAP_FIXED && (flags & MAP_FIXED_NOREPLACE) != MAP_FIXED_NOREPLACE)
        going(at);
}

static void *wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    is_replacing(at, flags);
    void *p = REAL(wrap_mmap)(at, n, prot, flags, fd, offset);
    count_mapping(p, n, prot, flags, FRAME);
    return p;
}

static void *wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    is_replacing(at, flags);
    void *p = REAL(wrap_mmap64)(at, n, prot, flags, fd, offset);
    count_mapping(p, n, prot, flags, FRAME);
    return p;
}

static int wrap_munmap(void *p, size_t n)
{
    going(p);
    return REAL(wrap_munmap)(p, n);
}

static void *wrap_mremap(void *p, size_t old, size_t n, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    uint32_t moving = before_resize(p);
    if (to)
        going(to);
    void *q = REAL(wrap_mremap)(p, old, n, flags, to);
    if (q == MAP_FAILED) {
        if (moving)
            memory_unmoved(p, moving);
        return q;
    }
    if (moving)
        memory_moved(moving);
    size_t counted = moving ? 0 : old; /* the rest of it was when it was mapped, sampled or not */
    if (n > counted)
        memory_allocated(q, n - counted, MEMORY_MMAP, FRAME);
    return q;
}

/* ---- dlsym ---- */

/* The real one asks who called it, so it is jumped to with the caller's own return address, after
 * on_lookup() has had its turn.  dlopen() asks as well, and cannot be waited for in this way. */
static _Atomic uintptr_t real_dlsym __attribute__((used)), real_dlvsym __attribute__((used));
static _Atomic(void (*)(void)) on_lookup;
static void before_lookup(void) __attribute__((used));

static void before_lookup(void)
{
    void (*fn)(void) = atomic_load_explicit(&on_lookup, memory_order_acquire);
    int saved = errno;
    if (fn)
        fn();
    errno = saved;
}

void wrappers_on_lookup(void (*fn)(void))
{
    atomic_store_explicit(&on_lookup, fn, memory_order_release);
}

void wrap_dlsym(void) __attribute__((visibility("hidden")));
void wrap_dlvsym(void) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
#define LOOKUP(name)                                                                 \
    __asm__(".pushsection .text\n"                                                   \
            ".hidden wrap_" name "\n.type wrap_" name ",@function\nwrap_" name ":\n" \
            ".cfi_startproc\n"                                                       \
            "endbr64\n"                                                              \
            "push %rdi\n.cfi_adjust_cfa_offset 8\n"                                  \
            "push %rsi\n.cfi_adjust_cfa_offset 8\n"                                  \
            "push %rdx\n.cfi_adjust_cfa_offset 8\n"                                  \
            "call before_lookup\n"                                                   \
            "pop %rdx\n.cfi_adjust_cfa_offset -8\n"                                  \
            "pop %rsi\n.cfi_adjust_cfa_offset -8\n"                                  \
            "pop %rdi\n.cfi_adjust_cfa_offset -8\n"                                  \
            "jmp *real_" name "(%rip)\n"                                             \
            ".cfi_endproc\n"                                                         \
            ".size wrap_" name ",.-wrap_" name "\n.popsection\n")
#else
#define LOOKUP(name)                                                                 \
    __asm__(".pushsection .text\n.balign 4\n"                                        \
            ".hidden wrap_" name "\n.type wrap_" name ",%function\nwrap_" name ":\n" \
            ".cfi_startproc\n"                                                       \
            "hint #34\n" /* bti c */                                                 \
            "stp x29, x30, [sp, #-48]!\n"                                            \
            ".cfi_def_cfa_offset 48\n.cfi_offset 29, -48\n.cfi_offset 30, -40\n"     \
            "mov x29, sp\n"                                                          \
            "stp x0, x1, [sp, #16]\n"                                                \
            "str x2, [sp, #32]\n"                                                    \
            "bl before_lookup\n"                                                     \
            "ldr x2, [sp, #32]\n"                                                    \
            "ldp x0, x1, [sp, #16]\n"                                                \
            "ldp x29, x30, [sp], #48\n"                                              \
            ".cfi_restore 29\n.cfi_restore 30\n.cfi_def_cfa_offset 0\n"              \
            "adrp x16, real_" name "\n"                                              \
            "ldr x16, [x16, :lo12:real_" name "]\n"                                  \
            "br x16\n"                                                               \
            ".cfi_endproc\n"                                                         \
            ".size wrap_" name ",.-wrap_" name "\n.popsection\n")
#endif
LOOKUP("dlsym");
LOOKUP("dlvsym");

/* ---- all of them ---- */

#define WRAPPER(name, fn, kind)               \
    {                                         \
        name, (uintptr_t)fn, &real_##fn, kind \
    }
#define CPLUSPLUS(name) WRAPPER(#name, wrap##name, WRAPS_CPLUSPLUS)

const struct wrapper wrappers[] = {
    WRAPPER("malloc", wrap_malloc, WRAPS_ALLOCATOR),
    WRAPPER("free", wrap_free, WRAPS_ALLOCATOR),
    WRAPPER("calloc", wrap_calloc, WRAPS_ALLOCATOR),
    WRAPPER("realloc", wrap_realloc, WRAPS_ALLOCATOR),
    WRAPPER("reallocarray", wrap_reallocarray, WRAPS_REPEATED),
    WRAPPER("posix_memalign", wrap_posix_memalign, WRAPS_ALLOCATOR),
    WRAPPER("aligned_alloc", wrap_aligned_alloc, WRAPS_ALLOCATOR),
    WRAPPER("memalign", wrap_memalign, WRAPS_ALLOCATOR),
    WRAPPER("valloc", wrap_valloc, WRAPS_ALLOCATOR),
    WRAPPER("pvalloc", wrap_pvalloc, WRAPS_ALLOCATOR),
    WRAPPER("cfree", wrap_cfree, WRAPS_ALLOCATOR),
    WRAPPER("free_sized", wrap_free_sized, WRAPS_ALLOCATOR),
    WRAPPER("free_aligned_sized", wrap_free_aligned_sized, WRAPS_ALLOCATOR),
    CPLUSPLUS(_Znwm),
    CPLUSPLUS(_Znam),
    CPLUSPLUS(_ZnwmRKSt9nothrow_t),
    CPLUSPLUS(_ZnamRKSt9nothrow_t),
    CPLUSPLUS(_ZnwmSt11align_val_t),
    CPLUSPLUS(_ZnamSt11align_val_t),
    CPLUSPLUS(_ZnwmSt11align_val_tRKSt9nothrow_t),
    CPLUSPLUS(_ZnamSt11align_val_tRKSt9nothrow_t),
    CPLUSPLUS(_ZdlPv),
    CPLUSPLUS(_ZdaPv),
    CPLUSPLUS(_ZdlPvm),
    CPLUSPLUS(_ZdaPvm),
    CPLUSPLUS(_ZdlPvRKSt9nothrow_t),
    CPLUSPLUS(_ZdaPvRKSt9nothrow_t),
    CPLUSPLUS(_ZdlPvSt11align_val_t),
    CPLUSPLUS(_ZdaPvSt11align_val_t),
    CPLUSPLUS(_ZdlPvmSt11align_val_t),
    CPLUSPLUS(_ZdaPvmSt11align_val_t),
    CPLUSPLUS(_ZdlPvSt11align_val_tRKSt9nothrow_t),
    CPLUSPLUS(_ZdaPvSt11align_val_tRKSt9nothrow_t),
    WRAPPER("mmap", wrap_mmap, WRAPS_MAPPING),
    WRAPPER("mmap64", wrap_mmap64, WRAPS_MAPPING),
    WRAPPER("munmap", wrap_munmap, WRAPS_MAPPING),
    WRAPPER("mremap", wrap_mremap, WRAPS_MAPPING),
    {"dlsym", (uintptr_t)wrap_dlsym, &real_dlsym, WRAPS_LOADER},
    {"dlvsym", (uintptr_t)wrap_dlvsym, &real_dlvsym, WRAPS_LOADER},
};
const uint32_t wrappers_n = sizeof(wrappers) / sizeof(wrappers[0]);
