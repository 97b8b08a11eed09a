# SPDX-License-Identifier: Apache-2.0
"""Traces of the tracks that plugins declare: all on one clock, each where its rows say.

The plugin is tests/e2e/plugins/jobs.c, which no file of ours knows.
"""
import json
import re

import pytest

from test_export import check_trace, export, fields
from world import ROOT, wait_for

JOBS = (ROOT / "tests" / "e2e" / "plugins" / "jobs.c").read_text()
EPOCH_US = 1000 * 10**6
WORKERS = [("worker 1", "outer", 0, 100), ("worker 1", "inner", 10, 30),
           ("worker 1", "inner", 50, 10), ("worker 2", "outer", 0, 30)]


@pytest.fixture
def jobs(world):
    """A process with the plugin, of whose file the command knows nothing."""
    target = world.start("sleep", "600")
    target.inject("-D", "probing.plugins=")
    target.file = world.plugin("jobs", JOBS)
    assert target.probing("plugin", "load", str(target.file)).returncode == 0
    wait_for(lambda: target.rows("select count(*) from jobs.done") == [[4]], "the rows")
    return target


def chrome(target, path, *words):
    trace = json.loads(export(target, "chrome", path, *words))
    raw = trace["traceEvents"]
    check_trace({"traceEvents": list(raw)})
    names = {e["tid"]: e["args"]["name"] for e in raw if e["name"] == "thread_name"}
    events = [e for e in raw if e["ph"] != "M"]
    for e in events:
        e["line"] = names.get(e["tid"])
        e["ts"] -= EPOCH_US
    return events


def seen(events, kind):
    return sorted((e["line"], e["name"], e["ts"], e["dur"]) for e in events if e["cat"] == kind)


def check_all(events):
    assert seen(events, "workers") == sorted(WORKERS)
    hall = [e for e in events if e["cat"] == "hall"]
    assert {e["line"] for e in hall} == {"hall"} and len(hall) == 4
    lines = {}
    for e in hall:
        lines.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"]))
    assert sorted(map(sorted, lines.values())) == [[(0, 30)], [(0, 100), (10, 40), (50, 60)]] or \
        sorted(map(sorted, lines.values())) == [[(0, 30), (50, 60)], [(0, 100), (10, 40)]] or \
        sorted(map(sorted, lines.values())) == [[(0, 30), (0, 100), (50, 60)], [(10, 40)]]
    marks = [e for e in events if e["ph"] == "i"]
    assert sorted((e["tid"], e["ts"], e["cat"]) for e in marks) == [
        (1, 40, "end"), (1, 60, "end"), (1, 100, "end"), (2, 30, "end")]
    assert {e["args"]["bytes"] for e in events if e["cat"] == "workers"} == {1024, 2048, 4096, 8192}


def test_tracks_of_a_strangers_plugin_living_and_dead(jobs, tmp_path):
    check_all(chrome(jobs, tmp_path / "live.json"))
    jobs.kill()
    jobs.file.unlink()
    check_all(chrome(jobs, tmp_path / "dead.json"))


def perfetto_tracks(data):
    """{uuid: (name, parent)} of lines, {uuid: pid} of processes, and the slices' tracks."""
    lines, processes, slices = {}, {}, []
    for raw in fields(data)[1]:
        packet = fields(raw)
        if 60 in packet:
            track = fields(packet[60][0])
            if 3 in track:
                processes[track[1][0]] = fields(track[3][0])[1][0]
            elif 2 in track:
                lines[track[1][0]] = (track[2][0].decode(), track[5][0])
        if 11 in packet:
            event = fields(packet[11][0])
            slices.append((event[9][0], event[11][0], packet[8][0]))
    return lines, processes, slices


def test_lines_of_a_perfetto_trace_belong_to_the_process(jobs, tmp_path):
    data = export(jobs, "perfetto", tmp_path / "t.pftrace", "--tracks", "workers,hall")
    lines, processes, slices = perfetto_tracks(data)
    assert sorted(name for name, _ in lines.values()) == ["hall", "hall", "worker 1", "worker 2"]
    assert {processes[parent] for _, parent in lines.values()} == {jobs.pid}
    assert {track for _, track, _ in slices} == set(lines)
    for track in lines:  # whoever draws it has a stack: each end is of the newest begin
        opened = []
        order = sorted((at, kind != 2, i) for i, (kind, of, at) in enumerate(slices) if of == track)
        for _, begins, i in order:
            if begins:
                opened.append(i)
            else:
                assert opened.pop() == i - 1
        assert not opened


def test_only_what_is_asked_for(jobs, tmp_path):
    path = tmp_path / "t.json"
    assert {e["cat"] for e in chrome(jobs, path, "--tracks", "hall")} == {"hall"}
    assert len(seen(chrome(jobs, path, "--last", "1h"), "workers")) == 4
    jobs.probing("plugin", "stop", "jobs")
    before = jobs.rows("select max(ts)::text from jobs.done")[0][0]
    wait_for(lambda: jobs.rows("select now() > timestamp '%s' + interval '1 second'" % before)
             == [[True]], "a second")
    assert jobs.probing("plugin", "load", str(jobs.file)).returncode == 0
    wait_for(lambda: jobs.rows("select count(*) from jobs.done") == [[8]], "the rows")
    assert len(seen(chrome(jobs, path), "workers")) == 8
    assert len(seen(chrome(jobs, path, "--last", "500ms"), "workers")) == 4
    for words, why in ((("--tracks", "halls"), r"no track 'halls'; there are: workers, hall, ends"),
                       (("--tracks", "hall", "select 1"), "--tracks and --last belong to traces"),
                       (("--last", "1s", "--table", "jobs.done"), "--tracks and --last belong")):
        done = jobs.probing("export", "--format", "chrome", "-o", str(tmp_path / "no"), *words)
        assert done.returncode in (1, 2) and re.search(why, done.stderr), done.stderr
        assert not (tmp_path / "no").exists()
    done = jobs.probing("export", "--format", "csv", "--tracks", "hall")
    assert done.returncode == 2 and "--tracks and --last belong" in done.stderr


def test_where_no_plugin_has_tracks_they_are_named(world, tmp_path):
    target = world.start("sleep", "600")
    target.inject("-D", "probing.plugins=")
    done = target.probing("export", "--format", "chrome", "-o", str(tmp_path / "t.json"))
    assert done.returncode == 1 and "modules (plugin torch)" in done.stderr, done.stderr
    assert not (tmp_path / "t.json").exists()


def test_a_table_of_the_core_lists_them(jobs):
    assert jobs.rows("select name, plugin, doc from probing.tracks where newest is not null") == [
        ["workers", "jobs", "jobs, a line for each worker"]]


def test_steps_and_modules_are_on_one_clock(world, tmp_path):
    target = world.train("--steps", "1000000")
    target.inject("--plugin", "torch")
    count = "select count(*) from python.torch_step_timing"
    wait_for(lambda: target.rows(count)[0][0] > 5, "steps")
    target.kill()
    events = json.loads(export(target, "chrome", tmp_path / "t.json"))["traceEvents"]
    lines = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    steps = [e for e in events if e["tid"] == lines["steps"] and e["ph"] == "X"]
    assert steps and all(re.fullmatch(r"step \d+", e["name"]) for e in steps)
    first, last = steps[0], steps[-1]
    inside = [e for e in events if e["ph"] == "X" and "module" not in e["name"] and
              e["tid"] != lines["steps"] and
              first["ts"] <= e["ts"] <= last["ts"] + last["dur"]]
    assert inside, "no call of a module lies within the steps"
