# SPDX-License-Identifier: Apache-2.0
"""nccl_driver.c as tests use it: a program that calls a profiler plugin as NCCL does, told what to
play line by line."""
import os

from world import BUILD, CLI, wait_for

PLUGIN = BUILD / "plugins" / "nccl.so"
DRIVER = BUILD / "tests" / "nccl" / "nccl_driver"
COMM = "comm 0 0xabc123 world 2 4 1"


class Program:
    def __init__(self, world, launch=False, env=None):
        """launch: with the core and the plugin from the beginning."""
        pipe = str(world.tmp / ("commands-%d" % len(world.targets)))
        os.mkfifo(pipe)
        words = [str(CLI), "launch", "--plugin", "nccl", "--"] if launch else []
        self.target = world.start(*words, str(DRIVER), pipe, env=env)
        self.target.wait_line("^ready")
        self.pipe = os.open(pipe, os.O_RDWR)  # it stays open whoever else has it
        self.told = 0
        if launch:
            self.wait_plugin()

    def wait_plugin(self):
        wait_for(lambda: "running" in self.target.probing(
            "query", "select state from probing.plugins where name = 'nccl'").stdout,
            "the plugin nccl")

    def tell(self, *lines):
        """Its answer to each, without "done"."""
        before = len(self.target.output())
        os.write(self.pipe, "".join(line + "\n" for line in lines).encode())
        self.told += len(lines)
        wait_for(lambda: self.target.output().count("done\n") >= self.told or
                 not self.target.alive(), "answers to %s" % (lines,))
        assert self.target.alive(), self.target.output()
        return [line for line in self.target.output()[before:].split("\n")
                if line and line != "done"]

    def rows(self, sql):
        return self.target.rows(sql)

    def wait_rows(self, sql, n):
        """At least n rows: the writer looks twenty times a second."""
        wait_for(lambda: len(self.rows(sql)) >= n, "%d rows of %s" % (n, sql))
        return self.rows(sql)

    def value(self, sql):
        return self.rows(sql)[0][0]


ONE = [  # a collective of two channels, one of which goes to another machine
    "coll 1 0 7 AllReduce 1048576 ncclFloat32 2", "stop 1",
    "kernel 2 0 1 0 1000000", "kernel 3 0 1 1 1000500",
    "proxy 4 0 1 0 2 8 1", "proxy 5 0 1 0 0 8 0",
    "step 6 0 4 0", "state 6 8", "step 7 0 5 0", "state 7 10", "rest 30",
    "state 6 20", "state 6 9 65536", "stop 6",
    "state 7 11 65536", "state 7 12 65536", "stop 7", "stop 4", "stop 5",
    "timer 2 3000000", "timer 3 3100500", "stop 2", "stop 3"]
