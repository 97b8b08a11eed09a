# SPDX-License-Identifier: Apache-2.0
"""Programs that know what they keep, and what the memory plugin says of them.

A program of this kind takes two files as its last arguments.  When the first is there it allocates
and frees much, says "alive churn", and when the second is there, too, it goes on with what it
keeps: a line "alive FUNCTION BYTES COUNT" for each function, and "done"."""
import re

from world import wait_for

SIGMAS = 6  # of the standard error stated with each estimate: one in 500 million is further off
# Where there are few samples that error is itself a guess: what was allocated in so many distances
# is in no sample once in 500 million times, and less than so many are missing beside six errors.
UNSEEN = 20

LIVE = ("select function_name, sum(bytes), sqrt(sum(bytes_error::double * bytes_error)), "
        "sum(count), sum(samples), max(file) from %s group by 1")


def let_it_run(target, go, then, *settings):
    """The blocks that it keeps: {function: (bytes, count)}."""
    for setting in settings:
        assert target.probing("config", setting).returncode == 0
    go.touch()
    target.wait_line("^alive churn", timeout=300)
    # where it allocated 10 GB at once samples have thinned out
    wait_for(lambda: target.rows("select sample_bytes = sample_bytes_setting from memory.sampling")
             == [[True]], "the distance that was asked for")
    assert target.probing("mark", "begun").returncode == 0
    then.touch()
    target.wait_line("^done", timeout=300)
    assert target.probing("mark", "done").returncode == 0
    return {name: (int(alive), int(count)) for name, alive, count in
            re.findall(r"^alive (\w+) (\d+) (\d+)", target.output(), flags=re.M)}


def told(target, of="memory.live"):
    return {row[0]: row[1:] for row in target.rows(LIVE % of)}


def widest(target):
    """The largest mean distance between samples while the program allocated what it keeps."""
    (bytes,), = target.rows(
        "select max(sample_bytes_max) from memory.snapshots where snapshot_id > (select "
        "max(snapshot_id) from memory.snapshots where kind = 'mark' and name = 'begun')")
    return bytes


def compare(found, truth, widest, slack=0):
    """found: of told().  slack: bytes that the program does not know that its functions keep.

    Samples without a stack are in the row without a function: each of them is somebody's."""
    bare = found.get(None, (0, 0, 0, 0, None))
    print("samples up to %d bytes from each other; %d bytes +- %d without a stack" % (
        widest, bare[0], bare[1]))
    for name, (alive, count) in truth.items():
        bytes, error, number, samples, _ = found.get(name, (0, 0, 0, 0, None))
        most = SIGMAS * error + UNSEEN * widest + slack
        print("%-20s alive %12d told %12d +- %10d count %8d told %10.1f samples %d" % (
            name, alive, bytes, error, count, number, samples))
        assert bytes - alive <= most, name
        assert alive - bytes <= most + bare[0] + SIGMAS * bare[1], name
