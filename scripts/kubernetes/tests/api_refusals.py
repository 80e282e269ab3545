"""Tests of what is refused."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from api_objects import ApiTests, pod  # noqa: E402
from cluster import Failed, until  # noqa: E402


class Refusals(ApiTests):
    """Requests that are refused with the reason."""

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
        self.refused("color", annotations={"baltra.io/device": "color=red"})
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
