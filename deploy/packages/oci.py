"""The container images, one for each daemon, without a container runtime: an OCI layout in a tar
archive, with the index that `docker load` reads.

An image contains the program, what it is linked with, and neither a shell nor a driver; those of
the manager and of the node's agent also contain the library for programs. All images share the
layer of the program. They run as an unprivileged user; the chart gives the node's containers what
its devices need."""

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

# Each image's default arguments, and whether it contains the library.
DAEMONS = {
    "manager": (["manager"], True),
    "registry": (["registry"], False),
    "gateway": (["gateway"], False),
    "webhook": (["kubernetes", "webhook"], False),
    "controller": (["kubernetes", "controller"], False),
    "node": (["kubernetes", "node"], True),
}


def build(release, work, out):
    """Writes the images' archive into `out`; returns its path."""
    program = layer(program_files(release), release.epoch)
    library = layer(library_files(release), release.epoch)
    contents, manifests, docker = {}, [], []
    for daemon, (command, has_library) in DAEMONS.items():
        layers = [program, library] if has_library else [program]
        configuration = text(configured(release, daemon, command, layers))
        manifest = text(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": descriptor(CONFIGURATION, configuration),
                "layers": [descriptor(LAYER, packed) for _, packed in layers],
            }
        )
        name = f"{PROGRAM}-{daemon}:{release.version}"
        annotations = {
            "io.containerd.image.name": f"docker.io/library/{name}",
            "org.opencontainers.image.ref.name": name,
        }
        manifests.append(descriptor(MANIFEST, manifest) | {"annotations": annotations})
        blobs = [blob(packed) for _, packed in layers]
        docker.append({"Config": blob(configuration), "RepoTags": [name], "Layers": blobs})
        parts = [configuration, manifest, *(packed for _, packed in layers)]
        contents |= {blob(part): part for part in parts}
        print(f"image {name}: {sum(map(len, parts)) / 1e6:.1f} MB", flush=True)
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    contents["oci-layout"] = text({"imageLayoutVersion": "1.0.0"})
    contents["index.json"] = text(index)
    contents["manifest.json"] = text(docker)
    path = out / f"{PROGRAM}-{release.version}.oci.tar"
    layout = {name: (0o644, content) for name, content in contents.items()}
    path.write_bytes(archive(layout, release.epoch))
    return path


def layer(files, epoch):
    """A layer's archive, and the same compressed."""
    tar = archive(files, epoch)
    return tar, compress(tar, 6)


def configured(release, daemon, command, layers):
    """The configuration of an image."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch))
    history = {"created": created, "created_by": "deploy/packages/oci.py"}
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/local/bin", "BALTRA_RUNTIME_DIR=/run/baltra"],
            "Entrypoint": [f"/usr/local/bin/{PROGRAM}"],
            "Cmd": command,
            "Labels": {
                "org.opencontainers.image.title": f"{PROGRAM}-{daemon}",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(tar) for tar, _ in layers]},
        "history": [history] * len(layers),
    }


def program_files(release):
    """The layer of the program: {path: (mode, bytes)}."""
    found = {
        f"usr/local/bin/{PROGRAM}": (0o755, release.program.read_bytes()),
        "etc/passwd": (0o644, f"root:x:0:0::/:/\nbaltra:x:{USER}:{USER}::/:/\n".encode()),
        "etc/group": (0o644, f"root:x:0:\nbaltra:x:{USER}:\n".encode()),
        # Name resolution without a language: the image has none.
        "etc/nsswitch.conf": (0o644, b"hosts: files dns\n"),
    }
    found |= linked(release.program)
    # The unprivileged user, or that of a Pod, writes here.
    writable = {path: (0o1777, None) for path in ("run/baltra", "var/lib/baltra", "tmp")}
    return parents(found | writable) | found | writable


def library_files(release):
    """The layer of the library."""
    found = {f"usr/local/lib/{LIBRARY}": (0o644, release.library.read_bytes())}
    # Libraries that the program is linked with are in its layer.
    needed = linked(release.library).items() - linked(release.program).items()
    found |= dict(needed)
    return parents(found) | found


def parents(files):
    """The directories of files."""
    above = {"/".join(path.split("/")[:n]) for path in files for n in range(1, path.count("/") + 1)}
    return {path: (0o755, None) for path in above}


def linked(binary):
    """The libraries that a binary is linked with."""
    found = {}
    for path in libraries(binary):
        with open(path, "rb") as file:
            found[path.lstrip("/")] = (0o755, file.read())
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
