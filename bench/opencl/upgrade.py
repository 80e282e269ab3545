#!/usr/bin/env python3
"""Programs that check their bytes while their device's driver is loaded anew.

Starts a daemon with one device, and programs on it; counts the rounds that each completes in an
interval, then upgrades the driver (`baltra device upgrade-driver`) and counts again, several times.
Exit code 1 if a program fails, or completes no round in an interval.

Example: bench/opencl/upgrade.py --driver libnvidia-opencl.so.1 --bytes 16777216
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = '[[device]]\nname = "device"\ndriver = "{}"\nselect = "0"\nhost_memory = false\n'


class Programs:
    """Programs that print a line for each round."""

    def __init__(self, commands, folder):
        self.logs = [folder / f"program{number}" for number in range(len(commands))]
        self.running = []
        for log, command in zip(self.logs, commands, strict=True):
            with log.open("w") as out:
                self.running.append(subprocess.Popen(command, stdout=out, stderr=out))

    def rounds(self):
        return [log.read_text().count("\nround ") for log in self.logs]

    def failed(self):
        """The programs that have ended, each with the last line that it wrote."""
        for at, program in enumerate(self.running):
            if program.poll() is not None:
                lines = self.logs[at].read_text().splitlines()
                yield f"program {at} ended with {program.returncode}: {lines[-1] if lines else ''}"

    def end(self):
        for program in self.running:
            program.terminate()
            program.wait()


@contextlib.contextmanager
def daemon(baltra, config, folder):
    """A daemon with a configuration; yields the options that name it to commands."""
    path = folder / "config.toml"
    path.write_text(config)
    place = ["--runtime-dir", folder / "run"]
    up = [baltra, "manager", *place, "--state-dir", folder / "state", "--config", path]
    manager = subprocess.Popen([*up, "--set", "metrics.address="], stderr=subprocess.DEVNULL)
    try:
        while subprocess.run([baltra, "devices", *place], capture_output=True).returncode:
            if manager.poll() is not None:
                sys.exit(f"the daemon ended with {manager.returncode}: run {' '.join(map(str, up))}")
            time.sleep(0.2)
        yield place
    finally:
        manager.terminate()
        manager.wait()


def measure(options, folder):
    """Rounds in each interval; true if all programs have gone on."""
    with daemon(options.baltra, CONFIG.format(options.driver), folder) as place:
        # The rounds' lines come at once.
        program = ["stdbuf", "-oL", options.program, "1000000", str(options.bytes), "2"]
        run = [options.baltra, "run", *place, "--", *program]
        programs = Programs([run] * options.programs, folder)
        try:
            upgrade = [options.baltra, "device", "upgrade-driver", "device", *place]
            return intervals(options, programs, upgrade)
        finally:
            programs.end()


def intervals(options, programs, upgrade):
    goes_on = True
    time.sleep(options.seconds)
    for number in range(options.upgrades + 1):
        if number:
            began = time.monotonic()
            done = subprocess.run(upgrade, capture_output=True, text=True)
            took = time.monotonic() - began
            print(f"upgrade {number}: {took:.1f} s, {done.stdout.strip() or done.stderr.strip()}")
            goes_on &= done.returncode == 0
        before = programs.rounds()
        time.sleep(options.seconds)
        made = [now - then for now, then in zip(programs.rounds(), before)]
        print(f"rounds in {options.seconds} s: {' '.join(map(str, made))}", flush=True)
        failed = list(programs.failed())
        if failed:
            print(*failed, sep="\n", flush=True)
        goes_on &= min(made) > 0 and not failed
    return goes_on


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--baltra", default=ROOT / "target/release/baltra", type=Path)
    parser.add_argument(
        "--program",
        default=ROOT / "target/tests/moving",
        type=Path,
        help="crates/tests/programs/moving.c, compiled",
    )
    parser.add_argument("--driver", default="libpocl.so.2", help="library of an OpenCL driver")
    parser.add_argument("--programs", type=int, default=8, help="default 8")
    parser.add_argument("--upgrades", type=int, default=3, help="default 3")
    parser.add_argument("--bytes", type=int, default=262144, help="of a program's buffer")
    parser.add_argument("--seconds", type=float, default=10, help="of an interval (default 10)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="baltra-upgrade-") as folder:
        return 0 if measure(options, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
