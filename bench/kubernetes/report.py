#!/usr/bin/env python3
"""A result of run.py as Markdown: bench/kubernetes/report.py RESULT.json"""

import json
import statistics
import sys

# Promised values.
BURST_P50_MS, BURST_P99_MS, PLACED_S, SPREAD, RECOVERED_S, MOVED_S = 5, 20, 60, 0.10, 10, 10
# With steps of 10 %, if half of the devices have two instances and half have three.
LEVEL_DEVIATION = 5


def verdict(met):
    return "met" if met else "**not met**"


def added(rounds, who):
    """A histogram of all rounds."""
    every = [r[who] for r in rounds]
    below = {}
    for one in every:
        for bound, n in one["below"].items():
            below[float(bound)] = below.get(float(bound), 0) + n
    return {
        "below": dict(sorted(below.items())),
        "count": sum(r["count"] for r in every),
        "total_ms": sum(r["total_ms"] for r in every),
    }


def quantile(histogram, part):
    """The bounds of a quantile, ms."""
    before = 0.0
    for bound, n in histogram["below"].items():
        if n >= histogram["count"] * part:
            return before, bound
        before = bound
    return before, float("inf")


def between(bounds):
    low, high = bounds
    return f"> {low:g}" if high == float("inf") else f"{low:g} to {high:g}"


def judged(bounds, most):
    """Met, not met, or undecidable with these buckets."""
    low, high = bounds
    return (
        verdict(high <= most)
        if high <= most or low >= most
        else f"promised {most}: the buckets are too wide"
    )


def burst(result, out):
    times = ", ".join(f"{s:.1f}" for s in result["all_run_s"])
    pods, rounds = result["pods"], len(result["all_run_s"])
    out += [
        f"## {pods} Pods that request a device\n",
        f"At once: a Deployment of {pods}; all ran after {times} s. One at a time: each is created "
        "after the previous one. Times of an "
        f"admission, {rounds} times {pods}; a quantile lies between the bounds of its bucket:\n",
        "| Pods | measured by | admissions | mean ms | p50 ms | | p99 ms | |",
        "|---|---|--:|--:|--:|---|--:|---|",
    ]
    for how in ("at once", "by turns"):
        for who in ("webhook", "API server"):
            h = added(result[how], who)
            p50, p99 = quantile(h, 0.5), quantile(h, 0.99)
            out.append(
                f"| {'one at a time' if how == 'by turns' else how} | {who} | {h['count']:.0f} | "
                f"{h['total_ms'] / h['count']:.2f} | {between(p50)} | "
                f"{judged(p50, BURST_P50_MS)} | {between(p99)} | {judged(p99, BURST_P99_MS)} |"
            )
    out.append("")


def spread(utilizations):
    ordered = sorted(utilizations)
    at = lambda part: ordered[round((len(ordered) - 1) * part)]  # noqa: E731
    return {
        "mean": statistics.fmean(ordered),
        "deviation": statistics.pstdev(ordered),
        "least": ordered[0],
        "p5": at(0.05),
        "p95": at(0.95),
        "most": ordered[-1],
    }


def placement(result, meta, out):
    took = result["all_run_s"]
    live, simulated = spread(result["live"]), spread(result["simulated"])
    apart = live["deviation"] / simulated["deviation"] - 1 if simulated["deviation"] else 0.0
    out += [
        f"## {meta['replicas']:,} instances onto {meta['nodes']} nodes with {meta['devices']} "
        "devices\n",
        f"All ran after {took:.1f} s, with device, node and identity (promised: {PLACED_S} s: "
        f"{verdict(took <= PLACED_S)}).\n",
        "| utilization of a device, % | mean | standard deviation | minimum | p5 | p95 | maximum |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, s in (("live", live), ("simulated", simulated)):
        out.append(f"| {name} | " + " | ".join(f"{v:.2f}" for v in s.values()) + " |")
    wider = "wider" if apart > 0 else "narrower"
    out += [
        "",
        f"The live deviation is {abs(apart):.0%} {wider} than the simulator's (promised: at most "
        f"{SPREAD:.0%} wider: "
        f"{verdict(apart <= SPREAD)}). The optimum is {LEVEL_DEVIATION}.",
        "",
    ]


def deaths(result, meta, out):
    what = list(next(iter(result.values()))[0]["took_s"])
    pods = next(iter(result.values()))[0]["pods"]
    out += [
        f"## Killed, with {pods:,} Pods running\n",
        "Seconds from the kill, the median of the rounds (and the worst). In every round each "
        "running Pod was the same "
        "afterwards, with the same devices, and the registry had exactly these instances.\n",
        "| killed | " + " | ".join(what) + f" | promised: {RECOVERED_S} s |",
        "|---|" + "--:|" * len(what) + "---|",
    ]
    for victim, rounds in result.items():
        cells = []
        for w in what:
            times = [r["took_s"][w] for r in rounds]
            cells.append(f"{statistics.median(times):.1f} ({max(times):.1f})")
        worst = max(max(r["took_s"].values()) for r in rounds)
        out.append(f"| {victim} | " + " | ".join(cells) + f" | {verdict(worst <= RECOVERED_S)} |")
    out.append("")


def moves(result, out):
    rounds = result["rounds"]
    moved = [r["moved_s"] for r in rounds]
    least = min(r["ready_least"] for r in rounds)
    out += [
        f"## {result['pods']} Pods leave a board for its reconfiguration\n",
        f"All had moved after {', '.join(f'{s:.1f}' for s in moved)} s (promised: {MOVED_S} s: "
        f"{verdict(max(moved) <= MOVED_S)}), and the Pod "
        f"for which they left ran after {', '.join('%.1f' % r['runs_s'] for r in rounds)} s. In "
        f"{sum(r['looks'] for r in rounds)} looks never "
        f"fewer than {least} were ready; the disruption budget requires {result['budget']}: "
        f"{verdict(least >= result['budget'])}.",
        "",
    ]


def markdown(result):
    meta = result["meta"]
    out = [
        f"# Baltra in a Kubernetes cluster, {meta['date']}\n",
        f"{meta['cpu']}, {meta['cores']} cores for everything, kernel {meta['kernel']}, commit "
        f"{meta['commit']}; {meta['rounds']} rounds; "
        f"load before the run {meta['load']:.1f}. Kubernetes and Baltra's daemons are real, the "
        "nodes are kwok's.\n",
    ]
    if "burst" in result:
        burst(result["burst"], out)
    if "placement" in result:
        placement(result["placement"], meta, out)
    if "deaths" in result:
        deaths(result["deaths"], meta, out)
    if "moves" in result:
        moves(result["moves"], out)
    return "\n".join(out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        print(markdown(json.load(file)))
