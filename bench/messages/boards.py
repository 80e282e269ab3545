#!/usr/bin/env python3
"""Reproduces the paper's tables 1 to 4 and figures 11 and 12: fabric in cycles,
processes with live boards.

usage: bench/messages/boards.py [--empty 300] [--each 3] [--label NAME] [--live FILE [--only-live]]

Needs scripts/setup.sh fabric, `make build` and `make humboldt`. README.md defines each number.
Writes bench/results/messages/DATE-LABEL-COMMIT-boards.{json,md} and two SVGs.
"""

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/opencl"), str(ROOT / "hdl/syn")]
import svg  # noqa: E402

CYCLE_US = 6.4e-3
ENVELOPE, CLEAR, DATA, EAGER, ERROR, DONE = range(6)
# The four packets of a message: each packet that enters the board, with the one that replies to it.
SEND = [("in", ENVELOPE), ("out", CLEAR), ("in", DATA), ("out", DONE)]
RECEIVE = [("out", ENVELOPE), ("in", CLEAR), ("out", DATA), ("in", DONE)]
PAPER_US = {
    "same board": (0.2, 0.2),
    "two boards": (5.7, 15.2),
    "send": (27.5, 48.8),
    "receive": (34.7, 81.2),
}
SIZES = [64 * 4**i for i in range(7)]


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, **options
    )
    if done.returncode != 0:
        sys.exit(
            f"error: {' '.join(map(str, command))}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return done.stdout + done.stderr


def benches():
    """{bench: {name: number}} of hdl/messages' benches, which fail if a promise is missed."""
    found = {}
    for name in ("msg_fabric-0", "msg_fabric-1", "msg_router-0"):
        text = run("make", "-C", ROOT / "hdl", f"test-{name}")
        found[name] = {
            what: float(value)
            for what, value in re.findall(r"^cycles (.*) ([0-9.e+-]+)$", text, re.M)
        }
        if not found[name]:
            sys.exit(f"error: {name} printed no cycles")
    return found


def area():
    """Rows of hdl/syn/messages.py: module, its name in the paper, and LUT, FF, block RAM,
    each with the paper's value."""
    done = subprocess.run(
        [sys.executable, ROOT / "hdl/syn/messages.py"], capture_output=True, text=True
    )
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in done.stdout.splitlines()
        if line.startswith("| msg")
    ]
    if not rows:
        sys.exit(f"error: hdl/syn/messages.py:\n{done.stdout}{done.stderr}")
    return rows


def live(comm, empty, each):
    """Calls of the process, as (kind, bytes, began, ended), and the board's trace,
    as (way, time, cycle, type)."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        arguments = f"args: {empty} {each} {256 << 10}"
        source = ROOT / "bench/messages/board.c"
        (folder / "logical.yaml").write_text(
            f"kernel: [{{name: process, num: 0, source: board.c, {arguments}}}, {{name: kernel, "
            f"num: 1, source: board.c, type: hls, {arguments}}}]\n"
        )
        (folder / "board.c").write_text(source.read_text())
        nodes = [
            f"{{type: {kind}, comm: {comm}, mac: '02:00:00:00:00:0{n}', ip: 127.0.0.{n}, kernel: "
            f"{n - 1}}}"
            for n, kind in ((1, "sw"), (2, "hw"))
        ]
        (folder / "map.yaml").write_text(f"node: [{', '.join(nodes)}]\n")
        trace = folder / "trace"
        text = run(
            ROOT / "target/release/baltra",
            "cluster",
            "run",
            "--quiet",
            "--out",
            ROOT / f"target/bench/messages/{comm}",
            folder / "logical.yaml",
            folder / "map.yaml",
            env={**os.environ, "HUM_TRACE": str(trace), "HUM_SPIN_US": "100000"},
            timeout=500,
        )
        calls = [
            (kind, int(size), int(began), int(ended))
            for kind, size, began, ended in re.findall(
                r"^\[0\] (send|receive) (\d+) (\d+) (\d+)$", text, re.M
            )
        ]
        events = [line.split() for line in trace.read_text().splitlines()]
        return calls, [
            (way, int(time), int(cycle), int(kind))
            for way, time, cycle, kind, *_ in events
            if int(kind) <= DONE
        ]


def empties(kind, calls, events):
    """For each message without payload: total time, host part and model part in µs,
    and the fabric's cycles."""
    steps = SEND if kind == "send" else RECEIVE
    rest = [e for e in events if (e[0], e[3]) in steps]
    found = []
    for _, size, began, ended in (c for c in calls if c[0] == kind and c[1] == 0):
        four, rest = rest[:4], rest[4:]
        if [(e[0], e[3]) for e in four] != steps:
            sys.exit(f"error: expected the four packets of a message for {kind}, got {four}")
        times, cycles = [e[1] for e in four], [e[2] for e in four]
        if kind == "send":
            host = (times[0] - began) + (times[2] - times[1]) + (ended - times[3])
            model, fabric, whole = (
                (times[1] - times[0]) + (times[3] - times[2]),
                (cycles[1] - cycles[0]) + (cycles[3] - cycles[2]),
                ended - began,
            )
        else:
            host = (times[1] - times[0]) + (times[3] - times[2])
            model, fabric, whole = times[2] - times[1], cycles[2] - cycles[1], times[3] - times[0]
        found.append(
            {
                "whole_us": whole / 1e3,
                "host_us": host / 1e3,
                "model_us": model / 1e3,
                "cycles": fabric,
            }
        )
    return found


def spread(values):
    values = sorted(values)
    return {
        "median": statistics.median(values),
        "least": values[0],
        "p90": values[int(len(values) * 0.9)],
        "all": values,
    }


def cell(s, digits=1):
    return f"{s['median']:.{digits}f} ({s['least']:.{digits}f}–{s['p90']:.{digits}f})"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--empty", type=int, default=300, help="messages without payload, each way")
    parser.add_argument("--each", type=int, default=3, help="messages of each size, each way")
    parser.add_argument("--label", default=platform.node() or "host")
    parser.add_argument(
        "--live", type=Path, help="file with measurements of live boards; created if missing"
    )
    parser.add_argument(
        "--only-live",
        action="store_true",
        help="create only this file: the part that needs an idle host",
    )
    options = parser.parse_args()
    subprocess.run(["make", "-s", "-C", ROOT / "humboldt"], check=True)
    if options.live and options.live.exists():
        boards = json.loads(options.live.read_text())
    else:
        boards = {comm: live(comm, options.empty, options.each) for comm in ("eth", "tcp")} | {
            "load": os.getloadavg()[0]
        }
        if options.live:
            options.live.write_text(json.dumps(boards))
    if options.only_live:
        return
    fabric, modules = benches(), area()
    latency, rates = {}, {}
    for comm in ("eth", "tcp"):
        calls, events = boards[comm]
        for kind in ("send", "receive"):
            rows = empties(kind, calls, events)
            latency[comm, kind] = {what: spread([row[what] for row in rows]) for what in rows[0]}
            rates[comm, kind] = {
                size: spread(
                    [
                        size / (ended - began) * 1e3
                        for k, s, began, ended in calls
                        if k == kind and s == size
                    ]
                )
                for size in sorted({s for k, s, *_ in calls if k == kind and s > 0})
            }
    git = lambda *words: subprocess.run(
        ["git", "-C", ROOT, *words], capture_output=True, text=True
    ).stdout.strip()
    commit = git("rev-parse", "--short=10", "HEAD") + (
        "-dirty" if git("status", "--porcelain") else ""
    )
    date = datetime.date.today().isoformat()
    cycles = {name: value for each in fabric.values() for name, value in each.items()}

    def of(start):
        return next(value for name, value in cycles.items() if name.startswith(start))

    same, eager = of("same board, no payload, four"), of("same board, no payload, eager")
    two = {"eth": of("two boards, Ethernet, no payload"), "tcp": of("two boards, TCP, no payload")}
    lines = [
        f"# Messages with boards, {date}, {commit}",
        "",
        f"{os.cpu_count()} cores, Linux {platform.release()}, load {boards['load']:.1f}; "
        f"{options.empty} messages without payload and {options.each} of each size, "
        "each way. Fabric in cycles of 6.4 ns, from the benches of hdl/messages; medians "
        "(minimum–90th percentile). bench/messages/README.md defines host time.",
        "",
        "## Table 1 and 2: area, by synthesis for UltraScale",
        "",
        "| module | name in the paper | LUT, paper | FF, paper | block RAM, paper |",
        "|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in modules]
    lines += [
        "",
        "The paper's hypervisor and TCP bridge (29,146 LUT) belong to a shell, which these modules "
        "exclude.",
        "",
        "## Table 3: a message without payload, four packets",
        "",
        "| message | Ethernet, µs | paper | TCP, µs | paper |",
        "|---|---|---|---|---|",
        f"| two kernels, same board ({same:.0f} cycles; eager {eager:.0f}) | {same * CYCLE_US:.3f} "
        f"| 0.2 (29 cycles) | {same * CYCLE_US:.3f} | 0.2 |",
        f"| two kernels, two boards ({two['eth']:.0f} and {two['tcp']:.0f} cycles; without the "
        f"wire) | {two['eth'] * CYCLE_US:.2f} | 5.7 | {two['tcp'] * CYCLE_US:.2f} | 15.2 |",
    ]
    for kind, text in (("send", "process to kernel"), ("receive", "kernel to process")):
        e, t = latency["eth", kind], latency["tcp", kind]
        paper = PAPER_US[kind]
        lines.append(
            f"| {text}: host time | {cell(e['host_us'])} | {paper[0]} | {cell(t['host_us'])} | "
            f"{paper[1]} |"
        )
        lines.append(
            f"| … the fabric's part, between its frames | {e['cycles']['median'] * CYCLE_US:.2f} "
            f"({e['cycles']['median']:.0f} cycles) | | {t['cycles']['median'] * CYCLE_US:.2f} "
            f"({t['cycles']['median']:.0f} cycles) | |"
        )
        lines.append(
            f"| … the model's time for those cycles | {cell(e['model_us'])} | | "
            f"{cell(t['model_us'])} | |"
        )
        lines.append(
            f"| … total wall-clock time | {cell(e['whole_us'])} | | {cell(t['whole_us'])} | |"
        )
    lines += [
        "",
        "## Table 4: cycles of a packet in the bridges",
        "",
        "| bridge | out | in | paper, out and in |",
        "|---|---|---|---|",
        "| communication bridge | 1 | 1 | Ethernet 6 and 5, TCP 9 and 5 |",
        f"| Ethernet network bridge | {of('Ethernet bridge, out'):.0f} | "
        f"{of('Ethernet bridge, in'):.0f} | 7 and 12 |",
        f"| TCP network bridge | {of('TCP bridge, out'):.0f} | {of('TCP bridge, in'):.0f} | 177 "
        "and 199 |",
        "",
        "## Throughput with all kernels busy (96 on six boards: 16 on each)",
        "",
        "| messages | percent of line rate, without envelopes |",
        "|---|---|",
    ]
    lines += [f"| {name} | {value:.2f} |" for name, value in fabric["msg_router-0"].items()]
    lines += [
        "",
        "## Throughput between two boards, messages one after another",
        "",
        "In percent of the line without frame headers, gaps and "
        "envelopes; with a cable, or a store-and-forward switch; four kernels to four begin at "
        "once.",
        "",
        "| | bytes | Ethernet | TCP |",
        "|---|---|---|---|",
    ]
    for name, value in cycles.items():
        found = re.match(r"(cable|switch) Ethernet, (.*), percent of its ceiling at (\d+)", name)
        if found:
            lines.append(
                f"| {found[1]}, {found[2]} | {found[3]} | {value:.2f} | "
                f"{of(name.replace('Ethernet', 'TCP')):.2f} |"
            )
    curves = {}
    for name, value in cycles.items():
        found = re.match(r"curve (.*), percent of 10 Gb/s at (\d+)", name)
        if found:
            curves.setdefault(found[1], {})[int(found[2])] = value / 100 * 1250
    charts = {}
    for comm, figure, name in (("eth", "11", "Ethernet"), ("tcp", "12", "TCP")):
        columns = {"same board": curves["same board"], "two boards": curves[f"two boards, {name}"]}
        live_columns = {
            "process to kernel": rates[comm, "send"],
            "kernel to process": rates[comm, "receive"],
        }
        lines += [
            "",
            f"## Figure {figure}: throughput over {name}, MB/s of 1,250",
            "",
            "| bytes | same board | two boards | process to kernel, live model | kernel to "
            "process, live model |",
            "|---|---|---|---|---|",
        ]
        for size in sorted(columns["same board"]):
            cells = [f"{c[size]:.1f}" for c in columns.values()] + [
                f"{c[size]['median']:.2f}" if size in c else "" for c in live_columns.values()
            ]
            lines.append(f"| {size} | {' | '.join(cells)} |")
        charts[f"fig-{figure}-{name.lower()}"] = svg.chart(
            f"Throughput over {name}, between kernels at 156.25 MHz",
            "bytes",
            "MB/s",
            {title: sorted(c.items()) for title, c in columns.items()},
        )
    lines += [
        "",
        "Between kernels in cycles at 156.25 MHz; the paper's figures are at line rate. With "
        "processes by wall clock, which shows only the speed of the live "
        "model: it takes milliseconds for operations that the fabric completes in microseconds.",
    ]
    folder = ROOT / "bench/results/messages"
    stem = f"{date}-{options.label}-{commit}-boards"
    result = {
        "date": date,
        "commit": commit,
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "load": boards["load"]},
        "benches": fabric,
        "area": modules,
        "latency": {" ".join(key): value for key, value in latency.items()},
        "rates_mb_s": {" ".join(key): value for key, value in rates.items()},
    }
    (folder / f"{stem}.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / f"{stem}.md").write_text("\n".join(lines) + "\n")
    for name, text in charts.items():
        (folder / f"{stem}-{name}.svg").write_text(text)
    print("\n".join(lines))
    late = [
        (comm, kind)
        for (comm, kind), s in latency.items()
        if s["host_us"]["median"] >= PAPER_US[kind][comm == "tcp"]
    ]
    if late:
        sys.exit(f"host time exceeds the paper's: {late}")


if __name__ == "__main__":
    main()
