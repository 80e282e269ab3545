#!/usr/bin/env python3
"""Measures OpenCL programs natively and behind command prefixes, interleaved,
and renders the result.

Every measurement is one process. Rounds alternate between the configurations, so that other load of
the machine affects all of them alike. README.md defines each number.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import shlex
import signal
import socket
import subprocess
import sys
import time

import report

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
APPS = ROOT / "target/apps"
CLBENCH = ROOT / "target/bench/clbench"
PHOTO = ROOT / "target/demo/photo.ppm"

SUITES = ["micro", "bandwidth", "apps", "clients", "neighbor", "connect", "killed"]
KB, MB, GB = 1 << 10, 1 << 20, 1 << 30
SIZES = [KB, 64 * KB, MB, 16 * MB, 256 * MB, GB, 2 * GB]
SOBEL = ["10x10", "100x100", "320x240", "640x480", "1280x720", "1920x1080"]
MATMUL = [16, 64, 128, 256, 512, 1024]


class Config:
    def __init__(self, name, kind, prefix, env=None, up=None, down=None, usage=None):
        self.name, self.kind, self.prefix = name, kind, prefix
        self.env, self.up, self.down, self.usage = env or {}, up, down, usage

    def command(self, argv, client):
        """{client} in a prefix is replaced with the client's number, so that each client can have
        its own tenant.
        """
        return shlex.split(self.prefix.replace("{client}", str(client))) + [str(a) for a in argv]

    def environment(self, client):
        return {
            **os.environ,
            **{k: v.replace("{client}", str(client)) for k, v in self.env.items()},
        }

    def describe(self):
        return {"name": self.name, "kind": self.kind, "prefix": self.prefix, "env": self.env}


class Runner:
    def __init__(self, options, configs):
        self.options, self.configs = options, configs
        self.records = []
        self.order = random.Random(1)
        self.device = ["--device", options.device] if options.device else []

    def spawn(self, config, argv, client):
        # A separate session, so that a wrapper that hangs is ended together with its children.
        return subprocess.Popen(
            config.command([*argv, *self.device], client),
            cwd=ROOT,
            env=config.environment(client),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def collect(self, process, limit_s):
        """The program's JSON, or a dictionary that describes its failure."""
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return {"failed": f"no end after {limit_s:.0f} s"}
        if process.returncode != 0:
            return {"failed": f"exit status {process.returncode}", "stderr": err[-500:]}
        try:
            return json.loads(out)
        except ValueError:
            return {"failed": "printed no JSON", "stdout": out[-200:], "stderr": err[-500:]}

    def record(self, suite, metric, config, round_, output, **more):
        self.records.append(
            {
                "suite": suite,
                "metric": metric,
                "config": config,
                "round": round_,
                "output": output,
                **more,
            }
        )
        if "failed" in output:
            say(
                f"FAILED {config} {metric}: {output['failed']} "
                f"{output.get('stderr', '').strip()[-200:]}"
            )

    def shuffled(self):
        """The configurations in another order each time, so that none always follows the same."""
        return self.order.sample(self.configs, len(self.configs))

    def each(self, suite, metric, argv, round_, limit_s=None):
        """One process per configuration."""
        for config in self.shuffled():
            begun = time.monotonic()
            output = self.collect(self.spawn(config, argv, 0), limit_s or self.options.timeout)
            self.record(
                suite, metric, config.name, round_, output, process_s=time.monotonic() - begun
            )

    def micro(self, round_):
        self.each(
            "micro",
            "micro",
            [CLBENCH, "micro", "--iterations", 200 if self.options.quick else 1000],
            round_,
        )

    def bandwidth(self, round_):
        sizes = [s for s in SIZES if s <= self.options.bytes_max]
        for size in sizes:
            repeat = 3 if size >= 256 * MB else 10 if size >= 16 * MB else 200
            self.each(
                "bandwidth",
                f"rw_{size}",
                [APPS / "bandwidth", "--json", "--check", "--sizes", size, "--repeat", repeat],
                round_,
            )
        if any(c.kind == "tcp" for c in self.configs):
            self.record("bandwidth", "tcp_stream", "native", round_, {"bytes_per_s": tcp_stream()})

    def apps(self, round_):
        picture = ["--input", PHOTO] if PHOTO.exists() else []
        repeat = 10 if self.options.quick else 30
        for size in SOBEL:
            self.each(
                "apps",
                f"sobel_{size}",
                [APPS / "sobel", "--json", *picture, "--size", size, "--repeat", repeat],
                round_,
            )
        for n in MATMUL + ([2048, 4096] if self.options.large else []):
            repeat = 2 if n >= 2048 else 5 if n >= 512 else 20
            self.each(
                "apps",
                f"matmul_{n}",
                [APPS / "matmul", "--json", "--n", n, "--repeat", repeat],
                round_,
            )
        for net in ["alexnet", "vgg16"]:
            repeat = 5 if self.options.quick or net == "vgg16" else 15
            self.each(
                "apps",
                net,
                [APPS / "cnn", "--json", *picture, "--net", net, "--repeat", repeat],
                round_,
            )

    def together(self, suite, metric, config, round_, jobs, seconds):
        """Starts jobs (a list of clbench arguments) that begin at the same time."""
        start_ms = int(time.time() * 1000) + 1500 + 250 * len(jobs)
        processes = [
            self.spawn(
                config,
                [CLBENCH, "loop", "--seconds", seconds, "--start-at", start_ms, *job],
                client,
            )
            for client, job in enumerate(jobs)
        ]
        for client, (process, job) in enumerate(zip(processes, jobs)):
            output = self.collect(process, seconds + self.options.timeout)
            self.record(suite, metric, config.name, round_, output, client=client, work=job[1])

    def clients(self, round_):
        for count in self.options.clients:
            for config in self.shuffled():
                self.together(
                    "clients",
                    f"clients_{count}",
                    config,
                    round_,
                    [["--work", "task"]] * count,
                    self.options.seconds,
                )

    def neighbor(self, round_):
        seconds = self.options.seconds
        for config in self.shuffled():
            self.together("neighbor", "alone", config, round_, [["--work", "task"]], seconds)
            self.together(
                "neighbor",
                "beside",
                config,
                round_,
                [["--work", "task"], ["--work", "matmul"]],
                seconds,
            )

    def connect(self, round_):
        for start in range(4 if self.options.quick else 10):
            self.each("connect", "connect", [CLBENCH, "connect"], round_ * 100 + start)

    def killed(self, round_):
        """Time for which the resources of a client are held after it was killed during a transfer."""
        for start in range(2 if self.options.quick else 10):
            for config in self.shuffled():
                if config.usage:
                    self.record(
                        "killed", "killed", config.name, round_ * 100 + start, self.kill_one(config)
                    )

    def kill_one(self, config):
        def held():
            out = subprocess.run(
                config.usage,
                shell=True,
                cwd=ROOT,
                env=config.environment(0),
                check=True,
                capture_output=True,
            ).stdout
            mine = [u for u in json.loads(out) if u["tenant"] == "t0"]
            return sum(u["sessions_open"] for u in mine), sum(u["memory_used_bytes"] for u in mine)

        def until(reached):
            deadline = time.monotonic() + self.options.timeout
            while time.monotonic() < deadline:
                now = held()
                if reached(*now):
                    return now
            return None

        process = self.spawn(
            config, [APPS / "bandwidth", "--json", "--sizes", 64 * MB, "--repeat", 100000], 0
        )
        before = until(lambda sessions, memory: sessions > 0 and memory > 0)
        time.sleep(0.2)  # during the transfers
        os.killpg(process.pid, signal.SIGKILL)
        begun = time.monotonic()
        after = before and until(lambda sessions, memory: sessions == memory == 0)
        took = (time.monotonic() - begun) * 1e3
        process.communicate()
        if not after:
            return {"failed": "the client's memory was never " + ("freed" if before else "seen")}
        return {"freed_ms": took, "memory_bytes": before[1]}


def tcp_stream(total=GB, chunk=MB):
    """Bytes per second of one TCP connection over loopback:
    an upper bound for a remote transport."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = os.fork()
        if child == 0:
            try:
                with socket.create_connection(server.getsockname()) as out:
                    data = bytes(chunk)
                    for _ in range(total // chunk):
                        out.sendall(data)
            finally:
                os._exit(0)
        peer, _ = server.accept()
        with peer:
            into, received, begun = memoryview(bytearray(chunk)), 0, time.monotonic()
            while received < total and (n := peer.recv_into(into)):
                received += n
        os.waitpid(child, 0)
    return received / (time.monotonic() - begun)


def say(text):
    print(text, file=sys.stderr, flush=True)


def machine():
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in open("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = next(
        (int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal")), 0
    )
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run(
        [*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True
    )
    dirty = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True
    ).stdout
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e6, 1),
        "kernel": platform.release(),
        "commit": (commit.stdout.strip() or "none") + ("-dirty" if dirty.strip() else ""),
    }


def load_configs(options):
    described = json.loads(pathlib.Path(options.configs).read_text())["configs"]
    configs = [Config(**c) for c in described]
    for text in options.config:
        name, separator, prefix = text.partition("=")
        if not separator:
            sys.exit(f"error: invalid value '{text}' of --config: expected NAME=PREFIX")
        kind = "tcp" if "tcp" in name else "native" if name == "native" else "shm"
        configs = [c for c in configs if c.name != name] + [Config(name, kind, prefix)]
    if options.use:
        unknown = set(options.use) - {c.name for c in configs}
        if unknown:
            sys.exit(
                f"error: no configuration named {', '.join(sorted(unknown))} in {options.configs}"
            )
        configs = [c for c in configs if c.name in options.use]
    usable = []
    for config in configs:
        words = shlex.split(config.prefix)
        if words and "/" in words[0] and not (ROOT / words[0]).exists():
            say(f"skipping {config.name}: {words[0]} is not built")
        else:
            usable.append(config)
    if not usable:
        sys.exit("error: no configuration is left to run")
    return usable


def parse():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: bench/opencl/run.py --suites micro,clients --rounds 3 "
        "--config baltra-tcp='target/release/baltra run --connect tcp://127.0.0.1:7000 --'",
    )
    p.add_argument(
        "--suites",
        default=",".join(SUITES),
        type=lambda t: t.split(","),
        help="of " + ",".join(SUITES),
    )
    p.add_argument(
        "--configs",
        default=HERE / "configs.json",
        help="configurations (default: configs.json beside this file)",
    )
    p.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=PREFIX",
        help="add or replace one; a name that contains tcp has the TCP targets; {client} is the "
        "client's number",
    )
    p.add_argument(
        "--use", type=lambda t: t.split(","), metavar="NAMES", help="only these configurations"
    )
    p.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="of micro, bandwidth, apps, connect, killed (default 5)",
    )
    p.add_argument(
        "--client-rounds", type=int, default=2, help="of clients and neighbor (default 2)"
    )
    p.add_argument(
        "--clients",
        default=[1, 2, 4, 8],
        type=lambda t: [int(n) for n in t.split(",")],
        help="default 1,2,4,8",
    )
    p.add_argument(
        "--seconds", type=int, default=10, help="of each loop in clients and neighbor (default 10)"
    )
    p.add_argument(
        "--bytes-max",
        type=lambda t: int(t),
        default=2 * GB,
        help="largest transfer in bytes (default 2 GB)",
    )
    p.add_argument("--large", action="store_true", help="also matrices of 2048 and 4096")
    p.add_argument(
        "--quick", action="store_true", help="fewer repetitions; checks that everything runs"
    )
    p.add_argument("--device", help="the device whose name contains this text")
    p.add_argument(
        "--timeout",
        type=float,
        default=180,
        help="seconds until a process counts as hung (default 180)",
    )
    p.add_argument(
        "--label",
        default=platform.node() or "machine",
        help="the machine in the result's file name",
    )
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/opencl")
    options = p.parse_args()
    for suite in options.suites:
        if suite not in SUITES:
            p.error(f"unknown suite '{suite}': expected {', '.join(SUITES)}")
    return options


def main():
    options = parse()
    if options.quick:
        options.rounds, options.client_rounds, options.seconds = (
            min(options.rounds, 2),
            1,
            min(options.seconds, 2),
        )
    configs = load_configs(options)
    subprocess.run(["make", "--no-print-directory", "-s", "-C", str(HERE)], check=True)
    runner = Runner(options, configs)
    started = datetime.datetime.now(datetime.timezone.utc)
    try:
        for config in configs:
            if config.up:
                subprocess.run(config.up, shell=True, cwd=ROOT, check=True)
        for suite in options.suites:
            rounds = options.client_rounds if suite in ("clients", "neighbor") else options.rounds
            for round_ in range(rounds):
                say(f"{suite}, round {round_ + 1} of {rounds}")
                getattr(runner, suite)(round_)
    except KeyboardInterrupt:
        say("interrupted: the results so far are written")
    finally:
        for config in configs:
            if config.down:
                subprocess.run(config.down, shell=True, cwd=ROOT)
    where = machine()
    result = {
        "started": started.isoformat(timespec="seconds"),
        "machine": where,
        "quick": options.quick,
        "configs": [c.describe() for c in configs],
        "records": runner.records,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"{started:%Y-%m-%d}-{options.label}-{where['commit']}"
    stem.with_name(stem.name + ".json").write_text(json.dumps(result, separators=(",", ":")) + "\n")
    text = report.write(result, stem)
    print(text)
    say(f"written: {stem}.json, .md, .svg")
    return 1 if any("failed" in r["output"] for r in runner.records) else 0


if __name__ == "__main__":
    sys.exit(main())
