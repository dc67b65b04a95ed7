#!/usr/bin/env python3
"""derated's HTTP as others meet it: users with and without rights by curl, and callers who mean no
good, on the unix socket and through derate-agent. How late derated's loop was is read before,
meanwhile and after, and printed.

    api_test.py BUILD [SLOWNESS]
"""
import http.client
import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import service_machine as service  # noqa: E402
from energy_test import wait_for  # noqa: E402
from service_machine import ask, raw, slow  # noqa: E402

OPERATOR, STRANGER, AGENT, GROUP = 65531, 65532, 65533, 4242
EVENTS = {"Accept": "text/event-stream"}


def as_user(uid, *groups):
    return {"user": uid, "group": uid, "extra_groups": list(groups)}


class Service(service.Machine):
    GPUS = 2
    CONFIG = f'[api]\noperators = "{GROUP}"\nagent = "{AGENT}"\n'

    def setUp(self):
        super().setUp()
        self.socket = self.folder / "run/api.sock"
        (self.folder / "derate.toml").write_text(self.CONFIG)
        built = service.energy_test.BUILD
        self.start("derate", "sim", "serve", "--chip", "H200", "--gpus", str(self.GPUS))
        wait_for(lambda: subprocess.run([str(built / "derate"), "sim", "show"],
                                        capture_output=True).returncode == 0, "simulated GPUs")
        self.start("derate", "sim", "job", "fft", "-i", "0")
        self.derated = self.start("derated")
        wait_for(self.is_ready, "derated is ready")
        # The build may lie where others do not come.
        shutil.copy(built / "derate-agent", self.folder)
        service.energy_test.BUILD = self.folder
        try:
            self.agent_process, self.port = self.agent(user=AGENT if os.geteuid() == 0 else None)
        finally:
            service.energy_test.BUILD = built

    def state(self):
        return json.loads((self.folder / "run/state.json").read_text())

    def worker(self):
        return self.state()["pid"]

    def lateness(self):
        """p99 and the most of the last rounds, in ms."""
        loop = self.state().get("loop", {})
        return [round(1e3 * loop[key], 2) if key in loop else None
                for key in ("late_p99_seconds", "late_max_seconds")]

    def governors(self):
        """Who had a GPU governed, as the history has it, some seconds later."""
        answer = ask(self.socket, "/v1/events")
        if answer.status == 404 and "is kept yet" in answer.body:
            return []  # before its first second: no file, or nothing in it
        self.assertEqual(answer.status, 200, answer)
        return [event["fields"]["who"] for event in json.loads(answer.body)["events"]
                if event["event"] == "governed"]

    def curl(self, uid, *arguments, groups=()):
        """Status and answer of a user's curl on the socket."""
        done = subprocess.run(
            ["curl", "-sS", "-w", "\n%{http_code}", "--unix-socket", str(self.socket), *arguments],
            capture_output=True, text=True, timeout=60 * slow(), cwd="/", **as_user(uid, *groups))
        self.assertEqual(done.returncode, 0, done.stderr)
        text, _, status = done.stdout.rpartition("\n")
        return int(status), text


@unittest.skipIf(os.geteuid() != 0, "only root can become others")
class Roles(Service):
    def set_policy(self, uid, *groups):
        return self.curl(uid, "-d", '{"policy": "efficient-fix", "gpus": "0"}',
                         "http://localhost/v1/policy-set", groups=groups)

    def test_an_operator_governs_by_curl_and_others_are_refused(self):
        status, text = self.set_policy(STRANGER)
        self.assertEqual(status, 403, text)
        refused = json.loads(text)
        self.assertEqual((refused["ok"], refused["code"]), (False, "no_permission"), text)
        self.assertRegex(refused["error"], "operator|role")
        self.assertNotIn("policy", self.state()["gpus"][0])
        status, text = self.set_policy(OPERATOR, GROUP)
        self.assertEqual(status, 200, text)
        wait_for(lambda: self.state()["gpus"][0].get("policy") == "efficient-fix", "it is governed")
        status, text = self.curl(STRANGER, "http://localhost/v1/status")
        self.assertEqual(status, 200, text)
        self.assertEqual(json.loads(text)["gpus"][0]["policy"], "efficient-fix")
        self.assertEqual(self.curl(STRANGER, "-d", '{"gpus": "0"}',
                                   "http://localhost/v1/release")[0], 403)
        self.assertEqual(self.curl(OPERATOR, "-d", '{"gpus": "0"}', "http://localhost/v1/release",
                                   groups=[GROUP])[0], 200)
        wait_for(lambda: "policy" not in self.state()["gpus"][0], "it is given back")
        wait_for(lambda: self.governors() == [f"uid {OPERATOR}"], "whose command it was")

    def test_the_agents_user_changes_nothing_by_itself(self):
        status, text = self.set_policy(AGENT, GROUP)
        self.assertEqual(status, 403, text)
        self.assertEqual(self.curl(AGENT, "http://localhost/v1/status")[0], 200)


class ThroughTheAgent(Service):
    def test_without_a_token_or_with_a_wrong_one(self):
        self.assertEqual(ask(self.port, "/metrics").status, 200)
        for path in ("/v1", "/v1/status", "/v1/events", "/v1/openapi.json"):
            self.assertEqual(ask(self.port, path).status, 401, path)
            wrong = ask(self.port, path, Authorization="Bearer wrong")
            self.assertEqual(wrong.status, 401, (path, wrong))
        self.assertEqual(ask(self.port, "/v1/policy-set", "POST", '{"policy": "assure"}',
                             Authorization="Bearer wrong").status, 401)
        self.assertEqual(ask(self.socket, "/v1/status", Authorization="Bearer wrong").status, 401)
        self.assertNotIn("policy", self.state()["gpus"][0])

    def token(self, name, role, **more):
        answer = ask(self.socket, "/v1/token-create", "POST",
                     json.dumps({"name": name, "role": role, **more}))
        self.assertEqual(answer.status, 200, answer)
        return {"Authorization": "Bearer " + json.loads(answer.body)["token"]}

    def test_a_token_allows_what_its_role_may_until_it_is_revoked(self):
        reads, operates = self.token("grafana", "reader"), self.token("bot", "operator")
        policy = ("/v1/policy-set", "POST", '{"policy": "efficient-fix", "gpus": "0"}')
        self.assertEqual(ask(self.port, "/v1/status", **reads).status, 200)
        refused = ask(self.port, *policy, **reads)
        self.assertEqual(refused.status, 403, refused)
        self.assertRegex(json.loads(refused.body)["error"], "operator|role")
        done = ask(self.port, *policy, **operates)
        self.assertEqual(done.status, 200, done)
        wait_for(lambda: self.state()["gpus"][0].get("policy") == "efficient-fix", "it is governed")
        wait_for(lambda: self.governors() == ["token bot"], "whose token it was")
        for admins in ("/v1/token-list", "/v1/token-create", "/v1/config-set"):
            method = "GET" if admins.endswith("list") else "POST"
            answer = ask(self.port, admins, method, None if method == "GET" else
                         '{"name": "x"}' if "token" in admins else '{"set": []}', **operates)
            self.assertEqual(answer.status, 403, (admins, answer))
        self.assertEqual(ask(self.socket, "/v1/token-revoke", "POST",
                             '{"name": "bot"}').status, 200)
        self.assertEqual(ask(self.port, "/v1/status", **operates).status, 401)
        self.assertEqual(ask(self.port, "/v1/status", **reads).status, 200)

    def test_events_reach_who_has_a_token(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30 * slow())
        self.addCleanup(connection.close)
        connection.request("GET", "/v1/events", headers={**self.token("page", "reader"), **EVENTS})
        stream = connection.getresponse()
        self.assertEqual(stream.status, 200)
        self.assertEqual(ask(self.socket, "/v1/policy-set", "POST",
                             '{"policy": "efficient-fix", "gpus": "0"}').status, 200)
        told = b""
        while b"event: governed\n" not in told:
            told += stream.read1(4096)
        self.assertIn(b"data: ", told)

    def test_names_of_elsewhere(self):
        for fields in ({"Host": "evil.example"}, {"Host": f"evil.example:{self.port}"}):
            self.assertEqual(ask(self.port, "/metrics", **fields).status, 421)
        self.assertEqual(ask(self.port, "/metrics", Origin="http://evil.example").status, 403)

    def test_there_is_nothing_on_the_network_but_the_agent(self):
        inodes = {link for pid in (self.derated.pid, self.worker())
                  for link in service.descriptors(pid) if link.startswith("socket:")}
        for table in ("tcp", "tcp6", "udp", "udp6", "raw", "netlink"):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                for word in line.split():
                    self.assertNotIn(f"socket:[{word}]", inodes, (table, line))


class Attacked(Service):
    """What is left of derated and its agent after an attack."""

    def setUp(self):
        super().setUp()
        wait_for(lambda: None not in self.lateness(), "how late it is")
        self.before = self.lateness()
        self.pid = self.worker()
        self.memory = service.memory_mib(self.pid)[0]
        self.files = {pid: len(service.descriptors(pid))
                      for pid in (self.pid, self.agent_process.pid)}

    def wait_for_closed_connections(self, what):
        """Until then their places are taken, which who comes next would find."""
        for pid, before in self.files.items():
            wait_for(lambda: len(service.descriptors(pid)) <= before + 8,
                     f"closed connections after {what}")

    def check_after(self, what):
        """Nobody was killed, nothing is kept."""
        self.assertIsNone(self.derated.poll(), self.errors())
        self.assertEqual(self.worker(), self.pid, self.errors())
        self.assertIsNone(self.agent_process.poll(), self.errors())
        wait_for(lambda: ask(self.socket, "/readyz").status == 200, "derated is ready again")
        self.wait_for_closed_connections(what)
        now, most = service.memory_mib(self.pid)
        print(f"\n{what}: late p99, most: {self.before} ms before, {self.lateness()} after; "
              f"derated {self.memory:.1f} MiB before, {now:.1f} after, {most:.1f} at most",
              file=sys.stderr)
        if slow() == 1:  # a sanitizer has more
            self.assertLess(most, self.memory + 100)


class NoHttp(Attacked):
    def test_what_is_not_http(self):
        texts = [b"\x16\x03\x01\x02\x00" + bytes(200), b"\r\n" * 1000, b"GET\r\n\r\n",
                 b"GET / HTTP/9.9\r\n\r\n", b"GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n",
                 b"GET /v1/%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 b"GET /v1/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 b"POST /v1/policy-set HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
                 b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                 b"POST /v1/policy-set HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999"
                 b"\r\n\r\n"]
        for text in texts:
            self.assertRegex(raw(self.port, text), r"^(HTTP/1.1 [45]\d\d |$)", text[:40])
        for body in ("", "[]", "nonsense", "{", '{"policy": 1}', '{"a": ' * 200, "\xff" * 9,
                     '{"policy": "assure", "policy": "assure"}', '{"' + "x" * 60000 + '": 1}'):
            answer = ask(self.socket, "/v1/policy-set", "POST", body.encode("latin-1"))
            self.assertIn(answer.status, (400, 413), (body[:40], answer))
        self.check_after("what is not HTTP")


if __name__ == "__main__":
    service.begin(sys.argv)
    unittest.main()
