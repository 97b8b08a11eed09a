/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/empty_reason.c - why a table has no rows.
 *
 * Threads: any.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

int cuda_why_empty(const struct session_about *s, const char *table, char *text, uint32_t size)
{
    if (strncmp(table, "cuda.", 5) != 0)
        return -ENOENT;
    const char *of = strcmp(table, "cuda.runtime") == 0
                         ? "no call has taken as long as cuda.min_call_duration since then"
                         : "nothing of that kind was seen since then";
    if (s->state == SESSION_TRACING)
        (void)snprintf(text, size, "CUDA is traced, and %s", of);
    else if (s->state == SESSION_OFF)
        (void)snprintf(text, size,
                       "cuda.kernels is off; config cuda.kernels=on traces from then on");
    else if (s->state == SESSION_WAITING || s->state == SESSION_BETWEEN)
        (void)snprintf(text, size, "CUDA is not traced: %s", s->reason);
    else
        (void)snprintf(text, size,
                       "CUDA is not traced: %s; meanwhile config torch.device_times=on times "
                       "modules by CUDA's events (plugin torch: python.torch_device_time)",
                       s->reason);
    return 0;
}
