/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/top/top.c - `top`: threads and what they run, memory, and what plugins declare
 * (steps, slow modules, GPUs).
 *
 * One thread.  What there is to see comes from top_model.c, the terminal from screen.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/commands/top/top_model.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/fit_text.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/pager.h"
#include "cli/terminal/screen.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/buf.h"

#define PICTURE_MAX_BYTES ((size_t)64 << 20)
#define FIRST_NS (NS_PER_S / 4) /* between the first two looks: then there is a picture */
#define SAMPLE_NS \
    (NS_PER_S / 20)       /* between looks at the stacks: half a millisecond of the host's */
#define FUNCTIONS_ONCE 20 /* where no terminal says how many */
#define THREADS_LEAST 3   /* shown however small the terminal is */
#define WIDE 120          /* columns: from there on paths are whole and names longer */
#define BUSY_PCT 50.0
#define COLUMNS_MAX 16 /* of a plugin's table */
#define CELL_BYTES 256

struct top {
    uint64_t interval_ns;
    bool once, json, ours; /* ours: probing's own threads too */
    bool colours;
    const char *color; /* the option's word */
    const struct target *target;
    struct top_sampler *looker;
    struct tally tally;
};

/* ---- a picture ---- */

static void add_bytes(struct buf *b, double bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    size_t i = 0;
    for (; bytes >= 1024 && i < 4; i++)
        bytes /= 1024;
    (void)buf_addf(b, i == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[i]);
}

/* A number of bytes of a row, or a dash where it is not known: 0 would be an answer. */
static void add_known_bytes(struct buf *b, const struct snapshot_row *row, uint32_t column)
{
    const struct sql_value *v = snapshot_cell(row, column);

    if (answer_is_number(v))
        add_bytes(b, answer_number(v));
    else
        (void)buf_addc(b, '-');
}

/* `number` right in a column, or a dash. */
static void add_column(struct buf *b, bool known, double number, int digits, uint32_t width)
{
    char text[40] = "-";
    if (known)
        (void)snprintf(text, sizeof(text), "%.*f", digits, number);
    screen_add(b, text, width, true);
}

/* A style for some columns of a line. */
static void add_style(struct buf *b, enum screen_style style)
{
    (void)buf_addc(b, (char)style);
}

/* The names of a table's columns, to the end of the line. */
static void add_title(struct buf *b, const char *names)
{
    uint32_t n = (uint32_t)strlen(names), width = cli_width();
    (void)buf_addc(b, '\n');
    add_style(b, SCREEN_HEAD);
    (void)buf_adds(b, names);
    for (; n < width; n++)
        (void)buf_addc(b, ' ');
    add_style(b, SCREEN_PLAIN);
    (void)buf_addc(b, '\n');
}

static void add_head(const struct top *top, const struct snapshot *look, struct buf *b)
{
    double cpu = 0, ours = 0;
    uint32_t n_ours = 0;

    for (uint32_t i = 0; i < look->n; i++) {
        const struct snapshot_thread *t = &look->threads[i];
        n_ours += t->ours;
        *(t->ours ? &ours : &cpu) += t->cpu_pct > 0 ? t->cpu_pct : 0;
    }
    add_style(b, SCREEN_BOLD);
    (void)buf_adds(b, "probing top: ");
    screen_add(b, top->target->text, 0, false);
    add_style(b, SCREEN_PLAIN);
    (void)buf_addf(b, "\ncpu %.1f%%, and %.1f%% of probing itself; %u threads, and %u of probing\n",
                   cpu, ours, look->n - n_ours, n_ours);
    if (look->memory != NULL) {
        (void)buf_adds(b, "memory ");
        add_known_bytes(b, look->memory, 0);
        (void)buf_adds(b, ", at most ");
        add_known_bytes(b, look->memory, 1);
        (void)buf_adds(b, ", swapped ");
        add_known_bytes(b, look->memory, 2);
        (void)buf_adds(b, "; the machine has ");
        add_known_bytes(b, look->memory, 4);
        (void)buf_adds(b, " left of ");
        add_known_bytes(b, look->memory, 3);
        (void)buf_addc(b, '\n');
    }
    if (answer_int(snapshot_cell(look->lost, 0)) > 0)
        (void)buf_addf(b, "%c%lld rows were lost: see probing.lost%c\n", SCREEN_RED,
                       (long long)answer_int(snapshot_cell(look->lost, 0)), SCREEN_PLAIN);
}

/* Lines of plugins, at the head. */
static void add_lines(const struct snapshot *look, struct buf *b)
{
    for (uint32_t i = 0; i < look->n_panels; i++) {
        const struct snapshot_panel *p = &look->panels[i];
        uint32_t left = p->is_table ? 0 : p->most;
        for (const struct snapshot_row *row = p->rows.first; row != NULL && left > 0;
             row = row->next, left--) {
            screen_add(b, answer_text(snapshot_cell(row, 0)), 0, false);
            (void)buf_addc(b, '\n');
        }
    }
}

static enum screen_style style_of(const struct snapshot_thread *t)
{
    return strcmp(t->doing, "running") == 0   ? SCREEN_GREEN
           : strcmp(t->doing, "waiting") == 0 ? SCREEN_YELLOW
           : strcmp(t->doing, "idle") == 0    ? SCREEN_DIM
                                              : SCREEN_PLAIN;
}

/* "func file.py:12", the path whole where there is room for it. */
static void add_place(struct buf *b, const char *func, const char *path, int64_t line)
{
    const char *slash = cli_width() >= WIDE ? NULL : strrchr(path, '/');
    screen_add(b, func, 0, false);
    (void)buf_addc(b, ' ');
    add_style(b, SCREEN_DIM);
    screen_add(b, slash != NULL ? slash + 1 : path, 0, false);
    if (line > 0)
        (void)buf_addf(b, ":%lld", (long long)line);
    add_style(b, SCREEN_PLAIN);
}

static void add_thread(const struct snapshot_thread *t, uint32_t wide, struct buf *b)
{
    char number[32];

    (void)buf_addf(b, "%7lld ", (long long)t->tid);
    (void)snprintf(number, sizeof(number), t->cpu_pct < 0 ? "-" : "%.1f", t->cpu_pct);
    add_style(b, t->cpu_pct >= BUSY_PCT ? SCREEN_BOLD : SCREEN_PLAIN);
    screen_add(b, number, 6, true);
    add_style(b, SCREEN_PLAIN);
    (void)buf_adds(b, "  ");
    screen_add(b, t->state, 3, false);
    screen_add(b, t->name[0] != '\0' ? t->name : t->comm, wide, false);
    (void)buf_addc(b, ' ');
    add_style(b, style_of(t));
    screen_add(b, t->doing, 8, false);
    add_style(b, SCREEN_PLAIN);
    if (t->func[0] != '\0') {
        (void)buf_addc(b, ' ');
        add_place(b, t->func, t->at, t->line);
    }
    (void)buf_addc(b, '\n');
}

static void add_threads(const struct top *top, const struct snapshot *look, uint32_t most,
                        struct buf *b)
{
    uint32_t wide = cli_width() >= WIDE ? 28 : 16;
    char title[80];

    (void)snprintf(title, sizeof(title), "    TID   CPU%%  S  %-*s STATE    FUNCTION", (int)wide,
                   "NAME");
    add_title(b, title);
    for (uint32_t i = 0; i < look->n && most > 0; i++)
        if (top->ours || !look->threads[i].ours) {
            add_thread(&look->threads[i], wide, b);
            most--;
        }
}

static double percent_of(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

/* As py-spy top has them. */
static void add_functions(struct top *top, uint32_t most, struct buf *b)
{
    const struct tally_function *f = NULL;
    uint32_t n = tally_sort(&top->tally, &f);

    if (n == 0)
        return;
    add_title(b, "  %OWN %TOTAL   OWNTIME TOTALTIME  FUNCTION");
    for (uint32_t i = 0; i < n && i < most; i++, f++) {
        double own = percent_of(f->own_ns, top->tally.span_ns);
        if (f->total_ns == 0)
            add_style(b, SCREEN_DIM); /* it has run, and did not since the last picture */
        add_style(b, own >= BUSY_PCT ? SCREEN_BOLD : f->total_ns > 0 ? SCREEN_PLAIN : SCREEN_DIM);
        add_column(b, top->tally.samples > 0, own, 1, 6);
        (void)buf_addc(b, ' ');
        add_column(b, top->tally.samples > 0, percent_of(f->total_ns, top->tally.span_ns), 1, 6);
        (void)buf_addf(b, " %8.2fs %8.2fs  ", (double)f->all_own_ns / 1e9,
                       (double)f->all_total_ns / 1e9);
        add_place(b, f->name, f->file, 0);
        (void)buf_addc(b, '\n');
    }
}

/* ---- tables of plugins ---- */

struct column {
    char name[40];
    uint32_t width;
    int digits; /* behind the point */
    bool is_number;
};

/* As many digits as leave the largest number readable: 0.123, 12.34, 123.4. */
static int digits_of(double most)
{
    return most >= 100 || most <= -100 ? 1 : most >= 10 || most <= -10 ? 2 : 3;
}

static void name_column(struct column *c, const struct sql_column *given)
{
    (void)snprintf(c->name, sizeof(c->name), "%s", given->name);
    for (char *at = c->name; *at != '\0'; at++)
        *at = *at == '_' ? ' ' : *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
    c->is_number = given->type == SQL_DOUBLE || given->type == SQL_INT;
    c->width = (uint32_t)strlen(c->name);
    c->digits = given->type == SQL_DOUBLE ? 3 : 0;
}

static void text_of(const struct column *c, const struct sql_value *v, char *ret, size_t size)
{
    char room[SQL_CELL_BYTES];

    (void)sql_cell_text(v, /* exact= */ true, room);
    if (!c->is_number)
        (void)snprintf(ret, size, "%s", v->type == SQL_TEXT ? v->text.data : room);
    else if (answer_is_number(v))
        (void)snprintf(ret, size, "%.*f", c->digits, answer_number(v));
    else
        (void)snprintf(ret, size, "-");
}

static uint32_t measure_columns(const struct snapshot_panel *p, struct column ret[COLUMNS_MAX])
{
    char text[CELL_BYTES];
    uint32_t n = 0, left = p->most;
    for (; n < p->rows.columns.n && n < COLUMNS_MAX; n++)
        name_column(&ret[n], &p->rows.columns.list[n]);
    for (const struct snapshot_row *row = p->rows.first; row != NULL && left > 0;
         row = row->next, left--)
        for (uint32_t i = 0; i < n; i++)
            if (ret[i].digits > digits_of(answer_number(&row->cells[i])))
                ret[i].digits = digits_of(answer_number(&row->cells[i]));
    left = p->most;
    for (const struct snapshot_row *row = p->rows.first; row != NULL && left > 0;
         row = row->next, left--)
        for (uint32_t i = 0; i < n; i++) {
            text_of(&ret[i], &row->cells[i], text, sizeof(text));
            uint32_t width = fit_columns(text, strlen(text));
            ret[i].width = width > ret[i].width ? width : ret[i].width;
        }
    return n;
}

/* The last column may be as long as it is. */
static void add_table(const struct snapshot_panel *p, struct buf *b)
{
    struct column columns[COLUMNS_MAX];
    struct buf title;
    char text[CELL_BYTES];
    uint32_t n = measure_columns(p, columns), left = p->most;

    buf_init(&title, PICTURE_MAX_BYTES);
    for (uint32_t i = 0; i < n; i++) {
        (void)buf_adds(&title, "  ");
        screen_add(&title, columns[i].name, i + 1 < n ? columns[i].width : 0, columns[i].is_number);
    }
    (void)buf_addf(&title, "%s%s", p->doc[0] != '\0' ? ", " : "", p->doc);
    add_title(b, buf_text(&title));
    buf_done(&title);
    for (const struct snapshot_row *row = p->rows.first; row != NULL && left > 0;
         row = row->next, left--) {
        for (uint32_t i = 0; i < n; i++) {
            text_of(&columns[i], &row->cells[i], text, sizeof(text));
            (void)buf_adds(b, "  ");
            screen_add(b, text, i + 1 < n || columns[i].is_number ? columns[i].width : 0,
                       columns[i].is_number);
        }
        (void)buf_addc(b, '\n');
    }
}

static void add_tables(const struct snapshot *look, struct buf *b)
{
    for (uint32_t i = 0; i < look->n_panels; i++)
        if (look->panels[i].is_table)
            add_table(&look->panels[i], b);
}

static uint32_t lines_of(const struct buf *b)
{
    uint32_t n = 0;
    for (size_t i = 0; i < b->size; i++)
        n += b->data[i] == '\n';
    return n;
}

static uint32_t shown_threads(const struct top *top, const struct snapshot *look)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < look->n; i++)
        n += top->ours || !look->threads[i].ours;
    return n;
}

/* rows: of the terminal, 0: show all.  Threads have at most half of what is left, functions the
 * rest. */
static int draw_screen(struct top *top, const struct snapshot *look, uint32_t rows, struct buf *ret)
{
    struct buf below;
    uint32_t threads = shown_threads(top, look);

    buf_init(&below, PICTURE_MAX_BYTES);
    add_tables(look, &below);
    add_head(top, look, ret);
    add_lines(look, ret);
    uint32_t titles = top->tally.n > 0 ? 4 : 2;
    uint32_t taken = lines_of(ret) + lines_of(&below) + titles;
    uint32_t left = rows > taken ? rows - taken : 1;
    uint32_t half = top->tally.n > 0 ? left / 2 : left;
    if (rows > 0 && threads > half)
        threads = half > THREADS_LEAST ? half : THREADS_LEAST;
    add_threads(top, look, threads, ret);
    add_functions(top, rows == 0 ? FUNCTIONS_ONCE : left > threads ? left - threads : 0, ret);
    (void)buf_add(ret, buf_text(&below), below.size);
    buf_done(&below);
    return ret->failed ? err_set(ret->failed, "no memory for the screen") : 0;
}

/* ---- the command ---- */

static int parse_option(void *arg, const char *option, const char *value)
{
    struct top *o = arg;

    if (option == NULL)
        return err_set(-EINVAL, "top takes no argument '%s'", value);
    if (strcmp(option, "--interval") == 0) {
        int rc = cli_take_time(option, value, &o->interval_ns);
        return rc < 0 || o->interval_ns >= NS_PER_S / 10
                   ? rc
                   : err_set(-ERANGE, "--interval must be at least 100ms, as each look costs time");
    }
    if (strcmp(option, "--color") == 0) {
        o->color = value;
        return 0;
    }
    bool json = strcmp(option, "--json") == 0;
    o->json = o->json || json;
    *(json || strcmp(option, "--once") == 0 ? &o->once : &o->ours) = true;
    return 0;
}

/* Wait for a key until then, and look at the stacks meanwhile.  As screen_key(). */
static int wait_until(struct top *top, uint64_t until)
{
    int rc = 0;

    while (rc == 0) {
        uint64_t now = clock_monotonic(), left = now < until ? until - now : 0;
        rc = screen_key(left < SAMPLE_NS ? left : SAMPLE_NS);
        if (rc != 0 || left <= SAMPLE_NS)
            return rc;
        rc = snapshot_sample(top->looker, &top->tally);
    }
    return rc;
}

static int print_once(struct top *top)
{
    struct snapshot look;
    struct buf text, painted;

    int rc = snapshot_take(top->looker, &top->tally, &look);
    snapshot_done(&look);
    if (rc == 0)
        rc = wait_until(top, clock_monotonic() + top->interval_ns);
    if (rc < 0)
        return rc == -EAGAIN ? 0 : rc == -EINTR ? -ECANCELED : rc;
    rc = snapshot_take(top->looker, &top->tally, &look);
    tally_next(&top->tally);
    buf_init(&text, PICTURE_MAX_BYTES);
    buf_init(&painted, PICTURE_MAX_BYTES);
    if (rc == 0)
        rc = top->json ? snapshot_json(&look, &top->tally, top->ours, &painted)
                       : draw_screen(top, &look, /* rows= */ 0, &text);
    if (rc == 0 && !top->json)
        screen_paint(&text, top->colours, &painted);
    if (rc == 0 && top->colours && !top->json)
        terminal_put(painted.data, painted.size);
    else if (rc == 0 && (fwrite(painted.data, 1, painted.size, stdout) != painted.size))
        rc = -EPIPE;
    buf_done(&text);
    buf_done(&painted);
    snapshot_done(&look);
    return rc;
}

/* One look, and waiting for the next.  1: it was enough. */
static int show_look(struct top *top, struct snapshot *look, bool first)
{
    struct buf text;
    int rc = snapshot_take(top->looker, &top->tally, look);
    uint64_t until = clock_monotonic() + (first ? FIRST_NS : top->interval_ns);

    tally_next(&top->tally);
    while (rc == 0 || rc == -EAGAIN) {
        buf_init(&text, PICTURE_MAX_BYTES);
        rc = draw_screen(top, look, cli_rows(), &text);
        if (rc == 0)
            screen_draw(&text, top->colours);
        buf_done(&text);
        if (rc == 0)
            rc = wait_until(top, until);
        if (rc == 'q' || rc == 'Q')
            return 1;
        if (rc == 'p')
            top->ours = !top->ours;
        if (rc == 0)
            return 0;
        rc = rc > 0 ? 0 : rc;
    }
    return rc;
}

static int run_screen(struct top *top)
{
    struct snapshot look;
    int rc = screen_open();

    for (bool first = true; rc == 0; first = false) {
        rc = show_look(top, &look, first);
        snapshot_done(&look);
    }
    screen_close();
    return rc == 1 || rc == -EINTR || cli_interrupted ? 0 : rc;
}

int command_top(struct target *t, int argc, char **argv)
{
    struct top top = {.interval_ns = NS_PER_S, .target = t, .color = "auto"};
    int rc = cli_parse(argc, argv, parse_option, &top);

    if (rc == 0)
        rc = cli_misuse(terminal_colours(top.color));
    top.colours = rc > 0;
    rc = rc > 0 ? 0 : rc;
    if (rc == 0 && t->kind == TARGET_FILES)
        rc = err_set(-ESRCH, "%s %s: top shows live processes only; query reads its data", t->text,
                     t->stopped ? "is stopped" : "is dead");
    if (rc == 0)
        rc = looker_new(t, &top.looker);
    if (rc < 0)
        return rc;
    rc = top.once || cli_width() == 0 ? print_once(&top) : run_screen(&top);
    looker_free(top.looker);
    tally_done(&top.tally);
    if (rc == 0 && cli_interrupted)
        return 130;
    return rc < 0 ? rc : EXIT_DONE;
}
