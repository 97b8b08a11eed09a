/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/diff/diff_local.c - facts of the ranks of this machine: what the kernel says of each, and,
 * of those that have a core, what that and its plugins say.
 *
 * One thread.  A plugin says what it knows in a view or table FACTS of its schema: `name` and
 * `value`, both text.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/diff/diff.h"
#include "cli/many/query_members.h"
#include "cli/target/apart.h"
#include "cli/target/target.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/redact.h"
#include "sdk/lib/proc/proc_file.h"

#define FACTS "facts"
#define FILE_BYTES ((size_t)8 << 20)
#define ANSWER_BYTES ((size_t)8 << 20) /* of a rank: some thousand facts */
#define SCHEMAS_MAX 32

struct local {
    struct diff_found *found;
    struct members members;
    uint32_t first; /* of found->ranks: members.list[0] */
    bool *only;
    char schemas[SCHEMAS_MAX][64]; /* that have facts, in one rank at least */
    uint32_t n_schemas;
};

/* ---- what the kernel says ---- */

static int add_text(struct local *l, uint32_t i, const char *kind, const char *name,
                    const char *value)
{
    return diff_add(l->found, l->first + i, kind, name, value, strlen(value));
}

static bool read_of(pid_t pid, const char *file, struct buf *b)
{
    buf_reset(b);
    return apart_read(pid, file, b) == 0 && b->size > 0 && buf_addc(b, '\0') == 0;
}

static int add_environment(struct local *l, uint32_t i, struct buf *b)
{
    struct buf shown;
    int rc = 0;

    buf_init(&shown, FILE_BYTES);
    for (size_t at = 0; rc == 0 && at + 1 < b->size;) {
        char *one = b->data + at, *equals = strchr(one, '=');
        at += strlen(one) + 1;
        if (equals == NULL || equals == one)
            continue;
        *equals = '\0';
        buf_reset(&shown);
        if (secret_show(one, strlen(one), equals + 1, &shown) == 0)
            rc = add_text(l, i, "environment", one, buf_text(&shown));
    }
    buf_done(&shown);
    return rc;
}

static int add_command_line(struct local *l, uint32_t i, struct buf *b)
{
    struct buf shown;

    for (size_t at = 0; at + 2 < b->size; at++)
        if (b->data[at] == '\0')
            b->data[at] = ' ';
    buf_init(&shown, FILE_BYTES);
    (void)secret_text(b->data, strlen(b->data), &shown);
    int rc = add_text(l, i, "process", "command line", buf_text(&shown));
    buf_done(&shown);
    return rc;
}

/* "Max open files            1024                 524288               files     " */
static int add_limits(struct local *l, uint32_t i, struct buf *b)
{
    char *line, *rest = NULL, name[27], soft[24], hard[24], unit[24], value[100];
    int rc = 0;

    (void)strtok_r(b->data, "\n", &rest); /* the head */
    while (rc == 0 && (line = strtok_r(NULL, "\n", &rest)) != NULL) {
        unit[0] = '\0';
        if (sscanf(line, "Max %22[^\n]", name) != 1 || strlen(line) < 27 ||
            sscanf(line + 26, "%23s %23s %23s", soft, hard, unit) < 2)
            continue;
        for (size_t n = strlen(name); n > 0 && name[n - 1] == ' '; n--)
            name[n - 1] = '\0';
        (void)snprintf(value, sizeof(value), "%s%s%s, hard limit %s", soft,
                       unit[0] != '\0' ? " " : "", unit, hard);
        rc = add_text(l, i, "limits", name, value);
    }
    return rc;
}

/* "Cpus_allowed_list:\t0-1" */
static int add_status(struct local *l, uint32_t i, const struct buf *b)
{
    static const struct {
        const char *key, *name;
    } lines[] = {{"\nCpus_allowed_list:", "processors that it may use"},
                 {"\nMems_allowed_list:", "memory nodes that it may use"},
                 {"\nUid:", "user"},
                 {"\nSeccomp:", "seccomp"},
                 {"\nNoNewPrivs:", "no new privileges"},
                 {"\nTHP_enabled:", "transparent huge pages"}};
    char value[400];
    int rc = 0;

    for (size_t k = 0; rc == 0 && k < sizeof(lines) / sizeof(lines[0]); k++) {
        const char *at = strstr(b->data, lines[k].key);
        if (at == NULL)
            continue;
        at += strlen(lines[k].key);
        at += strspn(at, " \t");
        (void)snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\n"), at);
        rc = add_text(l, i, "process", lines[k].name, value);
    }
    return rc;
}

static int add_link(struct local *l, uint32_t i, pid_t pid, const char *file, const char *name)
{
    char path[PROC_PATH_BYTES], value[4096];

    proc_path(pid, 0, file, path);
    ssize_t n = readlink(path, value, sizeof(value) - 1);
    return n > 0 ? diff_add(l->found, l->first + i, "process", name, value, (size_t)n) : 0;
}

/* The first line of a file, or what stands behind a key in it. */
static int add_line(struct local *l, uint32_t i, const char *path, const char *key,
                    const char *name)
{
    struct buf b;
    int rc = 0;

    buf_init(&b, FILE_BYTES);
    if (file_read(AT_FDCWD, path, &b) == 0 && buf_addc(&b, '\0') == 0) {
        char *at = key != NULL ? strstr(b.data, key) : b.data;
        at = at != NULL && key != NULL ? strchr(at, ':') : at;
        if (at != NULL) {
            at += strspn(at, ": \t");
            at[strcspn(at, "\n")] = '\0';
            rc = add_text(l, i, "machine", name, at);
        }
    }
    buf_done(&b);
    return rc;
}

static int add_machine(struct local *l, uint32_t i)
{
    char text[64];
    struct utsname u;
    int rc = 0;

    if (uname(&u) == 0) {
        rc = add_text(l, i, "machine", "kernel", u.release);
        rc = rc == 0 ? add_text(l, i, "machine", "architecture", u.machine) : rc;
    }
    (void)snprintf(text, sizeof(text), "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    rc = rc == 0 ? add_text(l, i, "machine", "processors", text) : rc;
    /* Two machines of one make differ by some pages. */
    (void)snprintf(text, sizeof(text), "%.0f GB",
                   (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 1e9);
    rc = rc == 0 ? add_text(l, i, "machine", "memory", text) : rc;
    rc = rc == 0 ? add_line(l, i, "/proc/cpuinfo", "model name", "processor") : rc;
    rc = rc == 0
             ? add_line(l, i, "/sys/devices/system/clocksource/clocksource0/current_clocksource",
                        NULL, "clock source")
             : rc;
    return rc == 0 ? add_line(l, i, "/proc/driver/nvidia/version", "NVRM version", "NVIDIA driver")
                   : rc;
}

static int add_process(struct local *l, uint32_t i)
{
    const struct member *m = &l->members.list[i];
    pid_t pid = m->target.pid;
    int64_t step;
    struct buf b;

    if (pid <= 0 || m->target.host[0] != '\0')
        return 0; /* of another machine: what its core says is all */
    int rc = add_machine(l, i);
    if (rc == 0 && m->target.kind != TARGET_BARE && member_clock_step(&m->target, &step) == 0)
        rc = diff_add_clock(l->found, l->first + i, "core", step, 0, "its machine's");
    buf_init(&b, FILE_BYTES);
    if (rc == 0 && read_of(pid, "environ", &b))
        rc = add_environment(l, i, &b);
    if (rc == 0 && read_of(pid, "cmdline", &b)) {
        rc = diff_script(l->found, l->first + i, pid, b.data, b.size - 1);
        diff_hide_place(b.data, b.size - 1);
        rc = rc == 0 ? add_command_line(l, i, &b) : rc;
    }
    if (rc == 0 && read_of(pid, "limits", &b))
        rc = add_limits(l, i, &b);
    if (rc == 0 && read_of(pid, "status", &b))
        rc = add_status(l, i, &b);
    if (rc == 0)
        rc = add_link(l, i, pid, "exe", "program");
    if (rc == 0)
        rc = add_link(l, i, pid, "cwd", "directory");
    buf_done(&b);
    return rc;
}

/* ---- what cores say ---- */

static bool text_at(const struct answer_rows *rows, uint32_t row, uint32_t column, char *ret,
                    size_t size, struct sql_value *v)
{
    answer_rows_value(rows, row, column, v);
    if (v->type != SQL_TEXT)
        return false;
    if (ret != NULL)
        (void)snprintf(ret, size, "%.*s", (int)(v->text.size < size ? v->text.size : size),
                       v->text.data);
    return true;
}

/* kind, name, value */
static int take_facts(void *arg, const struct member *m, const struct answer_rows *rows)
{
    struct local *l = arg;
    uint32_t rank = l->first + (uint32_t)(m - l->members.list);
    char kind[64], name[300];
    struct sql_value v;
    int rc = 0;

    if (answer_rows_columns(rows) != 3)
        return err_set(-EBADMSG, "its answer has %u columns, not 3", answer_rows_columns(rows));
    for (uint32_t row = 0; rc == 0 && row < answer_rows_count(rows); row++)
        if (text_at(rows, row, 0, kind, sizeof(kind), &v) &&
            text_at(rows, row, 1, name, sizeof(name), &v) && text_at(rows, row, 2, NULL, 0, &v))
            rc = diff_add(l->found, rank, kind, name, v.text.data, v.text.size);
    return rc;
}

static bool is_plain(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");

    return n > 0 && name[n] == '\0';
}

static int take_schema(void *arg, const struct member *m, const struct answer_rows *rows)
{
    struct local *l = arg;
    char name[64];
    struct sql_value v;

    (void)m;
    if (answer_rows_columns(rows) != 1)
        return err_set(-EBADMSG, "its answer has %u columns, not 1", answer_rows_columns(rows));
    for (uint32_t row = 0; row < answer_rows_count(rows); row++) {
        bool known = !text_at(rows, row, 0, name, sizeof(name), &v) || !is_plain(name);
        for (uint32_t i = 0; i < l->n_schemas && !known; i++)
            known = strcmp(l->schemas[i], name) == 0;
        if (!known && l->n_schemas < SCHEMAS_MAX)
            memcpy(l->schemas[l->n_schemas++], name, sizeof(name));
    }
    return 0;
}

static int query_cores(struct local *l, const struct cluster_options *o, const char *statement,
                       int (*rows)(void *arg, const struct member *m,
                                   const struct answer_rows *rows))
{
    const struct members_sink sink = {.arg = l, .rows = rows};
    const struct members_ask ask = {.statement = statement,
                                    .timeout_ns = o->timeout_ns,
                                    .max_bytes = ANSWER_BYTES,
                                    .only = l->only};
    uint32_t n = 0;

    for (uint32_t i = 0; i < l->members.n; i++)
        n += l->only[i];
    return n > 0 ? members_query(&l->members, &ask, &sink) : 0;
}

/* Ask a member that did not answer nothing more, and say what of it is not known. */
static void drop_silent(struct local *l, const char *what)
{
    for (uint32_t i = 0; i < l->members.n; i++) {
        const struct member *m = &l->members.list[i];
        struct rank *r = &l->found->ranks.list[l->first + i];
        if (!l->only[i] || m->result.state == MEMBER_ANSWERED)
            continue;
        (void)snprintf(r->why, sizeof(r->why), "%s are not known: %.300s", what, m->result.why);
        l->only[i] = false;
    }
}

static int ask_cores(struct local *l, const struct cluster_options *o)
{
    char statement[300], what[100];
    int rc = query_cores(
        l, o,
        "select 'settings' as kind, name, value::text as value from probing.settings "
        "union all select 'plugins', name, coalesce(version, '?') || ', ' || state from "
        "probing.plugins union all select 'scripts', name, state from "
        "probing.scripts",
        take_facts);

    drop_silent(l, "settings, plugins and versions");
    if (rc == 0)
        rc = query_cores(
            l, o,
            "select table_schema from information_schema.tables where table_name = '" FACTS "'",
            take_schema);
    for (uint32_t i = 0; rc == 0 && i < l->n_schemas; i++) {
        (void)snprintf(statement, sizeof(statement),
                       "select '%s' as kind, name::text as name, value::text as value from "
                       "%s." FACTS,
                       l->schemas[i], l->schemas[i]);
        (void)snprintf(what, sizeof(what), "%.60s." FACTS, l->schemas[i]);
        rc = query_cores(l, o, statement, take_facts);
        for (uint32_t k = 0; k < l->members.n; k++) {
            struct rank *r = &l->found->ranks.list[l->first + k];
            const struct member_result *result = &l->members.list[k].result;
            if (l->only[k] && result->state != MEMBER_ANSWERED)
                (void)snprintf(r->why, sizeof(r->why), "%s is not known: %.250s", what,
                               result->why);
        }
    }
    return rc;
}

/* ---- who ---- */

/* job: whose ranks they are; NULL: that was not asked. */
static int add_ranks(struct local *l, const struct rank *job)
{
    l->first = l->found->ranks.n;
    l->only = calloc(l->members.n + 1, sizeof(*l->only));
    if (l->only == NULL)
        return err_set(-ENOMEM, "no memory for %u ranks", l->members.n);
    for (uint32_t i = 0; i < l->members.n; i++) {
        const struct member *m = &l->members.list[i];
        struct rank *r = ranks_add(&l->found->ranks);
        if (r == NULL)
            return -ENOMEM;
        (void)snprintf(r->host, sizeof(r->host), "%s", m->tags.host);
        r->rank = m->tags.rank;
        r->pid = m->target.pid > 0 ? m->target.pid : MEMBER_UNKNOWN;
        if (job != NULL) {
            memcpy(r->job, job->job, sizeof(r->job));
            memcpy(r->master, job->master, sizeof(r->master));
            r->world_size = job->world_size;
        }
        l->only[i] = m->error == 0 && m->target.kind == TARGET_LIVE;
        if (!l->only[i])
            (void)snprintf(r->why, sizeof(r->why),
                           "settings, plugins and versions are not known: %.300s",
                           m->error < 0                    ? m->result.why
                           : m->target.kind == TARGET_BARE ? "it has not been entered"
                           : m->target.stopped             ? "it is stopped"
                                                           : "it has ended");
    }
    return 0;
}

int diff_local(const struct cluster_options *o, struct diff_found *f,
               int (*fn)(void *arg, const char *host, const struct remote_run *run,
                         const char *why))
{
    struct local l = {.found = f};
    struct ranks r = {.n = 0};
    int rc = o->targets != NULL ? cluster_ask_targets(o, &l.members, fn, f)
                                : members_find_job(o->job, &r, &l.members);

    if (rc == 0 && l.members.n > 0) {
        rc = members_identify(&l.members, o->timeout_ns, o->at_once);
        rc = rc == 0 ? add_ranks(&l, r.n > 0 ? &r.list[0] : NULL) : rc;
        for (uint32_t i = 0; rc == 0 && i < l.members.n; i++)
            rc = add_process(&l, i);
        rc = rc == 0 ? ask_cores(&l, o) : rc;
    }
    members_done(&l.members);
    free(l.only);
    ranks_done(&r);
    return rc;
}
