"""The two systems of run.py in a Kubernetes cluster of three nodes: Baltra as installed by its
chart, and the native servers as Pods. The image of the native servers has their program and PoCL;
their plans come from this host's directory."""

import contextlib
import pathlib
import sys
import tempfile

from common import NATIVE, NODES, Functions, Servers, fetch
from uses import ROOT

sys.path.append(str(ROOT / "scripts/kubernetes"))
import image  # noqa: E402
import images  # noqa: E402
import node  # noqa: E402
from cluster import Cluster, isolate, until  # noqa: E402
from installation import NAMESPACE, install_on_node  # noqa: E402

NODE_OF = {name: f"node{number}" for number, name in enumerate(NODES, 1)}
IMAGE = "docker.io/library/native:1"
PORT = 9001
__all__ = ["isolate", "systems"]


@contextlib.contextmanager
def systems(home, environment, uses, options):
    """Both systems, running."""
    cluster = Cluster(nodes=len(NODES), logs=ROOT / "target/bench/kubernetes-logs")
    try:
        pool = Pool(cluster, home, environment, options)
        pool.deploy(uses)
        yield {"baltra": pool, "native": Native(cluster, home, uses)}
    finally:
        cluster.end()


class Pool(Functions):
    """The chart's registry, gateway and managers."""

    def __init__(self, cluster, home, environment, options):
        self.cluster, self.home, self.options = cluster, home, options
        device = f'''[[device]]
driver = "auto"
isolation = "session"
slots = 1
policy = "{options.policy}"
quantum_ms = {options.quantum:g}
'''
        # The name contains the node, because functions are bound to a device by name.
        install_on_node(
            cluster,
            "registry.locality=prefer",
            f"node.configuration={device}",
            "node.extraEnvironment[0].name=BALTRA_DEVICE__NAME",
            "node.extraEnvironment[0].value=board-$(NODE_NAME)",
            names=["baltra"],
        )
        until(
            "three devices are ready",
            lambda: (
                sum(d.get("status", {}).get("state") == "ready" for d in cluster.get("devices"))
                == len(NODES)
            ),
        )
        secret = lambda name: cluster.secret(NAMESPACE, "baltra-tokens", name).decode()
        self.key = secret("client")
        self.gateway = f"http://{self.addresses('gateway')[0][1]}:8080"
        self.managers = dict(self.addresses("node"))
        self.tool_environment = dict(
            environment,
            BALTRA_GATEWAY=self.gateway,
            BALTRA_GATEWAY_ADMIN=f"admin:{secret('admin')}",
            BALTRA_RUNTIME_DIR=str(home / "run"),
        )

    def addresses(self, component):
        """Node and address of each of a component's Pods."""
        pods = self.cluster.get(
            "pods", "-n", NAMESPACE, "-l", f"app.kubernetes.io/component={component}"
        )
        return [(pod["spec"]["nodeName"], pod["status"]["podIP"]) for pod in pods]

    def device(self, name):
        return f"board-{NODE_OF.get(name, '')}"

    def manager(self, name):
        return self.managers[NODE_OF[name]]


class Native(Servers):
    """One Pod per use and node."""

    def __init__(self, cluster, home, uses):
        archive = cluster.home / "native.tar"
        with tempfile.TemporaryDirectory(prefix="baltra-image-") as root:
            root = pathlib.Path(root)
            root.chmod(0o755)
            image.closure(root, {**images.device(), "/usr/local/bin/native": NATIVE})
            image.write(archive, IMAGE, root, ["/usr/local/bin/native"])
        node.load(cluster, archive)
        home.chmod(0o755)
        cluster.apply([self.pod(home, use, name) for use in uses for name in NODES])
        self.found = {}
        for use in uses:
            for name in NODES:
                until(
                    "the native servers respond",
                    lambda use=use, name=name: self.serves(cluster, use, name),
                )

    def pod(self, home, use, name):
        container = {
            "name": "native",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "args": [f"{home}/{use.name}/plan", "0.0.0.0", str(PORT)],
            "env": [{"name": "POCL_CACHE_DIR", "value": "/pocl"}],
            "volumeMounts": [{"name": "plans", "mountPath": str(home), "readOnly": True}],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"native-{use.name}-{name}", "namespace": "default"},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": NODE_OF[name]},
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
                "volumes": [
                    {"name": "plans", "hostPath": {"path": str(home), "type": "Directory"}}
                ],
            },
        }

    def serves(self, cluster, use, name):
        self.found[use.name, name] = cluster.get(
            "pods", "-n", "default", f"native-{use.name}-{name}"
        )["status"]["podIP"]
        return fetch(self.server(use, name))

    def server(self, use, name):
        return f"http://{self.found[use.name, name]}:{PORT}/"
