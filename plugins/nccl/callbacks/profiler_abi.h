/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/callbacks/profiler_abi.h - NCCL's profiler interface, versions 1 to 7, in our own
 * words.
 *
 * Source: github.com/NVIDIA/nccl at 5067397c (2.30.7 and later), plugins/profiler/example/nccl/
 * profiler_v1.h to profiler_v6.h, profiler_net.h and net_ib_v1.h, which say that a plugin should
 * have them of its own; and at 88980683, src/include/plugin/profiler/profiler_v7.h.  tests/nccl
 * compares the layouts with those files where they can be had.
 * A published version never changes: NCCL 2.23 knows 1; 2.24, 2; 2.26, 3; 2.27, 4; 2.28, 5; 2.29,
 * 6; and 2.32, 7; each takes the highest that a plugin exports.
 */
#ifndef NCCL_PROFILER_ABI_H
#define NCCL_PROFILER_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { NCCL_SUCCESS = 0 }; /* of ncclResult_t; a profiler gives nothing else */

/* ---- kinds of events: bits of the mask that init() gives, and `type` of a descriptor ---- */

enum {
    NCCL_GROUP = 1 << 0,
    NCCL_COLL = 1 << 1,
    NCCL_P2P = 1 << 2,
    NCCL_PROXY_OP = 1 << 3,
    NCCL_PROXY_STEP = 1 << 4,
    NCCL_PROXY_CTRL = 1 << 5,
    NCCL_KERNEL_CH = 1 << 6,  /* from 3 on */
    NCCL_NET_PLUGIN = 1 << 7, /* from 3 on */
    NCCL_GROUP_API = 1 << 8,  /* from 5 on */
    NCCL_COLL_API = 1 << 9,
    NCCL_P2P_API = 1 << 10,
    NCCL_KERNEL_LAUNCH = 1 << 11,
    NCCL_CE_COLL = 1 << 12, /* by copy engines; from 6 on */
    NCCL_CE_SYNC = 1 << 13,
    NCCL_CE_BATCH = 1 << 14,
    NCCL_KERNEL_PHASE = 1 << 15 /* from 7 on */
};

enum {                          /* of recordEventState() */
       NCCL_OP_SEND_POSTED = 0, /* 0 to 7: up to version 3 */
       NCCL_OP_RECV_DONE = 7,
       NCCL_STEP_SEND_GPU_WAIT = 8,
       NCCL_STEP_SEND_WAIT = 9,
       NCCL_STEP_RECV_WAIT = 10,
       NCCL_STEP_RECV_FLUSH_WAIT = 11,
       NCCL_STEP_RECV_GPU_WAIT = 12,
       NCCL_CTRL_IDLE = 13,
       NCCL_CTRL_APPEND_END = 18,
       NCCL_OP_IN_PROGRESS = 19,
       NCCL_STEP_SEND_PEER_WAIT = 20, /* from 4 on */
       NCCL_NET_UPDATE = 21,
       NCCL_KERNEL_CH_STOP = 22,
       NCCL_KERNEL_PHASE_STOP = 31, /* from 7 on */
       NCCL_STATES = 32
};

/* ---- parts that several versions share ---- */

struct nccl_proxy_op {
    pid_t pid; /* who made the operation: `parent` may be an address of another process */
    uint8_t channel;
    int peer, n_steps, chunk_size, is_send;
};

struct nccl_proxy_step {
    int step;
};

struct nccl_p2p_v2 {
    const char *name;
    uint64_t comm_hash;
    const char *func;
    void *buff;
    const char *datatype;
    size_t count;
    int peer;
};

struct nccl_kernel_ch_v3 {
    uint8_t channel;
};

struct nccl_kernel_ch_v4 {
    uint8_t channel;
    uint64_t timer_ns; /* the GPU's globaltimer */
};

struct nccl_net_plugin {
    int64_t id; /* version in bits 0 to 15, kind of network in 16 to 31 */
    void *data;
};

/* ---- what startEvent() is given ---- */

struct nccl_descr_v1 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t comm_hash, seq;
            uint8_t func;
            const void *send_buff;
            void *recv_buff;
            size_t count;
            int root;
            uint8_t datatype;
            uint32_t op;
            size_t traffic_bytes;
            uint8_t n_max_channels, n_warps, algo, proto;
            int is_collnet, is_nvls;
        } coll;
        struct {
            const char *name;
            uint64_t comm_hash;
            uint8_t func;
            void *buff;
            uint8_t datatype;
            size_t count;
            int peer;
        } p2p;
        struct nccl_proxy_op proxy_op;
        struct nccl_proxy_step proxy_step;
    };
};

struct nccl_descr_v2 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t comm_hash, seq;
            const char *func;
            const void *send_buff;
            void *recv_buff;
            size_t count;
            int root;
            const char *datatype;
            size_t traffic_bytes;
            uint8_t n_max_channels, n_warps;
            const char *algo, *proto;
        } coll;
        struct nccl_p2p_v2 p2p;
        struct nccl_proxy_op proxy_op;
        struct nccl_proxy_step proxy_step;
    };
};

struct nccl_descr_v3 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t comm_hash, seq;
            const char *func;
            const void *send_buff;
            void *recv_buff;
            size_t count;
            int root;
            const char *datatype;
            uint8_t n_max_channels, n_warps;
            const char *algo, *proto;
        } coll;
        struct nccl_p2p_v2 p2p;
        struct nccl_proxy_op proxy_op;
        struct nccl_proxy_step proxy_step;
        struct nccl_kernel_ch_v3 kernel_ch;
        struct nccl_net_plugin net_plugin;
    };
};

struct nccl_descr_v4 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            uint64_t seq;
            const char *func;
            const void *send_buff;
            void *recv_buff;
            size_t count;
            int root;
            const char *datatype;
            uint8_t n_channels, n_warps;
            const char *algo, *proto;
        } coll;
        struct {
            const char *func;
            void *buff;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t n_channels;
        } p2p;
        struct nccl_proxy_op proxy_op;
        struct nccl_proxy_step proxy_step;
        struct nccl_kernel_ch_v4 kernel_ch;
        struct nccl_net_plugin net_plugin;
    };
};

/* Version 6 is 5 with three more kinds; those of 5 and 6 that are not read here (groups, calls of
 * the API, launches) are smaller than the rest. */
struct nccl_descr_v6 {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct {
            uint64_t seq;
            const char *func;
            const void *send_buff;
            void *recv_buff;
            size_t count;
            int root;
            const char *datatype;
            uint8_t n_channels, n_warps;
            const char *algo, *proto;
            void *parent_group;
        } coll;
        struct {
            const char *func;
            void *buff;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t n_channels;
            void *parent_group;
        } p2p;
        struct nccl_proxy_op proxy_op;
        struct nccl_proxy_step proxy_step;
        struct nccl_kernel_ch_v4 kernel_ch;
        struct nccl_net_plugin net_plugin;
        struct { /* not in 5 */
            uint64_t seq;
            const char *func;
            const void *send_buff;
            void *recv_buff;
            size_t count;
            int root;
            const char *datatype, *sync_strategy;
            bool intra_batch_sync;
            uint32_t batch_size, n_batches, ce_seq;
            void *stream;
        } ce_coll;
    };
};

struct nccl_descr_v7 { /* 6, and more at the end of each that has a call of the program */
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct {
            uint64_t seq;
            const char *func;
            const void *send_buff;
            void *recv_buff;
            size_t count;
            int root;
            const char *datatype;
            uint8_t n_channels, n_warps;
            const char *algo, *proto;
            void *parent_group;
            const char *kernel_variant; /* of symmetric memory; algo is its end */
            bool is_symmetric;
            uint64_t user_tag; /* of ncclCollConfig_t; 0: none */
        } coll;
        struct {
            const char *func;
            void *buff;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t n_channels;
            void *parent_group;
            uint64_t user_tag;
        } p2p;
        struct nccl_proxy_op proxy_op;
        struct nccl_proxy_step proxy_step;
        struct nccl_kernel_ch_v4 kernel_ch;
        struct nccl_net_plugin net_plugin;
        struct {
            uint64_t seq;
            const char *func;
            const void *send_buff;
            void *recv_buff;
            size_t count;
            int root;
            const char *datatype, *sync_strategy;
            bool intra_batch_sync;
            uint32_t batch_size, n_batches, ce_seq;
            void *stream;
            uint64_t user_tag;
        } ce_coll;
    };
};

/* ---- what recordEventState() is given; NULL where a state has nothing to say ---- */

union nccl_state_v1 { /* 1 to 3 */
    struct {
        size_t trans_size;
        int steps;
    } proxy_op;
    struct {
        int appended;
    } proxy_ctrl;
};

union nccl_state_v4 { /* from 4 on */
    struct {
        size_t trans_size;
    } proxy_step;
    struct {
        int appended;
    } proxy_ctrl;
    struct {
        void *data;
    } net_plugin;
    struct {
        uint64_t timer_ns;
    } kernel_ch;
};

/* ---- events of NCCL's own InfiniBand transport ---- */

#define NCCL_NET_KIND(id) ((uint32_t)(id)&0xffff0000u)
#define NCCL_NET_VERSION(id) ((uint32_t)(id)&0xffffu)
#define NCCL_NET_IB (1u << 16)
#define NCCL_NET_IB_QP 1u

struct nccl_net_ib_v1 {
    uint8_t type; /* NCCL_NET_IB_QP */
    struct {
        int device;
        uint64_t wr_id;
        int opcode, qp_num;
        size_t length;
    } qp;
};

/* ---- the symbols ---- */

/* Log function of NCCL, of which only the address is passed here. */
typedef void (*nccl_logger)(int level, unsigned long flags, const char *file, int line,
                            const char *format, ...);

/* ncclProfiler_vN, N 1 to 7: of one layout but for the functions' arguments.  Each gives 0. */
#define NCCL_PROFILER(version, descr, state, ...)                       \
    struct nccl_profiler_v##version {                                   \
        const char *name;                                               \
        int (*init)(__VA_ARGS__);                                       \
        int (*start_event)(void *context, void **ret_handle, descr *d); \
        int (*stop_event)(void *handle);                                \
        int (*record_event_state)(void *handle, int which, state *a);   \
        int (*finalize)(void *context);                                 \
    }

#define NCCL_INIT_V1 void **ret_context, int *ret_mask
#define NCCL_INIT_V4                                                                              \
    void **ret_context, int *ret_mask, const char *name, uint64_t hash, int n_nodes, int n_ranks, \
        int rank, nccl_logger log
#define NCCL_INIT_V5                                                                              \
    void **ret_context, uint64_t hash, int *ret_mask, const char *name, int n_nodes, int n_ranks, \
        int rank, nccl_logger log

NCCL_PROFILER(1, struct nccl_descr_v1, union nccl_state_v1, NCCL_INIT_V1);
NCCL_PROFILER(2, struct nccl_descr_v2, union nccl_state_v1, NCCL_INIT_V1);
NCCL_PROFILER(3, struct nccl_descr_v3, union nccl_state_v1, NCCL_INIT_V1);
NCCL_PROFILER(4, struct nccl_descr_v4, union nccl_state_v4, NCCL_INIT_V4);
NCCL_PROFILER(5, struct nccl_descr_v6, union nccl_state_v4, NCCL_INIT_V5);
NCCL_PROFILER(6, struct nccl_descr_v6, union nccl_state_v4, NCCL_INIT_V5);
NCCL_PROFILER(7, struct nccl_descr_v7, union nccl_state_v4, NCCL_INIT_V5);

#endif
