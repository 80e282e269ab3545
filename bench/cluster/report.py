#!/usr/bin/env python3
"""Renders a result of run.py: tables, verdicts, charts, and the scenario of the simulator.

usage: bench/cluster/report.py RESULT.json
"""

import json
import math
import pathlib
import random
import statistics
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "opencl"))
import svg
from uses import CONNECTIONS, DEVICE_OF, NATIVE_DEVICE_OF, PLACEMENT, USES

LOADS = ["low", "medium", "high"]


def dump(result):
    """JSON with one record per line."""
    lists = ("records", "rising")
    rest = {key: value for key, value in result.items() if key not in lists}
    text = json.dumps(rest, indent=1)[:-2]
    for key in lists:
        text += (
            f',\n "{key}": [\n'
            + ",\n".join(json.dumps(record) for record in result.get(key, []))
            + "\n ]"
        )
    return text + "\n}\n"


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, round(p / 100 * (len(values) - 1)))] if values else 0.0


def latencies(values):
    return {
        "mean": statistics.fmean(values) if values else 0.0,
        "p50": percentile(values, 50),
        "p95": percentile(values, 95),
    }


class Row:
    """The load of a use on a system, over all rounds."""

    def __init__(self, result, use, load, system):
        records = [
            r
            for r in result["records"]
            if (r["use"], r["load"], r["system"]) == (use, load, system)
        ]
        self.seconds = sum(r["seconds"] for r in records)
        self.functions, self.devices = {}, {}
        device_of = NATIVE_DEVICE_OF if system == "native" else DEVICE_OF
        for node in PLACEMENT:
            part = [r["devices"][node] for r in records]
            tasks = sum(d["tasks"] for d in part)
            self.devices[node] = {
                "utilization": statistics.fmean(d["utilization"] for d in part) if part else 0.0,
                "task_ms": sum(d["task_ms"] * d["tasks"] for d in part) / max(1, tasks),
            }
        for number, device in device_of.items():
            part = [get(r["functions"], number) for r in records]
            values = [ms for f in part for ms in f["latency_ms"]]
            self.functions[number] = {
                **latencies(values),
                "all": values,
                "device": device,
                "failed": sum(f["failed"] for f in part),
                "served": len(values) / self.seconds if records else 0.0,
                "target": part[0]["target_per_s"] if part else 0.0,
            }
        # A use's tasks are equal, so a function's part of the busy time is its part of the
        # requests.
        for f in self.functions.values():
            together = sum(
                g["served"] for g in self.functions.values() if g["device"] == f["device"]
            )
            f["utilization"] = (
                self.devices[f["device"]]["utilization"] * f["served"] / together
                if together
                else 0.0
            )
        self.total = {
            **latencies([ms for f in self.functions.values() for ms in f["all"]]),
            "served": sum(f["served"] for f in self.functions.values()),
            "target": sum(f["target"] for f in self.functions.values()),
            "failed": sum(f["failed"] for f in self.functions.values()),
            "utilization": sum(d["utilization"] for d in self.devices.values()),
        }

    def cotenant_ms(self, number):
        """One task of the function that shares the device, or None if there is none."""
        device = self.functions[number]["device"]
        return self.devices[device]["task_ms"] if len(PLACEMENT[device]) > 1 else None


class Point:
    """One application on all devices at one rate, all rounds together."""

    def __init__(self, result, use, rate, system):
        records = [
            r for r in result["rising"] if (r["use"], r["rate"], r["system"]) == (use, rate, system)
        ]
        values = [ms for r in records for f in r["functions"].values() for ms in f["latency_ms"]]
        latency = latencies(values)
        self.mean, self.p50, self.p95 = latency["mean"], latency["p50"], latency["p95"]
        self.served = len(values) / sum(r["seconds"] for r in records)
        self.failed = sum(f["failed"] for r in records for f in r["functions"].values())
        # Summed over three devices, as in the thesis: up to 300 %.
        self.utilization = statistics.fmean(
            sum(d["utilization"] for d in r["devices"].values()) for r in records
        )


def rates_risen(result, use):
    return sorted({r["rate"] for r in result.get("rising", []) if r["use"] == use})


def rising_section(result):
    uses = [use for use in USES if rates_risen(result, use.name)]
    if not uses:
        return []
    pace = result["options"]["pace"]
    most = (
        ", ".join(f"{3e3 / (use.task_ms * pace):.0f} rq/s of {use.name}" for use in uses)
        if pace
        else ""
    )
    lines = [
        "## One application on three devices, with rising load (figures 6.4 to 6.9)",
        "",
        f"{CONNECTIONS} connections; natively two per server."
        + (
            f" The devices are paced to the thesis's task times: three of them take at most {most}."
            if pace
            else ""
        ),
        "",
        "| use | sent rq/s | | served rq/s | utilization of three % | mean ms | p50 | p95 | failed "
        "|",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for use in uses:
        for rate in rates_risen(result, use.name):
            for system, name in (("Baltra", "baltra"), ("native", "native")):
                p = Point(result, use.name, rate, name)
                lines.append(
                    f"| {use.name} | {rate:g} | {system} | {p.served:.1f} | {p.utilization:.1f} | "
                    f"{p.mean:.2f} | {p.p50:.2f} | {p.p95:.2f} | {p.failed} |"
                )
    lines += [
        "",
        "Highest throughput, compared with the thesis:",
        "",
        "| use | figures | Baltra | thesis, BlastFunction | native | thesis, native |",
        "|---|---|---|---|---|---|",
    ]
    for use in uses:
        most = {
            name: max(
                (Point(result, use.name, rate, name) for rate in rates_risen(result, use.name)),
                key=lambda p: p.served,
            )
            for name in ("baltra", "native")
        }
        best = {
            name: f"{p.served:.1f} rq/s at {p.utilization:.1f} %, {p.mean:.1f} ms"
            for name, p in most.items()
        }
        lines.append(
            f"| {use.name} | {use.figures[0]}, {use.figures[1]} | {best['baltra']} | "
            f"{use.figures[2]} | {best['native']} | {use.figures[3]} |"
        )
    return [*lines, ""]


def figures(result):
    """Figures 6.4 to 6.9: utilization and mean latency over the requests that were served."""
    found = {}
    for use in USES:
        rates = rates_risen(result, use.name)
        if not rates:
            continue
        points = {
            name: [Point(result, use.name, rate, name) for rate in rates]
            for name in ("baltra", "native")
        }
        for figure, what, title, unit in (
            (use.figures[0], "utilization", "utilization of three devices", "%"),
            (use.figures[1], "mean", "mean latency", "ms"),
        ):
            series = {
                system: sorted((p.served, getattr(p, what)) for p in points[name])
                for system, name in (("Baltra", "baltra"), ("native", "native"))
            }
            found[f"figure-{figure}"] = svg.chart(
                f"Figure {figure}. {use.name}: {title}",
                "requests served a second",
                unit,
                series,
                log_x=False,
                log_y=False,
            )
    return {name: text for name, text in found.items() if text}


def get(mapping, number):
    return mapping[number] if number in mapping else mapping[str(number)]


def loads_of(result, use):
    return [
        load
        for load in LOADS
        if any((r["use"], r["load"]) == (use, load) for r in result["records"])
    ]


def mark(good):
    return "met" if good else "**not met**"


def use_section(result, use):
    functions = [
        f"## {use.name}, function by function (table {use.table.split(' and ')[0]})",
        "",
        "| load | function | device | | utilization % | mean ms | p50 | p95 | served rq/s | target "
        "| p95 limit | |",
        "|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    totals = [
        f"## {use.name}, together (table {use.table.split(' and ')[1]})",
        "",
        "| load | | utilization % | mean ms | p50 | p95 | served rq/s | target | failed | thesis: "
        "served, mean ms, utilization % | more served than native | p95 ≤ native + one task |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|---|---|---|",
    ]
    for load in loads_of(result, use.name):
        baltra, native = (Row(result, use.name, load, system) for system in ("baltra", "native"))
        held = limits(baltra, native)
        for system, row in (("Baltra", baltra), ("native", native)):
            for number, f in row.functions.items():
                promise, verdict = "", ""
                if system == "Baltra" and number in held:
                    promise, verdict = f"≤ {held[number]:.2f}", mark(f["p95"] <= held[number])
                elif system == "Baltra":
                    promise = f"(native {f['p95'] - native.functions[number]['p95']:+.2f})"
                functions.append(
                    f"| {load} | {use.name}-{number} | {f['device']} | {system} | "
                    f"{f['utilization']:.2f} | {f['mean']:.2f} | {f['p50']:.2f} | "
                    f"{f['p95']:.2f} | {f['served']:.2f} | {f['target']:g} | {promise} | {verdict} |"
                )
        task = max(d["task_ms"] for d in baltra.devices.values())
        for system, row, (served, mean, utilization) in zip(
            ("Baltra", "native"), (baltra, native), use.thesis[load]
        ):
            t = row.total
            verdicts = "| |"
            if system == "Baltra":
                verdicts = (
                    f"| {mark(t['served'] > native.total['served'])} "
                    f"({t['served'] / native.total['served']:.2f} ×) | "
                    f"{mark(t['p95'] <= native.total['p95'] + task)} (≤ "
                    f"{native.total['p95'] + task:.2f}) |"
                )
            totals.append(
                f"| {load} | {system} | {t['utilization']:.2f} | {t['mean']:.2f} | {t['p50']:.2f} "
                f"| {t['p95']:.2f} | {t['served']:.2f} | "
                f"{t['target']:g} | {t['failed']} | {served}, {mean}, {utilization} {verdicts}"
            )
    return [*totals, "", *functions, ""]


def loads_section(result):
    lines = [
        "## Loads (table 6.2), requests a second",
        "",
        "| use | load | 1 (b) | 2 (a) | 3 (c) | 4 (a) | 5 (b) |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for use in USES:
        for load in loads_of(result, use.name):
            lines.append(
                f"| {use.name} | {load} | "
                + " | ".join(f"{rate * result['options']['factor']:g}" for rate in use.loads[load])
                + " |"
            )
    return [*lines, ""]


def calibration(result, use):
    """The time of a task on device c, and the additional time of a request at the function that is
    alone there (interquartile range)."""
    rows = [Row(result, use, load, "baltra") for load in loads_of(result, use)]
    task = statistics.median(row.devices["c"]["task_ms"] for row in rows)
    beside = [ms - task for row in rows for ms in row.functions[3]["all"]]
    return task, max(0.0, percentile(beside, 25)), max(0.001, percentile(beside, 75))


def due(use, load, round_, rates, seconds):
    """The times at which each function's requests are due: at equal intervals, as a load tester
    sends them. The phase of each function is drawn again every second, because collisions on a
    shared device depend on it."""
    found = {}
    for number, rate in rates.items():
        numbers = random.Random(f"{use} {load} {round_} {number}")
        times = []
        for second in range(math.ceil(seconds)):
            at = second + numbers.random() / rate
            while at < min(second + 1, seconds):
                times.append(round(at, 6))
                at += 1 / rate
        found[number] = times
    return found


def rates_of(result, use, load):
    rates = next(u.loads for u in USES if u.name == use)[load]
    return {number: rate * result["options"]["factor"] for number, rate in enumerate(rates, 1)}


def trace(result, use, load):
    """The requests of all rounds, one round after another."""
    o = result["options"]
    length = o["warmup"] + o["seconds"]
    lines = []
    for round_ in range(o["rounds"]):
        for number, times in due(use, load, round_, rates_of(result, use, load), length).items():
            lines += [(at + round_ * length, f"{use}-{number}") for at in times]
    return "".join(f"{at:.6f},{name}\n" for at, name in sorted(lines))


def scenario(result, use, load=None):
    """The run as a scenario of `baltra simulate`: steady loads,
    or one load with its exact requests."""
    task, low, high = calibration(result, use)
    o = result["options"]
    seconds = o["rounds"] * (o["warmup"] + o["seconds"])
    lines = [
        f"# The {use} rows of the live run of {result['date']} at {result['machine']['commit']}: "
        "its loads; the time of a task and the",
        "# additional time of a request (interquartile range), measured at the function that has "
        "device c to itself.",
        f"name: {use}, five functions on three nodes",
        *(
            ["trace: trace.csv", f"duration_s: {seconds}"]
            if load
            else ["duration_s: 310", "warmup_s: 10"]
        ),
        f"gate: {{policy: {o['policy']}, quantum_ms: {o['quantum']:g}, isolation: session, slots: "
        f"1}}",
        "nodes:",
    ]
    lines += [
        f"  - {{name: {node}, devices: [{{name: board-{node}, exclusive: false}}]}}"
        for node in PLACEMENT
    ]
    lines.append("functions:")
    for number, device in DEVICE_OF.items():
        lines += [
            f"  - name: {use}-{number}",
            f"    query: name=board-{device}",
            "    tenant: functions",
            f"    service_ms: {{constant: {task:.3f}}}",
            f"    host_ms: {{uniform: [{low:.3f}, {high:.3f}]}}",
            f"    load: {{arrivals: {'trace' if load else 'constant'}, connections: 1}}",
        ]
    if not load:
        lines.append("cases:")
        for case in loads_of(result, use):
            lines.append(
                f"  {case}: {{"
                + ", ".join(
                    f"{use}-{n}: {rate:g}" for n, rate in rates_of(result, use, case).items()
                )
                + "}"
            )
    return "\n".join(lines) + "\n"


def simulated_section(result):
    lines = [
        "## The simulator compared with the live run",
        "",
        "The simulator's input is the time at which each request was due, and two times measured "
        "at function 3, which is alone on its",
        "device; it predicts the results of functions that share a device. The scenarios next to "
        "this file have steady loads.",
        "",
        "| use | load | function | served rq/s, live | simulated | mean ms, live | simulated | "
        "deviation | p95 ms, live | simulated | deviation |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    devices = [
        "| use | load | device | utilization %, live | simulated | apart |",
        "|---|---|---|--:|--:|--:|",
    ]
    apart = {"mean": [], "p95": [], "utilization": [], "served": []}
    for use, cases in result["simulated"].items():
        for load in loads_of(result, use):
            case, row = cases[load], Row(result, use, load, "baltra")
            for number, f in row.functions.items():
                s = next(x for x in case["functions"] if x["name"] == f"{use}-{number}")
                off = {key: s["latency_ms"][key] / f[key] - 1 for key in ("mean", "p95") if f[key]}
                for key, value in off.items():
                    apart[key].append(abs(value))
                apart["served"].append(
                    abs(s["processed_per_s"] / f["served"] - 1) if f["served"] else 0.0
                )
                lines.append(
                    f"| {use} | {load} | {number} ({f['device']}) | {f['served']:.2f} | "
                    f"{s['processed_per_s']:.2f} | {f['mean']:.2f} | {s['latency_ms']['mean']:.2f} "
                    "| "
                    f"{off.get('mean', 0):+.1%} | {f['p95']:.2f} | {s['latency_ms']['p95']:.2f} | "
                    f"{off.get('p95', 0):+.1%} |"
                )
            for node, d in row.devices.items():
                s = next(x for x in case["devices"] if x["id"].startswith(f"{node}/"))[
                    "utilization"
                ]
                apart["utilization"].append(abs(s - d["utilization"]))
                devices.append(
                    f"| {use} | {load} | {node} | {d['utilization']:.2f} | {s:.2f} | "
                    f"{s - d['utilization']:+.2f} |"
                )
    if not apart["mean"]:
        return []
    words = lambda key, unit: (
        f"median {statistics.median(apart[key]) * unit[0]:.1f} {unit[1]}, at most "
        f"{max(apart[key]) * unit[0]:.1f} {unit[1]}"
    )
    summary = [
        f"Deviations: utilization of a device {words('utilization', (1, 'points'))}; served "
        f"requests {words('served', (100, '%'))}; "
        f"mean latency {words('mean', (100, '%'))}; p95 {words('p95', (100, '%'))}.",
        "",
    ]
    return [*lines[:5], *summary, *lines[5:], "", *devices, ""]


def limits(baltra, native):
    """The limit of the p95 of each function that shares a device."""
    worst = max(f["p95"] for f in native.functions.values())
    shared = {number: baltra.cotenant_ms(number) for number in baltra.functions}
    return {
        number: (native.functions[number]["p95"] if number in native.functions else worst) + task
        for number, task in shared.items()
        if task is not None
    }


def verdicts(result):
    """A sentence with the number of rows that meet their targets."""
    more = p95 = rows = functions = kept = 0
    for use in USES:
        for load in loads_of(result, use.name):
            baltra, native = (
                Row(result, use.name, load, system) for system in ("baltra", "native")
            )
            more += baltra.total["served"] > native.total["served"]
            p95 += baltra.total["p95"] <= native.total["p95"] + max(
                d["task_ms"] for d in baltra.devices.values()
            )
            rows += 1
            held = limits(baltra, native)
            functions += len(held)
            kept += sum(baltra.functions[number]["p95"] <= limit for number, limit in held.items())
    return (
        f"More requests served than native: {more} of {rows} rows. p95 at most native's plus one "
        f"task of the co-tenant: {p95} of {rows} rows; "
        f"function by function, {kept} of the {functions} that share a device."
    )


def charts(result):
    found = {}
    for use in USES:
        loads = loads_of(result, use.name)
        if not loads:
            continue
        rows = {
            (load, system): Row(result, use.name, load, system)
            for load in loads
            for system in ("baltra", "native")
        }
        labels = {LOADS.index(load) + 1: load for load in loads}
        line = lambda system, get: [
            (LOADS.index(load) + 1, get(rows[load, system].total)) for load in loads
        ]
        for what, title, unit in (
            ("served", "requests served", "rq/s"),
            ("utilization", "utilization of three devices", "%"),
            ("p95", "95th percentile of latency", "ms"),
        ):
            series = {
                "Baltra, five functions": line("baltra", lambda t: t[what]),
                "native, three functions": line("native", lambda t: t[what]),
            }
            if what == "served":
                series["target, five"] = line("baltra", lambda t: t["target"])
                series["target, three"] = line("native", lambda t: t["target"])
            found[f"{use.name}-{what}"] = svg.chart(
                f"{use.name}: {title}",
                "load",
                unit,
                series,
                log_x=False,
                log_y=False,
                x_labels=labels,
            )
    return {name: text for name, text in found.items() if text}


def where(options):
    if options.get("kubernetes"):
        return (
            "a Kubernetes cluster of three nodes on this host (a kubelet, containerd and "
            "kube-proxy each, in network namespaces of their own), "
            "with everything except the load in Pods"
        )
    return "three nodes in network namespaces"


def driver_of(options):
    drivers = [
        text.split("=", 1)[1] for text in options["set"] if text.startswith("device.driver=")
    ]
    return drivers[-1] if drivers else "PoCL"


def render(result):
    o, m = result["options"], result["machine"]
    paces = "; ".join(
        f"{use.name} {use.task_ms * o['pace']:g} ms"
        for use in USES
        if loads_of(result, use.name) or rates_risen(result, use.name)
    )
    out = [
        f"# Functions on three devices, {result['date']}",
        "",
        f"{m['cpu']}, {m['cores']} cores for everything, kernel {m['kernel']}, commit "
        f"{m['commit']}; {where(o)}, {driver_of(o)} as each one's driver"
        f"{', every task paced to take at least: ' + paces if o['pace'] else ''}. The thesis's "
        f"loads × {o['factor']:g}; one connection a function, "
        f"as hey sends; {o['rounds']} rounds of {o['seconds']:g} s per row, alternating; gates: "
        f"{o['policy']}, quantum {o['quantum']:g} ms."
        + (
            " A quick run, which checks that everything runs, and is too short to quote."
            if o["quick"]
            else ""
        ),
        "",
        *([verdicts(result), ""] if result["records"] else []),
        *rising_section(result),
    ]
    if result["records"]:
        out += loads_section(result)
    for use in USES:
        if loads_of(result, use.name):
            out += use_section(result, use)
    return out + simulated_section(result)


def write(result, stem):
    """Writes STEM.md and STEM-*.svg; returns the Markdown."""
    out = render(result)
    for name, text in {**figures(result), **charts(result)}.items():
        path = stem.with_name(f"{stem.name}-{name}.svg")
        path.write_text(text)
        out.append(f"![{name}]({path.name})")
    text = "\n".join(out) + "\n"
    stem.with_name(stem.name + ".md").write_text(text)
    return text


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    source = pathlib.Path(sys.argv[1])
    print(write(json.loads(source.read_text()), source.with_suffix("")), end="")
