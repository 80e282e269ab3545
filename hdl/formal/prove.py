#!/usr/bin/env python3
"""Proves the harnesses in this folder, without a bound, with Yosys: by induction, or with ABC's
property-directed reachability.

    hdl/formal/prove.py [--all] [--write] [HARNESS…]

Prints a line for each harness and a result, as the benches do. Each harness is also tried with an
assertion that is always false: a harness that is proven even so has contradictory assumptions.

A proof depends only on its sources, on this program and on Yosys. The file `proven` has a digest
of these inputs for each harness; a harness is proven again if its digest differs, or with --all.
--write records the digests of the proven harnesses.
"""

import argparse
import hashlib
import inspect
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
HDL = HERE.parent
sys.path.insert(0, str(HDL / "syn"))
import flow  # noqa: E402  (the tools' installation)

WORK = flow.TARGET / "formal"
RECORD = HERE / "proven"
# Folders of the modules that harnesses use.
ROOMS = ["common", "functions", "net", "kernels", "messages", "board"]
INCLUDE = re.compile(r'`include "(\S+)"')
# The assertions at the end of a module, which the benches check and Yosys' front end refuses.
ASSERTIONS = re.compile(r"^`ifndef SYNTHESIS\n.*?^`endif\n", re.M | re.S)
# Harnesses whose memories and registers are zero at power-on, as on a chip;
# in the others they are arbitrary.
CLEARED = ["tcp_lookup_f"]
# Harnesses with several clocks, each of which is modeled as an ordinary signal.
CLOCKS = ["fifo_cdc_f"]
# Harnesses whose assertions all follow from those of the previous cycle, so that no invariants must
# be found, for which ABC would search long.
INDUCTIVE = ["tcp_tx_f", "tcp_position_f", "tcp_transmit_f", "memory_guard_f"]
# The same with many assertions, for which a single proof by Yosys takes too long:
# ABC proves each separately.
EACH = ["tcp_rx_f"]
# Processor time of one proof, seconds. Not a wall-clock limit, which another load could exceed.
PROCESSOR_S = 900
UNDECIDED = f"undecided after {PROCESSOR_S} s of processor time"


def named():
    """The path of each source by the name by which others refer to it."""
    folders = [HERE, *(HDL / room / "rtl" for room in ROOMS)]
    return {
        file.name if file.suffix == ".svh" else file.stem: file
        for folder in folders
        for file in sorted(folder.glob("*.sv*"))
    }


def inputs(harness):
    """All that Yosys reads for a harness: the text of each file by its name, packages first. A
    file belongs to it if an included file, module or package of the others has its name."""
    known, texts, pending = named(), {}, [harness]
    while pending:
        file = pending.pop()
        if file.name in texts:
            continue
        text = file.read_text()
        if file.parent != HERE:
            text = ASSERTIONS.sub("", text)
        texts[file.name] = text
        code = re.sub(r"//.*", "", text)
        words = set(re.findall(r"\w+", code)) | set(INCLUDE.findall(code))
        pending += [known[word] for word in words & known.keys()]
    return dict(sorted(texts.items(), key=lambda item: (not item[0].endswith("_pkg.sv"), item[0])))


def digest(texts):
    """The digest of all that the result of a proof depends on."""
    parts = [flow.PACKAGES[0], inspect.getsource(flow.yosys), pathlib.Path(__file__).read_text()]
    parts += [part for item in texts.items() for part in item]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def recorded():
    """The digests of the proven harnesses, by their names."""
    return dict(line.split() for line in RECORD.read_text().splitlines()) if RECORD.exists() else {}


def proven(name, texts):
    """None if all assertions hold in every reachable state, otherwise the message of the tool."""
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file, text in texts.items():
        (folder / file).write_text(text)
    sources = " ".join(f"{folder}/{file}" for file in texts if file.endswith(".sv"))
    commands = [
        f"read_slang --top {name} -I {folder} {sources}",
        f"prep -flatten -top {name}",
        "memory_map",
        "clk2fflogic" if name in CLOCKS else "async2sync",
        "chformal -lower",
        "opt -full",
    ]
    if name in INDUCTIVE:
        return induced(name, commands)
    return each(name, commands) if name in EACH else reached(name, commands)


def induced(name, commands):
    answer = WORK / f"{name}.sat"
    answer.unlink(missing_ok=True)
    try:
        flow.yosys(
            [
                *commands,
                "setundef -undriven -anyseq",
                "dffunmap",
                "opt_clean",
                f"tee -q -o {answer} sat -tempinduct -maxsteps 1 -prove-asserts -set-assumes",
            ]
        )
    except SystemExit as failure:
        return f"undecided within {PROCESSOR_S} s of processor time, or failed: {failure}"
    log = answer.read_text()
    if "Induction step proven: SUCCESS!" in log:
        return None
    return next((line for line in log.splitlines() if "failed" in line), log[-300:])


def modeled(name, commands):
    """The file of its circuit for ABC."""
    model = WORK / f"{name}.aig"
    flow.yosys(
        [
            *commands,
            "techmap",
            "opt -fast",
            "setundef -undriven -anyseq",
            *(["setundef -zero -init"] if name in CLEARED else []),
            "dffunmap",
            "aigmap",
            "opt_clean",
            f"write_aiger -zinit {model}",
        ]
    )
    return model


def abc(script):
    """The output, or None at the limit of processor time."""
    program = next((flow.TARGET / "lib").glob("python*/site-packages/pyosys/yosys-abc"))
    done = subprocess.run([program, "-c", script], capture_output=True, text=True)
    return None if done.returncode == -signal.SIGXCPU else done


def each(name, commands):
    """By induction over all assertions, and over equal signals;
    the reduced circuit is empty if the assertions hold."""
    model, left = modeled(name, commands), WORK / f"{name}.left.aig"
    left.unlink(missing_ok=True)
    script = (
        f"read_aiger {model}; fold; strash; scorr -C 1000000; orpos; strash; write_aiger {left}"
    )
    if abc(script) is None:
        return UNDECIDED
    header, output = left.read_bytes().split(b"\n")[:2]
    # One output, which is never true, without a register or a gate.
    if header.split()[3:6] == [b"0", b"1", b"0"] and output == b"0":
        return None
    return "not all assertions follow from those of the previous cycle"


def reached(name, commands):
    # All assertions at once, because each may depend on the others.
    done = abc(f"read_aiger {modeled(name, commands)}; fold; strash; orpos; scorr; pdr")
    if done is None:
        return UNDECIDED
    if "Property proved" in done.stdout:
        return None
    return next(
        (line for line in done.stdout.splitlines() if "asserted" in line or "ndecided" in line),
        done.stdout[-300:] + done.stderr[-300:],
    )


def prove(harness, texts):
    """None if proven, otherwise the reason."""
    false = texts[harness.name].replace("assert (", "assert (1'b0 && ")
    if proven(harness.stem, {**texts, harness.name: false}) is None:
        return "its assumptions leave nothing to prove"
    return proven(harness.stem, texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="also prove what the record has")
    parser.add_argument("--write", action="store_true", help="record what is proven")
    parser.add_argument(
        "harnesses",
        nargs="*",
        type=lambda path: pathlib.Path(path).resolve(),
        default=sorted(HERE.glob("*_f.sv")),
        metavar="HARNESS",
    )
    options = parser.parse_args()
    record = recorded()
    texts = {harness: inputs(harness) for harness in options.harnesses}
    digests = {harness: digest(texts[harness]) for harness in options.harnesses}
    unknown = [
        harness
        for harness in options.harnesses
        if options.all or record.get(harness.stem) != digests[harness]
    ]
    if unknown:
        flow.install()
        WORK.mkdir(parents=True, exist_ok=True)
        # Solvers inherit it, each for itself.
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, most))
    for harness in sorted(set(options.harnesses) - set(unknown)):
        print(f"test formal::{harness.stem.removesuffix('_f')} ... ok (recorded)")
    failed = 0
    # Yosys and ABC use one processor each.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(prove, unknown, (texts[harness] for harness in unknown))
        for harness, why in zip(unknown, results):
            name = harness.stem.removesuffix("_f")
            print(f"test formal::{name} ... {'FAILED' if why else 'ok'}", flush=True)
            if why:
                print(f"    {why}")
                failed += 1
                record.pop(harness.stem, None)
            else:
                record[harness.stem] = digests[harness]
    if options.write:
        kept = {path.stem for path in HERE.glob("*_f.sv")} & record.keys()
        RECORD.write_text("".join(f"{name} {record[name]}\n" for name in sorted(kept)))
    elif unknown and not options.all:
        print(f"{len(unknown)} not in the record; 'make -C hdl prove' records proofs")
    passed = len(options.harnesses) - failed
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed;")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
