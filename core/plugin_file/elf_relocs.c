/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_file/elf_relocs.c - where loading a plugin's file writes, and what code of it loading
 * runs.
 *
 * Any thread.
 */
#include <string.h>

#include "core/plugin_file/internal.h"

#if defined(__x86_64__)
enum {
    REL_NONE = R_X86_64_NONE,
    REL_ABSOLUTE = R_X86_64_64,
    REL_GLOB_DAT = R_X86_64_GLOB_DAT,
    REL_JUMP_SLOT = R_X86_64_JUMP_SLOT,
    REL_RELATIVE = R_X86_64_RELATIVE,
    REL_TLS_MODULE = R_X86_64_DTPMOD64,
    REL_TLS_OFFSET = R_X86_64_DTPOFF64,
    REL_TLS_STATIC = R_X86_64_TPOFF64,
    REL_TLS_DESC = R_X86_64_TLSDESC,
    REL_INDIRECT = R_X86_64_IRELATIVE
};
#else
enum {
    REL_NONE = R_AARCH64_NONE,
    REL_ABSOLUTE = R_AARCH64_ABS64,
    REL_GLOB_DAT = R_AARCH64_GLOB_DAT,
    REL_JUMP_SLOT = R_AARCH64_JUMP_SLOT,
    REL_RELATIVE = R_AARCH64_RELATIVE,
    REL_TLS_MODULE = R_AARCH64_TLS_DTPMOD,
    REL_TLS_OFFSET = R_AARCH64_TLS_DTPREL,
    REL_TLS_STATIC = R_AARCH64_TLS_TPREL,
    REL_TLS_DESC = R_AARCH64_TLSDESC,
    REL_INDIRECT = R_AARCH64_IRELATIVE
};
#endif

/* May loading write there?  Not over what the loader itself reads. */
static bool may_write(const struct elf *e, uint64_t address, uint64_t n)
{
    if (!elf_in(e, address, n, PF_R | PF_W))
        return false;
    for (uint32_t i = 0; i < e->n_tables; i++)
        if (address < e->tables[i].to && address + n > e->tables[i].from)
            return false;
    return true;
}

static bool has_tls(const struct elf *e)
{
    for (uint32_t i = 0; i < e->head.e_phnum; i++)
        if (e->parts[i].p_type == PT_TLS)
            return true;
    return false;
}

static bool in_array(const struct elf *e, enum elf_tag at, enum elf_tag size, uint64_t address)
{
    return e->view.has[at] && address >= e->view.value[at] &&
           address - e->view.value[at] < e->view.value[size];
}

static int refuse_astray(const Elf64_Rela *r)
{
    return elf_refuse("a relocation of it (type %u) goes to 0x%llx, where it may not write; is it "
                      "damaged?",
                      (unsigned)ELF64_R_TYPE(r->r_info), (unsigned long long)r->r_offset);
}

static int check_rela(struct elf *e, const Elf64_Rela *r)
{
    uint32_t type = ELF64_R_TYPE(r->r_info);
    uint64_t index = ELF64_R_SYM(r->r_info);
    Elf64_Sym s = elf_symbol(e, index);
    bool own = index == 0 || s.st_shndx != SHN_UNDEF || s.st_other != 0 ||
               ELF64_ST_BIND(s.st_info) == STB_LOCAL;

    if (type == REL_NONE)
        return 0;
    if (index >= e->n_symbols && index != 0)
        return elf_refuse("a relocation names symbol %llu of %llu; is it damaged?",
                          (unsigned long long)index, (unsigned long long)e->n_symbols);
    if (!may_write(e, r->r_offset, type == REL_TLS_DESC ? 16 : 8))
        return refuse_astray(r);
    switch (type) {
    case REL_RELATIVE:
        /* A constructor's address: it will be called. */
        if ((in_array(e, TAG_INIT_ARRAY, TAG_INIT_ARRAYSZ, r->r_offset) ||
             in_array(e, TAG_FINI_ARRAY, TAG_FINI_ARRAYSZ, r->r_offset)) &&
            !elf_in(e, (uint64_t)r->r_addend, 1, PF_X))
            return elf_refuse("a constructor of it lies outside of its code; is it damaged?");
        return 0;
    case REL_INDIRECT:
        e->facts.runs = true;
        return elf_in(e, (uint64_t)r->r_addend, 1, PF_X)
                   ? 0
                   : elf_refuse("an indirect function of it lies outside of its code");
    case REL_TLS_MODULE:
    case REL_TLS_OFFSET:
    case REL_TLS_STATIC:
    case REL_TLS_DESC:
        return has_tls(e) || !own
                   ? 0
                   : elf_refuse("it names thread-local data and has none; is it damaged?");
    case REL_ABSOLUTE:
    case REL_GLOB_DAT:
    case REL_JUMP_SLOT:
        return 0;
    default: /* what a library has no use for: copies, halves of addresses */
        return elf_refuse("it has relocations of type %u, which libraries have no use for; build "
                          "it with -fPIC",
                          type);
    }
}

static int check_table(struct elf *e, enum elf_tag at_tag, enum elf_tag size_tag)
{
    uint64_t size = e->view.value[size_tag], n = size / sizeof(Elf64_Rela);
    const unsigned char *at;
    int rc = 0;

    if (!e->view.has[at_tag])
        return 0;
    at = elf_at(e, e->view.value[at_tag], size);
    if (!at || e->view.value[at_tag] % 8 || size % sizeof(Elf64_Rela))
        return elf_refuse("its relocations lie outside of the file; is it damaged?");
    uint64_t relative =
        at_tag == TAG_RELA && e->view.has[TAG_RELACOUNT] ? e->view.value[TAG_RELACOUNT] : 0;
    if (relative > n)
        return elf_refuse("it counts more relocations than it has; is it damaged?");
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        Elf64_Rela rela;
        memcpy(&rela, at + i * sizeof(rela), sizeof(rela));
        rc = check_rela(e, &rela);
        if (rc == 0 && i < relative && ELF64_R_TYPE(rela.r_info) != REL_RELATIVE)
            return elf_refuse("its first relocations are not the kind it says; is it damaged?");
    }
    return rc;
}

/* Addresses, each followed by maps of which of the next 63 words are meant. */
static int check_relr(struct elf *e)
{
    const unsigned char *at;
    uint64_t where = 0, n = e->view.value[TAG_RELRSZ] / 8;

    if (!e->view.has[TAG_RELR])
        return 0;
    at = elf_at(e, e->view.value[TAG_RELR], e->view.value[TAG_RELRSZ]);
    if (!at || e->view.value[TAG_RELR] % 8 || e->view.value[TAG_RELRSZ] % 8)
        return elf_refuse("its relocations lie outside of the file; is it damaged?");
    for (uint64_t i = 0; i < n; i++) {
        uint64_t word;
        memcpy(&word, at + i * 8, sizeof(word));
        Elf64_Rela r = {.r_offset = word};
        if (!(word & 1)) {
            if (!may_write(e, word, 8))
                return refuse_astray(&r);
            where = word + 8;
            continue;
        }
        for (uint64_t bit = 1; bit < 64; bit++) {
            r.r_offset = where + (bit - 1) * 8;
            if (word >> bit & 1 && !may_write(e, r.r_offset, 8))
                return refuse_astray(&r);
        }
        where += 63 * 8;
    }
    return 0;
}

static int check_calls(struct elf *e)
{
    static const enum elf_tag once[] = {TAG_INIT, TAG_FINI};
    static const enum elf_tag arrays[][2] = {{TAG_INIT_ARRAY, TAG_INIT_ARRAYSZ},
                                             {TAG_FINI_ARRAY, TAG_FINI_ARRAYSZ}};
    for (int i = 0; i < 2; i++) {
        if (e->view.has[once[i]] && !elf_in(e, e->view.value[once[i]], 1, PF_X))
            return elf_refuse("a constructor of it lies outside of its code; is it damaged?");
        if (e->view.has[arrays[i][0]] &&
            (e->view.value[arrays[i][0]] % 8 || e->view.value[arrays[i][1]] % 8 ||
             !elf_at(e, e->view.value[arrays[i][0]], e->view.value[arrays[i][1]])))
            return elf_refuse("its list of constructors lies outside of the file; is it damaged?");
    }
    e->facts.runs = e->facts.runs || e->view.has[TAG_INIT] ||
                    (e->view.has[TAG_INIT_ARRAY] && e->view.value[TAG_INIT_ARRAYSZ] > 0);
    return 0;
}

static void note_relocs(struct elf *e, enum elf_tag at, enum elf_tag size)
{
    if (e->view.has[at])
        elf_keep(e, e->view.value[at], e->view.value[size]);
}

int elf_relocs_check(struct elf *e)
{
    note_relocs(e, TAG_RELA, TAG_RELASZ);
    note_relocs(e, TAG_JMPREL, TAG_PLTRELSZ);
    note_relocs(e, TAG_RELR, TAG_RELRSZ);
    int rc = check_calls(e);
    if (rc == 0)
        rc = check_table(e, TAG_RELA, TAG_RELASZ);
    if (rc == 0)
        rc = check_table(e, TAG_JMPREL, TAG_PLTRELSZ);
    return rc < 0 ? rc : check_relr(e);
}
