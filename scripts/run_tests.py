#!/usr/bin/env python3
"""Runs test programs that cargo has built, and tells at the end how many tests passed.

    cargo build --release --workspace --lib --bins --tests --message-format=json > tests.json
    scripts/run_tests.py tests.json                          # all of them
    scripts/run_tests.py tests.json --only 'tests/*' --not '*/fuzz' -- --test-threads=1

One build serves every group of tests: naming packages to cargo instead would choose other features
of their dependencies, and build those again.

A test that fails is run once more, by itself. If it passes then, it counts as passed and is named:
on a busy host a minute's patience can be too short, and the name says where to look.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
FAILURES = re.compile(r"^failures:\n((?:    \S+\n)+)", re.M)


def programs(messages):
    """(name, executable, package's directory) of each test program, in cargo's order."""
    for line in messages:
        if not line.startswith("{"):
            continue
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message.get("executable"):
            continue
        if message["profile"]["test"]:
            directory = Path(message["manifest_path"]).parent
            name = f"{directory.name}/{message['target']['name']}"
            yield name, message["executable"], directory


def run(executable, directory, arguments):
    """What a test program printed, and its exit status."""
    ended = subprocess.run(
        [executable, *arguments],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return ended.stdout.decode(errors="replace"), ended.returncode


def again(executable, directory, test, arguments):
    """Whether a test passes when it runs by itself."""
    text, status = run(executable, directory, [test, "--exact", *arguments])
    print(text, flush=True)
    return status == 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("messages", type=Path, help="what cargo said when it built the tests")
    pattern = {"action": "append", "metavar": "CRATE/TARGET"}
    parser.add_argument("--only", **pattern, default=[], help="a pattern, as of files")
    parser.add_argument("--not", **pattern, default=[], dest="without", help="likewise")
    # What follows "--" is for every test program.
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    options, arguments = parser.parse_args(words[:split]), words[split + 1 :]

    passed = failed = ignored = 0
    late = []

    def wanted(name):
        matches = lambda patterns: any(fnmatch(name, pattern) for pattern in patterns)
        return matches(options.only or ["*"]) and not matches(options.without)

    with options.messages.open() as messages:
        chosen = [program for program in programs(messages) if wanted(program[0])]
    if not chosen:
        sys.exit("error: no test program of that name has been built")
    for name, executable, directory in chosen:
        began = time.monotonic()
        text, status = run(executable, directory, arguments)
        print(text, f"{name}: {time.monotonic() - began:.1f} s\n", sep="", flush=True)
        result = RESULT.findall(text)
        if not result and status == 0:
            # It captures what it prints, the count of its tests included.
            passed += 1
            continue
        if not result:
            # It died: all that it had to say is above.
            print(f"test {name} ... FAILED (status {status})", flush=True)
            failed += 1
            continue
        counts = [int(count) for count in result[-1]]
        passed += counts[0]
        ignored += counts[2]
        failures = FAILURES.findall(text)
        for test in failures[-1].split() if failures else []:
            if again(executable, directory, test, arguments):
                late.append(f"{name} {test}")
                passed += 1
                counts[1] -= 1
        failed += counts[1]
    for test in late:
        print(f"passed only at the second try: {test}")
    # In the words of cargo's own test runner, for whoever counts.
    verdict = "FAILED" if failed else "ok"
    print(f"result of all: {verdict}. {passed} passed; {failed} failed; {ignored} ignored")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
