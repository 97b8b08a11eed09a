/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/python_frames.h - "python.frames/1", by the python plugin: Python frames for
 * profilers, from signal handlers and from outside, without the GIL.
 *
 * Two steps.  here() or of() note which code objects a stack is made of; what is needed to name a
 * code object that was not seen before is copied at once, because it may be gone a moment later.
 * name() gives the words, later and on a thread that may allocate.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_PYTHON_FRAMES_H
#define PROBING_EXT_PYTHON_FRAMES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_PYTHON_FRAMES_1 "python.frames/1"

enum {
    PROBING_PYTHON_ENTRY = 1, /* the outermost frame of one native call of the eval function */
    PROBING_PYTHON_SHIM = 2   /* only the mark of such a call: no function of the user's */
};

enum { /* what a native function is to a reader of Python stacks */
       PROBING_PYTHON_NATIVE = 0,
       PROBING_PYTHON_EVAL = 1, /* the eval function: the Python frames of one entry run in it */
       PROBING_PYTHON_PLUMBING = 2, /* how the interpreter makes a call, not what is called */
       PROBING_PYTHON_BEGIN = 3, /* plumbing only when outermost: how a program or thread begins */
       PROBING_PYTHON_BASE = 4   /* a greenlet begins: what is further out is no caller of it */
};

struct probing_python_frame {
    uint64_t code;   /* address of the code object; of a SHIM where it lies, on the C stack */
    int64_t offset;  /* of the instruction, in bytes; -1: it has not begun */
    uint32_t known;  /* number of the code object, from 1, for ever; 0: see `copied` */
    uint32_t copied; /* where in `bytes` what names it was copied; UINT32_MAX: there was no room */
    uint32_t mark;   /* of the code object's names and lines: another one here has another */
    uint32_t flags;  /* PROBING_PYTHON_ENTRY ... */
};

struct probing_python_look {
    uint32_t size;       /* in: sizeof(struct probing_python_look) */
    uint32_t max_frames; /* in: room in frames */
    uint32_t max_bytes;  /* in: room in bytes; 16 KiB name some dozen code objects */
    uint32_t n_frames;   /* out: innermost first */
    uint32_t n_bytes;    /* out */
    int32_t gil;         /* out: 1: the thread holds the GIL; 0: not; -1: it runs no Python */
    int32_t end;         /* out: 0: read to its end; 1: that could not be read; 2: not counted */
    uint32_t left_out;   /* out: frames for which there was no room; with end 2 there are more */
    struct probing_python_frame *frames;
    uint8_t *bytes;
    void *scratch; /* in: scratch_bytes of memory, aligned to 16; its content does not matter */
    /* For here(); only where `size` says that they are there: */
    void *last; /* in: PROBING_PYTHON_LAST bytes that are this thread's own, aligned to 8, zeros
                 * before its first look: the next look needs one system call then.  NULL: none */
    uint64_t more_from;  /* in: memory that is copied by the same system call, ... */
    uint32_t more_bytes; /* in: ... so many bytes, or as many as are there, ... */
    uint32_t more_read;  /* out: how many; 0: it was not copied */
    void *more;          /* in: ... to here; NULL: none */
    uint32_t gap; /* out: in front of this frame those that were left out are missing: the outermost
                   * ones are there, too, if max_frames is PROBING_PYTHON_DEEP or more */
    uint32_t reserved;
};

#define PROBING_PYTHON_LAST 768
#define PROBING_PYTHON_DEEP 1024

struct probing_python_text {
    uint32_t size; /* sizeof(struct probing_python_text) */
    int32_t line;  /* 0: unknown */
    char func[256];
    char file[1024];
};

struct probing_python_frames_1 {
    uint32_t size;
    uint32_t scratch_bytes; /* of a look's scratch */
    /* The calling thread's own frames, where it stands or where a signal found it.  Uses less than
     * 1 KiB of stack; errno may change.  0, or -ENODEV: no Python here, -ENOTSUP: unknown Python.
     *                                                                              [signal] */
    int (*here)(struct probing_python_look *l);
    /* The frames of a thread that waits, while the caller sees to it that it does (it checks
     * before and after).  Reads only.  -ESRCH: not a Python thread.               [worker] */
    int (*of)(int32_t tid, struct probing_python_look *l);
    /* The thread that holds the GIL now; 0: none, or not known.                   [worker] */
    int32_t (*holder)(void);
    /* The words for frame i of a look; from then on its code object is known.  Gives its number,
     * or -ENOENT: it went before anything was copied; -ENOSPC: named, but no room to keep it.
     *                                                                              [worker] */
    int64_t (*name)(const struct probing_python_look *l, uint32_t i,
                    struct probing_python_text *ret);
    /* Give the name that threading has for a thread: 0, or -ENOENT.               [worker] */
    int (*thread_name)(int32_t tid, char *ret, uint32_t size);
    /* PROBING_PYTHON_NATIVE ... of a function and the path of its object file.    [worker] */
    int (*kind)(const char *function, const char *module);
};

#ifdef __cplusplus
}
#endif
#endif
