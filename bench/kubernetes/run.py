#!/usr/bin/env python3
"""Measures Baltra in a Kubernetes cluster: the webhook under a burst of Pods, a thousand instances
onto four hundred devices compared with the simulator, the recovery from each daemon's death, and
fifty Pods that leave a device for a reconfiguration.

usage: target/venv/bin/python bench/kubernetes/run.py [--parts burst,placement,deaths,moves]
       [--rounds 3] [--quick] [--label NAME]

Needs root, scripts/kubernetes/build.sh and `make build` before. README.md defines each number.
Writes bench/results/kubernetes/DATE-LABEL-COMMIT.{json,md}.
"""

import argparse
import datetime
import http.client
import json
import os
import pathlib
import platform
import random
import ssl
import subprocess
import sys
import threading
import time
from urllib.request import urlopen

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/kubernetes")]
import grpc  # noqa: E402
import report  # noqa: E402
from cluster import API_PORT, Cluster, Failed, isolate, until  # noqa: E402
from installation import BALTRA, NAMESPACE, Installation  # noqa: E402
from pool import Manager, Managers  # noqa: E402

DEVICES = 4
# Percentage of a device's time that an instance uses.
LOAD = 10.0
ANNOTATIONS = {"baltra.io/device": "vendor=Example"}
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/baltra-controller"
HEARTBEAT_S = 1.0
PAUSE_S = 0.05
# The killed daemons, and whether the benchmark restarts them: a kubelet restarts a container at
# once after its first death; a leader is replaced by the other copy.
PARTS = ("burst", "placement", "deaths", "moves")
VICTIMS = {"registry": True, "webhook": True, "kube-apiserver": True, "leader": False}


class Api:
    """The API server, as the cluster's administrator, over one connection:
    kubectl would dominate the measured times."""

    def __init__(self, cluster):
        self.context = ssl.create_default_context(cafile=str(cluster.ca.path))
        self.context.load_cert_chain(
            cluster.certificates / "admin.crt", cluster.certificates / "admin.key"
        )
        self.connection = None

    def text(self, method, path, body=None):
        try:
            if self.connection is None:
                self.connection = http.client.HTTPSConnection(
                    "127.0.0.1", API_PORT, context=self.context, timeout=20
                )
            content = None if body is None else json.dumps(body)
            self.connection.request(method, path, content, {"content-type": "application/json"})
            answer = self.connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            self.connection = None
            raise Failed(f"{method} {path}: {error}") from error
        if answer.status >= 300:
            raise Failed(f"{method} {path}: {text}")
        return text

    def call(self, method, path, body=None):
        return json.loads(self.text(method, path, body))

    def create(self, path, body):
        """Creates an object that may already exist from a request whose reply was lost."""
        try:
            return self.call("POST", path, body)
        except Failed as error:
            if "AlreadyExists" not in str(error):
                raise
            return body


def pod(name, annotations=ANNOTATIONS):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "it", "image": "none"}],
        },
    }


def deployment(name, replicas, annotations=ANNOTATIONS):
    template = {"metadata": {"labels": {"app": name}}, "spec": pod(name)["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }


def allocated(pod):
    return sorted(pod["metadata"]["annotations"]["baltra.io/allocated"].split(","))


def histogram(text, metric, **labels):
    """A histogram in Prometheus' format: bounds in ms with the count below each, the total count,
    the sum in ms."""
    below, count, total = {}, 0, 0.0
    for line in text.splitlines():
        if not line.startswith(metric) or not all(
            f'{key}="{value}"' in line for key, value in labels.items()
        ):
            continue
        value = float(line.rsplit(" ", 1)[1])
        if line.startswith(f"{metric}_bucket"):
            bound = float(line.split('le="')[1].split('"')[0]) * 1e3
            below[bound] = below.get(bound, 0) + value
        elif line.startswith(f"{metric}_sum"):
            total += value * 1e3
        elif line.startswith(f"{metric}_count"):
            count += value
    return {"below": below, "count": count, "total_ms": total}


class Measured(Manager):
    """A manager that reports realistic values: an instance allocated since the last heartbeat has
    worked for a part of that time."""

    # Instances of every device come from the registry,
    # because a manager gets its own only in replies to heartbeats.
    held = {}

    def __init__(self, *words, **more):
        self.known, self.random = {}, random.Random(words[1])
        super().__init__(*words, **more)

    def busy(self, device, instances):
        now, known = (
            Measured.held.get(f"{self.node}/{device}", set()),
            self.known.get(device, set()),
        )
        self.known[device] = now
        return self.load * sum(
            1.0 if instance in known else self.random.random() for instance in now
        )


class Bench:
    def __init__(self, nodes, replicas):
        self.replicas = replicas
        logs = ROOT / "target/test-logs/kubernetes-bench"
        self.cluster = Cluster(fake=nodes, logs=logs)
        self.installation = Installation(self.cluster)
        self.registry = self.installation.registry
        managers = [
            Measured(self.registry, f"fake-{i}", devices=DEVICES, load=LOAD) for i in range(nodes)
        ]
        self.managers = Managers(managers, HEARTBEAT_S, self.look)
        self.api = Api(self.cluster)
        until(
            "the cluster shows every device",
            lambda: len(self.cluster.get("devices")) == nodes * DEVICES,
        )
        self.cluster.say("devices listed")

    def end(self):
        self.managers.end()
        self.cluster.end()

    # ---- state

    def look(self):
        """The load that managers report."""
        held = {}
        for instance in self.registry.call("Operators", "Instances").instances:
            for device in instance.devices:
                held.setdefault(f"{device.node}/{device.device}", set()).add(instance.name)
        Measured.held = held

    def instances(self):
        """Lease and devices of the registry's instances, by name."""
        try:
            found = self.registry.call("Operators", "Instances").instances
        except grpc.RpcError as error:
            raise Failed(f"the registry: {error.code()}") from error
        return {
            i.name: (i.lease_s, sorted(f"{d.node}/{d.device}" for d in i.devices)) for i in found
        }

    def utilizations(self):
        return [device.utilization for device in self.registry.call("Operators", "Devices").devices]

    def pods(self):
        """By instance."""
        return {
            p["metadata"]["labels"]["baltra.io/instance"]: p
            for p in self.api.call("GET", PODS)["items"]
        }

    def agree(self):
        """The Pods, if each runs on the devices of its instance in the registry,
        and there are no other instances."""
        pods, instances = self.pods(), self.instances()
        assert pods.keys() == instances.keys(), f"{len(pods)} Pods, {len(instances)} instances"
        for name, (_, devices) in instances.items():
            assert devices and devices == allocated(pods[name]), (
                name,
                devices,
                pods[name]["metadata"],
            )
            assert (
                pods[name]["spec"]["nodeName"] == devices[0].split("/")[0]
                and pods[name]["status"]["phase"] == "Running"
            ), name
        return pods

    def deploy(self, name, replicas, annotations=ANNOTATIONS):
        """Seconds until all run, and the counts over time."""
        began, seen = time.monotonic(), []
        self.api.create(DEPLOYMENTS, deployment(name, replicas, annotations))

        def all_run():
            ready = self.api.call("GET", f"{DEPLOYMENTS}/{name}")["status"].get("readyReplicas", 0)
            seen.append((time.monotonic() - began, ready))
            return ready == replicas

        until(f"{replicas} Pods run", all_run, patience_s=600)
        return seen[-1][0], seen

    def remove(self, name):
        self.cluster.kubectl(
            "delete", f"deployment/{name}", "--cascade=foreground", "--wait=true", "--timeout=300s"
        )
        until("the registry has no instance", lambda: not self.instances(), patience_s=300)

    # ---- measurements

    def reviewed(self):
        """Times of the webhook, measured by the API server and by the webhook itself."""
        with urlopen("http://127.0.0.1:9466/metrics", timeout=10) as answer:
            own = answer.read().decode()
        return {
            "API server": histogram(
                self.api.text("GET", "/metrics"),
                "apiserver_admission_webhook_admission_duration_seconds",
                name="pods.baltra.io",
                operation="CREATE",
                type="admit",
            ),
            "webhook": histogram(own, "baltra_kubernetes_admission_seconds"),
        }

    def admissions(self, act):
        """Times of the admissions during an action, as from reviewed()."""
        before = self.reviewed()
        act()
        after = self.reviewed()
        return {
            who: {
                "below": {
                    bound: n - before[who]["below"].get(bound, 0)
                    for bound, n in after[who]["below"].items()
                },
                "count": after[who]["count"] - before[who]["count"],
                "total_ms": after[who]["total_ms"] - before[who]["total_ms"],
            }
            for who in after
        }

    def burst(self, rounds, pods=100):
        """Pods created at once by a ReplicaSet, and the same number one after another."""
        result = {"pods": pods, "at once": [], "by turns": [], "all_run_s": []}
        for turn in range(rounds):
            name = f"burst-{turn}"
            result["at once"].append(
                self.admissions(lambda: result["all_run_s"].append(self.deploy(name, pods)[0]))
            )
            self.agree()
            self.remove(name)

            def by_turns():
                for n in range(pods):
                    self.api.create(PODS, pod(f"single-{n}"))

            result["by turns"].append(self.admissions(by_turns))
            self.api.call("DELETE", PODS)
            until("the registry has no instance", lambda: not self.instances())
            self.cluster.say(f"burst {turn}: {result['all_run_s'][-1]:.1f} s")
        return result

    def placement(self, nodes):
        # The load in the last heartbeats includes Pods that have gone.
        until("all are idle", lambda: not any(self.utilizations()))
        took_s, seen = self.deploy("thousand", self.replicas)
        self.cluster.say(f"{self.replicas} run: {took_s:.1f} s")
        self.agree()
        # As reported by the last heartbeats.
        time.sleep(3 * HEARTBEAT_S)
        live = self.utilizations()
        made = sorted(
            i.created_at_s for i in self.registry.call("Operators", "Instances").instances
        )
        return {
            "all_run_s": took_s,
            "seen": seen,
            "nodes": nodes,
            "live": live,
            "simulated": simulated(nodes, made),
        }

    def deaths(self, rounds):
        self.installation.start("controller-2", "Deployment", "controller", health=9477)
        return {
            victim: [self.death(victim, comes_back, turn) for turn in range(rounds)]
            for victim, comes_back in VICTIMS.items()
        }

    def moves(self, rounds, nodes, pods=50, budget=45):
        """A board holds an accelerator that many Pods use;
        another Pod requests this board with another accelerator."""
        annotations = {"baltra.io/device": "model=example-board", "baltra.io/accelerator": "sobel"}
        self.cluster.fake_nodes(2, first=nodes)

        def board(number):
            self.managers.by_node[f"fake-{number}"] = Manager(
                self.registry,
                f"fake-{number}",
                exclusive=True,
                load=0.5,
                model="example-board",
                accelerators={"device0": ("5" * 64, "sobel")},
            )

        result = {"pods": pods, "budget": budget, "rounds": []}
        for turn in range(rounds):
            board(nodes)
            self.deploy("moves", pods, annotations)
            self.api.create(
                "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": {"name": "moves"},
                    "spec": {"minAvailable": budget, "selector": {"matchLabels": {"app": "moves"}}},
                },
            )
            board(nodes + 1)
            ready = Ready(self.cluster, "moves")
            began = time.monotonic()
            self.api.create(
                PODS,
                pod(
                    "other",
                    {"baltra.io/device": f"fake-{nodes}/device0", "baltra.io/accelerator": "other"},
                ),
            )

            def moved():
                found = self.api.call("GET", f"{PODS}?labelSelector=app%3Dmoves")["items"]
                return len(found) == pods and all(
                    allocated(p) == [f"fake-{nodes + 1}/device0"]
                    and p["status"]["phase"] == "Running"
                    for p in found
                )

            until("all have moved", moved, pause_s=PAUSE_S)
            moved_s = time.monotonic() - began
            until(
                "the other Pod runs",
                lambda: self.api.call("GET", f"{PODS}/other")["status"]["phase"] == "Running",
                pause_s=PAUSE_S,
            )
            runs_s = time.monotonic() - began
            result["rounds"].append(
                {
                    "moved_s": moved_s,
                    "runs_s": runs_s,
                    "ready_least": ready.end(),
                    "looks": ready.looks,
                }
            )
            self.cluster.say(f"moved: {result['rounds'][-1]}")
            self.api.call("DELETE", f"{PODS}/other")
            self.cluster.kubectl(
                "delete",
                "deployment/moves",
                "poddisruptionbudget/moves",
                "--cascade=foreground",
                "--wait=true",
            )
            until(
                "the boards have no instances",
                lambda: (
                    not any(
                        f"fake-{n}/device0" in devices
                        for n in (nodes, nodes + 1)
                        for _, devices in self.instances().values()
                    )
                ),
            )
            for number in (nodes, nodes + 1):
                gone = self.managers.by_node.pop(f"fake-{number}")
                self.registry.call("Nodes", "Deregister", node=gone.node, id=gone.id)
        return result

    def leader(self):
        return self.api.call("GET", LEASE)["spec"]["holderIdentity"]

    def death(self, victim, comes_back, turn):
        """Seconds from a kill until each function has recovered."""
        witness, newcomer = f"witness-{turn}", f"newcomer-{turn}"
        until("the witness is admitted", lambda: self.api.create(PODS, pod(witness)))
        before = until("Pods and registry agree", self.agree, pause_s=0.5)
        gone = next(name for name, p in before.items() if p["metadata"]["name"] == witness)
        process = self.cluster.processes[self.leader() if victim == "leader" else victim]
        process.kill()
        began = time.monotonic()
        if comes_back:
            process.start()
        took = {}

        def at(what, holds):
            until(what, holds, pause_s=PAUSE_S)
            took[what] = time.monotonic() - began

        def released():
            try:
                self.api.call("DELETE", f"{PODS}/{witness}")
            except Failed as error:
                assert "NotFound" in str(error), error
            return gone not in self.instances()

        def runs():
            found = self.api.call("GET", f"{PODS}/{newcomer}")
            instance = found["metadata"]["labels"]["baltra.io/instance"]
            # No lease: the controller has processed its Pod.
            return found["status"]["phase"] == "Running" and self.instances()[instance] == (
                0,
                allocated(found),
            )

        at("a Pod with a request is admitted", lambda: self.api.create(PODS, pod(newcomer)))
        at("it runs, and its instance is permanent", runs)
        at("a deleted Pod has released its device", released)
        after = until("Pods and registry agree", self.agree, pause_s=0.5)
        stayed = before.keys() - {gone}
        assert all(
            after[name]["metadata"]["uid"] == before[name]["metadata"]["uid"]
            and allocated(after[name]) == allocated(before[name])
            for name in stayed
        ), "a running Pod was replaced or moved"
        self.api.call("DELETE", f"{PODS}/{newcomer}")
        if not comes_back:
            process.start()
        until("the new Pod is released", lambda: len(self.instances()) == len(stayed))
        self.cluster.say(
            f"{victim} killed: " + ", ".join(f"{what} {s:.1f} s" for what, s in took.items())
        )
        return {"took_s": took, "pods": len(stayed)}


class Ready:
    """The minimum number of ready Pods of an application during an action, polled by a thread."""

    def __init__(self, cluster, application):
        self.api = Api(cluster)
        self.path = f"{PODS}?labelSelector=app%3D{application}"
        self.least, self.looks, self.ended = None, 0, threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self):
        while not self.ended.wait(0.02):
            ready = sum(
                any(
                    c["type"] == "Ready" and c["status"] == "True"
                    for c in p["status"].get("conditions", [])
                )
                for p in self.api.call("GET", self.path)["items"]
                if "deletionTimestamp" not in p["metadata"]
            )
            self.least = ready if self.least is None else min(self.least, ready)
            self.looks += 1

    def end(self):
        self.ended.set()
        self.thread.join()
        assert self.looks, "the thread has not polled"
        return self.least


def simulated(nodes, made):
    """Each device's utilization from `baltra simulate`,
    with instances deployed at the same times."""
    functions = []
    for second in sorted(set(made)):
        count = made.count(second)
        functions += [second - made[0] + n / count for n in range(count)]
    last_s = functions[-1]
    scenario = {
        "name": f"{len(made)} instances",
        "duration_s": last_s + 30,
        "warmup_s": last_s + 5,
        "seed": 1,
        "heartbeat_s": HEARTBEAT_S,
        "nodes": [
            {
                "name": "fake-",
                "count": nodes,
                "devices": [{"count": DEVICES, "vendor": "Example", "exclusive": False}],
            }
        ],
        # Twenty tasks per second, with the duration that results in the load.
        "functions": [
            {
                "name": f"f{n}",
                "start_s": start,
                "query": "vendor=Example",
                "service_ms": {"constant": LOAD / 2},
                "load": {"arrivals": "constant", "rate": 20},
            }
            for n, start in enumerate(functions)
        ],
    }
    path = pathlib.Path(os.environ["BALTRA_KUBERNETES_INSIDE"]) / "scenario.yaml"
    path.write_text(json.dumps(scenario))
    text = subprocess.run(
        [BALTRA, "simulate", path, "--json"], check=True, capture_output=True, text=True
    ).stdout
    return [device["utilization"] for device in json.loads(text)[0]["devices"]]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="ten nodes, fifty instances: checks that everything runs",
    )
    parser.add_argument("--label", default=platform.node().split(".")[0] or "host")
    options = parser.parse_args()
    unknown = set(options.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}")
    # The host has another name within the cluster.
    os.environ.setdefault("BALTRA_BENCH_LABEL", options.label)
    isolate()

    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in open("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        "?",
    )
    date = datetime.date.today().isoformat()
    nodes, replicas = (10, 50) if options.quick else (100, 1_000)
    result = {
        "meta": {
            "date": date,
            "commit": commit,
            "cpu": cpu,
            "cores": os.cpu_count(),
            "rounds": options.rounds,
            "kernel": platform.release(),
            "load": os.getloadavg()[0],
            "nodes": nodes,
            "devices": nodes * DEVICES,
            "replicas": replicas,
        }
    }
    bench = Bench(nodes, replicas)
    try:
        if "burst" in options.parts:
            result["burst"] = bench.burst(options.rounds)
        if "placement" in options.parts:
            result["placement"] = bench.placement(nodes)
        if "deaths" in options.parts:
            result["deaths"] = bench.deaths(options.rounds)
        if "moves" in options.parts:
            result["moves"] = bench.moves(options.rounds, nodes)
    finally:
        bench.end()
    text = report.markdown(json.loads(json.dumps(result)))
    print(text)
    if not options.quick:
        base = (
            ROOT
            / "bench/results/kubernetes"
            / f"{date}-{os.environ['BALTRA_BENCH_LABEL']}-{commit}"
        )
        base.parent.mkdir(parents=True, exist_ok=True)
        base.with_name(base.name + ".json").write_text(json.dumps(result, indent=1) + "\n")
        base.with_name(base.name + ".md").write_text(text)


if __name__ == "__main__":
    main()
