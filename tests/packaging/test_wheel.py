# SPDX-License-Identifier: Apache-2.0
"""The wheel in fresh environments: each Python, each way of pip, and what goes wrong."""
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
import pythons
from installations import (STRANGER, VERSION, another, build_of, files_below,  # noqa: F401
                           home, installed, native, one_line, pip, put_build, run, starts, venv,
                           wheel, worked)
from pythons import PYTHONS, version_of
from world import CORE, ROOT, wait_for

pytest_generate_tests = pythons.parametrize


def other_than(python):
    """A Python of another version; the process that is entered knows nothing of the package."""
    others = [p for p in PYTHONS.values() if version_of(p)[:2] != version_of(python)[:2]]
    return others[0] if others else python


def install(python, own):
    """Into an environment, by a pip that runs on its Python: the newest here may be too old."""
    words = pip(python)
    code, _, why = run(*words, "--python", own, "--version")
    if code:
        pytest.skip("the newest pip here (%s) does not run on %s: %s"
                    % (words[0], python, why.strip().splitlines()[-1]))
    worked(*words, "--python", own, "install", "-q", wheel())


def enters(world, command, python=sys.executable):
    """The command enters a stranger and shows its stack."""
    target = world.python(STRANGER, python)
    target.wait_line("ready")
    out = worked(command, "-t", target.pid, "inject", env=world.env)
    assert "probing %s entered process %d" % (VERSION, target.pid) in out
    assert "waits_here" in worked(command, "-t", target.pid, "backtrace", env=world.env)
    assert "<module>" in worked(command, "-t", target.pid, "backtrace", env=world.env)
    target.kill()


def found_in(command, folder, env=None):
    """The command found this build's library below that folder."""
    out = worked(command, "--version", "-v", env=env)
    assert re.search(r"^library +%s/.*libprobing.so, %s$"
                     % (re.escape(str(folder.resolve())), re.escape(build_of(CORE))), out,
                     flags=re.M), out
    return out


@pytest.mark.some_pythons
def test_in_each_python(world, python):
    own = venv(python, world.tmp / "venv")
    before = files_below(world.tmp / "venv")
    install(python, own)
    command = world.tmp / "venv" / "bin" / "probing"
    assert "usage: probing" in worked(command, "--help")
    found_in(command, world.tmp / "venv")
    assert worked(own, "-m", "probing", "--version") == worked(command, "--version")
    enters(world, command, other_than(python))
    # The hook of the environment starts it in a program that does not know of it.
    target = world.python(STRANGER, str(own), env={"PROBING": "1"})
    target.wait_line("ready")
    wait_for(lambda: run(command, "-t", target.pid, "query", "select 1", env=world.env)[0] == 0,
             "a core in a program that began with PROBING=1")
    assert "waits_here" in worked(command, "-t", target.pid, "backtrace", env=world.env)
    target.kill()
    worked(*pip(python), "--python", own, "uninstall", "-q", "-y", "libprobing")
    assert files_below(world.tmp / "venv") == before


def test_main_job_from_there(home):
    """The end-to-end tests of the main job, with the files of the wheel and none of the tree."""
    build = home / "build"
    build.mkdir()
    for name, path in (("probing", home / "bin" / "probing"),
                       ("libprobing.so", native(home) / "libprobing.so"),
                       ("plugins", native(home) / "plugins")):
        (build / name).symlink_to(path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
         str(ROOT / "tests" / "e2e" / "test_main_job.py"), "-k",
         "query_by_module or eval or preload"],
        env=dict(os.environ, PROBING_BUILD=str(build)), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d+ passed", done.stdout), done.stdout


def test_target(world):
    """`pip install --target DIR` knows no data folder: all that is needed stands in the package."""
    where = world.tmp / "libraries"
    worked(*pip(), "install", "-q", "--target", where, wheel())
    found_in(where / "bin" / "probing", where)
    enters(world, where / "bin" / "probing")
    out = worked(sys.executable, "-c", "import probing; print(probing.library())",
                 env={"PYTHONPATH": str(where)})
    assert out.startswith(str(where / "probing" / "_native"))
    assert worked(sys.executable, "-m", "probing", "--version", env={"PYTHONPATH": str(where)})


def test_prefix_and_user(world):
    python = pip()[0]
    prefix = world.tmp / "prefix"
    worked(*pip(), "install", "-q", "--prefix", prefix, wheel())
    found_in(next(prefix.rglob("bin/probing")), prefix)
    enters(world, next(prefix.rglob("bin/probing")))
    private = world.tmp / "own"
    private.mkdir()
    env = {"HOME": str(private), "PYTHONUSERBASE": None}
    worked(*pip(), "install", "-q", "--user", wheel(), env=env)
    command = private / ".local" / "bin" / "probing"
    found_in(command, private, env=env)
    assert worked(python, "-m", "probing", "--version", env=env) == worked(command, "--version")
    worked(*pip(), "uninstall", "-q", "-y", "libprobing", env=env)
    assert files_below(private / ".local") == []


def test_by_a_link_from_elsewhere(world, home):
    """As pipx and system administrators do."""
    link = world.tmp / "bin" / "probing"
    link.parent.mkdir()
    link.symlink_to(home / "bin" / "probing")
    found_in(link, home)
    assert worked("probing", "--version", env={"PATH": str(link.parent)})


@pytest.mark.parametrize("mode", ["clone", "copy", "hardlink", "symlink"])
def test_uv(world, mode):
    uv = shutil.which("uv")
    if not uv:
        pytest.skip("no uv")
    env = {"UV_CACHE_DIR": str(world.tmp / "cache"), "UV_OFFLINE": "1", "UV_LINK_MODE": mode}
    worked(uv, "venv", "-q", "--python", sys.executable, world.tmp / "venv", env=env)
    before = files_below(world.tmp / "venv")
    env["VIRTUAL_ENV"] = str(world.tmp / "venv")
    worked(uv, "pip", "install", "-q", wheel(), env=env)
    out = worked(world.tmp / "venv" / "bin" / "probing", "--version", "-v", env=env)
    assert "/_native/libprobing.so, " + build_of(CORE) in out
    enters(world, world.tmp / "venv" / "bin" / "probing")
    assert worked(world.tmp / "venv" / "bin" / "python", "-m", "probing", "--version")
    worked(uv, "pip", "uninstall", "-q", "libprobing", env=env)
    assert set(files_below(world.tmp / "venv")) - {".lock"} == set(before)


def test_pipx(world):
    pipx = shutil.which("pipx")
    if not pipx:
        pytest.skip("no pipx")
    env = {"PIPX_HOME": str(world.tmp / "pipx"), "PIPX_BIN_DIR": str(world.tmp / "bin"),
           "PIPX_MAN_DIR": str(world.tmp / "man"), "PIPX_DEFAULT_BACKEND": "pip",
           "PIP_NO_INDEX": None}
    code, _, err = run(pipx, "install", wheel(), env=env)
    if code != 0 and "requirement pip" in err:
        pytest.skip("pipx wants a newer pip, and no index is here")
    assert code == 0, err
    found_in(world.tmp / "bin" / "probing", world.tmp / "pipx")
    enters(world, world.tmp / "bin" / "probing")
    worked(pipx, "uninstall", "libprobing", env=env)
    assert not (world.tmp / "bin" / "probing").exists()


@pytest.fixture
def open_home():
    """An environment with the wheel that everybody may read and nobody may write: its folder."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    python = venv("/usr/bin/python3", top / "venv")
    worked(*pip("/usr/bin/python3"), "--python", python, "install", "-q", wheel())
    worked("chmod", "-R", "a-w", top / "venv")
    yield top / "venv"
    worked("chmod", "-R", "u+w", top)
    shutil.rmtree(top)


def test_read_only_and_no_home(open_home):
    """A file system where nothing can be written, used by somebody who has no home."""
    home = open_home
    private = home.parent / "data"
    private.mkdir(0o700)
    users = {}
    if os.geteuid() == 0:  # root may write everywhere
        os.chown(private, 65534, 65534)
        users = {"user": 65534, "group": 65534, "extra_groups": []}
    for where in ("/nonexistent", None, "/proc"):
        env = {"HOME": where, "PROBING_DATA_DIR": str(private), "PYTHONDONTWRITEBYTECODE": "1"}
        out = worked(home / "bin" / "python", "-c", "\n".join((
            "import probing, subprocess, sys, os", "probing.init()",
            "print(probing.query('select 7 as seven'))",
            "sys.stdout.flush()",
            "subprocess.run([%r, '-t', str(os.getpid()), 'query', 'select 8 as eight'])"
            % str(home / "bin" / "probing"))), env=env, **users)
        assert "(7,)" in out and "eight" in out, out


# ---- what goes wrong, one clear line each ----

@pytest.mark.parametrize("platform", ["musllinux_1_2_x86_64", "manylinux2010_x86_64",
                                      "manylinux_2_16_x86_64", "manylinux2014_i686"])
def test_pip_refuses_other_machines(world, platform):
    code, _, err = run(*pip(), "install", "--platform", platform, "--only-binary=:all:", "--target",
                       world.tmp / "x", wheel())
    assert code != 0 and "is not a supported wheel on this platform" in err


def test_command_and_library_of_two_builds(world, home):
    library = native(home) / "libprobing.so"
    put_build(library, another(build_of(CORE)))
    command = home / "bin" / "probing"
    code, out, err = run(command, "--version", "-v")
    assert code == 0 and "install them from one package" in one_line(err)
    said = one_line(starts(home, world.env))
    assert build_of(CORE) in said and another(build_of(CORE)) in said
    # They talk all the same, and say so.
    target = world.python(STRANGER)
    target.wait_line("ready")
    code, out, err = run(command, "-t", target.pid, "inject", env=world.env)
    assert code == 0 and "entered process" in out, err
    code, out, err = run(command, "-t", target.pid, "query", "select 1 as one", env=world.env)
    assert code == 0 and "one" in out
    assert another(build_of(CORE)) in one_line(err) and build_of(CORE) in err


def test_the_library_of_its_own_build_is_taken(home):
    """Two installations that the command can see: one for each Python of a prefix."""
    site = native(home).parents[1]
    older = site.parents[1] / "python3.0" / "site-packages"
    shutil.copytree(site / "probing", older / "probing")
    put_build(older / "probing" / "_native" / "libprobing.so", another(build_of(CORE)))
    code, out, err = run(home / "bin" / "probing", "--version", "-v")
    assert code == 0 and err == ""
    assert re.search("^library +%s/" % re.escape(str(site.resolve())), out, flags=re.M), out
    assert re.search("^not used +%s/.*%s" % (re.escape(str(older.resolve())), re.escape(
        another(build_of(CORE)))), out, flags=re.M), out


def test_not_installed_whole(home):
    command = home / "bin" / "probing"
    shutil.rmtree(native(home))
    code, _, err = run(command, "-t", os.getpid(), "inject", "--dry-run")
    assert code == 1 and "install probing whole" in one_line(err)
    assert "libprobing.so is not in" in one_line(starts(home))
    command.unlink()
    code, _, err = run(home / "bin" / "python", "-m", "probing", "--version",
                       env={"PROBING_LIBRARY": str(CORE), "PATH": "/nonexistent"})
    assert code == 1 and "the command probing is not in" in one_line(err)
    code, _, err = run(home / "bin" / "python", "-c", "import probing; probing.library()",
                       env={"PROBING_LIBRARY": "/nowhere/libprobing.so"})
    assert code == 1 and "PROBING_LIBRARY is /nowhere/libprobing.so" in err


# ---- the file itself ----

def test_what_is_in_the_wheel():
    path = wheel()
    with zipfile.ZipFile(path) as packed:
        names = packed.namelist()
        info = "libprobing-%s.dist-info/" % VERSION
        record = packed.read(info + "RECORD").decode().splitlines()
        for line in record:
            name, digest, size = line.rsplit(",", 2)
            if name == info + "RECORD":
                continue
            data = packed.read(name)
            assert len(data) == int(size)
            assert "sha256=" + base64.urlsafe_b64encode(
                hashlib.sha256(data).digest()).rstrip(b"=").decode() == digest
        assert sorted(line.rsplit(",", 2)[0] for line in record) == sorted(names)
        marks = packed.read(info + "WHEEL").decode()
        elf = [n for n in names if packed.read(n)[:4] == b"\x7fELF"]
        for name in elf:
            assert str(ROOT).encode() not in packed.read(name), name
        man = packed.read([n for n in names if n.endswith("man1/probing.1")][0]).decode()
        licenses = packed.read(info + "licenses/LICENSE").decode()
    assert "Root-Is-Purelib: false" in marks and marks.count("Tag: py3-none-manylinux") == 2
    assert len(elf) == 2 + len(list((CORE.parent / "plugins").glob("*.so")))
    assert "libprobing.pth" in names and "probing/py.typed" in names
    assert ".SH COMMANDS" in man
    for words in ("Apache License", "Lua.org, PUC-Rio", "OpenLDAP Public License",
                  "Jean-loup Gailly", "libwebsockets", "Hewlett-Packard"):
        assert words in licenses
    assert path.stat().st_size < 3 << 20


def test_glibc_of_the_wheel(tmp_path):
    with zipfile.ZipFile(wheel()) as packed:
        packed.extractall(tmp_path)
    elf = [p for p in tmp_path.rglob("*") if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"]
    worked(sys.executable, ROOT / "scripts" / "tools" / "glibc_floor.py", "check", *elf)
    if shutil.which("auditwheel"):
        assert "manylinux_2_17_" + os.uname().machine in worked("auditwheel", "show", wheel())
    assert Path(wheel()).name.count("manylinux") == 2
