#!/usr/bin/env python3
"""Applications on a real node: the chart as any user installs it, an OpenCL program whose image has nothing of Baltra,
by annotation and by claim.

    scripts/kubernetes/build.sh control node && target/venv/bin/python scripts/kubernetes/tests/node_test.py [PART OF A NAME …]

Everything is real: kubelet, containerd, kube-proxy, the daemons in their containers, PoCL as the device. Root."""

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

# A picture's edges, and their digest in the log; then the container waits to be looked at.
PICTURE = "sobel --size 640x360 --output /tmp/edges.pgm && busybox sha256sum < /tmp/edges.pgm && exec sleep infinity"
# Tasks without end, of two processes: who wants a share has to want the device all the time. The device is this host's
# processors: programs that need these themselves, for their pictures, would share them by the kernel's rules.
BUSY = "for _ in 1 2; do matmul --n 256 --repeat 1000000 > /dev/null & done; wait"
# Without rights: as the strictest of the Pod Security Standards wants it.
CONFINED = {"runAsNonRoot": True, "runAsUser": 65534, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def pod(script, claim=None, **more):
    container = {"name": "it", "image": "sobel:1", "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script],
                 "securityContext": CONFINED, **more}
    spec = {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}
    if claim:
        spec["resourceClaims"] = [{"name": "device", "resourceClaimTemplateName": claim}]
        container["resources"] = {"claims": [{"name": "device"}]}
    return spec


def deployment(name, script, replicas=1, annotations=None, claim=None):
    return {"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                     "template": {"metadata": {"labels": {"app": name}}, "spec": pod(script, claim)}}}


def template(name, share, limit=None):
    """A claim of a share of device time, and of no more than a limit."""
    devices = {"requests": [{"name": "it", "exactly": {"deviceClassName": "baltra.io",
                                                       "capacity": {"requests": {"share": str(share)}}}}]}
    if limit:
        parameters = {"apiVersion": "baltra.io/v1alpha1", "kind": "DeviceConfig", "limit": limit}
        devices["config"] = [{"requests": ["it"], "opaque": {"driver": "baltra.io", "parameters": parameters}}]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
            "spec": {"spec": {"devices": devices}}}


def function(kernel):
    """A Function of bytes, with a kernel of its own."""
    manifest = {"name": "each", "inputs": [{"name": "a", "type": "u8", "shape": ["n"]}], "outputs": [{"name": "b", "type": "u8", "shape": ["n"]}],
                "implementations": [{"opencl": {"source": "each.cl", "kernel": "each", "global": ["n"]}}],
                "args": ["a", "b"]}
    return {"apiVersion": "baltra.io/v1alpha1", "kind": "Function", "metadata": {"name": "each", "namespace": "default"},
            "spec": {"files": {"function.yaml": json.dumps(manifest), "each.cl":
                     f"kernel void each(global const uchar *a, global uchar *b) {{ size_t i = get_global_id(0); b[i] = {kernel}; }}"}}}


class Tests:
    def __init__(self):
        self.cluster = Cluster(nodes=1, logs=ROOT / "target/test-logs/kubernetes-node")
        # One at a time, as on a board.
        install_on_node(self.cluster, "node.configuration=[[device]]\nslots = 1\n")
        with tempfile.TemporaryDirectory() as place:
            edges = Path(place) / "edges.pgm"
            subprocess.run([ROOT / "target/apps/sobel", "--size", "640x360", "--output", edges], check=True, capture_output=True)
            self.digest = hashlib.sha256(edges.read_bytes()).hexdigest()

    def end(self):
        self.cluster.end()

    def between(self):
        """Each test begins with no Pod but the chart's."""
        self.cluster.kubectl("delete", "deployments,pods,resourceclaimtemplates", "--all", "-n", "default", "--wait=true")
        until("no Pod is left", lambda: not self.cluster.get("pods", "-n", "default"))

    # ---- shorthands

    def pods(self, label):
        return [p for p in self.cluster.get("pods", "-n", "default", "-l", f"app={label}") if "deletionTimestamp" not in p["metadata"]]

    def running(self, label, count=1):
        def holds():
            found = self.pods(label)
            return len(found) == count and all(p["status"].get("phase") == "Running" for p in found) and found
        try:
            return until(f"{count} Pods of {label} run", holds, patience_s=90)
        except Failed as error:
            raise Failed(f"{error}\n{self.cluster.kubectl('describe', 'pods', '-n', 'default')}") from None

    def log(self, pod):
        return self.cluster.kubectl("logs", "-n", "default", pod["metadata"]["name"])

    def right(self, pod):
        """The picture's edges, as this host computes them."""
        try:
            until("the picture is done", lambda: self.digest in self.log(pod), patience_s=60)
        except Failed as error:
            manager = self.cluster.kubectl("logs", "-n", NAMESPACE, self.manager()["metadata"]["name"], "-c", "manager", "--tail=30")
            raise Failed(f"{error}\n{self.log(pod)}\nthe manager:\n{manager}") from None

    def inside(self, pod, *command):
        return self.cluster.kubectl("exec", "-n", "default", pod["metadata"]["name"], "--", *command)

    def manager(self):
        return self.cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=node")[0]

    def used(self, address=None):
        """Processor seconds that each instance, which is a tenant of its own, has had of its device; asked at the manager's address."""
        with urlopen(f"http://{address or self.manager()['status']['podIP']}:9464/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = {}
        for labels, value in re.findall(r"^baltra_device_processor_seconds_total\{([^}]*)\} (\S+)", text, re.M):
            instance = re.search(r'tenant="([^"]*)"', labels)
            if instance and instance[1]:
                found[instance[1]] = found.get(instance[1], 0.0) + float(value)
        return found

    # ---- tests

    def test_a_deployment_that_asks_gives_right_answers(self):
        self.cluster.apply([deployment("edges", PICTURE, replicas=2, annotations={"baltra.io/device": "platform=Portable*"})])
        for pod in self.running("edges", 2):
            self.right(pod)
            assert pod["metadata"]["annotations"]["baltra.io/allocated"].startswith("node1/"), pod["metadata"]["annotations"]
            assert "baltra" not in self.inside(pod, "ls", "/usr/local/bin", "/usr/lib/x86_64-linux-gnu")
        said = self.cluster.kubectl("describe", "pod", "-n", "default", self.pods("edges")[0]["metadata"]["name"])
        assert re.search(r"Allocated .* given node1/device0, the least used that fits 'platform=Portable\*'", said), said

    def test_a_pod_that_asks_for_nothing_gets_nothing(self):
        self.cluster.apply([deployment("plain", "ls / && exec sleep infinity")])
        [pod] = self.running("plain")
        assert "baltra" not in until("it has looked", lambda: self.log(pod))
        assert "baltra" not in json.dumps(pod["spec"])

    def test_a_claim_gives_right_answers(self):
        self.cluster.apply([template("third", 30), deployment("claims", PICTURE, claim="third")])
        [pod] = self.running("claims")
        self.right(pod)
        assert "hostPath" not in json.dumps(pod["spec"])

    def shares(self, *labels):
        """For each label the parts that its Pods have, in percent, measured while all want the device: of what these Pods
        take of it, and of all that there is of it."""
        instances = {}
        for label, count in labels:
            for pod in self.running(label, count):
                name = until("it has an instance", lambda pod=pod: self.instance(pod))
                instances[name] = label
        until("all want the device", lambda: all(self.used().get(name, 0) > 1 for name in instances))
        before, began = self.used(), time.monotonic()
        time.sleep(20)
        after, whole = self.used(), (time.monotonic() - began) * len(os.sched_getaffinity(0))
        taken = {name: after[name] - before[name] for name in instances}
        among, of_device = {}, {}
        for name, label in instances.items():
            among.setdefault(label, []).append(round(100 * taken[name] / sum(taken.values()), 1))
            of_device.setdefault(label, []).append(round(100 * taken[name] / whole, 1))
        self.cluster.say(f"shares: {among} of what was taken, {of_device} of the device")
        return among, of_device

    def instance(self, pod):
        """Under which name the manager knows it: it says so itself."""
        return re.search(r"^BALTRA_TENANT=(\S+)$", self.inside(pod, "cat", "/baltra/environment"), re.M)[1]

    def test_what_a_kubelet_or_somebody_deletes_is_published_again(self):
        """A kubelet that starts deletes the slices of its node; labels go with a Node that is registered anew."""
        node = self.cluster.get("nodes")[0]["metadata"]["name"]
        name = f"{node}-baltra.io"
        before = self.cluster.get("resourceslice", name)
        self.cluster.kubectl("delete", "resourceslice", name)
        self.cluster.kubectl("label", "node", node, "baltra.io/devices-", "baltra.io/healthy-")
        again = until("the slice is there again", lambda: self.cluster.get("resourceslice", name))
        assert again["metadata"]["uid"] != before["metadata"]["uid"]
        assert again["spec"]["devices"] == before["spec"]["devices"]
        until("the labels are there again", lambda: self.cluster.get("node", node)["metadata"]["labels"].get("baltra.io/devices") == "1")

    def test_a_function_that_is_applied_is_served(self):
        """At the URL of its name and namespace; a change is served, too; it goes with its object."""
        [gateway] = self.cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=gateway")
        url = f"http://{gateway['status']['podIP']}:8080/function/each.default"
        headers = {"X-API-Key": self.cluster.secret(NAMESPACE, "baltra-tokens", "client").decode(),
                   "Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}

        def called():
            with urlopen(Request(url, data=b"abc", headers=headers), timeout=60) as answer:
                return answer.read()
        self.cluster.apply([function("a[i] + 1")])
        until("it is served", lambda: called() == b"bcd", patience_s=60)
        self.cluster.apply([function("a[i] - 32")])
        until("the change is served", lambda: called() == b"ABC", patience_s=60)
        self.cluster.kubectl("delete", "function", "each", "-n", "default")

        def gone():
            try:
                return not called()
            except HTTPError as error:
                return error.code == 404
        until("it is gone", gone, patience_s=90)

    def test_a_container_runs_only_while_it_is_called(self):
        """A Deployment of none behind a Function: its first call makes a Pod, which answers it; without calls it goes."""
        meta = {"name": "page", "namespace": "default"}
        page = deployment("page", "echo a container answers > /tmp/index.html && exec busybox httpd -f -p 8080 -h /tmp", replicas=0)
        [container] = page["spec"]["template"]["spec"]["containers"]
        container["readinessProbe"] = {"httpGet": {"path": "/index.html", "port": 8080}, "periodSeconds": 1}
        self.cluster.apply([page, {"apiVersion": "v1", "kind": "Service", "metadata": meta,
                                   "spec": {"selector": {"app": "page"}, "ports": [{"port": 80, "targetPort": 8080}]}},
                            {"apiVersion": "baltra.io/v1alpha1", "kind": "Function", "metadata": meta,
                             "spec": {"container": {"deployment": "page", "idleSeconds": 5}}}])
        [gateway] = self.cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=gateway")
        url = f"http://{gateway['status']['podIP']}:8080/function/page.default/index.html"
        headers = {"X-API-Key": self.cluster.secret(NAMESPACE, "baltra-tokens", "client").decode()}

        def called():
            with urlopen(Request(url, headers=headers), timeout=90) as answer:
                return answer.read() == b"a container answers\n"
        try:
            for _ in range(2):
                assert not self.pods("page")
                until("it answers", called, patience_s=90)
                self.running("page")
                until("it is gone", lambda: not self.cluster.get("pods", "-n", "default", "-l", "app=page"), patience_s=120)
        finally:
            self.cluster.kubectl("delete", "function,service", "page", "-n", "default")

    def test_a_certificate_is_renewed_and_served_without_a_restart(self):
        """One whose time is over, and one that is gone: the webhook's Pod shows another that the API server trusts, as it is."""
        webhook = lambda: self.cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=webhook")
        [before] = webhook()
        secret = ("-n", NAMESPACE, "secret", "baltra-webhook-tls")

        def served():
            return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((before["status"]["podIP"], 9443), timeout=10))

        def kept():
            return ssl.PEM_cert_to_DER_cert(self.cluster.secret(NAMESPACE, "baltra-webhook-tls", "tls.crt").decode())
        for change in (("annotate", *secret, "--overwrite", "baltra.io/not-after=1"), ("delete", *secret)):
            shown = served()
            assert shown == kept()
            self.cluster.kubectl(*change)
            until("another one is served", lambda: served() != shown and served() == kept(), patience_s=60)
            # Two: nothing that was agreed on before may be in use any more, and each is a connection's first.
            for name in ("one", "another"):
                self.cluster.apply([deployment(name, "exec sleep infinity", annotations={"baltra.io/device": "platform=Portable*"})])
                self.running(name)
                self.cluster.kubectl("delete", "deployment", name, "-n", "default")
        [after] = webhook()
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert [c["restartCount"] for c in after["status"]["containerStatuses"]] == [c["restartCount"] for c in before["status"]["containerStatuses"]]

    def test_another_s_socket_is_not_mounted(self):
        """A Pod that names the directory of one that runs, or what is above it, is refused; the one that runs has its own."""
        self.cluster.apply([deployment("owner", PICTURE, annotations={"baltra.io/device": "platform=Portable*"})])
        [owner] = self.running("owner")
        self.right(owner)
        [path] = [v["hostPath"]["path"] for v in owner["spec"]["volumes"] if "hostPath" in v]
        assert "baltra.sock" in self.inside(owner, "ls", "/baltra"), self.inside(owner, "ls", "/baltra")
        for stolen in (path, f"/var{path}", f"{path}/baltra.sock", path.rsplit("/", 1)[0], "/run/baltra", "/run", "/"):
            spec = pod("exec sleep infinity", volumeMounts=[{"name": "stolen", "mountPath": "/stolen"}])
            spec["volumes"] = [{"name": "stolen", "hostPath": {"path": stolen}}]
            thief = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief", "namespace": "default"}, "spec": spec}
            try:
                self.cluster.kubectl("create", "-f", "-", input=json.dumps(thief))
            except Failed as error:
                assert "a Pod may mount its own instance's directory" in str(error), error
            else:
                raise AssertionError(f"it was given {stolen}")
        assert not [p for p in self.cluster.get("pods", "-n", "default") if p["metadata"]["name"] == "thief"]

    def test_what_runs_runs_on_without_the_api_server(self):
        """Killed under a Pod that computes: it computes on, and once the server is back the next one gets its device."""
        asked = {"baltra.io/device": "platform=Portable*"}
        self.cluster.apply([deployment("busy", BUSY, annotations=asked)])
        [busy] = self.running("busy")
        address = self.manager()["status"]["podIP"]
        total = lambda: sum(self.used(address).values())
        began = total()
        until("it computes", lambda: total() > began + 1)
        server = self.cluster.processes["kube-apiserver"]
        server.kill()
        try:
            alone = total()
            until("it computes on", lambda: total() > alone + 3)
        finally:
            server.start()
            self.cluster.ready()
        until("Pods are let in again", lambda: self.cluster.apply([deployment("edges", PICTURE, annotations=asked)]))
        [edges] = self.running("edges")
        self.right(edges)
        [still] = self.running("busy")
        assert still["metadata"]["uid"] == busy["metadata"]["uid"]
        assert still["status"]["containerStatuses"][0]["restartCount"] == 0

    def test_four_replicas_share_a_device_alike(self):
        self.cluster.apply([deployment("four", BUSY, replicas=4, annotations={"baltra.io/device": "platform=Portable*"})])
        among, _ = self.shares(("four", 4))
        [parts] = among.values()
        assert all(15 < part < 35 for part in parts), parts

    def test_a_share_is_a_floor(self):
        self.cluster.apply([template("floor", 30), template("small", 5), deployment("floor", BUSY, claim="floor"),
                            deployment("others", BUSY, replicas=4, claim="small")])
        among, _ = self.shares(("floor", 1), ("others", 4))
        assert among["floor"][0] >= 27, among

    def test_a_limit_is_a_ceiling(self):
        self.cluster.apply([template("both", 30, limit=30), template("small", 5), deployment("both", BUSY, claim="both")])
        _, alone = self.shares(("both", 1))
        assert 0 < alone["both"][0] <= 33, alone
        self.cluster.apply([deployment("others", BUSY, replicas=4, claim="small")])
        among, of_device = self.shares(("both", 1), ("others", 4))
        assert among["both"][0] >= 27, among
        assert of_device["both"][0] <= 33, of_device


if __name__ == "__main__":
    isolate()
    run_tests(Tests, sys.argv[1:])
