#!/usr/bin/env python3
"""What the C header and the Python module send, and that nothing they meet disturbs their program.

    clients_test.py BEAT_CLIENT
"""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "clients/python"))
import derate_beat  # noqa: E402

CLIENT = ""
ATTACKER, VICTIM = 65533, 65534


class Clients(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.kept = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(self.kept)))
        for name in ("DERATE_BEAT_SOCKET", "DERATE_DELTA", "SLURM_JOB_ID"):
            os.environ.pop(name, None)
        derate_beat._said = (0, 0.0)
        os.environ["DERATE_RUN_DIR"] = folder.name

    def listen(self, name="beat.sock"):
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(ear.close)
        ear.bind(str(self.folder / name))
        ear.settimeout(10)
        return ear

    def c(self, *arguments, **how):
        done = subprocess.run([CLIENT, *arguments], capture_output=True, timeout=30, **how)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))

    def test_both_say_the_same(self):
        ear = self.listen()
        self.c("12.5")
        self.assertEqual(ear.recv(1000), b"done=12.500000")
        self.assertTrue(derate_beat.beat(12.5))
        self.assertEqual(ear.recv(1000), b"done=12.5")
        self.c("17", "prefill", "0.05", "65:00.0")
        self.assertEqual(ear.recv(1000),
                         b"done=17.000000 phase=prefill max_loss=0.050000 gpu=65:00.0")
        derate_beat.beat(17, phase="prefill", max_loss=0.05, gpu="65:00.0")
        self.assertEqual(ear.recv(1000), b"done=17.0 phase=prefill max_loss=0.05 gpu=65:00.0")
        self.c("-1", "-", "0.1", "-")
        self.assertEqual(ear.recv(1000), b"max_loss=0.100000")
        derate_beat.beat(max_loss=0.1, gpu=0)
        self.assertEqual(ear.recv(1000), b"max_loss=0.1 gpu=0")

    def test_what_the_environment_says_goes_first(self):
        ear = self.listen()
        os.environ.update(DERATE_DELTA="inference", SLURM_JOB_ID="4711")
        self.c("2", "3")  # three beats of one process
        derate_beat.beat(1)
        derate_beat.beat(2)
        said = [ear.recv(1000) for _ in range(4)]
        self.assertEqual(said, [b"delta=inference job=4711", b"done=1.000000", b"done=2.000000",
                                b"done=3.000000"])
        said = [ear.recv(1000) for _ in range(3)]
        self.assertEqual(said, [b"delta=inference job=4711", b"done=1.0", b"done=2.0"])
        # A daemon that was started anew hears it within a minute; a child says it of itself.
        derate_beat._said = (os.getpid(), time.monotonic() - 61)
        derate_beat.beat(3)
        self.assertEqual(ear.recv(1000), b"delta=inference job=4711")
        self.assertEqual(ear.recv(1000), b"done=3.0")
        child = os.fork()
        if child == 0:
            derate_beat.beat(4)
            os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(ear.recv(1000), b"delta=inference job=4711")

    def test_what_the_message_cannot_have_is_not_said(self):
        ear = self.listen()
        for delta, job, sent in (("five %", "7", b"job=7"), ("x\n<0>", "12a", None),
                                 ("y" * 33, "", None), ("0.1", "", b"delta=0.1")):
            os.environ.update(DERATE_DELTA=delta, SLURM_JOB_ID=job)
            derate_beat._said = (0, 0.0)
            self.c("1")
            derate_beat.beat(1)
            for beat in (b"done=1.000000", b"done=1.0"):
                if sent:
                    self.assertEqual(ear.recv(1000), sent)
                self.assertEqual(ear.recv(1000), beat)

    def test_numbers_are_exact_to_the_sixth_place(self):
        ear = self.listen()
        for text, sent in {"0.9999999": "1.000000", "123456789012": "123456789012.000000",
                           "0.000001": "0.000001", "2251799813685249.5": "2251799813685249.500000",
                           "1e18": "1000000000000000000.000000"}.items():
            self.c(text)
            self.assertEqual(ear.recv(1000).decode(), "done=" + sent)

    def test_no_decimal_comma(self):
        names = subprocess.run(["locale", "-a"], capture_output=True, text=True).stdout.split()
        comma = next((name for name in names if name.startswith("de_")), None)
        if comma is None:
            self.skipTest("no locale with a decimal comma here")
        ear = self.listen()
        self.c("1", "-", "0.25", "-", env={**os.environ, "LC_ALL": comma})
        self.assertEqual(ear.recv(1000), b"done=1.000000 max_loss=0.250000")

    def test_nobody_listens(self):
        self.c("1")
        self.assertFalse(derate_beat.beat(1))
        self.listen().close()  # the socket's file stays
        self.c("1")
        self.assertFalse(derate_beat.beat(1))
        os.environ["DERATE_RUN_DIR"] = "/" + "x" * 300
        self.c("1")
        self.assertFalse(derate_beat.beat(1))

    def test_nothing_raises(self):
        self.listen()
        for bad in ("twelve", object(), float("nan")):
            derate_beat.beat(bad)
        derate_beat.beat(1, phase="x" * 100000)
        derate_beat.beat(1, phase="\udc80")
        self.c("1", "x" * 100000, "0.1", "y" * 1000)

    def test_a_run_is_told_before_the_system(self):
        system, run = self.listen(), self.listen("run.sock")
        os.environ["DERATE_BEAT_SOCKET"] = str(self.folder / "run.sock")
        derate_beat.beat(1)
        self.c("2")
        self.assertEqual((run.recv(100), run.recv(100)), (b"done=1.0", b"done=2.000000"))
        run.close()
        derate_beat.beat(3)
        self.c("4")
        self.assertEqual((system.recv(100), system.recv(100)), (b"done=3.0", b"done=4.000000"))

    def test_the_users_own_socket_comes_before_that_of_all(self):
        everybody = self.listen()
        (self.folder / "beats").mkdir()
        own = self.listen(f"beats/{os.geteuid()}.sock")
        derate_beat.beat(1)
        self.c("2")
        self.assertEqual((own.recv(100), own.recv(100)), (b"done=1.0", b"done=2.000000"))
        self.c("many", "20000")  # its queue is full: no beat goes to the socket of all
        everybody.settimeout(0)
        self.assertRaises(BlockingIOError, everybody.recv, 100)
        everybody.settimeout(10)
        own.close()
        derate_beat.beat(3)
        self.c("4")
        said = [everybody.recv(100) for _ in range(2)]
        self.assertEqual(said, [b"done=3.0", b"done=4.000000"])

    def test_a_closed_socket_is_passed_over(self):
        everybody = self.squat()
        self.folder.chmod(0o755)
        (self.folder / "beats").mkdir()
        own = self.listen(f"beats/{VICTIM}.sock")
        os.chmod(self.folder / f"beats/{VICTIM}.sock", 0o600)  # root's
        self.assertEqual(self.as_victim(), (3, []))
        self.assertEqual(everybody.recv(1000), b"done=1.0 max_loss=0.01")
        own.settimeout(0)
        self.assertRaises(BlockingIOError, own.recv, 100)

    def test_who_does_not_read_holds_nobody_up(self):
        ear = self.listen()
        self.c("many", "20000")
        for i in range(2000):
            derate_beat.beat(i)
        self.assertEqual(ear.recv(100), b"done=1.000000")

    def as_victim(self):
        """What three beats of the module, and three of a C program, come to for a user who is not
        root: what the module returned, and the lines on standard error."""
        program = shutil.copy(CLIENT, self.folder / "client")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgroups([])
                os.setgid(VICTIM)
                os.setuid(VICTIM)
                os.dup2(write, 2)
                sys.stderr = os.fdopen(2, "w", buffering=1)
                heard = [derate_beat.beat(1, max_loss=0.01) for _ in range(3)]
                subprocess.run([program, "many", "3"], check=True)
                code = 10 + sum(heard)
            finally:
                os._exit(code)
        os.close(write)
        with open(read, encoding="utf-8") as told:
            lines = told.read().splitlines()
        heard = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) - 10
        return heard, lines

    def squat(self):
        """A socket that the victim is pointed to; the folder is root's and sticky, as /tmp."""
        if os.geteuid() != 0:
            self.skipTest("only root can become others")
        self.folder.chmod(0o1777)
        ear = self.listen()
        os.chmod(self.folder / "beat.sock", 0o666)
        ear.settimeout(0)
        return ear

    def check_nothing_was_said(self, ear, why):
        heard, lines = self.as_victim()
        with self.assertRaises(BlockingIOError, msg="the other user has heard it"):
            ear.recv(1000)
        path = str(self.folder / "beat.sock")
        self.assertEqual(heard, 0)
        self.assertEqual(lines,  # each of the two says it once
                         [f"derate: no beat is sent to '{path}': {why}"] * 2)

    def test_a_socket_of_another_user_gets_nothing(self):
        ear = self.squat()
        os.chown(self.folder / "beat.sock", ATTACKER, ATTACKER)
        self.check_nothing_was_said(ear, "it belongs to another user")

    def test_a_socket_in_a_folder_of_another_user_gets_nothing(self):
        ear = self.squat()
        self.folder.chmod(0o755)
        os.chown(self.folder, ATTACKER, ATTACKER)
        self.check_nothing_was_said(ear, "a folder on the way belongs to another user")

    def test_a_socket_that_everybody_may_exchange_gets_nothing(self):
        ear = self.squat()
        self.folder.chmod(0o777)
        self.check_nothing_was_said(ear, "everybody may exchange what lies there")

    def test_a_link_gets_nothing(self):
        ear = self.squat()
        os.rename(self.folder / "beat.sock", self.folder / "other.sock")
        os.symlink(self.folder / "other.sock", self.folder / "beat.sock")
        self.check_nothing_was_said(ear, "it is a link")

    def test_roots_socket_and_ones_own_are_believed(self):
        for owner in (0, VICTIM):
            ear = self.squat()
            os.chown(self.folder / "beat.sock", owner, owner)
            self.assertEqual(self.as_victim(), (3, []))
            self.assertEqual(ear.recv(1000), b"done=1.0 max_loss=0.01")
            (self.folder / "beat.sock").unlink()

    def test_where_the_first_is_not_believed_the_next_is_told(self):
        ear = self.squat()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.bind(str(self.folder / "run.sock"))
            os.chown(self.folder / "run.sock", ATTACKER, ATTACKER)
            os.chmod(self.folder / "run.sock", 0o666)
            os.environ["DERATE_BEAT_SOCKET"] = str(self.folder / "run.sock")
            heard, lines = self.as_victim()
            self.assertEqual(heard, 3)
            self.assertEqual(lines, [f"derate: no beat is sent to '{self.folder}/run.sock': "
                                     "it belongs to another user"] * 2)
            self.assertEqual(ear.recv(1000), b"done=1.0 max_loss=0.01")
            other.settimeout(0)
            self.assertRaises(BlockingIOError, other.recv, 1000)

    def test_threads_and_files(self):
        ear = self.listen()
        heard = []

        def hear():
            ear.settimeout(0.5)
            while True:
                try:
                    heard.append(ear.recv(100))
                except TimeoutError:
                    return

        before = len(os.listdir("/proc/self/fd"))
        threads = [threading.Thread(target=lambda: [derate_beat.beat(i) for i in range(200)])
                   for _ in range(4)]
        listener = threading.Thread(target=hear)
        for thread in [listener, *threads]:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)
        listener.join()
        self.assertGreater(len(heard), 0)
        for text in heard:
            self.assertTrue(re.fullmatch(rb"done=\d+\.0", text), text)

    def test_a_call_is_cheap(self):
        # Printed, not judged: how fast a machine is says nothing of the code.
        self.listen()
        begin = time.perf_counter()
        for i in range(1000):
            derate_beat.beat(i)
        print(f"{(time.perf_counter() - begin) * 1e3:.0f} us a beat of the Python module")


if __name__ == "__main__":
    CLIENT = sys.argv.pop(1)
    unittest.main()
