/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/stack/frame_merge.h - one stack out of a thread's native frames and its Python frames.
 *
 * No state beyond the caller's struct, no allocation, no lock: any thread, signal handlers too if
 * the caller's functions may be called there.
 *
 * One native call of the interpreter's eval function runs one or more Python frames: those from the
 * innermost that no other call runs to the one that is the *entry*.  So the merged stack has, for
 * each native frame of the eval function, the Python frames up to the next entry.  The two sides
 * must tell the same calls, else a function would be shown under one that did not call it:
 *
 *   - By marks.  From 3.12 on the entry's mark (the shim) is a local variable of the eval function:
 *     the native frame around its address runs that entry.  Where every mark that could lie in a
 *     native frame does, this is certain, whatever native functions are called, and also where the
 *     outer part of one side is missing.  A frame called like the eval function that holds no mark
 *     is a part of it that the compiler has split off, or has only just been entered.
 *   - By count, where there are no such marks.  There are as many eval functions as entries; while
 *     the innermost one is half way in or out there is one more, and it has no frame yet.  Of a
 *     native stack that is not whole no more than the entries are seen.
 *
 * Shims are no functions, eval functions are shown by the frames that they run, and how the
 * interpreter makes a call (plumbing) is left out.
 */
#ifndef SDK_LIB_STACK_FRAME_MERGE_H
#define SDK_LIB_STACK_FRAME_MERGE_H

#include <stdbool.h>
#include <stdint.h>

enum frame_kind { /* of a native frame; the numbers of python_frames.h */
                  FRAME_NATIVE = 0,
                  FRAME_EVAL = 1,     /* the eval function */
                  FRAME_PLUMBING = 2, /* how the interpreter makes a call */
                  FRAME_BEGIN = 3,    /* plumbing beyond the outermost Python frame */
                  FRAME_BASE = 4 /* a greenlet begins: what is further out called nobody here */
};

struct frame_python {
    uint64_t mark; /* of a shim, where it lies on the C stack; 0: not known, or no shim */
    bool entry;    /* the outermost one of a call of the eval function */
    bool shim;     /* only the mark of an entry: no function */
};

/* Both sides, innermost frame first. */
struct frame_merge {
    void *arg;
    int (*kind)(void *arg, uint32_t i);    /* of native frame i: enum frame_kind */
    uint64_t (*sp)(void *arg, uint32_t i); /* where its part of the stack begins */
    struct frame_python (*python)(void *arg, uint32_t i);
    uint32_t n_native, n_python;
    bool native_whole; /* not only its inner part */
    bool python_whole;
    bool exact; /* Python's side may lack frames unseen: no call is half way, counts are equal */

    /* out, of frame_merge_begin() */
    bool agree; /* false: the Python frames alone are shown */
    bool based; /* a greenlet's stack ended the native one: that is whole */
    bool by_mark;

    uint32_t next_native, next_python; /* where frame_merge_next() stands */
    uint32_t skip; /* eval functions, from the innermost, that have no frame yet */
    uint64_t mark; /* of the entry that is next, 0: there is none */
    bool in_entry; /* the Python frames of one are being given */
    bool apart;    /* out: the Python frame that was given last stands under no native one */
};

/* Compare both sides: fills what is out.  n_native ends where a greenlet begins. */
void frame_merge_begin(struct frame_merge *m);

enum frame_side { FRAME_END, FRAME_OF_NATIVE, FRAME_OF_PYTHON };

/* The next frame, innermost first: *ret is its number on its side.  Python frames that no native
 * frame stands for come last, and `apart` is set. */
enum frame_side frame_merge_next(struct frame_merge *m, uint32_t *ret);

#endif
