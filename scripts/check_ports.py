#!/usr/bin/env python3
"""Finds port lists of the hardware that are typed twice.

    scripts/check_ports.py

Prints each pair of files in hdl/ that share a run of six or more identical lines of ports or
connections, comments and spaces aside, with the length of the longest one, and fails if there is
one. The remedy is a packed struct in the package beside the modules, or, where benches in C++ or
kernels need single signals, a list that both include.
"""

import collections
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LENGTH = 6
# Connections of parameters, which are in capitals, do not count.
PORT = re.compile(r"(input|output|inout)\b.*|\.(?![A-Z0-9_]+\b)\w+( ?\(.*\))?")


def runs(path):
    """The runs of ports and connections of a file: lists of lines without comments and spacing."""
    run = []
    for line in path.read_text().splitlines():
        line = re.sub(r"\s+", " ", line.split("//")[0]).strip().rstrip(",")
        line = re.sub(r" ?([\[\]():,.=]) ?", r"\1", line)
        if PORT.fullmatch(line):
            run.append(line)
        elif line:
            yield run
            run = []
    yield run


def shared(paths):
    """Pairs of files with the number of lines of their longest common run."""
    places = collections.defaultdict(set)
    for path in paths:
        for number, run in enumerate(runs(path)):
            for at in range(len(run) - LENGTH + 1):
                places[tuple(run[at : at + LENGTH])].add((path, number, at))
    pairs = {}
    for found in places.values():
        for path, number, at in found:
            for other, other_number, other_at in found:
                if path < other:
                    key = (path, other)
                    starts = pairs.setdefault(key, set())
                    starts.add((number, at, other_number, other_at))
    for (path, other), starts in pairs.items():
        longest = 0
        for number, at, other_number, other_at in starts:
            more = 0
            while (number, at + more + 1, other_number, other_at + more + 1) in starts:
                more += 1
            longest = max(longest, LENGTH + more)
        yield longest, path, other


def main():
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "--", "hdl/*.sv", "hdl/*.svh", "hdl/*.v"],
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.split() if (ROOT / name).exists()]
    pairs = sorted(shared(paths), key=lambda pair: (-pair[0], pair[1:]))
    for length, path, other in pairs:
        print(f"{length} lines: {path.relative_to(ROOT)} and {other.relative_to(ROOT)}")
    print(f"{len(pairs)} pairs of files share a list of {LENGTH} ports or more")
    return len(pairs) != 0


if __name__ == "__main__":
    sys.exit(main())
