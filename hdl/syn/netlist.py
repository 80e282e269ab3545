#!/usr/bin/env python3
"""Runs unit benches on the netlists of their modules from the flow, instead of the RTL.

    hdl/syn/netlist.py [--seed S] [ROOM/MODULE[:WIDTH[,WIDTH…]] …]

Each module is mapped to an ECP5's cells like the board (flow.synth), with the parameters of its
bench, and the cells are simulated (cells.v), without clock gating: a failure is an error of the
flow, or RTL that Yosys interprets differently from Verilator. A module is named as in ../tb.mk,
from the board's folders; the default is LIST. A bench takes about ten times as long as with the
RTL, up to two minutes; net/net_stack's takes more. Multipliers, and modules with array ports, which
netlists lack, are excluded.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from flow import HDL, INCLUDES, TARGET, install, synth, yosys

ROOMS = ["common", "functions", "kernels", "net", "http", "host", "board"]
LIST = [
    "common/axis_packer:64",
    "common/axis_rows:64",
    "functions/fn_scheduler:0",
    "functions/fn_table:0",
    "functions/region:64",
    "kernels/kernel_sobel:64",
    "net/net_parse:0",
    "net/tcp_lookup:16",
    "net/tcp_rx:0",
    "net/tcp_tx:0",
    "http/http_ahead:0",
    "http/http_parse:0",
]
WORK = TARGET / "netlist"


def map_module(room, module, width):
    """The mapped module of the bench: WORK/MODULE-WIDTH.v."""
    started = time.monotonic()
    own = HDL / room / "tb" / f"{module}_top.sv"
    top = own.stem if own.exists() else module
    files = [f for r in ROOMS for f in sorted((HDL / r / "rtl").glob("*.sv"))] + (
        [own] if own.exists() else []
    )
    files.sort(key=lambda f: not f.name.endswith("_pkg.sv"))
    parameter = f"-G W={width}" if int(width) else ""
    yosys(
        [
            f"read_slang --ignore-assertions --top {top} {parameter} {INCLUDES} {' '.join(map(str, files))}",
            *synth(top),
            f"write_verilog -noattr {WORK}/{module}-{width}.v",
        ]
    )
    print(f"{room}/{module}:{width} mapped in {time.monotonic() - started:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the benches")
    parser.add_argument("modules", nargs="*", default=LIST, metavar="ROOM/MODULE[:WIDTH]")
    options = parser.parse_args()
    benches = [name if ":" in name else f"{name}:0" for name in options.modules]
    install()
    WORK.mkdir(parents=True, exist_ok=True)
    each = [
        (*name.split(":")[0].split("/"), width)
        for name in benches
        for width in name.split(":")[1].split(",")
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda one: map_module(*one), each))
    share = next(TARGET.glob("lib/python3*/site-packages/pyosys/share/ecp5"))
    done = subprocess.run(
        [
            "make",
            "-s",
            "-C",
            HDL,
            "test-units",
            f"NETLISTS={WORK}",
            f"CELLS=-I{share} {HDL}/syn/cells.v",
            f"TB={WORK}/tb",
            f"BENCHES={' '.join(benches)}",
            f"tb_rooms={' '.join(ROOMS)}",
            f"SEED={options.seed}",
        ]
    )
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
