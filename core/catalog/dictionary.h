/* SPDX-License-Identifier: Apache-2.0
 *
 * core/catalog/dictionary.h - strings that are stored once and have a number, in a file mapped
 * shared.
 *
 * Ids are never reused; the text of an id never moves while the file is open, so a pointer from
 * intern_text() may be kept as long.  The file `strings`, 256 MiB with holes:
 *
 *     0        header: magic, version, bytes of the file, bytes of texts used, last id
 *     4 KiB    u32 for each id from 1: where its text is, in units of 8 bytes from the file's start
 *     1/8      texts: u32 size, u32 checksum of the bytes and the id, the bytes, a NUL, zeros up to
 *              a multiple of 8
 *
 * A text is written first, then its place, then `last id` with release order: whoever sees an id
 * sees its text, and a kill at any instruction leaves a file without half a text.  Pages are
 * reserved before they are written.  The index for finding the id of a text is private memory,
 * made again when the file is opened.
 */
#ifndef CORE_CATALOG_DICTIONARY_H
#define CORE_CATALOG_DICTIONARY_H

#include <stddef.h>
#include <stdint.h>

struct interns;

/* Make the file, or go on with the one that is there.  -EPROTO: another version of probing wrote
 * it. */
int interns_create(const char *path, struct interns **ret);
/* Read-only, of a dead process.  fd: taken over; below 0: why there is none, which is given back;
 * path: for words. */
int interns_open(int fd, const char *path, struct interns **ret);
void interns_free(struct interns *s);

/* -ENOSPC: full (256 MiB) or no room on the device; -E2BIG: longer than 64 KiB; -EIO: its file was
 * lost under it.                                                                         [any] */
int intern(struct interns *s, const void *p, size_t n, uint64_t *ret_id);

/* Bytes of an id, NUL-terminated; NULL: no such id (0 included), or, of a dead process, its text is
 * damaged.  s may be NULL: there are no ids.                                             [any] */
const char *intern_text(struct interns *s, uint64_t id, uint32_t *ret_size);

/* Largest id given so far; ids are dense from 1, so that readers may index arrays by them. */
uint64_t intern_last(struct interns *s);

/* How many pages of its file were lost under it. */
uint64_t interns_lost(struct interns *s);

/* The number of a dead process's ids that have no whole text any more. */
uint64_t interns_damaged(struct interns *s);

#endif
