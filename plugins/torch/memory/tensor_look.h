/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/memory/tensor_look.h - one look at the tensors of the process: which storages are
 * alive, and whose they are.
 *
 * Threads: a look is one thread's at a time; what asks Python needs the GIL, which each function
 * says.  A look holds no reference to anything between two times that the GIL is had.
 */
#ifndef TORCH_MEMORY_TENSOR_LOOK_H
#define TORCH_MEMORY_TENSOR_LOOK_H

#include "python/python_api.h"

enum tensor_kind {
    TENSOR_OTHER,
    TENSOR_ACTIVATION, /* a part of an autograd graph */
    TENSOR_PARAMETER,
    TENSOR_BUFFER,
    TENSOR_GRADIENT,
    TENSOR_STATE, /* an optimizer's */
    TENSOR_KINDS
};

/* From a number that is not 0 to a place in an array. */
struct number_index {
    struct number_at {
        uint64_t key;
        uint32_t at;
    } * slots;
    uint32_t n, room; /* room: a power of two, or 0 */
};

/* Texts, each once: a number is where it begins, 0 is none. */
struct text_pool {
    char *bytes;
    uint32_t n, room;
    struct number_index index;
};

struct tensor_owner { /* texts; kind OTHER: nobody's */
    enum tensor_kind kind;
    uint32_t root, module, name;
};

struct tensor_storage {
    uint64_t base;    /* 0: it has no memory, or its address is not known */
    int64_t bytes;    /* PROBING_NULL_I64: not known */
    uint32_t tensors; /* that lead to it */
    int64_t numel;    /* of the largest of them, whose words these are */
    uint32_t device, dtype, shape, op;
    bool in_graph, is_parameter;
};

struct foreign_class {     /* tensors that are not asked, by class */
    const PyObject *class; /* compared only */
    char name[64];
    uint32_t n;
};

#define FOREIGN_MAX 32u

struct tensor_look {
    struct text_pool texts;
    struct tensor_storage *storages;
    uint32_t n_storages, storages_room;
    struct number_index storage_at; /* by base */
    struct tensor_owner *owners;
    uint32_t n_owners, owners_room;
    struct number_index owner_at, param_at; /* by base, by a parameter's address */
    struct optimizer_entry {
        uint64_t base, param; /* param: the address of its parameter, compared only */
        uint32_t name;
    } * states;
    uint32_t n_states, states_room;
    struct foreign_class foreign[FOREIGN_MAX];
    uint32_t n_foreign;
    uint64_t listing; /* of modules */
    bool scanned;     /* all objects of the process were looked for */
    bool no_memory;   /* something is missing for want of it */
    bool late;        /* it took too long: tensors are missing */
    bool untold;      /* gradients of a model could not be asked for */
    uint64_t took_ns; /* with the GIL held, in all */
};

void look_free(struct tensor_look *l);

/* ---- tensor_look.c: what was found ---- */

uint32_t look_text(struct tensor_look *l, const char *text);       /* 0: "" or no memory */
const char *look_word(const struct tensor_look *l, uint32_t text); /* NULL of 0 */
/* A tensor for which tensor_is() is true.  counts: it is one of those that gc_scan found.  With
 * the GIL. */
uint64_t look_add(struct tensor_look *l, PyObject *tensor, bool counts);
/* The first to own a storage has it. */
void look_own(struct tensor_look *l, uint64_t base, const struct tensor_owner *owner);
void look_param(struct tensor_look *l, const PyObject *param, const struct tensor_owner *owner);
void look_state(struct tensor_look *l, uint64_t base, const PyObject *param, const char *name);
/* Nobody's where no owner is known. */
struct tensor_owner look_owner(const struct tensor_look *l, const struct tensor_storage *s);
/* States get the names of their parameters, once all models were read. */
void look_name_states(struct tensor_look *l);

uint32_t *number_find(const struct number_index *x, uint64_t key); /* NULL: not there */
bool number_put(struct number_index *x, uint64_t key, uint32_t at);

/* ---- tensor_owners.c, with the GIL ---- */

void owners_of_module(struct tensor_look *l, PyObject *root, bool own);
void owners_of_optimizer(struct tensor_look *l, PyObject *optimizer);

/* ---- tensor_scan.c, with the GIL ---- */

/* The GIL is held for so much CPU time at most, half for finding tensors and half for asking them,
 * which takes longer where the machine is short of CPUs, at most so long: what is left is told. */
#define SCAN_CPU_NS UINT64_C(400000000)
#define SCAN_NS UINT64_C(4000000000)
void tensor_scan(struct tensor_look *l);

/* ---- tensor_table.c, allocator_table.c, block_table.c ---- */

extern const struct probing_table_desc tensor_table, allocator_table, block_table;

#endif
