# SPDX-License-Identifier: Apache-2.0
"""The profiler's signal, where a program takes signals for itself."""
from world import DEBIAN_PYTHON, wait_for


def test_every_signal_is_taken(world):
    """No signal left: refused, in words.  Ours taken later: sampling ends, and says so."""
    source = '''
import signal, sys, time
def take(numbers):
    for n in numbers:
        if signal.getsignal(n) == signal.SIG_DFL:
            signal.signal(n, lambda *_: None)
def burn():
    end = time.time() + 600
    while time.time() < end:
        sum(range(100))
if "all" in sys.argv:
    take([signal.SIGURG, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)])
print("ready", flush=True)
burn()
'''
    script = world.tmp / "signals.py"
    script.write_text(source)
    target = world.start(DEBIAN_PYTHON, str(script), "all")
    target.wait_line("ready")
    target.inject()
    done = target.probing("plugin", "load", "profile")
    assert done.returncode == 1 and "every real-time signal" in done.stderr, done.stderr
    assert target.alive()


def test_another_handler_over_ours(world):
    target = world.python('''
import ctypes, signal, sys, time
libc = ctypes.CDLL(None)
hits = 0
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda n: None)
print("ready", flush=True)
while sum(1 for line in open("/proc/self/status") if line.startswith("Name")):
    mask = int([l for l in open("/proc/self/status") if l.startswith("SigCgt")][0].split()[1], 16)
    if mask >> int(signal.SIGURG) - 1 & 1:
        time.sleep(0.3)
        libc.signal(int(signal.SIGURG), handler)
        break
print("taken", flush=True)
while True:
    sum(range(1000))
''', DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    target.wait_line("taken")
    wait_for(lambda: "has taken over the profiler's signal" in target.probing("profile").stdout,
             "the profiler's notice")
    assert target.probing("plugin", "stop", "profile").returncode == 0
    assert target.alive()


def test_the_default_of_all_signals_is_put_back(world):
    """As PyTorch Lightning does after fit(): of ours the default would end the program."""
    target = world.python('''
import signal, threading, time
def burn():
    while True:
        sum(range(1000))
threading.Thread(target=burn, daemon=True).start()
print("ready", flush=True)
while True:
    kept = {s: signal.getsignal(s) for s in signal.valid_signals()}
    time.sleep(0.3)
    for number, handler in kept.items():
        if handler is not None and number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, handler)
    threading.Thread(target=time.sleep, args=(0.3,)).start()
''', DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    assert target.probing("config", "crash.handler=on").returncode == 0
    for _ in range(2):
        samples = target.rows("select count(*) from python.samples")[0][0]
        wait_for(lambda: target.rows("select count(*) from python.samples")[0][0] > samples + 50,
                 "samples after it")
    assert target.probing("backtrace").returncode == 0
    assert target.alive()
