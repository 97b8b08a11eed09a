/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/environment.c - see environment.h.
 *
 * A look of apart.h's; keeps nothing.
 */
#include "cli/target/environment.h"

#include <errno.h>
#include <stdlib.h>

#include "cli/target/apart.h"
#include "core/stack/stack.h"
#include "sdk/lib/proc/environ_now.h"

struct look {
    pid_t pid;
    struct stack_process *process;
    uint64_t at;
    struct buf text;
};

/* The first that has it: a program that has a copy of libc's lies before the libraries. */
static int find(void *arg, const struct stack_module *m)
{
    struct look *l = arg;

    l->at = stack_symbol_address(l->process, m, "environ");
    return l->at != 0;
}

static int look(void *arg)
{
    struct look *l = arg;
    struct proc_memory memory = PROC_MEMORY_OF(l->pid);
    int rc = stack_process_open(l->pid, &l->process);

    if (rc < 0)
        return rc;
    (void)stack_modules(l->process, find, l);
    if (l->at != 0)
        rc = proc_environ_now(&memory, l->at, &l->text);
    proc_memory_close(&memory);
    stack_process_free(l->process);
    return rc;
}

static void look_free(void *arg)
{
    struct look *l = arg;

    buf_done(&l->text);
    free(l);
}

int environment_now(pid_t pid, struct buf *ret)
{
    struct look *l = calloc(1, sizeof(*l));
    bool ended;

    if (l == NULL)
        return -ENOMEM;
    l->pid = pid;
    buf_init(&l->text, ret->max);
    int rc = apart_run(pid, look, l, look_free, &ended);
    if (rc == 0)
        rc = buf_add(ret, l->text.data, l->text.size);
    if (ended)
        look_free(l);
    return rc;
}
