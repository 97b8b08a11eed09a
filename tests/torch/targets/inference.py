# SPDX-License-Identifier: Apache-2.0
"""Loops without an optimizer; then the same with probing.step() telling where steps end."""
import pathlib
import sys

import torch
from torch import nn
from waiting import run

STEPS = 10
encoder, decoder = nn.Linear(8, 8).eval(), nn.Linear(8, 8)  # one in training mode, by mistake
loss_of = nn.MSELoss()


def work():
    x = torch.ones(4, 8)
    with torch.no_grad():
        for _ in range(STEPS):
            loss_of(decoder(encoder(x)), x)
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "plugins/python/package"))
    from probing import step as tell
    with torch.no_grad():
        for step in range(STEPS):
            tell(1000 + step)
            for _ in range(3):
                decoder(encoder(x))
    assert sys._probing_step() is None
    tell("7")
    tell(1 << 80)
    return {"steps": STEPS}


run(work)
