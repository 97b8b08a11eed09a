# SPDX-License-Identifier: Apache-2.0
"""Rank, step and role of a process mean the same in every table, also where it learns them late;
and the names that other projects' queries have for what is measured here are there."""
import pytest
from test_torch import HERE, python  # noqa: F401  (a fixture)
from world import ROOT, wait_for

COLUMNS = "rank, world_size, local_rank, role"
TABLES = {  # with a step in each row
    "python.torch_trace", "python.torch_step_timing", "python.comm_collective",
    "python.variables", "python.ddp_timing", "python.comm_stuck", "python.trace_event",
    "python.watched"}
UNKNOWN = [None] * 4


def start(world, python, name, *more, env=None):  # noqa: F811
    env = dict(env or {}, PYTHONPATH=str(ROOT / "plugins" / "python" / "package"))
    target = world.start(python, "-W", "ignore", "-u", str(HERE / "targets" / name),
                         str(world.tmp / "go"), *more, env=env)
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "torch")
    return target


@pytest.fixture
def job(world, python):  # noqa: F811
    """The second of two processes, when both have done their work."""
    two = [start(world, python, "coordinates.py", str(world.tmp / ("answer.%d" % rank)), str(rank),
                 str(world.tmp / "store")) for rank in range(2)]
    for target in two:
        for setting in "torch.exprs=loss", "torch.baseline=0":
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


def test_the_launchers_environment(world, python):  # noqa: F811
    env = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "x1", "ROLE_NAME": "actor"}
    target = start(world, python, "coordinates.py", str(world.tmp / "answer"), "0",
                   str(world.tmp / "store"), env=env)
    (world.tmp / "go").touch()
    for table in "python.torch_trace", "python.trace_event":
        rows = "select distinct %s from %s where local_step < 2" % (COLUMNS, table)
        wait_for(lambda r=rows: target.rows(r), table)
        assert target.rows(rows) == [[3, 8, None, "actor"]], table


def test_steps_without_rows_are_told(world, python):  # noqa: F811
    two = start(world, python, "steps.py", str(world.tmp / "answer"))
    assert two.probing("config", "torch.baseline=4").returncode == 0
    (world.tmp / "go").touch()
    two.wait_line("done")
    rows = two.rows("select step, is_shadow, sampled, shadow_normal, shadow_baseline, sample_mode "
                    "from python.torch_step_timing where shadow_normal = 3")
    assert len(rows) >= 4
    for step, shadow, sampled, normal, baseline, mode in rows:
        assert (shadow, sampled) == ((1, 0) if step % 4 == 3 else (0, 1)), step
        assert (normal, baseline, mode) == (3, 1, "every")
