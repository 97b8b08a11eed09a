-- Checked with PostgreSQL 15.18
-- What the tables about tables are called, and their columns.  Ours have some more, behind these.

select string_agg(column_name, ' ' order by ordinal_position) from information_schema.columns where table_schema = 'information_schema' and table_name = 'tables' and column_name not in ('unit', 'doc', 'function_type', 'is_variadic')
----
table_catalog table_schema table_name table_type self_referencing_column_name reference_generation user_defined_type_catalog user_defined_type_schema user_defined_type_name is_insertable_into is_typed commit_action

select string_agg(column_name, ' ' order by ordinal_position) from information_schema.columns where table_schema = 'information_schema' and table_name = 'columns' and column_name not in ('unit', 'doc', 'function_type', 'is_variadic')
----
table_catalog table_schema table_name column_name ordinal_position column_default is_nullable data_type character_maximum_length character_octet_length numeric_precision numeric_precision_radix numeric_scale datetime_precision interval_type interval_precision character_set_catalog character_set_schema character_set_name collation_catalog collation_schema collation_name domain_catalog domain_schema domain_name udt_catalog udt_schema udt_name scope_catalog scope_schema scope_name maximum_cardinality dtd_identifier is_self_referencing is_identity identity_generation identity_start identity_increment identity_maximum identity_minimum identity_cycle is_generated generation_expression is_updatable

select string_agg(column_name, ' ' order by ordinal_position) from information_schema.columns where table_schema = 'information_schema' and table_name = 'schemata' and column_name not in ('unit', 'doc', 'function_type', 'is_variadic')
----
catalog_name schema_name schema_owner default_character_set_catalog default_character_set_schema default_character_set_name sql_path

select string_agg(column_name, ' ' order by ordinal_position) from information_schema.columns where table_schema = 'information_schema' and table_name = 'views' and column_name not in ('unit', 'doc', 'function_type', 'is_variadic')
----
table_catalog table_schema table_name view_definition check_option is_updatable is_insertable_into is_trigger_updatable is_trigger_deletable is_trigger_insertable_into

select string_agg(column_name, ' ' order by ordinal_position) from information_schema.columns where table_schema = 'information_schema' and table_name = 'routines' and column_name not in ('unit', 'doc', 'function_type', 'is_variadic')
----
specific_catalog specific_schema specific_name routine_catalog routine_schema routine_name routine_type module_catalog module_schema module_name udt_catalog udt_schema udt_name data_type character_maximum_length character_octet_length character_set_catalog character_set_schema character_set_name collation_catalog collation_schema collation_name numeric_precision numeric_precision_radix numeric_scale datetime_precision interval_type interval_precision type_udt_catalog type_udt_schema type_udt_name scope_catalog scope_schema scope_name maximum_cardinality dtd_identifier routine_body routine_definition external_name external_language parameter_style is_deterministic sql_data_access is_null_call sql_path schema_level_routine max_dynamic_result_sets is_user_defined_cast is_implicitly_invocable security_type to_sql_specific_catalog to_sql_specific_schema to_sql_specific_name as_locator created last_altered new_savepoint_level is_udt_dependent result_cast_from_data_type result_cast_as_locator result_cast_char_max_length result_cast_char_octet_length result_cast_char_set_catalog result_cast_char_set_schema result_cast_char_set_name result_cast_collation_catalog result_cast_collation_schema result_cast_collation_name result_cast_numeric_precision result_cast_numeric_precision_radix result_cast_numeric_scale result_cast_datetime_precision result_cast_interval_type result_cast_interval_precision result_cast_type_udt_catalog result_cast_type_udt_schema result_cast_type_udt_name result_cast_scope_catalog result_cast_scope_schema result_cast_scope_name result_cast_maximum_cardinality result_cast_dtd_identifier

select string_agg(column_name, ' ' order by ordinal_position) from information_schema.columns where table_schema = 'information_schema' and table_name = 'parameters' and column_name not in ('unit', 'doc', 'function_type', 'is_variadic')
----
specific_catalog specific_schema specific_name ordinal_position parameter_mode is_result as_locator parameter_name data_type character_maximum_length character_octet_length character_set_catalog character_set_schema character_set_name collation_catalog collation_schema collation_name numeric_precision numeric_precision_radix numeric_scale datetime_precision interval_type interval_precision udt_catalog udt_schema udt_name scope_catalog scope_schema scope_name maximum_cardinality dtd_identifier parameter_default

select max(ordinal_position), count(*), min(is_updatable), max(is_nullable) from information_schema.columns where table_schema = 'information_schema' and table_name = 'views'
----
10,10,NO,YES

select is_insertable_into, is_typed, commit_action, reference_generation from information_schema.tables where table_schema = 'information_schema' and table_name = 'columns'
----
NO,NO,,

select count(*) from information_schema.views where table_name = 'columns' and check_option is null
----
0

select distinct parameter_mode, ordinal_position from information_schema.parameters where specific_name like 'substr\_%' and ordinal_position = 2
----
IN,2

select distinct r.routine_name, r.routine_type from information_schema.routines r join information_schema.parameters p using (specific_name) where r.routine_name in ('lower', 'date_trunc', 'no_such') order by 1
----
date_trunc,FUNCTION
lower,FUNCTION
