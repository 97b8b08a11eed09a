/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/nccl/nccl_driver.c - a program that uses a profiler plugin as NCCL does: found by
 * NCCL_PROFILER_PLUGIN, opened with NCCL's flags, the highest version first, init() and events with
 * NCCL's arguments.  What it plays comes from standard input or a file, a command a line; each is
 * answered by lines, the last of which is "done".  It is no NCCL: there are no GPUs and no data,
 * only the calls.
 *
 *     load [MAX]                     as NCCL of interface MAX (7) opens it: the version, or "none"
 *     real LIBNCCL OPEN GET V        by the loader of a real NCCL, whose functions stand at those
 *                                    offsets of its file, and through its own translation from
 *                                    its version V to an older one
 *     unload                         as when the last communicator has gone
 *     comm C HASH NAME NODES RANKS RANK
 *     end C
 *     coll H C SEQ FUNC COUNT TYPE CHANNELS [ALGO [TAG]]    ALGO: over symmetric memory
 *     p2p H C FUNC COUNT TYPE PEER CHANNELS
 *     ce H C SEQ FUNC COUNT TYPE
 *     proxy H C PARENT CHANNEL PEER STEPS SEND [PID]
 *     step H C PARENT NUMBER         kernel H C PARENT CHANNEL TIMER
 *     qp H C PARENT QP WR LENGTH
 *     state H STATE [BYTES]          timer H TIMER
 *     stop H                         handles: NULL or not
 *     mask                           what NCCL is asked for
 *     rest MS
 *     typical N                      on each communicator, a thread each: N collectives with all
 *                                    that belongs to them, one after another
 *     random SEED N                  N calls of any kind in any order, on three threads a
 *                                    communicator
 *     pairs N                        N times, what a begin and end of a step, a proxy operation and
 *                                    a collective cost
 *     fork                           a child of it plays, too: what it exited with
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugins/nccl/callbacks/profiler_abi.h"
#include "tests/nccl/other_versions.h"

#define COMMS 64
#define HANDLES 4096
#define WORDS 12

struct comm {
    void *context;
    uint64_t hash;
    int rank, n_ranks;
    bool open;
};

static pid_t own_pid;  /* NCCL asks once, too */
static int event_mask; /* as ncclProfilerEventMask: one word of the library */
static void *library, *symbol;
static int version;
static struct comm comms[COMMS];
static const char *symmetric_algo; /* of the next collective; NULL: not over symmetric memory */
static uint64_t user_tag;
static void *handles[HANDLES];

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- as NCCL loads it ---- */

static void *open_plugin(const char *name)
{
    char path[256];
    (void)snprintf(path, 255, "%s", name && name[0] ? name : "libnccl-profiler.so");
    void *found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!found && name && name[0] && !strchr(name, '/')) {
        (void)snprintf(path, 255, "libnccl-profiler-%s.so", name);
        found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return found;
}

/* NCCL remembers that it found none: the next communicator has none either. */
static void load(int newest)
{
    static bool failed;
    const char *name = getenv("NCCL_PROFILER_PLUGIN");
    if (symbol || failed)
        return;
    if (!name || strcasecmp(name, "none") != 0)
        library = open_plugin(name);
    for (version = newest; library && version >= 1 && !symbol; version -= symbol == NULL) {
        char text[32];
        (void)snprintf(text, sizeof(text), "ncclProfiler_v%d", version);
        symbol = dlsym(library, text);
    }
    failed = symbol == NULL;
}

static void load_real(char **w)
{
    struct link_map *map = NULL;
    void *nccl = dlopen(w[1], RTLD_NOW | RTLD_LOCAL);
    if (!nccl || dlinfo(nccl, RTLD_DI_LINKMAP, &map) != 0)
        return;
    void *(*open_library)(const char *) = NULL, *(*get_profiler)(void *) = NULL;
    *(uintptr_t *)&open_library = map->l_addr + strtoull(w[2], NULL, 16);
    *(uintptr_t *)&get_profiler = map->l_addr + strtoull(w[3], NULL, 16);
    library = open_library(getenv("NCCL_PROFILER_PLUGIN"));
    symbol = library ? get_profiler(library) : NULL;
    version = atoi(w[4]);
}

static void unload(void)
{
    if (library)
        (void)dlclose(library);
    library = symbol = NULL;
}

static void nccl_log(int level, unsigned long flags, const char *file, int line, const char *format,
                     ...)
{
    (void)level, (void)flags, (void)file, (void)line, (void)format;
}

#define CALL(member, ...)                                                      \
    (version >= 7   ? ((struct nccl_profiler_v7 *)symbol)->member(__VA_ARGS__) \
     : version == 6 ? ((struct nccl_profiler_v6 *)symbol)->member(__VA_ARGS__) \
     : version == 5 ? ((struct nccl_profiler_v5 *)symbol)->member(__VA_ARGS__) \
                    : ((struct nccl_profiler_v4 *)symbol)->member(__VA_ARGS__))

static int init(struct comm *c, const char *name, int nodes)
{
    switch (version) {
    case 7:
    case 6:
    case 5:
        return ((struct nccl_profiler_v6 *)symbol) /* 5 and 7 are of the same layout */
            ->init(&c->context, c->hash, &event_mask, name, nodes, c->n_ranks, c->rank, nccl_log);
    case 4:
        return ((struct nccl_profiler_v4 *)symbol)
            ->init(&c->context, &event_mask, name, c->hash, nodes, c->n_ranks, c->rank, nccl_log);
    default:
        return ((struct nccl_profiler_v1 *)symbol)->init(&c->context, &event_mask);
    }
}

/* ---- events, in version 6's words ---- */

static void start(struct comm *c, void **h, struct nccl_descr_v6 *d)
{
    *h = NULL;
    if (!symbol || !(event_mask & (int)d->type))
        return;
    if (version >= 7)
        start_v7(symbol, c->context, h, d, symmetric_algo, user_tag);
    else if (version == 6)
        (void)((struct nccl_profiler_v6 *)symbol)->start_event(c->context, h, d);
    else if (version == 5)
        (void)((struct nccl_profiler_v5 *)symbol)->start_event(c->context, h, d);
    else
        start_old(version, symbol, c->context, c->hash, h, d);
}

static void stop(void **h)
{
    if (symbol && *h)
        (void)CALL(stop_event, *h);
}

/* A group begins with every launch, whatever the mask.  Up to 2.27 (interface 4) NCCL tells of its
 * operations only if the profiler gave a handle for it. */
static void start_in_group(struct comm *c, void **h, struct nccl_descr_v6 *d)
{
    void *group = *h = NULL;
    struct nccl_descr_v6 g = {.type = NCCL_GROUP};
    if (symbol && event_mask && version > 4)
        (void)CALL(start_event, c->context, &group, (void *)&g);
    else if (symbol && event_mask)
        start_old(version, symbol, c->context, c->hash, &group, &g);
    if (group || version > 4)
        start(c, h, d);
    stop(&group);
}

static void state(void *h, int which, size_t bytes)
{
    if (!symbol || !h)
        return;
    if (version <= 3) {
        union nccl_state_v1 a = {.proxy_op = {.trans_size = bytes}};
        (void)((struct nccl_profiler_v1 *)symbol)->record_event_state(h, which, &a);
    } else {
        union nccl_state_v4 a = {.proxy_step = {.trans_size = bytes}};
        (void)CALL(record_event_state, h, which, &a);
    }
}

static void timer(void *h, uint64_t ns)
{
    union nccl_state_v4 a = {.kernel_ch = {.timer_ns = ns}};
    if (symbol && h && version >= 4)
        (void)CALL(record_event_state, h, NCCL_KERNEL_CH_STOP, &a);
}

static void coll(struct comm *c, void **h, uint64_t seq, const char *func, size_t count,
                 const char *type, int channels)
{
    struct nccl_descr_v6 d = {.type = NCCL_COLL,
                              .rank = c->rank,
                              .coll = {.seq = seq,
                                       .func = func,
                                       .count = count,
                                       .datatype = type,
                                       .n_channels = (uint8_t)channels,
                                       .algo = symmetric_algo ? symmetric_algo : "RING",
                                       .proto = symmetric_algo ? "" : "SIMPLE"}};
    start_in_group(c, h, &d);
}

static void p2p(struct comm *c, void **h, const char *func, size_t count, const char *type,
                int peer, int channels)
{
    struct nccl_descr_v6 d = {.type = NCCL_P2P,
                              .rank = c->rank,
                              .p2p = {.func = func,
                                      .count = count,
                                      .datatype = type,
                                      .peer = peer,
                                      .n_channels = (uint8_t)channels}};
    start_in_group(c, h, &d);
}

static void proxy(struct comm *c, void **h, void *parent, int channel, int peer, int steps,
                  int send, pid_t pid)
{
    struct nccl_descr_v6 d = {.type = NCCL_PROXY_OP,
                              .parent = parent,
                              .rank = c->rank,
                              .proxy_op = {.pid = pid,
                                           .channel = (uint8_t)channel,
                                           .peer = peer,
                                           .n_steps = steps,
                                           .chunk_size = 131072,
                                           .is_send = send}};
    start(c, h, &d);
}

static void step(struct comm *c, void **h, void *parent, int number)
{
    struct nccl_descr_v6 d = {
        .type = NCCL_PROXY_STEP, .parent = parent, .rank = c->rank, .proxy_step = {.step = number}};
    start(c, h, &d);
}

static void kernel(struct comm *c, void **h, void *parent, int channel, uint64_t ns)
{
    struct nccl_descr_v6 d = {.type = NCCL_KERNEL_CH,
                              .parent = parent,
                              .kernel_ch = {.channel = (uint8_t)channel, .timer_ns = ns}};
    start(c, h, &d);
}

static void qp(struct comm *c, void **h, void *parent, int number, uint64_t wr, size_t length)
{
    struct nccl_net_ib_v1 ib = {
        .type = NCCL_NET_IB_QP,
        .qp = {.device = 0, .wr_id = wr, .opcode = 1, .qp_num = number, .length = length}};
    struct nccl_descr_v6 d = {.type = NCCL_NET_PLUGIN,
                              .parent = parent,
                              .rank = c->rank,
                              .net_plugin = {.id = NCCL_NET_IB | 1, .data = &ib}};
    start(c, h, &d);
}

/* ---- what it plays by itself ---- */

struct player {
    struct comm *comm;
    uint64_t n, seed;
    pthread_t thread;
};

/* An AllReduce over two channels that spans machines: kernels, and sends and receives. */
static void play_one(struct comm *c, uint64_t seq)
{
    void *op, *kernels[2], *proxies[4], *steps[8];
    uint64_t gpu = now_ns();
    coll(c, &op, seq, "AllReduce", 1 << 20, "ncclFloat32", 2);
    stop(&op);
    for (int i = 0; i < 2; i++)
        kernel(c, &kernels[i], op, i, gpu + 1000 * (uint64_t)i);
    for (int i = 0; i < 4; i++)
        proxy(c, &proxies[i], op, i / 2, (c->rank + 1) % c->n_ranks, 8, i % 2, own_pid);
    for (int n = 0; n < 8; n++)
        for (int i = 0; i < 4; i++) {
            bool send = i % 2;
            step(c, &steps[n], proxies[i], n);
            state(steps[n], send ? NCCL_STEP_SEND_GPU_WAIT : NCCL_STEP_RECV_WAIT, 0);
            if (send && version >= 4)
                state(steps[n], NCCL_STEP_SEND_PEER_WAIT, 0);
            state(steps[n], send ? NCCL_STEP_SEND_WAIT : NCCL_STEP_RECV_FLUSH_WAIT, 65536);
            if (!send)
                state(steps[n], NCCL_STEP_RECV_GPU_WAIT, 65536);
            stop(&steps[n]);
        }
    for (int i = 0; i < 4; i++)
        stop(&proxies[i]);
    for (int i = 0; i < 2; i++) {
        timer(kernels[i], gpu + 500000 + 1000 * (uint64_t)i);
        stop(&kernels[i]);
    }
}

static void *play_typical(void *arg)
{
    struct player *p = arg;
    for (uint64_t i = 0; i < p->n; i++)
        play_one(p->comm, i);
    return NULL;
}

static uint64_t random_of(uint64_t *seed) /* xorshift64* */
{
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    return *seed * UINT64_C(2685821657736338717);
}

/* Handles are used again, ended twice or never, given as parents when they have ended, and some are
 * no handles. */
static void *play_random(void *arg)
{
    struct player *p = arg;
    struct comm *c = p->comm;
    void *mine[64] = {NULL};
    uint64_t seed = p->seed | 1;
    for (uint64_t i = 0; i < p->n; i++) {
        uint64_t r = random_of(&seed);
        void **h = &mine[r % 64], *parent = mine[(r >> 8) % 64];
        if ((r >> 16) % 97 == 0)
            parent = (void *)(uintptr_t)random_of(&seed);
        switch ((r >> 24) % 12) {
        case 0:
            coll(c, h, i, funcs[r % 5], r % 1000, types[r % 9], (int)(r % 4));
            break;
        case 1:
            p2p(c, h, "Send", r % 1000, "ncclInt8", (int)(r % 8), (int)(r % 3));
            break;
        case 2:
        case 3:
            proxy(c, h, parent, (int)(r % 8), (int)(r % 8), 8, (int)(r & 1),
                  (r >> 40) % 5 ? own_pid : 1);
            break;
        case 4:
        case 5:
            step(c, h, parent, (int)(r >> 50));
            break;
        case 6:
            kernel(c, h, parent, (int)(r % 64), r >> 20);
            break;
        case 7:
            qp(c, h, parent, (int)(r % 16), r, r % 4096);
            break;
        case 8:
        case 9:
            state(*h, (int)((r >> 32) % 35), r % 4096);
            break;
        default:
            stop(h);
            if ((r >> 60) % 2)
                *h = NULL;
        }
    }
    for (int i = 0; i < 64; i++)
        stop(&mine[i]);
    return NULL;
}

static void play(void *(*how)(void *), int threads, uint64_t n, uint64_t seed)
{
    static struct player players[COMMS * 3];
    int begun = 0;
    for (int i = 0; i < COMMS; i++)
        for (int k = 0; comms[i].open && k < threads; k++) {
            players[begun] = (struct player){&comms[i], n, seed * 1000 + (uint64_t)begun, 0};
            if (pthread_create(&players[begun].thread, NULL, how, &players[begun]) == 0)
                begun++;
        }
    for (int i = 0; i < begun; i++)
        (void)pthread_join(players[i].thread, NULL);
}

/* ---- what a pair costs ---- */

#define STEPS_TIMED 10000
#define PROXIES_TIMED 4000 /* fewer than there is room for */
#define COLLS_TIMED 400

static double per_pair(uint64_t begin, uint64_t n)
{
    return (double)(now_ns() - begin) / (double)n;
}

/* ns of a step, a proxy operation, a collective with one kernel; without a profiler that is NCCL's
 * own look at its mask. */
static void measure_once(struct comm *c, double ret[3])
{
    void *op, *px, *st, *k;
    coll(c, &op, 0, "AllReduce", 1, "ncclFloat32", 1);
    proxy(c, &px, op, 0, 1, 8, 1, own_pid);
    uint64_t begin = now_ns();
    for (int i = 0; i < STEPS_TIMED; i++) {
        step(c, &st, px, i);
        stop(&st);
    }
    ret[0] = per_pair(begin, STEPS_TIMED);
    stop(&px);
    begin = now_ns();
    for (int i = 0; i < PROXIES_TIMED; i++) {
        proxy(c, &px, op, 0, 1, 8, 1, own_pid);
        stop(&px);
    }
    ret[1] = per_pair(begin, PROXIES_TIMED);
    stop(&op);
    kernel(c, &k, op, 0, 1);
    stop(&k);
    begin = now_ns();
    for (int i = 0; i < COLLS_TIMED; i++) {
        coll(c, &op, (uint64_t)i, "AllReduce", 1, "ncclFloat32", 1);
        stop(&op);
        kernel(c, &k, op, 0, 1);
        stop(&k);
    }
    ret[2] = per_pair(begin, COLLS_TIMED);
}

static void measure(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        double ns[3];
        measure_once(&comms[0], ns);
        printf("pair step %.1f proxy %.1f coll %.1f\n", ns[0], ns[1], ns[2]);
        (void)usleep(400000); /* so that the rows of this round are written */
    }
}

static int in_child(void)
{
    pid_t pid = fork();
    int status = -1;
    if (pid == 0) {
        own_pid = getpid();
        play(play_typical, 1, 10, 0);
        _exit(event_mask);
    }
    (void)waitpid(pid, &status, 0);
    return status;
}

/* ---- commands ---- */

static struct comm *comm_of(const char *word)
{
    return &comms[(unsigned)atoi(word) % COMMS];
}

static void **handle_of(const char *word)
{
    return &handles[(unsigned)atoi(word) % HANDLES];
}

static uint64_t number(const char *word)
{
    return word ? strtoull(word, NULL, 0) : 0;
}

static void make_comm(char **w)
{
    struct comm *c = comm_of(w[1]);
    *c = (struct comm){.hash = number(w[2]),
                       .n_ranks = (int)number(w[5]),
                       .rank = (int)number(w[6]),
                       .open = true};
    load(7);
    if (!symbol)
        return;
    char name[64]; /* gone when the call is over, as a caller's config may be */
    (void)snprintf(name, sizeof(name), "%s", w[3]);
    int rc = init(c, strcmp(name, "-") == 0 ? NULL : name, (int)number(w[4]));
    memset(name, '#', sizeof(name) - 1);
    printf("init %d %s\n", rc, c->context ? "context" : "null");
}

static void end_comm(struct comm *c)
{
    if (symbol && c->open && c->context)
        (void)CALL(finalize, c->context);
    c->open = false;
}

static void begin_event(char **w)
{
    void **h = handle_of(w[1]);
    struct comm *c = comm_of(w[2]);
    void *parent = w[3] ? *handle_of(w[3]) : NULL;
    symmetric_algo = strcmp(w[0], "coll") == 0 ? w[8] : NULL;
    user_tag = symmetric_algo ? number(w[9]) : 0;
    if (strcmp(w[0], "coll") == 0)
        coll(c, h, number(w[3]), w[4], number(w[5]), w[6], (int)number(w[7]));
    else if (strcmp(w[0], "p2p") == 0)
        p2p(c, h, w[3], number(w[4]), w[5], (int)number(w[6]), (int)number(w[7]));
    else if (strcmp(w[0], "proxy") == 0)
        proxy(c, h, parent, (int)number(w[4]), (int)number(w[5]), (int)number(w[6]),
              (int)number(w[7]), w[8] ? (pid_t)number(w[8]) : own_pid);
    else if (strcmp(w[0], "step") == 0)
        step(c, h, parent, (int)number(w[4]));
    else if (strcmp(w[0], "kernel") == 0)
        kernel(c, h, parent, (int)number(w[4]), number(w[5]));
    else if (strcmp(w[0], "qp") == 0)
        qp(c, h, parent, (int)number(w[4]), number(w[5]), number(w[6]));
    else {
        struct nccl_descr_v6 d = {
            .type = NCCL_CE_COLL,
            .rank = c->rank,
            .ce_coll = {
                .seq = number(w[3]), .func = w[4], .count = number(w[5]), .datatype = w[6]}};
        start(c, h, &d);
    }
    printf("%s\n", *h ? "handle" : "null");
}

static void obey(char **w)
{
    if (strcmp(w[0], "load") == 0) {
        load(w[1] ? atoi(w[1]) : 7);
        printf(symbol ? "v%d\n" : "none\n", version);
    } else if (strcmp(w[0], "real") == 0) {
        load_real(w);
        printf(symbol ? "real v%d\n" : "none\n", version);
    } else if (strcmp(w[0], "unload") == 0) {
        unload();
    } else if (strcmp(w[0], "comm") == 0) {
        make_comm(w);
    } else if (strcmp(w[0], "end") == 0) {
        end_comm(comm_of(w[1]));
    } else if (strcmp(w[0], "state") == 0) {
        state(*handle_of(w[1]), (int)number(w[2]), number(w[3]));
    } else if (strcmp(w[0], "timer") == 0) {
        timer(*handle_of(w[1]), number(w[2]));
    } else if (strcmp(w[0], "stop") == 0) {
        stop(handle_of(w[1]));
    } else if (strcmp(w[0], "mask") == 0) {
        printf("%d\n", event_mask);
    } else if (strcmp(w[0], "rest") == 0) {
        (void)usleep((useconds_t)number(w[1]) * 1000);
    } else if (strcmp(w[0], "typical") == 0) {
        play(play_typical, 1, number(w[1]), 0);
    } else if (strcmp(w[0], "random") == 0) {
        play(play_random, 3, number(w[2]), number(w[1]));
    } else if (strcmp(w[0], "pairs") == 0) {
        measure(number(w[1]));
    } else if (strcmp(w[0], "fork") == 0) {
        printf("status %d\n", in_child());
    } else {
        begin_event(w);
    }
}

int main(int argc, char **argv)
{
    char line[512];
    own_pid = getpid();
    printf("ready\n");
    (void)fflush(stdout);
    FILE *in = argc > 1 ? fopen(argv[1], "r") : stdin;
    while (in && fgets(line, sizeof(line), in)) {
        char *words[WORDS] = {NULL}, *rest = NULL;
        int n = 0;
        for (char *w = strtok_r(line, " \n", &rest); w && n < WORDS - 1;
             w = strtok_r(NULL, " \n", &rest))
            words[n++] = w;
        if (n == 0)
            continue;
        obey(words);
        printf("done\n");
        (void)fflush(stdout);
    }
    return 0;
}
