# SPDX-License-Identifier: Apache-2.0
"""The smallest program to try probing on: two threads, one that computes and one that waits.

    python examples/test_probing.py            # or PROBING=1 python examples/test_probing.py

What every thread does now; what the worker computes; where the time goes:

    probing -t PID inject
    probing -t PID backtrace
    probing -t PID eval "done"
    probing -t PID flamegraph -s 2 --format folded
"""
import argparse
import threading
import time

done = 0


def compute(n):
    return sum(i * i for i in range(n))


def worker(rounds):
    global done
    while rounds == 0 or done < rounds:
        compute(20000)
        done += 1
        time.sleep(0.01)


def main():
    options = argparse.ArgumentParser(description="a program to try probing on")
    options.add_argument("--steps", type=int, default=0, help="rounds of the worker; 0: for ever")
    steps = options.parse_args().steps
    thread = threading.Thread(target=worker, args=(steps,), name="worker")
    thread.start()
    print("ready", flush=True)
    thread.join()


if __name__ == "__main__":
    main()
