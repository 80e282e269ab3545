"""Real nodes for cluster.py: containerd, the kubelet and kube-proxy, each node in a network and a
mount namespace of its own within the cluster's, so that several nodes run on one host as they would
on several hosts."""

import os
import shutil
from pathlib import Path

import image
from cluster import ADDRESS, BIN, PATIENCE_S, PODS, Failed, control_groups, run, until

PAUSE = "docker.io/baltra/pause:1"

# Prepares a node: an address on the cluster's bridge, routes to the Pods of other nodes, private
# mutable directories. Then it waits, so that commands can enter its namespaces.
PREPARE = """set -e
mount --make-rprivate /
umount /var/lib
mount -t tmpfs -o mode=755 tmpfs /run
mount -t overlay overlay -o lowerdir=/var/lib,upperdir=$HOME_DIRECTORY/upper,workdir=$HOME_DIRECTORY/work /var/lib
mount --make-rshared /
ip link set lo up
touch $HOME_DIRECTORY/separate
while ! ip link show eth0; do sleep 0.05; done
ip addr add $OWN/24 dev eth0
ip link set eth0 up
ip route add default via $DOOR
echo 1 > /proc/sys/net/ipv4/ip_forward
touch $HOME_DIRECTORY/prepared
exec sleep infinity
"""


def address(number):
    return f"{ADDRESS.rsplit('.', 1)[0]}.{10 + number}"


def pods(number):
    """The addresses of a node's Pods."""
    return f"{PODS.rsplit('.', 2)[0]}.{number}.0/24"


def start(cluster, count):
    """Starts node1 … and waits until they are ready."""
    if not (BIN / "kubelet").exists():
        raise Failed(f"{BIN} has no kubelet (run scripts/kubernetes/build.sh node)")
    cluster.nodes = [Node(cluster, number) for number in range(1, count + 1)]
    _pause(cluster)
    for node in cluster.nodes:
        node.join()
    names = [f"node/{node.name}" for node in cluster.nodes]
    cluster.kubectl("wait", "--for=condition=Ready", *names, f"--timeout={PATIENCE_S}s")
    cluster.say(f"{', '.join(node.name for node in cluster.nodes)} ready")


class Node:
    def __init__(self, cluster, number):
        self.cluster, self.number, self.name = cluster, number, f"node{number}"
        self.address, self.pods = address(number), pods(number)
        self.home = cluster.home / self.name
        for name in ("upper", "work", "cni"):
            (self.home / name).mkdir(parents=True)
        self._separate()
        self._control_group()
        self._containerd()

    def _separate(self):
        holder = self.cluster.start(
            self.name,
            "unshare",
            "--net",
            "--mount",
            "sh",
            "-c",
            PREPARE,
            HOME_DIRECTORY=str(self.home),
            OWN=self.address,
            DOOR=ADDRESS,
        )
        self.process = holder.running.pid

        def reported(file):
            if not holder.alive():
                raise SystemExit(f"error: {self.name} has no namespaces:\n{holder.tail()}")
            return (self.home / file).exists()

        until(f"{self.name} has its namespaces", lambda: reported("separate"))
        run(
            "ip",
            "link",
            "add",
            self.name,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            self.process,
        )
        run("ip", "link", "set", self.name, "master", "node0", "up")
        run("ip", "route", "add", self.pods, "via", self.address)
        until(f"{self.name} is prepared", lambda: reported("prepared"))

    def inside(self, *command):
        """The command line that runs a command in the node."""
        return ["nsenter", "--target", self.process, "--net", "--mount", "--", *command]

    def start(self, name, *command, **environment):
        return self.cluster.start(f"{self.name}-{name}", *self.inside(*command), **environment)

    def _control_group(self):
        self.group = f"{os.environ['BALTRA_KUBERNETES_GROUP']}/{self.name}"
        for own in control_groups(self.group):
            for directory in (own.parent, own):
                directory.mkdir(exist_ok=True)
                for file in (
                    "cpuset.cpus",
                    "cpuset.mems",
                ):  # a new cpuset of cgroup v1 is empty, and accepts no process
                    if (directory.parent / file).exists() and (directory / file).exists():
                        (directory / file).write_text((directory.parent / file).read_text())

    def _containerd(self):
        home = self.home
        (
            home / "cni/10.conflist"
        ).write_text(f"""{{"cniVersion": "1.0.0", "name": "pods", "plugins": [
      {{"type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true,
        "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "{self.pods}"}}]], "dataDir": "{home}/ipam"}}}}]}}""")
        configuration = home / "containerd.toml"
        configuration.write_text(f"""version = 3
root = "{home}/containerd"
state = "{home}/containerd-state"
[grpc]
  address = "{home}/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  # A score below our own needs CAP_SYS_RESOURCE; without it, runc dies without a message.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{home}/cni"
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"
""")
        os.environ.setdefault("CONTAINERD_ADDRESS", f"{home}/containerd.sock")
        self.start(
            "containerd", BIN / "containerd", "-c", configuration, TMPDIR=str(self.cluster.home)
        )
        until("containerd responds", lambda: self.ctr("version"))

    def ctr(self, *words):
        return run(*self.inside(BIN / "ctr", "--address", self.home / "containerd.sock", *words))

    def join(self):
        """The kubelet and kube-proxy."""
        cluster, crt = self.cluster, self.cluster.certificates
        user = f"{self.name}-kubelet"
        cluster.ca.sign(
            user,
            f"/O=system:nodes/CN=system:node:{self.name}",
            [f"DNS:{self.name}", f"IP:{self.address}", "IP:127.0.0.1"],
        )
        configuration = self.home / "kubelet.yaml"
        configuration.write_text(f"""apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /{self.group}
enforceNodeAllocatable: []
failSwapOn: false
containerRuntimeEndpoint: unix://{self.home}/containerd.sock
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {cluster.ca.path}}}}}
authorization: {{mode: Webhook}}
tlsCertFile: {crt}/{user}.crt
tlsPrivateKeyFile: {crt}/{user}.key
podLogsDir: {self.home}/pods
resolvConf: ""
evictionHard: {{memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}}
imageGCHighThresholdPercent: 100
protectKernelDefaults: true
syncFrequency: 5s
nodeStatusUpdateFrequency: 5s
""")
        self.start(
            "kubelet",
            BIN / "kubelet",
            f"--config={configuration}",
            f"--kubeconfig={cluster.kubeconfig(user)}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        )
        until("the kubelet registers", lambda: cluster.kubectl("get", f"node/{self.name}"))
        user = f"{self.name}-proxy"
        cluster.ca.sign(user, "/CN=system:kube-proxy")
        self.start(
            "kube-proxy",
            BIN / "kube-proxy",
            f"--kubeconfig={cluster.kubeconfig(user)}",
            f"--hostname-override={self.name}",
            "--proxy-mode=nftables",
            f"--cluster-cidr={PODS}",
            "--metrics-bind-address=127.0.0.1:10249",
            # The connection table belongs to the whole kernel,
            # so kube-proxy must not change its sizes.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        )


def _pause(cluster):
    """The image that holds a Pod's namespaces: a busybox that sleeps."""
    root = cluster.home / "pause"
    (root / "bin").mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    (root / "bin/sleep").symlink_to("busybox")
    archive = cluster.home / "pause.tar"
    image.write(archive, PAUSE, root, ["/bin/sleep", "infinity"])
    load(cluster, archive)


def load(cluster, archive):
    """Loads an image's archive into the nodes."""
    for node in cluster.nodes:
        node.ctr("--namespace", "k8s.io", "images", "import", archive)
    Path(archive).unlink()
