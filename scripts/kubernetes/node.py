"""A real node for cluster.py: containerd, the kubelet and kube-proxy, in the cluster's namespaces."""

import os
import shutil
from pathlib import Path

import image
from cluster import ADDRESS, BIN, PATIENCE_S, PODS, Failed, control_groups, run, until

NAME = "node1"
PAUSE = "docker.io/baltra/pause:1"


def start(cluster):
    """Starts it and waits until it is ready."""
    if not (BIN / "kubelet").exists():
        raise Failed(f"no kubelet in {BIN}: scripts/kubernetes/build.sh node")
    group = os.environ["BALTRA_KUBERNETES_GROUP"]
    for directory in control_groups(group):
        directory.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # a new cpuset of the first version is empty, and takes no process
            if (directory.parent / file).exists() and (directory / file).exists():
                (directory / file).write_text((directory.parent / file).read_text())
    _containerd(cluster)
    _pause(cluster)
    _kubelet(cluster, group)
    cluster.ca.sign("proxy", "/CN=system:kube-proxy")
    cluster.start("kube-proxy", BIN / "kube-proxy", f"--kubeconfig={cluster.kubeconfig('proxy')}", f"--hostname-override={NAME}",
                  "--proxy-mode=nftables", f"--cluster-cidr={PODS}", "--metrics-bind-address=127.0.0.1:10249",
                  # The table of connections is the whole kernel's: leave its sizes alone.
                  "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
                  "--conntrack-tcp-timeout-close-wait=0")
    cluster.kubectl("wait", "--for=condition=Ready", f"node/{NAME}", f"--timeout={PATIENCE_S}s")
    cluster.say(f"{NAME} ready")


def _containerd(cluster):
    home = cluster.home
    for name in ("cni", "images"):
        (home / name).mkdir()
    (home / "cni/10.conflist").write_text(f"""{{"cniVersion": "1.0.0", "name": "pods", "plugins": [
      {{"type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true,
        "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "{PODS}"}}]], "dataDir": "{home}/ipam"}}}}]}}""")
    configuration = home / "containerd.toml"
    configuration.write_text(f"""version = 3
root = "{home}/containerd"
state = "{home}/containerd-state"
[grpc]
  address = "{home}/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  # A score below our own needs CAP_SYS_RESOURCE, and runc dies without a word where that is missing.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{home}/cni"
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"
""")
    os.environ["CONTAINERD_ADDRESS"] = f"{home}/containerd.sock"
    cluster.start("containerd", BIN / "containerd", "-c", configuration, TMPDIR=str(home))
    until("containerd answers", lambda: run(BIN / "ctr", "version"))
    cluster.say("containerd up")


def _kubelet(cluster, group):
    crt = cluster.certificates
    cluster.ca.sign("kubelet", f"/O=system:nodes/CN=system:node:{NAME}", [f"DNS:{NAME}", f"IP:{ADDRESS}", "IP:127.0.0.1"])
    configuration = cluster.home / "kubelet.yaml"
    configuration.write_text(f"""apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /{group}
enforceNodeAllocatable: []
failSwapOn: false
containerRuntimeEndpoint: unix://{cluster.home}/containerd.sock
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {cluster.ca.path}}}}}
authorization: {{mode: Webhook}}
tlsCertFile: {crt}/kubelet.crt
tlsPrivateKeyFile: {crt}/kubelet.key
podLogsDir: {cluster.home}/pods
resolvConf: ""
evictionHard: {{memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}}
imageGCHighThresholdPercent: 100
protectKernelDefaults: true
syncFrequency: 5s
nodeStatusUpdateFrequency: 5s
""")
    cluster.start("kubelet", BIN / "kubelet", f"--config={configuration}", f"--kubeconfig={cluster.kubeconfig('kubelet')}",
                  f"--hostname-override={NAME}", f"--node-ip={ADDRESS}")
    until("the kubelet registers", lambda: cluster.kubectl("get", f"node/{NAME}"))


def _pause(cluster):
    """The image that holds a Pod's namespaces: busybox, which sleeps."""
    root = cluster.home / "pause"
    (root / "bin").mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    (root / "bin/sleep").symlink_to("busybox")
    archive = cluster.home / "images/pause.tar"
    image.write(archive, PAUSE, root, ["/bin/sleep", "infinity"])
    load(archive)


def load(archive):
    """Gives the node an image's archive."""
    run(BIN / "ctr", "--namespace", "k8s.io", "images", "import", archive)
    Path(archive).unlink()
