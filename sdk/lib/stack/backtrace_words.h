/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/stack/backtrace_words.h - the words of `backtrace`, read in one place: by the command
 * before it asks anybody, and by whoever is asked.
 *
 * No state, no allocation: any thread.
 */
#ifndef SDK_LIB_STACK_BACKTRACE_WORDS_H
#define SDK_LIB_STACK_BACKTRACE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BACKTRACE_USAGE \
    "[--thread TID] [--native|--python] [--locals|--locals=repr] [--tasks] [--json] [--all]"
#define BACKTRACE_COMMAND_USAGE BACKTRACE_USAGE " [--external] [--full] [--watch] [--interval TIME]"

enum backtrace_asked {
    BACKTRACE_INSIDE,  /* who answers is in the process */
    BACKTRACE_OUTSIDE, /* who answers reads another process: nothing runs there */
    BACKTRACE_COMMAND  /* the command, which has words of its own */
};

enum want { WANT_BOTH, WANT_NATIVE, WANT_PYTHON };

struct backtrace_words {
    enum want want;
    int32_t only; /* a thread's id, 0: all */
    bool all;     /* ours too */
    bool locals, json;
    bool tasks, repr;     /* by Python code in the process */
    bool external, watch; /* the command's own, and: */
    bool full;            /* on a terminal fold and cut nothing */
    const char *interval; /* the command's own: as it was written, NULL: it was not */
};

/* argv[0] is "backtrace".  0, or -EINVAL with one line in `why`: the same for the same wrong words,
 * whoever reads them. */
int backtrace_words(int argc, const char *const *argv, enum backtrace_asked asked,
                    struct backtrace_words *ret, char *why, size_t why_size);

/* How many of the words at argv[0] are the command's own, and not for who is asked: 0 to 2. */
int backtrace_own_words(const char *const *argv);

#endif
