/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/top.c - `top`: threads and what they run, memory, the last training step, slow
 * modules, GPUs.
 *
 * One thread.  What there is to see comes from top_model.c, the terminal from screen.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/commands/top_model.h"
#include "cli/ui/screen.h"
#include "cli/ui/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/buf.h"

#define PICTURE_MAX_BYTES ((size_t)64 << 20)
#define FIRST_NS (NS_PER_S / 4) /* between the first two looks: then there is a picture */
#define SAMPLE_NS \
    (NS_PER_S / 20) /* between looks at the stacks: half a millisecond of the host's */
#define MODULES_SHOWN 8
#define FUNCTIONS_ONCE 20 /* where no terminal says how many */
#define THREADS_LEAST 3   /* shown however small the terminal is */
#define WIDE 120          /* columns: from there on paths are whole and names longer */
#define BUSY_PCT 50.0

struct top {
    uint64_t interval_ns;
    bool once, ours; /* ours: probing's own threads too */
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

/* A number of a row, or a dash where it is not known: 0 would be an answer. */
static void add_known(struct buf *b, const struct json *row, uint32_t column, const char *format)
{
    if (snapshot_knows(row, column))
        (void)buf_addf(b, format, snapshot_number(row, column));
    else
        (void)buf_addc(b, '-');
}

static void add_known_bytes(struct buf *b, const struct json *row, uint32_t column)
{
    if (snapshot_knows(row, column))
        add_bytes(b, snapshot_number(row, column));
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
    if (look->lost != NULL && snapshot_int(look->lost, 0) > 0)
        (void)buf_addf(b, "%c%lld rows were lost: see probing.lost%c\n", SCREEN_RED,
                       (long long)snapshot_int(look->lost, 0), SCREEN_PLAIN);
}

static void add_training(const struct snapshot *look, struct buf *b)
{
    static const char *const phases[] = {"forward", "backward", "optimizer", "data"};
    const struct json *s = look->step;

    for (const struct json *g = look->gpus; g != NULL; g = g->next) {
        (void)buf_addf(b, "gpu %lld: ", (long long)snapshot_int(g, 0));
        add_known(b, g, 1, "%.0f%%");
        (void)buf_adds(b, ", ");
        add_known_bytes(b, g, 2);
        (void)buf_adds(b, " of ");
        add_known_bytes(b, g, 3);
        (void)buf_adds(b, ", ");
        add_known(b, g, 4, "%.0f");
        (void)buf_adds(b, " C, ");
        add_known(b, g, 5, "%.0f");
        (void)buf_adds(b, " W\n");
    }
    if (s == NULL)
        return;
    (void)buf_addf(b, "step %lld: ", (long long)snapshot_int(s, 0));
    if (snapshot_knows(s, 1))
        (void)buf_addf(b, "%.1f ms", 1e3 * snapshot_number(s, 1));
    else
        (void)buf_adds(b, "- ms");
    for (uint32_t i = 0; i < 4; i++)
        if (snapshot_number(s, 2 + i) > 0)
            (void)buf_addf(b, ", %s %.1f", phases[i], 1e3 * snapshot_number(s, 2 + i));
    (void)buf_addc(b, '\n');
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

static void add_modules(const struct snapshot *look, struct buf *b)
{
    char title[120];

    if (look->n_modules == 0)
        return;
    (void)snprintf(title, sizeof(title),
                   "  CALLS/S    OWN MS  TOTAL MS  MEMORY MB  STAGE          MODULE, of a call in "
                   "the last %d s",
                   LOOK_MODULES_S);
    add_title(b, title);
    for (uint32_t i = 0; i < look->n_modules && i < MODULES_SHOWN; i++) {
        const struct snapshot_module *m = &look->modules[i];
        add_column(b, true, m->calls / LOOK_MODULES_S, 1, 9);
        (void)buf_addc(b, ' ');
        add_column(b, m->own_sec >= 0, 1e3 * m->own_sec / m->calls, 3, 9);
        (void)buf_addc(b, ' ');
        add_column(b, true, 1e3 * m->total_sec / m->calls, 3, 9);
        (void)buf_addc(b, ' ');
        add_column(b, m->memory_mb >= 0, m->memory_mb, 1, 10);
        (void)buf_adds(b, "  ");
        screen_add(b, m->stage, 14, false);
        (void)buf_addc(b, ' ');
        screen_add(b, m->name, 0, false);
        (void)buf_addc(b, '\n');
    }
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
static int draw(struct top *top, const struct snapshot *look, uint32_t rows, struct buf *ret)
{
    struct buf below;
    uint32_t threads = shown_threads(top, look);

    buf_init(&below, PICTURE_MAX_BYTES);
    add_modules(look, &below);
    add_head(top, look, ret);
    add_training(look, ret);
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

static int take(void *arg, const char *option, const char *value)
{
    struct top *o = arg;

    if (option == NULL)
        return err_set(-EINVAL, "top takes no argument '%s'", value);
    if (strcmp(option, "--interval") == 0) {
        int r = parse_ns(value, &o->interval_ns);
        return r < 0 || o->interval_ns >= NS_PER_S / 10
                   ? r
                   : err_set(-ERANGE, "--interval must be at least 100ms, as each look costs time");
    }
    if (strcmp(option, "--color") == 0) {
        o->color = value;
        return 0;
    }
    *(strcmp(option, "--once") == 0 ? &o->once : &o->ours) = true;
    return 0;
}

/* Wait for a key until then, and look at the stacks meanwhile.  As screen_key(). */
static int wait_until(struct top *top, uint64_t until)
{
    int r = 0;

    while (r == 0) {
        uint64_t now = clock_monotonic(), left = now < until ? until - now : 0;
        r = screen_key(left < SAMPLE_NS ? left : SAMPLE_NS);
        if (r != 0 || left <= SAMPLE_NS)
            return r;
        r = snapshot_sample(top->looker, &top->tally);
    }
    return r;
}

static int once(struct top *top)
{
    struct snapshot look;
    struct buf text, painted;

    int r = snapshot_take(top->looker, &top->tally, &look);
    snapshot_done(&look);
    if (r == 0)
        r = wait_until(top, clock_monotonic() + top->interval_ns);
    if (r < 0)
        return r == -EAGAIN ? 0 : r == -EINTR ? -ECANCELED : r;
    r = snapshot_take(top->looker, &top->tally, &look);
    buf_init(&text, PICTURE_MAX_BYTES);
    buf_init(&painted, PICTURE_MAX_BYTES);
    if (r == 0)
        r = draw(top, &look, /* rows= */ 0, &text);
    if (r == 0)
        screen_paint(&text, top->colours, &painted);
    if (r == 0 && top->colours)
        terminal_put(painted.data, painted.size);
    else if (r == 0 && (fwrite(painted.data, 1, painted.size, stdout) != painted.size))
        r = -EPIPE;
    buf_done(&text);
    buf_done(&painted);
    snapshot_done(&look);
    return r;
}

/* One look, and waiting for the next.  1: it was enough. */
static int turn(struct top *top, struct snapshot *look, bool first)
{
    struct buf text;
    int r = snapshot_take(top->looker, &top->tally, look);
    uint64_t until = clock_monotonic() + (first ? FIRST_NS : top->interval_ns);

    while (r == 0 || r == -EAGAIN) {
        buf_init(&text, PICTURE_MAX_BYTES);
        r = draw(top, look, cli_rows(), &text);
        if (r == 0)
            screen_draw(&text, top->colours);
        buf_done(&text);
        if (r == 0)
            r = wait_until(top, until);
        if (r == 'q' || r == 'Q')
            return 1;
        if (r == 'p')
            top->ours = !top->ours;
        if (r == 0) {
            tally_next(&top->tally);
            return 0;
        }
        r = r > 0 ? 0 : r;
    }
    return r;
}

static int live(struct top *top)
{
    struct snapshot look;
    int r = screen_open();

    for (bool first = true; r == 0; first = false) {
        r = turn(top, &look, first);
        snapshot_done(&look);
    }
    screen_close();
    return r == 1 || r == -EINTR || cli_interrupted ? 0 : r;
}

int command_top(struct target *t, int argc, char **argv)
{
    struct top top = {.interval_ns = NS_PER_S, .target = t, .color = "auto"};
    int r = cli_parse(argc, argv, take, &top);

    if (r == 0)
        r = cli_misuse(terminal_colours(top.color));
    top.colours = r > 0;
    r = r > 0 ? 0 : r;
    if (r == 0 && t->kind == TARGET_FILES)
        r = err_set(-ESRCH, "%s %s: top shows live processes only; query reads its data", t->text,
                    t->stopped ? "is stopped" : "is dead");
    if (r == 0)
        r = looker_new(t, &top.looker);
    if (r < 0)
        return r;
    r = top.once || cli_width() == 0 ? once(&top) : live(&top);
    looker_free(top.looker);
    tally_done(&top.tally);
    if (r == 0 && cli_interrupted)
        return 130;
    return r < 0 ? r : EXIT_DONE;
}
