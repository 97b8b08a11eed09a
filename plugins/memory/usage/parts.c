/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/parts.c - a look as rows: a part, its bytes, and words about it.
 *
 * [worker].
 */
#include "parts.h"

#include <stdio.h>

#include "probing_sdk.h"

struct writer {
    const struct probing_host *host;
    struct probing_rows *out;
    int rc;
};

static void add_part(struct writer *w, const char *part, uint64_t bytes, const char *note)
{
    const union probing_cell cells[] = {probing_str(part),
                                        bytes == UINT64_MAX ? probing_null(PROBING_I64)
                                                            : probing_i64((int64_t)bytes),
                                        probing_str(note && *note ? note : NULL)};
    if (w->rc >= 0)
        w->rc = w->host->emit(w->out, cells, PROBING_LENGTH(cells));
}

static void add_heap(struct writer *w, const struct alloc_stats *heap)
{
    char note[256];
    (void)snprintf(note, sizeof(note), "%s, as it was asked: %.1f ms", heap->name,
                   (double)heap->took_ns / 1e6);
    add_part(w, "heap_used", heap->used, heap->why[0] ? heap->why : note);
    (void)snprintf(note, sizeof(note), "%s%s", heap->name,
                   heap->used == ALLOC_UNKNOWN && heap->held != ALLOC_UNKNOWN
                       ? ": its arenas; large blocks have mappings of their own"
                       : "");
    add_part(w, "heap_held", heap->held, note);
}

int parts_emit(const struct probing_host *host, struct probing_rows *out,
               const struct memory_look *l, const struct cgroup *g, const struct alloc_stats *heap)
{
    struct writer w = {.host = host, .out = out};
    const struct proc_status *p = &l->process;
    add_part(&w, "rss", p->rss_bytes, "resident memory");
    add_part(&w, "pss", l->pss,
             l->pss == LOOK_UNKNOWN
                 ? "not asked where the process is so large, or the kernel is older "
                   "than 4.14"
                 : "what is shared with others is counted by their number");
    add_part(&w, "peak_rss", p->peak_rss_bytes, "the most that was ever resident");
    add_part(&w, "anon", p->anon_bytes,
             "without a file behind it: heaps, stacks, private mappings");
    add_part(&w, "file", p->file_bytes, "files that are mapped: code, libraries, data");
    add_part(&w, "shmem", p->shmem_bytes, "shared memory");
    add_part(&w, "swap", p->swap_bytes, "swapped out");
    add_heap(&w, heap);
    add_part(&w, "probing", l->own,
             "probing's own heap and the files with its rows, in rss; its code (some MB) is not "
             "counted");
    add_part(&w, "limit", l->limit, l->limit_of);
    add_part(&w, "limit_used", l->used, l->limit_of);
    add_part(&w, "cgroup_limit", l->cgroup.limit,
             l->cgroup.limit_at[0] ? l->cgroup.limit_at
             : g->version          ? "no cgroup around the process has one"
                                   : "no memory cgroup is visible");
    add_part(&w, "cgroup_used", l->cgroup.used, "without pages of files");
    add_part(&w, "machine", l->machine_total, "memory of the machine");
    add_part(&w, "machine_available", l->machine_available, "of it without taking from others");
    return probing_scanned(w.rc);
}
