/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/variables.c - variables of the training loop at each step's end, as rows.
 *
 * Threads: any that holds the GIL.
 * What cannot be read has a row that says why; a name that never is there has one, too.
 */
#include "variables/variables.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/device.h"
#include "python/pyobject.h"
#include "python/tensor.h"
#include "variables/exprs.h"
#include "variables/loss.h"
#include "variables/variable_rows.h"

#define TEXT_BYTES 256u
#define MISSED_STEPS 10u /* without a variable: then it is told */

struct wanted {
    /* one expression of the setting */
    struct expression e;
    enum known known;
    char name[EXPRS_NAME_BYTES];
    bool was_there;
};

static struct {
    char exprs[LIST_BYTES]; /* the setting that the rest is about */
    uint32_t life, steps;   /* steps: since it was set, at most MISSED_STEPS */
    struct wanted *all;     /* owned; `e` is of `exprs` above */
    uint32_t n;
    uint32_t users;    /* steps that end now: a value that goes may run code of the program's, */
    bool forget_later; /* and with it another step's end or ours */
} list;                /* lock: the GIL */

static bool is_meta(PyObject *tensor)
{
    PyObject *meta = object_get(tensor, "is_meta");
    python.api.Py_DecRef(meta); /* a constant of the interpreter */
    return meta == python.api._Py_TrueStruct;
}

/* rc, f: of tensor_inspect(). */
static void add_tensor(uint64_t func, const char *name, PyObject *tensor, int rc,
                       const struct tensor_figures *f)
{
    if (rc == -EXDEV && device_claim(variables_ticket(tensor), func, name, variables_add_later))
        return;
    if (rc < 0 || f->n == 0) {
        variables_add(func, name, "Tensor", NULL,
                      rc < 0 ? variables_why_not(rc, rc == -EXDEV && is_meta(tensor))
                             : "no numbers: an empty tensor");
        return;
    }
    if (f->n == 1) {
        variables_add_number(func, name, "Tensor", f->first);
        return;
    }
    const struct {
        const char *name;
        double value;
    } parts[] = {{"min", f->min},
                 {"max", f->max},
                 {"mean", f->mean},
                 {"norm", f->norm},
                 {"nan", (double)f->n_nan}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char full[EXPRS_NAME_BYTES + 8];
        (void)snprintf(full, sizeof(full), "%s.%s", name, parts[i].name);
        variables_add_number(func, full, "Tensor", parts[i].value);
    }
}

static void add_int(uint64_t func, const char *name, PyObject *value)
{
    struct cpython *py = &python.api;
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
    const char *bytes = python.api.PyUnicode_AsUTF8AndSize(value, &n);
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
    const char *name = object_type_text(value);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strncmp(name, kinds[i], strlen(kinds[i])) == 0)
            return true;
    return false;
}

static void add_value(uint64_t func, const char *name, PyObject *value)
{
    struct cpython *py = &python.api;
    const char *class = object_class_text(value);
    if (object_is(value, py->PyFloat_Type)) {
        variables_add_number(func, name, "float", py->PyFloat_AsDouble(value));
    } else if (value == py->_Py_TrueStruct || value == py->_Py_FalseStruct) {
        double number = value == py->_Py_TrueStruct;
        variables_add(func, name, "bool", &number, number != 0 ? "True" : "False");
    } else if (object_is(value, py->PyLong_Type)) {
        add_int(func, name, value);
    } else if (object_is(value, py->PyUnicode_Type)) {
        add_text(func, name, value);
    } else if (object_is(value, python.tensor_class)) {
        struct tensor_figures f;
        int rc = tensor_inspect(value, &f);
        add_tensor(func, name, value, rc, &f);
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

/* A tensor's numbers are read once: whether it is one, and which, comes from the same look. */
static void add_loss(uint64_t func, const char *name, PyObject *value)
{
    struct tensor_figures f = {.n = 0};
    int rc = tensor_is(value) ? tensor_inspect(value, &f) : -EINVAL;
    /* `loss` is the name of functions, too, and of one number for each example */
    bool one = tensor_is(value) ? rc < 0 || f.n == 1 : is_numpy_number(value) || loss_is_one(value);
    if (!one && loss_add(KNOWN_LOSS, name))
        return;
    if (tensor_is(value))
        add_tensor(func, name, value, rc, &f);
    else
        add_value(func, name, value);
}

/* Gives whether it is there. */
static bool add_expression(const struct wanted *w)
{
    uint64_t func;
    const char *why;
    if (w->known > KNOWN_LOSS && loss_add(w->known, w->name))
        return true; /* an optimizer knows its rate better than a variable */
    PyObject *value = exprs_find(&w->e, &func, &why);
    bool told = !value && w->known == KNOWN_LOSS && loss_add(w->known, w->name);
    if (value && w->known == KNOWN_LOSS)
        add_loss(func, w->name, value);
    else if (value)
        add_value(func, w->name, value);
    else if (!told && why)
        variables_add(func, w->name, NULL, NULL, why);
    python.api.Py_DecRef(value);
    return told || value || why;
}

/* A name that was never there is a slip of the pen more often than not. */
static void tell_missing(const struct wanted *w)
{
    char function[EXPRS_NAME_BYTES], text[400];
    (void)snprintf(function, sizeof(function), "%.*s", (int)w->e.func_n, w->e.func);
    (void)snprintf(text, sizeof(text), "not there at the end of %u steps", MISSED_STEPS);
    variables_add(object_intern(function), w->name, NULL, NULL, text);
    (void)snprintf(
        text, sizeof(text),
        "torch.variables: '%s%s%s' was not there at the end of %u steps: no such variable%s",
        w->name, *function ? "@" : "", function, MISSED_STEPS,
        *function ? " in that function, or it does not run while a step ends"
                  : " in a function that runs while a step ends");
    torch_state.host->log(torch_state.host, PROBING_WARN, text);
}

void variables_forget(void)
{
    list.forget_later = list.users != 0;
    if (list.forget_later)
        return;
    exprs_forget();
    for (uint32_t i = 0; i < list.n; i++)
        python.api.Py_DecRef(list.all[i].e.first);
    free(list.all);
    list.all = NULL;
    list.n = 0;
    list.exprs[0] = '\0';
}

static void add_wanted(const struct expression *e)
{
    struct wanted *w = &list.all[list.n];
    *w = (struct wanted){.e = *e, .known = loss_known(e)};
    w->e.number = list.n;
    w->e.first = python.api.PyUnicode_FromStringAndSize(e->name, (Py_ssize_t)e->first_n);
    python.api.PyErr_Clear();
    (void)snprintf(w->name, sizeof(w->name), "%.*s", (int)e->name_n, e->name);
    list.n += w->e.first != NULL;
}

/* The list is taken apart once, not at each step. */
static void look_anew(const char *exprs)
{
    if (list.users || (list.life == torch_state.life && strcmp(list.exprs, exprs) == 0))
        return;
    variables_forget();
    list.life = torch_state.life;
    list.steps = 0;
    memcpy(list.exprs, exprs, strlen(exprs) + 1);
    uint32_t most = 1;
    for (const char *p = list.exprs; *p; p++)
        most += *p == ',';
    list.all = calloc(most, sizeof(*list.all));
    for (const char *p = list.exprs; *p && list.all;) {
        struct expression e;
        size_t n = exprs_length(p, ",");
        if (exprs_parse(p, n, &e))
            add_wanted(&e);
        p += n + (p[n] == ',');
    }
    if (!list.all) /* no memory: the next step tries again */
        list.exprs[0] = '\0';
}

void variables_settings(struct settings *set)
{
    if (set->rate <= 0 && !set->every && !set->exprs_chosen)
        set->exprs[0] = '\0'; /* off is off */
    variables.known = loss_wanted(set->exprs);
}

void variables_ends(const struct thread *t, uint64_t end_ns)
{
    PyObject *guard;
    (void)t;
    (void)end_ns;
    if (!steps.set.exprs[0] || !torch_state.host->wanted(variables.table) || !exprs_usable() ||
        !tensor_quiet(&guard))
        return;
    look_anew(steps.set.exprs);
    list.users++;
    list.steps += list.steps <= MISSED_STEPS;
    for (uint32_t i = 0; i < list.n; i++) {
        struct wanted *w = &list.all[i];
        w->was_there = add_expression(w) || w->was_there;
        if (list.steps == MISSED_STEPS && !w->was_there && steps.set.exprs_chosen)
            tell_missing(w);
    }
    if (--list.users == 0 && list.forget_later)
        variables_forget();
    tensor_loud(guard);
}
