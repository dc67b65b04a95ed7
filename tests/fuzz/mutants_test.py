#!/usr/bin/env python3
"""scripts/mutants on small targets of this test: it counts what ran, and reports each way to fail.

usage: tests/fuzz/mutants_test.py COMPILER
"""

import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "mutants"
LIMIT = Path(__file__).resolve().parent / "limit" / "cpu_limit.cc"
COMPILER = ""
# The program decides by its own name: one is compiled for all.
TARGET = r"""
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include <unistd.h>

static std::string_view name;
using Pieces = std::vector<std::vector<char>>;
static Pieces pieces() { return Pieces(400, std::vector<char>(1 << 20, 'x')); }
static void spin(double seconds, const Pieces&) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {}
}
extern "C" int LLVMFuzzerInitialize(int*, char*** argv) {
  const char* const slash = std::strrchr(**argv, '/');
  name = slash == nullptr ? **argv : slash + 1;
  return 0;
}
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  if (name == "crash_fuzz") std::abort();
  // libFuzzer's alarm ends a sleep.
  static int sleeps = name == "sleep_fuzz" ? 8 : 0;
  for (; sleeps > 0; --sleeps) sleep(1);
  if (name == "spin_fuzz") spin(30, {});
  if (name == "block_fuzz") {
    auto* const block = static_cast<volatile char*>(std::malloc(400u << 20));
    block[0] = 1;
    std::free(const_cast<char*>(block));
  }
  if (name == "pieces_fuzz") spin(1.5, pieces());
  if (name == "spike_fuzz") pieces();
  return 0;
}
"""


def load_script():
    loader = importlib.machinery.SourceFileLoader("mutants", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", loader))
    sys.dont_write_bytecode = True
    sys.modules["mutants"] = module
    loader.exec_module(module)
    return module


MUTANTS = load_script()


class Goals(unittest.TestCase):
    def counts(self, **rates):
        return {name: MUTANTS.Count(mutants=rate, cpu_s=1.0) for name, rate in rates.items()}

    def test_equal_time(self):
        goals = MUTANTS.goals(self.counts(slow=10, fast=1000, middling=500), 151_000, 100)
        self.assertEqual(goals, {"slow": 1000, "fast": 100_000, "middling": 50_000})

    def test_each_has_the_least(self):
        goals = MUTANTS.goals(self.counts(slow=1, fast=1000), 100_000, 20_000)
        self.assertEqual(goals, {"slow": 20_000, "fast": 80_000})

    def test_no_target_is_asked_for_fewer_than_it_ran(self):
        counts = {"done": MUTANTS.Count(mutants=9000, cpu_s=900.0),
                  "new": MUTANTS.Count(mutants=1000, cpu_s=1.0)}
        self.assertEqual(MUTANTS.goals(counts, 12_000, 10), {"done": 9000, "new": 3000})


class Log(unittest.TestCase):
    def test_the_corpus_is_not_counted(self):
        log = "#5\tINITED cov: 2\nDone 30 runs in 0 second(s)\nstat::number_of_executed_units: 30\n"
        self.assertEqual(MUTANTS.mutants_in(log)[0], 25)

    def test_a_failure_on_the_corpus_has_no_count(self):
        self.assertIsNone(MUTANTS.mutants_in("stat::number_of_executed_units: 3\n")[0])


class WithoutACore(unittest.TestCase):
    def test_waiting_for_a_core_is_no_hang(self):
        """Five processes on one core: each runs a fifth of the time."""
        core = min(os.sched_getaffinity(0))
        spin = ("import os,time;os.sched_setaffinity(0,{%d})\n"
                "while time.process_time() < %s: pass")
        others = [subprocess.Popen([sys.executable, "-c", spin % (core, 60)]) for _ in range(4)]
        try:
            alone = MUTANTS.Alone([sys.executable, "-c", spin % (core, 1.0)], 2.5, os.environ)
            self.assertFalse(alone.is_long)
            alone = MUTANTS.Alone([sys.executable, "-c", spin % (core, 60)], 1.0, os.environ)
            self.assertTrue(alone.is_long)
        finally:
            for other in others:
                other.kill()
                other.wait()


class Targets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.build = Path(cls.folder.name)
        (cls.build / "fuzzers").mkdir()
        source = cls.build / "target.cc"
        source.write_text(TARGET)
        subprocess.run([COMPILER, "-std=c++20", "-fsanitize=fuzzer,address", str(source),
                        str(LIMIT), "-Wl,--wrap=LLVMFuzzerTestOneInput", "-o",
                        str(cls.build / "target")], check=True)
        for name in ("sound", "steady", "crash", "sleep", "spin", "block", "pieces",
                     "spike"):
            os.link(cls.build / "target", cls.build / "fuzzers" / f"{name}_fuzz")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def mutants(self, *arguments):
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "--build", str(self.build), "--hang-seconds", "3",
             "--memory-mb", "300", "--jobs", "1", *arguments], stdout=subprocess.PIPE, text=True)
        summary = re.search(r"targets, ([\d,]+) mutants, (\d+) crashes, (\d+) above 3 s, "
                            r"(\d+) above 300 MB(; .*)?$", done.stdout)
        self.assertIsNotNone(summary, done.stdout)
        self.printed = done.stdout
        return (done.returncode, int(summary[1].replace(",", "")),
                *(int(summary[i]) for i in (2, 3, 4)))

    def test_sound_targets(self):
        code, ran, *failed = self.mutants("--only", "sound,steady", "--runs", "50000",
                                          "--least", "10000")
        self.assertEqual((code, failed), (0, [0, 0, 0]), self.printed)
        self.assertGreaterEqual(ran, 50_000)

    def test_resume_adds_to_what_there_is(self):
        code, ran, *_ = self.mutants("--only", "sound", "--runs", "9000", "--least", "10",
                                     "--cpu-minutes", "0.00001")
        self.assertEqual(code, 1)
        self.assertLess(ran, 9000)
        code, again, *_ = self.mutants("--only", "sound", "--runs", "9000", "--least", "10",
                                       "--resume")
        self.assertEqual(code, 0, self.printed)
        self.assertGreaterEqual(again, 9000)

    def test_each_way_to_fail(self):
        for name, field in (("crash", 2), ("sleep", 3), ("spin", 3), ("block", 4), ("pieces", 4),
                            ("spike", 4)):
            with self.subTest(name=name):
                counted = self.mutants("--only", name, "--runs", "3000", "--cpu-minutes", "0.0001")
                self.assertEqual(counted[0], 1, self.printed)
                failed = [counted[at] > 0 for at in (2, 3, 4)]
                self.assertEqual(failed, [at == field for at in (2, 3, 4)], self.printed)
                self.assertIn(f"{name} FAILED", self.printed)


if __name__ == "__main__":
    COMPILER = sys.argv.pop(1)
    unittest.main()
