/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/commands/tables.c - computed tables of what lives in the interpreter.
 *
 * [worker] asks and emits; the rows are made by generators of tables.py on the runner's thread, in
 * slices: the GIL is let go after a millisecond or two, however many objects there are.
 * The collector's lists are gone through object by object: holding the last one keeps the place.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/bindings.h"
#include "internal.h"

#define SLICE_NS UINT64_C(1500000)     /* of the GIL at a time: a third of its switch interval */
#define PAUSE_NS UINT64_C(500000)      /* for those who wait for it to wake and take it */
#define GIL_NS (10 * PROBING_NS_PER_S) /* for the GIL to come */
#define LOOK_NS UINT64_C(100000000)    /* how often a waiting worker asks whether it is wanted */
#define WHOLE_NS UINT64_C(60000000000) /* for a table */
#define SLICE_ROWS 256
#define COLUMNS_MAX 8
#define TEXT_MAX 1000 /* bytes of a cell */

/* ---- the collector's lists: gc_slice(generation, last objects or (), how many) ---- */

struct gc_head { /* pycore_gc.h, 3.8 to 3.15: before each object that can be tracked */
    uintptr_t next, previous;
};
struct gc_generation { /* three of them stand in a row (3.14: the young, and two of the old) */
    struct gc_head head;
    int threshold, count;
};

static struct gc_head *head_of(PyObject *object)
{
    return (struct gc_head *)(void *)((char *)object - sizeof(struct gc_head));
}

/* A new list is the last one of the youngest generation, and what follows it is the generation's
 * own head: nothing else may be made after it.  That it is one is seen by the thresholds.
 * NULL: it is not as we know it. */
static struct gc_generation *find_generations(void)
{
    const struct cpython *py = &natives_py;
    PyObject *module = py->PyImport_ImportModule("gc");
    PyObject *limits = module ? py->PyObject_CallMethod(module, "get_threshold", NULL) : NULL;
    PyObject *probe = limits ? py->PyList_New(0) : NULL;
    struct gc_generation *found = NULL;
    if (probe && cpython_since(py, 8) && !cpython_since(py, 16)) {
        struct gc_head *own = head_of(probe);
        found = (struct gc_generation *)own->next; /* NULL in free-threaded builds */
        if (!found || (own->next & 7) || (found->head.previous & ~(uintptr_t)7) != (uintptr_t)own)
            found = NULL;
    }
    for (int i = 0; found && i < 3; i++)
        if (found[i].threshold != (int)py->PyLong_AsLongLong(py->PyTuple_GetItem(limits, i)))
            found = NULL;
    PyObject *made[] = {probe, module, limits};
    for (int i = 0; i < 3; i++)
        if (made[i])
            py->Py_DecRef(made[i]);
    py->PyErr_Clear();
    return found;
}

static bool is_end(const struct gc_generation *all, uintptr_t at)
{
    return !at || at == (uintptr_t)&all[0] || at == (uintptr_t)&all[1] || at == (uintptr_t)&all[2];
}

/* The object to go on from: behind the last of `ends` that is in a list still; NULL: none is. */
static const struct gc_head *place_of(PyObject *ends)
{
    for (Py_ssize_t i = natives_py.PyTuple_Size(ends); i-- > 0;) {
        const struct gc_head *at = head_of(natives_py.PyTuple_GetItem(ends, i));
        if (at->next)
            return at;
    }
    return NULL;
}

/* A list of the next ones; shorter than asked for at the end; None: these lists are not known.
 * Where a collection takes the last ones out of their list meanwhile, the rest of the generation
 * is passed over. */
static PyObject *gc_slice(PyObject *self, PyObject *args)
{
    const struct cpython *py = &natives_py;
    static struct gc_generation *all; /* lock: the GIL; a place in the interpreter, never moves */
    (void)self;
    if (!all)
        all = find_generations();
    if (!all)
        return natives_none();
    int64_t generation = py->PyLong_AsLongLong(py->PyTuple_GetItem(args, 0));
    PyObject *ends = py->PyTuple_GetItem(args, 1);
    int64_t most = py->PyLong_AsLongLong(py->PyTuple_GetItem(args, 2));
    PyObject *found = py->PyList_New(0);
    const struct gc_head *at = py->PyTuple_Size(ends) ? place_of(ends) : &all[generation % 3].head;
    if (!at)
        return found;
    for (int64_t n = 0; found && n < most && !is_end(all, at->next & ~(uintptr_t)3); n++) {
        at = (const struct gc_head *)(at->next & ~(uintptr_t)3);
        PyObject *object = (PyObject *)(uintptr_t)((const char *)at + sizeof(*at));
        if (object != found && py->PyList_Append(found, object)) {
            py->Py_DecRef(found);
            return NULL;
        }
    }
    return found;
}

struct cpython_method tables_natives[] = {
    {"gc_slice", gc_slice, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- rows out of a generator ---- */

struct cell {
    char type; /* 'i', 'f', 's', or 0: NULL */
    union probing_cell value;
};

struct fill {
    struct plugin *plugin;
    const char *function; /* of tables.py */
    uint32_t n_columns;
    PyObject *rows; /* the generator; lock: the GIL */
    struct cell cells[SLICE_ROWS * COLUMNS_MAX];
    char *text; /* of the STR cells: their value is an offset in it */
    size_t text_n, text_size;
    uint32_t n;
    bool done;
};

static bool put_text(struct fill *f, struct cell *c, PyObject *value)
{
    Py_ssize_t n;
    const char *utf8 = natives_py.PyUnicode_AsUTF8AndSize(value, &n);
    if (!utf8) {
        natives_py.PyErr_Clear();
        return true; /* a lone surrogate: NULL */
    }
    size_t some = (size_t)n < TEXT_MAX ? (size_t)n : TEXT_MAX;
    while (some < (size_t)n && some > 0 && (utf8[some] & 0xc0) == 0x80)
        some--;
    if (f->text_n + some + 1 > f->text_size) {
        size_t size = 2 * f->text_size + TEXT_MAX + 1;
        char *larger = realloc(f->text, size);
        if (!larger)
            return false;
        f->text = larger;
        f->text_size = size;
    }
    *c = (struct cell){'s', {.u = f->text_n}};
    memcpy(f->text + f->text_n, utf8, some);
    f->text[f->text_n + some] = '\0';
    f->text_n += some + 1;
    return true;
}

static bool put_row(struct fill *f, PyObject *row)
{
    const struct cpython *py = &natives_py;
    for (uint32_t i = 0; i < f->n_columns; i++) {
        struct cell *c = &f->cells[f->n * f->n_columns + i];
        PyObject *value = py->PyTuple_GetItem(row, (Py_ssize_t)i);
        PyObject *type = value ? py->PyObject_Type(value) : NULL;
        *c = (struct cell){0, {.u = 0}};
        if (!type)
            return false;
        if (type == py->PyLong_Type)
            *c = (struct cell){'i', {.i = py->PyLong_AsLongLong(value)}};
        else if (type == py->PyFloat_Type)
            *c = (struct cell){'f', {.f = py->PyFloat_AsDouble(value)}};
        bool good = type != py->PyUnicode_Type || put_text(f, c, value);
        py->Py_DecRef(type);
        if (!good)
            return false;
    }
    f->n++;
    return true;
}

static uint64_t now_ns(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

static void end_rows(struct fill *f)
{
    if (f->rows)
        natives_py.Py_DecRef(f->rows);
    f->rows = NULL;
    f->done = true;
}

/* A collection that our few lists happen to set off would be a long one, of all that is there: not
 * while we hold the GIL.  Gives whether it was on. */
static bool switch_collector(bool on)
{
    const struct cpython *py = &natives_py;
    PyObject *module = py->PyImport_ImportModule("gc");
    PyObject *was = module ? py->PyObject_CallMethod(module, "isenabled", NULL) : NULL;
    bool enabled = was && py->PyObject_IsTrue(was) == 1;
    PyObject *done = enabled != on && module
                         ? py->PyObject_CallMethod(module, on ? "enable" : "disable", NULL)
                         : NULL;
    PyObject *made[] = {module, was, done};
    for (int i = 0; i < 3; i++)
        if (made[i])
            py->Py_DecRef(made[i]);
    py->PyErr_Clear();
    return enabled;
}

/* With the GIL, on the runner's thread: rows for a millisecond or two. */
static int fill_job(void *arg)
{
    struct fill *f = arg;
    const struct cpython *py = &natives_py; /* filled by the first session_function() */
    uint64_t until = now_ns() + SLICE_NS;
    int result = 0;
    PyObject *function = NULL;
    if (!f->rows && !(function = session_function(f->plugin, "tables", f->function)))
        return -EIO;
    bool collects = switch_collector(false);
    if (!f->rows) {
        f->rows = py->PyObject_CallFunctionObjArgs(function, NULL);
        py->Py_DecRef(function);
    }
    if (!f->rows)
        result = -EIO;
    while (result == 0 && f->n < SLICE_ROWS && now_ns() < until) {
        PyObject *row = py->PyIter_Next(f->rows);
        if (!row) {
            result = py->PyErr_Occurred() ? -EIO : 0;
            end_rows(f);
            break;
        }
        if (row != py->_Py_NoneStruct && !put_row(f, row))
            result = -ENOMEM;
        py->Py_DecRef(row);
    }
    if (result < 0)
        end_rows(f);
    py->PyErr_Clear();
    if (collects)
        (void)switch_collector(true);
    return result;
}

/* The generator of one that was given up. */
static int end_job(void *arg)
{
    natives_py.Py_DecRef(arg);
    return 0;
}

static int emit_rows(struct fill *f, struct probing_rows *out, const struct probing_table_desc *d)
{
    int r = 0;
    for (uint32_t row = 0; row < f->n && r >= 0; row++) {
        union probing_cell cells[COLUMNS_MAX];
        for (uint32_t i = 0; i < f->n_columns; i++) {
            const struct cell *c = &f->cells[row * f->n_columns + i];
            cells[i] = c->value;
            if (d->columns[i].type == PROBING_STR)
                cells[i].s = c->type == 's' ? f->text + c->value.u : NULL;
            else if (d->columns[i].type == PROBING_F64)
                cells[i] = c->type == 'f' ? c->value : probing_null(PROBING_F64);
            else if (c->type != 'i')
                cells[i] = probing_null(PROBING_I64);
        }
        r = f->plugin->host->emit(out, cells, f->n_columns);
    }
    f->n = 0;
    f->text_n = 0;
    return r;
}

/* Between two slices.  Who lets the GIL go and asks for it again at once has it again before the
 * one who waits has been woken. */
static void let_others(struct runner *r)
{
    runner_lock(r); /* an event with a limit: nobody need wake us */
    runner_sleep(r, PAUSE_NS);
    runner_unlock(r);
}

/* Nobody waits: the GIL may be long in coming. */
static void give_up(struct runner *r, PyObject *rows)
{
    struct runner_job *job = rows ? calloc(1, sizeof(*job)) : NULL;
    if (!job)
        return;
    job->fn = end_job;
    job->arg = rows;
    if (runner_submit(r, job) < 0)
        free(job);
    else
        runner_release(r, job);
}

/* One slice: 0, -ETIMEDOUT without the GIL, -ECANCELED when nobody wants the answer any more. */
static int run_slice(struct fill *f, struct probing_rows *out)
{
    struct runner *r = f->plugin->runner;
    struct runner_job *job = calloc(1, sizeof(*job));
    if (!job)
        return -ENOMEM;
    job->fn = fill_job;
    job->arg = f;
    int result = runner_submit(r, job);
    if (result < 0) {
        free(job);
        return result;
    }
    uint64_t until = now_ns() + GIL_NS;
    while (result == 0 && runner_wait(r, job, RUNNER_WAITS, LOOK_NS) == RUNNER_WAITS) {
        int given_up = f->plugin->host->emit(out, NULL, 0) < 0 ? -ECANCELED
                       : now_ns() > until                      ? -ETIMEDOUT
                                                               : 0;
        if (given_up && runner_take_back(r, job))
            result = given_up;
    }
    while (result == 0 && runner_wait(r, job, RUNNER_RUNS, GIL_NS) < RUNNER_DONE)
        continue; /* it uses `f` */
    result = result == 0 ? job->result : result;
    runner_release(r, job);
    return result;
}

static int scan_rows(struct plugin *p, struct probing_rows *out, const struct probing_table_desc *d,
                     const char *function)
{
    const struct probing_host *h = p->host;
    struct fill *f = calloc(1, sizeof(*f));
    if (!f)
        return h->fail(h, -ENOMEM, "no memory for the rows");
    *f = (struct fill){.plugin = p, .function = function, .n_columns = d->n_columns};
    uint64_t until = now_ns() + WHOLE_NS;
    int r = 0;
    while (r == 0 && !f->done) {
        r = run_slice(f, out);
        if (r == 0)
            r = emit_rows(f, out, d);
        if (r == 0 && !f->done && now_ns() > until)
            r = -ETIME;
        if (r == 0 && !f->done)
            let_others(p->runner);
    }
    give_up(p->runner, f->rows);
    free(f->text);
    free(f);
    switch (r) {
    case -ETIMEDOUT:
        return h->fail(h, r, "the GIL was not available; `backtrace` shows which thread holds it");
    case -ETIME:
        return h->fail(h, r, "reading all objects took longer than a minute");
    case -EIO:
        return h->fail(h, r, "the interpreter's objects could not be read");
    case -ENODEV:
        return h->fail(h, r, "the Python interpreter is ending or has not begun");
    case -ECANCELED: /* nobody wants more */
        return 0;
    default:
        return r;
    }
}

/* ---- the tables ---- */

#define COMPUTED(table, function, list, text)                         \
    static int scan_##function(void *self, struct probing_rows *out); \
    static const struct probing_table_desc function##_table =         \
        PROBING_COMPUTED_TABLE(table, list, scan_##function, text);   \
    static int scan_##function(void *self, struct probing_rows *out)  \
    {                                                                 \
        return scan_rows(self, out, &function##_table, #function);    \
    }

static const struct probing_column object_columns[] = {
    PROBING_STR_COLUMN("type", "class with its module"),
    PROBING_I64_COLUMN("count", PROBING_COUNT, "number of objects of exactly this class"),
    PROBING_I64_COLUMN("size", PROBING_BYTES,
                       "size of all of them, without the objects that they refer to"),
    PROBING_STR_COLUMN(
        "repr", "repr of one of them; objects of other than built-in types are shown by type only"),
};
COMPUTED("python.objects", objects, object_columns,
         "objects that the garbage collector tracks, by class: containers and instances, not "
         "numbers or strings")

static const struct probing_column module_columns[] = {
    PROBING_STR_COLUMN("name", "in sys.modules"),
    PROBING_STR_COLUMN("version", "__version__, if it is a string"),
    PROBING_STR_COLUMN("file", "__file__"),
};
COMPUTED("python.modules", modules, module_columns, "imported modules")

static const struct probing_column tensor_columns[] = {
    PROBING_STR_COLUMN("shape", "its shape"),
    PROBING_STR_COLUMN("dtype", "float32 ..."),
    PROBING_STR_COLUMN("device", "cpu, cuda:0 ..."),
    PROBING_I64_COLUMN(
        "bytes", PROBING_BYTES,
        "number of elements times their size; views share memory with other tensors"),
    PROBING_I64_COLUMN("requires_grad", PROBING_PLAIN, "1: autograd records operations on it"),
    PROBING_F64_COLUMN("grad_norm", PROBING_PLAIN,
                       "2-norm of its gradient; NULL: it has none, or it is on a GPU or has more "
                       "than 2**20 elements"),
    PROBING_I64_COLUMN("refcount", PROBING_COUNT, "reference count: references from Python and C"),
    PROBING_STR_COLUMN("class", "Tensor, Parameter ..."),
};
COMPUTED(
    "python.tensors", tensors, tensor_columns,
    "torch.Tensors that Python knows, one row each, 20,000 at most; values on a GPU are not read")

static const struct probing_column thread_columns[] = {
    PROBING_I64_COLUMN("ident", PROBING_PLAIN, "threading.get_ident()"),
    PROBING_I64_COLUMN("native_id", PROBING_PLAIN,
                       "the kernel's id of the thread; NULL: threading does not know it"),
    PROBING_STR_COLUMN("name", "threading's"),
    PROBING_I64_COLUMN("daemon", PROBING_PLAIN, "1: the program does not wait for it at its end"),
    PROBING_I64_COLUMN("alive", PROBING_PLAIN, "1: the thread has not ended"),
    PROBING_STR_COLUMN("func", "Python function that it is running"),
};
COMPUTED("python.threads", threads, thread_columns,
         "threads that Python knows; python.backtrace shows which one holds the GIL and what each "
         "waits for")

static const struct probing_column generation_columns[] = {
    PROBING_I64_COLUMN("generation", PROBING_PLAIN, "0 is the youngest"),
    PROBING_I64_COLUMN("count", PROBING_COUNT, "gc.get_count()"),
    PROBING_I64_COLUMN("threshold", PROBING_COUNT, "gc.get_threshold()"),
    PROBING_I64_COLUMN("collections", PROBING_COUNT, "since the process began"),
    PROBING_I64_COLUMN("collected", PROBING_COUNT, "number of objects since the process began"),
    PROBING_I64_COLUMN("uncollectable", PROBING_COUNT,
                       "number of objects that were found and could not be freed"),
    PROBING_I64_COLUMN("frozen", PROBING_COUNT, "number of objects that gc.freeze() ignores"),
};
COMPUTED("python.gc_generations", gc_generations, generation_columns,
         "generations of the garbage collector: objects that wait for it, and what it has found")

int tables_init(struct plugin *p)
{
    static const struct probing_table_desc *const all[] = {
        &objects_table, &modules_table, &tensors_table, &threads_table, &gc_generations_table};
    int r = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && r == 0; i++) {
        struct probing_table *table;
        r = p->host->table(p->host, all[i], &table);
    }
    return r;
}
