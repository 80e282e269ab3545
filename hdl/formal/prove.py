#!/usr/bin/env python3
"""Proves the harnesses in this folder, without a bound, with Yosys: by induction, or with ABC's
property-directed reachability.

    hdl/formal/prove.py [HARNESS…]

Prints a line for each harness and a result, as the benches do. Each harness is also tried with an
assertion that is always false: a harness that is proven even so has contradictory assumptions.
"""

import argparse
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
HDL = HERE.parent
sys.path.insert(0, str(HDL / "syn"))
import modules  # noqa: E402  (the tools' installation)

WORK = modules.TARGET / "formal"
# Network modules used by the harnesses, in addition to those of modules.sources().
NETWORK = ["net_mux", "net_numbers", "net_parse", "tcp_lookup", "tcp_rx", "tcp_transmit", "tcp_tx"]
# Harnesses whose memories and registers are zero at power-on, as on a chip;
# in the others they are arbitrary.
CLEARED = ["tcp_lookup_f"]
# Harnesses with several clocks, each of which is modeled as an ordinary signal.
CLOCKS = ["fifo_cdc_f"]
# Harnesses whose assertions all follow from those of the previous cycle, so that no invariants must
# be found, for which ABC would search long.
INDUCTIVE = ["tcp_tx_f", "tcp_position_f", "tcp_transmit_f"]
# The same with many assertions, for which a single proof by Yosys takes too long:
# ABC proves each separately.
EACH = ["tcp_rx_f"]
# Processor time of one proof, seconds. Not a wall-clock limit, which another load could exceed.
PROCESSOR_S = 900
UNDECIDED = f"undecided after {PROCESSOR_S} s of processor time"


def plain(module):
    """A copy of a network module without its concurrent assertions, which the benches check and Yosys'
    front end refuses."""
    text = (HDL / "net" / "rtl" / f"{module}.sv").read_text()
    copy = WORK / f"{module}.sv"
    copy.write_text(re.sub(r"^  \w+ : assert property .*?;\n", "", text, flags=re.M | re.S))
    return copy


def proven(name, text):
    """None if all assertions hold in every reachable state, otherwise the message of the tool."""
    WORK.mkdir(parents=True, exist_ok=True)
    source = WORK / f"{name}.sv"
    source.write_text(text)
    commands = [
        f"read_slang --top {name} -I {HERE} {HDL}/net/rtl/net_pkg.sv {HDL}/net/rtl/tcp_pkg.sv {modules.sources()} "
        f"{' '.join(f'{WORK}/{module}.sv' for module in NETWORK)} {source}",
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
        modules.yosys(
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
    modules.yosys(
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
    program = next((modules.TARGET / "lib").glob("python*/site-packages/pyosys/yosys-abc"))
    done = subprocess.run([program, "-c", script], capture_output=True, text=True)
    return None if done.returncode == -signal.SIGXCPU else done


def each(name, commands):
    """By induction over all assertions, and over equal signals;
    the reduced circuit is empty if the assertions hold."""
    model, left = modeled(name, commands), WORK / f"{name}.left.aig"
    left.unlink(missing_ok=True)
    script = f"read_aiger {model}; fold; strash; scorr -C 1000000; orpos; strash; write_aiger {left}"
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


def prove(harness):
    """None if proven, otherwise the reason."""
    text = harness.read_text()
    if proven(harness.stem, text.replace("assert (", "assert (1'b0 && ")) is None:
        return "its assumptions leave nothing to prove"
    return proven(harness.stem, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "harnesses",
        nargs="*",
        type=pathlib.Path,
        default=sorted(HERE.glob("*_f.sv")),
        metavar="HARNESS",
    )
    options = parser.parse_args()
    modules.install()
    WORK.mkdir(parents=True, exist_ok=True)
    for module in NETWORK:
        plain(module)
    # Solvers inherit it, each for itself.
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, most))
    failed = 0
    # Yosys and ABC use one processor each.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for harness, why in zip(options.harnesses, pool.map(prove, options.harnesses)):
            print(
                f"test formal::{harness.stem.removesuffix('_f')} ... {'FAILED' if why else 'ok'}",
                flush=True,
            )
            if why:
                print(f"    {why}")
                failed += 1
    passed = len(options.harnesses) - failed
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed;")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
