# SPDX-License-Identifier: Apache-2.0
"""Another project's `probing` beside ours: a command, a module, a .pth hook of the same names.

Each order of installing them, and each place: what runs is ours or says that it is not, in a line.
"""
import os
import sys

import pytest
from installations import (VERSION, archives, files_below, home, installed,  # noqa: F401
                           one_line, pip, run, starts, venv, wheel, worked)

LEFT = "print(open(__import__('os').environ['OTHER_RAN'], 'a').write('%s ') and '')\n"
OTHER = {"probing/__init__.py": "VERSION = '0.2.4'\n" + LEFT % "module",
         "probing/config.py": "",
         "probing/cli/__init__.py": "",
         "probing/cli/__main__.py": "def main():\n    " + LEFT % "command",
         "probing.pth": "import probing_hook\n",
         "probing_hook.py": "import os\nif os.environ.get('PROBING') == '1':\n"
                            "    del os.environ['PROBING']\n    import probing\n",
         "probing-0.2.4.dist-info/entry_points.txt":
             "[console_scripts]\nprobing=probing.cli.__main__:main\n"}


@pytest.fixture
def other(tmp_path):
    """A wheel with what the one on PyPI has of the same names; what of it runs leaves a word."""
    files = [archives.File(name, text.encode(), 0o644) for name, text in OTHER.items()]
    path = tmp_path / "probing-0.2.4-py3-none-any.whl"
    path.write_bytes(archives.wheel(files, "probing", "0.2.4", ["py3-none-any"],
                                    "Metadata-Version: 2.1\nName: probing\nVersion: 0.2.4\n", 0))
    return path


class Place:
    """An environment, and what ran in it of the other project."""

    def __init__(self, folder):
        self.home, self.ran_file = folder, folder.parent / "ran"
        self.python, self.command = folder / "bin" / "python", folder / "bin" / "probing"
        self.env = {"OTHER_RAN": str(self.ran_file), "HOME": str(folder.parent / "nobody"),
                    "PATH": "%s:/usr/bin:/bin" % (folder / "bin")}

    def install(self, path, *more):
        worked(*pip(sys.executable), "--python", self.python, "install", "-q", path, *more)

    def leave(self, *names):
        worked(*pip(sys.executable), "--python", self.python, "uninstall", "-q", "-y", *names)

    def ran(self):
        """Lines of the other project since it was asked last."""
        words = self.ran_file.read_text() if self.ran_file.exists() else ""
        self.ran_file.write_text("")
        return words


def says_so(line, *names):
    assert "another project" in line and "keep one of the two" in line, line
    assert all(name in line for name in names), line


def test_other_one_first(other, tmp_path):
    """Ours has overwritten it; and loses files when it leaves."""
    here = Place(venv(sys.executable, tmp_path / "venv").parents[1])
    before = files_below(here.home)
    here.install(other)
    here.install(wheel())
    assert "probing %s " % VERSION in worked(here.command, "--version", env=here.env)
    code, out, err = run(here.python, "-m", "probing", "--version", env=here.env)
    assert (code, out) == (0, worked(here.command, "--version"))
    says_so(one_line(err), "probing-0.2.4.dist-info")
    code, out, err = run(here.command, "doctor", env=here.env)
    says_so(one_line("\n".join(n for n in out.splitlines() if "another project" in n)),
            "beware    NO: ", "probing-0.2.4.dist-info")
    assert code == 1
    says_so(one_line(starts(here.home, here.env)), "probing-0.2.4.dist-info")

    here.leave("probing")
    assert "install libprobing again" in one_line(starts(here.home, here.env))
    code, _, err = run(here.python, "-m", "probing", "--version", env=here.env)
    assert code == 1 and "install libprobing again" in one_line(err)
    here.install(wheel(), "--force-reinstall")
    assert starts(here.home, here.env) == ""
    worked(here.command, "--version", env=here.env)
    assert here.ran() == ""
    here.leave("libprobing")
    assert files_below(here.home) == before


def test_ours_first(other, home):
    """It has overwritten ours: its command and its module are not to be had back, but they do not
    run where ours was asked for by PROBING."""
    here = Place(home)
    here.install(other)
    says_so(one_line(starts(here.home, here.env)), "%s/" % here.home)
    assert here.ran() == ""
    code, out, err = run(here.python, "-m", "probing", "--version", env=here.env)
    assert code == 1 and VERSION not in out
    says_so(one_line(err), "probing-0.2.4.dist-info")

    here.leave("libprobing")
    site = next(here.home.rglob("site-packages"))
    left = {name for name in files_below(site) if "probing" in name}
    assert left <= set(OTHER) | {"probing-0.2.4.dist-info/" + n for n in (
        "INSTALLER", "METADATA", "RECORD", "REQUESTED", "WHEEL", "direct_url.json")}
    assert left >= {"probing.pth", "probing_hook.py", "probing/config.py"}


def test_in_another_folder(home, other, tmp_path):
    """First in PATH and in PYTHONPATH."""
    here = Place(home)
    worked(*pip(), "install", "-q", "--target", tmp_path / "lib", other)
    env = dict(here.env, PATH="%s:%s" % (tmp_path / "lib" / "bin", here.env["PATH"]),
               PYTHONPATH=str(tmp_path / "lib"))
    code, out, _ = run(here.command, "doctor", env=env)
    lines = [line for line in out.splitlines() if "another project" in line]
    says_so(lines[0], "NO: %s/lib/bin/probing is" % tmp_path, "a shell finds it first")
    says_so(lines[1], "NO: %s/lib/probing is" % tmp_path)
    assert len(lines) == 2 and code == 1
    says_so(one_line(starts(here.home, env)), "%s/lib/probing is" % tmp_path)
    assert here.ran() == ""
    # And where it comes after ours.
    site = next(here.home.rglob("site-packages"))
    (site / "later.pth").write_text("%s\n" % (tmp_path / "lib"))
    code, out, err = run(here.python, "-m", "probing", "--version",
                         env=dict(env, PYTHONPATH=None))
    assert code == 0 and "probing %s " % VERSION in out
    says_so(one_line(err), "%s/lib/probing, %s/lib/bin/probing are" % (tmp_path, tmp_path))
    assert here.ran() == ""


def test_scripts_around_the_command_are_ours(home, tmp_path):
    """As version managers and administrators write them."""
    here = Place(home)
    script = tmp_path / "bin" / "probing"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\nexec %s \"$@\"\n" % here.command)
    script.chmod(0o755)
    env = dict(here.env, PATH="%s:/usr/bin:/bin" % script.parent)
    assert "another project" not in run(here.command, "doctor", env=env)[1]
    code, _, err = run(here.python, "-m", "probing", "--version", env=env)
    assert (code, err) == (0, "")
    assert os.access(here.command, os.X_OK)
