"""Nodes, Pods and Deployments for the tests on a real API server."""

import json
import re
import sys
from pathlib import Path
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cluster import ROOT, Cluster, Failed, until  # noqa: E402
from installation import Installation  # noqa: E402
from pool import Manager, Managers  # noqa: E402

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


class ApiTests:
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
