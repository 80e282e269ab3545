"""What both forms of the two systems of run.py have in common: functions at a gateway, and native
servers, on three nodes."""

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request

from uses import DEVICE_OF, NATIVE_DEVICE_OF, ROOT

BALTRA = os.environ.get("BALTRA", str(ROOT / "target/release/baltra"))
NATIVE = ROOT / "target/bench/native"
NODES = ["a", "b", "c"]


def fetch(url, body=None, key=""):
    headers = (
        {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}
        if body
        else {}
    )
    if key:
        headers["X-API-Key"] = key
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data=body, headers=headers), timeout=120
        ) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        raise RuntimeError(
            f"{url}: {error.code} {error.reason}: {error.read(2000).decode(errors='replace')}"
        ) from None


class Functions:
    """Functions at a gateway: those of the tables are bound to a device each,
    those of the figures have all three."""

    # The tenant's key, if the gateway requires one.
    key = ""

    def deploy(self, uses):
        directory = self.home / "functions"
        for use in uses:
            devices = {
                f"{use.name}-{number}": self.device(node) for number, node in DEVICE_OF.items()
            }
            for name, device in {**devices, f"{use.name}-all": self.device("")}.items():
                function = directory / name
                function.mkdir(parents=True)
                for file in (self.home / use.name).iterdir():
                    if file.name != "plan":
                        shutil.copy(file, function)
                (function / "function.yaml").write_text(
                    use.manifest(name, device, pace_us(use, self.options))
                )
        self.tool("function", "deploy", str(directory))
        for use in uses:
            self.tool("function", "scale", f"{use.name}-all", str(len(NODES)))
        deadline = time.monotonic() + 90
        for use in uses:
            while (
                found := json.loads(self.tool("function", "describe", f"{use.name}-all", "--json"))
            )["availableReplicas"] < len(NODES):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"not on every node after 90 s: {found}")
                time.sleep(0.2)

    def device(self, node):
        """A part of the name of the node's device; without a node,
        a common part of all three names."""
        return f"board-{node}"

    def tool(self, *words):
        run = subprocess.run(
            [BALTRA, *words], capture_output=True, text=True, env=self.tool_environment
        )
        if run.returncode:
            raise OSError(f"baltra {' '.join(words)}: {run.stderr.strip()}")
        return run.stdout

    def url(self, use, number):
        return f"{self.gateway}/function/{use.name}-{number}"

    def rising_url(self, use, _):
        return f"{self.gateway}/function/{use.name}-all"

    def busy(self, _):
        """By device: accumulated busy seconds, and tasks."""
        found = {}
        for node in NODES:
            busy = tasks = 0.0
            for line in fetch(f"http://{self.manager(node)}:9464/metrics").decode().splitlines():
                if line.startswith("baltra_device_busy_seconds_total{"):
                    busy += float(line.split()[-1])
                if line.startswith("baltra_tasks_total{"):
                    tasks += float(line.split()[-1])
            found[node] = (busy, tasks)
        return found


class Servers:
    """Native servers: three per use, one per node,
    each with exclusive use of the node's device during its measurement."""

    key = ""

    def url(self, use, number):
        return self.server(use, NATIVE_DEVICE_OF[number])

    def rising_url(self, use, connection):
        return self.server(use, NODES[connection % len(NODES)])

    def busy(self, use):
        found = {}
        for node in NODES:
            reported = json.loads(fetch(self.server(use, node)))
            found[node] = (reported["busy_ms"] / 1e3, reported["tasks"])
        return found


def pace_us(use, options):
    return round(use.task_ms * options.pace * 1e3)
