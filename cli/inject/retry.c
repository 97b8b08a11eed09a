/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/retry.c - the table of failures that pass.
 *
 * Any thread.  What waits for one event, and asks nothing of the target anew, is not here: a core
 * that starts or leaves, a thread that begins.
 */
#include "cli/inject/retry.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

#include "core/base/clock.h"

static const struct retry_rule rules[] = {
    {RETRY_TRACER, -EBUSY, "another probing enters it, which is over in a moment", 0, 2 * NS_PER_MS,
     NS_PER_S, false},

    /* All others end the search: -EINTR, -ESTALE. */
    {RETRY_THREAD, -EAGAIN, "the thread came to no safe place in its time", 0, 0, 0, false},
    {RETRY_THREAD, -EBUSY, "somebody else traces the thread", 0, 2 * NS_PER_MS, 0, false},
    {RETRY_THREAD, -EPERM, "the thread may not be traced, another may", 0, 0, 0, false},
    {RETRY_THREAD, -ESRCH, "the thread has ended", 0, 0, 0, false},
    {RETRY_THREAD, -ETIMEDOUT, "the thread does not stop", 0, 0, 0, false},

    /* A shell script that becomes python does so once. */
    {RETRY_ENTRY, -ESTALE, "the process started another program meanwhile", 3, 0, 0, false},
    {RETRY_ENTRY, -EALREADY, "a core is just leaving it", 0, 5 * NS_PER_MS, 2 * NS_PER_S, false},

    {RETRY_COMMAND, -EAGAIN, "it is being loaded, is full, or no thread came to a safe place", 0,
     20 * NS_PER_MS, 0, false},
    {RETRY_COMMAND, -EALREADY, "a core takes long to leave it", 0, 20 * NS_PER_MS, 0, false},
    {RETRY_COMMAND, -EBUSY, "a debugger is there", 0, 20 * NS_PER_MS, 0, false},
    {RETRY_COMMAND, -ESTALE, "it starts one program after the other", 0, 20 * NS_PER_MS, 0, true},
};

const struct retry_rule *retry_rule(enum retry_level level, int code)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i].level == level && rules[i].code == code)
            return &rules[i];
    return NULL;
}

struct retry retry_begin(enum retry_level level, uint64_t end_ns)
{
    return (struct retry){.level = level, .begin_ns = clock_monotonic(), .end_ns = end_ns};
}

bool retry_again(struct retry *r, int code, bool (*stopped)(void))
{
    const struct retry_rule *rule = retry_rule(r->level, code);
    if (!rule || (r->entered && !rule->entered) || (stopped && stopped()))
        return false;
    if (rule->tries > 0)
        return r->tries++ < rule->tries;
    if (clock_monotonic() >= (rule->most_ns ? r->begin_ns + rule->most_ns : r->end_ns))
        return false;
    if (rule->pause_ns)
        (void)nanosleep(&(struct timespec){.tv_nsec = (int64_t)rule->pause_ns}, NULL);
    return true;
}
