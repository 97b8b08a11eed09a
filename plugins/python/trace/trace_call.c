/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/trace/trace_call.c - a watched function's calls, and a watched variable's
 * values, as they happen: which call is inside which, and the rows.
 *
 * In the user's threads, with the GIL.  What calls these, and how it came there, is not known here.
 */
#include "exec/bindings.h"
#include "internal.h"
#include "package_api/coordinates.h"
#include "package_api/spans.h"
#include "trace/trace.h"
#include "trace/trace_event.h"

#define DEPTH 256 /* calls of watched functions inside each other, of one thread */
#define WARM 32   /* calls: each is looked at for what it costs, but the first; then one of */
#define EACH 16

static __thread struct trace_call calls[DEPTH];
static __thread uint32_t n_calls, too_deep;
static struct probing_table *variables; /* written in trace_calls_init(), before a slot is taken */

/* ---- a call begins and ends ---- */

uint64_t trace_inside(void)
{
    for (uint32_t n = n_calls; n > 0; n--) {
        const struct trace_call *c = &calls[n - 1];
        if (c->life && c->life == trace_slots[c->slot].life)
            return c->span;
    }
    return 0;
}

/* Its call has been taken from `calls`: what is there is around it. */
static void call_row(struct trace_slot *s, const struct trace_call *c, uint64_t now,
                     enum event_phase phase, PyObject *attributes)
{
    size_t n;
    const char *text = natives_utf8(attributes, &n);
    struct event e = {.type = EVENT_CALL,
                      .phase = phase,
                      .ts = now,
                      .name_id = s->name_id,
                      .span = c->span,
                      .parent = n_calls > 0 ? calls[n_calls - 1].span : 0,
                      .duration_ns = (int64_t)(now - c->began)};
    uint64_t span = spans_current(&e.trace);
    if (span > e.parent && span < c->span)
        e.parent = span;
    events_add(&e, text, n);
    trace_show(c->slot, now, now - c->began, phase, text, n);
}

static void forget_call(struct trace_call *c)
{
    if (c->text)
        natives_py.Py_DecRef(c->text);
    c->text = NULL;
}

struct trace_call *trace_enter(uint32_t i)
{
    if (n_calls == DEPTH) { /* left behind by what was taken out meanwhile, or really so deep */
        too_deep++;
        return NULL;
    }
    struct trace_call *c = &calls[n_calls++];
    *c = (struct trace_call){.slot = i, .life = trace_slots[i].life};
    int64_t n = atomic_load_explicit(&trace_slots[i].calls, memory_order_relaxed);
    if (n > 0 && (n < WARM || n % EACH == 0))
        c->entered = natives_host->now();
    c->span = events_next();
    return c;
}

struct trace_call *trace_innermost(uint32_t i)
{
    for (uint32_t n = n_calls; n > 0; n--)
        if (calls[n - 1].slot == i && calls[n - 1].life == trace_slots[i].life) {
            while (n_calls > n)
                forget_call(&calls[--n_calls]);
            return &calls[n - 1];
        }
    return NULL;
}

void trace_drop(struct trace_call *c)
{
    forget_call(c);
    n_calls--;
}

/* Ours were [c->entered, c->began] and what there was since `end`. */
static void note_cost(struct trace_slot *s, const struct trace_call *c, uint64_t end)
{
    if (!c->entered)
        return;
    uint64_t ns = c->began - c->entered + natives_host->now() - end;
    (void)atomic_fetch_add_explicit(&s->cost_ns, (int64_t)ns, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&s->costs, 1, memory_order_relaxed);
}

bool trace_leave(uint32_t i, enum event_phase phase, PyObject *value)
{
    struct trace_slot *s = &trace_slots[i];
    uint64_t now = natives_host->now();
    struct trace_call *found = trace_innermost(i);
    if (!found)
        return true;
    struct trace_call c = *found;
    n_calls--;
    if (!trace_is_live(i)) { /* of a limit that calls inside it have reached */
        forget_call(&c);
        return true;
    }
    PyObject *text = c.text;
    bool good = true;
    if (text && value && s->result) {
        text = natives_py.PyObject_CallFunctionObjArgs(s->result, c.text, value, NULL);
        good = !natives_theirs();
    } else if (text) {
        natives_py.Py_IncRef(text);
    }
    int64_t count = atomic_fetch_add_explicit(&s->calls, 1, memory_order_relaxed) + 1;
    if (phase == RAISED)
        (void)atomic_fetch_add_explicit(&s->raised, 1, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&s->total_ns, (int64_t)(now - c.began), memory_order_relaxed);
    if (!s->limit || count <= s->limit)
        call_row(s, &c, now, phase, text);
    if (s->limit && count >= s->limit)
        atomic_store_explicit(&s->live, false, memory_order_relaxed);
    if (text)
        natives_py.Py_DecRef(text);
    forget_call(&c);
    note_cost(s, &c, now);
    return good;
}

bool trace_describe(struct trace_slot *s, struct trace_call *c, PyObject *code,
                    PyObject *positional, PyObject *named)
{
    const struct cpython *py = &natives_py;
    PyObject *values = py->PyTuple_Pack(2, positional, named);
    uint64_t life = c->life;
    PyObject *text = values ? py->PyObject_CallFunctionObjArgs(s->args, code, values, NULL) : NULL;
    if (values)
        py->Py_DecRef(values);
    if (text && n_calls > 0 && &calls[n_calls - 1] == c && c->life == life)
        c->text = text;
    else if (text)
        py->Py_DecRef(text);
    return text || !natives_theirs();
}

/* ---- a variable ---- */

enum { COL_FUNC = PROBING_COORDINATES, COL_LINE, COL_NAME, COL_TYPE, COL_VALUE, N_WATCHED };

static void variable_row(struct trace_slot *s, uint32_t i, int64_t line, PyObject *told)
{
    const struct cpython *py = &natives_py;
    size_t n, type_n;
    const char *text = natives_utf8(py->PyTuple_GetItem(told, 0), &n);
    const char *type = natives_utf8(py->PyTuple_GetItem(told, 1), &type_n);
    PyObject *number = py->PyTuple_GetItem(told, 2);
    uint64_t type_id, now = natives_host->now();
    union probing_cell value = {.u = PROBING_NULL_F64};
    if (number != py->_Py_NoneStruct)
        value.f = py->PyFloat_AsDouble(number);
    if (natives_host->intern(natives_host, type, type_n < 200 ? type_n : 200, &type_id) < 0)
        type_id = PROBING_NULL_ID;
    union probing_cell cells[N_WATCHED] = {[COL_FUNC] = {.u = s->name_id},
                                           [COL_LINE] = {.i = line},
                                           [COL_NAME] = {.u = s->variable_id},
                                           [COL_TYPE] = {.u = type_id},
                                           [COL_VALUE] = value};
    coordinates_put(cells);
    (void)natives_host->append(variables, now, cells, N_WATCHED, text,
                               (uint32_t)events_cut(text, n));
    char shown[TRACE_TEXT];
    int length = snprintf(shown, sizeof(shown), "%s = %.150s", s->variable, text);
    (void)atomic_fetch_add_explicit(&s->calls, 1, memory_order_relaxed);
    trace_show(i, now, (uint64_t)line, RETURNED, shown, (size_t)length);
    if (s->limit && atomic_load_explicit(&s->calls, memory_order_relaxed) >= s->limit)
        atomic_store_explicit(&s->live, false, memory_order_relaxed);
}

static bool check_value(struct trace_slot *s, uint32_t i, struct trace_call *c, int64_t line)
{
    const struct cpython *py = &natives_py;
    PyObject *frame = py->PyEval_GetFrame();
    PyObject *value = !c || !frame  ? NULL
                      : s->local[0] ? py->PyFrame_GetVarString(frame, s->local)
                                    : natives_none();
    if (!value) { /* not assigned yet */
        if (c && frame)
            py->PyErr_Clear();
        return true;
    }
    PyObject *told = py->PyObject_CallFunctionObjArgs(s->variable_value, value, NULL);
    py->Py_DecRef(value);
    if (!told)
        return !natives_theirs();
    if (told == py->_Py_NoneStruct) { /* the global or attribute is not there yet */
        py->Py_DecRef(told);
        return true;
    }
    PyObject *text = py->PyTuple_GetItem(told, 0);
    int same = c->text ? py->PyObject_RichCompareBool(c->text, text, /* Py_EQ= */ 2) : 0;
    if (same <= 0) {
        py->Py_IncRef(text);
        forget_call(c);
        c->text = text;
        variable_row(s, i, line, told);
    }
    py->Py_DecRef(told);
    return true;
}

bool trace_inspect(uint32_t i, int64_t line)
{
    struct trace_slot *s = &trace_slots[i];
    uint64_t begin = natives_host->now();
    bool good = check_value(s, i, trace_innermost(i), line);
    (void)atomic_fetch_add_explicit(&s->cost_ns, (int64_t)(natives_host->now() - begin),
                                    memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&s->costs, 1, memory_order_relaxed);
    return good;
}

/* ---- its table ---- */

static const struct probing_column variable_columns[N_WATCHED] = {
    PROBING_COORDINATE_COLUMNS,
    PROBING_STR_COLUMN("func", "the function, as it was given to trace"),
    PROBING_I64_COLUMN("lineno", PROBING_PLAIN,
                       "line that is about to run; NULL: the function returns"),
    PROBING_STR_COLUMN("name", "the variable"),
    PROBING_STR_COLUMN("value_type", "its type"),
    PROBING_F64_COLUMN("value_f64", PROBING_PLAIN, "its value, if it is a number"),
};

static const struct probing_table_desc variable_table =
    PROBING_TEXT_TABLE("python.watched", variable_columns, "value",
                       "values of watched variables, one row for each change");

int trace_calls_init(struct plugin *p)
{
    return p->host->table(p->host, &variable_table, &variables);
}
