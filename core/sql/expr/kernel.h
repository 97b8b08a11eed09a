/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/kernel.h - how a function over vectors is written: loops with and without a
 * selection.
 *
 * A kernel computes st->dst for the named rows; rows with NULL arguments are not among them.
 * Private to func*.c and cast.c.
 */
#ifndef CORE_SQL_EXPR_KERNEL_H
#define CORE_SQL_EXPR_KERNEL_H

#include "core/sql/expr/expr.h"
#include "core/sql/value/timestamp_parts.h"

#define KERNEL(name)                                                                             \
    static int name(struct run *r __attribute__((unused)), struct step *st, const uint16_t *sel, \
                    uint32_t n)

/* For each row i do `...`: the loop without a selection is written out so that it stays tight. */
#define ROWS(...)                              \
    do {                                       \
        if (sel) {                             \
            for (uint32_t k = 0; k < n; k++) { \
                uint32_t i = sel[k];           \
                __VA_ARGS__                    \
            }                                  \
        } else {                               \
            for (uint32_t i = 0; i < n; i++) { \
                __VA_ARGS__                    \
            }                                  \
        }                                      \
    } while (0)

extern const struct func sql_number_funcs[], sql_make_funcs[], sql_char_funcs[],
    sql_interval_funcs[], sql_zone_funcs[], sql_collect_funcs[];
extern const struct func sql_text_funcs[], sql_time_funcs[], sql_operator_funcs[], sql_cast_funcs[],
    sql_json_funcs[], sql_json_build_funcs[], sql_regexp_funcs[];

int sql_compare_text(struct text a, struct text b);

/* A whole number is written without a fraction, and what is none as PostgreSQL writes it. */
size_t sql_write_double(double v, char out[64]);
bool sql_is_start(char c); /* of a character of UTF-8 */
int64_t sql_characters(struct text t);
struct text sql_part(struct text t, int64_t first, int64_t end); /* by characters, from 0 */
/* bytes.c: -EINVAL without a text of err_set() where it is not written as bytes are. */
int sql_bytes_of_text(struct run *r, struct text t, struct text *ret);
int sql_text_of_bytes(struct run *r, struct text t, struct text *ret);
int sql_put_interval(struct run *r, struct vec *dst, uint32_t row, struct interval v);
struct json;
/* quoted: JSON again; else the text that it says, of JSON's null data NULL */
int sql_json_text(struct query *q, const struct json *j, bool quoted, struct text *ret);

#endif
