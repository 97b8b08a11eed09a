/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind/func_synonyms.c - functions that people know from other engines, and what does it
 * here.
 *
 * Words for an error, no aliases: what is the same under another name stands in the tables of
 * functions.  Any thread.
 */
#include <string.h>

#include "core/sql/bind/bind.h"

const char *sql_instead_of(const char *function)
{
    static const struct {
        const char *name, *instead;
    } names[] = {
        {"array", "array_agg(x) makes an array of rows, json_agg(x) a JSON array"},
        {"array_append", "array_agg(x) makes an array of rows, json_agg(x) a JSON array"},
        {"cnt", "count(*), count(x)"},
        {"clock_timestamp", "now() is the time at which the query began"},
        {"current_user", "every query runs with the rights of its process"},
        {"current_role", "every query runs with the rights of its process"},
        {"session_user", "every query runs with the rights of its process"},
        {"current_time", "to_char(now(), 'HH24:MI:SS')"},
        {"localtime", "to_char(now(), 'HH24:MI:SS')"},
        {"charindex", "position('a' in text)"},
        {"getdate", "now()"},
        {"sysdate", "now()"},
        {"isnull", "coalesce(a, b), a is null"},
        {"current_schema", "tables are named schema.table; `show schemas` lists the schemas"},
        {"current_setting", "`show NAME` and `show all` say what is set"},
        {"date_add", "ts + interval '1 day'"},
        {"date_sub", "ts - interval '1 day', date_diff('day', a, b)"},
        {"dateadd", "ts + interval '1 day'"},
        {"dayname", "to_char(ts, 'Day')"},
        {"format", "concat(a, ' of ', b), round(x, 2)"},
        {"generate_series", "it gives rows: from generate_series(1, 9) n"},
        {"json_array_elements", "it gives rows: from t, json_array_elements(t.text) x"},
        {"json_array_elements_text", "it gives rows: from t, json_array_elements_text(t.text) x"},
        {"json_each", "it gives rows: from t, json_each(t.text)"},
        {"json_group_array", "json_agg(x)"},
        {"json_object", "json_build_object('key', value)"},
        {"json_object_keys", "it gives rows: from t, json_object_keys(t.text) k"},
        {"last_day", "(date_trunc('month', ts) + interval '1 month')::date - 1"},
        {"list", "array_agg(x) makes an array of rows, json_agg(x) a JSON array"},
        {"monthname", "to_char(ts, 'Month')"},
        {"pg_backend_pid", "select pid from process.info"},
        {"pg_sleep", "nothing waits here; `probing watch` asks again and again"},
        {"printf", "concat(a, ' of ', b), round(x, 2)"},
        {"rand",
         "random functions are not supported; `where step % 100 = 0` takes one row of a hundred"},
        {"random",
         "random functions are not supported; `where step % 100 = 0` takes one row of a hundred"},
        {"range", "it gives rows: from range(9) n"},
        {"regexp_split_to_array",
         "from t, regexp_split_to_table(t.text, '[, ]+') x, split_part(text, ',', 1)"},
        {"regexp_split_to_table",
         "it gives rows: from t, regexp_split_to_table(t.text, '[, ]+') x"},
        {"string_split", "from t, string_to_table(t.text, ',') x, split_part(text, ',', 1)"},
        {"string_to_array", "x = any (string_to_array(text, ',')), from t, string_to_table(t.text, "
                            "',') x, split_part(text, ',', 1)"},
        {"string_to_table", "it gives rows: from t, string_to_table(t.text, ',') x"},
        {"make_interval", "interval '3 days', n * interval '1 second'"},
        {"strptime", "a text is cast: '2024-02-29 12:30:00'::timestamp"},
        {"to_char", "numbers are rounded, round(x, 2), and cast, x::text"},
        {"to_date", "a text is cast: '2024-02-29'::date"},
        {"to_timestamp", "a text is cast: '2024-02-29 12:30:00'::timestamp"},
        {"scale", "numbers with a point are doubles, which keep no count of their digits"},
        {"min_scale", "numbers with a point are doubles, which keep no count of their digits"},
        {"trim_scale", "numbers with a point are doubles; round(x, 2) has few digits"},
        {"row_to_json", "json_build_object('a', a, 'b', b)"},
        {"to_number", "text::double"},
        {"unnest", "arrays are not supported: json_each(text) and generate_series(1, 9) give rows"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i].name, function) == 0)
            return names[i].instead;
    return NULL;
}
