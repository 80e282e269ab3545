#!/usr/bin/env python3
"""Checks that each module of the hardware ends with named assertions.

    scripts/check_assertions.py

The assertions of a module are its last lines, which synthesis skips:

    `ifndef SYNTHESIS
      no_overflow : assert property (@(posedge clk) disable iff (rst) put |-> count < DEPTH);
    `endif

    endmodule

Prints each module in hdl/*/rtl that has none and is not exempt, each assertion elsewhere or without
a name, each default clock, and each exemption that is no longer needed, and fails if there is one.
Do not use a default clock: Verilator 5.48 compiles it without an error, and the live model, whose
clocks are gated, then answers no connection.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Modules without a clock, a protocol or a state that an assertion could check, and the reason.
FUNCTION = "combinational: its bench compares its results with a model's"
EXEMPT = {
    "aes_sbox": "a lookup table",
    "clock_gate": "a wire on a chip; board/tests/gates_test.py compares both of its forms",
    "crc32_beat": FUNCTION,
    "hls_fcompare": FUNCTION,
    "hls_leading_zeroes": FUNCTION,
    "http_decide": FUNCTION,
    "http_look": "combinational: http_step has the assertions",
    "http_parse": "combinational: http_step has the assertions",
    "systolic_cell": "a data path without reset: kernel_matmul has the assertions",
    "tcp_congestion": "combinational: tcp_step has the assertion",
}

CODE = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
MODULE = re.compile(r"^\s*module\s+(\w+)", re.M)
TAIL = re.compile(r"^`ifndef SYNTHESIS\n((?:(?!^`).*\n)*?)^`endif\n+endmodule\s*\Z", re.M)
DEFAULT = re.compile(r"\bdefault\s+(clocking|disable)\b")
ASSERTION = re.compile(r"(?:^\s*(\w+)\s*:\s*)?\bassert\b", re.M)


def faults(text, exempt):
    """What is wrong with the assertions of a file."""
    code = CODE.sub("", text)
    if not MODULE.search(code):
        if exempt:
            yield "is exempt, but has no module"
        return
    tail = TAIL.search(code)
    if tail is None and ASSERTION.search(code):
        yield "has assertions that are not its last lines, in `ifndef SYNTHESIS"
        return
    names = [match[1] for match in ASSERTION.finditer(tail[1])] if tail else []
    if tail and ASSERTION.search(code[: tail.start()]):
        yield "has an assertion before its last lines"
    if DEFAULT.search(code):
        yield "has a default clock or reset"
    if None in names:
        yield "has an assertion without a name"
    if exempt and names:
        yield "is exempt, but has assertions"
    if not exempt and not names:
        yield "has no assertion"


def main():
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "--", "hdl/*/rtl/*.sv"],
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.split() if (ROOT / name).exists()]
    found = [
        f"{path.relative_to(ROOT)} {fault}"
        for path in paths
        for fault in faults(path.read_text(), path.stem in EXEMPT)
    ]
    found += [
        f"{name} is exempt, but does not exist"
        for name in sorted(EXEMPT.keys() - {path.stem for path in paths})
    ]
    print("".join(f"{fault}\n" for fault in found), end="")
    print(f"{len(found)} faults of assertions in {len(paths)} files")
    return len(found) != 0


if __name__ == "__main__":
    sys.exit(main())
