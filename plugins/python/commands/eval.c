/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/commands/eval.c - the commands `eval` and `complete`: a client's Python in the
 * process.
 *
 * [worker] parses, waits and sends; a runner's thread runs the code (session.c).
 * It does not limit what the code does: that is the client's right, checked by the core.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "exec/session.h"
#include "internal.h"
#include "lib/buf.h"

#define GIL_NS (10 * PROBING_NS_PER_S)        /* to wait for the GIL, when --timeout does not say */
#define COMPLETE_NS UINT64_C(2000000000)      /* somebody has just pressed Tab */
#define LOOK_NS UINT64_C(100000000)           /* how often a waiting worker asks for cancelled() */
#define HEARS_NS UINT64_C(2000000000)         /* for code to end: longer than it is interrupted */
#define TOOL_NS UINT64_C(30000000000)         /* for one of our own tools to do its work */
#define DAY_NS (24 * 3600 * PROBING_NS_PER_S) /* no --timeout is longer */
#define WORD_END '\x1f'                       /* between the words of a tool, and behind the last */

struct eval_args {
    const char *mode; /* of session.py's run() */
    bool tool;        /* it is ours, not a client's */
    const char *code;
    const char *file;        /* the name of the file that `code` is; NULL: none */
    const char *const *args; /* the words behind it, up to a NULL */
    int n_args;
    uint64_t timeout_ns; /* 0: none */
};

/* Pass output on until the code has ended: its result; or -ECANCELED when the client went, and
 * -ETIMEDOUT when it was `until` (0: no limit). */
static int follow_output(struct plugin *p, struct runner_job *job, uint64_t until,
                         struct probing_reply *out)
{
    char *copy = malloc(SESSION_OUTPUT);
    int result = copy ? 0 : -ENOMEM;
    for (bool done = false; !done && result == 0;) {
        runner_lock(p->runner);
        if (!session_has(job) && job->state < RUNNER_DONE)
            runner_sleep(p->runner, LOOK_NS);
        done = job->state >= RUNNER_DONE;
        runner_unlock(p->runner);
        size_t n = session_take(job, copy);
        if (n)
            result = p->host->reply(out, copy, n);
        if (!done && result == 0 && p->host->cancelled(out))
            result = -ECANCELED;
        if (!done && result == 0 && until && p->host->now() >= until)
            result = -ETIMEDOUT;
    }
    free(copy);
    return result == 0 ? job->result : result;
}

/* It has been interrupted, and does it hear of that? */
static int say_late(struct plugin *p, struct runner_job *job, const struct eval_args *w)
{
    char why[80], reason[300];
    (void)snprintf(why, sizeof(why),
                   w->tool ? "it did not end in %.3g s"
                           : "the code ran longer than --timeout allows (%.3g s)",
                   probing_seconds(w->timeout_ns));
    enum runner_state state = runner_wait(p->runner, job, RUNNER_RUNS, HEARS_NS);
    int tid = runner_tid_of(p->runner, job);
    if (state >= RUNNER_DONE || !tid)
        (void)snprintf(reason, sizeof(reason), "%s and was interrupted", why);
    else
        (void)snprintf(
            reason, sizeof(reason),
            "%s and did not react to the interrupt: it is inside a C call, or catches the "
            "exception; it was left running in thread %d, see backtrace --all --thread %d",
            why, tid, tid);
    return p->host->fail(p->host, -ETIMEDOUT, reason);
}

/* The GIL did not come in time: who has it, and where is that thread? */
static int say_stuck(struct plugin *p, struct probing_reply *out, uint64_t timeout_ns)
{
    char line[512], reason[640];
    char *frames = backtrace_holder(p, line, sizeof(line));
    (void)snprintf(reason, sizeof(reason),
                   "the code did not run because it did not get the GIL within %.3g s; %s",
                   probing_seconds(timeout_ns), line);
    if (frames && *frames)
        (void)p->host->reply(out, frames, strlen(frames));
    free(frames);
    return p->host->fail(p->host, -ETIMEDOUT, reason);
}

static int say_behind(struct plugin *p, int tid, uint64_t timeout_ns)
{
    char reason[240];
    (void)snprintf(reason, sizeof(reason),
                   "it did not start within %.3g s because code of other clients is still running, "
                   "some of it in thread %d; see backtrace --all --thread %d",
                   probing_seconds(timeout_ns), tid, tid);
    return p->host->fail(p->host, -ETIMEDOUT, reason);
}

/* Wait for the GIL: 0 when the code runs, else the command's answer. */
static int wait_for_gil(struct plugin *p, struct runner_job *job, struct probing_reply *out,
                        uint64_t timeout_ns)
{
    uint64_t until = p->host->now() + timeout_ns;
    for (;;) {
        uint64_t now = p->host->now();
        uint64_t step = now < until ? until - now : 0;
        if (runner_wait(p->runner, job, RUNNER_WAITS, step < LOOK_NS ? step : LOOK_NS) !=
            RUNNER_WAITS)
            return 0;
        bool gone = p->host->cancelled(out) != 0;
        if (!gone && p->host->now() < until)
            continue;
        int behind = runner_is_behind(p->runner, job);
        if (!runner_take_back(p->runner, job))
            return 0;
        if (behind && !gone)
            return say_behind(p, behind, timeout_ns);
        return gone ? -ECANCELED : say_stuck(p, out, timeout_ns);
    }
}

static int say_result(struct plugin *p, int result)
{
    const struct probing_host *h = p->host;
    switch (result) {
    case -ENODEV:
        return h->fail(h, result, "the Python interpreter is ending or has not begun");
    case -EDEADLK:
        return h->fail(h, result, "eval was called from inside an eval");
    case -EILSEQ:
        return h->fail(h, -EINVAL, "the code is not UTF-8");
    case -ENOMEM:
        return h->fail(h, result, "no memory to run the code");
    default:
        return result;
    }
}

/* "2" (seconds), "0.5s", "500ms", "2m" or "1h": 0, or -EINVAL, -ERANGE (over a day). */
static int parse_time(const char *text, uint64_t *ret_ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"", PROBING_NS_PER_S},          {"s", PROBING_NS_PER_S},
                 {"ms", PROBING_NS_PER_S / 1000}, {"m", 60 * PROBING_NS_PER_S},
                 {"min", 60 * PROBING_NS_PER_S},  {"h", 3600 * PROBING_NS_PER_S}};
    const size_t digits = strspn(text, "0123456789");
    const char *end = text + digits;
    uint64_t whole = 0, value, ns = 0;
    if (digits == 0)
        return -EINVAL;
    for (size_t i = 0; i < digits; i++)
        if ((whole = whole * 10 + (uint64_t)(text[i] - '0')) > DAY_NS)
            return -ERANGE;
    if (*end == '.')
        end += 1 + strspn(end + 1, "0123456789");
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(end, units[i].name) == 0)
            ns = units[i].ns;
    if (ns == 0)
        return -EINVAL;
    if (__builtin_mul_overflow(whole, ns, &value) || value > DAY_NS)
        return -ERANGE;
    for (const char *p = text + digits + 1; p < end; p++)
        value += (ns /= 10) * (uint64_t)(*p - '0');
    *ret_ns = value;
    return 0;
}

static int parse_arguments(struct plugin *p, int argc, const char *const *argv,
                           struct eval_args *ret)
{
    const struct probing_host *h = p->host;
    int i = 1;
    while (i < argc && argv[i][0] == '-' && argv[i][1]) {
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (strcmp(argv[i], "--line") == 0) {
            ret->mode = "line";
            i++;
            continue;
        }
        if (strcmp(argv[i], "--file") == 0 && i + 2 < argc) {
            *ret = (struct eval_args){.mode = "file",
                                      .file = argv[i + 1],
                                      .code = argv[i + 2],
                                      .args = argv + i + 3,
                                      .n_args = argc - i - 3,
                                      .timeout_ns = ret->timeout_ns};
            return 0;
        }
        if (strcmp(argv[i], "--timeout") != 0)
            break; /* code may begin with a minus: -1 */
        if (i + 1 == argc || parse_time(argv[i + 1], &ret->timeout_ns))
            return h->fail(h, -EINVAL, "eval: --timeout needs a time up to 24h: --timeout 30s");
        i += 2;
    }
    if (i + 1 != argc)
        return h->fail(h, -EINVAL,
                       i >= argc ? "eval needs code: eval \"print(1 + 1)\""
                                 : "eval takes one argument; put the code in quotes");
    ret->code = argv[i];
    return 0;
}

/* Have a runner's thread do it; answer with what it prints. */
static int run_args(struct plugin *p, const struct eval_args *w, struct probing_reply *out)
{
    uint64_t begin = p->host->now();
    struct runner_job *job = session_new(p, w->mode, w->code, !w->tool);
    if (!job)
        return say_result(p, -ENOMEM);
    int result = runner_submit(p->runner, job);
    if (result < 0) {
        session_free(job);
        return say_result(p, result);
    }
    result = wait_for_gil(p, job, out, w->timeout_ns ? w->timeout_ns : GIL_NS);
    bool runs = result == 0;
    if (runs)
        result = follow_output(p, job, w->timeout_ns ? begin + w->timeout_ns : 0, out);
    if (runs && runner_wait(p->runner, job, RUNNER_RUNS, 0) < RUNNER_DONE)
        runner_interrupt(p->runner, job);
    if (runs)
        result = result == -ETIMEDOUT ? say_late(p, job, w) : say_result(p, result);
    if ((result == SESSION_REFUSED || result == -EIO) && session_reason(job)[0])
        result = p->host->fail(p->host, result < 0 ? result : -EINVAL, session_reason(job));
    runner_release(p->runner, job);
    return result;
}

/* A file: how many words there are, its name, its words, its text.  NULL: no memory. */
static char *join_words(const struct eval_args *w)
{
    struct buf text;
    buf_init(&text, SIZE_MAX);
    (void)buf_addf(&text, "%d%c%s%c", w->n_args, WORD_END, w->file, WORD_END);
    for (int i = 0; i < w->n_args; i++)
        (void)buf_addf(&text, "%s%c", w->args[i], WORD_END);
    (void)buf_adds(&text, w->code);
    char *all = buf_steal(&text, NULL);
    buf_done(&text);
    return all;
}

int eval_tool(struct plugin *p, int argc, const char *const *argv, struct probing_reply *out)
{
    return eval_tool_within(p, TOOL_NS, argc, argv, out);
}

int eval_tool_within(struct plugin *p, uint64_t timeout_ns, int argc, const char *const *argv,
                     struct probing_reply *out)
{
    size_t n = 1;
    for (int i = 1; i < argc; i++)
        n += strlen(argv[i]) + 1;
    char *words = malloc(n), *at = words;
    if (!words)
        return say_result(p, -ENOMEM);
    for (int i = 1; i < argc; i++) {
        size_t length = strlen(argv[i]);
        memcpy(at, argv[i], length);
        at[length] = WORD_END;
        at += length + 1;
    }
    *at = '\0';
    const struct eval_args w = {
        .mode = argv[0], .tool = true, .code = words, .timeout_ns = timeout_ns};
    int result = run_args(p, &w, out);
    free(words);
    return result;
}

static int eval_run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct eval_args w = {.mode = "run"};
    int r = parse_arguments(self, argc, argv, &w);
    if (r < 0 || !w.file)
        return r < 0 ? r : run_args(self, &w, out);
    char *whole = join_words(&w);
    if (!whole)
        return say_result(self, -ENOMEM);
    w.code = whole;
    r = run_args(self, &w, out);
    free(whole);
    return r;
}

static int complete_run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct plugin *p = self;
    if (argc != 2)
        return p->host->fail(p->host, -EINVAL, "complete takes one name: complete os.pat");
    const struct eval_args w = {.mode = "complete", .code = argv[1], .timeout_ns = COMPLETE_NS};
    return run_args(p, &w, out);
}

const struct probing_command eval_command = {
    .size = sizeof(struct probing_command),
    .flags = PROBING_WRITES,
    .name = "eval",
    .usage = "[--timeout TIME] [--line] CODE | --file NAME CODE [ARGUMENT...]",
    .doc = "run Python code in the process and print what it prints and the value of its last "
           "line; --line: one statement, with status 2 when more lines are needed; --file: the "
           "text of a file",
    .run = eval_run,
};

const struct probing_command complete_command = {
    .size = sizeof(struct probing_command),
    .flags = PROBING_WRITES,
    .name = "complete",
    .usage = "NAME",
    .doc = "completions of a Python name, one per line, for prompts",
    .run = complete_run,
};
