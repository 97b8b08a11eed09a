# SPDX-License-Identifier: Apache-2.0
"""A small transformer that learns to continue sequences, on the CPU.  It knows nothing of us.

usage: tiny_transformer.py [--steps N] [--step-delay S] [--losses FILE]

The same seed, data and order each time: two runs print the same losses, to the last bit, with the
same torch on the same machine.  Works with torch 1.13 and 2.x.
"""
import argparse
import math
import time

import torch
from torch import nn

VOCABULARY = 61
LENGTH = 32
BATCH = 16
WIDTH = 128


class TinyTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, 1, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=256, dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, num_layers=3)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        mask = torch.full((LENGTH, LENGTH), float("-inf"))
        self.register_buffer("mask", torch.triu(mask, diagonal=1))

    def forward(self, tokens):
        hidden = self.embed(tokens) * math.sqrt(WIDTH) + self.position
        return self.head(self.encoder(hidden, self.mask))


def batch(step):
    """Counting, each sequence with a stride of its own: tokens, and the tokens that follow."""
    random = torch.Generator().manual_seed(step)
    first = torch.randint(0, VOCABULARY, (1, BATCH), generator=random)
    stride = torch.randint(1, 5, (1, BATCH), generator=random)
    sequence = (first + stride * torch.arange(LENGTH + 1).unsqueeze(1)) % VOCABULARY
    return sequence[:-1], sequence[1:]


def train_step(model, loss_of, optimizer, step):
    tokens, wanted = batch(step)
    optimizer.zero_grad()
    loss = loss_of(model(tokens).reshape(-1, VOCABULARY), wanted.reshape(-1))
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000000000)
    parser.add_argument("--step-delay", type=float, default=0.0, metavar="S")
    parser.add_argument("--losses", metavar="FILE", help="write each loss here, exactly")
    options = parser.parse_args()
    torch.manual_seed(20240229)
    torch.set_num_threads(1)
    model = TinyTransformer()
    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    losses = open(options.losses, "w") if options.losses else None
    for step in range(options.steps):
        loss = train_step(model, loss_of, optimizer, step)
        print("step %d loss %.6f" % (step, loss), flush=True)
        if losses:
            print("%d %s" % (step, loss.hex()), file=losses, flush=True)
        if options.step_delay:
            time.sleep(options.step_delay)


if __name__ == "__main__":
    main()
