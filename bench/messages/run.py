#!/usr/bin/env python3
"""Measures messages between two software ranks, alternating with MPICH and Open MPI.

usage: bench/messages/run.py [--rounds 4] [--ms 12] [--label NAME]

Needs scripts/setup.sh bench and `make humboldt`. README.md defines each number. Writes
bench/results/messages/DATE-LABEL-COMMIT.{json,md} and two SVGs.
"""

import argparse
import datetime
import json
import os
import platform
import random
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/opencl"), str(ROOT / "humboldt/tests")]
import svg  # noqa: E402
from job import Job  # noqa: E402

OUT = ROOT / "target/bench/messages"
SOURCE = ROOT / "bench/messages/pingpong.c"
BYTES_MAX = 4 << 20
LATENCY_RATIO_MAX, BANDWIDTH_RATIO_MIN = 1.2, 0.9


def build():
    OUT.mkdir(parents=True, exist_ok=True)
    subprocess.run(["make", "-s", "-C", ROOT / "humboldt"], check=True)
    for compiler, name in (
        (ROOT / "humboldt/humcc", "humboldt"),
        ("mpicc.mpich", "mpich"),
        ("mpicc.openmpi", "openmpi"),
    ):
        # The same source and optimization for each.
        subprocess.run([compiler, "-O2", "-w", "-o", OUT / name, SOURCE], check=True)


def once(name, arguments):
    """{(kind, bytes): value} of one run."""
    command = [str(OUT / name), *arguments]
    if name == "humboldt":
        rank = Job([["taskset", "-c", str(core), *command] for core in range(2)], 2).wait(120)[0]
        text, code = rank.out, rank.code
    else:
        starter = (
            ["mpiexec.mpich", "-bind-to", "core"]
            if name == "mpich"
            else ["mpiexec.openmpi", "--allow-run-as-root", "--bind-to", "core"]
        )
        ended = subprocess.run(
            [*starter, "-n", "2", *command], capture_output=True, text=True, timeout=120
        )
        text, code = ended.stdout, ended.returncode
    if code != 0:
        sys.exit(f"error: {name} ended with {code}:\n{text}")
    rows = (line.split() for line in text.splitlines())
    return {(kind, int(size)): float(value) for kind, size, value in rows}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--ms",
        type=int,
        default=12,
        help="milliseconds for each number of each program in each round",
    )
    parser.add_argument("--label", default=platform.node() or "host")
    options = parser.parse_args()
    build()
    names = ["humboldt", "mpich", "openmpi"]
    values = {name: {} for name in names}
    # Another order in each round, so that none always follows the same.
    order = random.Random(1)
    for _ in range(options.rounds):
        for name in order.sample(names, len(names)):
            for key, value in once(name, [str(BYTES_MAX), str(options.ms)]).items():
                values[name].setdefault(key, []).append(value)

    def spread(name, key):
        each = values[name][key]
        return {
            "median": statistics.median(each),
            "least": min(each),
            "most": max(each),
            "all": each,
        }

    sizes = sorted({size for _, size in values["humboldt"]})
    git = lambda *words: subprocess.run(
        ["git", "-C", ROOT, *words], capture_output=True, text=True
    ).stdout.strip()
    commit = git("rev-parse", "--short=10", "HEAD") + (
        "-dirty" if git("status", "--porcelain") else ""
    )
    version = lambda package: (
        subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True
        ).stdout
    )
    result = {
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()},
        "mpich": version("mpich"),
        "openmpi": version("openmpi-bin"),
        "rounds": options.rounds,
        "ms": options.ms,
        "values": {
            name: [{"kind": k, "bytes": b, **spread(name, (k, b))} for k, b in values[name]]
            for name in names
        },
    }
    lines = [
        f"# Messages between two ranks of one host, {result['date']}, {commit}",
        "",
        f"{os.cpu_count()} cores, Linux {platform.release()}, MPICH {result['mpich']}, Open MPI "
        f"{result['openmpi']}; {options.rounds} rounds by "
        f"turns, medians (least–most).",
    ]
    charts = {}
    for kind, unit, digits in (("latency", "µs", 3), ("bandwidth", "MB/s", 0)):
        lines += [
            "",
            f"| bytes | {kind}, {unit} | MPICH | Open MPI | to MPICH, medians | best to best |",
            "|---|---|---|---|---|---|",
        ]
        kept = 0
        best = min if kind == "latency" else max
        for size in sizes:
            rows = [spread(name, (kind, size)) for name in names]
            cells = [
                f"{r['median']:.{digits}f} ({r['least']:.{digits}f}–{r['most']:.{digits}f})"
                for r in rows
            ]
            ratio = rows[0]["median"] / rows[1]["median"]
            bests = best(rows[0]["all"]) / best(rows[1]["all"])
            held = ratio <= LATENCY_RATIO_MAX if kind == "latency" else ratio >= BANDWIDTH_RATIO_MIN
            kept += held
            lines.append(
                f"| {size} | {' | '.join(cells)} | "
                f"{'' if held else '**'}{ratio:.2f}{'' if held else '**'} | {bests:.2f} |"
            )
        wanted = f"≤ {LATENCY_RATIO_MAX}" if kind == "latency" else f"≥ {BANDWIDTH_RATIO_MIN}"
        lines += ["", f"{wanted} × MPICH's at {kept} of {len(sizes)} sizes (medians)."]
        charts[kind] = svg.chart(
            f"{kind.capitalize()}, two ranks on one host",
            "bytes",
            unit,
            {
                title: [(size, spread(name, (kind, size))["median"]) for size in sizes]
                for title, name in (
                    ("HUMboldt", "humboldt"),
                    ("MPICH", "mpich"),
                    ("Open MPI", "openmpi"),
                )
            },
        )
    lines += ["", "The paper's MPICH on one CPU: 0.21 µs; about 60 GB/s at 512 KB."]
    folder = ROOT / "bench/results/messages"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{result['date']}-{options.label}-{commit}"
    (folder / f"{stem}.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / f"{stem}.md").write_text("\n".join(lines) + "\n")
    for kind, text in charts.items():
        (folder / f"{stem}-{kind}.svg").write_text(text)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
