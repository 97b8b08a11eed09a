/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/top.c - `top`: threads and what they run, memory, the last training step, slow modules, GPUs.
 *
 * One thread.  What there is to see comes from look.c, the terminal from screen.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/look.h"
#include "cli/screen.h"
#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define PICTURE_MAX_BYTES ((size_t)64 << 20)
#define FIRST_NS (NS_PER_S / 4) /* between the first two looks: then there is a picture */

struct top {
    uint64_t interval_ns;
    bool once, ours; /* ours: probing's own threads too */
    const struct target *target;
    struct looker *looker;
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
    if (look_knows(row, column))
        (void)buf_addf(b, format, look_number(row, column));
    else
        (void)buf_addc(b, '-');
}

static void add_known_bytes(struct buf *b, const struct json *row, uint32_t column)
{
    if (look_knows(row, column))
        add_bytes(b, look_number(row, column));
    else
        (void)buf_addc(b, '-');
}

/* `number` right in a column, or a dash. */
static void add_column(struct buf *b, bool known, double number, int digits, uint32_t width)
{
    char text[40] = "-";
    if (known)
        (void)snprintf(text, sizeof text, "%.*f", digits, number);
    screen_add(b, text, width, true);
}

static void add_head(const struct top *top, const struct look *look, struct buf *b)
{
    double cpu = 0, ours = 0;
    uint32_t n_ours = 0;

    for (uint32_t i = 0; i < look->n; i++) {
        const struct look_thread *t = &look->threads[i];
        n_ours += t->ours;
        *(t->ours ? &ours : &cpu) += t->cpu_pct > 0 ? t->cpu_pct : 0;
    }
    (void)buf_adds(b, "probing top: ");
    screen_add(b, top->target->text, 0, false);
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
    if (look->lost != NULL && look_int(look->lost, 0) > 0)
        (void)buf_addf(b, "%lld rows were lost: see probing.lost\n",
                       (long long)look_int(look->lost, 0));
}

static void add_training(const struct look *look, struct buf *b)
{
    static const char *const phases[] = {"forward", "backward", "optimizer", "data"};
    const struct json *s = look->step;

    for (const struct json *g = look->gpus; g != NULL; g = g->next) {
        (void)buf_addf(b, "gpu %lld: ", (long long)look_int(g, 0));
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
    (void)buf_addf(b, "step %lld: ", (long long)look_int(s, 0));
    if (look_knows(s, 1))
        (void)buf_addf(b, "%.1f ms", 1e3 * look_number(s, 1));
    else
        (void)buf_adds(b, "- ms");
    for (uint32_t i = 0; i < 4; i++)
        if (look_number(s, 2 + i) > 0)
            (void)buf_addf(b, ", %s %.1f", phases[i], 1e3 * look_number(s, 2 + i));
    (void)buf_addc(b, '\n');
}

static void add_threads(const struct top *top, const struct look *look, uint32_t most,
                        struct buf *b)
{
    char number[32];

    (void)buf_adds(b, "\n    TID   CPU%  S  NAME             STATE    FUNCTION\n");
    for (uint32_t i = 0; i < look->n && most > 0; i++) {
        const struct look_thread *t = &look->threads[i];
        const char *slash = strrchr(t->at, '/');
        if (t->ours && !top->ours)
            continue;
        most--;
        (void)buf_addf(b, "%7lld ", (long long)t->tid);
        (void)snprintf(number, sizeof number, t->cpu_pct < 0 ? "-" : "%.1f", t->cpu_pct);
        screen_add(b, number, 6, true);
        (void)buf_adds(b, "  ");
        screen_add(b, t->state, 3, false);
        screen_add(b, t->name[0] != '\0' ? t->name : t->comm, 16, false);
        (void)buf_addc(b, ' ');
        screen_add(b, t->doing, 8, false);
        if (t->func[0] != '\0') {
            (void)buf_addc(b, ' ');
            screen_add(b, t->func, 0, false);
            (void)buf_addc(b, ' ');
            screen_add(b, slash != NULL ? slash + 1 : t->at, 0, false);
            (void)buf_addf(b, ":%lld", (long long)t->line);
        }
        (void)buf_addc(b, '\n');
    }
}

static void add_modules(const struct look *look, struct buf *b)
{
    if (look->modules == NULL)
        return;
    (void)buf_addf(b, "\n  CALLS/S   MS/CALL  MEMORY MB  STAGE          MODULE, in the last %d s\n",
                   LOOK_MODULES_S);
    for (const struct json *m = look->modules; m != NULL; m = m->next) {
        double calls = look_number(m, 2);
        add_column(b, look_knows(m, 2), calls / LOOK_MODULES_S, 1, 9);
        (void)buf_addc(b, ' ');
        add_column(b, look_knows(m, 3) && calls > 0, 1e3 * look_number(m, 3) / calls, 3, 9);
        (void)buf_addc(b, ' ');
        add_column(b, look_knows(m, 4), look_number(m, 4), 1, 10);
        (void)buf_adds(b, "  ");
        screen_add(b, look_text(m, 1), 14, false);
        (void)buf_addc(b, ' ');
        screen_add(b, look_text(m, 0), 0, false);
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

/* rows: of the terminal, 0: show all. */
static int draw(const struct top *top, const struct look *look, uint32_t rows, struct buf *ret)
{
    struct buf below;

    buf_init(&below, PICTURE_MAX_BYTES);
    add_modules(look, &below);
    add_head(top, look, ret);
    add_training(look, ret);
    uint32_t taken = lines_of(ret) + lines_of(&below) + 2;
    uint32_t left = rows > taken ? rows - taken : 1;
    add_threads(top, look, rows == 0 ? UINT32_MAX : left, ret);
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
                   : err_set(-ERANGE, "--interval is 100ms at least: looking costs, too");
    }
    *(strcmp(option, "--once") == 0 ? &o->once : &o->ours) = true;
    return 0;
}

static int once(struct top *top)
{
    struct look look;
    struct buf text;

    int r = look_take(top->looker, &look);
    look_done(&look);
    if (r == 0)
        r = screen_key(top->interval_ns);
    if (r < 0)
        return r == -EAGAIN ? 0 : -ECANCELED;
    r = look_take(top->looker, &look);
    buf_init(&text, PICTURE_MAX_BYTES);
    if (r == 0)
        r = draw(top, &look, /* rows= */ 0, &text);
    if (r == 0 && (fwrite(text.data, 1, text.size, stdout) != text.size))
        r = -EPIPE;
    buf_done(&text);
    look_done(&look);
    return r;
}

/* One look, and waiting for the next.  1: it was enough. */
static int turn(struct top *top, struct look *look, bool first)
{
    struct buf text;
    int r = look_take(top->looker, look);
    uint64_t until = clock_monotonic() + (first ? FIRST_NS : top->interval_ns);

    while (r == 0 || r == -EAGAIN) {
        uint64_t now = clock_monotonic();
        buf_init(&text, PICTURE_MAX_BYTES);
        r = draw(top, look, cli_rows(), &text);
        if (r == 0)
            screen_draw(&text);
        buf_done(&text);
        if (r == 0)
            r = screen_key(now < until ? until - now : 0);
        if (r == 'q' || r == 'Q')
            return 1;
        if (r == 'p')
            top->ours = !top->ours;
        if (r == 0)
            return 0;
        r = r > 0 ? 0 : r;
    }
    return r;
}

static int live(struct top *top)
{
    struct look look;
    int r = screen_open();

    for (bool first = true; r == 0; first = false) {
        r = turn(top, &look, first);
        look_done(&look);
    }
    screen_close();
    return r == 1 || r == -EINTR || cli_interrupted ? 0 : r;
}

int command_top(struct target *t, int argc, char **argv)
{
    struct top top = {.interval_ns = NS_PER_S, .target = t};
    int r = cli_parse(argc, argv, take, &top);

    if (r == 0 && t->kind == TARGET_FILES)
        r = err_set(-ESRCH, "%s %s: top shows what runs; its data can be asked with query", t->text,
                    t->stopped ? "is stopped" : "is dead");
    if (r == 0)
        r = looker_new(t, &top.looker);
    if (r < 0)
        return r;
    r = top.once || cli_width() == 0 ? once(&top) : live(&top);
    looker_free(top.looker);
    if (r == 0 && cli_interrupted)
        return 130;
    return r < 0 ? r : EXIT_DONE;
}
