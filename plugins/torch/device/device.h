/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/device/device.h - what happens on a GPU: its memory as torch's allocator counts it,
 * and how long work takes there, which nobody waits for.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_DEVICE_DEVICE_H
#define TORCH_DEVICE_DEVICE_H

#include "internal.h"
#include "python/tensor.h"

struct thread;

#define DEVICE_NAME_BYTES 128u /* of a variable */

/* ---- cuda_memory.c ---- */

struct memory { /* MB, of one device */
    double allocated, max_allocated, cached, max_cached;
};
/* Look for torch's functions; its CUDA part is initialised late. */
void memory_find(void);
void memory_forget(void);
/* device: its number, below 0: the thread's current one.  false: CUDA is not in use, or torch does
 * not tell. */
bool memory_ask(int device, struct memory *ret);
/* Why there is nothing to ask, one clause; NULL: CUDA is in use. */
const char *memory_why(void);
uint32_t memory_devices(void); /* of CUDA's that this process sees */
/* Numbers of a device's allocator, of all its pools together; which: NULL of what has none.
 * Numbers that this torch does not have are PROBING_NULL_I64.  false: it does not tell. */
struct memory_name {
    const char *what, *which; /* "allocated_bytes", "peak" */
};
bool memory_numbers(int device, const struct memory_name *names, uint32_t n, int64_t *ret);
/* Does it keep the stacks of allocations (_record_memory_history())?  PROBING_NULL_I64: not told */
int64_t memory_history(void);
/* The thread's current device, below 0: there is none. */
int memory_device(void);

/* ---- cuda_events.c ---- */

extern const struct probing_table_desc device_table;
extern struct probing_table *device_times;
struct device_work { /* what a row will say of it */
    uint64_t name, stage, step;
    int64_t seq;
};
/* A tensor's number has come, of a step before.  name: lives as long as the call. */
typedef void (*device_told)(uint64_t step, uint64_t func, const char *name, double number);
struct device_number {
    int kind;      /* as tensor_place() says */
    uint64_t func; /* interned */
    char name[DEVICE_NAME_BYTES];
    device_told told;
};
void device_find(void);
void device_forget(void);
/* Work is queued from here on; gives a ticket, 0: it is not measured.  device: as above. */
uint64_t device_begin(int device);
/* It has all been queued; NULL: forget it. */
void device_end(uint64_t ticket, const struct device_work *work);
/* Queue a copy of the one number of a tensor on the thread's current device, behind what computes
 * it; gives a ticket, 0: it is not read, as while a stream is captured.  The tensor may go at
 * once. */
uint64_t device_number(PyObject *tensor, uint64_t step);
/* It is wanted, and told at a later step's end.  Unclaimed ones are forgotten when their step is
 * over.  func: interned. */
bool device_claim(uint64_t ticket, uint64_t func, const char *name, device_told told);
/* Rows for what the device has done meanwhile. */
void device_read(void);
/* A step has ended: likewise. */
void device_ended(const struct thread *t, uint64_t end_ns);

#endif
