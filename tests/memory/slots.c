/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/memory/slots.c - calls the allocator in all ways that an object can, and says where each
 * of its slots leads.
 *
 * Built by the tests with one linker's flags after the other: as a program, which says so for
 * itself and for a library that it is told to load, and as such a library (-DLIBRARY).
 */
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __x86_64__
#define KIND(type)                             \
    ((type) == R_X86_64_JUMP_SLOT  ? "call"    \
     : (type) == R_X86_64_GLOB_DAT ? "address" \
     : (type) == R_X86_64_64       ? "data"    \
                                   : NULL)
#else
#define KIND(type)                              \
    ((type) == R_AARCH64_JUMP_SLOT  ? "call"    \
     : (type) == R_AARCH64_GLOB_DAT ? "address" \
     : (type) == R_AARCH64_ABS64    ? "data"    \
                                    : NULL)
#endif

/* Functions' addresses in data. */
struct allocator {
    void *(*take)(size_t);
    void (*give)(void *);
};
static volatile struct allocator in_data = {malloc, free};
static void (*volatile changed)(void *) = free;

static void not_free(void *p)
{
    (void)p;
}

static const char *const names[] = {"malloc",         "calloc",        "realloc", "free",
                                    "posix_memalign", "aligned_alloc", "mmap",    "munmap"};

static void owner(uintptr_t at, const struct link_map *map, char ret[64])
{
    Dl_info there, own;
    const char *name = "?";
    if (dladdr((void *)at, &there) && dladdr(map->l_ld, &own)) {
        name = strrchr(there.dli_fname, '/');
        name = name ? name + 1 : there.dli_fname;
        if (there.dli_fbase == own.dli_fbase)
            name = "itself";
    }
    (void)snprintf(ret, 64, "%s", name);
}

static void say_slot(const struct link_map *map, const char *who, const ElfW(Rela) * r,
                     const ElfW(Sym) * symbols, const char *strings)
{
    const char *name = strings + symbols[ELF64_R_SYM(r->r_info)].st_name;
    const char *kind = KIND(ELF64_R_TYPE(r->r_info));
    char leads_to[64];
    for (size_t i = 0; kind && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0) {
            owner(*(uintptr_t *)(map->l_addr + r->r_offset), map, leads_to);
            printf("%s %s %s %s\n", who, kind, name, leads_to);
        }
}

/* By the dynamic section of the object that `inside` is in; not the plugin's code, on purpose. */
void say_slots(const void *inside, const char *who);
void say_slots(const void *inside, const char *who)
{
    Dl_info i;
    struct link_map *map = NULL;
    const ElfW(Rela) * tables[2] = {NULL, NULL};
    size_t sizes[2] = {0, 0};
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    if (!dladdr1(inside, &i, (void **)&map, RTLD_DL_LINKMAP))
        return;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbols = (const void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_STRTAB)
            strings = (const void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_RELA)
            tables[0] = (const void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_JMPREL)
            tables[1] = (const void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_RELASZ)
            sizes[0] = d->d_un.d_val;
        else if (d->d_tag == DT_PLTRELSZ)
            sizes[1] = d->d_un.d_val;
    }
    for (int t = 0; t < 2; t++)
        for (size_t k = 0; tables[t] && k < sizes[t] / sizeof(ElfW(Rela)); k++)
            say_slot(map, who, &tables[t][k], symbols, strings);
    (void)fflush(stdout);
}

/* A round of everything, each block checked: 0, or the line where it went wrong. */
int use(void);
int use(void)
{
    char *p = malloc(100), *q;
    void *r = NULL;
    memset(p, 1, 100);
    p = realloc(p, 100000);
    if (!p || p[99] != 1)
        return __LINE__;
    q = calloc(10, 10);
    if (!q || q[99] != 0)
        return __LINE__;
    free(q);
    free(p);
    free(NULL);
    if (posix_memalign(&r, 4096, 10000) != 0 || (uintptr_t)r % 4096 != 0)
        return __LINE__;
    free(r);
    r = aligned_alloc(64, 640);
    if (!r || (uintptr_t)r % 64 != 0)
        return __LINE__;
    in_data.give(r);
    r = in_data.take(50);
    if (!r || malloc_usable_size(r) < 50)
        return __LINE__;
    free(r);
    volatile size_t much = SIZE_MAX / 2;
    if (malloc(much) || calloc(much, 3))
        return __LINE__;
    p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return __LINE__;
    p[65535] = 1;
    if (munmap(p, 65536) != 0)
        return __LINE__;
    changed(NULL);
    return 0;
}

#ifndef LIBRARY
/* Each line of the pipe argv[1]: "say", "change", "open PATH", "close", "use", "end". */
int main(int argc, char **argv)
{
    char line[512];
    void *library = NULL;
    FILE *pipe = argc > 1 ? fopen(argv[1], "r+") : stdin;
    if (!pipe)
        return 1;
    printf("ready\n");
    (void)fflush(stdout);
    while (fgets(line, sizeof(line), pipe)) {
        line[strcspn(line, "\n")] = '\0';
        int bad = 0;
        if (strcmp(line, "say") == 0) {
            say_slots((const void *)main, "program");
            void (*say)(const void *, const char *) = NULL;
            if (library)
                *(void **)&say = dlsym(library, "say_slots");
            if (say)
                say((const void *)say, "library");
        } else if (strcmp(line, "change") == 0) {
            changed = not_free;
        } else if (strncmp(line, "open ", 5) == 0) {
            int (*library_use)(void) = NULL;
            library = dlopen(line + 5, RTLD_NOW | RTLD_LOCAL);
            if (library)
                *(void **)&library_use = dlsym(library, "use");
            bad = library_use ? library_use() : __LINE__;
        } else if (strcmp(line, "close") == 0) {
            bad = dlclose(library);
            library = NULL;
        } else if (strcmp(line, "use") == 0) {
            bad = use();
        } else {
            return 0;
        }
        printf("done %d\n", bad);
        (void)fflush(stdout);
    }
    return 0;
}
#endif
