# SPDX-License-Identifier: Apache-2.0
"""Rank, step and role of a process mean the same in every table, also where it learns them late;
and the names that other projects' queries have for what is measured here are there."""
import pytest
from cases import HERE
from world import ROOT, wait_for

pytestmark = pytest.mark.one_torch

COLUMNS = "rank, world_size, local_rank, role"
TABLES = {  # with a step in each row
    "python.torch_trace", "python.torch_step_timing", "python.comm_collective",
    "python.variables", "python.ddp_timing", "python.comm_stuck", "python.trace_event",
    "python.watched"}
UNKNOWN = [None] * 4


def start(world, python, name, *more, env=None):
    env = dict(env or {}, PYTHONPATH=str(ROOT / "plugins" / "python" / "package"))
    target = world.start(python, "-W", "ignore", "-u", str(HERE / "targets" / name),
                         str(world.tmp / "go"), *more, env=env)
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "torch")
    return target


@pytest.fixture
def job(world, python):
    """The second of two processes, when both have done their work."""
    two = [start(world, python, "coordinates.py", str(world.tmp / ("answer.%d" % rank)), str(rank),
                 str(world.tmp / "store")) for rank in range(2)]
    for target in two:
        for setting in "torch.variables=loss", "torch.baseline_every=0":
            done = target.probing("config", setting)
            assert done.returncode == 0, done.stderr
    (world.tmp / "go").touch()
    for target in two:
        target.wait_line("done")
    return two[1]


def test_a_rank_that_is_learnt_late(job):
    def kinds(table, where="true"):
        return job.rows("select %s from %s where %s group by %s order by min(ts)" % (
            COLUMNS, table, where, COLUMNS))
    known = [1, 2, 5, None]
    told = [1, 2, 5, "learner"]
    for alive in (True, False):  # of the dead, too
        for table in "python.torch_trace", "python.torch_step_timing", "python.trace_event":
            assert kinds(table) == [UNKNOWN, known, told], table
            assert kinds(table, "step < 2") == [UNKNOWN], table
            assert kinds(table, "global_step = 100") == [told], table
        assert kinds("python.comm_collective") == [known]
        assert kinds("python.variables", "step < 2") == [UNKNOWN]
        assert kinds("python.variables", "steps = 2") == [known]
        assert kinds("python.trace_event", "global_step = 101") == [told]
        # of each step the batch that was the last in it: the second
        assert job.rows("select distinct micro_step from python.torch_step_timing "
                        "where step_end = 'optimizer'") == [[1]]
        assert job.rows("select micro_step from python.comm_collective") == [[None]]
        assert job.rows("select local_step, count(*) from python.torch_trace where stage = "
                        "'post forward' and step < 3 group by 1 order by 1") == [
                            [0, 2], [1, 2], [2, 2]]
        if alive:
            job.kill()


def test_every_table_with_a_step_has_all(job):
    found = {"%s.%s" % (schema, table): set(names.split()) for schema, table, names in job.rows(
        "select table_schema, table_name, string_agg(column_name, ' ') from "
        "information_schema.columns where table_schema = 'python' group by 1, 2")}
    for table in TABLES:
        wanted = set(COLUMNS.split(", ")) | {"local_step", "global_step"}
        assert wanted <= found[table], table
    docs = job.rows("select column_name, count(*), count(distinct description) from "
                    "probe.probing.column_docs where table_schema || '.' || table_name in (%s) "
                    "and column_name in ('rank', 'world_size', 'local_rank', 'role', 'local_step', "
                    "'global_step', 'micro_step') group by 1" %
                    ", ".join("'%s'" % table for table in TABLES))
    assert len(docs) == 7 and {n for _, n, _ in docs} == {6, 8}
    assert {kinds for _, _, kinds in docs} == {1}  # one meaning
    for table in TABLES:
        job.rows("select step, steps, local_step, t.step, t.steps from %s t" % table)


def test_the_launchers_environment(world, python):
    env = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "x1", "ROLE_NAME": "actor"}
    target = start(world, python, "coordinates.py", str(world.tmp / "answer"), "0",
                   str(world.tmp / "store"), env=env)
    (world.tmp / "go").touch()
    for table in "python.torch_trace", "python.trace_event":
        rows = "select distinct %s from %s where local_step < 2" % (COLUMNS, table)
        wait_for(lambda r=rows: target.rows(r), table)
        assert target.rows(rows) == [[3, 8, None, "actor"]], table


def test_steps_without_rows_are_told(world, python):
    two = start(world, python, "steps.py", str(world.tmp / "answer"))
    assert two.probing("config", "torch.baseline_every=4").returncode == 0
    (world.tmp / "go").touch()
    two.wait_line("done")
    rows = two.rows("select step, is_shadow, sampled, shadow_normal, shadow_baseline, sample_mode "
                    "from python.torch_step_timing where shadow_normal = 3")
    assert len(rows) >= 4
    for step, shadow, sampled, normal, baseline, mode in rows:
        assert (shadow, sampled) == ((1, 0) if step % 4 == 3 else (0, 1)), step
        assert (normal, baseline, mode) == (3, 1, "every")


# Columns that others' queries of these tables use, and forms that they are asked in.
NAMES = {
    "comm_metrics": "src_rank dst_rank op latency_ms",
    "cpu.tasks": "comm state wchan",
    "information_schema.columns": "table_catalog table_schema table_name column_name "
                                  "ordinal_position is_nullable data_type",
    "information_schema.df_settings": "name value",
    "information_schema.schemata": "catalog_name schema_name",
    "information_schema.tables": "table_catalog table_schema table_name table_type",
    "information_schema.views": "table_name view_definition",
    "memory_usage": "timestamp memory_mb",
    "probe.probing.column_docs": "table_schema table_name column_name data_type description",
    "probe.probing.table_docs": "table_schema table_name description synonyms notes",
    "process.envs": "name value",
    "profiling_data": "timestamp operation_name duration_ms",
    "python.backtrace": "func file lineno depth frame_type",
    "python.comm_collective": "rank world_size role micro_step local_step global_step op "
                              "group_rank "
                              "group_size participate_ranks tensor_shape tensor_dtype bytes "
                              "duration_ms async_op timestamp",
    "python.profile_capture": "capture_id local_step global_step rank world_size role trigger "
                              "steps_profiled wall_us started_at_us ended_at_us status truncated "
                              "event_count error",
    "python.profile_hotspot": "capture_id local_step global_step rank bucket_kind bucket_name "
                              "self_us wall_us calls pct_of_capture module_hint",
    "python.torch_step_timing": "step_duration_sec is_shadow sampled sample_rate sample_mode "
                                "shadow_normal shadow_baseline local_step global_step rank",
    "python.torch_trace": "step steps local_step micro_step global_step rank world_size role seq "
                          "module stage duration time_offset allocated allocated_delta "
                          "max_allocated max_allocated_delta cached max_cached",
    "python.trace_event": "record_type trace_id span_id parent_id name phase time thread_id "
                          "attributes local_step",
    "python.variables": "step func name value",
    "training_logs": "epoch steps loss",
}
FORMS = [
    "select count(*), max(s.global_step) - 50 from probe.python.comm_collective s "
    "where global_step >= (select max(global_step) - 50 from python.comm_collective)",
    "select e.name, cast(cast(e.time as bigint) / 1000 as bigint), "
    "cast((e.time - s.time) / 1000 as double) from python.trace_event s join python.trace_event e "
    "on s.span_id = e.span_id and e.record_type = 'span_end' where s.record_type = 'span_start'",
    "with w as (select greatest(coalesce(max(cast(local_step as bigint)), 0) - 80, 1) as n from "
    "python.torch_step_timing) select count(*), median(step_duration_sec) filter (where "
    "is_shadow = 1) from python.torch_step_timing, w where local_step >= w.n",
    "select round((select median(step_duration_sec) from python.torch_step_timing where is_shadow "
    "= 0 and local_step >= 1) * 1000, 1) as ms",
    "select role, rank, op, avg(duration_ms) from python.comm_collective group by role, rank, op",
    "show create table probe.python.torch_trace",
    "describe probing.column_docs",
    "select c.column_name, d.description from information_schema.columns c left join "
    "probe.probing.column_docs d on c.table_schema = d.table_schema and c.table_name = "
    "d.table_name and c.column_name = d.column_name where c.table_name = 'trace_event' "
    "order by c.ordinal_position",
]


def test_names_of_the_fields_queries(job):
    done = job.probing("query", "select count(*) from python.profile_capture")
    assert done.returncode == 0, done.stderr
    for table, names in NAMES.items():
        job.rows("select %s from %s limit 3" % (", ".join(names.split()), table))
    for form in FORMS:
        assert job.rows(form), form


def test_a_capture_as_the_field_names_it(world, python):
    target = start(world, python, "ends.py", "main")
    done = target.probing("torch", "profile", "--steps", "2", "-o", str(world.tmp / "trace.json"))
    assert done.returncode == 0, done.stderr
    about = target.rows("select steps_profiled, status, truncated, event_count, error, "
                        "ended_at_us - started_at_us - wall_us, rank from python.profile_capture")
    assert about[0][:3] == [2, "completed", 0] and about[0][3] > 0
    assert about[0][4:] == [None, 0, None]
    rows = target.rows("select h.capture_id = c.capture_id, h.local_step = c.local_step, "
                       "bucket_kind, self_us, h.wall_us, calls, pct_of_capture, c.wall_us from "
                       "python.profile_hotspot h, python.profile_capture c")
    assert len(rows) > 3
    for same, step, kind, own, whole, calls, share, wall in rows:
        assert same and step and kind in ("cpu_op", "other", "collective"), kind
        assert own <= whole and calls > 0 and abs(share - own / wall) < 1e-3 + 1 / wall
    assert sum(row[6] for row in rows) <= 1.01
