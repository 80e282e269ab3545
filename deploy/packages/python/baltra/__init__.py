"""Shares OpenCL devices among programs, hosts and HTTP clients.

    import baltra

    with baltra.Daemon() as daemon:
        print(daemon.devices())
        daemon.deploy(baltra.FUNCTIONS / "sobel")
        edges = daemon.call("sobel", open("photo.png", "rb").read())

`Daemon` starts daemons of its own, `connect` uses those of this host."""

import json
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, List, Mapping, Optional, Sequence, Type, Union

from ._program import PACKAGE, PROGRAM, environment

__all__ = ["Daemon", "Device", "Error", "FUNCTIONS", "Node", "connect", "environment"]

#: Example functions.
FUNCTIONS = PACKAGE / "functions"
# The daemons report a driver that does not load within this time themselves.
_START_S = 120.0

PathLike = Union[str, Path]


class Error(Exception):
    """A command or a call failed; the text is the message of the program or of the gateway."""


@dataclass(frozen=True)
class Device:
    """A device that a node serves."""

    name: str
    model: str
    vendor: str
    state: str
    memory_bytes: int
    compute_units: int


class Node:
    """The daemons of a runtime directory on this host."""

    def __init__(self, runtime_dir: Optional[PathLike] = None) -> None:
        self._options = [] if runtime_dir is None else ["--runtime-dir", str(runtime_dir)]

    def status(self) -> Mapping[str, Any]:
        """What `baltra status --json` prints."""
        status: Mapping[str, Any] = json.loads(self._output("status", "--json"))
        return status

    def devices(self) -> List[Device]:
        """The devices of this node."""
        listed = json.loads(self._output("devices", "--local", "--json"))
        return [
            Device(
                name=device["name"],
                model=device["model"],
                vendor=device["vendor"],
                state=device["state"],
                memory_bytes=device["memory_bytes"],
                compute_units=device["compute_units"],
            )
            for device in listed
        ]

    def run(
        self,
        program: Sequence[PathLike],
        *,
        device: Optional[str] = None,
        tenant: Optional[str] = None,
        check: bool = True,
        **options: Any,
    ) -> "subprocess.CompletedProcess[Any]":
        """Runs an OpenCL program on the shared devices; `options` are those of subprocess.run."""
        flags = ["--device", device] if device is not None else []
        flags += ["--tenant", tenant] if tenant is not None else []
        words = self._command("run", *flags, "--", *map(str, program))
        variables = environment(options.pop("env", None))
        return subprocess.run(words, check=check, env=variables, **options)

    def deploy(self, *paths: PathLike) -> List[str]:
        """Deploys functions: directories with a file function.yaml. Returns their names."""
        listed = self._output("function", "deploy", "--json", *map(str, paths))
        return [function["name"] for function in json.loads(listed)]

    def call(
        self,
        function: str,
        body: bytes = b"",
        *,
        query: Optional[Mapping[str, str]] = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> bytes:
        """Calls a function over HTTP; returns the body of the response."""
        url = f"{self.gateway()}/function/{urllib.parse.quote(function)}"
        if query:
            url += "?" + urllib.parse.urlencode(query)
        # The gateway detects the type of a body without a type, or with the type of forms, which
        # urllib adds as curl does.
        request = urllib.request.Request(url, body, dict(headers or {}), method="POST")
        # The gateway of this host is not behind a proxy.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout) as response:
                content: bytes = response.read()
                return content
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace").strip()
            raise Error(f"{function}: the gateway returned {error.code}: {text}") from None
        except urllib.error.URLError as error:
            raise Error(f"{function}: cannot reach the gateway at {url}: {error.reason}") from None

    def gateway(self) -> str:
        """The address of the gateway, a URL."""
        gateway = self.status().get("daemons", {}).get("gateway", {})
        url = gateway.get("url")
        if not url:
            raise Error("no gateway is running (start one with `baltra up`)")
        return str(url)

    def _command(self, *words: str) -> List[str]:
        return [str(PROGRAM), *self._options, *words]

    def _output(self, *words: str) -> str:
        done = subprocess.run(
            self._command(*words),
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode != 0:
            raise Error(done.stderr.strip().removeprefix("error: "))
        return done.stdout


def connect(runtime_dir: Optional[PathLike] = None) -> Node:
    """The daemons of this host, or an error if none are running."""
    node = Node(runtime_dir)
    node.status()
    return node


class Daemon(Node):
    """Daemons of this object alone: they start with it, and end with `close` or the block.

    `set` are keys of the configuration, such as {"device.driver": "/path/to/driver.so"}."""

    def __init__(self, set: Optional[Mapping[str, str]] = None) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="baltra-")
        home = Path(self._home.name)
        super().__init__(home / "run")
        keys = {
            "metrics.address": "off",
            "registry.address": "auto",
            "registry.metrics": "",
            "gateway.address": "auto",
            "gateway.grpc_address": "",
            **(set or {}),
        }
        flags = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        words = self._command("up", "--foreground", "--state-dir", str(home / "state"), *flags)
        self._log = (home / "log").open("w+")
        self._process = subprocess.Popen(
            words,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        started = time.monotonic()
        while True:
            if self._process.poll() is not None:
                self._log.seek(0)
                lines = [line for line in self._log.read().splitlines() if line.strip()]
                errors = [line for line in lines if line.startswith("error: ")]
                # The daemon's own error comes before that of its parent.
                text = (errors or lines[-1:] or ["their log is empty"])[0]
                raise Error("the daemons ended: " + text.removeprefix("error: "))
            try:
                status = self.status()
                if status.get("ready") and status["daemons"].get("gateway", {}).get("url"):
                    return
            except Error:
                pass
            if time.monotonic() - started > _START_S:
                raise Error(f"the daemons are not ready after {_START_S:.0f} s")
            time.sleep(0.05)

    def close(self) -> None:
        """Ends the daemons and removes their files."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        self._log.close()
        self._home.cleanup()

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()
