# SPDX-License-Identifier: Apache-2.0
"""The interpreter ends while clients' code runs in it: no thread of ours is inside any more, or
what it looks at there is not freed."""
import shutil
import subprocess
from pathlib import Path

import pytest
from pythons import FULL
from world import BUILD, CLI, Target, wait_for

PROGRAM = r"""
import atexit, builtins, os, sys, time
class Late:
    # The interpreter's end lets the GIL go for a moment, as closing a file does.
    def __init__(self, pipe): self.pipe = pipe
    def __del__(self, write=os.write, sleep=time.sleep):
        write(self.pipe, b"x")
        sleep(0.0005)
reads, writes = os.pipe()
builtins.late_pipe = reads
late1, late2 = Late(writes), Late(writes)
builtins.late3 = Late(writes)
MORE
print("ready", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.005)
sys.exit(3)
"""
# A library that widens the window.  What is freed looks different, and is given back at once.
SLOW_END = {"LD_PRELOAD": str(BUILD / "tests" / "python" / "slow_end.so"), "MALLOC_PERTURB_": "165",
            "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
CODES = {
    "spins": "print('in', flush=True)\nwhile True: pass",
    "sleeps": "import time\nprint('in', flush=True)\nwhile True: time.sleep(0.001)",
    "catches": "print('in', flush=True)\nwhile True:\n    try:\n        while True: pass\n"
               "    except BaseException: pass",
    # comes back to the interpreter while that frees its objects
    "blocks": "import os, builtins\nprint('in', flush=True)\nwhile True:\n"
              "    os.read(builtins.late_pipe, 1)",
}
# An exit function of the program that runs while clients come.
HANGS = r"""
def hang():
    print("hangs", flush=True)
    while not os.path.exists(sys.argv[1] + "-2"): time.sleep(0.005)
    print("clients", getattr(builtins, "clients", 0), flush=True)
atexit.register(hang)
"""
# Notes in a file what became of it: the core may be gone before the client is told.
NOTES = """
import time
print('in', flush=True)
try:
    while True: time.sleep(0.001)
except BaseException as error:
    with open(%r, 'w') as file: file.write(type(error).__name__)
"""


class Ending:
    """A program with a core in it, whose end is slow where it matters."""

    def __init__(self, world, python, more="", env=None):
        self.world, self.clients = world, []
        self.go = world.tmp / ("go-%d" % len(world.targets))
        self.target = world.start(python, PROGRAM.replace("MORE", more), env=env,
                                  arguments=(str(self.go),))
        self.target.inject()

    def run(self, code):
        client = subprocess.Popen([str(CLI), "-t", str(self.target.pid), "eval", code],
                                  env=self.world.env, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        self.clients.append(client)
        assert client.stdout.readline() == "in\n"

    def ends(self):
        """Its exit code."""
        self.go.touch()
        wait_for(lambda: not self.target.alive(), "the program to end")
        for client in self.clients:
            client.communicate(timeout=60)
        return self.target.process.returncode


@pytest.mark.parametrize("code", sorted(CODES))
def test_clients_code_when_the_interpreter_ends(world, python, code):
    """CPython 3.9 to 3.12 died by SIGSEGV, in drop_gil()."""
    for _ in range(50 if FULL else 1):
        program = Ending(world, python, env=SLOW_END)
        for _ in range(2):
            program.run(CODES[code])
        assert program.ends() == 3, program.target.output()


@pytest.mark.some_pythons
def test_a_program_that_hangs_in_an_exit_function_can_be_asked(world, python):
    """The interpreter ends after them."""
    note = world.tmp / "note"
    program = Ending(world, python, HANGS)
    program.run(NOTES % str(note))
    program.go.touch()
    program.target.wait_line("hangs")
    assert program.target.eval("import builtins; builtins.clients = 1; 6 * 7").stdout == "42\n"
    assert not note.exists()
    Path(str(program.go) + "-2").touch()
    assert program.ends() == 3
    assert "clients 1\n" in program.target.output()
    assert note.read_text() == "KeyboardInterrupt"


@pytest.mark.some_pythons
@pytest.mark.parametrize("drop", ["_clear", "_run_exitfuncs"])
def test_exit_functions_that_are_dropped_early(world, python, drop):
    note = world.tmp / "note"
    program = Ending(world, python, env=SLOW_END)
    assert program.target.eval("import atexit; atexit.%s(); 1" % drop).stdout == "1\n"
    program.run(NOTES % str(note))
    assert program.ends() == 3, program.target.output()
    assert note.read_text() == "KeyboardInterrupt"


# A program in C has two interpreters in it, ends Python, goes on, and has it once more where it is
# not told otherwise.
EMBEDS = r"""
#include <stdio.h>
#include <unistd.h>

void Py_EndInterpreter(void *state);
int Py_FinalizeEx(void);
void Py_Initialize(void);
void *Py_NewInterpreter(void);
int PyRun_SimpleStringFlags(const char *text, void *flags);
void *PyThreadState_Swap(void *state);

int main(int argc, char **argv)
{
    Py_Initialize();
    PyRun_SimpleStringFlags("import os, threading, time, builtins\n"
                            "builtins.late_pipe, late = os.pipe()\n", NULL);
    void *first = PyThreadState_Swap(NULL);
    PyThreadState_Swap(first);
    void *second = Py_NewInterpreter();
    PyRun_SimpleStringFlags("import atexit", NULL);
    PyThreadState_Swap(first);
    puts("ready");
    fflush(stdout);
    while (access(argv[1], F_OK) != 0)
        PyRun_SimpleStringFlags("time.sleep(0.005)", NULL);
    PyRun_SimpleStringFlags("class Late:\n"
                            "    def __del__(self, write=os.write, sleep=time.sleep):\n"
                            "        write(late, b'x'); sleep(0.0005)\n"
                            "builtins.one = Late()", NULL);
    PyThreadState_Swap(second);
    Py_EndInterpreter(second);
    PyThreadState_Swap(first);
    Py_FinalizeEx();
    usleep(50000);
    if (argc == 3)
        return 3;
    Py_Initialize();
    PyRun_SimpleStringFlags("import time; time.sleep(0.05); print('again')", NULL);
    Py_FinalizeEx();
    return 3;
}
"""


def library_of(python):
    """Its libpython, None: it has it inside."""
    told = subprocess.run(["ldd", python], capture_output=True, text=True).stdout
    return next((line.split()[2] for line in told.split("\n") if "libpython3" in line), None)


@pytest.mark.some_pythons
@pytest.mark.parametrize("code", sorted(CODES))
def test_an_embedder_ends_python(world, python, code):
    """And begins it again, where no thread stays behind: CPython would let such a one in."""
    library = library_of(python)
    if not library or not shutil.which("cc"):
        pytest.skip("its libpython is no library of its own, or there is no C compiler")
    source, made, go = world.tmp / "embeds.c", world.tmp / "embeds", world.tmp / "go"
    source.write_text(EMBEDS)
    home = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], text=True,
                          capture_output=True).stdout.strip()
    subprocess.run(["cc", str(source), "-o", str(made), library,
                    "-Wl,-rpath," + str(Path(library).parent)], check=True)
    program = Ending.__new__(Ending)
    program.world, program.clients, program.go = world, [], go
    once = ["once"] if code in ("blocks", "catches") else []
    program.target = Target(world, [str(made), str(go), *once], dict(SLOW_END, PYTHONHOME=home))
    world.targets.append(program.target)
    program.target.wait_line("ready")
    program.target.inject()
    program.run(CODES[code])
    assert program.ends() == 3, program.target.output()
    assert bool(once) or "again\n" in program.target.output()
