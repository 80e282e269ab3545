#!/usr/bin/env python3
"""Runs a complete Kubernetes cluster for the lifetime of one command, in network,
process and mount namespaces of its own.

    scripts/kubernetes/cluster.py [--fake N] [--nodes N] [--logs DIRECTORY] [--] COMMAND…

    --fake N   N fake nodes, whose Pods do not run (kwok)
    --nodes N  real nodes, node1 …: kubelet, containerd, kube-proxy, each in namespaces of its own
    --logs     directory of all logs (default: target/kubernetes/logs)

example: scripts/kubernetes/cluster.py --fake 3 -- kubectl get nodes

The command finds kubectl, helm and (with --nodes) ctr in PATH, and the cluster in KUBECONFIG, as
its administrator. When the command ends, the cluster ends; the host is unchanged. Needs root, and
scripts/kubernetes/build.sh before.

Tests use the class: isolate() once, then Cluster()."""

import argparse
import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = Path(os.environ.get("BALTRA_KUBERNETES", ROOT / "target/kubernetes"))
BIN = PLACE / "bin"
INSIDE = "BALTRA_KUBERNETES_INSIDE"
# The bridge between the control plane and the nodes, because a kubelet refuses a loopback address.
ADDRESS = "192.168.77.1"
API_PORT = 6443
PODS, SERVICES = "10.244.0.0/16", "10.96.0.0/16"
PATIENCE_S = 180
# Kernel-wide settings of the kubelet and kube-proxy, with the values that they check.
SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


class Failed(Exception):
    """A command or a component failed; the text has its output."""


def isolate():
    """Restarts the caller's program in namespaces of its own, whose processes die with it."""
    if INSIDE in os.environ:
        return
    if os.geteuid() != 0:
        sys.exit("error: network namespaces need root (run this as root)")
    if not (BIN / "kube-apiserver").exists():
        sys.exit(f"error: {BIN} has no Kubernetes (run scripts/kubernetes/build.sh)")
    home = tempfile.mkdtemp(prefix="bk-")
    group = f"baltra-{os.getpid()}"
    # Process 1 is a shell, because it reaps the orphans of containers.
    command = [
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--ipc",
        "--uts",
        "--fork",
        "--mount-proc",
        "--kill-child",
        "sh",
        "-c",
        '"$@"; exit $?',
        "sh",
        sys.executable,
        *sys.argv,
    ]
    try:
        status = subprocess.run(
            command, env={**os.environ, INSIDE: home, "BALTRA_KUBERNETES_GROUP": group}
        ).returncode
    except KeyboardInterrupt:
        status = 130
    finally:
        shutil.rmtree(home, ignore_errors=True)
        for directory in control_groups(group):
            for inner in sorted(directory.rglob("*/"), reverse=True):
                _ = inner.is_dir() and _quietly(inner.rmdir)
            _quietly(directory.rmdir)
    sys.exit(status)


def _quietly(act):
    try:
        act()
    except OSError:
        pass


def control_groups(name):
    """The paths of a control group with this name: one path, or one per controller."""
    base = Path("/sys/fs/cgroup")
    if (base / "cgroup.controllers").exists():
        return [base / name]
    return [d / name for d in base.iterdir() if d.is_dir() and not d.is_symlink()]


def run(*command, **more):
    """Returns the output of a command; raises Failed if it fails."""
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if ended.returncode != 0:
        raise Failed(
            f"{' '.join(map(str, command))}: {ended.stderr.strip() or ended.stdout.strip()}"
        )
    return ended.stdout


def until(what, holds, patience_s=PATIENCE_S, pause_s=0.1):
    """Waits until holds() is true, and returns its result. A Failed exception counts as false."""
    deadline = time.monotonic() + patience_s
    last = ""
    while True:
        try:
            if got := holds():
                return got
        except (Failed, OSError, AssertionError, KeyError) as error:
            last = f": {error}"
        if time.monotonic() > deadline:
            raise Failed(f"not within {patience_s} s: {what}{last}")
        time.sleep(pause_s)


class Certificates:
    """A certificate authority and its certificates, by openssl."""

    def __init__(self, directory, name):
        self.directory = directory
        self.name = name
        self.path = directory / f"{name}.crt"
        self.key = directory / f"{name}.key"
        self._openssl(
            "req",
            "-x509",
            *self._new_key(self.key),
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
            "-out",
            self.path,
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        )

    @staticmethod
    def _openssl(*words):
        run("openssl", *words)

    @staticmethod
    def _new_key(path):
        return [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            path,
        ]

    def sign(self, name, subject, addresses=("DNS:localhost",)):
        """Creates name.crt and name.key, for servers and clients."""
        request, extensions = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        self._openssl(
            "req", *self._new_key(self.directory / f"{name}.key"), "-subj", subject, "-out", request
        )
        extensions.write_text(
            "keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n"
            f"subjectAltName={','.join(addresses)}\n"
        )
        self._openssl(
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            self.path,
            "-CAkey",
            self.key,
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            extensions,
            "-out",
            self.directory / f"{name}.crt",
        )


class Process:
    """A program that can be killed and started again, with one log for all of its runs."""

    def __init__(self, name, command, log, environment=None):
        self.name = name
        self.command = [str(word) for word in command]
        self.log = log
        self.environment = environment
        self.running = None
        self.start()

    def start(self):
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=None if self.environment is None else {**os.environ, **self.environment},
            )

    def alive(self):
        return self.running is not None and self.running.poll() is None

    def kill(self):
        """Without `word`: sends SIGKILL."""
        self.running.kill()
        self.running.wait()

    def stop(self):
        self.running.terminate()
        try:
            self.running.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self, lines=15):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Cluster:
    """Control plane, with fake or real nodes on request. Requires isolate()."""

    def __init__(self, fake=0, nodes=0, logs=None, progress=True):
        assert INSIDE in os.environ, "isolate() first"
        self.progress = progress
        self.started = time.monotonic()
        self.home = Path(os.environ[INSIDE])
        self.logs = Path(logs or ROOT / "target/kubernetes/logs")
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.processes = {}
        self._private_system()
        self._certificates()
        os.environ["PATH"] = f"{BIN}:{os.environ['PATH']}"
        os.environ["KUBECONFIG"] = str(self.kubeconfig("admin"))
        self._control_plane()
        self.nodes = []
        if nodes:
            import node  # only with real nodes, whose programs are another build stage

            node.start(self, nodes)
        if fake:
            self.fake_nodes(fake)

    # ---- components

    def say(self, text):
        if self.progress:
            print(f"[{time.monotonic() - self.started:5.1f} s] {text}", file=sys.stderr, flush=True)

    def _private_system(self):
        """Creates a private network, private mutable directories and sysctls."""
        run("mount", "-t", "tmpfs", "-o", "size=12g", "tmpfs", self.home)
        run("mount", "--make-rshared", "/")
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
        for name in ("upper", "work", "sysctl"):
            (self.home / name).mkdir()
        # The usual directories of the kubelet and its plug-ins, which the host may lack.
        run(
            "mount",
            "-t",
            "overlay",
            "overlay",
            "-o",
            f"lowerdir=/var/lib,upperdir={self.home}/upper,workdir={self.home}/work",
            "/var/lib",
        )
        for name, value in SYSCTLS.items():
            mask = self.home / "sysctl" / name.replace("/", ".")
            mask.write_text(f"{value}\n")
            run("mount", "--bind", mask, f"/proc/sys/{name}")
        socket.sethostname("control")
        for words in (
            "link set lo up",
            "link add node0 type bridge",
            f"addr add {ADDRESS}/24 dev node0",
            "link set node0 up",
            "route add default dev node0",
        ):
            run("ip", *words.split())
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _certificates(self):
        self.certificates = self.home / "certificates"
        self.certificates.mkdir()
        self.ca = Certificates(self.certificates, "ca")
        addresses = [
            f"DNS:{name}"
            for name in ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
        ]
        self.ca.sign(
            "apiserver",
            "/CN=kube-apiserver",
            addresses + [f"IP:{ip}" for ip in ("127.0.0.1", "10.96.0.1", ADDRESS)],
        )
        self.ca.sign("admin", "/O=system:masters/CN=admin")
        self.ca.sign("controller-manager", "/CN=system:kube-controller-manager")
        self.ca.sign("scheduler", "/CN=system:kube-scheduler")
        # Authenticates the API server to extension servers,
        # to which it forwards the user's identity.
        self.front = Certificates(self.certificates, "front")
        self.front.sign("front-proxy", "/CN=front-proxy")
        run("openssl", "genrsa", "-out", self.certificates / "accounts.key", "2048")
        run(
            "openssl",
            "rsa",
            "-in",
            self.certificates / "accounts.key",
            "-pubout",
            "-out",
            self.certificates / "accounts.pub",
        )

    def kubeconfig(self, name, token=None):
        """The kubeconfig of client `name`, with its certificate or a token."""
        user = (
            {"token": token}
            if token
            else {
                "client-certificate": str(self.certificates / f"{name}.crt"),
                "client-key": str(self.certificates / f"{name}.key"),
            }
        )
        path = self.home / f"{name}.kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "it",
                    "clusters": [
                        {
                            "name": "it",
                            "cluster": {
                                "server": f"https://{ADDRESS}:{API_PORT}",
                                "certificate-authority": str(self.ca.path),
                            },
                        }
                    ],
                    "users": [{"name": "it", "user": user}],
                    "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                }
            )
        )
        return path

    def start(self, name, *command, **environment):
        """Starts a program and registers it by name."""
        self.processes[name] = Process(
            name, command, self.logs / f"{name}.log", environment or None
        )
        return self.processes[name]

    def _control_plane(self):
        crt = self.certificates
        etcd = "http://127.0.0.1:2379"
        self.start(
            "etcd",
            BIN / "etcd",
            "--data-dir",
            self.home / "etcd",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--initial-advertise-peer-urls=http://127.0.0.1:2380",
            "--initial-cluster=default=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self.start(
            "kube-apiserver",
            BIN / "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={ADDRESS}",
            f"--secure-port={API_PORT}",
            f"--client-ca-file={self.ca.path}",
            f"--tls-cert-file={crt}/apiserver.crt",
            f"--tls-private-key-file={crt}/apiserver.key",
            f"--service-account-key-file={crt}/accounts.pub",
            f"--service-account-signing-key-file={crt}/accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={SERVICES}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--kubelet-client-certificate={crt}/admin.crt",
            f"--kubelet-client-key={crt}/admin.key",
            "--kubelet-preferred-address-types=InternalIP",
            # Reaches webhooks and extensions at their Services' endpoints,
            # because fake nodes have no proxy.
            "--enable-aggregator-routing=true",
            f"--requestheader-client-ca-file={self.front.path}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={crt}/front-proxy.crt",
            f"--proxy-client-key-file={crt}/front-proxy.key",
        )
        self.ready()
        self.say("API server ready")
        for name, program in (
            ("controller-manager", "kube-controller-manager"),
            ("scheduler", "kube-scheduler"),
        ):
            kubeconfig = self.kubeconfig(name)
            flags = [
                f"--kubeconfig={kubeconfig}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                "--bind-address=127.0.0.1",
                "--leader-elect=false",
                # A thousand Pods in a minute are more than the default 50 requests a second.
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
            ]
            if name == "controller-manager":
                flags += [
                    "--use-service-account-credentials",
                    f"--service-account-private-key-file={crt}/accounts.key",
                    f"--root-ca-file={self.ca.path}",
                    f"--cluster-signing-cert-file={self.ca.path}",
                    f"--cluster-signing-key-file={self.ca.key}",
                    "--horizontal-pod-autoscaler-sync-period=2s",
                    "--node-monitor-grace-period=40s",
                ]
            self.start(program, BIN / program, *flags)
        until("default service account", lambda: self.kubectl("get", "serviceaccount", "default"))
        self.say("control plane up")

    def ready(self):
        """Waits for the API server."""
        server = self.processes["kube-apiserver"]

        def answers():
            if not server.alive():
                raise SystemExit(f"error: the API server ended:\n{server.tail()}")
            return self.kubectl("get", "--raw=/readyz")

        until("the API server is ready", answers)

    def fake_nodes(self, count, first=0):
        """Creates nodes fake-0 …; kwok reports them as ready and their Pods as running."""
        if "kwok" not in self.processes:
            self.start(
                "kwok",
                BIN / "kwok",
                f"--kubeconfig={os.environ['KUBECONFIG']}",
                f"--config={PLACE}/kwok-stages.yaml",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                "--node-lease-duration-seconds=40",
            )
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "500"}
        names = [f"fake-{i}" for i in range(first, first + count)]
        self.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {
                        "name": name,
                        "annotations": {"kwok.x-k8s.io/node": "fake"},
                        "labels": {
                            "kubernetes.io/hostname": name,
                            "kubernetes.io/os": "linux",
                            "type": "kwok",
                        },
                    },
                    "status": {"capacity": capacity, "allocatable": capacity},
                }
                for name in names
            ]
        )
        self.kubectl(
            "wait",
            "--for=condition=Ready",
            f"--timeout={PATIENCE_S}s",
            *(f"node/{name}" for name in names),
        )
        self.say(f"{count} fake nodes ready")

    # ---- interface for tests

    def kubectl(self, *words, input=None):
        """Returns the output of kubectl; raises Failed if it fails."""
        return run(BIN / "kubectl", *words, input=input)

    def apply(self, objects):
        """Applies a list of objects, one object, or YAML."""
        if isinstance(objects, list):
            objects = {"apiVersion": "v1", "kind": "List", "items": objects}
        return self.kubectl(
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            "-",
            input=objects if isinstance(objects, str) else json.dumps(objects),
        )

    def get(self, *words):
        """The object, or the list of objects, that `kubectl get` finds."""
        found = json.loads(self.kubectl("get", "-o", "json", *words))
        return found["items"] if found["kind"] == "List" else found

    def account(self, namespace, name):
        """A kubeconfig with exactly the rights of the service account."""
        token = self.kubectl("create", "token", "-n", namespace, name, "--duration=24h").strip()
        return self.kubeconfig(f"{namespace}-{name}", token)

    def secret(self, namespace, name, key):
        return base64.b64decode(self.get("-n", namespace, "secret", name)["data"][key])

    def restart(self, name):
        """Kills a component and starts it again with the same arguments."""
        process = self.processes[name]
        process.kill()
        process.start()
        if name == "kube-apiserver":
            self.ready()

    def end(self):
        for process in reversed(self.processes.values()):
            if process.alive():
                process.kill()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fake", type=int, default=0, metavar="N")
    parser.add_argument("--nodes", type=int, default=0, metavar="N")
    parser.add_argument("--logs", type=Path, metavar="DIRECTORY")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        parser.error("a command is missing (for example -- bash)")
    isolate()
    cluster = Cluster(fake=arguments.fake, nodes=arguments.nodes, logs=arguments.logs)
    status = subprocess.run(command).returncode
    cluster.end()
    sys.exit(status)


if __name__ == "__main__":
    sys.modules["cluster"] = sys.modules["__main__"]  # one module, also when node.py imports it
    try:
        main()
    except Failed as error:
        sys.exit(f"error: {error}")
