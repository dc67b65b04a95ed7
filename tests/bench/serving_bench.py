#!/usr/bin/env python3
"""CPU time of reading engines' metrics: derated and derate-agent with eight services four times a
second, and without any, on simulated GPUs. A page of vLLM's size (50 kB).

    serving_bench.py BUILD [--services N] [--seconds S]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

EDGES = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
         20.0, 40.0, 80.0]


def page(begin):
    """Of an engine that decodes 8 requests, a step in 20 ms; beside it what nobody wants."""
    labels = 'engine="0",model_name="m"'
    steps = int((time.monotonic() - begin) / 0.02)
    out = [f"vllm:num_requests_running{{{labels}}} 8", f"vllm:num_requests_waiting{{{labels}}} 0",
           f"vllm:prompt_tokens_total{{{labels}}} 0",
           f"vllm:generation_tokens_total{{{labels}}} {8 * steps}"]
    for name in ("inter_token_latency_seconds", "time_to_first_token_seconds"):
        out += [f'vllm:{name}_bucket{{{labels},le="{edge}"}} {8 * steps}'
                for edge in EDGES if edge >= 0.025]
        out += [f'vllm:{name}_bucket{{{labels},le="+Inf"}} {8 * steps}',
                f"vllm:{name}_count{{{labels}}} {8 * steps}",
                f"vllm:{name}_sum{{{labels}}} {0.16 * steps}"]
    for i in range(450):
        out.append(f'vllm:other_seconds_bucket{{{labels},le="{i}.0",reason="nobody wants it"}} '
                   f"{steps}")
    return "\n".join(out) + "\n"


class Handler(BaseHTTPRequestHandler):
    begin = time.monotonic()

    def log_message(self, *_):
        pass

    def do_GET(self):
        data = page(self.begin).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def group(pid):
    """A process and those below it: derated has a guard and a worker."""
    out = [pid]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    out.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                pass
    return out


def measure(build, services, port, seconds):
    with tempfile.TemporaryDirectory(prefix="sb-") as folder:
        config = Path(folder, "derate.toml")
        config.write_text("".join(
            f'[[service]]\nname = "s{i}"\nmetrics = "http://127.0.0.1:{port}/metrics"\n'
            f'promise = ["itl p99 <= 50 ms"]\ngpus = "{i}"\n' for i in range(services)),
            encoding="utf-8")
        environment = {**os.environ, "DERATE_SIM": f"{folder}/sim",
                       "DERATE_RUN_DIR": f"{folder}/run",
                       "DERATE_STATE_DIR": f"{folder}/state", "DERATE_CONFIG": str(config),
                       "DERATE_NVML_LIBRARY": f"{build}/fakenvml/libnvidia-ml.so.1"}
        os.mkdir(f"{folder}/run")
        started = []

        def start(*command):
            process = subprocess.Popen([f"{build}/{command[0]}", *command[1:]], env=environment,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            started.append(process)
            return process
        try:
            start("derate", "sim", "serve", "--chip", "H100-SXM5", "--gpus", "8")
            time.sleep(2)
            daemon = start("derated")
            time.sleep(3)
            agent = start("derate-agent", "--listen", "127.0.0.1:0")
            time.sleep(8)
            watched = {"derated": group(daemon.pid), "derate-agent": group(agent.pid)}
            before = {name: sum(map(cpu_seconds, pids)) for name, pids in watched.items()}
            time.sleep(seconds)
            shown = json.loads(subprocess.run([f"{build}/derate", "status", "--json"],
                                              env=environment, capture_output=True,
                                              check=True).stdout)["services"]
            read = [each for each in shown if each.get("age_seconds", 9) < 1]
            if len(read) != services:
                sys.exit(f"{len(read)} of {services} services are read: {shown}")
            return {name: (sum(map(cpu_seconds, pids)) - before[name]) / seconds
                    for name, pids in watched.items()}
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(20)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--services", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    build = Path(options.build).resolve()
    ThreadingHTTPServer.request_queue_size = 64  # all services connect at once
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    size = len(page(Handler.begin))
    without = measure(build, 0, server.server_port, options.seconds)
    read = measure(build, options.services, server.server_port, options.seconds)
    print(f"{options.services} services, 4 readings a second of pages of {size / 1000:.0f} kB, "
          f"{options.seconds:.0f} s; shares of a core")
    total = 0
    for name in read:
        total += read[name] - without[name]
        print(f"{name:14} {100 * without[name]:6.2f} % without, {100 * read[name]:6.2f} % with")
    print(f"{'both':14} {100 * total:6.2f} % for the services (slo governs their GPUs, too)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
