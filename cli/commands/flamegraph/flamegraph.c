/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/flamegraph/flamegraph.c - `flamegraph`: where the time goes, as a file to look at;
 * and `diff` of two.
 *
 * One thread.  What there is to draw plugins declare (flame_modes.c); it comes from the tables of
 * the process, living or dead.  Where the plugin that takes samples does not run it is started for
 * the time asked, and put back as it was.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/commands/commands.h"
#include "cli/commands/flamegraph/flame.h"
#include "cli/export/export.h"
#include "cli/link/link.h"
#include "cli/target/datadir.h"
#include "cli/target/no_core.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/atomic_output.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "core/plugin_file/declared.h"

#define DEFAULT_NS (5 * NS_PER_S)
#define SETTLE_MS 250 /* until the last samples are in the tables; the profiler's turn is 100 */
#define FILE_MAX ((size_t)3 << 30)

enum format { HTML, SVG, FOLDED, SPEEDSCOPE, PPROF, PERFETTO, CHROME };
static const struct {
    const char *name, *ending;
    bool in_time; /* wants samples one by one */
} formats[] = {
    [HTML] = {"html", ".html", false},       [SVG] = {"svg", ".svg", false},
    [FOLDED] = {"folded", ".folded", false}, [SPEEDSCOPE] = {"speedscope", ".json", true},
    [PPROF] = {"pprof", ".pb", false},       [PERFETTO] = {"perfetto", ".pftrace", true},
    [CHROME] = {"chrome", ".trace", true},
};
#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

struct options {
    const char *words[3]; /* "diff" A B */
    int n_arguments;
    const char *path, *mode, *rate, *since;
    uint64_t seconds_ns, last_ns;
    enum format format;
    bool has_format, threads, lines, memory;
    int width; /* pixels of an SVG; 0: as usual */
};

/* ---- the words ---- */

static int take_format(struct options *o, const char *value)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, value) == 0) {
            o->format = (enum format)i;
            o->has_format = true;
            return 0;
        }
    return err_set(
        -EINVAL,
        "unknown format '%s'; use one of html, svg, folded, speedscope, pprof, perfetto, "
        "chrome",
        value);
}

static int take_width(struct options *o, const char *value)
{
    uint64_t width;
    if (parse_u64(value, &width) < 0 || width < FLAME_WIDTH_MIN || width > FLAME_WIDTH_MAX)
        return err_set(-EINVAL, "--width needs pixels from %d to %d, not '%s'", FLAME_WIDTH_MIN,
                       FLAME_WIDTH_MAX, value);
    o->width = (int)width;
    return 0;
}

static int take_since(struct options *o, const char *value)
{
    int64_t ts;
    if (sql_parse_timestamp(value, strlen(value), &ts) < 0)
        return err_set(-EINVAL, "--since needs a time in UTC like 2026-01-31T10:00:00, not '%s'",
                       value);
    o->since = value;
    return 0;
}

static int parse_option(void *arg, const char *option, const char *value)
{
    struct options *o = arg;
    if (option == NULL) {
        if (o->n_arguments == 3)
            return err_set(-EINVAL, "flamegraph: unexpected argument '%s'", value);
        o->words[o->n_arguments++] = value;
        return 0;
    }
    if (strcmp(option, "--seconds") == 0)
        return cli_take_time(option, value, &o->seconds_ns);
    if (strcmp(option, "--last") == 0)
        return parse_ns(value, &o->last_ns);
    if (strcmp(option, "--since") == 0)
        return take_since(o, value);
    if (strcmp(option, "--format") == 0)
        return take_format(o, value);
    if (strcmp(option, "--width") == 0)
        return take_width(o, value);
    if (strcmp(option, "--mode") == 0)
        o->mode = value;
    else if (strcmp(option, "--rate") == 0)
        o->rate = value;
    else if (strcmp(option, "--output") == 0)
        o->path = value;
    else if (strcmp(option, "--threads") == 0)
        o->threads = true;
    else if (strcmp(option, "--memory") == 0)
        o->memory = true;
    else
        o->lines = true;
    return 0;
}

static bool ends_with(const char *path, size_t n, const char *ending)
{
    size_t size = ending != NULL ? strlen(ending) : n;
    return n > size && strncmp(path + n - size, ending, size) == 0;
}

/* Without --format the file's name says it. */
static void guess_format(struct options *o)
{
    static const char *const other_endings[N_FORMATS] = {[PERFETTO] = ".perfetto"};
    size_t n = o->path != NULL ? output_stem(o->path) : 0;
    for (size_t i = 0; i < N_FORMATS && !o->has_format; i++)
        if (ends_with(o->path, n, formats[i].ending) || ends_with(o->path, n, other_endings[i])) {
            o->format = (enum format)i;
            o->has_format = true;
        }
}

/* The mode that is asked for, by a word or by --mode; NULL: none is. */
static const char *mode_word(const struct options *o)
{
    return o->n_arguments == 1 && strcmp(o->words[0], "diff") != 0 ? o->words[0] : o->mode;
}

static int check_words(const struct options *o, bool has_target)
{
    if (o->n_arguments > 1 && strcmp(o->words[0], "diff") != 0)
        return err_set(-EINVAL, "flamegraph takes one mode, not '%s'; did you mean diff A B?",
                       o->words[1]);
    if (o->n_arguments == 1 && o->mode != NULL && strcmp(o->words[0], "diff") != 0)
        return err_set(-EINVAL, "flamegraph takes one mode, '%s' or --mode %s", o->words[0],
                       o->mode);
    if (o->n_arguments > 0 && strcmp(o->words[0], "diff") == 0 && o->n_arguments != 3)
        return err_set(-EINVAL, "flamegraph diff needs two sources, each a pid, a data directory "
                                "or a file of folded stacks");
    if (o->memory && mode_word(o) == NULL)
        return err_set(-EINVAL, "--memory belongs to a mode: flamegraph MODE --memory");
    if (o->n_arguments < 3 && !has_target)
        return err_set(-EINVAL, "flamegraph needs a target: probing -t <pid> flamegraph");
    if (o->width != 0 && o->format != SVG)
        return err_set(-EINVAL, "--width works with svg only; html is as wide as its window");
    return 0;
}

/* Nobody reads HTML on a terminal: it goes into a file of this directory that is not there yet. */
static void choose_path(struct options *o, pid_t pid)
{
    static char path[64];
    char number[16] = "", again[16] = "";
    struct stat st;
    if (o->path != NULL || o->format == FOLDED || isatty(STDOUT_FILENO) != 1)
        return;
    if (pid != 0)
        (void)snprintf(number, sizeof(number), "-%d", (int)pid);
    for (int i = 2; o->path == NULL; i++) {
        (void)snprintf(path, sizeof(path), "flamegraph%s%s%s", number, again,
                       formats[o->format].ending);
        (void)snprintf(again, sizeof(again), "-%d", i);
        if (lstat(path, &st) == -1)
            o->path = path;
    }
}

/* ---- samples from now on ---- */

/* Sample for the time asked.  ret_when: the condition that takes just these samples. */
static int profile_now(const struct target *t, const struct options *o, struct flame_mode *m,
                       char *ret_when, size_t size)
{
    struct flame_sampler kept;
    char now[64];
    int rc = flame_sampler_start(t, mode_word(o) != NULL, o->rate, m, &kept);
    if (rc == 0)
        rc = answer_word(t, "select now()::text", now, sizeof(now));
    if (rc == 0) {
        (void)progress_wait(o->seconds_ns, "sampling");
        (void)snprintf(ret_when, size, "ts > timestamp '%s'", now);
        if (kept.ran)
            (void)poll(NULL, 0, SETTLE_MS);
    }
    char why[ERR_TEXT_BYTES];
    (void)snprintf(why, sizeof(why), "%s", rc < 0 ? err_why(rc) : "");
    int back = flame_sampler_stop(t, &kept);
    if (cli_interrupted)
        return -ECANCELED;
    return rc < 0 ? err_set(rc, "%s", why) : back;
}

/* ---- what is asked, of whom ---- */

/* Write the condition for samples that are there already.  The newest one's time is read once, as
 * samples come while the statements run, and all of those must be about the same samples. */
static void tell_when(const struct target *t, const struct options *o, const struct flame_mode *m,
                      char *ret, size_t size)
{
    char sql[DECLARED_LINE_BYTES + 40], newest[64];
    (void)snprintf(ret, size, "true");
    if (o->last_ns > 0) {
        (void)snprintf(sql, sizeof(sql), "select (%s)::text", m->mode.newest);
        if (answer_word(t, sql, newest, sizeof(newest)) < 0)
            err_clear(); /* the statement of samples says what is wrong */
        bool known = newest[0] != '\0';
        (void)snprintf(ret, size, "ts > %s%s%s - interval '%.3f seconds'",
                       known ? "timestamp '" : "(", known ? newest : m->mode.newest,
                       known ? "'" : ")", (double)o->last_ns / 1e9);
    }
    if (o->since != NULL) {
        size_t n = strlen(ret);
        (void)snprintf(ret + n, size - n, " and ts >= timestamp '%s'", o->since);
    }
}

static int check_mode(const struct options *o, const struct flame_mode *m)
{
    const char *name = m->mode.name;
    bool past = o->last_ns > 0 || o->since != NULL;
    if (m->mode.stacks == NULL && o->format != HTML && o->format != SVG && o->format != FOLDED)
        return err_set(-EINVAL, "flamegraph %s is written as html, svg or folded", name);
    if (m->mode.stacks == NULL && (o->threads || o->lines))
        return err_set(-EINVAL, "flamegraph %s has neither threads nor lines", name);
    if (m->mode.setting == NULL && (o->seconds_ns > 0 || o->rate != NULL))
        return err_set(
            -EINVAL,
            "flamegraph %s takes --last or --since, not --seconds: it shows what was recorded",
            name);
    if (o->last_ns > 0 && m->mode.newest == NULL)
        return err_set(-EINVAL, "flamegraph %s takes no --last", name);
    if (past && o->seconds_ns > 0)
        return err_set(-EINVAL, "flamegraph takes either --seconds (sample from now on) or --last "
                                "or --since (use existing samples), not both");
    return 0;
}

/* Which samples: those that are there, or that are taken now. */
static int window_of(const struct target *t, struct options *o, struct flame_mode *m,
                     char *ret_when, size_t size)
{
    bool past = o->last_ns > 0 || o->since != NULL;
    int rc = check_mode(o, m);
    if (rc < 0)
        return rc;
    if (target_is_files(t) && o->seconds_ns > 0)
        return err_set(-ESRCH,
                       "%s has ended or does not answer: only existing samples can be shown "
                       "(--last, --since)",
                       t->text);
    if (t->kind == TARGET_BARE)
        return target_no_core(t->pid, /* plugin= */ "");
    if (m->mode.setting != NULL && !past && o->seconds_ns == 0 && !target_is_files(t) &&
        !answer_plugin_runs(t, m->plugin)) {
        o->seconds_ns = DEFAULT_NS;
        terminal_say("plugin %s is not running: sampling for %d s", m->plugin,
                     (int)(DEFAULT_NS / NS_PER_S));
    }
    if (o->seconds_ns > 0)
        return profile_now(t, o, m, ret_when, size);
    tell_when(t, o, m, ret_when, size);
    return 0;
}

static int check_any(const struct flame *f, const struct flame_mode *m, const char *who)
{
    char lost[FLAME_LOST_BYTES];
    flame_tell_lost(f, lost, sizeof(lost));
    if (f->n_samples > 0 && lost[0] != '\0')
        terminal_say("%s: %s", who, lost);
    if (f->n_samples > 0)
        return 0;
    if (lost[0] != '\0')
        return err_set(-ENODATA, "%s: %s", who, lost);
    if (m->mode.stacks != NULL)
        return err_set(-ENODATA, "%s has no samples of mode %s there%s%s", who, m->mode.name,
                       m->mode.empty != NULL ? ": " : "",
                       m->mode.empty != NULL ? m->mode.empty : "");
    return err_set(-ENODATA, "%s: %s", who,
                   m->mode.empty != NULL ? m->mode.empty : "there is nothing to draw");
}

/* ---- files ---- */

struct perfetto_file {
    const struct flame *f;
    struct perfetto *p;
    struct buf *out;
};

static int add_perfetto(void *arg, const struct flame_event *e)
{
    const struct perfetto_file *w = arg;
    const struct export_event event = {.at_ns = e->at_ns,
                                       .name = e->name,
                                       .name_n = strlen(e->name),
                                       .kind = w->f->mode,
                                       .kind_n = strlen(w->f->mode),
                                       .pid = 1,
                                       .tid = e->of->thread,
                                       .process = w->f->title,
                                       .thread = e->of->thread_name};
    return perfetto_edge(w->p, &event, e->opens, w->out);
}

static int write_perfetto(const struct flame *f, struct buf *out)
{
    struct perfetto_file w = {.f = f, .p = perfetto_new(), .out = out};
    int rc = w.p != NULL ? perfetto_begin(w.p, out) : err_set(-ENOMEM, "no memory for the file");
    if (rc == 0)
        rc = flame_events(f, add_perfetto, &w);
    perfetto_free(w.p);
    return rc;
}

static int make_file(const struct options *o, struct flame *f, struct flame_tree *tree,
                     struct buf *out)
{
    flame_tree_sort(tree);
    switch (o->format) {
    case HTML:
        return flame_html(tree, out);
    case SVG:
        return flame_svg(tree, out);
    case FOLDED:
        return flame_folded(tree, out);
    case SPEEDSCOPE:
        return flame_speedscope(f, out);
    case PPROF:
        return flame_pprof(f, out);
    case PERFETTO:
        return write_perfetto(f, out);
    case CHROME:
        return flame_chrome(f, out);
    }
    return err_set(-EINVAL, "no such format");
}

static int write_file(const struct options *o, const struct buf *out)
{
    struct output file;
    if (o->path == NULL || strcmp(o->path, "-") == 0) {
        terminal_exact();
        return fwrite(out->data, 1, out->size, stdout) == out->size ? 0 : -EPIPE;
    }
    int rc = output_open(&file, o->path);
    if (rc < 0)
        return rc;
    if (fwrite(out->data, 1, out->size, file.file) != out->size)
        rc = err_set(-errno, "%s cannot be written: %s", o->path, output_why(errno));
    return output_close(&file, rc);
}

static void tell_total(const struct options *o, const struct flame *f)
{
    if (strcmp(f->mode, "memory") == 0)
        fprintf(stderr, "%s: %.1f MB in %u stacks\n", o->path, (double)f->total / 1048576.0,
                f->n_sampled);
    else if (strcmp(f->mode, FLAME_NUMBERS) == 0)
        fprintf(stderr, "%s: %lld in %u stacks\n", o->path, (long long)f->total, f->n_sampled);
    else
        fprintf(stderr, "%s: %.2f s of %s time in %u stacks\n", o->path, (double)f->total / 1e9,
                f->mode, f->n_sampled);
}

static int write_profile(const struct options *o, struct flame *f, struct flame_tree *tree)
{
    struct buf out;
    buf_init(&out, FILE_MAX);
    f->width = o->width != 0 ? o->width : FLAME_WIDTH;
    int rc = make_file(o, f, tree, &out);
    if (rc == 0)
        rc = write_file(o, &out);
    if (rc == 0 && o->path != NULL && strcmp(o->path, "-") != 0)
        tell_total(o, f);
    buf_done(&out);
    return rc;
}

/* ---- one, and the difference of two ---- */

/* The program's name stands in the info file of its data directory. */
static void title_of(const struct target *t, const char *what, char *ret, size_t size)
{
    char command[256] = "";
    struct datadir d;
    if (t->directory[0] != '\0' && datadir_open(t->directory, DATADIR_ANY, &d) == 0) {
        (void)directory_info(&d, "command", command, sizeof(command));
        datadir_close(&d);
    }
    flame_title(ret, size, command, t->text, what);
}

static void init_flame(struct flame *f, const struct options *o, const struct flame_mode *m)
{
    flame_init(f, FLAME_MAX_BYTES);
    f->threads = o->threads;
    f->lines = o->lines;
    f->tails = m->mode.stacks == NULL;
    f->mode = m->mode.unit == PROBING_BYTES ? "memory" : m->mode.name;
}

/* A mode that takes samples may be another one when they have been taken. */
static int draw_mode(const struct target *t, struct options *o, struct flame_mode *m)
{
    struct flame f;
    struct flame_tree tree = {.n = 0};
    char when[DECLARED_LINE_BYTES + 100], title[400];
    int rc = window_of(t, o, m, when, sizeof(when));
    if (rc < 0)
        return rc;
    init_flame(&f, o, m);
    title_of(t, m->mode.doc, title, sizeof(title));
    f.title = title;
    rc = flame_read_mode(&f, t, m, when, formats[o->format].in_time);
    if (rc == 0)
        rc = check_any(&f, m, t->text);
    if (rc == 0)
        rc = flame_tree_new(&f, &tree);
    if (rc == 0)
        rc = write_profile(o, &f, &tree);
    flame_tree_done(&tree);
    flame_done(&f);
    return rc;
}

/* --memory: the mode of that name with "_memory" behind it. */
static int draw_process(const struct target *t, struct options *o)
{
    struct flame_mode m;
    char name[80];
    const char *word = mode_word(o);
    (void)snprintf(name, sizeof(name), "%.60s%s", word != NULL ? word : "",
                   o->memory ? "_memory" : "");
    if (t->kind == TARGET_BARE)
        return target_no_core(t->pid, /* plugin= */ "");
    if (t->kind == TARGET_THERE)
        return err_set(-ESRCH,
                       "no core answers in %s; a flame graph of what it has left is drawn on its "
                       "machine: probing -t %s flamegraph --last 1m",
                       t->text, t->there->what);
    int rc = flame_mode_find(t, word != NULL ? name : NULL, &m);
    if (rc == -EINVAL)
        rc = cli_misuse(rc);
    if (rc == 0)
        rc = draw_mode(t, o, &m);
    flame_mode_done(&m);
    return rc;
}

/* A target (pid, directory, address) or a file of folded stacks. */
static int read_side(const char *word, const struct options *o, struct flame *f)
{
    struct stat st;
    struct target t = {.kind = TARGET_NONE};
    static char name[64]; /* of the mode, which goes before the profile does */
    struct flame_mode m;
    char when[DECLARED_LINE_BYTES + 100];
    flame_init(f, FLAME_MAX_BYTES);
    f->lines = o->lines;
    f->threads = o->threads;
    if (stat(word, &st) == 0 && S_ISREG(st.st_mode))
        return flame_read_folded(f, word);
    int rc = target_resolve(word, &t);
    if (rc < 0)
        return rc;
    rc = flame_mode_find(&t, o->mode, &m);
    if (rc == 0 && o->last_ns > 0 && m.mode.newest == NULL)
        rc = err_set(-EINVAL, "flamegraph %s takes no --last", m.mode.name);
    if (rc == 0) {
        struct options all = {.format = o->format, .last_ns = o->last_ns, .since = o->since};
        tell_when(&t, &all, &m, when, sizeof(when));
        (void)snprintf(name, sizeof(name), "%s",
                       m.mode.unit == PROBING_BYTES ? "memory" : m.mode.name);
        f->mode = name;
        rc = flame_read_mode(f, &t, &m, when, /* in_time= */ false);
    }
    if (rc == 0)
        rc = check_any(f, &m, word);
    flame_mode_done(&m);
    return rc;
}

static int draw_difference(const struct options *o)
{
    struct flame before, after;
    struct flame_tree tree = {.n = 0};
    char title[300];
    if (o->format != HTML && o->format != SVG && o->format != FOLDED)
        return err_set(-EINVAL, "a difference is written as html, svg or folded");
    flame_init(&after, FLAME_MAX_BYTES);
    int rc = read_side(o->words[1], o, &before);
    if (rc == 0)
        rc = read_side(o->words[2], o, &after);
    (void)snprintf(title, sizeof(title), "%.120s, before: %.120s", o->words[2], o->words[1]);
    after.title = title;
    if (rc == 0 && strcmp(after.mode, FLAME_NUMBERS) == 0) /* the other one may say it */
        after.mode = before.mode;
    if (rc == 0)
        rc = flame_tree_new(&after, &tree);
    if (rc == 0)
        rc = flame_tree_before(&tree, &after, &before);
    if (rc == 0)
        rc = write_profile(o, &after, &tree);
    flame_tree_done(&tree);
    flame_done(&before);
    flame_done(&after);
    return rc;
}

int flamegraph_filled(int argc, char **argv, int (*fill)(void *arg, struct flame *f), void *arg)
{
    struct options o = {.format = HTML};
    struct flame_tree tree = {.n = 0};
    struct flame f;
    int rc = cli_parse(argc, argv, parse_option, &o);
    if (rc < 0)
        return rc;
    guess_format(&o);
    rc = cli_misuse(check_words(&o, /* has_target= */ true));
    choose_path(&o, /* pid= */ 0);
    flame_init(&f, FLAME_MAX_BYTES);
    if (rc == 0)
        rc = fill(arg, &f);
    if (rc == 0)
        rc = flame_tree_new(&f, &tree);
    if (rc == 0)
        rc = write_profile(&o, &f, &tree);
    flame_tree_done(&tree);
    flame_done(&f);
    return rc;
}

int command_flamegraph(struct target *t, int argc, char **argv)
{
    struct options o = {.format = HTML};
    int rc = cli_parse(argc, argv, parse_option, &o);
    if (rc < 0)
        return rc;
    guess_format(&o);
    rc = cli_misuse(check_words(&o, t->kind != TARGET_NONE));
    choose_path(&o, t->pid);
    if (rc == 0)
        rc = o.n_arguments == 3 ? draw_difference(&o) : draw_process(t, &o);
    return rc < 0 ? rc : EXIT_DONE;
}
