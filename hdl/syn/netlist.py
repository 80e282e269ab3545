#!/usr/bin/env python3
"""Unit benches against the netlists that the flow makes of their modules, in place of the RTL.

    hdl/syn/netlist.py [--seed S] [ROOM/MODULE[:WIDTH[,WIDTH…]] …]

Each module is mapped to an ECP5's cells exactly as the board is (flow.synth), with the parameters that its bench has, and the cells are
simulated (cells.v), without clocks that stand still: what fails then is a fault of the flow, or RTL that means something else to it
than to Verilator. A module is named as in ../tb.mk, of the board's rooms; without any, those of LIST. A bench runs some ten times as
long as with the RTL, and may take two minutes: net/net_stack's takes more. Left out are multipliers, and modules with arrays as ports,
which netlists have not.
"""
import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from flow import HDL, TARGET, install, synth, yosys

ROOMS = ["common", "functions", "kernels", "net", "http", "host", "board"]
LIST = [
    "common/axis_packer:64", "common/axis_rows:64", "functions/fn_scheduler:0", "functions/fn_table:0", "functions/region:64",
    "kernels/kernel_sobel:64", "net/net_parse:0", "net/tcp_lookup:16", "net/tcp_rx:0", "net/tcp_tx:0", "http/http_ahead:0",
    "http/http_parse:0",
]
WORK = TARGET / "netlist"


def map_module(room, module, width):
    """The bench's module, mapped: WORK/MODULE-WIDTH.v."""
    started = time.monotonic()
    own = HDL / room / "tb" / f"{module}_top.sv"
    top = own.stem if own.exists() else module
    files = [f for r in ROOMS for f in sorted((HDL / r / "rtl").glob("*.sv"))] + ([own] if own.exists() else [])
    files.sort(key=lambda f: not f.name.endswith("_pkg.sv"))
    parameter = f"-G W={width}" if int(width) else ""
    yosys([f"read_slang --ignore-assertions --top {top} {parameter} {' '.join(map(str, files))}", *synth(top),
           f"write_verilog -noattr {WORK}/{module}-{width}.v"])
    print(f"{room}/{module}:{width} mapped in {time.monotonic() - started:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the benches")
    parser.add_argument("modules", nargs="*", default=LIST, metavar="ROOM/MODULE[:WIDTH]")
    options = parser.parse_args()
    benches = [name if ":" in name else f"{name}:0" for name in options.modules]
    install()
    WORK.mkdir(parents=True, exist_ok=True)
    each = [(*name.split(":")[0].split("/"), width) for name in benches for width in name.split(":")[1].split(",")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda one: map_module(*one), each))
    share = next(TARGET.glob("lib/python3*/site-packages/pyosys/share/ecp5"))
    done = subprocess.run(["make", "-s", "-C", HDL, "test-units", f"NETLISTS={WORK}", f"CELLS=-I{share} {HDL}/syn/cells.v", f"TB={WORK}/tb",
                           f"BENCHES={' '.join(benches)}", f"tb_rooms={' '.join(ROOMS)}", f"SEED={options.seed}"])
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
