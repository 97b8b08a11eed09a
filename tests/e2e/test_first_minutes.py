# SPDX-License-Identifier: Apache-2.0
"""What people type first: short names, targets in every place, several pids at once, and commands
of which the answer is no text."""
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request

import pytest

from world import CLI, DEBIAN_PYTHON, IDLE, LIMIT, has_torch, wait_for


@pytest.fixture
def target(world):
    made = world.python(IDLE)
    made.wait_line("ready")
    return made


@pytest.mark.parametrize("short, name", [
    ("in", "inject"), ("i", "inject"), ("b", "backtrace"), ("bt", "backtrace"), ("e", "eval"),
    ("r", "repl"), ("d", "debug"), ("dbg", "debug"), ("q", "query"), ("mem", "memory"),
    ("tbl", "tables"), ("perf", "performance"), ("p", "performance"), ("fg", "flamegraph"),
    ("flame", "flamegraph"), ("cfg", "config"), ("c", "config"), ("l", "list"), ("ls", "list")])
def test_short_names(world, short, name):
    assert world.probing("help", short).stdout == world.probing("help", name).stdout
    assert short in world.probing("man").stdout
    assert "|%s" % short in world.probing("completion", "bash").stdout


def test_short_names_do_it(target):
    assert "entered process" in target.probing("i").stdout
    assert target.probing("e", "6 * 7").stdout == "42\n"
    assert "42" in target.probing("q", "select 42").stdout
    assert "probing.max_memory" in target.probing("cfg").stdout
    assert "MainThread" in target.probing("b").stdout


@pytest.mark.parametrize("word, part", [("rd", "RDMA"), ("rdma", "RDMA")])
def test_what_is_not_here_yet_says_so(target, word, part):
    target.inject()
    for done in (target.probing(word), target.world.probing(word)):
        assert done.returncode == 2 and part in done.stderr


def test_the_target_may_stand_behind(world, target):
    target.inject()
    pid = str(target.pid)
    for words in (["query", "select 42", "-t", pid], ["query", "--pid", pid, "select 42"],
                  ["query", "-f", "csv", "select 42", "--target", pid], ["eval", "-t", pid, "42"]):
        done = world.probing(*words)
        assert done.returncode == 0 and "42" in done.stdout, (words, done.stderr)
    # Words that belong to the command or to a script are left to it.
    script = world.tmp / "words.py"
    script.write_text("print(argv[1:])")
    done = world.probing("-t", pid, "eval", "-f", str(script), "-t", "1")
    assert done.stdout == "['-t', '1']\n"


def test_several_pids_are_named(world, target):
    other = world.python(IDLE)
    other.wait_line("ready")
    pids = [str(target.pid), str(other.pid)]
    for words, env in ((pids + ["inject"], {}), (["-t"] + pids + ["inject"], {}),
                       (["\n".join(pids), "inject"], {}), (["-t", " ".join(pids), "inject"], {}),
                       (["inject"], {"ENDPOINT": "\n".join(pids)})):
        done = world.probing(*words, env=env)
        assert done.returncode == 2, (words, done.stdout, done.stderr)
        assert len(done.stderr.splitlines()) == 1 and "2 targets" in done.stderr
        assert all("-t %s (" % pid in done.stderr for pid in pids) and "python" in done.stderr
    assert target.alive() and other.alive()


FORKS = """
import os, time
print(*[os.fork() or os._exit(time.sleep(10 ** 6)) for _ in range(3)], "ready", flush=True)
while True: time.sleep(0.05)
"""


@pytest.mark.parametrize("form", ["{0}", "-t {0}", "lines", "environment"])
def test_workers_stand_for_their_parent(world, form):
    """pgrep finds a training and the workers that its DataLoader has forked."""
    target = world.python(FORKS)
    workers = [int(word) for word in target.wait_line("(.*) ready").group(1).split()]
    try:
        pids = [str(pid) for pid in [workers[0], target.pid] + workers[1:]]
        words = {"lines": ["-t", "\n".join(pids)], "environment": []}.get(
            form, form.format(" ".join(pids)).split())
        env = {"ENDPOINT": "\n".join(pids)} if form == "environment" else {}
        done = world.probing(*words, "inject", env=env)
        assert done.returncode == 0 and "entered process %d" % target.pid in done.stdout, done
        assert done.stderr == ("probing: the target is %d; the other 3 are its workers\n"
                               % target.pid)
        done = world.probing("-t", " ".join(pids[:1] + pids[2:]), "inject")  # without the parent
        assert done.returncode == 2 and "3 targets" in done.stderr
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)


def test_the_page_at_any_time(world, target):
    done = target.probing("ui")
    assert done.returncode == 1 and "no probing core" in done.stderr, done.stderr
    target.inject()
    done = target.probing("ui")
    assert (done.returncode, done.stdout) == (1, "") and "ui --open" in done.stderr
    assert "local socket only" in target.probing("info").stdout  # nothing was opened
    done = target.probing("ui", "--open")
    address = re.match(r"(http://127\.0\.0\.1:\d+/)\?token=\w{32}\n$", done.stdout)
    assert address, done.stdout + done.stderr
    assert target.probing("ui", "--open").stdout == target.probing("ui").stdout == done.stdout
    with urllib.request.urlopen(done.stdout.strip(), timeout=LIMIT) as page:
        assert "process %d" % target.pid in page.read().decode()
    listed = [json.loads(line) for line in world.probing("list", "--json").stdout.splitlines()]
    assert [one["page"] for one in listed if one["pid"] == target.pid] == [address.group(1)]
    assert "(page: %s)" % address.group(1) in world.probing("list").stdout
    assert target.probing("config", "server.listen=").returncode == 0
    assert target.probing("ui").returncode == 1
    assert address.group(1) not in world.probing("list").stdout


def test_an_empty_variable_is_told(world):
    for words in (["-t", "inject"], ["-t", "query", "select 1"], ["-p", "q", "select 1"]):
        done = world.probing(*words)
        assert done.returncode == 2 and "is a variable empty?" in done.stderr, done.stderr


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def on_terminal(words, cwd, env, typed=b""):
    """A command's exit code, and what it says to a person who types that."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([str(CLI), *words], stdin=theirs, stdout=theirs, stderr=theirs,
                             cwd=cwd, env=env)
    os.close(theirs)
    os.write(ours, typed)
    text = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # EIO: the command has gone
            piece = b""
        if not piece:
            break
        text += piece
    os.close(ours)
    return child.wait(LIMIT), text.decode()


def test_flamegraph_alone_on_a_terminal(world, target):
    target.inject()
    place = world.tmp / "desk"
    place.mkdir()
    words = ["-t", str(target.pid), "flamegraph", "-s", "500ms", "--mode", "wall"]
    for name in ("flamegraph-%d.html", "flamegraph-%d-2.html"):
        code, text = on_terminal(words, place, world.env)
        assert code == 0 and name % target.pid in text, text
        assert "<html" in (place / (name % target.pid)).read_text().lower()
    assert len(list(place.iterdir())) == 2


NO_CORE = "process %d has no probing core in it"


def test_what_a_script_lacks_is_told_and_got_by_yes(world, target):
    """py-spy needs one command."""
    path, pid = world.tmp / "one.folded", target.pid
    for words in (["query", "select 1"], ["eval", "1"], ["top", "--once"], ["torch"], ["backtrace"],
                  ["flamegraph", "-s", "1", "-o", str(path)], ["repl"], ["tables"], ["memory"]):
        done = target.probing(*words)
        assert done.returncode == 1 and NO_CORE % pid in done.stderr, (words, done.stderr)
        assert "enter it with: probing -t %d inject" % pid in done.stderr, done.stderr
        assert done.stderr.endswith("; or add --yes to this command\n"), done.stderr
    done = target.probing("flamegraph", "-s", "500ms", "-m", "wall", "-o", str(path), "--yes")
    assert done.returncode == 0 and path.read_text(), done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == "probing: entered process %d; to leave it: probing -t %d eject" % (pid, pid)
    assert len(lines) == 2 and lines[1].startswith(str(path) + ": "), lines  # no countdown
    # The core is there, the plugin is not.
    done = target.probing("flamegraph", "torch", "-o", str(path))
    assert "plugin torch is not loaded: probing -t %d inject --plugin torch; or add --yes" % pid \
        in done.stderr, done.stderr
    done = target.probing("memory", "--leaks", "--yes")
    assert "probing: loaded plugin memory into %d; to stop it: probing -t %d plugin stop memory" \
        % (pid, pid) in done.stderr, done.stderr
    assert target.probing("eval", "--yes", "print(1)").stdout == "1\n"


def test_yes_belongs_to_who_has_it(world, target):
    """A script's own words are left to it, and several processes are entered by their command."""
    script = world.tmp / "words.py"
    script.write_text("print(argv[1:])")
    target.inject()
    assert target.probing("eval", "--yes", "-f", str(script), "--yes").stdout == "['--yes']\n"
    other = world.python(IDLE)
    other.wait_line("ready")
    several = "%d,%d" % (target.pid, other.pid)
    done = world.probing("-t", several, "backtrace", "--yes")
    assert done.returncode == 2 and "--yes is for one process" in done.stderr, done.stderr
    assert "probing -t %s inject" % several in done.stderr
    assert "add --yes" not in world.probing("-t", several, "backtrace").stderr
    assert NO_CORE % other.pid in other.probing("backtrace").stderr  # nobody has entered it


@pytest.mark.parametrize("typed, enters", [(b"\n", True), (b"y\n", True), (b"n\n", False),
                                           (b"\x04", False)])
def test_a_person_is_asked_first(world, target, typed, enters):
    code, text = on_terminal(["-t", str(target.pid), "query", "select 6 * 7 as answer"], world.tmp,
                             dict(world.env, PAGER="cat"), typed)
    question = "probing: process %d has no probing core in it. Enter it? [Y/n] " % target.pid
    assert question in text, text
    assert (code == 0) == enters and ("answer" in text) == enters, text
    done = target.probing("query", "select 1")
    assert (done.returncode == 0) == enters, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's process")
def test_what_is_anothers_is_entered_only_when_that_is_said(world):
    place = tempfile.mkdtemp(dir="/tmp")
    os.chown(place, 65534, 65534)
    target = world.start(DEBIAN_PYTHON, "-c", "import os\nos.setgid(65534)\nos.setuid(65534)\n" +
                         IDLE, env={"PROBING_DATA_DIR": place})
    target.wait_line("ready")
    words = ["-t", str(target.pid), "query", "select 6 * 7 as answer"]
    code, text = on_terminal(words, world.tmp, dict(world.env, PAGER="cat"), b"\n")
    assert code == 1 and "of uid 65534 has no probing core in it. Enter it? [y/N]" in text, text
    assert "answer" not in text
    done = target.probing("query", "select 6 * 7 as answer", "--yes")
    assert "answer" in done.stdout
    assert "entered process %d of uid 65534; " % target.pid in done.stderr
    target.kill()
    shutil.rmtree(place)


REUSED = r"""
import os, pty, subprocess, sys
def sleeper():
    made = subprocess.Popen(["sleep", "600"])
    return made, open("/proc/%d/stat" % made.pid).read().rpartition(")")[2].split()[19]
first, began = sleeper()
cli, fd = pty.fork()
if cli == 0:
    os.execv(sys.argv[1], [sys.argv[1], "-t", str(first.pid), "query", "select 1"])
seen = b""
while b"] " not in seen:
    seen += os.read(fd, 65536)
first.kill()
first.wait()
while True:
    try:
        open("/proc/sys/kernel/ns_last_pid", "w").write(str(first.pid - 1))
    except OSError:
        sys.exit("refused")
    second, begins = sleeper()
    if second.pid == first.pid and begins != began:  # the kernel counts them in 10 ms
        break
    second.kill()
    second.wait()
os.write(fd, b"y\n")
try:
    while data := os.read(fd, 65536):
        seen += data
except OSError:
    pass
print(seen.decode(), "data.mdb" in open("/proc/%d/maps" % second.pid).read())
second.kill()
"""


def test_a_pid_that_is_anothers_when_the_answer_comes(world):
    """In a pid namespace of its own, where the next number can be chosen."""
    done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
                           sys.executable, "-c", REUSED, str(CLI)], env=world.env, timeout=LIMIT,
                          capture_output=True, encoding="utf-8")
    if done.stderr.startswith(("unshare: ", "refused")):
        pytest.skip("no pid namespace can be made here, or no number be chosen")
    assert re.search(r"Enter it\? \[Y/n\] .*process \d+ has ended; nothing was entered\s+False",
                     done.stdout, re.S), done


def test_sampling_counts_down_on_a_terminal(world, target):
    """And nowhere else: the line goes again."""
    target.inject()
    path = world.tmp / "x.svg"
    words = ["-t", str(target.pid), "flamegraph", "-s", "2", "-m", "wall", "-o", str(path)]
    code, text = on_terminal(words, world.tmp, world.env)
    assert code == 0 and "\rsampling: 2 s left" in text and "\rsampling: 1 s left" in text, text
    assert re.search(r"\r +\r%s: " % re.escape(str(path)), text), text
    assert "left" not in target.probing(*words[2:]).stderr


def page_of(done):
    assert done.returncode == 0, done.stderr
    return re.search(r"^page: http://127.0.0.1:(\d+)/", done.stdout, flags=re.M).group(1)


def test_a_second_address_moves_nobody(target):
    first = page_of(target.inject("-l", "127.0.0.1:0"))
    assert page_of(target.inject("-l", "127.0.0.1:0")) == first
    assert page_of(target.inject("-l", "127.0.0.1:" + first)) == first
    other = "127.0.0.1:%d" % free_port()
    done = target.probing("inject", "-l", other)
    assert done.returncode == 1 and "listens on 127.0.0.1:%s already" % first in done.stderr
    wanted = re.search(r"probing -t \d+ (config server.listen=\S+)", done.stderr).group(1)
    assert page_of(target.inject("-l", "127.0.0.1:0")) == first  # nothing has moved
    assert target.probing(*wanted.split()).returncode == 0
    assert page_of(target.inject("-l", "127.0.0.1:0")) == other.split(":")[1]


@pytest.mark.parametrize("answer, moves", [(b"y\n", True), (b"\n", False)])
def test_a_person_is_asked_before_it_moves(world, target, answer, moves):
    first = page_of(target.inject("-l", "127.0.0.1:0"))
    other = str(free_port())
    code, text = on_terminal(["-t", str(target.pid), "inject", "-l", "127.0.0.1:" + other],
                             world.tmp, world.env, answer)
    assert "[y/N]" in text and (code == 0) == moves, text
    assert page_of(target.inject("-l", "127.0.0.1:0")) == (other if moves else first)


def test_inject_says_what_is_on(target):
    done = target.inject("-c", "-D", "probing.retention=2d", "-D", "probing.token=" + "s3cret" * 6)
    assert re.search("^set: crash.handler=on, probing.retention=2d$", done.stdout, flags=re.M)
    assert "s3cret" not in done.stdout + done.stderr
    assert "set: crash.handler=off\n" in target.inject("-D", "crash.handler=off").stdout
    done = target.probing("inject", "-D", "probing.retentoin=3d")
    assert done.returncode == 1 and "'probing.retention'" in done.stderr
    assert "set:" not in done.stdout


def plugins_of(target):
    return {name for name, state in target.rows("select name, state from probing.plugins")
            if state == "running"}


@pytest.mark.parametrize("env, brought", [
    ({"PROBING_PROFILE_RATE": "50"}, True), ({"PROBE_PPROF": "1"}, True),
    ({"PROBE_PROFILE_MODE": "wall"}, True), ({"PROBE_PPROF": "0"}, False),
    ({"PROBING_PROFILE_NATIVE": "off"}, False), ({"PROBING_FOO_BAR": "1"}, False),
    ({"PROBING_PROFILE_RATE": "50", "PROBING_PLUGINS": ""}, False)])
def test_a_setting_of_the_environment_brings_its_plugin(world, env, brought):
    target = world.python(IDLE, env=env)
    target.wait_line("ready")
    target.inject()
    assert ("profile" in plugins_of(target)) == brought
    if "PROBING_PROFILE_RATE" in env and brought:
        assert target.probing("config", "get", "profile.rate").stdout == "50\n"


def test_a_setting_of_inject_brings_its_plugin(target):
    done = target.inject("-D", "profile.rate=50")
    assert "set: profile.rate=50\n" in done.stdout
    assert "profile" in plugins_of(target)


def test_a_setting_of_a_second_inject_brings_its_plugin(target):
    target.inject()
    target.inject("-D", "profile.native=off")
    assert "profile" not in plugins_of(target)  # who switches something off does not want it
    done = target.probing("inject", "-D", "profile.rate=50", "-D", "profile.rat=3",
                          "-D", "nosuch.x=1")
    assert done.returncode == 1 and "plugin profile loaded\n" in done.stdout
    assert "did you mean 'profile.rate'" in done.stderr and "no plugin 'nosuch'" in done.stderr
    assert "profile" in plugins_of(target)
    assert target.probing("config", "get", "profile.rate").stdout == "50\n"


def test_a_plugin_of_the_start_waits_for_what_it_needs(world):
    """Its file came through the door: the core cannot look for it a second time."""
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s (Debian: python3-torch)" % DEBIAN_PYTHON)
    flag = world.tmp / "go"
    target = world.python("print('ready')\nimport os, time\nwhile not os.path.exists(%r):\n"
                          "    time.sleep(0.02)\nimport torch\nprint('imported')\nwhile True:\n"
                          "    time.sleep(0.02)" % str(flag), python=DEBIAN_PYTHON)
    target.wait_line("ready")
    done = target.inject("-D", "torch.variables=loss")
    assert "torch is not imported" in done.stderr and "it waits" in done.stderr
    flag.touch()
    target.wait_line("imported")
    wait_for(lambda: "torch" in plugins_of(target), "plugin torch")
    assert target.probing("config", "get", "torch.variables").stdout == "loss\n"


def test_a_process_cannot_name_files_for_the_command(world):
    """Its claims about plugins are not believed: no file that it names is opened for it."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="m") as place:
        open(os.path.join(place, "mine.so"), "wb").close()
        for named in (os.path.join(place, "mine"), "../" * 12 + place[1:] + "/mine"):
            target = world.python(IDLE, env={"PROBING_PLUGINS": "python," + named})
            target.wait_line("ready")
            done = target.inject()
            assert done.stderr == "" and plugins_of(target) == {"python"}
            target.end()


def test_what_is_refused_says_what_stays(target):
    target.inject()
    done = target.probing("inject", "-D", "server.listen=999.1.1.1:70000")
    assert done.returncode == 1 and "it stays empty" in done.stderr, done.stderr


def test_a_mistyped_report_is_named(target):
    """The process does not know the reports that the command has."""
    target.inject()
    done = target.probing("tourch")
    assert done.returncode != 0 and "did you mean 'torch'" in done.stderr, done.stderr


@pytest.mark.parametrize("word, name", [("dump", "backtrace"), ("record", "flamegraph"),
                                        ("attach", "inject"), ("sql", "query"),
                                        ("hang", "cluster hang"), ("diff", "cluster diff"),
                                        ("where", "backtrace"), ("nvidia-smi", "gpu")])
def test_the_words_of_other_tools_lead_to_ours(world, target, word, name):
    """py-spy's dump was told to enter the process first, for a command that is not there then."""
    for words in ((word, "--pid", str(target.pid)), ("-t", str(target.pid), word)):
        done = world.probing(*words)
        assert done.returncode == 2 and "did you mean '%s'" % name in done.stderr, done.stderr
    done = world.probing("help", word)
    assert done.returncode == 2 and "did you mean '%s'" % name in done.stderr, done.stderr
    target.inject()
    done = target.probing(word)
    assert done.returncode != 0 and "did you mean '%s'" % name in done.stderr, done.stderr


def test_what_is_no_process_leads_to_one(world, target):
    done = world.probing("-t", "abc", "query", "select 1")
    assert done.returncode == 1 and "-t job:abc" in done.stderr, done.stderr
    done = world.probing("backtrace", str(target.pid))
    assert done.returncode == 2 and "probing -t %d backtrace" % target.pid in done.stderr
    done = world.probing("-t", str(target.pid), "memory", "leaks")
    assert done.returncode == 2 and "did you mean --leaks?" in done.stderr, done.stderr


@pytest.mark.parametrize("words, hint", [
    (["flamegraph", "--duration", "2"], "--seconds"), (["flamegraph", "-d", "2"], "--seconds"),
    (["flamegraph", "--gil"], "--mode gil"), (["flamegraph", "--idle"], "--mode wall"),
    (["export", "--json", "cpu.tasks"], "--format"), (["inject", "--port", "9"], "--listen"),
    (["query", "--csv", "select 1"], "--format csv")])
def test_the_options_of_other_tools_lead_to_ours(world, words, hint):
    done = world.probing("-t", str(os.getpid()), *words)
    assert done.returncode == 2 and "did you mean '%s" % hint in done.stderr, done.stderr


def test_answers_for_programs(target):
    """--json is what one tries first; settings, plugins and scripts were there as tables only."""
    target.inject("-D", "query.nice=7")
    for words, columns in (
            (["query", "select 1 as one"], ["one"]),
            (["tables"], ["table_schema", "table_name", "table_type", "doc"]),
            (["describe", "cpu.tasks"], ["column_name", "data_type", "unit", "doc"]),
            (["config"], ["name", "value", "default", "type", "unit", "doc"]),
            (["config", "list"], ["name", "value", "default", "type", "unit", "doc"]),
            (["plugin", "list"], ["name", "version", "state", "reason", "doc", "path"]),
            (["script", "list"], ["name", "state", "started_at", "error", "rows", "cpu_ns",
                                  "throttled_ns", "memory_bytes", "errors", "dropped"])):
        done = target.probing(*words, "--json")
        assert done.returncode == 0, (words, done.stderr)
        answer = json.loads(done.stdout)
        assert [c["name"] for c in answer["columns"]] == columns, words
        if words[0] == "config":
            assert "7" in [row[1] for row in answer["rows"] if row[0] == "query.nice"]
    path = target.world.tmp / "tasks.jsonl"
    assert target.probing("export", "cpu.tasks", "-o", str(path)).returncode == 0
    assert "comm" in json.loads(path.read_text().splitlines()[0])


def test_what_is_not_loaded_is_told_by_its_bare_name(target):
    """`torch_trace` was unknown, while `python.torch_trace` was told to come with torch."""
    target.inject()
    said = target.probing("query", "select * from torch_trace").stderr
    assert "no table 'python.torch_trace' yet" in said and "inject --plugin torch" in said, said
    for words in (["plugin", "load", "torc"], ["inject", "--plugin", "torc"]):
        said = target.probing(*words).stderr
        assert "no plugin 'torc'; did you mean 'torch'?" in said, said
    target.kill()
    said = target.probing("query", "select * from python.backtrace").stderr
    assert "the process has ended, and only stored tables outlive it" in said, said
    said = target.probing("flamegraph", "-o", str(target.world.tmp / "x.svg")).stderr
    assert "probing: there is no table 'python.samples': its process had not" in said, said


def test_list_for_programs(world, target):
    assert str(world.data) not in world.probing("list", "--dead", "--json").stdout
    target.inject()
    for words in (["list", "--json"], ["list", "--json", "--dead"]):
        rows = [json.loads(line) for line in world.probing(*words).stdout.splitlines()]
        [row] = [row for row in rows if row["pid"] == target.pid]
        assert row["directory"].startswith(str(world.data)) and row["uid"] == os.geteuid()
        assert "target-0.py" in row["command"] and row["version"] and row["crash"] is None
        target.kill()


FOLLOWED = {
    "ends": ('print("hello") probing.publish({a = 1, b = "x y"}) probing.publish({{1}})',
             ["hello", "a=1 b=x y", "[[1]]"], 0, ""),
    "stops": ('local n = 0 probing.every("10ms", function() n = n + 1 print("tick " .. n) '
              'if n == 3 then probing.stop() end end)', ["tick 1", "tick 2", "tick 3"], 0, ""),
    "fails": ('error("it may not be")', [], 1, "fails:1: it may not be"),
}


@pytest.mark.parametrize("name", sorted(FOLLOWED))
def test_followed_script(world, target, name):
    """Its words as text, and an end with it."""
    target.inject()
    source, lines, code, why = FOLLOWED[name]
    (world.tmp / (name + ".lua")).write_text(source)
    for _ in range(2):
        done = target.probing("script", "run", str(world.tmp / (name + ".lua")), "--follow")
        shown = ["a=1 b=x y" if line == "b=x y a=1" else line  # a table of Lua has no order
                 for line in done.stdout.splitlines()]
        assert (done.returncode, shown) == (code, lines), done.stderr
        assert why in done.stderr
    done = target.probing("script", "run", str(world.tmp / (name + ".lua")), "--follow", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()][:1] == lines[:1]


def test_followed_script_goes_on_after_ctrl_c(world, target):
    target.inject()
    (world.tmp / "on.lua").write_text('probing.every("10ms", function() print("on") end)')
    words = [str(CLI), "-t", str(target.pid), "script", "run", str(world.tmp / "on.lua"), "-f"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=world.env)
    assert child.stdout.readline() == "on\n"
    child.send_signal(signal.SIGINT)
    _, why = child.communicate(timeout=LIMIT)
    told = re.search(r"script on goes on .*: probing (-t \d+ script stop on)\n", why)
    assert child.returncode == 130 and told, why
    assert world.probing(*told.group(1).split()).stdout == "script on has stopped\n"
