"""A network namespace with a TAP device, the board's model on it, and hand-made frames."""

import contextlib
import importlib.util
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# The model and its features: `make -C hdl/board REGIONS=2` and `make -C hdl/board lean` build
# others.
MODEL = ROOT / "target" / "board" / os.environ.get("BOARD", "board")
REGIONS = 4 if MODEL.name == "board" else 2
ISLANDS = MODEL.name != "board-lean"  # whether segments after gaps are kept
RING_BYTES, LONGEST_BODY = 16 << 20, 12 << 20  # board_model.sv
LOGS = ROOT / "target" / "board" / "test-logs"
BUILT_IN = ROOT / "target" / "board" / "functions"
# Seconds after which something that a test waits for has hung, however busy the machine is.
PATIENCE_S = 600
BOARD_IP, HOST_IP = "10.99.0.2", "10.99.0.1"
BOARD_MAC = bytes.fromhex("020000000002")
DEVICE = "tap0"


def image_tool():
    """hdl/functions/image.py as a module."""
    spec = importlib.util.spec_from_file_location("image", ROOT / "hdl" / "functions" / "image.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KERNELS = {
    name: int(number)
    for number, name in (
        line.split()
        for line in (ROOT / "hdl" / "board" / "kernels.list").read_text().splitlines()
        if line[0] != "#"
    )
}


def image(kernel, size=4096, **change):
    """The image of a kernel, with a body of the given size and header fields."""
    tool, number = image_tool(), KERNELS.get(kernel, kernel)
    return tool.image(number, tool.stand_in(number, size), **change)


@contextlib.contextmanager
def functions(**images):
    """A directory for --functions: NAME=(image, 'options of its line')."""
    with tempfile.TemporaryDirectory() as directory:
        lines = []
        for name, (content, options) in images.items():
            (Path(directory) / f"{name}.img").write_bytes(content)
            lines.append(f"{name} {name}.img {options}\n")
        (Path(directory) / "functions.conf").write_text("".join(lines))
        yield directory


def enter_namespace():
    """Runs this program again inside a new namespace, which is removed at the end."""
    if os.environ.get("BOARD_NAMESPACE"):
        return
    if os.geteuid() != 0:
        sys.exit("error: a network namespace and a TAP device need root")
    name = f"board-{os.getpid()}"
    made = lambda *command: subprocess.run(command, check=True)
    made("ip", "netns", "add", name)
    try:
        inside = ["ip", "netns", "exec", name]
        made(*inside, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
        made("ip", "-n", name, "tuntap", "add", "dev", DEVICE, "mode", "tap")
        made("ip", "-n", name, "addr", "add", f"{HOST_IP}/24", "dev", DEVICE)
        made("ip", "-n", name, "link", "set", DEVICE, "up")
        made("ip", "-n", name, "link", "set", "lo", "up")
        child = subprocess.Popen(
            [*inside, sys.executable, *sys.argv], env=dict(os.environ, BOARD_NAMESPACE=name)
        )
        try:
            status = child.wait()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            status = child.wait()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)
    sys.exit(status)


class Board:
    """The model, for the duration of a `with` statement."""

    def __init__(self, *options, log="board", model=MODEL.name):
        self.options, self.log, self.model = options, log, MODEL.with_name(model)

    def __enter__(self):
        LOGS.mkdir(parents=True, exist_ok=True)
        self.output = open(LOGS / f"{self.log}.log", "w")
        self.process = subprocess.Popen(
            [self.model, "--tap", DEVICE, "--ip", BOARD_IP, *map(str, self.options)],
            stderr=self.output,
        )
        for _ in range(100):
            if (
                subprocess.run(
                    ["ping", "-c1", "-W1", "-q", BOARD_IP], stdout=subprocess.DEVNULL
                ).returncode
                == 0
            ):
                return self
            if self.process.poll() is not None:
                break
        raise RuntimeError(f"the model does not respond, see {self.output.name}")

    def __exit__(self, *_):
        self.process.terminate()
        status = self.process.wait(PATIENCE_S)
        self.output.close()
        if status != 0:
            raise RuntimeError(f"the model ended with {status}, see {self.output.name}")


class UserBoard:
    """The model behind a port of this host, for the duration of a `with` statement."""

    def __init__(self, *options):
        self.options = options

    def __enter__(self):
        self.process = subprocess.Popen(
            [MODEL, "--net", "user", "--forward", "127.0.0.1:0", *map(str, self.options)],
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self.process.stderr.readline()
        if "on port" not in line:
            raise RuntimeError(f"the model does not start: {line}")
        self.port = int(line.split("on port ")[1].split()[0])
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE_S)
        if self.process.returncode != 0:
            raise RuntimeError(f"the model ended with {self.process.returncode}")


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(payload, kind=0x0800, to=BOARD_MAC, sender=b"\x02\0\0\0\0\x66"):
    return to + sender + struct.pack("!H", kind) + payload


def ipv4(payload, protocol, source, target=BOARD_IP, **change):
    fields = dict(
        version=0x45, tos=0, length=20 + len(payload), ident=1, fragment=0x4000, ttl=64, spoil=0
    )
    fields.update(change)
    head = struct.pack(
        "!BBHHHBBH4s4s",
        fields["version"],
        fields["tos"],
        fields["length"],
        fields["ident"],
        fields["fragment"],
        fields["ttl"],
        protocol,
        0,
        socket.inet_aton(source),
        socket.inet_aton(target),
    )
    total = checksum(head) ^ fields["spoil"]
    return head[:10] + struct.pack("!H", total) + head[12:] + payload


FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


def tcp(
    source,
    port,
    seq,
    ack,
    flags,
    payload=b"",
    to_port=80,
    window=65535,
    options=b"",
    offset=None,
    spoil=0,
):
    words = 5 + len(options) // 4 if offset is None else offset
    head = struct.pack(
        "!HHIIBBHHH",
        port,
        to_port,
        seq & 0xFFFFFFFF,
        ack & 0xFFFFFFFF,
        words << 4,
        flags,
        window,
        0,
        0,
    )
    segment = head + options + payload
    pseudo = (
        socket.inet_aton(source)
        + socket.inet_aton(BOARD_IP)
        + struct.pack("!BBH", 0, 6, len(segment))
    )
    total = checksum(pseudo + segment) ^ spoil
    return segment[:16] + struct.pack("!H", total) + segment[18:]


class Wire:
    """Raw frames on the board's device."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((DEVICE, 0))
        self.socket.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, frame):
        for _ in range(1000):
            try:
                return self.socket.send(frame)
            except OSError as error:
                if error.errno != 105:  # ENOBUFS: the device's queue is full
                    raise
                time.sleep(0.001)

    def receive(self, seconds=0.3):
        """The next frame from the board, or None."""
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(65536)
        except TimeoutError:
            return None

    def receive_tcp(self, source, port, seconds=0.3):
        """The next segment from the board to that address: (flags, seq, ack, window, payload),
        or None."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            frame = self.receive(left)
            if frame is None or frame[12:14] != b"\x08\0" or frame[23] != 6:
                continue
            if frame[30:34] != socket.inet_aton(source) or frame[36:38] != struct.pack("!H", port):
                continue
            length = struct.unpack("!H", frame[16:18])[0]
            packet = frame[14 : 14 + length]
            assert checksum(packet[:20]) == 0, "the board's IPv4 checksum is wrong"
            pseudo = packet[12:20] + struct.pack("!BBH", 0, 6, length - 20)
            assert checksum(pseudo + packet[20:]) == 0, "the board's TCP checksum is wrong"
            seq, ack, offset, flags, window = struct.unpack("!IIBBH", packet[24:36])
            return flags, seq, ack, window, packet[20 + (offset >> 4) * 4 :]
        return None

    def clear(self):
        while self.receive(0.02) is not None:
            pass


class RawConnection:
    """A TCP connection from an address that this host does not have, made segment by segment."""

    def __init__(self, wire, source="10.99.0.77", port=None):
        self.wire, self.source, self.port = wire, source, port or random.randrange(1024, 65536)
        self.seq = random.randrange(1 << 32)

    def send(self, flags, payload=b"", **change):
        seq, ack = change.pop("seq", self.seq), change.pop("ack", getattr(self, "ack", 0))
        segment = tcp(self.source, self.port, seq, ack, flags, payload, **change)
        self.wire.send(ethernet(ipv4(segment, 6, self.source)))

    def receive(self, seconds=0.3):
        return self.wire.receive_tcp(self.source, self.port, seconds)

    def open(self):
        self.send(SYN, options=b"\x02\x04\x05\xb4")
        answer = self.receive(PATIENCE_S)
        assert answer and answer[0] == SYN | ACK, f"no SYN-ACK: {answer}"
        self.seq = (self.seq + 1) & 0xFFFFFFFF
        assert answer[2] == self.seq
        self.ack = (answer[1] + 1) & 0xFFFFFFFF
        self.send(ACK)
        return self


def frames_of(recording):
    """(1: to the board, 2: from it; cycle; bytes) of each frame recorded by --pcap,
    read as pcapng."""
    data, at, frames = Path(recording).read_bytes(), 0, []
    while at < len(data):
        kind, length = struct.unpack_from("=II", data, at)
        assert length >= 12 and struct.unpack_from("=I", data, at + length - 4)[0] == length
        if kind == 6:
            kept = struct.unpack_from("=I", data, at + 20)[0]
            option, found = at + 28 + (kept + 3) // 4 * 4, {}
            while (head := struct.unpack_from("=HH", data, option))[0]:
                found[head[0]] = data[option + 4 : option + 4 + head[1]]
                option += 4 + (head[1] + 3) // 4 * 4
            frames.append((found[2][0], int(found[1].split()[1]), data[at + 28 : at + 28 + kept]))
        at += length
    return frames


def run(tests, argv):
    """Runs the named tests, or all, and prints results for scripts/test.sh."""
    chosen = [t for t in tests if not argv or any(a in t.__name__ for a in argv)]
    failed = []
    for test in chosen:
        name = test.__name__.removeprefix("test_")
        started = time.monotonic()
        try:
            test()
        except Exception as error:  # a failure does not stop the other tests
            failed.append(name)
            import traceback

            traceback.print_exc(limit=-4)
            print(f"test board::{name} ... FAILED ({type(error).__name__}: {error})", flush=True)
        else:
            print(f"test board::{name} ... ok ({time.monotonic() - started:.1f} s)", flush=True)
    state = "FAILED" if failed else "ok"
    print(f"\ntest result: {state}. {len(chosen) - len(failed)} passed; {len(failed)} failed")
    sys.exit(bool(failed))
