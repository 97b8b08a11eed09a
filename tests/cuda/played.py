# SPDX-License-Identifier: Apache-2.0
"""A process whose tables of plugin cuda have the rows that a test says: libraries/played_rows.c."""
import subprocess

from world import ROOT

TABLES = ("kernels", "kernel_stats", "device_time", "memcpy", "memory", "runtime", "sync",
          "event_stats", "overhead", "windows", "torch_step_timing")
SECOND = 1000000000


class Played:
    def __init__(self, world):
        plugin = world.tmp / "cuda.so"
        source = ROOT / "plugins" / "cuda"
        folders = [ROOT, ROOT / "include", ROOT / "sdk", source]
        subprocess.run(["cc", "-std=gnu17", "-shared", "-fPIC", "-fvisibility=hidden",
                        *("-I%s" % f for f in folders),
                        str(ROOT / "tests" / "cuda" / "libraries" / "played_rows.c"),
                        str(source / "trace" / "tables.c"), str(source / "declarations.c"),
                        "-o", str(plugin)], check=True)
        self.target = world.start("sleep", "600")
        self.file = world.tmp / "rows"
        self.target.inject("-D", "probing.plugins=")
        done = self.target.probing("plugin", "load", str(plugin))
        assert done.returncode == 0, done.stderr
        self.columns = {}
        for table, column, kind in self.target.rows(
                "select table_name, column_name, data_type from information_schema.columns where "
                "table_schema = 'cuda' or table_name = 'torch_step_timing' order by table_name, "
                "ordinal_position"):
            self.columns.setdefault(table, []).append((column, kind))
        self.lines = []

    def add(self, table, ago_ns=SECOND, **cells):
        words = [str(TABLES.index(table)), str(ago_ns)]
        names = self.columns[table][2:]  # without ts and tid
        assert set(cells) <= {n for n, _ in names}, (cells, names)
        for name, kind in names:
            value = cells.get(name)
            if value is None:
                words.append("'" if kind == "text" else "-")
            else:
                words.append("'" + value if kind == "text" else str(value))
        self.lines.append("\t".join(words))

    def play(self):
        self.file.write_text("\n".join(self.lines) + "\n")
        done = self.target.probing("play", str(self.file))
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) == len(self.lines)
        self.lines = []
