/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/flame_ranks.c - see flame_ranks.h.
 *
 * One thread.  Each member's own profile comes as folded stacks out of a child; put together they
 * are one tree, whose nodes know their ranks.  A frame says them where they are fewer than below
 * it: "load [rank 2]".
 */
#include "cli/many/flame_ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/commands/flamegraph/flame.h"
#include "cli/job/rank_ranges.h"
#include "cli/many/query_members.h"
#include "cli/many/run_there.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/arena.h"

#define WORDS_MAX 64
#define AT_ONCE 512                /* all sample at the same time */
#define TIMEOUT_NS (60 * NS_PER_S) /* beside the time for which samples are taken */
#define TREE_BYTES ((size_t)1 << 30)
#define FOLDED_BYTES ((size_t)256 << 20) /* of all members */
#define RANGES_SHOWN 6                   /* of a frame's ranks: a label is to be read */
#define LABEL_BYTES ((size_t)64 << 10)

struct spot {
    const char *name;
    struct spot *above, *first, *next;
    struct spot *later; /* in the order in which they were made */
    int64_t value;
    uint32_t *members; /* places in the list, rising */
    uint32_t n, room;
};

struct merge {
    struct members *members;
    struct buf *folded; /* of each member */
    size_t kept;
    struct arena mem;
    struct spot root, *last;
    uint32_t answered;
    char mode[80], title[300];
};

/* ---- in the child ---- */

static bool takes_value(const char *word)
{
    static const char *const names[] = {"-f", "--format", "-o", "--output", "--width"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(word, names[i]) == 0)
            return true;
    return false;
}

static bool is_ours(const char *word)
{
    return strncmp(word, "--format=", 9) == 0 || strncmp(word, "--output=", 9) == 0 ||
           strncmp(word, "--width=", 8) == 0 ||
           (word[0] == '-' && (word[1] == 'f' || word[1] == 'o') && word[2] != '\0');
}

/* The same words, but folded stacks to standard output. */
static int run_folded(struct target *t, int argc, char **argv)
{
    char *words[WORDS_MAX + 3];
    int n = 0;

    for (int i = 0; i < argc; i++) {
        if (i > 0 && takes_value(argv[i]))
            i++;
        else if (n < WORDS_MAX && (i == 0 || !is_ours(argv[i])))
            words[n++] = argv[i];
    }
    words[n++] = "--format";
    words[n++] = "folded";
    words[n] = NULL;
    if (t->kind == TARGET_THERE) /* what is left of it is read where it lies */
        return run_there(t, n, words);
    return command_flamegraph(t, n, words);
}

/* ---- together ---- */

static int take_folded(void *arg, const struct member *m, struct buf *out)
{
    struct merge *g = arg;
    struct buf *mine = &g->folded[m - g->members->list];

    if (m->result.state != MEMBER_ANSWERED)
        return 0;
    g->kept += out->size;
    if (g->kept > FOLDED_BYTES)
        return err_set(-E2BIG,
                       "their stacks are more than %zu MB together; ask fewer at once, or "
                       "for a shorter time",
                       FOLDED_BYTES >> 20);
    int rc = buf_add(mine, out->data, out->size);
    rc = rc == 0 ? buf_addc(mine, '\0') : rc;
    return rc < 0 ? err_set(rc, "no memory for stacks") : 0;
}

static struct spot *spot_below(struct merge *g, struct spot *above, const char *name, size_t n)
{
    struct spot **at = &above->first;

    for (; *at != NULL; at = &(*at)->next)
        if (strncmp((*at)->name, name, n) == 0 && (*at)->name[n] == '\0')
            return *at;
    struct spot *made = arena_zalloc(&g->mem, 1, sizeof(*made));
    if (made == NULL || (made->name = arena_text(&g->mem, name, n)) == NULL)
        return NULL;
    made->above = above;
    *at = made;
    g->last->later = made;
    g->last = made;
    return made;
}

static int mark_member(struct merge *g, struct spot *s, uint32_t member)
{
    if (s->n > 0 && s->members[s->n - 1] == member)
        return 0;
    if (s->n == s->room) {
        uint32_t room = s->room == 0 ? 4 : 2 * s->room;
        uint32_t *more = arena_zalloc(&g->mem, room, sizeof(*more));
        if (more == NULL)
            return -ENOMEM;
        if (s->n > 0)
            memcpy(more, s->members, s->n * sizeof(*more));
        s->members = more;
        s->room = room;
    }
    s->members[s->n++] = member;
    return 0;
}

/* "main;train;step 12" */
static int add_line(struct merge *g, uint32_t member, char *line)
{
    char *blank = strrchr(line, ' ');
    struct spot *at = &g->root;
    uint64_t value;
    int rc = 0;

    if (blank == NULL || parse_u64(blank + 1, &value) < 0 || value > INT64_MAX / 2)
        return 0; /* no stack: a child says nothing else there */
    *blank = '\0';
    for (char *name = line; rc == 0 && name != NULL;) {
        size_t n = strcspn(name, ";");
        at = spot_below(g, at, name, n);
        rc = at == NULL ? -ENOMEM : mark_member(g, at, member);
        name = name[n] == ';' ? name + n + 1 : NULL;
    }
    if (rc == 0 && __builtin_add_overflow(at->value, (int64_t)value, &at->value))
        at->value = INT64_MAX;
    return rc;
}

static int merge_all(struct merge *g)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < g->members->n; i++) {
        char *rest = NULL, *text = g->folded[i].size > 0 ? g->folded[i].data : NULL;
        g->answered += text != NULL;
        for (char *line = text != NULL ? strtok_r(text, "\n", &rest) : NULL;
             rc == 0 && line != NULL; line = strtok_r(NULL, "\n", &rest))
            rc = add_line(g, i, line);
        buf_done(&g->folded[i]);
    }
    return rc < 0 ? err_set(rc, "no memory for the stacks of all") : 0;
}

/* "load [rank 2]", where not all that are at the frame below are here. */
static void label_of(const struct merge *g, const struct spot *s, int64_t *room, struct buf *b)
{
    const struct members *m = g->members;
    uint32_t below = s->above == &g->root ? g->answered : s->above->n, shown = 0;

    (void)buf_adds(b, s->name);
    if (s->n == below)
        return;
    (void)buf_addf(b, " [%s%s ", m->ranked ? "rank" : "process",
                   s->n == 1   ? ""
                   : m->ranked ? "s"
                               : "es");
    for (uint32_t i = 0; i < s->n; i++)
        room[i] = m->list[s->members[i]].tags.rank;
    if (m->ranked)
        rank_ranges(room, s->n, RANGES_SHOWN, b);
    for (; !m->ranked && shown < s->n && shown < RANGES_SHOWN; shown++)
        (void)buf_addf(b, "%s%s", shown > 0 ? "," : "", m->list[s->members[shown]].name);
    if (!m->ranked && shown < s->n)
        (void)buf_addf(b, " and %u more", s->n - shown);
    (void)buf_adds(b, "]");
}

static int add_stack(const struct merge *g, const struct spot *s, int64_t *room, struct flame *f)
{
    const struct flame_sample sample = {.thread_name = "", .value = s->value, .count = 1};
    const int64_t id = f->n_stacks;
    struct buf label;
    int rc = flame_add_stack(f, id);

    buf_init(&label, LABEL_BYTES);
    for (; rc == 0 && s != &g->root; s = s->above) {
        buf_reset(&label);
        label_of(g, s, room, &label);
        const struct flame_frame frame = {.func = buf_text(&label), .file = "", .module = ""};
        rc = flame_add_frame(f, &frame);
    }
    buf_done(&label);
    return rc < 0 ? rc : flame_add_sample(f, id, &sample);
}

static int fill_tree(void *arg, struct flame *f)
{
    struct merge *g = arg;
    int64_t *room = calloc(g->members->n + 1, sizeof(*room));
    int rc = room == NULL ? err_set(-ENOMEM, "no memory for ranks") : 0;

    f->title = g->title;
    f->mode = g->mode;
    for (const struct spot *s = g->root.later; rc == 0 && s != NULL; s = s->later)
        if (s->value > 0)
            rc = add_stack(g, s, room, f);
    free(room);
    rc = rc == 0 ? flame_join(f) : rc;
    if (rc == 0 && f->n_samples == 0)
        rc = err_set(-ENODATA, "none of them has stacks to draw");
    return rc;
}

/* ---- all of it ---- */

static const char *word_behind(const struct each_run *r, const char *name, const char *letter)
{
    size_t n = strlen(name);

    for (int i = 1; i < r->argc; i++) {
        if (strncmp(r->argv[i], name, n) == 0 && r->argv[i][n] == '=')
            return r->argv[i] + n + 1;
        if (i + 1 < r->argc && (strcmp(r->argv[i], name) == 0 || strcmp(r->argv[i], letter) == 0))
            return r->argv[i + 1];
    }
    return NULL;
}

/* Find what the values are, by the mode as the first that has answered knows it. */
static void find_mode(struct merge *g, const struct each_run *run)
{
    const char *word = word_behind(run, "--mode", "-m");
    bool memory = false;

    for (int i = 1; i < run->argc && word == NULL; i++) {
        bool value = false;
        if (!cli_option_of(run->command, run->argv[i], &value))
            word = run->argv[i];
        i += value;
    }
    for (int i = 1; i < run->argc; i++)
        memory = memory || strcmp(run->argv[i], "--memory") == 0;
    (void)snprintf(g->mode, sizeof(g->mode), "all");
    for (uint32_t i = 0; i < g->members->n; i++) {
        struct flame_mode m;
        if (g->members->list[i].result.state != MEMBER_ANSWERED)
            continue;
        if (flame_mode_find(&g->members->list[i].target, word, &m) == 0) {
            (void)snprintf(g->mode, sizeof(g->mode), "%s", m.mode.name);
            memory = memory || m.mode.unit == PROBING_BYTES;
        }
        flame_mode_done(&m);
        break;
    }
    if (memory)
        (void)snprintf(g->mode, sizeof(g->mode), "memory");
    (void)snprintf(g->title, sizeof(g->title), "%u of %u %s: %.60s", g->answered, g->members->n,
                   g->members->ranked ? "ranks" : "processes", g->mode);
}

static int gather_stacks(struct merge *g, const struct each_run *run)
{
    struct cli_command command = *run->command; /* it takes the same words */
    const char *seconds = word_behind(run, "--seconds", "-s");
    struct each_run folded = *run;
    uint64_t ns = 0;
    int rc = seconds != NULL ? cli_misuse(cli_take_time("--seconds", seconds, &ns)) : 0;

    command.run = run_folded;
    folded.command = &command;
    folded.done = take_folded;
    folded.arg = g;
    if (folded.at_once == 0)
        folded.at_once = g->members->n < AT_ONCE ? g->members->n : AT_ONCE;
    if (folded.timeout_ns == 0)
        folded.timeout_ns = TIMEOUT_NS + ns;
    return rc == 0 ? each_member(g->members, &folded) : rc;
}

int flame_ranks(struct members *m, const struct each_run *run)
{
    struct merge g = {.members = m, .folded = calloc(m->n + 1, sizeof(*g.folded))};
    int rc = g.folded == NULL ? err_set(-ENOMEM, "no memory for %u profiles", m->n) : 0;

    arena_init(&g.mem, TREE_BYTES);
    g.last = &g.root;
    for (uint32_t i = 0; rc == 0 && i < m->n; i++)
        buf_init(&g.folded[i], FOLDED_BYTES);
    if (rc == 0)
        rc = gather_stacks(&g, run);
    if (rc == 0)
        rc = merge_all(&g);
    if (rc == 0 && g.answered > 0) {
        find_mode(&g, run);
        cli_args_of(run->command);
        rc = flamegraph_filled(run->argc, run->argv, fill_tree, &g);
    }
    for (uint32_t i = 0; g.folded != NULL && i < m->n; i++)
        buf_done(&g.folded[i]);
    free(g.folded);
    arena_done(&g.mem);
    return rc;
}
