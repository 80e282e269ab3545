"""The inputs of all packages, and archives whose bytes depend on nothing else.

Every time in a package is SOURCE_DATE_EPOCH, every owner is root, and the order of files is that of
their names, so that two builds from the same binaries give the same bytes."""

import gzip
import io
import os
import re
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = "baltra"
LIBRARY = "libbaltra_opencl.so"
# The target of the static program.
STATIC = "x86_64-unknown-linux-musl"
# Functions that need no compiler.
FUNCTIONS = ("blackscholes", "matmul", "sobel")


def output(*command, **options):
    """The standard output of a command, as text."""
    return subprocess.run(
        [str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True, **options
    ).stdout


def version():
    """The version of the workspace."""
    with (ROOT / "Cargo.toml").open("rb") as file:
        return tomllib.load(file)["workspace"]["package"]["version"]


def epoch():
    """SOURCE_DATE_EPOCH, or the time of the last commit: seconds since 1970."""
    named = os.environ.get("SOURCE_DATE_EPOCH")
    if named:
        return int(named)
    return int(output("git", "-C", ROOT, "log", "-1", "--format=%ct"))


@dataclass(frozen=True)
class Release:
    """What the packages are made of."""

    version: str
    epoch: int
    program: Path
    library: Path
    # The static program; None: it was not built.
    static: Path | None
    # Oldest version of the C library that the program and the library work with.
    glibc: tuple[int, int]


def prepare(binaries, work):
    """Strips copies of the binaries into `work`."""
    program, library = binaries / PROGRAM, binaries / LIBRARY
    # Cargo places another target's programs beside the directory of the profile.
    static = binaries.parent / STATIC / binaries.name / PROGRAM
    program = stripped(program, work / PROGRAM)
    library = stripped(library, work / LIBRARY)
    if static.is_file():
        static = stripped(static, work / f"{PROGRAM}-static")
        described = [output(path, "version", "--json") for path in (program, static)]
        if described[0] != described[1]:
            raise SystemExit(
                f"error: {PROGRAM} and the static {PROGRAM} are of different builds "
                f"(scripts/static.sh --release): {' '.join(' '.join(described).split())}"
            )
    else:
        static = None
    oldest = max(glibc(path) for path in (program, library))
    return Release(version(), epoch(), program, library, static, oldest)


def stripped(source, target):
    """A stripped copy of a binary."""
    if not source.is_file():
        raise SystemExit(f"error: {source} does not exist (make build)")
    subprocess.run(["strip", "--strip-unneeded", "-o", target, source], check=True)
    target.chmod(0o755)
    return target


def glibc(path):
    """The newest version of the C library's symbols that a binary refers to."""
    symbols = re.findall(r"GLIBC_(\d+)\.(\d+)", output("objdump", "-T", path))
    return max((int(major), int(minor)) for major, minor in symbols)


def functions():
    """{name: bytes} of the example functions' files."""
    root = ROOT / "apps/functions"
    files = [path for name in FUNCTIONS for path in (root / name).iterdir()]
    wanted = [path for path in files if path.suffix in (".yaml", ".cl")]
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(wanted)}


# Folders of modules that kernels are made of.
MODULES = ("common", "hls", "kernels", "messages")
# The other files of the hardware tree that the compiler of OpenCL C reads or starts.
HARDWARE = (
    "verilator",
    "common/sim/precompiled.hpp",
    "board/sim/dram.hpp",
    "board/sim/emulate*",
    "board/sim/region_abi.h",
    "board/sim/region_frame.hpp",
    "board/sim/region_pins.hpp",
    "syn/compare.v",
    "syn/flow.py",
    "syn/kernel.py",
)


def hardware():
    """{path: (mode, bytes)} of the hardware tree, as far as the compiler of OpenCL C needs it."""
    root = ROOT / "hdl"
    files = {}
    for pattern in (*HARDWARE, *(f"{module}/rtl/*" for module in MODULES)):
        for path in root.glob(pattern):
            # The scripts are arguments of Python.
            mode = 0o755 if path.name == "verilator" else 0o644
            files[str(path.relative_to(root))] = (mode, path.read_bytes())
    return files


def archive(files, epoch):
    """A tar archive: {path: (mode, bytes)}; directories are {path: (mode, None)}, links are
    {path: ("link", target)}."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(files):
            mode, content = files[path]
            entry = tarfile.TarInfo(path)
            entry.mtime, entry.uname, entry.gname = epoch, "root", "root"
            if mode == "link":
                entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, content
                tar.addfile(entry)
            elif content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, mode
                tar.addfile(entry)
            else:
                entry.mode, entry.size = mode, len(content)
                tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def compress(content, level=9):
    """gzip without a name and a time."""
    return gzip.compress(content, level, mtime=0)
