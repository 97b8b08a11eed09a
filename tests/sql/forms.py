# SPDX-License-Identifier: Apache-2.0
"""What generated statements are made of: values, expressions, aggregates, windows.

A line begins with a type and has forms with `;;` between them; in a form {bigint} stands for an
expression of that type, other words for one of WORDS.
"""


def table(text):
    """{type: [form ...]}; a line that begins with blanks goes on with the one before."""
    found, kind = {}, None
    for line in text.strip().split("\n"):
        if not line.startswith(" "):
            kind, line = line.split(": ", 1)
        found.setdefault(kind, [])
        found[kind] += [form.strip() for form in line.split(";;") if form.strip()]
    return found

VALUES = table(r"""
bigint: 0 ;; 1 ;; -1 ;; 2 ;; 3 ;; 7 ;; -7 ;; 10 ;; 100 ;; -13 ;; 2147483648 ;;
    9223372036854775807 ;; (-9223372036854775808)
double: 0 ;; '-0' ;; 1 ;; -1 ;; 0.5 ;; 1.5 ;; 2.5 ;; -2.5 ;; 0.1 ;; 1e10 ;; -3.75 ;; 1e300 ;;
    'NaN' ;; 'infinity' ;; '-infinity' ;; 123456.789 ;; 1e-7 ;; 1e16
text: '' ;; 'a' ;; 'A' ;; 'b' ;; 'abc' ;; 'aBc' ;; 'a,b,,c' ;; 'äöü' ;; '日本語' ;; ' x ' ;;
    'a%b_c' ;; 'a\b' ;; '10' ;; 'foo bar' ;; 'zz' ;; '😀x' ;; 'a''b'
boolean: true ;; false
timestamp: '1970-01-01' ;; '1969-12-31 23:59:59.999999' ;; '2024-02-29 12:34:56.789' ;;
    '2024-03-10 02:30:00' ;; '1899-12-31 13:00:00.25' ;; '2023-12-31 23:59:59' ;;
    '2024-12-30 00:00:00' ;; '2000-01-01 06:07:08.000009' ;; '2024-03-31'
date: '1970-01-01' ;; '2024-02-29' ;; '2023-12-31' ;; '1900-03-01' ;; '2021-01-03' ;; '1969-07-20'
interval: '0 sec' ;; '1 mon' ;; '-1 mon' ;; '1 year' ;; '03:04:05.678' ;; '-00:00:01' ;;
    '1 day' ;; '29 days' ;; '14 mons' ;; '5 min' ;; '49 hours' ;; '-1 day 36:00:00'
""")

# Forms that never fail.
SAFE = table(r"""
bigint: ({bigint} % 999 * 0.5)::bigint ;; length({text}) ;; octet_length({text}) ;;
    strpos({text}, {text}) ;; abs({bigint}) ;; position({text} in {text}) ;; ascii({text}) ;;
    {bigint} & {bigint} ;; {bigint} | {bigint} ;; {bigint} # {bigint} ;; sign({bigint})::bigint ;;
    {bigint} % 5::bigint ;; {bigint} / 3::bigint ;; mod({bigint}, -4::bigint) ;;
    coalesce({bigint}, {bigint}) ;; nullif({bigint}, {bigint}) ;; greatest({bigint}, {bigint}) ;;
    least({bigint}, {bigint}, {bigint}) ;; -({bigint}) ;;
    case when {boolean} then {bigint} else {bigint} end ;; ({date} - {date})::bigint ;;
    case {bigint} when {bigint} then {bigint} end ;; {boolean}::int::bigint ;;
    regexp_count({text}, '[a-c]') ;; ({bigint}) ;; char_length({text}) ;; ~{bigint} ;;
    regexp_count({text}, {wide})
double: round({bigint} * 0.25)::float8 ;; round({finite}::numeric, 1)::float8 ;; abs({double}) ;;
    floor({double}) ;; ceil({double}) ;; trunc({double}) ;; round({double}) ;; sign({double}) ;;
    -{double} ;; {double} + {double} ;; {double} - {double} ;; {bigint}::float8 ;;
    coalesce({double}, {double}) ;; nullif({double}, {double}) ;; greatest({double}, {double}) ;;
    least({double}, {double}) ;; cbrt({double}) ;; atan({double}) ;;
    case when {boolean} then {double} end ;; degrees({double}) ;; {bigint} * 0.5::float8 ;;
    extract(epoch from {timestamp})::float8 ;; extract(year from {timestamp})::float8 ;;
    extract(month from {date})::float8 ;; extract(dow from {timestamp})::float8 ;;
    extract(isodow from {date})::float8 ;; extract(week from {timestamp})::float8 ;;
    extract(isoyear from {date})::float8 ;; extract(doy from {date})::float8 ;;
    extract(quarter from {timestamp})::float8 ;; extract(second from {timestamp})::float8 ;;
    extract(milliseconds from {timestamp})::float8 ;; extract(epoch from {interval})::float8 ;;
    date_part('minute', {timestamp}) ;; date_part('day', {timestamp}) ;;
    date_part('month', {interval}) ;; date_part('year', {interval}) ;; atan2({double}, {double}) ;;
    extract(epoch from {timestamp} at time zone {zone})::float8 ;; {finite}::real::text::float8 ;;
    extract(hour from {timestamp} at time zone {zone} at time zone 'UTC')::float8 ;;
    div({bigint} / 3.0::numeric, 7)::float8 ;; extract(julian from {date})::float8 ;;
    date_part('mins', {timestamp}) ;; @ {double} ;; ||/ {double}
text: upper({text}) ;; lower({text}) ;; left({text}, {n}) ;; right({text}, {n}) ;;
    substr({text}, {n}) ;; substring({text} from {n} for {p}) ;; lpad({text}, {n}) ;;
    rpad({text}, {n}, {text}) ;; lpad({text}, {n}, 'xy') ;; trim({text}) ;; ltrim({text}, 'a') ;;
    rtrim({text}, {text}) ;; btrim({text}, 'ax') ;; replace({text}, {text}, {text}) ;;
    {text} || {text} ;; concat({text}, {text}, {bigint}) ;; concat_ws('-', {text}, {text}) ;;
    split_part({text}, ',', {m}) ;; repeat({text}, {n}) ;; reverse({text}) ;;
    coalesce({text}, {text}) ;; nullif({text}, {text}) ;; greatest({text}, {text}) ;;
    least({text}, {text}) ;; case when {boolean} then {text} else {text} end ;; {bigint}::text ;;
    {double}::text ;; {boolean}::text ;; {date}::text ;; regexp_replace({text}, '[a-b]', 'X') ;;
    regexp_replace({text}, '(.)(.)', '\2\1', 'g') ;; to_char({timestamp}, {pattern}) ;;
    to_hex({bigint}) ;; {timestamp}::text ;; {interval}::text ;; substring({text}, {n}) ;;
    trim(both 'a' from {text}) ;; trim(leading ' ' from {text}) ;; trim(both 'äö ' from {text}) ;;
    {text}::varchar(3) ;; substring({text} from '[a-c]+') ;; substring({text} for {p}) ;;
    regexp_substr({text}, 'b.') ;; ({text}) ;; concat({boolean}, {text}) ;;
    regexp_substr({text}, {wide}) ;;
    regexp_replace({text}, '[a-cä]', '<\&>') ;; {text}::char(3) || '|' ;;
    trim({text} from {text}) ;; trim(both from {text}, 'ab ') ;;
    to_char({timestamp} at time zone 'UTC' at time zone {zone}, {pattern})
boolean: {bigint} < {bigint} ;; {bigint} = {bigint} ;; {bigint} <> {bigint} ;;
    {double} >= {double} ;; {double} = {double} ;; {text} < {text} ;;
    {text} collate "C" >= {text} ;; {text} = {text} ;; {timestamp} < {timestamp} ;;
    {interval} < {interval} ;; {interval} = {interval} ;; {date} > {date} ;;
    {timestamp} >= {date} ;; not {boolean} ;; ({boolean} and {boolean}) ;;
    ({boolean} or {boolean}) ;; {bigint} is null ;; {text} is not null ;; {boolean} is true ;;
    {boolean} is not false ;; {bigint} in ({number}, {number}, null) ;;
    {text} not in ({text}, {text}) ;; {bigint} between {bigint} and {bigint} ;;
    {text} not between {text} and {text} ;; {bigint} between symmetric {bigint} and {bigint} ;;
    {text} like {like} ;; {text} ilike {like} ;; {text} not like {like} ;; {text} ~ {regexp} ;;
    {text} ~* {regexp} ;; {text} !~ {regexp} ;; {double} is distinct from {double} ;;
    {bigint} is not distinct from {bigint} ;; ({number}, {string}) < ({number}, {string}) ;;
    ({number}, {string}) = ({number}, {string}) ;; coalesce({boolean}, {boolean}) ;;
    starts_with({text}, {text}) ;; {bigint} < {double} ;; {boolean} = {boolean} ;;
    {boolean} > {boolean} ;; {text} like {text} || '%' ;;
    ({number}, {number}) in (({number}, {number}), (1, null)) ;;
    case when {boolean} then {boolean} end ;; {boolean} is unknown ;; {text} notnull ;;
    {bigint} isnull ;; {bigint} = any (array[{number}, {number}, null]) ;;
    {bigint} < any (array[{number}, {number}]) ;; {text} <> all ({texts}) ;;
    {bigint} >= all ({numbers}::bigint[]) ;; {text} = any ({texts}) ;;
    {text} similar to {similar} ;; {text} like any (array[{like0}, {like0}]) ;;
    {text} not ilike all (array[{like0}, {text} || '%']) ;; ({number}, {string}) is null ;;
    ({string}, {number}) is not null ;; {text} = any (string_to_array({string}, ',')) ;;
    {text} <> all (string_to_array({string}, 'b')) ;; {text} ~ {wide} ;; {text} !~* {wide} ;;
    {text} ^@ {text} ;; {text} ~~ {like0} ;; {text} !~~* {like0} ;; {text} similar to '\w%'
timestamp: date_trunc({unit}, {timestamp}) ;; {timestamp} + {interval} ;;
    {timestamp} - {interval} ;; coalesce({timestamp}, {timestamp}) ;;
    greatest({timestamp}, {timestamp}) ;; {date}::timestamp ;; {date} + {interval} ;;
    date_bin('15 min', {timestamp}, timestamp '2001-01-01') ;;
    date_bin('7 days', {timestamp}, timestamp '1999-12-31 01:00') ;;
    case when {boolean} then {timestamp} end ;; least({timestamp}, {timestamp}) ;;
    {timestamp}::timestamp(0) ;; ({timestamp} at time zone {zone})::timestamp ;;
    ({timestamp} at time zone {zone} at time zone {zone})::timestamp ;;
    date_trunc({unit}, {timestamp} at time zone {zone}, {zone})::timestamp ;;
    date_trunc('mons', {timestamp} at time zone 'UTC' at time zone {zone})
date: {timestamp}::date ;; {date} + {m} ;; ({timestamp} at time zone {zone})::date ;;
    {date} - {m} ;; coalesce({date}, {date}) ;; greatest({date}, {date})
interval: -{interval} ;; date_trunc('hour', {interval}) ;; date_trunc('day', {interval}) ;;
    coalesce({interval}, {interval}) ;; greatest({interval}, {interval})
""")

# Forms that may fail, or leave the range.
BOLD = table(r"""
bigint: {bigint} + {bigint} ;; {bigint} - {bigint} ;; {bigint} * {bigint} ;;
    {bigint} / {bigint} ;; {bigint} % {bigint} ;; {double}::bigint ;; {literal}::bigint ;;
    abs({bigint}) ;; -{bigint} ;; mod({bigint}, {bigint}) ;; {bigint} << {p} ;; {bigint} >> {p} ;;
    {bigint}::int::bigint ;; {bigint}::smallint::bigint ;; {literal}::int::bigint
double: {double} * {double} ;; {double} / {double} ;; sqrt({double}) ;; ln({double}) ;;
    log({double}) ;; exp({double}) ;; {double} ^ {double} ;; power({double}, {double}) ;;
    {literal}::float8 ;; asin({double}) ;; acos({double}) ;; sin({double}) ;; cos({double}) ;;
    tan({double})
text: chr((48 + {bigint} % 70::bigint)::int) ;; substring({text} from {n} for {n}) ;;
    split_part({text}, {text}, {n})
boolean: {literal}::boolean ;; {text} like {text} ;; {text} like {text} || '\' ;;
    ({bigint} % 3::bigint)::int::boolean
timestamp: {literal}::timestamp
date: {literal}::date
interval: {literal}::interval
""")

WORDS = table(r"""
n: 0 ;; 1 ;; 2 ;; 3 ;; -1 ;; -2 ;; 5 ;; 10
p: 0 ;; 1 ;; 2 ;; 4
m: 1 ;; 2 ;; 3 ;; -1 ;; 40
texts: '{a,"a b",abc}' ;; '{}' ;; '{ äöü , null}' ;; '{"x\"y",zz}'::text[] ;; array['a', 'b']
numbers: '{1,2}' ;; '{}' ;; '{7}' ;; '{-1,null}' ;; array[1, 3]
like: 'a%' ;; '%b%' ;; '_' ;; '%' ;; '' ;; 'a\%b%' ;; '%\_c' ;; 'A_c' ;; '%ü' ;; '日%' ;;
    'a\\b' ;;
    'a!%b%' escape '!'
similar: 'a%' ;; '(a|b)%' ;; '[a-c]+' ;; '_b_' ;; '%(ü|b)' ;; 'a\%b%' ;; 'a.c' ;; '' ;; '_{3}'
zone: 'Europe/Berlin' ;; 'America/New_York' ;; 'Asia/Kolkata' ;; 'Australia/Sydney' ;; 'UTC' ;;
    '+02' ;; 'Pacific/Apia' ;; 'EST5EDT' ;; '-05:30'
wide: '[[:alpha:]]+' ;; '[[:lower:]]' ;; '[[:upper:]]' ;; '[[:punct:]]' ;; '[^[:alnum:]]' ;;
    '\w+' ;; '\W' ;; '\m.' ;; '.\M' ;; '\Aa' ;; 'b\Z' ;; '(?i)ABC' ;; '***=a%' ;; '\y'
like0: 'a%' ;; '%b%' ;; '_' ;; '' ;; 'A_c' ;; '日%'
regexp: '^a' ;; 'b$' ;; '[a-c]+' ;; 'a|z' ;; '^$' ;; '.' ;; 'a.*b' ;; '\d+' ;; '(ab)+' ;;
    '[^a]' ;; 'ä' ;; '\s' ;; '^.{3}$' ;; '\\'
unit: 'microseconds' ;; 'milliseconds' ;; 'second' ;; 'minute' ;; 'hour' ;; 'day' ;; 'week' ;;
    'month' ;; 'quarter' ;; 'year' ;; 'decade'
pattern: 'YYYY-MM-DD HH24:MI:SS' ;; 'Dy DD Mon' ;; 'HH12:MI:SS AM' ;; 'IYYY-IW-ID' ;; 'Q DDD D' ;;
    'MS US' ;; 'FMMonth FMDD' ;; 'Month|Day|MONTH|mon|dy' ;; 'SSSS' ;; '"Y"YYYY' ;; 'FF3 FF6'
""")

AGGREGATES = table(r"""
bigint: count(*) ;; count({any}) ;; bit_and({bigint}) ;; bit_or({small}) ;; bit_xor({bigint}) ;;
    count(distinct ({number}, {string})) ;; count(distinct {any}) ;; min({bigint}) ;;
    max({bigint}) ;; sum({small}) ;; sum(distinct {small}) ;; count(*) filter (where {boolean}) ;;
    sum({small}) filter (where {boolean}) ;; count(all {any}) ;;
    percentile_disc(0.4) within group (order by {bigint}) ;; array_length(array_agg({any}), 1) ;;
    cardinality(array_agg({text}))
double: sum({double}) ;; avg({double}) ;; avg({small}) ;; min({double}) ;; max({double}) ;;
    stddev({small}) ;; var_pop({small}) ;; variance({small}) ;; stddev_pop({finite}) ;;
    corr({finite}, {small}) ;; covar_pop({small}, {finite}) ;; covar_samp({finite}, {finite}) ;;
    regr_slope({small}, {finite}) ;; regr_r2({finite}, {small}) ;;
    regr_intercept({finite}, {small}) ;; percentile_cont(0.25) within group (order by {finite}) ;;
    percentile_cont(0.5) within group (order by {small} desc) ;;
    percentile_disc(0.75) within group (order by {finite}) ;; avg(distinct {small})
text: min({text}) ;; max({text}) ;; string_agg({text}, ',' order by id) ;;
    string_agg(distinct {text}, '|') ;; string_agg(distinct {text}, '' order by {same} desc) ;;
    mode() within group (order by {text}) ;; string_agg({text}, '-' order by id desc) ;;
    string_agg({text}, ',' order by {any} desc, {any} nulls first, id) ;;
    array_agg({text} order by id)::text ;; array_agg({boolean} order by id)::text ;;
    array_agg({bigint} order by {any}, id desc)::text ;; array_agg(distinct {date})::text ;;
    array_to_string(array_agg({text} order by {any} desc, id), '-', '?') ;;
    percentile_disc(0.6) within group (order by {text} desc)
boolean: bool_and({boolean}) ;; bool_or({boolean}) ;; every({boolean})
timestamp: min({timestamp}) ;; max({timestamp}) ;;
    percentile_disc(0.3) within group (order by {timestamp})
date: min({date}) ;; max({date})
interval: min({interval}) ;; max({interval})
""")

OTHERS = table(r"""
window: row_number() ;; rank() ;; dense_rank() ;; percent_rank() ;; cume_dist() ;; ntile(3) ;;
    lag({any}) ;; lag({bigint}, 2) ;; lead({text}, 1, 'none') ;; lag({small}, -1, 0::bigint) ;;
    first_value({any}) ;; last_value({any}) ;; nth_value({any}, 2) ;; sum({small}) ;;
    avg({small}) ;; count(*) ;; count({any}) ;; min({bigint}) ;; max({text}) ;;
    sum({small}) filter (where {boolean}) ;; string_agg({text}, ',') ;; bool_and({boolean}) ;;
    max({double}) ;; min({timestamp}) ;; lead({date}) ;; stddev({small})
bound: unbounded preceding ;; {p} preceding ;; current row ;; {p} following ;; unbounded following
odd: '12' ;; '-7' ;; ' 5 ' ;; '1.5' ;; '1e3' ;; 'x1' ;; '9223372036854775808' ;; 'nan' ;; 'yes' ;;
    'off' ;; 'tr' ;; '1' ;; '0' ;; '2023-02-29' ;; '2024-01-01 25:00' ;; '2024-01-01 24:00' ;;
    'P1Y2M3DT4H5M6S' ;; '1 mon ago' ;; '1:30' ;; '-2 hours' ;; '3 weeks' ;; '1 fortnight' ;;
    '2024-2-9' ;; 'epoch' ;; '1-2' ;; '2024-01-01T01:02:03' ;; '2024-13-01' ;; '1 day 1 day' ;;
    '+3' ;; '--3' ;; '1e400' ;; '0.0' ;; '.5' ;; '5.'
""")
