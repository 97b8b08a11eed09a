# SPDX-License-Identifier: Apache-2.0
"""probing.connect(): the client in the Python package, against a real process."""
import glob
import os
import subprocess
import sys
import threading

import pytest

from pythons import PYENV
from wire import open_door
from world import LIMIT, ROOT, wait_for

PACKAGE = str(ROOT / "plugins" / "python" / "package")
sys.path.insert(0, PACKAGE)
from probing import client  # noqa: E402

# Rows for as long as the script runs: n counts up.
ROWS = """local t = probing.table("rows", {n = "i64"})
local n = 0
probing.every("10ms", function() n = n + 1; t:add{n = n} end)
"""


@pytest.fixture
def door(world):
    return open_door(world)


@pytest.fixture
def job(door, monkeypatch):
    monkeypatch.setenv("PROBING_DATA_DIR", str(door.world.data))
    with client.connect(door.target.pid) as made:
        yield made


def test_every_form_of_a_target(door, monkeypatch):
    pid = str(door.target.pid)
    at = "127.0.0.1:%d" % door.port
    forms = [(door.sock, None), (str(door.directory), None), (at, door.token),
             ("http://%s/?token=%s" % (at, door.token), None), (at, door.read_token)]
    monkeypatch.setenv("PROBING_DATA_DIR", str(door.world.data))
    forms += [(pid, None), (door.target.pid, None), (at, None)]  # the token is found by itself
    for target, token in forms:
        with client.connect(target, token) as job:
            assert "pid: " + pid in job.run("info"), target
    monkeypatch.setenv("PROBING_TARGET", pid)
    with client.connect() as job:
        assert job.run("version")


def test_rows(job):
    rows = job.query("select 1 as n, 'ä' as s, null as nothing union all select 2, 'b;c', null")
    assert rows == [(1, "ä", None), (2, "b;c", None)] and rows.names == ["n", "s", "nothing"]
    assert rows.dicts()[1] == {"n": 2, "s": "b;c", "nothing": None}
    assert rows.column("n") == [1, 2] and rows.columns()["s"] == ["ä", "b;c"]
    assert (rows.lost, rows.truncated) == (0, False) and rows.elapsed_ms > 0


def test_eval_backtrace_and_any_command(job):
    assert job.eval("6 * 7") == "42\n"
    assert job.eval("print('--x')\n'ü'") == "--x\n'ü'\n"
    assert "MainThread" in job.backtrace()
    assert "probing.max_memory" in job.run("config")


def test_errors_have_code_and_hint(job):
    with pytest.raises(client.Error) as caught:
        job.query("select modul from probing.plugins")
    assert caught.value.code == "EINVAL" and "modul" in str(caught.value)
    with pytest.raises(client.Error) as caught:
        job.run("tabels")
    assert caught.value.code == "ENOENT" and caught.value.hint == "did you mean 'tables'?"
    with pytest.raises(client.Error) as caught:
        job.query("select '; x'::int")
    assert caught.value.hint == "" and "'; x' is not a bigint" in str(caught.value)
    with pytest.raises(client.Error) as caught:
        job.eval("1 / 0")
    assert caught.value.status == 1 and "ZeroDivisionError" in str(caught.value)
    with pytest.raises(client.Error) as caught:
        job.eval("while True: pass", timeout=0.2)
    assert caught.value.code in ("ETIMEDOUT", "FAILED")
    assert job.query("select 1") == [(1,)]  # the connection is as good as before


def test_wrong_token_and_nobody_there(door, monkeypatch):
    with pytest.raises(client.Error) as caught:
        client.connect("127.0.0.1:%d" % door.port, "wrong")
    assert caught.value.code == "EACCES" and "token" in caught.value.hint
    with client.connect("127.0.0.1:%d" % door.port, door.read_token) as job:
        with pytest.raises(client.Error) as caught:
            job.eval("1")
        assert caught.value.code == "EACCES"
    for target in (1 << 22, door.sock + "x", "127.0.0.1:1"):
        with pytest.raises(ConnectionError):
            client.connect(target)
    for target in ("", "host:port", "a:99999"):
        with pytest.raises(client.Error):
            client.connect(target)


def test_rows_of_a_table_as_they_arrive(job):
    job.run("script", "run", "rows", ROWS)
    with job.subscribe("script.rows", interval=0.02) as rows:
        seen = [next(rows)["n"] for _ in range(50)]
    assert seen == list(range(seen[0], seen[0] + 50))
    with job.subscribe("select n * 2 as twice from script.rows", interval=0.02, last=5) as rows:
        twice = [next(rows) for _ in range(10)]
    assert [set(row) for row in twice] == [{"twice"}] * 10
    assert [b["twice"] - a["twice"] for a, b in zip(twice, twice[1:])] == [2] * 9
    with job.watch("select count(*) as n from script.rows", interval=0.05) as answers:
        first, second = next(answers), next(answers)
    assert len(first) == len(second) == 1 and second[0]["n"] >= first[0]["n"] > 0
    with pytest.raises(client.Error) as caught:
        next(job.subscribe("script.rowz"))
    assert "script.rows" in caught.value.hint


def test_what_scripts_publish(job):
    job.run("script", "run", "says",
            'probing.every("10ms", function() probing.publish({a = 1}) end)')
    with job.follow("script.says") as events:
        assert [next(events) for _ in range(3)] == [("script.says", {"a": 1})] * 3


def test_threads_share_a_connection(job):
    answers = {}

    def ask(i):
        answers[i] = [job.query("select %d" % i)[0][0] for _ in range(50)]
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {i: [i] * 50 for i in range(8)}


def test_a_process_that_goes(door):
    job = client.connect(door.sock)
    stream = job.subscribe("select count(*) from probing.tables", interval=0.02)
    next(stream)
    door.target.kill()
    with pytest.raises(client.Gone):
        job.run("version")
    with pytest.raises(client.Gone):
        while True:
            next(stream)
    job.close()


def test_eject_is_told(door):
    with client.connect(door.sock) as job:
        stream = job.subscribe("select 1", interval=0.02)
        next(stream)
        assert "ejected" in job.run("eject")
        with pytest.raises(client.Error) as caught:
            while True:
                next(stream)
        assert "leaving" in str(caught.value)
    wait_for(lambda: not os.path.exists(door.sock), "the socket to go")


NONE = pytest.param("", marks=pytest.mark.skip(reason="no other Pythons here (pyenv)"))


@pytest.mark.parametrize("python", sorted(glob.glob(PYENV + "/*/bin/python3")) or [NONE])
def test_other_versions(door, python):
    source = ("import probing\n"
              "with probing.connect(%r) as job:\n"
              "    assert job.query('select 1 as n').dicts() == [{'n': 1}]\n"
              "    with job.subscribe('select 1 as n', interval=0.01) as rows:\n"
              "        assert next(rows) == {'n': 1}\n" % door.sock)
    done = subprocess.run([python, "-W", "error", "-c", source], capture_output=True, text=True,
                          env=dict(door.world.env, PYTHONPATH=PACKAGE), timeout=LIMIT)
    assert (done.returncode, done.stderr) == (0, "")


ODD = """select 9223372036854775807 as most, -9007199254740993 as odd, 3.0::double as three,
    'NaN' as t, 'nan'::double as nan, '-inf'::double as inf, null::double as none"""


def test_odd_numbers_are_numbers(job):
    """In streams NaN and infinities were texts, and 3.0 an int."""
    same = {"most": 2**63 - 1, "odd": -2**53 - 1, "three": 3.0, "t": "NaN", "inf": float("-inf"),
            "none": None}
    with job.watch(ODD, interval=0.02) as answers, job.subscribe(ODD, interval=0.02) as rows:
        for row in (job.query(ODD).dicts()[0], next(answers)[0], next(rows)):
            nan = row.pop("nan")
            assert type(nan) is float and nan != nan
            assert row == same and type(row["three"]) is float
