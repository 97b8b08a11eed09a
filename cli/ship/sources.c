/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/sources.c - who is there, by the life that each is, and which rows each has.
 *
 * One thread.  A process of this machine is known by its data directory's owner and its id, which
 * was made at random; one behind TCP by its address, too: it can say anything, and must not be
 * taken for another.
 */
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/link/link.h"
#include "cli/ship/run.h"
#include "cli/target/datadir.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/hash.h"

#define TARGETS_BYTES ((size_t)16 << 20)
#define LIST_BYTES ((size_t)2 << 20) /* of an answer that lists tables */

/* ---- which life it is ---- */

static void take_tags(struct ship_source *s, const struct member *m)
{
    if (m->tags.rank != MEMBER_UNKNOWN || s->tags.host[0] == '\0') {
        char job[sizeof(s->tags.job)];
        (void)snprintf(job, sizeof(job), "%s", m->tags.job[0] != '\0' ? m->tags.job : s->tags.job);
        struct rank kept = s->tags;
        s->tags = m->tags;
        if (s->tags.host[0] == '\0')
            (void)snprintf(s->tags.host, sizeof(s->tags.host), "%s", kept.host);
        if (s->tags.rank == MEMBER_UNKNOWN)
            s->tags.rank = kept.rank;
        (void)snprintf(s->tags.job, sizeof(s->tags.job), "%s", job);
    }
}

/* Only what it has left can be read, here or on its machine; of another machine one that is stopped
 * looks the same, and lives again when it goes on. */
static bool is_left(const struct target *t)
{
    return target_is_files(t) || t->kind == TARGET_THERE;
}

static int says_same(const struct member *other)
{
    return err_set(-EEXIST,
                   "it has the same rows as %.200s, as a copy of a data directory has: only that "
                   "one's are sent",
                   other->name);
}

/* The source is m's from now on in this turn.  Where it is another's already, of the two the one is
 * asked that lives, else the first.  -EEXIST: that is not m. */
static int take_source(struct ship_run *r, struct ship_source *s, const struct member *m)
{
    uint32_t mine = (uint32_t)(m - r->members.list);
    struct member *other = s->member < r->members.n ? &r->members.list[s->member] : NULL;

    if (other != NULL && other != m && (!is_left(&other->target) || is_left(&m->target)))
        return says_same(other);
    if (other != NULL && other != m) {
        r->source[s->member] = NULL;
        member_failed(other, MEMBER_FAILED, says_same(m));
    }
    r->source[mine] = s;
    s->member = mine;
    return 0;
}

static int source_named(struct ship_run *r, const char *id, const struct member *m,
                        struct ship_source **ret)
{
    struct ship_source *s = ship_source_of(&r->state, id, /* make= */ true);
    int rc = s == NULL ? err_set(-ENOMEM,
                                 "more than %d processes are kept in one state file: use several",
                                 SHIP_SOURCES_MAX)
                       : take_source(r, s, m);

    if (rc < 0)
        return rc;
    take_tags(s, m);
    if (s->tags.host[0] == '\0')
        (void)gethostname(s->tags.host, sizeof(s->tags.host) - 1);
    s->seen = true;
    s->dead = is_left(&m->target) && !m->target.stopped;
    s->ended = s->ended && is_left(&m->target);
    *ret = s;
    return 0;
}

/* Its path as it can be opened when the process is dead, too: without "/proc/PID/root" where it is
 * the same directory by either name. */
static void keep_directory(struct ship_source *s, const char *path, const struct datadir *d)
{
    const char *root = strncmp(path, "/proc/", 6) == 0 ? strstr(path, "/root/") : NULL;
    struct stat st;

    if (root != NULL && stat(root + 5, &st) == 0 && st.st_dev == d->device && st.st_ino == d->inode)
        path = root + 5;
    (void)snprintf(s->directory, sizeof(s->directory), "%.*s", SHIP_DIRECTORY_BYTES - 1, path);
}

/* By what its directory says, which the process itself has written when it began. */
static int local_source(struct ship_run *r, const struct member *m)
{
    struct ship_source *s = NULL;
    char instance[64] = "", pid[24] = "", id[300];
    uint64_t number = 0;
    struct datadir d;
    int rc = datadir_open(m->target.directory, DATADIR_ANY, &d);

    if (rc < 0)
        return rc;
    (void)directory_info(&d, "instance_id", instance, sizeof(instance));
    (void)directory_info(&d, "pid", pid, sizeof(pid));
    (void)parse_u64(pid, &number);
    if (instance[0] == '\0' || strlen(m->target.directory) >= SHIP_DIRECTORY_BYTES) {
        rc = err_set(-EBADMSG, "the data directory %s does not say of which process it is",
                     m->target.directory);
    } else {
        (void)snprintf(id, sizeof(id), "%u:%s", (unsigned)d.owner, instance);
        rc = source_named(r, id, m, &s);
    }
    if (rc == 0) {
        keep_directory(s, m->target.directory, &d);
        if (m->target.pid != 0)
            s->pid = m->target.pid;
        else if (s->pid == 0) /* while it lived it was seen by the pid that it has here */
            s->pid = (int64_t)(number & INT32_MAX);
    }
    datadir_close(&d);
    return rc;
}

/* ---- of those behind TCP: they are asked ---- */

static bool is_text(const struct sql_value *v, size_t max)
{
    return v->type == SQL_TEXT && v->text.size > 0 && v->text.size < max &&
           memchr(v->text.data, '\0', v->text.size) == NULL;
}

/* The columns asked of process.info, in the statement's order. */
enum { INFO_PID, INFO_HOST, INFO_DIRECTORY, INFO_INSTANCE, INFO_N };

static int take_info(void *arg, const struct member *m, const struct answer_rows *rows)
{
    struct ship_run *r = arg;
    struct sql_value v[INFO_N] = {{.type = SQL_NULL}};
    char id[300], address[80], directory[DATADIR_PATH];
    bool whole = answer_rows_columns(rows) == INFO_N && answer_rows_count(rows) == 1;

    for (uint32_t i = 0; i < INFO_N && whole; i++)
        answer_rows_value(rows, 0, i, &v[i]);
    const struct sql_value *life = &v[INFO_INSTANCE];
    if (v[INFO_PID].type != SQL_INT || !is_text(&v[INFO_HOST], 64) || !is_text(life, 64) ||
        !is_text(&v[INFO_DIRECTORY], sizeof(directory)))
        return err_set(-EBADMSG, "it does not say which process it is");
    (void)snprintf(directory, sizeof(directory), "%.*s", (int)v[INFO_DIRECTORY].text.size,
                   v[INFO_DIRECTORY].text.data);
    const char *slash = strrchr(directory, '/'), *leaf = slash != NULL ? slash + 1 : directory;
    (void)snprintf(address, sizeof(address), "%.60s:%u", m->target.host, m->target.port);
    (void)snprintf(id, sizeof(id), "%s:%.*s:%.120s", address, (int)life->text.size, life->text.data,
                   leaf);
    struct ship_source *s = NULL;
    int rc = source_named(r, id, m, &s);
    if (rc < 0)
        return rc;
    s->pid = v[INFO_PID].integer;
    if (m->target.there == NULL) /* by a relay it is a process of that host, as one here */
        (void)snprintf(s->address, sizeof(s->address), "%s", address);
    if (m->tags.host[0] == '\0')
        (void)snprintf(s->tags.host, sizeof(s->tags.host), "%.*s", (int)v[INFO_HOST].text.size,
                       v[INFO_HOST].text.data);
    return 0;
}

/* One of another machine that does not answer any more: while it did, it said who it is, and its
 * directory has the name of its life.  What it has left is read there. */
static int left_source(struct ship_run *r, const struct member *m)
{
    const struct link_member *there = m->target.there;
    const char *slash = strrchr(there->what, '/');
    char begin[80], end[160];

    (void)snprintf(begin, sizeof(begin), "%.60s:%u:", m->target.host, m->target.port);
    if (slash != NULL)
        (void)snprintf(end, sizeof(end), ":%.150s", slash + 1);
    else
        (void)snprintf(end, sizeof(end), ":%" PRId64 "-%" PRId64, there->pid, there->start_time);
    for (uint32_t i = 0; i < r->state.n && end[1] != '\0'; i++) {
        const char *id = r->state.sources[i]->id;
        size_t n = strlen(id), k = strlen(end);
        if (strncmp(id, begin, strlen(begin)) == 0 && n > k && strcmp(id + n - k, end) == 0)
            return source_named(r, id, m, &r->source[m - r->members.list]);
    }
    return err_set(-ESRCH,
                   "its core does not answer, and who it is was not known before: its files can be "
                   "sent by `probing ship` on its machine");
}

static int ask_info(struct ship_run *r)
{
    struct members *m = &r->members;
    bool *only = calloc(m->n + 1, sizeof(*only)), any = false;
    const struct members_sink sink = {.arg = r, .rows = take_info};
    const struct members_ask ask = {
        .statement = "select pid, host, directory, instance_id from process.info",
        .max_bytes = 64 << 10,
        .only = only};
    int rc = only == NULL ? err_set(-ENOMEM, "no memory for %u processes", m->n) : 0;

    for (uint32_t i = 0; i < m->n && rc == 0; i++) {
        if (m->list[i].error == 0 && m->list[i].target.kind == TARGET_THERE) {
            int left = left_source(r, &m->list[i]);
            if (left < 0)
                member_failed(&m->list[i], MEMBER_FAILED, left);
            continue;
        }
        only[i] =
            m->list[i].error == 0 && r->source[i] == NULL && m->list[i].target.host[0] != '\0';
        any = any || only[i];
    }
    if (rc == 0 && any)
        rc = members_query(m, &ask, &sink);
    free(only);
    return rc;
}

/* Say who cannot be asked, and why: again when it is not the same ones any more. */
static void say_left_out(struct ship_run *r)
{
    uint64_t all = 0;

    for (int say = 0; say < 2; say++)
        for (uint32_t i = 0; i < r->members.n; i++) {
            const struct member *m = &r->members.list[i];
            bool out = m->error < 0 || (r->source[i] == NULL && m->result.state == MEMBER_FAILED);
            if (!out)
                continue;
            if (say == 0)
                all += hash_spread(hash_text(HASH_FNV, m->name));
            else if (all != r->left_out)
                terminal_say("%s is left out: %s", m->name, m->result.why);
        }
    r->left_out = all;
}

/* ---- who is there ---- */

static int match_members(struct ship_run *r)
{
    struct members *m = &r->members;
    struct member_clock *clocks = calloc(m->n + 1, sizeof(*clocks));

    free(r->source);
    r->source = calloc(m->n + 1, sizeof(struct ship_source *));
    if (r->source == NULL || clocks == NULL) {
        free(clocks);
        return err_set(-ENOMEM, "no memory for %u processes", m->n);
    }
    for (uint32_t i = 0; i < r->state.n; i++) {
        r->state.sources[i]->seen = r->state.sources[i]->dead = false;
        r->state.sources[i]->member = UINT32_MAX;
    }
    for (uint32_t i = 0; i < m->n; i++) {
        const struct target *t = &m->list[i].target;
        if (m->list[i].error < 0 || t->host[0] != '\0' || t->directory[0] == '\0')
            continue;
        int local = local_source(r, &m->list[i]);
        if (local < 0)
            member_failed(&m->list[i], MEMBER_FAILED, local);
    }
    int rc = ask_info(r);
    if (rc == 0)
        say_left_out(r);
    members_clocks(m, clocks);
    for (uint32_t i = 0; i < m->n; i++)
        if (r->source[i] != NULL)
            r->source[i]->clock = clocks[i];
    free(clocks);
    return rc;
}

/* It lives, and was not named this time: it is left alone. */
static bool is_alive(const struct ship_source *s)
{
    struct datadir d;
    pid_t pid;

    if (datadir_open(s->directory, DATADIR_ANY, &d) < 0)
        return false;
    bool alive = directory_alive(&d, &pid);
    datadir_close(&d);
    return alive;
}

/* Add the directories of earlier sources that are gone with rows unsent, behind the named ones. */
static bool add_missing(struct ship_run *r, struct buf *text)
{
    char label[80];
    bool any = false;

    for (uint32_t i = 0; i < r->state.n; i++) {
        struct ship_source *s = r->state.sources[i];
        if (s->seen || s->ended || s->directory[0] == '\0')
            continue;
        if (access(s->directory, F_OK) == -1) {
            terminal_say(
                "%s has ended and its data directory is gone: what it had not sent is lost",
                source_label(s, label, sizeof(label)));
            s->ended = true;
            r->state.changed = true;
            continue;
        }
        if (strpbrk(s->directory, ",[") != NULL || is_alive(s))
            continue;
        (void)buf_addf(text, "%s%s", text->size > 0 ? "," : "", s->directory);
        any = true;
    }
    return any;
}

/* And their ranks: those behind TCP are asked. */
static int find_members(struct ship_run *r, const char *text)
{
    link_members_forget(); /* their members are gone, too */
    int rc = members_find(text, &r->members);

    return rc < 0 ? rc : members_identify(&r->members, /* timeout_ns= */ 0, /* at_once= */ 0);
}

/* 1: nobody yet, or nobody any more, and others may come; or we could not look, and go on. */
static int find_failed(struct ship_run *r, int rc)
{
    uint64_t words = hash_text(HASH_FNV, err_why(rc));

    if (rc == -ESRCH)
        return r->once && r->state.n == 0 ? rc : 1;
    if (r->once || r->state.n == 0)
        return rc;
    if (words != r->not_found)
        terminal_say("%s; it is tried again", err_why(rc));
    r->not_found = words;
    return 1;
}

int sources_find(struct ship_run *r)
{
    struct buf text;

    members_done(&r->members);
    int rc = find_members(r, r->targets);
    if (rc < 0 && rc != -ECANCELED && !cli_is_misused())
        rc = find_failed(r, rc);
    bool nobody = rc == 1;
    if (rc >= 0)
        rc = match_members(r);
    buf_init(&text, TARGETS_BYTES);
    if (!nobody)
        (void)buf_adds(&text, r->targets);
    if (rc == 0 && add_missing(r, &text) && !text.failed) {
        members_done(&r->members);
        rc = find_members(r, buf_text(&text));
        if (rc == 0)
            rc = match_members(r);
    }
    buf_done(&text);
    return rc;
}

void sources_done(struct ship_run *r)
{
    members_done(&r->members);
    free(r->source);
    r->source = NULL;
}

/* ---- what they have ---- */

/* pattern: n bytes. */
static bool is_named(const struct ship_table *t, const char *pattern, size_t n)
{
    char name[2 * SHIP_NAME_BYTES + 2], one[256];

    (void)snprintf(name, sizeof(name), "%s.%s", t->schema, t->name);
    (void)snprintf(one, sizeof(one), "%.*s", (int)n, pattern);
    return fnmatch(one, name, 0) == 0;
}

static bool is_wanted(const struct ship_run *r, const struct ship_table *t)
{
    if (r->tables == NULL)
        return r->to.kind->all_tables;
    for (const char *at = r->tables; *at != '\0';) {
        size_t n = strcspn(at, ",");
        if (is_named(t, at, n))
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

/* Words of --tables that name nothing, once: rather a slip than what was meant. */
static void say_unknown(struct ship_run *r)
{
    bool any = false;

    for (uint32_t i = 0; i < r->state.n; i++)
        any = any || r->state.sources[i]->n_tables > 0;
    if (!any || r->said_unknown || r->tables == NULL)
        return;
    r->said_unknown = true;
    for (const char *at = r->tables; *at != '\0';) {
        size_t n = strcspn(at, ",");
        bool found = false;
        for (uint32_t i = 0; i < r->state.n && !found; i++)
            for (uint32_t k = 0; k < r->state.sources[i]->n_tables && !found; k++)
                found = is_named(&r->state.sources[i]->tables[k], at, n);
        if (!found)
            terminal_say("no stored table is called '%.*s' so far: --tables takes SCHEMA.NAME, "
                         "as python.loss (`probing -t TARGET tables`)",
                         (int)(n < 100 ? n : 100), at);
        at += n + (at[n] == ',');
    }
}

static int take_table(struct ship_run *r, struct ship_source *s, const struct sql_value *v)
{
    char schema[SHIP_NAME_BYTES], name[SHIP_NAME_BYTES];

    if (!is_text(&v[0], sizeof(schema)) || !is_text(&v[1], sizeof(name)) || v[2].type != SQL_INT ||
        v[3].type != SQL_INT || v[4].type != SQL_INT || v[2].integer <= 0 ||
        v[2].integer > UINT32_MAX || v[3].integer < 0 || v[4].integer < v[3].integer ||
        v[4].integer > INT64_MAX / 2)
        return err_set(-EBADMSG, "it lists a table that cannot be");
    (void)snprintf(schema, sizeof(schema), "%.*s", (int)v[0].text.size, v[0].text.data);
    (void)snprintf(name, sizeof(name), "%.*s", (int)v[1].text.size, v[1].text.data);
    if (!text_is_name(schema) || !text_is_name(name))
        return 0; /* no core has such: it is left out */
    struct ship_table *t = ship_table_of(s, (uint32_t)v[2].integer, /* make= */ true);
    if (t == NULL)
        return err_set(-EBADMSG, "it lists more than %d tables", SHIP_TABLES_MAX);
    if (strcmp(t->name, name) != 0 || strcmp(t->schema, schema) != 0) {
        (void)snprintf(t->schema, sizeof(t->schema), "%s", schema);
        (void)snprintf(t->name, sizeof(t->name), "%s", name);
        r->state.changed = true;
    }
    t->first_row = (uint64_t)v[3].integer;
    t->end_row = (uint64_t)v[4].integer;
    t->listed = true;
    t->wanted = is_wanted(r, t);
    rows_look_ahead(r, s, t);
    if (r->fixed && t->end_row > t->until)
        t->end_row = t->until > t->next ? t->until : t->next;
    return 0;
}

static int take_tables(void *arg, const struct member *m, const struct answer_rows *rows)
{
    struct ship_run *r = arg;
    struct ship_source *s = r->source[m - r->members.list];
    struct sql_value v[5];
    int rc = 0;

    if (answer_rows_columns(rows) != 5)
        return err_set(-EBADMSG, "it lists tables in another way");
    for (uint32_t row = 0; row < answer_rows_count(rows) && rc == 0; row++) {
        for (uint32_t i = 0; i < 5; i++)
            answer_rows_value(rows, row, i, &v[i]);
        rc = take_table(r, s, v);
    }
    return rc;
}

/* One that does not answer is said once, and again when it has answered in between. */
static int note_member(void *arg, const struct member *m)
{
    struct ship_run *r = arg;
    struct ship_source *s = r->source[m - r->members.list];
    char label[80];

    if (m->result.state == MEMBER_FAILED && !s->said)
        terminal_say("%s does not answer: %s", source_label(s, label, sizeof(label)),
                     m->result.why);
    s->said = m->result.state == MEMBER_FAILED;
    return 0;
}

static uint32_t count_news(struct ship_run *r, const bool *only)
{
    uint32_t news = 0;

    for (uint32_t i = 0; i < r->members.n; i++) {
        struct ship_source *s = r->source[i];
        uint32_t own = 0;
        if (!only[i] || r->members.list[i].result.state != MEMBER_ANSWERED)
            continue;
        for (uint32_t k = 0; k < s->n_tables; k++)
            own += s->tables[k].wanted && s->tables[k].listed &&
                   s->tables[k].next < s->tables[k].end_row;
        news += own;
        if (own == 0 && s->dead && !s->ended) {
            s->ended = true; /* and so it will not be asked again */
            r->state.changed = true;
        }
    }
    return news;
}

void sources_fix(struct ship_run *r)
{
    for (uint32_t i = 0; i < r->state.n; i++)
        for (uint32_t k = 0; k < r->state.sources[i]->n_tables; k++) {
            struct ship_table *t = &r->state.sources[i]->tables[k];
            t->until = t->end_row;
        }
    r->fixed = true;
}

/* A core that is asked for probing.tables first numbers the rows that wait in its rings. */
int sources_list(struct ship_run *r, uint32_t *ret_news)
{
    struct members *m = &r->members;
    bool *only = calloc(m->n + 1, sizeof(*only)), any = false;
    const struct members_sink sink = {.arg = r, .rows = take_tables, .done = note_member};
    const struct members_ask ask = {
        .statement = "select schema, name, id, first_row, next_row from probing.tables where kind "
                     "= 'stored'",
        .max_bytes = LIST_BYTES,
        .only = only};

    *ret_news = 0;
    if (only == NULL)
        return err_set(-ENOMEM, "no memory for %u processes", m->n);
    for (uint32_t i = 0; i < m->n; i++) {
        struct ship_source *s = r->source[i];
        only[i] = m->list[i].error == 0 && s != NULL && !s->ended;
        any = any || only[i];
        for (uint32_t k = 0; s != NULL && k < s->n_tables; k++)
            s->tables[k].listed = false;
    }
    int rc = any ? members_query(m, &ask, &sink) : 0;
    if (rc == 0)
        *ret_news = count_news(r, only);
    if (rc == 0)
        say_unknown(r);
    free(only);
    return rc;
}
