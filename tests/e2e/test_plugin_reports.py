# SPDX-License-Identifier: Apache-2.0
"""Reports that plugins bring: a command of a stranger's plugin is as one of ours, and one that is
wrong is refused in a sentence, by which nothing else suffers."""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest
from test_help import bash
from world import BUILD, CLI, CORE, LIMIT, ROOT, wait_for

SOURCE = (Path(__file__).parent / "reports" / "shifts.c").read_text()
HELP = """probing -t TARGET shifts [-l HOURS] [--pause TIME] [--json] [--say WORD] [-o FILE] \
[--everywhere] [--crash] [--yes] late | early

  who works when
  also: sh

  Of plugin shifts, which tests bring.

options:
  -l, --least HOURS        shifts of at least so many hours
"""


@pytest.fixture
def shifts(world, monkeypatch):
    """The plugin, where the command finds it."""
    made = world.plugin("shifts", SOURCE)
    world.env["PROBING_PLUGIN_PATH"] = str(world.tmp)
    monkeypatch.setenv("PROBING_PLUGIN_PATH", str(world.tmp))
    return made


def entered(world, plugin):
    target = world.start("sleep", "600")
    target.inject()
    done = target.probing("plugin", "load", str(plugin))
    assert done.returncode == 0, done.stderr
    return target


def test_no_file_of_ours_knows_it():
    for top in ("cli", "core", "sdk", "plugins", "scripts"):
        for path in (ROOT / top).rglob("*.[ch]"):
            assert "shifts_say" not in path.read_text() and '"shifts"' not in path.read_text(), path
    for path in (ROOT / "cli").rglob("*.[ch]"):
        assert "torch_profile" not in path.read_text(), path


def test_help_and_completion_show_it(world, shifts):
    names = re.findall(r"^  ([a-z]+) ", world.probing("help").stdout, flags=re.M)
    assert names.index("flamegraph") < names.index("shifts") < names.index("plugin")
    assert "torch" in names  # ours, found in its own folder still
    told = world.probing("help", "shifts")
    assert told.returncode == 0 and told.stdout.startswith(HELP), told.stdout
    assert told.stdout.endswith("examples:\n  probing -t 4242 shifts\n"
                                "  probing -t 4242 shifts --least 10\n")
    for words in (["help", "sh"], ["shifts", "-h"], ["sh", "--least", "3", "--help"]):
        assert world.probing(*words).stdout == told.stdout, words
    assert ".SS shifts" in world.probing("man").stdout
    assert bash(["probing", "shif"]) == ["shifts"]
    assert bash(["probing", "-t", "42", "sh", "--lea"]) == ["--least"]
    assert bash(["probing", "-t", "42", "shifts", "la"]) == ["late"]
    near = world.probing("shift")
    assert near.returncode == 2 and "did you mean 'shifts'" in near.stderr


def test_a_living_target(world, shifts):
    target = entered(world, shifts)
    done = target.probing("shifts")
    assert done.returncode == 0 and done.stderr == "probing: that is all\n", done.stderr
    assert done.stdout == ("early       |  8 h\nlate        | 16 h\nnigh...poken| 24 h\n"
                           "  a sentence that is long enough to be wrapped where somebody looks at "
                           "a terminal, and told as it is where nobody does\n")
    for words in (["sh", "--least=10"], ["shifts", "-l", "10"], ["shifts", "--least", "10"]):
        assert target.probing(*words).stdout.splitlines()[0] == "late        | 16 h", words
    assert target.probing("shifts", "late").returncode == 7
    lines = [json.loads(line) for line in target.probing("shifts", "--json").stdout.splitlines()]
    assert lines[2] == {"name": "night, of which nobody has ever spoken", "share": 1, "none": None}
    for words, text in ((["--leats", "1"], "did you mean '--least'"), (["-x"], "no option '-x'"),
                        (["--least", "no"], "'no'"), (["--json=1"], "takes no value"),
                        (["--pause", "x"], "'x'"), (["early"], "shifts takes late, or nothing"),
                        (["--least"], "needs a value: --least HOURS")):
        done = target.probing("shifts", *words)
        assert done.returncode == 2 and text in done.stderr and done.stdout == "", (words, done)


def test_it_calls_commands_and_writes_files(world, shifts):
    target = entered(world, shifts)
    assert target.probing("shifts", "--say", "aloud\x1b[2J").stdout == "aloud\\x1b[2J\n"
    out = world.tmp / "said"
    assert target.probing("shifts", "--say", "quietly", "-o", str(out)).stdout == ""
    assert out.read_text() == "quietly\n"
    assert target.probing("plugin", "stop", "shifts").returncode == 0
    done = target.probing("shifts", "--say", "x", "-o", str(world.tmp / "none"))
    assert done.returncode == 1 and not (world.tmp / "none").exists(), done.stderr


def test_other_processes_are_found_and_asked(world, shifts):
    target, other = entered(world, shifts), entered(world, shifts)
    bare = world.start("sleep", "600")
    bare.inject()
    lines = target.probing("shifts", "--everywhere").stdout.splitlines()  # of other tests, too
    assert {"%d: 48, the target" % target.pid, "%d: 48" % other.pid,
            "%d: -1" % bare.pid} <= set(lines)
    assert len(lines) == len({line.split(":")[0] for line in lines})


def test_the_dead_and_those_without_the_plugin(world, shifts):
    target = entered(world, shifts)
    target.kill()
    assert target.probing("shifts").stdout == "kept: 40 h\n"
    without = world.start("sleep", "600")
    done = without.probing("shifts")
    assert done.returncode == 1 and "inject --plugin shifts" in done.stderr, done.stderr
    without.inject()
    done = without.probing("shifts")
    assert done.returncode == 1 and done.stderr == (
        "probing: plugin shifts is not loaded in %d: probing -t %d plugin load shifts; or add "
        "--yes to this command\n"
        % (without.pid, without.pid))
    done = world.probing("shifts")
    assert done.returncode == 2 and "shifts needs a target" in done.stderr


def test_a_crash_ends_the_command_only(world, shifts):
    if BUILD.name == "asan":
        pytest.skip("the sanitizer tells of crashes itself")
    target = entered(world, shifts)
    done = target.probing("shifts", "--crash")
    assert done.returncode == -11 and done.stdout == ""
    assert re.fullmatch(r"probing: \S+/shifts\.so has crashed \(SIGSEGV\) while its command "
                        r"'shifts' ran; this is a bug of that plugin, and the target has not "
                        r"noticed\n", done.stderr), done.stderr
    assert target.rows("select 1 as n") == [[1]]


def test_a_crash_while_it_is_loaded(world, shifts):
    world.plugin("shifts", SOURCE + "__attribute__((constructor)) static void begin(void)\n"
                                    "{ __builtin_trap(); }\n")
    done = world.probing("help")
    assert done.returncode < 0 and re.search(r"/shifts\.so has crashed \(SIG\w+\) while it was "
                                             r"loaded", done.stderr), done.stderr
    assert world.probing("--version").returncode == 0


# What is changed in the text of the plugin, and what is said of it then.
WRONG = {
    "size": (".size = sizeof(probing_report_v1)", ".size = 4", "its report's struct says 4 bytes"),
    "abi": ("PROBING_REPORT_ABI,", "2u << 16,", "built for ABI 2.0, this command speaks 1"),
    "newer": (".name = \"shifts\",\n    .commands", ".name = \"shifts\", .min_minor = 9,\n"
              "    .commands", "needs ABI 1.9"),
    "no name": (".name = \"shifts\",\n    .commands", ".name = NULL,\n    .commands",
                "does not say a plugin's name"),
    "other name": (".name = \"shifts\",\n    .commands", ".name = \"rota\",\n    .commands",
                   "the file is plugin 'rota'; call it rota.so"),
    "no commands": (".commands = commands", ".commands = NULL", "commands of its report are not"),
    "none": (".n_commands = N(commands)", ".n_commands = 0",
             "has 0 commands"),
    "many": (".n_commands = N(commands)", ".n_commands = 4000000000u",
             "has 4000000000 commands"),
    "stride": (".command_size = sizeof(commands[0])", ".command_size = 8", "set .command_size ="),
    "stride 2": (".option_size = sizeof(options[0])", ".option_size = 24", "set .option_size ="),
    "command": ('{.name = "shifts",\n     .alias', '{.name = "no such",\n     .alias',
                "the name 'no such' of command 1 is not of the form"),
    "command 2": ('{.name = "shifts",\n     .alias', '{.name = NULL,\n     .alias',
                  "the name of command 1 is missing"),
    "stray": ('{.name = "shifts",\n     .alias', '{.name = (const char *)64,\n     .alias',
              "the name of command 1 is missing"),
    "no doc": ('.doc = "who works when",\n     .text', ".doc = NULL,\n     .text",
               "doc of command 1 is missing"),
    "two lines": ('.doc = "who works when",\n     .text', '.doc = "a\\nb",\n     .text',
                  "doc of command 1 is missing, or no text of one line"),
    "no arguments": ('"late | early"', "NULL", "arguments"),
    "no run": (".run = run}};", ".run = NULL}};", "command 'shifts' has no run()"),
    "data run": (".run = run}};", ".run = (void *)options}};", "command 'shifts' has no run()"),
    "flags": (".flags = PROBING_REPORT_TARGET", ".flags = 64", "flags 0x40"),
    "option": ('{"--least"', '{"least"', "'least' and '-l' are no option"),
    "letter": ('"-l", "HOURS"', '"-least", "HOURS"', "are no option"),
    "no option": ('{"--json", NULL, NULL, "a', '{NULL, NULL, NULL, "a', "option 3 of command"),
    "options": (".n_options = N(options)", ".n_options = 13",
                "has 13 options, at most 12"),
    "far options": (".options = options", ".options = (void *)8", "are not there"),
    "examples": (".n_examples = N(examples)", ".n_examples = 5",
                 "has 5 examples, at most 4"),
    "far examples": (".examples = examples", ".examples = (void *)4096", "the examples of"),
    "data": ("static const char *const examples[]", "extern int _Py_NoneStruct;\nint *none = "
             "&_Py_NoneStruct;\nstatic const char *const examples[]", "_Py_NoneStruct"),
}


@pytest.mark.parametrize("what", WRONG)
def test_one_that_is_wrong_is_refused(world, shifts, what):
    before, after, text = WRONG[what]
    assert SOURCE.count(before) == 1, SOURCE.count(before)
    world.plugin("shifts", SOURCE.replace(before, after))
    done = world.probing("help")
    assert done.returncode == 0 and "shifts" not in done.stdout and "torch" in done.stdout
    assert len(done.stderr.splitlines()) == 1 and text in done.stderr, done.stderr
    assert done.stderr.startswith("probing: %s/shifts.so brings no commands: " % world.tmp)
    assert world.probing("shifts").returncode == 2


def test_bytes_that_were_changed_crash_nothing(world, shifts):
    """In the constants, and in what the loader puts into them."""
    if not shutil.which("readelf"):
        pytest.skip("no readelf (Debian: binutils)")
    sections = subprocess.run(["readelf", "-SW", str(shifts)], capture_output=True, text=True)
    places = [(int(m[2], 16), int(m[3], 16)) for m in re.finditer(
        r"\] (\S+) +\S+ +\S+ (\S+) (\S+) ", sections.stdout)
        if m[1] in (".data.rel.ro", ".rodata", ".rela.dyn", ".dynsym")]
    assert len(places) == 4, sections.stdout
    whole, random = shifts.read_bytes(), Random(4)
    for _ in range(60):
        changed = bytearray(whole)
        for _ in range(random.choice((1, 1, 2, 4))):
            at, size = random.choice(places)
            at += random.randrange(size)
            changed[at] = random.choice((0, 255, changed[at] ^ 1 << random.randrange(8)))
        shifts.write_bytes(changed)
        done = world.probing("help")
        assert done.returncode == 0 and "torch" in done.stdout, done


def test_files_that_are_no_libraries(world, shifts):
    whole = shifts.read_bytes()
    shifts.write_bytes(whole[:len(whole) // 2])
    (world.tmp / "empty.so").touch()
    (world.tmp / "text.so").write_text("no library")
    (world.tmp / "folder.so").mkdir()
    os.mkfifo(world.tmp / "pipe.so")
    (world.tmp / "nowhere.so").symlink_to("no-such-file")
    done = world.probing("help")
    assert done.returncode == 0 and "torch" in done.stdout and "shifts" not in done.stdout
    said = done.stderr.splitlines()
    assert len(said) == 6 and all(".so brings no commands: " in line for line in said), said


def test_names_that_are_taken(world, shifts):
    second = SOURCE.replace('.name = "shifts",\n    .commands', '.name = "rota",\n    .commands')
    world.plugin("rota", second)
    done = world.probing("help", "shifts")
    assert done.returncode == 0 and done.stderr == (
        "probing: {0}/shifts.so: its command 'shifts' is left out: there is one of that name in "
        "{0}/rota.so\n".format(world.tmp)), done.stderr
    (world.tmp / "rota.so").unlink()
    named = '{.name = "shifts",\n     .alias = "sh"'
    world.plugin("shifts", SOURCE.replace(named, '{.name = "query"'))
    done = world.probing("help")
    assert "its command 'query' is left out: probing has a command of that name" in done.stderr
    assert world.probing("help", "query").stderr == ""  # ours needs no plugin
    world.plugin("shifts", SOURCE.replace(named, '{.name = "shifts",\n     .alias = "bt"'))
    done = world.probing("help", "shifts")
    assert done.returncode == 0 and "'bt' is left out as another name" in done.stderr
    assert "of all threads" in world.probing("help", "bt").stdout


def test_the_first_file_of_a_name_is_the_plugin(world, shifts):
    other = world.tmp / "other"
    other.mkdir()
    shutil.copy(shifts, other / "shifts.so")
    world.env["PROBING_PLUGIN_PATH"] = ":%s::%s:/no/such" % (world.tmp, other)
    done = world.probing("help", "shifts")
    assert done.returncode == 0 and done.stderr == ""


def test_functions_of_python_need_not_be_there(world, shifts):
    """The plugin's half calls CPython, which the command does not have."""
    world.plugin("shifts", SOURCE.replace(
        "static void destroy(void *self)\n{\n", "int PyGILState_Check(void);\n"
        "static void destroy(void *self)\n{\n    (void)PyGILState_Check();\n"))
    target = world.start("sleep", "600")
    done = target.probing("shifts")
    assert done.returncode == 1 and "inject --plugin shifts" in done.stderr, done.stderr


def test_own_commands_load_no_plugin(world, shifts):
    mark = world.tmp / "loaded"
    world.plugin("shifts", SOURCE + "\n__attribute__((constructor)) static void begin(void)\n"
                                    '{ FILE *f = fopen("%s", "w"); if (f) fclose(f); }\n' % mark)
    target = world.start("sleep", "600")
    target.inject()
    for words in (["query", "select 1"], ["tables"], ["config"], ["--version"], ["help", "query"],
                  ["query", "--help"], ["list"]):
        assert target.probing(*words).returncode == 0, words
        assert not mark.exists(), words
    assert world.probing("help").returncode == 0 and mark.exists()


def test_the_example_of_the_documentation(world, shifts):
    """It compiles beside the template, whose table it shows."""
    text = (ROOT / "docs" / "plugins.md").read_text()
    example = re.search(r"```c\n(.*?)```", text, re.S).group(1)
    made = world.plugin("heartbeat", (ROOT / "sdk" / "template" / "plugin.c").read_text() + example)
    target = entered(world, made)
    wait_for(lambda: target.rows("select count(*) >= 3 from heartbeat.beats") == [[True]], "beats")
    lines = target.probing("beats", "-n", "2").stdout.splitlines()
    assert len(lines) == 2 and all(re.fullmatch(r"beat \d+, 2 columns", e) for e in lines), lines
    assert target.probing("beats", "--last", "x").returncode == 2


def test_check_of_a_plugin_with_a_report(world, shifts):
    done = world.probing("plugin", "check", str(shifts))
    assert done.returncode == 0 and re.search("^report +probing shifts$", done.stdout, re.M), done
    world.plugin("shifts", SOURCE.replace(".run = run}};", ".run = NULL}};"))
    done = world.probing("plugin", "check", str(shifts))
    assert done.returncode == 1 and re.search("^report +NOT RIGHT: command 'shifts' has no run",
                                              done.stdout, re.M), done


def alone(world):
    """The command as somebody has installed it without plugins."""
    place = world.tmp / "lone"
    (place / "plugins").mkdir(parents=True)
    for source in (CLI, CORE):
        shutil.copy(source, place / source.name)
    return lambda *words: subprocess.run([str(place / "probing"), *words], env=world.env,
                                         capture_output=True, text=True, timeout=LIMIT)


def test_a_command_without_the_plugin(world):
    made = world.plugin("shifts", SOURCE)
    lone = alone(world)
    done = lone("torch")
    assert done.returncode == 2 and re.fullmatch(
        r"probing: no command 'torch', and no plugin in \S+/lone/plugins brings it \(torch\.so is "
        r"not there\); PROBING_PLUGIN_PATH may name other folders, `probing help` lists what there "
        r"is\n", done.stderr), done.stderr
    assert "torch" not in re.findall(r"^  ([a-z]+) ", lone("help").stdout, flags=re.M)
    target = entered(world, made)
    done = lone("-t", str(target.pid), "shifts")
    assert done.returncode == 1 and done.stdout == "" and (
        "plugin shifts runs in %d, but this probing has no shifts.so with a report of it: install "
        "it into " % target.pid) in done.stderr, done.stderr
