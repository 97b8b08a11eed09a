# SPDX-License-Identifier: Apache-2.0
"""Python scripts as targets: run by any CPython, entered once they are ready."""
import json

import world as shared
from world import ROOT

PACKAGE = ROOT / "plugins" / "python" / "package"


class Script(shared.Target):
    """A Python script that runs, entered once it has said "ready"."""

    def __init__(self, world, python, source, env=None, arguments=()):
        self.source = source
        script = world.tmp / ("target-%d.py" % len(world.targets))
        script.write_text(source, encoding="utf-8")
        super().__init__(world, [python, "-u", str(script), *arguments], env)

    def inject(self):
        self.wait_line("^ready")
        super().inject()
        return self

    def threads(self, *options):
        """`backtrace --json`'s threads by id."""
        done = self.probing("backtrace", "--json", *options)
        assert done.returncode == 0, done.stderr
        return {t["tid"]: t for t in json.loads(done.stdout)["threads"]}

    def eval(self, code, *options):
        return self.probing("eval", *options, code)

    def line(self, mark):
        """Number of the source line that holds `# mark`."""
        for number, line in enumerate(self.source.split("\n"), 1):
            if line.endswith("# " + mark):
                return number
        raise KeyError(mark)


def python_frames(thread):
    """[(function's own name, line)], innermost first."""
    return [(f["func"].rpartition(".")[2], f["line"]) for f in thread["frames"]
            if f["type"] == "python"]


class Scripts(shared.World):
    def start(self, python, source, **more):
        target = Script(self, python, source, **more)
        self.targets.append(target)
        return target
