# SPDX-License-Identifier: Apache-2.0
"""Shared by the targets: say that the models are there, wait, work, answer, stay alive."""
import json
import os
import sys
import time

import torch

torch.set_num_threads(1)
torch.manual_seed(0)


def is_told():
    return os.path.exists(sys.argv[1])


def run(work):
    """work() gives what the test shall compare with; it runs when the file `go` is there."""
    if sys._getframe(1).f_globals["__name__"] != "__main__":
        return  # imported by a worker's process that is not forked, as those of Python 3.14
    print("ready", flush=True)
    while not is_told():
        time.sleep(0.01)
    found = work()
    with open(sys.argv[2], "w") as out:
        json.dump(found, out)
    print("done", flush=True)
    while True:
        time.sleep(0.05)
