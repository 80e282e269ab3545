#!/usr/bin/env python3
"""Moves all sessions of a node between two devices, again and again, until it is terminated.

usage: move_sessions.py BALTRA RUNTIME_DIR DEVICE DEVICE [PAUSE_MS]

Then it prints a line with the number of moves and of refused ones, and a line for each reason.
"""

import collections
import json
import re
import signal
import subprocess
import sys
import time


def main(baltra, runtime_dir, first, second, pause_ms="100"):
    moves, reasons = 0, collections.Counter()

    def run(*words):
        command = [baltra, "--runtime-dir", runtime_dir, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def report(*_):
        print(f"{moves} moves, {reasons.total()} refused", flush=True)
        for reason, count in reasons.most_common():
            print(f"{count:6} {reason}", flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, report)
    while True:
        listed = run("session", "ls", "--json")
        for session in json.loads(listed.stdout or "[]") if listed.returncode == 0 else []:
            to = second if session["device"] == first else first
            moved = run("session", "move", str(session["id"]), "--to", to)
            if moved.returncode == 0:
                moves += 1
            else:
                lines = moved.stderr.strip().splitlines() or ["no reason"]
                reasons[re.sub(r"\d+", "N", lines[-1])] += 1
        time.sleep(int(pause_ms) / 1000)


if __name__ == "__main__":
    if not 5 <= len(sys.argv) <= 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
