# SPDX-License-Identifier: Apache-2.0
"""A residual network on pictures, in plain PyTorch, as examples/imagenet of PyTorch's repository is.

    python examples/imagenet.py                # synthetic pictures: nothing is downloaded
    PROBE_TORCH_EXPRS="loss@train,acc1@train" PROBE=1 python examples/imagenet.py

Which modules take the time; how the loss goes; whether it waits for data:

    probing -t PID inject --plugin torch -D torch.variables=loss@train,acc1@train
    probing -t PID query "select module, stage, avg(duration) as sec from python.torch_trace where stage like 'post %' group by module, stage order by sec desc limit 5"
    probing -t PID query "select local_step, name, value_f64 from python.variables order by ts desc limit 4"
    probing -t PID query "select avg(step_duration_sec) as step, avg(dataloader_sec) as data, avg(forward_sec) as forward, avg(backward_sec) as backward from python.torch_step_timing"
"""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    """Noise with a bright patch; where the patch is says the class."""

    def __init__(self, n, size, classes):
        self.n, self.size, self.classes = n, size, classes

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        made = torch.Generator().manual_seed(i)
        picture = torch.randn(3, self.size, self.size, generator=made)
        label = i % self.classes
        picture[:, label * 3:label * 3 + 3, :] += 2
        return picture, label


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(y)))


class ResNet(nn.Module):
    def __init__(self, width=16, blocks=3, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.Sequential(*[Block(width) for _ in range(blocks)])
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        return self.fc(self.layers(torch.relu(self.conv1(x))).mean(dim=(2, 3)))


def accuracy(output, target):
    return (output.argmax(1) == target).float().mean() * 100


def train(loader, model, criterion, optimizer, steps):
    for i, (images, target) in enumerate(loader, 1):
        output = model(images)
        loss = criterion(output, target)
        acc1 = accuracy(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 10 == 1:
            print("step %d loss %.4f acc1 %.1f" % (i, loss.item(), acc1.item()), flush=True)
        if i == steps:
            return i
    return i


def main():
    options = argparse.ArgumentParser(description="train a small residual network")
    options.add_argument("--steps", type=int, default=0, help="0: for ever")
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--workers", type=int, default=1, help="of the data loader")
    o = options.parse_args()
    torch.manual_seed(0)
    model = ResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(Pictures(6400, 32, 10), o.batch, shuffle=True, num_workers=o.workers)
    left = o.steps
    while True:
        done = train(loader, model, nn.CrossEntropyLoss(), optimizer, left)
        left -= done
        if o.steps and left <= 0:
            return


if __name__ == "__main__":
    main()
