/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/walk.h - Python threads and their stacks, read from the interpreter's structures.
 *
 * Without the GIL, without the interpreter's help and without stopping anybody: a thread that hung
 * before we came reads like any other.  Every read is guarded (peek.h); a stack counts only when
 * several passes over it in a row saw the same.  One thread at a time uses one struct walk.
 */
#ifndef PYTHON_WALK_H
#define PYTHON_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpython.h"

#include "offsets.h"
#include "peek.h"

#define WALK_THREADS 8192 /* thread states read at most */
#define WALK_FRAMES 4096  /* frames of a stack at most; sys.setrecursionlimit() starts at 1,000 */
#define WALK_NAME 256
#define WALK_FILE 1024
#define WALK_NOWHERE INT64_MAX

struct walk {
    const struct cpython *py;
    struct offsets o;
    struct peek peek;
    uint64_t main;    /* address of the main interpreter, 0: not known (another process's) */
    int tid_offset;   /* of the kernel's id in glibc's struct pthread, -1: unknown */
    uint8_t *scratch; /* line tables; grows to SCRATCH_MAX */
    size_t scratch_size;
    struct peek_piece *pieces; /* room for one pass over a stack */
    uint8_t *copies;
    struct walk_seen *seen;
};

struct walk_thread {
    uint64_t state, interpreter; /* addresses of PyThreadState and PyInterpreterState */
    uint64_t thread_id;          /* pthread_t */
    int32_t tid;                 /* 0: unknown or gone */
    bool holds_gil;
};

#define WALK_CODE_BYTES 256 /* room for one code object's fields */

struct walk_frame {
    uint64_t address, code, back;
    uint64_t instr; /* an address from 3.11 on, before that an index; int32 sign kept */
    int32_t copy;   /* which copy of the instructions it runs; 0: the code object's own */
    uint8_t owner;
    uint8_t entry;
};

enum walk_end {
    WALK_WHOLE = 0,
    WALK_MOVING = 1, /* the thread ran on: only the outer frames that stood still are given */
    WALK_LIMIT = 2,  /* more than `max` frames */
    WALK_UNREADABLE = 3
};

struct walk_text {
    char func[WALK_NAME];
    char file[WALK_FILE];
    int line;               /* 0: unknown */
    int column, end_column; /* from 1, of what runs in that line; 0: unknown (before 3.11) */
    bool readable;          /* false: the code object was gone */
};

/* A text that was read in this look: many threads wait at the same few places.  It is used only
 * while the code object's fields are still the same. */
struct walk_seen {
    uint64_t code, instr;
    uint8_t head[WALK_CODE_BYTES];
    struct walk_text text;
};

/* Reading this interpreter is possible: 0, or -ENOTSUP / -EPERM with one line in `why`.
 * pid: 0: our own process; else py holds addresses of that one. */
int walk_open(struct walk *w, const struct cpython *py, pid_t pid, char *why, size_t why_size);
void walk_close(struct walk *w);

/* Every thread state of every interpreter: how many, or -EAGAIN when they never stood still. */
int walk_threads(struct walk *w, struct walk_thread *ret, size_t max);

/* Do these threads and their frames look like Python's?  0, or -ENOTSUP with one line in `why`. */
int walk_check(struct walk *w, const struct walk_thread *threads, int n, char *why,
               size_t why_size);

/* The stack of one thread, innermost first: how many frames. */
int walk_stack(struct walk *w, const struct walk_thread *t, struct walk_frame *ret, size_t max,
               enum walk_end *ret_end);

/* Not a function of the user's, but the mark of a new call of the eval function. */
bool walk_is_shim(const struct walk *w, const struct walk_frame *f);

/* Is this the outermost Python frame of one native call of the eval function? */
bool walk_is_entry(const struct walk *w, const struct walk_frame *f);

/* Is the frame still the one that was read? */
bool walk_still(const struct walk *w, const struct walk_frame *f);

/* One frame's fields, as read from `address`.                                       [signal] */
void walk_parse(const struct walk *w, uint64_t address, const uint8_t *copy,
                struct walk_frame *ret);

/* Bytes from the beginning of the code to the frame's instruction; below 0: it has not begun;
 * WALK_NOWHERE: not known.                                                          [signal] */
int64_t walk_offset(const struct walk *w, const struct walk_frame *f);

/* ---- text.c ---- */

void walk_text(struct walk *w, const struct walk_frame *f, struct walk_text *ret);

/* Copy a str as UTF-8, cut at `size`; false: it is none. */
bool walk_string(const struct walk *w, uint64_t object, char *ret, size_t size);
bool walk_string_some(const struct walk *w, uint64_t object, size_t chars, char *ret, size_t size);

/* The first `count` characters of `width` bytes each as UTF-8, cut at `size`. */
void walk_utf8(const uint8_t *data, unsigned width, size_t count, char *ret, size_t size);

#endif
