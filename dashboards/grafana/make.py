#!/usr/bin/env python3
"""Makes Grafana's dashboards (derate-*.json, here), of the metrics in clients/metrics.json.

    make.py [--check]     --check: writes nothing, exit 1 where a file is not what this makes

In Grafana: Dashboards, New, Import; or a provider of files over this folder. Classic JSON, which
Grafana 9 and later import. Queries count on no recording rule and on no name of a scrape job.
"""
import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NODE = 'job=~"$job", instance=~"$instance"'
GPU = NODE + ', gpu=~"$gpu"'
# Who works there: the names are labels of derate_tenant_info. Prometheus renames its label
# `instance`, of MIG, to exported_instance.
NAMES = "user, namespace, pod, process"
WHO = (f"on (job, instance, uuid, tenant) group_left ({NAMES}) "
       f"max by (job, instance, uuid, tenant, {NAMES}) (derate_tenant_info)")
# The same of all that were there in the time shown; of one whose names have changed, one of them.
WHO_WAS = (f"on (job, instance, uuid, tenant) group_left ({NAMES}) topk by (job, instance, uuid, "
           f"tenant) (1, max by (job, instance, uuid, tenant, {NAMES}) "
           "(last_over_time(derate_tenant_info[$__range])))")
# Okabe-Ito.
BLUE, ORANGE, GREEN, RED = "#0072b2", "#e69f00", "#009e73", "#d55e00"
GREY = "#999999"


# --- parts ----------------------------------------------------------------------------------------

def query(expr, legend="", instant=False):
    return {"expr": expr, "legendFormat": legend, "instant": instant, "range": not instant}


def panel(kind, title, what, queries, unit="none", size=(12, 8), **more):
    """`more`: min, max, decimals and steps (of a threshold: [(from, colour)...]) of its values;
    options of its kind; custom ones of its lines."""
    defaults = {"unit": unit}
    for key in ("min", "max", "decimals", "noValue"):
        if key in more:
            defaults[key] = more[key]
    if "steps" in more:
        steps = [{"color": colour, "value": at} for at, colour in more["steps"]]
        defaults |= {"thresholds": {"mode": "absolute", "steps": steps},
                     "color": {"mode": "thresholds"}}
    elif kind == "timeseries":
        defaults["color"] = {"mode": "palette-classic-by-name"}
    elif kind == "stat":
        defaults["color"] = {"mode": "fixed", "fixedColor": BLUE}
    if "custom" in more:
        defaults["custom"] = more["custom"]
    targets = [{"refId": chr(ord("A") + i), "datasource": SOURCE, **each}
               for i, each in enumerate(queries)]
    out = {"type": kind, "title": title, "description": what, "datasource": SOURCE,
           "targets": targets, "fieldConfig": {"defaults": defaults, "overrides": []},
           "options": more.get("options", {}), "size": size}
    if "transformations" in more:
        out["transformations"] = more["transformations"]
    return out


def lines(title, what, queries, unit="none", stacked=False, **more):
    custom = {"lineWidth": 2, "fillOpacity": 20 if stacked else 0, "showPoints": "never",
              "spanNulls": False, "stacking": {"mode": "normal" if stacked else "none"}}
    options = {"legend": {"displayMode": "table", "placement": "bottom",
                          "calcs": ["lastNotNull", "mean"]},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    return panel("timeseries", title, what, queries, unit, custom=custom, options=options, **more)


def states(title, what, queries, names, **more):
    """A row of coloured times a series; `names`: [(text, colour)...] of the values 0, 1, 2..."""
    out = panel("state-timeline", title, what, queries, options={
        "showValue": "never", "rowHeight": 0.9,
        "legend": {"displayMode": "list", "placement": "bottom"}}, **more)
    out["fieldConfig"]["defaults"]["mappings"] = [
        {"type": "value", "options": {str(value): {"text": text, "color": colour, "index": value}
                                      for value, (text, colour) in enumerate(names)}}]
    return out


def figure(title, what, expr, unit="none", **more):
    options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
               "colorMode": "value", "graphMode": "none", "textMode": "value"}
    return panel("stat", title, what, [query(expr, instant=True)], unit, size=(4, 4),
                 options=options, **more)


def table(title, what, queries, columns, size=(24, 9)):
    """`columns`: of each query's value, its name and unit, in the order of the queries."""
    out = panel("table", title, what,
                [{**query(expr, instant=True), "format": "table"} for expr in queries], size=size,
                options={"showHeader": True})
    names = {f"Value #{chr(ord('A') + i)}": name for i, (name, _) in enumerate(columns)}
    out["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True, "job": True, "uuid": True},
                                       "renameByName": names, "indexByName": {}}}]
    out["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byName", "options": name},
         "properties": [{"id": "unit", "value": unit}]} for name, unit in columns]
    return out


def row(title):
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "size": (24, 1)}


def variable(name, label, expr, multi=True):
    return {"type": "query", "name": name, "label": label, "datasource": SOURCE,
            "query": f"label_values({expr})", "refresh": 2, "sort": 3, "multi": multi,
            "includeAll": multi, "allValue": ".*",
            "current": {"text": "All", "value": "$__all"} if multi else {"text": "", "value": ""}}


def dashboard(uid, title, what, panels, gpu=False, since="now-6h"):
    at = {"x": 0, "y": 0, "tallest": 0}
    placed = []
    for number, each in enumerate(panels, 1):
        each = dict(each)
        width, height = each.pop("size")
        if at["x"] + width > 24:
            at = {"x": 0, "y": at["y"] + at["tallest"], "tallest": 0}
        each |= {"id": number,
                 "gridPos": {"x": at["x"], "y": at["y"], "w": width, "h": height}}
        at["x"] += width
        at["tallest"] = max(at["tallest"], height)
        placed.append(each)
    variables = [{"type": "datasource", "name": "datasource", "label": "Prometheus",
                  "query": "prometheus"},
                 variable("job", "job", "derate_build_info, job"),
                 variable("instance", "node", 'derate_build_info{job=~"$job"}, instance')]
    if gpu:
        variables.append(variable("gpu", "GPU", f"derate_gpu_up{{{NODE}}}, gpu"))
    links = [{"title": "Derate", "type": "dashboards", "icon": "external link", "tooltip": "",
              "tags": ["derate"], "asDropdown": True, "targetBlank": False, "includeVars": True,
              "keepTime": True}]
    return {"uid": uid, "title": title, "description": what, "tags": ["derate", "gpu", "energy"],
            "schemaVersion": 39, "version": 1, "editable": True, "graphTooltip": 1,
            "timezone": "browser", "refresh": "30s", "time": {"from": since, "to": "now"},
            "templating": {"list": variables}, "annotations": {"list": []}, "links": links,
            "panels": placed}


# --- the dashboards -------------------------------------------------------------------------------

KWH = 3.6e6  # joules in one
# Energies come from counters, which Prometheus follows over a restart of derated: over the time
# shown by increase(), as a power by rate(). The saved share has one definition, that of derated
# (docs/saving.md): saved / (used + saved).
USED = "derate_gpu_energy_joules_total"
GOVERNED = "derate_gpu_governed_energy_joules_total"
AT_HIGHEST = "derate_gpu_at_highest_clock_energy_joules_total"
SD = "derate_gpu_at_highest_clock_energy_sd_joules_total"
NINETY = 1.645  # standard deviations


def counted(metric, how="increase", over="$__range", by=""):
    """The sum of a counter over the time shown, or of its rate."""
    return f"sum{by} ({how}({metric}{{{NODE}}}[{over}]))"


def saved(ends=0, **how):
    """`ends`: -1 and 1 for the ends of 90 %."""
    out = f"{counted(AT_HIGHEST, **how)} - {counted(GOVERNED, **how)}"
    if ends:
        out += f" {'+' if ends > 0 else '-'} {NINETY} * {counted(SD, **how)}"
    return f"({out})"


def saved_share(ends=0, **how):
    return f"{saved(ends, **how)} / ({counted(USED, **how)} + {saved(ends, **how)})"


def kwh(joules):
    return f"({joules}) / {KWH:.0f}"


def fleet():
    bad = [(None, GREEN), (1, RED)]
    return dashboard(
        "derate-fleet", "Derate / Fleet", "All GPUs: what they draw, what is saved, and which need "
        "attention.", [
            figure("GPUs that answer", "Of all that derated has.", f"sum(derate_gpu_up{{{NODE}}})"),
            figure("Governed", "By a policy, of those that answer.",
                   f"sum(derate_gpu_governed{{{NODE}}})"),
            figure("Need attention", "They do not answer, are not governed or restored as they "
                   "should be, or break their promise.",
                   f"sum(derate_gpu_needs_attention{{{NODE}}})", steps=bad),
            figure("Promises broken", "GPUs whose promise has been below for 30 s or longer.",
                   f'sum(derate_gpu_promise_state{{{NODE}, state="broken"}}) or vector(0)',
                   steps=bad),
            figure("Power now", "Of all boards.", f"sum(derate_gpu_power_watts{{{NODE}}})", "watt"),
            figure("Saved", "Estimated, in the time shown: saved / (used + saved). Energy that "
                   "was only observed has saved nothing.", saved_share(), "percentunit",
                   decimals=1),
            lines("Power by node", "Sums of the boards.",
                  [query(f"sum by (instance) (derate_gpu_power_watts{{{NODE}}})", "{{instance}}")],
                  "watt", stacked=True, min=0),
            lines("Estimated saving", "Power that is saved, with the ends that the estimate is "
                  "90 % sure between.",
                  [query(saved(ends, how="rate", over="15m"), legend)
                   for ends, legend in ((0, "saved"), (-1, "at least"), (1, "at most"))], "watt"),
            lines("Utilisation by node", "Mean of the GPUs.",
                  [query(f"avg by (instance) (derate_gpu_utilisation_ratio{{{NODE}}})",
                         "{{instance}}")], "percentunit", min=0, max=1),
            lines("Hottest GPU by node", "Of each node the hottest.",
                  [query(f"max by (instance) (derate_gpu_temperature_celsius{{{NODE}}})",
                         "{{instance}}")], "celsius"),
            table("GPUs", "One line a GPU.",
                  [f"sum by (job, instance, gpu, uuid) ({metric}{{{NODE}}})" for metric in (
                      "derate_gpu_power_watts", "derate_gpu_sm_clock_hertz",
                      "derate_gpu_utilisation_ratio", "derate_gpu_temperature_celsius",
                      "derate_gpu_expected_performance_ratio",
                      "derate_gpu_promised_performance_ratio", "derate_gpu_promise_below_seconds",
                      "derate_gpu_needs_attention")],
                  [("power", "watt"), ("clock", "hertz"), ("utilisation", "percentunit"),
                   ("temperature", "celsius"), ("performance", "percentunit"),
                   ("promised", "percentunit"), ("below its promise for", "s"),
                   ("needs attention", "none")]),
        ])


def node():
    promise = " + ".join(f'{value} * sum by (gpu) (derate_gpu_promise_state{{{GPU}, '
                         f'state="{state}"}})' for value, state in
                         ((0, "kept"), (1, "below"), (2, "broken"), (3, "not_known")))
    reasons = "sum by (gpu, reason) (rate(derate_gpu_throttle_seconds_total{%s}[5m])) > 0.01" % GPU
    return dashboard(
        "derate-node", "Derate / Node", "The GPUs of a node, one by one, and the service itself.", [
            row("GPUs"),
            table("Now", "One line a GPU, with its limits.",
                  [f"sum by (job, instance, gpu, uuid) ({metric}{{{GPU}}})" for metric in (
                      "derate_gpu_power_watts", "derate_gpu_set_power_limit_watts",
                      "derate_gpu_factory_power_limit_watts", "derate_gpu_sm_clock_hertz",
                      "derate_gpu_asked_sm_clock_hertz", "derate_gpu_bound_sm_clock_hertz",
                      "derate_gpu_highest_sm_clock_hertz", "derate_gpu_utilisation_ratio",
                      "derate_gpu_memory_utilisation_ratio", "derate_gpu_memory_used_bytes",
                      "derate_gpu_memory_bytes", "derate_gpu_temperature_celsius",
                      "derate_gpu_promised_performance_ratio", "derate_gpu_promise_below_seconds",
                      "derate_gpu_needs_attention")],
                  [("power", "watt"), ("limit set", "watt"), ("limit by default", "watt"),
                   ("clock", "hertz"), ("clock asked", "hertz"), ("clock bound", "hertz"),
                   ("highest clock", "hertz"), ("utilisation", "percentunit"),
                   ("memory bandwidth", "percentunit"), ("memory used", "bytes"),
                   ("memory", "bytes"), ("temperature", "celsius"),
                   ("promised", "percentunit"), ("below its promise for", "s"),
                   ("needs attention", "none")]),
            states("Promise", "Whether the promise of each GPU is kept, as derated judges it.",
                   [query(promise, "GPU {{gpu}}")],
                   [("kept", GREEN), ("below", ORANGE), ("broken", RED), ("not known", GREY)]),
            states("Governed", "Whether a policy governs the GPU.",
                   [query(f"sum by (gpu) (derate_gpu_governed{{{GPU}}})", "GPU {{gpu}}")],
                   [("observed", GREY), ("governed", BLUE)]),
            lines("Power", "That each board draws.",
                  [query(f"derate_gpu_power_watts{{{GPU}}}", "GPU {{gpu}}")], "watt", min=0),
            lines("SM clock", "As it is measured; what is asked for stands in the table.",
                  [query(f"derate_gpu_sm_clock_hertz{{{GPU}}}", "GPU {{gpu}}")], "hertz"),
            lines("Performance above the promise", "Estimated performance less what is promised; "
                  "below 0 it is below the promise.",
                  [query(f"derate_gpu_expected_performance_ratio{{{GPU}}} - on (job, instance, "
                         f"gpu, uuid) derate_gpu_promised_performance_ratio{{{GPU}}}",
                         "GPU {{gpu}}")], "percentunit"),
            lines("Utilisation", "Share of the time in which a kernel ran.",
                  [query(f"derate_gpu_utilisation_ratio{{{GPU}}}", "GPU {{gpu}}")], "percentunit",
                  min=0, max=1),
            lines("Memory utilisation", "Share of the time in which memory was read or written.",
                  [query(f"derate_gpu_memory_utilisation_ratio{{{GPU}}}", "GPU {{gpu}}")],
                  "percentunit", min=0, max=1),
            lines("Memory used", "That programs have.",
                  [query(f"derate_gpu_memory_used_bytes{{{GPU}}}", "GPU {{gpu}}")], "bytes", min=0),
            lines("Activity", "Share of the cycles in which a unit was busy, mean of the GPUs.",
                  [query(f"avg by (unit) (derate_gpu_activity_ratio{{{GPU}}})", "{{unit}}")],
                  "percentunit", min=0, max=1),
            lines("PCIe", "Data that the GPUs send and receive.",
                  [query(f"sum(derate_gpu_pcie_transmit_bytes_per_second{{{GPU}}})", "sent"),
                   query(f"sum(derate_gpu_pcie_receive_bytes_per_second{{{GPU}}})", "received")],
                  "binBps", min=0),
            lines("Temperature", "Of each GPU.",
                  [query(f"derate_gpu_temperature_celsius{{{GPU}}}", "GPU {{gpu}}")], "celsius"),
            lines("What holds clocks down", "Share of the time in which the driver names a reason.",
                  [query(reasons, "GPU {{gpu}} {{reason}}")], "percentunit", min=0, max=1),
            lines("Writes and refusals", "Settings written, and how often a rule stood against "
                  "what the policy wanted, a minute.",
                  [query(f"60 * rate(derate_gpu_writes_total{{{GPU}}}[10m])", "GPU {{gpu}} writes"),
                   query(f"60 * sum by (gpu, rule) (rate(derate_gpu_refusals_total{{{GPU}}}[10m])) "
                         "> 0", "GPU {{gpu}} {{rule}}")]),
            lines("Time at probing clocks", "Share of the governed time that is spent to learn.",
                  [query(f"rate(derate_gpu_probing_seconds_total{{{GPU}}}[1h])", "GPU {{gpu}}")],
                  "percentunit", min=0),
            row("The service"),
            lines("Own CPU", "Of one core.",
                  [query(f"rate(derate_process_cpu_seconds_total{{{NODE}}}[5m])", "{{instance}}")],
                  "percentunit", min=0),
            lines("Own memory", "Resident.",
                  [query(f"derate_process_resident_memory_bytes{{{NODE}}}", "{{instance}}")],
                  "bytes", min=0),
            lines("Lateness of rounds", "99th percentile of the last thousand.",
                  [query(f"derate_loop_lateness_p99_seconds{{{NODE}}}", "{{instance}}")], "s",
                  min=0),
            lines("Age of what is read", "The oldest reading of a GPU.",
                  [query(f"max by (instance) (derate_gpu_sample_age_seconds{{{NODE}}})",
                         "{{instance}}")], "s", min=0),
        ], gpu=True)


def job():
    energy = f"increase(derate_tenant_energy_joules_total{{{NODE}}}[$__range])"
    power = f"derate_tenant_power_watts{{{NODE}}}"
    return dashboard(
        "derate-job", "Derate / Jobs and users", "Whose watts these are: energy of the boards, "
        "divided among who works there.", [
            figure("Divided now", "Power that somebody bears.", f"sum({power})", "watt"),
            figure("Nobody's", "Power that no tenant bears: idle boards and what is unallocated.",
                   f"sum(derate_gpu_unallocated_power_watts{{{NODE}}})", "watt"),
            figure("Tenants", "In the newest tick.", f"sum(derate_gpu_tenants{{{NODE}}})"),
            lines("Power by user", "Of their tenants.",
                  [query(f"sum by (user) ({power} * {WHO})", "{{user}}")], "watt", stacked=True,
                  min=0, size=(24, 9)),
            lines("Power by namespace", "Of Kubernetes.",
                  [query(f'sum by (namespace) ({power} * {WHO}) and on (namespace) '
                         f'derate_tenant_info{{namespace!=""}}', "{{namespace}}")], "watt",
                  stacked=True, min=0),
            lines("Power by GPU", "Of their tenants.",
                  [query(f"sum by (instance, gpu) ({power})", "{{instance}} GPU {{gpu}}")], "watt",
                  stacked=True, min=0),
            table("Energy in this time", "By tenant, the largest first. What a tenant used before "
                  "its first scrape is not in it: derate bill has all.",
                  [kwh(f"topk(50, sum by (user, namespace, pod, process) ({energy} * {WHO_WAS}))")],
                  [("energy", "kwatth")]),
        ], since="now-24h")


def savings():
    by_gpu = " by (job, instance, gpu, uuid)"
    broken = counted("derate_gpu_promise_violation_seconds_total")
    governed = counted("derate_gpu_governed_seconds_total")
    return dashboard(
        "derate-savings", "Derate / Savings", "What is saved against the highest clock in the time "
        "shown, estimated, with the ends that it is 90 % sure between. Energy is of GPU boards "
        "only, without processors, memory and cooling. `derate savings` has days, users and money.",
        [
            figure("Used", "Of all boards.", kwh(counted(USED)), "kwatth", decimals=2),
            figure("Saved", "Estimated.", kwh(saved()), "kwatth", decimals=2),
            figure("At least", "Lower end.", kwh(saved(-1)), "kwatth", decimals=2),
            figure("At most", "Upper end.", kwh(saved(1)), "kwatth", decimals=2),
            figure("Share", "Saved / (used + saved). Energy that was only observed has saved "
                   "nothing.", saved_share(), "percentunit", decimals=1),
            figure("Of it governed", "Of what was used, by policies with an estimate.",
                   f"{counted(GOVERNED)} / {counted(USED)}", "percentunit", decimals=1),
            figure("Loss of performance", "Estimated, mean of the GPUs, since their service began.",
                   f"avg(derate_gpu_estimated_loss_ratio{{{NODE}}})", "percentunit", decimals=1),
            figure("Below the promise for", "Of the governed time, all GPUs together.",
                   f"{broken} / {governed}", "percentunit", decimals=1,
                   steps=[(None, GREEN), (0.01, ORANGE), (0.1, RED)]),
            figure("Below the promise", "All GPUs together.", broken, "s"),
            lines("Saved by node", "Power that is saved.",
                  [query(saved(how="rate", over="15m", by=" by (instance)"), "{{instance}}")],
                  "watt"),
            lines("Share saved by node", "Saved / (used + saved).",
                  [query(saved_share(how="rate", over="15m", by=" by (instance)"),
                         "{{instance}}")], "percentunit"),
            table("By GPU", "One line a GPU, in the time shown.",
                  [kwh(counted(USED, by=by_gpu)), kwh(saved(by=by_gpu)), saved_share(by=by_gpu),
                   saved_share(-1, by=by_gpu), saved_share(1, by=by_gpu),
                   kwh(counted(GOVERNED, by=by_gpu)),
                   f"sum{by_gpu} (derate_gpu_estimated_loss_ratio{{{NODE}}})"],
                  [("used", "kwatth"), ("saved", "kwatth"), ("share", "percentunit"),
                   ("at least", "percentunit"), ("at most", "percentunit"),
                   ("of governed", "kwatth"), ("performance lost", "percentunit")]),
        ], since="now-24h")


def main():
    stale = []
    for name, made in (("fleet", fleet()), ("node", node()), ("job", job()),
                       ("savings", savings())):
        path = HERE / f"derate-{name}.json"
        text = json.dumps(made, indent=1) + "\n"
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.exit(f"{', '.join(stale)}: not what make.py makes: run dashboards/grafana/make.py")


if __name__ == "__main__":
    main()
