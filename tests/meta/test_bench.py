# SPDX-License-Identifier: Apache-2.0
"""Benchmarks say their figures in one form, and one command runs them all; no time is asserted."""
import json
import os
import re
import subprocess
import sys

import pytest

from world import ROOT

BENCH = ROOT / "tests" / "bench"
sys.path.insert(0, str(BENCH))
import bench  # noqa: E402

KINDS = {"text": str, "number": (int, float), "integer": int, "flag": bool, "list": list,
         "object": dict}


def run(*words, **environment):
    return subprocess.run([sys.executable, str(BENCH / "bench.py"), *words], text=True,
                          capture_output=True, env=dict(os.environ, **environment))


def documented():
    """{part: {field: (kind, may be null)}} of the schema in docs/benchmarks.md."""
    parts = {}
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    for part, field, kind, null in re.findall(
            r"^\| ([a-z ]+) \| `(\w+)` \| (\w+)( or null)? \|", text, flags=re.M):
        parts.setdefault(part, {})[field] = (kind, bool(null))
    return parts


def hold(value, fields, where):
    assert set(value) == set(fields), where
    for field, (kind, null) in fields.items():
        one = value[field]
        assert (one is None and null) or (isinstance(one, KINDS[kind]) and
                                          isinstance(one, bool) == (kind == "flag")), \
            "%s.%s is %r" % (where, field, one)


def test_the_json_is_what_the_documentation_says():
    done = run("--quick", "--json", "append", "truth", PATH="/nowhere")
    assert done.returncode == 0, done.stdout + done.stderr
    answer, parts = json.loads(done.stdout), documented()
    assert set(parts) == {"whole", "machine", "product", "benchmark", "figure"}
    hold(answer, parts["whole"], "whole")
    assert answer["schema"] == 1 and answer["quick"] is True
    for part in ("machine", "product"):
        hold(answer[part], parts[part], part)
    append, truth = answer["benchmarks"]
    for one in append, truth:
        hold(one, parts["benchmark"], one["name"])
    assert append["status"] == "ran" and append["why"] is None and append["figures"]
    for figure in append["figures"]:
        hold(figure, parts["figure"], figure["name"])
        assert figure["statistics"] and all(isinstance(v, float)
                                            for v in figure["statistics"].values())
    compared = [figure for figure in append["figures"] if figure["against"]]
    named = {figure["name"]: figure for figure in append["figures"]}
    assert compared
    for figure in compared:
        ours, theirs = (list(named[name]["statistics"].values())[0]
                        for name in (figure["name"], figure["against"]))
        assert figure["ratio"] == pytest.approx(ours / theirs, rel=0.01)
    assert (truth["status"], truth["why"]) == ("skipped", "no py-spy: pip install py-spy")


def test_every_program_is_one_that_the_command_runs():
    programs = {path.name for path in BENCH.glob("*.py")} - {"bench.py", "figures.py"}
    programs |= {path.stem for path in BENCH.glob("*.c")}
    programs.remove("sql_bench")  # run by sql_bench.py
    programs.remove("ranks_player")  # run by many_ranks.py
    assert {words[0] for words in bench.BENCHMARKS.values()} == programs


@pytest.mark.parametrize("output, why", [
    ("figure\ta\tns\n", "no figure"), ("hello\n", "no figure"),
    ("figure\ta\tns\tleast=fast\n", "fast"),
    ("figure\ta\tns\tleast=1\nfigure\ta\tns\tleast=2\n", "twice"),
    ("figure\ta\tns\tleast=1\tagainst=b\tratio=2\n", "not there")])
def test_a_line_that_is_no_figure_is_a_failure(output, why):
    with pytest.raises(ValueError, match=why):
        bench.parse(output)


def test_a_benchmark_that_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "QUICK_LIMIT_S", 1)
    for code, why in (("import sys; print('figure\\ta\\tns\\tleast=1'); sys.exit('no disk')",
                       "exit code 1; no disk"),
                      ("print('# nothing')", "it printed no figure"),
                      ("import time; time.sleep(60)", "still running after 1 s")):
        program = tmp_path / "broken.py"
        program.write_text(code)
        monkeypatch.setitem(bench.BENCHMARKS, "broken", (str(program), [], []))
        assert [bench.measure("broken", True)[key] for key in ("status", "why")] == ["failed", why]


def test_a_name_that_is_none_is_refused():
    done = run("apend")
    assert done.returncode == 2 and "no benchmark apend: --list names them" in done.stderr
