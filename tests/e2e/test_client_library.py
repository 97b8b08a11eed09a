# SPDX-License-Identifier: Apache-2.0
"""The client for others, as they get it: installed somewhere, found by pkg-config, linked into a
program that lies outside of the tree, which asks real processes."""
import fcntl
import os
import re
import shutil
import signal
import subprocess

import pytest
from world import BUILD, LIMIT, ROOT

EXAMPLE = ROOT / "sdk" / "examples" / "ask.c"
COMPILERS = (("gcc", "-std=c99"), ("gcc", "-std=gnu17"), ("clang", "-std=c11"),
             ("g++", "-xc++", "-std=c++11"), ("clang++", "-xc++", "-std=c++17"))
STRICT = ("-Wall", "-Wextra", "-pedantic", "-Werror", "-D_POSIX_C_SOURCE=200809L")

pytestmark = pytest.mark.skipif(BUILD.name != "release", reason="the release is what is installed")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The prefix below a DESTDIR, which is not where it says that it is."""
    if not shutil.which("scons") or not shutil.which("pkg-config"):
        pytest.skip("scons or pkg-config is not installed")
    top = tmp_path_factory.mktemp("installed")
    with open(BUILD / "install.lock", "w") as alone:  # each of pytest's workers wants it
        fcntl.flock(alone, fcntl.LOCK_EX)
        done = subprocess.run(["scons", "-s", "install", "DESTDIR=%s" % top,
                               "prefix=/opt/probing"], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    return top / "opt" / "probing"


def flags(installed, package, *what):
    found = subprocess.run(["pkg-config", *what, package], check=True, stdout=subprocess.PIPE,
                           text=True, env=dict(os.environ, PKG_CONFIG_PATH=str(
                               installed / "lib" / "pkgconfig")))
    return found.stdout.split()


@pytest.fixture(scope="module")
def ask(installed, tmp_path_factory):
    """The example, by the command that its head names."""
    folder = tmp_path_factory.mktemp("outside")
    shutil.copy(EXAMPLE, folder)
    subprocess.run(["cc", "ask.c", *flags(installed, "probing-client", "--cflags", "--libs"), "-o",
                    "ask"], check=True, cwd=folder)
    return folder / "ask"


def run(ask, *words, env=None):
    return subprocess.run([str(ask), *map(str, words)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=LIMIT, env=env)


@pytest.mark.parametrize("compiler", COMPILERS, ids=" ".join)
def test_strict_compilers_take_it(installed, compiler, tmp_path):
    if not shutil.which(compiler[0]):
        pytest.skip("%s is not installed" % compiler[0])
    subprocess.run([*compiler, *STRICT, *flags(installed, "probing-client", "--cflags"), "-c",
                    str(EXAMPLE), "-o", str(tmp_path / "ask.o")], check=True)
    subprocess.run([compiler[0], str(tmp_path / "ask.o"),
                    *flags(installed, "probing-client", "--libs"), "-o", str(tmp_path / "ask")],
                   check=True)


def test_a_plugin_is_built_from_what_is_installed(installed, tmp_path):
    source = installed / "share" / "probing" / "sdk" / "template" / "plugin.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-fvisibility=hidden", *STRICT[:2], "-Werror",
                    *flags(installed, "probing", "--cflags"), str(source), "-o",
                    str(tmp_path / "heartbeat.so")], check=True)


def symbols(library):
    text = subprocess.run(["nm", "-P", str(library)], check=True, stdout=subprocess.PIPE,
                          text=True).stdout
    return re.findall(r"^(\S+) (\w)\b", text, re.M)


def test_names_of_the_library(installed):
    """Its public names have one prefix; nothing is kept, started or ended."""
    found = symbols(installed / "lib" / "libprobing_client.a")
    shown = {name for name, kind in found if kind.isupper() and kind != "U"}
    header = (ROOT / "include" / "probing" / "client.h").read_text()
    assert shown == set(re.findall(r"\b(probing_client_\w+)\(\w+ ", header))
    assert not [name for name, kind in found if kind in "bBdDC" and name != "status_fields"]
    needs = {name.split("@")[0] for name, kind in found if kind == "U"}
    assert not needs & set("exit _exit abort __assert_fail printf puts fputs fputc fwrite putchar "
                           "perror vprintf stdout stderr getenv secure_getenv setenv signal "
                           "sigaction pthread_create fork system pthread_key_create "
                           "__tls_get_addr".split()), needs
    sections = subprocess.run(["objdump", "-h", str(installed / "lib" / "libprobing_client.a")],
                              check=True, stdout=subprocess.PIPE, text=True).stdout
    assert not re.search(r"\.init_array|\.ctors|\.tdata|\.tbss|\.bss\.", sections)


def test_rows_of_a_process(world, ask):
    target = world.start("/bin/sleep", "600")
    target.inject("--wait")  # the loader may be at it still
    sql = "select n, n * 2 as twice from (select 1 as n union all select 2)"
    asked = run(ask, target.pid, sql)
    assert (asked.stdout, asked.returncode) == ("n,twice\n1,2\n2,4\n", 0), asked.stderr
    sock = next(world.data.glob("%d-*/sock" % target.pid))
    assert run(ask, sock, sql).stdout == asked.stdout
    wrong = run(ask, target.pid, "select nothing from nowhere")
    assert wrong.returncode == 1 and "nowhere" in wrong.stderr and wrong.stdout == ""
    # A large answer comes whole, byte by byte what the command has of it.
    large = "select n, repeat('x', 100) as t from generate_series(1, 20000) n"
    all_rows = run(ask, target.pid, large).stdout
    assert all_rows.count("\n") == 20001
    assert all_rows == target.probing("query", large, "--format", "csv").stdout


def test_by_tcp_with_a_token(world, ask):
    target = world.start("/bin/sleep", "600", env={"PROBING_TOKEN": "0123456789abcdef" * 2})
    target.inject()
    listens = target.probing("config", "server.listen=127.0.0.1:0")
    assert listens.returncode == 0, listens.stderr
    place = re.search(r"127\.0\.0\.1:[1-9]\d*", listens.stdout).group(0)
    right = dict(os.environ, PROBING_TOKEN="0123456789abcdef" * 2)
    assert run(ask, place, "select 1 as n", env=right).stdout == "n\n1\n"
    wrong = run(ask, place, "select 1", env=dict(os.environ, PROBING_TOKEN="guess"))
    assert wrong.returncode == 1 and "token" in wrong.stderr


def test_processes_that_do_not_answer(world, ask):
    nobody = run(ask, 2 ** 22 + 1, "select 1")
    assert nobody.returncode == 1 and "there is no process 4194305" in nobody.stderr
    plain = world.start("/bin/sleep", "600")
    bare = run(ask, plain.pid, "select 1")
    assert bare.returncode == 1
    assert "process %d has no probing in it" % plain.pid in bare.stderr
    nowhere = run(ask, world.tmp / "sock", "select 1")
    assert nowhere.returncode == 1 and "nobody listens" in nowhere.stderr
    closed = run(ask, "127.0.0.1:1", "select 1")
    assert closed.returncode == 1 and "nobody listens there" in closed.stderr


def started(ask, *words):
    return subprocess.Popen([str(ask), *map(str, words)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


@pytest.fixture
def watched(world, ask):
    """A process that adds rows, and the example that follows them."""
    target = world.start("/bin/sleep", "600")
    target.inject("--wait")  # the loader may be at it still
    heartbeat = world.tmp / "heartbeat.so"
    shutil.copy(BUILD / "sdk" / "template.so", heartbeat)
    assert target.probing("plugin", "load", str(heartbeat)).returncode == 0
    follows = started(ask, target.pid, "--watch", "select number from heartbeat.beats")
    assert re.match(r'\{"number":\d+\}', follows.stdout.readline())
    yield target, follows
    follows.kill()
    follows.communicate()


def test_a_stream_goes_on_until_it_is_interrupted(watched):
    target, follows = watched
    assert re.match(r'\{"number":\d+\}', follows.stdout.readline())
    follows.send_signal(signal.SIGINT)
    _, why = follows.communicate(timeout=LIMIT)
    assert (follows.returncode, why) == (0, "")


def test_a_process_that_dies_ends_its_streams(watched):
    target, follows = watched
    os.kill(target.pid, signal.SIGKILL)
    _, why = follows.communicate(timeout=LIMIT)
    assert follows.returncode == 1
    assert "the process has died; its data can still be queried" in why


def test_an_answer_that_is_cut_is_an_error(world, ask):
    """The process dies in the middle of a long one: what came is printed, and nothing is well."""
    target = world.start("/bin/sleep", "600")
    target.inject("--wait")  # the loader may be at it still
    reads = started(ask, target.pid, "select n from generate_series(1, 1000000000) n")
    assert reads.stdout.readline() == "n\n"
    os.kill(target.pid, signal.SIGKILL)
    rows, why = reads.stdout.read(), reads.stderr.read()
    assert reads.wait(timeout=LIMIT) == 1 and rows.startswith("1\n2\n")
    assert "the process has died" in why


def test_a_core_that_leaves_ends_its_streams(watched):
    target, follows = watched
    assert target.probing("eject").returncode == 0
    _, why = follows.communicate(timeout=LIMIT)
    assert follows.returncode == 1 and "the core is leaving this process (eject)" in why
    assert target.alive()
