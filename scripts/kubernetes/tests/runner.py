"""Runs a class of tests: the methods whose names begin with test_, its own first and then each
base's; arguments on the command line select some."""

import sys
import time
import traceback


def run(make, names):
    """Creates the tests' object, runs the tests in their order, and prints the number of passed
    tests. The object's end() is always called; its between(), if it has one,
    is called before each test."""
    tests = make()
    passed, failed = 0, []
    try:
        parts = type(tests).__mro__
        chosen = [name for part in parts for name in vars(part) if name.startswith("test_")]
        if names:
            chosen = [test for test in chosen if any(name in test for name in names)]
        for name in chosen:
            began = time.monotonic()
            try:
                if hasattr(tests, "between"):
                    tests.between()
                getattr(tests, name)()
                passed += 1
                print(f"test {name} ... ok ({time.monotonic() - began:.1f} s)", flush=True)
            except Exception:
                failed.append(name)
                traceback.print_exc()
                print(f"test {name} ... FAILED", flush=True)
    finally:
        tests.end()
    for name in failed:
        print(f"failed: {name}")
    print(f"result of all: {passed} passed, {len(failed)} failed")
    sys.exit(1 if failed or not passed else 0)
