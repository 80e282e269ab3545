#!/usr/bin/env python3
"""Tests applications on a real node: the chart as installed by any user, and an OpenCL program
without Baltra in its image, by annotation and by claim.

    scripts/kubernetes/build.sh control node && target/venv/bin/python
    scripts/kubernetes/tests/node_test.py [PART OF A NAME …]

Everything is real: kubelet, containerd, kube-proxy, the daemons in their containers,
PoCL as the device. Root."""

import hashlib
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cluster import ROOT, Cluster, Failed, isolate, until  # noqa: E402
from installation import NAMESPACE, install_on_node  # noqa: E402
from runner import run as run_tests  # noqa: E402

# Prints the digest of a picture's edges to the log,
# then waits so that the container can be inspected.
PICTURE = "sobel --size 640x360 --output /tmp/edges.pgm && busybox sha256sum < /tmp/edges.pgm && exec sleep infinity"
# Two processes with endless tasks, because shares apply only under permanent contention. The device
# is this host's processors; programs that use them for their own pictures would share them by the
# kernel's rules.
BUSY = "for _ in 1 2; do matmul --n 256 --repeat 1000000 > /dev/null & done; wait"
# Without privileges, as the strictest of the Pod Security Standards requires.
CONFINED = {
    "runAsNonRoot": True,
    "runAsUser": 65534,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


def pod(script, claim=None, **more):
    container = {
        "name": "it",
        "image": "sobel:1",
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "securityContext": CONFINED,
        **more,
    }
    spec = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    if claim:
        spec["resourceClaims"] = [{"name": "device", "resourceClaimTemplateName": claim}]
        container["resources"] = {"claims": [{"name": "device"}]}
    return spec


def deployment(name, script, replicas=1, annotations=None, claim=None):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod(script, claim)},
        },
    }


def template(name, share, limit=None):
    """A claim for a share of device time, with a limit."""
    devices = {
        "requests": [
            {
                "name": "it",
                "exactly": {
                    "deviceClassName": "baltra.io",
                    "capacity": {"requests": {"share": str(share)}},
                },
            }
        ]
    }
    if limit:
        parameters = {"apiVersion": "baltra.io/v1alpha1", "kind": "DeviceConfig", "limit": limit}
        devices["config"] = [
            {"requests": ["it"], "opaque": {"driver": "baltra.io", "parameters": parameters}}
        ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": devices}},
    }


def function(kernel):
    """A Function of bytes, with a kernel of its own."""
    manifest = {
        "name": "each",
        "inputs": [{"name": "a", "type": "u8", "shape": ["n"]}],
        "outputs": [{"name": "b", "type": "u8", "shape": ["n"]}],
        "implementations": [{"opencl": {"source": "each.cl", "kernel": "each", "global": ["n"]}}],
        "args": ["a", "b"],
    }
    return {
        "apiVersion": "baltra.io/v1alpha1",
        "kind": "Function",
        "metadata": {"name": "each", "namespace": "default"},
        "spec": {
            "files": {
                "function.yaml": json.dumps(manifest),
                "each.cl": f"kernel void each(global const uchar *a, global uchar *b) {{ size_t i "
                f"= get_global_id(0); b[i] = {kernel}; }}",
            }
        },
    }


class Tests:
    def __init__(self):
        self.cluster = Cluster(nodes=1, logs=ROOT / "target/test-logs/kubernetes-node")
        # One image at a time, as on a board.
        install_on_node(self.cluster, "node.configuration=[[device]]\nslots = 1\n")
        with tempfile.TemporaryDirectory() as place:
            edges = Path(place) / "edges.pgm"
            subprocess.run(
                [ROOT / "target/apps/sobel", "--size", "640x360", "--output", edges],
                check=True,
                capture_output=True,
            )
            self.digest = hashlib.sha256(edges.read_bytes()).hexdigest()

    def end(self):
        self.cluster.end()

    def between(self):
        """Each test begins without Pods other than the chart's."""
        self.cluster.kubectl(
            "delete",
            "deployments,pods,resourceclaimtemplates",
            "--all",
            "-n",
            "default",
            "--wait=true",
        )
        until("no Pod is left", lambda: not self.cluster.get("pods", "-n", "default"))

    # ---- shorthands

    def pods(self, label):
        return [
            p
            for p in self.cluster.get("pods", "-n", "default", "-l", f"app={label}")
            if "deletionTimestamp" not in p["metadata"]
        ]

    def running(self, label, count=1):
        def holds():
            found = self.pods(label)
            return (
                len(found) == count
                and all(p["status"].get("phase") == "Running" for p in found)
                and found
            )

        try:
            return until(f"{count} Pods of {label} run", holds, patience_s=90)
        except Failed as error:
            raise Failed(
                f"{error}\n{self.cluster.kubectl('describe', 'pods', '-n', 'default')}"
            ) from None

    def log(self, pod):
        return self.cluster.kubectl("logs", "-n", "default", pod["metadata"]["name"])

    def right(self, pod):
        """The picture's edges, as this host computes them."""
        try:
            until(
                "the digest of the picture is logged",
                lambda: self.digest in self.log(pod),
                patience_s=60,
            )
        except Failed as error:
            manager = self.cluster.kubectl(
                "logs",
                "-n",
                NAMESPACE,
                self.manager()["metadata"]["name"],
                "-c",
                "manager",
                "--tail=30",
            )
            raise Failed(f"{error}\n{self.log(pod)}\nthe manager:\n{manager}") from None

    def inside(self, pod, *command):
        return self.cluster.kubectl(
            "exec", "-n", "default", pod["metadata"]["name"], "--", *command
        )

    def manager(self):
        return self.cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=node")[
            0
        ]

    def used(self, address=None):
        """Processor seconds that each instance, which is a tenant of its own, has used of its
        device, from the manager's metrics."""
        with urlopen(
            f"http://{address or self.manager()['status']['podIP']}:9464/metrics", timeout=10
        ) as answer:
            text = answer.read().decode()
        found = {}
        for labels, value in re.findall(
            r"^baltra_device_processor_seconds_total\{([^}]*)\} (\S+)", text, re.M
        ):
            instance = re.search(r'tenant="([^"]*)"', labels)
            if instance and instance[1]:
                found[instance[1]] = found.get(instance[1], 0.0) + float(value)
        return found

    # ---- tests

    def test_a_deployment_that_asks_gives_right_answers(self):
        self.cluster.apply(
            [
                deployment(
                    "edges",
                    PICTURE,
                    replicas=2,
                    annotations={"baltra.io/device": "platform=Portable*"},
                )
            ]
        )
        for pod in self.running("edges", 2):
            self.right(pod)
            assert pod["metadata"]["annotations"]["baltra.io/allocated"].startswith("node1/"), pod[
                "metadata"
            ]["annotations"]
            assert "baltra" not in self.inside(
                pod, "ls", "/usr/local/bin", "/usr/lib/x86_64-linux-gnu"
            )
        shown = self.cluster.kubectl(
            "describe", "pod", "-n", "default", self.pods("edges")[0]["metadata"]["name"]
        )
        assert re.search(
            r"Allocated .* allocated node1/device0, the least used that matches 'platform=Portable\*'",
            shown,
        ), shown

    def test_a_pod_that_asks_for_nothing_gets_nothing(self):
        self.cluster.apply([deployment("plain", "ls / && exec sleep infinity")])
        [pod] = self.running("plain")
        assert "baltra" not in until("the container has listed its files", lambda: self.log(pod))
        assert "baltra" not in json.dumps(pod["spec"])

    def test_a_claim_gives_right_answers(self):
        self.cluster.apply([template("third", 30), deployment("claims", PICTURE, claim="third")])
        [pod] = self.running("claims")
        self.right(pod)
        assert "hostPath" not in json.dumps(pod["spec"])

    def shares(self, *labels):
        """For each label the shares of its Pods in percent, measured under contention: of the
        device time that these Pods use, and of the whole device time."""
        instances = {}
        for label, count in labels:
            for pod in self.running(label, count):
                name = until("the Pod has an instance", lambda pod=pod: self.instance(pod))
                instances[name] = label
        until(
            "all instances use the device",
            lambda: all(self.used().get(name, 0) > 1 for name in instances),
        )
        before, began = self.used(), time.monotonic()
        time.sleep(20)
        after, whole = self.used(), (time.monotonic() - began) * len(os.sched_getaffinity(0))
        taken = {name: after[name] - before[name] for name in instances}
        among, of_device = {}, {}
        for name, label in instances.items():
            among.setdefault(label, []).append(round(100 * taken[name] / sum(taken.values()), 1))
            of_device.setdefault(label, []).append(round(100 * taken[name] / whole, 1))
        self.cluster.say(f"shares: {among} of the used time, {of_device} of the device")
        return among, of_device

    def instance(self, pod):
        """The name of the Pod's instance, from its environment file."""
        return re.search(
            r"^BALTRA_TENANT=(\S+)$", self.inside(pod, "cat", "/baltra/environment"), re.M
        )[1]

    def test_what_a_kubelet_or_somebody_deletes_is_published_again(self):
        """A kubelet that starts deletes the slices of its node;
        labels disappear when a Node is registered again."""
        node = self.cluster.get("nodes")[0]["metadata"]["name"]
        name = f"{node}-baltra.io"
        before = self.cluster.get("resourceslice", name)
        self.cluster.kubectl("delete", "resourceslice", name)
        self.cluster.kubectl("label", "node", node, "baltra.io/devices-", "baltra.io/healthy-")
        again = until("the slice exists again", lambda: self.cluster.get("resourceslice", name))
        assert again["metadata"]["uid"] != before["metadata"]["uid"]
        assert again["spec"]["devices"] == before["spec"]["devices"]
        until(
            "the labels exist again",
            lambda: (
                self.cluster.get("node", node)["metadata"]["labels"].get("baltra.io/devices") == "1"
            ),
        )

    def test_a_function_that_is_applied_is_served(self):
        """A Function is served at the URL of its name and namespace, also after a change, and
        removed with its object."""
        [gateway] = self.cluster.get(
            "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=gateway"
        )
        url = f"http://{gateway['status']['podIP']}:8080/function/each.default"
        headers = {
            "X-API-Key": self.cluster.secret(NAMESPACE, "baltra-tokens", "client").decode(),
            "Content-Type": "application/octet-stream",
            "Accept": "application/octet-stream",
        }

        def called():
            with urlopen(Request(url, data=b"abc", headers=headers), timeout=60) as answer:
                return answer.read()

        self.cluster.apply([function("a[i] + 1")])
        until("the function is served", lambda: called() == b"bcd", patience_s=60)
        self.cluster.apply([function("a[i] - 32")])
        until("the change is served", lambda: called() == b"ABC", patience_s=60)
        self.cluster.kubectl("delete", "function", "each", "-n", "default")

        def gone():
            try:
                return not called()
            except HTTPError as error:
                return error.code == 404

        until("the function is removed", gone, patience_s=90)

    def test_a_container_runs_only_while_it_is_called(self):
        """A Function with a Deployment of no replicas: the first call starts a Pod, which serves
        it; without calls the Pod ends."""
        meta = {"name": "page", "namespace": "default"}
        page = deployment(
            "page",
            "echo a container answers > /tmp/index.html && exec busybox httpd -f -p 8080 -h /tmp",
            replicas=0,
        )
        [container] = page["spec"]["template"]["spec"]["containers"]
        container["readinessProbe"] = {
            "httpGet": {"path": "/index.html", "port": 8080},
            "periodSeconds": 1,
        }
        self.cluster.apply(
            [
                page,
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": meta,
                    "spec": {
                        "selector": {"app": "page"},
                        "ports": [{"port": 80, "targetPort": 8080}],
                    },
                },
                {
                    "apiVersion": "baltra.io/v1alpha1",
                    "kind": "Function",
                    "metadata": meta,
                    "spec": {"container": {"deployment": "page", "idleSeconds": 5}},
                },
            ]
        )
        [gateway] = self.cluster.get(
            "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=gateway"
        )
        url = f"http://{gateway['status']['podIP']}:8080/function/page.default/index.html"
        headers = {"X-API-Key": self.cluster.secret(NAMESPACE, "baltra-tokens", "client").decode()}

        def called():
            with urlopen(Request(url, headers=headers), timeout=90) as answer:
                return answer.read() == b"a container answers\n"

        try:
            for _ in range(2):
                assert not self.pods("page")
                until("the container replies", called, patience_s=90)
                self.running("page")
                until(
                    "the container is stopped",
                    lambda: not self.cluster.get("pods", "-n", "default", "-l", "app=page"),
                    patience_s=120,
                )
        finally:
            self.cluster.kubectl("delete", "function,service", "page", "-n", "default")

    def test_a_certificate_is_renewed_and_served_without_a_restart(self):
        """An expired or missing certificate is replaced: the running Pod of the webhook serves a
        new one that the API server trusts."""
        webhook = lambda: self.cluster.get(
            "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=webhook"
        )
        [before] = webhook()
        secret = ("-n", NAMESPACE, "secret", "baltra-webhook-tls")

        def served():
            return ssl.PEM_cert_to_DER_cert(
                ssl.get_server_certificate((before["status"]["podIP"], 9443), timeout=10)
            )

        def kept():
            return ssl.PEM_cert_to_DER_cert(
                self.cluster.secret(NAMESPACE, "baltra-webhook-tls", "tls.crt").decode()
            )

        for change in (
            ("annotate", *secret, "--overwrite", "baltra.io/not-after=1"),
            ("delete", *secret),
        ):
            shown = served()
            assert shown == kept()
            self.cluster.kubectl(*change)
            until(
                "another certificate is served",
                lambda: served() != shown and served() == kept(),
                patience_s=60,
            )
            # Two Pods, because each must be admitted over a new connection.
            for name in ("one", "another"):
                self.cluster.apply(
                    [
                        deployment(
                            name,
                            "exec sleep infinity",
                            annotations={"baltra.io/device": "platform=Portable*"},
                        )
                    ]
                )
                self.running(name)
                self.cluster.kubectl("delete", "deployment", name, "-n", "default")
        [after] = webhook()
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert [c["restartCount"] for c in after["status"]["containerStatuses"]] == [
            c["restartCount"] for c in before["status"]["containerStatuses"]
        ]

    def test_another_s_socket_is_not_mounted(self):
        """A Pod that mounts another Pod's directory, or a parent directory, is refused;
        the running Pod keeps its own."""
        self.cluster.apply(
            [deployment("owner", PICTURE, annotations={"baltra.io/device": "platform=Portable*"})]
        )
        [owner] = self.running("owner")
        self.right(owner)
        [path] = [v["hostPath"]["path"] for v in owner["spec"]["volumes"] if "hostPath" in v]
        assert "baltra.sock" in self.inside(owner, "ls", "/baltra"), self.inside(
            owner, "ls", "/baltra"
        )
        for stolen in (
            path,
            f"/var{path}",
            f"{path}/baltra.sock",
            path.rsplit("/", 1)[0],
            "/run/baltra",
            "/run",
            "/",
        ):
            spec = pod(
                "exec sleep infinity", volumeMounts=[{"name": "stolen", "mountPath": "/stolen"}]
            )
            spec["volumes"] = [{"name": "stolen", "hostPath": {"path": stolen}}]
            thief = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "thief", "namespace": "default"},
                "spec": spec,
            }
            try:
                self.cluster.kubectl("create", "-f", "-", input=json.dumps(thief))
            except Failed as error:
                assert "a Pod may mount its own instance's directory" in str(error), error
            else:
                raise AssertionError(f"the Pod was allowed to mount {stolen}")
        assert not [
            p for p in self.cluster.get("pods", "-n", "default") if p["metadata"]["name"] == "thief"
        ]

    def test_what_runs_runs_on_without_the_api_server(self):
        """The API server is killed while a Pod computes: the Pod continues, and the next Pod gets
        its device once the server is back."""
        request = {"baltra.io/device": "platform=Portable*"}
        self.cluster.apply([deployment("busy", BUSY, annotations=request)])
        [busy] = self.running("busy")
        address = self.manager()["status"]["podIP"]
        total = lambda: sum(self.used(address).values())
        began = total()
        until("the Pod computes", lambda: total() > began + 1)
        server = self.cluster.processes["kube-apiserver"]
        server.kill()
        try:
            alone = total()
            until("the Pod continues", lambda: total() > alone + 3)
        finally:
            server.start()
            self.cluster.ready()
        until(
            "Pods are admitted again",
            lambda: self.cluster.apply([deployment("edges", PICTURE, annotations=request)]),
        )
        [edges] = self.running("edges")
        self.right(edges)
        [still] = self.running("busy")
        assert still["metadata"]["uid"] == busy["metadata"]["uid"]
        assert still["status"]["containerStatuses"][0]["restartCount"] == 0

    def test_four_replicas_share_a_device_alike(self):
        self.cluster.apply(
            [
                deployment(
                    "four", BUSY, replicas=4, annotations={"baltra.io/device": "platform=Portable*"}
                )
            ]
        )
        among, _ = self.shares(("four", 4))
        [parts] = among.values()
        assert all(15 < part < 35 for part in parts), parts

    def test_a_share_is_a_floor(self):
        self.cluster.apply(
            [
                template("floor", 30),
                template("small", 5),
                deployment("floor", BUSY, claim="floor"),
                deployment("others", BUSY, replicas=4, claim="small"),
            ]
        )
        among, _ = self.shares(("floor", 1), ("others", 4))
        assert among["floor"][0] >= 27, among

    def test_a_limit_is_a_ceiling(self):
        self.cluster.apply(
            [
                template("both", 30, limit=30),
                template("small", 5),
                deployment("both", BUSY, claim="both"),
            ]
        )
        _, alone = self.shares(("both", 1))
        assert 0 < alone["both"][0] <= 33, alone
        self.cluster.apply([deployment("others", BUSY, replicas=4, claim="small")])
        among, of_device = self.shares(("both", 1), ("others", 4))
        assert among["both"][0] >= 27, among
        assert of_device["both"][0] <= 33, of_device


if __name__ == "__main__":
    isolate()
    run_tests(Tests, sys.argv[1:])
