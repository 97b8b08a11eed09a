# SPDX-License-Identifier: Apache-2.0
"""A small network that learns to tell three spirals apart, in numpy.  It knows nothing of us.

usage: tiny_network.py [--steps N] [--step-delay S]

For machines that have no torch: what is shown of a training loop without it.
"""
import argparse
import time

import numpy as np

CLASSES = 3
POINTS = 256
WIDTH = 192


def spirals(rng):
    """Points and a 1 for the bias, (n, 3), and the arm of each, (n,)."""
    arm = rng.integers(CLASSES, size=POINTS)
    radius = rng.random(POINTS)
    angle = 4 * radius + arm * (2 * np.pi / CLASSES) + rng.normal(0, 0.1, POINTS)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), np.ones(POINTS)], axis=1), arm


class Network:
    def __init__(self, rng, sizes):
        self.weights = [rng.normal(0, np.sqrt(2 / a), (a, b)) for a, b in zip(sizes, sizes[1:])]
        self.speeds = [np.zeros_like(w) for w in self.weights]
        self.inputs = []

    def forward(self, x):
        self.inputs = []
        for weight in self.weights[:-1]:
            self.inputs.append(x)
            x = np.maximum(x @ weight, 0)
        self.inputs.append(x)
        return x @ self.weights[-1]

    def backward(self, gradient):
        gradients = []
        for x, weight in zip(reversed(self.inputs), reversed(self.weights)):
            gradients.append(x.T @ gradient)
            gradient = (gradient @ weight.T) * (x > 0)
        return gradients[::-1]

    def update(self, gradients, rate=0.05, momentum=0.9):
        for weight, speed, gradient in zip(self.weights, self.speeds, gradients):
            speed *= momentum
            speed -= rate * gradient
            weight += speed


def cross_entropy(scores, wanted):
    """The loss, and its gradient by the scores."""
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(wanted))
    loss = -np.log(shares[rows, wanted] + 1e-12).mean()
    shares[rows, wanted] -= 1
    return loss, shares / len(wanted)


def train_step(network, rng):
    points, arms = spirals(rng)
    loss, gradient = cross_entropy(network.forward(points), arms)
    network.update(network.backward(gradient))
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--step-delay", type=float, default=0.0, help="seconds between steps")
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    network = Network(rng, [3, WIDTH, WIDTH, CLASSES])
    for step in range(1, options.steps + 1):
        loss = train_step(network, rng)
        if step % 100 == 1:
            print("step %d loss %.4f" % (step, loss), flush=True)
        time.sleep(options.step_delay)


if __name__ == "__main__":
    main()
