# SPDX-License-Identifier: Apache-2.0
"""Each program of examples/ runs, and the questions that stand at its head have answers.

A program whose packages this machine lacks is skipped by name; PROBING_TEST_EXAMPLES names a Python
that has more of them.
"""
import ast
import os
import re
import shlex
import socket
import subprocess
from pathlib import Path

import pytest

from world import DEBIAN_PYTHON, ROOT, wait_for

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PYTHON = os.environ.get("PROBING_TEST_EXAMPLES", DEBIAN_PYTHON)
READY = {"trainer": r"'loss'", "serving": r"request 1 ",
         "lightning_loop": r"LOCAL_RANK|Trainer|params", "test_probing": "ready"}


def questions(path):
    """The command lines for PID at the head of a program, as lists of words."""
    head = ast.get_docstring(ast.parse(path.read_text()))
    found = re.findall(r"^    probing -t PID (.*)$", head, flags=re.M)
    assert found[0].startswith("inject"), path
    return [shlex.split(line) for line in found]


def packages(path):
    names = re.findall(r"^(?:import|from) (\w+)", path.read_text(), flags=re.M)
    return [name for name in names if name in ("torch", "numpy", "transformers", "lightning",
                                               "accelerate", "fastapi", "uvicorn", "httpx")]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_and_its_questions(world, path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wanted = packages(path) + ["accelerate"] * (path.stem == "trainer")
    missing = subprocess.run([PYTHON, "-c", "import " + ", ".join(wanted or ["sys"])],
                             capture_output=True, text=True, env=world.env)
    if missing.returncode:
        pytest.skip("%s: %s" % (path.name, missing.stderr.strip().splitlines()[-1]))
    ranks = []
    for rank in ((1, 0) if path.stem == "ddp" else (0,)):
        # As torchrun would start them; that of torch 1.13 does not run on Python 3.11.
        env = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks.insert(0, world.start(PYTHON, "-u", str(path), env=env if path.stem == "ddp" else {},
                                    *(["--slow-rank", "1"] if path.stem == "ddp" else [])))
    started = ranks[0]
    started.wait_line(READY.get(path.stem, r"(?:step|batch) 1 "))
    pid = str(started.pid)
    enter, *asked = questions(path)
    for rank in ranks:
        done = rank.probing(*enter, "--wait")
        assert done.returncode == 0, done.stderr
    assert len(asked) == 3

    def answers(words):
        done = world.probing("-t", pid, *words)
        assert done.returncode == 0, (words, done.stderr)
        empty = not done.stdout.strip() or re.search(r"^\(0 rows", done.stdout, flags=re.M)
        return not empty and not re.search(r"\| *$|^ *\|", done.stdout.splitlines()[2]
                                           if words[0] == "query" else "")
    for words in asked:
        wait_for(lambda words=words: answers(words), "an answer without holes: %s" % words)
    if path.stem == "ddp":
        wait_for(lambda: "rank 1 is the slowest" in world.probing("-t", pid, *asked[0]).stdout,
                 "the name of the slow rank")
    assert started.alive(), started.output()


def test_readme_of_the_examples_names_each():
    text = (ROOT / "examples" / "README.md").read_text()
    assert set(re.findall(r"\]\((\w+\.py)\)", text)) == {path.name for path in EXAMPLES}
    assert all(Path(path).read_text().startswith("# SPDX") for path in EXAMPLES)
