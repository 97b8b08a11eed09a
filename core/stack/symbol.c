/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/symbol.c - names of addresses: .symtab of the module's file, else .dynsym.
 * Owner's thread only.  A file is believed only when it carries the build-id of what is mapped (or,
 * without one, the same headers); it is mapped, not copied, so large ones cost page cache only.
 * Names of C++ are made plain by sdk/lib/demangle, Rust's by demangle_rust.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/guest/headroom.h"
#include "core/stack/demangle_rust.h"
#include "core/stack/internal.h"
#include "sdk/lib/demangle/demangle.h"

#define ROOM_PART 8    /* of what we may map: one file, and several are mapped at once */
#define LOOKS_KEPT 256 /* looks at a file until its pages are given back: 64 KiB for each of 20 */

/* The file's pages stay in the page cache; in this process they count as its memory. */
static void give_pages_back(const struct symbols *s)
{
    if (s->file)
        (void)madvise((void *)(uintptr_t)s->file, s->file_size, MADV_DONTNEED);
}

void symbols_done(const struct stack_process *p, struct symbols *s)
{
    if (s->file) {
        (void)munmap((void *)(uintptr_t)s->file, s->file_size);
    } else {
        process_free(p, s->table);
        process_free(p, s->names);
    }
    process_free(p, s->order);
    *s = (struct symbols){.tried = s->tried};
}

/* `size` bytes at `offset` of the mapped file, or NULL. */
static const void *file_bytes(const struct symbols *s, uint64_t offset, uint64_t size)
{
    uint64_t end;
    if (__builtin_add_overflow(offset, size, &end) || end > s->file_size || offset % 8)
        return NULL;
    return (const char *)s->file + offset;
}

static bool same_build(struct stack_process *p, const struct module *m, const struct symbols *s)
{
    unsigned char id[64];
    const Elf64_Ehdr *header = file_bytes(s, 0, sizeof(*header));
    if (!header || memcmp(header, &m->header, offsetof(Elf64_Ehdr, e_shoff)) != 0)
        return false;
    if (m->build_id == 0) /* then the place of the section table is what tells builds apart */
        return memcmp(header, &m->header, sizeof(*header)) == 0;
    if (m->build_id_size > sizeof(id) || stack_read(p, m->build_id, id, m->build_id_size) < 0)
        return false;
    for (uint32_t i = 0; i < m->n_segments; i++) {
        const Elf64_Phdr *g = &m->segments[i];
        uint64_t at = m->build_id - m->about.bias - g->p_vaddr;
        if (g->p_type == PT_LOAD && m->build_id - m->about.bias >= g->p_vaddr &&
            at + m->build_id_size <= g->p_filesz)
            return g->p_offset + at + m->build_id_size <= s->file_size &&
                   memcmp((const char *)s->file + g->p_offset + at, id, m->build_id_size) == 0;
    }
    return false;
}

static bool take_sections(struct symbols *s, uint32_t type)
{
    const Elf64_Ehdr *header = file_bytes(s, 0, sizeof(*header));
    const Elf64_Shdr *sections =
        file_bytes(s, header->e_shoff, header->e_shnum * sizeof(Elf64_Shdr));
    if (!sections || header->e_shentsize != sizeof(Elf64_Shdr))
        return false;
    for (uint32_t i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != type || sections[i].sh_link >= header->e_shnum)
            continue;
        const Elf64_Shdr *names = &sections[sections[i].sh_link];
        s->table = file_bytes(s, sections[i].sh_offset, sections[i].sh_size);
        s->names = (const char *)s->file + names->sh_offset;
        s->names_size = names->sh_size;
        s->n = (uint32_t)(sections[i].sh_size / sizeof(Elf64_Sym));
        if (s->table && names->sh_size > 0 && names->sh_offset < s->file_size &&
            names->sh_size <= s->file_size - names->sh_offset &&
            s->names[names->sh_size - 1] == '\0')
            return true;
    }
    return false;
}

static int map_file(const char *path, struct symbols *s)
{
    struct stat st;
    void *file = MAP_FAILED;
    int fd = file_open(AT_FDCWD, path); /* what a process has mapped may be called like a device */
    if (fd < 0)
        return fd;
    /* Some libraries have gigabytes.  Without names a frame says where in which file it is. */
    if (fstat(fd, &st) == 0 && st.st_size > 0 &&
        (uint64_t)st.st_size <= room_ours(ROOM_ADDRESS_SPACE) / ROOM_PART &&
        room_claim(ROOM_MAPPINGS, 1))
        file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd);
    if (file == MAP_FAILED)
        return -ENOENT;
    s->file = file;
    s->file_size = (size_t)st.st_size;
    return 0;
}

static bool from_file(struct stack_process *p, struct module *m)
{
    struct symbols *s = &m->symbols;
    char path[4200];
    for (int way = 0; way < 2; way++) {
        if (way == 0)
            (void)snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", p->pid,
                           (unsigned long long)m->about.base, (unsigned long long)m->first_end);
        else if (p->dead)
            (void)snprintf(path, sizeof(path), "%s", m->path);
        else
            (void)snprintf(path, sizeof(path), "/proc/%d/root%s", p->pid, m->path);
        if (map_file(path, s) < 0)
            continue;
        if (same_build(p, m, s) && (take_sections(s, SHT_SYMTAB) || take_sections(s, SHT_DYNSYM)))
            return true;
        symbols_done(p, s);
    }
    return false;
}

bool symbol_is_function(const struct symbols *s, const Elf64_Sym *sym)
{
    unsigned type = ELF64_ST_TYPE(sym->st_info);
    return (type == STT_FUNC || type == STT_GNU_IFUNC) && sym->st_shndx != SHN_UNDEF &&
           sym->st_value != 0 && sym->st_name < s->names_size;
}

/* Several names for one address: the global one, then the one with a size, then the shorter. */
static int by_address(const void *a, const void *b, void *arg)
{
    const struct symbols *s = arg;
    const Elf64_Sym *x = &s->table[*(const uint32_t *)a], *y = &s->table[*(const uint32_t *)b];
    if (x->st_value != y->st_value)
        return x->st_value < y->st_value ? -1 : 1;
    bool global_x = ELF64_ST_BIND(x->st_info) == STB_GLOBAL;
    bool global_y = ELF64_ST_BIND(y->st_info) == STB_GLOBAL;
    if (global_x != global_y)
        return global_x ? 1 : -1;
    if (x->st_size != y->st_size)
        return x->st_size < y->st_size ? -1 : 1;
    return x->st_name < y->st_name ? -1 : x->st_name > y->st_name;
}

static void load_symbols(struct stack_process *p, struct module *m)
{
    struct symbols *s = &m->symbols;
    uint32_t functions = 0;
    s->tried = true;
    if (m->about.elf_class != ELFCLASS64)
        return;
    if (!(m->path[0] == '/' && from_file(p, m)) && module_copy_symbols(p, m, s) < 0)
        return;
    if (p->pool) /* sorting takes memory; few addresses are asked for */
        return;
    uint32_t n = s->n;
    for (uint32_t i = 0; i < n; i++)
        functions += symbol_is_function(s, &s->table[i]);
    s->order = process_alloc(p, (functions + 1u) * sizeof(*s->order));
    if (!s->order) {
        symbols_done(p, s);
        return;
    }
    s->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (symbol_is_function(s, &s->table[i]))
            s->order[s->n++] = i;
    }
    qsort_r(s->order, s->n, sizeof(*s->order), by_address, s);
    give_pages_back(s);
}

/* The same without an order: the nearest below that reaches so far, else the nearest if it has no
 * size. */
static const Elf64_Sym *search_function(const struct symbols *s, uint64_t value)
{
    const Elf64_Sym *best = NULL, *nearest = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        const Elf64_Sym *sym = &s->table[i];
        if (sym->st_value > value || !symbol_is_function(s, sym))
            continue;
        if (!nearest || sym->st_value > nearest->st_value)
            nearest = sym;
        if (value - sym->st_value >= sym->st_size)
            continue;
        if (!best || sym->st_value > best->st_value ||
            (sym->st_value == best->st_value && ELF64_ST_BIND(sym->st_info) == STB_GLOBAL))
            best = sym;
    }
    return best ? best : nearest && nearest->st_size == 0 ? nearest : NULL;
}

/* The function that holds `value`; one without a size reaches to the next. */
static const Elf64_Sym *find_function(const struct symbols *s, uint64_t value)
{
    if (!s->order)
        return search_function(s, value);
    uint32_t low = 0, high = s->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->table[s->order[middle]].st_value <= value)
            low = middle + 1;
        else
            high = middle;
    }
    /* An inner label of no size may stand after the function that holds it. */
    for (uint32_t i = low; i > 0 && low - i < 8; i--) {
        const Elf64_Sym *sym = &s->table[s->order[i - 1]];
        if (value - sym->st_value < sym->st_size || (sym->st_size == 0 && i == low))
            return sym;
    }
    return NULL;
}

/* NULL: it stays as it is. */
static const char *plain_name(struct stack_process *p, const char *name)
{
    if (name[0] != '_' || name[1] != 'Z' || p->pool) /* its reader is allocated */
        return NULL;
    return p->plain || plainer_new(&p->plain) == 0 ? plainer_name(p->plain, name) : NULL;
}

static void put_name(struct stack_process *p, const char *name, struct stack_symbol *ret)
{
    if (rust_demangle(name, ret->name, sizeof(ret->name)))
        return;
    const char *plain = plain_name(p, name);
    const char *text = plain ? plain : name;
    size_t size = strnlen(text, sizeof(ret->name) - 1);
    memcpy(ret->name, text, size);
    ret->name[size] = '\0';
}

int stack_symbol(struct stack_process *p, uint64_t address, struct stack_symbol *ret)
{
    *ret = (struct stack_symbol){0};
    struct module *m = module_at(p, address);
    if (!m)
        return -ENOENT;
    ret->module = m->path;
    ret->module_offset = address - m->about.bias;
    if (!m->symbols.tried)
        load_symbols(p, m);
    if (++m->symbols.looks % LOOKS_KEPT == 0)
        give_pages_back(&m->symbols);
    const Elf64_Sym *sym = find_function(&m->symbols, ret->module_offset);
    if (!sym)
        return -ENOENT;
    ret->offset = ret->module_offset - sym->st_value;
    put_name(p, m->symbols.names + sym->st_name, ret);
    return 0;
}
