#!/usr/bin/env python3
"""Debian's real Prometheus scrapes derated over eight simulated GPUs through derate-agent; then
what it has is compared with what the GPUs draw, and promtool judges both formats.

    prometheus_test.py BUILD [SLOWNESS] [--seconds N]     30 s; scripts/test --all takes 600
"""
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import unittest
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import grafana_test as grafana  # noqa: E402
import service_machine as service  # noqa: E402
from energy_test import wait_for  # noqa: E402
from service_machine import ROOT, ask, slow  # noqa: E402

SECONDS = 30
GPUS = 8
# Watts of a simulated H200. Its regulator holds 700 W on average; a moment's reading has noise.
IDLE, MOST = 40, 770
# Of dashboards: queries that show nothing while all is well.
SILENT = ("throttle_seconds", "refusals", "namespace!=")
# Of policies that are not tried here: a power limit, and the bound of a budget; and of a fan, which
# these boards have not.
ABSENT = {"derate_gpu_set_power_limit_watts", "derate_gpu_bound_sm_clock_hertz",
          "derate_gpu_fan_speed_ratio"}
# Metrics of engines that serve: this test has no [[service]] (serving_test.py has one).
OF_SERVICES = "derate_service_"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Scraped(service.Machine):
    DCGM = "false"

    def setUp(self):
        super().setUp()
        (self.folder / "derate.toml").write_text(
            '[governor]\ngovern = true\ngpus = "0,1,2,3"\n[attribute]\ninterval_s = 0.5\n'
            f'[metrics]\ndcgm_names = {self.DCGM}\n')
        self.start("derate", "sim", "serve", "--chip", "H200", "--gpus", str(GPUS))
        wait_for(lambda: subprocess.run([str(service.energy_test.BUILD / "derate"), "sim", "show"],
                                        capture_output=True).returncode == 0, "simulated GPUs")
        for gpu in ("0", "5"):
            self.start("derate", "sim", "job", "fft", "-i", gpu)
        self.derated = self.start("derated")
        self.agent_process, self.port = self.agent()
        wait_for(lambda: ask(self.port, "/readyz").status == 200, "derated is ready")
        # It counts Xids from its first reading of the card on.
        wait_for(lambda: 'derate_gpu_xids_total{gpu="7"' in ask(self.port, "/metrics").body,
                 "the card of GPU 7 is read")
        subprocess.run([str(service.energy_test.BUILD / "derate"), "sim", "fault", "-i", "7",
                        "--xid", "31"], check=True)

    def start_prometheus(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.prometheus = free.getsockname()[1]
        (self.folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n"
            "  - job_name: derate\n    static_configs:\n"
            f"      - targets: ['127.0.0.1:{self.port}']\n")
        with open(self.folder / "prometheus.log", "wb") as log:
            process = subprocess.Popen(
                ["prometheus", f"--config.file={self.folder}/prometheus.yml",
                 f"--storage.tsdb.path={self.folder}/tsdb", "--log.level=warn",
                 f"--web.listen-address=127.0.0.1:{self.prometheus}"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.addCleanup(self.stop, process)

        def ready():
            try:
                return ask(self.prometheus, "/-/ready").status == 200
            except OSError:
                return False
        wait_for(ready, "Prometheus")

    def query(self, expression):
        """Its series: labels and value."""
        answer = ask(self.prometheus, "/api/v1/query?" + urllib.parse.urlencode(
            {"query": expression}))
        self.assertEqual(answer.status, 200, answer)
        return [(series["metric"], float(series["value"][1]))
                for series in json.loads(answer.body)["data"]["result"]]

    def by_gpu(self, expression):
        found = {labels["gpu"]: value for labels, value in self.query(expression)}
        self.assertEqual(set(found), {str(gpu) for gpu in range(GPUS)}, expression)
        return found


@unittest.skipUnless(shutil.which("prometheus"), "no Prometheus here")
class RealPrometheus(Scraped):
    DCGM = "true"  # names and labels of its own, which promtool does not like

    def test_what_it_has_is_what_the_gpus_draw(self):
        self.start_prometheus()
        cpu = service.cpu_seconds(self.agent_process.pid)
        began = time.monotonic()
        time.sleep(SECONDS)
        took = time.monotonic() - began
        cpu = service.cpu_seconds(self.agent_process.pid) - cpu
        window = int(took) - 10  # it begins to scrape some 5 s after it is ready
        self.check_scrapes(window)
        self.check_power(window)
        self.check_names()
        self.check_dashboards()
        warned = (self.folder / "prometheus.log").read_text()
        self.assertNotRegex(warned, "(?i)out of order|duplicate|error on ingesting|parse")
        size = self.query("scrape_samples_scraped")[0][1]
        slowest = self.query(f"max_over_time(scrape_duration_seconds[{window}s])")[0][1]
        print(f"\n{took:.0f} s: {size:.0f} samples a scrape, slowest {slowest * 1e3:.1f} ms, "
              f"derate-agent {cpu / took * 100:.2f} % of a core and "
              f"{service.memory_mib(self.agent_process.pid)[0]:.1f} MiB", file=sys.stderr)

    def check_scrapes(self, window):
        self.assertEqual([value for _, value in self.query(f"min_over_time(up[{window}s])")], [1])
        scrapes = self.query(f"count_over_time(up[{window}s])")[0][1]
        self.assertGreaterEqual(scrapes, window * 0.8 / slow())

    def check_power(self, window):
        for gpu, watts in self.by_gpu("derate_gpu_power_watts").items():
            self.assertGreater(watts, IDLE, gpu)
            self.assertLess(watts, MOST, gpu)
        mean = self.by_gpu(f"avg_over_time(derate_gpu_power_watts[{window}s])")
        counted = self.by_gpu(f"rate(derate_gpu_energy_joules_total[{window}s])")
        for gpu, watts in mean.items():
            self.assertAlmostEqual(counted[gpu], watts, delta=0.1 * watts + 3, msg=f"GPU {gpu}")
        self.assertGreater(mean["5"], 1.5 * mean["6"])  # one works, the other does not
        self.assertEqual({labels["gpu"] for labels, _ in self.query("derate_gpu_policy_info")},
                         {"0", "1", "2", "3"})
        for name in ("derate_gpu_energy_joules_total", "derate_gpu_reads_total"):
            self.assertEqual([value for _, value in self.query(f"sum(resets({name}[{window}s]))")],
                             [0])

    def check_dashboards(self):
        """Each query of Grafana's is answered, with all its variables at All."""
        for name, dashboard in grafana.dashboards().items():
            for expr in grafana.queries(dashboard):
                asked = re.sub(r"\$(job|instance|gpu)\b", ".*", expr).replace("$__range", "20s")
                # Longer times than have gone by.
                asked = re.sub(r"\[(5m|10m|15m|1h)\]", "[20s]", asked)
                with self.subTest(dashboard=name, query=expr):
                    if not any(word in expr for word in (*SILENT, *ABSENT)):
                        self.assertNotEqual(self.query(asked), [])
                    else:
                        self.query(asked)

    def check_names(self):
        found = set(json.loads(ask(self.prometheus, "/api/v1/label/__name__/values").body)["data"])
        missing = {name for name in every_name() - found - ABSENT
                   if not name.startswith(OF_SERVICES)}
        self.assertEqual(missing, set())
        ours = {name for name in found if name.startswith(("derate_", "DCGM_"))}
        self.assertEqual(ours - every_name(), set())


def catalogue():
    return json.loads((ROOT / "clients/metrics.json").read_text(encoding="utf-8"))["metrics"]


def every_name():
    """Of series, as Prometheus keeps them."""
    suffix = {"counter": "_total", "info": "_info"}
    return {metric["name"] if metric["name"].startswith("DCGM_")
            or metric["name"].endswith(suffix.get(metric["type"], ""))
            else metric["name"] + suffix[metric["type"]] for metric in catalogue()}


@unittest.skipUnless(shutil.which("promtool"), "no promtool here")
class Formats(Scraped):
    def test_promtool_finds_no_fault(self):
        self.assertGreater(len(every_name()), 20)
        for accept in ("text/plain", OPENMETRICS):
            page = ask(self.port, "/metrics", Accept=accept)
            self.assertEqual(page.status, 200)
            self.assertEqual(page.fields["Content-Type"].split(";")[0], accept.split(";")[0])
            text = page.body
            if accept == OPENMETRICS:
                self.assertTrue(text.endswith("# EOF\n"), text[-80:])
                text = as_text_format(text)
            done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                                  capture_output=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), accept)

    def test_both_formats_have_the_same_series(self):
        def names(accept):
            return {line.split("{")[0].split(" ")[0]
                    for line in ask(self.port, "/metrics", Accept=accept).body.splitlines()
                    if not line.startswith("#")}
        # What is not known has no series, and may come or go from one scrape to the next.
        for _ in range(50):
            before, between, after = map(names, ("text/plain", OPENMETRICS, "text/plain"))
            if before == after:
                break
        self.assertEqual(before, after, "the same series twice in 50 times")
        self.assertEqual(between, before)


def as_text_format(text):
    """OpenMetrics as the older format, which is the one that `promtool check metrics` reads: there
    a family has the name of its series."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    suffix = {"counter": "_total", "info": "_info"}
    out = []
    for line in text.splitlines():
        if line.startswith(("# UNIT", "# EOF")):
            continue
        head = re.match(r"# (TYPE|HELP) (\S+) (.*)", line)
        if head:
            kind = kinds[head[2]]
            words = {"info": "gauge", "unknown": "untyped"}.get(kind, kind) \
                if head[1] == "TYPE" else head[3].replace('\\"', '"')
            line = f"# {head[1]} {head[2]}{suffix.get(kind, '')} {words}"
        out.append(line)
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    if "--seconds" in sys.argv:
        place = sys.argv.index("--seconds")
        SECONDS = float(sys.argv[place + 1])
        del sys.argv[place:place + 2]
    service.begin(sys.argv)
    unittest.main()
