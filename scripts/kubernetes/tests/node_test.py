#!/usr/bin/env python3
"""Applications on a real node: the chart as any user installs it, an OpenCL program whose image has nothing of Baltra,
by annotation and by claim.

    scripts/kubernetes/build.sh control node && target/venv/bin/python scripts/kubernetes/tests/node_test.py [PART OF A NAME …]

Everything is real: kubelet, containerd, kube-proxy, the daemons in their containers, PoCL as the device. Root."""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

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


def template(name, share):
    """A claim of a share of device time."""
    devices = {"requests": [{"name": "it", "exactly": {"deviceClassName": "baltra.io",
                                                       "capacity": {"requests": {"share": str(share)}}}}]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
            "spec": {"spec": {"devices": devices}}}


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

    def busy(self):
        """Seconds that each instance, which is a tenant of its own, has had its device."""
        with urlopen(f"http://{self.manager()['status']['podIP']}:9464/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = {}
        for labels, value in re.findall(r"^baltra_device_busy_seconds_total\{([^}]*)\} (\S+)", text, re.M):
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
        """Of the device time that Pods of these labels take, the part of each Pod, in percent; measured while all want it."""
        instances = {}
        for label, count in labels:
            for pod in self.running(label, count):
                name = until("it has an instance", lambda pod=pod: self.instance(pod))
                instances[name] = label
        until("all want the device", lambda: all(self.busy().get(name, 0) > 1 for name in instances))
        before = self.busy()
        time.sleep(20)
        after = self.busy()
        taken = {name: after[name] - before[name] for name in instances}
        found = {}
        for name, label in instances.items():
            found.setdefault(label, []).append(round(100 * taken[name] / sum(taken.values()), 1))
        self.cluster.say(f"shares: {found} of {sum(taken.values()):.1f} s in 20")
        return found

    def instance(self, pod):
        """Under which name the manager knows it: it says so itself."""
        return re.search(r"^BALTRA_TENANT=(\S+)$", self.inside(pod, "cat", "/baltra/environment"), re.M)[1]

    def test_four_replicas_share_a_device_alike(self):
        self.cluster.apply([deployment("four", BUSY, replicas=4, annotations={"baltra.io/device": "platform=Portable*"})])
        [parts] = self.shares(("four", 4)).values()
        assert all(15 < part < 35 for part in parts), parts

    def test_a_share_is_a_floor(self):
        self.cluster.apply([template("floor", 30), template("small", 5), deployment("floor", BUSY, claim="floor"),
                            deployment("others", BUSY, replicas=4, claim="small")])
        found = self.shares(("floor", 1), ("others", 4))
        assert found["floor"][0] > 25, found


if __name__ == "__main__":
    isolate()
    run_tests(Tests, sys.argv[1:])
