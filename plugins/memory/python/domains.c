/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/python/domains.c - PyMem_SetAllocator() with functions that count and pass on.
 *
 * In and out on the control thread; the functions on any thread that allocates for Python.  Other
 * threads call through the structure while it is written, and no lock of ours can stop them.  So
 * the context in it stays as it is and only functions change: each old or new one works with it.
 */
#include "domains.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpython.h"
#include "hook/count.h"
#include "lib/proc/environ_now.h"
#include "lib/proc/proc_file.h"

#define ENVIRONMENT_BYTES ((size_t)8 << 20) /* Linux gives a program 6 MiB at most */
#define SMALL ((size_t)512) /* bytes: SMALL_REQUEST_THRESHOLD of obmalloc.c, 3.8 to 3.15 */

enum { DOMAIN_RAW = 0, DOMAIN_MEM = 1, DOMAIN_OBJ = 2 }; /* PyMemAllocatorDomain */

struct py_allocator { /* PyMemAllocatorEx */
    void *ctx;
    void *(*malloc)(void *ctx, size_t n);
    void *(*calloc)(void *ctx, size_t count, size_t n);
    void *(*realloc)(void *ctx, void *p, size_t n);
    void (*free)(void *ctx, void *p);
};

struct py_arenas { /* PyObjectArenaAllocator */
    void *ctx;
    void *(*alloc)(void *ctx, size_t n);
    void (*free)(void *ctx, void *p, size_t n);
};

/* The allocators behind us; set once before we are in, kept for ever, as somebody may have put his
 * own functions before ours and goes on calling us. */
static struct py_allocator mem, obj;
static struct py_arenas arenas;

/* ---- the functions; not_due() first, as in hook/wrappers.c ---- */

#define DOMAIN(name)                                                                      \
    COLD void *name##_malloc_due(void *ctx, size_t n)                                     \
    {                                                                                     \
        void *p = name.malloc(ctx, n);                                                    \
        if (p)                                                                            \
            memory_allocated(p, n, MEMORY_PYTHON, FRAME);                                 \
        return p;                                                                         \
    }                                                                                     \
    static void *name##_malloc(void *ctx, size_t n)                                       \
    {                                                                                     \
        return n > SMALL || not_due(n) ? name.malloc(ctx, n) : name##_malloc_due(ctx, n); \
    }                                                                                     \
    static void *name##_calloc(void *ctx, size_t count, size_t n)                         \
    {                                                                                     \
        size_t all;                                                                       \
        bool small = !__builtin_mul_overflow(count, n, &all) && all <= SMALL;             \
        void *p = name.calloc(ctx, count, n);                                             \
        if (p && small)                                                                   \
            memory_allocated(p, all, MEMORY_PYTHON, FRAME);                               \
        return p;                                                                         \
    }                                                                                     \
    static void *name##_realloc(void *ctx, void *p, size_t n)                             \
    {                                                                                     \
        uint32_t moving = before_resize(p);                                               \
        void *q = name.realloc(ctx, p, n);                                                \
        if (moving)                                                                       \
            resized(p, moving, q, q ? n : 1); /* Python never frees so */                 \
        if (q && n <= SMALL)                                                              \
            memory_allocated(q, n, MEMORY_PYTHON, FRAME);                                 \
        return q;                                                                         \
    }                                                                                     \
    static void name##_free(void *ctx, void *p)                                           \
    {                                                                                     \
        going(p);                                                                         \
        name.free(ctx, p);                                                                \
    }
DOMAIN(mem)
DOMAIN(obj)

/* The blocks in it are counted: an arena is not. */
static void *arena_alloc(void *ctx, size_t n)
{
    memory_thread.inside++;
    void *p = arenas.alloc(ctx, n);
    memory_thread.inside--;
    return p;
}

/* ---- in and out ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static struct {
    bool found;
    void (*get)(int domain, struct py_allocator *ret);
    void (*set)(int domain, const struct py_allocator *a);
    void (*get_arenas)(struct py_arenas *ret);
    void (*set_arenas)(const struct py_arenas *a);
} api;

static bool find_symbol(void *from, const char *name, void *ret)
{
    void *at = dlsym(from, name);
    memcpy(ret, &at, sizeof(at));
    return at != NULL;
}

static bool find_api(void)
{
    void *from = RTLD_DEFAULT;
    if (!dlsym(from, "PyMem_SetAllocator")) /* of a libpython that an embedder loaded for itself */
        (void)dl_iterate_phdr(cpython_is_libpython, &from);
    return find_symbol(from, "PyMem_GetAllocator", &api.get) &&
           find_symbol(from, "PyMem_SetAllocator", &api.set) &&
           find_symbol(from, "PyObject_GetArenaAllocator", &api.get_arenas) &&
           find_symbol(from, "PyObject_SetArenaAllocator", &api.set_arenas);
}

static bool is_free_threaded(const struct cpython *py)
{
    return strstr(py->Py_GetVersion(), "free-threading") != NULL;
}

/* Was PYTHONMALLOC this, or this and more, when the program began? */
static bool names_allocator(const char *allocator)
{
    struct buf all;
    buf_init(&all, ENVIRONMENT_BYTES);
    const char *value = proc_environ_own(&all) == 0 && all.size > 0
                            ? proc_environ_find(all.data, all.size - 1, "PYTHONMALLOC")
                            : NULL;
    bool found = value && strncmp(value, allocator, strlen(allocator)) == 0;
    buf_done(&all);
    return found;
}

const char *domains_unseen(void)
{
    struct cpython py;
    if (cpython_load(&py) < 0 || cpython_gone(&py))
        return "";
    return is_free_threaded(&py) || names_allocator("mimalloc")
               ? "what Python allocates for itself, as this one has mimalloc inside"
               : "";
}

static const char *why_not(const struct cpython *py)
{
    struct py_allocator raw, now;
    if (is_free_threaded(py))
        return "a free-threaded Python has mimalloc inside, which has no such door";
    if (names_allocator("mimalloc"))
        return "this Python was started with PYTHONMALLOC=mimalloc";
    api.get(DOMAIN_RAW, &raw);
    api.get(DOMAIN_OBJ, &now);
    if (raw.malloc == now.malloc || names_allocator("malloc"))
        return "this Python allocates all by malloc(), where it is counted already";
    return NULL;
}

/* One domain gets ours; false: somebody who stands before us has our functions behind his. */
static bool put_domain(int domain, struct py_allocator *behind, const struct py_allocator *ours)
{
    struct py_allocator now, wanted = *ours;
    api.get(domain, &now);
    if (now.malloc == ours->malloc)
        return true;
    if (behind->malloc)
        return now.malloc == behind->malloc && now.ctx == behind->ctx
                   ? (wanted.ctx = now.ctx, api.set(domain, &wanted), true)
                   : false;
    *behind = now;
    atomic_thread_fence(memory_order_seq_cst);
    wanted.ctx = now.ctx;
    api.set(domain, &wanted);
    return true;
}

static void put_back(int domain, const struct py_allocator *behind, const struct py_allocator *ours)
{
    struct py_allocator now;
    api.get(domain, &now);
    if (now.malloc == ours->malloc)
        api.set(domain, behind);
}

static const struct py_allocator our_mem = {
    .malloc = mem_malloc, .calloc = mem_calloc, .realloc = mem_realloc, .free = mem_free};
static const struct py_allocator our_obj = {
    .malloc = obj_malloc, .calloc = obj_calloc, .realloc = obj_realloc, .free = obj_free};

static void put_arenas(void)
{
    struct py_arenas now;
    api.get_arenas(&now);
    if (now.alloc == arena_alloc || (arenas.alloc && arenas.alloc != now.alloc))
        return;
    arenas = now;
    now.alloc = arena_alloc;
    api.set_arenas(&now);
}

static void take_out(void)
{
    struct py_arenas now;
    if (mem.malloc)
        put_back(DOMAIN_MEM, &mem, &our_mem);
    if (obj.malloc)
        put_back(DOMAIN_OBJ, &obj, &our_obj);
    api.get_arenas(&now);
    if (now.alloc == arena_alloc)
        api.set_arenas(&arenas);
}

static int put_in(const struct cpython *py, const char **ret_why)
{
    *ret_why = why_not(py);
    if (*ret_why)
        return -ENOTSUP;
    if (!put_domain(DOMAIN_OBJ, &obj, &our_obj) || !put_domain(DOMAIN_MEM, &mem, &our_mem)) {
        take_out();
        *ret_why = "another tool (tracemalloc, memray) has put its functions there since ours were "
                   "taken out; stop it first";
        return -ENOTSUP;
    }
    put_arenas();
    return 0;
}

int domains_in(const char **ret_why)
{
    struct cpython py;
    *ret_why = "there is no Python in this process";
    if (cpython_load(&py) < 0 || cpython_gone(&py))
        return -ENODEV;
    (void)pthread_mutex_lock(&lock);
    api.found = api.found || find_api();
    int rc = api.found ? put_in(&py, ret_why) : -ENODEV;
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

void domains_out(void)
{
    (void)pthread_mutex_lock(&lock);
    if (api.found)
        take_out();
    (void)pthread_mutex_unlock(&lock);
}

void domains_forked(void)
{
    (void)pthread_mutex_init(&lock, NULL); /* whoever held it is not here */
}
