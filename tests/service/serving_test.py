#!/usr/bin/env python3
"""Engines that serve language models: derate-agent reads pages that are good, lie, hang or are not
there, for a stand-in of derated; and a real derated keeps a promise of a simulated engine.

    serving_test.py BUILD [SLOWNESS]
"""
import json
import os
import subprocess
import sys
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import service_machine as service  # noqa: E402
from energy_test import wait_for  # noqa: E402
from fake_derated import FakeDerated  # noqa: E402
from service_machine import slow  # noqa: E402

AGENT = 65533  # a user who may do what derate-agent's may and nothing else
PAGE = ('vllm:num_requests_running{model_name="m"} 3\n'
        'vllm:num_requests_waiting{model_name="m"} 0\n'
        'vllm:inter_token_latency_seconds_bucket{model_name="m",le="0.05"} 7\n'
        'vllm:inter_token_latency_seconds_bucket{model_name="m",le="+Inf"} 9\n'
        'vllm:inter_token_latency_seconds_count{model_name="m"} 9\n'
        'vllm:inter_token_latency_seconds_sum{model_name="m"} 0.5\n')


class Engine(ThreadingHTTPServer):
    """Serves a page as it is told to."""
    daemon_threads = True

    def __init__(self, serve):
        super().__init__(("127.0.0.1", 0), Handler)
        self.serve, self.requests = serve, []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/metrics"

    def handle_error(self, *_):
        pass


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.requests.append((time.monotonic(), self.path, dict(self.headers)))
        self.server.serve(self)

    def page(self, text, status=200, **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def good(handler):
    handler.page(PAGE)


def endless(handler):
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"# nothing\n" * 1000)
    except OSError:
        pass


class WhatTheAgentReads(service.Machine):
    def begin(self, **serves):
        """An agent that is to read these engines; by name."""
        engines = {name: Engine(serve) for name, serve in serves.items()}
        for engine in engines.values():
            self.addCleanup(engine.server_close)
            self.addCleanup(engine.shutdown)
        self.derated = FakeDerated(str(self.folder / "run/api.sock"))
        self.addCleanup(self.derated.close)
        self.derated.services = [
            {"name": name, "metrics": engine.url, "promise": [], "gpus": [], "every_seconds": 0.25}
            for name, engine in engines.items()]
        self.process, self.port = self.agent()
        return engines

    def readings(self, name):
        with self.derated.lock:
            reports = [json.loads(each["body"]) for each in self.derated.own if each["body"]]
        return [reading for report in reports for reading in report["readings"]
                if reading["service"] == name]

    def error_of(self, name):
        wait_for(lambda: self.readings(name), f"a reading of {name}")
        return self.readings(name)[0].get("error", "")

    def test_a_page_is_reported_four_times_a_second(self):
        engine = self.begin(chat=good)["chat"]
        wait_for(lambda: len(self.readings("chat")) >= 8, "eight readings")
        reading = self.readings("chat")[-1]
        self.assertEqual(reading["engine"], "vLLM")
        self.assertEqual(reading["running"], 3)
        self.assertEqual(reading["between_tokens"],
                         {"edges_seconds": [0.05], "counts": [7.0, 9.0], "sum_seconds": 0.5})
        self.assertTrue(reading["promise_possible"])
        times = [when for when, _, _ in engine.requests[:8]]
        self.assertGreater(times[-1] - times[0], 1.2)  # seven times a quarter of a second
        _, path, fields = engine.requests[0]
        self.assertEqual(path, "/metrics")
        self.assertEqual(fields["Accept-Encoding"], "identity")
        self.assertNotIn("Authorization", fields)

    def test_pages_that_are_none_are_said_and_hold_up_no_other(self):
        secret = Engine(good)
        self.addCleanup(secret.server_close)
        self.addCleanup(secret.shutdown)
        self.begin(
            chat=good, moved=lambda h: h.page("", 302, Location=secret.url),
            packed=lambda h: h.page("x", Content_Encoding="gzip"), endless=endless,
            hangs=lambda h: time.sleep(30), lies=lambda h: h.page(PAGE.replace(" 9\n", " 1e308\n")),
            escapes=lambda h: h.page("\x1b[2J\n", 500), falls=lambda h: h.page(
                PAGE.replace('"0.05"} 7', '"0.05"} 70')))
        self.assertIn("redirects are not followed", self.error_of("moved"))
        self.assertEqual(secret.requests, [])
        self.assertIn("Content-Encoding 'gzip'", self.error_of("packed"))
        self.assertIn("308", self.error_of("lies"))
        self.assertNotIn("\x1b", self.error_of("escapes"))
        self.assertNotEqual(self.error_of("falls"), "")
        self.assertIn("no more are read", self.error_of("endless"))
        self.assertNotEqual(self.error_of("hangs"), "")
        before = len(self.readings("chat"))
        wait_for(lambda: len(self.readings("chat")) >= before + 4, "the good page goes on")
        self.assertNotIn("\x1b", self.errors())

    def test_an_engine_that_is_away_is_looked_for_less_often_and_found(self):
        engine = Engine(good)
        port = engine.server_port
        engine.shutdown()
        engine.server_close()
        self.begin(chat=good)
        self.derated.services.append(
            {"name": "later", "metrics": f"http://127.0.0.1:{port}/metrics", "promise": [],
             "gpus": [], "every_seconds": 0.25})
        self.assertIn("Connection refused", self.error_of("later"))
        ThreadingHTTPServer.allow_reuse_address = True
        late = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        late.serve, late.requests = good, []
        self.addCleanup(late.server_close)
        self.addCleanup(late.shutdown)
        threading.Thread(target=late.serve_forever, args=(0.02,), daemon=True).start()
        wait_for(lambda: any("engine" in each for each in self.readings("later")), "it is found")
        self.assertLess(len(self.readings("later")), 20)

    def test_what_is_not_wanted_any_more_is_not_read(self):
        engine = self.begin(chat=good)["chat"]
        wait_for(lambda: len(engine.requests) > 2, "it is read")
        self.derated.services = []
        time.sleep(6)
        before = len(engine.requests)
        time.sleep(1)
        self.assertEqual(len(engine.requests), before)


class APromise(service.Machine):
    """A real derated and agent, and `derate sim job llm`."""

    def begin(self, *job):
        engine = Engine(good)  # for a free port
        self.port = engine.server_port
        engine.shutdown()
        engine.server_close()
        (self.folder / "derate.toml").write_text(
            f'[[service]]\nname = "chat"\nmetrics = "http://127.0.0.1:{self.port}/metrics"\n'
            'promise = ["itl p99 <= 300 ms"]\nprocess = "derate"\nmost_running = 16\n' + "".join(
                f'[[service]]\nname = "more{i}"\ngpus = "0"\n'
                f'metrics = "http://127.0.0.1:{self.port}/metrics"\n' for i in range(15)) +
            f'[api]\nagent = "{AGENT}"\n')
        (self.folder / "run").chmod(0o755)  # for a user who has no rights but the agent's
        self.start("derate", "sim", "serve", "--chip", "V100-SXM2", "--gpus", "2")
        wait_for(lambda: self.derate("sim", "show").returncode == 0, "simulated GPUs")
        self.daemon_process = self.start("derated")
        wait_for(self.is_ready, "derated is ready")
        self.agent_process, _ = self.agent(user=AGENT if os.getuid() == 0 else None)
        self.job = self.start("derate", "sim", "job", "llm", "-i", "1", "--metrics",
                              f"127.0.0.1:{self.port}", "--running", "16", "--step-tokens", "2048",
                              *job)

    def derate(self, *arguments):
        return subprocess.run([str(service.energy_test.BUILD / "derate"), *arguments],
                              capture_output=True, text=True)

    def status(self):
        done = self.derate("status", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def gpu(self, index=1):
        return self.status()["gpus"][index]

    def clock_locked(self):
        shown = json.loads(self.derate("sim", "show", "--json").stdout)["gpus"][1]
        return shown.get("locked_highest_mhz")

    def service(self):
        return self.status()["services"][0]

    def governed(self):
        return self.gpu().get("policy") == "slo"

    def test_the_gpu_of_the_engine_is_governed_and_given_back(self):
        self.begin("--requests", "0.25")
        wait_for(self.governed, "the engine's GPU is governed")
        self.assertNotIn("policy", self.gpu(0))
        wait_for(lambda: self.service().get("figures", {}).get("late_ratio") is not None,
                 "tokens are counted")
        wait_for(lambda: (self.clock_locked() or 9999) < 1500, "a lower clock")
        wait_for(lambda: all(each.get("age_seconds", 9) < 3 for each in self.status()["services"]),
                 "sixteen pages are read")
        view = self.service()
        self.assertEqual(view["engine"], "vLLM")
        self.assertEqual(view["gpus"][0]["index"], 1)
        self.assertTrue(view["gpus"][0]["governed"])
        self.assertGreater(view["figures"]["joules_per_token"], 0)
        text = self.derate("status").stdout
        self.assertRegex(text, r"chat +vLLM +1 ")
        metrics = service.ask(self.folder / "run/api.sock", "/metrics").body
        self.assertRegex(metrics, r'derate_service_late_ratio\{service="chat"\} ')
        self.job.kill()  # the engine has gone, and so has its process from the GPU
        wait_for(lambda: not self.governed(), "its GPU is given back")
        wait_for(lambda: self.clock_locked() is None, "as it was found")
        self.assertIn("no process on a GPU is of it", self.service()["trouble"])

    def test_without_an_agent_the_clock_is_the_highest(self):
        self.begin("--requests", "0.25")
        wait_for(lambda: (self.clock_locked() or 9999) < 1500, "a lower clock")
        self.agent_process.kill()
        begin = time.monotonic()
        wait_for(lambda: (self.clock_locked() or 0) >= 1500, "the highest clock")
        self.assertLess(time.monotonic() - begin, 4 * slow())
        wait_for(lambda: "s old" in self.service().get("trouble", ""), "it is said")
        wait_for(lambda: "metrics_lost" in self.derate("events").stdout, "an event says it")

    def test_derated_killed_leaves_the_gpu_as_it_was(self):
        self.begin("--requests", "0.25")
        wait_for(lambda: (self.clock_locked() or 9999) < 1500, "a lower clock")
        self.daemon_process.kill()
        wait_for(lambda: self.clock_locked() is None, "as it was found")


class ARun(service.Machine):
    """`derate run --metrics` over the engine, without a daemon."""

    def test_its_account_has_the_promise_and_the_joules_of_a_token(self):
        engine = Engine(good)  # for a free port
        port = engine.server_port
        engine.shutdown()
        engine.server_close()
        derate = str(service.energy_test.BUILD / "derate")
        self.start("derate", "sim", "serve", "--chip", "V100-SXM2")
        wait_for(lambda: subprocess.run([derate, "sim", "show"],
                                        capture_output=True).returncode == 0, "simulated GPUs")
        account = self.folder / "account.json"
        done = subprocess.run(
            [derate, "run", "--metrics", f"http://127.0.0.1:{port}/metrics", "--promise",
             "itl p99 <= 300 ms", "--json", "-o", str(account), "--", derate, "sim", "job", "llm",
             "--metrics", f"127.0.0.1:{port}", "--requests", "2", "--running", "16",
             "--for", "12s"],
            capture_output=True, text=True, timeout=60 * slow())
        self.assertEqual(done.returncode, 0, done.stderr)
        account = json.loads(account.read_text())
        engine = account["engine"]
        self.assertEqual(engine["engine"], "vLLM")
        self.assertEqual(engine["promise"], ["itl p99 <= 300 ms"])
        figures = engine["figures"]
        # The GPU's counter and the engine's page differ by a reading at both ends of the run.
        tokens = figures["tokens_per_second"] * figures["window_seconds"]
        self.assertAlmostEqual(figures["joules_per_token"] * tokens,
                               account["gpus"][0]["energy_joules"],
                               delta=0.35 * account["gpus"][0]["energy_joules"])
        self.assertEqual(account["gpus"][0]["policy"], "slo")
        self.assertNotIn("trouble", engine)


if __name__ == "__main__":
    service.begin(sys.argv)
    unittest.main()
