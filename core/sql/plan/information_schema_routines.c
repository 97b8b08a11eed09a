/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/information_schema_routines.c - information_schema.routines and .parameters: the
 * functions of the language.
 *
 * The query's thread only.  A row for each way to call one by the types of its arguments; its
 * specific name is the function's with a number behind it, as of PostgreSQL.
 */
#include <errno.h>
#include <string.h>

#include "core/sql/plan/information_schema.h"

#define NAMES_MAX 128 /* of aggregates, of window functions */

/* PostgreSQL's columns in its order, then ours, which are DataFusion's. */
const char made_routines_spec[] =
    "specific_catalog= specific_schema= specific_name= routine_catalog= "
    "routine_schema= routine_name= routine_type= module_catalog module_schema "
    "module_name udt_catalog udt_schema udt_name data_type= character_maximum_length:i "
    "character_octet_length:i character_set_catalog character_set_schema "
    "character_set_name collation_catalog collation_schema collation_name "
    "numeric_precision:i numeric_precision_radix:i numeric_scale:i datetime_precision:i "
    "interval_type interval_precision:i type_udt_catalog type_udt_schema type_udt_name "
    "scope_catalog scope_schema scope_name maximum_cardinality:i dtd_identifier "
    "routine_body routine_definition external_name external_language parameter_style "
    "is_deterministic sql_data_access is_null_call sql_path schema_level_routine "
    "max_dynamic_result_sets:i is_user_defined_cast is_implicitly_invocable "
    "security_type to_sql_specific_catalog to_sql_specific_schema to_sql_specific_name "
    "as_locator created:s last_altered:s new_savepoint_level is_udt_dependent "
    "result_cast_from_data_type result_cast_as_locator result_cast_char_max_length:i "
    "result_cast_char_octet_length:i result_cast_char_set_catalog "
    "result_cast_char_set_schema result_cast_char_set_name result_cast_collation_catalog "
    "result_cast_collation_schema result_cast_collation_name "
    "result_cast_numeric_precision:i result_cast_numeric_precision_radix:i "
    "result_cast_numeric_scale:i result_cast_datetime_precision:i "
    "result_cast_interval_type result_cast_interval_precision:i "
    "result_cast_type_udt_catalog result_cast_type_udt_schema result_cast_type_udt_name "
    "result_cast_scope_catalog result_cast_scope_schema result_cast_scope_name "
    "result_cast_maximum_cardinality:i result_cast_dtd_identifier function_type=";
const char made_parameters_spec[] =
    "specific_catalog= specific_schema= specific_name= ordinal_position=i "
    "parameter_mode= is_result as_locator parameter_name data_type= "
    "character_maximum_length:i character_octet_length:i character_set_catalog "
    "character_set_schema character_set_name collation_catalog collation_schema "
    "collation_name numeric_precision:i numeric_precision_radix:i numeric_scale:i "
    "datetime_precision:i interval_type interval_precision:i udt_catalog udt_schema "
    "udt_name scope_catalog scope_schema scope_name maximum_cardinality:i dtd_identifier "
    "parameter_default is_variadic=";

static const char *letter_name(char letter)
{
    enum sql_type type = sql_letter_type(letter, SQL_NULL);
    return type == SQL_NULL ? "any" : sql_type_name(type);
}

static int put_routine(struct maker *m, const char *name, uint32_t number, const char *type,
                       const char *kind)
{
    const char *specific = sql_getf(m->q, "%s_%u", name, number);
    return specific ? made_row(m,
                               (const char *const[]){"probing", "information_schema", specific,
                                                     "probing", "information_schema", name,
                                                     "FUNCTION", type, kind},
                               NULL)
                    : -ENOMEM;
}

static int put_names(struct maker *m, uint32_t (*list)(const char **, uint32_t), uint32_t number,
                     const char *kind)
{
    const char *names[NAMES_MAX];
    uint32_t n = list(names, NAMES_MAX);
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) /* their types are those of the arguments */
        rc = put_routine(m, names[i], number + i, "any", kind);
    return rc;
}

int made_routines(struct query *q, const char *alias, struct op **ret)
{
    struct maker m;
    uint32_t i = 0;
    int rc = made_begin(&m, q, made_routines_spec);
    for (const struct func *f; rc == 0 && (f = sql_func_at(i)) != NULL; i++)
        if (sql_func_is_called(f))
            rc = put_routine(&m, f->name, i, letter_name(f->result), "SCALAR");
    if (rc == 0)
        rc = put_names(&m, sql_agg_names, i, "AGGREGATE");
    if (rc == 0)
        rc = put_names(&m, sql_window_names, i + NAMES_MAX, "WINDOW");
    return rc < 0 ? rc : made_finish(&m, alias, ret);
}

static int put_parameters(struct maker *m, const struct func *f, uint32_t number)
{
    const char *specific = sql_getf(m->q, "%s_%u", f->name, number);
    int rc = specific ? 0 : -ENOMEM;
    for (uint32_t a = 0; rc == 0 && f->args[a] && f->args[a] != '*'; a++)
        rc = made_row(m,
                      (const char *const[]){"probing", "information_schema", specific, NULL, "IN",
                                            letter_name(f->args[a]),
                                            f->args[a + 1] == '*' ? "YES" : "NO"},
                      (const int64_t[]){[3] = a + 1});
    return rc;
}

int made_parameters(struct query *q, const char *alias, struct op **ret)
{
    struct maker m;
    const struct func *f;
    int rc = made_begin(&m, q, made_parameters_spec);
    for (uint32_t i = 0; rc == 0 && (f = sql_func_at(i)) != NULL; i++)
        if (sql_func_is_called(f))
            rc = put_parameters(&m, f, i);
    return rc < 0 ? rc : made_finish(&m, alias, ret);
}
