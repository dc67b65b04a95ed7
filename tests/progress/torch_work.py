"""Work as PyTorch programs do it, for measuring what is counted of it against its own steps.

    torch_work.py KIND SECONDS STEPS.csv     KIND: train, lengths, decode, compiled, tiny

Writes when each step has ended, on the GPU, on CLOCK_MONOTONIC, and how many there were.
"""
import math
import sys
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                  nn.Linear(4 * width, width))
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (each.view(batch, length, self.heads, -1).transpose(1, 2)
                   for each in self.qkv(self.before(x)).split(width, 2))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.wide(self.after(x))


class Model(nn.Module):
    def __init__(self, words=32000, width=768, layers=8, heads=12, longest=1024):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(longest, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.words(tokens) + self.places(places)))


def training(kind):
    model = Model().cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    forward = torch.compile(model, mode="reduce-overhead") if kind == "compiled" else model
    lengths = torch.Generator().manual_seed(1)

    def step():
        length = 512
        if kind == "lengths":
            length = int(torch.randint(64, 1024, (1,), generator=lengths))
        tokens = torch.randint(0, 32000, (16, length), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits = forward(tokens)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss
    return step


def decoding():
    model = Model(layers=16).cuda().to(torch.bfloat16).eval()
    tokens = torch.randint(0, 32000, (8, 256), device="cuda")

    @torch.no_grad()
    def step():
        nonlocal tokens
        logits = model(tokens)[:, -1]
        tokens = torch.cat([tokens[:, 1:], logits.argmax(-1, keepdim=True)], 1)
        return logits[0, 0]
    return step


def tiny():
    values = torch.zeros(1024, device="cuda")

    def step():
        for _ in range(1000):
            values.add_(1.0)
        return values[0]
    return step


def main():
    kind, seconds, steps = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    torch.manual_seed(0)
    step = {"decode": decoding, "tiny": tiny}.get(kind, lambda: training(kind))()
    count, begun = 0, None
    with open(steps, "w", encoding="utf-8") as out:
        out.write("time_s,steps\n")
        while begun is None or time.monotonic() - begun < seconds:
            assert math.isfinite(step().item())  # waits for the GPU
            begun = begun or time.monotonic()
            count += 1
            out.write(f"{time.monotonic():.4f},{count}\n")
    print(f"{kind}: {count} steps, {(count - 1) / (time.monotonic() - begun):.2f} a second")


if __name__ == "__main__":
    main()
