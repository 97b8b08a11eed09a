# SPDX-License-Identifier: Apache-2.0
"""Gradient descent in numpy: a loop that no framework knows.

    python examples/numpy_loop.py

Which function it is in; what the loss is, without stopping it; how it went, call by call of the
function that makes a step:

    probing -t PID inject
    probing -t PID backtrace --python
    probing -t PID trace __main__.step --args --limit 5
    probing -t PID query "select name, count(*) as calls, avg(duration_ns) / 1e6 as ms from python.trace_event where duration_ns is not null group by name"
"""
import argparse
import time

import numpy as np

FEATURES = 64


def step(weights, inputs, wanted, rate):
    """One step of gradient descent in place; gives the loss before it."""
    error = inputs @ weights - wanted
    weights -= rate * (inputs.T @ error) / len(inputs)
    return float((error ** 2).mean())


def main():
    options = argparse.ArgumentParser(description="linear regression by gradient descent")
    options.add_argument("--steps", type=int, default=0, help="0: for ever")
    steps = options.parse_args().steps
    rng = np.random.default_rng(0)
    truth, weights = rng.normal(size=FEATURES), np.zeros(FEATURES)
    n = 0
    while steps == 0 or n < steps:
        inputs = rng.normal(size=(512, FEATURES))
        loss = step(weights, inputs, inputs @ truth, rate=0.05)
        n += 1
        if n % 100 == 1:
            print("step %d loss %.6f" % (n, loss), flush=True)
        time.sleep(0.005)


if __name__ == "__main__":
    main()
