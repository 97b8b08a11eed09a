/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/torch/targets/libcuda.c - stands for CUDA's driver where there is none: a device that is
 * always late.
 *
 * One thread.  A stream's time goes on by what stand_in_work() says; an event has passed when LATE
 * more have been recorded.  A call that the driver would refuse gives the driver's error.  A copy's
 * bytes come when an event behind it has passed; before that there is something else.
 */
#include <stdlib.h>
#include <string.h>

#define LATE 14 /* events: a step of device.py has 12 */
#define COPIES 64

struct copy {
    void *to;
    size_t n;
    int behind; /* number of the event recorded last */
    char bytes[8];
};

struct event {
    int recorded; /* its number; 0: it was not */
    double ms;
};

static struct copy copies[COPIES];
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
    if (recorded < e->recorded + LATE)
        return 600;
    for (int i = 0; i < COPIES; i++)
        if (copies[i].to && copies[i].behind < e->recorded) {
            memcpy(copies[i].to, copies[i].bytes, copies[i].n);
            copies[i].to = NULL;
        }
    return 0;
}

int cuMemHostAlloc(void **ret, size_t n, unsigned flags)
{
    if (flags != 1 || mode != 2)
        return refused++, 1;
    *ret = calloc(1, n);
    return 0;
}

int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t n, void *stream)
{
    int i = 0;
    if (stream != (void *)7 || captured || elsewhere || n > sizeof(copies[0].bytes))
        return refused++, 900;
    if (failing)
        return failing;
    while (i < COPIES && copies[i].to)
        i++;
    if (i == COPIES)
        return refused++, 1;
    copies[i] = (struct copy){.to = to, .n = n, .behind = recorded};
    memcpy(copies[i].bytes, from, n);
    memset(to, 0x55, n);
    return 0;
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
