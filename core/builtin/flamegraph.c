/* SPDX-License-Identifier: Apache-2.0
 *
 * core/builtin/flamegraph.c - the command "flamegraph": what a plugin's mode draws, as a picture or
 * as folded stacks.  HTTP shows it as /flamegraph.
 *
 * Threads: workers, one profile each, of bounded memory.  It samples nothing itself: that changes
 * the process, and this may be asked by who may only read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/builtin/builtin.h"
#include "core/flame/flame.h"
#include "core/plugin_file/declared.h"
#include "core/plugin_host/plugin_host.h"
#include "core/sql/sql.h"

#define PROFILE_MAX_BYTES ((size_t)64 << 20) /* the host's memory */
#define FILE_MAX_BYTES ((size_t)64 << 20)
#define QUERY_NS (20 * NS_PER_S)
#define NEWEST_BYTES 64                     /* of a time as text */
#define STACK_TEXT_BYTES ((size_t)64 << 10) /* of folded frames: long ones of C++, 200 deep */

struct options {
    int (*make)(const struct flame_tree *tree, struct buf *out);
    const char *mode; /* NULL: what is drawn where none is named */
    uint64_t last_ns;
    bool threads, lines;
    int width; /* pixels of an SVG */
};

static int take_value(struct options *o, const char *option, const char *value)
{
    static const struct {
        const char *name;
        int (*make)(const struct flame_tree *tree, struct buf *out);
    } formats[] = {{"html", flame_html}, {"svg", flame_svg}, {"folded", flame_folded}};

    if (strcmp(option, "--last") == 0)
        return parse_ns(value, &o->last_ns);
    if (strcmp(option, "--width") == 0) {
        uint64_t width;
        if (parse_u64(value, &width) < 0 || width < FLAME_WIDTH_MIN || width > FLAME_WIDTH_MAX)
            return err_set(-EINVAL, "--width needs pixels from %d to %d", FLAME_WIDTH_MIN,
                           FLAME_WIDTH_MAX);
        o->width = (int)width;
        return 0;
    }
    if (strcmp(option, "--mode") == 0) {
        o->mode = value;
        return 0;
    }
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(formats[i].name, value) == 0) {
            o->make = formats[i].make;
            return 0;
        }
    return err_set(-EINVAL, "unknown format '%.40s'; use one of html, svg, folded", value);
}

static int read_args(int argc, const char *const *argv, struct options *ret)
{
    static const char *const options[] = {"--format", "--mode",    "--last",
                                          "--width",  "--threads", "--lines"};
    int rc = 0;

    *ret = (struct options){.make = flame_html, .width = FLAME_WIDTH};
    for (int i = 1; i < argc && rc == 0; i++) {
        if (strcmp(argv[i], "--threads") == 0) {
            ret->threads = true;
        } else if (strcmp(argv[i], "--lines") == 0) {
            ret->lines = true;
        } else if (strcmp(argv[i], "--format") == 0 || strcmp(argv[i], "--mode") == 0 ||
                   strcmp(argv[i], "--last") == 0 || strcmp(argv[i], "--width") == 0) {
            rc = i + 1 < argc ? take_value(ret, argv[i], argv[i + 1])
                              : err_set(-EINVAL, "%s needs a value", argv[i]);
            i++;
        } else {
            const char *near = text_nearest(argv[i], options, 6);
            rc = near ? err_set(-EINVAL, "flamegraph has no option '%.40s'; did you mean '%s'?",
                                argv[i], near)
                      : err_set(-EINVAL, "flamegraph has no option '%.40s'", argv[i]);
        }
    }
    return rc;
}

/* ---- rows ---- */

struct reading {
    struct flame *flame;
    int (*row)(struct flame *f, const struct sql_rows *rows, uint32_t row);
};

static int take_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    (void)arg, (void)columns, (void)n;
    return 0;
}

static int take_rows(void *arg, const struct sql_rows *rows)
{
    struct reading *reading = arg;
    int rc = 0;
    for (uint32_t i = 0; i < sql_rows_count(rows) && rc == 0; i++)
        rc = reading->row(reading->flame, rows, i);
    return rc;
}

static int64_t cell_number(const struct sql_rows *rows, uint32_t row, uint32_t column)
{
    struct sql_value v;
    sql_rows_value(rows, row, column, &v);
    return v.type == SQL_INT ? v.integer : v.type == SQL_DOUBLE ? (int64_t)v.number : 0;
}

static const char *cell_text(const struct sql_rows *rows, uint32_t row, uint32_t column, char *room,
                             size_t size)
{
    struct sql_value v;
    sql_rows_value(rows, row, column, &v);
    (void)snprintf(room, size, "%.*s", v.type == SQL_TEXT ? (int)v.text.size : 0,
                   v.type == SQL_TEXT ? v.text.data : "");
    return room;
}

static int stack_row(struct flame *f, const struct sql_rows *rows, uint32_t row)
{
    char kind[16], func[1024], file[4096], module[4096];
    const struct flame_frame frame = {
        .python = strcmp(cell_text(rows, row, 2, kind, sizeof(kind)), "python") == 0,
        .func = cell_text(rows, row, 3, func, sizeof(func)),
        .file = cell_text(rows, row, 4, file, sizeof(file)),
        .line = (int32_t)cell_number(rows, row, 5),
        .module = cell_text(rows, row, 6, module, sizeof(module))};
    int rc = flame_add_stack(f, cell_number(rows, row, 0));
    return rc < 0 ? rc : flame_add_frame(f, &frame);
}

static int sample_row(struct flame *f, const struct sql_rows *rows, uint32_t row)
{
    char name[256];
    const struct flame_sample s = {.thread = cell_number(rows, row, 1),
                                   .thread_name = cell_text(rows, row, 2, name, sizeof(name)),
                                   .value = cell_number(rows, row, 4),
                                   .count = cell_number(rows, row, 5)};
    return flame_add_sample(f, cell_number(rows, row, 3), &s);
}

static int ask_sink(struct core *c, const char *sql, const struct sql_sink *sink,
                    struct probing_reply *out)
{
    struct sql_options o = {
        .timeout_ns = QUERY_NS, .cancel = &out->cancelled, .hide_secrets = out->read_only};
    struct sql_report report;
    return sql_run(c->sql, sql, strlen(sql), &o, sink, &report);
}

static int run_select(struct core *c, const char *sql, struct reading *reading,
                      struct probing_reply *out)
{
    struct sql_sink sink = {.arg = reading, .columns = take_columns, .rows = take_rows};
    return ask_sink(c, sql, &sink, out);
}

/* A mode of samples. */
static int read_samples(struct core *c, struct flame *f, const struct probing_flame *mode,
                        const char *when, struct probing_reply *out)
{
    struct reading reading = {.flame = f, .row = sample_row};
    struct buf sql, samples;

    buf_init(&sql, 8 * (size_t)DECLARED_SQL_BYTES);
    buf_init(&samples, 8 * (size_t)DECLARED_SQL_BYTES);
    int rc = declared_sql(mode->sql, when, &samples);
    flame_ask_samples(buf_text(&samples), /* in_time= */ false, &sql);
    if (rc == 0)
        rc = run_select(c, buf_text(&sql), &reading, out);
    buf_reset(&sql);
    if (rc == 0)
        rc = declared_sql(mode->stacks, when, &sql);
    reading.row = stack_row;
    if (rc == 0)
        rc = run_select(c, buf_text(&sql), &reading, out);
    buf_done(&sql);
    buf_done(&samples);
    return rc == 0 ? flame_join(f) : rc;
}

/* The program's words with blanks between. */
static void read_command(char *ret, size_t size)
{
    struct buf text;
    buf_init(&text, 1u << 20);
    ret[0] = '\0';
    if (file_read(AT_FDCWD, "/proc/self/cmdline", &text) == 0) {
        for (size_t i = 0; i + 1 < text.size; i++)
            if (((char *)text.data)[i] == '\0')
                ((char *)text.data)[i] = ' ';
        (void)snprintf(ret, size, "%.*s", (int)(text.size < size ? text.size : size),
                       (const char *)text.data);
    }
    buf_done(&text);
}

static int write_picture(const struct options *o, struct flame *f, struct probing_reply *out)
{
    struct flame_tree tree;
    struct buf file;
    int rc = flame_tree_new(f, &tree);

    if (rc < 0)
        return rc;
    flame_tree_sort(&tree);
    buf_init(&file, FILE_MAX_BYTES);
    rc = o->make(&tree, &file);
    if (rc == 0)
        rc = out->write(out, file.data, file.size);
    buf_done(&file);
    flame_tree_done(&tree);
    return rc;
}

/* ---- modes that plugins declare ---- */

struct search {
    struct core *core;
    const char *name; /* NULL: the default */
    const struct probing_flame *found;
    bool is_set; /* the plugin takes samples of this one */
};

/* "mode=cpu" of plugin profile: is profile.mode that? */
static bool is_set(struct core *c, const char *plugin, const char *setting)
{
    char name[2 * DECLARED_NAME_BYTES];
    const char *equals = setting ? strchr(setting, '=') : NULL;
    struct buf value;

    if (!equals)
        return false;
    (void)snprintf(name, sizeof(name), "%s.%.*s", plugin, (int)(equals - setting), setting);
    buf_init(&value, DECLARED_NAME_BYTES);
    bool is =
        host_config_get(c->host, name, &value) >= 0 && strcmp(buf_text(&value), equals + 1) == 0;
    buf_done(&value);
    err_clear();
    return is;
}

/* The default of a plugin that has one is what it is set to. */
static void find_default(struct search *s, const struct declared *d)
{
    bool any = false;
    for (uint32_t i = 0; i < d->all.n_flames; i++)
        any = any || (d->all.flames[i].flags & PROBING_FLAME_DEFAULT);
    for (uint32_t i = 0; i < d->all.n_flames && any && !s->is_set; i++) {
        const struct probing_flame *f = &d->all.flames[i];
        s->is_set = is_set(s->core, d->plugin, f->setting);
        if (s->is_set || (f->flags & PROBING_FLAME_DEFAULT))
            s->found = f;
    }
}

static int find_in(void *arg, const struct declared *d)
{
    struct search *s = arg;
    if (!s->name)
        find_default(s, d);
    for (uint32_t i = 0; i < d->all.n_flames && s->name; i++)
        if (strcmp(d->all.flames[i].name, s->name) == 0)
            s->found = &d->all.flames[i];
    return 0;
}

struct calls_answer {
    struct flame_calls *calls;
    char *stack;        /* STACK_TEXT_BYTES */
    uint32_t n, wanted; /* columns; wanted 0: 2 or 6 */
};

static int calls_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct calls_answer *a = arg;
    (void)columns;
    a->n = n;
    return n == a->wanted || (a->wanted == 0 && (n == 2 || n == 6))
               ? 0
               : err_set(-EINVAL, "a select of this mode gives %u columns", n);
}

static double cell_real(const struct sql_rows *rows, uint32_t row, uint32_t column)
{
    struct sql_value v;
    sql_rows_value(rows, row, column, &v);
    return v.type == SQL_DOUBLE ? v.number : v.type == SQL_INT ? (double)v.integer : 0;
}

static int call_row(const struct calls_answer *a, const struct sql_rows *rows, uint32_t row)
{
    char track[160], via[160], *stack = a->stack;
    (void)cell_text(rows, row, 0, stack, STACK_TEXT_BYTES);
    if (a->wanted)
        return flame_calls_rest(a->calls, stack, cell_real(rows, row, 1), cell_real(rows, row, 2));
    struct flame_call call = {.stack = stack, .value = cell_real(rows, row, 1)};
    if (a->n == 6) {
        call.track = cell_text(rows, row, 2, track, sizeof(track));
        call.end_ns = cell_number(rows, row, 3);
        struct sql_value duration;
        sql_rows_value(rows, row, 4, &duration);
        call.duration_ns = duration.type == SQL_NULL ? -1 : cell_number(rows, row, 4);
        call.via = cell_text(rows, row, 5, via, sizeof(via));
        call.via = via[0] ? via : NULL;
    }
    return flame_calls_add(a->calls, &call);
}

static int calls_rows(void *arg, const struct sql_rows *rows)
{
    int rc = 0;
    for (uint32_t i = 0; i < sql_rows_count(rows) && rc == 0; i++)
        rc = call_row(arg, rows, i);
    return rc;
}

static int ask_calls(struct core *c, const char *template, const char *when, struct calls_answer *a,
                     struct probing_reply *out)
{
    struct sql_sink sink = {.arg = a, .columns = calls_columns, .rows = calls_rows};
    struct buf sql;
    buf_init(&sql, 8 * (size_t)DECLARED_SQL_BYTES);
    int rc = declared_sql(template, when, &sql);
    if (rc == 0)
        rc = ask_sink(c, buf_text(&sql), &sink, out);
    buf_done(&sql);
    return rc;
}

static int read_calls(struct core *c, struct flame *f, const struct probing_flame *mode,
                      const char *when, struct probing_reply *out)
{
    struct calls_answer a = {.wanted = 0};
    int rc = flame_calls_new(f, &a.calls);
    if (rc == 0 && !(a.stack = malloc(STACK_TEXT_BYTES)))
        rc = err_set(-ENOMEM, "no memory for stacks");
    if (rc == 0)
        rc = ask_calls(c, mode->sql, when, &a, out);
    a.wanted = 3;
    if (rc == 0 && mode->rest && flame_calls_any(a.calls))
        rc = ask_calls(c, mode->rest, when, &a, out);
    if (rc == 0)
        rc = flame_calls_end(a.calls);
    flame_calls_free(a.calls);
    free(a.stack);
    return rc;
}

static int missing_rows(void *arg, const struct sql_rows *rows)
{
    struct flame *f = arg;
    if (sql_rows_count(rows) > 0 && !f->missing[0])
        (void)cell_text(rows, 0, 0, f->missing, sizeof(f->missing));
    return 0;
}

static void read_missing(struct core *c, struct flame *f, const struct probing_flame *mode,
                         const char *when, struct probing_reply *out)
{
    struct sql_sink sink = {.arg = f, .columns = take_columns, .rows = missing_rows};
    struct buf sql;
    if (!mode->missing)
        return;
    buf_init(&sql, 8 * (size_t)DECLARED_SQL_BYTES);
    if (declared_sql(mode->missing, when, &sql) < 0 || ask_sink(c, buf_text(&sql), &sink, out) < 0)
        err_clear();
    buf_done(&sql);
}

static int first_text(void *arg, const struct sql_rows *rows)
{
    if (sql_rows_count(rows) > 0)
        (void)cell_text(rows, 0, 0, arg, NEWEST_BYTES);
    return 0;
}

/* The newest sample's time is read once, as samples come while the statements run, and all of those
 * must be about the same samples. */
static void tell_when(struct core *c, const struct probing_flame *mode, uint64_t last_ns, char *ret,
                      size_t size, struct probing_reply *out)
{
    char sql[DECLARED_LINE_BYTES + 40], newest[NEWEST_BYTES] = "";
    struct sql_sink sink = {.arg = newest, .columns = take_columns, .rows = first_text};
    (void)snprintf(sql, sizeof(sql), "select (%s)::text", mode->newest);
    if (ask_sink(c, sql, &sink, out) < 0)
        err_clear(); /* the statement of samples says what is wrong */
    (void)snprintf(ret, size, "ts > %s%s%s - interval '%.3f seconds'",
                   newest[0] ? "timestamp '" : "(", newest[0] ? newest : mode->newest,
                   newest[0] ? "'" : ")", (double)last_ns / NS_PER_S);
}

static int read_mode(struct core *c, struct flame *f, const struct probing_flame *mode,
                     uint64_t last_ns, struct probing_reply *out)
{
    char when[DECLARED_LINE_BYTES + 80] = "true";

    if (last_ns > 0 && !mode->newest)
        return err_set(-EINVAL, "mode %s takes no --last", mode->name);
    if (last_ns > 0)
        tell_when(c, mode, last_ns, when, sizeof(when), out);
    read_missing(c, f, mode, when, out);
    int rc = mode->stacks ? read_samples(c, f, mode, when, out) : read_calls(c, f, mode, when, out);
    if (rc == 0 && f->n_samples == 0 && f->n_lost > 0)
        return err_set(-ENOENT,
                       "mode %s: the stacks of all %lld samples were taken away by "
                       "retention",
                       mode->name, (long long)f->n_lost);
    if (rc == 0 && f->n_samples == 0)
        rc = err_set(-ENOENT, "mode %s: %s", mode->name,
                     f->missing[0] ? f->missing
                     : mode->empty ? mode->empty
                                   : "there is nothing to draw");
    return rc;
}

static int mode_of(struct core *c, const struct options *o, const struct probing_flame **ret)
{
    struct search s = {.core = c, .name = o->mode};
    (void)host_declared_each(c->host, /* stopped= */ true, find_in, &s);
    *ret = s.found;
    if (s.found)
        return 0;
    if (!o->mode)
        return err_set(-ENOENT, "nothing has been sampled here: no plugin is loaded that draws "
                                "flame graphs by default; plugin load profile, then try again");
    return err_set(-EINVAL,
                   "no mode '%.40s' of plugins that are loaded; probing.flame_modes has "
                   "those",
                   s.name);
}

static int draw_mode(struct core *c, const struct options *o, const struct probing_flame *mode,
                     struct probing_reply *out)
{
    struct flame f;
    char title[600 + FLAME_LOST_BYTES], lost[FLAME_LOST_BYTES], command[256], who[16];

    flame_init(&f, PROFILE_MAX_BYTES);
    f.mode = mode->unit == PROBING_BYTES ? "memory" : mode->name;
    f.tails = !mode->stacks;
    f.threads = o->threads;
    f.lines = o->lines;
    f.width = o->width;
    read_command(command, sizeof(command));
    (void)snprintf(who, sizeof(who), "%d", (int)getpid());
    flame_title(title, sizeof(title), command, who, mode->doc);
    f.title = title;
    int rc = read_mode(c, &f, mode, o->last_ns, out);
    flame_tell_lost(&f, lost, sizeof(lost));
    if (lost[0] != '\0')
        (void)snprintf(title + strlen(title), sizeof(title) - strlen(title), " (%s)", lost);
    out->clean = true; /* hidden where it comes from */
    if (rc == 0)
        rc = write_picture(o, &f, out);
    flame_done(&f);
    return rc;
}

static int run_flamegraph(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct core *c = self;
    struct options o;
    const struct probing_flame *mode = NULL;
    int rc = read_args(argc, argv, &o);

    if (rc == 0)
        rc = mode_of(c, &o, &mode);
    return rc < 0 ? rc : draw_mode(c, &o, mode, out);
}

int flamegraph_command_add(struct core *c)
{
    static const struct probing_command command = {
        .size = sizeof(command),
        .name = "flamegraph",
        .usage = "[--format html|svg|folded] [--mode NAME] [--last S] [--width PIXELS] "
                 "[--threads] [--lines]",
        .doc = "where the time went: what a mode of probing.flame_modes draws",
        .run = run_flamegraph};
    return host_command_add(c->host, "probing", &command, c);
}
