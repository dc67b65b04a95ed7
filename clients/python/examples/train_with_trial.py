#!/usr/bin/env python3
"""A training loop whose batch size, length and power limit are Derate's to choose.

    derate tune job create example --batch-sizes 16,32,64 --default 16 --target 0.9 --max-epochs 50
    python3 train_with_trial.py            # each time it is run it takes what is known by then

With PyTorch where it is installed; else with a stand-in of a few lines, so that it runs anywhere.
"""
import argparse
import math
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import derate_client  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

DEFAULT_BATCH_SIZE = 16


def points(count, seed):
    """Two clouds of points in the plane, which overlap, and which of them each is from."""
    draw = random.Random(seed)
    out = []
    for _ in range(count):
        kind = draw.randrange(2)
        out.append(([draw.gauss(2 * kind, 1), draw.gauss(2 * kind, 1)], kind))
    return out


class Torch:
    """Model, optimizer and data as PyTorch has them."""

    def __init__(self, batch_size):
        torch.manual_seed(1)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = torch.nn.Linear(2, 1).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loader = torch.utils.data.DataLoader(self.tensors(points(2000, 1)), batch_size,
                                                  shuffle=True)
        self.validation = self.tensors(points(1000, 2)).tensors

    def tensors(self, data):
        return torch.utils.data.TensorDataset(
            torch.tensor([x for x, _ in data]), torch.tensor([float(y) for _, y in data]))

    def train(self, batch):
        inputs, labels = (part.to(self.device) for part in batch)
        self.optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            self.model(inputs).squeeze(1), labels)
        loss.backward()
        self.optimizer.step()

    def accuracy(self):
        inputs, labels = (part.to(self.device) for part in self.validation)
        with torch.no_grad():
            return ((self.model(inputs).squeeze(1) > 0) == (labels > 0.5)).float().mean().item()


class StandIn:
    """The same without PyTorch: logistic regression by stochastic gradient descent."""

    def __init__(self, batch_size):
        self.weights, self.rate = [0.0, 0.0, 0.0], 0.01
        data = points(2000, 1)
        self.loader = [data[at:at + batch_size] for at in range(0, len(data), batch_size)]
        self.validation = points(1000, 2)

    def score(self, x):
        return self.weights[0] * x[0] + self.weights[1] * x[1] + self.weights[2]

    def train(self, batch):
        slope = [0.0, 0.0, 0.0]
        for x, y in batch:
            off = 1 / (1 + math.exp(-self.score(x))) - y
            slope = [s + off * part for s, part in zip(slope, (*x, 1))]
        self.weights = [w - self.rate * s / len(batch) for w, s in zip(self.weights, slope)]

    def accuracy(self):
        return sum((self.score(x) > 0) == (y == 1) for x, y in self.validation) / 1000


def train(trial, kind, epochs):
    work = kind(trial.batch_size)            # Derate's choice
    for _ in range(epochs):
        for batch in work.loader:
            work.train(batch)
            trial.step()                     # how fast it is: its limit is tuned by that
        if trial.epoch(work.accuracy()):     # how far; whether it is to stop
            return


def tell(trial):
    if trial.state is None:
        print(f"nobody tunes: batch size {trial.batch_size}, {trial.epochs} epochs, "
              f"accuracy {trial.metric:.3f}")
    else:
        print(f"batch size {trial.batch_size}: {trial.state} after {trial.epochs} epochs, "
              f"{trial.joules or 0:.0f} J ({trial.why})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--job", default="example")
    parser.add_argument("--gpus", help="index, UUID or PCI bus id; needed where there are several")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--no-torch", action="store_true", help="the stand-in in any case")
    options = parser.parse_args()

    for trial in derate_client.tries(options.job, options.gpus, without=DEFAULT_BATCH_SIZE):
        with trial:
            train(trial, StandIn if options.no_torch or torch is None else Torch, options.epochs)
        tell(trial)


if __name__ == "__main__":
    main()
