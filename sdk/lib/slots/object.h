/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/slots/object.h - a loaded object as the dynamic linker sees it: its symbols, and
 * the slots that were filled with addresses of symbols.
 *
 * Read out of memory, by no file and no function of the dynamic linker.  Valid while the callback
 * of dl_iterate_phdr() that gave it runs; nothing here allocates or locks.
 */
#ifndef SDK_LIB_SLOTS_OBJECT_H
#define SDK_LIB_SLOTS_OBJECT_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

#include "../elf_view.h"

struct object {
    struct elf_view view; /* first */
    uintptr_t base;       /* what is added to an address of the file */
    const char *name;     /* its path; "": the program */
    const ElfW(Phdr) * segments;
    uint32_t n_segments;
    uintptr_t relro_start, relro_end; /* pages that are made read-only after relocation */
    const ElfW(Sym) * symbols;
    const char *strings;
    size_t strings_size;     /* bytes */
    const ElfW(Rela) * rela; /* without those that only add the base */
    size_t n_rela;
    const ElfW(Rela) * calls; /* R_*_JUMP_SLOT: filled at the first call, if lazy */
    size_t n_calls;
    bool symbolic; /* its own symbols come first */
};

enum slot_kind {
    SLOT_CALL,    /* R_*_JUMP_SLOT */
    SLOT_ADDRESS, /* R_*_GLOB_DAT: the function's address, for calls and whoever takes it */
    SLOT_DATA     /* R_*_64: the same in a variable, which the program may have changed since */
};

/* false: it has no dynamic section that makes sense (the vdso's is not moved). */
bool object_read(const struct dl_phdr_info *info, struct object *ret);

/* Has it this address, in a segment with these flags (PF_X; 0: any)? */
bool object_has(const struct object *o, uintptr_t address, uint32_t flags);

/* The address of the object's own function; for an indirect function, the one that its resolver
 * gives.  0: it does not define one that others may bind to. */
uintptr_t object_defines(const struct object *o, const char *name);

/* All slots of the object that were filled for a symbol.  `own`: the symbol's address in the
 * object, of one that it does not define as well: there that is the entry of its table of calls
 * that stands for the function in the whole process; 0: none. */
void object_slots(const struct object *o,
                  void (*fn)(void *arg, const struct object *o, const char *symbol,
                             _Atomic uintptr_t *slot, enum slot_kind kind, uintptr_t own),
                  void *arg);

/* The slots that the dynamic linker has made read-only: to be written, and as it left them.  Not
 * before it has finished with them (page.h).  false: the kernel refuses, nothing has changed. */
bool object_open(const struct object *o);
void object_close(const struct object *o);

#endif
