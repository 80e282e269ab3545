#!/usr/bin/env python3
"""Runs unmodified third-party MPI programs, as processes and with a rank on a live board.

    make mpi-programs OSU=FOLDER NPB=FOLDER
    scripts/mpi-programs.py [--osu FOLDER] [--npb FOLDER] [--class S|W|…] [NAME…]

OSU: the OSU micro-benchmarks, 5.x (the folder with mpi/pt2pt): the point-to-point programs except
the multi-threaded one, and the blocking collective ones. NPB: the NAS parallel benchmarks, 3.x (the
folder with IS and common): IS, which verifies its result. Neither is copied into the tree;
generated and built files of NPB are in target/mpi-programs. NAME: only these programs.

As processes, a few ranks send messages of all sizes up to 4 MB. With a board, rank 1 is the same C
program on a processor of a live board, with off-chip memory; the other ranks are processes, over
raw Ethernet. Messages have up to 4 KB (--largest), because a live board is thousands of times
slower than a real one. A program passes if it exits with 0 and its table has a time for each size;
IS passes if it reports its result as verified.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "mpi-programs"
BALTRA = os.environ.get("BALTRA", ROOT / "target" / "release" / "baltra")
POINT = ["latency", "bw", "bibw", "mbw_mr", "multi_lat"]
COLLECTIVE = [
    "allgather",
    "allgatherv",
    "allreduce",
    "alltoall",
    "alltoallv",
    "barrier",
    "bcast",
    "gather",
    "gatherv",
    "reduce",
    "reduce_scatter",
    "scatter",
    "scatterv",
]
MOST = 4 << 20
# Definitions that configure would write; some programs do not compile without them.
DEFINES = "#define FIELD_WIDTH 18\n#define FLOAT_PRECISION 2\n"
LIMIT_S = 1800


class Wrong(Exception):
    pass


def cluster(name, sources, arguments, ranks, board):
    """Writes the files of a cluster, with rank 1 on a board if `board`."""
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    words = f", args: '{' '.join(arguments)}'" if arguments else ", args: ''"
    listed = ", ".join(f"'{s}'" for s in sources)
    (folder / "logical.yaml").write_text(
        f"kernel: {{name: {name}, num: 0, rep: {ranks}, source: [{listed}], type: core, long: 32, "
        f"m_axi: {{name: memory, bytes: 64M}}{words}}}\n"
    )
    mac = "mac: '02:00:00:00:00:0{}'"
    others = ", ".join(str(r) for r in range(ranks) if r != 1)
    (folder / "map.yaml").write_text(
        f"node: [{{type: sw, comm: eth, {mac.format(1)}, kernel: [{others}]}}, {{type: hw, comm: "
        f"eth, {mac.format(2)}, kernel: 1}}]\n"
        if board
        else f"node: {{type: sw, comm: shm, kernel: 0-{ranks - 1}}}\n"
    )
    return folder


def run(folder, enough, headers):
    """Runs a cluster until it ends or `enough` accepts its output; returns the output. `headers`:
    folder of additional headers."""
    # Line buffering, so that `enough` sees each line as it is printed.
    command = [
        "stdbuf",
        "-oL",
        BALTRA,
        "cluster",
        "run",
        "logical.yaml",
        "map.yaml",
        "--humboldt",
        ROOT / "humboldt",
        "--out",
        "out",
    ]
    # Waiting ranks must not spin where ranks share processors.
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HUM_SPIN_US": "0", "CPATH": str(headers)},
        start_new_session=True,
    )
    started, printed, ended = time.monotonic(), [], True
    signal.signal(signal.SIGALRM, lambda *_: process.terminate())
    signal.alarm(LIMIT_S)
    try:
        for line in process.stdout:
            printed.append(line.rstrip())
            if ended and enough(printed):
                ended = False
                process.terminate()
        code = process.wait()
    finally:
        signal.alarm(0)
    (folder / "printed").write_text("\n".join(printed))
    if time.monotonic() - started >= LIMIT_S:
        raise Wrong(f"took longer than {LIMIT_S} s")
    if ended and code != 0:
        raise Wrong(f"exit status {code}: " + " | ".join(printed[-4:]))
    return printed


def rows(printed):
    """The sizes of a table, with the first number of each row."""
    found = (re.fullmatch(r"\[0\]\s+(\d+)\s+(\d+\.\d+)(?:\s+\d+\.\d+)*", line) for line in printed)
    return {int(row[1]): float(row[2]) for row in found if row}


def osu(source, name, board, largest):
    point = name in POINT
    folder = source / "mpi" / ("pt2pt" if point else "collective")
    ranks = 2 if point else 3 if board else 4
    wrapped = WORK / f"osu_{name}.c"
    wrapped.parent.mkdir(parents=True, exist_ok=True)
    wrapped.write_text(f'{DEFINES}#include "{folder / f"osu_{name}.c"}"\n')
    sources = (
        [wrapped]
        if name == "mbw_mr"
        else [wrapped, folder / ("osu_pt2pt.c" if point else "osu_coll.c")]
    )
    arguments = ["-x", "1", "-i", "2"] if board else ["-x", "10", "-i", "50"]
    if not point and name != "barrier" and not board:
        arguments += ["-m", str(MOST)]
    most = largest if board else MOST
    if name == "barrier":
        # The table has one number and no size.
        printed = run(
            cluster(f"osu_{name}", sources, arguments, ranks, board), lambda _: False, folder
        )
        if not any(re.fullmatch(r"\[0\]\s+\d+\.\d+", line) for line in printed):
            raise Wrong("no time")
        return
    printed = run(
        cluster(f"osu_{name}", sources, arguments, ranks, board),
        lambda p: board and most in rows(p),
        folder,
    )
    found = rows(printed)
    first = 4 if name in ("reduce", "allreduce", "reduce_scatter") else 1
    sizes = {1 << bit for bit in range(first.bit_length() - 1, most.bit_length())}
    if missing := sizes - set(found):
        raise Wrong(f"no time for messages of {min(missing)} bytes: " + " | ".join(printed[-3:]))
    # The MB/s of a live board may round to zero.
    if bad := [size for size in sizes if found[size] == 0 and not board]:
        raise Wrong(f"messages of {bad[0]} bytes in no time")


def integer_sort(source, board, kind):
    """IS, built by its own Makefile with humcc; for a board, from its sources and its header."""
    copy = WORK / "npb"
    if not (copy / "IS" / "npbparams.h").is_file() or kind not in (copy / "kind").read_text():
        shutil.rmtree(copy, ignore_errors=True)
        for part in ("IS", "common", "sys", "config"):
            shutil.copytree(source / part, copy / part)
        (copy / "bin").mkdir()
        humcc = ROOT / "humboldt" / "humcc"
        (copy / "config" / "make.def").write_text(
            f"MPICC = {humcc}\nCLINK = $(MPICC)\nCMPI_LIB =\nCMPI_INC =\nCFLAGS = -O3\nCLINKFLAGS "
            "=\nCC = cc\nBINDIR = ../bin\nRAND = randi8\n"
        )
        made = subprocess.run(
            ["make", "-C", copy / "IS", f"CLASS={kind}", "NPROCS=4"], capture_output=True, text=True
        )
        if made.returncode != 0:
            raise Wrong("make: " + made.stderr[-300:])
        (copy / "kind").write_text(kind)
    sources = [
        copy / "IS" / "is.c",
        copy / "common" / "c_timers.c",
        copy / "common" / "c_print_results.c",
    ]
    # 16 ranks with a board, so that its rank has few keys:
    # the board's processor has no floating-point unit.
    printed = run(
        cluster("is", sources, [], 16 if board else 4, board), lambda _: False, copy / "common"
    )
    if not any(re.search(r"Verification\s*=\s*SUCCESSFUL", line) for line in printed):
        raise Wrong("not verified: " + " | ".join(printed[-3:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--osu", type=Path)
    parser.add_argument("--npb", type=Path)
    parser.add_argument("--class", dest="kind", default="S")
    parser.add_argument(
        "--largest", type=int, default=4 << 10, help="maximum bytes of a message with a board"
    )
    parser.add_argument("--only", choices=["processes", "board"])
    parser.add_argument("names", nargs="*", metavar="NAME", help="osu_latency, is, …")
    options = parser.parse_args()
    if not options.osu and not options.npb:
        parser.error("name a folder with --osu or --npb")
    for folder, part in ((options.osu, "mpi/pt2pt"), (options.npb, "IS/is.c")):
        if folder and not (folder / part).exists():
            parser.error(f"{folder} has no {part}")
    tests = []
    for board in (False, True):
        where = "board" if board else "processes"
        if options.only not in (None, where):
            continue
        if options.osu:
            source = options.osu.resolve()
            tests += [
                (f"osu_{n}", where, lambda n=n, b=board: osu(source, n, b, options.largest))
                for n in POINT + COLLECTIVE
            ]
        if options.npb:
            tests.append(
                ("is", where, lambda b=board: integer_sort(options.npb.resolve(), b, options.kind))
            )
    tests = [t for t in tests if not options.names or t[0] in options.names]
    failed = 0
    for name, where, test in tests:
        started = time.monotonic()
        try:
            test()
            why = None
        except (Wrong, OSError) as error:
            why, failed = error, failed + 1
        print(
            f"test {where}::{name} ... {'FAILED' if why else 'ok'} "
            f"({time.monotonic() - started:.0f} s)",
            flush=True,
        )
        if why:
            print(f"    {why}")
    print(
        f"test result: {'FAILED' if failed else 'ok'}. {len(tests) - failed} passed; {failed} "
        "failed;"
    )
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
