# SPDX-License-Identifier: Apache-2.0
"""memory.usage, memory.parts, its events and `probing memory`: of the program, not of us."""
import json
import re

import world as shared

GROWING = ("import os, time\n"
           "keep = []\n"
           "print('ready', flush=True)\n"
           "while not os.path.exists(%r): time.sleep(0.01)\n"
           "while len(keep) < %d:\n"
           "    keep.append(bytearray(%d << 20))\n"
           "    time.sleep(0.02)\n"
           "print('full', flush=True)\n"
           "while True: time.sleep(0.01)\n")
MB = 1 << 20


def grown(world, pieces=50, size=2, *options):
    """It begins when the plugin is there, and has looked once."""
    go = world.tmp / "go"
    target = world.python(GROWING % (str(go), pieces, size))
    target.wait_line("ready")
    target.inject("--plugin", "memory", *options)
    shared.wait_for(lambda: target.rows("select * from memory.usage limit 1"), "a look")
    go.write_text("")
    return target


def test_rows_come_while_it_changes_and_say_how_much(world):
    target = grown(world)
    target.wait_line("full")
    shared.wait_for(lambda: target.rows("select max(rss_bytes) > %d from memory.usage"
                                        % (100 * MB)) == [[True]], "a row after the growth")
    rows = target.rows("select rss_bytes, anon_bytes + file_bytes + shmem_bytes, probing_bytes, "
                       "limit_of, peak_rss_bytes from memory.usage order by ts")
    for rss, parts, own, limit_of, peak in rows:
        assert rss == parts and peak >= rss and 0 < own < rss, rows
        assert limit_of in ("machine", "cgroup"), rows
    before = target.rows("select count(*) from memory.usage")[0][0]
    calm = target.rows("select count(*) from memory.usage where ts > now() - interval '3 seconds'")
    shared.wait_for(lambda: target.rows("select extract(epoch from now() - max(ts)) > 2.5 from "
                                        "memory.usage") == [[True]], "that no row comes")
    assert calm[0][0] <= before
    target.probing("config", "memory.interval=250ms")


def test_parts_are_those_of_the_process(world):
    target = grown(world, 50, 2, "-D", "memory.mallinfo_max_bytes=1GB")
    target.wait_line("full")
    parts = {row[0]: row[1:] for row in target.rows("select part, bytes, note from memory.parts")}
    status = dict(re.findall(r"^(\w+):\s+(\d+) kB", open("/proc/%d/status" % target.pid).read(),
                             flags=re.M))
    for part, key in (("rss", "VmRSS"), ("anon", "RssAnon"), ("peak_rss", "VmHWM")):
        assert abs(parts[part][0] - int(status[key]) * 1024) < 16 * MB, (part, parts)
    assert 100 * MB <= parts["heap_used"][0] <= parts["heap_held"][0], parts
    assert 0 < parts["probing"][0] < 40 * MB
    assert parts["heap_used"][1], parts
    named = target.rows("select table_schema || '.' || table_name from information_schema.tables")
    assert len(named) == len(set(map(tuple, named))), named  # memory.live: a view of the dead, too
    heap = json.loads(target.probing("heap").stdout)
    assert heap["allocator"] == "glibc" and heap["used_bytes"] >= 100 * MB, heap
    target.probing("config", "memory.mallinfo_max_bytes=0")
    heap_used = target.rows("select bytes, note from memory.parts where part = 'heap_used'")[0]
    assert heap_used[0] is None and "--heap" in heap_used[1], heap_used


def test_the_report_in_words_and_json(world):
    target = grown(world, 50, 2, "-D", "memory.mallinfo_max_bytes=1GB")
    target.wait_line("full")
    said = target.probing("memory").stdout
    assert re.search(r"^  resident +\d+(\.\d)? MB  #+$", said, flags=re.M), said
    assert re.search(r"^    heap in use +\d+(\.\d)? MB  #+$", said, flags=re.M), said
    report = json.loads(target.probing("memory", "--json").stdout)
    assert report["rss_bytes"] > 100 * MB > report["probing_bytes"] > 0, report
    assert "resident: " in target.probing("memory", "--trim").stdout
    done = json.loads(target.probing("memory", "--trim", "--mark", "m", "--json").stdout)
    assert "resident: " in done["trim"] and done["mark"].startswith("mark m: "), done
    for wrong in ("--diff a", "--leaks --peak", "--trim --peak", "word"):
        assert target.probing("memory", *wrong.split()).returncode == 2, wrong


def test_without_the_plugin_it_says_what_the_core_knows(world):
    target = world.python(shared.IDLE)
    target.wait_line("ready")
    done = target.probing("memory")
    assert done.returncode != 0 and "inject --plugin memory" in done.stderr, done.stderr
    target.inject()
    said = target.probing("memory").stdout
    assert re.search(r"^  resident +\d+(\.\d)? MB", said, flags=re.M), said
    assert "plugin load memory" in said and "heap in use" not in said, said


def test_events_by_a_limit_of_ones_own(world):
    target = grown(world, 60, 2, "-D", "memory.limit=120MB", "-D", "memory.growth_bytes=60MB",
                   "-D", "memory.interval=250ms")
    target.wait_line("full")

    def seen():
        return {row[0] for row in target.rows("select event from memory.events")}
    shared.wait_for(lambda: seen() >= {"memory.high", "memory.oom_near", "memory.growth"}, seen)
    rows = target.rows("select event, limit_of, limit_bytes, message from memory.events where "
                       "event <> 'memory.growth'")
    for event, limit_of, limit, what in rows:
        assert (limit_of, limit) == ("memory.limit", 120 * MB), rows
        assert "memory.limit" in what, rows
    assert [row[0] for row in rows].count("memory.high") == 1, rows


def test_events_by_rlimit(world):
    """Address space: malloc() fails there, nobody is killed."""
    target = world.python("import resource, time\n"
                          "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
                          "print('ready', flush=True)\n"
                          "keep, up = [], True\n"
                          "while True:\n"
                          "    time.sleep(0.05)\n"
                          "    try:\n"
                          "        up and keep.append(bytearray(8 << 20))\n"
                          "    except MemoryError: up = False\n")
    target.wait_line("ready")
    target.inject("--plugin", "memory")
    shared.wait_for(lambda: target.rows("select limit_of, limit_bytes from memory.events where "
                                        "event = 'memory.high'") == [["RLIMIT_AS", 1 << 30]],
                    lambda: target.rows("select * from memory.events"))


def test_the_dead_are_told_of_what_is_known(world):
    target = grown(world)
    target.wait_line("full")
    target.kill()
    done = target.probing("memory")
    assert done.returncode == 0, done.stderr
    assert "nothing says why it has ended" in done.stdout, done.stdout
    assert re.search(r"^  resident +\d+(\.\d)? MB", done.stdout, flags=re.M), done.stdout
    assert json.loads(target.probing("memory", "--json").stdout)["death"]["kernel"] == ""
    assert target.probing("memory", "--trim").returncode != 0


def test_who_was_only_left_is_not_dead(world):
    target = grown(world)
    target.wait_line("full")
    assert target.probing("eject").returncode == 0
    said = target.probing("memory").stdout
    assert target.alive() and said.startswith("it runs on; probing has left it."), said
    assert "death" not in json.loads(target.probing("memory", "--json").stdout)
    target.kill()
    assert target.probing("memory").stdout.startswith("nothing says why it has ended"), said


def test_an_amount_within_its_error_has_no_figure(world):
    """Ten functions keep 1 MB each, of which two samples or so are seen."""
    target = world.python(
        "import os, time\n"
        "print('ready', flush=True)\n"
        "while not os.path.exists(%r): time.sleep(0.01)\n"
        "for i in range(10):\n"
        "    exec('def keep%%d(): return [bytes(1000) for _ in range(1000)]' %% i)\n"
        "kept = [globals()['keep%%d' %% i]() for i in range(10)]\n"
        "print('full', flush=True)\n"
        "time.sleep(600)\n" % str(world.tmp / "go"))
    target.wait_line("ready")
    target.inject("--wait", "--plugin", "memory")
    (world.tmp / "go").touch()
    target.wait_line("full")
    shared.wait_for(lambda: "<string>" in target.probing("memory").stdout, "what it keeps")
    shown = target.probing("memory").stdout
    pairs = re.findall(r"([\d.]+) MB \+- ([\d.]+) MB$", shown, flags=re.M)
    few = re.findall(r"<string>\S* +below [\d.]+ MB$", shown, flags=re.M)
    assert all(float(size) * 1.1 >= 2 * float(error) for size, error in pairs), shown
    assert few, shown
