#!/usr/bin/env python3
"""The document that derated serves, held against derated: each example in it is sent, and each
answer has the fields and types that the document says.

    openapi_test.py BUILD [SLOWNESS]
"""
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
from pathlib import Path

BUILD, SLOW = Path(), 1.0

TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "object": dict,
         "array": list, "null": type(None)}


def mismatches(value, schema, document, where="answer"):
    """What of a value is not as the schema says, of those words of JSON Schema that are used."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "const" in schema and value != schema["const"]:
        yield f"{where}: {value!r} is not {schema['const']!r}"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    fits = [kind for kind in kinds if isinstance(value, TYPES[kind])
            and not (isinstance(value, bool) and kind in ("integer", "number"))]
    if kinds and not fits:
        yield f"{where}: {value!r} is no {' or '.join(kinds)}"
        return
    if isinstance(value, list):
        for place, each in enumerate(value):
            yield from mismatches(each, schema.get("items", {}), document, f"{where}[{place}]")
    if not isinstance(value, dict):
        return
    for key in schema.get("required", []):
        if key not in value:
            yield f"{where}: no {key}"
    for key, each in value.items():
        known = schema.get("properties", {}).get(key)
        if known is None:
            if "properties" in schema and schema["properties"]:
                yield f"{where}: {key} is not in the document"
            continue
        yield from mismatches(each, known, document, f"{where}.{key}")


class Api(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30 * SLOW)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Document(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="do-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "run").mkdir()
        (self.folder / "derate.toml").write_text("")
        self.environment = {
            **os.environ, "DERATE_RUN_DIR": str(self.folder / "run"),
            "DERATE_STATE_DIR": str(self.folder / "s"), "DERATE_SIM": str(self.folder / "sim"),
            "DERATE_CONFIG": str(self.folder / "derate.toml"),
            "DERATE_NVML_LIBRARY": str(BUILD / "fakenvml/libnvidia-ml.so.1")}
        self.start("derate", "sim", "serve", "--chip", "H200", "--gpus", "2")
        show = [BUILD / "derate", "sim", "show"]
        self.wait_for(lambda: subprocess.run(show, env=self.environment, capture_output=True,
                                             check=False).returncode == 0, "GPUs")
        self.start("derate", "sim", "job", "fft")
        self.start("derated")
        self.wait_for(lambda: self.answers("/readyz") == 200, "derated is ready")

    def start(self, *arguments):
        with open(self.folder / "errors", "ab") as errors:
            process = subprocess.Popen(
                [str(BUILD / arguments[0]), *arguments[1:]], stderr=errors, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait, 30 * SLOW)
        self.addCleanup(process.terminate)

    def wait_for(self, holds, what):
        until = time.monotonic() + 30 * SLOW
        while not holds():
            if time.monotonic() > until:
                raise AssertionError(f"never: {what}\n{(self.folder / 'errors').read_text()}")
            time.sleep(0.1)

    def ask(self, method, target, body=None):
        api = Api(str(self.folder / "run/api.sock"))
        try:
            api.request(method, target, None if body is None else json.dumps(body))
            answer = api.getresponse()
            return answer.status, answer.read()
        finally:
            api.close()

    def answers(self, path):
        try:
            return self.ask("GET", path)[0]
        except OSError:
            return None

    def send_example(self, path, method, told):
        if method == "post":
            content = told["requestBody"]["content"]["application/json"]
            return self.ask("POST", path, content["example"])
        query = {each["name"]: each["example"] for each in told["parameters"] if "example" in each}
        query = {name: ",".join(map(str, value)) if isinstance(value, list) else value
                 for name, value in query.items()}
        return self.ask("GET", path + ("?" + urllib.parse.urlencode(query) if query else ""))

    def test_each_example_is_answered_as_the_document_says(self):
        document = json.loads(self.ask("GET", "/v1/openapi.json")[1])
        time.sleep(3)  # for what is kept each second
        wrong = []
        for path, methods in document["paths"].items():
            for method, told in methods.items():
                with self.subTest(path=path):
                    if path == "/v1/policy-confirm":  # there is something to confirm
                        self.assertEqual(self.ask("POST", "/v1/policy-set", {
                            "policy": "assure", "gpus": "0", "confirm_within_seconds": 600})[0],
                            200)
                    status, body = self.send_example(path, method, told)
                    answer = json.loads(body)
                    # Nobody has a run here: that is what the answer says then.
                    if path == "/v1/run-release":
                        self.assertEqual((status, answer["code"]), (404, "not_found"))
                        self.assertIn("404", told["responses"])
                        continue
                    self.assertEqual(status, 200, body)
                    if path == "/v1/resume":
                        self.wait_for(lambda: self.answers("/readyz") == 200, "GPUs again")
                    schema = told["responses"]["200"]["content"]["application/json"]["schema"]
                    wrong += [f"{path}: {each}" for each in mismatches(answer, schema, document)]
        self.assertEqual(wrong, [])

    def test_what_is_wrong_has_a_status_of_the_document(self):
        document = json.loads(self.ask("GET", "/v1/openapi.json")[1])
        for path, methods in document["paths"].items():
            for method, told in methods.items():
                with self.subTest(path=path):
                    status, body = (self.ask("POST", path, {"no such field": 1}) if method == "post"
                                    else self.ask("GET", path + "?no_such_field=1"))
                    self.assertEqual(status, 400, body)
                    self.assertIn("400", told["responses"])
                    failure = document["components"]["schemas"]["Failure"]
                    self.assertEqual(list(mismatches(json.loads(body), failure, document)), [])
                    other = "GET" if method == "post" else "POST"
                    self.assertEqual(self.ask(other, path)[0], 405)


if __name__ == "__main__":
    BUILD, SLOW = Path(sys.argv[1]).resolve(), float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    unittest.main(argv=sys.argv[:1], verbosity=2)
