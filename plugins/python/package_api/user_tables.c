/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/package_api/user_tables.c - tables that the program itself writes: probing.table()
 * and append().
 *
 * append() runs in the user's threads, with the GIL (or without one, in a build that has none),
 * and never raises for what a value is: a program must not fail because it is looked at.  The core
 * makes tables on [control]; the thread that declares one waits for that with the GIL let go.
 */
#include "package_api/user_tables.h"

#include <errno.h>
#include <probing/ext/draft/loss.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/bindings.h"
#include "internal.h"
#include "package_api/package_bridge.h"

#define TOPIC "python.table/1"
#define CAPSULE "probing.table"
#define COLUMNS_MAX 64
#define MAKE_NS PROBING_NS_PER_S      /* for [control] to make a table: who declares it waits */
#define ALL_NS (5 * PROBING_NS_PER_S) /* and all that are on their way, before a client's code */
#define TEXTS_MAX 100000      /* different ones in a table's columns: their store is for words */
#define TEXT_MAX (64u << 10)  /* bytes of one of them: intern()'s own limit */
#define LAST_MAX (255u << 10) /* of one in the last column: a row may have 256 KiB */

struct column {
    PyObject *name; /* interned */
    uint32_t type;
    bool told; /* of a value that is none of its type; lock: the GIL, or told twice */
};

struct written {
    _Atomic(struct probing_table *) table; /* NULL: not made (yet) */
    PyObject *row_class;                   /* a dataclass, or None */
    struct column columns[COLUMNS_MAX];
    uint32_t n_columns, n_cells; /* n_cells: without the tail */
    _Atomic uint64_t last_text, texts;
    _Atomic uint64_t early;           /* rows that came before it was made */
    bool done;                        /* lock: making */
    struct probing_column *described; /* until it is made */
    struct probing_table_desc desc;
};

struct message { /* of TOPIC */
    uint32_t size, reserved;
    struct written *written;
};

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t made = PTHREAD_COND_INITIALIZER; /* on CLOCK_REALTIME: looks again */
static _Atomic uint32_t on_their_way;     /* asked for, not made.  Written under `making`; init() */
static const struct probing_loss_1 *loss; /* NULL: an older core; written in init() */

/* ---- a row ---- */

struct row {
    union probing_cell cells[COLUMNS_MAX];
    const char *tail;
    size_t tail_n;
    uint32_t lost; /* values that were given and are not in it */
};

/* A value is not kept: counted each time, and said the first. */
static void lose_value(struct written *w, struct row *r, uint32_t i, const char *why)
{
    struct column *c = &w->columns[i];
    r->lost++;
    size_t n;
    char text[200];
    if (c->told)
        return;
    c->told = true;
    (void)snprintf(text, sizeof(text),
                   "%s, column %s: %s; NULL is stored instead (this is logged once; probing.lost "
                   "counts the values)",
                   w->desc.name, natives_utf8(c->name, &n), why);
    natives_host->log(natives_host, PROBING_WARN, text);
}

/* An error of a conversion is the value's; but Ctrl-C is theirs.  false: it goes on to them. */
static bool is_bad_value(void)
{
    const struct cpython *py = &natives_py;
    if (!py->PyErr_ExceptionMatches(py->PyExc_Exception))
        return false;
    py->PyErr_Clear();
    return true;
}

static void put_text(struct written *w, struct row *r, uint32_t i, const char *text, size_t n)
{
    uint64_t id;
    if (n > TEXT_MAX) {
        lose_value(w, r, i, "a text of more than 64 KiB belongs in the last column");
        return;
    }
    if (atomic_load_explicit(&w->texts, memory_order_relaxed) > TEXTS_MAX) {
        lose_value(w, r, i, "more than 100,000 distinct texts belong in the last column");
        return;
    }
    if (natives_host->intern(natives_host, text, n, &id) < 0) {
        lose_value(w, r, i, "there is no room for another text");
        return;
    }
    if (id > atomic_load_explicit(&w->last_text, memory_order_relaxed)) {
        atomic_store_explicit(&w->last_text, id, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&w->texts, 1, memory_order_relaxed);
    }
    r->cells[i].u = id;
}

static void put_last(struct written *w, struct row *r, uint32_t i, const char *text, size_t n)
{
    if (n > LAST_MAX) {
        lose_value(w, r, i, "over 255 KiB");
        return;
    }
    r->tail = text;
    r->tail_n = n;
}

/* A text or bytes, borrowed from the value; NULL with an exception when it is neither. */
static const char *bytes_of(PyObject *value, uint32_t type, size_t *ret_n)
{
    const struct cpython *py = &natives_py;
    Py_ssize_t n = 0;
    char *bytes = NULL;
    const char *text = NULL;
    if (type == PROBING_BLOB)
        text = py->PyBytes_AsStringAndSize(value, &bytes, &n) ? NULL : bytes;
    else
        text = py->PyUnicode_AsUTF8AndSize(value, &n);
    *ret_n = (size_t)n;
    return text;
}

static bool is_exactly(PyObject *value, const PyObject *type)
{
    PyObject *its = natives_py.PyObject_Type(value);
    natives_py.Py_DecRef(its); /* the value has it */
    return its == type;
}

/* false: an exception of the user's is set. */
static bool put_value(struct written *w, struct row *r, uint32_t i, PyObject *value)
{
    static const char *const wanted[] = {[PROBING_I64] = "a value is not an int of 64 bits",
                                         [PROBING_F64] = "a value is not a number",
                                         [PROBING_STR] = "a value is not a str of UTF-8",
                                         [PROBING_BLOB] = "a value is not bytes"};
    const struct cpython *py = &natives_py;
    uint32_t type = w->columns[i].type;
    union probing_cell cell = {.i = 0};
    const char *text = NULL;
    size_t n = 0;
    if (value == py->_Py_NoneStruct)
        return true;
    if (type == PROBING_I64 && is_exactly(value, py->PyFloat_Type)) { /* to 3.9 it would be cut */
        lose_value(w, r, i, wanted[type]);
        return true;
    }
    if (type == PROBING_I64)
        cell.i = py->PyLong_AsLongLong(value);
    else if (type == PROBING_F64)
        cell.f = py->PyFloat_AsDouble(value);
    else
        text = bytes_of(value, type, &n);
    bool failed = type == PROBING_I64   ? cell.i == -1 && py->PyErr_Occurred()
                  : type == PROBING_F64 ? cell.f == -1.0 && py->PyErr_Occurred()
                                        : !text;
    if (failed) {
        if (!is_bad_value())
            return false;
        lose_value(w, r, i, wanted[type]);
        return true;
    }
    if (type == PROBING_I64 && cell.i == PROBING_NULL_I64)
        lose_value(w, r, i, "-2^63 stands for NULL in the store");
    if (!text) {
        r->cells[i] = cell;
    } else if (i < w->n_cells) {
        put_text(w, r, i, text, n);
    } else {
        put_last(w, r, i, text, n);
    }
    return true;
}

/* Index of a column; n_columns: there is none. */
static uint32_t find_column(const struct written *w, PyObject *name)
{
    uint32_t i = 0;
    while (i < w->n_columns && w->columns[i].name != name) /* as a rule both are interned */
        i++;
    if (i < w->n_columns)
        return i;
    for (i = 0; i < w->n_columns; i++)
        if (natives_py.PyObject_RichCompareBool(w->columns[i].name, name, /* Py_EQ= */ 2) == 1)
            break;
    return i;
}

/* The attributes of an instance of the dataclass; they are held until the row is written. */
static bool put_object(struct written *w, struct row *r, PyObject *object, PyObject **ret_held)
{
    const struct cpython *py = &natives_py;
    *ret_held = py->PyTuple_New(w->n_columns);
    for (uint32_t i = 0; *ret_held && i < w->n_columns; i++) {
        PyObject *value = py->PyObject_GetAttr(object, w->columns[i].name);
        if (!value)
            return false;
        (void)py->PyTuple_SetItem(*ret_held, i, value); /* takes it */
        if (!put_value(w, r, i, value))
            return false;
    }
    return *ret_held != NULL;
}

static bool put_arguments(struct written *w, struct row *r, PyObject *const *args, Py_ssize_t n,
                          PyObject *kwnames)
{
    const struct cpython *py = &natives_py;
    Py_ssize_t named = kwnames ? py->PyTuple_Size(kwnames) : 0;
    if (n > (Py_ssize_t)w->n_columns) {
        (void)py->PyErr_Format(py->PyExc_TypeError, "%s has %u columns, not %zd", w->desc.name,
                               w->n_columns, n);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (!put_value(w, r, (uint32_t)i, args[i]))
            return false;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = py->PyTuple_GetItem(kwnames, i);
        uint32_t at = find_column(w, name);
        if (at == w->n_columns || (Py_ssize_t)at < n) {
            (void)py->PyErr_Format(py->PyExc_TypeError, "%s: %s column '%U'", w->desc.name,
                                   at == w->n_columns ? "there is no" : "a second value for", name);
            return false;
        }
        if (!put_value(w, r, at, args[n + i]))
            return false;
    }
    return true;
}

static void write_row(struct written *w, const struct row *r)
{
    struct probing_table *table = atomic_load_explicit(&w->table, memory_order_acquire);
    if (table) {
        int rc = natives_host->append(table, natives_host->now(), r->cells, w->n_cells, r->tail,
                                      (uint32_t)r->tail_n);
        if (rc == 0 && r->lost && loss)
            loss->values(table, r->lost);
    } else {
        (void)atomic_fetch_add_explicit(&w->early, 1, memory_order_relaxed);
        if (loss)
            loss->no_table(natives_host, 1);
    }
}

static PyObject *append_row(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    const struct cpython *py = &natives_py;
    struct written *w = py->PyCapsule_GetPointer(self, CAPSULE);
    struct row r;
    PyObject *held = NULL;
    if (!w || !offer_enter())
        return w ? natives_none() : NULL;
    for (uint32_t i = 0; i < w->n_cells; i++)
        r.cells[i] = probing_null(w->columns[i].type);
    r.tail = NULL;
    r.tail_n = 0;
    r.lost = 0;
    bool whole = n == 1 && !kwnames && is_exactly(args[0], w->row_class)
                     ? put_object(w, &r, args[0], &held)
                     : put_arguments(w, &r, args, n, kwnames);
    if (whole)
        write_row(w, &r);
    offer_leave();
    if (held)
        py->Py_DecRef(held);
    return whole ? natives_none() : NULL;
}

/* ---- making a table ---- */

static bool are_awaited(void)
{
    return atomic_load_explicit(&on_their_way, memory_order_relaxed) > 0;
}

/* One more (1), or one that is made or will not be (-1).  lock: making */
static void count_awaited(int change)
{
    uint32_t n = atomic_load_explicit(&on_their_way, memory_order_relaxed);
    if (change > 0 || n > 0) /* what came from an earlier life is not counted any more */
        atomic_store_explicit(&on_their_way, n + (uint32_t)change, memory_order_relaxed);
}

static void tell_early(const char *table, uint64_t rows, bool lost)
{
    char text[240];
    if (rows == 0)
        return;
    (void)snprintf(text, sizeof(text), "%s: %llu rows were appended before %s, and are not kept%s",
                   table, (unsigned long long)rows, lost ? "its table was there" : "probing came",
                   lost ? "; they are counted in probing.lost" : "");
    natives_host->log(natives_host, lost ? PROBING_WARN : PROBING_INFO, text);
}

/* [control] */
static void make_table(void *self, const char *topic, const void *payload, uint32_t n)
{
    struct plugin *p = self;
    struct message m;
    (void)topic;
    if (n < sizeof(m))
        return;
    memcpy(&m, payload, sizeof(m));
    struct written *w = m.written;
    struct probing_table *table = NULL;
    int r = p->host->table(p->host, &w->desc, &table);
    if (r < 0) {
        char text[240];
        (void)snprintf(text, sizeof(text),
                       "probing.table(): %s could not be made: %s (error %d); its rows are counted "
                       "in probing.lost",
                       w->desc.name,
                       r == -EEXIST ? "there is another table of this name"
                       : r == -ENOSPC
                           ? "this process has the maximum number of tables, or its disk is full"
                           : "its description cannot be stored",
                       -r);
        p->host->log(p->host, PROBING_WARN, text);
    }
    (void)pthread_mutex_lock(&making);
    atomic_store_explicit(&w->table, table, memory_order_release);
    w->done = true;
    count_awaited(-1);
    (void)pthread_cond_broadcast(&made);
    (void)pthread_mutex_unlock(&making);
    if (table)
        tell_early(w->desc.name, atomic_load_explicit(&w->early, memory_order_relaxed), true);
}

void written_wake(void)
{
    (void)pthread_mutex_lock(&making);
    (void)pthread_cond_broadcast(&made);
    (void)pthread_mutex_unlock(&making);
}

/* Until it is made, or (NULL) all are that were asked for.  With the GIL let go. */
static void wait_for(const struct written *w, uint64_t most_ns)
{
    struct timespec until;
    void *saved = natives_py.PyEval_SaveThread();
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(most_ns / PROBING_NS_PER_S);
    (void)pthread_mutex_lock(&making);
    while ((w ? !w->done : are_awaited()) && !offer_ends() &&
           pthread_cond_timedwait(&made, &making, &until) == 0)
        continue;
    (void)pthread_mutex_unlock(&making);
    natives_py.PyEval_RestoreThread(saved);
}

void written_wait_all(void)
{
    if (are_awaited())
        wait_for(NULL, ALL_NS);
}

void written_expect(int change)
{
    (void)pthread_mutex_lock(&making);
    count_awaited(change);
    (void)pthread_cond_broadcast(&made);
    (void)pthread_mutex_unlock(&making);
}

static bool ask_for(struct written *w)
{
    const struct message m = {.size = sizeof(m), .written = w};
    written_expect(1);
    if (natives_host->publish(natives_host, TOPIC, &m, sizeof(m)) == 0)
        return true;
    written_expect(-1);
    return false;
}

static char *copy_text(PyObject *text)
{
    size_t n;
    return strdup(natives_utf8(text, &n));
}

/* columns: tuples (name, type, doc).  The last one, when it is text or bytes, is the tail. */
static bool describe_table(struct written *w, PyObject *name, PyObject *doc, PyObject *columns)
{
    const struct cpython *py = &natives_py;
    w->n_columns = w->n_cells = (uint32_t)py->PyTuple_Size(columns);
    w->described = calloc(w->n_columns ? w->n_columns : 1, sizeof(*w->described));
    w->desc = (struct probing_table_desc){.size = sizeof(w->desc),
                                          .column_size = sizeof(struct probing_column),
                                          .name = copy_text(name),
                                          .doc = copy_text(doc),
                                          .columns = w->described};
    if (!w->n_columns || w->n_columns > COLUMNS_MAX || !w->described || !w->desc.name)
        return false;
    for (uint32_t i = 0; i < w->n_columns; i++) {
        PyObject *one = py->PyTuple_GetItem(columns, i);
        w->columns[i].name = natives_keep(one, 0);
        w->columns[i].type = (uint32_t)py->PyLong_AsLongLong(py->PyTuple_GetItem(one, 1));
        w->described[i] = (struct probing_column){.name = copy_text(py->PyTuple_GetItem(one, 0)),
                                                  .type = w->columns[i].type,
                                                  .doc = copy_text(py->PyTuple_GetItem(one, 2))};
    }
    uint32_t last = w->columns[w->n_columns - 1].type;
    if (w->n_columns > 1 && (last == PROBING_STR || last == PROBING_BLOB)) {
        w->n_cells--;
        w->desc.tail_type = last;
        w->desc.tail_name = w->described[w->n_cells].name;
    }
    w->desc.n_columns = w->n_cells;
    return true;
}

/* table(name, doc, columns, dataclass or None, wait): its append(); None: we have left.
 * What it is made of stays for good: the program may keep append(). */
static PyObject *table_method(PyObject *self, PyObject *args)
{
    static struct cpython_method method = {"append", NULL, METH_FASTCALL | METH_KEYWORDS,
                                           "Add a row: values in order, by name, or a dataclass."};
    const struct cpython *py = &natives_py;
    (void)self;
    struct written *w = calloc(1, sizeof(*w));
    if (!w || !offer_enter()) {
        free(w);
        return natives_none();
    }
    PyCFunctionFastKeywords call = append_row;
    memcpy(&method.call, &call, sizeof(call));
    bool good = describe_table(w, py->PyTuple_GetItem(args, 0), py->PyTuple_GetItem(args, 1),
                               py->PyTuple_GetItem(args, 2));
    w->row_class = natives_keep(args, 3);
    bool waits = py->PyObject_IsTrue(py->PyTuple_GetItem(args, 4)) == 1;
    if (good && ask_for(w) && waits)
        wait_for(w, MAKE_NS);
    offer_leave();
    PyObject *capsule = good ? py->PyCapsule_New(w, CAPSULE, NULL) : NULL;
    PyObject *function = capsule ? py->PyCFunction_NewEx(&method, capsule, NULL) : NULL;
    if (capsule)
        py->Py_DecRef(capsule);
    py->PyErr_Clear();
    return function ? function : natives_none();
}

int written_init(struct plugin *p)
{
    loss = p->host->extension(p->host, PROBING_LOSS_1);
    /* Make the tables that an earlier life was asked for and did not make.  Without the lock: this
     * may be a child. */
    atomic_store_explicit(&on_their_way, 0, memory_order_relaxed);
    return p->host->subscribe(p->host, TOPIC, make_table);
}

/* table_wait(append.__self__): until it is made, or has failed. */
static PyObject *table_wait(PyObject *self, PyObject *capsule)
{
    (void)self;
    struct written *w = natives_py.PyCapsule_GetPointer(capsule, CAPSULE);
    if (w && offer_enter()) {
        wait_for(w, MAKE_NS);
        offer_leave();
    }
    natives_py.PyErr_Clear();
    return natives_none();
}

/* early(name, rows, probing was in the process): of a table, what the package counted before it had
 * somebody to give it to. */
static PyObject *count_early(PyObject *self, PyObject *args)
{
    const struct cpython *py = &natives_py;
    size_t n;
    (void)self;
    const char *name = natives_utf8(py->PyTuple_GetItem(args, 0), &n);
    int64_t rows = py->PyLong_AsLongLong(py->PyTuple_GetItem(args, 1));
    bool lost = py->PyObject_IsTrue(py->PyTuple_GetItem(args, 2)) == 1;
    if (rows > 0 && offer_enter()) {
        if (lost && loss)
            loss->no_table(natives_host, (uint64_t)rows);
        tell_early(name, (uint64_t)rows, lost && loss);
        offer_leave();
    }
    py->PyErr_Clear();
    return natives_none();
}

struct cpython_method written_natives[] = {
    {"table", table_method, METH_VARARGS, NULL},
    {"table_wait", table_wait, METH_O, NULL},
    {"early", count_early, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
