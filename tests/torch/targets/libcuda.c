/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/torch/targets/libcuda.c - stands for CUDA's driver where there is none: a device that is
 * always late.
 *
 * One thread.  A stream's time goes on by what stand_in_work() says; an event has passed when LATE
 * more have been recorded.  A call that the driver would refuse gives the driver's error.
 */
#include <stdlib.h>

#define LATE 14 /* events: a step of device.py has 12 */

struct event {
    int recorded; /* its number; 0: it was not */
    double ms;
};

static double now_ms = 1.0;
static int living, captured, elsewhere, mode, refused, failing, recorded;

void stand_in_work(double ms)
{
    now_ms += ms;
}

void stand_in_capture(int on)
{
    captured = on;
}

/* Another stream is captured that waits for this one. */
void stand_in_capture_elsewhere(int on)
{
    elsewhere = on;
}

void stand_in_fail(int error)
{
    failing = error;
}

int stand_in_living(void)
{
    return living;
}

int stand_in_refused(void)
{
    return refused;
}

int cuCtxGetCurrent(void **ret)
{
    *ret = &now_ms;
    return 0;
}

int cuEventCreate(struct event **ret, unsigned flags)
{
    if (flags != 0 || mode != 2)
        return refused++, 1;
    *ret = calloc(1, sizeof(**ret));
    living++;
    return 0;
}

int cuEventDestroy_v2(struct event *e)
{
    free(e);
    living--;
    return 0;
}

int cuEventRecord(struct event *e, void *stream)
{
    if (stream != (void *)7 || captured || elsewhere)
        return refused++, 900;
    if (failing)
        return failing;
    *e = (struct event){.recorded = ++recorded, .ms = now_ms};
    return 0;
}

int cuEventQuery(struct event *e)
{
    if (!e->recorded || mode != 2)
        return refused++, 1;
    return recorded < e->recorded + LATE ? 600 : 0;
}

int cuEventElapsedTime(float *ret, struct event *from, struct event *to)
{
    if (!from->recorded || recorded < to->recorded + LATE)
        return refused++, 600;
    *ret = (float)(to->ms - from->ms);
    return 0;
}

int cuStreamIsCapturing(void *stream, int *ret)
{
    (void)stream;
    *ret = captured;
    return elsewhere ? 906 : 0; /* CUDA_ERROR_STREAM_CAPTURE_IMPLICIT */
}

int cuThreadExchangeStreamCaptureMode(int *swap)
{
    int before = mode;
    mode = *swap;
    *swap = before;
    return 0;
}
