/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_file/elf_check.c - headers, segments and the dynamic section of a plugin's file.
 *
 * Any thread.  Nothing here follows a pointer of the file without its bounds: numbers are copied
 * out, sums are checked for overflow.
 */
#include "core/plugin_file/elf_check.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/plugin_file/internal.h"

#define SPAN_MAX ((uint64_t)1 << 30)  /* bytes of address space, as the largest file */
#define ALIGN_MAX ((uint64_t)1 << 28) /* bytes */
#define TLS_MAX ((uint64_t)16 << 20)  /* bytes: every thread of the process gets as many */
#define ADDRESS_MAX ((uint64_t)1 << 46)
#define NOTES_MAX ((uint64_t)64 << 10) /* bytes: old loaders read them on to the stack */

int elf_refuse(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)err_vset(-ENOEXEC, format, args);
    va_end(args);
    return -ENOEXEC;
}

const void *elf_at(const struct elf *e, uint64_t address, uint64_t n)
{
    for (uint32_t i = 0; i < e->head.e_phnum; i++) {
        const Elf64_Phdr *p = &e->parts[i];
        uint64_t from = address - p->p_vaddr;
        if (p->p_type == PT_LOAD && address >= p->p_vaddr && from <= p->p_filesz &&
            n <= p->p_filesz - from && p->p_flags & PF_R)
            return e->bytes + p->p_offset + from;
    }
    return NULL;
}

uint64_t elf_room(const struct elf *e, uint64_t address)
{
    for (uint32_t i = 0; i < e->head.e_phnum; i++) {
        const Elf64_Phdr *p = &e->parts[i];
        if (p->p_type == PT_LOAD && address >= p->p_vaddr && p->p_flags & PF_R &&
            address - p->p_vaddr <= p->p_filesz)
            return p->p_filesz - (address - p->p_vaddr);
    }
    return 0;
}

bool elf_in(const struct elf *e, uint64_t address, uint64_t n, uint32_t flags)
{
    for (uint32_t i = 0; i < e->head.e_phnum; i++) {
        const Elf64_Phdr *p = &e->parts[i];
        uint64_t from = address - p->p_vaddr;
        if (p->p_type == PT_LOAD && address >= p->p_vaddr && from <= p->p_memsz &&
            n <= p->p_memsz - from && (p->p_flags & flags) == flags)
            return true;
    }
    return false;
}

void elf_keep(struct elf *e, uint64_t address, uint64_t n)
{
    if (e->n_tables < ELF_TABLES) {
        e->tables[e->n_tables].from = address;
        e->tables[e->n_tables++].to = address + n;
    }
}

static bool read_file(const struct elf_view *v, uint64_t address, void *ret, size_t n)
{
    const void *at = elf_at((const struct elf *)v, address, n);
    if (at)
        memcpy(ret, at, n);
    return at != NULL;
}

/* ---- the header ---- */

static int check_header(struct elf *e)
{
    const unsigned char *id = e->head.e_ident;

    if (e->size < sizeof(e->head))
        return elf_refuse("it has %llu bytes and is not a library; is it complete?",
                          (unsigned long long)e->size);
    memcpy(&e->head, e->bytes, sizeof(e->head));
    if (memcmp(id, ELFMAG, SELFMAG) != 0)
        return elf_refuse("it is not a shared library (not ELF)");
    if (id[EI_CLASS] != ELFCLASS64 || id[EI_DATA] != ELFDATA2LSB ||
        e->head.e_machine != ELF_MACHINE)
        return elf_refuse("it is built for another machine (class %d, machine %u); this process "
                          "is " ELF_MACHINE_NAME,
                          id[EI_CLASS], e->head.e_machine);
    if (id[EI_VERSION] != EV_CURRENT || e->head.e_version != EV_CURRENT ||
        (id[EI_OSABI] != ELFOSABI_SYSV && id[EI_OSABI] != ELFOSABI_GNU) || id[EI_ABIVERSION] > 8)
        return elf_refuse("it is built for another system (OS ABI %d)", id[EI_OSABI]);
    if (e->head.e_type != ET_DYN)
        return elf_refuse("it is not a shared library (type %u): link it with -shared",
                          e->head.e_type);
    if (e->head.e_phentsize != sizeof(Elf64_Phdr) || e->head.e_phnum == 0 ||
        e->head.e_phnum > ELF_PARTS)
        return elf_refuse("it has %u program headers of %u bytes; is it damaged?", e->head.e_phnum,
                          e->head.e_phentsize);
    if (e->head.e_phoff % 8 || e->head.e_phoff > e->size ||
        e->head.e_phnum * sizeof(Elf64_Phdr) > e->size - e->head.e_phoff)
        return elf_refuse("it ends before its program headers: it is truncated");
    memcpy(e->parts, e->bytes + e->head.e_phoff, e->head.e_phnum * sizeof(Elf64_Phdr));
    return 0;
}

/* ---- segments ---- */

static int check_load(struct elf *e, const Elf64_Phdr *p, uint64_t *end)
{
    unsigned long long file_end;
    if (__builtin_add_overflow(p->p_offset, p->p_filesz, &file_end))
        file_end = ULLONG_MAX;
    if (file_end > e->size)
        return elf_refuse(
            "it is truncated: a segment goes to byte %llu, the file has %llu; copy it again",
            file_end, (unsigned long long)e->size);
    if (p->p_filesz > p->p_memsz || p->p_vaddr > ADDRESS_MAX || p->p_memsz > SPAN_MAX)
        return elf_refuse("a segment of %llu bytes at 0x%llx cannot be mapped; is it damaged?",
                          (unsigned long long)p->p_memsz, (unsigned long long)p->p_vaddr);
    if (p->p_align < e->page || p->p_align & (p->p_align - 1) || p->p_align > ALIGN_MAX ||
        (p->p_vaddr - p->p_offset) & (p->p_align - 1))
        return elf_refuse("a segment is not aligned to pages (0x%llx): link it with -z "
                          "max-page-size=%llu",
                          (unsigned long long)p->p_align, (unsigned long long)e->page);
    if ((p->p_vaddr & -e->page) < *end)
        return elf_refuse("its segments overlap or are not in order; is it damaged?");
    *end = (p->p_vaddr + p->p_memsz + e->page - 1) & -e->page;
    if (p->p_offset + p->p_filesz > e->facts.used)
        e->facts.used = p->p_offset + p->p_filesz;
    return 0;
}

static int check_loads(struct elf *e)
{
    uint64_t first = 0, end = 0;
    bool any = false;
    int rc = 0;

    for (uint32_t i = 0; i < e->head.e_phnum && rc == 0; i++) {
        if (e->parts[i].p_type != PT_LOAD)
            continue;
        first = any ? first : e->parts[i].p_vaddr;
        any = true;
        rc = check_load(e, &e->parts[i], &end);
    }
    if (rc == 0 && !any)
        return elf_refuse("it has no segment to load; is it a file of debug information?");
    if (rc == 0 && end - first > SPAN_MAX)
        return elf_refuse("it wants %llu bytes of address space; is it damaged?",
                          (unsigned long long)(end - first));
    uint64_t heads = e->head.e_phoff + e->head.e_phnum * sizeof(Elf64_Phdr);
    if (heads > e->facts.used)
        e->facts.used = heads;
    return rc;
}

static int check_notes(const struct elf *e, const Elf64_Phdr *p)
{
    const unsigned char *at = elf_at(e, p->p_vaddr, p->p_filesz);
    uint64_t left = p->p_filesz;

    if (!at || (uint64_t)(at - e->bytes) != p->p_offset || p->p_memsz != p->p_filesz ||
        left > NOTES_MAX)
        return elf_refuse("its notes lie outside of the file; is it damaged?");
    while (left >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr n;
        memcpy(&n, at, sizeof(n));
        uint64_t unit = p->p_align == 8 ? 8 : 4;
        uint64_t name = sizeof(n) + (uint64_t)n.n_namesz;
        uint64_t all = ((name + unit - 1) & -unit) + n.n_descsz;
        if (all > left)
            return elf_refuse("a note of it is longer than its segment; is it damaged?");
        all = (all + unit - 1) & -unit;
        all = all < left ? all : left;
        at += all;
        left -= all;
    }
    return 0;
}

static int check_tls(const struct elf *e, const Elf64_Phdr *p)
{
    if (p->p_memsz > TLS_MAX || p->p_filesz > p->p_memsz || p->p_align & (p->p_align - 1) ||
        p->p_align > e->page || (p->p_filesz && !elf_at(e, p->p_vaddr, p->p_filesz)))
        return elf_refuse("its thread-local data (%llu bytes, aligned to %llu) cannot be; at most "
                          "%llu bytes a thread",
                          (unsigned long long)p->p_memsz, (unsigned long long)p->p_align,
                          (unsigned long long)TLS_MAX);
    return 0;
}

/* The loader makes these pages read-only: they must be its own, or another library's data are. */
static int check_relro(const struct elf *e, const Elf64_Phdr *p)
{
    for (uint32_t i = 0; i < e->head.e_phnum; i++) {
        const Elf64_Phdr *l = &e->parts[i];
        uint64_t end = (l->p_vaddr + l->p_memsz + e->page - 1) & -e->page;
        if (l->p_type == PT_LOAD && p->p_vaddr >= l->p_vaddr && p->p_vaddr <= end &&
            p->p_memsz <= end - p->p_vaddr)
            return 0;
    }
    return elf_refuse("its PT_GNU_RELRO lies outside of its segments; is it damaged?");
}

static int check_part(struct elf *e, const Elf64_Phdr *p, bool *stack)
{
    const void *at;

    switch (p->p_type) {
    case PT_TLS:
        return check_tls(e, p);
    case PT_NOTE:
    case PT_GNU_PROPERTY:
        return p->p_filesz ? check_notes(e, p) : 0;
    case PT_GNU_RELRO:
        return check_relro(e, p);
    case PT_GNU_STACK:
        *stack = !(p->p_flags & PF_X);
        return 0;
    case PT_GNU_EH_FRAME:
        return elf_at(e, p->p_vaddr, p->p_memsz)
                   ? 0
                   : elf_refuse("its unwind tables lie outside of the file; is it damaged?");
    case PT_PHDR:
        at = elf_at(e, p->p_vaddr, e->head.e_phnum * sizeof(Elf64_Phdr));
        return at && memcmp(at, e->parts, e->head.e_phnum * sizeof(Elf64_Phdr)) == 0
                   ? 0
                   : elf_refuse("its PT_PHDR does not point to its headers; is it damaged?");
    case PT_DYNAMIC:
        if (e->dynamic)
            return elf_refuse("it has two dynamic sections; is it damaged?");
        e->dynamic = p->p_vaddr;
        e->dynamic_size = p->p_filesz;
        if (p->p_vaddr % 8 == 0 && elf_at(e, p->p_vaddr, p->p_filesz) &&
            elf_in(e, p->p_vaddr, p->p_filesz, PF_R | PF_W))
            return 0;
        return elf_refuse("its dynamic section lies outside of the file; is it damaged?");
    default: /* the loader does not look at others */
        return 0;
    }
}

static int check_parts(struct elf *e)
{
    bool stack = false;
    int rc = check_loads(e);

    for (uint32_t i = 0; i < e->head.e_phnum && rc == 0; i++)
        rc = check_part(e, &e->parts[i], &stack);
    if (rc == 0 && !e->dynamic)
        return elf_refuse("it has no dynamic section: link it with -shared");
    if (rc == 0 && !stack)
        return elf_refuse("it needs stacks that may be executed: link it with -z noexecstack");
    elf_keep(e, e->dynamic, e->dynamic_size);
    for (uint32_t i = 0; i < e->head.e_phnum; i++) /* the loader goes on reading the headers */
        if (rc == 0 && e->parts[i].p_type == PT_LOAD && e->parts[i].p_offset <= e->head.e_phoff)
            elf_keep(e, e->parts[i].p_vaddr + (e->head.e_phoff - e->parts[i].p_offset),
                     e->head.e_phnum * sizeof(Elf64_Phdr));
    return rc;
}

/* ---- the dynamic section ---- */

/* Tags that the loader takes for granted once it has seen the other. */
static int check_pairs(const struct elf *e)
{
    static const struct {
        int64_t one, other;
    } pairs[] = {{DT_RELA, DT_RELASZ},
                 {DT_RELA, DT_RELAENT},
                 {DT_RELASZ, DT_RELA},
                 {DT_JMPREL, DT_PLTREL},
                 {DT_JMPREL, DT_PLTRELSZ},
                 {DT_PLTREL, DT_JMPREL},
                 {DT_PLTRELSZ, DT_JMPREL},
                 {DT_RELR, DT_RELRSZ},
                 {DT_RELR, DT_RELRENT},
                 {DT_RELRSZ, DT_RELR},
                 {DT_INIT_ARRAY, DT_INIT_ARRAYSZ},
                 {DT_FINI_ARRAY, DT_FINI_ARRAYSZ},
                 {DT_VERNEED, DT_VERNEEDNUM},
                 {DT_VERDEF, DT_VERDEFNUM},
                 {DT_VERNEED, DT_VERSYM},
                 {DT_VERDEF, DT_VERSYM}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if (elf_has(&e->view, pairs[i].one) && !elf_has(&e->view, pairs[i].other))
            return elf_refuse("an entry of its dynamic section is missing; is it damaged?");
    if (!elf_has(&e->view, DT_STRTAB) || !elf_has(&e->view, DT_STRSZ) ||
        !elf_has(&e->view, DT_SYMTAB) ||
        (!elf_has(&e->view, DT_GNU_HASH) && !elf_has(&e->view, DT_HASH)))
        return elf_refuse("its dynamic section names no symbols; is it damaged?");
    if ((elf_has(&e->view, DT_SYMENT) && elf_value(&e->view, DT_SYMENT) != sizeof(Elf64_Sym)) ||
        (elf_has(&e->view, DT_RELA) && elf_value(&e->view, DT_RELAENT) != sizeof(Elf64_Rela)) ||
        (elf_has(&e->view, DT_RELR) && elf_value(&e->view, DT_RELRENT) != 8) ||
        (elf_has(&e->view, DT_PLTREL) && elf_value(&e->view, DT_PLTREL) != DT_RELA) ||
        elf_has(&e->view, DT_REL))
        return elf_refuse("its tables have entries of another size; is it damaged?");
    if (elf_has(&e->view, DT_TEXTREL) ||
        (elf_has(&e->view, DT_FLAGS) && elf_value(&e->view, DT_FLAGS) & DF_TEXTREL))
        return elf_refuse("its code must be changed to be loaded (text relocations): build it "
                          "with -fPIC");
    if (elf_has(&e->view, DT_FLAGS_1) &&
        elf_value(&e->view, DT_FLAGS_1) & 0x08000000) /* DF_1_PIE */
        return elf_refuse("it is a program: link it with -shared");
    if (elf_has(&e->view, DT_PLTGOT) && !elf_in(e, elf_value(&e->view, DT_PLTGOT), 0, PF_R))
        return elf_refuse("its DT_PLTGOT lies outside of its segments; is it damaged?");
    return 0;
}

static int check_names(struct elf *e)
{
    e->names_size = elf_value(&e->view, DT_STRSZ);
    e->names = elf_at(e, elf_value(&e->view, DT_STRTAB), e->names_size);
    if (!e->names || e->names_size == 0 || e->names[e->names_size - 1] != '\0')
        return elf_refuse("its names lie outside of the file; is it damaged?");
    elf_keep(e, elf_value(&e->view, DT_STRTAB), e->names_size);
    Elf64_Dyn d;
    for (uint64_t i = 0; elf_view_entry(&e->view, i, &d); i++) {
        bool path = d.d_tag == DT_RPATH || d.d_tag == DT_RUNPATH;
        if (d.d_tag == DT_NEEDED)
            e->facts.n_needed++;
        else if (!path && d.d_tag != DT_SONAME && d.d_tag != DT_AUXILIARY && d.d_tag != DT_FILTER &&
                 d.d_tag != DT_CONFIG && d.d_tag != DT_DEPAUDIT && d.d_tag != DT_AUDIT)
            continue;
        if (d.d_un.d_val >= e->names_size)
            return elf_refuse("a name of its dynamic section lies outside of its names; is it "
                              "damaged?");
        if (path && strstr(e->names + d.d_un.d_val, "ORIGIN"))
            e->facts.origin = true;
    }
    return 0;
}

static int check_dynamic(struct elf *e)
{
    if (!elf_view_dynamic(&e->view, e->dynamic, e->dynamic_size / sizeof(Elf64_Dyn)))
        return elf_refuse("its dynamic section has no end; is it damaged?");
    int rc = check_pairs(e);
    return rc < 0 ? rc : check_names(e);
}

int elf_take(const void *bytes, size_t size, struct elf *ret)
{
    *ret = (struct elf){.view = {.read = read_file},
                        .bytes = bytes,
                        .size = size,
                        .page = (uint64_t)sysconf(_SC_PAGESIZE)};

    int rc = check_header(ret);
    if (rc == 0)
        rc = check_parts(ret);
    if (rc == 0)
        rc = check_dynamic(ret);
    if (rc == 0)
        rc = elf_symbols_check(ret);
    return rc < 0 ? rc : elf_relocs_check(ret);
}

int elf_check(const void *bytes, size_t size, struct elf_facts *ret)
{
    struct elf e;
    int rc = elf_take(bytes, size, &e);
    if (rc == 0)
        *ret = e.facts;
    return rc;
}
