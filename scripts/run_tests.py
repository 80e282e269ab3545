#!/usr/bin/env python3
"""Runs test programs that cargo has built, and tells at the end how many tests passed.

    cargo build --release --workspace --lib --bins --tests --message-format=json > tests.json
    scripts/run_tests.py tests.json                          # all of them
    scripts/run_tests.py tests.json --only 'tests/*' --not '*/fuzz' -- --test-threads=1

One build serves every group of tests: naming packages to cargo instead would choose other features
of their dependencies, and build those again.

A test that fails is run once more, by itself. If it passes then, it counts as flaky, neither as
passed nor as failed, and is named.

A program hangs if, for five minutes, it prints nothing and neither it nor what it started uses
processor time: other load cannot make a test fail. Where its threads wait is printed, it is ended,
and each of its tests without a result counts as failed. What a program leaves running is named and
ended too, so that it cannot disturb the next.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path

# Seconds without output and without processor time.
SILENCE_S = 300
# Processor seconds that count as progress: daemons that wait use a little, too.
PROGRESS_S = 3
DONE = re.compile(r"^test (\S+) \.\.\. (ok|FAILED|ignored)", re.M)
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


def processes(session):
    """The processes of a session: what a program has started, but for what left it on purpose."""
    for entry in Path("/proc").iterdir():
        try:
            # One that is ending already has no command line.
            own = entry.name.isdigit() and os.getsid(int(entry.name)) == session
            if own and read(entry / "cmdline"):
                yield int(entry.name)
        except ProcessLookupError:
            continue


def read(path):
    try:
        return path.read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return "?"


def processor_s(session):
    """Processor seconds of the processes of a session that run, and of those they waited for."""
    ticks = 0
    for pid in processes(session):
        # After the command's name, which may hold blanks: fields 14 to 17 of proc(5).
        fields = read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def describe(pid, stacks):
    """What a process is, and where its threads wait."""
    lines = [f"  process {pid}: {read(Path(f'/proc/{pid}/cmdline'))[:200]}"]
    if not stacks:
        return lines[0]
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        call = read(task / "syscall").split(" ")[0]
        name, place = read(task / "comm"), read(task / "wchan")
        lines.append(f"    {task.name} {name}: {place}, system call {call}")
    if shutil.which("gdb"):
        debug = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all backtrace 24"]
        options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            said = subprocess.run(debug, stdout=subprocess.PIPE, timeout=60, **options).stdout
            lines += [f"    {line}" for line in said.decode(errors="replace").splitlines() if line]
        except subprocess.TimeoutExpired:
            lines.append("    gdb gave no answer")
    return "\n".join(lines)


def end(session, stacks):
    """Ends what is left of a session, and says what it was."""
    left = list(processes(session))
    said = [describe(pid, stacks) for pid in left]
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return said


def run(executable, directory, arguments):
    """What a test program printed, and its exit status: None if it hung."""
    # A file, for whoever holds a pipe's other end can make its reader wait for ever.
    with tempfile.TemporaryFile() as output:
        program = subprocess.Popen(
            [executable, *arguments],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        length, used, progress, status = 0, 0.0, time.monotonic(), None
        try:
            while status is None and time.monotonic() - progress < SILENCE_S:
                try:
                    status = program.wait(timeout=1)
                except subprocess.TimeoutExpired:
                    size, now = os.fstat(output.fileno()).st_size, processor_s(program.pid)
                    # It falls when a process ends that nobody waits for.
                    used = min(used, now)
                    if size > length or now - used > PROGRESS_S:
                        length, used, progress = size, now, time.monotonic()
        finally:
            left = end(program.pid, stacks=status is None)
            program.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    if status is None:
        text += f"\nneither output nor processor time for {SILENCE_S} s:\n" + "\n".join(left) + "\n"
    elif left:
        text += "left running:\n" + "\n".join(left) + "\n"
    return text, status


def unfinished(executable, directory, text):
    """The tests of a program that have no result in what it printed."""
    command = [executable, "--list", "--format", "terse"]
    listed = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, check=True, text=True)
    done = {test for test, _ in DONE.findall(text)}
    tests = [line.removesuffix(": test") for line in listed.stdout.splitlines()]
    return [test for test in tests if test not in done]


def again(executable, directory, test, arguments):
    """Whether a test passes when it runs by itself."""
    text, status = run(executable, directory, [test, "--exact", *arguments])
    print(text, flush=True)
    return status == 0


def main():
    # So that what runs is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("messages", type=Path, help="what cargo said when it built the tests")
    pattern = {"action": "append", "metavar": "CRATE/TARGET"}
    parser.add_argument("--only", **pattern, default=[], help="a pattern, as of files")
    parser.add_argument("--not", **pattern, default=[], dest="without", help="likewise")
    # What follows "--" goes to every test program.
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    options, arguments = parser.parse_args(words[:split]), words[split + 1 :]

    passed = failed = ignored = 0
    flaky = []

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
        if status is None:
            results = [result for _, result in DONE.findall(text)]
            failures = [test for test, result in DONE.findall(text) if result == "FAILED"]
            failures += unfinished(executable, directory, text)
            counts = [results.count("ok"), len(failures), results.count("ignored")]
        elif result:
            counts = [int(count) for count in result[-1]]
            named = FAILURES.findall(text)
            failures = named[-1].split() if named else []
        elif status == 0:
            # It captures what it prints, the count of its tests included.
            counts, failures = [1, 0, 0], []
        else:
            # It died: all that it had to say is above.
            print(f"test {name} ... FAILED (status {status})", flush=True)
            counts, failures = [0, 1, 0], []
        passed += counts[0]
        ignored += counts[2]
        for test in failures:
            if again(executable, directory, test, arguments):
                flaky.append(f"{name} {test}{' (it hung)' if status is None else ''}")
                counts[1] -= 1
        failed += counts[1]
    for test in flaky:
        print(f"flaky: {test}")
    # In the words of cargo's own test runner, for whoever counts.
    verdict = "FAILED" if failed else "ok"
    print(f"result of all: {verdict}. {passed} passed; {failed} failed; {ignored} ignored")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
