# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer on a small GPT-2 with random weights and random text.

    pip install transformers accelerate && python examples/trainer.py

How the loss and the learning rate go; which layer takes longest; what a step spends beside the
model:

    probing -t PID inject --plugin torch
    probing -t PID query "select step, loss, lr, grad_norm from training_logs order by step desc limit 3"
    probing -t PID query "select module, avg(duration) as sec from python.torch_trace where stage = 'post forward' group by module order by sec desc limit 5"
    probing -t PID torch --last 10s
"""
import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Text(torch.utils.data.Dataset):
    def __init__(self, n, length, words):
        self.n, self.length, self.words = n, length, words

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        first = torch.randint(self.words, (1,), generator=torch.Generator().manual_seed(i))
        ids = (first + torch.arange(self.length)) % self.words
        return {"input_ids": ids, "labels": ids}


def main():
    options = argparse.ArgumentParser(description="fine-tune with transformers' Trainer")
    options.add_argument("--steps", type=int, default=1000000)
    o = options.parse_args()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2,
                                       n_head=2))
    with tempfile.TemporaryDirectory() as place:
        settings = TrainingArguments(place, max_steps=o.steps, per_device_train_batch_size=8,
                                     logging_steps=20, save_strategy="no", report_to=[],
                                     disable_tqdm=True, use_cpu=True)
        Trainer(model=model, args=settings, train_dataset=Text(4096, 64, 256)).train()


if __name__ == "__main__":
    main()
