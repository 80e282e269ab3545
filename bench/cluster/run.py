#!/usr/bin/env python3
"""Measures the thesis's tables 6.2 to 6.8 (five functions on three devices through Baltra, compared
with three native functions that have a device each) and its figures 6.4 to 6.9 (one application on
three devices with rising load), alternately, on three nodes in network namespaces or in a
Kubernetes cluster of three nodes.

usage: bench/cluster/run.py [--kubernetes] [--quick] [--parts tables,figures]
       [--uses sobel,matmul,cnn] [--loads high]
                            [--rounds 2] [--seconds 9] [--label NAME]

Needs root, `make build` and a C compiler; --kubernetes also scripts/kubernetes/build.sh. README.md
defines the numbers and the emulation. Writes bench/results/cluster/DATE-LABEL-COMMIT.{json,md},
-*.svg and -*.yaml (the simulated scenarios).
"""

import argparse
import contextlib
import ctypes
import datetime
import hashlib
import importlib.util
import json
import os
import pathlib
import platform
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import report
from common import BALTRA, NATIVE, NODES, Functions, Servers, fetch, pace_us
from uses import CONNECTIONS, DEVICE_OF, NATIVE_DEVICE_OF, ROOT, USES

HERE = pathlib.Path(__file__).resolve().parent
NETWORK = "10.77.0"
DOOR = f"{NETWORK}.1"
CLONE_NEWNET = 0x40000000


def say(text):
    print(text, file=sys.stderr, flush=True)


def address(node):
    return f"{NETWORK}.{11 + NODES.index(node)}"


def enter(namespace):
    """Moves the calling process into the namespace."""
    with open(f"/run/netns/{namespace}") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")


class Network:
    """The namespaces of three nodes, and that of the door with the bridge between them;
    the host's network is unchanged."""

    def __init__(self):
        self.prefix = f"baltra-bench-{os.getpid()}"
        self.made = []
        try:
            self.namespace("door")
            door = self.name("door")
            self.ip("-n", door, "link", "add", "pool", "type", "bridge")
            self.ip("-n", door, "address", "add", f"{DOOR}/24", "dev", "pool")
            self.ip("-n", door, "link", "set", "pool", "up")
            for node in NODES:
                self.namespace(node)
                self.ip(
                    "link",
                    "add",
                    f"node-{node}",
                    "netns",
                    door,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    "eth0",
                    "netns",
                    self.name(node),
                )
                self.ip("-n", door, "link", "set", f"node-{node}", "master", "pool", "up")
                self.ip(
                    "-n", self.name(node), "address", "add", f"{address(node)}/24", "dev", "eth0"
                )
                self.ip("-n", self.name(node), "link", "set", "eth0", "up")
        except BaseException:
            self.stop()
            raise

    def name(self, node):
        return f"{self.prefix}-{node}"

    def namespace(self, node):
        self.ip("netns", "add", self.name(node))
        self.made.append(node)
        self.ip("-n", self.name(node), "link", "set", "lo", "up")

    @staticmethod
    def ip(*words):
        run = subprocess.run(["ip", *words], capture_output=True, text=True)
        if run.returncode:
            raise OSError(f"ip {' '.join(words)}: {run.stderr.strip()}")

    def stop(self):
        for node in self.made:
            subprocess.run(["ip", "netns", "del", self.name(node)], capture_output=True)


class Processes:
    """The started processes, ended in reverse order."""

    def __init__(self, network, home, environment):
        self.network, self.home, self.environment = network, home, environment
        self.running = []

    def start(self, name, node, command, environment=()):
        log = (self.home / f"{name}.log").open("w")
        inside = (lambda: enter(self.network.name(node))) if node else None
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=inside,
            env=dict(self.environment, **dict(environment)),
        )
        self.running.append((name, process))

    def check(self):
        for name, process in self.running:
            if process.poll() is not None:
                raise RuntimeError(
                    f"{name} ended with {process.returncode}: "
                    f"{(self.home / f'{name}.log').read_text()[-2000:]}"
                )

    def stop(self):
        for _, process in reversed(self.running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for _, process in reversed(self.running):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(what, processes, condition):
    deadline = time.monotonic() + 90
    while True:
        processes.check()
        try:
            if condition():
                return
        except (OSError, ValueError, KeyError):
            pass
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within 90 s: {what}")
        time.sleep(0.1)


class Pool(Functions):
    """A registry, three managers and a gateway; all except the managers run in the door's
    namespace."""

    gateway = "http://127.0.0.1:8080"

    def __init__(self, processes, options):
        self.processes, self.home, self.options = processes, processes.home, options
        token, registry_token = secrets.token_hex(16), secrets.token_hex(16)
        self.tool_environment = dict(
            processes.environment,
            BALTRA_REGISTRY=f"http://{DOOR}:7480",
            BALTRA_REGISTRY_TOKEN=registry_token,
            BALTRA_GATEWAY=self.gateway,
            BALTRA_RUNTIME_DIR=str(self.home / "run-gateway"),
        )
        self.daemon(
            "registry",
            None,
            f'[registry]\naddress = "{DOOR}:7480"\ntoken = "{registry_token}"\nmetrics = ""\n',
        )
        for node in NODES:
            place = address(node)
            self.daemon(
                f"manager-{node}",
                node,
                f"""[node]
name = "{node}"
registry = "http://{DOOR}:7480"
registry_token = "{registry_token}"
advertise = ["tcp://{place}:7473"]
[listen]
tcp = "{place}:7473"
[metrics]
address = "{place}:9464"
[[device]]
name = "board-{node}"
driver = "auto"
isolation = "session"
slots = 1
policy = "{options.policy}"
quantum_ms = {options.quantum}
[[tenant]]
name = "functions"
token_sha256 = "{hashlib.sha256(token.encode()).hexdigest()}"
""",
            )
        self.daemon(
            "gateway",
            None,
            f"""[gateway]
address = "{self.gateway.removeprefix("http://")}"
grpc_address = ""
[gateway.engine]
registry = "http://{DOOR}:7480"
registry_token = "{registry_token}"
token = "{token}"
""",
        )
        until(
            "three nodes are in the pool",
            processes,
            lambda: self.tool("devices", "--json").count('"ready"') == len(NODES),
        )
        until(
            "the gateway responds", processes, lambda: fetch(self.gateway + "/healthz") is not None
        )

    def daemon(self, name, node, config):
        path = self.home / f"{name}.toml"
        path.write_text(config)
        path.chmod(0o600)
        chosen = [
            word
            for key in self.options.set
            if name.startswith("manager")
            for word in ("--set", key)
        ]
        self.processes.start(
            name,
            node,
            [
                BALTRA,
                name.split("-")[0],
                "--config",
                path,
                "--runtime-dir",
                self.home / f"run-{name}",
                "--state-dir",
                self.home / f"state-{name}",
                *chosen,
            ],
            variables(self.options, node),
        )

    def manager(self, node):
        return address(node)


class Native(Servers):
    """In the nodes' namespaces."""

    def __init__(self, processes, uses, options):
        self.ports = {use.name: 9001 + i for i, use in enumerate(uses)}
        for use in uses:
            for node in NODES:
                self.start(processes, use, node, options)
        for use in uses:
            for number in NATIVE_DEVICE_OF:
                until("the native servers respond", processes, lambda: fetch(self.url(use, number)))

    def start(self, processes, use, node, options):
        command = [NATIVE, processes.home / use.name / "plan", address(node), self.ports[use.name]]
        processes.start(f"native-{use.name}-{node}", node, command, variables(options, node))

    def server(self, use, node):
        return f"http://{address(node)}:{self.ports[use.name]}/"


def variables(options, node):
    number = str(NODES.index(node)) if node else ""
    return dict(text.replace("{n}", number).split("=", 1) for text in options.env) if node else {}


def drive(system, use, urls, rates, due, options, home):
    """Sends to each URL over its own connection, all at once. The first seconds are not counted."""
    seconds, warmup = options.seconds, options.warmup
    begin = time.monotonic() + 0.3
    loads = {}
    for number in rates:
        file = home / f"due-{number}"
        file.write_text(json.dumps(due[number]))
        command = [
            sys.executable,
            HERE / "load.py",
            urls[number],
            home / f"{use.name}.body",
            file,
            begin,
            warmup + seconds,
            system.key,
        ]
        loads[number] = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.PIPE, text=True
        )
    try:
        time.sleep(max(0.0, begin + warmup - time.monotonic()))
        first, first_at = system.busy(use), time.monotonic()
        time.sleep(max(0.0, begin + warmup + seconds - time.monotonic()))
        last, last_at = system.busy(use), time.monotonic()
        reported = {number: json.loads(load.communicate()[0]) for number, load in loads.items()}
    finally:
        for load in loads.values():
            load.kill()
    functions = {}
    for number, found in reported.items():
        counted = [
            ms
            for at, ms in zip(found["sent_s"], found["latency_ms"])
            if warmup <= at < warmup + seconds
        ]
        functions[number] = {
            "target_per_s": rates[number],
            "latency_ms": counted,
            "failed": found["failed"],
        }
    devices = {
        node: {
            "utilization": 100 * (last[node][0] - first[node][0]) / (last_at - first_at),
            "task_ms": 1e3
            * (last[node][0] - first[node][0])
            / max(1, last[node][1] - first[node][1]),
            "tasks": last[node][1] - first[node][1],
        }
        for node in first
    }
    return {"functions": functions, "devices": devices, "seconds": seconds}


def same_answers(uses, systems, home):
    """Checks before the measurements that every function returns the same bytes natively and
    through Baltra."""
    for use in uses:
        body = (home / f"{use.name}.body").read_bytes()
        urls = [
            (system, url)
            for name, system in systems.items()
            for url in [
                *(system.url(use, number) for number in numbers(name)),
                *(system.rising_url(use, n) for n in range(len(NODES))),
            ]
        ]
        answers = {
            hashlib.sha256(fetch(url, body, system.key)).hexdigest()
            for system, url in urls
            for _ in range(3)
        }
        if len(answers) != 1:
            raise RuntimeError(f"{use.name} returns different bytes natively and through Baltra")


def in_turns(options, systems, rows, measured):
    """The results of `measured` for every row on every system,
    in an order that changes from round to round."""
    records = []
    for round_ in range(options.rounds):
        for row in rows:
            for name in list(systems) if round_ % 2 == 0 else list(reversed(systems)):
                found = {
                    "system": name,
                    "round": round_,
                    **measured(*row, name, systems[name], round_),
                }
                records.append(found)
                served = (
                    sum(len(f["latency_ms"]) for f in found["functions"].values()) / options.seconds
                )
                target = sum(f["target_per_s"] for f in found["functions"].values())
                say(
                    f"round {round_ + 1}: "
                    f"{' '.join(str(getattr(word, 'name', word)) for word in row)} {name}: "
                    f"{served:.1f} of {target:.1f} rq/s"
                )
    return records


def tables(options, uses, systems, home):
    def measured(use, load, name, system, round_):
        rates = {number: use.loads[load][number - 1] * options.factor for number in numbers(name)}
        due = report.due(use.name, load, round_, rates, options.warmup + options.seconds)
        urls = {number: system.url(use, number) for number in rates}
        return {
            "use": use.name,
            "load": load,
            **drive(system, use, urls, rates, due, options, home),
        }

    rows = [
        (use, load)
        for use in uses
        for load in use.loads
        if not options.loads or load in options.loads
    ]
    return in_turns(options, systems, rows, measured)


def figures(options, uses, systems, home):
    def measured(use, rate, name, system, round_):
        rates = {connection: rate / CONNECTIONS for connection in range(CONNECTIONS)}
        due = report.due(use.name, rate, round_, rates, options.warmup + options.seconds)
        urls = {connection: system.rising_url(use, connection) for connection in rates}
        return {
            "use": use.name,
            "rate": rate,
            **drive(system, use, urls, rates, due, options, home),
        }

    rows = [
        (use, rate * options.factor)
        for use in uses
        for rate in (use.rising[::3] if options.quick else use.rising)
    ]
    return in_turns(options, systems, rows, measured)


def numbers(system):
    return list(NATIVE_DEVICE_OF if system == "native" else DEVICE_OF)


def simulate(result, stem):
    """Simulates the same requests on the same devices.
    The scenarios that are kept have steady loads instead."""
    simulated = {}
    for use in [
        use.name for use in USES if any(record["use"] == use.name for record in result["records"])
    ]:
        stem.with_name(f"{stem.name}-{use}.yaml").write_text(report.scenario(result, use))
        for load in report.loads_of(result, use):
            with tempfile.TemporaryDirectory(prefix="baltra-bench-") as home:
                path = pathlib.Path(home) / "scenario.yaml"
                path.write_text(report.scenario(result, use, load))
                (path.parent / "trace.csv").write_text(report.trace(result, use, load))
                run = subprocess.run(
                    [BALTRA, "simulate", str(path), "--json", "--seed", "1"],
                    capture_output=True,
                    text=True,
                )
            if run.returncode:
                say(f"the simulation of {use} {load} failed: {run.stderr}")
            else:
                simulated.setdefault(use, {})[load] = json.loads(run.stdout)[0]
    return simulated


@contextlib.contextmanager
def namespaces(home, environment, uses, options):
    """Both systems, running on three nodes that are network namespaces."""
    network, processes = None, None
    try:
        network = Network()
        enter(network.name("door"))
        processes = Processes(network, home, environment)
        pool = Pool(processes, options)
        pool.deploy(uses)
        yield {"baltra": pool, "native": Native(processes, uses, options)}
        processes.check()
    finally:
        if processes:
            processes.stop()
        if network:
            network.stop()


def git(*words):
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True
    ).stdout.strip()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kubernetes",
        action="store_true",
        help="gateway, registry, managers and native servers as Pods of a cluster of three nodes",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="about a minute, two with --kubernetes: checks that everything runs",
    )
    parser.add_argument(
        "--parts",
        type=lambda t: t.split(","),
        default=["tables", "figures"],
        help="default tables,figures",
    )
    parser.add_argument("--uses", type=lambda t: t.split(","), default=[use.name for use in USES])
    parser.add_argument(
        "--loads", type=lambda t: t.split(","), default=[], help="low, medium, high (default all)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--seconds", type=float, default=20, help="of each row (default 20)")
    parser.add_argument(
        "--warmup",
        type=float,
        default=1,
        help="seconds of each row that are not counted (default 1)",
    )
    parser.add_argument(
        "--pace",
        type=float,
        default=1,
        help="minimum time of a task, as a multiple of the thesis's; 0: none (default 1)",
    )
    parser.add_argument("--factor", type=float, default=1, help="of the thesis's loads (default 1)")
    parser.add_argument("--policy", default="fair", help="of the devices' gates (default fair)")
    parser.add_argument(
        "--quantum",
        type=float,
        default=1,
        help="of the devices' gates, milliseconds; below a task's time, functions take turns "
        "task by task (default 1)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of the managers' configuration",
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of managers and native servers; {n} becomes the node's number: "
        "CUDA_VISIBLE_DEVICES={n}",
    )
    parser.add_argument("--label", default=None, help="the machine in the result's file name")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/cluster")
    options = parser.parse_args()
    options.label = (
        options.label or f"vm{os.cpu_count()}{'-kubernetes' if options.kubernetes else ''}"
    )
    if options.quick:
        options.rounds, options.seconds, options.loads = 1, 2.0, options.loads or ["high"]
    if os.geteuid() != 0:
        sys.exit("error: network namespaces need root (run this as root)")
    if options.kubernetes:
        python = ROOT / "target/venv/bin/python"
        if importlib.util.find_spec("yaml") is None and python.exists():
            os.execv(python, [str(python), *sys.argv])
        import pods  # only with a cluster: needs packages of scripts/setup.sh kubernetes

        pods.isolate()
    uses = [use for use in USES if use.name in options.uses]
    subprocess.run(["make", "-s", "-C", str(HERE)], check=True)
    home = pathlib.Path(tempfile.mkdtemp(prefix="baltra-bench-"))
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, lambda *_: sys.exit("error: ended by a signal"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BALTRA_")}
    environment.setdefault(
        "OCL_ICD_VENDORS", "/etc/OpenCL/vendors/pocl.icd" if options.pace else "/etc/OpenCL/vendors"
    )
    environment["POCL_CACHE_DIR"] = str(home / "pocl")
    try:
        for use in uses:
            use.write(home / use.name, pace_us(use, options))
            (home / f"{use.name}.body").write_bytes(use.body())
        with (pods.systems if options.kubernetes else namespaces)(
            home, environment, uses, options
        ) as systems:
            same_answers(uses, systems, home)
            records = tables(options, uses, systems, home) if "tables" in options.parts else []
            rising = figures(options, uses, systems, home) if "figures" in options.parts else []
    finally:
        shutil.rmtree(home, ignore_errors=True)
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in open("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    kept = (
        "kubernetes",
        "quick",
        "rounds",
        "seconds",
        "warmup",
        "pace",
        "factor",
        "policy",
        "quantum",
        "set",
        "env",
    )
    result = {
        "date": datetime.date.today().isoformat(),
        "options": {key: getattr(options, key) for key in kept},
        "machine": {
            "cpu": cpu,
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "commit": git("rev-parse", "--short=10", "HEAD") or "none",
        },
        "records": records,
        "rising": rising,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"{result['date']}-{options.label}-{result['machine']['commit']}"
    result["simulated"] = simulate(result, stem)
    stem.with_name(stem.name + ".json").write_text(report.dump(result))
    print(report.write(result, stem))


if __name__ == "__main__":
    main()
