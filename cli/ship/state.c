/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/state.c - the state file: JSON, a line for each source, written beside and renamed.
 *
 *     {"probing_ship":1,"destination":"parquet:/data/runs","rows":..,"lost":..,...}
 *     {"id":"0:2dbd2e8f-...:4711-99","directory":"/tmp/probing-0/4711-99","host":"node1","rank":3,
 *      "pid":4711,"tables":[[id,"python","torch_trace",next,pending_to,sent,lost],...]}
 *
 * One thread; one process: the lock lies beside the file, and who dies lets go of it.  The folder
 * must be ours (or root's) and closed to others' writing: whoever could change the file could have
 * rows left out.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/ship/ship.h"
#include "cli/terminal/atomic_output.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "sdk/lib/array.h"
#include "sdk/lib/hash.h"
#include "sdk/lib/json.h"

#define STATE_BYTES ((size_t)256 << 20)
#define LINE_BYTES ((size_t)8 << 20) /* of a source: 2,048 tables take 1 MB */
#define TABLE_NUMBERS 7
#define FORMAT 1

/* ---- what it holds ---- */

struct ship_source *ship_source_of(struct ship_state *s, const char *id, bool make)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (strcmp(s->sources[i]->id, id) == 0)
            return s->sources[i];
    if (!make || s->n == SHIP_SOURCES_MAX)
        return NULL;
    struct ship_source **more =
        array_grow(s->sources, s->n, &s->room, sizeof(struct ship_source *), UINT32_MAX);
    if (more == NULL)
        return NULL;
    s->sources = more;
    struct ship_source *one = calloc(1, sizeof(*one));
    if (one == NULL)
        return NULL;
    (void)snprintf(one->id, sizeof(one->id), "%s", id);
    one->member = UINT32_MAX;
    one->tags = (struct rank)RANK_UNKNOWN;
    s->sources[s->n++] = one;
    s->changed = true;
    return one;
}

struct ship_table *ship_table_of(struct ship_source *s, uint32_t id, bool make)
{
    for (uint32_t i = 0; i < s->n_tables; i++)
        if (s->tables[i].id == id)
            return &s->tables[i];
    if (!make || s->n_tables == SHIP_TABLES_MAX)
        return NULL;
    struct ship_table *more =
        array_grow(s->tables, s->n_tables, &s->room, sizeof(*more), UINT32_MAX);
    if (more == NULL)
        return NULL;
    s->tables = more;
    s->tables[s->n_tables] = (struct ship_table){.id = id};
    return &s->tables[s->n_tables++];
}

static void free_source(struct ship_source *s)
{
    free(s->tables);
    free(s);
}

/* ---- out ---- */

static void add_source(struct buf *out, const struct ship_source *s)
{
    const struct {
        const char *key, *text;
    } texts[] = {{"{\"id\":", s->id},
                 {",\"directory\":", s->directory},
                 {",\"host\":", s->tags.host},
                 {",\"job\":", s->tags.job},
                 {",\"role\":", s->tags.role}};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        (void)buf_adds(out, texts[i].key);
        (void)json_add_text(out, texts[i].text, strlen(texts[i].text));
    }
    (void)buf_addf(out, ",\"rank\":%lld,\"pid\":%lld,\"ended\":%s,\"tables\":[",
                   (long long)s->tags.rank, (long long)s->pid, s->ended ? "true" : "false");
    for (uint32_t i = 0; i < s->n_tables; i++) {
        const struct ship_table *t = &s->tables[i];
        (void)buf_addf(out, "%s[%u,\"%s\",\"%s\",%llu,%llu,%llu,%llu]", i > 0 ? "," : "", t->id,
                       t->schema, t->name, (unsigned long long)t->next,
                       (unsigned long long)t->pending_to, (unsigned long long)t->sent,
                       (unsigned long long)t->lost);
    }
    (void)buf_adds(out, "]}\n");
}

/* Is there nothing left to be known of it?  Its files have been removed, too. */
static bool is_over(const struct ship_source *s)
{
    return s->ended && s->directory[0] != '\0' && access(s->directory, F_OK) == -1 &&
           errno == ENOENT;
}

static void drop_sources(struct ship_state *s)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < s->n; i++)
        if (is_over(s->sources[i]))
            free_source(s->sources[i]);
        else
            s->sources[kept++] = s->sources[i];
    s->n = kept;
}

static int write_file(const struct ship_state *s, const struct buf *text)
{
    char part[300];
    (void)snprintf(part, sizeof(part), "%s.part", s->leaf);
    (void)unlinkat(s->dir, part,
                   0); /* of one who was killed: nobody else writes, we have the lock */
    int fd = openat(s->dir, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int rc = fd == -1 ? -errno : 0;

    for (size_t at = 0; rc == 0 && at < text->size;) {
        ssize_t n = write(fd, text->data + at, text->size - at);
        if (n == -1 && errno != EINTR)
            rc = -errno;
        at += n > 0 ? (size_t)n : 0;
    }
    if (rc == 0 && fsync(fd) == -1 && !output_never_syncs(errno))
        rc = -errno;
    if (fd != -1 && close(fd) == -1 && rc == 0)
        rc = -errno;
    if (rc == 0 && renameat(s->dir, part, s->dir, s->leaf) == -1)
        rc = -errno;
    if (rc == 0)
        (void)fsync(s->dir); /* some file systems cannot */
    if (rc < 0)
        (void)unlinkat(s->dir, part, 0);
    if (rc == 0)
        return 0;
    return err_set(rc == -ENOSPC || rc == -EDQUOT ? -EAGAIN : rc, /* there may be room later */
                   "the state file %s cannot be written: %s", s->leaf, output_why(-rc));
}

int ship_state_save(struct ship_state *s)
{
    const struct ship_totals *t = &s->totals;
    struct buf text;

    if (!s->changed)
        return 0;
    drop_sources(s);
    buf_init(&text, STATE_BYTES);
    (void)buf_addf(&text, "{\"probing_ship\":%d,\"destination\":", FORMAT);
    (void)json_add_text(&text, s->destination, strlen(s->destination));
    (void)buf_addf(&text,
                   ",\"rows\":%llu,\"lost\":%llu,\"batches\":%llu,\"refused\":%llu,"
                   "\"samples\":%llu,\"samples_refused\":%llu,\"samples_over\":%llu}\n",
                   (unsigned long long)t->rows, (unsigned long long)t->lost,
                   (unsigned long long)t->batches, (unsigned long long)t->refused,
                   (unsigned long long)t->samples, (unsigned long long)t->samples_refused,
                   (unsigned long long)t->samples_over);
    for (uint32_t i = 0; i < s->n; i++)
        add_source(&text, s->sources[i]);
    int rc = text.failed ? err_set(text.failed, "no memory for the state of %u processes", s->n)
                         : write_file(s, &text);
    buf_done(&text);
    s->changed = rc < 0;
    return rc;
}

/* ---- in ---- */

static int report_damage(const struct ship_state *s, const char *what)
{
    return err_set(-EBADMSG,
                   "the state file %s is damaged (%s); what was sent is not known: remove it to "
                   "send everything again, or name another by --state",
                   s->leaf, what);
}

static bool is_count(const struct json *j)
{
    return j != NULL && j->type == JSON_NUMBER && j->is_integer && j->integer >= 0;
}

static int take_table(const struct ship_state *s, struct ship_source *source, const struct json *j)
{
    const struct json *v[TABLE_NUMBERS];
    uint32_t n = 0;

    for (const struct json *one = j->type == JSON_ARRAY ? j->first : NULL;
         one != NULL && n < TABLE_NUMBERS; one = one->next)
        v[n++] = one;
    if (n != TABLE_NUMBERS || j->size != TABLE_NUMBERS || !is_count(v[0]) ||
        v[0]->integer > UINT32_MAX || v[1]->type != JSON_STRING || v[2]->type != JSON_STRING ||
        v[1]->size >= SHIP_NAME_BYTES || v[2]->size >= SHIP_NAME_BYTES ||
        !text_is_name(v[1]->text) || !text_is_name(v[2]->text) || !is_count(v[3]) ||
        !is_count(v[4]) || !is_count(v[5]) || !is_count(v[6]) ||
        v[4]->integer - v[3]->integer > SHIP_RANGE_ROWS)
        return report_damage(s, "a table that is none");
    struct ship_table *t = ship_table_of(source, (uint32_t)v[0]->integer, /* make= */ true);
    if (t == NULL)
        return report_damage(s, "too many tables");
    (void)snprintf(t->schema, sizeof(t->schema), "%s", v[1]->text);
    (void)snprintf(t->name, sizeof(t->name), "%s", v[2]->text);
    t->next = (uint64_t)v[3]->integer;
    t->pending_to = (uint64_t)v[4]->integer;
    t->tried = t->pending_to > t->next;
    t->sent = (uint64_t)v[5]->integer;
    t->lost = (uint64_t)v[6]->integer;
    return 0;
}

static int take_source(struct ship_state *s, const struct json *j)
{
    const char *id = json_text(j, "id", "");
    const struct json *ended = json_get(j, "ended"), *tables = json_get(j, "tables");
    int rc = 0;

    if (id[0] == '\0' || strlen(id) >= sizeof(((struct ship_source *)0)->id) || tables == NULL ||
        tables->type != JSON_ARRAY)
        return report_damage(s, "a process without an id or tables");
    struct ship_source *one = ship_source_of(s, id, /* make= */ true);
    if (one == NULL)
        return report_damage(s, "too many processes");
    (void)snprintf(one->directory, sizeof(one->directory), "%s", json_text(j, "directory", ""));
    (void)snprintf(one->tags.host, sizeof(one->tags.host), "%s", json_text(j, "host", ""));
    (void)snprintf(one->tags.job, sizeof(one->tags.job), "%s", json_text(j, "job", ""));
    (void)snprintf(one->tags.role, sizeof(one->tags.role), "%s", json_text(j, "role", ""));
    one->tags.rank = json_int(j, "rank", MEMBER_UNKNOWN);
    one->pid = json_int(j, "pid", 0);
    one->ended = ended != NULL && ended->type == JSON_BOOL && ended->boolean;
    for (const struct json *t = tables->first; t != NULL && rc == 0; t = t->next)
        rc = take_table(s, one, t);
    return rc;
}

static int take_head(struct ship_state *s, const struct json *j)
{
    const char *to = json_text(j, "destination", "");

    if (json_int(j, "probing_ship", 0) != FORMAT)
        return report_damage(s, "it is none of ship's, or of another version");
    if (strcmp(to, s->destination) != 0)
        return err_set(-EBADMSG,
                       "the state file %s is about %s, not %s: each destination needs one of its "
                       "own (--state)",
                       s->leaf, to, s->destination);
    s->totals = (struct ship_totals){.rows = (uint64_t)json_int(j, "rows", 0),
                                     .lost = (uint64_t)json_int(j, "lost", 0),
                                     .batches = (uint64_t)json_int(j, "batches", 0),
                                     .refused = (uint64_t)json_int(j, "refused", 0),
                                     .samples = (uint64_t)json_int(j, "samples", 0),
                                     .samples_refused = (uint64_t)json_int(j, "samples_refused", 0),
                                     .samples_over = (uint64_t)json_int(j, "samples_over", 0)};
    return 0;
}

static int take_line(struct ship_state *s, const char *line, size_t size, bool first)
{
    struct json_error bad;
    struct json *j = NULL;
    struct arena a;

    arena_init(&a, 16 * LINE_BYTES);
    int rc = size > LINE_BYTES                         ? report_damage(s, "a line without an end")
             : json_read(&a, line, size, &j, &bad) < 0 ? report_damage(s, bad.what)
             : first                                   ? take_head(s, j)
                                                       : take_source(s, j);
    arena_done(&a);
    return rc;
}

/* Our own file, and nobody else's: no link, no FIFO. */
static int read_state(struct ship_state *s)
{
    int fd = openat(s->dir, s->leaf, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), rc = 0;
    struct stat st;
    struct buf text;

    if (fd == -1 && errno == ENOENT)
        return 0;
    if (fd == -1 || fstat(fd, &st) == -1)
        rc = err_set(-errno, "the state file %s cannot be read: %s", s->leaf, strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        rc = err_set(-EPERM, "the state file %s is not a file of ours", s->leaf);
    buf_init(&text, STATE_BYTES);
    if (rc == 0)
        rc = file_read_fd(fd, s->leaf, &text);
    if (fd != -1)
        (void)close(fd);
    if (rc == 0 && (text.size == 0 || text.data[text.size - 1] != '\n'))
        rc = report_damage(s, "it ends in the middle");
    for (size_t at = 0; rc == 0 && at < text.size;) {
        const char *end = memchr(text.data + at, '\n', text.size - at);
        size_t n = (size_t)(end - (text.data + at));
        rc = take_line(s, text.data + at, n, at == 0);
        at += n + 1;
    }
    buf_done(&text);
    return rc;
}

/* ---- where ---- */

static int own_place(const char *destination, char *ret, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char root[800];

    if (state != NULL && state[0] == '/')
        (void)snprintf(root, sizeof(root), "%s", state);
    else if (home != NULL && home[0] == '/')
        (void)snprintf(root, sizeof(root), "%s/.local/state", home);
    else
        return err_set(-EINVAL, "neither XDG_STATE_HOME nor HOME is set: name a file by --state");
    for (char *at = strchr(root + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(root, 0700);
        *at = '/';
    }
    (void)mkdir(root, 0700);
    (void)snprintf(ret, size, "%s/probing", root);
    int rc = file_private_dir(ret);
    size_t n = strlen(ret);
    (void)snprintf(ret + n, size - n, "/ship-%016llx.json",
                   (unsigned long long)hash_text(HASH_FNV, destination));
    return rc;
}

/* Anybody who may write to the folder may put another file in our place. */
static int check_folder(int fd, const char *path)
{
    struct stat st;

    if (fstat(fd, &st) == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return err_set(-EPERM, "the folder %s of the state file is of uid %u, who could change it",
                       path, (unsigned)st.st_uid);
    if ((st.st_mode & 022) != 0 && (st.st_mode & S_ISVTX) == 0)
        return err_set(-EPERM,
                       "others may write to the folder %s of the state file (mode %o): choose one "
                       "that is yours, or chmod go-w",
                       path, (unsigned)(st.st_mode & 07777));
    return 0;
}

static int open_folder(const char *path, struct ship_state *ret)
{
    char folder[1024];
    const char *slash = strrchr(path, '/'), *leaf = slash != NULL ? slash + 1 : path;

    if (leaf[0] == '\0' || strlen(leaf) >= sizeof(ret->leaf) - 8 || strlen(path) >= sizeof(folder))
        return err_set(-EINVAL, "--state needs the name of a file, not '%.100s'", path);
    (void)snprintf(ret->leaf, sizeof(ret->leaf), "%.240s", leaf);
    (void)snprintf(folder, sizeof(folder), "%.*s",
                   slash == NULL   ? 1
                   : slash == path ? 1
                                   : (int)(slash - path),
                   slash == NULL ? "." : path);
    ret->dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret->dir == -1)
        return err_set(-errno, "the folder %s of the state file: %s", folder, strerror(errno));
    return check_folder(ret->dir, folder);
}

static int take_lock(struct ship_state *s)
{
    char name[300];
    struct stat st;

    (void)snprintf(name, sizeof(name), "%s.lock", s->leaf);
    s->lock = openat(s->dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (s->lock == -1 || fstat(s->lock, &st) == -1)
        return err_set(-errno, "the lock %s cannot be opened: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return err_set(-EPERM, "the lock %s is not a file of ours", name);
    if (flock(s->lock, LOCK_EX | LOCK_NB) == -1)
        return err_set(-EBUSY,
                       "another `probing ship` runs with the state file %s: two would send the "
                       "same rows twice",
                       s->leaf);
    return 0;
}

int ship_state_open(const char *path, const char *destination, struct ship_state *ret)
{
    char own[1200];
    int rc = 0;

    *ret = (struct ship_state){.dir = -1, .lock = -1, .destination = destination};
    if (path == NULL)
        rc = own_place(destination, own, sizeof(own));
    if (rc == 0)
        rc = open_folder(path != NULL ? path : own, ret);
    if (rc == 0)
        rc = take_lock(ret);
    if (rc == 0)
        rc = read_state(ret);
    if (rc == 0) {
        ret->changed = true;
        rc = ship_state_save(ret); /* that it cannot be written is found out before rows go */
    }
    if (rc < 0)
        ship_state_close(ret);
    return rc;
}

void ship_state_close(struct ship_state *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        free_source(s->sources[i]);
    free(s->sources);
    if (s->lock != -1)
        (void)close(s->lock);
    if (s->dir != -1)
        (void)close(s->dir);
    *s = (struct ship_state){.dir = -1, .lock = -1};
}
