"""A stand-in for the HTTP side of derated, of which a test says how it behaves: one that answers,
that hangs, that streams. It keeps what it was asked."""
import json
import os
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

TOKEN = "good.token-1"
# The agent's own requests, of its duty of reading engines' metrics.
OWN = ("/v1/services", "/v1/service-report")
METRICS = "# HELP derate_up Whether it runs.\n# TYPE derate_up gauge\nderate_up 1\n"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, *_):
        pass

    def address_string(self):
        return "a unix socket"

    def answer(self, status, body, kind="application/json", fields=()):
        data = body.encode()
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(data))), *fields):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        self.server.streams += 1
        try:
            number = 0
            while not self.server.stop.is_set():
                number += 1
                piece = self.server.event(number)
                if piece:
                    data = piece.encode()
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                    self.wfile.flush()
                elif self.server.stop.wait(0.05) or self.gone():
                    break
        except OSError:
            pass
        self.server.streams -= 1
        self.close_connection = True

    def gone(self):
        self.connection.setblocking(False)
        try:
            return self.connection.recv(1) == b""
        except BlockingIOError:
            return False
        finally:
            self.connection.setblocking(True)

    def handle_one(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length).decode() if length else ""
        asked = {"method": self.command, "target": self.path, "body": body,
                 "fields": dict(self.headers.items())}
        own = self.path in OWN and "Authorization" not in self.headers
        with self.server.lock:
            (self.server.own if own else self.server.asked).append(asked)
        if self.server.hangs.is_set():
            self.server.stop.wait(120)
            self.close_connection = True
            return
        if own:
            self.answer(200, json.dumps({"ok": True, "services": self.server.services, "taken": 1}))
        elif self.path in ("/livez", "/readyz"):
            self.answer(*self.server.health)
        elif self.path == "/metrics":
            self.answer(200, self.server.metrics, self.headers.get("Accept", "text/plain"),
                        [("Set-Cookie", "a=b"), ("Access-Control-Allow-Origin", "*")])
        elif self.headers.get("Authorization") != "Bearer " + TOKEN:
            self.answer(401, '{"ok":false,"error":"the token is unknown"}',
                        fields=[("WWW-Authenticate", "Bearer")])
        elif self.path.startswith("/v1/events") and \
                "event-stream" in self.headers.get("Accept", ""):
            self.stream()
        else:
            self.answer(200, json.dumps({"ok": True, "asked": asked}))

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_one


class FakeDerated(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path):
        Path(path).unlink(missing_ok=True)
        super().__init__(str(path), Handler)
        os.chmod(path, 0o666)
        self.lock = threading.Lock()
        self.asked, self.own, self.services = [], [], []
        self.hangs, self.stop = threading.Event(), threading.Event()
        self.streams = 0
        self.metrics = METRICS
        self.health = (200, '{"ok":true}')
        self.event = lambda number: f"id: {number}\ndata: {{}}\n\n" if number <= 3 else ""
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def count(self, target):
        with self.lock:
            return sum(each["target"].split("?")[0] == target for each in self.asked)

    def close(self):
        self.stop.set()
        self.shutdown()
        self.server_close()
        Path(self.server_address).unlink(missing_ok=True)

    def handle_error(self, *_):
        pass  # callers that hang up
