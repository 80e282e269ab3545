#!/usr/bin/env python3
"""Tests webhook and controllers on a real API server: allocations, refusals with reasons,
recovery from failures.

    scripts/kubernetes/build.sh && target/venv/bin/python scripts/kubernetes/tests/api_test.py [PART
    OF A NAME …]

Nodes are fake (kwok) and so are their managers' devices; registry, webhook, controllers and
everything of Kubernetes are real. No test depends on time, except for a patience."""

import base64
import contextlib
import json
import re
import signal
import ssl
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cluster import ROOT, Cluster, Failed, isolate, run, until  # noqa: E402
from installation import NAMESPACE, Installation, render  # noqa: E402
from pool import Manager, Managers  # noqa: E402
from runner import run as run_tests  # noqa: E402

SOBEL, OTHER = "5" * 64, "6" * 64
# Percent of a device's time that an instance takes.
LOAD = 10.0


def pod(name, namespace="default", labels=None, annotations=None, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels or {},
            "annotations": annotations or {},
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "it", "image": "sobel:1"}],
            **spec,
        },
    }


def deployment(name, replicas, annotations, namespace="default"):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "it", "image": "sobel:1"}],
                },
            },
        },
    }


def scraped(monitor, cluster):
    """Converts a ServiceMonitor, as the Prometheus operator does, to a section of Prometheus' own
    configuration. (The distribution's Prometheus lacks discovery in a cluster.)
    """
    endpoint = monitor["spec"]["endpoints"][0]
    selector = ",".join(
        f"{key}={value}" for key, value in monitor["spec"]["selector"]["matchLabels"].items()
    )
    there = ["-n", monitor["metadata"]["namespace"]]
    names = [
        service["metadata"]["name"] for service in cluster.get(*there, "services", "-l", selector)
    ]
    targets = [
        f"{endpoint_['addresses'][0]}:{port['port']}"
        for name in names
        for slice_ in cluster.get(
            *there, "endpointslices", "-l", f"kubernetes.io/service-name={name}"
        )
        for endpoint_ in slice_["endpoints"]
        for port in slice_["ports"]
        if port["name"] == endpoint["port"]
    ]
    assert targets, f"{monitor['metadata']['name']} selects nothing"
    return {
        "job_name": monitor["metadata"]["name"],
        "scrape_interval": "1s",
        "static_configs": [{"targets": targets}],
        "relabel_configs": [
            {
                "action": r["action"],
                "target_label": r["targetLabel"],
                "replacement": r["replacement"],
            }
            for r in endpoint["relabelings"]
        ],
    }


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


class Tests:
    """Three nodes of two devices each; node fake-2's hold one accelerator at a time."""

    def __init__(self):
        self.cluster = Cluster(fake=3, logs=ROOT / "target/test-logs/kubernetes-api")
        self.installation = Installation(self.cluster)
        self.registry = self.installation.registry
        plain = [Manager(self.registry, f"fake-{i}", devices=2, load=LOAD) for i in range(2)]
        board = Manager(
            self.registry,
            "fake-2",
            devices=2,
            exclusive=True,
            load=LOAD,
            accelerators={"device0": (SOBEL, "sobel"), "device1": (OTHER, "other")},
        )
        self.managers = Managers([*plain, board])
        until("the cluster shows six devices", lambda: len(self.cluster.get("devices")) == 6)

    def end(self):
        self.managers.end()
        self.cluster.end()

    def between(self):
        """Each test begins without Pods that request devices."""
        self.cluster.kubectl(
            "delete",
            "horizontalpodautoscalers,deployments,pods,poddisruptionbudgets,functions",
            "--all",
            "-n",
            "default",
            "--wait=true",
        )
        until("the registry has no instance", lambda: not self.instances())

    # ---- shorthands

    def instances(self):
        return list(self.registry.call("Operators", "Instances").instances)

    @staticmethod
    def counted(name):
        """A counter of the controller."""
        with urlopen("http://127.0.0.1:9467/metrics", timeout=5) as answer:
            return int(
                re.search(
                    rf"^baltra_kubernetes_{name}_total (\d+)$", answer.read().decode(), re.MULTILINE
                )[1]
            )

    def pods(self, label=None):
        return self.cluster.get("pods", "-n", "default", *(["-l", label] if label else []))

    def running(self, count, label=None):
        def holds():
            found = [p for p in self.pods(label) if "deletionTimestamp" not in p["metadata"]]
            return (
                len(found) == count
                and all(p["status"].get("phase") == "Running" for p in found)
                and found
            )

        return until(f"{count} Pods run", holds)

    def create(self, *objects):
        self.cluster.kubectl(
            "create",
            "-f",
            "-",
            input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}),
        )

    def refused(self, *wanted, **what):
        """A Pod is refused, with a reason that contains all these words."""
        try:
            self.create(pod("refused", **what))
        except Failed as error:
            for word in wanted:
                assert word in str(error), f"no word of '{word}' in: {error}"
            return str(error)
        raise AssertionError(f"accepted: {what}")

    def gated(self, name):
        spec = self.cluster.get("pod", "-n", "default", name)["spec"]
        assert spec["schedulingGates"] == [{"name": "baltra.io/device"}], spec

    @staticmethod
    def allocated(pod):
        return pod["metadata"]["annotations"]["baltra.io/allocated"].split(",")

    # ---- resources of a Pod

    def test_a_deployment_with_two_annotations(self):
        """A Deployment's Pods run on the nodes of their devices, with library,
        socket and identity; the pool is listed."""
        self.create(
            deployment(
                "sobel", 4, {"baltra.io/device": "vendor=Example", "baltra.io/accelerator": "sobel"}
            )
        )
        for p in self.running(4):
            node = {device.split("/")[0] for device in self.allocated(p)}
            assert node == {p["spec"]["nodeName"]}, p["metadata"]
            instance = p["metadata"]["labels"]["baltra.io/instance"]
            volume = next(v for v in p["spec"]["volumes"] if "hostPath" in v)
            assert volume["hostPath"]["path"] == f"/run/baltra/instances/{instance}"
            container = p["spec"]["containers"][0]
            mount = next(m for m in container["volumeMounts"] if m["name"] == volume["name"])
            assert mount["readOnly"] is True
            environment = {e["name"]: e.get("value", "") for e in container["env"]}
            assert environment["OCL_ICD_VENDORS"].startswith(mount["mountPath"])
        names = {i.name for i in self.instances()}
        assert names == {p["metadata"]["labels"]["baltra.io/instance"] for p in self.pods()}
        for kind in ("devices", "accelerators", "functions"):
            self.cluster.kubectl("get", kind, "-A")
        shown = {d["metadata"]["name"]: d for d in self.cluster.get("devices")}
        assert set(shown) == {f"fake-{n}.device{d}" for n in range(3) for d in range(2)}
        assert shown["fake-2.device0"]["status"]["node"] == "fake-2"
        assert {a["status"]["name"] for a in self.cluster.get("accelerators")} == {"sobel", "other"}

    def test_the_spellings_of_the_thesis(self):
        self.create(
            pod(
                "old",
                annotations={
                    "blastfunction.io/device": "example-1000",
                    "blastfunction.io/vendor": "Example",
                },
            )
        )
        assert self.allocated(self.running(1)[0])

    def test_load_is_spread(self):
        """Eight Pods one after another on the four devices that hold any program, with equal load:
        two per device."""
        self.works(0.0)
        try:
            until(
                "all are idle",
                lambda: all(
                    d.utilization == 0 for d in self.registry.call("Operators", "Devices").devices
                ),
            )
            for i in range(8):
                self.create(pod(f"p{i}", annotations={"baltra.io/device": f"node=fake-{i % 2}"}))
            devices = [self.allocated(p)[0] for p in self.running(8)]
            assert sorted(devices.count(d) for d in set(devices)) == [2, 2, 2, 2], devices
        finally:
            self.works(LOAD)

    def test_describe_says_which_device_and_why(self):
        self.create(pod("described", annotations={"baltra.io/device": "vendor=Example"}))
        device = self.allocated(self.running(1)[0])[0]
        until(
            "an event names the device",
            lambda: device in self.cluster.kubectl("describe", "pod", "described"),
        )

    def test_a_dry_run_allocates_nothing(self):
        self.cluster.kubectl(
            "create",
            "--dry-run=server",
            "-f",
            "-",
            input=json.dumps(pod("dry", annotations={"baltra.io/device": "vendor=Example"})),
        )
        assert not self.instances()

    def test_a_pod_that_came_and_went_unseen_holds_nothing(self):
        """A Pod that is created and deleted while the controller is stopped is released by the
        controller, before its lease ends."""
        controller = self.cluster.processes["controller"].running
        released = self.counted("instances_released")
        controller.send_signal(signal.SIGSTOP)
        try:
            self.create(pod("brief", annotations={"baltra.io/device": "vendor=Example"}))
            assert len(self.instances()) == 1
            self.cluster.kubectl("delete", "pod", "brief", "--wait=true")
        finally:
            controller.send_signal(signal.SIGCONT)
        until("the instance is released", lambda: not self.instances())
        assert self.counted("instances_released") == released + 1

    def test_a_pod_that_somebody_else_refuses_holds_nothing_for_long(self):
        """A Pod that is refused after the webhook has allocated a device never exists, so its
        instance ends with its lease."""
        meta = {"name": "somebody-else"}
        self.cluster.apply(
            [
                {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": "ValidatingAdmissionPolicy",
                    "metadata": meta,
                    "spec": {
                        "matchConstraints": {
                            "resourceRules": [
                                {
                                    "apiGroups": [""],
                                    "apiVersions": ["v1"],
                                    "resources": ["pods"],
                                    "operations": ["CREATE"],
                                }
                            ]
                        },
                        "validations": [
                            {
                                "expression": "object.metadata.name != 'refused'",
                                "message": "not this one",
                            }
                        ],
                    },
                },
                {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": "ValidatingAdmissionPolicyBinding",
                    "metadata": meta,
                    "spec": {"policyName": "somebody-else", "validationActions": ["Deny"]},
                },
            ]
        )

        def refuses():
            try:
                return self.refused(
                    "not this one", annotations={"baltra.io/device": "vendor=Example"}
                )
            except AssertionError:  # the policy is not in force yet
                self.cluster.kubectl("delete", "pod", "refused", "--wait=true")
                return False

        try:
            until("the policy is in force", refuses)
            assert self.instances(), "the Pod was refused before a device was allocated"
            until("the refused Pod holds no device", lambda: not self.instances(), patience_s=90)
        finally:
            self.cluster.kubectl(
                "delete",
                "validatingadmissionpolicybinding,validatingadmissionpolicy",
                "somebody-else",
            )

    def test_prometheus_scrapes_what_the_chart_says(self):
        """A real Prometheus, configured by the chart's monitors and rules,
        scrapes each daemon and evaluates each alert."""
        home = self.cluster.home / "prometheus"
        home.mkdir()
        objects = render(
            "--set", "monitoring.serviceMonitors=true,monitoring.rules=true,gateway.enabled=false"
        )
        rules = next(item["spec"] for item in objects if item["kind"] == "PrometheusRule")
        (home / "rules.yaml").write_text(json.dumps(rules))
        monitors = [item for item in objects if item["kind"] == "ServiceMonitor"]
        (home / "prometheus.yaml").write_text(
            json.dumps(
                {
                    "global": {"evaluation_interval": "1s"},
                    "rule_files": ["rules.yaml"],
                    "scrape_configs": [scraped(monitor, self.cluster) for monitor in monitors],
                }
            )
        )
        self.cluster.start(
            "prometheus",
            "prometheus",
            f"--config.file={home}/prometheus.yaml",
            f"--storage.tsdb.path={home}/data",
            "--web.listen-address=127.0.0.1:9090",
        )

        def fetch(path):
            with urlopen(f"http://127.0.0.1:9090/api/v1/{path}", timeout=5) as answer:
                return json.load(answer)["data"]

        def values(query):
            return {
                item["metric"].get("job"): float(item["value"][1])
                for item in fetch(f"query?query={quote(f'sum by (job) ({query})')}")["result"]
            }

        try:
            self.create(pod("seen", annotations={"baltra.io/device": "vendor=Example"}))
            jobs = {"baltra-registry", "baltra-webhook", "baltra-controller"}
            until("every daemon is scraped", lambda: values("up") == dict.fromkeys(jobs, 1.0))
            until(
                "the Pod is counted",
                lambda: (
                    values("baltra_kubernetes_pods_admitted_total")["baltra-webhook"] >= 1
                    and values("baltra_kubernetes_admission_seconds_count")["baltra-webhook"] >= 1
                    and values("baltra_registry_instances")["baltra-registry"] >= 1
                    and values("baltra_kubernetes_instances_kept_total")["baltra-controller"] >= 1
                ),
            )

            def evaluated():
                found = [rule for group in fetch("rules")["groups"] for rule in group["rules"]]
                assert len(found) == sum(len(group["rules"]) for group in rules["groups"])
                return all(rule["health"] == "ok" for rule in found)

            until("every rule is evaluated", evaluated)
        finally:
            self.cluster.processes["prometheus"].stop()

    def test_the_horizontal_autoscaler_follows_the_registry(self):
        """The cluster's autoscaler reads the external metric: busy devices add replicas up to the
        Function's bound, and idle ones remove them."""
        meta = {"name": "edges", "namespace": "default"}
        metric = {
            "name": "baltra_function_replicas_desired",
            "selector": {"matchLabels": {"function": "edges"}},
        }
        self.cluster.apply(
            [
                {
                    "apiVersion": "baltra.io/v1alpha1",
                    "kind": "Function",
                    "metadata": meta,
                    "spec": {"query": "vendor=Example", "replicasMin": 1, "replicasMax": 3},
                },
                deployment("edges", 1, {"baltra.io/function": "edges"}),
                {
                    "apiVersion": "autoscaling/v2",
                    "kind": "HorizontalPodAutoscaler",
                    "metadata": meta,
                    "spec": {
                        "scaleTargetRef": {
                            "apiVersion": "apps/v1",
                            "kind": "Deployment",
                            "name": "edges",
                        },
                        "minReplicas": 1,
                        "maxReplicas": 9,
                        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
                        "metrics": [
                            {
                                "type": "External",
                                "external": {
                                    "metric": metric,
                                    "target": {"type": "AverageValue", "averageValue": "1"},
                                },
                            }
                        ],
                    },
                },
            ]
        )
        self.running(1, "app=edges")
        self.works(95.0)
        try:
            self.running(3, "app=edges")
            until(
                "the autoscaler stays at the bound",
                lambda: self.scaler()["currentReplicas"] == self.scaler()["desiredReplicas"] == 3,
            )
        finally:
            self.works(LOAD)
        self.running(1, "app=edges")
        conditions = {c["type"]: c["status"] for c in self.scaler()["conditions"]}
        assert conditions["AbleToScale"] == conditions["ScalingActive"] == "True", conditions

    def scaler(self):
        return self.cluster.get("horizontalpodautoscaler", "-n", "default", "edges")["status"]

    def works(self, percent):
        """Sets the load of each instance on its device."""
        for manager in self.managers.by_node.values():
            manager.load = percent

    # ---- container functions

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

    # ---- refusals

    def test_wrong_annotations_are_refused_with_the_reason(self):
        self.refused("baltra.io/devise", annotations={"baltra.io/devise": "x"})
        self.refused(
            "share", annotations={"baltra.io/device": "vendor=Example", "baltra.io/share": "130"}
        )
        self.refused(
            "limit",
            annotations={
                "baltra.io/device": "vendor=Example",
                "baltra.io/share": "50",
                "baltra.io/limit": "30",
            },
        )
        self.refused(
            "count", annotations={"baltra.io/device": "vendor=Example", "baltra.io/count": "-1"}
        )
        self.refused(
            "memory", annotations={"baltra.io/device": "vendor=Example", "baltra.io/memory": "much"}
        )
        self.refused("colour", annotations={"baltra.io/device": "colour=red"})
        self.refused(
            "containers",
            annotations={"baltra.io/device": "vendor=Example", "baltra.io/containers": "nobody"},
        )

    def test_a_device_that_nobody_has_is_refused_with_the_reason(self):
        self.refused("vendor", annotations={"baltra.io/vendor": "Nobody"})
        self.refused("count", annotations={"baltra.io/vendor": "Example", "baltra.io/count": "9"})

    def test_memory_is_promised_once(self):
        """Two Pods get 6 and 2 of a device's 8 GiB; a third waits for 4, with the reason;
        more than 8 is refused."""

        def memory(size):
            return {"baltra.io/device": "fake-0/device0", "baltra.io/memory": size}

        self.create(pod("six", annotations=memory("6Gi")), pod("two", annotations=memory("2Gi")))
        self.running(2)
        self.create(pod("four", annotations=memory("4Gi")))
        self.gated("four")
        until(
            "the reason is shown",
            lambda: (
                "0 of its 8589934592 bytes of memory"
                in self.cluster.kubectl("describe", "pod", "four")
            ),
        )
        self.refused("fake-0/device0", "memory", annotations=memory("9Gi"))
        self.cluster.kubectl("delete", "pod", "six")
        assert [self.allocated(p) for p in self.running(2)] == [["fake-0/device0"]] * 2

    def test_functions_say_what_is_wrong_with_them(self):
        """A function's files are checked, its namespace restricts its devices, and the previous
        valid version stays in service."""
        manifest = (
            "name: each\ninputs: [{name: a, type: u8, shape: [n]}]\noutputs: [{name: b, type: u8, "
            "shape: [n]}]\n"
            "implementations: [{opencl: {source: each.cl, kernel: each, global: [n]}}]\n"
        )
        kernel = "kernel void each(global const uchar *a, global uchar *b) { b[get_global_id(0)] = a[get_global_id(0)]; }"

        def applied(text, namespace="default"):
            self.cluster.apply(
                [
                    {
                        "apiVersion": "baltra.io/v1alpha1",
                        "kind": "Function",
                        "metadata": {"name": "each", "namespace": namespace},
                        "spec": {"files": {"function.yaml": text, "each.cl": kernel}},
                    }
                ]
            )

        def ready(namespace="default"):
            [condition] = self.cluster.get("function", "-n", namespace, "each")["status"][
                "conditions"
            ]
            return condition["status"], condition["message"]

        def registered():
            return {
                f.name: f.content_bytes
                for f in self.registry.call("Functions", "Functions").functions
            }

        applied(manifest)
        until(
            "the function is registered",
            lambda: ready() == ("True", "") and registered().get("each.default", 0) > 0,
        )
        before = registered()
        applied(manifest.replace("shape: [n]}]\noutputs", "shape: [m]}]\noutputs"))
        until("the error is reported", lambda: ready()[0] == "False" and "line 3" in ready()[1])
        assert registered() == before
        applied(manifest)
        until("the function is valid again", lambda: ready() == ("True", ""))
        self.cluster.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": "without", "annotations": {"baltra.io/devices": "none"}},
                }
            ]
        )
        applied(manifest, "without")
        until(
            "the namespace allows no devices",
            lambda: ready("without")[0] == "False" and "may not use devices" in ready("without")[1],
        )
        assert "each.without" not in registered()
        self.cluster.kubectl("delete", "namespace", "without")

    def test_a_forged_identity_is_refused(self):
        self.create(pod("owner", annotations={"baltra.io/device": "vendor=Example"}))
        instance = self.running(1)[0]["metadata"]["labels"]["baltra.io/instance"]
        self.refused("baltra.io/instance", labels={"baltra.io/instance": instance})
        self.refused(
            "baltra.io/instance",
            labels={"baltra.io/instance": instance},
            annotations={"baltra.io/device": "vendor=Example"},
        )
        self.refused(
            "baltra.io/allocated",
            annotations={
                "baltra.io/device": "vendor=Example",
                "baltra.io/allocated": "fake-0/device0",
            },
        )
        self.create(pod("plain"))
        for change in (
            [f"baltra.io/instance={instance}"],
            ["--overwrite", "baltra.io/instance=default.ffffffffff"],
        ):
            name = "plain" if len(change) == 1 else "owner"
            try:
                self.cluster.kubectl("label", "pod", name, *change)
            except Failed as error:
                assert "baltra.io/instance" in str(error), error
            else:
                raise AssertionError(f"pod {name} changed its identity")

    def test_namespaces_have_rules(self):
        """None, some of the devices, or a number of instances."""
        for name, rule in (
            ("closed", {"baltra.io/devices": "none"}),
            ("bounded", {"baltra.io/instances-max": "2"}),
            ("elsewhere", {"baltra.io/devices": "node=fake-1"}),
        ):
            self.cluster.apply(
                [
                    {
                        "apiVersion": "v1",
                        "kind": "Namespace",
                        "metadata": {"name": name, "annotations": rule},
                    }
                ]
            )
            until(
                "the service account",
                lambda: self.cluster.get("-n", name, "serviceaccount", "default"),
            )
        request = {"baltra.io/device": "vendor=Example"}
        until(
            "the rule is in force",
            lambda: self.refused("closed", namespace="closed", annotations=request),
        )
        for i in range(2):
            self.create(pod(f"p{i}", namespace="bounded", annotations=request))
        self.refused("2", namespace="bounded", annotations=request)
        self.create(pod("there", namespace="elsewhere", annotations=request))
        placed = self.cluster.get("pod", "-n", "elsewhere", "there")
        assert self.allocated(placed)[0].startswith("fake-1/"), placed["metadata"]
        for name in ("closed", "bounded", "elsewhere"):
            self.cluster.kubectl("delete", "namespace", name)

    # ---- moves

    def test_replacements_come_first(self):
        """When a device is drained, its Pods stay until their replacements serve."""
        self.create(deployment("app", 4, {"baltra.io/device": "node=fake-0"}))
        before = {p["metadata"]["name"]: self.allocated(p) for p in self.running(4)}
        leaving = {name for name, devices in before.items() if devices == ["fake-0/device0"]}
        assert leaving, before
        # No controller creates another Pod, and the ReplicaSet's status still reports all as ready.
        makes_pods = self.cluster.processes["kube-controller-manager"].running
        makes_pods.send_signal(signal.SIGSTOP)
        try:
            self.drain("fake-0.device0", True)
            until(
                "the Pods are taken out of their ReplicaSet",
                lambda: (
                    leaving
                    == {
                        p["metadata"]["name"]
                        for p in self.pods("app=app")
                        if "baltra.io/moved-from" in p["metadata"]["annotations"]
                    }
                ),
            )
            # A lease of 0 shows that the controller has completed a round since then.
            for name in ("one", "another"):
                self.create(pod(name, annotations={"baltra.io/device": "node=fake-1"}))
                until("a round is over", lambda: all(i.lease_s == 0 for i in self.instances()))
            stay = {
                p["metadata"]["name"]
                for p in self.pods("app=app")
                if "deletionTimestamp" not in p["metadata"]
            }
            assert stay == before.keys(), (
                f"{before.keys() - stay} left before their replacements served"
            )
            makes_pods.send_signal(signal.SIGCONT)
            until(
                "the Pods leave", lambda: not {p["metadata"]["name"] for p in self.pods()} & leaving
            )
            assert all(self.allocated(p) == ["fake-0/device1"] for p in self.running(4, "app=app"))
        finally:
            makes_pods.send_signal(signal.SIGCONT)
            self.drain("fake-0.device0", False)

    def drain(self, device, wanted):
        self.cluster.kubectl(
            "patch", "device", device, "--type=merge", "-p", json.dumps({"spec": {"drain": wanted}})
        )
        state = "draining" if wanted else "ready"
        until(
            f"{device} is {state}",
            lambda: self.cluster.get("device", device)["status"]["state"] == state,
        )

    # ---- recovery

    def test_who_did_not_ask_starts_without_the_webhook(self):
        """While the webhook is down, a Pod without a request starts; a Pod with one is refused,
        and starts later."""
        webhook = self.cluster.processes["webhook"]
        webhook.kill()
        self.create(pod("plain"))
        try:
            self.create(pod("requester", annotations={"baltra.io/device": "vendor=Example"}))
        except Failed as error:
            assert "baltra" in str(error), error
        else:
            raise AssertionError("a Pod with a request was admitted without a device")
        webhook.start()
        self.installation.healthy("webhook", 9466)
        until(
            "the Pod is admitted",
            lambda: (
                self.create(pod("requester", annotations={"baltra.io/device": "vendor=Example"}))
                or True
            ),
        )
        self.running(2)

    def test_a_certificate_that_expired_is_replaced(self):
        """The webhook was down until its certificate expired:
        the next start has another certificate."""
        webhook = self.cluster.processes["webhook"]
        command, secret = webhook.command, (NAMESPACE, "baltra-webhook-tls")

        def again(*words):
            webhook.kill()
            webhook.command = [*command, *words]
            webhook.start()
            self.installation.healthy("webhook", 9466)

        def expired():
            end = run(
                "openssl",
                "x509",
                "-noout",
                "-enddate",
                input=self.cluster.secret(*secret, "tls.crt").decode(),
            )
            return ssl.cert_time_to_seconds(end.strip().removeprefix("notAfter=")) < time.time()

        self.cluster.kubectl("-n", NAMESPACE, "delete", "secret", secret[1])
        again("--certificate-s=6")
        webhook.kill()
        until("the certificate has expired", expired)
        again()
        assert not expired()
        until(
            "Pods are admitted",
            lambda: (
                self.create(pod("requester", annotations={"baltra.io/device": "vendor=Example"}))
                or True
            ),
            patience_s=10,
        )
        self.running(1)

    def test_the_registry_dies(self):
        """Running Pods continue, nothing is allocated twice,
        and the registry's state is the same afterwards."""
        self.create(deployment("app", 5, {"baltra.io/device": "vendor=Example"}))
        before = {p["metadata"]["uid"]: self.allocated(p) for p in self.running(5)}
        self.cluster.restart("registry")
        self.installation.healthy("registry", 9465)
        until("the registry has five instances", lambda: len(self.instances()) == 5)
        self.cluster.kubectl("scale", "deployment/app", "--replicas=8")
        after = {p["metadata"]["uid"]: self.allocated(p) for p in self.running(8)}
        assert all(after[uid] == devices for uid, devices in before.items())
        assert len({i.name for i in self.instances()}) == 8

    def test_a_pod_waits_while_the_registry_is_away(self):
        """A Pod is admitted with a scheduling gate, and starts when the registry is back."""
        self.cluster.processes["registry"].kill()
        self.create(pod("waits", annotations={"baltra.io/device": "vendor=Example"}))
        self.gated("waits")
        self.cluster.processes["registry"].start()
        self.installation.healthy("registry", 9465)
        assert self.allocated(self.running(1)[0])

    def test_the_registry_loses_its_books(self):
        """A registry whose store was deleted gets its allocations from the cluster's objects."""
        self.create(deployment("app", 4, {"baltra.io/device": "vendor=Example"}))
        before = {
            p["metadata"]["labels"]["baltra.io/instance"]: self.allocated(p)
            for p in self.running(4)
        }
        registry = self.cluster.processes["registry"]
        registry.kill()
        for file in (self.cluster.home / "registry/state").rglob("*"):
            if file.is_file():
                file.unlink()
        registry.start()
        self.installation.healthy("registry", 9465)
        until(
            "all allocations are restored",
            lambda: (
                {i.name: [f"{d.node}/{d.device}" for d in i.devices] for i in self.instances()}
                == before
            ),
        )

    def test_the_api_server_restarts(self):
        self.create(deployment("app", 3, {"baltra.io/device": "vendor=Example"}))
        before = {p["metadata"]["uid"] for p in self.running(3)}
        self.cluster.restart("kube-apiserver")
        assert {p["metadata"]["uid"] for p in self.running(3)} == before
        until(
            "Pods are admitted again",
            lambda: (
                self.create(pod("later", annotations={"baltra.io/device": "vendor=Example"}))
                or True
            ),
        )
        self.running(4)
        self.cluster.kubectl("delete", "deployment", "app")
        until("the deleted Pods are released", lambda: len(self.instances()) == 1)


if __name__ == "__main__":
    isolate()
    run_tests(Tests, sys.argv[1:])
