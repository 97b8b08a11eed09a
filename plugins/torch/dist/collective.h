/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/dist/collective.h - what the files about torch.distributed share.
 *
 * Threads: any that holds the GIL, except where a comment says otherwise.
 */
#ifndef TORCH_DIST_COLLECTIVE_H
#define TORCH_DIST_COLLECTIVE_H

#include "python/python_api.h"
#include "steps/coordinates.h"

#define COMM_GROUP_BYTES 64u
#define COMM_WAITS_MAX 320u

extern struct dist { /* lock: the GIL, except for what is _Atomic */
    struct probing_table *comm, *stuck, *snapshot, *ddp;
    _Atomic uint32_t timeout_s; /* torch.comm_timeout, 0: off; any thread, relaxed */
} dist;

/* Columns about this process in the group, in every table about process groups. */
#define GROUP_COLUMNS                                                                        \
    PROBING_I64_COLUMN("group_rank", PROBING_PLAIN, "rank of this process in the group"),    \
        PROBING_I64_COLUMN("group_size", PROBING_COUNT, "number of processes in the group"), \
        PROBING_STR_COLUMN("participate_ranks", "its ranks in the whole job; NULL: not known")

/* ---- collective_args.c ---- */

struct comm_about {               /* an operation of a process group */
    char group[COMM_GROUP_BYTES]; /* its name, "": it has none */
    int64_t rank, size;           /* ours, in the group */
    int64_t job_rank;             /* ours, in the job */
    int64_t seq;                  /* number of the operation in the group, from 1 */
    int64_t bytes;
    int64_t src, dst; /* ranks in the job, where it has one that gives or gets; else NULL */
    int64_t tag;      /* of a send or recv; else NULL */
    uint64_t group_name, ranks, shape, dtype; /* interned */
    bool on_cpu;
};
/* args: of the group's method `op`, itself the first. */
void comm_describe(const char *op, PyObject *const *args, Py_ssize_t n, struct comm_about *ret);
/* Likewise of a functional one: of `group` (NULL: not known), on a tensor or a list of them.
 * false: on none that has data; it is only traced. */
bool comm_describe_tensors(PyObject *group, PyObject *tensors, struct comm_about *ret);
uint64_t comm_op(const char *op); /* its name interned; op lives for ever */
void comm_about_forget(void);

/* ---- collective_functional.c ---- */

/* Hook torch.ops._c10d_functional once it is there. */
void comm_functional_find(void);
void comm_functional_forget(void);
/* The storage of a tensor, or of a list's first: views, too, are waited for by it.  New reference;
 * NULL: it is none. */
PyObject *comm_functional_storage(PyObject *result);

/* ---- collective.c ---- */

struct comm_call {
    const char *op;
    struct comm_about about;
    uint64_t called_ns; /* before it was described */
    bool wanted;        /* it is to have a row, and is described */
    bool functional;    /* it gives tensors, whose storage is waited for */
};
/* Call what stands behind the hook; it starts an operation. */
PyObject *comm_call(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames,
                    const struct comm_call *c);
/* Likewise, waiting for what one gave: its Work, or a tensor's storage; NULL: not known. */
PyObject *comm_wait(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames,
                    PyObject *work);

struct comm_wait { /* an operation of a process group that has not ended */
    const char *op;
    struct comm_about about;
    int64_t step, tid;
    uint64_t begin_ns, waits_ns; /* waits_ns: since when somebody waits; 0: nobody does */
};
/* Give the operations that have begun and not ended; ret: COMM_WAITS_MAX of them. */
uint32_t comm_waits(struct comm_wait *ret);
/* When an operation began or ended last, or a step did; 0: none has.                  [any] */
uint64_t comm_moved_ns(void);
void comm_moved(uint64_t now_ns);
/* A step has ended: rows for what nobody will wait for. */
void comm_ended(const struct thread *t, uint64_t end_ns);
extern const struct probing_table_desc comm_table;
/* Hook torch.distributed's groups once they are there. */
void comm_find(void);
void comm_forget(void);

/* ---- rendezvous.c ---- */

#define COMM_JOINS_MAX 16u
struct comm_join { /* a thread that stands in making a process group */
    char op[32];   /* the function of torch's that the program has called */
    int64_t tid;
    uint64_t seen_ns; /* since then it was seen there */
};
/* ret: COMM_JOINS_MAX of them. */
uint32_t comm_joins(struct comm_join *ret);
void comm_joins_forget(void);

/* ---- waiting.c ---- */

extern const struct probing_table_desc waiting_table;

/* ---- groups.c ---- */

extern const struct probing_table_desc groups_table;
/* List of its ranks in the job, in the order of those in the group.  New reference; NULL: not
 * known. */
PyObject *groups_ranks(PyObject *group);
/* The rank in the job of one in the group, from that list; PROBING_NULL_I64: not known. */
int64_t groups_rank(PyObject *ranks, int64_t rank);
/* A group's name as torch has it, "" when it has none. */
void groups_name(PyObject *group, char *room, size_t size);

/* ---- flight_recorder.c ---- */

extern const struct probing_table_desc recorder_table, snapshot_table;
struct recorder_record {
    char op[COMM_GROUP_BYTES], group[COMM_GROUP_BYTES];
    int64_t seq;
    uint64_t created_ns; /* UTC; 0: there is none */
};
/* Keep what torch's flight recorder holds now as the snapshot of that number, 0: nothing; gives how
 * many records.  ret_oldest: that of the oldest operation that has not ended.         [worker] */
int64_t recorder_keep(int64_t snapshot, struct recorder_record *ret_oldest);

/* ---- ddp.c ---- */

extern const struct probing_table_desc ddp_table;
void ddp_ended(const struct thread *t, uint64_t end_ns); /* a step has ended on this thread */
void ddp_forget(void);

/* ---- watchdog.c ---- */

extern const struct probing_table_desc stuck_table;
/* Every second: has an operation waited for longer than torch.comm_timeout? */
void stuck_inspect(void *self, uint64_t now_ns); /* [worker] */

#endif
