/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/memory/tensor_table.c - the table memory.torch: bytes of torch's tensors, once for
 * each storage, by whose they are.
 *
 * Threads: [worker].  The look is made by the thread that calls a model, at the end of its step
 * (model_reader.c), or with the GIL here where no model is known: other threads may be in the
 * middle of an operation then, as they may for any thread of the program's that asks a tensor.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/array.h"
#include "lib/hash.h"
#include "memory/tensor_look.h"
#include "module_calls/model_reader.h"
#include "python/tensor.h"

#define GIL_WAIT_NS UINT64_C(2000000000)
#define ROWS_MAX 30000u /* with names and shapes; the rest is added up by kind */

struct group { /* storages that differ in nothing that a row says */
    struct group_key {
        struct tensor_owner owner;
        uint32_t device, dtype, shape, op, rest;
    } key;
    int64_t tensors, storages, bytes;
};

struct groups {
    struct group *all;
    uint32_t n, room;
    struct number_index index;
};

static const char *const kinds[TENSOR_KINDS] = {
    [TENSOR_OTHER] = "other",         [TENSOR_ACTIVATION] = "activation",
    [TENSOR_PARAMETER] = "parameter", [TENSOR_BUFFER] = "buffer",
    [TENSOR_GRADIENT] = "gradient",   [TENSOR_STATE] = "optimizer state"};

/* ---- with the GIL ---- */

static void read_root(void *arg, PyObject *root, bool own)
{
    struct tensor_look *l = arg;
    work_begin(); /* stop() waits: garbage may be collected here, and the GIL given up */
    owners_of_module(l, root, own);
    if (own && !l->scanned)
        tensor_scan(l);
    work_end();
}

static int scan_now(void *arg)
{
    PyObject *guard;
    if (!torch_on())
        return 0;
    if (!tensor_quiet(&guard))
        return -EAGAIN;
    work_begin();
    tensor_scan(arg);
    work_end();
    tensor_loud(guard);
    return 0;
}

static int look_at_tensors(struct tensor_look *l, const struct probing_python_gil_1 *gil)
{
    struct safe_point_read *turns = calloc(1, sizeof(*turns));
    if (!turns)
        return -ENOMEM;
    turns->read = read_root;
    turns->arg = l;
    int rc = safe_point_read_all(turns, gil);
    free(turns);
    if (rc == 0 && !l->scanned)
        rc = gil->call(scan_now, l, GIL_WAIT_NS);
    if (rc == 0)
        look_name_states(l);
    return rc;
}

/* ---- without it ---- */

static struct group *group_of(struct groups *g, const struct group_key *key)
{
    uint64_t hash = hash_bytes(HASH_FNV, key, sizeof(*key)) | 1;
    for (uint32_t *at; (at = number_find(&g->index, hash)); hash += 2)
        if (memcmp(&g->all[*at].key, key, sizeof(*key)) == 0)
            return &g->all[*at];
    struct group *larger = array_grow(g->all, g->n, &g->room, sizeof(*larger), UINT32_MAX);
    if (!larger)
        return NULL;
    g->all = larger;
    if (!number_put(&g->index, hash, g->n))
        return NULL;
    g->all[g->n] = (struct group){.key = *key};
    return &g->all[g->n++];
}

/* true: it is in a group. */
static bool add_up(struct groups *g, const struct tensor_look *l, const struct tensor_storage *s)
{
    struct group_key key = {.owner = look_owner(l, s),
                            .device = s->device,
                            .dtype = s->dtype,
                            .shape = s->shape,
                            .op = s->op};
    if (g->n >= ROWS_MAX)
        key = (struct group_key){.owner = {.kind = key.owner.kind}, .device = s->device, .rest = 1};
    const char *device = look_word(l, s->device);
    bool no_memory = device && strcmp(device, "meta") == 0;
    struct group *one = group_of(g, &key);
    if (!one)
        return false;
    one->tensors += s->tensors ? s->tensors : 1;
    one->storages++;
    if (s->bytes == PROBING_NULL_I64 && !no_memory)
        one->bytes = PROBING_NULL_I64;
    else if (one->bytes != PROBING_NULL_I64 && !no_memory)
        one->bytes += s->bytes;
    return true;
}

static int emit_row(struct probing_rows *out, const struct tensor_look *l, const struct group *g)
{
    const struct group_key *k = &g->key;
    const char *note = k->rest                        ? "all others"
                       : g->bytes == PROBING_NULL_I64 ? "its layout or device does not tell where "
                                                        "its bytes are"
                                                      : NULL;
    const union probing_cell cells[] = {probing_str(look_word(l, k->device)),
                                        probing_str(kinds[k->owner.kind]),
                                        probing_str(look_word(l, k->owner.root)),
                                        probing_str(look_word(l, k->owner.module)),
                                        probing_str(look_word(l, k->owner.name)),
                                        probing_str(look_word(l, k->dtype)),
                                        probing_str(look_word(l, k->shape)),
                                        probing_str(look_word(l, k->op)),
                                        probing_i64(g->tensors),
                                        probing_i64(g->storages),
                                        probing_i64(g->bytes),
                                        probing_str(note)};
    return torch_state.host->emit(out, cells, PROBING_LENGTH(cells));
}

/* A row that has no bytes, but words.  name, tensors: NULL and PROBING_NULL_I64 where there are
 * none. */
static int emit_note(struct probing_rows *out, const char *kind, const char *name, int64_t tensors,
                     const char *note)
{
    const union probing_cell no_text = probing_str(NULL), none = probing_i64(PROBING_NULL_I64);
    const union probing_cell cells[] = {
        no_text, probing_str(kind),    no_text, no_text, probing_str(name), no_text, no_text,
        no_text, probing_i64(tensors), none,    none,    probing_str(note)};
    return torch_state.host->emit(out, cells, PROBING_LENGTH(cells));
}

/* Emit notes of what is not in the other rows. */
static int emit_notes(struct probing_rows *out, const struct tensor_look *l)
{
    char text[160];
    int rc = 0;
    for (uint32_t i = 0; i < l->n_foreign && rc == 0; i++)
        rc = emit_note(out, "not asked", l->foreign[i].name, l->foreign[i].n,
                       "a class with code of its own, which is not run: what its tensors are made "
                       "of is in other rows");
    (void)snprintf(text, sizeof(text),
                   "the look ended after %.0f ms with the GIL held, as there are very many objects",
                   (double)l->took_ns / 1e6);
    if (rc == 0 && l->late)
        rc = emit_note(out, "incomplete", NULL, PROBING_NULL_I64, text);
    if (rc == 0 && l->no_memory)
        rc = emit_note(out, "incomplete", NULL, PROBING_NULL_I64, "there was no memory for more");
    if (rc == 0 && l->untold)
        rc = emit_note(out, "gradient", NULL, PROBING_NULL_I64,
                       "no thread that calls them came to the end of a step: gradients of some "
                       "models were not asked for, and are among 'other'");
    return rc;
}

static int emit_all(struct probing_rows *out, struct tensor_look *l)
{
    struct groups g = {.n = 0};
    int rc = 0;
    for (uint32_t i = 0; i < l->n_storages; i++)
        l->no_memory = !add_up(&g, l, &l->storages[i]) || l->no_memory;
    for (uint32_t i = 0; i < g.n && rc == 0; i++)
        rc = emit_row(out, l, &g.all[i]);
    free(g.all);
    free(g.index.slots);
    return rc < 0 ? rc : emit_notes(out, l);
}

static int scan_tensors(void *self, struct probing_rows *out)
{
    const struct probing_host *h = torch_state.host;
    const struct probing_python_gil_1 *gil = h->extension(h, PROBING_PYTHON_GIL_1);
    struct tensor_look *l = calloc(1, sizeof(*l));
    (void)self;
    int rc = !l ? -ENOMEM : torch_on() && gil ? look_at_tensors(l, gil) : 0;
    if (rc == -ENOMEM)
        rc = h->fail(h, rc, "no memory");
    else if (rc == -ETIMEDOUT)
        rc = h->fail(h, rc, "the interpreter did not give up the GIL for 2 s");
    else if (rc == -EAGAIN)
        rc =
            h->fail(h, rc, "torch.jit traces a function just now, and would hear of it: try again");
    else if (rc == 0 && l)
        rc = emit_all(out, l);
    if (l)
        look_free(l);
    return probing_scanned(rc);
}

static const struct probing_column columns[] = {
    PROBING_STR_COLUMN("device", "cpu, cuda:0 ..."),
    PROBING_STR_COLUMN("kind", "whose it is: parameter, gradient, optimizer state, buffer; "
                               "activation: autograd made it, and can go back from it; other; not "
                               "asked, incomplete: see note"),
    PROBING_STR_COLUMN("root", "class of the model that it belongs to, as in torch.modules"),
    PROBING_STR_COLUMN("module", "module that it belongs to, as in torch.modules"),
    PROBING_STR_COLUMN("name", "of the parameter or buffer in the module; of an optimizer's state, "
                               "the parameter's and what is kept for it: weight.exp_avg"),
    PROBING_STR_COLUMN("dtype", "float32 ..."),
    PROBING_STR_COLUMN("shape", "of the largest tensor of the storage"),
    PROBING_STR_COLUMN("op", "of an activation: autograd's name of what made it"),
    PROBING_I64_COLUMN("tensors", PROBING_COUNT, "tensors that Python knows; views share storages"),
    PROBING_I64_COLUMN("storages", PROBING_COUNT, "storages, each counted once"),
    PROBING_I64_COLUMN("bytes", PROBING_BYTES, "their bytes; NULL: not known"),
    PROBING_STR_COLUMN("note", "why something is not known"),
};

const struct probing_table_desc tensor_table = PROBING_COMPUTED_TABLE(
    "memory.torch", columns, scan_tensors,
    "tensors that are alive, by storage and by whose they are, as they are at the end of a step");
