/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_file/internal.h - what the files of the check share: a file taken apart as far as it
 * has been found right.
 *
 *     elf_check.c: headers, segments, the dynamic section
 *     elf_symbols.c: names, hash tables, versions     elf_relocs.c: relocations, constructors
 */
#ifndef CORE_PLUGIN_FILE_INTERNAL_H
#define CORE_PLUGIN_FILE_INTERNAL_H

#include <elf.h>

#include "core/plugin_file/elf_check.h"
#include "sdk/lib/elf_view.h"

#define ELF_PARTS 64  /* program headers; real libraries have a dozen */
#define ELF_TABLES 16 /* ranges that no relocation may write to */

#if defined(__x86_64__)
#define ELF_MACHINE EM_X86_64
#define ELF_MACHINE_NAME "x86-64"
#else
#define ELF_MACHINE EM_AARCH64
#define ELF_MACHINE_NAME "aarch64"
#endif

struct elf {
    struct elf_view view; /* first; by addresses of a file mapped from 0 on */
    const unsigned char *bytes;
    uint64_t size, page;
    Elf64_Ehdr head;
    Elf64_Phdr parts[ELF_PARTS];
    uint64_t dynamic, dynamic_size;
    const char *names; /* the string table, which ends with a NUL */
    uint64_t names_size;
    uint64_t n_symbols;
    struct {
        uint64_t from, to;
    } tables[ELF_TABLES];
    uint32_t n_tables;
    struct elf_facts facts;
};

/* The bytes of an address range that comes from the file, all in one segment; NULL: there are not
 * so many. */
const void *elf_at(const struct elf *e, uint64_t address, uint64_t n);
/* How many bytes of the file follow an address in its segment. */
uint64_t elf_room(const struct elf *e, uint64_t address);
/* Is the range in memory of one segment with all these PF_ flags? */
bool elf_in(const struct elf *e, uint64_t address, uint64_t n, uint32_t flags);
/* No relocation may write there. */
void elf_keep(struct elf *e, uint64_t address, uint64_t n);
Elf64_Sym elf_symbol(const struct elf *e, uint64_t i);
int elf_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* elf_check() for who goes on reading: `bytes` must live as long as what it gives. */
int elf_take(const void *bytes, size_t size, struct elf *ret);
/* The bytes of an open file, in memory of ours: caller munmap()s *ret_room of them. */
int seal_bytes(int fd, int64_t max, char **ret, size_t *ret_size, size_t *ret_room);
int elf_symbols_check(struct elf *e);
int elf_relocs_check(struct elf *e);

#endif
