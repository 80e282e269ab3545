#!/usr/bin/env python3
"""Runs the OpenCL programs of PolyBench/GPU natively and on an emulated accelerator.

The suite is fetched by the user; nothing of it is copied into this tree. The programs are built in
a copy in --out, from their own sources, with 32 elements a side and 2 steps, because the device is
simulated. Each compares the device's result with its own computation on the processor.
"""

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {
    "2DCONV": "2DConvolution",
    "2MM": "2mm",
    "3DCONV": "3DConvolution",
    "3MM": "3mm",
    "ADI": "adi",
    "ATAX": "atax",
    "BICG": "bicg",
    "CORR": "correlation",
    "COVAR": "covariance",
    "FDTD-2D": "fdtd2d",
    "GEMM": "gemm",
    "GEMVER": "gemver",
    "GESUMMV": "gesummv",
    "GRAMSCHM": "gramschmidt",
    "JACOBI1D": "jacobi1D",
    "JACOBI2D": "jacobi2D",
    "LU": "lu",
    "MVT": "mvt",
    "SYR2K": "syr2k",
    "SYRK": "syrk",
}
SIZES = [f"-D{size}=32" for size in "N M NI NJ NK NL NM NX NY".split()] + ["-DTSTEPS=2", "-DTMAX=2"]
# The programs request a GPU and end without one.
ANY_DEVICE = """#include <CL/cl.h>
#undef CL_DEVICE_TYPE_GPU
#define CL_DEVICE_TYPE_GPU CL_DEVICE_TYPE_ALL
"""
SUCCESS = re.compile(r"^Non-Matching CPU-GPU Outputs .*: 0$", re.M)
EPILOG = """The checkout is that of sgrauerg/polybenchGpu. A program whose own check fails natively, on the
first OpenCL platform, proves nothing and is skipped. Logs: DIR/PROGRAM.{build,native,device}.log.
Exit status: 0 no program failed, 1 otherwise, 2 usage.

example: scripts/polybench.py ~/polybenchGpu --only 'gemm|lu'"""


def run(words: list[str], folder: Path, limit_s: float, log: Path) -> tuple[int, str]:
    """Runs a command; returns its exit status (124: no end within the limit) and its output."""
    try:
        ended = subprocess.run(
            words,
            cwd=folder,
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        code, output = ended.returncode, ended.stdout
    except subprocess.TimeoutExpired as expired:
        code, output = 124, expired.stdout or b""
    text = output.decode(errors="replace")
    log.write_text(f"$ {shlex.join(words)}\n{text}\n[exit status {code}]\n")
    return code, text


def judge(code: int, output: str) -> str:
    """Why a run is not a success; empty if it is one."""
    if code == 124:
        return "no end within the limit"
    if code:
        return f"exit status {code}"
    return "" if SUCCESS.search(output) else "its own check does not succeed"


def run_one(options: argparse.Namespace, folder: Path, name: str) -> tuple[str, str]:
    """Builds and runs a program; returns its verdict and a remark."""
    log = {part: options.out / f"{name}.{part}.log" for part in ("build", "native", "device")}
    header = ["-DCL_TARGET_OPENCL_VERSION=120", "-include", str(options.out / "any_device.h")]
    build = ["gcc", "-O1", "-w", "-fcommon", *header, *SIZES, f"{name}.c", "-o", f"{name}.bin"]
    if run([*build, "-lOpenCL", "-lm"], folder, 300, log["build"])[0]:
        return "failed", f"not built: {log['build']}"
    if remark := judge(*run([f"./{name}.bin"], folder, options.timeout, log["native"])):
        return "skipped", f"natively: {remark}"
    started = time.monotonic()
    words = [*options.prefix, f"./{name}.bin"]
    remark = judge(*run(words, folder, options.timeout, log["device"]))
    return ("failed", remark) if remark else ("passed", f"{time.monotonic() - started:.1f} s")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="a checkout of PolyBench/GPU")
    parser.add_argument("--baltra", type=Path, default=ROOT / "target/release/baltra")
    parser.add_argument("--only", default="", metavar="REGEX", help="only these programs")
    parser.add_argument("--out", type=Path, default=ROOT / "target/polybench")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="of a run")
    options = parser.parse_args()
    if not (options.source / "OpenCL/2DCONV/2DConvolution.cl").is_file():
        parser.error(f"'{options.source}' is not a checkout of PolyBench/GPU")
    baltra = options.baltra.resolve()
    if not baltra.is_file():
        parser.error(f"{baltra} is missing (build it, or name one with --baltra)")
    device = ["--standalone", "--set", f"device.driver=emulate:{ROOT / 'hdl'}", "--"]
    options.prefix = [str(baltra), "run", *device]
    options.out = options.out.resolve()
    tree = options.out / "source"
    shutil.rmtree(tree, ignore_errors=True)
    for folder in ("OpenCL", "common"):
        shutil.copytree(options.source / folder, tree / folder)
    (options.out / "any_device.h").write_text(ANY_DEVICE)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for folder, name in PROGRAMS.items():
        if re.search(options.only, name):
            verdict, remark = run_one(options, tree / "OpenCL" / folder, name)
            counts[verdict] += 1
            print(f"{name}\t{verdict}\t{remark}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
