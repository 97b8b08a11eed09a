/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/internal.h - what the files of the torch plugin share: one state, guarded by the
 * GIL.
 *
 * Threads: everything here needs the GIL, except where a comment says otherwise.
 * It knows nothing of torch's own C++: torch is seen through its Python objects only.
 */
#ifndef TORCH_INTERNAL_H
#define TORCH_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <probing/ext/draft/coordinates.h>

#include "cpython.h"
#include "probing_sdk.h"

/* The first columns of every stored table of ours; then those of python.torch_trace. */
enum {
    COL_MICRO_STEP,
    COL_COORDINATES,
    COL_LOCAL_STEP = COL_COORDINATES + PROBING_LOCAL_STEP,
    COL_GLOBAL_STEP = COL_COORDINATES + PROBING_GLOBAL_STEP,
    N_COORDINATES = COL_COORDINATES + PROBING_COORDINATES,
    COL_SEQ = N_COORDINATES,
    COL_MODULE,
    COL_STAGE,
    COL_DURATION,
    COL_TIME_OFFSET,
    COL_DEVICE,
    COL_ALLOCATED,
    COL_ALLOCATED_DELTA,
    COL_MAX_ALLOCATED,
    COL_MAX_ALLOCATED_DELTA,
    COL_CACHED,
    COL_MAX_CACHED,
    N_TRACE,
    N_TRACE_SHORT = COL_ALLOCATED /* of a row without memory: what is left out at the end is NULL */
};
/* Columns of python.torch_step_timing. */
enum {
    TIMING_STEP = N_COORDINATES,
    TIMING_FORWARD,
    TIMING_BACKWARD,
    TIMING_OPTIMIZER,
    TIMING_DATALOADER,
    TIMING_COMM,
    TIMING_OTHER,
    TIMING_EVALUATION,
    TIMING_OVERHEAD,
    TIMING_SAMPLED,
    TIMING_RATE,
    TIMING_KIND,
    TIMING_SHADOW,
    TIMING_SHADOW_NORMAL,
    TIMING_SHADOW_BASELINE,
    TIMING_MODE,
    N_TIMING
};
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

enum stage {
    STAGE_FORWARD,
    STAGE_RECOMPUTED,
    STAGE_BACKWARD,
    STAGE_STEP,
    STAGE_SKIPPED,
    STAGE_DATA,
    N_STAGES
};

#define LIST_BYTES 2048 /* of exprs and layers */
/* Calls: on one in so many our own time is measured; a prime, so that no model shows us the same
 * module again and again. */
#define OVERHEAD_EVERY 61u

/* CPython functions that sdk/cpython.h does not list. */
struct python_more {
    PyObject *(*PyVectorcall_Call)(PyObject *, PyObject *, PyObject *);
    PyObject *(*PyObject_GenericGetDict)(PyObject *, void *);
    PyObject *(*PyEval_GetFrame)(void); /* borrowed */
    Py_ssize_t (*PyObject_Hash)(PyObject *);
    void (*PyObject_GC_UnTrack)(void *);
    void (*PyObject_GC_Del)(void *);
    void (*PyObject_ClearWeakRefs)(PyObject *);
    PyObject *(*PyInstanceMethod_New)(PyObject *);       /* NULL: not here */
    PyObject *(*_PyType_Lookup)(PyObject *, PyObject *); /* borrowed; NULL: not here */
    PyObject *(*PyFrame_GetCode)(PyObject *);            /* 3.9; else NULL */
    PyObject *(*PyFrame_GetBack)(PyObject *);            /* likewise */
    PyObject *(*PyFrame_GetVar)(PyObject *, PyObject *); /* 3.12; else NULL */
    int (*PyDict_AddWatcher)(int (*)(int, PyObject *, PyObject *, PyObject *)); /* likewise */
    int (*PyDict_ClearWatcher)(int);
    int (*PyDict_Watch)(int, PyObject *);
    int (*PyDict_Unwatch)(int, PyObject *);
    void (*PyUnstable_GC_VisitObjects)(int (*)(PyObject *, void *), void *); /* likewise */
};

/* A module's name in one tree. */
struct naming {
    uint64_t walk; /* number of the walk of that tree that came by last */
    uint64_t name; /* interned, or PROBING_NULL_ID */
    uint32_t layers_version;
    bool unwanted;  /* not in the setting `layers` */
    PyObject *root; /* valid while root_serial matches what names_find(root) gives */
    uint64_t root_serial;
    uint64_t path_hash; /* of the text behind `name`: saves interning it again */
    struct naming *next;
};

#define CACHE_LINE 64
#define NO_WALK UINT64_MAX /* no module was seen in it */

/* One module that lives: its names, and what belongs to the root of a tree.  What each call reads
 * is in the first cache line. */
struct module {
    _Alignas(CACHE_LINE) PyObject *object; /* borrowed: the weak reference's callback ends this */
    uint64_t device;                       /* interned, or PROBING_NULL_ID */
    int cuda;                              /* number of that device, -1: it is none of CUDA's */
    bool has_params, is_child;
    bool large;              /* its graph is too large to look for its backward */
    uint64_t read_after;     /* nonfinite.c: number of the backward its gradients were read after */
    uint8_t agreed;          /* backward.c: walks of its graph that found what was known */
    struct naming at;        /* in the tree that it was seen in last */
    struct naming *others;   /* in other trees that it is a part of; owned */
    PyObject *weak;          /* owned */
    uint64_t serial;         /* never used twice, unlike an address */
    struct branch *branches; /* a root's: module_names.c; owned */
    uint32_t n_branches;
    uint32_t calls;                    /* in training mode, in `step` */
    uint64_t step;                     /* a top-level module's: the step that `calls` belongs to */
    uint64_t listed;                   /* number of the listing that came by last */
    int64_t tid;                       /* a root's: of the thread that called it last; 0: none */
    uint64_t walked_ns, walk_cost_ns;  /* a root's: when and how long it was walked */
    uint64_t checked_ns, checked_step; /* likewise when it was looked at for changes */
    uint32_t fruitless;                /* walks for a strange module, where dicts tell no changes */
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

/* The user's settings; settings.c. */
struct settings {
    uint32_t every;    /* steps: one in so many is recorded; 0: by `rate` */
    double rate;       /* share of the steps */
    uint32_t baseline; /* one step in so many is left without rows; 0: none */
    bool backward;     /* rows for modules' backward */
    bool memory;       /* of the GPU, at each call of a module */
    bool device_times; /* how long calls take on the GPU */
    uint32_t known;    /* bits: what `exprs` has of enum known, variables.h */
    bool nan;          /* look for the first module that makes a NaN or an infinity */
    bool exprs_chosen; /* the user has named `exprs` */
    char exprs[LIST_BYTES], layers[LIST_BYTES];
    uint32_t layers_version; /* names are looked at again when it changes */
};

/* The plugin's one state: CPython calls hooks without any context of ours.  What each call of a
 * module reads and writes comes first.
 * lock: the GIL, except for what is _Atomic. */
struct torch {
    /* hooks do their work; cleared by stop() and, without the GIL, after fork */
    _Alignas(CACHE_LINE) _Atomic bool on;
    bool short_way;         /* calls of modules have nothing to do but a row: module_call.c */
    uint32_t life;          /* counts start() */
    uint32_t weigh_in;      /* calls; then on one our own time is measured */
    int64_t seq;            /* module calls begun in this step */
    uint64_t step;          /* steps ended in this process, while we looked */
    uint64_t step_begin_ns; /* when the last one ended, 0: none has */
    uint64_t (*now)(void);  /* the host's; a call in flight may ask after destroy() */
    int (*append)(struct probing_table *t, uint64_t ts, const union probing_cell *cells, uint32_t n,
                  const void *tail, uint32_t tail_n); /* likewise */
    struct probing_table *trace;
    union probing_cell forward_row[N_TRACE]; /* rows of forwards are made here, from `row` */

    /* Threads in our own part of a hook: Python may run there (a property of what is looked at) and
     * the GIL be given up.  stop() waits for them. */
    int at_work;
    const struct probing_host *host;
    struct probing_table *timing, *comm, *variables, *device_time, *stuck, *snapshot, *ddp;
    struct cpython py;
    struct python_more more;
    bool live;           /* between start() and stop(): host and tables may be used */
    bool counts;         /* `step` is of this process */
    uint64_t first_step; /* of this load; read without the GIL */
    PyObject *module_class, *parameter_class, *tensor_class, *optimizer_class, *forward_code;
    PyObject *grad_enabled;                                   /* torch.is_grad_enabled, or NULL */
    PyObject *text_modules, *text_parameters, *text_training; /* interned attribute names */
    uint64_t stages[N_STAGES], steppers[N_STEPPERS];          /* interned */
    uint32_t hooked; /* bits: places in torch's modules that were there and have their hook */
    enum stepper stepper;
    bool has_optimizer;             /* one was there, or has been made */
    bool has_ddp;                   /* a DistributedDataParallel was there, or has been called */
    const PyObject *last_optimizer; /* that ended a step; an address, never followed */
    uint64_t late_ns;               /* when parts of torch that come late were asked for */
    uint64_t work;                  /* forwards and backwards begun in this step, by any thread */
    uint32_t backwards;             /* backward() calls that run now, on any thread */
    bool backward_told; /* backward_find(); read without the GIL between start() and stop() */
    struct {            /* of the loop's thread; read without the GIL */
        const struct thread *thread; /* its address, never followed */
        int64_t tid;                 /* 0: not known */
        enum phase phase;
        uint64_t since_ns; /* it is in that phase */
    } loop;
    const struct thread *due_on; /* something is to be done where this thread comes by; compared */
    void (*due)(struct thread *t);
    _Atomic uint32_t comm_timeout; /* torch.comm_timeout, seconds, 0: off; any thread, relaxed */
    double sample_debt; /* sampled steps that sample_rate asks for and that are still to come */
    uint64_t overhead_sampled_ns,
        n_overhead_samples;          /* our own time on the calls where it was measured */
    bool sampled;                    /* this step is one of `every` */
    union probing_cell row[N_TRACE]; /* what all rows of this step have in common */
    struct settings set; /* as of the step's begin; its long texts last, away from the rest */
};

extern struct torch torch_state;

/* A callable that stands where a Python function stood, and looks like it to whoever asks. */
typedef PyObject *(*hook_call)(PyObject *hook, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames);

/* hook.c: put `call` in the place of class.name (a class's own attribute) or of an instance's
 * attribute.  0, -ENOENT: it has none; -ENOTSUP: it is no function. */
int hook_class(PyObject *class, const char *name, hook_call call);
int hook_instance(PyObject *object, const char *name, hook_call call);
/* A class's, the fastest way; torch.compile does not understand it. */
int hook_class_plain(PyObject *class, const char *name, hook_call call);
/* Likewise a method of a class that pybind11 made. */
int hook_method(PyObject *class, const char *name, hook_call call);
/* A method that C made and that takes a tuple and a dict: nothing is put in its place, it is
 * another function's from then on.  One at a time. */
typedef PyObject *(*hook_c_call)(PyObject *self, PyObject *args, PyObject *kwargs);
int hook_c_method(PyObject *class, const char *name, hook_c_call call);
PyObject *hook_c_pass(PyObject *self, PyObject *args, PyObject *kwargs);
const char *hook_name(PyObject *hook); /* of the attribute */
/* The object whose own attribute it is, borrowed; NULL: a class, or it has gone. */
PyObject *hook_owner(const PyObject *hook);
/* Is this object one of ours? */
bool hook_is(PyObject *object);
/* Is it in its place, and the plugin on?  Else it only passes calls on. */
bool hook_works(PyObject *hook);
PyObject *hook_original(PyObject *hook); /* borrowed */
/* Call what stood there before, with the same arguments. */
PyObject *hook_pass(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* Everything back where it was; gives how many places somebody else has changed since (there the
 * hook stays and only passes on). */
int hook_restore_all(void);

/* module_names.c */
struct module *names_find(const PyObject *object);
/* A module that is called inside a call of t->top and is not known (m: NULL), or not as a part of
 * that one's tree.  NULL: no name can be told. */
struct module *names_inside(struct module *m, PyObject *object, struct thread *t);
/* Before a top-level call: its entry, with the names in its tree as they are now. */
struct module *names_top(PyObject *object, uint64_t now_ns);
struct names_sought { /* objects that somebody looks for, by their classes */
    bool (*is)(PyObject *class);
    void (*found)(PyObject *object);
};
/* Read all modules that live now; sought: ends with an empty one.  0 or -errno. */
int names_scan(const struct names_sought *sought);
void names_forget_all(void);
/* Addresses and serials of modules that are in no other one; at most n. */
uint32_t names_roots(PyObject **ret, uint64_t *ret_serials, uint32_t n);
bool names_training(PyObject *module); /* is it in training mode? */
bool names_is_ddp(PyObject *module);   /* is it a DistributedDataParallel? */

/* module_call.c: hooks of Module.__call__, of Tensor.backward and of autograd's engine */
PyObject *call_module(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *call_backward(PyObject *engine, PyObject *args, PyObject *kwargs);
PyObject *call_tensor_backward(PyObject *hook, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames);

/* step.c */
PyObject *step_code(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *step_group(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *step_scaler(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *step_told(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
void step_wrap(PyObject *optimizer);
/* The classes derived from this one. */
void step_wrap_classes(PyObject *class);
/* A listener to steps; NULL: not to that.  Listeners are called in the order of their list. */
struct step_listener {
    void (*look)(void); /* parts of torch may have been imported meanwhile */
    void (*optimized)(struct thread *t, uint64_t end_ns); /* an optimizer has done its work */
    void (*ended)(uint64_t end_ns);                       /* before the next one begins */
    void (*begun)(struct thread *t);                      /* the next one has */
};
/* listeners: ends with an empty one; borrowed for as long as the plugin is there. */
void step_listen(const struct step_listener *listeners);
/* The step that begins: what its rows have in common. */
void step_begin(uint64_t now_ns);
/* torch_state.set has changed. */
void step_settings_changed(void);
/* torch_state.row has changed. */
void step_rows_changed(void);
void step_end(struct thread *t, enum stepper stepper, uint64_t end_ns);
bool step_is_sampled(void);
/* A thread's counters belong to an older step: begin them anew. */
void step_renew(struct thread *t);
/* The thread's time is another phase's from now on; gives the one before, to be put back. */
enum phase step_phase(struct thread *t, enum phase phase, uint64_t now_ns);
/* A row of python.torch_trace that is no module's.  begin_ns: 0 when it was not seen. */
void step_row(enum stage stage, uint64_t name, uint64_t begin_ns, uint64_t end_ns);

/* coordinates.c */
#define COORDINATE_COLUMNS                                                                       \
    PROBING_COORDINATE("micro_step", PROBING_I64, PROBING_COUNT,                                 \
                       "which forward of the same model in this step, from 0; NULL: outside of " \
                       "training, or not known"),                                                \
        PROBING_COORDINATE_COLUMNS
/* Read them anew, from the environment; part: where others want them, too. */
void coordinates_begin(const struct probing_python_coordinates_1 *part);
/* Is torch.distributed there?  Then it is asked from now on. */
void coordinates_find(void);
/* Has torch.distributed another default group than before, or none? */
void coordinates_look(void);
void coordinates_tell_global(int64_t step); /* PROBING_NULL_I64: not told */
void coordinates_tell_role(const char *text);
/* The step has changed, or is counted no more. */
void coordinates_step(bool counted);
void coordinates_forget(void);
/* The first N_COORDINATES cells of a row of this thread's, in the step that runs. */
void coordinates_put(union probing_cell *row);
void coordinates_of(int64_t step, union probing_cell *row); /* of another one            [any] */

/* settings.c */
extern const struct probing_config settings_table[];
void settings_init(void);
void settings_begin(void);
int settings_configure(const char *name, const char *value); /* [control] */

/* next_settings.c: the next step has these. */
void settings_hand(const struct settings *s); /* [control] */
/* Copy what was handed in; false: nothing has since the last time. */
bool settings_take(struct settings *ret);
void settings_take_over(struct settings *ret); /* as they will be in the next step          [any] */

/* backward.c */
struct backward_call { /* one forward, whose backward is to come */
    uint64_t from;     /* autograd's count of nodes when it began; UINT64_MAX: no row is wanted */
    PyObject *object;  /* the module */
    uint64_t name, device;
    int64_t micro;
};
/* Can this torch's graphs be looked into?  If not, backward_enter() gives UINT64_MAX. */
bool backward_find(void);
#define BACKWARD_UNTOLD                                                           \
    "torch.backward: this torch does not tell the order of its graph's nodes (2 " \
    "does), so there are no rows of backwards"
void backward_forget(void);
uint64_t backward_enter(void);
/* Does this thread run a backward, as where a checkpoint computes its forward again? */
bool backward_inside(const struct thread *t);
/* A forward gave `result`; the thread's depth is as before it.  false: its graph is too large. */
bool backward_leave(PyObject *result, const struct backward_call *call);
/* An outermost backward begins: where it waits for other ranks is communication.  What
 * backward_end() takes, NULL: nothing. */
PyObject *backward_begin(struct thread *t, PyObject *args, PyObject *kwargs);
void backward_waited(struct thread *t, uint64_t end_ns);
void backward_end(PyObject *handle); /* an exception that is raised stays */

/* collective.c */
extern const struct probing_table_desc comm_table;
/* Hook torch.distributed's groups once they are there. */
void comm_find(void);
void comm_forget(void);

/* variables.c */
extern const struct probing_table_desc variables_table;
void variables_forget(void);
/* A step ends on this thread: add a row for each of the setting `exprs`. */
void variables_step(void);

/* nonfinite.c */
/* A module's forward is done (args[0] is the module): tell the first in a step that gave a NaN or
 * an infinity. */
void variables_watch(uint64_t module, PyObject *const *args, Py_ssize_t n, PyObject *result);
/* A backward is done: tell the module whose gradients are the first to have one. */
void variables_watch_gradients(void);

/* loss.c */
uint32_t loss_wanted(const char *exprs); /* bits of enum known, variables.h */
/* A top-level call of a module gave `result`. */
void loss_forward(const struct thread *t, PyObject *module, PyObject *result);
/* The engine's run_backward() is called. */
void loss_backward(const struct thread *t, PyObject *args, PyObject *kwargs);
/* This one steps. */
void loss_optimizer(const struct thread *t, PyObject *optimizer);
/* Hook of what gives a batch's loss, as Lightning's Strategy.training_step(). */
PyObject *loss_training_step(PyObject *hook, PyObject *const *args, size_t nargsf,
                             PyObject *kwnames);
void loss_find(void); /* hook what clips gradients */
void loss_forget(void);

/* loop_table.c */
extern const struct probing_table_desc loop_table;
void loop_is(const struct thread *t); /* the one that has ended a step */
void loop_inspect(uint64_t now_ns);   /* once a second [worker] */
int64_t loop_rss(void);     /* memory of the process, bytes; 0: the kernel does not tell    [any] */
int64_t loop_private(void); /* of it without files and shared memory, and what is swapped   [any] */
/* So much came with a run of torch's profiler for us: it is not the program's growth.      [any] */
void loop_kept(int64_t bytes);
/* The loop's thread is in another phase. */
static inline void loop_phase(enum phase phase, uint64_t now_ns)
{
    __atomic_store_n(&torch_state.loop.phase, phase, __ATOMIC_RELAXED);
    __atomic_store_n(&torch_state.loop.since_ns, now_ns, __ATOMIC_RELEASE);
}

/* empty_reason.c: why a table has no rows; as probing/ext/draft/empty.h says. */
int empty_why(void *self, const char *table, char *text, uint32_t size);

/* module_tables.c */
extern const struct probing_table_desc modules_table, gradients_table;

/* dataloader.c */
extern const struct probing_table_desc data_table;
PyObject *data_next(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
void data_forget(void);
/* Is it a class of DataLoaders' iterators?  data_remember(): one of these is there. */
bool data_is_iterator(PyObject *class);
void data_remember(PyObject *iterator);

static inline bool torch_on(void)
{
    return atomic_load_explicit(&torch_state.on, memory_order_relaxed);
}

/* Around what a hook does itself, without the call that it passes on; may nest.  With the GIL. */
static inline void work_begin(void)
{
    torch_state.at_work++;
}

static inline void work_end(void)
{
    if (torch_state.at_work > 0) /* a fork in between begins anew */
        torch_state.at_work--;
}

static inline Py_ssize_t hook_nargs(size_t nargsf)
{
    return (Py_ssize_t)(nargsf & ~CPYTHON_ARGUMENTS_OFFSET);
}

/* The type is an object's second word in every CPython with a GIL. */
static inline PyObject *object_type(const PyObject *object)
{
    PyObject *type;
    memcpy(&type, (const char *)object + sizeof(void *), sizeof(type));
    return type;
}

/* ---- declarations.c ---- */

extern const struct probing_declarations torch_declares;

#endif
