/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/atomic_output.h - the file that a user names with -o: it appears under its name when
 * it is whole.
 *
 * One thread.  What is there and is no plain file (a pipe, a link as /dev/stdout, a device) is
 * written to as it is: root would otherwise put a plain file in its place.
 */
#ifndef CLI_TERMINAL_ATOMIC_OUTPUT_H
#define CLI_TERMINAL_ATOMIC_OUTPUT_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "core/base/gzip.h"

struct output {
    const char *path; /* borrowed */
    FILE *file;
    char part[4224]; /* where it is written meanwhile; "": in place */
    FILE *packed;    /* behind `file`, where the name ends in .gz */
    struct squeeze *squeeze;
};

/* Why a file cannot be written, by errno: of what the C library has no good words for, ours. */
const char *output_why(int code);
/* Is this the error of fsync() on a file system without it?  Nothing else can be done there. */
static inline bool output_never_syncs(int code)
{
    return code == EINVAL || code == ENOSYS || code == ENOTSUP;
}
/* How long `path` is without its .gz: what tells the format stands before that. */
size_t output_stem(const char *path);
/* 0, or -errno with err_set().  A name that ends in .gz gets what is written compressed. */
int output_open(struct output *o, const char *path);
/* r < 0: what was written is worth nothing, away with it; given back. */
int output_close(struct output *o, int r);

#endif
