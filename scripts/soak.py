#!/usr/bin/env python3
"""A soak test: random well-behaved, endless, crashing, vanishing and hostile clients on all doors.

    make soak                                  an hour
    scripts/soak.py --seconds 300 --seed 7     five minutes, with a chosen seed

The script starts the daemons of one host in directories of their own, with a tenant for
well-behaved clients and one for the others, and keeps WORKERS clients running: OpenCL programs over
shared memory and TCP, HTTP calls, calls by the VM door's protocol, jobs of ranks. Well-behaved
clients must get the right bytes each time; over HTTP they may be refused with 503 and a
Retry-After, which is counted.

At the end every door must respond within its patience. Sessions, processes, descriptors, memory of
the host and of the device must be back at their values after the first calls. Counts must agree:
the gateway counts each completed call, and the manager's device time is the sum of its tenants'
times. The last line is "N passed, N failed", one check each; --json writes the counts.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import http.client
from collections import Counter
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BALTRA = Path(os.environ.get("BALTRA", ROOT / "target/release/baltra"))
VFUN = BALTRA.with_name("vfun")
# Seconds until a door has to respond after the load, and until resources of ended clients are
# freed. Only a door that is stuck takes this long, on any host.
PATIENCE_S = 180
# The gateway keeps a session for each of the four functions on the device, and a spare one. A crash
# shortly before the first count may have ended them.
GATEWAY_SESSIONS = 5
WORKERS = 6
GOOD, BAD = "good", "bad"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Failure(Exception):
    """A well-behaved client did not get the expected result."""


def children(pid):
    """A process and all of its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                stat = (entry / "stat").read_text()
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def measured(pid):
    """Resident bytes, descriptors and threads of a process."""
    proc = Path(f"/proc/{pid}")
    status = (proc / "status").read_text()
    field = lambda name: int(re.search(rf"^{name}:\s+(\d+)", status, re.M)[1])
    return {
        "resident_bytes": field("VmRSS") << 10,
        "descriptors": len(list((proc / "fd").iterdir())),
        "threads": field("Threads"),
    }


class Host:
    """The daemons of one host, in directories of their own."""

    def __init__(self, work):
        self.work = work
        self.run = work / "run"
        self.env = {**os.environ, "BALTRA_RUNTIME_DIR": str(self.run)}
        self.tcp, self.http, self.metrics = free_port(), free_port(), free_port()
        config = work / "baltra.toml"
        config.write_text(
            f"""
[listen]
tcp = "127.0.0.1:{self.tcp}"
[metrics]
address = "127.0.0.1:{self.metrics}"
[registry]
address = "auto"
metrics = ""
[gateway]
address = "127.0.0.1:{self.http}"
grpc_address = ""
"""
        )
        self.baltra("up", "--config", str(config), "--state-dir", str(work / "state"))
        for tenant in (GOOD, BAD):
            self.baltra("tenant", "add", tenant)
        self.token = self.baltra("tenant", "token", GOOD).split()[-1]
        self.bad_token = self.baltra("tenant", "token", BAD).split()[-1]
        functions = work / "functions"
        shutil.copytree(ROOT / "scripts/soak/functions", functions)
        for name in ("sha256", "uppercase", "empty-native"):
            shutil.copytree(ROOT / "target/functions" / name, functions / name)
        self.functions = functions
        self.baltra("function", "deploy", str(functions), "--gateway", self.url())
        self.vm = subprocess.Popen(
            [BALTRA, "vfun", "--state-dir", work / "vfun", "--functions", functions],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=open(work / "vfun.log", "w"),
            stderr=subprocess.STDOUT,
        )
        self.until("the VM door responds", lambda: self.ask("vm", "ls").returncode == 0)
        attached = self.baltra("vm", "attach", "guest", "--functions", "sha256,uppercase")
        self.vm_socket = re.search(r"path=([^,]+)", attached)[1]

    def url(self):
        return f"http://127.0.0.1:{self.http}"

    def ask(self, *words):
        return subprocess.run([BALTRA, *words], env=self.env, capture_output=True, text=True)

    def baltra(self, *words):
        done = self.ask(*words)
        if done.returncode:
            raise Failure(f"baltra {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def until(self, what, condition):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                raise Failure(f"not within {PATIENCE_S} s: {what}")
            time.sleep(0.2)

    def daemons(self):
        """Process ids by name."""
        status = json.loads(self.baltra("status", "--json"))
        daemons = {name: daemon["pid"] for name, daemon in status["daemons"].items()}
        return daemons | {"manager": status["pid"], "vfun": self.vm.pid}

    def samples(self, port):
        """Metrics of a daemon: {(name, labels): value}."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        rows = re.findall(r"^(\w+)(?:\{(.*?)\})? (\S+)$", text, re.M)
        return {(name, labels): float(value) for name, labels, value in rows}

    def total(self, port, name, having=""):
        values = self.samples(port).items()
        return sum(value for (n, labels), value in values if n == name and having in labels)

    def snapshot(self):
        """Values that must not grow."""
        daemons = self.daemons()
        snapshot = {name: measured(pid) for name, pid in daemons.items()}
        tree = set().union(*(children(pid) for pid in daemons.values()))
        snapshot["host"] = {
            "processes": len(tree),
            "sessions": int(self.total(self.metrics, "baltra_sessions")),
            "device_memory_bytes": int(self.total(self.metrics, "baltra_memory_bytes")),
            "shared_memory_names": len(list(Path("/dev/shm").glob("*baltra*"))),
        }
        return snapshot

    def close(self):
        self.vm.send_signal(signal.SIGTERM)
        self.ask("down", "--drain-ms", "0")
        with suppress(subprocess.TimeoutExpired):
            self.vm.wait(30)
        if self.vm.poll() is None:
            self.vm.kill()


class Clients:
    """One method per kind of client. A good client raises Failure if its result is wrong."""

    def __init__(self, host, work):
        self.host = host
        self.program = work / "client"
        source = ROOT / "scripts/soak/client.c"
        subprocess.run(["cc", "-O2", source, "-lOpenCL", "-o", self.program], check=True)
        self.calls = Counter()  # completed HTTP calls, by function
        self.lock = threading.Lock()
        self.cluster = threading.Lock()
        self.counted = Counter()

    def count(self, what):
        with self.lock:
            self.counted[what] += 1

    # OpenCL

    def opencl(self, rng, tenant, *words):
        """The command line and environment of a client, over shared memory or TCP."""
        if rng.random() < 0.7:
            return [BALTRA, "run", "--tenant", tenant, "--", self.program, *words], self.host.env
        token = self.host.token if tenant == GOOD else self.host.bad_token
        endpoint = f"tcp://127.0.0.1:{self.host.tcp}"
        env = {**self.host.env, "BALTRA_TOKEN": token}
        return [BALTRA, "run", "--connect", endpoint, "--", self.program, *words], env

    def opencl_to_its_end(self, rng, tenant, *words):
        command, env = self.opencl(rng, tenant, *words)
        return subprocess.run(command, env=env, capture_output=True, text=True)

    def opencl_good(self, rng):
        done = self.opencl_to_its_end(rng, GOOD, "good", f"{rng.uniform(0.2, 4):.2f}")
        if done.returncode:
            raise Failure(f"OpenCL: status {done.returncode}: {done.stdout}{done.stderr}")

    def opencl_misuse(self, rng):
        done = self.opencl_to_its_end(rng, GOOD, "misuse")
        if done.returncode:
            raise Failure(f"OpenCL misuse: status {done.returncode}: {done.stdout}{done.stderr}")

    def opencl_crash(self, rng):
        self.opencl_to_its_end(rng, BAD, "crash")

    def opencl_leak(self, rng):
        self.opencl_to_its_end(rng, BAD, "leak")

    def opencl_killed(self, rng, what):
        """A client that is killed after it has started its kernel, or at any moment before."""
        command, env = self.opencl(rng, BAD, what)
        client = subprocess.Popen(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if rng.random() < 0.7:
            client.stdout.readline()
        time.sleep(rng.uniform(0, 1.5))
        with suppress(ProcessLookupError):
            os.killpg(client.pid, signal.SIGKILL)
        client.communicate()

    def opencl_endless(self, rng):
        self.opencl_killed(rng, "endless")

    def opencl_vanishing(self, rng):
        self.opencl_killed(rng, "busy")

    def opencl_hostile(self, rng):
        """Sends bytes that are not a hello to either socket, some of them slowly."""
        if rng.random() < 0.5:
            s = socket.socket(socket.AF_UNIX)
            s.connect(str(self.host.run / "baltra.sock"))
        else:
            s = socket.create_connection(("127.0.0.1", self.host.tcp))
        with s, suppress(OSError):
            for _ in range(rng.randrange(1, 20)):
                s.sendall(rng.randbytes(rng.randrange(1, 4096)))
                time.sleep(rng.choice((0, 0, 0.05)))

    # HTTP

    def post(self, name, body, expected, timeout=PATIENCE_S):
        connection = http.client.HTTPConnection("127.0.0.1", self.host.http, timeout=timeout)
        connection.request("POST", f"/function/{name}", body)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        with self.lock:
            self.calls[name] += 1
            self.counted[f"HTTP {name} {answer.status}"] += 1
        if answer.status == 503 and answer.getheader("Retry-After"):
            return None
        if answer.status not in expected:
            raise Failure(f"HTTP {name}: {answer.status} {data[:300]!r}")
        return data if answer.status == 200 else None

    def http_good(self, rng):
        import hashlib

        for _ in range(rng.randrange(1, 50)):
            body = rng.randbytes(rng.choice((1, 64, 1000, 100_000)))
            data = self.post("sha256", body, (200,))
            if data is not None and data != hashlib.sha256(body).digest():
                raise Failure(f"HTTP sha256 of {len(body)} bytes: {data.hex()}")
            text = f"word {rng.random()}".encode()
            data = self.post("uppercase", text, (200,))
            if data is not None and data != text.upper():
                raise Failure(f"HTTP uppercase of {text!r}: {data!r}")

    def http_spin_good(self, rng):
        """Calls a function that other clients call with an input for which it never ends."""
        words = [rng.randrange(8, 1 << 30) for _ in range(rng.randrange(1, 100))]
        data = self.post("spin", struct.pack(f"<{len(words)}I", *words), (200, 500, 503, 504))
        if data is not None and list(struct.unpack(f"<{len(words)}I", data)) != [
            w + 1 for w in words
        ]:
            raise Failure("HTTP spin: wrong words")

    def http_endless(self, rng):
        self.post("spin", struct.pack("<2I", 7, rng.randrange(100)), (500, 503, 504))

    def http_crash(self, rng):
        self.post("crash", struct.pack("<2I", 7, rng.randrange(100)), (500, 503, 504))

    def http_vanishing(self, rng):
        """Disconnects within its head, its body or its call."""
        head = b"POST /function/spin HTTP/1.1\r\nHost: soak\r\nContent-Length: 8\r\n\r\n"
        whole = head + struct.pack("<2I", 7, 7)
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.host.http)) as s:
            s.sendall(whole[: rng.choice((rng.randrange(1, len(head)), len(head) + 4, len(whole)))])
            time.sleep(rng.uniform(0, 0.5))

    def http_hostile(self, rng):
        requests = (
            b"POST /function/sha256 HTTP/1.1\r\nHost: soak\r\nContent-Length: "
            b"99999999999999\r\n\r\n",
            b"POST /function/sha256 HTTP/1.1\r\nHost: soak\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"1\r\nx\r\n" * 5000,
            b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
            b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: soak\r\nContent-Length: 2\r\n\r\n[}",
            b"POST /function/../../etc/passwd HTTP/1.1\r\nHost: soak\r\nContent-Length: 0\r\n\r\n",
            rng.randbytes(5000),
        )
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self.host.http), timeout=5) as s,
        ):
            s.sendall(rng.choice(requests))
            s.recv(4096)

    # VM

    def vm_call(self, *words, body=b"", kill_after=None):
        env = {**self.host.env, "VFUN_DEVICE": f"unix:{self.host.vm_socket}"}
        client = subprocess.Popen(
            [VFUN, *words],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        if kill_after is not None:
            time.sleep(kill_after)
            client.kill()
        with suppress(BrokenPipeError):
            out, err = client.communicate(body)
            return client.returncode, out, err.decode()
        return client.wait(), b"", ""

    def vm_good(self, rng):
        text = f"guest {rng.random()}".encode()
        words = ("--body", "-", "--raw", "call", "uppercase")
        status, out, err = self.vm_call(*words, body=text)
        if status or out != text.upper():
            raise Failure(f"VM uppercase: status {status}: {out!r} {err}")

    def vm_vanishing(self, rng):
        words = ("--body", "-", "call", "uppercase")
        self.vm_call(*words, body=b"gone", kill_after=rng.uniform(0, 0.1))

    def vm_hostile(self, rng):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as s:
            s.connect(self.host.vm_socket)
            s.sendall(rng.randbytes(rng.randrange(1, 4096)))

    # Messages

    def ranks(self, rng, kill):
        fork = ROOT / "apps/messages/fork"
        command = [
            BALTRA,
            "cluster",
            "run",
            "--out",
            self.host.work / "fork",
            fork / "logical.xml",
            fork / "map.xml",
        ]
        # A cluster runs once at a time; a job after one whose rank was killed must find it stopped.
        with self.cluster:
            job = subprocess.Popen(
                command,
                env=self.host.env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            if kill:
                time.sleep(rng.uniform(0, 0.5))
                for pid in sorted(children(job.pid) - {job.pid})[:1]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            out, err = job.communicate()
        return job.returncode, out, err

    def ranks_good(self, rng):
        status, out, err = self.ranks(rng, kill=False)
        if status or "all:" not in out:
            raise Failure(f"ranks: status {status}: {out}{err}")

    def ranks_dying(self, rng):
        self.ranks(rng, kill=True)


# Relative frequency of each kind of client.
KINDS = {
    "opencl_good": 12,
    "opencl_misuse": 2,
    "opencl_crash": 2,
    "opencl_leak": 2,
    "opencl_endless": 2,
    "opencl_vanishing": 3,
    "opencl_hostile": 3,
    "http_good": 12,
    "http_spin_good": 6,
    "http_endless": 2,
    "http_crash": 1,
    "http_vanishing": 3,
    "http_hostile": 4,
    "vm_good": 6,
    "vm_vanishing": 2,
    "vm_hostile": 2,
    "ranks_good": 2,
    "ranks_dying": 2,
}


def load(clients, seconds, seed):
    """Runs random clients; returns the failures of good ones."""
    end = time.monotonic() + seconds
    failures = []

    def work(number):
        rng = random.Random(f"{seed} {number}")
        while time.monotonic() < end and len(failures) < 20:
            kind = rng.choices(list(KINDS), KINDS.values())[0]
            try:
                getattr(clients, kind)(rng)
            except (Failure, OSError, http.client.HTTPException) as e:
                failures.append(f"{kind}: {type(e).__name__}: {e}")
                print(f"failed: {failures[-1]}", flush=True)
            clients.count(kind)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    began = reported_at = time.monotonic()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.5)
        if time.monotonic() - reported_at >= 60:
            reported_at = time.monotonic()
            with clients.lock:
                done = sum(clients.counted[kind] for kind in KINDS)
            print(
                f"{reported_at - began:.0f} of {seconds} s: {done} clients, {len(failures)} failures",
                flush=True,
            )
    return failures


class Checks:
    """Named checks, printed as cargo's test runner does."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, problem):
        print(f"test {name} ... {'FAILED: ' + str(problem) if problem else 'ok'}", flush=True)
        self.failed += bool(problem)
        self.passed += not problem

    def attempt(self, name, action):
        try:
            action()
            self.check(name, None)
        except (Failure, OSError, http.client.HTTPException) as e:
            self.check(name, e)


def answers(checks, clients, rng):
    """Calls every door once more."""
    for name, client in (
        ("opencl_answers", clients.opencl_good),
        ("http_answers", clients.http_good),
        ("vm_answers", clients.vm_good),
        ("messages_answer", clients.ranks_good),
    ):
        checks.attempt(name, lambda client=client: client(rng))

    def spin():
        def once():
            body = struct.pack("<2I", 8, 9)
            return clients.post("spin", body, (200, 500, 503, 504)) == struct.pack("<2I", 9, 10)

        clients.host.until(
            "the function that other clients called with endless inputs responds", once
        )

    checks.attempt("misused_function_answers", spin)


def grown(before, after):
    """Values that have grown by more than caches and allocators keep."""
    problems = []
    for name, was in before.items():
        for key, value in was.items():
            now = after[name][key]
            if key == "resident_bytes":
                bound = value * 1.5 + (96 << 20)
            elif key == "threads":
                bound = value + 16
            elif key == "descriptors":
                bound = value + 32
            elif key == "processes":
                bound = value + 4
            elif key == "device_memory_bytes":
                bound = value + (64 << 20)
            elif key == "sessions":
                bound = max(value, GATEWAY_SESSIONS)
            else:
                bound = value
            if now > bound:
                problems.append(f"{name} {key}: {value} before, {now} after (at most {bound:.0f})")
    return problems


def books(host, clients):
    """Differences between counts of the same event."""
    problems = []
    for name, made in clients.calls.items():
        counted = host.total(host.http, "baltra_gateway_calls_total", f'function="{name}"')
        # The gateway may count calls of clients that vanish, and of hostile clients, some of which
        # send a damaged body; all of these name spin.
        others = ("http_vanishing", "http_hostile") if name == "spin" else ()
        extra = sum(clients.counted[kind] for kind in others)
        if not made <= counted <= made + extra:
            problems.append(
                f"{made} calls of {name} and at most {extra} by vanishing and hostile clients, but "
                f"the gateway counted {counted:.0f}"
            )
    usage = json.loads(host.baltra("tenant", "usage", "--json"))
    for line in usage:
        having = f'tenant="{line["tenant"]}"'
        # The metrics are read later, and calls without a waiting client may have ended meanwhile.
        tasks = host.total(host.metrics, "baltra_tasks_total", having)
        if tasks < line["tasks"]:
            problems.append(
                f"{line['tenant']}: {line['tasks']} tasks in the usage account, {tasks:.0f} in the "
                "metrics"
            )
        if line["sessions_open"] and line["tenant"] in (GOOD, BAD):
            problems.append(f"{line['tenant']}: {line['sessions_open']} sessions open")
    missing = {GOOD, BAD} - {line["tenant"] for line in usage}
    if missing:
        problems.append(f"without a usage account: {', '.join(missing)}")
    return problems


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=3600, help="duration of the load (3600)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--json", type=Path, help="file for the counts")
    parser.add_argument("--keep", action="store_true", help="keep the daemons' directories")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    work = Path(tempfile.mkdtemp(prefix="baltra-soak."))
    checks = Checks()
    host = None
    try:
        host = Host(work)
        clients = Clients(host, work)
        rng = random.Random(options.seed)
        # By now executors run and caches are filled.
        for kind in KINDS:
            checks.attempt(f"first_{kind}", lambda kind=kind: getattr(clients, kind)(rng))
        before = host.snapshot()
        failures = load(clients, options.seconds, options.seed)
        checks.check("well_behaved_clients_get_right_answers", "; ".join(failures[:5]))
        answers(checks, clients, rng)

        def settled():
            host.until(
                "no resources are left over",
                lambda: not grown(before, host.snapshot()),
            )

        try:
            settled()
            checks.check("nothing_is_leaked", None)
        except Failure:
            checks.check("nothing_is_leaked", "; ".join(grown(before, host.snapshot())))
        checks.check("books_agree", "; ".join(books(host, clients)))
        if options.json:
            counted = dict(sorted(clients.counted.items()))
            report = {"seed": options.seed, "seconds": options.seconds, "counted": counted}
            report |= {"before": before, "after": host.snapshot(), "failures": failures}
            options.json.write_text(json.dumps(report, indent=1) + "\n")
        for what, number in sorted(clients.counted.items()):
            print(f"{number:8} {what}")
    finally:
        if host:
            host.close()
        if options.keep or checks.failed:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
