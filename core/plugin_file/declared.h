/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_file/declared.h - what a plugin declares (struct probing_declarations), as a copy of
 * ours: out of its file, or out of memory that it is mapped in.
 *
 * Any thread.  Nothing is believed before it is copied and looked at.  Whether a text is SQL is for
 * the caller to say.
 */
#ifndef CORE_PLUGIN_FILE_DECLARED_H
#define CORE_PLUGIN_FILE_DECLARED_H

#include <probing/plugin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/guest/headroom_table.h"
#include "sdk/lib/arena.h"

#define DECLARED_MAX 64                /* of each kind */
#define DECLARED_NAME_BYTES 128        /* "schema.name" and its NUL */
#define DECLARED_LINE_BYTES 1024       /* what is shown in a line */
#define DECLARED_SQL_BYTES 16384       /* a select */
#define DECLARED_FILE_BYTES (64 << 20) /* a larger plugin is not known before it is loaded */

/* The source of the bytes.  read: gives up to n of them, and how many; pointers in them are such
 * addresses again. */
struct declared_source {
    size_t (*read)(void *arg, uint64_t address, void *ret, size_t n, bool pointers);
    void *arg;
};

struct declared {
    struct probing_declarations all; /* strides are ours, and pointers lead to copies of ours */
    char plugin[64];
    struct arena texts;
    struct declared *next; /* the caller's */
};

/* 0, or -EINVAL with err_set(): which of them is wrong and how.  The caller declared_free()s. */
int declared_read(const struct declared_source *from, uint64_t address, const char *plugin,
                  struct declared **ret);
/* Out of the open file of a plugin, which is not mapped to be run.  *ret NULL: it declares nothing.
 * -ENOEXEC: it is no plugin that could be loaded. */
int declared_of_file(int fd, struct declared **ret);
void declared_free(struct declared *d); /* NULL is fine */
bool declared_same(const struct declared *a, const struct declared *b);

/* The plugin's row of each limit; *ret stays as it is if it declares none (NULL: neither). */
void declared_takes(const struct declared *d, struct room_part *ret);

/* Every *.so of the directories, with ':' between, that declares something.  What is wrong with a
 * file is told to refused(), which may be NULL.  fn owns what it gets; below 0 ends it. */
struct declared_search {
    const char *path;
    int (*found)(void *arg, const char *file, struct declared *d);
    void (*refused)(void *arg, const char *file, const char *why);
    /* false: do not look into it.  May be NULL. */
    bool (*wanted)(void *arg, const char *file, int fd);
    void *arg;
};
int declared_search(const struct declared_search *s);

/* `template` with what stands for {when}. */
struct buf;
int declared_sql(const char *template, const char *when, struct buf *ret);

/* Its views, flame modes and aliases as a line of text, and back (declared_text.c): the file
 * DECLARED_FILE of a data directory, and what comes through a core's door. */
#define DECLARED_FILE "declared"
#define DECLARED_LINES_BYTES ((size_t)1 << 20)
int declared_write(const struct declared *d, struct buf *ret);
/* Each line; fn owns what it gets, below 0 ends it. */
int declared_parse_all(const char *text, size_t size, int (*fn)(void *arg, struct declared *d),
                       void *arg);

#endif
