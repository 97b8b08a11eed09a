/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/slots/object.c - symbols and slots of a loaded object, read where they are mapped.
 *
 * All addresses are checked against the object's segments before they are read: an object may have
 * been packed, stripped or made by hand.
 */
#include "sdk/lib/slots/object.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sdk/lib/elf_view.h"

#if defined(__x86_64__)
enum { REL_ADDRESS = R_X86_64_64, REL_GLOB_DAT = R_X86_64_GLOB_DAT, REL_CALL = R_X86_64_JUMP_SLOT };
#else
enum {
    REL_ADDRESS = R_AARCH64_ABS64,
    REL_GLOB_DAT = R_AARCH64_GLOB_DAT,
    REL_CALL = R_AARCH64_JUMP_SLOT
};
#endif

bool object_has(const struct object *o, uintptr_t address, uint32_t flags)
{
    for (uint32_t i = 0; i < o->n_segments; i++) {
        const ElfW(Phdr) *p = &o->segments[i];
        if (p->p_type == PT_LOAD && (p->p_flags & flags) == flags &&
            address - (o->base + p->p_vaddr) < p->p_memsz)
            return true;
    }
    return false;
}

/* How many bytes from `address` on are of a segment that may be read. */
static size_t readable_bytes(const struct object *o, uintptr_t address)
{
    for (uint32_t i = 0; i < o->n_segments; i++) {
        const ElfW(Phdr) *p = &o->segments[i];
        uintptr_t at = address - (o->base + p->p_vaddr);
        if (p->p_type == PT_LOAD && p->p_flags & PF_R && at < p->p_memsz)
            return p->p_memsz - at;
    }
    return 0;
}

/* `size` bytes from `address` on, in one segment or in some that join: patchelf puts tables into a
 * segment of their own before the first, and they may reach into that one. */
static bool is_readable(const struct object *o, uintptr_t address, size_t size)
{
    for (size_t n; size > 0; address += n, size -= n) {
        n = readable_bytes(o, address);
        if (n == 0)
            return false;
        n = n < size ? n : size;
    }
    return true;
}

static bool read_mapped(const struct elf_view *v, uint64_t address, void *ret, size_t n)
{
    if (!is_readable((const struct object *)v, address, n)) /* its first field */
        return false;
    memcpy(ret, (const void *)(uintptr_t)address, n);
    return true;
}

/* NULL: the object has no such table. */
static const void *find_table(const struct object *o, int64_t tag, size_t size)
{
    uintptr_t at = elf_view_address(&o->view, tag);
    return at && is_readable(o, at, size) ? (const void *)at : NULL;
}

static void read_relocations(struct object *o)
{
    const struct elf_view *v = &o->view;
    size_t n = elf_value(v, DT_RELASZ) / sizeof(ElfW(Rela)), relative = elf_value(v, DT_RELACOUNT);
    o->rela = find_table(o, DT_RELA, elf_value(v, DT_RELASZ));
    if (o->rela && relative <= n) {
        o->rela += relative;
        o->n_rela = n - relative;
    }
    if (elf_value(v, DT_PLTREL) == DT_RELA)
        o->calls = find_table(o, DT_JMPREL, elf_value(v, DT_PLTRELSZ));
    o->n_calls = o->calls ? elf_value(v, DT_PLTRELSZ) / sizeof(ElfW(Rela)) : 0;
    o->symbolic = elf_has(v, DT_SYMBOLIC) || elf_value(v, DT_FLAGS) & DF_SYMBOLIC;
}

bool object_read(const struct dl_phdr_info *info, struct object *ret)
{
    *ret = (struct object){
        .base = info->dlpi_addr,
        .view = {.read = read_mapped, .base = info->dlpi_addr, .bias = info->dlpi_addr},
        .name = info->dlpi_name ? info->dlpi_name : "",
        .segments = info->dlpi_phdr,
        .n_segments = info->dlpi_phnum};
    for (uint32_t i = 0; i < ret->n_segments; i++) {
        const ElfW(Phdr) *p = &ret->segments[i];
        uintptr_t at = ret->base + p->p_vaddr;
        if (p->p_type == PT_GNU_RELRO) {
            uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE); /* ld.so rounds so, too */
            ret->relro_start = at & ~(page - 1);
            ret->relro_end = (at + p->p_memsz) & ~(page - 1);
        } else if (p->p_type == PT_DYNAMIC) {
            (void)elf_view_dynamic(&ret->view, at, p->p_memsz / sizeof(ElfW(Dyn)));
        }
    }
    ret->strings_size = elf_value(&ret->view, DT_STRSZ);
    ret->strings = find_table(ret, DT_STRTAB, ret->strings_size);
    ret->symbols = find_table(ret, DT_SYMTAB, sizeof(ElfW(Sym)));
    if (!ret->strings || !ret->symbols || ret->strings_size == 0 ||
        ret->strings[ret->strings_size - 1] != '\0')
        return false;
    read_relocations(ret);
    return true;
}

/* ---- symbols ---- */

/* The symbol of this number, NULL: there is no such. */
static const ElfW(Sym) * symbol_at(const struct object *o, size_t index)
{
    const ElfW(Sym) *s = o->symbols + index;
    return is_readable(o, (uintptr_t)s, sizeof(*s)) && s->st_name < o->strings_size ? s : NULL;
}

struct definition {
    const struct elf_view *view;
    uint64_t value; /* 0: none */
    bool indirect;
};

/* Does the symbol define its name for others?  One of an old version, which only those get who ask
 * for it, is kept until a better one comes. */
static bool is_definition(void *arg, uint32_t i, const ElfW(Sym) * s)
{
    struct definition *d = arg;
    const struct elf_view *v = d->view;
    unsigned type = ELF64_ST_TYPE(s->st_info), visible = ELF64_ST_VISIBILITY(s->st_other);
    uint64_t versions = elf_view_address(v, DT_VERSYM);
    uint16_t version = 0;
    if (s->st_shndx == SHN_UNDEF || !s->st_value || ELF64_ST_BIND(s->st_info) == STB_LOCAL ||
        (visible != STV_DEFAULT && visible != STV_PROTECTED) ||
        (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE && type != STT_OBJECT))
        return false;
    bool old = versions && v->read(v, versions + i * sizeof(version), &version, sizeof(version)) &&
               version & 0x8000;
    if (old && d->value)
        return false;
    d->value = s->st_value;
    d->indirect = type == STT_GNU_IFUNC;
    return !old;
}

uintptr_t object_defines(const struct object *o, const char *name)
{
    struct definition d = {.view = &o->view};
    (void)elf_view_find(&o->view, name, is_definition, &d);
    if (!d.value)
        return 0;
    uintptr_t at = o->base + d.value;
    return d.indirect ? ((uintptr_t(*)(void))at)() : at; /* its resolver ran in relocation */
}

/* ---- slots ---- */

struct walk {
    const struct object *o;
    void (*fn)(void *arg, const struct object *o, const char *symbol, _Atomic uintptr_t *slot,
               enum slot_kind kind, uintptr_t own);
    void *arg;
};

static void look_at(const struct walk *w, const ElfW(Rela) * r)
{
    uint32_t type = ELF64_R_TYPE(r->r_info);
    uintptr_t at = w->o->base + r->r_offset;
    if ((type != REL_CALL && type != REL_GLOB_DAT && type != REL_ADDRESS) || r->r_addend != 0 ||
        at % sizeof(uintptr_t) != 0 || !object_has(w->o, at, PF_W))
        return;
    const ElfW(Sym) *s = symbol_at(w->o, ELF64_R_SYM(r->r_info));
    if (s && s->st_name)
        w->fn(w->arg, w->o, w->o->strings + s->st_name, (_Atomic uintptr_t *)at,
              type == REL_CALL       ? SLOT_CALL
              : type == REL_GLOB_DAT ? SLOT_ADDRESS
                                     : SLOT_DATA,
              s->st_value ? w->o->base + s->st_value : 0);
}

void object_slots(const struct object *o,
                  void (*fn)(void *arg, const struct object *o, const char *symbol,
                             _Atomic uintptr_t *slot, enum slot_kind kind, uintptr_t own),
                  void *arg)
{
    const struct walk w = {.o = o, .fn = fn, .arg = arg};
    for (size_t i = 0; i < o->n_calls; i++)
        look_at(&w, &o->calls[i]);
    for (size_t i = 0; i < o->n_rela; i++)
        look_at(&w, &o->rela[i]);
}

bool object_open(const struct object *o)
{
    return mprotect((void *)o->relro_start, o->relro_end - o->relro_start,
                    PROT_READ | PROT_WRITE) == 0;
}

void object_close(const struct object *o)
{
    (void)mprotect((void *)o->relro_start, o->relro_end - o->relro_start, PROT_READ);
}
