/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/signal.h - "probing.signal/1", by the core: signals for a plugin's own use in
 * the program's threads, and given back only when none can come any more.
 *
 * A signal that comes after its handler has gone ends the process.  So the handler that the kernel
 * knows is the core's, which stays mapped: it calls the plugin's, or nothing.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_SIGNAL_H
#define PROBING_EXT_SIGNAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_SIGNAL_1 "probing.signal/1"

/* info: siginfo_t *, as sigaction(2) gives it.  `kind` is -1: the signal was sent by a timer, a
 * descriptor or somebody else.  All signals but SIGBUS are blocked.  false: it is not the
 * plugin's; then the program's handler gets it, where there was one.                 [signal] */
typedef bool probing_signal_fn(int kind, void *info, void *context);

struct probing_signal_1 {
    uint32_t size, reserved;
    /* 0: a real-time signal that nobody has, or one of those on which the program's runtime has
     * put one handler for all (Go); else this one, if nobody has it or it is fn's already.
     * The number, or -EBUSY.                                                            [any] */
    int (*take)(int32_t number, probing_signal_fn *fn);
    /* Is it fn's still?  Programs put back the default of all signals without asking.    [any] */
    bool (*is_ours)(int32_t number);
    /* After what sends it has gone: timers deleted, descriptors closed.  fn is not called any more,
     * but may still run.  0, or 1: a handler that does nothing stays.  One that the program has
     * taken meanwhile is left to it.                                                    [any] */
    int (*give)(int32_t number);
};

#ifdef __cplusplus
}
#endif
#endif
