#!/usr/bin/env python3
"""Area, clock and slack of the board on an ECP5-85 (speed grade 8), with the open flow.

    hdl/syn/shell.py [--mhz M] [--seed S] [--label NAME] [--write] [DESIGN…]
    hdl/syn/shell.py --parts [--top MODULE]
    hdl/syn/shell.py --check

Designs, each with 16 sessions and 64 bits, between shift registers where the chip's pins or a MAC would be:

    net      TCP/IP alone (net_stack), its rings outside
    board    the shell with two regions, echo and sobel in them, its rings of 8 KB in block RAM (board_top)

Each is placed and routed; then what it takes of an UltraScale+ chip is counted, mapped and not placed.

--parts maps MODULE (board_top, else) with its hierarchy kept and lists what is in each module itself. Nothing is optimized
across their boundaries there, so that the sum is more than the whole.

--check only reads the designs: Yosys' front end refuses some of what Verilator takes, a name before its declaration, say.

--write keeps the figures as bench/results/board/DATE-synthesis-COMMIT.{json,md}, beside the figures of others.
"""
import argparse
import datetime
import json
import subprocess
import time

from flow import HDL, PART, TARGET, ecp5, harness, install, place, ultrascale, yosys

ROOT = HDL.parent
KERNELS = [f"common/rtl/{name}.sv" for name in ("kernel_control", "axis_skid", "axis_emit", "axis_packer", "axis_rows")]
KERNELS += [f"kernels/rtl/kernel_{name}.sv" for name in ("echo", "sobel")]
# Top, and sources besides those of the board.
DESIGNS = {
    "net": ("net_stack", []),
    "board": ("board_top", [*KERNELS, "syn/board_top.sv"]),
}
# Others' figures, each for a part of this; the chips and the tools differ except where it says so.
ANCHORS = [
    ("verilog-ethernet, UDP and ARP, 8 bits (ECP5-45F, speed grade 6, the open flow)", "6,203 LUT, 3,014 FF", "79 to 83 MHz"),
    ("ETH's 10G TCP engine, 64 bits, 10,000 sessions", "13,600 LUT, 13,500 FF, 508 block RAM", "-"),
    ("Galapagos' TCP network bridge (UltraScale KU115)", "29,146 LUT, 32,582 FF, 86 block RAM", "156.25 MHz"),
    ("asked: the 64-bit shell, 16 sessions, echo and sobel, this chip", "at most 30,000 LUT", "at least 100 MHz"),
]


def sources(more):
    names = [line for line in (HDL / "board" / "files.f").read_text().splitlines() if line and not line.startswith("//")]
    return " ".join(str(HDL / name) for name in names + [name for name in more if name not in names])


def measure(design, seed, mhz):
    top, more = DESIGNS[design]
    work = TARGET / "work" / design
    work.mkdir(parents=True, exist_ok=True)
    read = f"read_slang --ignore-assertions --top {top} {sources(more)}"
    started = time.monotonic()
    # The ports are all that the harness needs.
    yosys([read, "hierarchy -check", f"write_json -noscopeinfo {work}/ports.json"])
    (work / "harness.v").write_text(harness(top, work / "ports.json"))
    yosys([read, f"read_verilog {work}/harness.v", f"synth_ecp5 -abc9 -top harness -json {work}/harness.json"])
    synthesized = time.monotonic()
    result = place(work, "harness", seed, mhz)
    result["clock"] = next(reversed(result.pop("clocks").values()))
    result["slack_ns"] = round(1000 / mhz - 1000 / result["clock"], 2)
    result["synthesis_s"], result["placement_s"] = round(synthesized - started), round(time.monotonic() - synthesized)
    return result


def estimate(design):
    """UltraScale+, mapped: there is no open place and route for it."""
    top, more = DESIGNS[design]
    path = TARGET / "work" / design / "ultrascale.json"
    yosys([f"read_slang --ignore-assertions --top {top} {sources(more)}", f"synth_xilinx -family xcup -noiopad -noclkbuf -top {top}",
           f"tee -q -o {path} stat -json"])
    return ultrascale(json.loads(path.read_text())["design"]["num_cells_by_type"])


def parts(top):
    path = TARGET / "work" / f"parts-{top}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    yosys([f"read_slang --ignore-assertions --best-effort-hierarchy --top {top} {sources(DESIGNS['board'][1])}",
           f"synth_ecp5 -abc9 -noflatten -top {top}", f"tee -q -o {path} stat -json"])
    modules = {name.lstrip("\\"): ecp5(m["num_cells_by_type"]) for name, m in json.loads(path.read_text())["modules"].items()}
    print(f"{'LUT':>6} {'FF':>6} {'RAM':>4} {'DSP':>4}  module")
    for name, m in sorted(modules.items(), key=lambda item: -item[1]["LUT"]):
        print(f"{m['LUT']:>6} {m['FF']:>6} {m['RAM']:>4} {m['DSP']:>4}  {name}")


def commit():
    text = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True)
    return text.stdout.strip() or "none"


def report(results, mhz, seed):
    lines = [
        f"# The board, placed and routed, {datetime.date.today().isoformat()}, {commit()}",
        "",
        f"{PART}; Yosys and nextpnr, seed {seed}, asked for {mhz} MHz; 16 sessions, 64 bits. LUT counts logic, carry and "
        "distributed memory. The shift registers at the ports are in the figures: one flip-flop an input, one and a LUT an output.",
        "",
        "| design | LUT | FF | block RAM | DSP | MHz | slack, ns | slowest path |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, r in results.items():
        lines.append(f"| {name} | {r['LUT']} | {r['FF']} | {r['RAM']} | {r['DSP']} | {r['clock']:.1f} | {r['slack_ns']} "
                     f"| {' to '.join(part.split('_TRELLIS')[0] for part in r['slowest'])} |")
    lines += ["", "UltraScale+, mapped with `synth_xilinx -family xcup` and not placed, block RAM of 36 Kbit:", "",
              "| design | LUT | FF | block RAM | DSP |", "|---|---|---|---|---|"]
    lines += [f"| {name} | {u['LUT']} | {u['FF']} | {u['RAM']:g} | {u['DSP']} |" for name, u in
              ((name, r["ultrascale"]) for name, r in results.items())]
    lines += ["", "| beside it | area | clock |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in ANCHORS]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mhz", type=float, default=100, help="the clock that is asked for")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--label", default="synthesis")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true", help="only read the designs")
    parser.add_argument("--parts", action="store_true", help="the area of each module")
    parser.add_argument("--top", default="board_top", metavar="MODULE", help="of --parts")
    parser.add_argument("designs", nargs="*", metavar="DESIGN")
    options = parser.parse_args()
    unknown = set(options.designs) - set(DESIGNS)
    if unknown:
        parser.error(f"no design {', '.join(sorted(unknown))}; there are {', '.join(DESIGNS)}")
    install()
    if options.check:
        for top, more in DESIGNS.values():
            yosys([f"read_slang --ignore-assertions --top {top} {sources(more)}", "hierarchy -check"])
        return
    if options.parts:
        parts(options.top)
        return
    results = {}
    for design in options.designs or DESIGNS:
        results[design] = measure(design, options.seed, options.mhz)
        r = results[design]
        print(f"{design}: {r['LUT']} LUT, {r['FF']} FF, {r['RAM']} block RAM, {r['DSP']} DSP; {r['clock']:.1f} MHz, slack "
              f"{r['slack_ns']} ns at {options.mhz:g} MHz; {r['synthesis_s']} s + {r['placement_s']} s", flush=True)
        u = r["ultrascale"] = estimate(design)
        print(f"{design}, UltraScale+, mapped: {u['LUT']} LUT, {u['FF']} FF, {u['RAM']:g} block RAM of 36 Kbit, {u['DSP']} DSP", flush=True)
    text = report(results, options.mhz, options.seed)
    print("\n" + text)
    if options.write:
        stem = ROOT / "bench" / "results" / "board" / f"{datetime.date.today().isoformat()}-{options.label}-{commit()}"
        stem.with_suffix(".json").write_text(json.dumps({"part": PART, "mhz": options.mhz, "seed": options.seed, "designs": results}, indent=1) + "\n")
        stem.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
