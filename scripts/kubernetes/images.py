#!/usr/bin/env python3
"""Builds the images of Baltra and of the example application from programs built and packages
installed on this host.

    scripts/kubernetes/images.py DIRECTORY     writes baltra.tar and sobel.tar, for
                                               `ctr images import` and the like

Baltra's image holds the daemons, the library and PoCL as the device. sobel's image holds two OpenCL
programs as their author would ship them, with the distribution's loader, and nothing of Baltra."""

import glob
import os
import sys
import tempfile
from pathlib import Path

from cluster import ROOT, run
from image import closure, write

BALTRA = Path(os.environ.get("BALTRA", ROOT / "target/release/baltra"))
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
VERSION = "0.2.0"
NAMES = {"baltra": f"docker.io/library/baltra:{VERSION}", "sobel": "docker.io/library/sobel:1"}
# PoCL's dependencies in addition to its library: built-in kernels,
# and a linker with the files that clang passes to it.
POCL = [
    "/etc/OpenCL/vendors/pocl.icd",
    *glob.glob(f"{LIBRARIES}/libpocl.so.*"),
    f"{LIBRARIES}/pocl",
    "/usr/share/pocl",
    "/usr/bin/ld",
    *(
        f"{LIBRARIES}/{name}"
        for name in (
            "libc.so",
            "libc.so.6",
            "libc_nonshared.a",
            "libm.so",
            "libm.so.6",
            "libmvec.so.1",
            "libgcc_s.so.1",
            "crti.o",
            "crtn.o",
        )
    ),
]
# The compiler's own directory, relative to which clang finds its other files.
COMPILER = ["libgcc.a", "libgcc_s.so", "crtbegin.o", "crtbeginS.o", "crtendS.o"]


def device():
    """PoCL with its dependencies, in the format of closure."""
    compiler = max(
        glob.glob("/usr/lib/gcc/x86_64-linux-gnu/*/libgcc.a"),
        key=lambda p: int(Path(p).parent.name),
    )
    return {
        path: path for path in [*POCL, *(f"{Path(compiler).parent}/{name}" for name in COMPILER)]
    }


def baltra(root):
    """Fills root; returns the image's command."""
    files = device()
    for directory, name in (
        ("local/bin", "baltra"),
        ("local/bin", "baltra-native-worker"),
        ("local/lib", "libbaltra_opencl.so"),
    ):
        files[f"/usr/{directory}/{name}"] = BALTRA.parent / name
    closure(root, files)
    for name in ("baltra", "baltra-native-worker"):
        run("strip", "--strip-debug", root / "usr/local/bin" / name)
    return ["/usr/local/bin/baltra"]


def sobel(root):
    """Fills root; returns the image's command."""
    closure(
        root,
        {
            **{
                f"/usr/local/bin/{name}": ROOT / "target/apps" / name
                for name in ("sobel", "matmul")
            },
            "/bin/sh": "/bin/busybox",
            "/bin/busybox": "/bin/busybox",
            "/usr/lib/x86_64-linux-gnu/libOpenCL.so.1": f"{LIBRARIES}/libOpenCL.so.1",
        },
    )
    for name in ("sleep", "cat", "ls", "env", "wget", "id"):
        (root / "bin" / name).symlink_to("busybox")
    assert not any("baltra" in path.name for path in root.rglob("*"))
    return ["/usr/local/bin/sobel"]


def make(name, archive):
    """Writes one image's archive."""
    with tempfile.TemporaryDirectory(prefix="baltra-image-") as root:
        root = Path(root)
        root.chmod(0o755)
        command = {"baltra": baltra, "sobel": sobel}[name](root)
        # An entry point, so that a Pod's args are arguments of `baltra`.
        write(archive, NAMES[name], root, command)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    for image in NAMES:
        print(f"{image}.tar …", flush=True)
        make(image, Path(sys.argv[1]) / f"{image}.tar")
