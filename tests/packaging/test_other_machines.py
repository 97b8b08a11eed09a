# SPDX-License-Identifier: Apache-2.0
"""Files of another machine, another libc, another installation: one clear line each."""
import ast
import os
import re
import shutil
import struct
import subprocess

import pytest
from installations import (STRANGER, VERSION, another, build_of, home, installed,  # noqa: F401
                           native, one_line, package, put_build, run, starts, worked)
from world import CORE, ROOT, wait_for

HERE = os.uname().machine
OTHER, NUMBER = ("aarch64", 183) if HERE == "x86_64" else ("x86_64", 62)


def make_foreign(path):
    """The head of the file says that it is for the other machine."""
    data = bytearray(path.read_bytes())
    data[18:20] = NUMBER.to_bytes(2, "little")
    path.write_bytes(data)


def test_library_of_another_machine(world, home):
    make_foreign(native(home) / "libprobing.so")
    assert "is built for %s, this Python is %s" % (OTHER, HERE) in one_line(starts(home))
    target = world.python(STRANGER)
    target.wait_line("ready")
    for words, why in ((("-t", target.pid, "inject"), "library"),
                       (("launch", "--", "/bin/echo", "runs"), "no library for this machine")):
        code, out, err = run(home / "bin" / "probing", *words, env=world.env)
        assert (code, out) == (1, "") and why in one_line(err)
    assert "libprobing.so" in err and target.alive()


def test_plugin_of_another_machine(world, home):
    make_foreign(native(home) / "plugins" / "python.so")
    target = world.python(STRANGER)
    target.wait_line("ready")
    code, _, err = run(home / "bin" / "probing", "-t", target.pid, "inject", env=world.env)
    assert code == 1 and "is built for another machine" in one_line(err)
    assert target.alive()


def test_command_of_another_machine(home):
    command = home / "bin" / "probing"
    make_foreign(command)
    code, out, err = run(home / "bin" / "python", "-m", "probing", "--version")
    assert (code, out) == (1, "")
    assert "%s is built for %s, this Python is %s" % (command, OTHER, HERE) in one_line(err)


@pytest.mark.parametrize("says,why", [
    ("'glibc 2.12'", "this machine has glibc 2.12; probing needs 2.17 or newer"),
    ("None", "does not run on glibc"), ("'musl 1.2.5'", "does not run on glibc")])
def test_python_on_another_libc(home, says, why):
    """As os.confstr() of Pythons on old systems and on Alpine answers."""
    code, out, err = run(home / "bin" / "python", "-c", """
import os
os.confstr = lambda name: %s
import probing
try:
    print(probing.init())
except probing.ProbingError as error:
    print(error)
""" % says)
    assert code == 0 and err == "" and why in one_line(out), out + err


def needs_newer(library, version):
    """Have the library ask for another version of glibc: of its table of versions (gABI, "symbol
    versioning") the entry for the newest, and the text that it names."""
    data = bytearray(library.read_bytes())
    name = max(re.findall(rb"GLIBC_2\.1\d(?=\0)", data))
    assert len(version) == len(name) and data.count(name + b"\0") == 1

    def elf_hash(text):
        h = 0
        for c in text:
            h = (h << 4) + c
            h = (h ^ (h & 0xf0000000) >> 24) & 0x0fffffff
        return struct.pack("<I", h)
    assert data.count(elf_hash(name)) >= 1
    library.write_bytes(bytes(data).replace(name + b"\0", version + b"\0").replace(
        elf_hash(name), elf_hash(version)))


def test_target_on_an_old_glibc(world, home):
    """Its loader refuses what needs a newer one, and the process goes on."""
    needs_newer(native(home) / "libprobing.so", b"GLIBC_9.17")
    target = world.python(STRANGER)
    target.wait_line("ready")
    code, out, err = run(home / "bin" / "probing", "-t", target.pid, "inject", env=world.env)
    assert code == 1 and "its glibc is too old" in one_line(err) and "GLIBC_9.17" in err
    assert target.alive()
    assert "GLIBC_9.17" in one_line(starts(home, world.env))


def other_installation(folder, build):
    """The archive, unpacked and of another build: as a distribution's beside an environment's."""
    worked("tar", "-C", folder, "-xf", package("probing-%s-%s.tar.xz" % (VERSION, HERE)))
    top = folder / ("probing-%s-%s" % (VERSION, HERE))
    put_build(top / "bin" / "probing", build)
    put_build(top / "lib" / "probing" / "libprobing.so", build)
    return top


def test_two_installations(world, home):
    """One started the program, the other asks: they talk, and say so; doctor names both."""
    theirs = another(build_of(CORE))
    command = other_installation(world.tmp, theirs) / "bin" / "probing"
    target = world.python(STRANGER, str(home / "bin" / "python"), env={"PROBING": "1"})
    target.wait_line("ready")
    ask = (command, "-t", target.pid, "query", "select 1 as one")
    wait_for(lambda: run(*ask, env=world.env)[0] == 0, "a core in it")
    code, out, err = run(*ask, env=world.env)
    assert code == 0 and "one" in out
    assert theirs in one_line(err) and build_of(CORE) in err
    code, out, err = run(command, "-t", target.pid, "inject", env=world.env)
    assert code == 0 and "already" in out + err, out + err
    path = "%s:/usr/bin:/bin" % command.parent
    out = run(home / "bin" / "probing", "doctor", env={"PATH": path})[1]
    assert "beware    a shell finds %s first, which is probing %s: this is %s\n" % (
        command, theirs, build_of(CORE)) in out
    out = run(command, "--version", "-v", env={"PATH": path, "VIRTUAL_ENV": str(home)})[1]
    assert re.search("^beware    %s/.*/probing is probing %s: this is %s$" % tuple(map(
        re.escape, (str(home), build_of(CORE), theirs))), out, flags=re.M), out


@pytest.mark.parametrize("where", ["/nonexistent", "", "/proc", None])
def test_command_without_a_home(home, world, where):
    target = world.python(STRANGER)
    target.wait_line("ready")
    env = dict(world.env, HOME=where)
    assert "entered" in worked(home / "bin" / "probing", "-t", target.pid, "inject", env=env)
    done = subprocess.run([str(home / "bin" / "probing"), "-t", str(target.pid), "repl"],
                          input=b"1 + 1\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={k: v for k, v in dict(os.environ, **env).items() if v is not None})
    assert done.returncode == 0 and b"2" in done.stdout and done.stderr == b"", done


# ---- packages of the other machine ----

def cross_built(pattern):
    """A package of the other machine; the emulator's words for its programs."""
    tools = OTHER + "-linux-gnu-gcc"
    if not shutil.which(tools):
        pytest.skip("no cross compiler %s" % tools)
    found = sorted((ROOT / "build" / OTHER / "packages").glob(pattern))
    stripped = ROOT / "build" / OTHER / "stripped" / "libprobing.so"
    if len(found) != 1 or build_of(stripped) != build_of(CORE):
        pytest.skip("no packages of this build: run `scons arch=%s wheel deb tarball`" % OTHER)
    return found[0]


def emulator():
    words = [shutil.which("qemu-" + OTHER), "-L", "/usr/%s-linux-gnu" % OTHER]
    if not words[0] or not os.path.isdir(words[2]):
        pytest.skip("no qemu-%s, or no glibc for it in %s" % (OTHER, words[2]))
    return words


def test_archive_of_the_other_machine(tmp_path):
    path = cross_built("probing-%s-%s.tar.xz" % (VERSION, OTHER))
    words = emulator()
    worked("tar", "-C", tmp_path, "-xf", path)
    top = tmp_path / path.name[:-len(".tar.xz")]
    command = top / "bin" / "probing"
    out = worked(*words, command, "--version", "-v")
    assert "library   %s/lib/probing/libprobing.so, %s\n" % (top, build_of(CORE)) in out
    assert "usage: probing" in worked(*words, command, "--help")
    assert "kernel    Linux" in run(*words, command, "doctor")[1]
    assert "zlib" in worked(*words, command, "--licenses")
    assert worked(*words, command, "man") == worked(ROOT / "build" / "release" / "probing", "man")


def test_its_wheel_and_package(tmp_path):
    path = cross_built("libprobing-%s-*.whl" % VERSION)
    assert path.name.endswith("py3-none-manylinux2014_%s.manylinux_2_17_%s.whl" % (OTHER, OTHER))
    shutil.unpack_archive(path, tmp_path, "zip")
    elf = [p for p in tmp_path.rglob("*") if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"]
    assert {int.from_bytes(p.read_bytes()[18:20], "little") for p in elf} == {NUMBER}
    assert len(elf) == 2 + len(list((CORE.parent / "plugins").glob("*.so")))
    worked("python3", ROOT / "scripts" / "tools" / "glibc_floor.py", "check", *elf)
    if shutil.which("dpkg-deb"):
        name = {"aarch64": "arm64", "x86_64": "amd64"}[OTHER]
        fields = worked("dpkg-deb", "-f", cross_built("probing_%s-1_%s.deb" % (VERSION, name)))
        assert "Architecture: %s\n" % name in fields and "libc6 (>= 2.17)" in fields
    source = (tmp_path / "probing" / "_version.py").read_text()
    assert ast.literal_eval(source.split("build = ")[1]) == build_of(CORE)
