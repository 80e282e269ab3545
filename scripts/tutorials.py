#!/usr/bin/env python3
"""Runs the commands of Markdown pages as a reader would, and compares the output that they show.

usage: scripts/tutorials.py [--with NAME] [--verbose] PAGE …

Each page runs in a directory of its own, in one shell with the built programs ($BALTRA, by default
target/release/baltra) first in PATH.

A block is run if its first line is ```console. In it, a line that begins with '$ ' is a command,
and '> ' continues it. A block marked ```console NAME is run only with that --with; the output names
the target that does. A page without blocks to run is skipped. The lines below a command are its
output: '…' stands for the rest of a word or a line, and alone in a line for any number of lines.
White space and numbers before ms, s or % may differ. If no output is shown, any is accepted. A
command has to succeed, unless its output begins with 'error:'.

A line that begins with 'guest# ' is a command in a small Linux under QEMU (scripts/guest.sh), which
starts with the arguments that the page's last 'baltra vm attach' has printed.

A code block after a line that ends with "as `NAME`:" is written to that file. Any other block is an
error, so that a page has no block that is not tested.

The daemons use free ports; 127.0.0.1:8080 stands for the gateway's.
"""

import argparse
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from guest import Guest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The address of the gateway in the pages.
GATEWAY = "127.0.0.1:8080"
# The names of --with, and the targets that run their blocks.
TARGETS = {"vm": "make test-vm", "kubernetes": "make test-kubernetes"}
# A command that is silent for this time hangs.
SILENT_S = 900

FENCE = re.compile(r"^```(\S*) ?(.*)$")
FILE = re.compile(r"\bas `([^`]+)`:$")


class Failure(Exception):
    """A command failed, or its output differs from the page's."""


class Step:
    """A command with the output that the page shows, or a file to write."""

    def __init__(self, line, text, file=None, guest=False):
        self.line, self.text, self.output = line, text, []
        self.file, self.guest = file, guest


def steps_of(page, tag):
    """The files and commands of a page, in order. Each block of the page is one of both."""
    steps, last, block, language = [], "", None, None
    for number, line in enumerate(page.read_text().split("\n"), 1):
        fence = FENCE.match(line)
        if block is None:
            if fence:
                language, block = fence.groups(), []
                begin = number
            elif line.strip():
                last = line.strip()
        elif line == "```":
            file = FILE.search(last)
            if language[0] == "console" and language[1] in ("", *TARGETS):
                if language[1] in ("", tag):
                    steps += commands_of(block, begin)
            elif file:
                steps.append(Step(begin, "\n".join(block) + "\n", file=file.group(1)))
            else:
                untested = "this block is neither run nor written to a file"
                raise Failure(f"{page}:{begin}: {untested}: {' '.join(language)}")
            block, last = None, ""
        else:
            block.append(line)
    return steps


def commands_of(block, begin):
    steps = []
    for number, line in enumerate(block, begin + 1):
        if line.startswith("$ "):
            steps.append(Step(number, line[2:]))
        elif line.startswith("guest# "):
            steps.append(Step(number, line.removeprefix("guest# "), guest=True))
        elif line.startswith("> ") and steps and not steps[-1].output:
            steps[-1].text += "\n" + line[2:]
        elif steps:
            steps[-1].output.append(line)
    return steps


def matches(expected, actual):
    """Whether the output has the form that the page shows."""
    pattern = ""
    for line in expected:
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
            continue
        parts = (simple(part) for part in line.split("…"))
        pattern += ".*".join(re.escape(part) for part in parts) + r"\n"
    text = "".join(f"{simple(line)}\n" for line in actual)
    return re.fullmatch(pattern, text) is not None


def simple(line):
    """A line with its varying numbers and white space replaced."""
    line = re.sub(r"\d+(?:\.\d+)?(?= ?(?:ms|s|%)(?!\w))", "N", line)
    return re.sub(r"\s+", " ", line.rstrip())


class Shell:
    """A shell that runs commands one after another."""

    def __init__(self, directory, environment):
        self.process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
        self.count = 0

    def run(self, command):
        """The command's output and exit status."""
        self.count += 1
        mark = f"@@{os.getpid()}-{self.count}"
        script = f"{{ {command}\n}} </dev/null; printf '\\n{mark} %d\\n' $?\n"
        self.process.stdin.write(script.encode())
        text = b""
        while True:
            shown = text.decode(errors="replace")
            found = re.search(rf"\n{mark} (\d+)\n", shown)
            if found:
                return shown[: found.start()].replace("\r", ""), int(found.group(1))
            if not select.select([self.process.stdout], [], [], SILENT_S)[0]:
                raise Failure(f"{command}: no output for {SILENT_S} s; output so far:\n{shown}")
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                raise Failure(f"{command}: the shell ended; its output:\n{shown}")
            text += piece

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Session:
    """The shell, the daemons and the guest of a page."""

    def __init__(self, baltra):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="baltra-page-"))
        self.work = self.home / "work"
        self.work.mkdir()
        self.baltra = baltra
        self.gateway = f"127.0.0.1:{free_port()}"
        self.environment = {
            **os.environ,
            "PATH": f"{baltra.parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "BALTRA_ROOT": str(ROOT),
            "BALTRA_RUNTIME_DIR": str(self.home / "run"),
            "BALTRA_PATHS__STATE": str(self.home / "state"),
            "BALTRA_GATEWAY__ADDRESS": self.gateway,
            "BALTRA_GATEWAY__GRPC_ADDRESS": "",
            "BALTRA_REGISTRY__ADDRESS": "auto",
            "BALTRA_REGISTRY__METRICS": "",
            "BALTRA_METRICS__ADDRESS": "off",
        }
        self.shell = Shell(self.work, self.environment)
        self.guest = None
        self.device = None

    def run(self, step):
        """The step's output and exit status."""
        if step.guest:
            if not self.guest:
                self.guest = Guest("guest", self.device.split())
                self.guest.ready()
            return self.guest.attempt(step.text)
        output, status = self.shell.run(step.text.replace(GATEWAY, self.gateway))
        device = re.search(r"^ *(-chardev .*)$", output, re.M)
        self.device = device.group(1) if device else self.device
        return output.replace(self.gateway, GATEWAY), status

    def end(self):
        if self.guest:
            self.guest.process.kill()
            self.guest.process.wait()
        self.shell.end()
        down = [self.baltra, "down", "--drain-ms", "0"]
        subprocess.run(down, env=self.environment, capture_output=True, check=False)
        shutil.rmtree(self.home, ignore_errors=True)


def lines_of(output):
    """The lines of an output; its last line may have no line break."""
    return output.rstrip("\n").split("\n") if output.strip() else []


def targets_of(page):
    """The targets that run blocks of a page."""
    names = re.findall(r"^```console (\S+)$", page.read_text(), re.M)
    return sorted({TARGETS[name] for name in names if name in TARGETS})


def run(page, baltra, tag, verbose):
    """Runs a page's commands; returns their number."""
    steps = steps_of(page, tag)
    commands = sum(step.file is None for step in steps)
    if not commands:
        return 0
    session = Session(baltra)
    try:
        for step in steps:
            if step.file:
                (session.work / step.file).write_text(step.text)
                continue
            output, status = session.run(step)
            place = f"{page}:{step.line}: {step.text}"
            if verbose:
                print(f"$ {step.text}\n{output}", flush=True)
            expected = lines_of("\n".join(step.output))
            is_refused = bool(expected) and expected[0].startswith("error:")
            if bool(status) != is_refused:
                raise Failure(f"{place}\nexit status {status}:\n{output}")
            if expected and not matches(expected, lines_of(output)):
                shown = "\n".join(expected)
                raise Failure(f"{place}\nthe page shows:\n{shown}\nbut it prints:\n{output}")
    finally:
        session.end()
    return commands


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--with", dest="tag", choices=TARGETS)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    if options.help or not options.pages:
        print(__doc__)
        return 0 if options.help else 2
    baltra = pathlib.Path(os.environ.get("BALTRA", ROOT / "target/release/baltra")).resolve()
    if not baltra.is_file():
        print(f"error: {baltra} does not exist (run make build, or set BALTRA)", file=sys.stderr)
        return 2
    passed = failed = 0
    for page in options.pages:
        try:
            count = run(page, baltra, options.tag, options.verbose)
            skipped = f"skipped ({', '.join(targets_of(page)) or 'without commands'})"
            print(f"{page}: {f'{count} commands' if count else skipped}", flush=True)
            passed += count > 0
        except Failure as failure:
            print(f"error: {failure}", flush=True)
            failed += 1
    verdict = "FAILED" if failed else "ok"
    print(f"result of all: {verdict}. {passed} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
