# SPDX-License-Identifier: Apache-2.0
"""`probing ship` and whose rows they are, where names say too little: copies of a data directory,
containers that all have one host name and a process 1, a process that is left and entered again."""
import json
import re
import shutil
from pathlib import Path

from shipping import (add, folder, receive, remote_write, ship, start_job, state_of)  # noqa: F401
from world import wait_for


def directory_of(target):
    found, = Path(target.world.env["PROBING_DATA_DIR"]).glob("%d-*" % target.pid)
    return found


def copy_of(target, place):
    """As `cp -rL` makes it."""
    place.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.copytree(directory_of(target), place, ignore=shutil.ignore_patterns("sock", "door"))
    place.chmod(0o700)
    return place


def rewrite_info(directory, change):
    """With the check at its end, as core/base/info_file.h has it."""
    text = change((directory / "info").read_bytes().rsplit(b"check: ", 1)[0])
    check = 0xcbf29ce484222325
    for byte in text:
        check = (check ^ byte) * 0x100000001b3 & 2 ** 64 - 1
    (directory / "info").write_bytes(text + b"check: %016x\n" % check)


def test_a_copy_is_not_sent_beside_what_it_is_of(world):
    """Each row came twice, and 18446744073709551416 were said to be lost."""
    rank, = start_job(world)
    add(rank, 40)
    assert rank.rows("select count(*) from python.loss") == [[40]]
    same = copy_of(rank, world.tmp / "copies" / directory_of(rank).name)
    other = copy_of(rank, world.tmp / "copies" / "of-yesterday")
    for copy in (same, other):
        for targets in ("%d,%s" % (rank.pid, copy), "%s,%d" % (copy, rank.pid)):
            out = world.tmp / "out"
            shutil.rmtree(world.tmp / "state", ignore_errors=True)
            shutil.rmtree(out, ignore_errors=True)
            done = ship(world, targets, "parquet:%s" % out, "--tables", "python.loss")
            assert "%s is left out: it has the same rows as %d" % (copy, rank.pid) in done.stderr
            assert done.returncode == 1  # not all that was named was sent
            assert sorted(row["step"] for row in folder(out)) == list(range(40))
            head, (source,) = state_of(world)
            assert head["lost"] == 0 and head["rows"] == 40
            assert source["directory"] == str(directory_of(rank))


def test_two_processes_of_one_name_are_two(world, receive):  # noqa: F811
    """Containers of one machine: its boot, its name or one that all have, and a process 1 that
    began in the same hundredth of a second.  The rows of one were taken for those of the other."""
    one, two = start_job(world), start_job(world)
    pair = [one[0], two[0]]
    for n, rank in enumerate(pair):
        add(rank, 10 + 10 * n, apart=0.002)
        rank.kill()
    made = []
    for n, rank in enumerate(pair):
        place = copy_of(rank, world.tmp / ("container %d" % n) / "1-4711")
        rewrite_info(place, lambda text: re.sub(
            rb"start_time: \d+", b"start_time: 4711", re.sub(rb"pid: \d+", b"pid: 1", text)))
        made.append(str(place))
    # Only the first was asked, whatever the question, and nothing was said of the other.
    named = ",".join([*made, made[0] + "/../" + Path(made[0]).name])
    done = world.probing("-t", named, "query", "--format", "json",
                         "select count(*) as n from python.loss")
    assert done.returncode == 0, done.stderr
    assert [row[-1] for row in json.loads(done.stdout)["rows"]] == [10, 20]
    out = world.tmp / "out"
    done = ship(world, ",".join(made), "parquet:%s" % out, "--tables", "python.loss")
    assert done.returncode == 0, done.stderr
    found = folder(out)
    assert len(found) == 30 and {row["_pid"] for row in found} == {1}
    by = {}
    for row in found:
        by.setdefault(row["_process"], []).append(row["step"])
    assert sorted(map(sorted, by.values())) == [list(range(10)), list(range(20))]
    shutil.rmtree(world.tmp / "state")
    to = receive()
    done = ship(world, ",".join(made), "prometheus+http://127.0.0.1:%d/write" % to.port, "--tables",
                "python.loss")
    assert done.returncode == 0, done.stderr
    series = {}
    for request in to.taken():
        for labels, values in remote_write(request["body"]):
            if labels["__name__"] == "probing_python_loss_step":
                series.setdefault(labels["process"], []).extend(v for _, v in values)
                assert labels["pid"] == "1"
    assert {who: sorted(values) for who, values in series.items()} == \
        {who: sorted(steps) for who, steps in by.items()}


def test_who_is_left_and_entered_again_is_the_same(world):
    """Its rows go on with the same numbers, so it must not be another one to ship."""
    rank, = start_job(world)
    add(rank, 7)
    out = world.tmp / "out"
    words = (world, str(rank.pid), "parquet:%s" % out, "--tables", "python.loss")
    assert ship(*words).returncode == 0
    before = rank.rows("select instance_id from process.info")
    assert re.fullmatch(r"[0-9a-f-]{36}", before[0][0])
    assert rank.probing("eject").returncode == 0
    assert ship(*words).returncode == 0
    rank.inject("--plugin", "python")
    wait_for(lambda: rank.rows("select instance_id from process.info") == before, "the same id")
    add(rank, 5)
    assert ship(*words).returncode == 0
    found = folder(out)
    assert sorted(row["step"] for row in found) == list(range(12))
    assert len({row["_process"] for row in found}) == 1
