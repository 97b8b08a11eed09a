/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/objects/dict_reader.h - the entries of a dict, by guarded reads.
 *
 * One thread at a time per struct walk.  Entries come in the order they were filled; one that was
 * deleted has value 0.  No malloc: the thread that is looked at may stand still in one.
 */
#ifndef PYTHON_OBJECTS_DICT_READER_H
#define PYTHON_OBJECTS_DICT_READER_H

#include "inspect/interpreter.h"

#define DICTS_ALL 65536u /* entries; sys.modules of a large program has some thousands */

#define DICTS_FEW 512 /* bytes of entries that need no memory of their own */

struct entries {
    uint8_t *bytes; /* n * stride: in `few`, or mapped */
    uint8_t few[DICTS_FEW];
    uint64_t n;
    size_t stride, key, value; /* offsets in an entry; the hash, if there is one, stands first */
    uint64_t values;           /* address of a split dict's values, 0: they stand in the entries */
};

/* The first `most` entries; one with more than DICTS_ALL is read only in part.  false: no dict, or
 * not readable; else dicts_done() follows. */
bool dicts_read(const struct walk *w, uint64_t dict, uint64_t most, struct entries *ret);

/* The first `most` attributes of an instance of a Python class; false: it has none, or not
 * readable. */
bool dicts_attributes(const struct walk *w, uint64_t object, uint64_t most, struct entries *ret);

void dicts_done(struct entries *e);

uint64_t dicts_key(const struct entries *e, uint64_t i);
uint64_t dicts_value(const struct walk *w, const struct entries *e, uint64_t i);

/* An attribute of an instance of a Python class, or a variable of a module, of at most 63 bytes;
 * 0: there is none, or not readable. */
uint64_t dicts_attribute(const struct walk *w, uint64_t object, const char *name);
uint64_t dicts_global(const struct walk *w, uint64_t interpreter, const char *module,
                      const char *name);

#endif
