/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/memory/allocator_table.c - the table memory.torch_allocator: what torch's
 * allocators say of themselves, and in words where they do not.
 *
 * Threads: [worker]; with the GIL for the allocators' own counters, which ask no device.
 */
#include <stdio.h>

#include "device/device.h"
#include "memory/tensor_look.h"
#include "python/pyobject.h"

#define DEVICES_MAX 64u

static const struct memory_name names[] = {
    {"allocated_bytes", "current"}, {"allocated_bytes", "peak"},
    {"requested_bytes", "current"}, {"reserved_bytes", "current"},
    {"reserved_bytes", "peak"},     {"active_bytes", "current"},
    {"active_bytes", "peak"},       {"inactive_split_bytes", "current"},
    {"segment", "current"},         {"allocation", "current"},
    {"num_alloc_retries", NULL},    {"num_ooms", NULL}};

struct allocators {
    uint32_t n;
    const char *why; /* there is none of CUDA's */
    int64_t history;
    struct {
        bool told;
        int64_t numbers[PROBING_LENGTH(names)];
    } all[DEVICES_MAX];
};

static int read_allocators(void *arg)
{
    struct allocators *a = arg;
    a->why = memory_why();
    a->n = a->why ? 0 : memory_devices();
    a->n = a->n < DEVICES_MAX ? a->n : DEVICES_MAX;
    a->history = a->why ? PROBING_NULL_I64 : memory_history();
    for (uint32_t i = 0; i < a->n; i++)
        a->all[i].told = memory_numbers((int)i, names, PROBING_LENGTH(names), a->all[i].numbers);
    return 0;
}

/* numbers: NULL: none are known, for the reason in `note`. */
static int emit_row(struct probing_rows *out, const char *device, const int64_t *numbers,
                    int64_t history, const char *note)
{
    union probing_cell cells[PROBING_LENGTH(names) + 3] = {probing_str(device)};
    for (size_t i = 0; i < PROBING_LENGTH(names); i++)
        cells[1 + i] = probing_i64(numbers ? numbers[i] : PROBING_NULL_I64);
    cells[PROBING_LENGTH(names) + 1] = probing_str(history == PROBING_NULL_I64 ? NULL
                                                   : history                   ? "on"
                                                                               : "off");
    cells[PROBING_LENGTH(names) + 2] = probing_str(note);
    return torch_state.host->emit(out, cells, PROBING_LENGTH(cells));
}

static int scan_allocators(void *self, struct probing_rows *out)
{
    struct allocators a = {.why = "the torch plugin has stopped"};
    (void)self;
    int rc = object_lookup(read_allocators, &a);
    if (rc == 0)
        rc = emit_row(out, "cpu", NULL, PROBING_NULL_I64,
                      "torch's allocator for the CPU keeps neither memory nor an account of it: "
                      "each storage is a malloc(), of which memory.live has samples; "
                      "memory.torch has what is alive, memory.peak the peak");
    if (rc == 0 && a.why)
        rc = emit_row(out, "cuda", NULL, PROBING_NULL_I64, a.why);
    for (uint32_t i = 0; i < a.n && rc == 0; i++) {
        char device[24];
        (void)snprintf(device, sizeof(device), "cuda:%u", i);
        rc = emit_row(out, device, a.all[i].told ? a.all[i].numbers : NULL, a.history,
                      a.all[i].told ? NULL : "this torch does not tell what its allocator has");
    }
    return probing_scanned(rc);
}

static const struct probing_column columns[] = {
    PROBING_STR_COLUMN("device", "cpu, cuda:0 ...; cuda: there is none that is in use"),
    PROBING_I64_COLUMN("allocated_bytes", PROBING_BYTES, "in tensors now"),
    PROBING_I64_COLUMN("peak_allocated_bytes", PROBING_BYTES,
                       "the most that it was, since the program reset it last"),
    PROBING_I64_COLUMN("requested_bytes", PROBING_BYTES,
                       "what of it was asked for: the rest is rounding"),
    PROBING_I64_COLUMN("reserved_bytes", PROBING_BYTES, "held by the allocator now"),
    PROBING_I64_COLUMN("peak_reserved_bytes", PROBING_BYTES, "the most that it was"),
    PROBING_I64_COLUMN("active_bytes", PROBING_BYTES,
                       "in tensors, and freed but still in use by a stream"),
    PROBING_I64_COLUMN("peak_active_bytes", PROBING_BYTES, "the most that it was"),
    PROBING_I64_COLUMN("inactive_split_bytes", PROBING_BYTES,
                       "free pieces of segments that are in use: they cannot be given back"),
    PROBING_I64_COLUMN("segments", PROBING_COUNT, "pieces that the driver has given"),
    PROBING_I64_COLUMN("allocations", PROBING_COUNT, "tensors' allocations now"),
    PROBING_I64_COLUMN("retries", PROBING_COUNT,
                       "allocations that worked only after all that was kept was given back"),
    PROBING_I64_COLUMN("ooms", PROBING_COUNT, "allocations that failed for want of memory"),
    PROBING_STR_COLUMN("history", "on: it keeps the stacks of allocations "
                                  "(torch.cuda.memory._record_memory_history()); NULL: not told"),
    PROBING_STR_COLUMN("note", "why numbers are not known"),
};

const struct probing_table_desc allocator_table = PROBING_COMPUTED_TABLE(
    "memory.torch_allocator", columns, scan_allocators,
    "counters of torch's allocators, by device; they come from the allocators themselves");
