#!/usr/bin/env python3
"""Tests the chart: the API server accepts its objects, accounts have the necessary rights,
and policies refuse others.

usage:

    scripts/kubernetes/build.sh
    target/venv/bin/python scripts/kubernetes/tests/chart_test.py [PART OF A NAME …]
"""

import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "deploy/packages"))
import build  # noqa: E402
import oci  # noqa: E402
import release  # noqa: E402
import schemas  # noqa: E402
from cluster import BIN, PLACE, ROOT, Cluster, Failed, isolate, run, until  # noqa: E402
from installation import BALTRA, CHART, NAMESPACE, render  # noqa: E402
from runner import run as run_tests  # noqa: E402


# Settings that together use every template of the chart.
VARIANTS = [
    [
        "--set",
        "monitoring.serviceMonitors=true,monitoring.rules=true,monitoring.labels.release=x",
    ],
    [
        "--set",
        "dra=false,gateway.enabled=false,controller.containers=false,networkPolicies.enabled=false,registry.storage.size=1Gi,externalMetrics=false",
    ],
    [
        "--set",
        "traces.endpoint=http://collector:4318,traces.sampler=parentbased_traceidratio,traces.samplerArgument=0.1",
    ],
    [
        "--set",
        "node.securityContext.privileged=true,node.runtimeClassName=nvidia,registry.clusterIP=10.96.0.80",
    ],
]


# The chart generates those that are not set.
TOKENS = ("operator", "node", "application", "gateway", "client", "admin")


def pod(name, **more):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **more.pop("metadata", {})},
        "spec": {"containers": [{"name": "it", "image": "none"}], **more},
    }


def mounting(path):
    return {"volumes": [{"name": "host", "hostPath": {"path": path}}]}


class Tests:
    def __init__(self):
        self.cluster = Cluster(logs=ROOT / "target/test-logs/kubernetes-chart")
        self.cluster.apply(
            [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}]
        )
        self.objects = render()
        self.cluster.apply([o for o in self.objects if o["kind"] == "CustomResourceDefinition"])
        # All objects except workloads.
        self.cluster.apply(
            [
                o
                for o in self.objects
                if o["kind"]
                in (
                    "ServiceAccount",
                    "Role",
                    "RoleBinding",
                    "ClusterRole",
                    "ClusterRoleBinding",
                    "ValidatingAdmissionPolicy",
                    "ValidatingAdmissionPolicyBinding",
                )
            ]
        )

    def end(self):
        self.cluster.end()

    def refused(self, what, why, **impersonation):
        """The API server refuses an object with a reason."""
        words = [f"--{key}={value}" for key, value in impersonation.items()]
        try:
            self.cluster.kubectl(
                "create", "--dry-run=server", *words, "-f", "-", input=json.dumps(what)
            )
        except Failed as error:
            assert why in str(error), error
            return
        raise AssertionError(f"accepted: {what}")

    def accepted(self, what):
        self.cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(what))

    def may(self, account, *what):
        result = subprocess.run(
            [
                BIN / "kubectl",
                "auth",
                "can-i",
                "--quiet",
                *what,
                f"--as=system:serviceaccount:{NAMESPACE}:baltra-{account}",
            ],
            stderr=subprocess.DEVNULL,
        )
        return result.returncode == 0

    def test_helm_finds_nothing_wrong(self):
        assert "0 chart(s) failed" in run(BIN / "helm", "lint", "--strict", CHART)

    def test_the_package_is_the_chart_and_the_release_has_its_images(self):
        version = release.version()
        with tempfile.TemporaryDirectory() as directory:
            made = SimpleNamespace(version=version, epoch=0)
            package = build.chart(made, None, Path(directory))
            assert "0 chart(s) failed" in run(BIN / "helm", "lint", "--strict", package)
            template = [BIN / "helm", "template", "baltra", "--include-crds"]
            tokens = [f"--set=tokens.{name}=x" for name in TOKENS]
            assert run(*template, package, *tokens) == run(*template, CHART, *tokens)
        images = {
            container["image"]
            for item in self.objects
            if item["kind"] in ("Deployment", "StatefulSet", "DaemonSet")
            for container in item["spec"]["template"]["spec"]["containers"]
        }
        assert images == {f"baltra-{daemon}:{version}" for daemon in oci.DAEMONS}, images

    def test_values_that_the_chart_has_not_are_refused(self):
        """A misspelled value, or one of another type, is an error that names it,
        and is not replaced by a default."""
        for value, name in [
            ("gateway.replcas=3", "replcas"),
            ("gatway.port=80", "gatway"),
            ("registry.storage.sizes=1Gi", "sizes"),
            ("webhook.replicas=two", "replicas"),
            ("gateway.enabled=maybe", "enabled"),
            ("registry.locality=near", "locality"),
            ("node.resources.request.cpu=1", "request"),
            ("tokens.operators=x", "operators"),
        ]:
            try:
                render("--set", value)
            except Failed as error:
                assert name in str(error), error
                continue
            raise AssertionError(f"accepted: {value}")

    def test_the_resources_are_those_of_the_program(self):
        """The chart's definitions equal the output of `baltra kubernetes crds`."""
        printed = list(yaml.safe_load_all(run(BALTRA, "kubernetes", "crds")))
        assert printed == list(yaml.safe_load_all((CHART / "crds/baltra.io.yaml").read_text()))
        for kind in ("devices", "accelerators", "functions"):
            self.cluster.kubectl("get", kind)

    def test_the_server_takes_every_object(self):
        self.cluster.apply((PLACE / "monitors.yaml").read_text())
        for values in VARIANTS:
            objects = render(*values)
            assert len(objects) > 20
            self.cluster.kubectl(
                "apply",
                "--server-side",
                "--dry-run=server",
                "--force-conflicts",
                "--validate=strict",
                "-f",
                "-",
                input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
            )

    def kubeconform(self, location, objects):
        """kubeconform's errors, by the names of the objects."""
        ran = subprocess.run(
            [BIN / "kubeconform", "-strict", "-output", "json", "-schema-location", location],
            input=yaml.safe_dump_all(objects),
            stdout=subprocess.PIPE,
            text=True,
        )
        found = json.loads(ran.stdout)["resources"] or []
        assert (ran.returncode == 0) == (not found), ran.stdout
        return {item["name"]: item["msg"] for item in found}

    def test_kubeconform_finds_nothing_wrong(self):
        """With the schemas of this API server, including Baltra's own resources."""
        self.cluster.apply((PLACE / "monitors.yaml").read_text())
        wanted = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "Device"}

        def described():
            description = json.loads(self.cluster.kubectl("get", "--raw", "/openapi/v2"))
            kinds = {
                kind["kind"]
                for schema in description["definitions"].values()
                for kind in schema.get("x-kubernetes-group-version-kind", [])
            }
            return description if wanted <= kinds else None

        description = until("the API is described", described)
        with tempfile.TemporaryDirectory() as directory:
            location = schemas.write(description, Path(directory))
            for values in VARIANTS:
                found = self.kubeconform(location, render(*values))
                assert not found, found
            # It does find a misspelled field, a wrong type and an unknown kind.
            [gateway] = [
                item
                for item in self.objects
                if item["kind"] == "Deployment" and item["metadata"]["name"] == "baltra-gateway"
            ]
            for path, value in (
                (("spec", "template", "spec", "containers", 0, "imagePullPolicies"), "Always"),
                (("spec", "replicas"), "one"),
                (("kind",), "Deploiment"),
            ):
                wrong = copy.deepcopy(gateway)
                place = wrong
                for key in path[:-1]:
                    place = place[key]
                place[path[-1]] = value
                assert "baltra-gateway" in self.kubeconform(location, [wrong]), path

    def test_daemons_are_unprivileged(self):
        """Every container drops every capability and cannot gain one;
        only those of the node run as root."""
        seen = 0
        for item in self.objects:
            if item["kind"] not in ("Deployment", "StatefulSet", "DaemonSet"):
                continue
            spec = item["spec"]["template"]["spec"]
            for container in spec["containers"]:
                seen += 1
                context = container["securityContext"]
                assert (
                    context["capabilities"] == {"drop": ["ALL"]}
                    and context["readOnlyRootFilesystem"] is True
                )
                assert context["allowPrivilegeEscalation"] is False
            if item["kind"] != "DaemonSet":
                assert spec["securityContext"]["runAsNonRoot"] is True
                assert not any("hostPath" in volume for volume in spec.get("volumes", []))
        assert seen == 6

    def test_accounts_have_what_they_need_and_no_more(self):
        needed = {
            "webhook": [
                ("get", "secret/baltra-webhook-tls", "-n", NAMESPACE),
                ("list", "namespaces"),
                ("patch", "mutatingwebhookconfiguration/baltra"),
                ("patch", "apiservice/v1beta1.external.metrics.k8s.io"),
            ],
            "controller": [
                ("patch", "pods", "-n", "default"),
                ("create", "pods", "--subresource=eviction", "-n", "default"),
                ("update", "lease/baltra-controller", "-n", NAMESPACE),
                ("patch", "devices", "--subresource=status"),
                ("patch", "deployments.apps", "--subresource=scale", "-n", "default"),
                ("watch", "endpointslices.discovery.k8s.io", "-n", "default"),
            ],
            "node": [
                ("list", "pods", "-n", "default"),
                ("patch", "nodes"),
                ("watch", "nodes"),
                ("create", "resourceslices.resource.k8s.io"),
                ("get", "resourceclaims.resource.k8s.io", "-n", "default"),
            ],
        }
        others = {
            "webhook": [
                ("get", "secret/baltra-tokens", "-n", NAMESPACE),
                ("list", "secrets", "-n", NAMESPACE),
                ("patch", "mutatingwebhookconfiguration/another"),
                ("get", "pods", "-n", "default"),
            ],
            "controller": [
                ("get", "secrets", "-n", NAMESPACE),
                ("get", "configmaps", "-n", NAMESPACE),
                ("create", "pods", "-n", "default"),
                ("delete", "pods", "-n", "default"),
                ("patch", "nodes"),
                ("update", "lease/another", "-n", NAMESPACE),
                ("patch", "deployments.apps", "-n", "default"),
                ("patch", "statefulsets.apps", "--subresource=scale", "-n", "default"),
            ],
            "node": [
                ("get", "secrets", "-n", NAMESPACE),
                ("patch", "pods", "-n", "default"),
                ("delete", "nodes"),
                ("create", "pods", "--subresource=exec", "-n", "default"),
            ],
        }
        for account, rights in needed.items():
            for right in rights:
                assert self.may(account, *right), f"{account} may not {right}"
        for account, rights in others.items():
            for right in rights:
                assert not self.may(account, *right), f"{account} may {right}"

    def test_a_pod_mounts_its_own_directory_only(self):
        """With any spelling: another instance's directory, the manager's sockets,
        or a parent directory."""
        why = "a Pod may mount its own instance's directory"
        until(
            "the policy is in force",
            lambda: self.refused(pod("first", **mounting("/run/baltra")), why) or True,
        )
        mine = {"labels": {"baltra.io/instance": "default.0123456789"}}
        for path in (
            "/",
            "/run",
            "/var/run",
            "/run/",
            "/run//baltra",
            "/./run/baltra",
            "/run/baltra/instances",
            "/run/baltra/instances/default.9876543210",
            "/var/run/baltra/instances/default.9876543210",
            "/run/baltra/instances/default.0123456789/../default.9876543210",
            "/run/baltra/control.sock",
        ):
            bad = pod("bad", metadata=mine, **mounting(path))
            self.refused(bad, "must not contain '..'" if ".." in path else why)
        self.accepted(
            pod("own", metadata=mine, **mounting("/run/baltra/instances/default.0123456789"))
        )
        self.accepted(pod("elsewhere", **mounting("/run/baltra-else")))
        self.accepted(pod("elsewhere", **mounting("/srv/run/baltra")))
        self.accepted(
            {
                **pod("ours", **mounting("/run/baltra")),
                "metadata": {"name": "ours", "namespace": NAMESPACE},
            }
        )

    def test_an_agent_changes_its_own_node_only(self):
        self.cluster.apply(
            [
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
                for name in ("one", "two")
            ]
        )
        account = f"system:serviceaccount:{NAMESPACE}:baltra-node"
        agent = {"as": account, "as-user-extra": "authentication.kubernetes.io/node-name=one"}
        words = [f"--{key}={value}" for key, value in agent.items()]

        self.cluster.kubectl("label", "node", "one", "baltra.io/device=yes", *words)
        for node, who in (("two", words), ("one", [f"--as={account}"])):
            try:
                self.cluster.kubectl("label", "node", node, "baltra.io/another=yes", *who)
            except Failed as error:
                assert "may not change objects of node" in str(error), error
            else:
                raise AssertionError("an agent changed an object of another node")
        slices = {
            node: {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": f"{node}-baltra.io"},
                "spec": {
                    "driver": "baltra.io",
                    "nodeName": node,
                    "devices": [{"name": "device0"}],
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                },
            }
            for node in ("one", "two")
        }
        self.cluster.kubectl("create", "-f", "-", *words, input=json.dumps(slices["one"]))
        self.refused(slices["two"], "may not change objects of node", **agent)


if __name__ == "__main__":
    isolate()
    run_tests(Tests, sys.argv[1:])
