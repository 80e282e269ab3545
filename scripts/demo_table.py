"""Prints the measurements of the demonstration: demo_table.py DIRECTORY BEGAN ENDED."""

import json
import pathlib
import statistics
import sys

where, began, ended = pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])


def load(name):
    return json.loads((where / name).read_text())


def median_ms(result):
    """The median of write + kernel + read, milliseconds."""
    return result["total_ms"]["median"]


native = statistics.median(median_ms(load(f"native.{i}.json")) for i in (1, 2, 3))
shared = statistics.median(median_ms(load(f"baltra.{i}.json")) for i in (1, 2, 3))
print()
print(f"{'Sobel 1920x1080':<28}{'median':>10}")
print(f"{'native':<28}{native:>7.2f} ms")
print(f"{'through Baltra':<28}{shared:>7.2f} ms")
print(f"{'added':<28}{shared - native:>+7.2f} ms  ({100 * (shared / native - 1):+.1f} %)")

before = {u["tenant"]: u["busy_ns"] for u in load("before.json")}
print()
print(f"{'four copies':<12}{'median':>10}{'device busy':>14}{'of wall time':>14}")
for usage in sorted(load("after.json"), key=lambda u: u["tenant"]):
    tenant = usage["tenant"]
    path = where / f"{tenant}.json"
    if not path.exists():
        continue
    busy = (usage["busy_ns"] - before.get(tenant, 0)) / 1e9
    result = median_ms(json.loads(path.read_text()))
    share = 100 * busy / (ended - began)
    print(f"{tenant:<12}{result:>7.2f} ms{busy:>12.2f} s{share:>12.0f} %")
