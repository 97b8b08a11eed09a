/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/interrupt.c - Ctrl-C and its like: every wait ends, and what was begun is put in
 * order.
 *
 * One thread, and handlers that only set what others look at.
 */
#include "cli/terminal/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

volatile sig_atomic_t cli_interrupted, cli_terminated, cli_prompts;
_Atomic int cli_cancel;
/* SIGPIPE: `probing ... | head`.  SIGXFSZ: `ulimit -f`.  The write fails, and that is handled. */
static const int ours[] = {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ};
#define N_OURS (sizeof(ours) / sizeof(ours[0]))
static struct sigaction before[N_OURS]; /* as main() met them */

static void on_interrupt(int signo)
{
    cli_interrupted = 1;
    if (signo == SIGTERM)
        cli_terminated = 1;
    if (cli_prompts)
        (void)alarm(1); /* it may have come a moment before the read that it is to end */
    atomic_store_explicit(&cli_cancel, 1, memory_order_relaxed);
}

void cli_interrupt_over(void)
{
    cli_interrupted = 0;
    atomic_store_explicit(&cli_cancel, 0, memory_order_relaxed);
}

void cli_signals_catch(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: waits must end */

    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &action, NULL);
    (void)sigaction(SIGXFSZ, &action, NULL);
}

void cli_signals_keep(void)
{
    for (size_t i = 0; i < N_OURS; i++)
        (void)sigaction(ours[i], NULL, &before[i]);
}

void cli_signals_back(void)
{
    for (size_t i = 0; i < N_OURS; i++)
        (void)sigaction(ours[i], &before[i], NULL);
}
