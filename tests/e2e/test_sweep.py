# SPDX-License-Identifier: Apache-2.0
"""The data of the dead: their memory is given back, their files are kept within limits."""
import os
import shutil
import time
from pathlib import Path

from life import memory_of
from world import CORE, wait_for


def age(path, seconds):
    then = time.time() - seconds
    for at in [*path.iterdir(), path]:
        os.utime(at, (then, then))  # of what a link leads to


def test_memory_of_the_killed_is_given_back(world):
    """kill -9, the data directory removed or not: the next start takes the memory back."""
    first, second, third = (world.start("/bin/sleep", "600", env={"LD_PRELOAD": str(CORE)})
                            for _ in range(3))
    for target in (first, second, third):
        wait_for(lambda: target.probing("query", "select 1").returncode == 0, "a core")
    assert len(memory_of(world)) == 3
    first.kill()
    second.kill()
    directories = {int(d.name.split("-")[0]): d for d in world.data.iterdir()}
    shutil.rmtree(directories[first.pid])
    for memory in memory_of(world):
        age(Path(memory), 3600)
    age(directories[third.pid], 3600)
    last = world.start("/bin/sleep", "600", env={"LD_PRELOAD": str(CORE)})
    wait_for(lambda: {int(m.split("/")[-1].split("-")[0]) for m in memory_of(world)}
             == {third.pid, last.pid}, "the memory to be swept")
    assert (directories[second.pid] / "rings").is_file()
    assert not (directories[second.pid] / "rings").is_symlink()
    done = world.probing("-t", str(second.pid), "query", "select 1")
    assert done.returncode == 0, done.stderr  # what is not too old may be asked
    assert third.rows("select 1") == [[1]]


def test_data_of_the_dead_is_kept_within_limits(world):
    old = world.start("/bin/sleep", "600", env={"LD_PRELOAD": str(CORE)})
    wait_for(lambda: old.probing("query", "select 1").returncode == 0, "a core")
    directory = next(world.data.iterdir())
    old.kill()
    age(directory, 8 * 86400)
    world.start("/bin/sleep", "600", env={"LD_PRELOAD": str(CORE)})
    wait_for(lambda: not directory.exists(), "data that is too old to be swept")
