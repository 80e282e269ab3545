#!/usr/bin/env python3
"""Measures functions that share devices which hold one image at a time: the share of time that
loads of images take, the longest call, the time of a reconfiguration under load, and the thesis's
loads of five functions on three such devices.

usage: bench/cluster/reconfigure.py [--parts demand,load,thesis] [--quick] [--seconds 20]
       [--load-ms 30] [--turns automatic,fixed,tuned] [--uses sobel,matmul,cnn] [--note TEXT]
       [--label NAME]

Needs `make build` and a C compiler. The devices are PoCL with a driver whose loads take --load-ms,
a stand-in for an FPGA's; in the part `thesis` every task also takes at least the thesis's time.
README.md defines the numbers. Writes bench/results/cluster/DATE-LABEL-reconfigure-COMMIT.md.
"""

import argparse
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

import report
from uses import ROOT, USES

HERE = pathlib.Path(__file__).resolve().parent
BALTRA = os.environ.get("BALTRA", str(ROOT / "target/release/baltra"))
DRIVER = ROOT / "crates/tests/programs/slow_driver.c"
ACCELERATORS = 12
DEVICES = 3
TURN_MS = 400
# The shortest automatic turn.
AUTOMATIC_MS = 1000
# In the part `load`: longer than a function needs from its load to its first call, since a turn that
# ends before that only costs another load.
LOAD_TURN_MS = 10
# Nine times a load bounds the share of loads to a tenth.
TURN_MIN_LOADS = 9


def say(text):
    print(text, file=sys.stderr, flush=True)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Host:
    """Registry, manager and gateway of one host (`baltra up`), with devices that hold one image."""

    def __init__(self, home, driver, devices, device_options):
        self.home, self.metrics_port = home, free_port()
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("BALTRA_")}
        self.environment |= {
            "POCL_DEVICES": " ".join(["pthread"] * devices),
            "POCL_CACHE_DIR": str(home / "pocl"),
            "BALTRA_RUNTIME_DIR": str(home / "run"),
        }
        options = "".join(f"{key} = {value}\n" for key, value in device_options.items())
        config = home / "config.toml"
        config.write_text(
            "".join(
                f"[[device]]\nname = 'fpga{n}'\nselect = '{n}'\ndriver = '{driver}'\n"
                f"image = 'exclusive'\n{options}"
                for n in range(devices)
            )
        )
        settings = [
            f"metrics.address=127.0.0.1:{self.metrics_port}",
            "registry.address=auto",
            "registry.metrics=",
            "gateway.address=auto",
            "gateway.grpc_address=",
        ]
        self.tool(
            "up",
            "--config",
            config,
            "--state-dir",
            home / "state",
            *(word for setting in settings for word in ("--set", setting)),
        )
        status = json.loads(self.tool("status", "--json"))
        self.gateway = status["daemons"]["gateway"]["url"]

    def tool(self, *words):
        run = subprocess.run(
            [BALTRA, *map(str, words)], capture_output=True, text=True, env=self.environment
        )
        if run.returncode:
            raise OSError(f"baltra {' '.join(map(str, words))}: {run.stderr.strip()}")
        return run.stdout

    def stop(self):
        self.tool("down", "--drain-ms", "0")

    def deploy(self, directory):
        self.tool("function", "deploy", directory)

    def reconfigurations(self):
        devices = json.loads(self.tool("devices", "--local", "--json"))
        return sum(device["reconfigurations"] for device in devices)

    def loading_seconds(self):
        """Time that loads have taken on all devices, as the manager has observed it."""
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            text = answer.read().decode()
        found = re.findall(r"^baltra_device_loading_seconds_total\{.*\} (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))


@contextlib.contextmanager
def host(driver, devices=DEVICES, **device_options):
    with tempfile.TemporaryDirectory(prefix="baltra-bench-") as directory:
        running = Host(pathlib.Path(directory), driver, devices, device_options)
        try:
            yield running
        finally:
            running.stop()


def compile_driver(directory, load_ms):
    library = pathlib.Path(directory) / "libslow_driver.so"
    command = ["cc", "-std=c11", "-O2", "-shared", "-fPIC", f"-DLOAD_MS={load_ms}"]
    subprocess.run([*command, DRIVER, "-ldl", "-o", library], check=True)
    return library


def write_adder(directory, number):
    """A function with an image of its own: adds `number` to each word."""
    folder = directory / f"add-{number}"
    folder.mkdir(parents=True)
    (folder / "add.cl").write_text(
        "kernel void add(global const uint *a, global uint *b) {\n"
        f"  size_t i = get_global_id(0);\n  b[i] = a[i] + {number};\n}}\n"
    )
    array = "type: u32, shape: [n], codecs: [raw]"
    (folder / "function.yaml").write_text(
        f"name: add-{number}\ninputs: [{{name: a, {array}}}]\noutputs: [{{name: b, {array}}}]\n"
        "implementations: [{opencl: {source: add.cl, kernel: add, global: [n]}}]\n"
        "limits: {timeout_ms: 60000}\nidle_s: 0\n"
    )


class Caller:
    """Calls of one function over one connection."""

    def __init__(self, gateway, number):
        self.number = number
        self.connection = http.client.HTTPConnection(
            urllib.parse.urlsplit(gateway).netloc, timeout=120
        )

    def call(self):
        """Time of the call in seconds; raises an error if the answer is not the right one."""
        headers = {
            "Content-Type": "application/octet-stream",
            "Accept": "application/octet-stream",
        }
        begun = time.monotonic()
        self.connection.request(
            "POST", f"/function/add-{self.number}", (7).to_bytes(4, "little"), headers
        )
        answer = self.connection.getresponse()
        body = answer.read()
        took = time.monotonic() - begun
        if answer.status != 200 or int.from_bytes(body, "little") != 7 + self.number:
            raise OSError(f"add-{self.number}: {answer.status} {body[:300]!r}")
        return took


def drive(gateway, numbers, seconds, pause):
    """Calls each function with one call at a time. Returns the times of the calls."""
    times, failures = [], []
    ends = time.monotonic() + seconds

    def calls(number):
        caller = Caller(gateway, number)
        try:
            while time.monotonic() < ends:
                times.append(caller.call())
                time.sleep(pause)
        except OSError as error:
            failures.append(str(error))

    threads = [threading.Thread(target=calls, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError("; ".join(failures))
    return times


def verdict(met):
    return "met" if met else "**not met**"


def adders(running, count):
    directory = running.home / "functions"
    for number in range(1, count + 1):
        write_adder(directory, number)
    running.deploy(directory)
    for number in range(1, count + 1):
        Caller(running.gateway, number).call()


def turns(options):
    """The settings of turns by name: the policy's, those of a fixed length without a least time,
    and those that an operator has set for the loads."""
    turn_min_ms = TURN_MIN_LOADS * options.load_ms
    tuned_ms = max(TURN_MS, turn_min_ms)
    images = ACCELERATORS // DEVICES
    return {
        "automatic": {"turn_wait_ms": images * max(AUTOMATIC_MS, turn_min_ms)},
        "fixed": {"turn_ms": AUTOMATIC_MS, "turn_wait_ms": images * AUTOMATIC_MS},
        "tuned": {
            "turn_ms": tuned_ms,
            "turn_min_ms": turn_min_ms,
            "turn_wait_ms": images * tuned_ms,
        },
    }


def demand(driver, options):
    """Twelve accelerators on three devices, with uniform demand."""
    lines = [
        f"## {ACCELERATORS} accelerators on {DEVICES} devices, uniform demand",
        "",
        "One call at a time for each function. The bound of the longest call is `turn_wait_ms` and "
        "the loads of the images of a device.",
        "",
        "| turns | demand | calls | loads | time not reconfiguring, asked >= 90 % | | median call "
        "| longest call | bound | |",
        "|---|---|--:|--:|--:|---|--:|--:|--:|---|",
    ]
    for name in options.turns:
        settings = turns(options)[name]
        loads_ms = ACCELERATORS // DEVICES * options.load_ms
        bound = (settings["turn_wait_ms"] + loads_ms) / 1e3
        with host(driver, **settings) as running:
            adders(running, ACCELERATORS)
            for kind, pause in (("steady", 0), ("sparse, a pause of 0.2 s after each call", 0.2)):
                lines.append(demand_row(running, options, f"{name} | {kind}", pause, bound))
    shown = [f"{name}: `{json.dumps(turns(options)[name])}`" for name in options.turns]
    return [*lines, "", "Options of the devices: " + "; ".join(shown) + ".", ""]


def demand_row(running, options, name, pause, bound):
    loads, loading, begun = (
        running.reconfigurations(),
        running.loading_seconds(),
        time.monotonic(),
    )
    times = drive(running.gateway, range(1, ACCELERATORS + 1), options.seconds, pause)
    elapsed = time.monotonic() - begun
    share = 1 - (running.loading_seconds() - loading) / (elapsed * DEVICES)
    line = (
        f"| {name} | {len(times)} | {running.reconfigurations() - loads} | "
        f"{100 * share:.1f} % | {verdict(share >= 0.9)} | {statistics.median(times):.2f} s | "
        f"{max(times):.2f} s | {bound:.2f} s | {verdict(max(times) <= bound)} |"
    )
    say(line)
    return line


def load(driver, options):
    """Reconfiguration of a device that another function uses without a pause."""
    asked = options.load_ms + 20
    with host(driver, devices=1, turn_ms=LOAD_TURN_MS) as running:
        adders(running, 2)
        other, times = Caller(running.gateway, 2), []
        ends = threading.Event()

        def busy():
            caller = Caller(running.gateway, 1)
            while not ends.is_set():
                caller.call()

        thread = threading.Thread(target=busy)
        thread.start()
        try:
            before = running.reconfigurations()
            for _ in range(4 if options.quick else 30):
                # Until the other function has its device again, and works.
                seen = running.reconfigurations()
                while running.reconfigurations() == seen and times:
                    time.sleep(0.05)
                time.sleep(0.2)
                times.append(1e3 * other.call())
            loads = running.reconfigurations() - before
        finally:
            ends.set()
            thread.join()
    median = statistics.median(times)
    line = (
        f"| {len(times)} | {loads} | {options.load_ms} | {asked} | {median:.1f} | "
        f"{min(times):.1f} to {max(times):.1f} | {verdict(median <= asked)} |"
    )
    say(line)
    return [
        "## Reconfiguration of a device under load",
        "",
        "From the request to its answer, on a device that another function uses without a pause; "
        f"`turn_ms` {LOAD_TURN_MS}.",
        "",
        "| requests | loads | load of an image, ms | asked <=, ms | median, ms | range | |",
        "|--:|--:|--:|--:|--:|---|---|",
        line,
        "",
    ]


def thesis_functions(running, use, pace_us):
    """Five functions of one use, which the registry places."""
    directory = running.home / "functions" / use.name
    for number in range(1, 6):
        folder = directory / f"{use.name}-{number}"
        folder.mkdir(parents=True)
        for file in (running.home / use.name).iterdir():
            if file.name != "plan":
                shutil.copy(file, folder)
        manifest = json.loads(use.manifest(f"{use.name}-{number}", "", pace_us))
        del manifest["implementations"][0]["opencl"]["device"]
        (folder / "function.yaml").write_text(json.dumps(manifest, indent=1))
    running.deploy(directory)


def thesis_row(running, use, rates, options):
    """Drives five functions at their rates. Returns the latencies, and the number of failures."""
    due = report.due(use.name, "exclusive", 0, rates, options.seconds)
    begin = time.monotonic() + 0.5
    processes = []
    for number in rates:
        file = running.home / f"due-{number}"
        file.write_text(json.dumps(due[number]))
        words = [
            f"{running.gateway}/function/{use.name}-{number}",
            running.home / f"{use.name}.body",
            file,
            begin,
            options.seconds,
        ]
        command = [sys.executable, HERE / "load.py", *words]
        processes.append(
            subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
        )
    found = [json.loads(process.communicate()[0]) for process in processes]
    return [ms for one in found for ms in one["latency_ms"]], sum(one["failed"] for one in found)


def thesis(driver, options):
    """Five functions on three devices at the thesis's loads."""
    uses = [use for use in USES if use.name in options.uses]
    lines = [
        f"## Five functions on {DEVICES} devices at the thesis's loads",
        "",
        "PoCL, each task paced to take at least the time on the thesis's Arria 10: "
        + ", ".join(f"{use.name} {use.task_ms} ms" for use in uses)
        + ". Sizes as in README.md. The registry places the functions; each use finds the devices "
        "with the image of another.",
        "",
        "| use | load | sent rq/s | served rq/s | asked: thesis, BlastFunction | | failed "
        "| mean ms | p95 ms | loads |",
        "|---|---|--:|--:|--:|---|--:|--:|--:|--:|",
    ]
    settings = {"turn_ms": TURN_MS, "slots": 1, "isolation": "'session'"}
    with host(driver, **settings) as running:
        for use in uses:
            pace_us = round(use.task_ms * 1e3)
            use.write(running.home / use.name, pace_us)
            (running.home / f"{use.name}.body").write_bytes(use.body())
            before = running.reconfigurations()
            thesis_functions(running, use, pace_us)
            # Compiles the program and loads the image.
            thesis_row(running, use, {number: 4 for number in range(1, 6)}, options)
            for name in list(use.loads)[-1:] if options.quick else use.loads:
                rates = dict(enumerate(use.loads[name], 1))
                times, failed = thesis_row(running, use, rates, options)
                served, asked = len(times) / options.seconds, use.thesis[name][0][0]
                found = report.latencies(times)
                loads = running.reconfigurations() - before
                before += loads
                lines.append(
                    f"| {use.name} | {name} | {sum(rates.values())} | {served:.1f} "
                    f"| >= {asked:.1f} | {verdict(served >= asked and not failed)} | {failed} "
                    f"| {found['mean']:.1f} | {found['p95']:.1f} | {loads} |"
                )
                say(lines[-1])
            for number in range(1, 6):
                running.tool("function", "remove", f"{use.name}-{number}")
    return [*lines, ""]


PARTS = {"demand": demand, "load": load, "thesis": thesis}


def head(options):
    cpu = re.search(r"^model name\s*: (.*)$", open("/proc/cpuinfo").read(), re.MULTILINE)
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    today = datetime.date.today().isoformat()
    name = f"{today}-{options.label}-reconfigure-{commit or 'none'}.md"
    lines = [
        f"# Devices that hold one image at a time, {today}",
        "",
        f"{cpu.group(1) if cpu else platform.machine()}, {os.cpu_count()} cores for everything, "
        f"kernel {platform.release()}, commit {commit or 'none'}; {options.seconds:g} s a row. "
        f"The devices are PoCL with a driver whose loads take {options.load_ms} ms, a stand-in "
        "for an FPGA's.",
        "",
    ]
    if options.note:
        lines += [options.note, ""]
    return name, lines


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", type=lambda t: t.split(","), default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="checks that everything runs")
    parser.add_argument("--seconds", type=float, default=20, help="of each row (default 20)")
    parser.add_argument("--load-ms", type=int, default=30, help="of an image (default 30)")
    parser.add_argument(
        "--turns", type=lambda t: t.split(","), default=["automatic", "tuned"], help="of `demand`"
    )
    parser.add_argument("--uses", type=lambda t: t.split(","), default=[use.name for use in USES])
    parser.add_argument("--note", default="", help="a sentence on the conditions")
    parser.add_argument("--label", default=f"vm{os.cpu_count()}", help="the machine's, in the name")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/cluster")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"unknown part '{unknown[0]}' (parts: {', '.join(PARTS)})")
    if unknown := [name for name in options.turns if name not in turns(options)]:
        parser.error(f"unknown turns '{unknown[0]}' (turns: {', '.join(turns(options))})")
    if options.quick:
        options.seconds = 3
    name, lines = head(options)
    with tempfile.TemporaryDirectory(prefix="baltra-bench-") as directory:
        driver = compile_driver(directory, options.load_ms)
        for part in options.parts:
            lines += PARTS[part](driver, options)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / name).write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
