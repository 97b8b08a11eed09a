/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/callbacks/attach.c - finds the copy of this library that came first, and NCCL.
 *
 * Threads that make communicators, [control] and workers.  Nothing is loaded: libraries are asked
 * for with RTLD_NOLOAD.
 */
#include "callbacks/attach.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/proc/environ_now.h"
#include "lib/proc/maps.h"
#include "lib/proc/proc_file.h"
#include "probing_sdk.h"

#define NCCL_PROFILED 22300 /* ncclGetVersion() of the first release with profilers */

static struct recorder own;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void own_init(void)
{
    recorder_init(&own);
}

struct recorder *probing_nccl_recorder_v1(void)
{
    (void)pthread_once(&own_once, own_init);
    return &own;
}

static struct recorder *find_first(bool *ret_stranger)
{
    struct recorder *mine = probing_nccl_recorder_v1(), *first = NULL;
    struct recorder *(*door)(void) = NULL;
    void *library = dlopen(ATTACH_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library)
        *(void **)&door = dlsym(library, ATTACH_DOOR);
    if (door)
        first = door();
    *ret_stranger = library && (!first || first->layout != RECORDER_LAYOUT ||
                                first->size != sizeof(struct recorder));
    if (library)
        (void)dlclose(library); /* it is never unmapped: linked with -z nodelete */
    return first && !*ret_stranger ? first : mine;
}

struct recorder *attach_recorder(bool *ret_stranger)
{
    static struct recorder *_Atomic known; /* who came first does not change */
    static _Atomic bool stranger;
    struct recorder *r = atomic_load_explicit(&known, memory_order_acquire);
    if (!r) {
        bool strange;
        r = find_first(&strange);
        atomic_store_explicit(&stranger, strange, memory_order_relaxed);
        atomic_store_explicit(&known, r, memory_order_release);
    }
    if (ret_stranger)
        *ret_stranger = atomic_load_explicit(&stranger, memory_order_relaxed);
    return r;
}

/* ---- NCCL ---- */

const char *nccl_state_name(enum nccl_state state)
{
    switch (state) {
    case NCCL_ACTIVE:
        return "active";
    case NCCL_WAITING:
        return "waiting";
    case NCCL_LATE:
        return "late";
    case NCCL_REFUSED:
        return "refused";
    }
    return "unknown";
}

struct nccl_seen {
    bool loaded;        /* NCCL, or a library that has it inside */
    bool shared_memory; /* of a communicator */
    char profiler[160]; /* the file of another profiler; "" */
    char variable[160]; /* NCCL_PROFILER_PLUGIN as the program began with; "" */
    int version;        /* 22703: 2.27.3; 0: not known */
};

static void look_at_maps(struct nccl_seen *ret)
{
    struct proc_lines lines;
    struct proc_mapping m;
    char room[PROC_MAPS_ROOM];
    if (proc_maps_open(&lines, 0, room, sizeof(room)) < 0)
        return;
    while (proc_maps_next(&lines, &m)) {
        const char *base = strrchr(m.path, '/');
        base = base ? base + 1 : m.path;
        ret->loaded |= strncmp(base, "libnccl.so", strlen("libnccl.so")) == 0 ||
                       strncmp(base, "libtorch_cuda", strlen("libtorch_cuda")) == 0;
        ret->shared_memory |= strncmp(m.path, "/dev/shm/nccl-", strlen("/dev/shm/nccl-")) == 0;
        if (strncmp(base, "libnccl-profiler", strlen("libnccl-profiler")) == 0)
            (void)snprintf(ret->profiler, sizeof(ret->profiler), "%s", m.path);
    }
    proc_lines_close(&lines);
}

static void look_at_environment(struct nccl_seen *ret)
{
    struct buf all;
    buf_init(&all, (size_t)8 << 20); /* bytes: Linux gives a program 6 MiB at most */
    const char *value = proc_environ_own(&all) == 0 && all.size > 0
                            ? proc_environ_find(all.data, all.size - 1, "NCCL_PROFILER_PLUGIN")
                            : NULL;
    if (value)
        (void)snprintf(ret->variable, sizeof(ret->variable), "%s", value);
    buf_done(&all);
}

static void look_at_version(struct nccl_seen *ret)
{
    int (*version)(int *) = NULL;
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library)
        return;
    ret->loaded = true;
    *(void **)&version = dlsym(library, "ncclGetVersion");
    if (version)
        (void)version(&ret->version);
    (void)dlclose(library);
}

static bool is_ours(const char *path)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    return strcmp(base, "nccl.so") == 0 || strcmp(base, "probing_nccl.so") == 0;
}

static enum nccl_state judge_nccl(const struct nccl_seen *n, char *why, size_t size)
{
    if (n->version && n->version < NCCL_PROFILED) {
        (void)snprintf(why, size, "NCCL here is %d.%d.%d: profilers came with 2.23 (torch 2.6)",
                       n->version / 10000, n->version / 100 % 100, n->version % 100);
        return NCCL_REFUSED;
    }
    if (n->profiler[0]) {
        (void)snprintf(why, size, "NCCL has another profiler: %s", n->profiler);
        return NCCL_REFUSED;
    }
    if (n->variable[0] && !is_ours(n->variable)) {
        (void)snprintf(why, size,
                       "NCCL_PROFILER_PLUGIN=%s: NCCL is told to use another profiler, "
                       "or none",
                       n->variable);
        return NCCL_REFUSED;
    }
    if (n->shared_memory) {
        (void)snprintf(why, size,
                       "NCCL made communicators before this plugin came, and looks for its "
                       "profiler once: begin the program with it (probing launch --plugin nccl)");
        return NCCL_LATE;
    }
    (void)snprintf(why, size, "%s",
                   n->loaded
                       ? "no communicator has been made since this plugin came; one that was made "
                         "before has no events, as NCCL looks for its profiler once: begin the "
                         "program with the plugin (probing launch --plugin nccl)"
                       : "NCCL is not loaded yet");
    return NCCL_WAITING;
}

enum nccl_state nccl_look(struct recorder *r, char *ret_why, size_t size)
{
    struct nccl_seen seen = {.loaded = false};
    bool stranger = false;
    (void)attach_recorder(&stranger);
    (void)pthread_mutex_lock(&r->mutex);
    uint32_t n = r->n_comms;
    bool fixed = r->fixed_mask;
    (void)pthread_mutex_unlock(&r->mutex);
    uint64_t begun = atomic_load_explicit(&r->serials, memory_order_relaxed);
    if (begun) {
        (void)snprintf(ret_why, size, "%u communicator%s%s%s", n, n == 1 ? "" : "s",
                       n == 0 ? " (all have ended)" : "",
                       fixed ? "; this NCCL reads once what it should tell: those that began "
                               "before the plugin started tell nothing"
                             : "");
        return NCCL_ACTIVE;
    }
    if (stranger) {
        (void)snprintf(ret_why, size,
                       "a library of the name " ATTACH_LIBRARY " was there before, of another "
                       "project or another build of probing: NCCL calls that one");
        return NCCL_REFUSED;
    }
    look_at_version(&seen);
    look_at_maps(&seen);
    look_at_environment(&seen);
    return judge_nccl(&seen, ret_why, size);
}
