#!/usr/bin/env python3
"""The clients against the table of operations (clients/operations.json): each command that they
ask is there, with the fields that it has.

    operations_test.py
"""
import ast
import json
import re
import unittest
from pathlib import Path

CLIENTS = Path(__file__).resolve().parents[2] / "clients"
OPERATIONS = {each["name"]: each for each in json.loads(
    (CLIENTS / "operations.json").read_text(encoding="utf-8"))["operations"]}


def names(fields):
    """Of fields and of what is in them."""
    found = set()
    for field in fields:
        found |= {field["name"]} | names(field.get("fields", []))
    return found


def fields_of(name):
    return {field["name"] for field in OPERATIONS[name]["fields"]}


def asked_in_python():
    """(command, fields) of each call of ask() with a constant command."""
    tree = ast.parse((CLIENTS / "python" / "derate_client.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in ("ask", "_ask") or not node.args:
            continue
        if isinstance(node.args[0], ast.Constant):
            fields = {word.arg for word in node.keywords if word.arg not in (None, "on_line")}
            yield node.args[0].value, fields


def asked_in_c():
    """Commands that stand in the header, each with the fields that its function writes or reads."""
    text = (CLIENTS.parent / "src/wire/derate_client.h").read_text(encoding="utf-8")
    for body in re.split(r"\n}\n", text):
        commands = re.findall(r'\\"command\\":\\"([a-z-]+)\\"', body)
        commands += re.findall(r'"((?:tune|window)-[a-z-]+)"', body)
        fields = set(re.findall(r'\\"([a-z_]+)\\":', body)) - {"command", "ok", "error"}
        for command in commands:
            yield command, fields


class Clients(unittest.TestCase):
    def test_python_asks_what_there_is(self):
        asked = list(asked_in_python())
        self.assertGreater(len(asked), 7)
        for command, fields in asked:
            self.assertIn(command, OPERATIONS)
            self.assertLessEqual(fields, fields_of(command), command)

    def test_c_asks_and_reads_what_there_is(self):
        asked = list(asked_in_c())
        self.assertGreater(len(asked), 3)
        for command, fields in asked:
            self.assertIn(command, OPERATIONS)
            known = fields_of(command) | names(OPERATIONS[command]["answer"])
            self.assertLessEqual(fields, known, command)

    def test_nothing_is_beyond_a_user(self):
        for command, _ in [*asked_in_python(), *asked_in_c()]:
            self.assertIn(OPERATIONS[command]["role"], ("reader", "user"), command)


if __name__ == "__main__":
    unittest.main()
