/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/elf_view.h - the dynamic section and the symbols of an ELF object, wherever its bytes
 * are: mapped in this process, in the memory of another one, or in a file.
 *
 * Any thread; nothing here allocates, locks or follows a pointer of the object: all its bytes come
 * by read(), which refuses what the object does not have.  Loops end whatever the bytes are.
 */
#ifndef SDK_LIB_ELF_VIEW_H
#define SDK_LIB_ELF_VIEW_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_SYMBOLS_MAX (8u << 20) /* libtorch_cpu.so has about 200,000 */

#ifndef DT_RELR /* newer than some <elf.h> */
#define DT_RELRSZ 35
#define DT_RELR 36
#define DT_RELRENT 37
#endif
#define ELF_TAGS 55 /* 38 of ELF's own, 16 of GNU's from DT_VERSYM on, and DT_GNU_HASH */

struct elf_view {
    /* Copies `n` bytes at an address of the object.  false: it does not have all of them. */
    bool (*read)(const struct elf_view *v, uint64_t address, void *ret, size_t n);
    void *arg;     /* read()'s */
    uint64_t base; /* where the object begins: the loader has moved no address below */
    uint64_t bias; /* what is missing to such an address */
    uint64_t dynamic, n_dynamic; /* the section's address, and its entries without the last */
    bool has[ELF_TAGS];          /* by elf_tag() */
    uint64_t value[ELF_TAGS];    /* of the last entry of each tag, as it stands there */
};

/* Gives the place of a DT_... in has[] and value[], 0: nobody reads it. */
static inline int elf_tag(int64_t tag)
{
    if (tag > 0 && tag <= DT_RELRENT)
        return (int)tag;
    if (tag >= DT_VERSYM && tag <= DT_VERNEEDNUM)
        return DT_RELRENT + 1 + (int)(tag - DT_VERSYM);
    return tag == DT_GNU_HASH ? ELF_TAGS - 1 : 0;
}

static inline bool elf_has(const struct elf_view *v, int64_t tag)
{
    return v->has[elf_tag(tag)];
}

static inline uint64_t elf_value(const struct elf_view *v, int64_t tag)
{
    return v->value[elf_tag(tag)];
}

/* Reads the dynamic section of at most `n` entries; read, arg, base and bias are there already.
 * false: it has no end. */
bool elf_view_dynamic(struct elf_view *v, uint64_t address, uint64_t n);
/* Gives the i-th entry of it; false: it has no such entry. */
bool elf_view_entry(const struct elf_view *v, uint64_t i, Elf64_Dyn *ret);
/* Gives the address that a tag names, 0: it does not. */
uint64_t elf_view_address(const struct elf_view *v, int64_t tag);

/* Says whether the object's names have this one at `at`. */
bool elf_view_has_name(const struct elf_view *v, uint64_t at, const char *name);
bool elf_view_symbol(const struct elf_view *v, uint64_t i, Elf64_Sym *ret);
/* Counts the symbols by the hash tables, 0: they are damaged, or there are too many. */
uint32_t elf_view_count(const struct elf_view *v);
/* Finds the first symbol of a name that is_it() takes; 0: there is none. */
uint32_t elf_view_find(const struct elf_view *v, const char *name,
                       bool (*is_it)(void *arg, uint32_t i, const Elf64_Sym *s), void *arg);

#endif
