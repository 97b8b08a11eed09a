/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/step.h - the step that runs, the threads in it, and who hears of its end.
 *
 * Threads: any that holds the GIL, except where a comment says otherwise.
 */
#ifndef TORCH_STEPS_STEP_H
#define TORCH_STEPS_STEP_H

#include "python/hook.h"
#include "steps/next_settings.h"
#include "steps/trace_row.h"

/* A thread's time goes to these phases.  They nest, and the innermost has it: so they add up. */
enum phase {
    PHASE_OTHER,
    PHASE_DATA,
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_OPTIMIZER,
    PHASE_COMM,
    N_PHASES
};
/* Events that end a step; once a stronger one was seen, weaker ones do not. */
enum stepper {
    STEPPER_NONE,
    STEPPER_FORWARD,
    STEPPER_BACKWARD, /* a model called again in training, after a backward; without an optimizer */
    STEPPER_OPTIMIZER,
    STEPPER_CALL,
    N_STEPPERS
};

/* The state of a thread amid its calls.  Owned by the thread, used with the GIL held.  The fields
 * that each call of a module reads and writes come first. */
struct thread {
    uint32_t life;      /* of the plugin, when the rest was set; another one: all is stale */
    uint32_t depth;     /* module calls of ours that this thread is inside */
    bool outer_unseen;  /* a forward that began before us is still running below */
    bool recording;     /* the top-level call's rows are wanted */
    bool no_backward;   /* those of its backward cannot be told */
    bool training;      /* in this step a model was called in training: last_micro is of it */
    bool recomputes;    /* the top-level call is inside a backward, as a checkpoint's are */
    uint64_t walk;      /* of its tree, the last one; NO_WALK: nobody knows the tree */
    int64_t micro;      /* of the top-level call, PROBING_NULL_I64 outside of training */
    uint64_t walks_ns;  /* what we did besides, measured one by one, in all */
    uint64_t calls;     /* of this step, for overhead_sec */
    struct module *top; /* the top-level call's, only while depth > 0 */
    uint64_t step;      /* the step that the counters belong to */
    enum phase phase;   /* since phase_ns */
    uint32_t seen;      /* bits: phases that were entered */
    uint64_t phase_ns, spent_ns[N_PHASES];
    uint64_t computed_ns;  /* the backward that runs now had all gradients; 0: it has not */
    uint64_t evaluated_ns; /* of PHASE_OTHER, in calls of models outside of training */
    uint64_t old_walks_ns; /* walks_ns before this step */
    int64_t last_micro;    /* of the last model with parameters */
    bool forward_whole;    /* every top-level forward of this step was seen */
    uint32_t steps_depth, backward_depth; /* optimizer.step() and backward() calls inside */
    uint64_t step_name;        /* class of the optimizer whose step() ended last, interned */
    const PyObject *optimizer; /* that one's address, never followed */
    bool step_real, step_skipped, step_empty; /* inside an outermost step(): an optimizer's own work
                                               * was done, a GradScaler left it out, a wrapper's
                                               * step() was called */
    int64_t tid;
};

/* The fields that each call of a module reads and writes come first. */
extern struct steps {                 /* lock: the GIL, except where a comment says otherwise */
    _Alignas(CACHE_LINE) int64_t seq; /* module calls begun in this step */
    uint64_t step;     /* steps ended in this process, while we looked; read without the GIL */
    uint64_t begin_ns; /* when the last one ended, 0: none has; likewise */
    struct probing_table *trace;
    union probing_cell forward_row[N_TRACE]; /* rows of forwards are made here, from `row` */

    union probing_cell row[N_TRACE]; /* what all rows of this step have in common */
    uint64_t stages[N_STAGES];       /* interned */
    struct probing_table *timing;
    bool sampled;       /* this step is one of `every` */
    bool has_optimizer; /* one was there, or has been made */
    bool counts;        /* `step` is of this process */
    enum stepper stepper;
    const PyObject *last_optimizer; /* that ended a step; an address, never followed */
    uint64_t work;                  /* forwards and backwards begun in this step, by any thread */
    uint64_t first_step;            /* of this load; read without the GIL */
    uint64_t overhead_sampled_ns, n_overhead_samples; /* our own time on the calls where it was
                                                       * measured */
    struct {                         /* of the loop's thread; read without the GIL */
        const struct thread *thread; /* its address, never followed */
        int64_t tid;                 /* 0: not known */
        enum phase phase;
        uint64_t since_ns; /* it is in that phase */
    } loop;
    const struct thread *due_on; /* something is to be done where this thread comes by; compared */
    void (*due)(struct thread *t);
    struct settings set; /* as of the step's begin; its long texts last, away from the rest */
} steps;

/* A listener to steps; NULL: not to that.  Listeners are called in the order of their list. */
struct step_listener {
    void (*look)(void);                     /* parts of torch may have been imported meanwhile */
    void (*settings)(struct settings *set); /* hold from now on; it may correct them */
    void (*optimizes)(const struct thread *t, PyObject *optimizer); /* it does its work now */
    void (*optimized)(struct thread *t, uint64_t end_ns);           /* it has done it */
    /* The step is over, and is the one that runs yet: what is added belongs to it. */
    void (*ends)(const struct thread *t, uint64_t end_ns);
    void (*ended)(const struct thread *t, uint64_t end_ns); /* before the next one begins */
    void (*begun)(struct thread *t);                        /* the next one has */
};
/* listeners: ends with an empty one; borrowed for as long as the plugin is there. */
void step_listen(const struct step_listener *listeners);
void step_look(void); /* calls their look() */
void step_optimizes(const struct thread *t, PyObject *optimizer);
void step_optimized(struct thread *t, uint64_t end_ns);
/* A step ends on this thread, and the next one begins. */
void step_end(struct thread *t, enum stepper stepper, uint64_t end_ns);
/* start(): nothing is known of the program's steps. */
void step_reset(void);
/* A call of a model begins: while none has ended a step, new settings hold at once. */
void step_take_settings(void);
bool step_is_shadow(void); /* one without rows, to measure what rows cost */

/* A thread's counters belong to an older step: begin them anew. */
void step_renew(struct thread *t);
/* The thread's time is another phase's from now on; gives the one before, to be put back. */
enum phase step_phase(struct thread *t, enum phase phase, uint64_t now_ns);
/* The loop's thread is in another phase. */
static inline void step_loop_phase(enum phase phase, uint64_t now_ns)
{
    __atomic_store_n(&steps.loop.phase, phase, __ATOMIC_RELAXED);
    __atomic_store_n(&steps.loop.since_ns, now_ns, __ATOMIC_RELEASE);
}

/* ---- optimizer_step.c ---- */

/* Hooks of Optimizer._optimizer_step_code(), Optimizer.add_param_group() and GradScaler.step() */
PyObject *step_code(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *step_group(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *step_scaler(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* Hook step() of an optimizer that is there, and of its class. */
void step_wrap(PyObject *optimizer);
/* Likewise of the classes derived from this one. */
void step_wrap_classes(PyObject *class);

/* ---- step_timing.c ---- */

extern const struct probing_table_desc timing_table;
/* A step ends on this thread: its row. */
void timing_add(const struct thread *t, uint64_t end_ns);

/* ---- program_calls.c ---- */

/* sys._probing_step and _role, which the package calls when they are there; false: away again. */
void program_calls_offer(bool offer);

#endif
