/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/side_commands.c - see side_commands.h.
 *
 * One thread, which polls the outputs of all.
 */
#include "cli/cluster/side_commands.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/terminal/interrupt.h"
#include "cli/terminal/limits.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define TURN_MS 50              /* between looks at Ctrl-C, and at those that have ended */
#define PIECE_BYTES 65536       /* read at once */
#define GRACE_NS (2 * NS_PER_S) /* for one that was told to end: an injection puts things right */

/* In the child. */
static int become(void *arg)
{
    const struct side_command *c = arg;

    cli_signals_back();
    (void)execvp(c->argv[0], c->argv);
    return err_set(-errno, "cannot run %s: %s", c->argv[0], strerror(errno));
}

static int side_start(struct side_command *c, uint64_t timeout_ns)
{
    buf_init(&c->out, SIDE_OUTPUT_BYTES);
    buf_init(&c->err, SIDE_OUTPUT_BYTES);
    c->deadline_ns = clock_monotonic() + timeout_ns;
    return child_start(&c->child, become, c);
}

/* For a reason of ours: it is told to end first. */
static void side_stop(struct side_command *c, int error)
{
    uint64_t now = clock_monotonic();

    if (c->told_ns == 0) {
        c->told_ns = now;
        c->error = error;
        child_interrupt(&c->child);
    } else if (now - c->told_ns > GRACE_NS) {
        child_kill(&c->child);
    }
}

static void side_read(struct side_command *c)
{
    for (int i = 0; i < 2; i++) {
        int rc = child_read(&c->child, i, i == 0 ? &c->out : &c->err, PIECE_BYTES);
        if (rc == -ENOBUFS || rc == -ENOMEM)
            side_stop(c, -EMSGSIZE);
    }
}

/* One that has ended may have left a child that keeps its output: that is not waited for. */
static void side_look(struct side_command *c)
{
    bool gone = child_ended(&c->child); /* before the last look at what it has said */

    for (int i = 0; i < 2; i++)
        while (gone && child_read(&c->child, i, i == 0 ? &c->out : &c->err, PIECE_BYTES) > 0)
            ;
    if (gone) {
        c->ended = true;
        c->status = c->child.status;
        child_end(&c->child);
    } else if (cli_interrupted || c->told_ns != 0) {
        side_stop(c, -ECANCELED);
    } else if (clock_monotonic() > c->deadline_ns) {
        side_stop(c, -ETIMEDOUT);
    }
}

/* Wait for output of those that run, [0, begun), and take it. */
static void side_turn(struct side_command *list, uint32_t begun, struct pollfd *polls)
{
    nfds_t n = 0;

    for (uint32_t i = 0; i < begun; i++)
        for (int k = 0; k < 2 && !list[i].ended; k++)
            polls[n++] = (struct pollfd){.fd = list[i].child.fds[k], .events = POLLIN};
    (void)poll(polls, n, TURN_MS);
    for (uint32_t i = 0; i < begun; i++) {
        if (list[i].ended)
            continue;
        side_read(&list[i]);
        side_look(&list[i]);
    }
}

int side_commands_run(struct side_command *list, uint32_t n, uint32_t at_once, uint64_t timeout_ns)
{
    struct pollfd *polls = calloc(2 * (size_t)n + 1, sizeof(*polls));
    uint32_t begun = 0, running = 0;

    if (polls == NULL)
        return err_set(-ENOMEM, "no memory for %u commands", n);
    do {
        for (; begun < n && running < at_once; begun++) {
            list[begun].error = cli_interrupted ? -ECANCELED : side_start(&list[begun], timeout_ns);
            list[begun].ended = list[begun].error < 0;
            running += !list[begun].ended;
        }
        side_turn(list, begun, polls);
        running = 0;
        for (uint32_t i = 0; i < begun; i++)
            running += !list[i].ended;
    } while (running > 0 || begun < n);
    free(polls);
    return cli_interrupted ? err_set(-ECANCELED, "interrupted") : 0;
}

void side_command_done(struct side_command *c)
{
    child_end(&c->child);
    buf_done(&c->out);
    buf_done(&c->err);
}

/* Give the last words of probing there, else the last line: of a shell, or ssh. */
static void last_words(struct buf *b, char *ret, size_t size)
{
    const char *text = buf_text(b);
    size_t end = b->size, begin;

    child_last_words(b, ret, size);
    if (ret[0] != '\0')
        return;
    while (end > 0 && strchr(" \r\n", text[end - 1]) != NULL)
        end--;
    for (begin = end; begin > 0 && text[begin - 1] != '\n';)
        begin--;
    (void)snprintf(ret, size, "%.*s", (int)(end - begin > 500 ? 500 : end - begin), text + begin);
}

void side_command_why(struct side_command *c, uint64_t timeout_ns, char *ret, size_t size)
{
    char amount[TEXT_AMOUNT_BYTES], words[520];
    const char *colon;

    ret[0] = '\0';
    last_words(&c->err, words, sizeof(words));
    colon = words[0] != '\0' ? ": " : "";
    text_ns((int64_t)timeout_ns, amount);
    if (c->error == -ETIMEDOUT)
        (void)snprintf(ret, size, "no answer within %s%s%s", amount, colon, words);
    else if (c->error == -ECANCELED)
        (void)snprintf(ret, size, "interrupted");
    else if (c->error == -EMSGSIZE)
        (void)snprintf(ret, size, "its answer has more than 16 MB");
    else if (c->error < 0)
        (void)snprintf(ret, size, "%s could not be run: %s", c->argv[0], cli_fork_why(-c->error));
    else if (WIFSIGNALED(c->status))
        (void)snprintf(ret, size, "%s was ended by signal %d%s%s", c->argv[0], WTERMSIG(c->status),
                       colon, words);
    else if (WEXITSTATUS(c->status) != 0 && words[0] != '\0')
        (void)snprintf(ret, size, "%s", words);
    else if (WEXITSTATUS(c->status) != 0)
        (void)snprintf(ret, size, "%s ended with code %d and did not say why", c->argv[0],
                       WEXITSTATUS(c->status));
}
