#!/usr/bin/env python3
"""derate-agent --otlp pushes the metrics of a derated with simulated GPUs to a receiver that works,
refuses, fails, hangs or is not there.

    otlp_test.py BUILD [SLOWNESS]
"""
import json
import os
import signal
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
from service_machine import ask, slow  # noqa: E402

GPUS = 2
IDLE_W = 80  # of a simulated H200


class Receiver(ThreadingHTTPServer):
    """Keeps what it is sent, and answers as it is told."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.status, self.body, self.hangs = [], 200, "{}", False
        self.fields = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), json.loads(body)))
        while self.server.hangs:
            time.sleep(0.05)
        self.send_response(self.server.status)
        for name, value in self.server.fields.items():
            self.send_header(name, value)
        try:
            self.end_headers()
            self.wfile.write(self.server.body.encode())
        except BrokenPipeError:
            pass  # who pushed has gone


def metrics_of(request):
    [resource] = request["resourceMetrics"]
    [scope] = resource["scopeMetrics"]
    return {metric["name"]: metric for metric in scope["metrics"]}


def attributes(point):
    return {each["key"]: each["value"]["stringValue"] for each in point["attributes"]}


def points(metric):
    return metric.get("gauge", metric.get("sum"))["dataPoints"]


class Otlp(service.Machine):
    def setUp(self):
        super().setUp()
        self.receiver = Receiver()
        self.addCleanup(self.receiver.server_close)
        self.addCleanup(self.receiver.shutdown)

    def begin_gpus(self):
        (self.folder / "derate.toml").write_text(
            "[governor]\ngovern = true\n[attribute]\ninterval_s = 0.5\n")
        self.start("derate", "sim", "serve", "--chip", "H200", "--gpus", str(GPUS))
        wait_for(lambda: subprocess.run([str(service.energy_test.BUILD / "derate"), "sim", "show"],
                                        capture_output=True).returncode == 0, "simulated GPUs")
        self.start("derate", "sim", "job", "fft", "-i", "0")
        self.start("derated")
        wait_for(self.is_ready, "derated is ready")

    def push(self, *options, **environment):
        return self.start("derate-agent", "--otlp", *options,
                          env={**os.environ, **environment})

    def pushed(self, number=1):
        wait_for(lambda: len(self.receiver.requests) >= number, f"push {number}")
        return self.receiver.requests[-1]

    def names_scraped(self):
        text = ask(self.folder / "run/api.sock", "/metrics").body
        return {line.split()[2].removesuffix("_total") for line in text.splitlines()
                if line.startswith("# TYPE")}

    def names_pushed(self):
        return {name for name in metrics_of(self.pushed()[2]) if not name.startswith("hw.")}

    def power_of_the_first(self):
        metrics = metrics_of(self.pushed()[2])
        if "derate_gpu_power_watts" not in metrics:
            return 0
        watts = {attributes(point)["gpu"]: point["asDouble"]
                 for point in points(metrics["derate_gpu_power_watts"])}
        return watts.get("0", 0)

    def energy_points(self):
        return points(metrics_of(self.pushed()[2])["hw.energy"])

    def test_what_is_pushed_is_what_metrics_says(self):
        self.begin_gpus()
        began = time.time_ns()
        self.push(self.receiver.url, "--otlp-interval", "1", OTEL_RESOURCE_ATTRIBUTES="cluster=c")
        # Of its first pushes, some come before the job computes.
        wait_for(lambda: self.power_of_the_first() > 1.2 * IDLE_W, "a push with the job's power")
        path, fields, _ = self.pushed(2)
        self.assertEqual(path, "/v1/metrics")
        self.assertEqual(fields["Content-Type"], "application/json")
        # A series that has begun or ended since is no fault; on a busy machine many begin late.
        wait_for(lambda: len(self.names_scraped() ^ self.names_pushed()) < 4,
                 "what is pushed is what /metrics has")
        # An idle GPU's energy counter is still at 0 in the first pushes on a busy machine.
        wait_for(lambda: all(point["asDouble"] > 0 for point in self.energy_points()),
                 "a push in which each GPU has used energy")
        request = self.pushed()[2]
        found = metrics_of(request)
        power = {attributes(point)["gpu"]: point
                 for point in points(found["derate_gpu_power_watts"])}
        self.assertEqual(set(power), {"0", "1"})
        self.assertGreater(power["0"]["asDouble"], power["1"]["asDouble"])
        hardware = {attributes(point)["hw.id"]: point for point in points(found["hw.power"])}
        for point in power.values():
            self.assertEqual(hardware[attributes(point)["uuid"]]["asDouble"], point["asDouble"])
        for point in points(found["hw.energy"]):
            self.assertGreater(point["asDouble"], 0)
            self.assertLess(int(point["startTimeUnixNano"]), int(point["timeUnixNano"]))
        self.assertLess(abs(int(point["timeUnixNano"]) - began), 60e9 * slow())
        resource = {each["key"]: each["value"]["stringValue"]
                    for each in request["resourceMetrics"][0]["resource"]["attributes"]}
        self.assertEqual((resource["service.name"], resource["cluster"]), ("derate", "c"))

    def test_energy_of_a_gap_is_in_the_next_push(self):
        self.begin_gpus()
        self.push(self.receiver.url, "--otlp-interval", "1")
        self.pushed()
        self.receiver.status = 503
        before = self.energy(self.pushed(len(self.receiver.requests) + 1)[2])
        wait_for(lambda: "metrics are not pushed" in self.errors(), "the warning")
        self.pushed(len(self.receiver.requests) + 2)
        self.assertEqual(self.errors().count("metrics are not pushed"), 1)
        self.assertIn("answered 503", self.errors())
        self.receiver.status = 200
        after = self.energy(self.pushed(len(self.receiver.requests) + 2)[2])
        self.assertGreater(after, before)
        wait_for(lambda: "metrics are pushed again" in self.errors(), "that it works again")

    @staticmethod
    def energy(request):
        return sum(point["asDouble"] for point in points(metrics_of(request)["hw.energy"]))

    def test_refused_points_are_told_once(self):
        self.begin_gpus()
        self.receiver.body = ('{"partialSuccess":{"rejectedDataPoints":"3",'
                              '"errorMessage":"too\\nold"}}')
        self.push(self.receiver.url, "--otlp-interval", "1")
        self.pushed(3)
        wait_for(lambda: "refuses 3 of the metrics' values" in self.errors(), "the warning")
        self.assertEqual(self.errors().count("refuses 3"), 1)

    def test_a_receiver_that_hangs_holds_up_no_signal(self):
        self.begin_gpus()
        self.receiver.hangs = True
        self.addCleanup(setattr, self.receiver, "hangs", False)
        process = self.push(self.receiver.url)
        self.pushed()
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(10 * slow()), 0)
        self.assertLess(time.monotonic() - began, 5 * slow())

    def test_it_waits_for_derated_and_for_a_receiver(self):
        self.push(self.receiver.url)
        wait_for(lambda: "derated is not running" in self.errors(), "the warning")
        self.begin_gpus()
        self.pushed()
        self.push("http://127.0.0.1:9")
        wait_for(lambda: "cannot connect to '127.0.0.1:9'" in self.errors(), "the other's")

    def test_headers_are_sent_and_not_shown(self):
        self.begin_gpus()
        self.push(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=self.receiver.url + "/own/path",
                  OTEL_EXPORTER_OTLP_HEADERS="api-key=very%20secret")
        path, fields, _ = self.pushed()
        self.assertEqual((path, fields["api-key"]), ("/own/path", "very secret"))
        self.assertNotIn("secret", self.errors())

    def test_what_is_wrong_is_said_before_anything_begins(self):
        for options, environment, said in (
                (["https://collector"], {}, "allowed is http://"),
                (["--otlp-interval", "0"], {}, "--otlp-interval 0: allowed are 1 to 3600 seconds"),
                (["--listen", "127.0.0.1:0"], {}, "excludes"),
                ([], {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "allowed is http/json"),
                ([], {"OTEL_METRIC_EXPORT_INTERVAL": "x"}, "OTEL_METRIC_EXPORT_INTERVAL: 'x'")):
            done = subprocess.run(
                [str(service.energy_test.BUILD / "derate-agent"), "--otlp", *options], text=True,
                capture_output=True, timeout=60,
                env={**os.environ, **environment})
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    service.begin(sys.argv)
    unittest.main(verbosity=2)
