/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_file/elf_symbols.c - the symbols of a plugin's file: hash tables that end, names and
 * versions that are there, and the one symbol that we will read.
 *
 * Any thread.
 */
#include <probing/plugin.h>
#include <probing/report.h>
#include <string.h>

#include "core/plugin_file/internal.h"

static uint32_t word_at(const unsigned char *at, uint64_t i)
{
    uint32_t w;
    memcpy(&w, at + i * sizeof(w), sizeof(w));
    return w;
}

Elf64_Sym elf_symbol(const struct elf *e, uint64_t i)
{
    Elf64_Sym s = {0};
    if (i >= e->n_symbols || !elf_view_symbol(&e->view, i, &s))
        s = (Elf64_Sym){0};
    return s;
}

/* ---- hash tables ---- */

static int bad_hash(void)
{
    return elf_refuse("its table of symbols is damaged");
}

/* header (4 words), bloom filter, buckets, then a word for each symbol from `first` on; the last
 * of a bucket has bit 0 set. */
static int check_gnu_hash(struct elf *e)
{
    uint64_t address = elf_value(&e->view, DT_GNU_HASH), room = elf_room(e, address), taken = 0;
    const unsigned char *at = elf_at(e, address, 16);

    if (!at || address % 8)
        return bad_hash();
    uint64_t n_buckets = word_at(at, 0), first = word_at(at, 1), bloom = word_at(at, 2);
    uint64_t head = 16 + bloom * 8 + n_buckets * 4;
    if (n_buckets == 0 || bloom == 0 || bloom & (bloom - 1) || word_at(at, 3) >= 32 || head > room)
        return bad_hash();
    uint64_t n_chain = (room - head) / 4, end = first;
    const unsigned char *buckets = at + 16 + bloom * 8, *chain = at + head;
    for (uint64_t b = 0; b < n_buckets; b++) {
        uint64_t i = word_at(buckets, b);
        if (i == 0)
            continue;
        if (i < first)
            return bad_hash();
        do {
            /* Chains do not share symbols, or this would not end in time. */
            if (i - first >= n_chain || taken++ >= n_chain)
                return bad_hash();
        } while (!(word_at(chain, i++ - first) & 1));
        end = i > end ? i : end;
    }
    if (taken == 0)
        return elf_refuse("it does not export " PLUGIN_SYMBOL "; is it a probing plugin?");
    e->n_symbols = end;
    elf_keep(e, address, head + (end - first) * 4);
    return 0;
}

/* nbucket, nchain, buckets, chains. */
static int check_hash(struct elf *e)
{
    uint64_t address = elf_value(&e->view, DT_HASH), room = elf_room(e, address), taken = 0;
    const unsigned char *at = elf_at(e, address, 8);

    if (!at || address % 4)
        return bad_hash();
    uint64_t n_buckets = word_at(at, 0), n_chain = word_at(at, 1);
    if (n_buckets == 0 || 8 + (n_buckets + n_chain) * 4 > room)
        return bad_hash();
    for (uint64_t b = 0; b < n_buckets; b++) {
        for (uint64_t i = word_at(at, 2 + b); i != 0; i = word_at(at, 2 + n_buckets + i))
            if (i >= n_chain || taken++ >= n_chain)
                return bad_hash();
    }
    if (elf_has(&e->view, DT_GNU_HASH) && e->n_symbols > n_chain)
        return bad_hash();
    e->n_symbols = n_chain;
    elf_keep(e, address, 8 + (n_buckets + n_chain) * 4);
    return 0;
}

/* ---- versions ---- */

static int bad_versions(void)
{
    return elf_refuse("its versions of symbols are damaged");
}

static bool is_needed(const struct elf *e, const char *name)
{
    Elf64_Dyn d;
    for (uint64_t i = 0; elf_view_entry(&e->view, i, &d); i++)
        if (d.d_tag == DT_NEEDED && strcmp(e->names + d.d_un.d_val, name) == 0)
            return true;
    return false;
}

/* One library and the versions wanted of it.  0: more follows at *ret_next, 1: it was the last. */
static int check_need(const struct elf *e, uint64_t address, uint64_t *ret_next, uint32_t *most)
{
    Elf64_Verneed need;
    Elf64_Vernaux aux;
    const void *at = elf_at(e, address, sizeof(need));

    if (!at || address % 4)
        return bad_versions();
    memcpy(&need, at, sizeof(need));
    /* A library that is not named would stop the loader with an assertion. */
    if (need.vn_version != 1 || need.vn_file >= e->names_size ||
        !is_needed(e, e->names + need.vn_file))
        return bad_versions();
    uint64_t next = address + need.vn_aux;
    for (bool more = true; more; next += aux.vna_next) {
        at = elf_at(e, next, sizeof(aux));
        if (!at || next % 4)
            return bad_versions();
        memcpy(&aux, at, sizeof(aux));
        if (aux.vna_name >= e->names_size)
            return bad_versions();
        *most = (aux.vna_other & 0x7fff) > *most ? aux.vna_other & 0x7fff : *most;
        more = aux.vna_next != 0;
    }
    *ret_next = address + need.vn_next;
    return need.vn_next == 0;
}

static int check_def(const struct elf *e, uint64_t address, uint64_t *ret_next, uint32_t *most)
{
    Elf64_Verdef def;
    Elf64_Verdaux aux;
    const void *at = elf_at(e, address, sizeof(def));

    if (!at || address % 4)
        return bad_versions();
    memcpy(&def, at, sizeof(def));
    at = elf_at(e, address + def.vd_aux, sizeof(aux));
    if (def.vd_version != 1 || !at || (address + def.vd_aux) % 4)
        return bad_versions();
    memcpy(&aux, at, sizeof(aux));
    if (aux.vda_name >= e->names_size)
        return bad_versions();
    *most = (def.vd_ndx & 0x7fff) > *most ? def.vd_ndx & 0x7fffu : *most;
    *ret_next = address + def.vd_next;
    return def.vd_next == 0;
}

static int check_chain(struct elf *e, int64_t tag, uint32_t *most,
                       int (*one)(const struct elf *, uint64_t, uint64_t *, uint32_t *))
{
    uint64_t at = elf_value(&e->view, tag);
    int rc = 0;

    while (rc == 0)
        rc = one(e, at, &at, most); /* forward only: the file has an end */
    elf_keep(e, elf_value(&e->view, tag),
             rc == 1 ? at + sizeof(Elf64_Verneed) - elf_value(&e->view, tag) : 0);
    return rc < 0 ? rc : 0;
}

static int check_versions(struct elf *e)
{
    uint32_t most = 1;
    int rc = 0;

    if (elf_has(&e->view, DT_VERNEED))
        rc = check_chain(e, DT_VERNEED, &most, check_need);
    if (rc == 0 && elf_has(&e->view, DT_VERDEF))
        rc = check_chain(e, DT_VERDEF, &most, check_def);
    if (rc < 0 || !elf_has(&e->view, DT_VERSYM))
        return rc;
    const unsigned char *at = elf_at(e, elf_value(&e->view, DT_VERSYM), e->n_symbols * 2);
    if (!at || elf_value(&e->view, DT_VERSYM) % 2 ||
        (!elf_has(&e->view, DT_VERNEED) && !elf_has(&e->view, DT_VERDEF)))
        return bad_versions();
    for (uint64_t i = 0; i < e->n_symbols; i++) {
        uint16_t version;
        memcpy(&version, at + i * 2, sizeof(version));
        if ((version & 0x7fff) > most)
            return bad_versions();
    }
    elf_keep(e, elf_value(&e->view, DT_VERSYM), e->n_symbols * 2);
    return 0;
}

/* ---- symbols ---- */

/* The offset in the file of a struct of the contract; 0: that is no place for one. */
static uint64_t place_of(const struct elf *e, const Elf64_Sym *s, size_t size)
{
    const unsigned char *at = elf_at(e, s->st_value, size);
    int type = ELF64_ST_TYPE(s->st_info);
    bool data = type == STT_OBJECT || type == STT_NOTYPE;

    return at && s->st_value % 8 == 0 && data && s->st_shndx != SHN_ABS ? (uint64_t)(at - e->bytes)
                                                                        : 0;
}

static int check_symbol(struct elf *e, const Elf64_Sym *s)
{
    if (s->st_name >= e->names_size)
        return elf_refuse("a symbol's name lies outside of its names; is it damaged?");
    if (s->st_shndx == SHN_UNDEF)
        return 0;
    if (ELF64_ST_TYPE(s->st_info) == STT_GNU_IFUNC) {
        e->facts.runs = true;
        if (!elf_in(e, s->st_value, 1, PF_X))
            return elf_refuse("an indirect function of it lies outside of its code");
    }
    const char *name = e->names + s->st_name;
    if (strcmp(name, PLUGIN_SYMBOL) == 0) {
        e->facts.plugin = place_of(e, s, offsetof(struct probing_plugin, declares));
        e->facts.plugin_at = s->st_value;
        return e->facts.plugin
                   ? 0
                   : elf_refuse(PLUGIN_SYMBOL " is not a struct probing_plugin of its data");
    }
    if (strcmp(name, REPORT_SYMBOL) == 0) {
        e->facts.report = place_of(e, s, sizeof(struct probing_report));
        return e->facts.report
                   ? 0
                   : elf_refuse(REPORT_SYMBOL " is no struct probing_report of its data");
    }
    return 0;
}

int elf_symbols_check(struct elf *e)
{
    int rc = 0;

    if (elf_has(&e->view, DT_GNU_HASH))
        rc = check_gnu_hash(e);
    if (rc == 0 && elf_has(&e->view, DT_HASH))
        rc = check_hash(e);
    if (rc < 0)
        return rc;
    if (e->n_symbols > ELF_SYMBOLS_MAX ||
        !elf_at(e, elf_value(&e->view, DT_SYMTAB), e->n_symbols * sizeof(Elf64_Sym)) ||
        elf_value(&e->view, DT_SYMTAB) % 8)
        return elf_refuse("its symbols lie outside of the file; is it damaged?");
    elf_keep(e, elf_value(&e->view, DT_SYMTAB), e->n_symbols * sizeof(Elf64_Sym));
    for (uint64_t i = 0; i < e->n_symbols && rc == 0; i++) {
        Elf64_Sym s = elf_symbol(e, i);
        rc = check_symbol(e, &s);
    }
    return rc < 0 ? rc : check_versions(e);
}
