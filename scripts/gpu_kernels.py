#!/usr/bin/env python3
"""Real GPU work of several kinds, one after the other, for `derate record` and `derate run`.

Needs PyTorch with CUDA. Prints one JSON line a phase: name, Unix times, iterations. It only
computes: no setting of the GPU is touched.

    scripts/gpu_kernels.py --seconds 6 --gap 3 gemm_bf16 copy fft > phases.json

With --data, lines as derate-bench-cuda's: the rate each second while the share of random values
among the operands steps through a list.

    scripts/gpu_kernels.py --data 0,0.25,1 --data-seconds 5 --seconds 30 gemm_bf16 > rates.json
"""
import argparse
import json
import sys
import time


def kernels(torch, made):
    """Name to a function that enqueues one iteration; operands are made when first used and kept
    in `made`."""
    device = torch.device("cuda")

    def keep(name, make):
        if name not in made:
            made[name] = make()
        return made[name]

    def randn(*shape, dtype):
        return torch.randn(*shape, device=device, dtype=torch.float32).to(dtype)

    def gemm(dtype, n):
        a = keep(f"a{dtype}", lambda: randn(n, n, dtype=dtype))
        b = keep(f"b{dtype}", lambda: randn(n, n, dtype=dtype))
        return lambda: torch.matmul(a, b)

    def copy():
        source = keep("source", lambda: randn(1 << 29, dtype=torch.float32))
        target = keep("target", lambda: torch.empty_like(source))
        return lambda: target.copy_(source)

    def softmax():
        x = keep("softmax", lambda: randn(65536, 4096, dtype=torch.bfloat16))
        return lambda: torch.softmax(x, dim=-1)

    def fft():
        x = keep("fft", lambda: randn(1 << 27, dtype=torch.float32))
        return lambda: torch.fft.rfft(x)

    def sort():
        x = keep("sort", lambda: randn(1 << 26, dtype=torch.float32))
        return lambda: torch.sort(x)

    def small():
        x = keep("small", lambda: randn(1024, dtype=torch.float32))
        return lambda: x.add_(1)

    def decode():
        w = keep("decode_w", lambda: randn(16384, 16384, dtype=torch.bfloat16))
        x = keep("decode_x", lambda: randn(8, 16384, dtype=torch.bfloat16))
        return lambda: torch.matmul(x, w)

    return {
        "gemm_bf16": lambda: gemm(torch.bfloat16, 8192),
        "gemm_fp32": lambda: gemm(torch.float32, 8192),
        "gemm_fp64": lambda: gemm(torch.float64, 4096),
        "copy": copy,
        "softmax": softmax,
        "fft": fft,
        "sort": sort,
        "small": small,
        "decode": decode,
    }


def run_phase(torch, name, make, length):
    step = make()
    step()
    torch.cuda.synchronize()
    begin = time.time()
    count = 0
    while time.time() - begin < length:
        for _ in range(20):
            step()
            count += 1
        torch.cuda.synchronize()
    end = time.time()
    return {"phase": name, "begin": begin, "end": end, "iterations": count}


def run_levels(torch, name, make, made, options):
    """Rate lines, each within one level: operands random for a share of them, 0 for the rest."""
    made.clear()
    step = make()
    full = {key: operand.clone() for key, operand in made.items()}
    chance = {key: torch.rand(operand.shape, device=operand.device)
              for key, operand in made.items()}
    step()
    torch.cuda.synchronize()
    yield {"line": "header", "workload": name, "work_unit": "iteration"}
    begin = since = now = time.monotonic()
    data, count = None, 0
    while now - begin < options.seconds:
        level = options.data[int((now - begin) / options.data_seconds) % len(options.data)]
        if (level != data or now - since >= 1) and count:
            yield {"line": "rate", "phase": name, "data": data,
                   "time_unix_seconds": time.time() - (time.monotonic() - now),
                   "seconds": now - since, "work": count, "rate": count / (now - since)}
            since, count = now, 0
        if level != data:
            data = level
            for key, operand in made.items():
                operand.copy_(torch.where(chance[key] < data, full[key], 0))
        for _ in range(20):
            step()
        torch.cuda.synchronize()
        count += 20
        now = time.monotonic()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6, help="length of a phase")
    parser.add_argument("--gap", type=float, default=3, help="idle time between phases")
    parser.add_argument("--data", type=lambda text: [float(part) for part in text.split(",")],
                        help="shares of random operands, in turns, as in 0,0.5,1")
    parser.add_argument("--data-seconds", type=float, default=10, help="how long each of them")
    parser.add_argument("names", nargs="*", help="which kernels; default: all")
    options = parser.parse_args()
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    made = {}
    known = kernels(torch, made)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        sys.exit(f"no kernel {', '.join(unknown)}; there are: {', '.join(known)}")
    for name in options.names or known:
        time.sleep(options.gap)
        lines = (run_levels(torch, name, known[name], made, options) if options.data
                 else [run_phase(torch, name, known[name], options.seconds)])
        for line in lines:
            print(json.dumps(line), flush=True)
    time.sleep(options.gap)


if __name__ == "__main__":
    main()
