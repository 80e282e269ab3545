#!/usr/bin/env python3
"""Builds the packages of a release from built binaries.

usage: deploy/packages/build.py [--binaries DIR] [--out DIR] [PACKAGE …]

  PACKAGE     deb, wheel, static, image, chart, sbom [default: all]
  --binaries  directory of `baltra` and `libbaltra_opencl.so` [default: target/release]
  --out       directory for the packages [default: target/packages]

Two builds from the same binaries give the same bytes: all times are SOURCE_DATE_EPOCH, by default
the time of the last commit. SHA256SUMS lists the digests."""

import argparse
import hashlib
import sys
import tempfile
import time
from pathlib import Path

import deb
import oci
import sbom
import static
import wheel
from release import ROOT, archive, compress, prepare

CHART = ROOT / "deploy/helm/baltra"


def chart(release, work, out):
    """Writes the chart, as `helm package` does; returns its path."""
    files = {}
    for path in sorted(CHART.rglob("*")):
        if path.is_file():
            files[f"baltra/{path.relative_to(CHART)}"] = (0o644, path.read_bytes())
    description = files["baltra/Chart.yaml"][1].decode()
    for line in (f"version: {release.version}", f"appVersion: {release.version}"):
        if line not in description.splitlines():
            sys.exit(f"error: {CHART}/Chart.yaml lacks '{line}', the version of the workspace")
    path = out / f"baltra-{release.version}.tgz"
    path.write_bytes(compress(archive(files, release.epoch)))
    return path


PACKAGES = {
    "deb": deb.build,
    "wheel": wheel.build,
    "static": static.build,
    "image": oci.build,
    "chart": chart,
    "sbom": sbom.build,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packages", nargs="*", metavar="PACKAGE")
    parser.add_argument("--binaries", type=Path, default=ROOT / "target/release")
    parser.add_argument("--out", type=Path, default=ROOT / "target/packages")
    options = parser.parse_args()
    unknown = set(options.packages) - set(PACKAGES)
    if unknown:
        parser.error(f"unknown package '{unknown.pop()}': choose from {', '.join(PACKAGES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="baltra-packages-") as work:
        work = Path(work)
        release = prepare(options.binaries, work)
        for name in options.packages or PACKAGES:
            if name == "static" and release.static is None:
                print("static program: left out, because scripts/static.sh has not built it")
                continue
            began = time.monotonic()
            path = PACKAGES[name](release, work, options.out)
            size = path.stat().st_size / 1e6
            print(f"{path.name}: {size:.1f} MB ({time.monotonic() - began:.1f} s)", flush=True)
    sums(options.out)


def sums(out):
    """Writes the digests of all packages in the directory."""
    lines = []
    for path in sorted(out.iterdir()):
        if path.name != "SHA256SUMS" and path.is_file():
            lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    (out / "SHA256SUMS").write_text("".join(lines))


if __name__ == "__main__":
    main()
