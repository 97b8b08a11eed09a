/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/diff/diff_facts.c - facts of ranks, and which of them differ.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/diff/diff.h"
#include "core/base/err.h"
#include "core/base/redact.h"
#include "core/base/text.h"
#include "sdk/lib/array.h"
#include "sdk/lib/hash.h"

#define FACTS_BYTES ((size_t)2 << 30)
#define FACTS_MAX (1u << 26)
#define OWN_LEAST 3 /* of two ranks it says nothing that both have their own */

void diff_init(struct diff_found *f)
{
    *f = (struct diff_found){.job = RANK_UNKNOWN};
    arena_init(&f->mem, FACTS_BYTES);
}

void diff_done(struct diff_found *f)
{
    arena_done(&f->mem);
    free(f->facts);
    ranks_done(&f->ranks);
    ranks_done(&f->hosts);
    *f = (struct diff_found){.n_facts = 0};
}

static const char *copy_value(struct diff_found *f, const char *text, size_t n)
{
    char long_one[64];
    char *ret;

    (void)snprintf(long_one, sizeof(long_one), "... (%zu bytes, hash %016llx)", n,
                   (unsigned long long)hash_bytes(HASH_FNV, text, n));
    if (n > DIFF_VALUE_BYTES) {
        ret = arena_zalloc(&f->mem, DIFF_VALUE_BYTES + sizeof(long_one), 1);
        if (ret != NULL) {
            memcpy(ret, text, DIFF_VALUE_BYTES);
            memcpy(ret + DIFF_VALUE_BYTES, long_one, sizeof(long_one));
        }
    } else {
        ret = arena_text(&f->mem, text, n);
    }
    return ret;
}

int diff_add(struct diff_found *f, uint32_t rank, const char *kind, const char *name,
             const char *value, size_t n)
{
    struct fact *list = array_grow(f->facts, f->n_facts, &f->room, sizeof(*list), FACTS_MAX);
    if (list == NULL)
        return err_set(-ENOMEM, "no memory for %u facts", f->n_facts + 1);
    f->facts = list;
    struct fact *one = &f->facts[f->n_facts];
    *one = (struct fact){copy_value(f, kind, strlen(kind)), copy_value(f, name, strlen(name)),
                         copy_value(f, value, n), rank};
    if (one->kind == NULL || one->name == NULL || one->value == NULL)
        return err_set(-ENOMEM, "no memory for what is known of the ranks");
    f->n_facts++;
    return 0;
}

/* In units of which the error is no more than one. */
int diff_add_clock(struct diff_found *f, uint32_t rank, const char *kind, int64_t offset_ns,
                   int64_t error_ns, const char *whose)
{
    char text[200], by[TEXT_AMOUNT_BYTES], unit[TEXT_AMOUNT_BYTES];
    bool clock = offset_ns >= -MEMBER_CLOCK_MOST && offset_ns <= MEMBER_CLOCK_MOST;
    int64_t off = !clock ? 0 : offset_ns < 0 ? -offset_ns : offset_ns;
    int64_t step = DIFF_CLOCK_NS;

    while (step < error_ns && step < INT64_MAX / 20)
        step *= 10;
    text_ns((off / step + (off % step >= step / 2)) * step, by);
    text_ns(step, unit);
    if (!clock)
        (void)snprintf(text, sizeof(text), "no clock: more than 70 years from %s", whose);
    else if (off > error_ns && off >= DIFF_CLOCK_NS)
        (void)snprintf(text, sizeof(text), "%s %s %s (to %s)", by,
                       offset_ns < 0 ? "behind" : "ahead of", whose, unit);
    else
        (void)snprintf(text, sizeof(text), "as %s", whose);
    return diff_add(f, rank, kind, DIFF_CLOCK, text, strlen(text));
}

/* ---- groups ---- */

/* A process's place in its job: no two should be the same, or nobody expects it. */
static bool says_place(const char *kind, const char *name)
{
    static const char *const names[] = {"RANK",
                                        "LOCAL_RANK",
                                        "GROUP_RANK",
                                        "ROLE_RANK",
                                        "NODE_RANK",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_NODE_RANK",
                                        "OMPI_FIRST_RANKS",
                                        "PMIX_RANK",
                                        "PMI_RANK",
                                        "PMI_FD",
                                        "MPI_LOCALRANKID",
                                        "SLURM_PROCID",
                                        "SLURM_LOCALID",
                                        "SLURM_NODEID",
                                        "SLURM_TASK_PID",
                                        "SLURM_GTIDS",
                                        "SLURM_TOPOLOGY_ADDR",
                                        "SLURMD_NODENAME",
                                        "HOSTNAME",
                                        "JOB_COMPLETION_INDEX",
                                        "POD_NAME",
                                        "POD_IP",
                                        "TORCHELASTIC_ERROR_FILE",
                                        "SSH_CLIENT",
                                        "PROBING_LAUNCH",
                                        "SSH_CONNECTION",
                                        "_"};

    if (strcmp(kind, "environment") != 0)
        return false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static int compare_facts(const void *one, const void *two)
{
    const struct fact *a = one, *b = two;
    int order = strcmp(a->kind, b->kind);

    order = order != 0 ? order : strcmp(a->name, b->name);
    order = order != 0 ? order : strcmp(a->value, b->value);
    return order != 0 ? order : a->rank < b->rank ? -1 : a->rank > b->rank;
}

static bool same_name(const struct fact *a, const struct fact *b)
{
    return strcmp(a->kind, b->kind) == 0 && strcmp(a->name, b->name) == 0;
}

static bool same_value(const struct fact *a, const struct fact *b)
{
    return strcmp(a->value, b->value) == 0;
}

/* Facts are in order: the first of a kind is found by halving. */
static size_t first_of_kind(const struct diff_found *f, const char *kind)
{
    size_t low = 0, high = f->n_facts;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(f->facts[middle].kind, kind) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t known_of_kind(const struct diff_found *f, const char *kind, bool *room)
{
    uint32_t n = 0;

    memset(room, 0, f->ranks.n);
    for (size_t i = first_of_kind(f, kind); i < f->n_facts && strcmp(f->facts[i].kind, kind) == 0;
         i++) {
        n += !room[f->facts[i].rank];
        room[f->facts[i].rank] = true;
    }
    return n;
}

static void judge_group(const struct diff_found *f, uint32_t known, struct fact_group *g)
{
    const struct fact *first = &f->facts[g->first];
    uint32_t ranks = 1;

    g->n_values = 1;
    for (size_t i = g->first + 1; i < g->first + g->n; i++) {
        g->n_values += !same_value(&f->facts[i], &f->facts[i - 1]);
        ranks +=
            !same_value(&f->facts[i], &f->facts[i - 1]) || f->facts[i].rank != f->facts[i - 1].rank;
    }
    g->some_lack_it = ranks < known;
    bool each_another = g->n_values == known && !g->some_lack_it && known >= OWN_LEAST &&
                        strcmp(first->name, DIFF_CLOCK) != 0;
    if (each_another || says_place(first->kind, first->name))
        g->is = FACT_OWN;
    else if (g->n_values == 1 && !g->some_lack_it)
        g->is = strcmp(first->value, SECRET_SHOWN) == 0 ? FACT_HIDDEN : FACT_SAME;
    else
        g->is = FACT_DIFFERS;
}

int diff_groups(struct diff_found *f, int (*fn)(void *arg, const struct fact_group *g), void *arg)
{
    bool *room = calloc(f->ranks.n + 1, sizeof(*room));
    const char *kind = NULL;
    uint32_t known = 0;
    int rc = room == NULL ? err_set(-ENOMEM, "no memory for %u ranks", f->ranks.n) : 0;

    if (rc == 0 && f->n_facts > 0)
        qsort(f->facts, f->n_facts, sizeof(*f->facts), compare_facts);
    for (size_t at = 0; rc == 0 && at < f->n_facts;) {
        struct fact_group g = {.first = at};
        while (at < f->n_facts && same_name(&f->facts[at], &f->facts[g.first]))
            at++;
        g.n = at - g.first;
        if (kind == NULL || strcmp(kind, f->facts[g.first].kind) != 0) {
            kind = f->facts[g.first].kind;
            known = known_of_kind(f, kind, room);
        }
        judge_group(f, known, &g);
        g.known = room;
        rc = fn(arg, &g);
    }
    free(room);
    return rc;
}

static int by_number(const void *one, const void *two)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)two;

    return a < b ? -1 : a > b;
}

static size_t in_order(int64_t *list, size_t n)
{
    size_t kept = 0;

    if (n > 1)
        qsort(list, n, sizeof(*list), by_number);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || list[i] != list[kept - 1])
            list[kept++] = list[i];
    return kept;
}

size_t diff_ranks_of(const struct diff_found *f, const struct fact_group *g, size_t at,
                     int64_t *ret, size_t *ret_next)
{
    size_t end = g->first + g->n, n = 0;

    if (at != SIZE_MAX) {
        size_t i = at;
        for (; i < end && same_value(&f->facts[i], &f->facts[at]); i++)
            if (i == at || f->facts[i].rank != f->facts[i - 1].rank)
                ret[n++] = f->ranks.list[f->facts[i].rank].rank;
        *ret_next = i;
        return in_order(ret, n);
    }
    *ret_next = end;
    for (uint32_t r = 0; r < f->ranks.n; r++) {
        bool has = !g->known[r];
        for (size_t i = g->first; i < end && !has; i++)
            has = f->facts[i].rank == r;
        if (!has)
            ret[n++] = f->ranks.list[r].rank;
    }
    return in_order(ret, n);
}
