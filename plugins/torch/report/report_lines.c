/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/report_lines.c - text of the report: lines that are kept until they are
 * shown.
 *
 * One thread.
 */
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
    (void)vsnprintf(line, sizeof(line), format, args);
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
