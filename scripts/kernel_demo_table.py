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
ACCELERATOR_MHZ, BOARD_MHZ = 100, 156.25
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


def row(name, label, ms, clock=None):
    """Prints a door's time in milliseconds, and its cycles if it has a clock, in MHz."""
    line = f"{label:32}{compare(name):>7}{ms:>9.2f} ms"
    if clock:
        cycles = ms * 1e3 * clock
        line += f"{cycles:>11,.0f}{cycles / (width * height):>11.2f}{clock:>8g} MHz  {area}"
    print(line)


different = []
print(f"\n{'':32}{'bytes':>7}{'kernel':>12}{'cycles':>11}{'per pixel':>11}{'clock':>12}  estimated area")
for name, label, clock in (
    ("native", "PoCL", None),
    ("gpu", "NVIDIA GPU", None),
    ("cpu", "OpenCL, PoCL", None),
    ("fpga", "OpenCL, emulated accelerator", ACCELERATOR_MHZ),
    ("board", "OpenCL, board", BOARD_MHZ),
    ("vm", "OpenCL in a VM, board", BOARD_MHZ),
):
    missing = run / f"{name}.missing"
    if missing.exists():
        print(f"{label:32}{'not run: ' + missing.read_text().strip()}")
        continue
    row(name, label, json.loads((run / f"{name}.json").read_text())["kernel_ms"]["median"], clock)
took = re.search(r"device;dur=([0-9.]+)", (run / "gateway.head").read_text())
row("gateway", "gateway, emulated accelerator", float(took[1]))
cycles = int((run / "http.cycles").read_text())
row("http", "board's own HTTP *", cycles / BOARD_MHZ / 1e3, BOARD_MHZ)
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
