#!/usr/bin/env python3
"""Tests webhook and controllers on a real API server: allocations, refusals with reasons,
recovery from failures.

    scripts/kubernetes/build.sh && target/venv/bin/python scripts/kubernetes/tests/api_test.py [PART
    OF A NAME …]

Nodes are fake (kwok) and so are their managers' devices; registry, webhook, controllers and
everything of Kubernetes are real. No test depends on time, except for a patience."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from api_containers import Containers  # noqa: E402
from api_recovery import Recovery  # noqa: E402
from api_refusals import Refusals  # noqa: E402
from api_resources import Resources  # noqa: E402
from cluster import isolate  # noqa: E402
from runner import run as run_tests  # noqa: E402


class Tests(Resources, Containers, Refusals, Recovery):
    """All of them, in one cluster."""


if __name__ == "__main__":
    isolate()
    run_tests(Tests, sys.argv[1:])
