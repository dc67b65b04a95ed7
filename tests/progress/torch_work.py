"""Work as PyTorch programs do it, for measuring what is counted of it against its own steps.

    torch_work.py KIND SECONDS STEPS.csv
    KIND: train, lengths, decode, compiled, tiny, generate (transformers), phases (training,
    evaluation and a checkpoint in turn)

Writes when each step has ended, on the GPU, on CLOCK_MONOTONIC, how many there were, and of what.
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


def generating():
    from transformers import GPT2Config, GPT2LMHeadModel, StoppingCriteria

    model = GPT2LMHeadModel(GPT2Config(eos_token_id=None)).cuda().to(torch.bfloat16).eval()
    prompt = torch.randint(0, 50000, (8, 64), device="cuda")

    class Count(StoppingCriteria):
        def __call__(self, tokens, _scores, **_):
            note("generate", tokens[0, -1])
            return torch.zeros(tokens.shape[0], dtype=torch.bool, device=tokens.device)

    def step():
        model.generate(prompt, max_new_tokens=128, do_sample=False, stopping_criteria=[Count()])
    return step


def phases():
    model = Model().cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def loss():
        tokens = torch.randint(0, 32000, (16, 512), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            return nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(),
                                               tokens.flatten())

    def step():
        for _ in range(250):
            now = loss()
            now.backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            note("train", now)
        with torch.no_grad():
            for _ in range(250):
                note("evaluate", loss())
        torch.save(model.state_dict(), "/tmp/checkpoint.pt")
    return step


OUT, COUNT = None, 0


def note(phase, value):
    """A step of that phase, once the GPU has done it."""
    global COUNT
    assert math.isfinite(value.item())
    COUNT += 1
    OUT.write(f"{time.monotonic():.4f},{COUNT},{phase}\n")


def main():
    global OUT
    kind, seconds, steps = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    torch.manual_seed(0)
    OUT = open(steps, "w", encoding="utf-8")
    OUT.write("time_s,steps,phase\n")
    step = {"decode": decoding, "tiny": tiny, "generate": generating, "phases": phases}.get(
        kind, lambda: training(kind))()
    begun = None
    while begun is None or time.monotonic() - begun < seconds:
        value = step()
        if value is not None:
            note(kind, value)
        begun = begun or time.monotonic()
    OUT.close()
    print(f"{kind}: {COUNT} steps")


if __name__ == "__main__":
    main()
