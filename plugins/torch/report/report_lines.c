/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/report_lines.c - text of the report: lines that are kept until they are
 * shown, printing, errors, and cells as numbers.
 *
 * One thread.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define LINE_BYTES 2048

void lines_add(struct lines *l, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t n = strlen(line);
    char *more = l->size + n < LINES_MAX ? realloc(l->text, l->size + n + 1) : NULL;
    if (more == NULL)
        return;
    memcpy(more + l->size, line, n + 1);
    l->text = more;
    l->size += n;
}

const char *lines_text(const struct lines *l)
{
    return l->text != NULL ? l->text : "";
}

void report_printf(const struct probing_report_api *a, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0)
        (void)a->print(a, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

int report_fail(const struct probing_report_api *a, int code, const char *format, ...)
{
    char why[LINE_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return a->fail(a, code, why);
}

double cell_number(const struct probing_report_cell *c)
{
    return c->type == PROBING_I64   ? (double)c->value.i
           : c->type == PROBING_F64 ? c->value.f
                                    : (double)NAN;
}

int64_t cell_int(const struct probing_report_cell *c)
{
    return c->type == PROBING_I64   ? c->value.i
           : c->type == PROBING_F64 ? (int64_t)c->value.f
                                    : INT64_MIN;
}

const char *cell_text(const struct probing_report_cell *c)
{
    return c->type == PROBING_STR ? c->value.s : "";
}
