"""The static program in an archive, for hosts of any distribution."""

from release import PROGRAM, ROOT, archive, compress


def build(release, work, out):
    """Writes the archive into `out`; returns its path."""
    folder = f"{PROGRAM}-{release.version}"
    files = {
        folder: (0o755, None),
        f"{folder}/{PROGRAM}": (0o755, release.static.read_bytes()),
        f"{folder}/LICENSE": (0o644, (ROOT / "LICENSE").read_bytes()),
    }
    path = out / f"{PROGRAM}-{release.version}-x86_64-linux-musl.tar.gz"
    path.write_bytes(compress(archive(files, release.epoch)))
    return path
