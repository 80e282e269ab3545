"""Tests of Pods that request devices."""

import json
import signal
import sys
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from api_objects import LOAD, ApiTests, deployment, pod  # noqa: E402
from cluster import until  # noqa: E402
from installation import render  # noqa: E402


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


class Resources(ApiTests):
    """Allocations, what is reported about them, and Prometheus."""

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
