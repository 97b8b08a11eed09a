# SPDX-License-Identifier: Apache-2.0
"""Tables about the process and about us: threads, memory, environment, overhead, who is connected;
and that no secret is in them, nor in settings, nor in the words of the command itself."""
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from wire import open_door
from world import BUILD, CLI, LIMIT, wait_for

BUSY = """
import threading, time
def work():
    while True:
        sum(range(1000))
threading.Thread(target=work, name="busy", daemon=True).start()
print("ready")
while True: time.sleep(0.05)
"""
SECRETS = {"HF_TOKEN": "hush-hush", "AWS_SECRET_ACCESS_KEY": "hush-too",
           "DATABASE_URL": "postgres://me:hush-word@host/db", "PLAIN": "to be seen"}


@pytest.fixture
def door(world):
    return open_door(world, source=BUSY, env=SECRETS)


def test_environment_without_secrets(door):
    shown = {name: (value, redacted) for name, value, redacted in
             door.target.rows("select name, value, redacted from process.envs")}
    assert shown["HF_TOKEN"] == ("***", 1) and shown["AWS_SECRET_ACCESS_KEY"] == ("***", 1)
    assert shown["DATABASE_URL"] == ("postgres://me:***@host/db", 1)
    assert shown["PLAIN"] == ("to be seen", 0)
    assert "hush" not in str(shown)


def test_settings_without_secrets(door):
    secret = "hunter2hunter2"
    said = door.target.probing("config", "set", "demo.api_key", secret).stdout
    with door.wire(token=door.read_token) as wire:
        for words in (["config"], ["config", "get", "demo.api_key"],
                      ["query", "select * from probing.settings"],
                      ["query", "select * from information_schema.df_settings"]):
            status, text, _ = wire.run(*words)
            assert status == 0
            said += text
    assert "demo.api_key" in said and "***" in said and secret not in said, said


@pytest.mark.parametrize("words", [["set", "demo.api_key", "hunter2"], ["demo.api_key=hunter2"]])
def test_secrets_leave_the_commands_own_words(world, words):
    """While it runs, `ps` shows stars in their place."""
    (world.tmp / "secret").mkdir()
    path = str(world.tmp / "secret" / "sock")  # a path is no name of a secret
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        silent.settimeout(LIMIT)
        with subprocess.Popen([str(CLI), "-t", path, "config"] + words, env=world.env,
                              stderr=subprocess.DEVNULL) as command:
            client, _ = silent.accept()  # it waits for an answer now
            shown = Path("/proc/%d/cmdline" % command.pid).read_bytes()
            command.kill()
            client.close()
    assert b"config" in shown and b"*******" in shown, shown
    assert b"hunter2" not in shown


def test_threads_and_memory(door):
    def busy():
        rows = door.target.rows("select comm, state, cpu_ns from cpu.tasks where probing = 0 "
                                "order by cpu_ns desc limit 1")
        return rows[0] if rows[0][2] > 10 ** 8 else None
    comm, state, _ = wait_for(busy, "0.1 s of CPU")
    assert state in "RS" and comm.startswith("python")
    ours = door.target.rows("select comm from cpu.tasks where probing = 1")
    assert ["probing/server"] in ours
    (rss, peak, total, left), = door.target.rows(
        "select rss_bytes, peak_rss_bytes, system_total_bytes, system_available_bytes "
        "from process.memory")
    assert 1 << 20 < rss <= peak < total and 0 < left < total


def test_overhead_names_threads_memory_and_disk(door):
    rows = door.target.rows("select kind, name, cpu_ns, cpu_pct, bytes from probing.overhead")
    assert {row[0] for row in rows} == {"thread", "memory", "disk"}
    server, = [row for row in rows if row[1] == "probing/server"]
    assert server[2] > 0 and 0 < server[3] < 100 and server[4] is None


def test_clients_are_listed_while_they_are_there(door):
    sql = "select client, transport, protocol, access, requests, dropped from probing.clients"
    with door.wire(token=door.read_token) as wire:
        rows = door.target.rows(sql)
        tcp, = [row for row in rows if row[1] == "tcp"]
        local, = [row for row in rows if row[1] == "unix"]
        assert re.fullmatch(r"127\.0\.0\.1:\d+", tcp[0]) and tcp[2:] == ["websocket", "read", 0, 0]
        assert local[0].endswith(" of uid %d" % os.getuid()) and local[2:4] == ["websocket", "full"]
        assert wire.run("query", "select 1")[0] == 0
        assert door.target.rows(sql + " where transport = 'tcp'")[0][4] == 1
    wait_for(lambda: len(door.target.rows(sql)) == 1, "the other to be gone")


def test_clients_that_are_remote_name_only_plugins_of_the_plugin_path(door, tmp_path):
    plugin = tmp_path / "python.so"
    shutil.copy(Path(BUILD) / "plugins" / "python.so", plugin)
    with door.wire(token=door.token) as wire:
        for words in (["mine", str(plugin)], [str(plugin)]):
            status, _, error = wire.run("plugin", "load", *words)
            assert status == -13 and "own plugin path" in error, error
    with door.wire(token=None, path=door.sock) as wire:
        status, _, error = wire.run("plugin", "load", str(tmp_path / "none.so"))
        assert status == -2 and "none.so" in error, (status, error)


def test_inject_says_the_port_it_got(world):
    target = world.python(BUSY)
    target.wait_line("ready")
    page = re.search(r"page: http://127\.0\.0\.1:(\d+)/\?token=\w{32}$",
                     target.inject("-l", ":0").stdout, flags=re.M)
    assert page and int(page.group(1)) > 0
    assert ("listening: 127.0.0.1:" + page.group(1)) in target.probing("info").stdout
    said = target.probing("config", "server.listen=:0").stdout
    assert re.fullmatch(r"server.listen=127\.0\.0\.1:[1-9]\d*\n", said), said


def test_older_words_still_work(world):
    """As the READMEs of the tools before this one have them."""
    target = world.python(BUSY)
    target.wait_line("ready")
    done = world.probing(str(target.pid), "inject", "-b", "-a", "127.0.0.1:0")
    assert done.returncode == 0 and "page: http://127.0.0.1:" in done.stdout, done.stderr
    done = world.probing("-p", str(target.pid), "memory")
    assert done.returncode == 0 and re.search(r"^  resident +\d+\.\d MB", done.stdout, flags=re.M)
    assert world.probing("memory", env={"ENDPOINT": str(target.pid)}).returncode == 0
    done = world.probing("cluster", "attach", "--job", "no-such")
    assert done.returncode == 1 and "no rank of job 'no-such'" in done.stderr
    said = target.probing("config", "probing.sample_rate=0.05").stdout
    assert said == "torch.sample_rate=0.05 (kept until plugin torch is loaded)\n"


def test_settings_by_their_common_names(door):
    rows = dict(door.target.rows("select name, value from information_schema.df_settings"))
    theirs = rows["datafusion.execution.target_partitions"], rows["datafusion.runtime.memory_limit"]
    assert theirs == (rows["max_threads"], rows["memory_pool_size"])
    assert theirs == (rows["query.threads"], rows["query.max_memory"])
