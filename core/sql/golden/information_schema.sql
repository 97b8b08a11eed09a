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

select max(ordinal_position), count(*), min(is_updatable), max(is_nullable) from information_schema.columns where table_schema = 'information_schema' and table_name = 'views'
----
10,10,NO,YES

select is_insertable_into, is_typed, commit_action, reference_generation from information_schema.tables where table_schema = 'information_schema' and table_name = 'columns'
----
NO,NO,,

select count(*) from information_schema.views where table_name = 'columns' and check_option is null
----
0

select distinct r.routine_name, r.routine_type from information_schema.routines r where r.routine_name in ('lower', 'date_trunc', 'no_such') order by 1
----
date_trunc,FUNCTION
lower,FUNCTION
