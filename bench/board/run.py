#!/usr/bin/env python3
"""Counts the cycles of the board and measures the speed of the live model.

usage: bench/board/run.py [--label NAME] [--no-live | --live-only]

Builds its dependencies (scripts/setup.sh board bench). README.md defines each number. The live part
needs root, for a network namespace. Writes bench/results/board/DATE-LABEL-COMMIT.{json,md}, and
charts of the cold starts next to it.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLOCK_MHZ = 156.25
COLD_BEYOND_MAX_US = 5  # maximum of a cold start in addition to the configuration port's own time
DATA = ROOT / "target" / "board"
sys.path[:0] = [str(ROOT / "hdl" / "board" / "tests"), str(ROOT / "bench" / "opencl")]
import harness  # noqa: E402
import svg  # noqa: E402
from nginx import configuration  # noqa: E402


def commit():
    text = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True
    )
    return text.stdout.strip() or "none"


NGINX = '  server { listen 127.0.0.1:8080; location / { return 200 "' + "x" * 64 + '"; } }\n'
ROUNDS, SECONDS = 3, 4


def wrk(connections, url):
    script = DATA / "call.lua"
    script.write_text('wrk.method = "POST"\nwrk.body = string.rep("x", 64)\n')
    text = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", "--latency", "-s", script, url],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        sys.exit(f"error: wrk reported failures:\n{text}")
    return {
        "requests_per_second": float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]),
        "p50": re.search(r"^\s+50%\s+(\S+)", text, re.M)[1],
        "p99": re.search(r"^\s+99%\s+(\S+)", text, re.M)[1],
    }


def cycles_and_time(process):
    """The model's cycles, from its own metrics, and the processor time that it has used."""
    text = subprocess.run(
        ["curl", "-sS", f"http://{harness.BOARD_IP}/metrics"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    ticks = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return int(re.search(r"^baltra_board_cycles_total (\d+)", text, re.M)[1]), sum(
        map(int, ticks)
    ) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def foremost():
    """Gives this session's programs precedence: Linux first divides processor time among sessions
    (sched_autogroup), regardless of the niceness of the programs within each session.
    """
    group = pathlib.Path("/proc/self/autogroup")
    if not group.exists():
        yield
        return
    before = group.read_text().split()[-1]
    group.write_text("-20")
    try:
        yield
    finally:
        group.write_text(before)


def live():
    """wrk with the model on a TAP device, alternating with nginx: wall clock, on shared cores."""
    out = {"model": {}, "nginx": {}}
    directory = DATA / "nginx"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "conf").write_text(configuration(directory, NGINX))
    for connections in (1, 16):
        rounds = {"model": [], "nginx": []}
        for _ in range(ROUNDS):
            with harness.Board(log="bench") as board:
                cycles, busy = cycles_and_time(board.process)
                row = wrk(connections, f"http://{harness.BOARD_IP}/function/echo")
                end, used = cycles_and_time(board.process)
            rounds["model"].append(row)
            row["simulated_mhz"] = ((end - cycles) % 2**32) / SECONDS / 1e6
            row["cores"] = (used - busy) / SECONDS
            nginx = subprocess.Popen(
                ["nginx", "-e", "stderr", "-c", str(directory / "conf")], stderr=subprocess.DEVNULL
            )
            try:
                time.sleep(0.5)
                rounds["nginx"].append(wrk(connections, "http://127.0.0.1:8080/"))
            finally:
                nginx.terminate()
                nginx.wait(10)
        for name, rows in rounds.items():  # the median round, with its other values
            rows.sort(key=lambda row: row["requests_per_second"])
            out[name][str(connections)] = dict(
                rows[ROUNDS // 2], all=[row["requests_per_second"] for row in rows]
            )
    return out


def cold_starts(rows):
    """Results at the latency of the rings' memory that is used for comparisons."""
    return [row for row in rows if row["measure"] == "cold" and row["memory_latency"] == 4]


def functions_report(rows):
    """The steps of a call, and cold starts by size of the image, as lines of Markdown."""
    lines = [
        "",
        "The steps of a 64-byte call, in cycles since its last byte arrived (memory latency 4; "
        "images at 40):",
        "",
        "| call | requested | configuration port, first and last word | swapped | region granted | "
        "reply complete | first byte out |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["measure"] != "steps" or row["memory_latency"] != 4:
            continue
        cold = row["call"] == "cold"
        port = f"{row['configuration_begins']} … {row['configuration_ends']}" if cold else "–"
        what = f"cold, {row['image_bytes']} bytes of image" if cold else "warm"
        lines.append(
            f"| {what} | {row['asked']} | {port} | {row['swapped'] if cold else '–'} | "
            f"{row['granted']} | {row['answered']} "
            f"| {row['first_byte_out']} |"
        )
    lines += [
        "",
        "Cold starts, from the last byte of a 64-byte request in to the first of the reply out "
        "(memory latency 4; images at 40). "
        "The configuration port accepts 4 bytes per cycle. Other connections keep the other "
        "regions busy with small calls:",
        "",
        "| image, bytes | other connections | cycles | the port's own part | beyond it, µs | "
        "total, µs | calls of the other connections in 1,000 cycles |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in cold_starts(rows):
        lines.append(
            f"| {row['image_bytes']} | {row['other_connections']} | {row['least']} to "
            f"{row['most']} | {row['image_bytes'] // 4} "
            f"| {row['beyond_the_port_in_microseconds']} | {row['microseconds_at_156.25_MHz']} | "
            f"{row['other_calls_per_1000_cycles']} |"
        )
    return lines


def cold_pictures(rows):
    """Cold starts by the image's size, alone and under load: {name: SVG}, for the total time and
    for the time in addition to the port's.
    """
    whole, beyond = {}, {}
    for row in cold_starts(rows):
        others = row["other_connections"]
        name = f"{others} connections keep the other regions busy" if others else "alone"
        whole.setdefault(name, []).append((row["image_bytes"], row["microseconds_at_156.25_MHz"]))
        beyond.setdefault(name, []).append(
            (row["image_bytes"], row["beyond_the_port_in_microseconds"])
        )
    sizes = {size: f"{size >> 10} KB" for line in whole.values() for size, _ in line}
    if not sizes:
        return {}
    whole["the configuration port's own"] = [(size, size / 4 / CLOCK_MHZ) for size in sizes]
    beyond["at most"] = [(size, COLD_BEYOND_MAX_US) for size in sizes]
    at = f"µs, cycles at {CLOCK_MHZ} MHz"
    return {
        "cold": svg.chart("A cold start by the image's size", "image", at, whole, x_labels=sizes),
        "cold-beyond-the-port": svg.chart(
            "Time beyond the configuration port's own",
            "image",
            at,
            beyond,
            log_y=False,
            x_labels=sizes,
        ),
    }


def port32_report(rows):
    """The lean board with its port of 32 bits, as lines of Markdown."""
    lines = [
        "",
        "The lean board with an Ethernet port of 32 bits, with independent clocks for the port and "
        "the 64-bit shell; cycles are the "
        "port's:",
        "",
        "| measure | port, shell, MHz | result |",
        "|---|---|---|",
    ]
    for row in rows:
        clocks = f"{row['port_mhz']:g}, {row['core_mhz']:g}"
        if row["measure"] == "latency":
            lines.append(
                f"| 64-byte echo, last word of the request in to first word of the reply out, "
                f"{row['calls']} calls | {clocks} "
                f"| {row['least']} to {row['most']} cycles, mean {row['mean']:g} ({row['us']:.2f} "
                "µs) |"
            )
        elif row["measure"] == "bulk":
            ways = "; ".join(
                f"{way} {row[way + '_cycles']} cycles, {100 * row[way + '_of_line']:.1f} % of the "
                "line, "
                f"{100 * row[way + '_of_ceiling']:.1f} % of the payload capacity of the line"
                for way in ("in", "out")
            )
            lines.append(
                f"| {row['body']} bytes, one connection, {row['segment']:,}-byte segments | "
                f"{clocks} | {ways} |"
            )
    return lines if rows else []


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--label", default=platform.node() or "host")
    which = arguments.add_mutually_exclusive_group()
    which.add_argument("--no-live", action="store_true")
    which.add_argument("--live-only", action="store_true")
    options = arguments.parse_args()
    if not options.no_live:
        harness.enter_namespace()

    rows, behind_port32 = [], []
    if not options.live_only:
        text = subprocess.run(
            [DATA / "bench-port32"], capture_output=True, text=True, check=True
        ).stdout
        behind_port32 = [json.loads(line) for line in text.splitlines()]
    # Images do not depend on the rings' memory; frames of 9,000 bytes only matter for bulk
    # transfers.
    for binary, latency, which in [
        ("bench", 4, []),
        ("bench-latency-32", 32, ["latency", "bulk", "calls"]),
        ("bench-jumbo", 4, ["bulk"]),
    ][: 0 if options.live_only else None]:
        text = subprocess.run(
            [DATA / binary, *which], capture_output=True, text=True, check=True
        ).stdout
        rows += [dict(json.loads(line), memory_latency=latency) for line in text.splitlines()]
    result = {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "clock_mhz": CLOCK_MHZ,
        "clock_is": "the rate of a 10 Gb/s line at 64 bits; not yet a result of place and route",
        "cycles": rows,
        "port32": behind_port32,
    }
    if not options.no_live:
        with foremost():
            result["live_wall_clock"] = live()
        result["host"] = {"cores": os.cpu_count(), "machine": platform.machine()}

    lines = [
        f"# The board in cycles, {result['date']}, {result['commit']}",
        "",
        f"64-bit shell, 16 sessions. Microseconds and calls per second are the cycles at "
        f"{CLOCK_MHZ} MHz, "
        "the rate of a 10 Gb/s line at this width, and not a result of place and route.",
        "",
        "| measure | memory latency, cycles | result |",
        "|---|---|---|",
    ]
    for row in rows:
        memory = row["memory_latency"]
        if row["measure"] == "latency":
            spread = ", ".join(f"{n} × {c}" for c, n in row["histogram"].items())
            lines.append(
                f"| 64-byte echo, last byte of the request in to first byte of the reply out, "
                f"{row['calls']} calls "
                f"| {memory} | {row['least']} to {row['most']} cycles, mean {row['mean']} "
                f"({row['mean'] / CLOCK_MHZ:.2f} µs); {spread} |"
            )
        elif row["measure"] == "host":
            lines.append(
                f"| 64-byte echo over the host port, doorbell to report, {row['calls']} calls | "
                f"{memory} | {row['least']} to {row['most']} cycles "
                f"({row['mean'] / CLOCK_MHZ:.2f} µs), of which twice {row['bus_latency']} are the "
                "assumed bus |"
            )
        elif row["measure"] == "bulk":
            for way in ("in", "out"):
                lines.append(
                    f"| {row['body']} bytes {way}, one connection, {row['segment']:,}-byte "
                    f"segments | {memory} "
                    f"| {row[way + '_cycles']} cycles, {100 * row[way + '_of_line']:.1f} % of the "
                    "line, "
                    f"{100 * row[way + '_of_ceiling']:.1f} % of the payload capacity of the line |"
                )
        elif row["measure"] == "calls":
            functions = row["functions"]
            regions = "" if functions == 1 else f", {functions} functions in as many regions"
            lines.append(
                f"| 64-byte echo, {row['connections']} connection{'s' * (row['connections'] > 1)}, "
                f"{row['depth']} in flight on each, "
                f"{row['requests_per_segment']} a segment{regions} | {memory} | "
                f"{row['cycles_per_call']} cycles a call, "
                f"{row['calls_per_second_at_156.25_MHz'] / 1e6:.2f} M calls/s; the limit of the "
                f"wire is {row['wire_bound_in_cycles']} cycles |"
            )
    lines += functions_report(rows) + port32_report(behind_port32)
    if options.live_only:
        lines = [f"# The live model, {result['date']}, {result['commit']}"]
    if not options.no_live:
        lines += [
            "",
            f"The live model, wall clock, wrk on the same {os.cpu_count()} cores (POST of 64 bytes "
            "to echo, keep-alive; nginx, one worker, "
            f"sends replies of the same size over the loopback device); median of {ROUNDS} "
            f"alternating rounds of {SECONDS} s:",
            "",
            "| server | connections | requests/s | all rounds | p50 | p99 | simulated MHz | cores "
            "used by the model |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for name, by_connections in result["live_wall_clock"].items():
            for connections, row in by_connections.items():
                rounds = ", ".join(f"{n:.0f}" for n in row["all"])
                own = (
                    f"{row['simulated_mhz']:.2f} | {row['cores']:.2f}"
                    if name == "model"
                    else "– | –"
                )
                lines.append(
                    f"| {name} | {connections} | {row['requests_per_second']:.0f} | {rounds} | "
                    f"{row['p50']} | {row['p99']} | {own} |"
                )
    out = ROOT / "bench" / "results" / "board"
    out.mkdir(parents=True, exist_ok=True)
    stem = out / f"{result['date']}-{options.label}{'-live' * options.live_only}-{result['commit']}"
    for name, picture in cold_pictures(rows).items():
        file = stem.with_name(f"{stem.name}-{name}.svg")
        file.write_text(picture)
        lines += ["", f"![]({file.name})"]
    text = "\n".join(lines) + "\n"
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    stem.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
