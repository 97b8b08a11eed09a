# SPDX-License-Identifier: Apache-2.0
"""The developer's tools do what their first lines say."""
import os
import subprocess
import sys

import pytest
from product import ROOT, TOOLS, output, tool

sys.path.insert(0, TOOLS)
import deps  # noqa: E402
import offsets  # noqa: E402
import run_tests  # noqa: E402


def test_pack_keeps_every_byte(tmp_path):
    text = bytes(range(256)) + b'"\\\n'
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "a-b.html").write_bytes(text)
    source = tmp_path / "main.c"
    source.write_text('#include "pack.h"\n#include <stdio.h>\nint main(void)\n{\n'
                      "    fwrite(pack_page_a_b_html, 1, pack_page_a_b_html_size, stdout);\n"
                      "    return pack_page_a_b_html[pack_page_a_b_html_size];\n}\n")
    made = str(tmp_path / "pack.c")
    output("/usr/bin/python3", os.path.join(TOOLS, "pack.py"), made, str(tmp_path / "pack.h"),
           str(tmp_path), str(tmp_path / "page" / "a-b.html"))
    output("gcc", "-o", str(tmp_path / "main"), made, str(source))
    done = subprocess.run([str(tmp_path / "main")], stdout=subprocess.PIPE)
    assert done.returncode == 0 and done.stdout == text


def unit_program(folder, lines, rc):
    path = folder / "x_test"
    path.write_text("#!/bin/sh\n" + "".join("echo '%s'\n" % t for t in lines) + "exit %s\n" % rc)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("lines,rc,expected", [
    (["ok a", "ok b"], 0, (2, 0, 0)),
    (["ok a", "# why", "not ok b"], 1, (1, 1, 0)),
    (["ok a"], 139, (1, 1, 0)),     # died on the way
    (["# skipped: no"], 77, (0, 0, 1)),
    ([], 0, (0, 1, 0)),             # a test without a case tests nothing
])
def test_runner_counts(tmp_path, lines, rc, expected):
    _, count, _ = run_tests.run_program(unit_program(tmp_path, lines, rc), "build/release")
    assert (count.passed, count.failed, count.skipped) == expected


PROGRAM = """#!/bin/sh
if [ -e %(seen)s ]; then echo 'ok b'; exit 0; fi
touch %(seen)s
echo 'ok a'; echo 'not ok b%(why)s'; exit 1
"""


@pytest.mark.parametrize("why, programs, expected", [
    ("", 1, (2, 0)), ("", run_tests.UNSTEADY_MAX + 1, (5, 5)), (" got SIGSEGV", 1, (1, 1)),
], ids=["few", "many", "a crash"])
def test_runner_tries_what_failed_again(tmp_path, monkeypatch, capfd, why, programs, expected):
    """Alone, and says so; not where it is more than chance, and never after a crash."""
    (tmp_path / "build" / "tests").mkdir(parents=True)
    for n in range(programs):
        (tmp_path / ("x%d_test.c" % n)).touch()
        path = tmp_path / "build" / "tests" / ("x%d_test" % n)
        path.write_text(PROGRAM % {"seen": tmp_path / ("seen%d" % n), "why": why})
        path.chmod(0o755)
    monkeypatch.setattr(run_tests, "ROOT", str(tmp_path))
    count = run_tests.run_unit_tests("build", "")
    assert (count.passed, count.failed) == expected
    unsteady = "# unsteady: x0_test failed beside others (see above), and passed alone"
    assert (unsteady in capfd.readouterr().out) == (expected[1] == 0)


def tree_of_tests(tmp_path, monkeypatch, text):
    """A tree whose tests are that text, for the runner."""
    (tmp_path / "build").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(
        open(os.path.join(ROOT, "tests", "conftest.py")).read()
        .replace("from world import world  # noqa: E402,F401\n", ""))
    (tmp_path / "tests" / "test_x.py").write_text(text)
    monkeypatch.setattr(run_tests, "ROOT", str(tmp_path))


@pytest.mark.parametrize("body, expected", [
    ("import os\nseen = os.path.exists('seen')\nopen('seen', 'w').close()\nassert seen", (2, 0)),
    ("assert False", (1, 1)),
    ("import os\nseen = os.path.exists('seen')\nopen('seen', 'w').close()\n"
     "assert seen, 'the process died of SIGSEGV'", (1, 1)),
], ids=["unsteady", "broken", "crashed"])
def test_runner_tries_pytests_again(tmp_path, monkeypatch, body, expected):
    tree_of_tests(tmp_path, monkeypatch, "import pytest\n"
                  "@pytest.mark.parametrize('a', ['[x/::y]'])\ndef test_one(a):\n    " +
                  body.replace("\n", "\n    ") + "\ndef test_two():\n    pass\n")
    count = run_tests.run_python_tests("build", "", "tests")
    assert (count.passed, count.failed) == expected


SHARING = """
import os
import pytest

@pytest.fixture(scope="module")
def made():
    with open("made", "a") as lines:
        lines.write("once\\n")

@pytest.mark.parametrize("name", ["a", "b@c", "d", "e", "f", "g", "h", "i"])
def test_it_is_used(made, name):
    seen = os.path.exists("seen")
    open("seen", "w").close()
    assert seen
"""


def test_runner_has_what_tests_share_made_once(tmp_path, monkeypatch, capfd):
    """And the one of them that fails at first is known again by its name."""
    tree_of_tests(tmp_path, monkeypatch, SHARING)
    count = run_tests.run_python_tests("build", "", "tests")
    assert (count.passed, count.failed) == (8, 0)
    assert (tmp_path / "made").read_text() == "once\n" * 2  # and when that one ran again
    assert "# unsteady: tests/test_x.py::test_it_is_used[a] " in capfd.readouterr().out


def test_the_runners_longest_programs_are_there():
    sources = [os.path.join(ROOT, name.replace("-", "/") + ".c") for name in run_tests.LONGEST]
    assert [path for path in sources if not os.path.exists(path)] == []


def test_runner_says_it_in_one_line():
    assert run_tests.Count(3, 1).line() == "3 passed, 1 failed"
    assert run_tests.Count(3, 0, 2).line() == "3 passed, 0 failed, 2 skipped"


OLD = "size s 16\nfield s.a 0 8\nfield s.b 8 8\nenum E 1\n"


@pytest.mark.parametrize("now,broken", [
    (OLD, 0),
    (OLD.replace("size s 16", "size s 24") + "field s.c 16 8\nenum F 2\n", 0),
    (OLD.replace("field s.b 8 8", "field s.b 8 4") + "field s.c 12 4\n", 3),
    (OLD.replace("enum E 1", "enum E 2"), 1),
    (OLD.replace("size s 16", "size s 8"), 1),
], ids=["same", "grown", "split", "renumbered", "smaller"])
def test_offsets_know_growth_from_breakage(now, broken):
    assert len(list(offsets.broken_promises(OLD, now))) == broken


def test_dependencies_are_current():
    folder = os.path.join(ROOT, "build", "deps")
    if not os.path.isdir(folder):
        pytest.skip("nothing is built yet")
    rc, text = tool("/usr/bin/python3", os.path.join(TOOLS, "deps.py"))
    assert rc == 0 and text == ""


def test_a_tarball_may_not_leave_its_folder(tmp_path):
    outside = tmp_path / "x"
    outside.write_text("x")
    tarball = str(tmp_path / "evil.tar")
    output("tar", "-C", str(tmp_path), "-P", "--transform", "s,^,../,", "-cf", tarball, "x")
    with pytest.raises(deps.Failure):
        deps.unpack_tar(tarball, str(tmp_path / "into"))


def test_versions_compare_as_numbers():
    assert deps.version_tuple("1.2.13.dfsg") > deps.version_tuple("1.2.9")
