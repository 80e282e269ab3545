"""Tests of moves and of recovery from failures."""

import json
import signal
import ssl
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from api_objects import ApiTests, deployment, pod  # noqa: E402
from cluster import Failed, run, until  # noqa: E402
from installation import NAMESPACE  # noqa: E402


class Recovery(ApiTests):
    """Moves of Pods, and components that end."""

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
