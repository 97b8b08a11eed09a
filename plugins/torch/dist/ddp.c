/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/dist/ddp.c - the table python.ddp_timing: DistributedDataParallel's all_reduces,
 * which C++ starts, as torch itself has measured them.
 *
 * Threads: the loop's own, with the GIL, at a step's end: only there nobody holds the lock that
 * torch takes for it.
 * torch measures ten iterations, and then one in a hundred.
 */
#include "dist/collective.h"
#include "module_calls/module_calls.h"
#include "module_registry/module_names.h"
#include "python/pyobject.h"

#define EVERY 16u /* steps: less than torch leaves between two measurements */
#define MODELS_MAX 4u
#define ROOTS_MAX 64u
#define SIZES_BYTES 200u

enum {
    COL_ITERATION = N_COORDINATES,
    COL_BUCKETS,
    COL_SIZES,
    COL_FORWARD,
    COL_BACKWARD,
    COL_COMM,
    COL_OVERLAP,
    COL_MEAN,
    N_DDP
};

static const struct probing_column columns[N_DDP] = {
    COORDINATE_COLUMNS,
    PROBING_I64_COLUMN("iteration", PROBING_PLAIN, "iteration of the model, as torch counts"),
    PROBING_I64_COLUMN("buckets", PROBING_COUNT,
                       "number of all_reduces in it; NULL: not reported (torch 1)"),
    PROBING_STR_COLUMN("bucket_bytes", "size of each bucket, as torch lists them"),
    PROBING_F64_COLUMN("forward_sec", PROBING_SECONDS, "duration of its forward pass"),
    PROBING_F64_COLUMN("backward_sec", PROBING_SECONDS, "time spent computing gradients"),
    PROBING_F64_COLUMN("comm_sec", PROBING_SECONDS,
                       "time from the begin of the first all_reduce to the end of the last one"),
    PROBING_F64_COLUMN(
        "overlap_sec", PROBING_SECONDS,
        "part of comm_sec while gradients were computed; the step waits for the rest"),
    PROBING_F64_COLUMN("mean_comm_sec", PROBING_SECONDS,
                       "mean of comm_sec over all iterations that torch has measured"),
};

static struct {
    PyObject *weak; /* owned */
    int64_t iteration;
} models[MODELS_MAX];    /* lock: the GIL */
static uint32_t n_steps; /* lock: the GIL */

static union probing_cell seconds_in(PyObject *ints, const char *name)
{
    int64_t ns = object_number_in(ints, name);
    union probing_cell cell = {.u = PROBING_NULL_F64};
    if (ns != PROBING_NULL_I64 && ns > 0)
        cell.f = probing_seconds((uint64_t)ns);
    return cell;
}

static void add_row(PyObject *ints, PyObject *texts, int64_t iteration)
{
    struct cpython *py = &python.api;
    char sizes[SIZES_BYTES];
    PyObject *text = py->PyDict_GetItemString(texts, "rebuilt_bucket_sizes");
    if (!text)
        text = py->PyDict_GetItemString(texts, "bucket_sizes");
    py->Py_IncRef(text);
    object_text(text, sizes, sizeof(sizes));
    union probing_cell row[N_DDP] = {
        [COL_ITERATION] = {.i = iteration},
        [COL_BUCKETS] = {.i = object_number_in(ints, "num_buckets_reduced")},
        [COL_SIZES] = {.u = object_intern(sizes)},
        [COL_FORWARD] = seconds_in(ints, "forward_compute_time"),
        [COL_BACKWARD] = seconds_in(ints, "backward_compute_time"),
        [COL_COMM] = seconds_in(ints, "backward_comm_time"),
        [COL_OVERLAP] = seconds_in(ints, "backward_compute_comm_overlap_time"),
        [COL_MEAN] = seconds_in(ints, "avg_backward_comm_time")};
    coordinates_put(row);
    (void)torch_state.host->append(dist.ddp, torch_state.now(), row, N_DDP, NULL, 0);
}

/* model: kept by the caller. */
static void read_model(PyObject *model, int64_t *iteration)
{
    struct cpython *py = &python.api;
    PyObject *dict = object_dict(model);
    PyObject *logger = dict ? py->PyDict_GetItemString(dict, "logger") : NULL;
    PyObject *data = logger ? py->PyObject_CallMethod(logger, "_get_ddp_logging_data", NULL) : NULL;
    py->PyErr_Clear();
    PyObject *ints = object_get(data, "ints_map"), *texts = object_get(data, "strs_map");
    if (ints && texts && object_is(ints, py->PyDict_Type) && object_is(texts, py->PyDict_Type)) {
        int64_t now = object_number_in(ints, "iteration");
        if (now != PROBING_NULL_I64 && now != *iteration &&
            object_number_in(ints, "backward_comm_time") > 0)
            add_row(ints, texts, now);
        *iteration = now;
    }
    py->Py_DecRef(texts);
    py->Py_DecRef(ints);
    py->Py_DecRef(data);
    py->Py_DecRef(dict);
}

static bool is_known(PyObject *model)
{
    for (uint32_t i = 0; i < MODELS_MAX; i++)
        if (models[i].weak && python.api.PyWeakref_GetObject(models[i].weak) == model)
            return true;
    return false;
}

/* Models that came since the last time; those that are gone make room. */
static void find_models(void)
{
    struct cpython *py = &python.api;
    PyObject *roots[ROOTS_MAX];
    uint64_t serials[ROOTS_MAX];
    uint32_t n = names_roots(roots, serials, ROOTS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        if (!names_is_ddp(roots[i]) || is_known(roots[i]))
            continue;
        uint32_t at = 0;
        while (at < MODELS_MAX && models[at].weak &&
               py->PyWeakref_GetObject(models[at].weak) != py->_Py_NoneStruct)
            at++;
        if (at == MODELS_MAX)
            return;
        py->Py_DecRef(models[at].weak);
        models[at].iteration = PROBING_NULL_I64;
        models[at].weak = py->PyWeakref_NewRef(roots[i], NULL);
        py->PyErr_Clear();
    }
}

void ddp_ended(const struct thread *t, uint64_t end_ns)
{
    struct cpython *py = &python.api;
    (void)t;
    (void)end_ns;
    if (n_steps++ % EVERY != EVERY - 1 || !torch_state.host->wanted(dist.ddp) ||
        module_calls.backwards) /* another thread's: it may hold that lock */
        return;
    find_models();
    for (uint32_t i = 0; i < MODELS_MAX; i++) {
        PyObject *model = models[i].weak ? py->PyWeakref_GetObject(models[i].weak) : NULL;
        if (!model || model == py->_Py_NoneStruct)
            continue;
        py->Py_IncRef(model);
        read_model(model, &models[i].iteration);
        py->Py_DecRef(model);
    }
}

void ddp_forget(void)
{
    for (uint32_t i = 0; i < MODELS_MAX; i++) {
        python.api.Py_DecRef(models[i].weak);
        models[i].weak = NULL;
    }
    n_steps = 0;
}

const struct probing_table_desc ddp_table = PROBING_TABLE(
    "python.ddp_timing", columns,
    "DistributedDataParallel's all_reduces and what hides them, as torch measures them: ten "
    "iterations, then one in a hundred");
