/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/variables.c - variables of the training loop at each step's end, as rows.
 *
 * Threads: any that holds the GIL.
 * What cannot be read has a row that says why; a name that never is there has one, too.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "device/device.h"
#include "modules/tensor.h"
#include "python/pyobject.h"
#include "steps/exprs.h"
#include "steps/variables.h"

#define TEXT_BYTES 256u
#define MISSED_STEPS 10u /* without a variable: then it is told */
#define EXPRS_MAX 64u    /* of which is known whether they have been there */

enum { COL_FUNC = N_COORDINATES, COL_NAME, COL_TYPE, COL_VALUE_F64, N_VARIABLES };

static const struct probing_column columns[N_VARIABLES] = {
    COORDINATE_COLUMNS,
    {.name = "func", .type = PROBING_STR, .doc = "function whose variable it is; or a module"},
    {.name = "name",
     .type = PROBING_STR,
     .doc = "as in torch.exprs; of a tensor with several numbers .min, .max, .mean, .norm, .nan"},
    {.name = "value_type", .type = PROBING_STR, .doc = "class of the value; NULL: it was not read"},
    {.name = "value_f64", .type = PROBING_F64, .doc = "the value, if it is a number"},
};

const struct probing_table_desc variables_table = PROBING_TEXT_TABLE(
    "python.variables", columns, "value",
    "variables of the program at each step's end (torch.exprs), and what torch.nan finds");

static struct {
    char exprs[LIST_BYTES]; /* the setting that the rest is about */
    uint32_t life, steps;   /* steps: since it was set, at most MISSED_STEPS */
    uint64_t names;         /* bits: expressions that were there */
} seen;                     /* lock: the GIL */

/* ---- rows ---- */

static void add_row(uint64_t step, uint64_t func, const char *name, const char *type,
                    const double *number, const char *text)
{
    union probing_cell row[N_VARIABLES];
    if (step == torch_state.step) {
        coordinates_put(row);
    } else { /* read late: what probing.step() said then is not known any more */
        coordinates_of((int64_t)step, row);
        row[COL_GLOBAL_STEP].i = PROBING_NULL_I64;
    }
    row[COL_FUNC].u = func;
    row[COL_NAME].u = object_intern(name);
    row[COL_TYPE].u = object_intern(type);
    row[COL_VALUE_F64].u = PROBING_NULL_F64;
    if (number && *number == *number)
        row[COL_VALUE_F64].f = *number;
    (void)torch_state.host->append(torch_state.variables, torch_state.now(), row, N_VARIABLES, text,
                                   (uint32_t)strlen(text));
}

void variables_add(uint64_t func, const char *name, const char *type, const double *number,
                   const char *text)
{
    add_row(torch_state.step, func, name, type, number, text);
}

static void add_number(uint64_t step, uint64_t func, const char *name, const char *type,
                       double number)
{
    char text[64] = "nan"; /* printf knows it with a sign, too */
    if (number == number)
        (void)snprintf(text, sizeof(text), "%.9g", number);
    add_row(step, func, name, type, &number, text);
}

void variables_add_number(uint64_t func, const char *name, const char *type, double number)
{
    add_number(torch_state.step, func, name, type, number);
}

void variables_add_later(uint64_t step, uint64_t func, const char *name, double number)
{
    add_number(step, func, name, "Tensor", number);
}

const char *variables_why_not(int rc, bool meta)
{
    if (rc == -E2BIG)
        return "not read: too large";
    if (rc != -EXDEV)
        return "not read: its type or layout";
    return meta
               ? "no numbers: a meta tensor"
               : "not read: that would wait for its device; torch.device_times=on reads one number "
                 "later";
}

static bool is_meta(PyObject *tensor)
{
    PyObject *meta = object_get(tensor, "is_meta");
    torch_state.py.Py_DecRef(meta); /* a constant of the interpreter */
    return meta == torch_state.py._Py_TrueStruct;
}

static void add_tensor(uint64_t func, const char *name, PyObject *tensor)
{
    struct tensor_figures f;
    int rc = tensor_look(tensor, &f);
    if (rc == -EXDEV && device_claim(device_number(tensor), func, name))
        return;
    if (rc < 0 || f.n == 0) {
        variables_add(func, name, "Tensor", NULL,
                      rc < 0 ? variables_why_not(rc, rc == -EXDEV && is_meta(tensor))
                             : "no numbers: an empty tensor");
        return;
    }
    if (f.n == 1) {
        variables_add_number(func, name, "Tensor", f.first);
        return;
    }
    const struct {
        const char *name;
        double value;
    } parts[] = {{"min", f.min},
                 {"max", f.max},
                 {"mean", f.mean},
                 {"norm", f.norm},
                 {"nan", (double)f.n_nan}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char full[EXPRS_NAME_BYTES + 8];
        (void)snprintf(full, sizeof(full), "%s.%s", name, parts[i].name);
        variables_add_number(func, full, "Tensor", parts[i].value);
    }
}

static void add_int(uint64_t func, const char *name, PyObject *value)
{
    struct cpython *py = &torch_state.py;
    char text[64];
    long long n = py->PyLong_AsLongLong(value);
    double number = (double)n;
    (void)snprintf(text, sizeof(text), "%lld", n);
    if (py->PyErr_Occurred()) { /* of more than 64 bits */
        py->PyErr_Clear();
        PyObject *wide = object_type(value) == py->PyLong_Type ? py->PyNumber_Float(value) : NULL;
        number = wide ? py->PyFloat_AsDouble(wide) : (double)NAN;
        (void)snprintf(text, sizeof(text), wide ? "%.17g" : "not read: too large", number);
        py->PyErr_Clear();
        py->Py_DecRef(wide);
    }
    variables_add(func, name, "int", &number, text);
}

static void add_text(uint64_t func, const char *name, PyObject *value)
{
    char text[TEXT_BYTES];
    Py_ssize_t n = 0;
    const char *bytes = torch_state.py.PyUnicode_AsUTF8AndSize(value, &n);
    if (!bytes) { /* of characters that are none */
        variables_add(func, name, "str", NULL, "not read: not valid text");
        return;
    }
    bool whole = (size_t)n < sizeof(text) && strlen(bytes) == (size_t)n;
    size_t length = whole ? (size_t)n : strnlen(bytes, sizeof(text) - 4);
    while (!whole && length && (bytes[length] & 0xc0) == 0x80)
        length--; /* a character whole */
    (void)snprintf(text, sizeof(text), "%.*s%s", (int)length, bytes, whole ? "" : "...");
    variables_add(func, name, "str", NULL, text);
}

/* numpy's own numbers of one value: reading them runs C. */
static bool is_numpy_number(PyObject *value)
{
    static const char *const kinds[] = {"numpy.float", "numpy.int", "numpy.uint", "numpy.bool"};
    const char *name = names_type_text(value);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strncmp(name, kinds[i], strlen(kinds[i])) == 0)
            return true;
    return false;
}

static void add_value(uint64_t func, const char *name, PyObject *value)
{
    struct cpython *py = &torch_state.py;
    const char *class = names_class_text(value);
    if (object_is(value, py->PyFloat_Type)) {
        variables_add_number(func, name, "float", py->PyFloat_AsDouble(value));
    } else if (value == py->_Py_TrueStruct || value == py->_Py_FalseStruct) {
        double number = value == py->_Py_TrueStruct;
        variables_add(func, name, "bool", &number, number != 0 ? "True" : "False");
    } else if (object_is(value, py->PyLong_Type)) {
        add_int(func, name, value);
    } else if (object_is(value, py->PyUnicode_Type)) {
        add_text(func, name, value);
    } else if (object_is(value, torch_state.tensor_class)) {
        add_tensor(func, name, value);
    } else if (value == py->_Py_NoneStruct) {
        variables_add(func, name, class, NULL, "None");
    } else {
        PyObject *number = is_numpy_number(value) ? py->PyNumber_Float(value) : NULL;
        if (number)
            variables_add_number(func, name, class, py->PyFloat_AsDouble(number));
        else
            variables_add(func, name, class, NULL, "not read: no number, text or tensor");
        py->Py_DecRef(number);
    }
    py->PyErr_Clear();
}

/* ---- a step's end ---- */

/* Gives whether it is there. */
static bool add_expression(const struct expression *e)
{
    struct cpython *py = &torch_state.py;
    char name[EXPRS_NAME_BYTES], function[EXPRS_NAME_BYTES];
    PyObject *func;
    const char *why;
    enum known known = loss_known(e);
    (void)snprintf(name, sizeof(name), "%.*s", (int)e->name_n, e->name);
    if (known > KNOWN_LOSS && loss_add(known, name))
        return true; /* an optimizer knows its rate better than a variable */
    PyObject *value = exprs_find(e, &func, &why);
    if (func)
        py->Py_IncRef(func);
    object_text(func, function, sizeof(function));
    /* `loss` is the name of functions, too, and of one number for each example */
    bool one = value && (is_numpy_number(value) || loss_is_one(value));
    bool told = !one && known == KNOWN_LOSS && loss_add(known, name);
    if (!told && value)
        add_value(object_intern(function), name, value);
    else if (!told && why)
        variables_add(object_intern(function), name, NULL, NULL, why);
    py->Py_DecRef(value);
    py->Py_DecRef(func);
    return told || value || why;
}

/* A name that was never there is a slip of the pen more often than not. */
static void tell_missing(const struct expression *e)
{
    char name[EXPRS_NAME_BYTES], function[EXPRS_NAME_BYTES], text[400];
    (void)snprintf(name, sizeof(name), "%.*s", (int)e->name_n, e->name);
    (void)snprintf(function, sizeof(function), "%.*s", (int)e->func_n, e->func);
    (void)snprintf(text, sizeof(text), "not there at the end of %u steps", MISSED_STEPS);
    variables_add(object_intern(function), name, NULL, NULL, text);
    (void)snprintf(text, sizeof(text),
                   "torch.exprs: '%s%s%s' was not there at the end of %u steps: no such variable%s",
                   name, *function ? "@" : "", function, MISSED_STEPS,
                   *function ? " in that function, or it does not run while a step ends"
                             : " in a function that runs while a step ends");
    torch_state.host->log(torch_state.host, PROBING_WARN, text);
}

static void look_anew(const char *exprs)
{
    if (seen.life == torch_state.life && strcmp(seen.exprs, exprs) == 0)
        return;
    seen.life = torch_state.life;
    seen.steps = 0;
    seen.names = 0;
    memcpy(seen.exprs, exprs, strlen(exprs) + 1);
}

void variables_step(void)
{
    const char *p = torch_state.set.exprs;
    PyObject *guard;
    if (!*p || !torch_state.host->wanted(torch_state.variables) || !exprs_usable() ||
        !tensor_quiet(&guard))
        return;
    look_anew(p);
    seen.steps += seen.steps <= MISSED_STEPS;
    for (uint32_t i = 0; *p; i++) {
        struct expression e;
        size_t n = exprs_length(p, ",");
        bool valid = exprs_parse(p, n, &e), there = valid && add_expression(&e);
        if (there && i < EXPRS_MAX)
            seen.names |= UINT64_C(1) << i;
        if (valid && seen.steps == MISSED_STEPS && i < EXPRS_MAX && !(seen.names >> i & 1) &&
            settings_chosen(&torch_state.set))
            tell_missing(&e);
        p += n + (p[n] == ',');
    }
    tensor_loud(guard);
}
