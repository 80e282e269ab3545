#!/usr/bin/env python3
"""Container images without Docker: converts a root directory to an archive that every container
runtime imports.

    scripts/kubernetes/image.py OUT.tar NAME:TAG ROOT [COMMAND…]

`closure` fills such a directory with programs of this host and every library that they need."""

import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path


def write(archive, name, root, command):
    """Writes the archive (as `docker save` does) of an image with one layer, the contents of root,
    owned by root. The command is its entry point."""

    def owned(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        return entry

    layer = Path(f"{archive}.layer")
    with tarfile.open(layer, "w") as tar:
        tar.add(root, arcname=".", filter=owned)
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    configuration = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"],
                "Entrypoint": command,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    configuration_name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    manifest = json.dumps(
        [{"Config": configuration_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    ).encode()
    with tarfile.open(archive, "w") as tar:
        for file, content in ((configuration_name, configuration), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(file)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        tar.add(layer, arcname="layer.tar")
    layer.unlink()


def closure(root, files):
    """Copies files of this host ({path in the image: path here}, a directory with all below it) and
    the shared libraries that they need, each at the path where the linker looks for it."""
    # Paths as on this host: a linker's script may use /lib for a library that ldd reports in
    # /usr/lib.
    for name in ("bin", "lib", "lib64", "sbin"):
        if Path(f"/{name}").is_symlink():
            (root / "usr" / name).mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(f"usr/{name}")
    wanted = []
    for inside, here in files.items():
        here = Path(here)
        target = root / str(inside).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if here.is_dir():
            shutil.copytree(
                here, target, symlinks=False, dirs_exist_ok=True, ignore_dangling_symlinks=True
            )
            wanted += [path for path in here.rglob("*") if path.is_file()]
        else:
            shutil.copy(here, target)
            wanted.append(here)
    seen = set()
    for path in wanted:
        with path.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                continue
        listed = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            if library not in seen:
                seen.add(library)
                target = root / library.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, target)
    for name in ("tmp", "run", "var/lib", "etc", "proc", "sys", "dev"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
    )
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    write(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:] or ["/bin/sh"])
