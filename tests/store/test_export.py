# SPDX-License-Identifier: Apache-2.0
"""`probing export`: the same rows in every format, of a living process and of the same one dead."""
import contextlib
import csv
import io
import gzip
import json
import os
import struct
import subprocess
import sys

import pytest

from parquet_reader import column, parquet, thrift
from readers import python_with
from world import CLI, LIMIT, wait_for


def has(module):
    return subprocess.run([sys.executable, "-c", "import " + module],
                          capture_output=True).returncode == 0


@pytest.fixture
def job(world):
    """A process with a core and some thousand rows, made by its own tables."""
    target = world.start("/usr/bin/python3", "-u", "-c",
                         "import time\nprint('ready')\nwhile True: time.sleep(1)")
    target.wait_line("ready")
    target.inject()
    return target


# A few rows of all types, without any table.
VALUES = """select 1 as n, true as even, 0.125 as km, 'a, "b"' as place, to_timestamp(1.5) as at
    union all select 2, false, -2.5, 'zwei', to_timestamp(1700000000)
    union all select 3, 3 = null, 0.5 + null, nullif('a', 'a'),
        nullif(to_timestamp(1), to_timestamp(1))"""


def export(target, fmt, path, *words):
    done = target.probing("export", "--format", fmt, "-o", str(path), *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return path.read_bytes()


def test_every_format_has_the_same_rows(job, tmp_path):
    text = export(job, "csv", tmp_path / "a.csv", VALUES).decode()
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == ["n", "even", "km", "place", "at"]
    assert rows[1][:4] == ["1", "true", "0.125", 'a, "b"'] and rows[3][1:] == [""] * 4
    lines = [json.loads(line) for line in
             export(job, "jsonl", tmp_path / "a.jsonl", VALUES).decode().splitlines()]
    assert [line["n"] for line in lines] == [1, 2, 3] and lines[2]["place"] is None
    assert not list(tmp_path.glob("*.part*"))


def test_numbers_that_json_lacks_are_in_arrow(job, tmp_path):
    data = export(job, "arrow", tmp_path / "odd.arrow",
                  "select 'nan'::double as a, 'inf'::double as b, '-inf'::double as c, 2.5 as d")
    for number in (float("nan"), float("inf"), float("-inf"), 2.5):
        assert struct.pack("<d", number) in data, number
    text = export(job, "jsonl", tmp_path / "odd.jsonl", "select 'nan'::double as a").decode()
    assert json.loads(text) == {"a": "NaN"}


def test_arrow_is_read_by_arrow(job, tmp_path):
    data = export(job, "arrow", tmp_path / "a.arrow", VALUES)
    done = subprocess.run([str(CLI), "-t", str(job.pid), "query", "--format", "arrow", VALUES],
                          capture_output=True, env=job.world.env, timeout=LIMIT)
    assert (done.returncode, done.stdout) == (0, data), done.stderr
    assert data[:4] == b"\xff\xff\xff\xff" and data[-8:] == b"\xff\xff\xff\xff\0\0\0\0"
    if not has("pyarrow"):
        pytest.skip("pyarrow is not installed for %s: Arrow was written, not read" % sys.executable)
    import pyarrow
    import pyarrow.ipc
    with pyarrow.ipc.open_stream(data) as stream:
        table = stream.read_all()
    table.validate(full=True)
    types = [str(field.type) for field in table.schema]
    assert types == ["int64", "bool", "double", "string", "timestamp[ns, tz=UTC]"]
    columns = [column.to_pylist() for column in table.columns]
    assert columns[0] == [1, 2, 3] and columns[1] == [True, False, None]
    assert columns[2] == [0.125, -2.5, None] and columns[3] == ['a, "b"', "zwei", None]
    assert table.column("at").cast("int64").to_pylist() == [1500000000, 1700000000 * 10**9, None]


# Types, times, NULLs and texts with everything that another format stumbles over.
ALL = VALUES + """ union all select 4, true, 1e300, '', null
    union all select -5, false, 0.1, 'two\nlines, "x"', null"""
READ = [[1, True, 0.125, 'a, "b"', 1500000000], [2, False, -2.5, "zwei", 1700000000 * 10**9],
        [3, None, None, None, None], [4, True, 1e300, "", None],
        [-5, False, 0.1, 'two\nlines, "x"', None]]


def test_parquet_needs_nobody(job, tmp_path):
    path = tmp_path / "it's a.parquet"
    done = job.probing("query", "-o", str(path), ALL, env={"PATH": "/nonexistent"})
    assert done.returncode == 0, done.stderr
    names, rows = parquet(path)
    assert names == ["n", "even", "km", "place", "at"]
    assert [list(row.values()) for row in rows] == READ
    for alive in (True, False):  # of the dead it is the same file, and to a pipe, too
        if not alive:
            job.kill()
        with open(tmp_path / "pipe", "wb") as out:
            subprocess.run([str(CLI), "-t", str(job.pid), "export", "--format", "parquet", ALL],
                           stdout=out, env=job.world.env, timeout=LIMIT, check=True)
        assert (tmp_path / "pipe").read_bytes() == path.read_bytes()
    assert not list(tmp_path.glob("*.part*"))


def test_parquet_of_many_rows_has_groups_and_takes_little_memory(job, tmp_path):
    path = tmp_path / "many.parquet"
    words = ["sh", "-c", 'ulimit -v 150000; exec "$@"', "sh", str(CLI), "-t", str(job.pid)]
    words += ["export", "-o", str(path),
              "select g as n, 'text ' || g as s from generate_series(1, 2000000) g"]
    done = subprocess.run(words, env=job.world.env, capture_output=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    data = path.read_bytes()
    footer = thrift(data, len(data) - 8 - struct.unpack("<I", data[-8:-4])[0])[0]
    groups = [group[3] for group in footer[4]]
    assert sum(groups) == footer[3] == 2000000 and len(groups) > 2
    assert min(groups[:-1]) > 100000 and max(groups) <= 1 << 20
    last = [column(data, schema, chunk, footer[4][-1]) for schema, chunk in
            zip(footer[2][1:], footer[4][-1][1])]
    first = 2000000 - groups[-1] + 1
    assert last[0] == list(range(first, 2000001))
    assert last[1] == ["text %d" % n for n in range(first, 2000001)]


READERS = {"duckdb": """
import duckdb
rows = duckdb.connect().execute('select n, even, km, place, epoch_ns("at") from read_parquet(?)',
                                [sys.argv[1]]).fetchall()
""", "pyarrow": """
import pyarrow.parquet
table = pyarrow.parquet.read_table(sys.argv[1])
table.validate(full=True)
assert str(table.schema.field("at").type) == "timestamp[ns, tz=UTC]"
table = table.set_column(4, "at", table["at"].cast("int64"))
rows = [list(row.values()) for row in table.to_pylist()]
"""}


@pytest.mark.parametrize("package", READERS)
def test_parquet_is_read_by(package, job, tmp_path):
    path = tmp_path / "a.parquet"
    export(job, "parquet", path, ALL)
    program = "import json, sys" + READERS[package] + "print(json.dumps(rows))"
    read = subprocess.run([str(python_with(package) / "python3"), "-c", program, str(path)],
                          capture_output=True, text=True)
    assert read.returncode == 0, read.stderr
    assert json.loads(read.stdout) == READ


def on_a_terminal(job, *words):
    """The command's text on its stderr when that is a terminal."""
    master, slave = os.openpty()
    done = subprocess.Popen([str(CLI), "-t", str(job.pid), "export", *words], stdout=slave,
                            stderr=slave, stdin=subprocess.DEVNULL, env=job.world.env)
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: it has ended, and all it wrote was read
        while more := os.read(master, 65536):
            shown += more
    os.close(master)
    shown = shown.decode()
    assert done.wait(LIMIT) == 0, shown
    return shown.replace("\r", "\n")


def test_progress_counts_rows(job, tmp_path):
    script = tmp_path / "some.lua"
    script.write_text('local t = probing.table("some", {{"n", "i64"}, {"text", "str"}})\n'
                      'for i = 1, 3000 do\n'
                      '    while not t:add{n = i, text = "a\\n\\"b" .. i} do end\nend\n')
    assert job.probing("script", "run", str(script)).returncode == 0
    wait_for(lambda: job.rows("select count(*) from script.some") == [[3000]], "the rows")
    for fmt in ("csv", "jsonl", "arrow"):
        shown = on_a_terminal(job, "--format", fmt, "--table", "script.some",
                              "-o", str(tmp_path / ("rows." + fmt)))
        assert "3000 rows, 0." in shown.strip().splitlines()[-1], (fmt, shown)
    job.kill()
    shown = on_a_terminal(job, "--format", "csv", "--table", "some", "-o", str(tmp_path / "dead"))
    assert "3000 rows" in shown and "incomplete" not in shown


def check_trace(trace):
    """The complete events, and what the trace event format asks of them."""
    names = [e for e in trace["traceEvents"] if e["ph"] == "M"]
    assert all(e["name"] in ("process_name", "thread_name") and e["args"]["name"] for e in names)
    assert len({(e["name"], e["pid"], e["tid"]) for e in names}) == len(names)
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e["ph"] != "M"]
    for event in trace["traceEvents"]:
        assert event["ph"] in "Xi" and isinstance(event["name"], str)
        assert isinstance(event["ts"], (int, float)) and isinstance(event["pid"], int)
        assert isinstance(event["tid"], int) and isinstance(event["args"], dict)
        assert event["ph"] != "X" or event["dur"] >= 0


TRACE = """select to_timestamp(10 + n) as ts, n * 1.0 as duration, 7 as tid,
    'layer.' || n as module, 'post forward' as stage, n as step
    from (select 1 as n union all select 2 union all select 3) as v"""


def fields(data):
    """A protocol buffer's message: {field: [values]}, lengths checked."""
    found, at = {}, 0

    def number():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        assert key & 7 in (0, 1, 2), "an unknown wire type"
        if key & 7 == 0:
            value = number()
        else:
            size = number() if key & 7 == 2 else 8
            value = data[at:at + size]
            assert len(value) == size
            at += size
        found.setdefault(key >> 3, []).append(value)
    return found


def perfetto_slices(data):
    """[(begin, end, name, tid or line, arguments)] of a Perfetto trace; by its own schema, too."""
    if has("perfetto"):
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        trace = perfetto_trace_pb2.Trace()
        trace.ParseFromString(data)
        assert not trace.FindInitializationErrors()
    tracks, opened, slices = {}, [], []
    for raw in fields(data)[1]:
        packet = fields(raw)
        if 60 in packet:
            track = fields(packet[60][0])
            if 4 in track:
                tracks[track[1][0]] = fields(track[4][0])[2][0]
            elif 2 in track:  # a line that is no thread's
                tracks[track[1][0]] = track[2][0].decode()
        if 11 in packet:
            event = fields(packet[11][0])
            if event[9] == [1]:
                arguments = {fields(a)[10][0].decode(): fields(a) for a in event.get(4, [])}
                opened.append((packet[8][0], event[23][0].decode(), event[11][0], arguments))
            elif event[9] == [2]:
                begin, name, track, arguments = opened.pop()
                slices.append((begin, packet[8][0], name, tracks[track], arguments))
    assert not opened
    return slices


def test_a_perfetto_trace(job, tmp_path):
    slices = perfetto_slices(export(job, "perfetto", tmp_path / "t.pftrace", TRACE))
    assert [s[:4] for s in slices] == [(10 * 10**9, (10 + n) * 10**9, "layer.%d" % n, 7)
                                       for n in (1, 2, 3)]
    assert slices[1][4]["step"][4] == [2]
    done = job.probing("export", "--format", "perfetto", "-o", str(tmp_path / "no"), "select 1 n")
    assert done.returncode == 1 and "column 'ts'" in done.stderr
    assert not (tmp_path / "no").exists()


def test_a_chrome_trace_begins_where_it_ends_less_its_duration(job, tmp_path):
    fmt = "chrome"
    trace = json.loads(export(job, fmt, tmp_path / "t.json", TRACE))
    check_trace(trace)
    events = trace["traceEvents"]
    assert [e["ts"] for e in events] == [10e6] * 3
    assert [e["name"] for e in events] == ["layer.1", "layer.2", "layer.3"]
    assert events[0]["args"]["step"] == 1 and events[0]["tid"] == 7
    done = job.probing("export", "--format", fmt, "-o", str(tmp_path / "no.json"), "select 1 as n")
    assert done.returncode == 1 and "column 'ts'" in done.stderr
    assert not (tmp_path / "no.json").exists()


TASKS = """select to_timestamp(10) as ts, thread_id as tid, comm as name from cpu.tasks
    where probing = 0"""


def test_a_trace_has_the_process_as_it_is(world, tmp_path):
    """Its pid was 0, or its rank; and nothing had a name."""
    job = world.start("/usr/bin/python3", "-u", "-c", "import threading, time\nprint('ready')\n"
                      "open('/proc/self/comm', 'w').write('first one')\nwhile True: time.sleep(1)")
    job.wait_line("ready")
    job.inject()
    command = "/usr/bin/python3 -u -c"
    for statement, thread in ((TASKS, "first one"), (TRACE.replace("7 as tid", "3 as rank"), None)):
        events = json.loads(export(job, "chrome", tmp_path / "t.json", statement))["traceEvents"]
        names = {e["name"]: e["args"]["name"] for e in events if e["ph"] == "M"}
        assert {e["pid"] for e in events} == {job.pid} and len(names) == 1 + bool(thread)
        assert names["process_name"].startswith(command) and names.get("thread_name") == thread
    assert events[-1]["args"]["rank"] == 3
    descriptors = perfetto_names(export(job, "perfetto", tmp_path / "t.pftrace", TASKS))
    assert descriptors[0][0] == job.pid and descriptors[0][1].startswith(command)
    assert descriptors[1] == (job.pid, "first one")
    job.kill()
    for target in (job, world.tmp / "data" / os.listdir(world.data)[0]):
        if target is not job:
            job.probing = lambda *args: world.probing("-t", str(target), *args)
        events = json.loads(export(job, "chrome", tmp_path / "t.json", TRACE))["traceEvents"]
        assert {e["pid"] for e in events} == {job.pid}
        assert events[0]["args"]["name"].startswith(command)


def perfetto_names(data):
    """(pid, name) of the processes and threads that a Perfetto trace describes."""
    found = []
    for raw in fields(data)[1]:
        packet = fields(raw)
        if 60 in packet:
            track = fields(packet[60][0])
            about = fields(track[3 if 3 in track else 4][0])
            name = about.get(6 if 3 in track else 5, [b""])[0].decode()
            found.append((about[1][0], name))
    return found


def test_torch_modules_nest(world, tmp_path):
    target = world.train("--steps", "1000000")
    target.inject("--plugin", "torch")
    wait_for(lambda: target.rows("select count(*) from python.torch_trace")[0][0] > 200, "rows")
    living = json.loads(export(target, "chrome", tmp_path / "live.json"))
    check_trace(living)
    assert len(living["traceEvents"]) > 200
    target.kill()
    dead = json.loads(export(target, "chrome", tmp_path / "dead.json"))
    check_trace(dead)
    assert len(dead["traceEvents"]) >= len(living["traceEvents"])
    whole = [e for e in dead["traceEvents"] if e.get("dur", 0) > 0]
    inner = [a for a in whole[:400] for b in whole[:400]
             if a is not b and a["tid"] == b["tid"] and b["ts"] < a["ts"] and
             a["ts"] + a["dur"] < b["ts"] + b["dur"]]
    assert inner, "no module's time lies within another's"
    slices = perfetto_slices(export(target, "perfetto", tmp_path / "dead.pftrace"))
    assert len(slices) == len([e for e in dead["traceEvents"] if e["ph"] == "X"])


def test_the_dead_are_exported_too(job, tmp_path):
    job.kill()
    rows = export(job, "jsonl", tmp_path / "dead.jsonl", VALUES).decode().splitlines()
    assert len(rows) == 3
    export(job, "arrow", tmp_path / "dead.arrow", VALUES)


def test_wrong_words_say_what_is_right(job, tmp_path):
    for words, said in ((["--table", "x"], "--format"),
                        (["--format", "xml", "--table", "x"], "use one of csv"),
                        (["--format", "csv"], "needs the name of a table"),
                        (["--format", "csv", "nowhere"], "nowhere"),
                        (["--format", "csv", "--table", "a", "b"], "not both"),
                        (["--format", "arrow", "--table", "a b"], "not the name of a table"),
                        (["--format", "csv", "--table", "nowhere"], "nowhere"),
                        (["--format", "csv", "-o", "/nonexistent/x", "select 1"], "/nonexistent")):
        done = job.probing("export", *words)
        assert done.returncode in (1, 2) and said in done.stderr, (words, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_table_by_its_name_alone(job, tmp_path):
    """It was taken for a statement: an error of SQL's."""
    text = export(job, "csv", tmp_path / "t.csv", "probing.commands").decode()
    rows = job.rows("select count(*) from probing.commands")[0][0]
    assert text.startswith("name,") and len(list(csv.DictReader(text.splitlines()))) >= rows > 5


@pytest.mark.parametrize("form", ["csv", "arrow", "pftrace"])
def test_a_name_that_ends_in_gz(job, tmp_path, form):
    plain, packed = tmp_path / ("t." + form), tmp_path / ("t.%s.gz" % form)
    for path in plain, packed:
        done = job.probing("export", "-o", str(path), TRACE)
        assert done.returncode == 0, done.stderr
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert not list(tmp_path.glob("*.part"))
    done = job.probing("query", "--format", "perfetto", TRACE)
    assert done.returncode != 0 and "export --format perfetto -o FILE" in done.stderr
