/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/internal.h - what the files of this folder know of a process and tell nobody else.
 * Owner's thread only.
 */
#ifndef CORE_STACK_INTERNAL_H
#define CORE_STACK_INTERNAL_H

#include <elf.h>

#include "core/stack/stack.h"
#include "sdk/lib/proc/maps.h"
#include "sdk/lib/proc/memory.h"

#define PAGE_BYTES \
    UINT64_C(4096)       /* of our cache; the kernel's may be larger, reads do not care \
                                   */
#define PAGE_SLOTS 1024u /* 4 MiB at most; torch with 316 modules uses about 300 */

struct page {
    uint64_t address;    /* 1: empty */
    uint64_t generation; /* 0: memory that does not change while the maps stand */
    unsigned char bytes[4096];
};

/* Function symbols of one module, in order of address. */
struct symbols {
    const void *file; /* mmap of the module's file, NULL: table and names are copies on the heap */
    size_t file_size;
    const Elf64_Sym *table;
    const char *names;
    uint64_t names_size;
    uint32_t *order; /* indices of functions into table; NULL in a pool: the table is searched */
    uint32_t n;      /* entries of `order`; without it, of `table` */
    uint32_t looks;  /* that were made */
    bool tried;
};

enum module_state { MODULE_UNKNOWN = 0, MODULE_ELF = 1, MODULE_NONE = 2 };

struct module {
    struct stack_module about;
    enum module_state state;
    uint64_t inode, first_end;        /* of the first mapping: it names the entry of map_files */
    char *path;                       /* owned */
    bool seen;                        /* while the maps are read again */
    uint64_t dynamic;                 /* address of the section, 0: none */
    uint64_t build_id, build_id_size; /* address of the bytes */
    Elf64_Ehdr header;
    Elf64_Phdr segments[24];
    uint32_t n_segments;
    struct symbols symbols;
};

struct stack_process {
    pid_t pid;
    bool self;
    unsigned char *pool; /* where all memory comes from instead of malloc; NULL: malloc */
    size_t pool_size, pool_used;
    const struct stack_piece *dead; /* all that is left of its memory; NULL: it lives */
    uint32_t n_dead;
    struct proc_memory memory; /* of the living */
    struct proc_mapping *maps; /* their paths are in `paths` */
    uint32_t n_maps;
    char *paths;
    uint64_t generation;
    bool maps_fresh;         /* read since the last refresh: a miss is a miss */
    uint64_t again_ns;       /* after reading them in vain: not before then */
    struct module **modules; /* in order of base */
    uint32_t n_modules;
    struct page *pages[PAGE_SLOTS];
    uint64_t overlay, overlay_size;
    const unsigned char *overlay_bytes;
    void *space;           /* unw_addr_space_t */
    bool no_table;         /* the last lookup of unwind information found none */
    struct plainer *plain; /* of names of C++; NULL: none was met */
};

/* process.c: zeroed memory of the view, out of its pool where it has one; pieces of a pool come
 * back all at once. */
void *process_alloc(struct stack_process *p, size_t size);
void process_free(const struct stack_process *p, const void *piece);
int process_read_maps(struct stack_process *p);
int process_parse_maps(struct stack_process *p, char *text, size_t size); /* takes the text */
const struct proc_mapping *process_mapping_at(const struct stack_process *p, uint64_t address);

/* offline.c */
size_t dead_read(struct stack_process *p, uint64_t address, void *ret, size_t size);

/* elf.c */
int modules_update(struct stack_process *p); /* after the maps were read */
void modules_free(struct stack_process *p);
struct module *module_at(struct stack_process *p, uint64_t address);
/* Copies .dynsym and .dynstr into table, names and n; caller calls symbols_done(). */
int module_copy_symbols(struct stack_process *p, const struct module *m, struct symbols *ret);

/* symbol.c */
void symbols_done(const struct stack_process *p, struct symbols *s);
bool symbol_is_function(const struct symbols *s, const Elf64_Sym *symbol);

/* unwind.c */
int unwind_begin(struct stack_process *p);  /* libunwind's memory is taken now, not later */
void unwind_flush(struct stack_process *p); /* modules changed */
void unwind_done(struct stack_process *p);

#endif
