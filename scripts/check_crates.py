#!/usr/bin/env python3
"""Checks that crates which are trusted alone do not depend on crates which they must not contain.

Reads the normal dependencies from `cargo metadata`, as `cargo tree -e normal` shows them, and
follows them from crate to crate.

usage: scripts/check_crates.py

Exit status: 0 clean, 1 a forbidden dependency, 2 `cargo metadata` failed.
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# (crate, the crates that it must not depend on, directly or indirectly, and the reason)
FORBIDDEN = [
    ("wire", ["rustix", "libc", "tokio"], "the protocols do no I/O"),
    ("gate", ["rustix", "tokio"], "the scheduler does no I/O"),
    ("manager", ["executor", "opencl"], "the manager must not link code of drivers"),
    ("manager", ["registry"], "the manager is a client of the registry"),
    ("native", ["executor"], "a native function's process needs the sandbox alone"),
    (
        "vfun",
        ["executor", "gateway", "manager", "registry"],
        "a VM's worker needs the engine alone",
    ),
    ("engine", ["gateway", "manager", "registry", "redb"], "the engine is a client of daemons"),
    ("gateway", ["manager", "registry", "redb"], "the gateway is a client of the registry"),
    ("kubernetes", ["manager", "registry", "redb"], "the controller is a client of daemons"),
    ("cluster", ["registry", "redb"], "the launcher is a client of the registry"),
    ("simulate", ["manager"], "the simulator runs the gate without the manager"),
    ("session", ["vguest"], "a session needs the shared region alone"),
]


def crate(name, names):
    """The name of a workspace's crate is its folder's name; other packages have their own names."""
    return "baltra-" + name if "baltra-" + name in names else name


def path(graph, start, end):
    """A chain of dependencies from `start` to `end`, or None."""
    seen = {start: None}
    queue = [start]
    for node in queue:
        if node == end:
            chain = [node]
            while seen[chain[-1]] is not None:
                chain.append(seen[chain[-1]])
            return chain[::-1]
        for dependency in graph.get(node, ()):
            if dependency not in seen:
                seen[dependency] = node
                queue.append(dependency)
    return None


def main():
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        print(listed.stderr, end="", file=sys.stderr)
        return 2
    metadata = json.loads(listed.stdout)
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    graph = {}
    for node in metadata["resolve"]["nodes"]:
        normal = [
            names[dependency["pkg"]]
            for dependency in node["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
        graph.setdefault(names[node["id"]], set()).update(normal)
    failed = False
    for source, targets, reason in FORBIDDEN:
        for target in targets:
            start, end = crate(source, graph), crate(target, graph)
            missing = [name for name in (start, end) if name not in graph]
            if missing:
                print(
                    f"error: there is no crate '{missing[0]}': correct FORBIDDEN in {sys.argv[0]}"
                )
                failed = True
                continue
            chain = path(graph, start, end)
            if chain:
                print(f"error: {' -> '.join(chain)}: {reason}")
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
