# SPDX-License-Identifier: Apache-2.0
"""Values at the ends of what a column can hold, and tables at the end of how many there can be:
kept as they are, or missing with a reason, alive and dead."""
import re

from world import CORE, ROOT

PACKAGE = ROOT / "plugins" / "python" / "package"
BEGIN = "import probing, time; probing.init()\n"
END = "\nprint('ready', flush=True)\ntime.sleep(1000)\n"

ODD = """
odd = probing.table("odd", {"k": int, "a": int, "b": float, "w": str, "s": str})
odd.append(0, -2**63, float("nan"), "", "")
odd.append(1, 2**63 - 1, float("inf"), "w" * 70000, None)
odd.append(2, -2**63 + 1, float("-inf"), None, "s" * 300000)
odd.append(3, 2**53 + 1, -0.0, "\\U0001F600\\u202e", "x" * (255 << 10))
odd.append(4, -2**53 - 1, 5e-324, "a\\x00b", "y" * (1 << 20))
"""


def program(world, source):
    target = world.python(BEGIN + source + END, env={"PYTHONPATH": str(PACKAGE),
                                                     "PROBING_LIBRARY": str(CORE)})
    target.wait_line("ready")
    return target


def check_odd(target):
    assert target.rows("select k, a, w, length(s), s is null from python.odd order by k") == [
        [0, None, "", 0, False], [1, 2**63 - 1, None, None, True],
        [2, -2**63 + 1, None, None, True],
        [3, 2**53 + 1, "\U0001F600\u202e", 255 << 10, False],
        [4, -2**53 - 1, "a\0b", None, True]]
    assert target.rows("select b from python.odd order by k") == [
        ["NaN"], ["Infinity"], ["-Infinity"], [-0.0], [5e-324]]
    assert target.rows("select * from probing.lost") == [["python.odd", "value", 4]]


def test_values_are_kept_or_missing_with_a_reason(world):
    """An empty last text was NULL, of -2^63 nothing was said, a long word had 'no room', and of a
    long last text the row was gone without a word."""
    target = program(world, ODD)
    check_odd(target)
    log = "\n".join(row[0] for row in target.rows("select text from probing.log"))
    for said in ("column a: -2^63 stands for NULL", "column w: a text of more than 64 KiB",
                 "column s: over 255 KiB"):
        assert len(re.findall(re.escape(said), log)) == 1, log
    assert target.rows("select lost from probing.tables where name = 'odd'") == [[0]]
    target.kill()
    check_odd(target)


def test_1024_tables_alive_and_dead(world):
    """With 1,010 of its own a dead process could not be asked, nor a living one for the last."""
    target = program(world, """
many = [probing.table("t%d" % i, {"a": int, "s": str}) for i in range(1024)]
for i, t in enumerate(many): t.append(i, "s")
try: probing.table("more", {"a": int})
except ValueError as error: print("refused:", error, flush=True)
""")
    target.wait_line("refused: python.more: a program may have 1024 tables, and has them")
    for _ in ("alive", "dead"):
        assert target.rows("select a, s from python.t1023") == [[1023, "s"]]
        assert target.rows("select count(*), sum(rows) from probing.tables where schema = 'python' "
                           "and name like 't%' and kind = 'stored' and rows = 1") == [[1024, 1024]]
        assert target.rows("select * from probing.lost") == []
        target.kill()


GREEDY = """
#include <stdio.h>
#include <probing/plugin.h>
static int init(const struct probing_host *h, void **ret)
{
    static const struct probing_column columns[] = {{"n", PROBING_I64, PROBING_PLAIN, "", {0}}};
    struct probing_table *t;
    char name[32];
    int r = 0;
    *ret = NULL;
    for (int i = 0; r == 0; i++) {
        struct probing_table_desc d = {sizeof(d), sizeof(columns[0]), name, "", columns, 1};
        snprintf(name, sizeof(name), "t%d", i);
        r = h->table(h, &d, &t);
    }
    return r;
}
static void destroy(void *self) { (void)self; }
PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "greedy", .version = "1",
    .doc = "", .init = init, .destroy = destroy};
"""


def test_rows_of_tables_that_cannot_be_are_counted(world):
    """They went nowhere, and probing.log had a number."""
    made = world.plugin("greedy", GREEDY)
    target = world.python(BEGIN + """
print('begun', flush=True)
import os
while not os.path.exists("go"): time.sleep(0.01)
late = probing.table("late", {"a": int})
for i in range(7): late.append(i)
""" + END, env={"PYTHONPATH": str(PACKAGE), "PROBING_LIBRARY": str(CORE)})
    target.wait_line("begun")
    refused = target.probing("plugin", "load", str(made))
    assert refused.returncode != 0
    assert "already has 1536 stored tables, the maximum" in refused.stderr, refused.stderr
    (world.tmp / "go").touch()
    target.wait_line("ready")
    said = target.rows("select text from probing.log where text like '%late%'")
    assert "has the maximum number of tables" in said[0][0], said
    for _ in ("alive", "dead"):
        assert target.rows("select * from probing.lost") == [[None, "no_table", 7]]
        assert target.rows("select count(*) from probing.tables where schema = 'greedy' "
                           "having count(*) > 1500")
        target.kill()
