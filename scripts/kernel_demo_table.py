"""Compares the pictures of the kernel's demonstration and prints its table:
kernel_demo_table.py DIRECTORY PICTURES WIDTH HEIGHT."""

import hashlib
import json
import re
import sys
from pathlib import Path

run, pictures = Path(sys.argv[1]), Path(sys.argv[2])
width, height = int(sys.argv[3]), int(sys.argv[4])
right = (pictures / "native.ppm").read_bytes()
# The clocks at which the models count; neither has been placed.
CLOCK_MHZ = {"fpga": 100, "board": 156.25}
report = json.loads((pictures / "report.json").read_text())["kernels"][0]["report"]
area = f"{report['luts']} LUT, {report['block_rams']} RAM, {report['multipliers']} mult."


def compare(name):
    """"same" if a door gave the right picture."""
    if name == "vm":
        same = (run / "vm.sha256").read_text() == hashlib.sha256(right).hexdigest()
    elif name in ("gateway", "http"):
        # Four bytes per pixel.
        answer = (run / f"{name}.rgba").read_bytes()
        colors = bytes(c for i, c in enumerate(answer) if i % 4 != 3)
        same = colors == right[-3 * width * height :]
    else:
        same = (pictures / f"{name}.ppm").read_bytes() == right
    if not same:
        different.append(name)
    return "same" if same else "DIFFER"


def row(label, same="", ms=None, cycles=None, clock=None):
    time = "" if ms is None else f"{ms:.2f} ms"
    line = f"{label:32}{same:>7}{time:>12}"
    if clock is not None:
        counted = "" if cycles is None else f"{cycles:,.0f}"
        each = "" if cycles is None else f"{cycles / (width * height):.2f}"
        line += f"{counted:>11}{each:>11}{clock:>8g} MHz  {area}"
    print(line)


different = []
print(f"\n{'':32}{'bytes':>7}{'kernel':>12}{'cycles':>11}{'per pixel':>11}{'clock':>12}  estimated area")
for name, label, on in (
    ("native", "PoCL", ""),
    ("gpu", "NVIDIA GPU", ""),
    ("cpu", "OpenCL, PoCL", ""),
    ("fpga", "OpenCL, emulated accelerator", "fpga"),
    ("board", "OpenCL, board", "board"),
    ("vm", "OpenCL in a VM, board", "board"),
):
    missing = run / f"{name}.missing"
    if missing.exists():
        print(f"{label:32}{'not run: ' + missing.read_text().strip()}")
        continue
    ms = json.loads((run / f"{name}.json").read_text())["kernel_ms"]["median"]
    if on:
        row(label, compare(name), ms, ms * 1e3 * CLOCK_MHZ[on], CLOCK_MHZ[on])
    else:
        row(label, compare(name), ms)
took = re.search(r"device;dur=([0-9.]+)", (run / "gateway.head").read_text())
row("gateway, emulated accelerator", compare("gateway"), float(took[1]) if took else None)
cycles = int((run / "http.cycles").read_text())
clock = CLOCK_MHZ["board"]
row("board's own HTTP *", compare("http"), cycles / clock / 1e3, cycles, clock)
print(
    "\nTimes of the accelerator and the board are their cycles at these clocks, which the models assume; the gateway's"
    "\nis the host's time for the model, with the copies. * with the copies of both pictures"
)
if report.get("placed"):
    placed = report["placed"]
    print(
        f"The kernel alone, placed on {placed['part']}: {placed['luts']} LUTs, {placed['block_rams']} block RAMs, "
        f"{placed['multipliers']} multipliers, {placed['mhz']:.0f} MHz."
    )
if different:
    sys.exit(f"error: the pictures differ: {', '.join(different)}")
