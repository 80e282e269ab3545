"""Tests of functions in containers."""

import base64
import contextlib
import json
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from api_objects import ApiTests, deployment  # noqa: E402
from cluster import run, until  # noqa: E402


@contextlib.contextmanager
def answering(port):
    """The containers of every fake Pod: a server that listens at any Pod's address and returns its
    requests; a path with 'slow' in it gets its reply when the event is set. The Pods' addresses are
    kwok's, and local to this network."""
    go_on = threading.Event()

    class Container(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            if "slow" in self.path:
                go_on.wait(120)
            body = json.dumps(
                {
                    "path": self.path,
                    "sent": sent.decode(),
                    "headers": {k.lower(): v for k, v in self.headers.items()},
                }
            ).encode()
            self.send_response(201)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Own", "yes")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    run("ip", "route", "add", "local", "10.0.0.0/24", "dev", "lo")
    server = ThreadingHTTPServer(("0.0.0.0", port), Container)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield go_on
    finally:
        go_on.set()
        server.shutdown()
        run("ip", "route", "del", "local", "10.0.0.0/24", "dev", "lo")


class Containers(ApiTests):
    """Containers that calls start."""

    def test_a_container_is_started_by_a_call_and_stopped_when_nobody_calls(self):
        """A Deployment without replicas: calls wait until it is ready, all calls are served, the
        container stays during a call, stops without calls, and starts again with the next one."""
        key, admin = (
            self.installation.token("client"),
            base64.b64encode(f"admin:{self.installation.token('admin')}".encode()).decode(),
        )
        meta = {"name": "echo", "namespace": "default"}

        def called(path, name="echo"):
            headers = {"X-API-Key": key, "Content-Type": "text/plain"}
            with urlopen(
                Request(
                    f"http://127.0.0.1:8080/function/{name}.default{path}",
                    data=b"abc",
                    headers=headers,
                ),
                timeout=120,
            ) as answer:
                return answer.status, answer.headers, json.load(answer)

        def conditions():
            conditions = (
                self.cluster.get("function", "-n", "default", "echo")
                .get("status", {})
                .get("conditions", [])
            )
            return {c["type"]: (c["status"], c["reason"]) for c in conditions}

        def measured(name):
            with urlopen(
                Request(
                    "http://127.0.0.1:8080/metrics", headers={"Authorization": f"Basic {admin}"}
                ),
                timeout=5,
            ) as answer:
                found = re.findall(
                    rf'^baltra_gateway_{name}{{function="echo.default"[^}}]*}} (\S+)$',
                    answer.read().decode(),
                    re.MULTILINE,
                )
            return sum(map(float, found))

        def replicas():
            return self.cluster.get("deployment", "-n", "default", "echo")["spec"]["replicas"]

        self.installation.start("gateway", "Deployment", "gateway", health=8080)
        try:
            with answering(18080) as go_on, ThreadPoolExecutor(20) as pool:
                started, stopped = (
                    self.counted("containers_started"),
                    self.counted("containers_stopped"),
                )
                self.cluster.apply(
                    [
                        deployment("echo", 0, {}),
                        {
                            "apiVersion": "v1",
                            "kind": "Service",
                            "metadata": meta,
                            "spec": {
                                "selector": {"app": "echo"},
                                "ports": [{"name": "http", "port": 80, "targetPort": 18080}],
                            },
                        },
                        {
                            "apiVersion": "baltra.io/v1alpha1",
                            "kind": "Function",
                            "metadata": meta,
                            "spec": {
                                "container": {
                                    "deployment": "echo",
                                    "idleSeconds": 4,
                                    "timeoutSeconds": 60,
                                }
                            },
                        },
                    ]
                )
                until(
                    "the gateway serves the function",
                    lambda: measured("container_endpoints") == 0 and called("/first")[0] == 201,
                )
                assert self.counted("containers_started") == started + 1
                until(
                    "the object is Serving",
                    lambda: (
                        conditions()
                        == {"Ready": ("True", "Registered"), "Active": ("True", "Serving")}
                    ),
                )
                until(
                    "an event has the reason",
                    lambda: (
                        "Deployment echo scaled to 1"
                        in self.cluster.kubectl("describe", "function", "echo")
                    ),
                )
                until(
                    "the container is stopped",
                    lambda: replicas() == 0 and not self.pods("app=echo"),
                )
                assert self.counted("containers_stopped") == stopped + 1
                until(
                    "the object is Stopped", lambda: conditions()["Active"] == ("False", "Stopped")
                )

                # Many calls at once for one replica; requests and replies pass through unchanged.
                for status, headers, body in pool.map(called, [f"/a/{i}?b=c" for i in range(20)]):
                    assert (
                        status == 201
                        and headers["X-Own"] == "yes"
                        and "cold;dur=" in headers["Server-Timing"]
                    )
                    assert (
                        body["sent"] == "abc"
                        and body["path"].startswith("/a/")
                        and body["path"].endswith("?b=c")
                    )
                    assert body["headers"]["content-type"] == "text/plain" and body["headers"][
                        "traceparent"
                    ].startswith("00-")
                    assert "x-api-key" not in body["headers"], (
                        "the gateway's key reached a container"
                    )
                assert self.counted("containers_started") == started + 2
                assert measured("cold_starts_total") >= 2 and measured("calls_held") == 0

                # A call that takes longer than the idle time keeps the container.
                slow = pool.submit(called, "/slow")
                until("the call runs", lambda: measured("calls_running") == 1)
                [before] = [p["metadata"]["uid"] for p in self.running(1, "app=echo")]
                time.sleep(10)
                assert [p["metadata"]["uid"] for p in self.running(1, "app=echo")] == [before]
                go_on.set()
                assert slow.result()[0] == 201
                until("the container is stopped again", lambda: replicas() == 0)

                # Calls of a container that cannot start wait for the configured time only.
                self.cluster.apply(
                    [
                        {
                            "apiVersion": "baltra.io/v1alpha1",
                            "kind": "Function",
                            "metadata": {"name": "nobody", "namespace": "default"},
                            "spec": {"container": {"deployment": "nobody", "timeoutSeconds": 3}},
                        }
                    ]
                )

                def late():
                    try:
                        called("/", "nobody")
                    except HTTPError as error:
                        return error.code == 504 and error.headers["Retry-After"]
                    raise AssertionError("no reply within the deadline")

                until("the call times out", late)
                until(
                    "the object has the reason",
                    lambda: any(
                        c["reason"] == "Failed" and "nobody" in c["message"]
                        for c in self.cluster.get("function", "-n", "default", "nobody")["status"][
                            "conditions"
                        ]
                    ),
                )
        finally:
            self.cluster.processes["gateway"].stop()
            self.cluster.kubectl("delete", "service", "echo", "-n", "default", "--ignore-not-found")
