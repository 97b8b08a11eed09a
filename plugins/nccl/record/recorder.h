/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/record/recorder.h - what NCCL's callbacks leave behind: communicators, and the
 * events under way in each.
 *
 * The callbacks (record_...) run on any of the program's and NCCL's threads: they take no lock and
 * allocate nothing, and touch the pools of their own communicator only.  A communicator begins and
 * ends, and a recorder is switched, under `mutex`.  One thread, the writer's, takes what has ended.
 *
 * A recorder may be used by two copies of this library in one process: the one that NCCL has opened
 * and the one that the core has (attach.h).  So nothing here is reached but through its struct, and
 * a copy with another RECORDER_LAYOUT keeps off.
 */
#ifndef NCCL_RECORDER_H
#define NCCL_RECORDER_H

#include <pthread.h>
#include <sys/types.h>

#include "record/event_pool.h"

#define RECORDER_LAYOUT 2u /* one more with each change of a struct below */

#define COMMS_MAX 1024u /* communicators at a time; further ones are counted */
#define OPS_MAX 4096u   /* of one: what CUDA queues, and what has ended since the writer looked */
#define PROXIES_MAX 16384u /* 1024 operations, 8 channels, two directions */
#define KERNELS_MAX 2048u  /* those that run: channels of a few operations */
#define NETS_MAX 2048u     /* work requests */
#define STEPS 8u           /* of a proxy operation at a time: NCCL_STEPS */
#define TEXT_BYTES 24u     /* "COLLNET_DIRECT", "ncclFloat8e4m3", "RSxTmaLD_AGxTmaST" */
#define FUNCS 16u          /* names of functions, by hash */
#define COMM_NAME_BYTES 64u

enum event_kind { EVENT_OP = 1, EVENT_PROXY, EVENT_STEP, EVENT_KERNEL, EVENT_NET, EVENT_GROUP };
enum op_kind { OP_COLL, OP_P2P, OP_CE };

/* Reasons why a proxy operation waits, by the state of its steps. */
enum wait {
    WAIT_SEND_GPU,   /* this rank's GPU has not produced the data */
    WAIT_SEND_PEER,  /* the receiver has not cleared the way */
    WAIT_SEND,       /* the network takes the data */
    WAIT_RECV,       /* the sender or the network has not brought the data */
    WAIT_RECV_FLUSH, /* the data goes to the GPU */
    WAIT_RECV_GPU,   /* this rank's GPU has not consumed it */
    WAITS
};

struct text_field { /* a short text; what is longer is cut */
    _Atomic uint64_t half[TEXT_BYTES / 8];
};

/* One call of ncclAllReduce() ... ncclSend().  NCCL's stop of it says that it is enqueued; it has
 * ended when what it had done on channels and by proxies has. */
struct op_slot {
    struct slot slot;
    struct text_field func, datatype, algo, proto;
    _Atomic uint64_t id, kind, has_seq, seq, count, channels, rank, peer;
    _Atomic uint64_t start_ns, enqueued_ns, moved_ns; /* moved: the newest of its events */
    _Atomic uint64_t first_ns[2], last_ns[2];         /* by the host's clock: proxies, kernel */
    _Atomic uint64_t gpu_first_ns, gpu_last_ns;       /* by the GPU's; 0: not known */
    _Atomic uint64_t progress;                        /* PROGRESS_... */
    _Atomic uint64_t lost;                            /* events of it for which there was no room */
    _Atomic uint64_t told_ns;                         /* the writer's: the next time it is told */
    _Atomic uint64_t aborted;                         /* its communicator ended first */
    _Atomic uint64_t symmetric, user_tag;
};

/* progress: of its events those under way, channels whose kernel has ended, proxies that have; and
 * of which life of the slot that is. */
#define PROGRESS_LIVE UINT64_C(1)
#define PROGRESS_KERNEL (UINT64_C(1) << 16)
#define PROGRESS_PROXY (UINT64_C(1) << 32)
#define PROGRESS_COUNT(p, unit) ((uint32_t)((p) / (unit)) & 0xffffu)
#define PROGRESS_LIFE(generation) ((uint64_t)((generation)&0x1fffu) << 48)
#define PROGRESS_UNTOLD (UINT64_C(1) << 61) /* of its kernels nothing is said */
#define PROGRESS_STOPPED (UINT64_C(1) << 62)
#define PROGRESS_CLOSED (UINT64_C(1) << 63)

struct step_slot {
    _Atomic uint64_t since_ns; /* it is in this state since then */
    _Atomic uint64_t state;    /* 0: none; 1: begun; 2 + enum wait */
};

struct proxy_slot { /* one channel's part of an operation, on the network */
    struct slot slot;
    struct text_field func;
    _Atomic uint64_t id, op, op_id, has_seq, seq, rank, peer, channel, is_send, n_steps, chunk;
    _Atomic uint64_t start_ns, end_ns, bytes, steps;
    _Atomic uint64_t waits_ns[WAITS];
    _Atomic uint64_t told_ns;
    struct step_slot step[STEPS];
};

struct kernel_slot { /* the kernel's work on one channel */
    struct slot slot;
    _Atomic uint64_t op, start_ns, gpu_start_ns, gpu_end_ns;
};

struct net_slot { /* a work request of a queue pair */
    struct slot slot;
    _Atomic uint64_t rank, device, wr_id, opcode, qp_num, length, start_ns, end_ns;
};

struct pools {
    struct pool op, proxy, kernel, net;
};

enum counter {
    COUNT_OPS,
    COUNT_PROXIES,
    COUNT_STEPS,
    COUNT_KERNELS,
    COUNT_NETS,
    COUNT_NO_ROOM,       /* events dropped: a pool is full */
    COUNT_STOPS_MISSING, /* begun anew, or at the communicator's end not ended */
    COUNT_UNKNOWN,       /* handles that are none, or of an event that has ended; unknown states */
    COUNT_ROWS,          /* written to tables */
    COUNT_NOT_WRITTEN,   /* rows for which the store had no room */
    COUNTERS
};

enum comm_state { COMM_FREE, COMM_OPEN, COMM_CLOSED };

struct comm {
    struct recorder *recorder;
    uint32_t index;
    _Atomic uint32_t state;      /* enum comm_state; lock: mutex, to write */
    struct pools *_Atomic pools; /* NULL: none yet; then never another */
    struct pools pools_room;
    char *memory; /* of the pools */
    size_t memory_bytes;
    char name[COMM_NAME_BYTES]; /* lock: mutex; "": none */
    uint32_t version;           /* of the interface; lock: mutex */
    uint64_t born_ns;           /* lock: mutex */
    _Atomic uint64_t serial;    /* number of the communicator, from 1 */
    _Atomic uint64_t hash;      /* 0: not known yet (1 to 3: with the first operation) */
    _Atomic int32_t rank, n_ranks, n_nodes; /* -1: not known */
    _Atomic uint64_t ids;                   /* events so far */
    _Atomic uint64_t finished_start_ns;     /* the writer's: begin of the newest that has ended */
    _Atomic uint64_t symmetric[FUNCS];      /* newest operation over symmetric memory: a handle */
    uint64_t told_counters, told_live;      /* the writer's */
    uint32_t pending[3];                    /* the writer's: lists that are not written yet */
    _Atomic uint64_t counters[COUNTERS];
};

struct recorder {
    uint32_t layout, size; /* RECORDER_LAYOUT, sizeof(struct recorder) */
    pthread_mutex_t mutex;
    _Atomic bool on;     /* events are taken */
    _Atomic bool writer; /* there is a thread that takes what has ended */
    int *mask;           /* lock: mutex; NCCL's word for it; NULL: not known */
    bool fixed_mask;     /* lock: mutex; it is read once only */
    uint32_t n_comms;    /* lock: mutex; open ones */
    _Atomic int32_t pid;
    _Atomic uint64_t serials, refused;     /* communicators so far; those without a place */
    struct comm *_Atomic comms[COMMS_MAX]; /* they and their pools stay for ever */
};

/* A communicator as init() describes it; hash 0, rank -1 ...: it does not. */
struct comm_about {
    const char *name;
    uint64_t hash;
    int n_nodes, n_ranks, rank;
    uint32_t version;
};

struct op_about {
    enum op_kind kind;
    const char *func, *datatype, *algo, *proto; /* borrowed; NULL: not known */
    uint64_t comm_hash;                         /* 1 to 3; else 0 */
    bool has_seq;
    uint64_t seq, count;
    int rank, peer; /* peer: of p2p, else the root */
    uint32_t channels;
    bool symmetric;
    uint64_t user_tag;
};

struct proxy_about {
    uint64_t parent;
    pid_t pid;
    int rank, channel, peer, n_steps, chunk_bytes;
    bool is_send;
};

struct net_about {
    int rank, device, opcode, qp_num;
    uint64_t wr_id, length;
};

void recorder_init(struct recorder *r);
/* Events from now on, or no more.  Pools are made for communicators that have none.  0, or -ENOMEM:
 * some have none.                                                               [control] */
int recorder_switch(struct recorder *r, bool on);
/* The kinds of events that NCCL is to be asked for at present. */
int recorder_mask(const struct recorder *r);
/* In a child of fork(): nobody takes events there. */
void recorder_forked(struct recorder *r);

/* A communicator begins; NULL: there is no room.  mask: where NCCL reads what it should tell. */
struct comm *comm_begin(struct recorder *r, const struct comm_about *about, int *mask);
void comm_end(struct comm *c);
/* After its end: what is still under way has been read, the place is free.  The writer's. */
void comm_release(struct comm *c);

/* Handles; 0: not taken.  [any thread, no lock, nothing allocated] */
uint64_t record_group(void); /* the same for all: nothing is kept of groups */
uint64_t record_op(struct comm *c, const struct op_about *about);
uint64_t record_proxy(struct comm *c, const struct proxy_about *about);
uint64_t record_step(struct recorder *r, uint64_t proxy, int step);
uint64_t record_kernel(struct comm *c, uint64_t op, uint64_t gpu_ns);
uint64_t record_net(struct comm *c, const struct net_about *about);
/* A state of recordEventState(); bytes: of the transfer, 0: not said; total: they are of all steps
 * so far. */
void record_state(struct recorder *r, uint64_t handle, int state, uint64_t bytes, bool total);
void record_kernel_end(struct recorder *r, uint64_t handle, uint64_t gpu_ns);
void record_stop(struct recorder *r, uint64_t handle);

/* Forget all that is under way or has ended and was not read.  Nobody reads meanwhile. */
void comm_discard(struct comm *c);
/* An operation that the writer knows to have ended: true, and it is given up. */
bool op_close(struct comm *c, uint32_t number, uint32_t generation);

static inline void comm_count(struct comm *c, enum counter which)
{
    (void)atomic_fetch_add_explicit(&c->counters[which], 1, memory_order_relaxed);
}

/* Replace each byte that is no printable ASCII by '?'. */
void text_clean(char *text);
/* ret: TEXT_BYTES + 1, cleaned. */
void text_read(const struct text_field *t, char *ret);

#endif
