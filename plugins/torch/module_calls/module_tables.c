/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_calls/module_tables.c - the tables torch.modules and torch.gradients: what
 * models consist of, and how large gradients are at the moment.
 *
 * Threads: [worker]; with the GIL for gradients of some millions of numbers at a time.  Each model
 * is listed on the thread that calls it, or while that one sleeps (model_reader.c).
 * Trees are read from modules' own dicts, numbers of tensors from their memory: nothing of the
 * program's runs, no operation of torch does, and no device is waited for.
 */
#include "module_calls/module_calls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/array.h"
#include "module_calls/model_reader.h"
#include "module_registry/module_names.h"
#include "python/pyobject.h"
#include "python/tensor.h"

#define GIL_WAIT_NS UINT64_C(2000000000)
#define ROWS_MAX 30000u /* of one table, 20 MB: more is refused */
#define DEPTH_MAX 256u
#define NAME_BYTES 320u
#define WORD_BYTES 64u
#define HOLD_ELEMENTS (INT64_C(1) << 22) /* read at once: a few milliseconds */

struct figures { /* of a module's own tensors, without its children's */
    int64_t tensors, numbers, trainable, bytes, gradient_bytes;
    char device[WORD_BYTES];
};

struct row {
    char root[WORD_BYTES], class[WORD_BYTES], name[NAME_BYTES];
    int64_t depth, training;
    struct figures parameters, buffers;
    PyObject *held; /* torch.gradients: what is to be read; owned until it was */
    struct tensor_figures gradient;
    const char *note; /* why there is none */
    bool unsettled;   /* a backward ran */
};

struct listing {
    struct row *rows;
    uint32_t n, room, at;
    uint64_t number; /* of this listing: a module is in it once */
    bool gradients, whole;
    bool own; /* gradients may be asked for */
    char path[NAME_BYTES];
    const char *root;
    struct safe_point_read turns;
};

/* ---- with the GIL ---- */

static int64_t call_for_number(PyObject *object, const char *method)
{
    struct cpython *py = &python.api;
    PyObject *value = py->PyObject_CallMethod(object, method, NULL);
    int64_t n = value ? py->PyLong_AsLongLong(value) : 0;
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return n > 0 ? n : 0;
}

static bool is_true(PyObject *object, const char *name)
{
    PyObject *value = object_get(object, name);
    python.api.Py_DecRef(value); /* a constant of the interpreter */
    return value == python.api._Py_TrueStruct;
}

static void add_tensor(struct figures *f, PyObject *tensor, bool own)
{
    struct cpython *py = &python.api;
    int64_t n = call_for_number(tensor, "numel"), size = call_for_number(tensor, "element_size");
    f->tensors++;
    f->numbers += n;
    f->bytes += n * size;
    f->trainable += is_true(tensor, "requires_grad") ? n : 0;
    PyObject *gradient = own ? object_get(tensor, "grad") : NULL;
    if (!own)
        f->gradient_bytes = PROBING_NULL_I64;
    else if (gradient && tensor_is(gradient))
        f->gradient_bytes +=
            call_for_number(gradient, "numel") * call_for_number(gradient, "element_size");
    py->Py_DecRef(gradient);
    if (f->device[0])
        return;
    PyObject *device = object_get(tensor, "device"),
             *text = device ? py->PyObject_Str(device) : NULL;
    Py_ssize_t length;
    const char *bytes = text ? py->PyUnicode_AsUTF8AndSize(text, &length) : NULL;
    (void)snprintf(f->device, sizeof(f->device), "%s", bytes ? bytes : "");
    py->PyErr_Clear();
    py->Py_DecRef(text);
    py->Py_DecRef(device);
}

static struct row *new_row(struct listing *l)
{
    struct row *rows = array_grow(l->rows, l->n, &l->room, sizeof(*rows), 2 * ROWS_MAX);
    if (!rows) {
        l->whole = false;
        return NULL;
    }
    l->rows = rows;
    struct row *r = &l->rows[l->n++];
    *r = (struct row){.note = NULL};
    (void)snprintf(r->root, sizeof(r->root), "%s", l->root);
    return r;
}

/* Its numbers are read later: it may have many. */
static void hold_gradient(struct row *r, PyObject *parameter, bool own)
{
    struct cpython *py = &python.api;
    PyObject *gradient = own ? object_get(parameter, "grad") : NULL;
    bool none = own && (!gradient || gradient == py->_Py_NoneStruct);
    r->unsettled = module_calls.backwards != 0;
    r->note = !own   ? "not read: the thread that calls its model did not reach a safe point"
              : none ? "none just now"
              : is_true(gradient, "is_cpu") ? NULL
                                            : "not read: reading would wait for its device";
    if (!r->note)
        r->held = gradient;
    else
        py->Py_DecRef(gradient);
}

/* Tensors of one of a module's dicts: added up, or each one a row. */
static void read_tensors(struct listing *l, PyObject *object, const char *which, struct figures *f)
{
    struct cpython *py = &python.api;
    PyObject *name = py->PyUnicode_InternFromString(which), *key, *value;
    PyObject *tensors = name ? names_attribute_dict(object, name) : NULL;
    Py_ssize_t at = 0, n;
    py->PyErr_Clear();
    py->Py_DecRef(name);
    while (tensors && py->PyDict_Next(tensors, &at, &key, &value)) {
        if (!tensor_is(value)) /* None; or another class, which may run Python code */
            continue;
        if (!l->gradients) {
            add_tensor(f, value, l->own);
            continue;
        }
        const char *text = py->PyUnicode_AsUTF8AndSize(key, &n);
        struct row *r = is_true(value, "requires_grad") ? new_row(l) : NULL;
        if (!r)
            continue;
        (void)snprintf(r->name, sizeof(r->name), "%.240s%s%.64s", l->path, l->path[0] ? "." : "",
                       text ? text : "?");
        hold_gradient(r, value, l->own);
    }
    py->Py_DecRef(tensors);
}

static void read_module(struct listing *l, PyObject *object, uint32_t depth);

static void read_children(struct listing *l, PyObject *object, uint32_t depth)
{
    struct cpython *py = &python.api;
    PyObject *children = names_children(object), *key, *child;
    Py_ssize_t at = 0, n;
    size_t length = strlen(l->path);
    while (children && py->PyDict_Next(children, &at, &key, &child)) {
        const char *text = py->PyUnicode_AsUTF8AndSize(key, &n);
        py->PyErr_Clear();
        if (!text || !names_is_module(child))
            continue;
        py->Py_IncRef(child);
        (void)snprintf(l->path + length, sizeof(l->path) - length, "%s%s", length ? "." : "", text);
        read_module(l, child, depth + 1);
        l->path[length] = '\0';
        py->Py_DecRef(child);
    }
    py->Py_DecRef(children);
}

static void read_module(struct listing *l, PyObject *object, uint32_t depth)
{
    struct module *m = names_find(object);
    if ((m && m->listed == l->number) || depth > DEPTH_MAX || l->n >= ROWS_MAX) {
        l->whole = l->whole && m && m->listed == l->number;
        return;
    }
    if (m)
        m->listed = l->number;
    struct row *r = l->gradients ? NULL : new_row(l);
    if (r) {
        (void)snprintf(r->class, sizeof(r->class), "%s", object_class_text(object));
        (void)snprintf(r->name, sizeof(r->name), "%s", l->path[0] ? l->path : r->class);
        r->depth = depth;
        r->training = names_training(object);
        read_tensors(l, object, "_parameters", &r->parameters);
        read_tensors(l, object, "_buffers", &r->buffers);
    } else if (l->gradients) {
        read_tensors(l, object, "_parameters", NULL);
    }
    read_children(l, object, depth);
}

/* One model. */
static void read_root(void *arg, PyObject *root, bool own)
{
    struct listing *l = arg;
    l->number = l->number ? l->number : names_new_listing();
    l->own = own;
    l->root = object_class_text(root); /* lives while its caller holds it */
    l->path[0] = '\0';
    read_module(l, root, 0);
}

static void read_gradient(struct row *r)
{
    int rc = tensor_inspect(r->held, &r->gradient);
    r->note = rc == 0        ? NULL
              : rc == -EXDEV ? "not read: reading would wait for its device"
              : rc == -E2BIG ? "not read: too large"
                             : "not read: its class, type or layout";
    r->unsettled = r->unsettled || module_calls.backwards != 0;
}

static void drop_row(struct row *r)
{
    python.api.Py_DecRef(r->held);
    r->held = NULL;
}

/* As many as are read in a few milliseconds. */
static int read_gradients(void *arg)
{
    struct listing *l = arg;
    for (int64_t done = 0; l->at < l->n && done < HOLD_ELEMENTS; l->at++) {
        struct row *r = &l->rows[l->at];
        if (r->held && torch_on())
            read_gradient(r);
        done += 256 + r->gradient.n;
        drop_row(r);
    }
    return 0;
}

static int drop_all(void *arg)
{
    struct listing *l = arg;
    for (uint32_t i = 0; i < l->n; i++)
        drop_row(&l->rows[i]);
    return 0;
}

/* ---- without it ---- */

static const char *text_or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static int emit_module(struct probing_rows *out, const struct row *r)
{
    const struct figures *p = &r->parameters, *b = &r->buffers;
    char parent[NAME_BYTES];
    (void)snprintf(parent, sizeof(parent), "%s", r->name);
    char *dot = strrchr(parent, '.');
    if (dot)
        *dot = '\0';
    union probing_cell cells[] = {{.s = r->root},
                                  {.s = r->name},
                                  {.s = r->class},
                                  {.s = !r->depth ? NULL
                                        : dot     ? parent
                                                  : r->root},
                                  {.i = r->depth},
                                  {.i = p->numbers},
                                  {.i = p->trainable},
                                  {.i = p->bytes},
                                  {.i = p->gradient_bytes},
                                  {.i = b->bytes},
                                  {.s = text_or_null(p->device[0] ? p->device : b->device)},
                                  {.i = r->training}};
    return torch_state.host->emit(out, cells, sizeof(cells) / sizeof(cells[0]));
}

static int emit_gradient(struct probing_rows *out, const struct row *r)
{
    const struct tensor_figures *g = &r->gradient;
    union probing_cell none = {.i = PROBING_NULL_I64}, nan = {.u = PROBING_NULL_F64};
    bool any = !r->note;
    double largest = -g->min > g->max ? -g->min : g->max;
    bool has_numbers = any && g->n > g->n_nan;
    union probing_cell cells[] = {{.s = r->root},
                                  {.s = r->name},
                                  any ? (union probing_cell){.i = g->n} : none,
                                  has_numbers ? (union probing_cell){.f = g->norm} : nan,
                                  has_numbers ? (union probing_cell){.f = largest} : nan,
                                  any ? (union probing_cell){.i = g->n_nan} : none,
                                  any ? (union probing_cell){.i = g->n_infinite} : none,
                                  {.i = !r->unsettled},
                                  {.s = r->note}};
    return torch_state.host->emit(out, cells, sizeof(cells) / sizeof(cells[0]));
}

static int list_all(struct listing *l, const struct probing_python_gil_1 *gil)
{
    l->turns.read = read_root;
    l->turns.arg = l;
    int rc = safe_point_read_all(&l->turns, gil);
    l->whole = l->whole && l->turns.n < SAFE_POINT_MODELS;
    while (l->gradients && l->at < l->n && rc == 0)
        rc = gil->call(read_gradients, l, GIL_WAIT_NS);
    return rc;
}

static int scan_models(struct probing_rows *out, bool gradients)
{
    const struct probing_host *h = torch_state.host;
    const struct probing_python_gil_1 *gil = h->extension(h, PROBING_PYTHON_GIL_1);
    struct listing *l = calloc(1, sizeof(*l));
    if (!l)
        return h->fail(h, -ENOMEM, "no memory");
    l->gradients = gradients;
    l->whole = true;
    int rc = torch_on() && gil ? list_all(l, gil) : 0;
    if (rc == -ETIMEDOUT)
        rc = h->fail(h, rc, "the interpreter did not give up the GIL for 2 s");
    else if (rc == 0 && !l->whole)
        rc = h->fail(h, -E2BIG, "more than 30000 modules or parameters, or no memory for them");
    for (uint32_t i = 0; i < l->n && rc == 0; i++)
        rc = gradients ? emit_gradient(out, &l->rows[i]) : emit_module(out, &l->rows[i]);
    if (gil && gradients)
        (void)gil->call(drop_all, l, GIL_WAIT_NS);
    free(l->rows);
    free(l);
    return probing_scanned(rc);
}

static int scan_modules(void *self, struct probing_rows *out)
{
    (void)self;
    return scan_models(out, /* gradients= */ false);
}

static int scan_gradients(void *self, struct probing_rows *out)
{
    (void)self;
    return scan_models(out, /* gradients= */ true);
}

static const struct probing_column modules_columns[] = {
    PROBING_STR_COLUMN("root", "class of the model that contains it"),
    PROBING_STR_COLUMN("name", "name as in named_modules(); for a root its class"),
    PROBING_STR_COLUMN("class", "of the module"),
    PROBING_STR_COLUMN("parent", "name of the module that contains it; NULL: a root"),
    PROBING_I64_COLUMN("depth", PROBING_PLAIN, "0: a root"),
    PROBING_I64_COLUMN("parameters", PROBING_COUNT,
                       "number of elements of its own parameters, without those of its submodules"),
    PROBING_I64_COLUMN("trainable", PROBING_COUNT, "number of these that require a gradient"),
    PROBING_I64_COLUMN("bytes", PROBING_BYTES, "size of its own parameters"),
    PROBING_I64_COLUMN(
        "gradient_bytes", PROBING_BYTES,
        "size of their current gradients; NULL: its thread did not reach a safe point"),
    PROBING_I64_COLUMN("buffer_bytes", PROBING_BYTES, "size of its own buffers"),
    PROBING_STR_COLUMN("device", "device of its first parameter or buffer"),
    PROBING_I64_COLUMN("training", PROBING_PLAIN, "1: in training mode"),
};

static const struct probing_column gradients_columns[] = {
    PROBING_STR_COLUMN("root", "class of the model that contains it"),
    PROBING_STR_COLUMN("name", "name of the parameter, as in named_parameters()"),
    PROBING_I64_COLUMN("elements", PROBING_COUNT, "number of elements of the gradient"),
    PROBING_F64_COLUMN("norm", PROBING_PLAIN, "square root of the sum of squares; no NaN in it"),
    PROBING_F64_COLUMN("max_abs", PROBING_PLAIN, "largest absolute value"),
    PROBING_I64_COLUMN("nan_count", PROBING_COUNT, "elements that are NaN"),
    PROBING_I64_COLUMN("inf_count", PROBING_COUNT, "elements that are infinite"),
    PROBING_I64_COLUMN(
        "consistent", PROBING_PLAIN,
        "0: a backward pass ran while the gradient was read, so the numbers may mix two states"),
    PROBING_STR_COLUMN("note", "why there are no numbers"),
};

const struct probing_table_desc modules_table = PROBING_COMPUTED_TABLE(
    "modules", modules_columns, scan_modules,
    "torch modules that exist and have been called or existed when the plugin started");

const struct probing_table_desc gradients_table = PROBING_COMPUTED_TABLE(
    "gradients", gradients_columns, scan_gradients,
    "gradients of the parameters of these modules, read from memory when queried");
