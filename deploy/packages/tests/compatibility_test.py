#!/usr/bin/env python3
"""Programs and daemons of the previous release with those of this one, in both directions: over the
Unix socket, over TCP, in a pool, as functions, by the command line, and through an update under
running programs. All of them work, with the same bytes as natively.

    make build && make -C apps && deploy/packages/tests/compatibility_test.py [NAME …]

Names select tests. BALTRA_BINARIES is the directory of this release's programs (target/release);
scripts/previous_release.sh builds the previous ones once and keeps them. The state of the previous
release is opened in crates/tests/tests/upgrade.rs."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/kubernetes/tests"))
from runner import run as run_tests  # noqa: E402

NEW = Path(os.environ.get("BALTRA_BINARIES", ROOT / "target/release")) / "baltra"
APPS = ROOT / "target/apps"
# Ends a command or a condition that hangs.
HANGS_S = 600
# Variables of the caller that select other daemons or drivers.
OTHERS = ("BALTRA_", "OCL_ICD_")
# The reason for which a session of an adopted executor stays where it is.
EARLIER = "its executor is of a release that cannot move sessions"
# The request and the answer of the function `sobel` for one row of pixels.
ROW, EDGES = bytes(range(64)), bytes([4, *[8] * 62, 4])


def environment(**more):
    """The environment of a command."""
    inherited = {n: v for n, v in os.environ.items() if not n.startswith(OTHERS)}
    return inherited | {name: str(value) for name, value in more.items()}


def output(*command, **variables):
    """The standard output of a command, as bytes; an error with its messages if it fails."""
    ran = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=HANGS_S,
        env=environment(**variables),
    )
    words = " ".join(map(str, command))
    assert ran.returncode == 0, f"{words}: {ran.returncode}\n{ran.stdout}\n{ran.stderr.decode()}"
    return ran.stdout


def until(what, condition):
    """Waits until a condition holds."""
    deadline = time.monotonic() + HANGS_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.1)


def free_port():
    """A port on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def accepts(port):
    """Whether a daemon listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Host:
    """Daemons of one host; each is of the release whose program starts it."""

    def __init__(self, home):
        self.home = Path(tempfile.mkdtemp(dir=home))
        self.run_dir = self.home / "run"
        self.daemons = {}
        self.tcp = free_port()

    def start(self, program, daemon, *settings):
        """Starts a daemon."""
        words = [program, daemon, "--runtime-dir", self.run_dir]
        for setting in settings:
            words += ["--set", setting]
        with open(self.home / f"{daemon}.log", "ab") as log:
            self.daemons[daemon] = subprocess.Popen(
                [str(word) for word in words], stdout=log, stderr=log, env=environment()
            )

    def is_running(self, daemon):
        """Whether a daemon runs; an error with its log if it has ended."""
        log = self.home / f"{daemon}.log"
        assert self.daemons[daemon].poll() is None, log.read_text()
        return True

    def manager(self, program, *settings):
        """Starts a manager, and waits until its devices can be used."""
        state, tcp = f"paths.state={self.home / 'state'}", f"listen.tcp=127.0.0.1:{self.tcp}"
        self.start(program, "manager", state, tcp, "metrics.address=", *settings)
        until("the manager serves", lambda: self.is_ready(program))
        return self

    def is_ready(self, program):
        """Whether the devices of the manager can be used."""
        self.is_running("manager")
        command = [program, "--runtime-dir", self.run_dir, "status", "--json"]
        ran = subprocess.run(command, capture_output=True, env=environment())
        return ran.returncode == 0 and json.loads(ran.stdout)["ready"]

    def serve(self, program, daemon, port, *settings):
        """Starts a daemon that listens on a port, and waits until it does."""
        self.start(program, daemon, *settings)
        until(f"the {daemon} serves", lambda: self.is_running(daemon) and accepts(port))
        return self

    def registry(self, program, port):
        """Starts a registry."""
        address, state = f"registry.address=127.0.0.1:{port}", f"{self.home / 'registry'}"
        settings = (address, f"registry.state={state}", "registry.metrics=")
        return self.serve(program, "registry", port, *settings)

    def gateway(self, program, port, endpoint):
        """Starts a gateway whose functions use a manager."""
        settings = [f"gateway.address=127.0.0.1:{port}", "gateway.grpc_address="]
        settings += [f"gateway.engine.endpoints=['{endpoint}']"]
        settings += [f"gateway.state={self.home / 'gateway'}"]
        return self.serve(program, "gateway", port, *settings)

    def socket(self):
        """The endpoint of the manager on its host."""
        return f"unix:{self.run_dir / 'baltra.sock'}"

    def end(self):
        """Stops the daemons; their executors end with their sessions."""
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            daemon.wait(timeout=HANGS_S)


class Tests:
    def __init__(self):
        self.home = Path(tempfile.mkdtemp(prefix="baltra-compatibility-"))
        self.hosts = []
        kept = output(ROOT / "scripts/previous_release.sh", **self.kept()).decode().strip()
        self.old = Path(kept) / "baltra"
        self.pairs = [(self.old, NEW), (NEW, self.old)]
        print(f"previous: {self.text(self.old, '--version')}", flush=True)
        print(f"this: {self.text(NEW, '--version')}", flush=True)
        native = "/etc/OpenCL/vendors/pocl.icd"
        output(*self.sobel("native.png"), OCL_ICD_VENDORS=native)
        self.native = (self.home / "native.png").read_bytes()

    def kept(self):
        """The variable that selects the directory of releases."""
        name = "BALTRA_RELEASES"
        return {name: os.environ[name]} if name in os.environ else {}

    def end(self):
        """Stops everything, and removes it."""
        self.between()
        shutil.rmtree(self.home, ignore_errors=True)

    def between(self):
        """Stops the daemons of the last test."""
        while self.hosts:
            self.hosts.pop().end()

    def host(self):
        """A host without daemons."""
        self.hosts.append(Host(self.home))
        return self.hosts[-1]

    def text(self, *command, **variables):
        """The output of a command, as text."""
        return output(*command, **variables).decode().strip()

    def sobel(self, name, repeat=1):
        """A program that writes its result into a file."""
        return [APPS / "sobel", "--repeat", repeat, "--output", self.home / name]

    def right(self, name):
        """The file of a program has the bytes of the native run."""
        assert (self.home / name).read_bytes() == self.native, name

    def programs_run(self, client, endpoint, **token):
        """Programs with the library of a release have the right results."""
        run = lambda *program: output(client, "run", "--connect", endpoint, "--", *program, **token)
        run(*self.sobel("shared.png", repeat=3))
        self.right("shared.png")
        run(APPS / "matmul", "--n", 200, "--check", "--profile")
        run(APPS / "bandwidth", "--sizes", "1K,1M,64M", "--repeat", 2, "--check")
        run(APPS / "bandwidth", "--sizes", "4M", "--repeat", 4, "--non-blocking")
        run(APPS / "cnn", "--check")

    def test_programs_of_either_release_run_on_the_daemons_of_the_other(self):
        for client, daemon in self.pairs:
            host = self.host().manager(daemon)
            self.programs_run(client, host.socket())
            tool = [daemon, "--runtime-dir", host.run_dir, "tenant"]
            output(*tool, "add", "red")
            token = self.text(*tool, "token", "red")
            self.programs_run(client, f"tcp://127.0.0.1:{host.tcp}", BALTRA_TOKEN=token)

    def test_the_command_lines_read_the_daemons_of_the_other_release(self):
        for client, daemon in self.pairs:
            host = self.host().manager(daemon)
            tool = [client, "--runtime-dir", host.run_dir]
            read = lambda *words: json.loads(output(*tool, *words, "--json"))
            (device,) = read("devices")
            assert device["state"] == "ready" and device["compute_units"] > 0, device
            assert read("status")["ready"]
            output(*tool, "tenant", "add", "red")
            assert "red" in [tenant["name"] for tenant in read("tenant", "ls")]
            output(*tool, "run", "--tenant", "red", "--", *self.sobel("tenant.png"))
            assert read("sessions") == []
            output(*tool, "tenant", "usage", "red")
            output(*tool, "top", "--once")
            output(*tool, "down")

    def test_nodes_of_either_release_serve_in_the_pool_of_the_other(self):
        for mine, other in self.pairs:
            port = free_port()
            url = f"http://127.0.0.1:{port}"
            self.host().registry(mine, port)
            settings = [f"node.registry={url}", "node.name=isabela"]
            self.host().manager(other, *settings)
            for client in (mine, other):
                pool = [client, "devices", "--registry", url, "--json"]
                until("the node has registered", lambda: json.loads(output(*pool)))
                (device,) = json.loads(output(*pool))
                assert device["node"] == "isabela", device
                for change in ("cordon", "uncordon"):
                    output(client, "device", change, "isabela/device0", "--registry", url)
                run = [client, "run", "--registry", url, "--device", "node=isabela", "--"]
                output(*run, *self.sobel("pool.png"))
                self.right("pool.png")

    def test_gateways_of_either_release_call_functions_on_the_daemons_of_the_other(self):
        function = ROOT / "apps/functions/sobel"
        row = self.home / "row"
        row.write_bytes(ROW)
        for gateway, daemon in self.pairs:
            host, port = self.host().manager(daemon), free_port()
            host.gateway(gateway, port, host.socket())
            named = ["--gateway", f"http://127.0.0.1:{port}"]
            # The command line of the other release deploys and calls.
            output(daemon, "function", "deploy", function, *named)
            call = [daemon, "function", "invoke", "sobel", *named, "--data", f"@{row}"]
            kind = "application/octet-stream"
            call += ["--type", kind, "--header", f"Accept: {kind}"]
            call += ["--query", "width=64", "--query", "height=1"]
            assert output(*call) == EDGES

    def started(self, host, name, repeat):
        """A running program with the library of the previous release."""
        run = [self.old, "run", "--connect", host.socket(), "--", *self.sobel(name, repeat)]
        return subprocess.Popen(
            [str(word) for word in run],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
        )

    def finishes(self, program, name):
        """The program ends with the bytes of the native run."""
        text, _ = program.communicate(timeout=HANGS_S)
        assert program.returncode == 0, text.decode()
        self.right(name)

    def sessions(self, host, program):
        """The open sessions, as a release's command line lists them."""
        return json.loads(output(program, "--runtime-dir", host.run_dir, "sessions", "--json"))

    def test_a_program_of_the_previous_release_is_suspended_and_resumed(self):
        host = self.host().manager(NEW)
        program = self.started(host, "suspended.png", repeat=300)
        until("its session is open", lambda: self.sessions(host, NEW))
        session = self.sessions(host, NEW)[0]["id"]
        tool = [NEW, "--runtime-dir", host.run_dir, "session"]
        output(*tool, "suspend", session, "--wait-ms", 10000)
        (listed,) = json.loads(output(*tool, "ls", "--json"))
        assert listed["suspended"], listed
        assert program.poll() is None
        output(*tool, "resume", session)
        self.finishes(program, "suspended.png")

    def test_an_update_of_the_previous_release_keeps_running_programs(self):
        host = self.host().manager(self.old)
        names = [f"{n}.png" for n in range(8)]
        programs = [self.started(host, name, repeat=150) for name in names]
        until("eight sessions are open", lambda: len(self.sessions(host, self.old)) == 8)
        host.daemons["manager"].kill()
        host.daemons["manager"].wait()
        host.manager(NEW)
        still = sum(program.poll() is None for program in programs)
        assert still == 8, f"{still} of 8 programs were running after the update"
        # A new program gets an executor of this release.
        output(NEW, "run", "--connect", host.socket(), "--", *self.sobel("new.png"))
        self.right("new.png")
        # The executors of the previous release cannot suspend a session.
        session = self.sessions(host, NEW)[0]["id"]
        suspend = [NEW, "--runtime-dir", host.run_dir, "session", "suspend", str(session)]
        refused = subprocess.run(suspend, capture_output=True, env=environment(), text=True)
        assert refused.returncode == 1 and EARLIER in refused.stderr, refused
        for name, program in zip(names, programs):
            self.finishes(program, name)


if __name__ == "__main__":
    run_tests(Tests, sys.argv[1:])
