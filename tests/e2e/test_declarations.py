# SPDX-License-Identifier: Apache-2.0
"""A stranger's plugin brings a view, metrics, an alias and flame modes: no file of ours knows it.

jobs.c is the example of docs/plugins.md; wrong.c declares what must be refused.
"""
import json
import os
import re
import subprocess
import urllib.error
import urllib.request

import pytest

from world import BUILD, LIMIT, ROOT, wait_for, world  # noqa: F401

SOURCES = ROOT / "tests" / "e2e" / "plugins"
WELL = BUILD / "tests" / "hostile" / "plugins" / "well.so"
TOTALS = "select name, jobs, total_ms from job_totals order by name"
LOST = re.compile(r"\(job_totals has no rows: plugin jobs is not loaded: "
                  r"probing -t \d+ inject --plugin jobs\)")


def built(folder, source, *flags):
    folder.mkdir(exist_ok=True)
    made = folder / (source + ".so")
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden",
                    "-I%s" % (ROOT / "include"), *flags, str(SOURCES / (source + ".c")),
                    "-o", str(made)], check=True)
    return made


@pytest.fixture
def jobs(world):
    """The plugin in a folder of its own, which the command is told of."""
    made = built(world.tmp / "mine", "jobs")
    world.env["PROBING_PLUGIN_PATH"] = str(made.parent)
    return made


def asked(target, sql):
    done = target.probing("query", sql)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def folded(target, *words):
    done = target.probing("flamegraph", *words, "--format", "folded")
    assert done.returncode == 0, done.stderr
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


def metrics(target):
    return [line for line in target.probing("metrics").stdout.splitlines() if "_jobs_" in line]


def fresh(world):
    """A process that has never had it, not even in its environment."""
    target = world.start("sleep", "600", env={"PROBING_PLUGIN_PATH": ""})
    target.inject("-D", "probing.plugins=")
    return target


def test_known_before_it_is_loaded(world, jobs):
    target = fresh(world)
    assert LOST.search(asked(target, TOTALS))
    assert LOST.search(asked(target, "select sum(total_ms * 2) from job_totals where jobs > 1"))
    done = target.probing("query", "--format", "json", TOTALS)
    answer = json.loads(done.stdout)
    assert answer["rows"] == [] and "plugin jobs is not loaded" in answer["empty"]
    done = target.probing("flamegraph", "jobs", "--format", "folded")
    assert done.returncode == 1 and "plugin jobs is not loaded" in done.stderr
    done = target.probing("query", "select * from job_total")
    assert done.returncode == 1 and "did you mean 'job_totals'" in done.stderr
    done = target.probing("query", "select * from jobs.done")
    assert done.returncode == 1 and re.search(
        r"there is no table 'jobs.done' yet: plugin jobs is not loaded: probing -t \d+ inject "
        r"--plugin jobs$", done.stderr.strip()), done.stderr
    assert "did you mean 'jobs.done'" in target.probing("query", "select * from jobs.dome").stderr
    assert "kept until plugin jobs" in target.probing("config", "work.repeat=2").stdout
    assert not target.rows("select * from probing.plugins")  # nothing of it was loaded for this


OVER = """
#include <probing/plugin.h>
static int init(const struct probing_host *host, void **self)
{
    *self = (void *)host;
    return 0;
}
static void destroy(void *self)
{
    (void)self;
}
static const struct probing_view views[] = {
    {"over_all", "select count(*) as n from jobs.done having count(*) > 0", "all jobs", 0}};
static const struct probing_declarations all = {
    .size = sizeof(all), .n_views = 1, .view_size = sizeof(views[0]), .views = views};
PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "over", .version = "1",
    .doc = "reads what another plugin has", .init = init,
    .destroy = destroy, .declares = &all};
"""


def test_a_view_of_another_plugins_table_says_which_one_it_lacks(world, jobs):
    (world.tmp / "over.c").write_text(OVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-fvisibility=hidden", "-I%s" % (ROOT / "include"),
                    str(world.tmp / "over.c"), "-o", str(jobs.parent / "over.so")], check=True)
    target = fresh(world)
    assert target.probing("plugin", "load", "over").returncode == 0
    said = asked(target, "select * from over_all")
    assert "over_all has no rows: plugin jobs is not loaded" in said, said
    assert target.probing("plugin", "load", "jobs").returncode == 0
    assert target.rows("select n > 0 from over_all") == [[True]]


def test_help_and_completion_show_its_modes(world, jobs):
    shown = world.probing("help", "flamegraph").stdout
    assert re.search("^  jobs +jobs within jobs, by time$", shown, re.M), shown
    for shell in "bash", "zsh", "fish":
        assert re.search(r"\bjobs jobs_memory jobs_stacks\b",
                         world.probing("completion", shell).stdout), shell
    assert ".B jobs\njobs within jobs, by time" in world.probing("man").stdout
    del world.env["PROBING_PLUGIN_PATH"]
    assert "jobs" not in world.probing("help", "flamegraph").stdout


def test_answers_by_value(world, jobs):
    target = fresh(world)
    assert "kept until plugin jobs" in target.probing("config", "work.repeat=2").stdout
    assert target.probing("plugin", "load", "jobs").returncode == 0
    assert target.probing("config", "work.repeat").stdout == "2\n"  # the alias, both ways
    assert target.probing("config", "jobs.times").stdout == "2\n"
    assert target.rows(TOTALS) == [["inner", 4, 0.08], ["outer", 4, 0.26]]
    assert target.rows("select * from jobs.longest") == [["outer", 100000]]
    assert [["jobs.longest"], ["job_totals"]] == target.rows(
        "select case when table_schema = '' then '' else table_schema || '.' end || table_name "
        "from information_schema.views where table_schema in ('', 'jobs') order by 1 desc")
    assert metrics(target) == [
        "# TYPE probing_jobs_done counter", "# HELP probing_jobs_done Jobs that have ended.",
        'probing_jobs_done_total{name="inner"} 4', 'probing_jobs_done_total{name="outer"} 4',
        "# TYPE probing_jobs_longest_seconds gauge", "# UNIT probing_jobs_longest_seconds seconds",
        "# HELP probing_jobs_longest_seconds The longest job.",
        "probing_jobs_longest_seconds 0.0001"]
    nested = {"worker 1;outer": "120000", "worker 1;outer;inner": "80000",
              "worker 2;outer": "60000"}
    assert folded(target, "jobs") == nested
    assert folded(target, "jobs", "--last", "1h") == nested
    assert folded(target, "jobs_memory") == folded(target, "jobs", "--memory") == {
        "all;outer": "18432", "all;inner": "12288"}
    assert target.rows("select name, plugin, doc, unit from probing.flame_modes order by 1") == [
        ["jobs", "jobs", "jobs within jobs, by time", "ns"],
        ["jobs_memory", "jobs", "memory of jobs", "bytes"],
        ["jobs_stacks", "jobs", "jobs as samples of stacks", "ns"]]


def test_samples_of_stacks_are_drawn_in_every_form(world, jobs):
    target = fresh(world)
    done = target.probing("flamegraph", "jobs_stacks", "--seconds", "1s")
    assert done.returncode == 1 and "plugin jobs is not loaded" in done.stderr, done.stderr
    assert target.probing("plugin", "load", "jobs").returncode == 0
    assert folded(target, "jobs_stacks") == {"outer": "130000", "outer;inner": "40000"}
    assert folded(target, "jobs_stacks", "--threads") == {
        "worker 1 (thread 1);outer": "100000", "worker 1 (thread 1);outer;inner": "40000",
        "worker 2 (thread 2);outer": "30000"}
    drawn = target.probing("flamegraph", "--mode", "jobs_stacks", "--format", "speedscope").stdout
    assert sorted(p["name"].split(" (")[0] for p in json.loads(drawn)["profiles"]) == [
        "worker 1", "worker 2"]
    for words, why in ((("--last", "1h"), "takes no --last"), (("-s", "1s"), "not --seconds"),
                       (("jobs", "--threads"), "neither threads nor lines")):
        words = words if words[0] == "jobs" else ("jobs_stacks", *words)
        done = target.probing("flamegraph", *words)
        assert done.returncode == 1 and why in done.stderr, done.stderr


def test_top_shows_its_panels(world, jobs):
    target = fresh(world)
    shown = target.probing("top", "--once", "--interval=100ms").stdout
    assert "jobs" not in shown and "JOB" not in shown
    assert target.probing("plugin", "load", "jobs").returncode == 0
    shown = target.probing("top", "--once", "--interval=100ms").stdout
    assert "\njobs: 4 done\n" in shown
    rows = [line.split() for line in shown.split("JOB, of all workers")[1].splitlines()]
    assert rows[1:3] == [["100.0", "1024", "1", "outer"], ["30.0", "2048", "1", "inner"]] or \
        rows[1:3] == [["100.0", "1024", "1", "outer"], ["30.0", "8192", "-", "outer"]], shown
    assert re.search(r"^ +TOOK US +BYTES +WORKER 1 +JOB, of all workers *$", shown, re.M), shown
    assert len(rows) == 3, shown
    target.probing("plugin", "stop", "jobs")
    assert "jobs: 4" not in target.probing("top", "--once", "--interval=100ms").stdout


def test_why_it_has_no_rows_is_said_where_it_is_so(world, jobs):
    target = fresh(world)
    target.probing("config", "jobs.times=0")
    assert target.probing("plugin", "load", "jobs").returncode == 0
    assert "(jobs.done has no rows)" in asked(target, "select name from job_totals")
    target.probing("plugin", "stop", "jobs")
    target.probing("config", "jobs.times=1")
    assert target.probing("plugin", "load", "jobs").returncode == 0
    for sql in ("show create view job_totals", "explain select * from job_totals", TOTALS,
                "select * from job_totals where name = 'nobody'"):
        assert "has no rows" not in asked(target, sql), sql


def test_http_lists_and_draws_its_modes(world, jobs):
    target = fresh(world)
    assert target.probing("plugin", "load", "jobs").returncode == 0
    said = target.probing("config", "server.listen=127.0.0.1:0").stdout
    token = (place(target) / "token").read_text().strip()

    def get(path):
        request = urllib.request.Request("http://%s%s" % (said.split("=")[1].strip(), path),
                                         headers={"Authorization": "Bearer " + token})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    assert get("/flamegraph?mode=jobs&format=folded&last=1h") == (
        200, "worker 1;outer 60000\nworker 1;outer;inner 40000\nworker 2;outer 30000\n")
    assert "memory of jobs" in get("/flamegraph?mode=jobs_memory&format=html")[1]
    status, why = get("/flamegraph?mode=tasks")
    assert status == 400 and "no mode 'tasks'" in why and "flame_modes" in why


def test_stopped_its_rows_answer_and_its_figures_go(world, jobs):
    target = fresh(world)
    assert target.probing("plugin", "load", "jobs").returncode == 0
    assert metrics(target) and target.rows("select * from probing.flame_modes")
    assert target.probing("plugin", "stop", "jobs").returncode == 0
    assert target.rows(TOTALS) == [["inner", 2, 0.04], ["outer", 2, 0.13]]
    assert metrics(target) == []
    assert folded(target, "jobs")  # what there is to draw goes on being drawn
    assert target.probing("plugin", "load", "jobs").returncode == 0
    assert target.rows(TOTALS) == [["inner", 4, 0.08], ["outer", 4, 0.26]]
    assert len(target.rows("select * from information_schema.views "
                           "where table_name = 'job_totals'")) == 1


def place(target):
    data = target.world.data
    return next(p for p in data.iterdir() if p.name.startswith("%d-" % target.pid))


def dead(world, jobs):
    target = fresh(world)
    assert target.probing("plugin", "load", str(jobs)).returncode == 0
    assert target.rows(TOTALS)
    target.kill()
    del world.env["PROBING_PLUGIN_PATH"]  # and the plugin is not to be had any more
    jobs.unlink()
    return target


def test_dead_process_has_its_views_and_modes(world, jobs):
    target = dead(world, jobs)
    assert "inner" in asked(target, TOTALS)
    done = target.probing("query", "--format", "csv", TOTALS)
    assert done.stdout.splitlines()[1:] == ["inner,2,0.04", "outer,2,0.13"]
    assert folded(target, "jobs")["worker 1;outer"] == "60000"
    assert "its process had not loaded plugin torch" in asked(target, "select * from training_logs")


@pytest.mark.parametrize("lines", [
    b"\0\xff garbage", b"{}", b'{"plugin":"jobs","views":[{"name":"../x","sql":"select 1"}]}',
    b'{"plugin":"jobs","views":[{"name":"job_totals","sql":"drop table x","doc":""}]}',
    b'{"plugin":"jobs","views":' + b"[" * 5000, b"x" * (2 << 20),
    b'{"plugin":"x","views":[{"name":"a","sql":"select * from a","doc":"d"}]}'],
    ids=["garbage", "empty", "bad name", "no select", "deep", "long", "of itself"])
def test_what_a_directory_says_is_not_believed(world, jobs, lines):
    target = dead(world, jobs)
    (place(target) / "declared").write_bytes(lines)
    done = target.probing("query", "select count(*) as n from jobs.done")
    assert done.returncode == 0 and "4" in done.stdout, done.stderr
    assert target.probing("query", "select * from a").returncode == 1


WRONG = [
    ("-DWRONG=.name=0", "view 0 has no name"),
    ("-DWRONG=.sql=0", "view 0 ('wrong_view') has no sql"),
    ("-DWRONG=.name=\"a b\"", "view 0 ('a b') has a bad name"),
    ("-DWRONG=.name=\"probing.tables\"", "schema that is the core's own"),
    ("-DWRONG=.name=\"cpu.tasks\"", "view 'cpu.tasks' has the name of a table"),
    ("-DWRONG=.sql=\"selekt 1\"", "view 'wrong_view': its sql is no select: line 1, column 1"),
    ("-DWRONG=.sql=\"set a = 1\"", "its sql is no select"),
    ("-DWRONG=.why=\"select\"", "its why is no select"),
    ("-DWRONG=.doc=\"a\\nb\"", "doc of more than one line"),
    ("-DWRONG=.sql=UNREADABLE", "sql at an address that cannot be read"),
    ("-DMORE=.views=UNREADABLE", "view 0 is at an address that cannot be read"),
    ("-DMORE=.views=0", "view 0 is at an address that cannot be read"),
    ("-DMORE=.view_size=8", "view_size is 8, struct probing_view has 32 bytes"),
    ("-DMORE=.n_views=1000000", "it declares 1000000 views; at most 64"),
    ("-DMORE=.size=4", "its declarations say 4 bytes"),
    ("-DMORE=.n_metrics=2", "metric 1 ('rate') is there twice"),
    ("-DMORE=.n_metrics=1,.metrics=metrics+2", "metric 0 ('other') is neither"),
    ("-DMORE=.n_aliases=1", "alias 0 ('old.pace') is of 'speed', which is no setting of it"),
    ("-DMORE=.n_aliases=1,.aliases=aliases+1", "alias 0 ('probing.retention') is the name of"),
    ("-DMORE=.n_flames=1", "flame 'wrong': its sql is no select"),
    ("-DMORE=.n_tables=1,.tables=UNREADABLE", "table 0 is at an address that cannot be read"),
    ("-DMORE=.n_tables=1", "table 0 ('bare') has no schema"),
    ("-DMORE=.n_flames=1,.flames=flames+1", "flame 'half': its stacks is no select"),
    ("-DMORE=.n_flames=1,.flames=flames+2", "flame 0 ('set') has a bad setting: NAME=VALUE"),
    ("-DMORE=.n_flames=1,.flame_size=48", "flame_size is 48, struct probing_flame has 88 bytes"),
    ("-DMORE=.n_flames=1,.flames=flames+3", "flame 'less': its missing is no select"),
    ("-DMORE=.n_tracks=1", "track 'wrong': its sql is no select"),
    ("-DMORE=.n_tracks=1,.tracks=tracks+1", "track 0 ('a b') has a bad name"),
    ("-DMORE=.n_tracks=1,.tracks=UNREADABLE", "track 0 is at an address that cannot be read"),
    ("-DMORE=.n_panels=1", "panel 0 ('wrong') is neither PROBING_LINES nor PROBING_COLUMNS"),
    ("-DMORE=.n_panels=1,.panels=panels+1", "panel 0 ('wrong') has no rows, or more than 64"),
    ("-DMORE=.n_resources=1", "resource 0 ('sockets') is no limit that is known: use one of "
                              "address_space"),
    ("-DMORE=.n_resources=1,.resources=resources+1", "resource 0 ('data') takes more than 1 TiB"),
    ("-DDECLARES=UNREADABLE", "its declarations are at an address that cannot be read")]


def test_wrong_ones_are_refused_by_name(world):
    target = world.start("sleep", "600")
    target.inject("-D", "probing.plugins=")
    for i, (flag, why) in enumerate(WRONG):
        made = built(world.tmp / ("w%d" % i), "wrong", flag)
        done = target.probing("plugin", "load", str(made))
        assert done.returncode == 1 and target.alive(), (flag, done.stdout)
        assert "declarations: " in done.stderr and why in done.stderr, (flag, done.stderr)
    assert target.probing("plugin", "load", str(WELL)).returncode == 0
    done = target.probing("plugin", "load", str(built(world.tmp / "right", "wrong")))
    assert done.returncode == 0, done.stderr  # the same without what is wrong
    assert target.rows("select * from wrong_view") == [[1]]


def test_plugin_of_1_0_loads_as_it_did(world):
    target = world.start("sleep", "600")
    target.inject("-D", "probing.plugins=")
    made = built(world.tmp / "old", "wrong", "-DOLD", "-Wno-unused-variable")
    done = target.probing("plugin", "load", str(made))
    assert done.returncode == 0, done.stderr
    assert target.rows("select state from probing.plugins where name = 'wrong'") == [["running"]]
    assert target.probing("config", "wrong.pace").stdout == "1\n"
    checked = target.world.probing("plugin", "check", str(made))
    assert checked.returncode == 0 and "104 bytes; ABI 1.0" in checked.stdout, checked.stdout


def test_check_says_what_is_declared(world, jobs):
    checked = world.probing("plugin", "check", str(jobs))
    assert checked.returncode == 0, checked.stdout
    assert ("declares   2 views, 2 metrics, 1 aliases, 3 flame modes, 1 tables, 4 tracks, "
            "3 panels, 0 resources" in checked.stdout)
    wrong = built(world.tmp / "wrong", "wrong", "-DMORE=.n_views=1000000")
    checked = world.probing("plugin", "check", str(wrong))
    assert checked.returncode == 1, checked.stdout
    assert "declares   NOT RIGHT: it declares 1000000 views" in checked.stdout


@pytest.mark.parametrize("name", ["cuda", "gpu", "memory", "nccl", "profile", "system", "torch"])
def test_plugins_of_ours_declare_all_their_tables(world, name):
    """Else whoever asks for one of them where it is not loaded does not hear who has it."""
    target = world.start("sleep", "600")
    target.inject("-D", "probing.plugins=")
    made = world.probing("plugin", "check", str(BUILD / "plugins" / (name + ".so")),
                         *(["--", "/usr/bin/python3", "-c", "import time; time.sleep(600)"]
                           if name == "torch" else []))
    tables = re.search(r"^tables +(.*)$", made.stdout, re.M)
    if name == "torch" and (tables is None or tables[1] == "none"):
        pytest.skip("torch makes its tables where it finds torch: " + made.stdout)
    for table in tables[1].split(", "):
        done = target.probing("query", "select * from " + table)
        assert "plugin %s is not loaded" % name in done.stdout + done.stderr, table


def test_damaged_files_beside_it_are_passed_by(world, jobs):
    whole = jobs.read_bytes()
    for i, size in enumerate((0, 60, 4096, len(whole) // 2)):
        (jobs.parent / ("cut%d.so" % i)).write_bytes(whole[:size])
    for i in range(40):  # a byte here and there
        changed = bytearray(whole)
        changed[(i * 7919 + 64) % len(whole)] ^= 0xff
        (jobs.parent / ("changed%d.so" % i)).write_bytes(changed)
    os.mkfifo(jobs.parent / "pipe.so")
    target = fresh(world)
    assert LOST.search(asked(target, TOTALS))
    assert world.probing("help", "flamegraph").returncode == 0


def test_alias_in_the_environment(world, jobs):
    target = world.start("sleep", "600",
                         env={"PROBING_PLUGIN_PATH": "", "PROBING_WORK_REPEAT": "3"})
    target.inject("-D", "probing.plugins=")
    assert target.probing("plugin", "load", "jobs").returncode == 0
    assert target.rows("select count(*) from jobs.done") == [[12]]
