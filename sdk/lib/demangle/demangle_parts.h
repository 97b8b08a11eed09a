/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/demangle/demangle_parts.h - what the files that read mangled names share: pieces of
 * text in one room, and what is read next.
 *
 * Threads: as demangle.h says.
 *
 * What is parsed is a piece: text, and of functions and arrays text that stands behind what they
 * are pointed to by.  Everything has a bound: the room, how deep parts lie in each other, how many
 * there are, and how often a part is read again.  All that gives a bool gives false where a bound
 * is met, or the name is not understood: then nothing more is to be read.
 */
#ifndef SDK_LIB_DEMANGLE_DEMANGLE_PARTS_H
#define SDK_LIB_DEMANGLE_DEMANGLE_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAIN_ROOM ((size_t)512 << 10) /* bytes of text, of which what was written is resident */
#define PLAIN_PIECES 4096u             /* arguments of templates and functions */
#define PLAIN_SCRATCH 512u             /* of those that are being read */
#define PLAIN_SUBSTITUTIONS 1024u      /* parts that can be referred to */
#define PLAIN_DEPTH 160u               /* of 0.7 KB of stack each */
#define PLAIN_STEPS 20000u             /* parts that are read */

struct piece {
    uint32_t at, n, behind, n_behind;
    uint32_t first, n_pack; /* of a pack: its pieces */
    bool pack;
    const char *from, *to; /* it depends on T_, and is read again where it is meant; or NULL */
    enum { PLAIN, FUNCTION, ARRAY } kind; /* not plain: before it is pointed to */
};

struct list {
    uint32_t first, n; /* of `pieces` */
};

struct plainer {
    const char *s;  /* what is read next */
    const char *to; /* the end of what is read again */
    uint32_t depth, steps;
    uint32_t lambda; /* inside the arguments of so many */
    int64_t element; /* that is taken of packs; -1: none */
    uint32_t uses;   /* of T_, so far */
    uint32_t packed; /* how many a pack has that was seen meanwhile */
    bool saw_pack;
    uint32_t used, n_pieces, n_scratch, n_substitutions;
    struct list arguments; /* of the template that T_ is of */
    bool templated;        /* the last name ends with arguments */
    bool structor;         /* ... and names a constructor, destructor */
    struct piece substitutions[PLAIN_SUBSTITUTIONS], pieces[PLAIN_PIECES], scratch[PLAIN_SCRATCH];
    char room[PLAIN_ROOM];
};

/* ---- demangle_parts.c ---- */

/* The text put since plain_begin() is a piece's when it ends; pieces themselves do not change. */
bool plain_put(struct plainer *p, const char *text, size_t n);
bool plain_puts(struct plainer *p, const char *text);
bool plain_put_piece(struct plainer *p, const struct piece *a);
struct piece plain_begin(const struct plainer *p);
bool plain_end(const struct plainer *p, struct piece *a);
/* ret: a text; a and a text; a and b with a text between. */
bool plain_make(struct plainer *p, const char *text, struct piece *ret);
bool plain_ends_with(const struct plainer *p, const struct piece *a, char c);
bool plain_append(struct plainer *p, const struct piece *a, const char *text, struct piece *ret);
bool plain_join(struct plainer *p, const struct piece *a, const char *between,
                const struct piece *b, struct piece *ret);
/* Arguments are collected one by one, and those since `base` are then kept side by side. */
bool plain_collect(struct plainer *p, const struct piece *a);
bool plain_keep_collected(struct plainer *p, uint32_t base, struct list *ret);
/* S_ can mean it from now on. */
bool plain_substitutable(struct plainer *p, const struct piece *a);
/* false: too much was read already. */
bool plain_step(struct plainer *p);
/* It is c that comes next, and it was taken. */
bool plain_take(struct plainer *p, char c);
bool plain_is_digit(char c);
bool plain_read_number(struct plainer *p, uint32_t *ret);
/* "_" is 0, "0_" is 1 ...; base: 10, or 36 with capital letters. */
bool plain_read_index(struct plainer *p, uint32_t base, uint32_t *ret);
bool plain_read_source_name(struct plainer *p, struct piece *ret);

/* ---- demangle_type.c ---- */

bool plain_read_type(struct plainer *p, struct piece *ret);
/* Up to the end or an `E`, which is left: "(int, ...)".  Behind an `I`, with the `E`: "<...>". */
bool plain_read_parameters(struct plainer *p, struct piece *ret);
bool plain_read_arguments(struct plainer *p, struct piece *ret);
bool plain_read_template_parameter(struct plainer *p, struct piece *ret);

/* ---- demangle_name.c ---- */

/* A function with its parameters, or a variable; inner: without what it returns. */
bool plain_read_encoding(struct plainer *p, bool inner, struct piece *ret);
/* With its arguments.  ret_qualifiers: " const" of a member function, or "". */
bool plain_read_name(struct plainer *p, struct piece *ret, const char **ret_qualifiers);
/* Behind an `S`, of which St is not; ret_standard: it is one of std. */
bool plain_read_substitution(struct plainer *p, struct piece *ret, bool *ret_standard);

#endif
