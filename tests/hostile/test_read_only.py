# SPDX-License-Identifier: Apache-2.0
"""What the read-only token gives: a table of all that can be asked, and by whom.

The core is asked what commands, tables, routes and functions it has.  One that is not in the table
here fails the test: whoever adds one says what a client may do with it who may only read.
"""
import json
import re
import socket
import sys
import time
from urllib.parse import quote

import pytest

from world import CORE, LIMIT, ROOT, wait_for

sys.path.insert(0, str(ROOT / "tests" / "server"))
from wire import Door  # noqa: E402

CANARY = "zq7canary"  # in every secret below, and nowhere else
AWS = "AKIAZQ7CANARY0EXAMP1"

PROGRAM = """
import sys, threading, time; sys.path.insert(0, %(package)r)
import probing
probing.init()
class Sly:
    def __repr__(self):
        global ran
        ran += 1
        return "Sly(password='%(canary)s-repr')"
ran = rounds = 0
secrets = probing.table("secrets", {"name": str, "value": str, "line": str, "password": str})
def login(user, password, api_key, config):
    token = "%(canary)s-token"
    url = "postgres://me:%(canary)s-url@host/db"
    aws = "%(aws)s"
    sly = Sly()
    request = 'POST /login {"password": "%(canary)s-json"}'
    time.sleep(0.02)
    return {"session_token": "%(canary)s-result"}
def fail():
    raise ValueError("bad password='%(canary)s-message'")
print("ready", flush=True)
while True:
    login("bob", "%(canary)s-local", "%(canary)s-key", {"db": {"password": "%(canary)s-deep"}})
    secrets.append("db_password", "%(canary)s-value", "run --token %(canary)s-line", "%(canary)s-c")
    secrets.append("plain", "seen", "%(aws)s", "")
    with probing.span("login", password="%(canary)s-span"):
        pass
    rounds += 1
    if rounds %% 100 == 1:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
""" % {"package": str(ROOT / "plugins" / "python" / "package"), "canary": CANARY, "aws": AWS}

READS, WRITES = "reads", "writes"

# Each command: who may, and words with which it is tried.
COMMANDS = {
    "backtrace": (READS, [["--python", "--locals"], ["--locals", "--json"], ["--tasks"], []]),
    "config": (READS, [[], ["app.password"]]),
    "config get": (READS, [["profile.mode"]]),
    "config list": (READS, [[]]),
    "describe": (READS, [["probing.log"]]),
    "flamegraph": (READS, [["--format", "folded"]]),
    "help": (READS, [[], ["query"]]),
    "info": (READS, [[]]),
    "mark": (WRITES, [[]]),
    "metrics": (READS, [[], ["--text"]]),
    "plugin list": (READS, [[]]),
    "plugins": (READS, [[]]),
    "profile": (READS, [[]]),
    "query": (READS, [["select 1"]]),
    "script list": (READS, [[]]),
    "scripts": (READS, [[]]),
    "tables": (READS, [[]]),
    "version": (READS, [[]]),
    "complete": (WRITES, [["secrets"]]),
    "config =": (WRITES, [["probing.log_level=info"]]),
    "config set": (WRITES, [["probing.log_level", "info"]]),
    "debug": (WRITES, [["--dump"], ["--pause"]]),
    "eject": (WRITES, [[]]),
    "eval": (WRITES, [["1"]]),
    "heap": (WRITES, [[]]),
    "plugin load": (WRITES, [["torch"]]),
    "plugin stop": (WRITES, [["python"]]),
    "script run": (WRITES, [["x", "x = 1"]]),
    "script reload": (WRITES, [["x"]]),
    "script help": (WRITES, [["x", "x = 1"]]),
    "script check": (WRITES, [["x", "x = 1"]]),
    "script stop": (WRITES, [["x"]]),
    "torch_profile": (WRITES, [["1"]]),
    "trim": (WRITES, [[]]),
    "trace": (WRITES, [["--list"], ["__main__.login", "--args"]]),
}

# All tables may be read, without secrets.  Those where the full token sees them are named by True.
TABLES = {
    "cpu.tasks": False, "crash.frames": False, "crash.reports": False, "crash.status": False,
    "information_schema.columns": False, "information_schema.df_settings": False,
    "information_schema.routines": False,
    "information_schema.schemata": False, "information_schema.tables": False,
    "information_schema.views": False, "probing.column_docs": False, "probing.table_docs": False,
    "probing.clients": False, "probing.commands": False, "probing.log": True,
    "probing.events": False, "probing.lost": False, "probing.metrics": False,
    "probing.overhead": False,
    "probing.panels": False, "probing.limits": False,
    "probing.plugins": False, "probing.tracks": False,
    "probing.scripts": False, "probing.settings": False, "probing.tables": False,
    "process.envs": False, "process.info": False, "process.memory": False,
    "python.backtrace": True,
    "python.exceptions": True, "python.facts": False, "python.gc": False,
    "python.gc_generations": False,
    "python.imports": False, "python.modules": False, "python.objects": False,
    "python.samples": False, "python.secrets": True, "python.stacks": False,
    "python.tensors": False, "python.threads": False, "python.trace_event": True,
    "python.watched": False,
    # of plugin torch, which is not in every process
    "python.comm_collective": False, "python.comm_stuck": False, "python.ddp_timing": False,
    "python.unsampled": False,
    "python.torch_device_time": False, "python.torch_flight_snapshot": False,
    "python.torch_nccl_flight_record": False, "python.torch_step_timing": False,
    "python.torch_trace": False, "python.variables": False, "torch.capture": False,
    "torch.gradients": False, "torch.groups": False, "torch.loaders": False, "torch.loop": False,
    "torch.modules": False, "torch.ops": False, "torch.waiting": False,
    "torch.collective": False, "torch.module": False, "torch.step": False,
    "comm_metrics": False, "training_logs": False, "profiling_data": False, "memory_usage": False,
    "gpu_metrics": False, "memory_allocations": False, "probing.flame_modes": False,
    "probing.tracks": False, "probing.panels": False,
    "memory.allocations": False, "memory.ended": False, "memory.live": False, "memory.peak": False,
}

# GET or POST, what it is asked with, and what a client who may only read is answered.
ROUTES = {
    "/": ("GET", "", 200), "/page.js": ("GET", "", 200), "/client.js": ("GET", "", 200),
    "/openapi.json": ("GET", "", 200), "/healthz": ("GET", "", 200), "/metrics": ("GET", "", 200),
    "/flamegraph": ("GET", "", 200), "/query": ("POST", "select * from python.backtrace", 200),
    "/run": ("POST", '{"run": ["backtrace", "--python", "--locals"]}', 200),
    "/eval": ("POST", "1", 403), "/backtrace": ("GET", "", 200), "/tables": ("GET", "", 200),
    "/plugins": ("GET", "", 200), "/config": ("GET", "", 200), "/scripts": ("GET", "", 200),
    "/ws": ("GET", "", 426),
}

# Functions of SQL see only their arguments: the same for everybody.  What follows here is each name
# in core/sql's tables; one that looks at the process must not be among them.  (timezone() reads the
# machine's tables of time zones, which everybody may.)
PURE = set("""
    abs acos age any_value approx_count_distinct approx_distinct approx_median approx_percentile
    approx_percentile_cont approx_quantile arg_max arg_min array_agg array_length array_to_string
    ascii asin atan atan2 avg bit_and bit_or bit_xor bool_and bool_or btrim cardinality cbrt ceil
    ceiling char_length character_length chr coalesce concat concat_ws contains corr cos count
    count_if countif covar_pop covar_samp cume_dist current_database date_bin date_diff date_part
    date_trunc datediff day degrees dense_rank div dow doy ends_with epoch epoch_ms epoch_ns
    epoch_us every exp extract first first_value floor format_bytes group_concat grouping histogram
    hour if ifnull iif ilike instr isfinite isinf isnan isodow isoyear json json_agg
    json_array_elements json_array_elements_text json_array_length json_build_array
    json_build_object json_each json_each_text json_extract json_extract_path json_extract_path_text
    json_extract_string json_get json_object_agg json_object_keys json_typeof lag last last_value
    lead left len length like listagg ln log log10 log2 lower lpad ltrim max max_by mean median min
    min_by minute mod mode month neg not now nth_value ntile nullif nvl octet_length percent_rank
    percentile_cont percentile_disc pg_size_pretty pg_typeof pi position pow power quantile
    quantile_cont quantile_disc quantile_sketch quarter radians rank regexp_count regexp_extract
    regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_table
    regexp_substr regr_intercept regr_r2 regr_slope repeat replace reverse right round row_number
    rpad rtrim second sign sin split_part sqrt starts_with statement_timestamp stddev stddev_pop
    stddev_samp strftime string_agg string_to_array string_to_table strpos substr substring sum tan
    time_bucket timezone to_char to_hex to_json to_numeric to_real to_timestamp
    transaction_timestamp trim trunc try_json try_real typeof upper var var_pop var_samp variance
    version week year
""".split())

# Requests that a websocket's message may make.
MESSAGES = {"run", "watch", "subscribe", "follow", "cancel"}


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    from world import World, lend
    made = lend(World(tmp_path_factory.mktemp("read_only")))
    world = next(made)
    yield open_program(world)
    for _ in made:
        pass


def open_program(world):
    script = world.tmp / "program.py"
    script.write_text(PROGRAM)
    target = world.start(sys.executable, "-u", str(script), "--password", CANARY + "-argv",
                         env={"PROBING_LIBRARY": str(CORE), "DB_PASSWORD": CANARY + "-env",
                              "DB_URL": "postgres://me:%s-env@host/db" % CANARY})
    target.wait_line("ready")
    for words in (["config", "set", "server.listen", "127.0.0.1:0"],
                  ["plugin", "load", "profile"],
                  ["config", "set", "python.exceptions", "unhandled"],
                  ["script", "run", str(script_file(world))],
                  ["trace", "__main__.login", "--args", "--limit", "3"]):
        done = target.probing(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    for table in ("python.secrets", "python.trace_event", "python.samples", "python.exceptions"):
        wait_for(lambda t=table: target.rows("select count(*) from " + t)[0][0] > 0, table)
    return Door(world, target)


def script_file(world):
    path = world.tmp / "talk.lua"
    path.write_text('probing.every("50ms", function() '
                    'probing.publish({password = "%s-publish", n = 1}) end)\n'
                    'probing.log("login with password=%s-log")\n' % (CANARY, CANARY))
    return path


def hidden(text):
    return CANARY not in text and AWS not in text


# ---- the tables are whole ----

def test_every_command_is_in_the_table(door):
    here = dict(door.target.rows("select name, writes from probing.commands"))
    assert set(here) <= set(COMMANDS), "say in COMMANDS who may run it"
    for name, writes in here.items():
        assert COMMANDS[name][0] == (WRITES if writes else READS), name


def test_every_command_of_the_sources_is_in_the_table():
    """Also those of plugins that are not in the process."""
    here = set()
    for folder in ("core", "plugins"):
        for path in (ROOT / folder).rglob("*.c"):
            text = "" if path.name.endswith("_test.c") else path.read_text()
            here |= set(re.findall(r'\.name = "([a-z_= ]+)",\s*'
                                   r'(?:\.flags = [A-Z_| ]+,\s*)?\.usage', text))
            here |= set(re.findall(r'\bCOMMAND\(\s*"([a-z_= ]+)"', text))
    assert here == set(COMMANDS)


def test_every_table_is_in_the_table(door):
    here = {(s + "." if s else "") + t for s, t in
            door.target.rows("select table_schema, table_name from information_schema.tables")}
    assert here <= set(TABLES), "say in TABLES whether it shows secrets to the full token"


def test_every_route_is_in_the_table(door):
    described = json.loads((ROOT / "core/server/page/openapi.json").read_text())["paths"]
    source = (ROOT / "core/server/http_routes.c").read_text()
    here = set(described) | set(re.findall(r'^    \{"(/[^"]*)", ROUTE_', source, flags=re.M))
    assert here == set(ROUTES)


def test_every_function_is_in_the_table():
    here = set()
    for path in (ROOT / "core/sql").rglob("*.c"):
        if not path.name.endswith("_test.c"):
            text = path.read_text()
            here |= set(re.findall(r'\{"([a-z]\w*)",\s+(?:"[a-zA-Z*]*",\s+\'|AGG_|WIN_)', text))
            here |= set(re.findall(r'strcmp\((?:n|call|e)->text, "([a-z]\w*)"\)', text))
    here = {name for name in here if len(name) > 2 or name in ("if", "ln", "pi")}  # else of types
    assert len(here) > 100
    assert here <= PURE, "does it see more than its arguments? then not like this: %s" % (
        here - PURE)


def test_every_message_is_in_the_table():
    source = (ROOT / "core/server/message.c").read_text()
    body = source[source.index("static int read_object"):]
    found = set(re.findall(r'(?:json_get|is_true)\(o, "(\w+)"\)', body[:body.index("\n}")]))
    assert found - {"id", "unsubscribe", "bytes"} == MESSAGES


# ---- and what stands in them is so ----

@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_command(door, name):
    access, tries = COMMANDS[name]
    if not door.target.rows("select 1 from probing.commands where name = '%s'" % name):
        pytest.skip("its plugin is not in this process")
    first = name.replace(" =", "").split()
    with door.wire(token=door.read_token) as wire:
        for words in tries:
            status, text, error = wire.run(*first, *words)
            if access == WRITES:
                assert (status, "may only read" in error) == (-13, True), (words, status, error)
            else:
                assert status == 0 or name == "config" and status == -22 or \
                    status == -2, (words, status, error)
            assert hidden(text + error), (words, text, error)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_table(door, table):
    if not door.target.rows("select 1 from information_schema.tables where '%s' in "
                            "(table_name, table_schema || '.' || table_name)" % table):
        pytest.skip("its plugin is not in this process")
    with door.wire(token=door.read_token) as wire, door.wire(token=door.token) as full:
        for form in ("table", "json", "csv", "jsonl"):
            words = ["query", "--format", form, "--limit", "5000", "select * from " + table]
            status, text, error = wire.run(*words)
            assert status == 0 and hidden(text), (form, text[-3000:], error)
            if TABLES[table] and form != "table":  # whose long texts are cut
                wait_for(lambda w=words: not hidden(full.run(*w)[1]), "a secret in " + table)


@pytest.mark.parametrize("path", sorted(ROUTES))
def test_route(door, path):
    method, body, wanted = ROUTES[path]
    status, _, text = door.http(method, path, body=body, token=door.read_token)
    assert status == wanted or (path == "/ws" and status in (400, 426)), text
    assert hidden(text)


def ask(door, sql, token=None):
    status, _, text = door.http("GET", "/query?format=json&q=" + quote(sql),
                                token=token or door.read_token)
    return json.loads(text)["rows"] if status == 200 else text


def test_no_expression_sees_what_is_hidden(door):
    """Hidden where rows come from: neither parts, order, comparison nor patterns tell it."""
    stored = "from python.secrets where name = 'db_password'"
    for text in ("value", "substr(value, 1, 4)", "reverse(value)", "upper(value)", "to_json(value)",
                 "max(value)", "string_agg(value, ',')", "replace(value, 'z', 'Z')",
                 "value || ''", "left(password, 3)", "concat(password, value)"):
        rows = ask(door, "select %s %s limit 3" % (text, stored))
        told = json.dumps(rows).lower()
        assert isinstance(rows, list) and hidden(told), rows
        assert CANARY[:4] not in told and CANARY[:4] not in told[::-1], rows
    with_value = "%s and (value like '%%%s%%' or value = '%s-value' or value ~ 'canary')" % (
        stored, CANARY, CANARY)
    assert ask(door, "select count(*) " + with_value) == [[0]]
    assert ask(door, "select count(*) " + with_value, door.token)[0][0] > 0
    assert ask(door, "select count(*) from python.backtrace where locals like '%canary%'") == [[0]]
    assert ask(door, "select distinct value from python.secrets where name = 'plain'") == [["seen"]]
    assert ask(door, "select distinct value from (select value from python.secrets where name = "
                     "'db_password') s join (select 1 as one) o on true") == [["***"]]
    assert ask(door, "with s as (select value, row_number() over (order by value) as n "
                     "from python.secrets where name <> 'plain') select min(value), max(value) "
                     "from s") == [["***", "***"]]


def test_each_function_of_one_text(door):
    """Whatever it does to a text, it does to what is shown of it."""
    shapes = [CANARY, CANARY[::-1], CANARY.upper(), CANARY.encode().hex()]
    for name in sorted(PURE):
        for column in ("locals", "cast(locals as text)"):
            told = str(ask(door, "select %s(%s) from python.backtrace limit 20" % (name, column)))
            assert not any(shape in told for shape in shapes), (name, told)


def test_code_of_the_program_does_not_run(door):
    def ran(token):
        with door.wire(token=token) as wire:
            return int(wire.run("eval", "__import__('__main__').ran")[1])
    before = ran(door.token)
    with door.wire(token=door.read_token) as wire:
        status, text, error = wire.run("backtrace", "--locals=repr")
        assert status == -13 and "may only read" in error and text == ""
        status, text, _ = wire.run("backtrace", "--python", "--locals")
        assert status == 0, text
    assert ran(door.token) == before
    with door.wire(token=door.token) as wire:
        status, text, error = wire.run("backtrace", "--locals=repr")
        assert status == 0, error
    with door.wire(token=door.token) as wire:  # and all is seen
        wait_for(lambda: not hidden(wire.run("backtrace", "--python", "--locals")[1]), "locals")


def test_settings_are_not_set_by_sql(door):
    told = ask(door, "set probing.log_level = 'debug'")
    assert isinstance(told, str) and "error" in told


def streamed(door, token, message, enough):
    """Texts of what a stream brings until enough(text)."""
    with door.wire(token=token) as wire:
        wire.send(dict(message, id=7))
        text, until = "", time.monotonic() + 60
        while not enough(text):
            assert time.monotonic() < until, text
            text += json.dumps(wire.receive())
    return text


def test_streams(door):
    watch = {"watch": "select name, value, line, password from python.secrets",
             "format": "jsonl", "interval_ms": 20}
    assert hidden(streamed(door, door.read_token, watch, lambda t: t.count("db_password") > 3))
    assert not hidden(streamed(door, door.token, watch, lambda t: t.count("db_password") > 3))
    follow = {"follow": "script.talk"}
    told = streamed(door, door.read_token, follow, lambda t: t.count('"password"') > 1)
    assert hidden(told) and '"n": 1' in told and "***" in told
    assert not hidden(streamed(door, door.token, follow, lambda t: t.count('"password"') > 1))


def test_a_shared_stream_is_not_shared_over_access(door):
    """Two clients watch the same statement: each gets what it may see."""
    watch = {"id": 7, "watch": "select name, value from python.secrets", "format": "jsonl",
             "interval_ms": 20}
    with door.wire(token=door.token) as full, door.wire(token=door.read_token) as reader:
        full.send(watch)
        full.receive()
        reader.send(watch)
        told = "".join(json.dumps(reader.receive()) for _ in range(3))
    assert hidden(told) and "***" in told


def test_plain_text_hides_too(door):
    with socket.create_connection(("127.0.0.1", door.port), timeout=LIMIT) as s:
        s.sendall(("token %s\nbacktrace --python --locals\nquery 'select * from python.secrets'\n"
                   "eval 1\nquit\n" % door.read_token).encode())
        text = s.makefile("rb").read().decode()
    assert hidden(text) and "***" in text and "may only read" in text


def test_no_text_of_scripts_and_code_in_the_log(door):
    """However short: what looks like a name is not one because of that."""
    with door.wire(token=door.token) as wire:
        for words in (["script", "run", "short", "password_%s=1" % CANARY],
                      ["eval", "a_%s=1" % CANARY], ["config", "set", "x.url",
                                                    "redis://u:%s-log@h" % CANARY]):
            wire.run(*words)
        text = wire.run("query", "--format", "csv",
                        "select text from probing.log where source = 'server'")[1]
    log = (door.directory / "probing.log")
    text += log.read_text() if log.exists() else ""
    assert "script run short (" in text and "eval (" in text
    assert CANARY not in text.replace(CANARY + "-log' ", ""), text


def test_the_local_socket_sees_all(door):
    wait_for(lambda: not hidden(door.target.probing("backtrace", "--python", "--locals").stdout),
             "locals")
