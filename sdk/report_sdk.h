/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/report_sdk.h - what every report (probing/report.h) would otherwise write for itself:
 * printing and reasons by printf, cells as numbers and texts, objects of JSON, and the entry.
 *
 * Functions are inline and keep nothing; one thread, as in probing/report.h.
 */
#ifndef PROBING_REPORT_SDK_H
#define PROBING_REPORT_SDK_H

#include <math.h>
#include <probing/report.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define REPORT_LINE_BYTES 2048 /* of one call; what is longer is cut */

/* ---- words ---- */

__attribute__((format(printf, 2, 3))) static inline void
report_printf(const struct probing_report_api *a, const char *format, ...)
{
    char line[REPORT_LINE_BYTES];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (n > 0)
        (void)a->print(a, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

/* Gives `code`, with that as its reason. */
__attribute__((format(printf, 3, 4))) static inline int
report_fail(const struct probing_report_api *a, int code, const char *format, ...)
{
    char why[REPORT_LINE_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    return a->fail(a, code, why);
}

/* ---- cells: NAN, INT64_MIN or "" where they are NULL or of another kind ---- */

static inline double cell_number(const struct probing_report_cell *c)
{
    return c->type == PROBING_I64   ? (double)c->value.i
           : c->type == PROBING_F64 ? c->value.f
                                    : (double)NAN;
}

static inline int64_t cell_int(const struct probing_report_cell *c)
{
    return c->type == PROBING_I64                              ? c->value.i
           : c->type == PROBING_F64 && fabs(c->value.f) < 9e18 ? (int64_t)c->value.f
                                                               : INT64_MIN;
}

static inline const char *cell_text(const struct probing_report_cell *c)
{
    return c->type == PROBING_STR ? c->value.s : "";
}

/* ---- JSON ---- */

struct report_json { /* an object that is being printed */
    const struct probing_report_api *api;
    bool begun; /* a comma is due */
};

static inline void json_comma(struct report_json *j)
{
    report_printf(j->api, "%s", j->begun ? "," : "");
    j->begun = true;
}

static inline void json_key(struct report_json *j, const char *key)
{
    json_comma(j);
    report_printf(j->api, "\"%s\":", key);
}

static inline void json_open(struct report_json *j, char bracket)
{
    report_printf(j->api, "%c", bracket);
    j->begun = false;
}

static inline void json_close(struct report_json *j, char bracket)
{
    report_printf(j->api, "%c", bracket);
    j->begun = true;
}

/* Open a list as a member, closed by json_close(j, ']'); and an object in a list, closed by
 * json_close(j, '}'). */
static inline void json_list(struct report_json *j, const char *key)
{
    json_key(j, key);
    json_open(j, '[');
}

static inline void json_item(struct report_json *j)
{
    json_comma(j);
    json_open(j, '{');
}

static inline void json_number(struct report_json *j, const char *key, double value)
{
    json_key(j, key);
    (void)j->api->print_json_number(j->api, value); /* null when it is none */
}

static inline void json_text(struct report_json *j, const char *key, const char *text)
{
    json_key(j, key);
    (void)j->api->print_json_text(j->api, text, strlen(text));
}

/* ---- the entry ---- */

/* In a struct probing_report_command: its options and examples, two arrays. */
#define PROBING_REPORT_LISTS(option_array, example_array)             \
    .options = (option_array), .examples = (example_array),           \
    .n_options = sizeof(option_array) / sizeof((option_array)[0]),    \
    .n_examples = sizeof(example_array) / sizeof((example_array)[0]), \
    .option_size = sizeof((option_array)[0])

/* At the end of the file: what the command looks for in the plugin called `plugin`, a string. */
#define PROBING_REPORT_ENTRY(plugin, command_array)                       \
    PROBING_EXPORT const struct probing_report probing_report_v1 = {      \
        .size = sizeof(probing_report_v1),                                \
        .abi = PROBING_REPORT_ABI,                                        \
        .name = (plugin),                                                 \
        .commands = (command_array),                                      \
        .n_commands = sizeof(command_array) / sizeof((command_array)[0]), \
        .command_size = sizeof((command_array)[0])}

#endif
