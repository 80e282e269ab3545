#!/usr/bin/env python3
"""`baltra accelerator build --target ecp5-85f` places the kernels of a program with channels, and
`images.py` places a kernel of its image with several seeds.

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


def passes(name, condition, done):
    print(f"test syn::{name} ... {'ok' if condition else 'FAILED'}")
    if not condition:
        print(done.stdout + done.stderr)
    return condition


def placed_kernels(directory):
    """Builds the image; also whether the program has placed each of its kernels."""
    source, image = directory / "program.cl", directory / "program.img"
    source.write_text(SOURCE)
    command = [BALTRA, "accelerator", "build", source, "-o", image, "--target", "ecp5-85f"]
    done = subprocess.run(command, capture_output=True, text=True)
    clocks = [float(clock) for clock in re.findall(r"placed on .* (\d+\.\d) MHz", done.stdout)]
    placed = done.returncode == 0 and len(clocks) == len(KERNELS) and min(clocks) > 0
    return image, passes("kernels_with_channels_are_placed", placed, done)


def table_of_seeds(image):
    """Whether the table has the median of two seeds, and their range."""
    command = [ROOT / "hdl/syn/images.py", "--seeds", "1,2", "-j", "2", "--only", "source", image]
    done = subprocess.run(command, capture_output=True, text=True)
    row = r"(?m)^\| program \| source \|.*\| ([\d.]+) \| ([\d.]+) to ([\d.]+) \|"
    rows = re.findall(row, done.stdout)
    right = done.returncode == 0 and len(rows) == 1
    if right:
        median, least, most = map(float, rows[0])
        right = 0 < least <= most and abs(median - (least + most) / 2) < 0.2
    return passes("the_table_has_the_median_of_all_seeds", right, done)


def main():
    with tempfile.TemporaryDirectory() as directory:
        image, placed = placed_kernels(Path(directory))
        return 0 if placed and table_of_seeds(image) else 1


if __name__ == "__main__":
    sys.exit(main())
