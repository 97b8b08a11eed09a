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
static bool readable(const struct object *o, uintptr_t address, size_t size)
{
    for (size_t n; size > 0; address += n, size -= n) {
        n = readable_bytes(o, address);
        if (n == 0)
            return false;
        n = n < size ? n : size;
    }
    return true;
}

/* ld.so has added the base to the addresses of a dynamic section, or it has not yet. */
static uintptr_t moved(const struct object *o, uintptr_t value)
{
    return object_has(o, value, PF_R) ? value : o->base + value;
}

struct dynamic {
    uintptr_t symbols, strings, versions, gnu_hash, hash, rela, calls;
    size_t strings_size, rela_size, calls_size, relative;
    bool symbolic, rela_calls;
};

static void read_dynamic(const ElfW(Dyn) * d, const ElfW(Dyn) * end, struct dynamic *ret)
{
    for (; d < end && d->d_tag != DT_NULL; d++) {
        uintptr_t value = d->d_un.d_ptr;
        switch (d->d_tag) {
        case DT_SYMTAB:
            ret->symbols = value;
            break;
        case DT_STRTAB:
            ret->strings = value;
            break;
        case DT_STRSZ:
            ret->strings_size = value;
            break;
        case DT_VERSYM:
            ret->versions = value;
            break;
        case DT_GNU_HASH:
            ret->gnu_hash = value;
            break;
        case DT_HASH:
            ret->hash = value;
            break;
        case DT_RELA:
            ret->rela = value;
            break;
        case DT_RELASZ:
            ret->rela_size = value;
            break;
        case DT_RELACOUNT:
            ret->relative = value;
            break;
        case DT_JMPREL:
            ret->calls = value;
            break;
        case DT_PLTRELSZ:
            ret->calls_size = value;
            break;
        case DT_PLTREL:
            ret->rela_calls = value == DT_RELA;
            break;
        case DT_SYMBOLIC:
            ret->symbolic = true;
            break;
        case DT_FLAGS:
            ret->symbolic |= (value & DF_SYMBOLIC) != 0;
            break;
        default:
            break; /* what neither symbols nor slots need */
        }
    }
}

static const void *table(const struct object *o, uintptr_t value, size_t size)
{
    uintptr_t at = value ? moved(o, value) : 0;
    return at && readable(o, at, size) ? (const void *)at : NULL;
}

static void take_tables(struct object *o, const struct dynamic *d)
{
    size_t n = d->rela_size / sizeof(ElfW(Rela));
    o->versions = table(o, d->versions, sizeof(uint16_t));
    o->gnu_hash = table(o, d->gnu_hash, 4 * sizeof(uint32_t));
    o->hash = table(o, d->hash, 2 * sizeof(uint32_t));
    o->rela = table(o, d->rela, d->rela_size);
    if (o->rela && d->relative <= n) {
        o->rela += d->relative;
        o->n_rela = n - d->relative;
    }
    o->calls = d->rela_calls ? table(o, d->calls, d->calls_size) : NULL;
    o->n_calls = o->calls ? d->calls_size / sizeof(ElfW(Rela)) : 0;
    o->symbolic = d->symbolic;
}

bool object_read(const struct dl_phdr_info *info, struct object *ret)
{
    struct dynamic d = {0};
    *ret = (struct object){.base = info->dlpi_addr,
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
        } else if (p->p_type == PT_DYNAMIC && readable(ret, at, p->p_memsz)) {
            const ElfW(Dyn) *first = (const void *)at;
            read_dynamic(first, first + p->p_memsz / sizeof(*first), &d);
        }
    }
    ret->strings_size = d.strings_size;
    ret->strings = table(ret, d.strings, d.strings_size);
    ret->symbols = table(ret, d.symbols, sizeof(ElfW(Sym)));
    if (!ret->strings || !ret->symbols || d.strings_size == 0 ||
        ret->strings[d.strings_size - 1] != '\0')
        return false;
    take_tables(ret, &d);
    return true;
}

/* ---- symbols ---- */

/* The symbol of this number, NULL: there is no such. */
static const ElfW(Sym) * symbol_at(const struct object *o, size_t index)
{
    const ElfW(Sym) *s = o->symbols + index;
    return readable(o, (uintptr_t)s, sizeof(*s)) && s->st_name < o->strings_size ? s : NULL;
}

static bool is_hidden_version(const struct object *o, size_t index)
{
    return o->versions && readable(o, (uintptr_t)&o->versions[index], sizeof(uint16_t)) &&
           o->versions[index] & 0x8000;
}

/* Does symbol `index` define `name` for others?  `old` is set where only who asks for that version
 * gets it. */
static bool defines(const struct object *o, size_t index, const char *name, bool *ret_old)
{
    const ElfW(Sym) *s = symbol_at(o, index);
    unsigned type = s ? ELF64_ST_TYPE(s->st_info) : 0, bind = s ? ELF64_ST_BIND(s->st_info) : 0;
    unsigned visible = s ? ELF64_ST_VISIBILITY(s->st_other) : 0;
    if (!s || s->st_shndx == SHN_UNDEF || !s->st_value || bind == STB_LOCAL ||
        (visible != STV_DEFAULT && visible != STV_PROTECTED) ||
        (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE && type != STT_OBJECT) ||
        strcmp(o->strings + s->st_name, name) != 0)
        return false;
    *ret_old = is_hidden_version(o, index);
    return true;
}

struct found {
    size_t index; /* 0: none */
    bool old;
};

/* true: it need not be looked for any longer. */
static bool take(const struct object *o, size_t index, const char *name, struct found *f)
{
    bool old = false;
    if (!defines(o, index, name, &old) || (f->index && old))
        return false;
    *f = (struct found){.index = index, .old = old};
    return !old;
}

static struct found find_gnu(const struct object *o, const char *name)
{
    struct found f = {0};
    const uint32_t *head = o->gnu_hash;
    uint32_t n_buckets = head[0], first = head[1], n_words = head[2], shift = head[3], hash = 5381;
    const uint64_t *bloom = (const void *)(head + 4);
    const uint32_t *buckets = (const void *)(bloom + n_words), *chain = buckets + n_buckets;
    if (!n_buckets || !n_words || !readable(o, (uintptr_t)head, (uintptr_t)chain - (uintptr_t)head))
        return f;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    uint64_t word = bloom[hash / 64 % n_words];
    if (!(word >> hash % 64 & word >> (hash >> (shift & 31)) % 64 & 1))
        return f;
    for (uint32_t i = buckets[hash % n_buckets]; i >= first && i; i++) {
        const uint32_t *link = &chain[i - first];
        if (!readable(o, (uintptr_t)link, sizeof(*link)) ||
            ((*link | 1) == (hash | 1) && take(o, i, name, &f)) || *link & 1)
            break;
    }
    return f;
}

static struct found find_sysv(const struct object *o, const char *name)
{
    struct found f = {0};
    uint32_t n_buckets = o->hash[0], n_symbols = o->hash[1], hash = 0;
    const uint32_t *buckets = o->hash + 2, *chain = buckets + n_buckets;
    if (!n_buckets ||
        !readable(o, (uintptr_t)o->hash, (2 + (size_t)n_buckets + n_symbols) * sizeof(uint32_t)))
        return f;
    for (const char *c = name; *c; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0xfffffff;
    }
    uint32_t steps = 0;
    for (uint32_t i = buckets[hash % n_buckets]; i && i < n_symbols && steps < n_symbols; steps++) {
        if (take(o, i, name, &f))
            break;
        i = chain[i];
    }
    return f;
}

uintptr_t object_defines(const struct object *o, const char *name)
{
    struct found f = {0};
    if (o->gnu_hash)
        f = find_gnu(o, name);
    else if (o->hash)
        f = find_sysv(o, name);
    if (!f.index)
        return 0;
    const ElfW(Sym) *s = &o->symbols[f.index];
    uintptr_t at = o->base + s->st_value;
    if (ELF64_ST_TYPE(s->st_info) != STT_GNU_IFUNC)
        return at;
    return ((uintptr_t(*)(void))at)(); /* its resolver has run before, in relocation */
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
