/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/rows.c - what records say, as cells.
 *
 * Threads: one at a time.
 */
#include "trace/rows.h"

static union probing_cell number_cell(uint32_t value)
{
    return probing_i64(value == CUPTI_NONE ? PROBING_NULL_I64 : (int64_t)value);
}

static union probing_cell size_of(uint64_t value)
{
    return probing_i64(value <= INT64_MAX ? (int64_t)value : PROBING_NULL_I64);
}

/* 0 stands for none. */
static union probing_cell number_or_none(uint64_t value)
{
    return value ? size_of(value) : probing_i64(PROBING_NULL_I64);
}

static union probing_cell duration_cell(uint64_t begin_ns, uint64_t end_ns)
{
    bool known = begin_ns && end_ns >= begin_ns;
    return probing_i64(known ? (int64_t)(end_ns - begin_ns) : PROBING_NULL_I64);
}

static void put_place(union probing_cell *row, const struct record *r, const struct place *p)
{
    row[PLACE_THREAD] = number_or_none(p->launch ? p->launch->thread : 0);
    row[PLACE_STEP] = probing_i64(p->step);
    row[PLACE_MODULE] = probing_id(p->module);
    row[PLACE_CORRELATION] = number_or_none(r->correlation);
}

static void put_span(union probing_cell *row, const struct record *r)
{
    row[0] = number_or_none(r->start);
    row[1] = number_or_none(r->end);
    row[2] = duration_cell(r->start, r->end);
}

static void append_row(const struct rows *w, struct probing_table *table, uint64_t ts,
                       const union probing_cell *row, uint32_t n)
{
    (void)w->host->append(table, ts, row, n, NULL, 0); /* what it refuses it counts */
}

void rows_kernel(const struct rows *w, const struct record *r, const struct place *p, uint64_t name)
{
    union probing_cell row[N_KERNELS];
    row[KERNELS_NAME] = probing_id(name);
    put_span(&row[KERNELS_START], r);
    row[KERNELS_DEVICE] = number_cell(r->device);
    row[KERNELS_CONTEXT] = number_cell(r->context);
    row[KERNELS_STREAM] = number_cell(r->stream);
    row[KERNELS_GRID] = probing_id(names_size(w->names, r->kernel.grid));
    row[KERNELS_BLOCK] = probing_id(names_size(w->names, r->kernel.block));
    row[KERNELS_REGISTERS] = number_cell(r->kernel.registers);
    row[KERNELS_SHARED] = size_of(r->kernel.shared_bytes);
    row[KERNELS_QUEUED] = duration_cell(p->launch ? p->launch->begin_ns : 0, r->start);
    row[KERNELS_LAUNCH] = p->launch ? duration_cell(p->launch->begin_ns, p->launch->end_ns)
                                    : probing_i64(PROBING_NULL_I64);
    row[KERNELS_GRAPH] = number_or_none(r->kernel.graph);
    row[KERNELS_GRAPH_NODE] = number_or_none(r->kernel.graph_node);
    put_place(&row[KERNELS_PLACE], r, p);
    append_row(w, w->tables.kernels, r->start, row, N_KERNELS);
}

static uint64_t copy_kind(const struct rows *w, const struct record *r)
{
    return r->kind == CUPTI_MEMSET ? probing_intern_text(w->host, "memset")
                                   : names_word(w->names, WORDS_COPY, r->copy.kind);
}

static void add_copy(const struct rows *w, const struct record *r, const struct place *p)
{
    union probing_cell row[N_MEMCPY];
    bool set = r->kind == CUPTI_MEMSET;
    row[MEMCPY_KIND] = probing_id(copy_kind(w, r));
    row[MEMCPY_BYTES] = size_of(r->copy.bytes);
    put_span(&row[MEMCPY_START], r);
    row[MEMCPY_SRC_KIND] =
        probing_id(set ? PROBING_NULL_ID : names_word(w->names, WORDS_MEMORY, r->copy.src_kind));
    row[MEMCPY_DST_KIND] = probing_id(names_word(w->names, WORDS_MEMORY, r->copy.dst_kind));
    row[MEMCPY_DEVICE] = number_cell(r->device);
    row[MEMCPY_SRC_DEVICE] = number_cell(r->copy.src_device);
    row[MEMCPY_DST_DEVICE] = number_cell(r->copy.dst_device);
    row[MEMCPY_CONTEXT] = number_cell(r->context);
    row[MEMCPY_STREAM] = number_cell(r->stream);
    row[MEMCPY_ASYNC] = probing_i64((r->copy.flags & RECORD_ASYNC) != 0);
    row[MEMCPY_GRAPH] = number_or_none(r->copy.graph);
    put_place(&row[MEMCPY_PLACE], r, p);
    append_row(w, w->tables.memcpy, r->start, row, N_MEMCPY);
}

static void add_memory(const struct rows *w, const struct record *r, const struct place *p)
{
    union probing_cell row[N_MEMORY];
    row[MEMORY_KIND] = probing_id(names_word(w->names, WORDS_OPERATION, r->memory.operation));
    row[MEMORY_MEMORY_KIND] = probing_id(names_word(w->names, WORDS_MEMORY, r->memory.kind));
    row[MEMORY_BYTES] = size_of(r->memory.bytes);
    row[MEMORY_ADDRESS] = size_of(r->memory.address);
    row[MEMORY_DURATION] = p->launch ? duration_cell(p->launch->begin_ns, p->launch->end_ns)
                                     : probing_i64(PROBING_NULL_I64);
    row[MEMORY_DEVICE] = number_cell(r->device);
    row[MEMORY_CONTEXT] = number_cell(r->context);
    row[MEMORY_STREAM] = number_cell(r->stream);
    row[MEMORY_ASYNC] = probing_i64(r->memory.asynchronous != 0);
    put_place(&row[MEMORY_PLACE], r, p);
    append_row(w, w->tables.memory, r->start, row, N_MEMORY);
}

static void add_call(const struct rows *w, const struct record *r, const struct place *p)
{
    union probing_cell row[N_RUNTIME];
    bool driver = r->kind == CUPTI_DRIVER;
    row[RUNTIME_NAME] = probing_id(names_call(w->names, w->session, driver, r->call.id)->id);
    row[RUNTIME_API] = probing_id(probing_intern_text(w->host, driver ? "driver" : "runtime"));
    row[RUNTIME_DURATION] = duration_cell(r->start, r->end);
    row[RUNTIME_RESULT] = number_cell(r->call.result);
    put_place(&row[RUNTIME_PLACE], r, p);
    row[RUNTIME_PLACE + PLACE_THREAD] = number_or_none(r->call.thread);
    append_row(w, w->tables.runtime, r->start, row, N_RUNTIME);
}

static void add_sync(const struct rows *w, const struct record *r, const struct place *p)
{
    union probing_cell row[N_SYNC];
    row[SYNC_KIND] = probing_id(names_word(w->names, WORDS_SYNC, r->sync.type));
    row[SYNC_DURATION] = duration_cell(r->start, r->end);
    row[SYNC_CONTEXT] = number_cell(r->context);
    row[SYNC_STREAM] = number_cell(r->stream);
    row[SYNC_EVENT] = number_or_none(r->sync.event == CUPTI_NONE ? 0 : r->sync.event);
    put_place(&row[SYNC_PLACE], r, p);
    append_row(w, w->tables.sync, r->start, row, N_SYNC);
}

static void add_overhead(const struct rows *w, const struct record *r)
{
    union probing_cell row[N_OVERHEAD];
    row[OVERHEAD_KIND] = probing_id(names_word(w->names, WORDS_OVERHEAD, r->overhead.kind));
    row[OVERHEAD_DURATION] = duration_cell(r->start, r->end);
    row[OVERHEAD_THREAD] = number_cell(r->overhead.thread);
    append_row(w, w->tables.overhead, r->start, row, N_OVERHEAD);
}

void rows_add(const struct rows *w, const struct record *r, const struct place *p)
{
    switch (r->kind) {
    case CUPTI_MEMCPY:
    case CUPTI_MEMCPY2:
    case CUPTI_MEMSET:
        add_copy(w, r, p);
        break;
    case CUPTI_MEMORY2:
        add_memory(w, r, p);
        break;
    case CUPTI_RUNTIME:
    case CUPTI_DRIVER:
        add_call(w, r, p);
        break;
    case CUPTI_SYNCHRONIZATION:
        add_sync(w, r, p);
        break;
    case CUPTI_OVERHEAD:
        add_overhead(w, r);
        break;
    default: /* CUPTI's number, and no row is made of the others */
        break;
    }
}

struct event_key rows_event_key(const struct rows *w, const struct record *r, const struct place *p)
{
    struct event_key key = {
        .memory_kind = PROBING_NULL_ID, .module = p->module, .device = r->device};
    if (r->kind == CUPTI_SYNCHRONIZATION) {
        key.event = probing_intern_text(w->host, "sync");
        key.kind = names_word(w->names, WORDS_SYNC, r->sync.type);
    } else if (r->kind == CUPTI_MEMORY2) {
        key.event = probing_intern_text(w->host, "memory");
        key.kind = names_word(w->names, WORDS_OPERATION, r->memory.operation);
        key.memory_kind = names_word(w->names, WORDS_MEMORY, r->memory.kind);
    } else {
        key.event = probing_intern_text(w->host, "memcpy");
        key.kind = copy_kind(w, r);
        key.memory_kind = names_word(w->names, WORDS_MEMORY,
                                     r->kind == CUPTI_MEMSET ? r->copy.dst_kind : r->copy.src_kind);
    }
    return key;
}
