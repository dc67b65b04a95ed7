#!/usr/bin/env python3
"""`derate events --follow` against a server that ends its stream: it comes again and goes on after
the last event that it has seen, and Ctrl-C ends it.

usage: follow_test.py --derate build/dev/derate
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

DERATE = None


def event(number):
    return {"id": number, "time_unix_seconds": 1761991200.5, "event": "found", "severity": "info",
            "gpu": "GPU-1", "gpu_index": 0, "message": f"the event {number}", "fields": {}}


def streamed(number):
    return f"id: {number}\nevent: found\ndata: {json.dumps(event(number))}\n\n"


class Server(threading.Thread):
    """The daemon's API as far as the verb asks it; each stream has two events and ends."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(path)
        self.socket.listen()
        self.last_ids, self.next_id = [], 3

    def run(self):
        while True:
            connection, _ = self.socket.accept()
            with connection:
                self.answer(connection)

    def answer(self, connection):
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(4096)
        lines = head.decode().split("\r\n")
        fields = {name.lower(): value.strip()
                  for name, _, value in (line.partition(":") for line in lines[1:])}
        target = lines[0].split()[1]
        kind = "application/json"
        if fields.get("accept") == "text/event-stream":
            self.last_ids.append(fields.get("last-event-id"))
            body, kind = streamed(self.next_id) + streamed(self.next_id + 1), "text/event-stream"
            self.next_id += 2
        elif target.startswith("/v1/events"):
            body = json.dumps({"ok": True, "events": [event(1), event(2)]})
        else:
            body = json.dumps({"ok": True, "gpus": []})
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n"
                           f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
                           .encode())


class Follow(unittest.TestCase):
    def follow(self, *options):
        """The first six events of a run, which Ctrl-C then ends, and its exit code."""
        with tempfile.TemporaryDirectory() as folder:
            server = Server(str(Path(folder, "api.sock")))
            server.start()
            environment = {"PATH": os.environ["PATH"], "HOME": folder, "TZ": "UTC",
                           "DERATE_RUN_DIR": folder, "DERATE_STATE_DIR": folder}
            command = subprocess.Popen([DERATE, "events", "--follow", *options], env=environment,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            lines = [command.stdout.readline() for _ in range(6)]
            command.send_signal(signal.SIGINT)
            command.stdout.read()
            return lines, command.wait(), server.last_ids

    def test_goes_on_after_the_last_event_that_was_seen(self):
        lines, code, last_ids = self.follow()
        self.assertEqual([line.split()[-1] for line in lines], ["1", "2", "3", "4", "5", "6"])
        self.assertTrue(lines[0].startswith("2025-11-01 10:00:00  info     GPU 0"), lines[0])
        self.assertEqual(last_ids[:2], ["2", "4"])
        self.assertEqual(code, 0)

    def test_json_is_a_line_for_each(self):
        lines, code, _ = self.follow("--json")
        self.assertEqual([json.loads(line)["events"][0]["id"] for line in lines], list(range(1, 7)))
        self.assertEqual(json.loads(lines[0])["schema"], "derate/events/1")
        self.assertEqual(code, 0)


if __name__ == "__main__":
    if "--derate" in sys.argv:
        at = sys.argv.index("--derate")
        DERATE = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
