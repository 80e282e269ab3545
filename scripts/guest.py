"""Boots guests under QEMU's emulation and controls their shells over the serial line.

On a busy host the emulated timer is so late that the kernel considers it broken (hence
no_timer_check).
The arguments below avoid two defects of the emulator: QEMU 7.2 corrupts flags after cmpxchg16b
(hence -cx16), and with a single possible processor it translates the guest's atomic operations to
plain ones, which other processes of the host can observe half done (hence maxcpus=2)."""

import os
import re
import select
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VM = ROOT / "target/vm"


class GuestError(Exception):
    """A command failed in a guest, or the guest ended."""


def ivshmem(attached):
    """QEMU's arguments for the device of a VM; `attached`: the answer of `baltra vm attach --json`."""
    device = f"ivshmem-doorbell,vectors={attached['vectors']},chardev=vfun"
    return ["-chardev", f"socket,path={attached['socket']},id=vfun", "-device", device]


class Guest:
    """A running guest. `command` runs a line in its shell."""

    def __init__(self, name, device, net=False, serial=None, interrupts=False, patience=180):
        """`device`: QEMU's arguments. `net`: the user network; `serial`: a port at this socket,
        created by QEMU, or by the daemon (a list); `interrupts`: an IOMMU, which vfio needs."""
        self.name = name
        self.text = ""
        arguments = [
            "qemu-system-x86_64",
            "-machine",
            "q35,accel=tcg",
            "-cpu",
            "qemu64,-cx16",
            "-smp",
            "1,maxcpus=2",
            "-m",
            "256",
            "-display",
            "none",
            "-monitor",
            "none",
            "-serial",
            "stdio",
            "-no-reboot",
            "-nodefaults",
            "-kernel",
            str(VM / "vmlinuz"),
            "-initrd",
            str(VM / "initramfs"),
            "-append",
            "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check"
            + (" vf.virtio" if net or serial else "")
            + (" vf.vfio intel_iommu=on" if interrupts else ""),
            # The IOMMU comes first, because it does not cover devices listed before it.
            *(["-device", "intel-iommu,intremap=on"] if interrupts else []),
            *device,
        ]
        if net:
            arguments += [
                "-netdev",
                "user,id=net,restrict=off",
                "-device",
                "virtio-net-pci,netdev=net,romfile=",
            ]
        if isinstance(serial, list):
            arguments += serial
        elif serial:
            arguments += [
                "-chardev",
                f"socket,path={serial},id=port,server=on,wait=off",
                "-device",
                "virtio-serial-pci",
                "-device",
                "virtserialport,chardev=port,name=baltra",
            ]
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
        self.pid = self.process.pid
        self.started = time.monotonic()
        self.patience = patience

    def ready(self):
        """Waits until the guest accepts commands."""
        self._until("@@ready", self.patience)
        self.boot_s = time.monotonic() - self.started
        return self

    def _until(self, mark, patience):
        """The guest's output before a line that begins with the mark, and the rest of that line."""
        deadline = time.monotonic() + patience
        pattern = re.compile(rf"^{mark}(.*)\n", re.M)
        while True:
            found = pattern.search(self.text)
            if found:
                before, self.text = self.text[: found.start()], self.text[found.end() :]
                return before, found.group(1)
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise GuestError(
                    f"{self.name}: no {mark} within {patience} s; output:\n{self.text}"
                )
            bytes_ = os.read(self.process.stdout.fileno(), 65536)
            if not bytes_:
                raise GuestError(f"{self.name} ended ({self.process.wait()}); output:\n{self.text}")
            self.text += bytes_.decode(errors="replace").replace("\r", "")

    def start(self, line):
        """Starts a shell line; `end` waits for it."""
        self.process.stdin.write(line.encode() + b"\n")

    def end(self, patience=None):
        """The output of the line, and its status."""
        text, status = self._until("@@", patience or self.patience)
        return text, int(status)

    def command(self, line, patience=None):
        """Runs a shell line and returns its output. A failure is an error."""
        text, status = self.attempt(line, patience)
        if status:
            raise GuestError(f"{self.name}: {line}: status {status}:\n{text}")
        return text

    def attempt(self, line, patience=None):
        """Runs a shell line and returns its output and status."""
        self.start(line)
        return self.end(patience)

    def says_end(self):
        """Whether the started line has ended; `end` returns its status."""
        while select.select([self.process.stdout], [], [], 0)[0]:
            bytes_ = os.read(self.process.stdout.fileno(), 65536)
            if not bytes_:
                return True
            self.text += bytes_.decode(errors="replace").replace("\r", "")
        return re.search(r"^@@", self.text, re.M) is not None

    def kill(self):
        """Ends the guest like a power failure."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def alive(self):
        return self.process.poll() is None
