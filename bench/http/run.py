#!/usr/bin/env python3
"""Measures the HTTP door alternately with nginx and with the same OpenCL task without a gateway.

usage: bench/http/run.py [--seconds 5] [--rounds 3] [--connections 32] [--threads 1] [--label NAME]

Needs nginx and wrk (scripts/setup.sh bench), `make build apps` and `make -C apps/functions`.
README.md defines each number. Writes bench/results/http/DATE-LABEL-COMMIT.{json,md}.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BALTRA = os.environ.get("BALTRA", str(ROOT / "target/release/baltra"))
CLBENCH = ROOT / "target/bench/clbench"

# The measured functions in addition to the examples: bodies of 64 bytes, and the 4 KB task of
# bench/opencl (write 4 KB, a kernel, read 4 KB).
FUNCTIONS = {
    "empty-kernel": """name: empty-kernel
methods: [POST, GET]
implementations:
  - opencl: {source: kernels.cl, kernel: nothing, global: [1]}
""",
    "empty-batched": """name: empty-batched
methods: [POST, GET]
implementations:
  - opencl: {source: kernels.cl, kernel: nothing, global: [calls]}
batching: {max: 256, wait_us: 300, dimension: calls}
""",
    "bytes": """name: bytes
inputs: [{name: given, type: u8, shape: [calls, 64], codecs: [raw]}]
outputs: [{name: made, type: u8, shape: [calls, 64], codecs: [raw]}]
args: [given, made]
implementations:
  - opencl: {source: kernels.cl, kernel: inverse, global: [calls, 64]}
""",
    "bytes-batched": """name: bytes-batched
inputs: [{name: given, type: u8, shape: [calls, 64], codecs: [raw]}]
outputs: [{name: made, type: u8, shape: [calls, 64], codecs: [raw]}]
args: [given, made]
implementations:
  - opencl: {source: kernels.cl, kernel: inverse, global: [calls, 64]}
batching: {max: 1024, wait_us: 300, dimension: calls}
""",
    "task": """name: task
inputs: [{name: given, type: u8, shape: [4096], codecs: [raw]}]
outputs: [{name: made, type: u8, shape: [4096], codecs: [raw]}]
args: [given, made]
implementations:
  - opencl: {source: kernels.cl, kernel: inverse_flat, global: [1024]}
""",
}
KERNELS = """kernel void nothing(void) {}
kernel void inverse(global const uchar *restrict given, global uchar *restrict made) {
  size_t at = get_global_id(0) * 64 + get_global_id(1);
  made[at] = given[at] ^ 255;
}
kernel void inverse_flat(global const uint *restrict given, global uint *restrict made) {
  size_t at = get_global_id(0);
  made[at] = given[at] ^ 0xffffffff;
}
"""

LUA = """
wrk.method = os.getenv("METHOD")
local bytes = tonumber(os.getenv("BYTES"))
if bytes > 0 then
  wrk.body = string.rep("x", bytes)
  wrk.headers["Content-Type"] = "application/octet-stream"
end
local pipeline = tonumber(os.getenv("PIPELINE"))
if pipeline > 1 then
  function init(args)
    local one = wrk.format()
    local all = {}
    for i = 1, pipeline do all[i] = one end
    request_text = table.concat(all)
  end
  function request() return request_text end
end
function done(summary, latency, requests)
  io.write(string.format('{"requests": %d, "seconds": %.6f, "min_us": %d, "p50_us": %d, "p95_us": %d, "p99_us": %d, "max_us": %d, ' ..
    '"errors": %d}\\n', summary.requests, summary.duration / 1e6, latency.min, latency:percentile(50), latency:percentile(95),
    latency:percentile(99), latency.max, summary.errors.connect + summary.errors.read + summary.errors.write +
    summary.errors.status + summary.errors.timeout))
end
"""


def say(text):
    print(text, file=sys.stderr, flush=True)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def wrk(url, seconds, connections, threads, method="POST", size=0, pipeline=1):
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(LUA)
        script.flush()
        environment = dict(os.environ, METHOD=method, BYTES=str(size), PIPELINE=str(pipeline))
        command = [
            "wrk",
            "-t",
            str(min(threads, connections)),
            "-c",
            str(connections),
            "-d",
            f"{seconds}s",
            "-s",
            script.name,
            url,
        ]
        output = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment,
            timeout=seconds + 60,
            check=True,
        ).stdout
    found = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    return dict(found, per_s=found["requests"] / found["seconds"])


class Nginx:
    """A constant 200 with an empty body and one worker per core,
    tuned according to nginx' documentation."""

    def __init__(self, home):
        self.port = free_port()
        configuration = home / "nginx.conf"
        configuration.write_text(f"""daemon off; worker_processes auto; pid {home}/nginx.pid; error_log {home}/nginx.log;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 1000000000; keepalive_timeout 600; tcp_nodelay on;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  server {{ listen 127.0.0.1:{self.port} reuseport backlog=4096; location / {{ return 200 ""; }} }} }}
""")
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        self.process = subprocess.Popen(
            [program, "-c", str(configuration)], stderr=subprocess.DEVNULL
        )
        self.url = f"http://127.0.0.1:{self.port}/"
        wait_for(self.url)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)


def wait_for(url):
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Baltra:
    def __init__(self, home, options):
        self.environment = dict(os.environ, BALTRA_RUNTIME_DIR=str(home / "run"))
        self.home = home
        keys = [
            "metrics.address=off",
            "registry.address=auto",
            "registry.metrics=",
            "gateway.address=auto",
            "gateway.grpc_address=",
            *options,
        ]
        self.command(
            "up",
            "--state-dir",
            str(home / "state"),
            *[word for key in keys for word in ("--set", key)],
        )
        self.url = json.loads(self.command("status", "--json"))["daemons"]["gateway"]["url"]
        directory = home / "functions"
        for name, manifest in FUNCTIONS.items():
            (directory / name).mkdir(parents=True)
            (directory / name / "function.yaml").write_text(manifest)
            (directory / name / "kernels.cl").write_text(KERNELS)
        shutil.copytree(ROOT / "target/functions/empty-native", directory / "empty-native")
        self.command("function", "deploy", str(directory))

    def command(self, *words):
        run = subprocess.run([BALTRA, *words], capture_output=True, text=True, env=self.environment)
        if run.returncode:
            sys.exit(f"error: baltra {' '.join(words)}: {run.stderr}")
        return run.stdout

    def call(self, name, body=b""):
        request = urllib.request.Request(
            f"{self.url}/function/{name}",
            data=body,
            method="POST",
            headers={"Content-Type": "application/octet-stream"} if body else {},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            timing = dict(
                part.strip().split(";dur=") for part in answer.headers["server-timing"].split(",")
            )
            return answer.read(), {key: float(value) for key, value in timing.items()}

    def direct_task(self, seconds):
        """The same 4 KB task in an OpenCL program on the shared device, in microseconds."""
        run = subprocess.run(
            [
                BALTRA,
                "run",
                "--",
                str(CLBENCH),
                "loop",
                "--work",
                "task",
                "--seconds",
                str(seconds),
            ],
            capture_output=True,
            text=True,
            env=self.environment,
            check=True,
        )
        return json.loads(run.stdout)["latency_us"]

    def cold(self, name, body):
        """The first call of a function that was removed and deployed again,
        with the program in the executor's cache."""
        self.command("function", "remove", name)
        self.command("function", "deploy", str(self.home / "functions" / name))
        began = time.monotonic()
        _, timing = self.call(name, body)
        return {"total_ms": (time.monotonic() - began) * 1e3, **timing}

    def stop(self):
        self.command("down", "--drain-ms", "0")


# The loads: name, function (None: nginx), bytes of the body.
LOADS = [
    ("nginx, fixed 200", None, 0),
    ("empty, native function", "empty-native", 0),
    ("empty kernel, unbatched", "empty-kernel", 0),
    ("empty kernel, batched", "empty-batched", 0),
    ("64 bytes, kernel, unbatched", "bytes", 64),
    ("64 bytes, kernel, batched", "bytes-batched", 64),
]
# Minimum rates, as shares of nginx's rate; with up to 64 connections, and with more.
PROMISED = {
    "empty, native function": (0.8, 0.7),
    "empty kernel, unbatched": (0.5, 0.5),
    "empty kernel, batched": (0.8, 0.8),
}
# Minimum rates, calls a second.
PROMISED_PER_S = {"64 bytes, kernel, batched": 348_000}
# Maximum latencies of one call at a time, microseconds.
ADDED_P50_US, ADDED_P99_US, SPREAD_US = 30, 80, 30


def measure(options, nginx, baltra):
    result = {"rates": {}, "single": {}, "direct": [], "cold": []}
    expected = bytes(byte ^ 255 for byte in b"x" * 64)
    for name in ("bytes", "bytes-batched"):
        if baltra.call(name, b"x" * 64)[0] != expected:
            sys.exit(f"error: {name} returns wrong bytes")
    for name, size in (
        ("empty-native", 0),
        ("empty-kernel", 0),
        ("empty-batched", 0),
        ("task", 4096),
    ):
        baltra.call(name, b"x" * size)
    # Another order in each round, so that none always follows the same.
    order = random.Random(1)
    for round_ in range(options.rounds):
        say(f"round {round_ + 1} of {options.rounds}")
        for name, function, size in order.sample(LOADS, len(LOADS)):
            url = nginx.url if function is None else f"{baltra.url}/function/{function}"
            found = wrk(
                url,
                options.seconds,
                options.connections,
                options.threads,
                size=size,
                pipeline=options.pipeline,
            )
            result["rates"].setdefault(name, []).append(found)
            say(
                f"  {name}: {found['per_s']:.0f}/s, p99 {found['p99_us']} us, {found['errors']} "
                "errors"
            )
        # One connection: the cost of the round trip and of the task.
        result["single"].setdefault("nginx", []).append(wrk(nginx.url, options.seconds, 1, 1))
        result["single"].setdefault("native", []).append(
            wrk(f"{baltra.url}/function/empty-native", options.seconds, 1, 1)
        )
        result["single"].setdefault("task", []).append(
            wrk(f"{baltra.url}/function/task", options.seconds, 1, 1, size=4096)
        )
        result["direct"].append(baltra.direct_task(options.seconds))
        for _ in range(3):
            result["cold"].append(baltra.cold("bytes", b"x" * 64))
    return result


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def mark(good):
    return "met" if good else "**not met**"


def render(result):
    lines = [
        f"# The HTTP door, {result['date']}",
        "",
        f"{result['machine']['cpu']}, {result['machine']['cores']} cores, "
        f"commit {result['machine']['commit']}; wrk with {result['options']['threads']} threads "
        "and "
        f"{result['options']['connections']} connections on the same cores, "
        f"{result['options']['seconds']} s, medians of "
        f"{result['options']['rounds']} alternating rounds; pipeline "
        f"{result['options']['pipeline']}.",
        "",
        "| what | requests/s | × nginx | p50 µs | p99 µs | errors | promise | |",
        "|---|--:|--:|--:|--:|--:|---|---|",
    ]
    rates, base = result["rates"], median(result["rates"]["nginx, fixed 200"], "per_s")
    for name, rows in rates.items():
        share = median(rows, "per_s") / base
        promise = verdict = ""
        if shares := PROMISED.get(name):
            least = shares[result["options"]["connections"] > 64]
            promise, verdict = f"≥ {least} × nginx", mark(share >= least)
        elif least := PROMISED_PER_S.get(name):
            promise, verdict = f"≥ {least:,} /s", mark(median(rows, "per_s") >= least)
        lines.append(
            f"| {name} | {median(rows, 'per_s'):,.0f} | {share:.2f} | {median(rows, 'p50_us'):.0f} "
            f"| {median(rows, 'p99_us'):.0f} | "
            f"{sum(row['errors'] for row in rows)} | {promise} | {verdict} |"
        )
    lines += [
        "",
        "One connection, one call at a time:",
        "",
        "| operation | min µs | p50 µs | p95 µs | p99 µs |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, label in (
        ("nginx", "nginx"),
        ("native", "empty native function"),
        ("task", "the 4 KB task over HTTP"),
    ):
        row = result["single"][name]
        lines.append(
            f"| {label} | {median(row, 'min_us'):.0f} | {median(row, 'p50_us'):.0f} | "
            f"{median(row, 'p95_us'):.0f} | {median(row, 'p99_us'):.0f} |"
        )
    direct = {key: median(result["direct"], key) for key in ("min", "median", "p95", "p99")}
    lines.append(
        "| the 4 KB task by an OpenCL program | "
        + " | ".join(f"{direct[key]:.0f}" for key in ("min", "median", "p95", "p99"))
        + " |"
    )
    added = [
        median(result["single"]["task"], http) - direct[own]
        for http, own in (("p50_us", "median"), ("p99_us", "p99"))
    ]
    spread = median(result["single"]["task"], "p95_us") - median(result["single"]["task"], "min_us")
    cold = median(result["cold"], "total_ms")
    lines += [
        "",
        "| what | measured | promise | |",
        "|---|--:|---|---|",
        f"| added by the gateway to the direct task, p50 | {added[0]:.0f} µs | ≤ {ADDED_P50_US} µs "
        f"| {mark(added[0] <= ADDED_P50_US)} |",
        f"| added, p99 | {added[1]:.0f} µs | ≤ {ADDED_P99_US} µs "
        f"| {mark(added[1] <= ADDED_P99_US)} |",
        f"| from the minimum to the 95th percentile, the task | {spread:.0f} µs "
        f"| ≤ {SPREAD_US} µs | {mark(spread <= SPREAD_US)} |",
        f"| cold start with a cached program, complete call | {cold:.1f} ms | ≤ 50 ms | "
        f"{mark(cold <= 50)} |",
        f"| of that: loading (`cold`) | {median(result['cold'], 'cold'):.1f} ms | | |",
        f"| of that: the device | {median(result['cold'], 'device'):.1f} ms | | |",
        "",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=5, help="of each load (default 5)")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--connections", type=int, default=32, help="default 32")
    parser.add_argument("--threads", type=int, default=1, help="of wrk (default 1)")
    parser.add_argument(
        "--pipeline", type=int, default=1, help="requests sent at once on a connection (default 1)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of the daemons' configuration",
    )
    parser.add_argument(
        "--label", default=f"vm{os.cpu_count()}", help="the machine in the result's file name"
    )
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/http")
    options = parser.parse_args()
    home = pathlib.Path(tempfile.mkdtemp(prefix="baltra-bench-"))
    nginx = baltra = None
    try:
        nginx = Nginx(home)
        baltra = Baltra(home, options.set)
        result = measure(options, nginx, baltra)
    finally:
        for server in (baltra, nginx):
            if server:
                server.stop()
        shutil.rmtree(home, ignore_errors=True)
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in open("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    result["machine"] = {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "commit": commit or "none",
    }
    result["options"] = {
        key: getattr(options, key)
        for key in ("seconds", "rounds", "connections", "threads", "pipeline")
    }
    result["date"] = datetime.date.today().isoformat()
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"{result['date']}-{options.label}-{result['machine']['commit']}"
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    text = render(result)
    stem.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
