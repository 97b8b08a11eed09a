/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/tracer.h - records of CUPTI become rows: work on the device is put together
 * with the call that asked for it, and with the place in the program where that was.
 *
 * Records come on the session's own thread; the rest as each comment says.
 */
#ifndef CUDA_TRACE_TRACER_H
#define CUDA_TRACE_TRACER_H

#include "cupti/cupti_session.h"
#include "trace/tables.h"
#include "window/window_setting.h"

struct tracer_about {
    struct session_about session;
    uint64_t kernels, kernel_rows; /* seen since the plugin began; with a row of their own */
    uint64_t unlaunched;           /* kernels and copies whose call was not seen */
    uint64_t unplaced;             /* that had no room to wait for their call */
};

struct tracer;

int tracer_new(const struct probing_host *host, struct tracer **ret); /* 0 or -errno [control] */
void tracer_free(struct tracer *t);                                   /* after the end [control] */
/* 0, -ENOENT: no such setting, -EINVAL after fail().                                 [control] */
int tracer_configure(struct tracer *t, const char *name, const char *value);
int tracer_start(struct tracer *t); /* 0 or -errno, said                              [control] */
void tracer_stop(struct tracer *t); /* also where CUPTI hangs                         [control] */
void tracer_about(struct tracer *t, struct tracer_about *ret); /*                        [any] */
void tracer_forked(struct tracer *t); /*                                [child] */

#define TRACER_SETTINGS                                                                            \
    {.name = "kernels",                                                                            \
     .value = "on",                                                                                \
     .doc = "on: kernels, copies and calls of CUDA are traced by CUPTI; off: nothing is",          \
     .type = PROBING_STR,                                                                          \
     .flags = PROBING_LIVE},                                                                       \
        {.name = "window",                                                                         \
         .value = WINDOW_DEFAULT,                                                                  \
         .doc = "2%: CUDA is traced as long as that costs no more than 2 % of the program's "      \
                "time, and else in windows that are so far apart; 2s/20s: for 2 s of every 20 s; " \
                "always: all the time",                                                            \
         .type = PROBING_STR,                                                                      \
         .flags = PROBING_LIVE},                                                                   \
        {.name = "max_rows_per_second",                                                            \
         .value = "2000",                                                                          \
         .doc = "rows a second that cuda.kernels, and each of the other tables of single "         \
                "things, may get: of more, those at each second's begin have one, and "            \
                "cuda.kernel_stats has all kernels",                                               \
         .type = PROBING_I64,                                                                      \
         .flags = PROBING_LIVE,                                                                    \
         .min = 0,                                                                                 \
         .max = 10000000},                                                                         \
    {                                                                                              \
        .name = "min_call_duration", .value = "20us",                                              \
        .doc = "calls of the runtime and driver that take so long have a row in cuda.runtime",     \
        .type = PROBING_I64, .unit = PROBING_NS, .flags = PROBING_LIVE, .min = 0, .max = INT64_MAX \
    }

#endif
