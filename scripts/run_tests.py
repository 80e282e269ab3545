#!/usr/bin/env python3
"""Runs test programs built by cargo, and prints the number of passed tests at the end.

    cargo build --workspace --lib --bins --tests --message-format=json > tests.json
    scripts/run_tests.py tests.json                          # all of them
    scripts/run_tests.py tests.json --only 'tests/*' --not '*/fuzz' -- --test-threads=1
    scripts/run_tests.py tests.json --share claims           # twice, side by side: each runs a part

One build serves every group of tests. Naming packages to cargo would select other features of
their dependencies and build those again.

A failed test is run once more, alone. If it then passes, it counts as flaky, neither as passed nor
as failed, and is listed.

A program hangs if it prints nothing for five minutes and neither it nor its child processes use
processor time, so that load of other programs cannot fail a test. The runner prints the position
of its threads, ends it, and counts each test without a result as failed. Processes that a program
leaves running are listed and ended too, so that they cannot disturb the next program.
"""

import argparse
import json
import os
import re
import resource
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
# Processor seconds that count as progress; waiting daemons use less.
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
    """The processes of a session: all children of a program that did not leave the session."""
    for entry in Path("/proc").iterdir():
        try:
            # A process that is ending has no command line.
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
    """Processor seconds of the running processes of a session, and of their reaped children."""
    ticks = 0
    for pid in processes(session):
        # Fields 14 to 17 of proc(5) come after the command's name, which may contain blanks.
        fields = read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def reaped_s():
    """Processor seconds of all programs that ended, with the children that they reaped."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def describe(pid, stacks):
    """The command line of a process, and the positions of its threads."""
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
            text = subprocess.run(debug, stdout=subprocess.PIPE, timeout=60, **options).stdout
            lines += [f"    {line}" for line in text.decode(errors="replace").splitlines() if line]
        except subprocess.TimeoutExpired:
            lines.append("    gdb did not respond")
    return "\n".join(lines)


def end(session, stacks):
    """Ends the remaining processes of a session, and describes them."""
    left = list(processes(session))
    descriptions = [describe(pid, stacks) for pid in left]
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return descriptions


def run(executable, directory, arguments):
    """The output of a test program, and its exit status: None if it hung."""
    # A file, because a reader of a pipe waits until every holder of the other end has closed it.
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
                    # The sum falls when a process ends without being reaped.
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
    """The tests of a program that have no result in its output."""
    command = [executable, "--list", "--format", "terse"]
    listed = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, check=True, text=True)
    done = {test for test, _ in DONE.findall(text)}
    tests = [line.removesuffix(": test") for line in listed.stdout.splitlines()]
    return [test for test in tests if test not in done]


def claim(directory, name):
    """Whether no other runner has begun the program."""
    directory.mkdir(exist_ok=True)
    try:
        (directory / name.replace("/", ".")).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def again(executable, directory, test, arguments):
    """Whether a test passes when it runs alone."""
    text, status = run(executable, directory, [test, "--exact", *arguments])
    print(text, flush=True)
    return status == 0


def main():
    # Ends the running program, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("messages", type=Path, help="JSON messages of the cargo build")
    pattern = {"action": "append", "metavar": "CRATE/TARGET"}
    parser.add_argument(
        "--only", **pattern, default=[], help="run only matching programs (a file name pattern)"
    )
    parser.add_argument(
        "--not", **pattern, default=[], dest="without", help="skip matching programs"
    )
    parser.add_argument(
        "--first",
        **pattern,
        default=[],
        help="run matching programs first, so that a long one is not the last",
    )
    parser.add_argument(
        "--share",
        type=Path,
        metavar="DIR",
        help="skip programs that another runner with this directory has begun",
    )
    # Arguments after "--" go to every test program.
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    options, arguments = parser.parse_args(words[:split]), words[split + 1 :]

    passed = failed = ignored = 0
    flaky = []

    def matches(name, patterns):
        return any(fnmatch(name, pattern) for pattern in patterns)

    def wanted(name):
        return matches(name, options.only or ["*"]) and not matches(name, options.without)

    with options.messages.open() as messages:
        chosen = [program for program in programs(messages) if wanted(program[0])]
    chosen.sort(key=lambda program: not matches(program[0], options.first))
    if not chosen:
        sys.exit("error: no built test program matches --only and --not")
    for name, executable, directory in chosen:
        if options.share and not claim(options.share, name):
            continue
        began, used = time.monotonic(), reaped_s()
        text, status = run(executable, directory, arguments)
        took = f"{time.monotonic() - began:.1f} s, {reaped_s() - used:.1f} s of processors"
        print(text, f"{name}: {took}\n", sep="", flush=True)
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
            # The program captures its own output, including the count of its tests.
            counts, failures = [1, 0, 0], []
        else:
            # The program died; its output is above.
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
    # The format of cargo's own test runner, so that callers can parse both.
    verdict = "FAILED" if failed else "ok"
    print(f"result of all: {verdict}. {passed} passed; {failed} failed; {ignored} ignored")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
