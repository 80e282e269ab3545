#!/usr/bin/env python3
"""Area, clock and slack of the board on an ECP5-85 (speed grade 8), with the open flow.

    hdl/syn/shell.py [--mhz M] [--seeds S,…] [--logs FOLDER] [--mapped] [--label NAME] [--write]
    [DESIGN…] hdl/syn/shell.py --parts [--top MODULE] [DESIGN]
    hdl/syn/shell.py --paths [--mhz M] [DESIGN]
    hdl/syn/shell.py --check

Designs, each with 16 sessions and 64 bits, between shift registers instead of the chip's pins or a
MAC:

    net      TCP/IP alone (net_stack), without its rings
    board    the shell with two regions, echo and sobel in them,
             its rings of 4 KB in block RAM (board_top)
    lean     the same without features that few boards need (board/lean.conf): images from a store,
             with connections that the board
             opens; UDP; calls by the host, which can still upload functions; segments after gaps,
             which are retransmitted; a policy of the scheduler.
             Eight calls that wait for a region instead of 16
    port32   lean with an Ethernet port of 32 bits (board_port32): the port's clock has a constraint
             of 125 MHz, the shell's, which
             is 64 bits wide in all designs, of half of that, regardless of --mhz

Each is placed and routed with each seed (default 1 and 2), in parallel on all processors (10 to 60
minutes and 1.3 GB each); then its utilization of an UltraScale+ chip is counted after mapping,
without placing. --mapped omits the first step: minutes. --logs uses nextpnr's logs of the same
netlist from elsewhere, FOLDER/DESIGN-SEED.log, for the first step.

--parts maps MODULE (default board_top) with its hierarchy and lists the area of each module itself.
There is no optimization across module boundaries, so the sum exceeds the whole.

--paths maps DESIGN (default board) if necessary, and lists the slowest paths from module to module,
estimated (paths.py): candidates for shortening, without an hour of place and route.

--check only reads the designs: Yosys' front end refuses some constructs that Verilator accepts, for
example a name before its declaration.

--write stores the figures as bench/results/board/DATE-synthesis-COMMIT.{json,md},
with figures of other designs.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flow import HDL, INCLUDES, PART, TARGET, ecp5, harness, install, place, placed, synth, ultrascale, yosys
from paths import slowest

ROOT = HDL.parent
KERNELS = [
    f"common/rtl/{name}.sv"
    for name in ("kernel_control", "axis_skid", "axis_emit", "axis_packer", "axis_rows")
]
KERNELS += [f"kernels/rtl/kernel_{name}.sv" for name in ("output", "echo", "sobel")]
LEAN = dict(
    line.split("=")
    for line in (HDL / "board" / "lean.conf").read_text().splitlines()
    if not line.startswith("#")
)
# Top, sources in addition to those of the board, and parameters.
DESIGNS = {
    "net": ("net_stack", [], {}),
    "board": ("board_top", [*KERNELS, "syn/board_top.sv"], {}),
    "lean": ("board_top", [*KERNELS, "syn/board_top.sv"], LEAN),
    "port32": ("board_top", [*KERNELS, "syn/board_top.sv"], {**LEAN, "PORT": 32}),
}
# Designs with a constraint per clock, in MHz; and the ports in clock domains other than `clk`.
CLOCKS = {"port32": {"clk": 62.5, "port_clk": 125}}
PORT_CLK = {
    "port_clk": [
        f"{way}_{name}"
        for way in ("rx", "tx")
        for name in ("valid", "ready", "data", "keep", "last")
    ]
}
# Figures of other designs, each for a part of this one: LUT, FF, block RAM, clock;
# chips and tools differ unless noted.
ANCHORS = [
    (
        "verilog-ethernet, UDP and ARP, 8 bits (ECP5-45F, speed grade 6, the open flow)",
        6203,
        3014,
        None,
        "79 to 83 MHz",
    ),
    (
        "target: the 64-bit shell, 16 sessions, echo and sobel, this chip",
        30000,
        None,
        None,
        "at least 100 MHz",
    ),
]
ANCHORS_ULTRASCALE = [
    ("ETH's 10G TCP engine, 64 bits, 10,000 sessions", 13600, 13500, 508, "-"),
    ("Galapagos' network bridge for TCP (KU115)", 29146, 32582, 86, "156.25 MHz"),
    ("Galapagos' communication bridge for TCP (KU115)", 1039, 1585, 1, "156.25 MHz"),
    ("Galapagos' router, 16 ports (KU115)", 5067, 6310, 1, "156.25 MHz"),
    ("HUMboldt's send and receive (KU115)", 1569, 1444, 0, "156.25 MHz"),
]


def sources(more):
    names = [
        line
        for line in (HDL / "board" / "files.f").read_text().splitlines()
        if line and not line.startswith("//")
    ]
    return " ".join(
        str(HDL / name) for name in names + [name for name in more if name not in names]
    )


def read_command(design, options=""):
    top, more, parameters = DESIGNS[design]
    return f"read_slang --ignore-assertions {options} --top {top} {INCLUDES} {' '.join(f'-G {k}={v}' for k, v in parameters.items())} {sources(more)}"


def map_ecp5(design):
    """The design between its shift registers, mapped: work/DESIGN/harness.json."""
    top, work = DESIGNS[design][0], TARGET / "work" / design
    work.mkdir(parents=True, exist_ok=True)
    read = read_command(design)
    # The harness needs only the ports.
    yosys([read, "hierarchy -check", f"write_json -noscopeinfo {work}/ports.json"])
    (work / "harness.v").write_text(
        harness(top, work / "ports.json", PORT_CLK if design in CLOCKS else {})
    )
    yosys([read, f"read_verilog {work}/harness.v", *synth("harness", f"-json {work}/harness.json")])
    return work / "harness.json"


def show_paths(design, mhz):
    path = TARGET / "work" / design / "harness.json"
    changed = max(Path(name).stat().st_mtime for name in sources(DESIGNS[design][1]).split())
    if not path.exists() or path.stat().st_mtime < changed:
        path = map_ecp5(design)
    print(
        f"{'ns':>5} {'LUT':>4} {'ends over ' + f'{1000 / mhz:g} ns':>17}  slowest path, estimated"
    )
    for ns, luts, start, end, late in slowest(path, 1000 / mhz, 40):
        print(f"{ns:>5.1f} {luts:>4} {late:>17}  {start} to {end}")


def measure(design, seeds, mhz, logs):
    """Area and slowest path of the seed with the median clock (the lower of two),
    and all seeds' clocks."""
    top = DESIGNS[design][0]
    work = TARGET / "work" / design
    started = time.monotonic()
    map_ecp5(design)
    synthesized = time.monotonic()
    if logs:
        results = [placed((logs / f"{design}-{seed}.log").read_text()) for seed in seeds]
    else:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(
                pool.map(
                    lambda seed: place(work, "harness", seed, mhz, CLOCKS.get(design, {})), seeds
                )
            )
    mhz = CLOCKS.get(design, {}).get("clk", mhz)
    each = {
        clock: {
            "asked": target,
            "clocks": {seed: result["clocks"][clock] for seed, result in zip(seeds, results)},
        }
        for clock, target in CLOCKS.get(design, {}).items()
    }
    for seed, result in zip(seeds, results):
        clocks = result.pop("clocks")
        result["seed"], result["clock"] = (
            seed,
            clocks["clk"] if each else next(reversed(clocks.values())),
        )
    clocks = {result["seed"]: result["clock"] for result in results}
    result = sorted(results, key=lambda r: r["clock"])[(len(results) - 1) // 2]
    result["clocks"], result["clock"] = clocks, statistics.median(clocks.values())
    ports = json.loads((work / "ports.json").read_text())["modules"][top]["ports"]
    ports = [port for name, port in ports.items() if not name.endswith("_clk")]
    count = {
        way: sum(len(p["bits"]) for p in ports if p["direction"] == way)
        for way in ("input", "output")
    }
    result["ports"] = {"LUT": count["output"], "FF": count["input"] + count["output"]}
    result["slack_ns"] = round(1000 / mhz - 1000 / result["clock"], 2)
    if each:
        for clock in each.values():
            clock["slack_ns"] = {
                seed: round(1000 / clock["asked"] - 1000 / own, 2)
                for seed, own in clock["clocks"].items()
            }
        result["each"] = each
    result["synthesis_s"] = round(synthesized - started)
    if not logs:
        result["placement_s"] = round(time.monotonic() - synthesized)
    return result


def estimate(design):
    """UltraScale+, mapped; there is no open place and route for it."""
    top = DESIGNS[design][0]
    path = TARGET / "work" / design / "ultrascale.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    yosys(
        [
            read_command(design),
            f"synth_xilinx -family xcup -noiopad -noclkbuf -top {top}",
            f"tee -q -o {path} stat -json",
        ]
    )
    return ultrascale(json.loads(path.read_text())["design"]["num_cells_by_type"])


def parts(design, top):
    path = TARGET / "work" / f"parts-{top}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Parameters belong to the top; other modules have their defaults.
    read = (
        read_command(design, "--best-effort-hierarchy")
        if top == DESIGNS[design][0]
        else f"read_slang --ignore-assertions --best-effort-hierarchy --top {top} "
        f"{INCLUDES} {sources(DESIGNS[design][1])}"
    )
    yosys([read, *synth(top, "-noflatten"), f"tee -q -o {path} stat -json"])
    modules = {
        name.lstrip("\\"): ecp5(m["num_cells_by_type"])
        for name, m in json.loads(path.read_text())["modules"].items()
    }
    print(f"{'LUT':>6} {'FF':>6} {'RAM':>4} {'DSP':>4}  module")
    for name, m in sorted(modules.items(), key=lambda item: -item[1]["LUT"]):
        print(f"{m['LUT']:>6} {m['FF']:>6} {m['RAM']:>4} {m['DSP']:>4}  {name}")


def commit():
    text = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True
    )
    return text.stdout.strip() or "none"


def anchors(rows):
    number = lambda n: "-" if n is None else f"{n:,}"
    return [
        f"| {name} | {number(lut)} | {number(ff)} | {number(ram)} | {clock} |"
        for name, lut, ff, ram, clock in rows
    ]


def each_clock(results):
    """For designs with several clocks, a row for each clock, with the seeds in order."""
    rows = [
        (name, clock, c) for name, r in results.items() for clock, c in r.get("each", {}).items()
    ]
    if not rows:
        return []
    listed = lambda values: ", ".join(f"{value:g}" for value in values)
    return [
        "",
        "The slack of each clock, for designs with several independent clocks, seed by seed:",
        "",
        "| design | clock | constraint, MHz | MHz | slack, ns |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {clock} | {c['asked']:g} | {listed(c['clocks'].values())} | "
            f"{listed(c['slack_ns'].values())} |"
            for name, clock, c in rows
        ),
        "",
        *(
            f"The longest path between them in `{name}`, ns: "
            + ", ".join(f"{way} {ns:g}" for way, ns in r["crossings"].items())
            + "."
            for name, r in results.items()
            if "each" in r
        ),
    ]


def report(results, mhz, seeds):
    lines = [
        f"# The board, placed and routed, {datetime.date.today().isoformat()}, {commit()}",
        "",
        f"{PART}; Yosys and nextpnr, seeds {', '.join(map(str, seeds))}, constraint {mhz:g} MHz. "
        "The clock and its slack are the median "
        "of the seeds, whose clocks are in brackets; the slowest path is of the seed at the median "
        "(the lower of two). 16 sessions, 64 bits. "
        "LUT counts logic, carry and "
        "distributed memory. Ports are between shift registers, one flip-flop per input, one and a "
        "LUT per output; they are included in "
        "the figures, and their size is listed separately.",
        "",
        "| design | LUT | FF | block RAM | DSP | of these the ports' | MHz | slack, ns | slowest "
        "path |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, r in results.items():
        if "clock" in r:
            lines.append(
                f"| {name} | {r['LUT']} | {r['FF']} | {r['RAM']} | {r['DSP']} | "
                f"{r['ports']['LUT']} LUT, {r['ports']['FF']} FF "
                f"| {r['clock']:.1f} ({', '.join(f'{clock:.1f}' for clock in r['clocks'].values())}) | {r['slack_ns']} "
                f"| {' to '.join(part.split('_TRELLIS')[0] for part in r['slowest'])} |"
            )
    lines += each_clock(results)
    lines += [
        "",
        f"`lean` is `board` with {', '.join(f'{k} = {v}' for k, v in LEAN.items())} "
        "(hdl/board/rtl/board_shell.sv); "
        "`port32` is `lean` with a port of 32 bits; the shell's width is 64 in all designs.",
        "",
        "| for comparison | LUT | FF | block RAM | clock |",
        "|---|---|---|---|---|",
        *anchors(ANCHORS),
    ]
    lines += [
        "",
        "UltraScale+, mapped with `synth_xilinx -family xcup` and not placed, without the ports' "
        "registers; block RAM of "
        "36 Kbit. The other designs' figures are for parts of this design, on chips of that family "
        "or the previous one, by the vendor's tool:",
        "",
        "| design | LUT | FF | block RAM | clock |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {u['LUT']:,} | {u['FF']:,} | {u['RAM']:g} | no open tool |"
        for name, u in ((name, r["ultrascale"]) for name, r in results.items())
    ]
    return "\n".join(lines + anchors(ANCHORS_ULTRASCALE)) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mhz", type=float, default=100, help="the constraint of the clock")
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(seed) for seed in text.split(",")],
        default=[1, 2],
        metavar="S,…",
    )
    parser.add_argument(
        "--logs", type=Path, metavar="FOLDER", help="use nextpnr's logs from elsewhere"
    )
    parser.add_argument("--label", default="synthesis")
    parser.add_argument(
        "--mapped", action="store_true", help="only count for UltraScale+: no place and route"
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true", help="only read the designs")
    parser.add_argument("--parts", action="store_true", help="the area of each module")
    parser.add_argument("--paths", action="store_true", help="the slowest paths, estimated")
    parser.add_argument("--top", default="board_top", metavar="MODULE", help="of --parts")
    parser.add_argument("designs", nargs="*", metavar="DESIGN")
    options = parser.parse_args()
    unknown = set(options.designs) - set(DESIGNS)
    if unknown:
        parser.error(f"unknown design {', '.join(sorted(unknown))}: expected {', '.join(DESIGNS)}")
    install()
    if options.check:
        for design in DESIGNS:
            yosys([read_command(design), "hierarchy -check"])
        return
    if options.paths:
        show_paths((options.designs or ["board"])[0], options.mhz)
        return
    if options.parts:
        parts((options.designs or ["board"])[0], options.top)
        return
    results = {}
    for design in options.designs or DESIGNS:
        r = results[design] = (
            {} if options.mapped else measure(design, options.seeds, options.mhz, options.logs)
        )
        if r:
            target = CLOCKS.get(design, {}).get("clk", options.mhz)
            print(
                f"{design}: {r['LUT']} LUT, {r['FF']} FF, {r['RAM']} block RAM, {r['DSP']} DSP; "
                f"{r['clock']:.1f} MHz, slack "
                f"{r['slack_ns']} ns at {target:g} MHz; {r['synthesis_s']} s + "
                f"{r.get('placement_s', '-')} s",
                flush=True,
            )
        for clock, c in r.get("each", {}).items():
            print(
                f"{design}, {clock}: {', '.join(f'{own:.1f}' for own in c['clocks'].values())} "
                "MHz, slack of each clock "
                f"{', '.join(map(str, c['slack_ns'].values()))} ns at {c['asked']:g} MHz",
                flush=True,
            )
        u = r["ultrascale"] = estimate(design)
        print(
            f"{design}, UltraScale+, mapped: {u['LUT']} LUT, {u['FF']} FF, {u['RAM']:g} block RAM "
            f"of 36 Kbit, {u['DSP']} DSP",
            flush=True,
        )
    text = report(results, options.mhz, options.seeds)
    print("\n" + text)
    if options.write:
        stem = (
            ROOT
            / "bench"
            / "results"
            / "board"
            / f"{datetime.date.today().isoformat()}-{options.label}-{commit()}"
        )
        stem.with_suffix(".json").write_text(
            json.dumps(
                {"part": PART, "mhz": options.mhz, "seeds": options.seeds, "designs": results},
                indent=1,
            )
            + "\n"
        )
        stem.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
