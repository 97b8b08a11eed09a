# SPDX-License-Identifier: Apache-2.0
"""`query` as a shell: at a terminal, from files and pipes, into files."""
import csv
import ctypes.util
import json
import os
import signal
import subprocess

import pytest
from terminal import Terminal, Way
from world import CLI, IDLE

EDITED = pytest.mark.skipif(not ctypes.util.find_library("edit"),
                            reason="no libedit (Debian: libedit2)")


@pytest.fixture
def target(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    return target


def shell(target, *words, at=None, **ways):
    t = Terminal(target, "query", *words, at=at, **dict({"size": (24, 80)}, **ways))
    t.wait("=> ")
    return t


def answer(t, text):
    """The text between what is typed and the next prompt."""
    t.type(text + "\n")
    said = t.wait(r"(?s)\n(.*\n)?[^\n]*=> ")
    return said[said.index("\n") + 1:]


def piped(target, text, *words, at=None):
    return subprocess.run([str(CLI), "-t", at or str(target.pid), "query", *words], input=text,
                          timeout=60, capture_output=True, encoding="utf-8", env=target.world.env)


def test_a_person_who_knows_psql(target):
    t = shell(target)
    t.type("select 1\n")
    t.wait(r"-> ")
    t.type("  + 1 as two; select 'a;b\n")
    t.wait(r"(?s)two.*2.*\(1 row.*'> ")
    assert "a;b\\nc" in answer(t, "c' as text /* ; */;")
    assert "cpu_user_ns" in answer(t, "\\d cpu.tasks")
    said = answer(t, "\\dt cpu.*")
    assert "tasks" in said and "probing" not in said
    assert "to_char" in answer(t, "\\df to_c*")
    assert "Expanded display is on." in answer(t, "\\x")
    assert "a | 1" in answer(t, "select 1 as a;")
    assert "used automatically" in answer(t, "\\x auto")
    assert "RECORD 1" in answer(t, "select * from cpu.tasks limit 1;")
    assert "RECORD" not in answer(t, "select 1 as a;")
    assert "Timing is on." in answer(t, "\\timing")
    assert "Time: " in answer(t, "select 1;")
    assert "no command \\foo" in answer(t, "\\foo bar")
    assert "did you mean 'select'" in answer(t, "selec 1;")
    assert "\\watch" in answer(t, "help")
    assert answer(t, "select 7 as seven \\watch 0.1 c=3").count("(1 row") == 3
    t.type("exit\n")
    assert t.end() == 0 and target.alive()


def test_ctrl_c_stops_the_statement_alone(target):
    t = shell(target)
    t.type("select count(*) from range(1000000000000);\n")
    t.wait(r"\r\n")
    t.interrupt("=> ")
    t.type("select 1 \\watch 0.1\n")
    t.wait(r"(?s)every.*every")
    t.interrupt("=> ")
    t.type("select 'half\n")
    t.wait("'> ")
    t.interrupt("=> ")  # at the prompt it drops what was begun
    assert "42" in answer(t, "select 42;")
    assert t.leave() == 0


@EDITED
def test_names_and_history(target):
    t = shell(target)
    t.type("sel\t 1 as one\n")
    t.wait("-> ")
    t.type("from cpu.ta\t limit 1;\n")
    t.wait(r"(?s)one.*=> ")
    t.type("\x1b[A")  # a statement of two lines comes back whole
    t.wait(r"(?s)select.*one.*from cpu.tasks")
    t.type("\n")
    t.wait(r"(?s)one.*=> ")
    t.type("select * from cpu.tasks t where t.thread\t > 0 and octet_le\t'a') > 0 limit 0;\n")
    t.wait(r"\(0 rows")
    t.wait("=> ")
    t.type("\\conn\t\n")
    t.wait("process %d" % target.pid)
    t.wait("=> ")
    t.type("SELECT cpu_u\t FROM cpu.tasks LIM\t 0;\n")  # the word's own letters stay
    t.wait(r"\(0 rows")
    t.wait("=> ")
    assert t.leave() == 0
    history = target.world.tmp / "probing/sql_history"
    assert "conninfo" in history.read_text() and history.stat().st_mode & 0o77 == 0


@EDITED
def test_lines_that_are_pasted(target):
    """A tab is a blank there, and names would be completed by it."""
    t = shell(target, size=(30, 60))
    t.type("select\n\t1\tas one,\n\t'x\ty'\tas text,\n\tcomm\tfrom\tcpu.tasks\tlimit 1;\n"
           "select 2 as two;select 3 as three;\n")
    t.wait(r"(?s)one.*x\\ty.*two.*three.*\(1 row.*=> ")
    assert t.leave() == 0


def test_a_shell_that_is_left_alone(target):
    with Way(target) as way:
        t = shell(target, at=way.address, env=way.env)
        assert "41" in answer(t, "select 41;")
        way.cut()
        said = answer(t, "select 42;")
        assert "42" in said and "probing:" not in said
        assert t.leave() == 0


def test_the_process_ends_meanwhile(target):
    t = shell(target)
    assert "tasks" in answer(t, "\\dt cpu.*")
    target.kill()
    said = answer(t, "select 42;")
    assert "has ended; from here on its files are read" in said and "42" in said
    assert "has ended; from" not in answer(t, "select 43;")
    assert "trace_event" in answer(t, "\\dt python.*")
    t.type("\\q\n")
    assert t.end() == 0


def test_several_and_all_ranks(world, target):
    other = world.python(IDLE)
    other.wait_line("ready")
    other.inject()
    t = shell(target, at="%d,%d" % (target.pid, other.pid))
    said = answer(t, "select count(*) from process.info;")
    assert str(target.pid) in said and str(other.pid) in said
    assert "2" in answer(t, "select count(*) as n from global.process.info;").split()
    assert "unknown column 'nope'" in answer(t, "select nope from process.info;")
    other.kill()
    said = answer(t, "select count(*) as n from global.probing.tables;")
    assert "n" in said.split()
    t.type("\\q\n")
    assert t.end() == 0
    done = piped(target, "select count(*) as n from global.process.info;")
    assert (done.returncode, done.stdout.split()[2]) == (0, "1"), "of one it is asked, too"


def test_a_file_of_statements(target, tmp_path):
    script = tmp_path / "look.sql"
    script.write_text("-- one;\nselect 1 as a; select ';' as \"b;\"\n  /* ; */;\n\\echo said\n\n"
                      "select 3 as c")
    for done in (target.probing("query", "-f", str(script)),
                 target.probing("query", "--file", str(script)),
                 piped(target, script.read_text()), piped(target, script.read_text(), "-"),
                 piped(target, "\\i %s\n" % script)):
        assert (done.returncode, done.stderr) == (0, ""), done
        lines = done.stdout.splitlines()
        assert [lines[0], lines[4], lines[8], lines[9]] == [" a", " b;", "said", " c"]
    assert target.probing("query", "select 1; select 2;").stdout.count("1 row") == 2
    done = target.probing("query", "--format", "csv", "-f", str(script))
    assert done.stdout == "a\n1\nb;\n;\nsaid\nc\n3\n"
    assert target.probing("query", "-f", "csv", "select 1 as a").stdout == "a\n1\n"


def test_the_first_error_ends_a_file(target, tmp_path):
    script = tmp_path / "wrong.sql"
    script.write_text("select 1 as a;\n\n-- two\nselect 2,\n  nope;\nselect 3 as never;\n")
    done = target.probing("query", "-f", str(script))
    assert done.returncode == 1 and "never" not in done.stdout and " a" in done.stdout
    assert done.stderr.startswith("probing: %s:5:3: unknown column 'nope'" % script)
    done = piped(target, "select 1; selec 2;\n")
    assert done.returncode == 1
    assert done.stderr.startswith("probing: standard input:1:11: found 'selec'")
    done = piped(target, "select 1;\n\\foo\n")
    assert done.returncode == 1 and ":2: there is no command \\foo" in done.stderr
    done = piped(target, "select 'a;\n")
    assert done.returncode == 1 and ":1:8: the text that begins here" in done.stderr
    done = target.probing("query", "-f", str(tmp_path / "none.sql"))
    assert done.returncode == 2 and "none.sql: No such file" in done.stderr
    done = target.probing("query")
    assert done.returncode == 2 and "needs an SQL statement" in done.stderr


ROWS = "select n, 'a;\"b' as text from generate_series(1, 3) t(n)"


def test_files_by_their_names(target, tmp_path):
    def written(name, *words):
        done = target.probing("query", "-o", str(tmp_path / name), *(words or [ROWS]))
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return (tmp_path / name).read_text()
    assert list(csv.reader(written("a.csv").splitlines()))[1] == ["1", 'a;"b']
    assert json.loads(written("a.json"))["rows"][2] == [3, 'a;"b']
    assert [json.loads(line)["n"] for line in written("a.jsonl").splitlines()] == [1, 2, 3]
    assert written("a.txt").startswith(" n | text")
    assert written("none", "--format", "csv", "select 1 as a") == "a\n1\n"
    assert written("two.txt", "select 1 as a; select 2 as b").count("1 row") == 2
    assert target.probing("query", "-o", str(tmp_path / "a.arrow"), ROWS).returncode == 0
    assert (tmp_path / "a.arrow").read_bytes()[:4] == b"\xff\xff\xff\xff"

    done = target.probing("query", "-o", str(tmp_path / "a.xyz"), ROWS)
    assert done.returncode == 2 and ".parquet" in done.stderr and "a.xyz" in done.stderr
    done = target.probing("query", "-o", str(tmp_path / "b.csv"),
                          "select 1 / (n - 100000) from generate_series(1, 100000) t(n), nope")
    assert done.returncode == 1
    done = target.probing("query", "-o", str(tmp_path / "two.json"), "select 1; select 2")
    assert done.returncode == 2 and "one answer" in done.stderr
    done = target.probing("query", "-o", str(tmp_path / "c.txt"), "select 1; select nope")
    assert done.returncode == 1
    left = {path.name for path in tmp_path.iterdir() if path.suffix in (".xyz", ".part")}
    assert not left and not {"b.csv", "two.json", "c.txt"} & {p.name for p in tmp_path.iterdir()}


def test_answers_of_a_session_into_files(target, tmp_path):
    t = shell(target)
    assert "rows" not in answer(t, "\\o %s" % (tmp_path / "all.csv"))
    assert not answer(t, "select 1 as a;").strip().startswith("a\r")
    answer(t, "select 2 as b;")
    assert not (tmp_path / "all.csv").exists(), "it is not whole yet"
    answer(t, "\\o")
    assert (tmp_path / "all.csv").read_text() == "a\n1\nb\n2\n"
    answer(t, "select 3 as c \\g %s" % (tmp_path / "one.json"))
    assert json.loads((tmp_path / "one.json").read_text())["rows"] == [[3]]
    assert "says no format" in answer(t, "select 3 \\g %s" % (tmp_path / "x.y"))
    assert "42" in answer(t, "select 42;")
    t.type("\\q\n")
    assert t.end() == 0


def test_an_editor(target):
    t = shell(target, env={"EDITOR": "sed -i s/1/42/"})
    t.type("select 1 as a\n")
    t.wait("-> ")
    t.type("\\e\n")
    t.wait(r"(?s)select 42 as a.*-> ")
    assert "42" in answer(t, ";")
    t.type("\\q\n")
    assert t.end() == 0


def test_a_long_answer_comes_through_the_pager(target):
    """More than a screen does, less does not; and the prompt has the terminal again."""
    t = shell(target, size=(24, 80), env={"PAGER": "sed s/^/paged:/"})
    assert "paged:" not in answer(t, "select n from generate_series(1, 5) t(n);")
    assert answer(t, "select n from generate_series(1, 500) t(n);").count("paged:") > 500
    t.type("select n from generate_series(1, 500) t(n);\n")
    t.wait("paged: 500 *\r\n|paged: +500\r\n")
    t.wait("=> ")
    os.kill(t.pid, signal.SIGTERM)
    assert t.end() != 0 and target.alive()
