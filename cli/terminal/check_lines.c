/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/check_lines.c - a report of lines: in columns, or as JSON, a list of
 * {"check", "works", "text", "to_mend"}.
 *
 * One thread.
 */
#include "cli/terminal/check_lines.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sdk/lib/json.h"

#define LINE_BYTES 8192

static void add_text(struct buf *b, const char *key, const char *text)
{
    (void)buf_addf(b, "\"%s\": ", key);
    (void)json_add_text(b, text, strlen(text));
}

void lines_add(struct lines *l, const char *what, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (l->json == NULL) {
        printf("%-9s %s\n", what, text);
        return;
    }
    lines_end(l);
    if (what[0] != '\0')
        (void)snprintf(l->what, sizeof(l->what), "%s", what);
    (void)buf_adds(l->json, l->json->size > 0 ? ", {" : "{");
    add_text(l->json, "check", l->what);
    (void)buf_addf(l->json, ", \"works\": %s, ", strncmp(text, "NO", 2) == 0 ? "false" : "true");
    add_text(l->json, "text", text);
    l->open = true;
}

void lines_mend(struct lines *l, const char *text)
{
    if (l->json == NULL) {
        printf("%-9s to mend it: %s\n", "", text);
    } else if (l->open) {
        (void)buf_adds(l->json, ", ");
        add_text(l->json, "to_mend", text);
    }
}

void lines_end(struct lines *l)
{
    if (l->open)
        (void)buf_adds(l->json, "}");
    l->open = false;
}
