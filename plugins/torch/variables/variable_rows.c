/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/variable_rows.c - rows of python.variables.
 *
 * Threads: any that holds the GIL.
 */
#include "variables/variable_rows.h"

#include <errno.h>

#include "device/device.h"
#include "python/pyobject.h"
#include "steps/coordinates.h"
#include "steps/step.h"
#include "variables/number_text.h"

enum { COL_FUNC = N_COORDINATES, COL_NAME, COL_TYPE, COL_VALUE_F64, N_VARIABLES };

static const struct probing_column columns[N_VARIABLES] = {
    COORDINATE_COLUMNS,
    PROBING_STR_COLUMN("func", "function that the variable belongs to, or a module"),
    PROBING_STR_COLUMN(
        "name",
        "name as in torch.variables; a tensor with several numbers has .min, .max, .mean, .norm "
        "and .nan"),
    PROBING_STR_COLUMN("value_type", "class of the value; NULL: the value was not read"),
    PROBING_F64_COLUMN("value_f64", PROBING_PLAIN, "value, if it is a number"),
};

const struct probing_table_desc variables_table = PROBING_TEXT_TABLE(
    "python.variables", columns, "value",
    "variables of the program at the end of each step (torch.variables), and what "
    "torch.detect_nan finds");

struct variables variables;

static void add_row(uint64_t step, uint64_t func, const char *name, const char *type,
                    const double *number, const char *text)
{
    union probing_cell row[N_VARIABLES];
    if (step == steps.step) {
        coordinates_put(row);
    } else { /* read late: what probing.step() said then is not known any more */
        coordinates_of((int64_t)step, row);
        row[COL_GLOBAL_STEP].i = PROBING_NULL_I64;
    }
    row[COL_FUNC].u = func;
    row[COL_NAME].u = object_intern_often(name);
    row[COL_TYPE].u = object_intern_often(type);
    row[COL_VALUE_F64].u = PROBING_NULL_F64;
    if (number && *number == *number)
        row[COL_VALUE_F64].f = *number;
    (void)torch_state.host->append(variables.table, torch_state.now(), row, N_VARIABLES, text,
                                   (uint32_t)strlen(text));
}

void variables_add(uint64_t func, const char *name, const char *type, const double *number,
                   const char *text)
{
    add_row(steps.step, func, name, type, number, text);
}

static void add_number(uint64_t step, uint64_t func, const char *name, const char *type,
                       double number)
{
    char text[NUMBER_TEXT_BYTES];
    number_text(number, text);
    add_row(step, func, name, type, &number, text);
}

void variables_add_number(uint64_t func, const char *name, const char *type, double number)
{
    add_number(steps.step, func, name, type, number);
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
    return meta ? "no numbers: a meta tensor"
                : "not read: reading would wait for its device; torch.device_times=on reads one "
                  "number later";
}

uint64_t variables_ticket(PyObject *tensor)
{
    return steps.set.device_times ? device_number(tensor, steps.step) : 0;
}
