#!/usr/bin/env python3
"""Callers who send as much as they can: to derated and through derate-agent. Each attack is bounded
in number and time, and on the loopback and this folder's sockets. It wants the machine for itself.

    floods_test.py BUILD [SLOWNESS]
"""
import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import agent_test  # noqa: E402
import api_test  # noqa: E402
import service_machine as service  # noqa: E402
from agent_test import BEARER  # noqa: E402
from api_test import STRANGER, as_user  # noqa: E402
from energy_test import wait_for  # noqa: E402
from fake_derated import METRICS  # noqa: E402
from service_machine import Flood, ask, slow  # noqa: E402

FLOODER = 65530


class Derated(api_test.Attacked):
    KINDS = {
        "silent": b"",
        "half a head": b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n",
        "a body that does not come": b"POST /v1/policy-set HTTP/1.1\r\nHost: localhost\r\n"
                                     b"Authorization: Bearer a\r\nContent-Length: 60000\r\n\r\n{",
        "answers that are not read": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20,
        "streams that are not read": b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n"
                                     b"Accept: text/event-stream\r\n\r\n",
        "a huge head": b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 60000,
    }

    def held_by_others(self, to, text, number=500):
        """Connections of another user where that can be, or of this one."""
        if os.geteuid() != 0 or isinstance(to, int):
            held = service.open_to(to, number, text)
            self.addCleanup(lambda: [each.close() for each in held])
            return lambda: [each.close() for each in held]
        code = ("import socket, sys, time\nheld = []\ntext = sys.stdin.buffer.read()\n"
                "for _ in range(int(sys.argv[2])):\n"
                "  s = socket.socket(socket.AF_UNIX); s.settimeout(5)\n"
                "  try:\n    s.connect(sys.argv[1]); s.sendall(text); held.append(s)\n"
                "  except OSError:\n    pass\n"
                "print(len(held), flush=True)\ntime.sleep(60)\n")
        process = subprocess.Popen(["/usr/bin/python3", "-c", code, str(to), str(number)], cwd="/",
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   **as_user(FLOODER))
        process.stdin.write(text)
        process.stdin.close()
        process.stdout.readline()

        def end():
            process.kill()
            process.wait()
            process.stdout.close()
        self.addCleanup(end)
        return end

    def test_five_hundred_connections_of_each_kind(self):
        for to in (self.socket, self.port):
            for kind, text in self.KINDS.items():
                end = self.held_by_others(to, text)
                time.sleep(1)
                self.assertEqual(ask(to, "/livez").status, 200, (to, kind))
                self.assertEqual(ask(self.socket, "/v1/status").status, 200, (to, kind))
                meanwhile = self.lateness()
                end()
                self.wait_for_closed_connections(kind)
                print(f"\n{to}: {kind}: {meanwhile} ms", file=sys.stderr)
        self.check_after("500 connections a kind")

    def is_alive_for_others(self, to):
        """Another user does not feel the flood. Over TCP all are one: refused at worst."""
        if to == self.socket and os.geteuid() == 0:
            self.assertEqual(self.curl(STRANGER, "http://localhost/livez")[0], 200)
            return True
        try:
            status = ask(to, "/livez").status
        except OSError:
            return False
        self.assertIn(status, (200, 429, 503))
        return status == 200

    def test_a_flood_of_requests(self):
        for to in (self.socket, self.port):
            flood = Flood(to, lambda i: (("/metrics", "/v1/status", "/livez", "/v1/no")[i % 4], {}),
                          seconds=5, most=50000)
            answered, asked = 0, 0
            while any(thread.is_alive() for thread in flood.threads):
                asked += 1
                answered += self.is_alive_for_others(to)
                time.sleep(0.1)
            counts = flood.wait()
            print(f"\n{to}: {counts}; /livez beside it {answered} of {asked}", file=sys.stderr)
            self.assertEqual(set(counts) - {0, 200, 401, 404, 429, 503}, set())
            self.assertGreater(answered, 0)
        self.check_after("floods")


class Agent(agent_test.Agent):
    def test_who_tries_tokens_takes_nothing_from_who_has_one(self):
        self.assertEqual(self.get("/v1", **BEARER).status, 200)
        before = self.derated.count("/v1/x")
        flood = Flood(self.port, lambda i: ("/v1/x", {"Authorization": f"Bearer try{i}"}),
                      seconds=3, most=5000)
        while any(thread.is_alive() for thread in flood.threads):
            self.assertEqual(self.get("/v1", **BEARER).status, 200)
            time.sleep(0.05)
        counts = flood.wait()
        self.assertGreater(counts.get(429, 0), 0, counts)
        self.assertLessEqual(self.derated.count("/v1/x") - before, 10 + 10 * 4 * slow())

    def test_connections_that_say_nothing_or_read_nothing(self):
        self.derated.metrics = METRICS + "# x\n" * 250000  # 1 MB
        wait_for(lambda: len(self.get("/metrics").body) > 1000000, "a large page")
        kinds = (b"", b"GET /metrics HTTP/1.1\r\nHost: ", b"GET /v1 HTTP/1.1\r\n",
                 b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5,
                 b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\n"
                 b"Content-Length: 60000\r\n\r\n" + b"x" * 50000)
        for text in kinds:
            held = service.open_to(self.port, 500, text)
            time.sleep(0.5)
            self.assertEqual(self.get("/livez").status, 200, text[:40])
            for connection in held:
                connection.close()
            # Until then their places are taken, which the next 500 would find.
            wait_for(lambda: len(service.descriptors(self.process.pid)) < 40, "closed connections")
        if slow() == 1:  # a sanitizer has more
            self.assertLess(service.memory_mib(self.process.pid)[1], 160)

    def test_ten_thousand_requests(self):
        flood = Flood(self.port, lambda i: ("/metrics", {}), seconds=4, most=10000)
        answered = 0
        while any(thread.is_alive() for thread in flood.threads):
            answered += self.get("/readyz").status == 200
            time.sleep(0.05)
        counts = flood.wait()
        print("a flood of /metrics:", counts, file=sys.stderr)
        self.assertGreater(answered, 0)
        self.assertEqual(set(counts) - {200, 429, 503, 0}, set())
        self.assertLess(self.derated.count("/metrics"), 10 * slow())


if __name__ == "__main__":
    service.begin(sys.argv)
    unittest.main()
