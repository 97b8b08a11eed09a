/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/internal.h - what the parts of the plugin share: each part has a struct that it
 * keeps, makes its table, and looks when the sampler calls it.
 *
 * sampler.c's tick runs on one worker at a time, and only it touches the structs after start();
 * computed tables (scan functions) keep nothing, so any workers may run them meanwhile.
 */
#ifndef SYSTEM_INTERNAL_H
#define SYSTEM_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/proc/cgroup.h"
#include "probing_sdk.h"

#define UNKNOWN UINT64_MAX /* a number that is not known */

/* ---- when to look ---- */

/* A look that costs much is taken less often, so that it never costs more than a share of a core.
 */
struct pace {
    uint64_t next_ns; /* not before this */
    uint64_t cost_ns; /* CPU time of the last look */
};

/* The share of one core that a look may take in the long run: 1 / this. */
#define PACE_THREADS 2000u /* 0.05 % */
#define PACE_LIST 10000u   /* 0.01 %: only where threads, or connections, come and go */
#define PACE_RARE 100000u  /* 0.001 % */
#define PACE_SMALL 50000u  /* 0.002 % */

bool pace_is_due(const struct pace *p, uint64_t now);
/* A look has begun at now and taken cost_ns; the next comes after `ticks` times the interval, or
 * later.  Whoever wants to look more often than once a second wants it to cost more. */
void pace_took(struct pace *p, uint64_t now, uint64_t cost_ns, uint32_t ticks, uint64_t interval_ns,
               uint32_t share);

/* CPU time of the calling thread. */
static inline uint64_t own_cpu_ns(void)
{
    return probing_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* ---- cells ---- */

static inline union probing_cell count_cell(uint64_t value)
{
    return probing_i64(value <= INT64_MAX ? (int64_t)value : PROBING_NULL_I64);
}

/* after - before; NULL where one is not known, or the counter has begun again. */
union probing_cell delta_cell(uint64_t before, uint64_t after);
/* The same by the second. */
union probing_cell rate_cell(uint64_t before, uint64_t after, uint64_t wall_ns);
/* Percent of one core; NULL with UNKNOWN. */
union probing_cell percent_cell(uint64_t cpu_ns, uint64_t wall_ns);
/* A text that the kernel or somebody else made: what is no UTF-8 or a control character is '?'. "":
 * NULL. */
uint64_t text_id(const struct probing_host *h, const char *text);
/* The same in place. */
void text_clean(char *text);

/* ---- the threads ---- */

struct thread {
    int32_t tid;
    char state;           /* at the last look; 0: not known */
    bool has_row;         /* in cpu.utilization */
    bool dead;            /* its clock is gone */
    bool reused;          /* its clock went back: another one has its number */
    uint8_t quiet;        /* times in a row that its clock stood */
    uint32_t turn;        /* of its next close look: see struct cpu_usage */
    uint64_t read_ns;     /* the tick that read its clock */
    uint64_t start_ticks; /* proc(5): tells threads of one number apart; UNKNOWN: not looked */
    uint64_t comm, wchan; /* ids of texts */
    uint64_t cpu_ns;      /* its clock, then */
    /* At its last row: */
    uint64_t row_ns, row_cpu_ns;
    uint64_t row_user, row_both; /* in user mode, and at all: as the kernel's ticks have it, ns */
    uint64_t voluntary, involuntary, majflt, runq_wait_ns;
};

struct thread_list {
    struct thread *all; /* by tid, ascending */
    uint32_t n, room;
    bool clocks;        /* threads' clocks can be asked; else numbers come from /proc */
    bool whole;         /* the list was read to its end */
    bool gone;          /* one of them has ended since */
    uint64_t links;     /* of the folder when it was read */
    uint64_t listed_ns; /* when */
    struct pace pace;
};

#define THREADS_MAX 65536 /* more are not looked at */

void threads_init(struct thread_list *l);
void threads_done(struct thread_list *l);
/* How many threads the process has; UNKNOWN without /proc. */
uint64_t threads_count(void);
/* Read the list again where threads have begun or ended; links: threads_count().  ended() is called
 * for each that is gone. */
void threads_refresh(struct thread_list *l, uint64_t links, uint64_t now, uint64_t interval_ns,
                     void (*ended)(void *arg, const struct thread *t), void *arg);
/* CPU time that a thread has used; false: it is gone. */
bool thread_cpu(const struct thread_list *l, int32_t tid, uint64_t *ret_ns);
/* CPU time in user mode and altogether, as the kernel's ticks count it; false: not known. */
bool thread_split(const struct thread_list *l, int32_t tid, uint64_t *ret_user, uint64_t *ret_both);

/* ---- the parts ---- */

struct cpu_usage {
    const struct probing_host *host;
    struct probing_table *table;
    struct thread_list threads;
    uint32_t cursor; /* the idle thread whose clock is read next */
    uint32_t turn;   /* threads have close looks in turn: those whose turn is later wait */
    bool first;      /* the next tick is the first */
    uint64_t spent_ns, spent_in_ns; /* CPU time of the process in the last row, of that time */
    uint64_t explained_ns; /* CPU time of the threads that were seen to run since that row */
    struct pace pace, scan_pace;
    uint64_t platform, process_scope, thread_scope, comm; /* ids of texts */
    struct pace pss_pace, comm_pace;
    uint64_t before_ns; /* of the process at its last row: */
    uint64_t user_ns, sys_ns, voluntary, involuntary, majflt;
    uint64_t runq_wait_ns;            /* of threads that were looked at closely, since that row */
    uint64_t stopped_ns;              /* since that row, by how many looks were late */
    uint64_t due_ns, due_interval_ns; /* when the last look was due; 0: not known */
};

int cpu_init(struct cpu_usage *c, const struct probing_host *h);
void cpu_start(struct cpu_usage *c, uint64_t now);
void cpu_look(struct cpu_usage *c, uint64_t now, uint64_t interval_ns);
void cpu_done(struct cpu_usage *c);

enum {
    IO_RCHAR,
    IO_WCHAR,
    IO_SYSCR,
    IO_SYSCW,
    IO_READ_BYTES,
    IO_WRITE_BYTES,
    IO_CANCELLED,
    IO_COUNTERS
};

struct io_usage {
    const struct probing_host *host;
    struct probing_table *table;
    struct pace pace;
    _Atomic int error;            /* of the last look: 0 or -errno */
    uint64_t row_ns;              /* the last row's time; 0: none */
    uint64_t before[IO_COUNTERS]; /* at that time */
};

int io_init(struct io_usage *io, const struct probing_host *h);
void io_look(struct io_usage *io, uint64_t now, uint64_t interval_ns);
/* Read /proc/PID/io; UNKNOWN for what it does not have.  0 or -errno. */
int io_read(const char *path, uint64_t ret[IO_COUNTERS]);

enum { /* as they stand in /proc/net/dev */
       NET_RX_BYTES = 0,
       NET_RX_PACKETS = 1,
       NET_RX_ERRORS = 2,
       NET_RX_DROPPED = 3,
       NET_TX_BYTES = 8,
       NET_TX_PACKETS = 9,
       NET_TX_ERRORS = 10,
       NET_TX_DROPPED = 11,
       NET_COUNTERS = 12
};
#define NET_INTERFACES_MAX 256 /* more are not looked at */

struct net_interface {
    char name[32];
    uint64_t row_ns; /* of its last row, or when it was found */
    uint64_t counters[NET_COUNTERS];
};

struct net_usage {
    const struct probing_host *host;
    struct probing_table *table;
    struct net_interface *all;
    uint32_t n;
    struct pace pace;
    _Atomic int error; /* of the last look: 0 or -errno */
};

int net_init(struct net_usage *n, const struct probing_host *h);
void net_look(struct net_usage *n, uint64_t now, uint64_t interval_ns);
void net_done(struct net_usage *n);
/* A line of /proc/net/dev, which it changes; false: it is the head, or none. */
bool net_parse(char *line, struct net_interface *ret);

enum {
    RDMA_RCV_DATA,
    RDMA_XMIT_DATA,
    RDMA_RCV_PACKETS,
    RDMA_XMIT_PACKETS,
    RDMA_LINK_DOWNED = 9, /* those between and after have no name here */
    RDMA_CNP_SENT = 12,
    RDMA_ECN_MARKED = 13,
    RDMA_COUNTERS = 24
};
#define RDMA_PORTS_MAX 64 /* more are not looked at */

struct rdma_port {
    char device[64];
    uint32_t port;
    uint64_t row_ns; /* of its last row */
    uint64_t counters[RDMA_COUNTERS];
    uint64_t pause_rx, pause_tx;
};

struct rdma_usage {
    const struct probing_host *host;
    struct probing_table *table;
    const char *root; /* /sys/class/infiniband */
    struct rdma_port *all;
    uint32_t n;
    struct pace pace;
};

int rdma_init(struct rdma_usage *r, const struct probing_host *h);
void rdma_look(struct rdma_usage *r, uint64_t now, uint64_t interval_ns);
void rdma_done(struct rdma_usage *r);
/* Does a counter of this name count frames that ask for a pause? */
bool rdma_is_pause(const char *name, bool *ret_rx);

struct cgroup_folder {
    bool known;
    struct proc_cgroup_folder at;
};

struct cgroup_usage {
    const struct probing_host *host;
    struct probing_table *table;
    struct cgroup_folder unified, cpu, cpuacct, memory, pids; /* version 2; 1 by controller */
    struct pace pace, mounts_pace;
    uint64_t names; /* of its groups at the last look: a hash */
    _Atomic bool known;
    uint64_t row_ns; /* of the last row; what was then: */
    uint64_t cpu_ns, periods, throttled, throttled_ns;
};

int cgroup_init(struct cgroup_usage *g, const struct probing_host *h);
void cgroup_look(struct cgroup_usage *g, uint64_t now, uint64_t interval_ns);
/* The folder of the process's group of version 2; "": there is none, or it is the root, where the
 * whole machine is. */
const char *cgroup_folder_of(const struct cgroup_usage *g);

enum { /* since the machine started, or its network namespace began */
       HOST_USER_TICKS,
       HOST_SYSTEM_TICKS, /* interrupts included */
       HOST_IDLE_TICKS,
       HOST_IOWAIT_TICKS,
       HOST_STEAL_TICKS,
       HOST_MAJFLT,
       HOST_SWAP_IN, /* pages */
       HOST_SWAP_OUT,
       HOST_OOM_KILLS,
       HOST_TCP_SENT, /* segments */
       HOST_TCP_RETRANS,
       HOST_COUNTERS
};

struct host_look {
    uint64_t counters[HOST_COUNTERS]; /* UNKNOWN: the kernel does not say */
    uint64_t cpus, running, blocked;
    double load1; /* below 0: not known */
};

struct host_usage {
    const struct probing_host *host;
    struct probing_table *table;
    const char *root; /* /proc */
    struct pace pace;
    uint64_t row_ns; /* of the last row; what was then: */
    uint64_t before[HOST_COUNTERS];
};

int host_init(struct host_usage *u, const struct probing_host *h);
void host_look(struct host_usage *u, uint64_t now, uint64_t interval_ns);
/* Read a folder like /proc. */
void host_read(const char *root, struct host_look *ret);

#define PRESSURE_RESOURCES 4

struct pressure_line {
    bool full;
    double averages[3]; /* percent: 10, 60, 300 s */
    uint64_t total_ns;
};

struct pressure {
    const struct probing_host *host;
    struct probing_table *table;
    struct pace pace;
    _Atomic int error; /* of /proc/pressure: 0 or -errno */
    uint64_t row_ns;
    uint64_t total_ns[2][PRESSURE_RESOURCES][2]; /* cgroup, resource, full */
    char cgroup[PROC_CGROUP_BYTES];              /* that these are of; "": none */
};

int pressure_init(struct pressure *p, const struct probing_host *h);
/* cgroup: the folder of version 2, or "". */
void pressure_look(struct pressure *p, const char *cgroup, uint64_t now, uint64_t interval_ns);
bool pressure_parse(const char *line, struct pressure_line *ret);

#endif
