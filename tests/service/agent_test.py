#!/usr/bin/env python3
"""derate-agent in front of a stand-in for derated: what is passed on, what is refused, and what is
left of it when derated hangs, callers flood it or a proxy stands before it.

    agent_test.py BUILD [SLOWNESS]
"""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import service_machine as service  # noqa: E402
from energy_test import wait_for  # noqa: E402
from fake_derated import METRICS, TOKEN, FakeDerated  # noqa: E402
from service_machine import ROOT, ask, raw, slow  # noqa: E402

BEARER = {"Authorization": "Bearer " + TOKEN}
EVENTS = {**BEARER, "Accept": "text/event-stream"}
NOBODY, OTHER = 65534, 65533


class Agent(service.Machine):
    def setUp(self):
        super().setUp()
        self.socket = self.folder / "run/api.sock"
        self.derated = self.new_derated()
        self.process, self.port = self.agent()

    def new_derated(self):
        derated = FakeDerated(str(self.socket))
        self.addCleanup(derated.close)
        return derated

    def get(self, path, **fields):
        return ask(self.port, path, **fields)

    def open_stream(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20 * slow())
        self.addCleanup(connection.close)
        connection.request("GET", "/v1/events", headers=EVENTS)
        return connection, connection.getresponse()


class WhatIsPassedOn(Agent):
    def test_pages_are_everyones_and_kept_for_a_second(self):
        for path in ("/", "/metrics", "/livez", "/readyz"):
            answer = self.get(path)
            self.assertEqual(answer.status, 200, answer)
            self.assertEqual(answer.fields["Cache-Control"], "no-store")
            self.assertEqual(answer.fields["X-Content-Type-Options"], "nosniff")
            for name in answer.fields:
                self.assertNotIn(name.lower(), ("set-cookie", "access-control-allow-origin"))
            head = ask(self.port, path, "HEAD")
            self.assertEqual((head.status, head.body), (200, ""))
        self.assertEqual(self.get("/metrics").body, METRICS)
        began = time.monotonic()
        for _ in range(200):
            self.assertEqual(self.get("/metrics").status, 200)
        self.assertLessEqual(self.derated.count("/metrics"), 3 + (time.monotonic() - began))
        openmetrics = self.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
        self.assertTrue(openmetrics.fields["Content-Type"].startswith(
            "application/openmetrics-text"), openmetrics)
        self.derated.health = (503, '{"ok":false,"error":"GPU 0: its samples are 9 s old"}')
        wait_for(lambda: self.get("/readyz").status == 503, "the news")
        self.assertIn("9 s old", self.get("/readyz").body)

    def test_operations_want_a_token_which_derated_looks_at(self):
        self.assertEqual(self.get("/v1/gpu-list").status, 401)
        self.assertEqual(self.get("/v1", Authorization="Basic YTpi").status, 401)
        self.assertEqual(self.derated.asked, [])
        wrong = self.get("/v1/gpu-list", Authorization="Bearer wrong")
        self.assertEqual((wrong.status, wrong.fields["WWW-Authenticate"]), (401, "Bearer"))
        self.assertEqual(wrong.fields["Connection"], "close")
        answer = ask(self.port, "/v1/policy-set?a=%20b", "POST", '{"policy": "assure"}', **BEARER,
                     Content_Type="application/json", Cookie="a=b", X_Forwarded_For="1.2.3.4",
                     X_Derate_Role="admin", Upgrade="h2c", Last_Event_ID="7")
        self.assertEqual(answer.status, 200, answer)
        asked = json.loads(answer.body)["asked"]
        self.assertEqual((asked["method"], asked["target"], asked["body"]),
                         ("POST", "/v1/policy-set?a=%20b", '{"policy": "assure"}'))
        self.assertEqual(set(asked["fields"]) - {"Host", "Connection", "Content-Length"},
                         {"Authorization", "Content-Type", "Last-Event-ID"})
        self.assertEqual(asked["fields"]["Host"], "localhost")

    def test_other_names_origins_methods_and_paths_are_refused(self):
        for status, path, fields in (
                (421, "/metrics", {"Host": "evil.example"}),
                (421, "/v1", {"Host": f"evil.example:{self.port}", **BEARER}),
                (403, "/metrics", {"Origin": "http://evil.example"}),
                (403, "/v1", {"Origin": f"http://127.0.0.1:{self.port + 1}", **BEARER}),
                (200, "/v1", {"Origin": f"http://127.0.0.1:{self.port}", **BEARER}),
                (400, "/v1/%2e%2e/metrics", BEARER), (404, "/etc/passwd", BEARER)):
            answer = self.get(path, **fields)
            self.assertEqual(answer.status, status, (path, fields, answer))
            self.assertNotIn("Access-Control-Allow-Origin", answer.fields)
        for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
            self.assertEqual(ask(self.port, "/v1", method, **BEARER).status, 405, method)
        for text in ("GET /metrics HTTP/1.1\r\n\r\n",
                     "GET metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
                     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"):
            self.assertRegex(raw(self.port, text), r"^HTTP/1.1 400 ", text)
        self.assertEqual(len(self.derated.asked), 1)

    def test_events_stream_and_end_with_their_reader(self):
        connection, answer = self.open_stream()
        self.assertEqual((answer.status, answer.getheader("Content-Type")),
                         (200, "text/event-stream"))
        self.assertEqual(answer.read(len("id: 1\ndata: {}\n\n") * 3).decode(),
                         "".join(f"id: {i}\ndata: {{}}\n\n" for i in (1, 2, 3)))
        self.assertEqual(self.derated.streams, 1)
        connection.close()
        wait_for(lambda: self.derated.streams == 0, "the stream's end")
        self.assertEqual(self.get("/v1/events", **{**EVENTS, "Authorization": "Bearer no"}).status,
                         401)

    def test_a_stream_without_events_has_begun_all_the_same(self):
        self.derated.event = lambda number: ""
        began = time.monotonic()
        self.assertEqual(self.open_stream()[1].status, 200)
        self.assertLess(time.monotonic() - began, 10 * slow())

    def test_streams_are_bounded_and_a_slow_reader_is_told(self):
        self.derated.event = lambda number: ""
        streams = [self.open_stream() for _ in range(16)]
        self.assertEqual([answer.status for _, answer in streams], [200] * 16)
        self.assertEqual(self.get("/v1/events", **EVENTS).status, 429)
        self.assertEqual(self.get("/v1", **BEARER).status, 200)
        streams[0][0].close()
        wait_for(lambda: self.derated.streams == 15, "a place")
        self.derated.event = lambda number: f"id: {number}\ndata: {'x' * 4000}\n\n"
        answers = []

        def opened():
            """The agent ends a stream to derated a moment before it counts its reader as gone."""
            answers.append(self.open_stream()[1])
            return answers[-1].status == 200
        wait_for(opened, "a stream in the place of the closed one")
        answer = answers[-1]
        wait_for(lambda: self.derated.streams == 0, "that all are dropped")
        text = answer.read().decode()
        self.assertRegex(text, r"event: dropped\ndata: [^\n]*\n\n$")
        self.assertLess(len(text), 16 << 20)


class WhenDeratedFails(Agent):
    def test_without_derated_the_reason_is_told(self):
        self.derated.close()
        for path, fields in (("/livez", {}), ("/metrics", {}), ("/v1", BEARER),
                             ("/v1/events", EVENTS)):
            answer = self.get(path, **fields)
            self.assertEqual(answer.status, 503, answer)
            self.assertIn("derated is not running", json.loads(answer.body)["error"])
            self.assertEqual(answer.fields["Retry-After"], "1")
        self.new_derated()
        wait_for(lambda: self.get("/livez").status == 200, "the new one")

    def test_one_that_hangs_holds_nobody_up(self):
        self.derated.hangs.set()
        held = [service.open_to(self.port, 1, (
            f"GET /v1/x{i} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        ).encode())[0] for i in range(8)]
        began = time.monotonic()
        self.assertEqual(self.get("/").status, 200)
        self.assertLess(time.monotonic() - began, 2 * slow())
        live = self.get("/livez")
        self.assertEqual(live.status, 503, live)
        self.assertIn("not answered", live.body)
        for connection in held:  # those that waited for a worker, too
            connection.settimeout(30 * slow())
            self.assertRegex(connection.recv(4096).decode(), r"^HTTP/1.1 503 ")
            connection.close()
        # A signal ends it at once, whatever it waits for.
        service.open_to(self.port, 2, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.2)
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.assertEqual(self.process.wait(20), 0)
        self.assertLess(time.monotonic() - began, 3 * slow())

    @unittest.skipIf(os.geteuid() != 0, "only root can become others")
    def test_nobody_else_is_asked_in_derateds_place(self):
        self.derated.close()
        code = ("import sys; sys.path.insert(0, sys.argv[1])\n"
                "from fake_derated import FakeDerated; import time\n"
                "FakeDerated(sys.argv[2]); time.sleep(60)")
        (self.folder / "run").chmod(0o777)
        shutil.copy(ROOT / "tests/service/fake_derated.py", self.folder)
        other = subprocess.Popen(["/usr/bin/python3", "-B", "-c", code, str(self.folder),
                                  str(self.socket)], user=OTHER, group=OTHER, extra_groups=[],
                                 cwd=self.folder)
        self.addCleanup(self.stop, other)
        wait_for(self.socket.exists, "another user's socket")
        time.sleep(0.2)
        answer = self.get("/v1", **BEARER)
        self.assertEqual(answer.status, 502, answer)
        self.assertIn(str(OTHER), answer.body)


class ThePage(Agent):
    """derate-agent with the arguments of `derate ui`."""

    def begin(self, *options):
        bin_folder, own = self.folder / "bin", self.folder / "own"
        bin_folder.mkdir()
        own.mkdir(0o700)
        (bin_folder / "xdg-open").write_text('#!/bin/sh\necho "$@" > "$0.asked"\nsleep 5\n')
        (bin_folder / "xdg-open").chmod(0o755)
        agent = subprocess.Popen(
            [str(service.energy_test.BUILD / "derate-agent"), "--listen", "127.0.0.1:0", "--page",
             "--open", "--socket", str(self.socket), *options], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}",
                 "XDG_RUNTIME_DIR": str(own)})
        self.addCleanup(self.stop, agent)
        self.addCleanup(agent.stdout.close)
        address = agent.stdout.readline()
        port, code = re.search(r"^http://127\.0\.0\.1:(\d+)/ui#(\S+)$", address).groups()
        asked = bin_folder / "xdg-open.asked"
        wait_for(lambda: asked.exists() and asked.read_text(), "the browser")
        return int(port), code, Path(asked.read_text().strip().removeprefix("file://")), agent

    def take(self, port, code):
        return ask(port, "/ui/session", "POST", code, Origin=f"http://127.0.0.1:{port}").status

    def test_no_command_line_has_the_code(self):
        port, code, page, agent = self.begin()
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                self.assertNotIn(code, process.read_bytes().decode(errors="replace"))
            except OSError:
                pass
        self.assertEqual(page.parent, self.folder / "own")
        self.assertEqual(page.stat().st_mode & 0o777, 0o600)
        self.assertIn(f'url=http://127.0.0.1:{port}/ui#{code}"', page.read_text())
        self.assertEqual(self.take(port, "wrong"), 403)
        self.assertTrue(page.exists())
        self.assertEqual(self.take(port, code), 200)
        self.assertFalse(page.exists())

    def test_what_leads_to_the_page_goes_with_it(self):
        _, _, page, agent = self.begin()
        self.assertTrue(page.exists())
        agent.terminate()
        self.assertEqual(agent.wait(20), 0)
        self.assertFalse(page.exists())

    @unittest.skipIf(os.geteuid() != 0, "only root can become others")
    def test_nobody_else_is_answered(self):
        port, code, _, _ = self.begin()
        tries = ("import sys, http.client\nfor path, body in (('/metrics', None), "
                 "('/ui', None), ('/ui/session', sys.argv[2])):\n"
                 "  c = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]))\n"
                 "  c.request('POST' if body else 'GET', path, body, "
                 "{'Origin': 'http://127.0.0.1:' + sys.argv[1]})\n"
                 "  a = c.getresponse(); print(a.status, a.read().decode().strip())\n")
        done = subprocess.run(["/usr/bin/python3", "-c", tries, str(port), code], user=OTHER,
                              group=OTHER, extra_groups=[], cwd="/", capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line[:3] for line in done.stdout.splitlines()], ["403"] * 3, done.stdout)
        self.assertIn("is of user 0", done.stdout)
        # A caller that has closed its end by then has no user, and counts as nobody.
        hasty = ("import socket, sys\nfor _ in range(50):\n"
                 "  s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
                 "  s.sendall(sys.argv[2].encode()); s.close()\n")
        text = (f"POST /ui/session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:"
                f"{port}\r\nContent-Length: {len(code)}\r\n\r\n{code}")
        subprocess.run(["/usr/bin/python3", "-c", hasty, str(port), text], user=OTHER, group=OTHER,
                       extra_groups=[], cwd="/", check=True)
        self.assertEqual(self.take(port, code), 200)


class InAPod(Agent):
    """--metrics-only, and --check as a probe."""

    def test_metrics_alone_are_for_everyone_on_any_address(self):
        _, port = self.agent("--metrics-only", "--listen", "0.0.0.0:0")
        for fields in ({}, BEARER, {"Host": "10.0.0.7:9410"}, {"Origin": "http://evil.example"}):
            self.assertEqual(ask(port, "/metrics", **fields).body, METRICS)
            for path in ("/livez", "/readyz"):
                self.assertEqual(ask(port, path, **fields).status, 200)
        before = len(self.derated.asked)
        for method, path in (("GET", "/v1/status"), ("POST", "/v1/release"), ("GET", "/v1/events"),
                             ("GET", "/ui"), ("POST", "/metrics"), ("GET", "/metrics/x"),
                             ("DELETE", "/livez"), ("POST", "/ui/session")):
            body = "{}" if method == "POST" else None
            self.assertEqual(ask(port, path, method, body, **BEARER).status, 404, path)
        self.assertEqual(len(self.derated.asked), before)

    def check(self, *words):
        done = subprocess.run([str(service.energy_test.BUILD / "derate-agent"), "--check", *words],
                              capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout.strip() or done.stderr.strip()

    def test_a_probe_has_the_health_as_its_exit_code(self):
        for path in ("/livez", "/readyz"):
            self.assertEqual(self.check(path)[0], 0)
        self.derated.health = (503, '{"ok":false,"error":"GPU 0: its samples are 9 s old"}\nmore')
        code, text = self.check("/readyz")
        self.assertEqual((code, "9 s old" in text, "more" in text), (1, True, False))
        self.derated.close()
        code, text = self.check("/livez")
        self.assertEqual(code, 1)
        self.assertIn("nobody listens", text)
        for wrong in ("", "/metrics", "livez"):
            code, text = self.check(wrong)
            self.assertEqual(code, 2, text)
            self.assertIn(f"--check '{wrong}': allowed are /livez and /readyz", text)


class TheProcess(Agent):
    def test_it_has_sockets_and_nothing_else(self):
        self.assertEqual(self.get("/metrics").status, 200)
        kinds = {re.sub(r"[:/].*", "", link) for link in
                 service.descriptors(self.process.pid) if not link.startswith("/")}
        self.assertLessEqual(kinds, {"socket", "anon_inode", "pipe"})
        files = {link for link in service.descriptors(self.process.pid) if link.startswith("/")}
        self.assertEqual(files - {"/dev/null", str(self.folder / "errors")}, set())
        libraries = Path(f"/proc/{self.process.pid}/maps").read_text()
        for name in ("sqlite", "nvidia", "ncurses", "nghttp2"):
            self.assertNotIn(name, libraries)

    @unittest.skipIf(os.geteuid() != 0, "only root can become others")
    def test_it_needs_no_rights(self):
        shutil.copy(service.energy_test.BUILD / "derate-agent", self.folder)
        built = service.energy_test.BUILD
        service.energy_test.BUILD = self.folder
        self.addCleanup(setattr, service.energy_test, "BUILD", built)
        _, port = self.agent(user=NOBODY)
        self.assertEqual(ask(port, "/metrics").body, METRICS)

    def test_signals_and_exit_codes(self):
        self.process.send_signal(signal.SIGHUP)
        self.assertEqual(self.get("/").status, 200)
        agent = str(service.energy_test.BUILD / "derate-agent")
        for code, *options in ((75, "--listen", f"127.0.0.1:{self.port}"),
                               (2, "--listen", "0.0.0.0:9410"), (2, "--listen", "gpu7:9410"),
                               (2, "--allow-host", "a:1"), (2, "--no-such-option"),
                               (0, "--version"), (0, "--help")):
            done = subprocess.run([agent, *options], capture_output=True, text=True, timeout=20)
            self.assertEqual(done.returncode, code, (options, done.stderr))
        self.process.terminate()
        self.assertEqual(self.process.wait(20), 0)

    def test_it_tells_systemd_that_it_is_ready_and_alive(self):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(listener.close)
        listener.bind(str(self.folder / "notify"))
        listener.settimeout(20 * slow())
        os.environ.update(NOTIFY_SOCKET=str(self.folder / "notify"), WATCHDOG_USEC="300000")
        os.environ.pop("WATCHDOG_PID", None)
        process, _ = self.agent()
        said = [listener.recv(200).decode() for _ in range(4)]
        self.assertIn("READY=1", said)
        self.assertGreater(said.count("WATCHDOG=1"), 1)
        process.terminate()
        wait_for(lambda: listener.recv(200) == b"STOPPING=1", "its end")


class BehindAProxy(Agent):
    """The configurations of docs/agent.md, as they stand there."""

    def setUp(self):
        super().setUp()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=gpu7.example.org", "-addext",
                        "subjectAltName=DNS:gpu7.example.org", "-keyout", self.folder / "key",
                        "-out", self.folder / "certificate"], check=True, capture_output=True)
        self.process, self.port = self.agent("--allow-host", "gpu7.example.org")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.front = free.getsockname()[1]

    def example(self, language):
        page = (ROOT / "docs/agent.md").read_text(encoding="utf-8")
        text = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)[1]
        for old, new in (("127.0.0.1:9410", f"127.0.0.1:{self.port}"), ("9443", str(self.front)),
                         ("/etc/ssl/certs/gpu7.pem", str(self.folder / "certificate")),
                         ("/etc/ssl/private/gpu7.key", str(self.folder / "key")),
                         ("/run/derate/api.sock", str(self.socket))):
            self.assertIn(old, text)
            text = text.replace(old, new)
        return text

    def ask_front(self, path, name="gpu7.example.org", **fields):
        trusted = ssl.create_default_context(cafile=str(self.folder / "certificate"))
        plain = socket.create_connection(("127.0.0.1", self.front), 20 * slow())
        connection = http.client.HTTPSConnection(name, self.front, timeout=20 * slow())
        connection.sock = trusted.wrap_socket(plain, server_hostname="gpu7.example.org")
        self.addCleanup(connection.close)
        connection.request("GET", path, headers=fields)
        return connection.getresponse()

    def check(self):
        def up():
            try:
                return self.ask_front("/livez").status == 200
            except OSError:
                return False
        wait_for(up, f"the proxy\n{self.errors()}")
        self.assertEqual(self.ask_front("/metrics").read().decode(), METRICS)
        self.assertEqual(self.ask_front("/v1").status, 401)
        self.assertEqual(self.ask_front("/v1", **BEARER).status, 200)
        origin = f"https://gpu7.example.org:{self.front}"
        self.assertEqual(self.ask_front("/v1", Origin=origin, **BEARER).status, 200)
        self.assertEqual(self.ask_front("/v1", Origin="https://evil.example", **BEARER).status, 403)
        other = self.ask_front("/v1", name="evil.example", **BEARER).read()
        self.assertNotIn(b'"ok": true', other)
        events = self.ask_front("/v1/events", **EVENTS)
        self.assertEqual(events.status, 200)
        self.assertTrue(events.read(6).startswith(b"id: 1"))

    @unittest.skipUnless(shutil.which("nginx"), "no nginx here")
    def test_nginx(self):
        (self.folder / "nginx.conf").write_text(
            f"pid {self.folder}/nginx.pid; error_log stderr; daemon off; user root;\n"
            f"events {{}}\nhttp {{ access_log off; client_body_temp_path {self.folder}/b;\n"
            f"proxy_temp_path {self.folder}/p; fastcgi_temp_path {self.folder}/f;\n"
            f"uwsgi_temp_path {self.folder}/u; scgi_temp_path {self.folder}/s;\n"
            f"{self.example('nginx')} }}")
        with open(self.folder / "errors", "ab") as errors:
            proxy = subprocess.Popen(["nginx", "-c", str(self.folder / "nginx.conf")],
                                     stdout=errors, stderr=errors)
        self.addCleanup(self.stop, proxy)
        self.check()

    @unittest.skipUnless(shutil.which("caddy"), "no caddy here")
    def test_caddy(self):
        (self.folder / "Caddyfile").write_text(
            f"{{\n admin off\n auto_https off\n grace_period 1s\n}}\n{self.example('caddy')}")
        os.environ["HOME"] = str(self.folder)
        with open(self.folder / "errors", "ab") as errors:
            proxy = subprocess.Popen(["caddy", "run", "--adapter", "caddyfile", "--config",
                                      str(self.folder / "Caddyfile")], stdout=errors, stderr=errors)
        self.addCleanup(self.stop, proxy)
        self.check()


if __name__ == "__main__":
    service.begin(sys.argv)
    unittest.main()
