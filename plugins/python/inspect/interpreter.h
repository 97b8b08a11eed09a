/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/interpreter.h - Python threads and their stacks, read from the
 * interpreter's structures.
 *
 * Without the GIL, without the interpreter's help and without stopping anybody: a thread that hung
 * before we came reads like any other.  Every read is guarded (safe_read.h); a stack counts only
 * when several passes over it in a row saw the same.  One thread at a time uses one struct walk.
 */
#ifndef PYTHON_INSPECT_INTERPRETER_H
#define PYTHON_INSPECT_INTERPRETER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpython.h"

#include "inspect/code_cache.h"
#include "inspect/offsets.h"
#include "inspect/safe_read.h"
#include "inspect/thread_state.h"

#define WALK_THREADS 8192 /* thread states read at most */
#define WALK_FRAMES 16384 /* frames of a stack at most; sys.setrecursionlimit() starts at 1,000 */
#define WALK_NAME 256
#define WALK_FILE 1024
#define WALK_NOWHERE INT64_MAX
#define WALK_CODES (WALK_FRAMES / 4) /* code objects looked at in one pass, in four pieces each */
#define WALK_PIECES (WALK_FRAMES + 4)
#define WALK_FRAME_BYTES OFFSETS_FRAME
#define WALK_GAP 256 /* bytes between two frames that are read in one piece */
#define WALK_COPIES ((size_t)WALK_FRAMES * (WALK_FRAME_BYTES + WALK_GAP))

struct walk {
    const struct cpython *py;
    struct offsets o;
    struct peek peek;
    uint64_t main;          /* address of the main interpreter, 0: not known (another process's) */
    int tid_offset;         /* of the kernel's id in glibc's struct pthread, -1: unknown */
    struct threads_id *ids; /* of another process whose pid namespace is not ours; else NULL */
    int n_ids;
    uint8_t *scratch; /* line tables; grows to SCRATCH_MAX */
    size_t scratch_size;
    struct iovec *pieces; /* room for one pass over a stack: WALK_PIECES */
    uint32_t *places;     /* of the frames in it: WALK_FRAMES */
    uint8_t *copies;      /* what was read: WALK_COPIES */
    struct walk_last *last;
    struct code_cache *known;          /* code objects */
    uint64_t moment;                   /* counts walks */
    uint64_t group_names, group_ranks; /* dicts of torch.distributed; 0: not looked for, or none */
};

struct walk_thread {
    uint64_t state, interpreter; /* addresses of PyThreadState and PyInterpreterState */
    uint64_t thread_id;          /* pthread_t */
    uint64_t cframe;             /* 3.11, 3.12: on the C stack of the thread that runs it; else 0 */
    uint64_t base;               /* from 3.15 on: where the chain of frames ends; before, 0 */
    int32_t tid;                 /* 0: unknown or gone */
    int32_t place;               /* in the lists: the newest interpreter's threads come first */
    bool holds_gil;
};

#define WALK_CODE_BYTES 256 /* room for one code object's fields */

struct walk_frame {
    uint64_t address, code, back;
    uint64_t instr; /* an address from 3.11 on, before that an index; int32 sign kept */
    int32_t copy;   /* which copy of the instructions it runs; 0: the code object's own */
    uint8_t owner;
    uint8_t entry;
    uint64_t
        since; /* its thread has been seen here from that moment of the walk's on; 0: unknown */
};

enum walk_end {
    WALK_WHOLE = 0,
    WALK_MOVING = 1, /* the thread ran on: only the outer frames that stood still are given */
    WALK_LIMIT = 2,  /* more than `max` frames */
    WALK_UNREADABLE = 3
};

struct walk_text {
    const char *func, *file; /* borrowed until the next walk_text() */
    int line;                /* 0: unknown */
    int column, end_column;  /* from 1, of what runs in that line; 0: unknown (before 3.11) */
    bool readable;           /* false: the code object was gone */
    bool setup;              /* a frame of CPython's own, between a class and its __init__ */
};

/* Reading this interpreter is possible: 0, or -ENOTSUP / -EPERM with one line in `why`.
 * pid: 0: our own process; else py holds addresses of that one. */
int walk_open(struct walk *w, const struct cpython *py, pid_t pid, char *why, size_t why_size);
/* Read our own process, though its offsets are not proved: for offsets_proof.c. */
int walk_open_unproved(struct walk *w, const struct cpython *py, char *why, size_t why_size);
void walk_close(struct walk *w);

/* Every thread state of every interpreter: how many, or -EAGAIN when they never stood still. */
int walk_threads(struct walk *w, struct walk_thread *ret, size_t max);

/* Do these threads and their frames look like Python's?  0, or -ENOTSUP with one line in `why`. */
int walk_check(struct walk *w, const struct walk_thread *threads, int n, char *why,
               size_t why_size);

/* Not a function of the user's, but the mark of a new call of the eval function. */
bool walk_is_shim(const struct walk *w, const struct walk_frame *f);

/* Is this the outermost Python frame of one native call of the eval function? */
bool walk_is_entry(const struct walk *w, const struct walk_frame *f);

/* Is the frame still the one that was read, and where it was?  One that has ended keeps all but
 * the place, and is cleared. */
bool walk_still(const struct walk *w, const struct walk_frame *f);

/* One frame's fields, as read from `address`.                                       [signal] */
void walk_parse(const struct walk *w, uint64_t address, const uint8_t *copy,
                struct walk_frame *ret);

/* Bytes from the beginning of the code to the frame's instruction; below 0: it has not begun;
 * WALK_NOWHERE: not known.                                                          [signal] */
int64_t walk_offset(const struct walk *w, const struct walk_frame *f);

/* ---- frame_chain.c ---- */

/* The stack of one thread, innermost first: how many frames. */
int walk_stack(struct walk *w, const struct walk_thread *t, struct walk_frame *ret, size_t max,
               enum walk_end *ret_end);

/* Room for the threads' last stacks: free() it; NULL: no memory. */
struct walk_last *walk_last_new(void);

/* ---- frame_text.c ---- */

/* Read the code that a frame runs.  For a whole stack, code_cache_check() makes it cheaper. */
void walk_text(struct walk *w, const struct walk_frame *f, struct walk_text *ret);

/* Read the head of a str object; `most` characters are counted at most. */
struct walk_str {
    uint64_t length;
    int32_t state;
    unsigned width;   /* of a character */
    size_t count, at; /* how many characters, and where the first one is */
};
#define WALK_STR_HEAD OFFSETS_STR
bool walk_str(const struct walk *w, const uint8_t *head, size_t most, struct walk_str *ret);

/* Copy a str as UTF-8, cut at `size`; false: it is none. */
bool walk_string(const struct walk *w, uint64_t object, char *ret, size_t size);
bool walk_string_some(const struct walk *w, uint64_t object, size_t chars, char *ret, size_t size);

/* The first `count` characters of `width` bytes each as UTF-8, cut at `size`. */
void walk_utf8(const uint8_t *data, unsigned width, size_t count, char *ret, size_t size);

#endif
