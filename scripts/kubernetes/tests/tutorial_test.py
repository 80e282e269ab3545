#!/usr/bin/env python3
"""Runs the tutorial's commands as a cluster's administrator would, on a real node that has the
images of Baltra and of an OpenCL program.

    scripts/kubernetes/build.sh control node && target/venv/bin/python
    scripts/kubernetes/tests/tutorial_test.py
"""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cluster import ROOT, Cluster, isolate  # noqa: E402
from installation import load_images  # noqa: E402
from runner import run as run_tests  # noqa: E402

PAGE = ROOT / "docs/tutorials/on-kubernetes.md"


class Tests:
    def __init__(self):
        self.cluster = Cluster(nodes=1, logs=ROOT / "target/test-logs/kubernetes-tutorial")
        load_images(self.cluster)

    def end(self):
        self.cluster.end()

    def test_the_tutorial_shows_what_happens(self):
        # kubectl's cache of the API is below HOME, which the tutorial has of its own.
        command = [sys.executable, ROOT / "scripts/tutorials.py", "--with", "kubernetes", PAGE]
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert ran.returncode == 0, ran.stdout


if __name__ == "__main__":
    isolate()
    run_tests(Tests, sys.argv[1:])
