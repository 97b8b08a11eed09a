# SPDX-License-Identifier: Apache-2.0
"""Help, the manual page and the shells' completion: of one table, each as its reader wants."""
import json
import os
import re
import shutil
import subprocess

import pytest
from world import CLI, LIMIT


def probing(*args):
    done = subprocess.run([str(CLI), *args], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def groups():
    """{heading: its commands} of `probing help`."""
    blocks = re.findall(r"^([a-z].*):\n((?:  [a-z_]+ +\S.*\n)+)", probing("help"), flags=re.M)
    return {heading: re.findall(r"^  ([a-z_]+)", block, flags=re.M) for heading, block in blocks}


def commands():
    return [name for names in groups().values() for name in names]


def test_commands_stand_in_groups():
    """One list of 34 has no place to begin; what plugins bring has a group of its own."""
    of = groups()
    assert of["enter and leave"][:3] == ["inject", "launch", "eject"]
    assert {"torch", "memory", "stragglers"} <= set(of["reports of plugins"])
    assert {"cluster", "relay", "ship"} <= set(of["jobs of many processes, other machines"])
    assert len(commands()) == len(set(commands()))
    assert max(map(len, probing("help").splitlines())) <= 100


def test_help_of_every_command():
    names = commands()
    assert {"inject", "query", "watch", "eject", "completion"} <= set(names)
    for name in names:
        text = probing("help", name)
        assert "example" in text and "  probing " in text, text
        assert probing(name, "--help") == text


def test_help_for_programs():
    """Whoever types commands by a program need not read prose: the same table, as JSON."""
    all_of_it = json.loads(probing("help", "--json"))
    assert [c["name"] for c in all_of_it["commands"]] == commands()
    assert set(all_of_it["exit_codes"]) == {"0", "1", "2", "130"} and all_of_it["version"]
    for c in all_of_it["commands"]:
        text = probing("help", c["name"])
        assert c["doc"] in text and c["target"] in ("needed", "optional", "none"), c
        assert all(o["name"] in text and o["doc"] in text for o in c["options"]), c
        assert all(e.startswith("probing ") and e in text for e in c["examples"]), c
    query = json.loads(probing("help", "q", "--json"))
    assert query["name"] == "query" and query["aliases"] == ["q"] and query["target"] == "needed"
    assert query in all_of_it["commands"]
    assert json.loads(probing("query", "--help", "--json")) == query
    [limit] = [o for o in query["options"] if o["name"] == "--limit"]
    assert limit["value"] == "N" and limit["letter"] is None


def test_options_in_every_spelling(world):
    for words in (["--older", "3"], ["--older=3"], ["--older", "3", "--"]):
        assert "removed" in world.probing("gc", *words).stdout
    told = json.loads(world.probing("gc", "--json", "--older", "12h").stdout)
    assert told == {"below": str(world.data), "removed": 0, "kept": 0}
    for words, text in ((["gc", "--oldr", "3"], "did you mean '--older'?"),
                        (["gc", "--older"], "needs a value: --older DAYS"),
                        (["gc", "--older=no"], "not 'no'"), (["gc", "-x"], "no option '-x'"),
                        (["list", "--dead=yes"], "takes no value"), (["list", "x"], "'x'")):
        done = world.probing(*words)
        assert done.returncode == 2 and text.rstrip("?") in done.stderr, done.stderr


def test_wrong_usage_has_a_code_of_its_own(world):
    target = world.python("print('ready')\nimport time\nwhile True: time.sleep(0.05)")
    target.wait_line("ready")
    target.inject()
    for words in (["query"], ["query", "select 1", "2"], ["tables", "x"], ["describe"], ["watch"],
                  ["query", "--format=xml", "select 1"], ["query", "--limit", "x", "select 1"],
                  ["export", "select 1"], ["repl", "x"], ["script", "run"], ["inject", "x"],
                  ["flamegraph", "x"], ["nosuch"], ["nosuch", "--x"]):
        done = target.probing(*words)
        assert done.returncode == 2 and done.stderr.startswith("probing: "), (words, done.stderr)
        assert done.stdout == "" and len(done.stderr.splitlines()) == 1, (words, done.stderr)
    for words in (["query", "select nothing"], ["describe", "no.table"], ["eval", "1/0"],
                  ["config", "get", "no.name"]):
        assert target.probing(*words).returncode == 1, words
    assert "-t needs a target" in world.probing("-t").stderr
    for words in (["nosuch"], [], ["help", "nosuch"], ["query", "select 1"], ["--nosuch"], ["-t"],
                  ["completion", "csh"], ["man", "x"], ["launch"]):
        assert world.probing(*words).returncode == 2, words
    assert world.probing("-t", "999999999", "query", "select 1").returncode == 1


def test_a_value_that_is_none_is_said_with_its_option(world):
    """'x' is not a whole number: of which of the options that a script has filled in?"""
    target = world.start("sleep", "600")
    target.inject()
    for words in (["query", "--limit", "x", "select 1"], ["query", "--max-bytes", "", "select 1"],
                  ["query", "--timeout", "x", "select 1"], ["watch", "--last", "x", "select 1"],
                  ["watch", "--interval", "0", "select 1"], ["flamegraph", "--seconds", "0"],
                  ["flamegraph", "--last", "x"], ["inject", "--timeout", "99d"],
                  ["export", "--timeout", "x", "select 1"], ["top", "--once", "--interval", "x"],
                  ["backtrace", "--watch", "--interval", "4294967296ms"]):
        done = target.probing(*words)
        option = next(w for w in words[1:] if w[:2] == "--" and w not in ("--once", "--watch"))
        assert done.returncode == 2 and option in done.stderr, (words, done)
        assert done.stdout == "" and len(done.stderr.splitlines()) == 1, (words, done)


def page():
    return probing("man")


def test_manual_page_has_no_warning():
    if not shutil.which("groff"):
        pytest.skip("no groff (Debian: groff-base) to read the manual page with")
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z"], input=page(),
                          capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    assert all("\n.SS %s" % name in page() for name in commands())


def bash(words):
    """Bash's offers for the last of these words."""
    script = ('source /dev/stdin <<< "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
              '_probing; printf "%s\\n" "${COMPREPLY[@]}"')
    return subprocess.run(["bash", "-c", script, "bash", probing("completion", "bash"), *words],
                          capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_pids(world, monkeypatch):
    target = world.start("sleep", "600")
    target.inject()
    monkeypatch.setenv("PATH", "%s:%s" % (CLI.parent, os.environ["PATH"]))
    assert str(target.pid) in bash(["probing", "-t", str(target.pid)[:2]])


def test_bash_completion():
    assert bash(["probing", "wat"]) == ["watch"]
    assert bash(["probing", "-t", "42", "que"]) == ["query"]
    assert bash(["probing", "-t", "42", "inject", "--l"]) == ["--listen"]
    assert bash(["probing", "42", "bt", "--th"]) == ["--thread"]
    assert bash(["probing", "-t", "42", "plugin", "lo"]) == ["load"]
    assert set(commands()) <= set(bash(["probing", ""]))


def test_fish_completion(tmp_path):
    if not shutil.which("fish"):
        pytest.skip("no fish (Debian: fish) to complete with")
    script = tmp_path / "completion"
    script.write_text(probing("completion", "fish"))

    def fish(line):
        done = subprocess.run(["fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]",
                               str(script), line], capture_output=True, text=True, check=True,
                              env=dict(os.environ, HOME=str(tmp_path)))
        return [offer.split("\t")[0] for offer in done.stdout.splitlines()]

    assert fish("probing wat") == ["watch"]
    assert fish("probing -t 42 que") == ["query"]
    assert fish("probing 42 que") == ["query"]
    assert fish("probing -t 42 inject --lis") == ["--listen"]
    assert fish("probing -t 42 plugin loa") == ["load"]
    assert set(commands()) <= set(fish("probing -t 42 "))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_script(shell, tmp_path):
    script = tmp_path / "completion"
    script.write_text(probing("completion", shell))
    assert all(name in script.read_text() for name in commands())
    if not shutil.which(shell):
        pytest.skip("no %s to read it with" % shell)
    subprocess.run([shell, "-n", str(script)], check=True)
