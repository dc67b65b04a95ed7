#!/usr/bin/env python3
"""What programs measure with the Python module and the C header, against a real derated and a real
`derate energy` on simulated GPUs.

    energy_test.py BUILD WINDOW_CLIENT [SLOWNESS]
"""
import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "clients/python"))
import derate_client  # noqa: E402

BUILD, CLIENT, SLOW = Path(), "", 1.0
# Of GeMM on a simulated V100: between idle and the power limit.
WATTS = (150, 300)


def wait_for(holds, what):
    until = time.monotonic() + 20 * SLOW
    while not holds():
        if time.monotonic() > until:
            raise AssertionError(f"never: {what}")
        time.sleep(0.02)


class Machine(unittest.TestCase):
    """A folder, an environment, and what is started in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="de-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.folder.chmod(0o755)
        (self.folder / "run").mkdir()
        (self.folder / "derate.toml").write_text("")
        kept = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(kept)))
        os.environ.pop("DERATE_CLIENT_SOCKET", None)
        os.environ.update({
            "DERATE_RUN_DIR": str(self.folder / "run"), "DERATE_STATE_DIR": str(self.folder / "s"),
            "DERATE_SIM": str(self.folder / "sim"),
            "DERATE_CONFIG": str(self.folder / "derate.toml"),
            "DERATE_NVML_LIBRARY": str(BUILD / "fakenvml/libnvidia-ml.so.1"),
            "PYTHONPATH": str(ROOT / "clients/python")})
        self.addCleanup(derate_client.connection.close)
        derate_client.connection.close()
        derate_client._DRIVER_PATIENCE_S = 2 * SLOW

    def start(self, *arguments, **how):
        with open(self.folder / "errors", "ab") as errors:
            process = subprocess.Popen([str(BUILD / arguments[0]), *arguments[1:]], stderr=errors,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **how)
        self.addCleanup(self.stop, process)
        return process

    def stop(self, process):
        if process.poll() is None:
            process.terminate()
            process.wait(20 * SLOW)

    def serve_gpus(self):
        self.start("derate", "sim", "serve", "--chip", "V100-SXM2", "--gpus", "2")
        wait_for(lambda: subprocess.run([str(BUILD / "derate"), "sim", "show"],
                                        capture_output=True).returncode == 0, "simulated GPUs")
        self.start("derate", "sim", "job", "GeMM", "--gpu", "0")

    def daemon(self):
        process = self.start("derated")

        def answers():
            try:
                return len(derate_client.gpus()) == 2
            except derate_client.Error:
                return False
        wait_for(answers, "the daemon")
        return process

    def energy(self, script, *options, **how):
        """The account of `derate energy` over a Python script, and what the script printed."""
        done = subprocess.run(
            [str(BUILD / "derate"), "energy", "--sim", "V100-SXM2", "--app", "GeMM", "--gpus", "2",
             "--json", "-o", str(self.folder / "account"), *options, "--", sys.executable, "-B",
             "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60 * SLOW,
            **how)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return json.loads((self.folder / "account").read_text()), done.stdout

    def in_a_child(self, work):
        """What it returns, as text."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = "it failed"
            try:
                said = str(work())
            except Exception as error:
                said = repr(error)
            finally:
                os.write(write, said.encode())
                os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with open(read, encoding="utf-8") as out:
            return out.read()

    def assertPower(self, joules, seconds, gpus=1):
        self.assertGreater(joules / seconds, WATTS[0] * gpus)
        self.assertLess(joules / seconds, WATTS[1] * gpus)


class OfACommand(Machine):
    def test_windows_of_a_script(self):
        account, printed = self.energy("""
            import json, time
            import derate_client as d
            with d.window("all") as whole:
                with d.window("load") as load:
                    time.sleep(0.7)
                with d.window("train, 1", gpus=1) as train:
                    time.sleep(0.5)
            print(json.dumps([[w.name, w.time, w.joules, len(w.gpus)]
                              for w in (whole, load, train)]))
            """, "--log", str(self.folder / "log.csv"))
        whole, load, train = json.loads(printed)
        self.assertEqual([w[3] for w in (whole, load, train)], [2, 2, 1])
        self.assertGreaterEqual(load[1], 0.7)
        self.assertGreaterEqual(whole[1], load[1] + train[1])
        self.assertGreater(whole[2], load[2] + train[2])
        self.assertPower(whole[2], whole[1], 2)
        self.assertPower(train[2], train[1])
        told = {w["name"]: w for w in account["windows"]}
        self.assertEqual({name: w["energy_joules"] for name, w in told.items()},
                         {w[0]: w[2] for w in (whole, load, train)})
        self.assertGreater(account["energy_joules"], whole[2])
        log = (self.folder / "log.csv").read_text().splitlines()
        self.assertEqual(log[0], "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy")
        self.assertEqual([row.split(",", 1)[1].rsplit(",", 3)[0] for row in log[1:]],
                         ["load", '"train, 1"', "all", "total"])
        row = log[2].rsplit(",", 3)
        self.assertEqual(row[2], "")
        self.assertAlmostEqual(float(row[3]), train[2], places=2)
        self.assertLess(abs(float(log[1].split(",")[0]) - time.time()), 60 * SLOW)

    def test_a_function_synchronises_at_both_ends(self):
        _, printed = self.energy("""
            import derate_client as d
            calls = []
            with d.window("x", sync=lambda: calls.append(1)) as w:
                pass
            print(len(calls), w.joules is not None)
            """)
        self.assertEqual(printed, "2 True\n")

    def test_an_error_of_the_body_is_the_news(self):
        _, printed = self.energy("""
            import derate_client as d
            try:
                with d.window("x") as w:
                    raise KeyError("mine")
            except KeyError:
                print(w.time is not None)
            print(list(d.open_windows()))
            """)
        self.assertEqual(printed, "True\n[]\n")

    def test_what_nobody_ends_costs_nothing(self):
        account, _ = self.energy("""
            import derate_client as d
            d.begin_window("open")
            for i in range(50):
                d.begin_window("again", restart=True)
            d.cancel_window("again")
            """)
        self.assertEqual(account["windows"], [])


class OfTheDaemon(Machine):
    def setUp(self):
        super().setUp()
        self.serve_gpus()
        self.derated = self.daemon()

    def test_a_window(self):
        with derate_client.window("epoch", gpus=0) as w:
            time.sleep(2)
        self.assertPower(w.joules, w.time)
        self.assertEqual(len(w.gpus), 1)
        gpu = w.gpus[0]
        self.assertEqual((gpu.index, gpu.source, gpu.uncovered), (0, "counter", 0))
        self.assertIsNone(gpu.agree)  # too short to say

    def test_an_unprivileged_user_measures_and_cannot_do_more(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become others")
        def measure():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with derate_client.window("mine") as w:
                pass
            try:
                derate_client.connection.ask("pause")
            except derate_client.Refused as error:
                return f"{w.time is not None} {error}"
        said = self.in_a_child(measure)
        self.assertTrue(said.startswith("True command 'pause': wants the role operator"), said)

    def test_names_are_checked(self):
        derate_client.begin_window("one")
        with self.assertRaisesRegex(derate_client.Refused, "'one' is open already") as caught:
            derate_client.begin_window("one")
        self.assertEqual(caught.exception.exit_code, 2)
        with self.assertRaisesRegex(derate_client.Refused, "there are: 'one'") as caught:
            derate_client.end_window("two")
        self.assertEqual(caught.exception.exit_code, 6)
        with self.assertRaisesRegex(derate_client.Refused, "GPU '9' is not here"):
            derate_client.begin_window("three", gpus=9)
        self.assertEqual(list(derate_client.open_windows()), ["one"])

    def test_a_restart_loses_windows_and_says_so(self):
        derate_client.begin_window("old")
        derate_client.begin_window("silent")
        self.stop(self.derated)
        self.daemon()
        with self.assertRaisesRegex(derate_client.Lost, "restart"):
            derate_client.end_window("old")
        lost = derate_client.end_window("silent", silent=True)
        self.assertEqual((lost.time, lost.joules, lost.gpus), (None, None, None))
        with derate_client.window("new") as w:
            pass
        self.assertIsNotNone(w.time)

    def test_a_restart_between_two_requests_goes_unnoticed(self):
        derate_client.gpus()
        self.stop(self.derated)
        self.start("derated")
        wait_for((self.folder / "run/client.sock").exists, "the socket")
        self.assertIsInstance(derate_client.gpus(), list)

    def test_a_fork_has_a_line_of_its_own(self):
        derate_client.begin_window("parents")

        def work():
            try:
                derate_client.end_window("parents")
                said = "ended"
            except derate_client.Lost:
                said = "lost"
            with derate_client.window("childs"):
                pass
            return f"{said} {list(derate_client.open_windows())}"
        self.assertEqual(self.in_a_child(work), "lost []")
        self.assertIsNotNone(derate_client.end_window("parents").joules)

    def test_threads_share_the_line(self):
        windows = []

        def work(name):
            for i in range(3):
                with derate_client.window(f"{name} {i}", wait=False) as w:
                    time.sleep(0.01)
                windows.append(w)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        epoch = derate_client.connection.epoch
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(windows), 12)
        self.assertTrue(all(w.time >= 0.01 for w in windows))
        self.assertEqual(derate_client.connection.epoch, epoch)

    def test_the_c_header(self):
        with subprocess.Popen([CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as client:
            def ask(line):
                client.stdin.write(line + "\n")
                client.stdin.flush()
                return client.stdout.readline().rstrip("\n")

            self.assertEqual(ask("begin epoch"), "0 ")
            self.assertEqual(ask("begin \"energy_joules\":7\\ 1"), "0 ")
            self.assertRegex(ask("begin epoch"), "^3 window 'epoch' is open already")
            time.sleep(1)
            code, seconds, joules, *gpus = ask("end \"energy_joules\":7\\").split()
            self.assertEqual(code, "0")
            self.assertEqual([gpu.split(":")[0] for gpu in gpus], ["1"])
            self.assertEqual(gpus[0].split(":")[1], joules)
            code, seconds, joules, *gpus = ask("end epoch").split()
            self.assertGreaterEqual(float(seconds), 1)
            index, of_gpu, uncovered, integrated = gpus[0].split(":")
            self.assertEqual((index, len(gpus)), ("0", 2))
            self.assertPower(float(of_gpu), float(seconds))
            self.assertPower(float(integrated), float(seconds))
            self.assertEqual(float(uncovered), 0)
            self.assertAlmostEqual(sum(float(gpu.split(":")[1]) for gpu in gpus), float(joules),
                                   places=4)
            self.assertRegex(ask("end epoch"), "^3 no window 'epoch' is open; none is")
            ask("begin parents")
            self.assertRegex(ask("fork-end parents"), "^2 .*fork")
            self.assertRegex(ask("end parents"), "^0 ")
            ask("begin old")
            self.stop(self.derated)
            again = self.daemon()
            self.assertRegex(ask("end old"), "^2 ")
            self.assertEqual(ask("begin new"), "0 ")
            self.stop(again)
            self.assertRegex(ask("end new"), "^2 ")
            self.assertRegex(ask("begin other"), "^1 nobody measures here")
            client.stdin.close()


class OfAStranger(Machine):
    """Another user listens where the program is sent to."""

    STRANGER = 65533

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("only root can become others")
        self.heard = {}
        kept = sys.stderr
        self.addCleanup(setattr, sys, "stderr", kept)
        sys.stderr = self.told = io.StringIO()
        derate_client._told.clear()

    def listen(self, name, user):
        """Answers everything, as that user; the path."""
        path = str(self.folder / name)
        ear = socket.socket(socket.AF_UNIX)
        self.addCleanup(ear.close)
        ear.bind(path)
        os.seteuid(user)  # the kernel notes who listens
        ear.listen()
        os.seteuid(0)
        heard = self.heard[name] = []

        def serve():
            while True:
                try:
                    line = ear.accept()[0]
                except OSError:
                    return
                with line, line.makefile("rwb") as file:
                    for request in file:
                        heard.append(request)
                        file.write(b'{"ok":true,"gpus":[]}\n')
                        file.flush()
        threading.Thread(target=serve, daemon=True).start()
        return path

    def test_python_does_not_ask(self):
        path = self.listen("run/client.sock", self.STRANGER)
        says = f"'{path}': not asked: user 65533 listens there, who is neither root nor user 0"
        for _ in range(2):
            with self.assertRaisesRegex(derate_client.NobodyListens, re.escape(says)):
                derate_client.gpus()
        with derate_client.window("x", silent=True) as w:
            pass
        self.assertIsNone(w.time)
        self.assertEqual(self.heard, {"run/client.sock": []})
        self.assertEqual(self.told.getvalue(), f"derate: {says}\n")

    def test_python_asks_the_next(self):
        os.environ["DERATE_CLIENT_SOCKET"] = self.listen("squatted.sock", self.STRANGER)
        self.listen("run/client.sock", 0)
        self.assertEqual(derate_client.gpus(), [])
        self.assertEqual([len(heard) for heard in self.heard.values()], [0, 1])
        self.assertEqual(self.told.getvalue().count("not asked"), 1)

    def test_the_c_header_does_not_ask(self):
        path = self.listen("run/client.sock", self.STRANGER)
        done = subprocess.run([CLIENT], input="begin epoch\n", capture_output=True, text=True)
        self.assertEqual(done.stdout, f"1 '{path}' is not asked: user 65533 listens there, who is "
                                      "neither root nor user 0\n")
        os.environ["DERATE_CLIENT_SOCKET"] = path
        os.environ["DERATE_RUN_DIR"] = str(self.folder)
        self.listen("client.sock", 0)
        done = subprocess.run([CLIENT], input="begin epoch\n", capture_output=True, text=True)
        self.assertEqual(done.stdout, "0 \n")
        self.assertEqual([len(heard) for heard in self.heard.values()], [0, 1])


class OfNobody(Machine):
    def test_that_is_an_error_unless_silent(self):
        with self.assertRaisesRegex(derate_client.NobodyListens, "nobody measures here"):
            derate_client.begin_window("x")
        with self.assertRaises(derate_client.NobodyListens):
            with derate_client.window("x"):
                self.fail("it has begun")
        with derate_client.window("x", silent=True) as w:
            pass
        self.assertEqual((w.time, w.joules, w.gpus), (None, None, None))
        os.environ["DERATE_RUN_DIR"] = "/" + "x" * 300
        with self.assertRaises(derate_client.NobodyListens):
            derate_client.gpus()


if __name__ == "__main__":
    BUILD, CLIENT = Path(sys.argv[1]).resolve(), sys.argv[2]
    SLOW = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
    unittest.main(argv=sys.argv[:1])
