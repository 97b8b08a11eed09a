/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/interrupt.c - Ctrl-C and its like: every wait ends, and what was begun is put in
 * order.
 *
 * One thread, and handlers that only set what others look at.
 */
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cli/cli.h"

volatile sig_atomic_t cli_interrupted, cli_prompts;
_Atomic int cli_cancel;
static struct sigaction before[3]; /* SIGINT, SIGTERM, SIGPIPE; as main() met them */

static void on_interrupt(int signo)
{
    (void)signo;
    cli_interrupted = 1;
    if (cli_prompts)
        (void)alarm(1); /* it may have come a moment before the read that it is to end */
    atomic_store_explicit(&cli_cancel, 1, memory_order_relaxed);
}

void cli_signals_catch(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: waits must end */

    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN; /* `probing ... | head`: the write fails, and that is handled */
    (void)sigaction(SIGPIPE, &action, NULL);
}

void cli_signals_keep(void)
{
    (void)sigaction(SIGINT, NULL, &before[0]);
    (void)sigaction(SIGTERM, NULL, &before[1]);
    (void)sigaction(SIGPIPE, NULL, &before[2]);
}

void cli_signals_back(void)
{
    (void)sigaction(SIGINT, &before[0], NULL);
    (void)sigaction(SIGTERM, &before[1], NULL);
    (void)sigaction(SIGPIPE, &before[2], NULL);
}
