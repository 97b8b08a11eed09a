/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/tensor_storage.h - where a tensor's bytes are, and how many: of its storage,
 * which views share.
 *
 * Threads: any that holds the GIL, between tensor_quiet() and tensor_loud().  Only of tensors for
 * which tensor_is() is true: asking others may run the program's code.
 */
#ifndef TORCH_PYTHON_TENSOR_STORAGE_H
#define TORCH_PYTHON_TENSOR_STORAGE_H

#include "python/python_api.h"

struct storage_view {
    uint64_t base; /* address of the storage's first byte; 0: it has none */
    int64_t numel;
    bool in_graph;     /* autograd made it, and can go back from it */
    bool is_readable;  /* base is known: false of layouts and devices that have no such storage */
    bool is_parameter; /* of class Parameter */
};

void storage_find(void);
void storage_forget(void);
void storage_place(PyObject *tensor, struct storage_view *ret);
/* Bytes of the storage, once for each: torch 2 keeps a Python object of some 100 bytes with a
 * storage that was asked.  PROBING_NULL_I64: not told. */
int64_t storage_bytes(PyObject *tensor);

#define STORAGE_WORD_BYTES 96u
struct tensor_words {
    char device[STORAGE_WORD_BYTES], dtype[STORAGE_WORD_BYTES], shape[STORAGE_WORD_BYTES];
    char op[STORAGE_WORD_BYTES]; /* what made it, as autograd's node is called; "" */
};
void storage_words(PyObject *tensor, const struct storage_view *place, struct tensor_words *ret);

#endif
