"""The software bill of materials, CycloneDX 1.5: the crates that the binaries contain."""

import json
import time
import tomllib
import uuid

from release import ROOT, output

TARGET = "x86_64-unknown-linux-gnu"
BINARIES = ("baltra-cli", "baltra-icd")


def build(release, work, out):
    """Writes the bill into `out`; returns its path."""
    metadata = json.loads(
        output(
            "cargo",
            "metadata",
            "--locked",
            "--format-version=1",
            f"--filter-platform={TARGET}",
            cwd=ROOT,
        )
    )
    packages = {package["id"]: package for package in metadata["packages"]}
    linked = reachable(metadata, packages)
    checksums = locked()
    components = [component(packages[id], checksums) for id in linked]
    references = {packages[id]["id"]: reference(packages[id]) for id in linked}
    graph = {
        node["id"]: [d["pkg"] for d in node["deps"] if is_normal(d) and d["pkg"] in linked]
        for node in metadata["resolve"]["nodes"]
        if node["id"] in linked
    }
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, serial(release, references))}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch)),
            "component": {
                "type": "application",
                "bom-ref": f"baltra@{release.version}",
                "name": "baltra",
                "version": release.version,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": sorted(components, key=lambda c: c["bom-ref"]),
        "dependencies": sorted(
            [
                {
                    "ref": f"baltra@{release.version}",
                    "dependsOn": sorted(
                        r for i, r in references.items() if packages[i]["name"] in BINARIES
                    ),
                },
                *(
                    {"ref": references[id], "dependsOn": sorted({references[d] for d in graph[id]})}
                    for id in linked
                ),
            ],
            key=lambda d: d["ref"],
        ),
    }
    path = out / f"baltra-{release.version}.cdx.json"
    path.write_text(json.dumps(bill, indent=1) + "\n")
    return path


def serial(release, references):
    """A text that differs between bills with other contents."""
    return f"{release.version} {release.epoch} {' '.join(sorted(references.values()))}"


def is_normal(dependency):
    """Whether the dependency is part of the binary: neither for tests nor for builds."""
    return any(kind["kind"] is None for kind in dependency["dep_kinds"])


def reachable(metadata, packages):
    """The packages that are linked into the binaries."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [id for id, package in packages.items() if package["name"] in BINARIES]
    found = set()
    while waiting:
        id = waiting.pop()
        if id not in found:
            found.add(id)
            waiting += [d["pkg"] for d in nodes[id]["deps"] if is_normal(d)]
    return found


def locked():
    """{(name, version): SHA-256} of the packages from the registry."""
    with (ROOT / "Cargo.lock").open("rb") as file:
        packages = tomllib.load(file)["package"]
    return {(p["name"], p["version"]): p["checksum"] for p in packages if "checksum" in p}


def reference(package):
    """The package's URL."""
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    """A crate in the bill."""
    entry = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package.get("license"):
        # Some crates separate alternatives with a slash, which is not an SPDX expression.
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry
