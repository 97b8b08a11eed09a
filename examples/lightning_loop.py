# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer on an autoencoder.

    pip install lightning && python examples/lightning_loop.py

How the loss goes; what a step consists of; which hooks of Lightning run now:

    probing -t PID inject --plugin torch
    probing -t PID query "select step, loss from training_logs order by step desc limit 3"
    probing -t PID query "select avg(step_duration_sec) as step, avg(forward_sec) as forward, avg(backward_sec) as backward, avg(optimizer_sec) as optimizer, avg(other_sec) as other from python.torch_step_timing"
    probing -t PID backtrace --python
"""
import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AutoEncoder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 256))

    def training_step(self, batch, batch_idx):
        x, = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    options = argparse.ArgumentParser(description="train with Lightning")
    options.add_argument("--steps", type=int, default=-1, help="-1: for ever")
    o = options.parse_args()
    lightning.seed_everything(0)
    data = DataLoader(TensorDataset(torch.randn(4096, 256)), batch_size=64)
    trainer = lightning.Trainer(max_steps=o.steps, max_epochs=-1, accelerator="cpu", logger=False,
                                enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(AutoEncoder(), data)


if __name__ == "__main__":
    main()
