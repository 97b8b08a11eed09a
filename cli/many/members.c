/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/members.c - see members.h: from the text behind -t to a list.
 *
 * One thread.  It only looks, as cli/target does.
 */
#include "cli/many/members.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <probing/client.h>

#include "cli/job/rank_ranges.h"
#include "cli/link/link.h"
#include "cli/many/find.h"
#include "cli/target/apart.h"
#include "cli/target/core_lookup.h"
#include "cli/target/remote_target.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/interrupt.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/hash.h"

#define NAME_BYTES 4096 /* of one process: PATH_MAX */
#define LIST_MAX 32     /* names or ranges of ranks in a line: more are counted */
static const char JOB[] = "job:";

/* An item of a list ends at a comma that is in no brackets, and has no '\' before it. */
static size_t item_size(const char *text)
{
    size_t n = 0;

    for (bool inside = false; text[n] != '\0' && (inside || text[n] != ','); n++)
        if (text[n] == '\\' && job_name_is_marked(text[n + 1]))
            n++;
        else
            inside = text[n] == '[' || (inside && text[n] != ']');
    return n;
}

/* As a list has it, so as it is. */
static void unmark_name(char *name)
{
    char *to = name;

    for (const char *at = name; *at != '\0'; *to++ = *at++)
        at += *at == '\\' && job_name_is_marked(at[1]);
    *to = '\0';
}

/* "node[1-8]", but not "[::1]:9922". */
static bool has_range(const char *text)
{
    const char *bracket = strchr(text, '[');

    return bracket != NULL && bracket != text && strchr(text, '/') == NULL;
}

bool members_are_named(const char *text)
{
    struct remote_name remote;

    if ((text[0] == '/' || text[0] == '.') && access(text, F_OK) == 0)
        return false;
    if (remote_name_read(text, &remote) && text[item_size(text)] != ',')
        return !remote_name_is_one(&remote) || strchr(remote.host, '[') != NULL;
    return strcmp(text, "all") == 0 || strncmp(text, JOB, sizeof(JOB) - 1) == 0 ||
           text[item_size(text)] == ',' || has_range(text);
}

/* ---- the list while it grows ---- */

static bool same_directory(const char *a, const char *b)
{
    struct stat x, y;

    return strcmp(a, b) == 0 ||
           (stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

static bool is_same(const struct target *a, const struct target *b)
{
    if (a->there != NULL || b->there != NULL)
        return a->there != NULL && b->there != NULL && a->there->host == b->there->host &&
               strcmp(a->there->what, b->there->what) == 0;
    if (a->pid != 0 || b->pid != 0)
        return a->pid == b->pid && a->start_time == b->start_time &&
               /* The pid of the dead is what their directories say, in containers 1. */
               (a->start_time != 0 || same_directory(a->directory, b->directory));
    if (a->host[0] != '\0' || b->host[0] != '\0')
        return a->port == b->port && strcmp(a->host, b->host) == 0;
    return strcmp(a->directory, b->directory) == 0;
}

/* Hash what is_same() compares. */
static uint64_t identity_hash(const struct target *t)
{
    if (t->there != NULL)
        return hash_text(hash_spread(t->there->host), t->there->what);
    if (t->pid != 0)
        return hash_spread(hash_spread((uint64_t)t->pid) ^ t->start_time);
    return t->host[0] != '\0' ? hash_text(hash_spread(t->port), t->host)
                              : hash_text(HASH_FNV, t->directory);
}

/* Its slot in the index, or the one that it would have; UINT32_MAX there: nobody. */
static uint32_t *slot_of(const struct find *f, const struct target *t)
{
    uint64_t mask = f->n_slots - 1;
    uint64_t at = hash_spread(identity_hash(t)) >> 32;

    for (;; at++) {
        uint32_t *slot = &f->slots[at & mask];
        if (*slot == UINT32_MAX || is_same(&f->found->list[*slot].target, t))
            return slot;
    }
}

/* Add members that came since the last call; all, where some have gone.  At most half is used. */
static bool fill_index(struct find *f)
{
    uint32_t n = f->n_slots;

    while (n < 2 * (f->found->n + 1))
        n = n > 0 ? 2 * n : 64;
    if (n > f->n_slots) {
        uint32_t *slots = realloc(f->slots, n * sizeof(*slots));
        if (slots == NULL)
            return false;
        f->slots = slots;
    }
    if (n > f->n_slots || f->found->n < f->indexed) {
        f->n_slots = n;
        f->indexed = 0;
        memset(f->slots, 0xff, n * sizeof(*f->slots));
    }
    for (; f->indexed < f->found->n; f->indexed++)
        if (f->found->list[f->indexed].error == 0) {
            uint32_t *slot = slot_of(f, &f->found->list[f->indexed].target);
            *slot = *slot == UINT32_MAX ? f->indexed : *slot;
        }
    return true;
}

int find_has(struct find *f, const struct target *t)
{
    if (!fill_index(f))
        return err_set(-ENOMEM, "no memory for %u processes", f->found->n);
    return *slot_of(f, t) != UINT32_MAX;
}

static struct member *grow_list(struct find *f)
{
    struct members *m = f->found;

    if (m->n == MEMBERS_MAX) {
        (void)err_set(-E2BIG, "'%s' names more than %u processes", f->text, MEMBERS_MAX);
        return NULL;
    }
    struct member *list = array_grow(m->list, m->n, &f->room, sizeof(*list), UINT32_MAX);
    if (list == NULL) {
        (void)err_set(-ENOMEM, "no memory for %u processes", m->n + 1);
        return NULL;
    }
    m->list = list;
    return &m->list[m->n];
}

struct member *find_grow(struct find *f, const char *name)
{
    struct member *m = grow_list(f);

    if (m == NULL)
        return NULL;
    *m = (struct member){.name = arena_text(&f->found->mem, name, strlen(name)),
                         .asked = {.error_ns = MEMBER_UNKNOWN},
                         .tags = RANK_UNKNOWN};
    if (m->name == NULL) {
        (void)err_set(-ENOMEM, "no memory for '%s'", name);
        return NULL;
    }
    return m;
}

/* Read the place of a process of this machine from its environment, or its data. */
static void read_place(struct member *m)
{
    struct buf b;

    if (m->target.kind == TARGET_FILES && !m->target.stopped) {
        rank_read_data(m->target.directory, &m->tags);
        return;
    }
    if (m->target.pid == 0)
        return;
    int rc = job_read_environment(m->target.pid, &b, /* ret_source= */ NULL);
    if (rc == 0)
        rank_read_environment(&b, &m->tags);
    else
        (void)apart_pass_over(m->target.pid, rc, "its rank is not known");
    buf_done(&b);
}

int find_add(struct find *f, const char *text)
{
    struct member *m = find_grow(f, text);

    if (m == NULL)
        return f->found->n == MEMBERS_MAX ? -E2BIG : -ENOMEM;
    m->error = target_resolve(m->name, &m->target);
    if (m->error < 0)
        member_failed(m, MEMBER_NOT_ASKED, m->error);
    int has = m->error < 0 ? 0 : find_has(f, &m->target);
    if (has != 0)
        return has < 0 ? has : 0;
    if (m->target.host[0] == '\0')
        (void)gethostname(m->tags.host, sizeof(m->tags.host) - 1);
    else
        (void)snprintf(m->tags.host, sizeof(m->tags.host), "%s", m->target.host);
    read_place(m);
    f->found->n++;
    return 0;
}

/* ---- words and lists ---- */

static int add_living(void *arg, pid_t pid, const char *directory)
{
    char text[24];

    (void)directory;
    (void)snprintf(text, sizeof(text), "%d", (int)pid);
    return pid != getpid() ? find_add(arg, text) : 0;
}

static int add_item(struct find *f, char *item)
{
    struct remote_name remote;

    if (remote_name_read(item, &remote))
        return find_add_remote(f, item);
    if (strcmp(item, "all") == 0)
        return directory_each_living(add_living, f);
    if (strncmp(item, JOB, sizeof(JOB) - 1) == 0) {
        unmark_name(item);
        return find_add_job(f, item + sizeof(JOB) - 1);
    }
    if (has_range(item))
        return find_add_range(f, item);
    return strlen(item) < NAME_BYTES
               ? find_add(f, item)
               : cli_misuse(err_set(-EINVAL, "'%.60s...': a name is too long", item));
}

static int add_list(struct find *f)
{
    int rc = 0;

    for (const char *at = f->text; rc == 0;) {
        size_t n = item_size(at);
        char *item = strndup(at, n);
        if (item == NULL)
            return err_set(-ENOMEM, "no memory for a list of processes");
        rc = n > 0 ? add_item(f, item)
                   : cli_misuse(
                         err_set(-EINVAL, "'%s': a name is missing between two commas", f->text));
        free(item);
        if (at[n] == '\0')
            return rc;
        at += n + 1;
    }
    return rc;
}

/* ---- order ---- */

/* Ranks first, in their order; else as they were named. */
struct placed {
    int64_t rank;
    uint32_t from; /* where it stands */
};

static int compare_placed(const void *one, const void *two)
{
    const struct placed *a = one, *b = two;

    if (a->rank != b->rank && a->rank != MEMBER_UNKNOWN && b->rank != MEMBER_UNKNOWN)
        return a->rank < b->rank ? -1 : 1;
    if ((a->rank == MEMBER_UNKNOWN) != (b->rank == MEMBER_UNKNOWN))
        return a->rank == MEMBER_UNKNOWN ? 1 : -1;
    return a->from < b->from ? -1 : 1;
}

/* Each to its place: they are large, and many, so there is no second list of them. */
static void put_in_order(struct members *m, struct placed *p)
{
    for (uint32_t first = 0; first < m->n; first++) {
        if (p[first].from == first)
            continue;
        const struct member kept = m->list[first];
        uint32_t at = first;
        for (uint32_t from = p[at].from; from != first; from = p[at].from) {
            m->list[at] = m->list[from];
            p[at].from = at;
            at = from;
        }
        m->list[at] = kept;
        p[at].from = at;
    }
}

int members_sort(struct members *m)
{
    struct placed *p = calloc(m->n + 1, sizeof(*p));

    if (p == NULL)
        return err_set(-ENOMEM, "no memory for %u processes", m->n);
    for (uint32_t i = 0; i < m->n; i++)
        p[i] = (struct placed){m->list[i].tags.rank, i};
    qsort(p, m->n, sizeof(*p), compare_placed);
    put_in_order(m, p);
    m->ranked = true;
    m->any_rank = false;
    for (uint32_t i = 0; i < m->n; i++) {
        int64_t rank = m->list[i].tags.rank;
        m->any_rank = m->any_rank || rank != MEMBER_UNKNOWN;
        if (rank == MEMBER_UNKNOWN || (i > 0 && rank == m->list[i - 1].tags.rank))
            m->ranked = false;
    }
    free(p);
    return 0;
}

/* fn: NULL, the other machines are asked who is there. */
static int find_all(const char *text, int (*fn)(void *arg, const struct members_there *t),
                    void *arg, struct members *ret)
{
    struct find f = {.text = text, .found = ret};

    *ret = (struct members){.n = 0};
    arena_init(&ret->mem, (size_t)64 << 20);
    int rc = add_list(&f);
    bool here = fn == NULL || f.n_remote == 0;
    if (rc == 0)
        rc = here ? find_ask_remote(&f) : find_tell_remote(&f, fn, arg);
    free(f.remote);
    free(f.slots);
    if (rc == 0 && cli_interrupted)
        rc = err_set(-ECANCELED, "interrupted");
    if (rc == 0 && ret->n == 0 && here)
        rc = err_set(-ESRCH,
                     "'%s': no process of yours has a probing core in it; enter one with: "
                     "probing -t <pid> inject",
                     text);
    if (rc == 0)
        rc = members_sort(ret);
    if (rc < 0)
        members_done(ret);
    return rc;
}

int members_find(const char *text, struct members *ret)
{
    return find_all(text, /* fn= */ NULL, /* arg= */ NULL, ret);
}

int members_find_here(const char *text, int (*fn)(void *arg, const struct members_there *t),
                      void *arg, struct members *ret)
{
    return find_all(text, fn, arg, ret);
}

void members_done(struct members *m)
{
    free(m->list);
    arena_done(&m->mem);
    *m = (struct members){.n = 0};
}

/* ---- connections that are kept for the next question ---- */

bool members_keep(struct members *all, const struct member *m, struct probing_client *c)
{
    if (all->kept == NULL)
        all->kept = calloc(all->n, sizeof(*all->kept));
    if (all->kept == NULL)
        return false;
    all->kept[m - all->list] = c;
    all->n_kept++;
    return true;
}

struct probing_client *members_take_kept(struct members *all, const struct member *m)
{
    struct probing_client **at = all->kept != NULL ? &all->kept[m - all->list] : NULL;
    struct probing_client *c = at != NULL ? *at : NULL;

    if (c == NULL)
        return NULL;
    *at = NULL;
    all->n_kept--;
    return c;
}

void members_hang_up(struct members *m)
{
    for (uint32_t i = 0; m->kept != NULL && i < m->n; i++)
        probing_client_free(m->kept[i]);
    free(m->kept);
    m->kept = NULL;
    m->n_kept = 0;
}

void member_failed(struct member *m, enum member_state state, int rc)
{
    struct member_result *r = &m->result;

    r->state = state;
    r->error = rc;
    if (m->target.there != NULL)
        link_hints(m->target.there->host, err_why(rc), r->why, sizeof(r->why));
    else
        (void)snprintf(r->why, sizeof(r->why), "%s", err_why(rc));
    for (char *at = r->why; *at != '\0'; at++)
        *at = *at == '\n' ? ' ' : *at; /* a member's words must not look like a line of ours */
}

/* ---- what they are called ---- */

const char *member_label(const struct members *all, const struct member *m, char *room, size_t n)
{
    if (all->ranked)
        (void)snprintf(room, n, "rank %lld", (long long)m->tags.rank);
    else if (m->target.pid != 0)
        (void)snprintf(room, n, "process %d", (int)m->target.pid);
    else
        (void)snprintf(room, n, "%s", m->name);
    return room;
}

static void list_names(const struct members *all, const bool *which, struct buf *ret)
{
    uint32_t shown = 0, left = 0;

    for (uint32_t i = 0; i < all->n; i++) {
        if (!which[i])
            continue;
        if (shown == LIST_MAX)
            left++;
        else
            (void)buf_addf(ret, "%s%s", shown++ > 0 ? "," : "", all->list[i].name);
    }
    if (left > 0)
        (void)buf_addf(ret, " and %u more", left);
}

void members_list(const struct members *all, const bool *which, struct buf *ret)
{
    int64_t *ranks = all->ranked ? calloc(all->n + 1, sizeof(*ranks)) : NULL;
    size_t n = 0;

    if (ranks == NULL) {
        list_names(all, which, ret);
        return;
    }
    for (uint32_t i = 0; i < all->n; i++)
        if (which[i])
            ranks[n++] = all->list[i].tags.rank;
    rank_ranges(ranks, n, LIST_MAX, ret);
    free(ranks);
}
