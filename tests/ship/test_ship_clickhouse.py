# SPDX-License-Identifier: Apache-2.0
"""`probing ship --to clickhouse+http://...`: statements and Arrow as ClickHouse itself reads them
(chdb is its engine in a library), and each row once."""
import re
import subprocess
import sys
import urllib.parse

import pytest
from shipping import (add, receive, ship, start_job, start_ship, state_of,  # noqa: F401
                      stored)
from world import wait_for

# ClickHouse's engine, one statement a request, in a process of its own: it takes the GIL for long.
ENGINE = """
import http.server, os, sys, threading, urllib.parse
from chdb import session
engine, lock = session.Session(sys.argv[1]), threading.Lock()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with lock:
            status, text = self.run(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def run(self, body):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        statement = query["query"][0] if "query" in query else body.decode()
        status = 200
        try:
            if "query" in query:
                with open(sys.argv[2], "wb") as out:
                    out.write(body)
                head, columns = statement.split(" FORMAT ")[0].split(" (", 1)
                token = query["insert_deduplication_token"][0]
                statement = ("%s (%s SELECT %s FROM file('%s', 'ArrowStream') SETTINGS "
                             "insert_deduplicate = 1, insert_deduplication_token = '%s'"
                             % (head, columns, columns.rstrip(")"), sys.argv[2], token))
            text = engine.query(statement, "TabSeparated").bytes()
        except Exception as e:
            text, status = str(e).encode(), 404 if "UNKNOWN_TABLE" in str(e) else 500
        if os.path.exists(sys.argv[3]) and "query" in query:
            os.unlink(sys.argv[3])
            status = 500
        return status, text
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print("port", server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.fixture
def clickhouse(world):
    pytest.importorskip("chdb")
    script = world.tmp / "engine.py"
    script.write_text(ENGINE)
    engine = world.start(sys.executable, "-u", str(script), str(world.tmp / "clickhouse"),
                         str(world.tmp / "body"), str(world.tmp / "answer_lost"))
    engine.port = int(engine.wait_line(r"port (\d+)").group(1))

    def ask(statement):
        done = subprocess.run(["curl", "-s", "--data-binary", "@-",
                               "http://127.0.0.1:%d/" % engine.port], input=statement,
                              capture_output=True, text=True, check=True)
        return [line.split("\t") for line in done.stdout.splitlines()]
    engine.ask = ask
    return engine


def test_rows_in_clickhouse(world, clickhouse):
    ranks = start_job(world, 2)
    for rank in ranks:
        add(rank, 25)
    to = "clickhouse+http://127.0.0.1:%d" % clickhouse.port
    targets = "%d,%d" % (ranks[0].pid, ranks[1].pid)
    done = ship(world, targets, to, "--tables", "python.loss")
    assert done.returncode == 0 and "sent 50 rows" in done.stderr, done.stderr
    assert clickhouse.ask("select _rank, count(), sum(step), sum(loss), countIf(ok = 1), "
                          "count(note), max(note), uniq(_process) from probing.python_loss "
                          "group by 1 order by 1") == [
        [str(r), "25", "300", "75", "9", "5", "n5 ü", "1"] for r in range(2)]
    kinds = dict(r[:2] for r in clickhouse.ask("describe probing.python_loss"))
    assert kinds["ts"] == "DateTime64(9, \\'UTC\\')" and kinds["step"] == "Nullable(Int64)"
    assert kinds["_process"] == "String" and kinds["ok"] in ("Nullable(Bool)", "Nullable(Int64)")
    ns = {int(a): b for a, b in clickhouse.ask("select step, toUnixTimestamp64Nano(ts) from "
                                               "probing.python_loss where _rank = 0")}
    for step, at in ranks[0].rows("select step, epoch_ns(ts) from python.loss"):
        assert int(ns[step]) == at


def test_an_answer_that_is_lost_makes_no_row_twice(world, clickhouse):
    rank, = start_job(world)
    add(rank, 30)
    (world.tmp / "answer_lost").touch()
    done = ship(world, str(rank.pid), "clickhouse+http://127.0.0.1:%d/?database=runs"
                % clickhouse.port, "--tables", "python.loss")
    assert done.returncode == 0 and "it takes rows again" in done.stderr, done.stderr
    assert clickhouse.ask("select count(), uniq(step) from runs.python_loss") == [["30", "30"]]


def test_killed_and_a_table_that_is_dropped(world, clickhouse):
    rank, = start_job(world)
    to = "clickhouse+http://127.0.0.1:%d" % clickhouse.port
    count = "select count(), uniq(step) from probing.python_loss"

    def has(n):
        return clickhouse.ask(count)[:1] == [[str(n), str(n)]]
    for turn in range(3):
        add(rank, 100)
        process = start_ship(world, str(rank.pid), to, "--tables", "python.loss")
        wait_for(lambda n=100 * (turn + 1): has(n), "rows")
        process.kill()
    assert ship(world, str(rank.pid), to, "--tables", "python.loss").returncode == 0
    assert has(300)
    process = start_ship(world, str(rank.pid), to, "--tables", "python.loss")
    clickhouse.ask("drop table probing.python_loss sync")
    add(rank, 7)
    wait_for(lambda: has(7), "the table again")
    assert len(stored(rank)) == 307


def test_who_is_no_clickhouse_gets_no_rows(world, receive):  # noqa: F811
    rank, = start_job(world)
    add(rank, 5)
    to = receive(lambda receiver, request: (200, {}, b"ok"))
    done = ship(world, str(rank.pid), "clickhouse+http://127.0.0.1:%d" % to.port, "--tables",
                "python.loss")
    assert done.returncode == 1 and "is no ClickHouse" in done.stderr
    assert len(to.requests) == 1


@pytest.mark.parametrize("refusal,said", [
    ((500, {"X-ClickHouse-Exception-Code": "53"}, b"Code: 53. DB::Exception: no"),
     "ClickHouse refuses it: Code: 53"),
    ((414, {}, b"so many columns\n"), " answers 414: so many columns")], ids=["code", "414"])
def test_a_table_that_is_refused_keeps_its_place_and_holds_up_no_other(
        world, receive, refusal, said):  # noqa: F811
    rank, = start_job(world)
    add(rank, 5)
    done = rank.probing("eval", "other = probing.table('other', {'n': int})\nother.append(1)")
    assert done.returncode == 0, done.stderr

    def answer(receiver, request):
        if b"SELECT 'probing'" in request["body"]:
            return 200, {}, b"probing\n"
        if "python_loss" in request["path"] + request["body"].decode(errors="replace"):
            return refusal
        return 200, {}, b""
    to = receive(answer)
    done = ship(world, str(rank.pid), "clickhouse+http://127.0.0.1:%d" % to.port)
    assert done.returncode == 1 and "sent 1 rows" in done.stderr, done.stderr
    assert re.search(r"python\.loss: .*" + said, done.stderr)
    tables = {t[2]: t for t in state_of(world)[1][0]["tables"]}
    assert tables["loss"][3] == 0 and tables["other"][3] == 1


def test_words_that_clickhouse_gets(world, receive):  # noqa: F811
    """Without the engine: what is asked, in which order, and that a batch has one name."""
    rank, = start_job(world)
    add(rank, 5)
    failed = []

    def answer(receiver, request):
        if b"SELECT 'probing'" in request["body"]:
            return 200, {}, b"probing\n"
        if "INSERT" in request["path"] and not failed:
            failed.append(1)
            return None
        return 200, {}, b""
    to = receive(answer)
    done = ship(world, str(rank.pid), "clickhouse+http://u@127.0.0.1:%d" % to.port, "--tables",
                "python.loss", env={"PROBING_SHIP_SECRET": "p"})
    assert done.returncode == 0, done.stderr
    said = [r["body"].decode()[:20] for r in to.requests[:4]]
    assert [s.split("`")[0] for s in said] == ["SELECT 'probing'", "CREATE DATABASE IF N"[:20],
                                               "CREATE TABLE IF NOT ", "ALTER TABLE "], said
    inserts = [urllib.parse.parse_qs(urllib.parse.urlsplit(r["path"]).query)
               for r in to.requests if "INSERT" in r["path"]]
    assert len(inserts) == 2
    assert len({i["insert_deduplication_token"][0] for i in inserts}) == 1
    assert inserts[0]["query"][0].endswith(") FORMAT ArrowStream")
    assert all(r["headers"]["Authorization"].startswith("Basic ") for r in to.requests)


def test_two_with_state_files_of_their_own(world, receive):  # noqa: F811
    """Beside each other: of the second no row goes, which would be there twice."""
    rank, = start_job(world)
    add(rank, 5)

    def answer(receiver, request):
        return 200, {}, b"probing\n" if b"SELECT 'probing'" in request["body"] else b""
    to = receive(answer)
    words = (str(rank.pid), "clickhouse+http://127.0.0.1:%d" % to.port, "--tables", "python.loss")

    def inserts():
        return [r for r in to.taken() if "INSERT" in r["path"]]
    first = start_ship(world, *words)
    wait_for(inserts, "the rows of the first")
    words = (world, *words, "--state", str(world.tmp / "state" / "other.json"))
    done = ship(*words)
    assert done.returncode == 1 and "(process %d on " % first.pid in done.stderr, done.stderr
    assert len(inserts()) == 1
    first.kill()
    done = ship(*words)  # which cannot know what the first has sent, and nobody holds it any more
    assert done.returncode == 0 and "sent 5 rows" in done.stderr, done.stderr
