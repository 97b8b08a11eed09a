# SPDX-License-Identifier: Apache-2.0
"""Training by frameworks, with random weights and made-up data: what each step's loss, learning
rate and gradient norm are as they have them.  argv[3]: which."""
import logging
import os
import sys
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from waiting import run

STEPS, ACCUMULATED, BATCH = 14, 3, 4
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
said = {"loss": [], "lr": [], "grad_norm": [], "micro": ACCUMULATED}
kind = sys.argv[3]


class Data(Dataset):
    def __init__(self, n):
        self.x, self.y = torch.randn(n, 8), torch.randint(4, (n,))
        self.ids = torch.randint(50, (n, 12))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if kind.startswith("trainer"):
            return {"input_ids": self.ids[i], "labels": self.ids[i]}
        return self.x[i], self.y[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x, target):
        return nn.functional.cross_entropy(self.head(torch.tanh(self.body(x))), target)


def trainer():
    from transformers import (GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback,
                              TrainingArguments)
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50,
                                       n_positions=16))
    counts = {"batches": 0}

    class Own(Trainer):
        def compute_loss(self, *args, **kwargs):
            found = super().compute_loss(*args, **kwargs)
            counts["batches"] += 1
            if counts["batches"] % ACCUMULATED == 0:
                said["loss"].append((found[0] if isinstance(found, tuple) else found).item())
            return found

    class Note(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
            said["lr"].append(optimizer.param_groups[0]["lr"])

        def on_log(self, args, state, control, logs=None, **kwargs):
            if "grad_norm" in logs:
                said["grad_norm"].append(logs["grad_norm"])
    with tempfile.TemporaryDirectory() as room:
        arguments = TrainingArguments(
            output_dir=room, per_device_train_batch_size=BATCH, max_steps=STEPS, logging_steps=1,
            gradient_accumulation_steps=ACCUMULATED, max_grad_norm=0.5, learning_rate=0.01,
            lr_scheduler_type="cosine", warmup_steps=3, save_strategy="no", report_to=[],
            use_cpu=True, disable_tqdm=True)
        Own(model=model, args=arguments, callbacks=[Note()],
            train_dataset=Data(STEPS * ACCUMULATED * BATCH)).train()


def lightning():
    import lightning.pytorch as pl

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, number):
            found = self.net(*batch)
            self.log("train_loss", found)
            if number % ACCUMULATED == ACCUMULATED - 1:
                said["loss"].append(found.item())
            return {"loss": found} if kind == "lightning_dict" else found

        def on_before_optimizer_step(self, optimizer):
            said["lr"].append(optimizer.param_groups[0]["lr"])
            norms = [p.grad.norm() for p in self.parameters()]
            said["grad_norm"].append(torch.stack(norms).norm().item())

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            plan = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
            return {"optimizer": optimizer,
                    "lr_scheduler": {"scheduler": plan, "interval": "step"}}
    pl.Trainer(max_epochs=1, accelerator="cpu", devices=1, logger=False, gradient_clip_val=0.5,
               enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
               accumulate_grad_batches=ACCUMULATED, barebones=False).fit(
        Model(), DataLoader(Data(STEPS * ACCUMULATED * BATCH), batch_size=BATCH))


lightning_dict = lightning


def accelerate():
    from accelerate import Accelerator
    accelerator = Accelerator(gradient_accumulation_steps=ACCUMULATED, cpu=True)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    plan = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
    data = DataLoader(Data(STEPS * ACCUMULATED * BATCH), batch_size=BATCH)
    model, optimizer, data, plan = accelerator.prepare(model, optimizer, data, plan)
    for batch in data:
        with accelerator.accumulate(model):
            loss = model(*batch)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                said["loss"].append(loss.item())
                said["lr"].append(optimizer.param_groups[0]["lr"])
                norm = accelerator.clip_grad_norm_(model.parameters(), 0.5)
                said["grad_norm"].append(norm.item())
            optimizer.step()
            plan.step()
            optimizer.zero_grad()


def work():
    globals()[kind]()
    return said


module = {"trainer": "transformers", "accelerate": "accelerate"}.get(kind, "lightning.pytorch")
try:
    __import__(module)
except ImportError as e:
    print("missing", module, e, flush=True)
    sys.exit(0)
run(work)
