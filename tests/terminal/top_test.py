#!/usr/bin/env python3
"""`derate top` and the live `derate attribute` on a terminal: a real derated on simulated GPUs,
every key, other sizes, and each way to end. The terminal is as before afterwards.

    top_test.py BUILD [SLOWNESS]
"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

BUILD, SLOW = Path(), 1.0
ENTER_SCREEN, LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"


# Runs a command as a job of its own in the foreground, and says so when it is stopped.
SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    status = os.waitpid(job, os.WUNTRACED)[1]
    if not os.WIFSTOPPED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    os.write(1, b"JOB %d STOPPED" % job)
"""


class Terminal:
    """A command on a pseudo terminal of its own. `shell`: as the job of a shell, which it needs for
    job control to stop it."""

    def __init__(self, environment, arguments, width=80, height=24, shell=False):
        self.leader, self.follower = pty.openpty()
        self.resize(width, height, tell=False)
        self.before = termios.tcgetattr(self.follower)
        self.output = b""

        def lead():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        before = [sys.executable, "-B", "-c", SHELL] if shell else []
        self.process = subprocess.Popen(
            [*before, str(BUILD / "derate"), *arguments], env=environment, stdin=self.follower,
            stdout=self.follower, stderr=self.follower, preexec_fn=lead)

    def resize(self, width, height, tell=True):
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def press(self, keys):
        os.write(self.leader, keys)

    def read(self, seconds):
        """What comes in that time."""
        begin, until = len(self.output), time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self.leader], [], [], left)[0]:
                try:
                    self.output += os.read(self.leader, 65536)
                except OSError:
                    break
        return self.output[begin:]

    def wait_for(self, text, seconds=15):
        begin, until = len(self.output), time.monotonic() + seconds * SLOW
        while not re.search(text, self.output[begin:]):
            if time.monotonic() > until:
                raise AssertionError(f"never: {text}\n{self.output[begin:]!r}")
            self.read(0.05)

    def end(self, seconds=15):
        until = time.monotonic() + seconds * SLOW
        while self.process.poll() is None and time.monotonic() < until:
            self.read(0.05)
        code = self.process.poll()
        if code is None:
            self.process.kill()
            self.process.wait()
        self.read(0.1)
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.leader)
        os.close(self.follower)


class OnATerminal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="dt-")
        cls.addClassCleanup(cls.folder.cleanup)
        folder = Path(cls.folder.name)
        (folder / "run").mkdir()
        (folder / "derate.toml").write_text(
            '[governor]\npolicy = "geepafs"\ngovern = true\n[attribute]\ninterval_s = 0.5\n')
        cls.environment = {
            **os.environ, "DERATE_RUN_DIR": str(folder / "run"),
            "DERATE_STATE_DIR": str(folder / "s"), "DERATE_SIM": str(folder / "sim"),
            "DERATE_CONFIG": str(folder / "derate.toml"), "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8", "DERATE_NVML_LIBRARY": str(BUILD / "fakenvml/libnvidia-ml.so.1")}
        cls.environment.pop("NO_COLOR", None)
        cls.start("derate", "sim", "serve", "--chip", "V100-SXM2", "--gpus", "3")
        cls.wait_for(lambda: cls.call("sim", "show").returncode == 0, "simulated GPUs")
        cls.start("derate", "sim", "job", "GeMM")
        cls.start("derated")
        state = folder / "run/state.json"
        cls.wait_for(lambda: state.exists() and '"process"' in state.read_text(), "a tenant")

    @classmethod
    def start(cls, *arguments):
        process = subprocess.Popen(
            [str(BUILD / arguments[0]), *arguments[1:]], env=cls.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def stop():
            process.terminate()
            process.wait(20 * SLOW)
        cls.addClassCleanup(stop)

    @classmethod
    def call(cls, *arguments):
        return subprocess.run([str(BUILD / "derate"), *arguments], capture_output=True, text=True,
                              env=cls.environment, timeout=60 * SLOW)

    @staticmethod
    def wait_for(holds, what):
        until = time.monotonic() + 20 * SLOW
        while not holds():
            if time.monotonic() > until:
                raise AssertionError(f"never: {what}")
            time.sleep(0.05)

    def open(self, *arguments, **how):
        terminal = Terminal(self.environment, arguments, **how)
        self.addCleanup(terminal.close)
        return terminal

    def assert_left(self, terminal):
        """The other screen was left after the last time it was entered, the cursor is shown, and
        the terminal's settings are those of before."""
        self.assertGreater(terminal.output.rfind(LEAVE_SCREEN), terminal.output.rfind(ENTER_SCREEN))
        self.assertGreater(terminal.output.rfind(b"\x1b[?25h"), terminal.output.rfind(b"\x1b[?25l"))
        self.assertEqual(termios.tcgetattr(terminal.follower), terminal.before)

    def test_every_key_and_other_sizes_then_q(self):
        top = self.open("top", "--interval", "0.2")
        top.wait_for(rb"W/limit")
        self.assertNotEqual(termios.tcgetattr(top.follower), top.before)
        for keys in (b"j", b"k", b"\x1bOB", b"\x1bOA", b"\x1b[6~", b"\x1b[5~", b"\x1bOH", b"\x1bOF",
                     b"\r", b"g", b"p", b"s", b"p", b" ", b" ", b"s", b"?", b"?", b"x", b"\x0c",
                     "ä".encode(), b"\x1b"):
            top.press(keys)
            top.read(0.1)
            self.assertIsNone(top.process.poll(), keys)
        for width, height in ((300, 80), (20, 5), (1, 1), (120, 40)):
            top.resize(width, height)
            top.read(0.4)
            self.assertIsNone(top.process.poll(), (width, height))
        top.press(b"p")
        top.wait_for(rb"so far")
        top.press(b"/zzz")
        top.wait_for(rb"no process has what the filter says")
        top.press(b"q")  # belongs to the filter
        top.read(0.3)
        self.assertIsNone(top.process.poll())
        top.press(b"\x1b")
        top.read(0.3)
        top.press(b"q")
        self.assertEqual(top.end(), 0)
        self.assert_left(top)

    def test_signals_end_it_and_leave_the_terminal_as_it_was(self):
        for verb in (("top",), ("attribute",)):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                with self.subTest(verb=verb, signal=number):
                    top = self.open(*verb)
                    top.wait_for(rb"GPU")
                    top.process.send_signal(number)
                    self.assertEqual(top.end(), 0)
                    self.assert_left(top)

    def test_control_c_and_control_d(self):
        for pressed in (b"\x03", b"\x04"):
            top = self.open("top")
            top.wait_for(rb"W/limit")
            top.press(pressed)
            self.assertEqual(top.end(), 0)
            self.assert_left(top)

    def test_stopped_by_control_z_and_continued(self):
        top = self.open("top", shell=True)
        top.wait_for(rb"W/limit")
        # A terminal whose mode is set drops keys that it has not looked at yet.
        for _ in range(5):
            top.press(b"\x1a")
            if b"STOPPED" in top.read(SLOW):
                break
        self.assertRegex(top.output, rb"JOB (\d+) STOPPED")
        self.assert_left(top)
        job = int(re.search(rb"JOB (\d+) STOPPED", top.output)[1])
        os.kill(job, signal.SIGCONT)
        top.wait_for(b"(?s)" + re.escape(ENTER_SCREEN) + b".*W/limit")  # all of it anew
        top.press(b"q")
        self.assertEqual(top.end(), 0)
        self.assert_left(top)

    def test_no_color_and_ascii(self):
        self.environment = {**self.environment, "NO_COLOR": "1", "LC_ALL": "C"}
        top = self.open("top")
        top.wait_for(rb"W/limit")
        top.press(b"q")
        self.assertEqual(top.end(), 0)
        self.assertFalse(re.search(rb"\x1b\[[0-9;]*3[0-7]m", top.output), top.output)
        self.assertFalse(re.search(rb"[\x80-\xff]", top.output), top.output)

    def test_an_unchanged_picture_sends_next_to_nothing(self):
        top = self.open("top", "--interval", "0.2")
        top.wait_for(rb"W/limit")
        top.press(b" ")
        top.read(0.5)
        self.assertLess(len(top.read(2)), 400)  # paused: nothing to draw
        self.assertNotIn(b"\x1b[2J", top.read(0.5))
        top.press(b"q")
        self.assertEqual(top.end(), 0)

    def test_in_a_pipe_it_prints_tables(self):
        done = self.call("top", "--rounds", "2", "--interval", "0.1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.count("why this clock"), 2)
        self.assertNotIn("\x1b", done.stdout)

    def test_a_terminal_that_cannot_be_drawn_on_gets_tables(self):
        self.environment = {**self.environment, "TERM": "dumb"}
        top = self.open("top", "--rounds", "1", width=300)
        self.assertEqual(top.end(), 0)
        self.assertIn(b"why this clock", top.output)
        self.assertNotIn(ENTER_SCREEN, top.output)
        narrow = self.open("top", "--rounds", "1", width=80)
        self.assertEqual(narrow.end(), 0)
        lines = narrow.output.decode().replace("\r", "").splitlines()
        self.assertGreater(len(lines), 3)
        self.assertLessEqual(max(len(line) for line in lines), 80, lines)

    def test_its_charts_begin_with_what_the_daemon_has_kept(self):
        def kept():
            history = self.call("history", "--from", "now-20s", "-i", "0", "--json").stdout
            return len(json.loads(history)["series"][0]["begin_unix_seconds"])

        def widest():
            top = self.open("top", "-i", "0", "--rounds", "1", width=120, height=40)
            self.assertEqual(top.end(), 0)
            return max(map(len, re.findall("[▁▂▃▄▅▆▇█]+", top.output.decode())), default=0)

        self.wait_for(lambda: kept() > 10, "ten seconds of history")
        # A column a second, of which one is this command's own. A busy daemon's may come too late.
        self.assertTrue(any(widest() > 6 for _ in range(10)))

    def test_status_fits_a_narrow_terminal(self):
        status = self.open("status", width=60)
        self.assertEqual(status.end(), 0)
        lines = status.output.decode().replace("\r", "").splitlines()
        plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
        self.assertGreater(len(plain), 3)
        self.assertLessEqual(max(len(line) for line in plain), 60, plain)


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    SLOW = float(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1][0].isdigit() else 1.0
    unittest.main()
