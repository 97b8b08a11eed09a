/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/locate.c - the places in a target: loader functions, a system call instruction, code
 * in which a thread must not be used, and a core that is there already.  All from its memory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cli/inject/internal.h"
#include "sdk/lib/array.h"

#define ALLOCATOR_TEXT_MAX (UINT64_C(16) << 20) /* more code than this is no mere allocator */
#define PAGE_BYTES 4096u /* or a multiple: no more than this is left over behind code */
#define START_TRIES 50   /* times 10 ms for a program that is just being loaded */
#define LOOK_TWICE 2     /* likewise, before a program without libc is believed to be one */

/* Names that libc's malloc.o exports: its range lies between the neighbours of these. */
static const char *const malloc_names[] = {"malloc",
                                           "free",
                                           "calloc",
                                           "realloc",
                                           "memalign",
                                           "aligned_alloc",
                                           "posix_memalign",
                                           "valloc",
                                           "pvalloc",
                                           "malloc_trim",
                                           "malloc_usable_size",
                                           "mallinfo",
                                           "mallinfo2",
                                           "mallopt",
                                           "malloc_stats",
                                           "malloc_info",
                                           "__libc_memalign",
                                           "__libc_malloc",
                                           "__libc_free",
                                           "__libc_calloc",
                                           "__libc_realloc",
                                           "__libc_valloc",
                                           "__libc_pvalloc",
                                           "__libc_mallopt",
                                           "__libc_mallinfo",
                                           "cfree",
                                           "__default_morecore",
                                           "__malloc_info"};

/* Functions of libc that hold a lock we need, or a process or thread half made or half gone. */
static const char *const avoid_names[] = {"fork",
                                          "vfork",
                                          "_Fork",
                                          "__libc_fork",
                                          "posix_spawn",
                                          "posix_spawnp",
                                          "pthread_create",
                                          "pthread_exit",
                                          "pthread_join",
                                          "pthread_detach",
                                          "pthread_atfork",
                                          "__register_atfork",
                                          "exit",
                                          "_exit",
                                          "quick_exit",
                                          "dl_iterate_phdr",
                                          "dlopen",
                                          "dlclose",
                                          "dlsym",
                                          "dlvsym",
                                          "dlmopen",
                                          "dladdr",
                                          "dladdr1",
                                          "dlinfo",
                                          "dlerror",
                                          "_dl_find_object",
                                          "__libc_dlopen_mode",
                                          "__libc_dlsym",
                                          "__libc_dlclose",
                                          "__cxa_atexit",
                                          "__cxa_finalize",
                                          "__cxa_thread_atexit_impl",
                                          "on_exit",
                                          "at_quick_exit",
                                          "setlocale",
                                          "__libc_freeres"};

struct function {
    uint64_t start, end;
    bool allocates;
    const char *avoid; /* static text, NULL: harmless */
};

struct functions {
    struct function *list;
    uint32_t n, room;
};

static bool one_of(const char *name, const char *const *names, size_t n, const char **ret)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret = names[i];
            return true;
        }
    }
    return false;
}

static int add_function(void *arg, const char *name, uint64_t start, uint64_t size)
{
    struct functions *f = arg;
    const char *found = NULL;
    struct function *list = array_grow(f->list, f->n, &f->room, sizeof(*list), UINT32_MAX);
    if (!list)
        return -ENOMEM;
    f->list = list;
    struct function *new = &f->list[f->n++];
    *new = (struct function){.start = start, .end = start + size};
    new->allocates =
        one_of(name, malloc_names, sizeof(malloc_names) / sizeof(*malloc_names), &found);
    if (one_of(name, avoid_names, sizeof(avoid_names) / sizeof(*avoid_names), &found))
        new->avoid = found;
    return 0;
}

static int by_start(const void *a, const void *b)
{
    const struct function *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static int add_unsafe_range(struct target *t, uint64_t start, uint64_t end, const char *what)
{
    if (t->n_avoid == AVOID_MAX)
        return err_set(-E2BIG, "process %d has more than %d regions that are not safe points",
                       t->pid, AVOID_MAX);
    struct avoid *a = &t->avoid[t->n_avoid++];
    a->start = start;
    a->end = end;
    (void)snprintf(a->what, sizeof(a->what), "%s", what);
    return 0;
}

/* libc's malloc.o and the functions above.  Functions without a name of their own count to the
 * named one below them. */
static int avoid_in_libc(struct target *t, const struct stack_module *libc)
{
    struct functions f = {0};
    uint64_t low = UINT64_MAX, high = 0, start = libc->base, end = libc->end;
    int rc = stack_symbols(t->view, libc, add_function, &f);
    if (rc < 0 || f.n == 0) {
        free(f.list);
        return err_set(-ENOEXEC, "cannot read the symbols of %s in process %d", libc->path, t->pid);
    }
    qsort(f.list, f.n, sizeof(f.list[0]), by_start);
    for (size_t i = 0; i < f.n; i++) {
        if (f.list[i].allocates) {
            low = f.list[i].start < low ? f.list[i].start : low;
            high = f.list[i].start > high ? f.list[i].start : high;
        }
    }
    for (size_t i = 0; i < f.n; i++) {
        const struct function *one = &f.list[i];
        if (!one->allocates && one->start < low && one->end > start)
            start = one->end < low ? one->end : low;
        if (!one->allocates && one->start > high && one->start < end)
            end = one->start;
    }
    rc = low < high ? add_unsafe_range(t, start, end, "malloc")
                    : err_set(-ENOEXEC, "%s of process %d has no malloc", libc->path, t->pid);
    for (size_t i = 0; i < f.n && rc == 0; i++) {
        size_t next = i + 1;
        while (next < f.n && f.list[next].start == f.list[i].start)
            next++;
        if (f.list[i].avoid)
            rc = add_unsafe_range(t, f.list[i].start, next < f.n ? f.list[next].start : libc->end,
                                  f.list[i].avoid);
    }
    free(f.list);
    return rc;
}

/* ---- libc ---- */

#define COPIES_MAX 16       /* of one library: glibc has 16 namespaces (DL_NNS) */
#define LINK_MAPS_MAX 65536 /* libraries in a list that may be torn */

struct copies {
    const char *name;
    const struct stack_module *all[COPIES_MAX];
    uint32_t n;
};

static bool is_called(const struct stack_module *m, const char *name)
{
    const char *slash = strrchr(m->path, '/');
    return strncmp(slash ? slash + 1 : m->path, name, strlen(name)) == 0;
}

static int add_copy(void *arg, const struct stack_module *m)
{
    struct copies *c = arg;
    if (c->n < COPIES_MAX && is_called(m, c->name))
        c->all[c->n++] = m;
    return 0;
}

static const struct stack_module *loader_of(struct target *t)
{
    const struct stack_module *m = stack_module_named(t->view, ARCH_LOADER);
    return m ? m : stack_module_named(t->view, "ld-2.");
}

/* Is it in the list of the program itself, struct r_debug of link.h?  dlmopen(3) makes others. */
static bool in_base_namespace(struct target *t, const struct stack_module *m)
{
    const struct stack_module *loader = loader_of(t);
    uint64_t debug = loader ? stack_symbol_address(t->view, loader, "_r_debug") : 0;
    uint64_t at, map[4]; /* l_addr, l_name, l_ld, l_next */
    if (!debug || stack_read(t->view, debug + 8, &at, sizeof(at)) < 0)
        return false;
    for (uint32_t i = 0; at && i < LINK_MAPS_MAX; i++, at = map[3]) {
        if (stack_read(t->view, at, map, sizeof(map)) < 0)
            return false;
        if (map[0] == m->bias)
            return true;
    }
    return false;
}

/* The module whose file name begins so; of several copies the program's own. */
static const struct stack_module *module_called(struct target *t, const char *name)
{
    struct copies c = {.name = name};
    (void)stack_modules(t->view, add_copy, &c);
    for (uint32_t i = 0; c.n > 1 && i < c.n; i++)
        if (in_base_namespace(t, c.all[i]))
            return c.all[i];
    return c.n > 0 ? c.all[0] : NULL;
}

static const struct stack_module *libc_of(struct target *t)
{
    const struct stack_module *m = module_called(t, "libc.so.6");
    return m ? m : module_called(t, "libc-2.");
}

/* ---- other modules: allocators that stand in for libc's, and a core that is there ---- */

struct search {
    struct target *t;
    char program[4096];
};

static int avoid_public(void *arg, const char *name, uint64_t start, uint64_t size)
{
    const char *found;
    if (one_of(name, malloc_names, sizeof(malloc_names) / sizeof(*malloc_names), &found) ||
        strncmp(name, "_Zn", 3) == 0 || strncmp(name, "_Zd", 3) == 0) /* operators new, delete */
        return add_unsafe_range(arg, start, start + size, name);
    return 0;
}

/* Behind the last byte of a module's code, up to the end of the page, is memory that may be run and
 * that nobody uses.  Only of modules that are never unloaded. */
static void look_for_caves(struct search *search, const struct stack_module *m)
{
    struct target *t = search->t;
    if (m->base != t->libc.start && m->base != t->loader.start &&
        strcmp(m->path, search->program) != 0)
        return;
    for (uint32_t i = 0; i < m->n_text && t->n_caves < CAVES_MAX; i++) {
        uint64_t at = (m->text[i].end + 15) & ~UINT64_C(15);
        if (at % PAGE_BYTES != 0 && PAGE_BYTES - at % PAGE_BYTES >= sizeof(arch_cave))
            t->caves[t->n_caves++] = at;
    }
}

/* A sanitizer wants to know of every thread, and hears of those that its own function makes. */
static bool watches_threads(const struct search *search, const struct stack_module *m)
{
    return (strcmp(m->path, search->program) == 0 || strstr(m->path, "san.so")) &&
           stack_symbol_address(search->t->view, m, "pthread_create") != 0;
}

static int look_at_module(void *arg, const struct stack_module *m)
{
    struct search *search = arg;
    struct target *t = search->t;
    look_for_caves(search, m);
    uint64_t version = stack_symbol_address(t->view, m, "probing_version"), size = 0;
    if (version) {
        t->present_start = stack_symbol_address(t->view, m, "probing_start");
        (void)stack_read_some(t->view, version, t->present_version, sizeof(t->present_version) - 1);
    }
    if (watches_threads(search, m))
        t->pthread_create = 0;
    uint64_t address = stack_symbol_address(t->view, m, "malloc");
    if (!address || m->base == t->libc.start || m->base == t->loader.start)
        return 0;
    if (is_called(m, "libc.so.6") || is_called(m, "libc-2.")) /* of another namespace */
        return avoid_in_libc(t, m);
    for (uint32_t i = 0; i < m->n_text; i++)
        size += m->text[i].end - m->text[i].start;
    if (size > ALLOCATOR_TEXT_MAX || strcmp(m->path, search->program) == 0)
        return stack_symbols(t->view, m, avoid_public, t);
    const char *slash = strrchr(m->path, '/');
    int rc = 0;
    for (uint32_t i = 0; i < m->n_text && rc == 0; i++)
        rc = add_unsafe_range(t, m->text[i].start, m->text[i].end, slash ? slash + 1 : m->path);
    return rc;
}

static int look_at_modules(struct target *t)
{
    struct search search = {.t = t};
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/exe", t->pid);
    ssize_t n = readlink(path, search.program, sizeof(search.program) - 1);
    search.program[n > 0 ? n : 0] = '\0';
    return stack_modules(t->view, look_at_module, &search);
}

static int any_module(void *arg, const struct stack_module *m)
{
    (void)arg;
    (void)m;
    return 1;
}

static int refuse_without_libc(struct target *t)
{
    if (stack_modules(t->view, any_module, NULL) == 0)
        return err_set(-ESRCH, "process %d is ending: nothing is mapped in it any more", t->pid);
    if (stack_module_named(t->view, "ld-musl") || stack_module_named(t->view, "libc.musl") ||
        stack_module_named(t->view, "libc.so")) /* musl's own name for both; glibc's is libc.so.6 */
        return err_set(-ENOEXEC,
                       "process %d runs on musl; probing needs glibc: use an image with glibc",
                       t->pid);
    if (loader_of(t))
        return err_set(-EAGAIN, "process %d is still being loaded; try again in a moment", t->pid);
    return err_set(-ENOEXEC,
                   "process %d is statically linked (no libc.so.6 is mapped): there is no "
                   "dlopen to call; link the program dynamically",
                   t->pid);
}

static void find_threads(struct target *t, const struct stack_module *libc)
{
    const struct stack_module *m = module_called(t, "libpthread.so.0");
    if (!m)
        m = module_called(t, "libpthread-2.");
    if (!m || stack_symbol_address(t->view, libc, "pthread_create"))
        m = libc;
    t->pthread_create = stack_symbol_address(t->view, m, "pthread_create");
    t->pthread_detach = stack_symbol_address(t->view, m, "pthread_detach");
    t->munmap = stack_symbol_address(t->view, libc, "munmap");
}

static int find_dlopen(struct target *t, const struct stack_module *libc)
{
    const struct stack_module *libdl = module_called(t, "libdl.so.2");
    if (!libdl)
        libdl = module_called(t, "libdl-2.");
    t->dlopen = stack_symbol_address(t->view, libc, "dlopen");
    t->dlclose = stack_symbol_address(t->view, libc, "dlclose");
    t->dlerror = stack_symbol_address(t->view, libc, "dlerror");
    t->one_libc = t->dlopen && stack_symbol_address(t->view, libc, "pthread_create") &&
                  stack_symbol_address(t->view, libc, "pthread_key_create");
    if (!t->dlopen && libdl) {
        t->dlopen = stack_symbol_address(t->view, libdl, "dlopen");
        t->dlclose = stack_symbol_address(t->view, libdl, "dlclose");
        t->dlerror = stack_symbol_address(t->view, libdl, "dlerror");
    }
    if (!t->dlopen) {
        t->dlopen = stack_symbol_address(t->view, libc, "__libc_dlopen_mode");
        t->dlclose = stack_symbol_address(t->view, libc, "__libc_dlclose");
        t->dlerror = 0;
        t->old_dlopen = true;
    }
    find_threads(t, libc);
    t->errno_location = stack_symbol_address(t->view, libc, "__errno_location");
    if (!t->errno_location)
        return err_set(-ENOEXEC, "%s of process %d has no errno", libc->path, t->pid);
    return t->dlopen ? 0 : err_set(-ENOEXEC, "%s of process %d has no dlopen", libc->path, t->pid);
}

/* An exec first takes everything away, then maps the program, then the loader. */
static bool may_be_starting(struct target *t)
{
    return loader_of(t) || stack_modules(t->view, any_module, NULL) == 0;
}

static int look_around(struct target *t, const struct stack_module *libc)
{
    const struct stack_module *loader = loader_of(t);
    int rc = 0;
    if (libc->elf_class != ELFCLASS64 || libc->machine != ARCH_MACHINE)
        return err_set(-ENOEXEC, "process %d is no 64-bit " ARCH_NAME " program", t->pid);
    t->libc_base = libc->base;
    t->libc = (struct stack_range){libc->base, libc->end};
    t->n_avoid = t->n_caves = 0;
    if (loader) {
        t->loader = (struct stack_range){loader->base, loader->end};
        rc = add_unsafe_range(t, loader->base, loader->end, "the loader");
    }
    if (rc == 0)
        rc = find_dlopen(t, libc);
    if (rc == 0)
        rc = avoid_in_libc(t, libc);
    return rc < 0 ? rc : look_at_modules(t);
}

static void look_again(struct target *t)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    stack_process_refresh(t->view, /* maps_too= */ true);
}

int find_places(struct target *t)
{
    const struct stack_module *libc = libc_of(t);
    for (int i = 0; !libc && i < (may_be_starting(t) ? START_TRIES : LOOK_TWICE); i++) {
        look_again(t);
        libc = libc_of(t);
    }
    int rc = libc ? look_around(t, libc) : refuse_without_libc(t);
    /* A libc without what every libc has is just being mapped. */
    for (int i = 0; rc == -ENOEXEC && libc && i < LOOK_TWICE; i++) {
        look_again(t);
        libc = libc_of(t);
        rc = libc ? look_around(t, libc) : refuse_without_libc(t);
    }
    return rc;
}
