#!/usr/bin/env python3
"""Area of the message door's modules, for the family of the paper's boards (UltraScale),
with the open flow.

    hdl/syn/messages.py [MODULE…]

Prints each next to the paper's values; an estimate by synthesis alone, without a clock. Exits with
1 if a module is larger.
"""

import json
import sys

from flow import HDL, INCLUDES, TARGET, install, yosys

# Module, its name in the paper, and its LUT, FF and block RAM in the paper.
MODULES = {
    "msg_router": ("router, 16 ports", 5067, 6310, 1),
    "msg_send": ("HUM_Send", 389, 372, 0),
    "msg_receive": ("HUM_Recv", 1180, 1072, 0),
    "msg_eth": ("Ethernet bridges, network and communication", 582 + 729, 1087 + 1332, 3),
}
# Both network bridges and a kernel's communication bridge.
PARTS = {"msg_eth": ["msg_eth_tx", "msg_eth_rx", "msg_bridge"]}


def measure(module):
    work = TARGET / "work" / module
    work.mkdir(parents=True, exist_ok=True)
    rooms = [HDL / "messages" / "rtl", HDL / "common" / "rtl"]
    leave = {"msg_core.sv", "msg_kernel.sv", "msg_region.sv", "msg_memory.sv", "region_packets.sv", "board_messages.sv", "msg_frames.sv", "msg_tcp.sv", "msg_fabric_tcp.sv"}
    files = [f for room in rooms for f in sorted(room.glob("*.sv")) if f.name not in leave]
    files.sort(key=lambda f: (f.name != "hum_envelope_pkg.sv", not f.name.endswith("_pkg.sv")))
    # Indexed choices as trees of multiplexers, for which the slices' own ones are inferred.
    yosys(
        [
            f"read_slang {INCLUDES} --top {module} {' '.join(map(str, files))}",
            "bmuxmap",
            f"synth_xilinx -family xcu -flatten -widemux 5 -top {module}",
            f"tee -q -o {work}/stat.json stat -json",
        ]
    )
    count = json.loads((work / "stat.json").read_text())["design"]["num_cells_by_type"]
    lut = sum(n for name, n in count.items() if name.startswith("LUT"))
    # Distributed memory takes LUTs, too.
    lut += sum(
        n
        * {
            "RAM32M": 4,
            "RAM64M": 4,
            "RAM32M16": 8,
            "RAM64M8": 8,
            "RAM32X1D": 2,
            "RAM64X1D": 2,
            "RAM128X1D": 4,
            "RAM256X1D": 8,
        }.get(name, 0)
        for name, n in count.items()
    )
    lut += sum(n for name, n in count.items() if name.startswith("SRL"))
    ff = sum(n for name, n in count.items() if name in ("FDRE", "FDSE", "FDCE", "FDPE"))
    ram = sum(
        n * (1 if name.startswith("RAMB36") else 0.5)
        for name, n in count.items()
        if name.startswith("RAMB")
    )
    return lut, ff, ram


def main():
    install()
    names = sys.argv[1:] or list(MODULES)
    unknown = [name for name in names if name not in MODULES]
    if unknown or {"-h", "--help"} & set(names):
        sys.exit(__doc__ + ("" if not unknown else f"\nmodules: {', '.join(MODULES)}"))
    larger = []
    print(
        "| module | name in the paper | LUT, paper | FF, paper | block RAM, paper "
        "|\n|---|---|---|---|---|"
    )
    for name in names:
        title, lut, ff, ram = MODULES[name]
        own = [sum(each) for each in zip(*(measure(part) for part in PARTS.get(name, [name])))]
        larger += [name] if own[0] > lut else []
        print(
            f"| {' + '.join(PARTS.get(name, [name]))} | {title} | {own[0]:,}, {lut:,} | "
            f"{own[1]:,}, {ff:,} | {own[2]:g}, {ram} |",
            flush=True,
        )
    if larger:
        sys.exit(f"larger than the paper's: {', '.join(larger)}")


if __name__ == "__main__":
    main()
