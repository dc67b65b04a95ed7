#!/usr/bin/env python3
"""Every workload on a real GPU for a moment: the lines, the ends, the exit codes. It only computes.

    gpu_test.py DERATE_BENCH_CUDA [SECONDS]      exit 77 (skipped) where there is no GPU or driver
"""
import json
import signal
import subprocess
import sys
import time
import unittest

PROGRAM = ""
SECONDS = 2.2


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120)


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def workloads():
    return lines_of(run("list", "--json").stdout)


class EveryWorkload(unittest.TestCase):
    def test_checks_itself_and_reports(self):
        for workload in workloads():
            with self.subTest(workload["workload"]):
                begin = time.monotonic()
                done = run(workload["workload"], "--seconds", str(SECONDS))
                self.assertEqual(done.returncode, 0, done.stderr)
                header, *rates, summary = lines_of(done.stdout)
                self.assertTrue(header["checked"])
                self.assertLessEqual(header["largest_relative_error"],
                                     header["allowed_relative_error"])
                rates = [line for line in rates if line["line"] == "rate"]
                self.assertGreaterEqual(len(rates), 2)
                for line in rates:
                    self.assertGreater(line["rate"], 0)
                    self.assertLess(abs(line["time_unix_seconds"] - time.time()), 60)
                    self.assertTrue(begin < line["monotonic_seconds"] < time.monotonic())
                self.assertAlmostEqual(rates[-1]["work_total"], sum(r["work"] for r in rates),
                                       delta=1e-6 * rates[-1]["work_total"])
                self.assertTrue(SECONDS <= summary["seconds"] < SECONDS + 0.5, summary)
                print(f"{workload['workload']:16} {summary['rate']:12.4g} {summary['rate_unit']:10}"
                      f" error {header['largest_relative_error']:8.2g} of at most"
                      f" {header['allowed_relative_error']:.0e}; set up in"
                      f" {time.monotonic() - begin - summary['seconds']:.1f} s", flush=True)

    def test_small_and_odd_sizes(self):
        for workload in workloads():
            low = workload["lowest_size"]
            for size in (low, 2 * low, 8 * low):
                if size <= workload["highest_size"]:
                    with self.subTest(workload["workload"], size=size):
                        done = run(workload["workload"], "--size", str(size), "--seed", "7",
                                   "--seconds", "0.1")
                        self.assertEqual(done.returncode, 0, done.stderr)

    def test_other_depths_of_powers(self):
        for name, sizes in (("walsh", (13, 14, 15, 16, 17)), ("sort", (13, 16)),
                            ("fft-convolution", (7, 12))):
            for size in sizes:
                with self.subTest(name, size=2 ** size):
                    done = run(name, "--size", str(2 ** size), "--seconds", "0.1")
                    self.assertEqual(done.returncode, 0, done.stderr)


class Ends(unittest.TestCase):
    def test_amount_of_work(self):
        summary = lines_of(run("device-copy", "--work", "500").stdout)[-1]
        self.assertTrue(500 <= summary["work"] < 502, summary)

    def test_signals_end_with_the_summary(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with subprocess.Popen([PROGRAM, "launch-bound"], stdout=subprocess.PIPE,
                                  text=True) as process:
                process.stdout.readline()  # the header: it runs
                process.send_signal(number)
                last = json.loads(process.stdout.read().splitlines()[-1])
            self.assertEqual((process.returncode, last["line"]), (code, "summary"))
            self.assertEqual(last["ended_by_signal"], number)

    def test_phases_take_turns(self):
        lines = lines_of(run("two-phase", "--seconds", "4", "--period-seconds", "1",
                             "--duty", "0.25").stdout)
        of = {line["phase"]: line for line in lines if line["line"] == "phase"}
        self.assertAlmostEqual(of["compute"]["seconds"], 1, delta=0.4)
        self.assertAlmostEqual(of["memory"]["seconds"], 3, delta=0.4)

    def test_levels_of_data_take_turns(self):
        for workload in workloads():
            name = workload["workload"]
            if name == "launch-bound":
                continue
            with self.subTest(name):
                lines = lines_of(run(name, "--seconds", "1.5", "--data", "0,1",
                                     "--data-seconds", "0.5", "--duty", "1").stdout)
                levels = [line["data"] for line in lines if line["line"] == "rate"]
                self.assertEqual(levels, [0, 1])  # and 0 again, in the summary only

    def test_heat_is_told_apart(self):
        lines = lines_of(run("stream-triad", "--seconds", "2.2", "--heat", "0.5").stdout)
        self.assertEqual(lines[0]["heat"], 0.5)
        heat = [line for line in lines if line["line"] == "heat"]
        self.assertEqual(len(heat), 2)
        for line in heat:
            self.assertGreater(line["rate"], 1)
            self.assertAlmostEqual(line["seconds"], 1, delta=0.3)

    def test_failures(self):
        self.assertEqual(run("sort", "--device", "999").returncode, 6)
        self.assertEqual(run("launch-bound", "--data", "0,1").returncode, 2)
        too_large = run("device-copy", "--size", str(2 ** 17))  # 2 x 128 GiB
        self.assertIn("give a smaller --size", too_large.stderr)
        self.assertEqual((too_large.returncode, too_large.stdout), (6, ""))


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    probe = run("launch-bound", "--work", "1")
    if probe.returncode in (6, 9):
        print(f"skipped: {probe.stderr.strip()}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
