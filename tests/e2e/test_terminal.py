# SPDX-License-Identifier: Apache-2.0
"""On a terminal: long answers go through a pager, nothing else does; and it is left as it was.

A pseudo terminal stands for the person; what comes out of it is what he would see.
"""
import json
import os
import re
import signal
import subprocess
import termios

import pytest

from terminal import Terminal
from world import IDLE, ROOT, start_in_terminal, wait_for

LONG = "select n, 'row ' || n from generate_series(1, 500) t(n)"


@pytest.fixture
def target(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    return target


def terminal(target, *words, size=(24, 80), **ways):
    return Terminal(target, *words, size=size, **ways)


def test_long_answer_goes_through_the_pager_and_short_ones_too(world, target):
    pager = {"PAGER": "sed 's/^/paged:/'"}
    t = terminal(target, "query", LONG, env=pager)
    assert t.end() == 0
    assert t.seen.count(b"paged:") == 503 and b"paged:(500 rows" in t.seen
    t = terminal(target, "query", "select 1", env=dict(pager, PROBING_PAGER="cat"))
    assert t.end() == 0 and b"paged:" not in t.seen
    t = terminal(target, "eval", "1 + 1", env=pager)  # it may go on for long, or ask
    assert t.end() == 0 and t.seen == b"2\r\n"


def test_pager_that_is_left_early_ends_it_well(world, target):
    t = terminal(target, "query", "select n from generate_series(1, 1000000) t(n)",
                 env={"PAGER": "head -n 3"})
    assert t.end() == 0
    assert t.seen.count(b"\n") == 3


def test_answer_that_waits_in_the_pager_is_whole(world, target):
    """The command has all of it while nobody reads: a core closes what nobody reads from."""
    began, read = world.tmp / "began", world.tmp / "read"
    pager = "touch %s; while ! test -e %s; do sleep 0.1; done; cat" % (began, read)
    t = terminal(target, "query", "select n from generate_series(1, 200000) t(n)",
                 env={"PAGER": pager})
    stdout = "/proc/%d/fd/1" % t.pid
    wait_for(began.exists, "the pager")
    wait_for(lambda: not os.readlink(stdout).startswith("pipe:"), "the end of the answer")
    assert t.seen == b"" and t.read() and t.seen == b""
    read.touch()
    assert t.end() == 0
    assert t.seen.count(b"\n") == 200003 and b" 200000\r\n(200000 rows" in t.seen


def test_answer_that_is_lost_with_its_spool_is_told(world, target):
    """A machine without memory may end it."""
    began, read = world.tmp / "began", world.tmp / "read"
    pager = "touch %s; while ! test -e %s; do sleep 0.1; done; cat" % (began, read)
    t = terminal(target, "query", "select n from generate_series(1, 200000) t(n)",
                 env={"PAGER": pager})
    stdout = "/proc/%d/fd/1" % t.pid
    wait_for(began.exists, "the pager")
    wait_for(lambda: not os.readlink(stdout).startswith("pipe:"), "the end of the answer")
    children = open("/proc/%d/task/%d/children" % (t.pid, t.pid)).read().split()
    (spool,) = [int(pid) for pid in children
                if os.readlink("/proc/%s/exe" % pid) == os.readlink("/proc/%d/exe" % t.pid)]
    os.kill(spool, signal.SIGKILL)
    read.touch()
    t.end()
    assert b"probing: the answer may be cut: signal 9" in t.seen, t.seen[-300:]


def test_errors_come_through_it_with_their_code(world, target):
    t = terminal(target, "query", "select nothing", env={"PAGER": "sed 's/^/paged:/'"})
    assert t.end() == 1 and b"paged:probing: line 1, column 8" in t.seen


def test_pager_that_is_not_there_is_named(world, target):
    t = terminal(target, "tables", env={"PAGER": "no-such-pager"})
    t.end()
    assert b"cannot run the pager 'no-such-pager'" in t.seen


@pytest.mark.skipif(not any(os.access(d + "/less", os.X_OK) for d in
                            os.environ["PATH"].split(":")), reason="no less here (Debian: less)")
def test_less_prints_what_fits_and_stops_at_the_rest(world, target):
    t = terminal(target, "query", "select 1 as one")
    assert t.end() == 0 and b"one" in t.seen and b"(1 row" in t.seen
    t = terminal(target, "query", LONG)
    t.wait_seen(rb"row 10\b.*:")
    assert b"row 400" not in t.seen
    t.seen = b""
    # Ctrl-C is for the pager, which stays.  Where it comes just before less reads, less only notes
    # it and shows nothing: so it is asked to.
    t.type(b"\x03")
    t.type(b"r")
    t.wait_seen(rb"row 10\b.*:")
    t.type(b"q")
    assert t.end() in (0, 130)
    assert termios.tcgetattr(t.fd) == t.modes


def test_no_pager_without_a_terminal(world, target):
    done = target.probing("query", LONG, env={"PAGER": "sed 's/^/paged:/'"})
    assert done.returncode == 0 and "paged:" not in done.stdout and "row 500" in done.stdout


def test_tables_fit_the_terminal(world, target):
    for words in (["config"], ["query", "select * from probing.settings"]):
        t = terminal(target, *words, size=(50, 60), env={"PROBING_PAGER": ""})
        assert t.end() == 0
        lines = re.sub(rb"\x1b\[[0-9;]*m", b"", t.seen).decode().splitlines()
        table = [line for line in lines if not line.startswith("(")]
        assert max(len(line) for line in table) <= 60, lines
        (left,) = [line for line in lines if "do not fit into the terminal" in line]
        assert re.match(r"\(\d of \d columns", left) and " doc" in left, lines


def test_tables_for_a_person(world, target):
    """Tables with rows come first, probing's own behind --all; a pipe has all, as it was."""
    script = world.tmp / "rows.lua"
    script.write_text('probing.table("zzz", {n = "i64"}):add{n = 1}\n')
    assert target.probing("script", "run", str(script)).returncode == 0
    wait_for(lambda: target.rows("select n from script.zzz"), "the row")
    env = {"PROBING_PAGER": ""}
    t = terminal(target, "tables", env=env)
    assert t.end() == 0
    lines = lines_of(t.seen)
    assert re.match(r" script\.zzz +\| +1 \|", lines[2]), lines
    assert not [line for line in lines if line.startswith((" probing.", " information_schema"))]
    assert lines[-2] == "(tables --all shows probing.* and information_schema.*, too)", lines
    assert max(map(len, lines)) <= 80
    t = terminal(target, "tables", "--all", env=env)
    assert t.end() == 0 and b" probing " in t.seen and b"--all" not in t.seen
    piped = target.probing("tables").stdout
    assert piped.splitlines()[0].split(" | ")[0].strip() == "table_schema" and "probing" in piped
    target.kill()
    t = terminal(target, "tables", env=env)
    assert t.end() == 0 and lines_of(t.seen)[2].startswith(" script.zzz"), t.seen


# ---- top ----

BUSY = """
import threading, time
def spin():
    while True:
        sum(range(1000))
threading.Thread(target=spin, name="spinner\\x1b[31m", daemon=True).start()
print("ready")
while True: time.sleep(0.05)
"""
GPU = r"""
#include <probing/plugin.h>

static const struct probing_host *host;
static struct probing_table *use;

static void tick(void *self, uint64_t now)
{
    union probing_cell row[6] = {{.i = 0}, {.f = 87.5}, {.i = 3ll << 30}, {.i = 16ll << 30},
                                 {.f = 61}, {.f = 250}};
    (void)self;
    host->append(use, now, row, 6, 0, 0);
}

static int init(const struct probing_host *h, void **ret_self)
{
    static const struct probing_column columns[] = {
        {.name = "device_id", .type = PROBING_I64}, {.name = "gpu_util_pct", .type = PROBING_F64},
        {.name = "used_bytes", .type = PROBING_I64}, {.name = "total_bytes", .type = PROBING_I64},
        {.name = "temperature_c", .type = PROBING_F64}, {.name = "power_w", .type = PROBING_F64}};
    static const struct probing_table_desc desc = {
        .size = sizeof desc, .column_size = sizeof columns[0], .name = "utilization",
        .doc = "as the real plugin's", .columns = columns, .n_columns = 6};
    host = h;
    *ret_self = 0;
    return h->table(h, &desc, &use);
}

static const struct probing_panel panels[] = {
    {.name = "gpus", .doc = "each GPU", .kind = PROBING_LINES, .rows = 16,
     .sql = "select 'gpu ' || device_id || ': ' || coalesce(round(arg_max(gpu_util_pct, ts))::text"
            " || '%', '-') || ', ' || coalesce(format_bytes(arg_max(used_bytes, ts)), '-') || ' of "
            "' || coalesce(format_bytes(arg_max(total_bytes, ts)), '-') || ', ' || "
            "coalesce(round(arg_max(temperature_c, ts))::text, '-') || ' C, ' || "
            "coalesce(round(arg_max(power_w, ts))::text, '-') || ' W' as line from gpu.utilization "
            "where ts > now() - interval '1 minute' group by device_id order by device_id"}};
static const struct probing_declarations declares = {
    .size = sizeof declares, .n_panels = 1, .panel_size = sizeof panels[0], .panels = panels};

static int start(void *self)
{
    (void)self;
    return host->every(host, 50000000, tick);
}

static void destroy(void *self) { (void)self; }

const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "gpu", .version = "1",
    .doc = "a GPU, for a test", .init = init, .start = start, .destroy = destroy,
    .declares = &declares};
"""


@pytest.fixture
def busy(world):
    target = world.python(BUSY)
    target.wait_line("ready")
    target.inject()
    return target


def test_top_once(busy):
    done = busy.probing("top", "--once", "--interval=500ms")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    first = re.search(r"TID +CPU% .*\n(.*)\n", done.stdout).group(1)
    assert re.match(r" *\d+ +\d+\.\d  [RS]  spinner\?\[31m +(running|waiting) +"
                    r"spin target-0.py:\d$", first), done.stdout
    assert "probing/" not in done.stdout and re.search(r"^memory \d", done.stdout, flags=re.M)
    assert "\x1b" not in done.stdout
    assert "probing/server" in busy.probing("top", "--once", "--all", "--interval=100ms").stdout
    assert busy.probing("top", "--interval=1ms").returncode == 2
    told = json.loads(busy.probing("top", "--json", "--interval=500ms").stdout)
    first = told["threads"][0]
    assert first["name"] == "spinner\x1b[31m" and first["func"] == "spin" and first["cpu_pct"] > 0
    assert told["memory"]["rss_bytes"] > 1 << 20 and not any(t["probing"] for t in told["threads"])
    assert "spin" in [f["func"] for f in told["functions"]], told


@pytest.mark.parametrize("words, env, coloured", [
    ([], {}, True), ([], {"NO_COLOR": "1"}, False), ([], {"NO_COLOR": ""}, True),
    (["--color=never"], {}, False), (["--color", "always"], {"NO_COLOR": "1"}, True),
    ([], {"TERM": "dumb"}, False)])
def test_top_has_colours_where_they_are_wanted(world, busy, words, env, coloured):
    t = terminal(busy, "top", "--interval=100ms", *words, env=env)
    t.wait_seen(rb"OWNTIME.*\x1b\[H")
    t.type(b"q")
    assert t.end() == 0
    assert (b"\x1b[7m" in t.seen and b"\x1b[32m" in t.seen) == coloured
    assert bool(re.search(rb"\x1b\[\d*m", t.seen)) == coloured


def test_top_has_colours_in_a_pipe_when_told_to(busy):
    words = ("top", "--once", "--interval=100ms")
    assert "\x1b[7m" in busy.probing(*words, "--color=always").stdout
    assert "\x1b" not in busy.probing(*words).stdout
    done = busy.probing("top", "--color=blue")
    assert done.returncode == 2 and "auto, always or never" in done.stderr


NESTED = """
def leaf():
    total = 0
    for i in range(20000): total += i
def recursive(n):
    if n: recursive(n - 1)
    else: leaf()
def outer():
    while True: recursive(5)
print("ready", flush=True)
outer()
"""


def test_top_tells_own_and_total_time_apart(world):
    """Of a function that only calls others all time is theirs; recursion counts once.  All is
    processor time, of which a busy machine gives the thread what it can."""
    target = world.python(NESTED)
    target.wait_line("ready")
    target.inject()
    said = target.probing("top", "--once", "--interval=1s").stdout
    rows = {row[4]: [float(x) for x in row[:4]] for row in
            re.findall(r"^ +([\d.]+) +([\d.]+) +([\d.]+)s +([\d.]+)s  (\S+) ", said, flags=re.M)}
    assert {"leaf", "recursive", "outer", "<module>"} <= set(rows), said
    for own, total, own_time, total_time in rows.values():
        assert own <= total <= 100.1 and own_time <= total_time
    whole = rows["<module>"][1]
    assert rows["outer"][1] > 0.9 * whole > 0 and rows["leaf"][0] > whole / 2 > rows["outer"][0]
    assert rows["recursive"][1] <= whole + 0.2
    assert abs(sum(row[0] for row in rows.values()) - whole) < 0.5, said


TURNS = """
import time
def first(end):
    while time.thread_time() < end: pass
def second(end):
    while time.thread_time() < end: pass
print("ready", flush=True)
while True:
    first(time.thread_time() + 0.03)
    second(time.thread_time() + 0.03)
"""


def test_each_screen_of_top_has_all_that_ran_since_the_one_before(world):
    """Two functions that take turns have half each, and not the one that ran at its end all."""
    target = world.python(TURNS)
    target.wait_line("ready")
    target.inject()
    t = terminal(target, "top", "--interval=3s", env={"NO_COLOR": "1"})
    t.wait_seen(rb"(%OWN.*\x1b\[H.*){4}")
    t.type(b"q")
    assert t.end() == 0
    for screen in t.seen.decode().split("\x1b[H")[-3:-1]:  # the first one is younger than 3 s
        own = {name: float(share) for share, name in
               re.findall(r"K +([\d.]+) +[\d.]+ +[\d.]+s +[\d.]+s  (first|second) ",
                          screen)}
        assert 0.2 < own["first"] / (own["first"] + own["second"]) < 0.8, screen


def test_top_uses_the_width(world, busy):
    """A wide terminal has the whole path, a narrow one the file's name; nothing wraps."""
    wide = terminal(busy, "top", "--interval=100ms", size=(20, 160), env={"NO_COLOR": "1"})
    wide.wait_seen(rb"spin /\S+/target-0.py:\d")
    wide.resize(20, 80)
    wide.seen = b""
    wide.wait_seen(rb"spin target-0.py:\d")
    wide.type(b"q")
    assert wide.end() == 0


UNKNOWN = GPU.replace("{.f = 61}, {.f = 250}", "{.u = PROBING_NULL_F64}, {.u = PROBING_NULL_F64}")


@pytest.mark.parametrize("code, said", [
    (GPU, "gpu 0: 88%, 3.0 GiB of 16.0 GiB, 61 C, 250 W\n"),
    (UNKNOWN, "gpu 0: 88%, 3.0 GiB of 16.0 GiB, - C, - W\n")], ids=["all", "unknown"])
def test_top_shows_gpus(busy, world, code, said):
    source = world.tmp / "gpu.c"
    source.write_text(code)
    subprocess.run(["cc", "-shared", "-fPIC", "-fvisibility=hidden", "-I%s" % (ROOT / "include"),
                    str(source), "-o", str(world.tmp / "gpu.so")], check=True)
    assert busy.probing("plugin", "load", str(world.tmp / "gpu.so")).returncode == 0
    wait_for(lambda: busy.rows("select count(*) from gpu.utilization")[0][0], "a row")
    assert said in busy.probing("top", "--once").stdout


@pytest.mark.parametrize("size", [(24, 80), (5, 20), (1, 1), (60, 300)])
@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_top_on_a_terminal_of_any_size(world, busy, size, key):
    t = terminal(busy, "top", "--interval=100ms", size=size)
    t.wait_seen(rb"\x1b\[\?1049h.*\x1b\[H.*\x1b\[H")
    seen = re.sub(rb"\x1b\[\d*m", b"", t.seen)
    for line in re.split(rb"\x1b\[(?:2K|H|J)", seen.split(b"\x1b[H")[1]):
        assert len(line.strip(b"\r\n").decode()) <= size[1], line
    assert t.seen.split(b"\x1b[H")[1].count(b"\n") < size[0] + 1
    t.type(key)
    assert t.end() == (0 if key == b"q" else 130)
    assert t.seen.endswith(b"\x1b[?7h\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(t.fd) == t.modes


def test_top_follows_the_size_and_steps_aside(world, busy):
    t = terminal(busy, "top", "--interval=1h", size=(24, 80))
    t.wait_seen(rb"spin \x1b\[2mtarget-0.py.*\x1b\[H.*spin \x1b\[2mtarget")
    t.seen = b""
    t.resize(40, 60)
    t.wait_seen(rb"\x1b\[H(\x1b\[2K)?\x1b\[1mprobing")
    t.seen = b""
    t.type(b"p")
    t.wait_seen(rb"probing/server")
    t.seen = b""
    t.type(b"\x1a")
    t.wait_seen(rb"\x1b\[\?1049l")
    wait_for(lambda: "T (stopped)" in open("/proc/%d/status" % t.pid).read(), "it to stop")
    assert termios.tcgetattr(t.fd) == t.modes
    os.kill(t.pid, signal.SIGCONT)
    t.wait_seen(rb"\x1b\[\?1049h.*probing/server")
    t.type(b"q")
    assert t.end() == 0


def test_top_of_what_goes_or_is_gone(world, busy):
    t = terminal(busy, "top", "--interval=100ms")
    t.wait_seen(rb"\x1b\[H.*\x1b\[H")
    busy.kill()
    assert t.end() == 1
    assert b"\x1b[?1049l" in t.seen and b"the process has died" in t.seen.split(b"\x1b[?1049l")[1]
    done = busy.probing("top")
    assert done.returncode == 1 and "dead" in done.stderr
    assert termios.tcgetattr(t.fd) == t.modes


LONG_NAMES = """
import time
def a_function_whose_name_is_longer_than_half_of_a_narrow_terminal_and_goes_on():
    print('ready', flush=True)
    while True: time.sleep(0.05)
a_function_whose_name_is_longer_than_half_of_a_narrow_terminal_and_goes_on()
"""
FOLDER = "a_folder_with_a_long_name_in_which_the_program_lies"


def lines_of(text):
    return text.decode().replace("\r", "").split("\n")


@pytest.mark.parametrize("external", [[], ["--external"]])
def test_a_stack_fits_the_terminal(world, external):
    """Both ends of a line stay: the function, and the line of its file.  Into a pipe all goes."""
    folder = world.tmp / FOLDER
    folder.mkdir()
    script = folder / "program.py"
    script.write_text(LONG_NAMES)
    target = world.start("/usr/bin/python3", str(script))
    target.wait_line("ready")
    target.inject()
    t = terminal(target, "backtrace", *external, size=(24, 60), env={"PAGER": "cat"})
    assert t.end() == 0
    lines = lines_of(t.seen)
    assert max(map(len, lines)) == 60, lines
    cut = [line for line in lines if "..." in line and not line.startswith("    (")]  # a remark
    assert cut and all(re.match(r" +\d+ (a_function_whose|<module>)", line) for line in cut), lines
    assert any(line.endswith("program.py:5") for line in cut), lines
    whole = target.probing("backtrace", *external).stdout
    assert "..." not in whole and "%s/program.py:5" % FOLDER in whole


MODULE = """
class Module:
    def _wrapped_call_impl(self, *args):
        return self._call_impl(*args)
    def _call_impl(self, *args):
        return self.forward(*args)
"""
LAYERS = """
import sys, time
sys.path.insert(0, 'torch/nn/modules')
from module import Module
class Layer(Module):
    def forward(self, depth):
        name, words, none = 'a layer', [1, 2], None
        if depth:
            return Layer()._wrapped_call_impl(depth - 1)
        print('ready', flush=True)
        while True: time.sleep(0.05)
Layer()._wrapped_call_impl(1)
"""


def test_a_person_reads_a_stack(world):
    """Calls of modules are folded and counted, variables have a line each; a pipe has all."""
    folder = world.tmp / "torch/nn/modules"
    folder.mkdir(parents=True)
    (folder / "module.py").write_text(MODULE)
    (world.tmp / "layers.py").write_text(LAYERS)
    target = world.start("/usr/bin/python3", str(world.tmp / "layers.py"))
    target.wait_line("ready")
    target.inject()

    def seen(*words, **env):
        t = terminal(target, "backtrace", "--python", *words, env=dict(env, PAGER="cat"))
        assert t.end() == 0
        return t.seen.decode().replace("\r", "")
    plain = seen("--locals", NO_COLOR="1")
    lines = plain.splitlines()
    said = "    (4 frames of torch's Module._call_impl are folded; --full shows all)"
    assert said in lines, plain
    assert "module.py" not in plain and "\x1b" not in plain, plain
    for line in ("name = \"a layer\"", "words = list of 2 [1, 2]", "none = None", "depth = 0",
                 "depth = 1"):
        assert "      " + line in lines, (line, plain)
    assert max(map(len, lines)) <= 80
    full = seen("--full", NO_COLOR="1")
    assert len(re.findall(r"_call_impl .*/module\.py:\d+$", full, re.M)) == 4, full
    assert "folded" not in full
    coloured = seen()
    assert coloured.startswith("\x1b[1mThread ") and "folded" in coloured, coloured
    for words in ([], ["--full"]):
        whole = target.probing("backtrace", "--python", "--locals", *words).stdout
        assert "folded" not in whole and '"name":"a layer"' in whole and "\x1b" not in whole
        assert len(re.findall(r"_call_impl .*/module\.py:\d+$", whole, re.M)) == 4, whole


def test_a_watch_is_drawn_in_place(world, target):
    """Output that adds up or is longer than the terminal: all its lines, none wider."""
    t = terminal(target, "watch", "--interval", "50ms",
                 "select n, repeat('wide', 40) as w from generate_series(1, 100) t(n)",
                 size=(10, 50))
    t.wait_seen(rb"more lines.*\x1b\[H\x1b\[J.*more lines")
    pictures = t.seen.split(b"\x1b[H\x1b[J")
    lines = lines_of(pictures[1])
    assert len(lines) == 10 and lines[-1] == "", "the cursor stands on the last line"
    assert max(map(len, lines)) <= 50 and "w" in lines[0] and "more lines" in lines[-2]
    t.type(b"\x03")
    assert t.end() == 130


def test_a_followed_table_fits_the_terminal(world, target):
    script = world.tmp / "wide.lua"
    script.write_text('local t = probing.table("wide", {n = "i64", w = "str"})\n'
                      'probing.every("20ms", function() t:add{n = 1, w = string.rep("wide", 30)} '
                      'end)\n')
    done = target.probing("script", "run", str(script))
    assert done.returncode == 0, done.stderr
    t = terminal(target, "watch", "--interval", "50ms", "select n, w from script.wide",
                 size=(24, 40))
    t.wait_seen(rb"wide\.\.\.\r\n.*wide\.\.\.\r\n")
    assert max(map(len, lines_of(t.seen))) <= 40
    t.type(b"\x03")
    assert t.end() == 130


def test_a_child_without_its_program_never_comes_back_into_the_tests(world):
    """It would run the rest of them a second time."""
    pid, master = start_in_terminal([str(world.tmp / "no such program")], world.env)
    assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 127
    os.close(master)


def test_top_gives_functions_what_they_used(world):
    """Waiting for a processor counted as running: two threads had 7.8 s where 1.7 were used."""
    target = world.python(
        "import threading, time\n"
        "def busy():\n    while True: sum(range(1000))\n"
        "for _ in range(2): threading.Thread(target=busy, daemon=True).start()\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.01)\n", python="/usr/bin/python3")
    target.wait_line("ready")
    target.inject()

    def used():
        fields = open("/proc/%d/stat" % target.pid).read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1e9 / os.sysconf("SC_CLK_TCK")
    before = used()
    done = target.probing("top", "--once", "--json", "--interval", "2s")
    spent = used() - before + 2e7  # in the kernel's ticks
    assert done.returncode == 0, done.stderr
    functions = {f["func"]: f for f in json.loads(done.stdout)["functions"]}
    assert 0 < functions["busy"]["own_ns"] <= spent, (functions, spent)
    assert sum(f["own_ns"] for f in functions.values()) <= spent, (functions, spent)
