"""A loop that reads prompts and decodes tokens on a GPU with PyTorch, and serves vLLM's metrics.

It is no engine: the weights are random, of the shape of a model of 7 billion parameters, and the
tokens mean nothing. Its requests are drawn. It exists to try `[[service]]` on a real GPU where no
engine is installed. It changes no clock and no limit.

    python3 bench-cuda/generate_loop.py --port 8000 --seconds 300 --requests 2

It first runs each phase alone for ten seconds. After --seconds it prints a line of JSON: how often
each phase ran, and the joules of each alone by the GPU's energy counter. It then serves its last
metrics until it is ended.
"""

import argparse
import ctypes
import http.server
import json
import random
import threading
import time

import torch

WIDTH, HEADS, KV_HEADS, HEAD, INNER, LAYERS = 4096, 32, 8, 128, 14336, 32
TOKEN_EDGES = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0]
FIRST_EDGES = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0]
STEP_EDGES = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
LONGEST = 8192  # tokens of a context
ALONE_S = 10  # of each phase alone


class Histogram:
    def __init__(self, edges):
        self.edges, self.counts, self.sum = edges, [0] * (len(edges) + 1), 0.0

    def add(self, value, times=1):
        at = next((i for i, edge in enumerate(self.edges) if value <= edge), len(self.edges))
        self.counts[at] += times
        self.sum += value * times

    def text(self, name):
        below, out = 0, [f"# TYPE {name} histogram"]
        for edge, count in zip(self.edges + ["+Inf"], self.counts):
            below += count
            out.append(f'{name}_bucket{{model_name="random-7b",le="{edge}"}} {below}')
        return out + [f'{name}_count{{model_name="random-7b"}} {below}',
                      f'{name}_sum{{model_name="random-7b"}} {self.sum}']


class Metrics:
    def __init__(self):
        self.lock = threading.Lock()
        self.running = self.waiting = self.prompt = self.generated = 0
        self.room = 0.0
        self.between, self.first = Histogram(TOKEN_EDGES), Histogram(FIRST_EDGES)
        self.steps = Histogram(STEP_EDGES)

    def page(self):
        with self.lock:
            single = {"num_requests_running": self.running, "num_requests_waiting": self.waiting,
                      "kv_cache_usage_perc": self.room, "prompt_tokens_total": self.prompt,
                      "generation_tokens_total": self.generated}
            lines = [f'vllm:{name}{{model_name="random-7b"}} {value}'
                     for name, value in single.items()]
            lines += self.between.text("vllm:inter_token_latency_seconds")
            lines += self.first.text("vllm:time_to_first_token_seconds")
            lines += self.steps.text("vllm:iteration_tokens_total")
        return "\n".join(lines) + "\n"


class Model:
    def __init__(self, most):
        def weights(rows, columns):
            out = torch.randn(LAYERS, rows, columns, device="cuda", dtype=torch.bfloat16)
            return out / rows**.5
        self.into = weights(WIDTH, (HEADS + 2 * KV_HEADS) * HEAD)
        self.out = weights(HEADS * HEAD, WIDTH)
        self.up, self.down = weights(WIDTH, 2 * INNER), weights(INNER, WIDTH)
        self.cache = torch.zeros(LAYERS, 2, most, KV_HEADS, LONGEST, HEAD, device="cuda",
                                 dtype=torch.bfloat16)

    def layer(self, i, x, slots, begin):
        """x: requests, tokens, width; the tokens' places in their contexts begin there."""
        count, tokens, _ = x.shape
        heads = (torch.nn.functional.rms_norm(x, (WIDTH,)) @ self.into[i]).view(
            count, tokens, HEADS + 2 * KV_HEADS, HEAD).transpose(1, 2)
        query, key, value = heads.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
        for at, slot in enumerate(slots):
            self.cache[i, 0, slot, :, begin[at]:begin[at] + tokens] = key[at]
            self.cache[i, 1, slot, :, begin[at]:begin[at] + tokens] = value[at]
        length = max(begin) + tokens
        keys = self.cache[i, 0, slots[0]:slots[0] + count, :, :length]
        values = self.cache[i, 1, slots[0]:slots[0] + count, :, :length]
        seen = torch.nn.functional.scaled_dot_product_attention(
            query, keys, values, is_causal=tokens > 1, enable_gqa=True)
        x = x + seen.transpose(1, 2).reshape(count, tokens, -1) @ self.out[i]
        gate, up = (torch.nn.functional.rms_norm(x, (WIDTH,)) @ self.up[i]).chunk(2, dim=-1)
        return x + (torch.nn.functional.silu(gate) * up) @ self.down[i]

    @torch.inference_mode()
    def step(self, tokens, slots, begin):
        x = torch.randn(len(slots), tokens, WIDTH, device="cuda", dtype=torch.bfloat16)
        for i in range(LAYERS):
            x = self.layer(i, x, slots, begin)
        torch.cuda.synchronize()


class Engine:
    """Slots 0 to n - 1 are taken by n running requests: those that decode are neighbours."""

    def __init__(self, model, metrics, most):
        self.model, self.metrics, self.most = model, metrics, most
        self.waiting, self.running = [], []
        self.decode_steps, self.prompts, self.decoded = {}, 0, 0

    def show(self):
        with self.metrics.lock:
            self.metrics.running, self.metrics.waiting = len(self.running), len(self.waiting)
            held = sum(each["context"] for each in self.running)
            self.metrics.room = held / (self.most * LONGEST)

    def read(self):
        request = self.waiting.pop(0)
        self.running.append(request)
        self.show()
        slot = len(self.running) - 1
        self.model.step(request["prompt"], [slot], [0])
        now = time.monotonic()
        request.update(context=request["prompt"], left=request["tokens"] - 1, last=now)
        self.prompts += 1
        with self.metrics.lock:
            self.metrics.prompt += request["prompt"]
            self.metrics.generated += 1
            self.metrics.first.add(now - request["came"])
            self.metrics.steps.add(request["prompt"])

    def decode(self):
        count = len(self.running)
        self.model.step(1, list(range(count)), [each["context"] for each in self.running])
        now = time.monotonic()
        self.decode_steps[count] = self.decode_steps.get(count, 0) + 1
        self.decoded += count
        with self.metrics.lock:
            self.metrics.generated += count
            self.metrics.steps.add(count)
            for each in self.running:
                self.metrics.between.add(now - each["last"])
        for each in self.running:
            each.update(context=each["context"] + 1, left=each["left"] - 1, last=now)
        # Contexts are not moved to another slot: only their lengths matter here.
        self.running = [each for each in self.running if each["left"] > 0]

    def work(self):
        if self.waiting and len(self.running) < self.most:
            self.read()
        elif self.running:
            self.decode()
        else:
            time.sleep(0.001)
        self.show()


def nvml_device(nvml):
    """The GPU that PyTorch computes on: CUDA and NVML may number GPUs differently."""
    device = ctypes.c_void_p()
    number = str(torch.cuda.get_device_properties(0).uuid).removeprefix("GPU-")
    uuid = f"GPU-{number}".encode()
    for failed in (nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(device))):
        if failed:
            raise RuntimeError(f"NVML does not find {uuid.decode()}: error {failed}")
    return device


def energy_counter():
    """A function that returns the joules which the GPU has used since its driver was loaded."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device = nvml_device(nvml)

    def joules():
        energy = ctypes.c_ulonglong()
        failed = nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(energy))
        if failed:
            raise RuntimeError(f"NVML gives no energy of this GPU: error {failed}")
        return energy.value / 1000
    return joules


def alone(work, counter_joules):
    """Joules for each call of work, which is repeated."""
    for _ in range(3):
        work()
    calls, begin, joules = 0, time.monotonic(), counter_joules()
    while time.monotonic() - begin < ALONE_S:
        work()
        calls += 1
    return (counter_joules() - joules) / calls


def each_alone(model, prompt, most, counter_joules):
    rest = counter_joules()
    time.sleep(ALONE_S)
    out = {"rest_watts": (counter_joules() - rest) / ALONE_S,
           "prompt_token": alone(lambda: model.step(prompt, [0], [0]),
                                 counter_joules) / prompt}
    for count in [each for each in (1, 2, 4, 8) if each <= most]:
        out[f"step_of_{count}"] = alone(
            lambda: model.step(1, list(range(count)), [prompt] * count), counter_joules)
    return out


def serve(metrics, port):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = metrics.page().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--requests", type=float, default=2, help="a second, drawn")
    parser.add_argument("--running", type=int, default=8, help="at a time, at most")
    parser.add_argument("--prompt", type=int, nargs=2, default=(1000, 6000), help="tokens, from to")
    parser.add_argument("--tokens", type=int, nargs=2, default=(50, 200), help="generated, from to")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.prompt[1] + options.tokens[1] > LONGEST:
        parser.error(f"--prompt and --tokens: {options.prompt[1]} and {options.tokens[1]} tokens "
                     f"together, {LONGEST} are allowed")
    counter_joules = energy_counter()
    model, metrics, draw = Model(options.running), Metrics(), random.Random(options.seed)
    joules = each_alone(model, sum(options.prompt) // 2, options.running, counter_joules)
    engine = Engine(model, metrics, options.running)
    serve(metrics, options.port)
    print("serving", flush=True)
    begin = time.monotonic()
    next_s = begin + draw.expovariate(options.requests)
    begin_j = counter_joules()
    while (now := time.monotonic()) < begin + options.seconds:
        while next_s <= now:
            engine.waiting.append({"came": next_s, "prompt": draw.randint(*options.prompt),
                                   "tokens": draw.randint(*options.tokens), "context": 0})
            next_s += draw.expovariate(options.requests)
        engine.work()
    print(json.dumps({"alone_joules": joules, "joules": counter_joules() - begin_j,
                      "seconds": time.monotonic() - begin, "prompts": engine.prompts,
                      "prompt_tokens": metrics.prompt, "decoded": engine.decoded,
                      "decode_steps": engine.decode_steps}), flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
