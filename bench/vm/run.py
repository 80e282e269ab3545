#!/usr/bin/env python3
"""Measures the VM door: calls from a guest over shared memory, compared with the same calls from a
host process over the same rings, from the guest over TCP and virtio-serial,
and OpenCL programs in both places.

usage: bench/vm/run.py [--scale 50] [--rounds 3] [--parts trip,table,curve,opencl] [--label NAME]

Needs `make build apps` and scripts/guest.sh. README.md defines each number. Writes
bench/results/vm/DATE-LABEL-COMMIT.{json,md,svg}.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "bench/opencl")]
import svg  # noqa: E402
from guest import Guest, ivshmem  # noqa: E402

BALTRA = os.environ.get("BALTRA", str(ROOT / "target/release/baltra"))
CALLER = ROOT / "target/vm/bin/caller"
FUNCTIONS = {"factorial": ("repeated-factorial", 51), "fibonacci": ("repeated-fibonacci", 93)}
# VirtFun's tables 1 and 2: repetitions per call, calls, and the paper's seconds.
COLUMNS = [(500_000_000, 1), (50_000_000, 10), (5_000_000, 100), (500_000, 1000), (250_000, 2000)]
PAPER = {
    "factorial": {
        "host": [16.40, 16.45, 16.79, 20.87, 26.02],
        "guest": [16.41, 16.57, 16.81, 21.44, 26.54],
        "each": [15.98, 16.52, 20.84, 65.40, 114.81],
    },
    "fibonacci": {
        "host": [19.68, 19.78, 20.03, 23.92, 29.62],
        "guest": [19.69, 19.80, 20.08, 24.87, 30.13],
        "each": [19.18, 19.79, 26.17, 70.99, 118.16],
    },
}
CURVE = [0, 100, 500, 1000, 2500, 5000, 10_000, 25_000, 100_000]
NAMES = {
    "host": "host–host, shared memory",
    "guest": "guest–host, shared memory",
    "serial": "guest, virtio-serial",
    "kept": "guest, TCP kept open",
    "each": "guest, TCP, connect a call",
}
OPENCL = [
    "sobel --size 640x360 --repeat 10",
    "sobel --repeat 5",
    "matmul --n 256 --repeat 10",
    "matmul --n 512 --repeat 5",
]
# Number of rounds in which transports other than the region are measured, at the end of each round.
SLOW_ROUNDS = 2
SLOWER_MAX = 0.028


class Bench:
    def __init__(self, home):
        self.home = pathlib.Path(home)
        self.log = (self.home / "log").open("wb")
        quiet = {"stdin": subprocess.DEVNULL, "stdout": self.log, "stderr": self.log}
        self.daemon = subprocess.Popen(
            [
                BALTRA,
                "--runtime-dir",
                self.home / "run",
                "vfun",
                "--state-dir",
                self.home / "state",
                "--functions",
                ROOT / "target/functions",
            ],
            **quiet,
        )
        while not (self.home / "run/vfun.sock").exists():
            assert self.daemon.poll() is None, (self.home / "log").read_text()
            time.sleep(0.02)
        functions = "empty-native,repeated-factorial,repeated-fibonacci"
        attached = self.attach("guest", functions)
        self.attach("host", functions)
        self.socket = self.home / "run/vm/host.sock"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.server = subprocess.Popen([CALLER, "serve", str(self.port)], **quiet)
        port = self.home / "port"
        self.guest = Guest("guest", ivshmem(attached), net=True, serial=port).ready()
        self.port_server = subprocess.Popen([CALLER, "port", str(port)], **quiet)
        self.serial = "/dev/" + self.guest.command("ls /sys/class/virtio-ports").split()[0]

    def attach(self, name, functions):
        command = [
            BALTRA,
            "--runtime-dir",
            self.home / "run",
            "vm",
            "attach",
            name,
            "--functions",
            functions,
            "--json",
        ]
        return json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )

    def call(self, transport, function, n, repetitions, calls, idle_us=0):
        """One round of calls: the output of caller.c."""
        where = {"host": f"unix:{self.socket}", "guest": "-", "serial": self.serial}
        where = where.get(transport, f"10.0.2.2:{self.port}")
        kind = "vfun" if transport in ("host", "guest") else transport
        words = ["call", kind, where, function, n, repetitions, calls, 1, idle_us]
        if transport == "host":
            text = subprocess.run(
                [CALLER, *map(str, words)], check=True, capture_output=True, text=True
            ).stdout
        else:
            text = self.guest.command("caller " + " ".join(map(str, words)))
        return json.loads(text.strip().splitlines()[-1])

    def floor(self):
        """The lower bound of a round trip between two cores of this host: caller.c's `floor`."""
        text = subprocess.run(
            [CALLER, "floor", "100000"], check=True, capture_output=True, text=True
        ).stdout
        return json.loads(text)

    def end(self):
        self.guest.kill()
        for process in (self.server, self.port_server, self.daemon):
            process.terminate()
            process.wait()


def least(rounds):
    return min(r["total_s"] for r in rounds)


def trips(bench, rounds):
    """The empty function: awake, and after both have slept."""
    result = {}
    for _ in range(rounds):
        result.setdefault("floor", []).append(bench.floor())
        for transport in ("host", "guest"):
            awake = bench.call(transport, "empty-native", 0, 0, 50_000)
            result.setdefault(f"{transport} awake", []).append(awake)
            slept = bench.call(transport, "empty-native", 0, 0, 60, 10_000)
            result.setdefault(f"{transport} slept", []).append(slept)
        for transport in ("serial", "kept", "each"):
            result.setdefault(f"{transport}", []).append(
                bench.call(transport, "empty-native", 0, 0, 200)
            )
    return result


def table(bench, scale, rounds):
    """The paper's tables. Host and guest are measured directly after each other, in alternating
    order, so that other load of the machine affects both."""
    result = {}
    for turn in range(rounds):
        for short, (name, n) in FUNCTIONS.items():
            for column, (repetitions, calls) in enumerate(COLUMNS):
                shared = ["host", "guest"] if turn % 2 else ["guest", "host"]
                others = ["serial", "kept", "each"] if turn < SLOW_ROUNDS else []
                for transport in shared + others:
                    got = bench.call(transport, name, n, repetitions // scale, calls)
                    result.setdefault(short, {}).setdefault(transport, [[] for _ in COLUMNS])[
                        column
                    ].append(got)
    values = {
        short: {r["value"] for t in of.values() for c in t for r in c}
        for short, of in result.items()
    }
    assert all(len(v) == 1 for v in values.values()), f"different results: {values}"
    return result


def curve(bench, rounds):
    """A call's time by its amount of work, for each transport."""
    result = {}
    for _ in range(rounds):
        for repetitions in CURVE:
            for transport in NAMES:
                calls = max(5, min(100, 2_000_000 // (repetitions + 10_000)))
                got = bench.call(transport, "repeated-factorial", 51, repetitions, calls)
                result.setdefault(transport, {}).setdefault(repetitions, []).append(got)
    return result


def opencl(bench, rounds):
    """OpenCL programs, the same binaries, on the host over its own socket and in a guest over the
    region."""
    home = bench.home / "opencl"
    (home / "lib").mkdir(parents=True)
    (home / "lib/libOpenCL.so.1").symlink_to(ROOT / "target/release/libbaltra_opencl.so")
    (home / "config").write_text("")
    quiet = {"stdin": subprocess.DEVNULL, "stdout": bench.log, "stderr": bench.log}
    endpoint = f"unix:{home}/run/baltra.sock"
    manager = subprocess.Popen(
        [
            BALTRA,
            "manager",
            "--runtime-dir",
            home / "run",
            "--state-dir",
            home / "state",
            "--config",
            home / "config",
            "--set",
            "metrics.address=",
        ],
        **quiet,
    )
    door = subprocess.Popen(
        [
            BALTRA,
            "--runtime-dir",
            home / "run",
            "vfun",
            "--state-dir",
            home / "state",
            "--functions",
            ROOT / "target/functions",
            "--endpoint",
            endpoint,
        ],
        **quiet,
    )
    for name in ("baltra.sock", "vfun.sock"):
        while not (home / "run" / name).exists():
            assert manager.poll() is None and door.poll() is None, (bench.home / "log").read_text()
            time.sleep(0.02)
    words = [
        BALTRA,
        "--runtime-dir",
        home / "run",
        "vm",
        "attach",
        "opencl",
        "--opencl",
        "--memory",
        "128M",
        "--parts",
        "2",
        "--json",
    ]
    attached = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    guest = Guest("opencl", ivshmem(attached)).ready()
    environment = {"LD_LIBRARY_PATH": str(home / "lib"), "BALTRA_ENDPOINT": endpoint}
    result = {}
    try:
        for turn in range(rounds):
            for program in OPENCL:
                for place in ("host", "guest") if turn % 2 else ("guest", "host"):
                    if place == "host":
                        name, *more = program.split()
                        text = subprocess.run(
                            [ROOT / "target/apps" / name, *more, "--json"],
                            env=environment,
                            check=True,
                            capture_output=True,
                            text=True,
                        ).stdout
                    else:
                        text = guest.command(
                            f"LD_LIBRARY_PATH=/opencl BALTRA_TRANSPORT=ivshmem /opencl/{program} "
                            "--json"
                        )
                    got = json.loads(text.strip().splitlines()[-1])
                    result.setdefault(program, {}).setdefault(place, []).append(got)
        for program, of in result.items():
            sums = {got["checksum"] for rounds_ in of.values() for got in rounds_}
            assert len(sums) == 1, f"{program}: different checksums: {sums}"
    finally:
        guest.kill()
        for process in (door, manager):
            process.terminate()
            process.wait()
    return result


def median(rounds, key):
    return statistics.median(r[key] for r in rounds)


def report(result):
    """Returns Markdown, and a chart or None."""
    meta, out, picture = result["meta"], [], None
    out.append(f"# The VM door, {meta['date']}\n")
    out.append(
        f"{meta['cpu']}, {meta['cores']} cores, commit {meta['commit']}; guests under QEMU's "
        "emulation (TCG), which has "
        f"no hardware support; medians, and minimum totals, of {meta['rounds']} alternating "
        "rounds; load before the run "
        f"{meta['load']}.\n"
    )
    if "trip" in result:
        trip = result["trip"]
        out.append("The empty function, a round trip:\n")
        out.append(
            "| what | min µs | p50 µs | p90 µs | p99 µs | promise, p50 | "
            "|\n|---|--:|--:|--:|--:|---|---|"
        )
        asked = {"guest awake": 0.5, "guest slept": 60.0}
        for what, rounds in trip.items():
            numbers = [median(rounds, f"{key}_us") for key in ("min", "p50", "p90", "p99")]
            limit = asked.get(what)
            verdict = "" if limit is None else "met" if numbers[1] <= limit else "**not met**"
            words = (
                NAMES.get(what)
                or what == "floor"
                and "one word between two cores, there and back"
                or f"{NAMES[what.split()[0]]}, "
                f"{'both awake' if 'awake' in what else 'both had slept'}"
            )
            out.append(
                f"| {words} | "
                + " | ".join(f"{v:.2f}" for v in numbers)
                + f" | {'' if limit is None else f'≤ {limit:g} µs'} | {verdict} |"
            )
        out.append("")
    if "table" in result:
        scale = meta["scale"]
        for short, (_, n) in FUNCTIONS.items():
            of = result["table"][short]
            heads = [f"{repetitions // scale:,}×{calls}" for repetitions, calls in COLUMNS]
            out.append(
                f"{short}({n}), seconds, minimum of {meta['rounds']} (the paper's repetitions "
                f"divided by {scale}):\n"
            )
            out.append("| | " + " | ".join(heads) + " |\n|---|" + "--:|" * len(heads))
            for transport, name in NAMES.items():
                out.append(
                    f"| {name} | " + " | ".join(f"{least(c):.4f}" for c in of[transport]) + " |"
                )
            work = [min(r["min_us"] for r in c) for c in of["host"]]
            out.append("| work a call, µs | " + " | ".join(f"{w:,.0f}" for w in work) + " |")
            cells, paper = [], []
            for column, (_, calls) in enumerate(COLUMNS):
                host, guest = (least(of[t][column]) for t in ("host", "guest"))
                slower = guest / host - 1
                if work[column] >= 400:
                    cells.append(
                        f"{slower:+.1%} {'met' if slower <= SLOWER_MAX else '**not met**'}"
                    )
                else:
                    cells.append(f"{slower:+.1%}, {(guest - host) / calls * 1e6:+.1f} µs a call")
                paper.append(
                    f"{PAPER[short]['guest'][column] / PAPER[short]['host'][column] - 1:+.1%}"
                )
            out.append("| guest over host (≤ 2.8 % from 400 µs on) | " + " | ".join(cells) + " |")
            out.append("| paper |  " + " | ".join(paper) + " |")
            for transport in ("each", "kept", "serial"):
                times = [
                    f"{least(of[transport][c]) / least(of['guest'][c]):.2f} ×"
                    for c in range(len(COLUMNS))
                ]
                out.append(f"| {NAMES[transport]} over guest–host | " + " | ".join(times) + " |")
            ours = [
                f"{PAPER[short]['each'][c] / PAPER[short]['guest'][c]:.2f} ×"
                for c in range(len(COLUMNS))
            ]
            out.append("| network / guest–host in the paper |  " + " | ".join(ours) + " |\n")
    if "curve" in result:
        of = result["curve"]
        series = {}
        out.append("Time of a call by its number of repetitions (factorial(51)), p50 µs:\n")
        out.append(
            "| repetitions | "
            + " | ".join(NAMES.values())
            + " | connect/shared | kept/shared |\n|--:|"
            + "--:|" * 7
        )
        for repetitions in CURVE:
            p50 = {t: median(of[t][repetitions], "p50_us") for t in NAMES}
            work = min(r["min_us"] for r in of["host"][repetitions])
            for transport in NAMES:
                series.setdefault(NAMES[transport], []).append((work, p50[transport]))
            out.append(
                f"| {repetitions:,} | "
                + " | ".join(f"{p50[t]:,.1f}" for t in NAMES)
                + f" | {p50['each'] / p50['guest']:.1f} × | {p50['kept'] / p50['guest']:.1f} × |"
            )
        out.append(
            "\nPromised: at least 4.3 × faster than a connection per call up to 200 µs of work, "
            "and than a kept-open "
            "connection up to 40 µs.\n"
        )
        picture = svg.chart(
            "A call's time by its work",
            "work in the call, µs (least, host–host)",
            "p50, µs",
            series,
        )
    if "opencl" in result:
        out.append(
            "OpenCL programs, write + kernel + read, ms: minimum and median of the runs, and the "
            "guest's overhead:\n"
        )
        out.append(
            "| program | host, minimum | guest, minimum | host, median | guest, median | guest "
            "over host, minimum; median | bytes |"
        )
        out.append("|---|--:|--:|--:|--:|--:|---|")
        for program, of in result["opencl"].items():
            least_ms = {
                p: min(got["total_ms"]["min"] for got in rounds_) for p, rounds_ in of.items()
            }
            median_ms = {
                p: statistics.median(got["total_ms"]["median"] for got in rounds_)
                for p, rounds_ in of.items()
            }
            out.append(
                f"| {program} | {least_ms['host']:.2f} | {least_ms['guest']:.2f} | "
                f"{median_ms['host']:.2f} | "
                f"{median_ms['guest']:.2f} | {least_ms['guest'] / least_ms['host'] - 1:+.0%}; "
                f"{median_ms['guest'] / median_ms['host'] - 1:+.0%} | the same |"
            )
        out.append("")
    return "\n".join(out) + "\n", picture


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=int, default=50, help="divisor of the paper's repetitions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="trip,table,curve,opencl")
    parser.add_argument("--label", default=platform.node().split(".")[0] or "host")
    parser.add_argument(
        "--merge", type=pathlib.Path, help="an earlier result of this commit to complete"
    )
    options = parser.parse_args()

    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in open("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        "?",
    )
    date = datetime.date.today().isoformat()
    result = json.loads(options.merge.read_text()) if options.merge else {}
    result["meta"] = {
        "date": date,
        "commit": commit,
        "cpu": cpu,
        "cores": os.cpu_count(),
        "scale": options.scale,
        "rounds": options.rounds,
        "load": os.getloadavg()[0],
    }
    with tempfile.TemporaryDirectory(prefix="baltra-vm-bench-") as home:
        bench = Bench(home)
        try:
            for part in options.parts.split(","):
                began = time.monotonic()
                if part == "trip":
                    result["trip"] = trips(bench, options.rounds)
                elif part == "table":
                    result["table"] = table(bench, options.scale, options.rounds)
                elif part == "curve":
                    result["curve"] = curve(bench, options.rounds)
                elif part == "opencl":
                    result["opencl"] = opencl(bench, options.rounds)
                else:
                    sys.exit(f"error: unknown part '{part}'")
                print(f"{part}: {time.monotonic() - began:.0f} s", file=sys.stderr)
        finally:
            bench.end()
    # Converts keys to strings, as they are after reading the JSON again.
    if "curve" in result:
        result["curve"] = {
            t: {int(k): v for k, v in of.items()} for t, of in result["curve"].items()
        }
    text, picture = report(result)
    base = ROOT / "bench/results/vm" / f"{date}-{options.label}-{commit}"
    base.parent.mkdir(parents=True, exist_ok=True)
    base.with_name(base.name + ".json").write_text(json.dumps(result, indent=1) + "\n")
    base.with_name(base.name + ".md").write_text(text)
    if picture:
        base.with_name(base.name + ".svg").write_text(picture)
    print(text)


if __name__ == "__main__":
    main()
