/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/device/cuda_events.c - how long a module's work takes on a GPU: events in its
 * stream, read when they have passed.
 *
 * Threads: any that holds the GIL.
 *
 * Two events of CUDA's driver stand around what a call queues on the thread's current stream; the
 * device writes down when it comes by, and a later step asks for it.  Nobody waits: what has not
 * passed is asked again next time, and where 4,096 are under way no more begin.  Streams that are
 * captured into a graph are left alone, and the calls that a capture elsewhere forbids are made in
 * relaxed mode, as torch's own watchdog does.  The first error switches it off until the next load.
 * (cuda.h; the names are the same from CUDA 11 to 13.)
 *
 * A number that lies on the device is read in the same way: a copy of its bytes is queued in the
 * stream behind what computes it, between such events.  No tensor is kept for it: the allocator
 * gives the memory away in the order of the stream.  That another stream computes it cannot be seen
 * here.
 */
#include "device/device.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SPANS 4096u       /* under way at a time; a power of two */
#define READ_MAX 512u     /* at a time, beside as many as have begun since: about a millisecond */
#define NOT_READY 600     /* CUDA_ERROR_NOT_READY */
#define RELAXED 2         /* CU_STREAM_CAPTURE_MODE_RELAXED */
#define NOT_CAPTURED 0    /* CU_STREAM_CAPTURE_STATUS_NONE */
#define CAPTURE_FIRST 900 /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
#define CAPTURE_LAST 908  /* CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD */
#define HOST_PORTABLE 1   /* CU_MEMHOSTALLOC_PORTABLE */
#define MS_PER_S 1e3

typedef struct cuda_context *context; /* CUcontext */
typedef struct cuda_event *event;     /* CUevent */
typedef struct cuda_stream *stream;   /* CUstream */

static struct {
    int (*cuCtxGetCurrent)(context *);
    int (*cuEventCreate)(event *, unsigned);
    int (*cuEventRecord)(event, stream);
    int (*cuEventQuery)(event);
    int (*cuEventElapsedTime)(float *, event, event);
    int (*cuEventDestroy_v2)(event);
    int (*cuStreamIsCapturing)(stream, int *);
    int (*cuThreadExchangeStreamCaptureMode)(int *);
    int (*cuMemHostAlloc)(void **, size_t, unsigned);
    int (*cuMemcpyDtoHAsync_v2)(void *, uint64_t, size_t, stream);
} cuda; /* lock: the GIL */

struct span {
    context where; /* the events' own; NULL: there are none yet */
    event begin, end;
    stream on;
    int number; /* of the device */
    enum { EMPTY, BEGUN, ENDED, FORGOTTEN } state;
    struct device_work work;
    bool copies, claimed; /* a number's bytes come to `host`; somebody wants them */
    struct device_number number_of;
};

static struct {
    bool usable, failed;
    PyObject *stream_of;  /* torch._C._cuda_getCurrentRawStream, owned */
    struct span *spans;   /* SPANS of them, made with the first */
    uint64_t *host;       /* as many words of locked memory, made with the first copy */
    uint64_t first, next; /* numbers of the oldest under way and of the one to come */
    uint64_t read;        /* `next` when they were read last */
    uint64_t loads;       /* of libraries, when libcuda was looked for last */
    pid_t owner;          /* of the events: in a forked child they are nobody's */
} device;                 /* lock: the GIL */

enum {
    COL_DEVICE_STEP,
    COL_DEVICE_SEQ,
    COL_DEVICE_MODULE,
    COL_DEVICE_STAGE,
    COL_DEVICE_SEC,
    COL_DEVICE_NAME,
    N_DEVICE
};

static const struct probing_column columns[N_DEVICE] = {
    PROBING_I64_COLUMN("local_step", PROBING_PLAIN, "as in python.torch_trace"),
    PROBING_I64_COLUMN("seq", PROBING_PLAIN,
                       "as in python.torch_trace: with local_step it identifies the call"),
    PROBING_STR_COLUMN("module", "as there"),
    PROBING_STR_COLUMN("stage", "'post forward', 'recomputed forward' or 'post step'"),
    PROBING_F64_COLUMN("duration", PROBING_SECONDS,
                       "time from the begin to the end of its work on the device, including gaps"),
    PROBING_STR_COLUMN("device", "cuda:0 ..."),
};

const struct probing_table_desc device_table =
    PROBING_TABLE("python.torch_device_time", columns,
                  "durations of module and optimizer calls on the GPU (torch.device_times)");

struct probing_table *device_times;

/* ---- the driver ---- */

/* How many libraries ld.so has ever loaded: it tells with each of them, and the first will do. */
static int count_loads(struct dl_phdr_info *info, size_t size, void *ret_loads)
{
    (void)size;
    *(uint64_t *)ret_loads = info->dlpi_adds;
    return 1;
}

/* dlopen() compares the name with every library's and looks for a file: up to 20 ms were seen in a
 * process of 300, each time, on a machine that is short of memory.  So only after others came. */
void device_find(void)
{
    uint64_t loads = 0;
    (void)dl_iterate_phdr(count_loads, &loads);
    if (device.usable || device.failed || (loads && loads == device.loads))
        return;
    device.loads = loads;
    struct cpython *py = &python.api;
    static const char *const names[] = {"cuCtxGetCurrent",     "cuEventCreate",
                                        "cuEventRecord",       "cuEventQuery",
                                        "cuEventElapsedTime",  "cuEventDestroy_v2",
                                        "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode",
                                        "cuMemHostAlloc",      "cuMemcpyDtoHAsync_v2"};
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    PyObject *c = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "torch._C");
    if (!library || !c) {
        if (library)
            (void)dlclose(library);
        return;
    }
    void *found[sizeof(names) / sizeof(names[0])];
    bool whole = true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        found[i] = dlsym(library, names[i]);
        whole = whole && found[i];
    }
    (void)dlclose(library); /* who loaded it holds it: CUDA is never unloaded */
    if (!device.stream_of)
        device.stream_of = py->PyObject_GetAttrString(c, "_cuda_getCurrentRawStream");
    py->PyErr_Clear();
    device.usable = whole && device.stream_of;
    if (device.usable)
        memcpy(&cuda, found, sizeof(cuda)); /* in the order of its fields */
}

static bool has_worked(int error)
{
    if (error == 0)
        return true;
    char text[120];
    (void)snprintf(text, sizeof(text),
                   "torch: CUDA's driver gave error %d: device times are off until the next load",
                   error);
    torch_state.host->log(torch_state.host, PROBING_WARN, text);
    device.usable = false;
    device.failed = true;
    return false;
}

/* Can work on this stream be measured now?  Not while it is captured, nor the default stream while
 * another one is that waits for it: the driver refuses to say, and nothing has failed. */
static bool is_free(stream on)
{
    int captured = NOT_CAPTURED, rc = cuda.cuStreamIsCapturing(on, &captured);
    if (rc >= CAPTURE_FIRST && rc <= CAPTURE_LAST)
        return false;
    return has_worked(rc) && captured == NOT_CAPTURED;
}

/* A capture anywhere in the process forbids some calls on all threads, except in relaxed mode. */
static int exchange_capture_mode(int mode)
{
    (void)cuda.cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

static bool has_events(struct span *s, context where)
{
    if (s->where == where)
        return true;
    int mode = exchange_capture_mode(RELAXED);
    if (s->where) {
        (void)cuda.cuEventDestroy_v2(s->begin);
        (void)cuda.cuEventDestroy_v2(s->end);
        s->where = NULL;
    }
    bool made = has_worked(cuda.cuEventCreate(&s->begin, /* flags= */ 0));
    if (made && !has_worked(cuda.cuEventCreate(&s->end, /* flags= */ 0))) {
        (void)cuda.cuEventDestroy_v2(s->begin);
        made = false;
    }
    s->where = made ? where : NULL;
    (void)exchange_capture_mode(mode);
    return made;
}

static bool stream_now(int number, stream *ret)
{
    struct cpython *py = &python.api;
    PyObject *arg = py->PyLong_FromLongLong(number);
    PyObject *value = arg ? cpython_vectorcall(py, device.stream_of, &arg, 1, NULL) : NULL;
    uintptr_t raw = value ? (uintptr_t)py->PyLong_AsUnsignedLongLong(value) : 0;
    bool known = value && !py->PyErr_Occurred();
    py->PyErr_Clear();
    py->Py_DecRef(arg);
    py->Py_DecRef(value);
    *ret = (stream)raw;
    return known;
}

/* ---- spans ---- */

uint64_t device_begin(int number)
{
    context where = NULL;
    stream on = NULL;
    if (!device.usable || device.next - device.first >= SPANS)
        return 0;
    int current = memory_device();
    if (current < 0 || (number >= 0 && number != current) || !stream_now(current, &on))
        return 0;
    if (!device.spans)
        device.spans = calloc(SPANS, sizeof(*device.spans));
    if (!device.spans || !has_worked(cuda.cuCtxGetCurrent(&where)) || !where || !is_free(on))
        return 0;
    device.owner = getpid();
    struct span *s = &device.spans[device.next % SPANS];
    if (!has_events(s, where) || !has_worked(cuda.cuEventRecord(s->begin, on)))
        return 0;
    s->state = BEGUN;
    s->copies = s->claimed = false;
    s->on = on;
    s->number = current;
    return ++device.next;
}

void device_end(uint64_t ticket, const struct device_work *work)
{
    if (!ticket || !device.spans || ticket <= device.first)
        return;
    struct span *s = &device.spans[(ticket - 1) % SPANS];
    if (s->state != BEGUN)
        return;
    s->state = FORGOTTEN;
    if (!work || !device.usable || !is_free(s->on) ||
        !has_worked(cuda.cuEventRecord(s->end, s->on)))
        return;
    s->work = *work;
    s->state = ENDED;
}

static void add_row(const struct span *s, double ms)
{
    union probing_cell row[N_DEVICE] = {{.u = s->work.step},  {.i = s->work.seq},
                                        {.u = s->work.name},  {.u = s->work.stage},
                                        {.f = ms / MS_PER_S}, {.u = PROBING_NULL_ID}};
    char name[24];
    (void)snprintf(name, sizeof(name), "cuda:%d", s->number);
    row[COL_DEVICE_NAME].u = probing_intern_text(torch_state.host, name);
    (void)torch_state.host->append(device_times, torch_state.now(), row, N_DEVICE, NULL, 0);
}

/* ---- numbers ---- */

static bool has_host(void)
{
    if (device.host)
        return true;
    void *made = NULL;
    int mode = exchange_capture_mode(RELAXED);
    bool is = has_worked(cuda.cuMemHostAlloc(&made, SPANS * sizeof(*device.host), HOST_PORTABLE));
    (void)exchange_capture_mode(mode);
    device.host = is ? made : NULL;
    return is && made;
}

static uint64_t *host_of(const struct span *s)
{
    return &device.host[s - device.spans];
}

uint64_t device_number(PyObject *tensor, uint64_t step)
{
    struct tensor_place at;
    if (!device.usable || tensor_place(tensor, &at) < 0)
        return 0;
    uint64_t ticket = device_begin(at.device);
    if (!ticket)
        return 0;
    struct span *s = &device.spans[(ticket - 1) % SPANS];
    if (!has_host() ||
        !has_worked(cuda.cuMemcpyDtoHAsync_v2(host_of(s), at.address, at.width, s->on))) {
        s->state = FORGOTTEN;
        return 0;
    }
    device_end(ticket, &(struct device_work){.step = step});
    s->copies = s->state == ENDED;
    s->number_of.kind = at.kind;
    return s->copies ? ticket : 0;
}

bool device_claim(uint64_t ticket, uint64_t func, const char *name, device_told told)
{
    if (!ticket || !device.spans || ticket <= device.first || ticket > device.next)
        return false;
    struct span *s = &device.spans[(ticket - 1) % SPANS];
    s->claimed = s->copies;
    s->number_of.func = func;
    s->number_of.told = told;
    (void)snprintf(s->number_of.name, sizeof(s->number_of.name), "%s", name);
    return s->claimed;
}

static void add_number(const struct span *s)
{
    if (s->claimed)
        s->number_of.told(s->work.step, s->number_of.func, s->number_of.name,
                          tensor_number(s->number_of.kind, host_of(s)));
}

/* Has the device come by the end of it? */
static bool has_passed(const struct span *s)
{
    float ms = 0;
    int rc = cuda.cuEventQuery(s->end);
    if (rc == NOT_READY || !has_worked(rc))
        return false;
    if (s->copies) {
        add_number(s);
        return true;
    }
    if (has_worked(cuda.cuEventElapsedTime(&ms, s->begin, s->end)))
        add_row(s, (double)ms);
    return true;
}

void device_read(void)
{
    if (!device.usable || device.first == device.next)
        return;
    int mode = exchange_capture_mode(RELAXED);
    uint64_t most = READ_MAX + device.next - device.read;
    for (device.read = device.next; most && device.first != device.next; most--) {
        struct span *s = &device.spans[device.first % SPANS];
        if (s->state == BEGUN || (s->state == ENDED && !has_passed(s)))
            break;
        s->state = EMPTY;
        device.first++;
    }
    (void)exchange_capture_mode(mode);
}

void device_ended(const struct thread *t, uint64_t end_ns)
{
    (void)t;
    (void)end_ns;
    device_read();
}

void device_forget(void)
{
    PyObject *stream_of = device.stream_of;
    bool ours = device.owner == getpid(); /* CUDA is of no use in a forked child */
    for (uint32_t i = 0; device.spans && ours && i < SPANS; i++)
        if (device.spans[i].where) {
            (void)cuda.cuEventDestroy_v2(device.spans[i].begin);
            (void)cuda.cuEventDestroy_v2(device.spans[i].end);
        }
    free(device.spans);
    /* locked memory stays: the device may still write there */
    memset(&device, 0, sizeof(device));
    python.api.Py_DecRef(stream_of);
}
