/* SPDX-License-Identifier: Apache-2.0
 *
 * core/flame/flame.h - samples and stacks of a profile, and the files that are made of them.
 *
 * One thread a profile.  All of its memory goes with flame_done().
 */
#ifndef CORE_FLAME_FLAME_H
#define CORE_FLAME_FLAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/arena.h"
#include "sdk/lib/buf.h"

/* The profiler's frame where a native stack broke off, as in code without unwind tables: between
 * the frames further out, all Python, native ones may be missing. */
#define FLAME_BROKEN "[native frames not read]"
/* How the frame ends that stands for Python frames for which there was no room. */
#define FLAME_LEFT_OUT " frames left out]"
#define FLAME_NUMBERS "value" /* the mode of a file of folded stacks: it does not say of what */
#define FLAME_WIDTH 1200      /* pixels of a picture, when nobody asks for another width */
#define FLAME_WIDTH_MIN 200
#define FLAME_WIDTH_MAX 20000

struct flame_frame {
    const char *func, *file, *module; /* "" where there is none */
    int32_t line;                     /* 0: unknown */
    bool python;
    uint32_t label; /* number in the labels: what is shown, and told apart */
};

struct flame_stack {
    int64_t id;
    uint32_t first, n; /* in places: numbers of frames, innermost first */
    bool broken;       /* has the frame FLAME_BROKEN */
    bool sampled;
};

struct flame_sample {
    int64_t ts; /* ns since the epoch; 0 when samples were added up */
    int64_t thread;
    const char *thread_name;
    int64_t id;     /* of its stack */
    uint32_t stack; /* number in stacks */
    int64_t value;  /* ns; of mode memory, bytes */
    int64_t count;
};

struct flame {
    struct arena arena;
    const char *title, *mode; /* mode: a name; ns; "memory": bytes; or FLAME_NUMBERS */
    bool lines;               /* frames of one function in different lines are different */
    bool counted;             /* samples have counts, of samples: not so in a file */
    bool threads;             /* a level for threads below the root */
    bool tails;               /* labels without room lose their begin: ways of modules */
    int width;                /* of a picture, pixels */
    struct flame_frame *frames;
    struct flame_stack *stacks; /* by id */
    struct flame_sample *samples;
    uint32_t *places;
    const char **labels;
    uint32_t n_sampled; /* stacks that have samples */
    uint32_t n_frames, n_stacks, n_samples, n_places, n_labels;
    uint32_t *label_slots, label_room; /* hash of labels */
    int64_t total;
    bool joined;             /* flame_join() has been called */
    int64_t n_given, n_lost; /* samples that came; and those of them whose stack did not */
    char missing[400];       /* what else the picture lacks, in words; "" */
    size_t left_bytes;       /* that its arrays may still grow by */
};

void flame_init(struct flame *f, size_t max_bytes);
void flame_done(struct flame *f);

/* Stacks come in order of their ids, each with its frames, innermost first.  Of a process that
 * lives the samples are read before them: a stack may come at any time, and is there before its
 * first sample.  Texts are copied; a frame's label is made here.  Frames of probing's own are
 * left out; where one is the innermost it becomes "[probing]".  -ENOMEM. */
int flame_add_stack(struct flame *f, int64_t id);
int flame_add_frame(struct flame *f, const struct flame_frame *given); /* of the last stack */
int flame_add_sample(struct flame *f, int64_t stack, const struct flame_sample *given);

/* After all samples and all stacks.  Samples get their stacks: those that have none are counted and
 * left out.  Frames that are missing in broken stacks are put back where whole stacks have them on
 * the way to the same Python frame, the most frequent way; so both are one tower.  -ENOMEM. */
int flame_join(struct flame *f);
#define FLAME_LOST_BYTES 640
/* "12 of 300 samples are left out: ...; 20 threads are not sampled: ..."; "": it is whole. */
void flame_tell_lost(const struct flame *f, char *ret, size_t size);
int flame_mend(struct flame *f); /* the second half of flame_join() */
/* For flame_mend(): other frames of a stack, innermost first.  -ENOMEM. */
int flame_replace(struct flame *f, struct flame_stack *s, const uint32_t *frames, uint32_t n);

/* "python train.py (4242): cpu time".  command: a command line with blanks between, or "": of its
 * words only those that are names, as others may be secret. */
void flame_title(char *ret, size_t size, const char *command, const char *who, const char *what);

/* The statement of samples as flame_add_sample() has them, of a mode's own (struct probing_flame):
 * in_time: one by one in order of thread and time, else added up (then ts is NULL).  Columns: ts,
 * thread_id, thread_name, stack_id, value, count. */
void flame_ask_samples(const char *sql, bool in_time, struct buf *ret);

/* The label's number; UINT32_MAX: no memory. */
uint32_t flame_label(struct flame *f, const char *text);

/* ---- calls.c: folded stacks, and calls that are put into each other ---- */

/* As the columns of struct probing_flame (probing/plugin.h). */
struct flame_call {
    const char *stack, *track,
        *via; /* track NULL: stacks that are folded already; via may be NULL */
    double value;
    int64_t end_ns, duration_ns; /* duration below 0: not known, calls come by their begins */
};
struct flame_calls;
int flame_calls_new(struct flame *f, struct flame_calls **ret);
void flame_calls_free(struct flame_calls *c);
int flame_calls_add(struct flame_calls *c, const struct flame_call *call); /* texts are copied */
/* After all calls: the outermost `frame` has `value` of `whole`; what no call of it took is its
 * own.  What is left of the whole is given out in the order of these. */
int flame_calls_rest(struct flame_calls *c, const char *frame, double value, double whole);
bool flame_calls_any(const struct flame_calls *c);
/* Into the profile, as stacks and samples. */
int flame_calls_end(struct flame_calls *c);

/* ---- tree.c: the same, added up from the root ---- */

struct flame_node {
    uint32_t label; /* UINT32_MAX: the root */
    uint32_t depth;
    uint32_t parent, child, sibling; /* 0: none */
    int64_t value, count;
    int64_t before; /* value in the other profile, in a difference */
};

struct flame_tree {
    const struct flame *f;
    struct flame_node *nodes; /* [0] is the root */
    uint32_t n, room;
    bool difference;
};

int flame_tree_new(struct flame *f, struct flame_tree *ret);
/* Add another profile as what was before; its labels are taken into the tree's profile. */
int flame_tree_before(struct flame_tree *tree, struct flame *into, const struct flame *before);
void flame_tree_done(struct flame_tree *tree);
/* Children in order of their value, the largest first. */
void flame_tree_sort(struct flame_tree *tree);
/* The node that follows in the order parent, children, sibling; 0: none.  A tree may be thousands
 * of nodes deep, so nothing of it is walked by recursion. */
uint32_t flame_tree_next(const struct flame_tree *tree, uint32_t at);
/* The same without what is below `at`. */
uint32_t flame_tree_beside(const struct flame_tree *tree, uint32_t at);
/* Depth of the deepest node. */
uint32_t flame_tree_depth(const struct flame_tree *tree);

/* A frame that opens on its thread, or the innermost open one that closes. */
struct flame_event {
    const char *name;
    int64_t since_ns, at_ns; /* when it opened; now */
    const struct flame_sample *of;
    bool opens;
};
/* All of them: thread by thread, in the order of time.  fn gives non-zero to stop. */
int flame_events(const struct flame *f, int (*fn)(void *arg, const struct flame_event *e),
                 void *arg);

/* ---- files: each adds its bytes to `out` ---- */

int flame_folded(const struct flame_tree *tree, struct buf *out);
int flame_html(const struct flame_tree *tree, struct buf *out);
int flame_svg(const struct flame_tree *tree, struct buf *out);
int flame_speedscope(const struct flame *f, struct buf *out);
int flame_chrome(const struct flame *f, struct buf *out);
int flame_pprof(const struct flame *f, struct buf *out);

#endif
