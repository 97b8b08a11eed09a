/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/code_cache.h - code objects that were read before: what they are called,
 * their lines.
 *
 * Belongs to a struct walk and its one thread.  An entry is used only after the code object was
 * found to be the same one still: memory of one that was freed is soon another's.
 */
#ifndef PYTHON_INSPECT_CODE_CACHE_H
#define PYTHON_INSPECT_CODE_CACHE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "inspect/line_table.h"

struct code_cache;
struct walk;
struct walk_frame;

struct code_cache_code {
    const char *func, *file;
    uint64_t table; /* address of the line table's bytes, `table_size` of them */
    size_t table_size;
    int first_line;
    const struct lines_range *ranges; /* the table decoded; NULL: too long to keep */
    size_t n_ranges;
};

struct code_cache *code_cache_new(void); /* NULL: no memory */
void code_cache_free(struct code_cache *k);

/* The code object of a frame, as it is now; NULL: it is gone.  Borrowed until the next call. */
const struct code_cache_code *code_cache_get(struct walk *w, const struct walk_frame *f);

/* Look at the code objects of all these frames at once, where that must be: each code_cache_get()
 * that follows needs no read then. */
void code_cache_check(struct walk *w, const struct walk_frame *frames, size_t n);

/* The same in steps, for who reads something else with the same system call: plan which ones (how
 * many; `most` bytes in all), say what to read for each, and hand over what was read. */
#define CODE_CACHE_PIECES 4 /* of one code object */
size_t code_cache_plan(struct walk *w, const struct walk_frame *frames, size_t n, size_t most);
size_t code_cache_pieces(const struct walk *w, size_t i, struct iovec ret[CODE_CACHE_PIECES],
                         size_t *ret_bytes);
void code_cache_read(const struct walk *w, size_t i, const uint8_t *bytes, size_t size);

#endif
