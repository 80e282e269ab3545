#!/usr/bin/env python3
"""`baltra accelerator build --target ecp5-85f` places the kernels of a program with channels.

usage: hdl/syn/kernel_test.py     (BALTRA: the program to test, default target/release/baltra)
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BALTRA = Path(os.environ.get("BALTRA", ROOT / "target/release/baltra"))
SOURCE = """
#pragma OPENCL EXTENSION cl_intel_channels : enable
channel short numbers;
channel short doubled __attribute__((depth(4)));
kernel void source(short n) { for (short i = 0; i < n; i++) write_channel_intel(numbers, i); }
kernel void twice(short n) {
  for (short i = 0; i < n; i++) write_channel_intel(doubled, 2 * read_channel_intel(numbers));
}
kernel void sink(global short *out, short n) {
  for (short i = 0; i < n; i++) out[i] = read_channel_intel(doubled);
}
"""
KERNELS = ("source", "twice", "sink")


def main():
    with tempfile.TemporaryDirectory() as directory:
        source, image = Path(directory) / "program.cl", Path(directory) / "program.img"
        source.write_text(SOURCE)
        command = [BALTRA, "accelerator", "build", source, "-o", image, "--target", "ecp5-85f"]
        done = subprocess.run(command, capture_output=True, text=True)
    clocks = [float(clock) for clock in re.findall(r"placed on .* (\d+\.\d) MHz", done.stdout)]
    passes = done.returncode == 0 and len(clocks) == len(KERNELS) and min(clocks) > 0
    name = "test syn::kernels_with_channels_are_placed"
    print(f"{name} ... {'ok' if passes else 'FAILED'}")
    if not passes:
        print(done.stdout + done.stderr)
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
