# SPDX-License-Identifier: Apache-2.0
"""What README.md and the pages of docs/ tell a reader to type works, and answers as they show.

Each command, statement and request of each page is run, as written but for names of processes,
jobs, files and ports, at a small job of two ranks that is entered as the pages say.  It must end
well, or with the error that the page shows below it; a table that is shown must have the columns
that are shown, and other answers the first line that is shown, but for its numbers.

What cannot run here stands in NOT_HERE with its reason, what rightly fails here in FAILS with what
it says.  Each of their lines must be of use, so none outlives what it speaks of.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

import pages
from world import BUILD, CLI, DEBIAN_PYTHON, LIMIT, ROOT, World, has_torch, lend, wait_for

TARGET = Path(__file__).with_name("pages_target.py")
LIVE = [name for name in pages.PAGES if name != "README.md"]  # docs/README.md lists the others

NOT_HERE = [
    (r"^(docker|kubectl|srun|sudo|bpftrace) ", "not on this machine"),
    (r"^(scons|pip install|scripts/|ssh -T)|tests/(bench|cuda)/", "builds, benchmarks, machines"),
    (r"probing -t 1 inject", "in a container"),
    (r"pgrep -of train.py", "would enter a program of others"),
    (r"^export |^echo |SLURM_JOB_ID|squeue|/mnt/data|PROGRAM \.\.\.$", "of another machine"),
    (r"^nc ", "the text protocol: tests/server"),
    (r"relay --listen|relay:(node9|127)", "a port that everybody sees: tests/many"),
    (r"torchrun|^for pid in|^python |^pgrep|^kill |-t \$!", "starts a program, as is done here"),
    (r"eject( --force)?$|<old pid|crash\.reports", "of the end: test_leaving_and_after_the_end"),
    (r"jobs\.done|job_totals|beats|mine\.so|heartbeat|FILE$|ask\.c",
     "plugins of one's own: tests/e2e"),
    (r"trace train\.Trainer\.step --watch", "CPython 3.12: tests/python"),
    (r"debug --(dap|pause)| repl$", "an editor, a terminal: tests/python"),
    (r"probing -t \S+ query$|look\.sql", "a terminal, a file: tests/e2e/test_query_shell.py"),
    (r"time\.sleep\(600\)\"$", "takes ten minutes, if it is not stopped"),
    (r"cluster (NAME|REPORT)|flamegraph NAME|inject --plugin NAME|\bglobal\.python\.x|from NAME|"
     r"--raw|NAME=VALUE|describe (select \.\.\.|TABLE)|config \[get|ENDPOINT query|eval CODE|"
     r"query SQL|help COMMAND|completion SHELL|data_dir=DIR|stack_id = \.\.\.|d \.\.\. group|"
     r"read_parquet|-- \.\.\.$|^grep |torch on cuda|--from-row N|probing itself|"
     r"top -H|steps_v1|as time \.\.\.|probing PID q", "a form, not a command"),
]
FAILS = [
    (r"modul from", r"column 'modul'"),
    (r"\b(gpu|cuda)$|flamegraph cuda", r"no (GPU|kernel)"),
    (r"generate_series\(1, 20000000\)", r"sort needs more than"),
    (r"flamegraph torch --memory", r"no module call left GPU"),
    (r"(inject|launch) -l", r"listens on .* already|needs a (value|program)"),
    (r"launch --plugin memory$", r"needs a program"),
    (r"eval -f look\.py", r"line 7, in <module>(.|\n)*KeyError: 'loss'"),
    (r"diff memory\.high", r"no such event has come"),
    (r"plugin stop torch", r"is used by plugin '(memory|profile)'"),
]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s (Debian: python3-torch)" % DEBIAN_PYTHON)
    yield from lend(Job(tmp_path_factory.mktemp("pages")))


class Job(World):
    """Two ranks of the pages' program, and a folder with the files that they speak of."""

    def __init__(self, tmp):
        super().__init__(tmp)
        self.name = "pages-%d" % os.getpid()
        self.passed = set()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        (tmp / "bin").mkdir()
        (tmp / "bin" / "python").symlink_to(DEBIAN_PYTHON)
        shell = tmp / "rsh"
        shell.write_text('#!/bin/sh\nshift; exec sh -c "$*"\n')
        shell.chmod(0o755)
        shutil.copy(TARGET, tmp / "train.py")
        for name in "examples", "include":
            (tmp / name).symlink_to(ROOT / name)
        self.env.update(PATH="%s:%s:%s" % (tmp / "bin", BUILD, os.environ["PATH"]),
                        PYTHONPATH=str(ROOT / "plugins" / "python" / "package"),
                        PROBING_LIBRARY=str(BUILD / "libprobing.so"), PROBING_RSH=str(shell),
                        PROBING_REMOTE=str(CLI), XDG_STATE_HOME=str(tmp / "state"))
        self.ranks = [self.start(DEBIAN_PYTHON, "-u", "train.py", env={
            "RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": self.name,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.port}) for rank in (0, 1)]
        self.pid, self.other = (str(rank.pid) for rank in self.ranks)
        for block in [b for name in LIVE for b in pages.blocks(name)]:
            named = re.match(r"# (\w+\.py)$", block.lines[0])  # a file that a page shows whole
            if named:
                (tmp / named[1]).write_text("\n".join(block.lines) + "\n")
            if "probing_plugin_v1" in "".join(block.lines) and block.page == "README":
                (tmp / "demo.c").write_text("\n".join(block.lines) + "\n")
        for rank in self.ranks:
            rank.wait_line("ready")
        self.enter()
        self.directory = next(self.data.glob(self.pid + "-*"))

    def enter(self):
        for rank in self.ranks:
            rank.inject(*[word for plugin in ("python", "torch", "memory", "system", "gpu", "cuda",
                                              "nccl") for word in ("--plugin", plugin)])
        done = self.ranks[0].probing("config", "server.listen=127.0.0.1:" + self.port)
        assert done.returncode == 0, done.stderr

    def here(self, command):
        """A page's command with the names of what is here."""
        command = re.sub(r"(-t|probing|diff) (PID|<\w[\w ]*>|DIRECTORY|\d{3,}|\$!|\$pid)(?=\s|$)",
                         r"\1 " + self.pid, command)
        command = re.sub(r"(?<=job:)\w+|(?<=--job )\w+", self.name, command)
        command = re.sub(r"-t all\b", "-t %s,%s" % (self.pid, self.other), command)
        if re.match(r"probing cluster", command) and "--job" not in command:
            command = re.sub("( >|$)", r" --job %s\1" % self.name, command, count=1)
        command = command.replace("TARGETS", self.pid + "," + self.other)
        command = command.replace("node[1-8]", "node[1-2]")
        command = re.sub(r"(-s|--seconds) \d+", r"\1 1", command)
        command = re.sub(r"--steps \d+", "--steps 2", command)
        command = re.sub(r" \[(-[^\]]*)\]", r" \1", command).replace("--stop [NAME]", "--stop")
        command = re.sub(r"--format csv\S*( \.\.\.)?", "--format csv", command)
        command = command.replace("csv -o FILE", "csv -o FILE python.loss")
        command = command.replace('eval "..."', 'eval "1"').replace('"..."', '"select 1"')
        command = command.replace("select ...", "select 1")
        command = command.replace("_rank, ... from global.SCHEMA.TABLE",
                                  "_rank, count(*) from global.python.loss")
        command = command.replace("/data/runs", "runs").replace("parquet:DIR", "parquet:runs")
        command = command.replace("python.torch_trace.parquet", "x.parquet")
        command = re.sub(r"(?<=127\.0\.0\.1:)(9922|8080)|(?<=node1:)9922", self.port, command)
        command = command.replace("http://node1:", "http://127.0.0.1:")
        return re.sub(r"/tmp/probing/\d+-\d+", str(self.directory), command)

    def run(self, command, cwd=None, seconds=60):
        """(exit code, output, errors); what goes on until Ctrl-C gets it once it has said much."""
        endless = re.search(r" (watch|top|ship)( |$)|--follow|--watch| trace .*--args$", command)
        env = dict(self.env, PROBING_TARGET=self.pid, TOKEN=self.token())
        if "cluster" in command or "launch" in command or " -t " in command:
            del env["PROBING_TARGET"]
        if "launch" in command:  # the core is to be in a program that ends
            cwd = self.tmp / "launch"
            cwd.mkdir(exist_ok=True)
            (cwd / "train.py").write_text("print('trained')\n")
        log = self.tmp / "said"
        with open(log, "wb") as out, open(self.tmp / "errors", "wb") as errors:
            process = subprocess.Popen(["bash", "-c", command], env=env, cwd=cwd or self.tmp,
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                                       start_new_session=True)
            deadline = time.monotonic() + (1.5 if endless else seconds)
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            try:
                code = process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
        said, errors = (path.read_bytes().decode(errors="replace")
                        for path in (log, self.tmp / "errors"))
        return 0 if endless and code in (130, -signal.SIGINT) else code, said, errors

    def token(self):
        path = self.directory / "token" if hasattr(self, "directory") else None
        return path.read_text().strip() if path and path.exists() else "none"


def masked(line):
    """A line without what differs each time: numbers, times, files, builds, and how blanks fall."""
    line = re.sub(r"\(build \w+\)", "(build #)", line)
    line = re.sub(r"/[\w./-]{4,}", "/", line)
    line = re.sub(r"'[^']*'", "''", line)
    return re.sub(r"\s+", " ", re.sub(r"-?\d[\d.,:e+-]*", "#", line)).strip()


def columns(lines):
    for head, rule in zip(lines, lines[1:]):
        if re.match(r"^-+(\+-+)*$", rule.strip()):
            return [cell.strip() for cell in head.split("|")]
    return None


def complaint(shown, code, said, errors):
    """The difference from what the page says, or None."""
    shown = [line for line in shown if line.strip() and line.strip() != "..."]
    errors_shown = [line for line in shown if line.startswith(("probing: ", "{\"error"))]
    if code != 0 and not errors_shown:
        return "exit code %d" % code
    if columns(shown):
        found = columns(said.splitlines())
        return None if found == columns(shown) else "the columns are %s, not %s" % (
            found, columns(shown))
    for line in (errors_shown if code != 0 else shown)[:1]:
        if masked(line.rstrip(".")) not in masked(said + errors):
            return "does not say %r" % masked(line)
    return None


# The page shows another program, or a job that waits: only that it answers is checked.
OF_OTHERS = r"backtrace|cluster|probing -t \d+ torch|flamegraph|memory|doctor|eval|--version|" \
            r"job:|ssh:|nccl|inject|plugin load|trace |import pyarrow|watch|reason from probing"
EMPTY = r"comm_stuck|from script\.|watched"  # nothing hangs here, no step is slow; CPython 3.12
CHANGES = r"plugin|config|inject|script|--mark|attach|detach"


def answer(job, said):
    """Say what is wrong with it, or None."""
    command = job.here(said.command)
    table = columns(said.shown) is not None
    shown = [line for line in said.shown if table or line.startswith("probing: ")
             or not re.search(OF_OTHERS, said.command + "\n".join(said.shown))]
    if command in job.passed and not shown and not re.search(CHANGES, command):
        return None
    if "script run" in command:
        job.run("probing script stop slow_step")
    fails = next((line for line in FAILS if re.search(line[0], said.command)), None)
    deadline = time.monotonic() + LIMIT / 10
    while True:  # until there is what comes with time: a row of an exception, of a collection
        code, out, errors = job.run(command)
        wrong = complaint(shown if code or table else
                          [line for line in shown if not line.startswith("probing: ")],
                          code, out, errors)
        if table and not wrong and re.search(r"^\(0 rows", out, flags=re.M) \
                and not re.search(EMPTY, command):
            wrong = "no rows"
        if fails and code != 0 and re.search(fails[1], out + errors):
            wrong = None
        later = code == 0 or "nothing was sampled yet" in errors
        if wrong is None or not later or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    if "detach" in command:
        job.enter()
    if wrong and re.match(r"probing (-t \S+ )?[a-z]+( [a-z]+)?( --?[a-z]+)?$", command) \
            and re.search(r" needs | NAME; ", errors):
        return None  # the name of a command in a sentence
    job.passed.update([] if wrong else [command])
    return wrong and "\n  ".join((str(said), "ran: " + command, wrong, out[:2000] + errors[:2000]))


@pytest.mark.parametrize("page", LIVE)
def test_what_the_page_says_to_type(job, page):
    wrong = []
    for said in pages.everything(page):
        if not any(re.search(pattern, said.command) for pattern, _ in NOT_HERE):
            wrong.append(answer(job, said))
    wrong = [text for text in wrong if text]
    assert not wrong, "\n\n".join(wrong)
    assert all(rank.alive() for rank in job.ranks)


def test_what_is_not_run_is_in_the_pages():
    said = [said.command for page in LIVE for said in pages.everything(page)]
    assert len(said) > 300
    for pattern, why in NOT_HERE + FAILS:
        assert any(re.search(pattern, command) for command in said), (pattern, why)
    run = [c for c in said if not any(re.search(line[0], c) for line in NOT_HERE)]
    assert len(run) > len(said) * 0.7


NO_NAMES = set("""torch.profiler torch.distributed torch.compile probing.every probing.name
    probing.on probing.after probing.time probing.args probing.state probing.publish probing.plugin
    probing.lua probing.version python.x memory.high memory.oom_near memory.growth nccl.so
    probing.python_loss
    host.name cpu.cfs_quota_us probing.rank process.pid python.samples python.stacks""".split())


def test_names_of_the_pages_are_tables_or_settings(job):
    """`torch.baseline_every`, `python.gc`: what stands so in a page is there, and called so."""
    known = set()
    for sql in ("show all", "select schema || '.' || name from probing.tables",
                "select table_schema || '.' || table_name from information_schema.tables"):
        code, rows, errors = job.run('probing query -f csv "%s"' % sql)
        assert code == 0, errors
        known |= {row.split(",")[0] for row in rows.splitlines()}
    schemas = {name.split(".")[0] for name in known if "." in name}
    unknown = set()
    for page in LIVE:
        for number, line in pages.text_lines(page):
            for name in re.findall(r"`([a-z]+\.[a-z_]+)(?:=[^`]*)?`", line):
                if name.split(".")[0] in schemas and name not in known | NO_NAMES:
                    unknown.add("%s:%d: %s" % (page, number, name))
    assert len(known) > 100 and not unknown, "\n".join(sorted(unknown))


def test_leaving_and_after_the_end(job):
    """The last chapters: eject, a crash, kill -9, and what the pages ask then."""
    crash, ended = job.ranks
    told = {said.command: said for page in LIVE for said in pages.everything(page)}

    def ask(pattern, target):
        said = [told[command] for command in told if re.search(pattern, command)]
        assert said, pattern
        for one in said:
            again = target.probing("inject", "--plugin", "torch")
            assert again.returncode == 0 or not target.alive(), again.stderr
            command = re.sub(r"(?<=-t )(<[\w ]*>|\d+)", str(target.pid), job.here(one.command))
            code, out, errors = job.run(command)
            wrong = complaint(one.shown if columns(one.shown) else [], code, out, errors)
            assert wrong is None, (str(one), wrong, out, errors)
            yield out
    assert all("stays in" in out for out in ask(r"^probing -t (\d+|<pid>) eject$", ended))
    ended.inject("--plugin", "torch")
    wait_for(lambda: ended.rows("select count(*) from python.torch_trace")[0][0], "rows")
    ended.kill()
    list(ask(r"<old pid.* query|<data directory> query|31403 query .*max\(step\)", ended))
    assert crash.probing("inject", "-c").returncode == 0
    crash.probing("eval", "import ctypes; ctypes.string_at(0)")
    crash.process.wait()
    assert all("SIGSEGV" in out for out in ask(r"<old pid> backtrace|from crash\.reports", crash))
    assert str(ended.pid) in job.run("probing list --dead")[1]
