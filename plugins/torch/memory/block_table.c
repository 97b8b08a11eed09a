/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/memory/block_table.c - the table memory.torch_blocks: the snapshot of torch's
 * caching allocator, its blocks added up by state and by who allocated them.
 *
 * Threads: [worker]; with the GIL for torch.cuda.memory_snapshot(), which is torch's own Python
 * code, asks no device, and takes the allocator's lock for as long as it lists its blocks.
 * Who allocated is known of what came after torch.cuda.memory._record_memory_history() was called;
 * that is never called here.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/device.h"
#include "lib/array.h"
#include "lib/hash.h"
#include "memory/tensor_look.h"
#include "python/pyobject.h"

#define ROWS_MAX 10000u
#define STATE_BYTES 32u
#define NAME_BYTES 96u
#define FILE_BYTES 256u

struct block_group {
    struct block_key {
        int64_t device, line; /* line 0: not known */
        char pool[STATE_BYTES], state[STATE_BYTES], function[NAME_BYTES], file[FILE_BYTES];
    } key;
    int64_t blocks, bytes, requested;
};

struct blocks {
    struct block_group *all;
    uint32_t n, room;
    struct number_index index;
    bool cut; /* ROWS_MAX, or no memory */
};

static struct block_group *group_of(struct blocks *b, const struct block_key *key)
{
    uint64_t hash = hash_bytes(HASH_FNV, key, sizeof(*key)) | 1;
    for (uint32_t *at; (at = number_find(&b->index, hash)); hash += 2)
        if (memcmp(&b->all[*at].key, key, sizeof(*key)) == 0)
            return &b->all[*at];
    struct block_group *larger = array_grow(b->all, b->n, &b->room, sizeof(*larger), 2 * ROWS_MAX);
    if (!larger)
        return NULL;
    b->all = larger;
    if (!number_put(&b->index, hash, b->n))
        return NULL;
    b->all[b->n] = (struct block_group){.key = *key};
    return &b->all[b->n++];
}

/* ---- with the GIL ---- */

static Py_ssize_t list_length(PyObject *list)
{
    struct cpython *py = &python.api;
    return list && object_is(list, py->PyList_Type) ? py->PyList_Size(list) : 0;
}

static void put_text(PyObject *dict, const char *key, char *room, size_t size)
{
    PyObject *value = object_item(dict, key);
    python.api.Py_IncRef(value);
    object_text(value, room, size);
}

/* The innermost frame of Python that is the program's, else torch's. */
static void put_place(PyObject *frames, struct block_key *key)
{
    struct cpython *py = &python.api;
    for (Py_ssize_t i = 0; i < list_length(frames); i++) {
        PyObject *frame = py->PyList_GetItem(frames, i);
        char file[FILE_BYTES] = "";
        put_text(frame, "filename", file, sizeof(file));
        size_t n = strlen(file);
        bool own = !strstr(file, "/torch/");
        if (n < 3 || strcmp(file + n - 3, ".py") != 0 || (!own && key->file[0]))
            continue;
        memset(key->file, 0, sizeof(key->file)); /* keys are compared as bytes */
        memset(key->function, 0, sizeof(key->function));
        memcpy(key->file, file, n);
        put_text(frame, "name", key->function, sizeof(key->function));
        key->line = object_number_in(frame, "line");
        if (own)
            return;
    }
}

static void add_block(struct blocks *b, PyObject *block, const struct block_key *segment)
{
    struct block_key key = *segment;
    int64_t size = object_number_in(block, "size");
    int64_t requested = object_number_in(block, "requested_size");
    put_text(block, "state", key.state, sizeof(key.state));
    put_place(object_item(block, "frames"), &key);
    struct block_group *one = b->n < ROWS_MAX ? group_of(b, &key) : NULL;
    b->cut = b->cut || !one;
    if (!one)
        return;
    one->blocks++;
    one->bytes += size > 0 ? size : 0;
    one->requested += requested > 0 ? requested : 0;
}

static int list_blocks(void *arg)
{
    struct cpython *py = &python.api;
    struct blocks *b = arg;
    if (memory_why())
        return 0;
    PyObject *all = py->PyObject_CallMethod(object_module("torch.cuda"), "memory_snapshot", NULL);
    py->PyErr_Clear();
    for (Py_ssize_t i = 0; i < list_length(all); i++) {
        PyObject *segment = py->PyList_GetItem(all, i), *blocks = object_item(segment, "blocks");
        struct block_key key = {.device = object_number_in(segment, "device")};
        put_text(segment, "segment_type", key.pool, sizeof(key.pool));
        for (Py_ssize_t j = 0; j < list_length(blocks); j++)
            add_block(b, py->PyList_GetItem(blocks, j), &key);
    }
    py->Py_DecRef(all);
    return 0;
}

/* ---- without it ---- */

static int emit_group(struct probing_rows *out, const struct block_group *g)
{
    char device[32];
    (void)snprintf(device, sizeof(device), "cuda:%lld", (long long)g->key.device);
    const union probing_cell cells[] = {
        probing_str(device),
        probing_str(g->key.pool[0] ? g->key.pool : NULL),
        probing_str(g->key.state[0] ? g->key.state : NULL),
        probing_str(g->key.function[0] ? g->key.function : NULL),
        probing_str(g->key.file[0] ? g->key.file : NULL),
        probing_i64(g->key.line > 0 ? g->key.line : PROBING_NULL_I64),
        probing_i64(g->blocks),
        probing_i64(g->bytes),
        probing_i64(g->requested)};
    return torch_state.host->emit(out, cells, PROBING_LENGTH(cells));
}

static int scan_blocks(void *self, struct probing_rows *out)
{
    const struct probing_host *h = torch_state.host;
    struct blocks b = {.n = 0};
    (void)self;
    int rc = object_lookup(list_blocks, &b);
    if (rc == 0 && b.cut)
        rc = h->fail(h, -E2BIG, "more than 10000 places, or no memory for them");
    for (uint32_t i = 0; i < b.n && rc == 0; i++)
        rc = emit_group(out, &b.all[i]);
    free(b.all);
    free(b.index.slots);
    return probing_scanned(rc);
}

static const struct probing_column columns[] = {
    PROBING_STR_COLUMN("device", "cuda:0 ..."),
    PROBING_STR_COLUMN("pool", "small or large, as the allocator keeps them"),
    PROBING_STR_COLUMN("state", "active_allocated: in a tensor; active_pending_free, "
                                "active_awaiting_free: freed, a stream may still use it; inactive: "
                                "free"),
    PROBING_STR_COLUMN("function_name", "who allocated it: the innermost function of Python that "
                                        "is not torch's; NULL: torch keeps no history"),
    PROBING_STR_COLUMN("file", "of it"),
    PROBING_I64_COLUMN("lineno", PROBING_PLAIN, "of it"),
    PROBING_I64_COLUMN("blocks", PROBING_COUNT, "number of blocks"),
    PROBING_I64_COLUMN("bytes", PROBING_BYTES, "their bytes"),
    PROBING_I64_COLUMN("requested_bytes", PROBING_BYTES, "what of it was asked for"),
};

const struct probing_table_desc block_table = PROBING_COMPUTED_TABLE(
    "memory.torch_blocks", columns, scan_blocks,
    "blocks of torch's caching allocator, by state and by who allocated them");
