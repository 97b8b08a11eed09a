# SPDX-License-Identifier: Apache-2.0
"""A stranger's plugin: the template, built with the one line of the README, in a real process."""
import re
import subprocess

from world import ROOT, wait_for


def test_template_builds_loads_and_counts(world):
    built = world.tmp / "heartbeat.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-fvisibility=hidden", "-I%s" % (ROOT / "include"),
                    "-I%s" % (ROOT / "sdk"), str(ROOT / "sdk" / "template" / "plugin.c"),
                    "-o", str(built)], check=True)
    target = world.start("/bin/sleep", "600")  # not even Python
    target.inject()
    done = target.probing("plugin", "load", str(built))
    assert done.returncode == 0, done.stderr
    count = "select count(*), max(number) from heartbeat.beats"
    wait_for(lambda: target.rows(count)[0][0] >= 3, "three beats")
    rows, last = target.rows(count)[0]
    assert rows == last  # none lost, none twice
    assert " beats" in target.probing("heartbeat").stdout
    refused = target.probing("heartbeat", "now")
    assert refused.returncode != 0 and "heartbeat takes no arguments" in refused.stderr
    described = target.probing("describe", "heartbeat.beats")
    assert "how much later" in described.stdout and "ns" in described.stdout
    assert target.probing("config", "heartbeat.period=1us").returncode != 0
    assert target.probing("config", "heartbeat.period=1ms").returncode == 0
    wait_for(lambda: target.rows("select count(*) from heartbeat.beats where late_ns is not null "
                                 "and ts > now() - interval '1 second'")[0][0] > 20, "quick beats")
    assert target.probing("plugin", "stop", "heartbeat").returncode == 0
    assert target.rows(count)[0][0] >= rows  # stopped, and its rows still answer
    again = target.probing("plugin", "load", str(built))
    assert again.returncode == 0, again.stderr
    target.kill()
    dead = target.probing("query", count)
    assert dead.returncode == 0 and dead.stdout.strip()


def test_plugin_of_the_readme(world):
    """The README's plugin compiles without a warning, loads, and answers as it says."""
    text = (ROOT / "README.md").read_text()
    source = world.tmp / "demo.c"
    source.write_text(re.search(r"```c\n(.*?)```", text, re.S).group(1))
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                    "-fvisibility=hidden", "-I%s" % (ROOT / "include"), str(source),
                    "-o", str(world.tmp / "demo.so")], check=True)
    target = world.start("/bin/sleep", "600")
    target.inject("--timeout", "20")
    done = target.probing("plugin", "load", str(world.tmp / "demo.so"))
    assert done.returncode == 0, done.stderr
    latest = "select ts, digit from demo.ticks order by ts desc limit 3"
    rows = wait_for(lambda: target.rows(latest), "a tick")
    assert 0 <= rows[0][1] <= 9
