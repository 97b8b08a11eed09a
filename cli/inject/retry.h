/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/retry.h - what a failed step of an injection means, and whether it is made again: one
 * table for all layers.
 *
 * Any thread; no state beyond the caller's struct.
 */
#ifndef CLI_INJECT_RETRY_H
#define CLI_INJECT_RETRY_H

#include <stdbool.h>
#include <stdint.h>

enum retry_level {
    RETRY_TRACER, /* the look whether somebody traces the process: preflight.c */
    RETRY_THREAD, /* one thread, of which there are others: tracee.c */
    RETRY_ENTRY,  /* the injection as a whole, in its own process: inject.c */
    RETRY_COMMAND /* `inject --wait`, until its time is over: cli/commands/inject/inject.c */
};

struct retry_rule {
    enum retry_level level;
    int code;         /* of the failed step */
    const char *what; /* is true of the target then */
    uint32_t tries;   /* it is made again so often, at once; 0: as long as follows */
    uint64_t pause_ns;
    uint64_t most_ns; /* since the first try; 0: until the caller's own end */
    bool entered;     /* also where a core had come in already */
};

struct retry {
    enum retry_level level;
    bool entered; /* by the caller: a core has come in */
    uint64_t begin_ns, end_ns;
    uint32_t tries;
};

/* NULL: such a failure is final. */
const struct retry_rule *retry_rule(enum retry_level level, int code);

/* end_ns: of clock_monotonic(), when the caller's time is over. */
struct retry retry_begin(enum retry_level level, uint64_t end_ns);

/* After a step that gave `code`: true, when the pause is over: make it again.  stopped: is asked
 * before that, NULL: nobody stops it.  The caller's reason (err_text()) stays. */
bool retry_again(struct retry *r, int code, bool (*stopped)(void));

#endif
