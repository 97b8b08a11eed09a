# SPDX-License-Identifier: Apache-2.0
"""HTTP as programs see it: the API's own description, metrics, compression, large answers."""
import gzip
import http.client
import json
import re
import shutil
import socket
import subprocess

import pytest

from world import LIMIT, ROOT, wait_for
from wire import http as ask
from wire import open_door

API = json.loads((ROOT / "core" / "server" / "page" / "openapi.json").read_text())


SPIN = "def spin():\n    while True: sum(range(1000))\nprint('ready')\nspin()\n"


@pytest.fixture
def door(world):
    return open_door(world, source=SPIN)


# ---- openapi.json ----

def test_api_describes_every_path_and_no_other():
    routes = (ROOT / "core" / "server" / "http_routes.c").read_text()
    served = {}
    for path, rest in re.findall(r'^    \{"(/[^"]*)", (ROUTE_.*)$', routes, flags=re.M):
        served[path] = {m for m in ("get", "post") if ".%s = true" % m in rest}
    assert len(served) > 10
    served["/ws"] = {"get"}
    assert {path: set(methods) for path, methods in API["paths"].items()} == served


def example(operation):
    """(query string, body) as the description says they should be."""
    given = {"q": "select+1", "mode": "cpu", "last": "1h", "threads": "1", "lines": "1"}
    names = [p["name"] for p in operation.get("parameters", ())]
    formats = [p["schema"]["enum"][1] for p in operation.get("parameters", ())
               if p["name"] == "format"]
    query = "&".join("%s=%s" % (n, formats[0] if n == "format" else given[n]) for n in names)
    media = operation.get("requestBody", {}).get("content", {})
    body = ('{"run":["plugin","list"],"timeout_ms":5000}' if "application/json" in media else
            "1" if operation.get("operationId") == "eval" else "select 1" if media else "")
    return "?" + query if query else "", body


def fits(operation, status, head, body):
    """Is this answer one that the description has?"""
    described = operation["responses"].get(str(status))
    assert described, "%s answers %d" % (operation["operationId"], status)
    if status == 101:
        return
    kind = next(h for h in head if h.lower().startswith("content-type:")).split(": ")[1]
    if "$ref" in described:
        described = API["components"]["responses"][described["$ref"].split("/")[-1]]
        assert set(json.loads(body)["error"]) == {"code", "message", "hint"}
    assert kind.split(";")[0] in described["content"], kind


@pytest.mark.parametrize("path", sorted(API["paths"]))
def test_server_does_what_the_api_describes(door, path):
    if path == "/flamegraph":
        assert door.target.probing("plugin", "load", "profile").returncode == 0
        wait_for(lambda: door.target.rows("select count(*) from python.samples")[0][0], "samples")
    for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"):
        operation = API["paths"][path].get(method.lower())
        query, body = example(operation or {})
        if method == "HEAD" and "get" in API["paths"][path]:
            continue  # GET without its answer: below
        status, head, text = ask(door.sock, method, path + query, body)
        if not operation:
            wrong = (426, None) if path == "/ws" else (405, ", ".join(
                {"get": "GET, HEAD"}.get(m, m.upper()) for m in sorted(API["paths"][path])))
            allowed = [h.split(": ")[1] for h in head if h.startswith("Allow: ")]
            assert (status, allowed[0] if allowed else None) == wrong, (method, status, head)
            continue
        assert status == (426 if path == "/ws" else 200), (method, status, text)
        fits(operation, status, head, text)
        # and without a token
        status, head, text = door.http(method, path + query, body)
        assert status == 401
        fits(operation, status, head, text)
        if operation.get("description", "").startswith("Changes the process"):
            status, head, text = door.http(method, path + query, body, token=door.read_token)
            assert status == 403
            fits(operation, status, head, text)


def test_flamegraph_for_who_may_only_read(door):
    """It draws what was sampled, and starts nothing itself."""
    status, _, text = door.http("GET", "/flamegraph", token=door.read_token)
    assert status == 404 and "plugin load profile" in json.loads(text)["error"]["hint"]
    assert door.target.probing("plugin", "load", "profile").returncode == 0
    wait_for(lambda: door.target.rows("select count(*) from python.samples")[0][0] > 5, "samples")
    for kind, begins in (("html", "<!DOCTYPE html>"), ("svg", "<?xml"), ("folded", "")):
        status, head, text = door.http("GET", "/flamegraph?format=%s&threads=1&last=1h" % kind,
                                       token=door.read_token)
        assert status == 200 and text.startswith(begins) and "spin (target-0.py)" in text, text
        assert any(h.startswith("Content-Security-Policy: sandbox allow-scripts") for h in head)
    assert re.search(r"^.*\(thread \d+\);.*spin \(target-0.py\) \d+$", text, flags=re.M), text
    for wrong in ("format=png", "mode=slow", "last=never"):
        assert door.http("GET", "/flamegraph?" + wrong, token=door.read_token)[0] == 400
    done = door.target.probing("flamegraph", "--last", "1h", "-f", "folded")
    assert "spin (target-0.py)" in done.stdout


def test_answers_have_the_described_form(door):
    schema = API["components"]["schemas"]["Answer"]
    answer = json.loads(ask(door.sock, "POST", "/query", "select 1 as n, 'a' as s")[2])
    assert set(answer) == set(schema["required"])
    assert set(schema["properties"]) - set(answer) == {"empty"}
    assert [c["name"] for c in answer["columns"]] == ["n", "s"] and answer["rows"] == [[1, "a"]]


def test_statement_may_begin_with_a_comment_or_an_option(door):
    assert json.loads(ask(door.sock, "POST", "/query", "-- why not\nselect 1")[2])["rows"] == [[1]]
    assert ask(door.sock, "GET", "/query?q=select+1+as+n&format=csv")[2] == "n\r\n1\r\n"
    assert ask(door.sock, "POST", "/eval", "--1")[2] == "1\n"
    assert ask(door.sock, "POST", "/eval", "1\0")[0] == 400


def test_head_is_get_without_its_answer(door):
    """RFC 9110, 9.3.2: the same status and header, and not one byte behind it."""
    for path in sorted(p for p, methods in API["paths"].items() if "get" in methods and p != "/ws"):
        path += "?q=select+1" if path == "/query" else ""
        status, head, text = ask(door.sock, "GET", path)
        kind = [h for h in head if h.startswith(("Content-Type", "Content-Encoding"))]
        told, told_head, nothing = ask(door.sock, "HEAD", path)
        assert (told, nothing) == (status, ""), path
        assert [h for h in told_head if h.startswith(("Content-Type", "Content-Enc"))] == kind
    assert ask(door.sock, "HEAD", "/nothing")[::2] == (404, "")
    assert ask(door.sock, "HEAD", "/eval")[::2] == (405, "")
    with socket.socket(socket.AF_UNIX) as s:  # and the next answer begins where it should
        s.connect(door.sock)
        s.sendall(b"HEAD /query?q=select+repeat('x',100000)&format=csv HTTP/1.1\r\nHost: localhost"
                  b"\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        both = s.makefile("rb").read()
    assert both.count(b"HTTP/1.1 200 OK") == 2 and b"xxx" not in both
    assert both.endswith(b"\r\n\r\nok\n")


def test_request_with_an_address_for_its_path(door):
    """RFC 9112, 3.2.2: as a client asks that thinks we are a proxy; its host is the Host."""
    where = "http://127.0.0.1:%d" % door.port
    for path in ("/healthz", "/query?q=select+1+as+n&format=csv", "/", ""):
        assert door.http("GET", where + path, token=door.token)[0] == 200, path
    assert door.http("GET", where + "?token=" + door.token, headers=["Accept: text/html"])[0] == 303
    assert door.http("GET", "http://rebind.example/healthz", token=door.token)[0] == 403
    assert door.http("GET", "HTTP://127.0.0.1/healthz", token=door.token, host="rebind.example")[
        0] == 200
    assert door.http("GET", "http://", token=door.token)[0] == 400


@pytest.mark.parametrize("sql, message, hint", [
    ("select ';x'::int", "';x' is not a bigint", ""),
    ("select '; x'::int", "'; x' is not a bigint", ""),
    ("select %s; x'::int" % ("'" * 3), "'; x' is not a bigint", ""),
    ('select * from "a;b"', 'a;b', None),
    ('select * from "a; b"', 'a; b', None),
])
def test_hint_is_not_in_the_users_text(door, sql, message, hint):
    error = json.loads(ask(door.sock, "POST", "/query", sql)[2])["error"]
    assert message in error["message"], error
    with door.wire(None, door.sock) as w:
        w.send({"id": 1, "run": ["query", sql]})
        end = w.receive()
    assert end.get("hint", "") == error["hint"]
    assert end["error"] == error["message"] + ("; " + error["hint"] if error["hint"] else "")
    assert hint is None or error["hint"] == hint


# ---- the page ----

def test_page_for_a_browser(door):
    status, head, page = door.http("GET", "/", token=door.token, headers=["Accept: text/html,*/*"])
    assert status == 200 and "<!doctype html>" in page
    policy = next(h for h in head if h.startswith("Content-Security-Policy: "))
    assert "default-src 'self'" in policy and "Referrer-Policy: no-referrer" in head
    for script in re.findall(r'src="(/[^"]+)"', page) + ["/client.js"]:
        status, head, _ = door.http("GET", script, token=door.token)
        assert status == 200 and "Content-Type: text/javascript; charset=utf-8" in head
    assert "process %d" % door.target.pid in door.http("GET", "/", token=door.token)[2]


def test_browser_without_a_token_is_asked_for_it(door):
    for path in ("/", "/?token=wrong", "/metrics"):
        status, head, page = door.http("GET", path, headers=["Accept: text/html,*/*"])
        assert status == 401 and "Content-Type: text/html; charset=utf-8" in head
        field = re.search(r'<form action="/" method="get">.*<input name="(\w+)"', page, re.S)
        assert field and field.group(1) == "token" and "ui</code>" in page
        assert str(door.target.pid) not in page and not any("Set-Cookie" in h for h in head)
    assert json.loads(door.http("GET", "/")[2])["error"]["code"] == "EACCES"  # for programs


def test_token_leaves_the_address_bar(door):
    status, head, _ = door.http("GET", "/?token=" + door.token, headers=["Accept: text/html"])
    assert status == 303 and "Location: /" in head
    cookie = next(h for h in head if h.startswith("Set-Cookie: ")).split(": ")[1].split(";")[0]
    assert door.http("GET", "/", headers=["Accept: text/html", "Cookie: " + cookie])[0] == 200


# ---- metrics ----

FAMILY = re.compile(r"# (TYPE|UNIT|HELP) ([a-z_]+) (.+)")
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (-?[0-9.e+-]+)')


def read_openmetrics(text):
    """{sample: value}; the rules of the format that a program can judge are checked."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""]
    family, seen, samples = None, {}, {}
    for line in lines[:-2]:
        told = FAMILY.fullmatch(line)
        if told:
            kind, name, value = told.groups()
            if kind == "TYPE":
                assert name not in seen, "a family comes twice: " + name
                family, seen[name] = name, value
            assert name == family, line
            assert kind != "UNIT" or name.endswith("_" + value), line
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        name, labels, value = sample.groups()
        assert name == family + ("_total" if seen[family] == "counter" else ""), line
        key = name + ("{%s}" % labels if labels else "")
        assert key not in samples, "a sample comes twice: " + key
        samples[key] = float(value)
    return samples


def test_metrics_are_openmetrics(door):
    status, head, text = door.http("GET", "/metrics", token=door.read_token)
    assert status == 200
    assert "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8" in head
    samples = read_openmetrics(text)
    pid = door.target.pid
    with open("/proc/%d/status" % pid) as lines:
        threads = next(int(line.split()[1]) for line in lines if line.startswith("Threads"))
    assert abs(samples["process_threads"] - threads) <= 2  # workers come and go
    assert samples["process_resident_memory_bytes"] > 1 << 20
    assert samples['probing_plugin_running{plugin="python"}'] == 1
    assert samples['probing_server_connections{door="tcp"}'] == 1
    assert samples['probing_threads{thread="probing/drain"}'] == 1
    before = samples["probing_server_requests_total"]
    door.target.rows("select 1")
    after = read_openmetrics(door.http("GET", "/metrics", token=door.token)[2])
    assert after["probing_server_requests_total"] >= before + 2


def test_metrics_of_tables(door):
    script = door.world.tmp / "rows.lua"
    script.write_text('local t = probing.table("r", {n = "i64"})\n'
                      'for i = 1, 7 do t:add{n = i} end\n')
    assert door.target.probing("script", "run", str(script)).returncode == 0
    assert door.target.rows("select count(*) from script.r") == [[7]]
    samples = read_openmetrics(ask(door.sock, "GET", "/metrics")[2])
    table = 'table="script.r"'
    assert samples["probing_table_appended_rows_total{%s}" % table] == 7
    assert samples["probing_table_rows{%s}" % table] == 7
    assert samples['probing_table_lost_rows_total{%s,reason="ring_full"}' % table] == 0


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool (Debian: prometheus)")
def test_promtool_finds_no_fault(door):
    """It reads the older text format; the content is the same."""
    status, head, text = ask(door.sock, "GET", "/metrics", headers=["Accept: text/plain"])
    assert status == 200 and "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                          text=True, timeout=LIMIT)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_prometheus_client_reads_them(door):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser",
                                 reason="no prometheus_client (Debian: python3-prometheus-client)")
    text = ask(door.sock, "GET", "/metrics")[2]
    families = {f.name: f for f in parser.text_string_to_metric_families(text)}
    assert families["probing_table_lost_rows"].type == "counter" or families


# ---- transport ----

def connection(door):
    made = http.client.HTTPConnection("localhost", timeout=LIMIT)
    made.sock = socket.socket(socket.AF_UNIX)
    made.sock.settimeout(LIMIT)
    made.sock.connect(door.sock)
    return made


def test_one_connection_serves_many_requests(door):
    made = connection(door)
    for i in range(200):
        made.request("POST", "/query", "select %d" % i)
        answer = made.getresponse()
        assert json.loads(answer.read())["rows"] == [[i]] and not answer.will_close
    made.close()


def test_pipelined_requests_are_answered_in_order(door):
    requests = b"".join(b"POST /query?format=csv HTTP/1.1\r\nHost: localhost\r\n"
                        b"Content-Length: %d\r\n\r\nselect %d" % (len("select %d" % i), i)
                        for i in range(100))
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(LIMIT)
        s.connect(door.sock)
        s.sendall(requests + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = s.makefile("rb").read().decode()
    assert re.findall(r"\r\n\r\n[^\r]*\r\n(\d+)\r\n", answer) == [str(i) for i in range(100)]
    assert answer.endswith("ok\n")


def test_gzip_when_the_client_offers_it(door):
    def body(offer, sql):
        made = connection(door)
        headers = {"Accept-Encoding": offer} if offer else {}
        made.request("POST", "/query?format=csv", sql, headers)
        answer = made.getresponse()
        return answer.getheader("Content-Encoding"), answer.read()
    short = "select 1 as n"
    some = "select name, doc from probing.commands"
    much = ("with d as (select * from (values (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)) as v(n)) "
            "select a.n, b.n, c.n, e.n, f.n, 'some words that repeat' as words from d as a "
            "cross join d as b cross join d as c cross join d as e cross join d as f")
    for sql in (some, much):
        how, plain = body(None, sql)
        assert how is None
        how, small = body("br, gzip;q=0.5", sql)
        assert how == "gzip" and gzip.decompress(small) == plain
        assert len(small) * 3 < len(plain) * 2
    assert body("gzip", short)[0] is None  # it would be longer
    for offer in ("gzip;q=0", "identity", "x-gzip"):
        assert body(offer, some)[0] is None, offer


def memory_kb(pid):
    with open("/proc/%d/status" % pid) as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def test_large_answer_is_streamed_in_bounded_memory(door):
    """100 MB to a reader that is slower than the query."""
    before = memory_kb(door.target.pid)
    made = connection(door)
    made.request("POST", "/eval",
                 "import sys\nfor _ in range(100): sys.stdout.write('x' * 1000000)")
    answer = made.getresponse()
    assert answer.getheader("Transfer-Encoding") == "chunked"
    total, most = 0, 0
    while True:
        part = answer.read(1 << 20)
        if not part:
            break
        total += len(part)
        most = max(most, memory_kb(door.target.pid))
    assert total >= 100 * 1000000
    assert most - before < 40 << 10, "%d KB more" % (most - before)
