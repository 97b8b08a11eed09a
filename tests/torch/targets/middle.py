# SPDX-License-Identifier: Apache-2.0
"""A forward that lasts until it is told to end; then one from beginning to end."""
import time

from torch import nn
from waiting import is_told, run


class Inner(nn.Module):
    def forward(self):
        return 1


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, goes_on):
        while goes_on():
            self.inner()
            time.sleep(0.005)


LEFT = [3]


def three_times():
    LEFT[0] -= 1
    return LEFT[0] >= 0


model = Outer()
print("ready", flush=True)
model(lambda: not is_told())
run(lambda: model(three_times))
