#!/usr/bin/env python3
"""Programs that check their bytes while their sessions move between two devices all the time.

Starts a daemon with two devices of a driver, six programs with buffers of 1 to 36 MiB
(crates/tests/programs/moving.c), and one after the other programs that compare every answer
(threads, gated, transfers). For some time it moves a random session to the other device, or suspends
it and resumes it there. Exit code 1 if a program fails; errors of moves are listed.

Example: bench/opencl/shuffle.py --driver libnvidia-opencl.so.1 --seconds 150
"""

import argparse
import collections
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from upgrade import ROOT, Programs, daemon

DEVICE = '[[device]]\nname = "{}"\ndriver = "{}"\nselect = "{}"\nhost_memory = false\n'
NAMES = ["first", "second"]
# A share of the moves goes to the disk and back.
SUSPENDED = 0.15
CHECKS = [["threads", "5", "60"], ["gated"], ["transfers", "untimed"]]


class Checks(threading.Thread):
    """Programs that compare their answers, one after the other."""

    def __init__(self, commands):
        super().__init__()
        self.commands = commands
        self.is_over = threading.Event()
        self.passed = 0
        self.failures = []

    def run(self):
        while not self.is_over.is_set():
            for command in self.commands:
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode == 0 and done.stdout.endswith("done\n"):
                    self.passed += 1
                else:
                    output = (done.stdout + done.stderr).strip()
                    self.failures.append(f"{command[-1]}: {done.returncode}, {output[-200:]}")


class Mover:
    """Moves sessions of a daemon."""

    def __init__(self, baltra, place):
        self.baltra, self.place = baltra, place
        self.moves, self.stops_us, self.errors = 0, [], collections.Counter()

    def command(self, *arguments):
        command = [self.baltra, "session", *arguments, *self.place]
        return subprocess.run(command, capture_output=True, text=True)

    def step(self):
        sessions = json.loads(self.command("ls", "--json").stdout or "[]")
        if not sessions:
            return time.sleep(0.1)
        session = random.choice(sessions)
        number = str(session["id"])
        to = NAMES[session["device"] == NAMES[0]]
        if random.random() < SUSPENDED:
            done = self.command("suspend", number)
            if done.returncode == 0:
                time.sleep(random.uniform(0, 0.3))
                done = self.command("resume", number, "--to", to)
        else:
            done = self.command("move", number, "--to", to, "--json")
            if done.returncode == 0:
                self.stops_us.append(json.loads(done.stdout)["stopped_us"])
        if done.returncode == 0:
            self.moves += 1
        else:
            self.errors[done.stderr.strip().replace(number, "N")] += 1
        return None


def measure(options, folder):
    """Whether no program has failed."""
    devices = zip(NAMES, options.select, strict=True)
    config = "".join(DEVICE.format(name, options.driver, at) for name, at in devices)
    with daemon(options.baltra, config, folder) as place:
        run = [options.baltra, "run", *place]
        checks = Checks([[*run, "--", options.programs / name, *more] for name, *more in CHECKS])
        program = ["stdbuf", "-oL", options.programs / "moving", "1000000"]
        sizes = [str((number * number) << 20) for number in range(1, 7)]
        moving = [
            [*run, "--device", NAMES[at % 2], "--", *program, size, "2"]
            for at, size in enumerate(sizes)
        ]
        programs = Programs(moving, folder)
        checks.start()
        try:
            mover = Mover(options.baltra, place)
            until = time.monotonic() + options.seconds
            while time.monotonic() < until:
                mover.step()
            failed, rounds = list(programs.failed()), sum(programs.rounds())
        finally:
            checks.is_over.set()
            checks.join()
            programs.end()
    stopped = f"median {statistics.median(mover.stops_us)} us" if mover.stops_us else "none moved"
    print(f"{mover.moves} moves, {stopped}, longest {max(mover.stops_us, default=0)} us")
    print(f"{rounds} rounds of six programs, {checks.passed} runs of others with the right answers")
    for error, count in mover.errors.items():
        print(f"{count} times: {error}")
    print(*failed, *checks.failures, sep="\n", end="")
    return not failed and not checks.failures


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--baltra", default=ROOT / "target/release/baltra", type=Path)
    parser.add_argument(
        "--programs", default=ROOT / "target/tests", type=Path, help="folder of the programs"
    )
    parser.add_argument("--driver", default="libpocl.so.2", help="library of an OpenCL driver")
    parser.add_argument(
        "--select", nargs=2, default=["0", "1"], help="its two devices (default 0 1)"
    )
    parser.add_argument("--seconds", type=float, default=60, help="default 60")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="baltra-shuffle-") as folder:
        return 0 if measure(options, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
