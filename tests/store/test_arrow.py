# SPDX-License-Identifier: Apache-2.0
"""Answers as Arrow streams, made by the engine: by the command, HTTP and the clients, alive and
dead, read by pyarrow and held against the same answers in JSON."""
import http.client
import json
import random
import struct
import subprocess
import sys
import time

import pytest

from readers import python_with
from world import CLI, CORE, LIMIT, ROOT, wait_for

sys.path.insert(0, str(ROOT / "tests" / "server"))
from wire import IDLE, dial, open_door  # noqa: E402

PACKAGE = str(ROOT / "plugins" / "python" / "package")
TYPE = "application/vnd.apache.arrow.stream"

# Pyarrow's view of the streams that are named, as JSON; doubles as bits, times as ns.
READ = """
import json, pyarrow.ipc, struct, sys
def cells(column):
    kind = str(column.type)
    if kind.startswith(("timestamp", "duration")): return column.cast("int64").to_pylist()
    if kind.startswith("date"): return [v and v.isoformat() for v in column.to_pylist()]
    bits = {"double": lambda v: struct.pack(">d", v).hex(), "binary": bytes.hex}.get(kind)
    return [v if v is None or not bits else bits(v) for v in column.to_pylist()]
for path in sys.argv[1:]:
    notes, batches, why = {}, [], ""
    try:
        with pyarrow.ipc.open_stream(open(path, "rb").read()) as stream:
            schema = stream.schema
            while True:
                try: batch, more = stream.read_next_batch_with_custom_metadata()
                except StopIteration: break
                batches.append(batch)
                notes.update({k.decode(): v.decode() for k, v in (more or {}).items()})
        table = pyarrow.Table.from_batches(batches, schema)
        table.validate(full=True)
    except (OSError, pyarrow.ArrowInvalid) as error:
        print(json.dumps({"refused": str(error)}))
        continue
    print(json.dumps({"names": table.column_names, "types": [str(f.type) for f in table.schema],
        "about": [{k.decode(): v.decode() for k, v in (f.metadata or {}).items()} for f in schema],
        "columns": [cells(c) for c in table.columns], "rows": table.num_rows,
        "batches": len(batches), "notes": notes}))
"""

EVERY_TYPE = """select 9223372036854775807 as n, -0.0 as d, 'ä' || chr(10) as s,
        'äb'::blob as b, true as t, to_timestamp(1.5) as at, date '1969-12-31' as day,
        interval '90 min' as took, interval '14 mons' as months, null as nothing
    union all select -9223372036854775807, 'nan'::double, '', ''::blob, false,
        timestamp '1969-12-31 23:59:59.999999999', date '2024-02-29', interval '-1 ns',
        interval '1 year', null
    union all select null, 'inf'::double, null, null, null, null, null, null, null, null
    union all select 1, null, 'x', null, null, null, null, null, null, null"""


def bits(number):
    return struct.pack(">d", number).hex()


def read(*paths):
    """The rows that pyarrow reads from each."""
    done = subprocess.run([str(python_with("pyarrow") / "python3"), "-c", READ, *map(str, paths)],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class Http(http.client.HTTPConnection):
    """By the unix socket, or with a token."""
    def __init__(self, where, token=None):
        super().__init__("localhost")
        self.where, self.head = where, {"Authorization": "Bearer " + token} if token else {}

    def connect(self):
        self.sock = dial(self.where)

    def post(self, path, body, accept="*/*"):
        """(status, content type, body)"""
        self.request("POST", path, body.encode(), dict(self.head, Accept=accept))
        answer = self.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()


@pytest.fixture
def job(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    return target


def arrow(target, sql, path, *words):
    """The command's exit status and what it says; its answer lies in `path`."""
    with open(path, "wb") as file:
        done = subprocess.run([str(CLI), "-t", str(target.pid), "query", "--format", "arrow",
                               *words, sql], stdout=file, stderr=subprocess.PIPE, text=True,
                              env=target.world.env, timeout=LIMIT)
    return done.returncode, done.stderr


def test_every_type_alive_and_dead(job, tmp_path):
    for state in ("alive", "dead"):
        assert arrow(job, EVERY_TYPE, tmp_path / state) == (0, "")
        assert arrow(job, EVERY_TYPE + " limit 0", tmp_path / (state + "0"))[0] == 0
        job.kill()
    table, empty, *dead = read(*[tmp_path / n for n in ("alive", "alive0", "dead", "dead0")])
    assert dead == [table, empty]
    assert table["types"] == ["int64", "double", "string", "binary", "bool",
                              "timestamp[ns, tz=UTC]", "date32[day]", "duration[ns]", "string",
                              "string"]
    assert table["columns"] == [
        [2**63 - 1, -2**63 + 1, None, 1],
        [bits(-0.0), bits(float("nan")), bits(float("inf")), None],
        ["ä\n", "", None, "x"], ["c3a462", "", None, None], [True, False, None, None],
        [1500000000, -1, None, None], ["1969-12-31", "2024-02-29", None, None],
        [5400 * 10**9, -1, None, None], ["1 year 2 mons", "1 year", None, None], [None] * 4]
    assert empty == dict(table, columns=[[]] * 10, rows=0, batches=0)
    assert table["about"][8] == {"type": "interval"}


def test_values_as_they_were_appended(world, tmp_path):
    """Through JSON every NaN became the same."""
    target = world.python("import probing, time, struct; probing.init()\n"
                          "t = probing.table('odd', {'k': int, 'b': float, 's': str})\n"
                          "odd = ['7ff8000000000001', 'fff8000000000000', 'fff0000000000000', "
                          "'8000000000000000']\n"
                          "for k, b in enumerate(odd):\n"
                          "    t.append(k, struct.unpack('>d', bytes.fromhex(b))[0], 'a\\0' * k)\n"
                          "print('ready', flush=True)\ntime.sleep(1000)",
                          env={"PYTHONPATH": PACKAGE, "PROBING_LIBRARY": str(CORE)})
    target.wait_line("ready")
    wait_for(lambda: target.rows("select count(*) from python.odd") == [[4]], "the rows")
    for state in ("alive", "dead"):
        sql = "select k, b, s from python.odd order by k"
        assert arrow(target, sql, tmp_path / state) == (0, "")
        target.kill()
    alive, dead = read(tmp_path / "alive", tmp_path / "dead")
    assert alive == dead
    assert alive["columns"][1] == ["7ff8000000000001", "fff8000000000000", "fff0000000000000",
                                   "8000000000000000"]
    assert alive["columns"][2] == ["a\0" * k for k in range(4)]


def test_columns_carry_their_units_and_docs(job, tmp_path):
    assert arrow(job, "select name, bytes, doc from probing.tables", tmp_path / "t")[0] == 0
    about = dict(zip(("name", "bytes", "doc"), read(tmp_path / "t")[0]["about"]))
    docs = {row[0]: row[-1] for row in job.rows("describe probing.tables")}
    assert about["bytes"]["unit"] == "bytes" and "unit" not in about["name"]
    assert about["name"]["doc"] == docs["name"]


# ---- what is not whole ----

BREAKS = "select 1000000 / (900000 - n) as n from generate_series(1, 1000000) g(n)"


def test_what_broke_off_is_refused_by_readers(world, tmp_path):
    """A stream that just ends is whole to all of them."""
    door = open_door(world)
    code, said = arrow(door.target, BREAKS, tmp_path / "command")
    assert code == 1 and "division by zero" in said
    with pytest.raises(http.client.IncompleteRead) as broken:
        Http(door.port, door.token).post("/query?format=arrow", BREAKS)
    (tmp_path / "http").write_bytes(broken.value.partial)
    code, said = arrow(door.target, "select 1 where", tmp_path / "never")
    assert code == 1 and (tmp_path / "never").stat().st_size == 0
    assert all("metadata" in r["refused"] for r in read(tmp_path / "command", tmp_path / "http"))


def test_a_process_that_dies_meanwhile(job, tmp_path):
    with open(tmp_path / "dying", "wb") as file:
        asked = subprocess.Popen([str(CLI), "-t", str(job.pid), "query", "--format", "arrow",
                                  "select n, 'x' || n from generate_series(1, 2000000000) g(n)"],
                                 stdout=file, stderr=subprocess.PIPE, env=job.world.env, text=True)
        wait_for(lambda: (tmp_path / "dying").stat().st_size > 4 << 20, "a few batches")
        job.kill()
        said = asked.communicate(timeout=LIMIT)[1]
    assert asked.returncode == 1 and "died" in said
    assert "refused" in read(tmp_path / "dying")[0]


def test_what_is_left_out_is_in_the_stream_too(job, tmp_path):
    some = "select n from generate_series(1, 100000) g(n)"
    code, said = arrow(job, some, tmp_path / "cut", "--limit", "5")
    assert code == 0 and "incomplete: stopped after 5 rows" in said
    assert arrow(job, some, tmp_path / "whole") == (0, "")
    cut, whole = read(tmp_path / "cut", tmp_path / "whole")
    assert cut["notes"] == {"truncated": "true"} and cut["rows"] == 5
    assert whole["notes"] == {} and whole["rows"] == 100000 and whole["batches"] > 5
    job.kill()  # the dead said nothing of it in csv and jsonl, either
    for fmt in ("csv", "arrow"):
        done = subprocess.run([str(CLI), "-t", str(job.pid), "query", "--format", fmt, "--limit",
                               "5", some], capture_output=True, env=job.world.env, timeout=LIMIT)
        assert b"incomplete: stopped after 5 rows" in done.stderr, fmt


# ---- other ways to it ----

def test_by_http_and_by_the_client(world, tmp_path, monkeypatch):
    door = open_door(world)
    sql = "select 1 as n, 2.5 as d, 'ä' as s"
    answers = [Http(door.port, door.token).post("/query?format=arrow", sql),
               Http(door.port, door.token).post("/query", sql, TYPE),
               Http(door.port, door.read_token).post("/query", sql, TYPE),
               Http(door.sock).post("/run", '{"run": ["query", "--format", "arrow", "%s"]}' % sql)]
    assert [answer[:2] for answer in answers] == [(200, TYPE)] * 4
    monkeypatch.syspath_prepend(PACKAGE)
    from probing import client
    with client.connect(str(door.directory)) as job:
        streams = [body for _, _, body in answers] + [job.arrow(sql)]
        with pytest.warns(UserWarning, match="incomplete: stopped after 2 rows"):
            job.run("query", "--format", "arrow", "--limit", "2", "values (1), (2), (3)")
        with pytest.raises(client.Error, match="division by zero"):
            job.arrow(BREAKS)
        assert len(job.arrow("select n from generate_series(1, 1000000) g(n)")) > 8000000
    assert all(stream == streams[0] for stream in streams)
    (tmp_path / "s").write_bytes(streams[0])
    assert read(tmp_path / "s")[0]["columns"] == [[1], [bits(2.5)], ["ä"]]


def test_ways_that_carry_text_only_refuse_it(world):
    door = open_door(world)
    with door.wire(None, path=door.sock) as wire:
        wire.send({"id": 1, "watch": "select 1", "format": "arrow"})
        status, _, error = wire.end(1)
        assert status == -22 and "not arrow" in error
    with dial(door.sock) as text:
        text.sendall(b"query --format arrow 'select 1'\nquit\n")
        assert text.makefile().read().startswith("error: arrow is bytes")


# ---- answers at random ----

NUMBERS = ("n", "-n * 3", "n % 7", "n * 0.1", "'nan'::double", "-1e300", "5e-324", "length('x')",
           "case when n % 3 = 0 then null else n end", "sum(n * 0.5) over (order by n)",
           "case when n % 4 = 1 then '-inf'::double when n % 4 = 2 then null else n / 7.0 end")
OTHERS = ("'t' || n", "repeat('é', (n % 40)::bigint)", "case when n % 2 = 0 then null else 'x' end",
          "n % 2 = 0", "case when n % 3 = 0 then null else n % 2 = 0 end", "date '2024-02-29' - n",
          "case when n % 5 = 0 then null else date '1970-01-01' + n end", "to_timestamp(n)",
          "to_timestamp(-n * 0.001)", "null", "interval '2 mons' * n", "('b' || n)::blob",
          "lag('z' || n) over (order by n)", "case when n % 9 = 1 then to_timestamp(n) end")
ROWS = (0, 1, 7, 8, 9, 255, 256, 257, 2047, 2048, 2049, 5000, 17000)


def statement(rng):
    columns = [rng.choice(rng.choice((NUMBERS, OTHERS))) for _ in range(rng.randrange(1, 7))]
    text = "select %s from generate_series(1, %d) g(n)" % (
        ", ".join("%s as c%d" % pair[::-1] for pair in enumerate(columns)), rng.choice(ROWS))
    return text + rng.choice(("", "", " where n % 3 = 1", " order by n desc limit %d"
                              % rng.randrange(300), " union all select %s from generate_series(1, "
                              "3) g(n)" % ", ".join(rng.choice((c, "null")) for c in columns)))


def as_json(kind, cell):
    """A cell of pyarrow's as JSON has it; doubles stay bits."""
    if cell is None or kind in ("int64", "bool", "string", "date32[day]", "null", "double"):
        return cell
    if kind == "binary":
        return "\\x" + cell
    seconds, ns = divmod(cell, 10**9)
    assert kind.startswith("timestamp")
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + ".%09dZ" % ns


def number(cell):
    """A double of JSON's, as bits."""
    return None if cell is None else bits(float(cell))


def test_random_answers_are_those_of_json(job, tmp_path):
    rng = random.Random(20261122)
    asked = Http(str(next(job.world.data.glob("%d-*" % job.pid)) / "sock"))
    statements, answers, paths = [statement(rng) for _ in range(150)], [], []
    for i, sql in enumerate(statements):
        status, _, body = asked.post("/query", sql)
        assert status == 200, (sql, body)
        answers.append(json.loads(body))
        status, _, body = asked.post("/query?format=arrow", sql)
        paths.append(tmp_path / ("%d.arrow" % i))
        paths[-1].write_bytes(body)
        assert status == 200, (sql, body)
    for sql, answer, table in zip(statements, answers, read(*paths)):
        assert table["names"] == [c["name"] for c in answer["columns"]], sql
        for i, kind in enumerate(table["types"]):
            cells = [row[i] for row in answer["rows"]]
            cells = list(map(number, cells)) if kind == "double" else cells
            assert [as_json(kind, c) for c in table["columns"][i]] == cells, (sql, i)
