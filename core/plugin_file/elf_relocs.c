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

static bool in_array(const struct elf *e, int64_t at, int64_t size, uint64_t address)
{
    return elf_has(&e->view, at) && address >= elf_value(&e->view, at) &&
           address - elf_value(&e->view, at) < elf_value(&e->view, size);
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
        if ((in_array(e, DT_INIT_ARRAY, DT_INIT_ARRAYSZ, r->r_offset) ||
             in_array(e, DT_FINI_ARRAY, DT_FINI_ARRAYSZ, r->r_offset)) &&
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

static int check_table(struct elf *e, int64_t at_tag, int64_t size_tag)
{
    uint64_t size = elf_value(&e->view, size_tag), n = size / sizeof(Elf64_Rela);
    const unsigned char *at;
    int rc = 0;

    if (!elf_has(&e->view, at_tag))
        return 0;
    at = elf_at(e, elf_value(&e->view, at_tag), size);
    if (!at || elf_value(&e->view, at_tag) % 8 || size % sizeof(Elf64_Rela))
        return elf_refuse("its relocations lie outside of the file; is it damaged?");
    uint64_t relative = at_tag == DT_RELA && elf_has(&e->view, DT_RELACOUNT)
                            ? elf_value(&e->view, DT_RELACOUNT)
                            : 0;
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
    uint64_t where = 0, n = elf_value(&e->view, DT_RELRSZ) / 8;

    if (!elf_has(&e->view, DT_RELR))
        return 0;
    at = elf_at(e, elf_value(&e->view, DT_RELR), elf_value(&e->view, DT_RELRSZ));
    if (!at || elf_value(&e->view, DT_RELR) % 8 || elf_value(&e->view, DT_RELRSZ) % 8)
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
    static const int64_t once[] = {DT_INIT, DT_FINI};
    static const int64_t arrays[][2] = {{DT_INIT_ARRAY, DT_INIT_ARRAYSZ},
                                        {DT_FINI_ARRAY, DT_FINI_ARRAYSZ}};
    for (int i = 0; i < 2; i++) {
        if (elf_has(&e->view, once[i]) && !elf_in(e, elf_value(&e->view, once[i]), 1, PF_X))
            return elf_refuse("a constructor of it lies outside of its code; is it damaged?");
        if (elf_has(&e->view, arrays[i][0]) &&
            (elf_value(&e->view, arrays[i][0]) % 8 || elf_value(&e->view, arrays[i][1]) % 8 ||
             !elf_at(e, elf_value(&e->view, arrays[i][0]), elf_value(&e->view, arrays[i][1]))))
            return elf_refuse("its list of constructors lies outside of the file; is it damaged?");
    }
    e->facts.runs = e->facts.runs || elf_has(&e->view, DT_INIT) ||
                    (elf_has(&e->view, DT_INIT_ARRAY) && elf_value(&e->view, DT_INIT_ARRAYSZ) > 0);
    return 0;
}

static void note_relocs(struct elf *e, int64_t at, int64_t size)
{
    if (elf_has(&e->view, at))
        elf_keep(e, elf_value(&e->view, at), elf_value(&e->view, size));
}

int elf_relocs_check(struct elf *e)
{
    note_relocs(e, DT_RELA, DT_RELASZ);
    note_relocs(e, DT_JMPREL, DT_PLTRELSZ);
    note_relocs(e, DT_RELR, DT_RELRSZ);
    int rc = check_calls(e);
    if (rc == 0)
        rc = check_table(e, DT_RELA, DT_RELASZ);
    if (rc == 0)
        rc = check_table(e, DT_JMPREL, DT_PLTRELSZ);
    return rc < 0 ? rc : check_relr(e);
}
