# SPDX-License-Identifier: Apache-2.0
"""scripts/*.lua: each tells of its case in a process that has it, and nothing in a healthy one."""
import re

import pytest

from world import CLI, DEBIAN_PYTHON, IDLE, ROOT, has_torch, wait_for

SCRIPTS = sorted((ROOT / "scripts").glob("*.lua"))
OPENS = """import os, time
print('ready', flush=True)
kept = []
while True:
    if len(kept) < 900: kept.append(open(os.devnull))
    time.sleep(0.01)
"""
STARTS_THREADS = """import threading, time
print('ready', flush=True)
for n in range(400):
    threading.Thread(target=time.sleep, args=(1000,), name='worker-%d' % n, daemon=True).start()
    time.sleep(0.05)
time.sleep(1000)
"""
ALLOCATES = """import time
print('ready', flush=True)
kept = []
while True:
    if len(kept) < 10000: kept.append(bytearray(b'x' * 65536))
    time.sleep(0.01)
"""
BURNS = """import threading
def burn():
    x = 0
    while True: x += 1
for n in range(2): threading.Thread(target=burn, daemon=True).start()
print('ready', flush=True)
burn()
"""
DEADLOCK = """import threading
lock = threading.Lock()
def stand():
    with lock: lock.acquire()
threading.Thread(target=stand, daemon=True).start()
print('ready', flush=True)
stand()
"""
# One batch in five is late; some have a NaN.
SICK_LOOP = """import time, torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 1000000
    def __getitem__(self, i):
        time.sleep(0.2 if i % 5 == 0 else 0.001)
        return torch.ones(4) * (float('nan') if i % 7 == 0 else 1)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
print('ready', flush=True)
for x in torch.utils.data.DataLoader(Data()):
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
"""

# Script, parameters, a program that has the case, a part of what is said, looks of a healthy one.
CASES = [
    ("fd_leak", ["span=200ms", "spans=2", "growth=5"], OPENS, r"limit=\d+", 60),
    ("thread_explosion", ["period=100ms", "growth=5"], STARTS_THREADS, r"name=worker-\*", 15),
    ("leak", ["span=1s", "growth=1MB"], ALLOCATES, r"per_minute=\d+", 90),
    ("gil_contention", ["period=50ms"], BURNS, "holder=burn", 30),
    ("hang", ["after=2s"], DEADLOCK, "func=stand", 12),
    ("template", ["limit=40", "period=50ms"], STARTS_THREADS, r"threads=\d+", 15),
]
TORCH_CASES = [
    ("nan_watch", [], [], "place=Linear"),
    ("dataloader_stall", ["period=500ms"], [], r"share=0\.\d"),
    ("step_jitter", ["span=2s", "steps=10", "factor=5"], ["span=500ms", "steps=2", "factor=200"],
     r"p95_ms=\d"),
    ("slow_step", ["factor=5"], ["factor=200"], r"ms=\d"),
]


def path_of(name):
    return str(ROOT / "scripts" / (name + ".lua"))


def table_of(name):
    return "script." + ("slow_steps" if name == "slow_step" else name)


def run(target, name, words):
    done = target.probing("script", "run", path_of(name), *words)
    assert done.returncode == 0, done.stderr


def state_of(target, name):
    return target.rows("select state, errors, error from probing.scripts where name = '%s'" % name)


def expect(target, name, words, said):
    """It tells a follower, and keeps a row."""
    follower = target.world.start(str(CLI), "-t", str(target.pid), "script", "run", path_of(name),
                                  *words, "--follow")
    follower.wait_line(said)
    wait_for(lambda: target.rows("select count(*) from %s" % table_of(name))[0][0] > 0, "a row")
    assert state_of(target, name) == [["running", 0, None]]
    follower.kill()


def expect_nothing(target, name):
    assert target.rows("select * from %s" % table_of(name)) == []
    assert state_of(target, name) == [["running", 0, None]]
    done = target.probing("script", "stop", name)
    assert done.returncode == 0, done.stderr


def entered(target, *plugins):
    target.inject()
    for name in plugins:
        done = target.probing("plugin", "load", name)
        assert done.returncode == 0, done.stderr
    return target


def started(world, source, **kwargs):
    target = world.python(source, **kwargs)
    target.wait_line("ready")
    return target


def wait_for_looks(target, name, n):
    """A script's processor time grows with each of its looks, and only then."""
    seen = set()

    def enough():
        seen.add(target.rows("select cpu_ns from probing.scripts where name = '%s'" % name)[0][0])
        return len(seen) > n
    wait_for(enough, "%d looks" % n)


def test_each_script_has_its_case():
    names = [case[0] for case in CASES + TORCH_CASES]
    assert sorted(names) == [path.stem for path in SCRIPTS]


def test_help_and_check(world):
    target = entered(started(world, IDLE))
    for path in SCRIPTS:
        done = target.probing("script", "check", str(path))
        assert done.returncode == 0 and "nothing found" in done.stdout, done.stdout + done.stderr
        text = path.read_text()
        parameters = re.findall(r"^    (\w+) = \{.*doc = \"", text, flags=re.M)
        assert parameters, path
        done = target.probing("script", "help", str(path))
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(re.search(r"SPDX.*\n-- (.*)", text)[1]), done.stdout
        for parameter in parameters:
            assert "  %s=" % parameter in done.stdout, (path, parameter)


@pytest.mark.parametrize("name,words,source,said", [case[:4] for case in CASES],
                         ids=[case[0] for case in CASES])
def test_it_tells_of_its_case(world, name, words, source, said):
    expect(entered(started(world, source), "python"), name, words, said)


@pytest.mark.parametrize("name,words,looks", [(c[0], c[1], c[4]) for c in CASES],
                         ids=[case[0] for case in CASES])
def test_it_says_nothing_of_a_healthy_process(world, name, words, looks):
    target = entered(started(world, IDLE), "python")
    run(target, name, words)
    wait_for_looks(target, name, looks)
    expect_nothing(target, name)


@pytest.fixture(scope="module")
def torch_python():
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s (Debian: python3-torch)" % DEBIAN_PYTHON)
    return DEBIAN_PYTHON


def test_they_tell_of_a_sick_training(world, torch_python):
    target = entered(started(world, SICK_LOOP, python=torch_python), "torch")
    for name, words, _, said in TORCH_CASES:
        expect(target, name, words, said)
    assert target.probing("config", "torch.detect_nan").stdout.strip() == "on"
    assert target.probing("script", "stop", "nan_watch").returncode == 0
    assert target.probing("config", "torch.detect_nan").stdout.strip() == "off"


def test_a_worker_that_never_answers_is_named(world, torch_python):
    late = SICK_LOOP.replace("0.2 if i % 5 == 0", "1000 if i == 300").replace(
        "DataLoader(Data())", "DataLoader(Data(), num_workers=1)")
    target = entered(started(world, late, python=torch_python), "torch")
    expect(target, "dataloader_stall", ["period=300ms", "wait=1s"], "worker=0")
    assert target.rows("select pid, state from script.dataloader_stall where wait_s > 1 limit 1"
                       ) == target.rows("select pid, state from torch.loaders")


def test_they_say_nothing_of_a_healthy_training(world):
    target = entered(world.train(), "torch")
    for name, _, words, _ in TORCH_CASES:
        run(target, name, words)
    wait_for(lambda: target.rows("select count(*) from torch.step")[0][0] > 40, "steps")
    wait_for_looks(target, "step_jitter", 5)
    for name, _, _, _ in TORCH_CASES:
        expect_nothing(target, name)


def test_one_that_waits_for_its_plugin_may_come_first(world, torch_python):
    target = entered(started(world, SICK_LOOP, python=torch_python))
    done = target.probing("script", "-e", "probing.on('torch.step', print)")
    assert done.returncode == 1 and "the plugin that makes these rows" in done.stderr, done.stderr
    run(target, "slow_step", ["factor=5"])
    assert target.probing("plugin", "load", "torch").returncode == 0
    wait_for(lambda: target.rows("select count(*) from script.slow_steps")[0][0] > 0, "a row")
    assert state_of(target, "slow_step") == [["running", 0, None]]


def test_one_that_lacks_its_plugin_says_so(world):
    target = entered(started(world, IDLE))
    done = target.probing("script", "run", path_of("step_jitter"))
    assert done.returncode != 0 and "plugin load torch" in done.stderr, done.stderr
