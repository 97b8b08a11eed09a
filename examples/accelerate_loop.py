# SPDX-License-Identifier: Apache-2.0
"""accelerate with gradient accumulation: a step of the optimizer is four batches.

    pip install accelerate && python examples/accelerate_loop.py

How many steps there were, and how many batches in each; how the loss goes; what takes the time:

    probing -t PID inject --plugin torch
    probing -t PID query "select count(distinct local_step) as steps, max(micro_step) as last_micro_step from python.torch_trace where local_step < (select max(local_step) from python.torch_trace)"
    probing -t PID query "select step, loss, lr from training_logs order by step desc limit 3"
    probing -t PID torch --last 10s
"""
import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    options = argparse.ArgumentParser(description="train with accelerate")
    options.add_argument("--steps", type=int, default=0, help="batches; 0: for ever")
    o = options.parse_args()
    torch.manual_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=4, cpu=True)
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(4096, 128)
    data = DataLoader(TensorDataset(inputs, inputs[:, :10].argmax(1)), batch_size=32, shuffle=True)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    n = 0
    while True:
        for x, target in data:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), target)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            n += 1
            if n % 100 == 1:
                print("batch %d loss %.4f" % (n, loss.item()), flush=True)
            if n == o.steps:
                return


if __name__ == "__main__":
    main()
