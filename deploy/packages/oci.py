"""The container image of all daemons, without a container runtime: an OCI layout in a tar archive,
with the index that `docker load` reads.

The image contains the program, the library, what both are linked with, and neither a shell nor a
driver. It runs as an unprivileged user; the chart gives the node's container what its devices
need."""

import hashlib
import json
import re
import time

from release import LIBRARY, PROGRAM, archive, compress, output

USER = 65532
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIGURATION = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def build(release, work, out):
    """Writes the image's archive into `out`; returns its path."""
    tar = archive(files(release), release.epoch)
    layer = compress(tar, 6)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch))
    configuration = text(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": created,
            "config": {
                "User": f"{USER}:{USER}",
                "Env": ["PATH=/usr/local/bin", "BALTRA_RUNTIME_DIR=/run/baltra"],
                "Entrypoint": [f"/usr/local/bin/{PROGRAM}"],
                "Labels": {
                    "org.opencontainers.image.title": "baltra",
                    "org.opencontainers.image.version": release.version,
                    "org.opencontainers.image.licenses": "Apache-2.0",
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(tar)]},
            "history": [{"created": created, "created_by": "deploy/packages/oci.py"}],
        }
    )
    manifest = text(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIGURATION, configuration),
            "layers": [descriptor(LAYER, layer)],
        }
    )
    name = f"{PROGRAM}:{release.version}"
    annotations = {
        "io.containerd.image.name": f"docker.io/library/{name}",
        "org.opencontainers.image.ref.name": release.version,
    }
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [descriptor(MANIFEST, manifest) | {"annotations": annotations}],
    }
    docker = [{"Config": blob(configuration), "RepoTags": [name], "Layers": [blob(layer)]}]
    contents = {blob(content): content for content in (layer, configuration, manifest)}
    contents["oci-layout"] = text({"imageLayoutVersion": "1.0.0"})
    contents["index.json"] = text(index)
    contents["manifest.json"] = text(docker)
    path = out / f"{PROGRAM}-{release.version}.oci.tar"
    layout = {name: (0o644, content) for name, content in contents.items()}
    path.write_bytes(archive(layout, release.epoch))
    return path


def files(release):
    """The layer: {path: (mode, bytes)}."""
    found = {
        f"usr/local/bin/{PROGRAM}": (0o755, release.program.read_bytes()),
        f"usr/local/lib/{LIBRARY}": (0o644, release.library.read_bytes()),
        "etc/passwd": (0o644, f"root:x:0:0::/:/\nbaltra:x:{USER}:{USER}::/:/\n".encode()),
        "etc/group": (0o644, f"root:x:0:\nbaltra:x:{USER}:\n".encode()),
        # The daemons add a driver's messages in the language of the image, which is none.
        "etc/nsswitch.conf": (0o644, b"hosts: files dns\n"),
    }
    for path in libraries(release.program) | libraries(release.library):
        with open(path, "rb") as file:
            found[path.lstrip("/")] = (0o755, file.read())
    parents = {
        f"{'/'.join(path.split('/')[:n])}" for path in found for n in range(1, path.count("/") + 1)
    }
    found |= {path: (0o755, None) for path in parents}
    for path in ("run/baltra", "var/lib/baltra", "tmp"):
        for n in range(1, path.count("/") + 2):
            found.setdefault("/".join(path.split("/")[:n]), (0o755, None))
        # The unprivileged user, or that of a Pod, writes here.
        found[path] = (0o1777, None)
    return found


def libraries(binary):
    """The paths of the libraries that a binary is linked with, and of those for names and hosts."""
    listed = re.findall(r"(/\S+) \(0x", output("ldd", binary))
    return set(listed)


def text(value):
    """JSON that is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest(content):
    """A digest, as the format names it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def blob(content):
    """The path of a blob in the layout."""
    return f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"


def descriptor(kind, content):
    """A reference to a blob."""
    return {"mediaType": kind, "digest": digest(content), "size": len(content)}
