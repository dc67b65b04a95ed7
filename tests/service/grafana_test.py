#!/usr/bin/env python3
"""Grafana's dashboards in dashboards/grafana: they are what make.py makes, have the form of
Grafana's classic dashboards, and ask for what derated serves. That a real Prometheus answers each
of their queries is in prometheus_test.py.

    grafana_test.py
"""
import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "dashboards/grafana"

# Keys of each object, those that must be there with '*': as in the JSON schema of dashboards that
# Grafana publishes (github.com/grafana/grafana-foundation-sdk, jsonschema/dashboard.jsonschema.json
# at 003f478), of which no other key is allowed.
KEYS = {
    "dashboard": "uid title description tags timezone editable graphTooltip time refresh "
                 "schemaVersion* version panels templating* annotations* links",
    "panel": "type* id targets title description transparent datasource gridPos links repeat "
             "transformations interval options fieldConfig",
    "row": "type* collapsed* id* panels* title gridPos datasource repeat",
    "gridPos": "h* w* x* y*",
    "fieldConfig": "defaults* overrides*",
    "defaults": "displayName description unit decimals min max mappings thresholds color links "
                "noValue custom",
    "thresholds": "mode* steps*",
    "step": "value* color*",
    "color": "mode* fixedColor seriesBy",
    "override": "matcher* properties*",
    "variable": "type* name* label hide description query datasource current multi options refresh "
                "sort includeAll allValue regex",
    "link": "title* type* icon* tooltip* url tags* asDropdown* targetBlank* includeVars* keepTime*",
    "datasource": "type uid",
}
VARIABLE_TYPES = {"query", "datasource"}
UNITS = {"none", "watt", "percentunit", "celsius", "hertz", "kwatth", "s", "bytes", "binBps"}


def dashboards():
    return {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(dashboard):
    return [each for each in dashboard["panels"] if each["type"] != "row"]


def queries(dashboard):
    return [target["expr"] for panel in panels(dashboard) for target in panel["targets"]]


class Dashboards(unittest.TestCase):
    def check_keys(self, kind, value, where):
        keys = KEYS[kind].split()
        must = {key.rstrip("*") for key in keys if key.endswith("*")}
        self.assertEqual(must - set(value), set(), f"{where}: missing of {kind}")
        self.assertEqual(set(value) - {key.rstrip("*") for key in keys}, set(), f"{where}: {kind}")

    def test_they_are_what_their_source_makes(self):
        done = subprocess.run([sys.executable, str(FOLDER / "make.py"), "--check"], text=True,
                              capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(dashboards()), 4)

    def test_they_have_grafanas_form(self):
        for name, dashboard in dashboards().items():
            self.check_keys("dashboard", dashboard, name)
            self.assertRegex(dashboard["uid"], r"^[\w-]{8,40}$")
            for link in dashboard["links"]:
                self.check_keys("link", link, name)
            for variable in dashboard["templating"]["list"]:
                self.check_keys("variable", variable, name)
                self.assertIn(variable["type"], VARIABLE_TYPES)
            ids = [panel["id"] for panel in dashboard["panels"]]
            self.assertEqual(len(ids), len(set(ids)), name)
            for panel in dashboard["panels"]:
                self.check_panel(panel, f"{name}: {panel['title']}")
            self.check_places(dashboard["panels"], name)

    def check_panel(self, panel, where):
        self.check_keys("gridPos", panel["gridPos"], where)
        if panel["type"] == "row":
            return self.check_keys("row", panel, where)
        self.check_keys("panel", panel, where)
        self.assertTrue(panel["description"].endswith("."), where)
        self.check_keys("fieldConfig", panel["fieldConfig"], where)
        defaults = panel["fieldConfig"]["defaults"]
        self.check_keys("defaults", defaults, where)
        self.assertIn(defaults["unit"], UNITS, where)
        for override in panel["fieldConfig"]["overrides"]:
            self.check_keys("override", override, where)
        if "color" in defaults:
            self.check_keys("color", defaults["color"], where)
        if "thresholds" in defaults:
            self.check_keys("thresholds", defaults["thresholds"], where)
            for step in defaults["thresholds"]["steps"]:
                self.check_keys("step", step, where)
        letters = [target["refId"] for target in panel["targets"]]
        self.assertEqual(len(letters), len(set(letters)), where)
        for target in panel["targets"]:
            self.check_keys("datasource", target["datasource"], where)

    def check_places(self, placed, where):
        taken = {}
        for panel in placed:
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24, where)
            for x in range(at["x"], at["x"] + at["w"]):
                for y in range(at["y"], at["y"] + at["h"]):
                    self.assertIsNone(taken.setdefault((x, y)), f"{where}: {panel['title']}")
                    taken[x, y] = panel["title"]

    def test_every_metric_is_served(self):
        served = {each["name"] for each in json.loads((ROOT / "clients/metrics.json").read_text())
                  ["metrics"]}
        for name, dashboard in dashboards().items():
            asked = set(re.findall(r"\bderate_\w+", " ".join(queries(dashboard))))
            self.assertGreaterEqual(len(asked), 5, name)
            unknown = {metric for metric in asked
                       if not {metric, metric.removesuffix("_info")} & served}
            self.assertEqual(unknown, set(), name)

    def test_every_query_has_its_variables(self):
        for name, dashboard in dashboards().items():
            known = {each["name"] for each in dashboard["templating"]["list"]} | {"__range"}
            for expr in queries(dashboard):
                self.assertEqual(set(re.findall(r"\$(\w+)", expr)) - known, set(), expr)


if __name__ == "__main__":
    unittest.main()
