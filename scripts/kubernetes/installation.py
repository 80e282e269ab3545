"""Installs Baltra's chart in a cluster of cluster.py.

On a real node the chart is installed as by any user. On fake nodes, which run no containers, the
objects are applied unchanged and each daemon of the chart is started as a process of this host,
with the arguments, the configuration and the environment of the chart, and with the rights of its
own service account, so that a missing right fails here, too.
The chart's Services lead to these processes."""

import os
from pathlib import Path
from urllib.request import urlopen

import yaml

from cluster import ADDRESS, BIN, ROOT, run, until
from pool import Registry

BALTRA = Path(os.environ.get("BALTRA", ROOT / "target/release/baltra"))
CHART = ROOT / "deploy/helm/baltra"
NAMESPACE = "baltra"
WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet")


class Ended(Exception):
    """A daemon ended unexpectedly; the text has the end of its log."""


def render(*more):
    """The chart's objects."""
    text = run(
        BIN / "helm",
        "template",
        "baltra",
        CHART,
        "--namespace",
        NAMESPACE,
        "--include-crds",
        "--api-versions",
        "resource.k8s.io/v1",
        *more,
    )
    return [item for item in yaml.safe_load_all(text) if item]


def load_images(cluster, names=("baltra", "sobel")):
    """Builds the images and loads them into the nodes."""
    import images  # only with real nodes: uses programs of the second build stage
    import node

    for name in names:
        archive = cluster.home / f"{name}.tar"
        images.make(name, archive)
        node.load(cluster, archive)
    cluster.say("images built and loaded")


def install_on_node(cluster, *more, names=("baltra", "sobel")):
    """Builds the images, loads them into the nodes, installs the chart with more values and waits
    until a device is listed."""
    load_images(cluster, names)
    # The cluster has no DNS, so the address is fixed.
    values = ["registry.clusterIP=10.96.0.80", "webhook.replicas=1", "controller.replicas=1"]
    # One image contains the daemons and the driver.
    values += ["image.perDaemon=false", *more]
    run(
        BIN / "helm",
        "install",
        "baltra",
        CHART,
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--wait",
        "--timeout",
        "180s",
        *(f"--set={value}" for value in values),
    )
    until("the device is listed", lambda: cluster.get("devices"))
    cluster.say("chart installed")


class Installation:
    """Its registry, one webhook and one controller, running."""

    def __init__(self, cluster, *values):
        self.cluster = cluster
        self.objects = render(
            "--set", "registry.clusterIP=127.0.0.1", *(f"--set={value}" for value in values)
        )
        cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        first = [item for item in self.objects if item["kind"] == "CustomResourceDefinition"]
        cluster.apply(first)
        cluster.kubectl(
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            *(f"crd/{item['metadata']['name']}" for item in first),
        )
        rest = [
            item for item in self.objects if item not in first and item["kind"] not in WORKLOADS
        ]
        cluster.apply([reachable for item in rest for reachable in self._here(item)])
        self.start("registry", "StatefulSet", "registry", health=9465)
        self.registry = Registry("127.0.0.1:7480", self.token("operator"))
        self.start("webhook", "Deployment", "webhook", health=9466)
        self.start("controller", "Deployment", "controller", health=9467)
        until("the webhook's certificate is published", self._certified)

    @staticmethod
    def _here(item):
        """A Service without its selector, with an endpoint on this host;
        other objects are unchanged."""
        if item["kind"] != "Service" or "selector" not in item["spec"]:
            return [item]
        item = {
            **item,
            "spec": {k: v for k, v in item["spec"].items() if k not in ("selector", "clusterIP")},
        }
        ports = {"https": 9443, "metrics": None}
        slices = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "addressType": "IPv4",
            "metadata": {
                "name": item["metadata"]["name"],
                "namespace": item["metadata"]["namespace"],
                "labels": {"kubernetes.io/service-name": item["metadata"]["name"]},
            },
            "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": True}}],
            "ports": [
                {
                    "name": port["name"],
                    "protocol": "TCP",
                    "port": ports.get(port["name"]) or port["port"],
                }
                for port in item["spec"]["ports"]
            ],
        }
        return [item, slices]

    def _certified(self):
        hooks = self.cluster.get("mutatingwebhookconfiguration", "baltra")["webhooks"]
        return all(hook["clientConfig"].get("caBundle") for hook in hooks)

    def token(self, role):
        return self.cluster.secret(NAMESPACE, "baltra-tokens", role).decode()

    def object(self, kind, name):
        return next(
            item
            for item in self.objects
            if item["kind"] == kind and item["metadata"]["name"] == f"baltra-{name}"
        )

    def start(self, name, kind, component, health):
        """Starts a daemon of the chart, possibly a second one under another name and port, and
        waits until it is healthy."""
        pod = self.object(kind, component)["spec"]["template"]["spec"]
        container = pod["containers"][0]
        home = self.cluster.home / name
        home.mkdir(exist_ok=True)
        environment = {
            "POD_NAME": name,
            "POD_NAMESPACE": NAMESPACE,
            "BALTRA_RUNTIME_DIR": str(home / "run"),
        }
        for variable in container.get("env", []):
            if "value" in variable:
                environment[variable["name"]] = variable["value"]
            elif "secretKeyRef" in variable["valueFrom"]:
                environment[variable["name"]] = self.token(
                    variable["valueFrom"]["secretKeyRef"]["key"]
                )
        if "serviceAccountName" in pod:
            environment["KUBECONFIG"] = str(
                self.cluster.account(NAMESPACE, pod["serviceAccountName"])
            )
        words = [self._word(word, home, environment) for word in container["args"]]
        words = [
            f"--metrics=0.0.0.0:{health}" if word.startswith("--metrics=") else word
            for word in words
        ]
        self._volumes(pod, container, home)
        self.cluster.start(name, BALTRA, *words, **environment)
        self.healthy(name, health)

    @staticmethod
    def _word(word, home, environment):
        for variable, value in environment.items():
            word = word.replace(f"$({variable})", value)
        return word.replace("/configuration/", f"{home}/configuration/")

    def _volumes(self, pod, container, home):
        """Creates the contents of the container's mounts below home."""
        sources = {volume["name"]: volume for volume in pod.get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            inside = home / mount["mountPath"].lstrip("/")
            inside.mkdir(parents=True, exist_ok=True)
            source = sources.get(mount["name"], {})
            if "configMap" in source:
                for key, text in self.cluster.get(
                    "-n", NAMESPACE, "configmap", source["configMap"]["name"]
                )["data"].items():
                    for path in ("/tokens/", "/state"):
                        text = text.replace(f'"{path}', f'"{home}{path}')
                    (inside / key).write_text(text)
            elif "secret" in source:
                name = source["secret"]["secretName"]
                for key in self.cluster.get("-n", NAMESPACE, "secret", name)["data"]:
                    (inside / key).write_bytes(self.cluster.secret(NAMESPACE, name, key))
                    (inside / key).chmod(0o600)

    def healthy(self, name, port):
        process = self.cluster.processes[name]

        def well():
            if not process.alive():
                raise Ended(f"the {name} ended:\n{process.tail()}")
            with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                return answer.status == 200

        until(f"the {name} is healthy", well)
