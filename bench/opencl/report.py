#!/usr/bin/env python3
"""Renders a result of run.py as Markdown and SVG, with the targets and the thesis's figures.

usage: report.py RESULT.json
"""

import json
import pathlib
import statistics
import sys

import svg

MICRO = {
    "write_4b_us": "blocking write of 4 B, µs",
    "read_4b_us": "blocking read of 4 B, µs",
    "read_64k_us": "blocking read of 64 KiB, µs",
    "read_1m_us": "blocking read of 1 MiB, µs",
    "empty_kernel_us": "empty kernel + finish, µs",
    "task_4k_us": "task: write 4 KB, kernel, read 4 KB, µs",
    "launches_per_s": "1,000 empty launches, then finish, launches/s",
}

# Baltra's promises by kind of transport: ("add", µs more than native), ("most", times native),
# ("least", times native, for rates), ("stream", share of the rate of one TCP stream),
# ("below", value).
TARGETS = {
    "write_4b_us": {"shm": ("add", 5), "tcp": ("add", 45)},
    "read_4b_us": {"shm": ("add", 5), "tcp": ("add", 45)},
    "read_64k_us": {"shm": ("most", 1.0)},
    "read_1m_us": {"shm": ("most", 1.0)},
    "empty_kernel_us": {"shm": ("add", 10), "tcp": ("add", 45)},
    "task_4k_us": {"shm": ("add", 15), "tcp": ("add", 60)},
    "launches_per_s": {"shm": ("least", 0.5), "tcp": ("least", 0.3)},
    "rw_1048576": {"shm": ("most", 1.3), "tcp": ("stream", 0.8)},
    "rw_268435456": {"shm": ("most", 1.1), "tcp": ("stream", 0.8)},
    "rw_1073741824": {"shm": ("most", 1.1), "tcp": ("stream", 0.8)},
    "rw_2147483648": {"shm": ("most", 1.1), "tcp": ("stream", 0.8)},
    "sobel_1920x1080": {"shm": ("most", 1.05), "tcp": ("most", 1.4)},
    "matmul_512": {"shm": ("most", 1.01), "tcp": ("most", 1.05)},
    "alexnet": {"shm": ("most", 1.05)},
    "connect": {"shm": ("below", 10, 30), "tcp": ("below", 10, 30)},
    "killed": {"shm": ("below", 1000, 1000), "tcp": ("below", 1000, 1000)},
}
SHARE_OF_NATIVE_SUM = 0.5  # for the 4 KB task, with every number of clients, over shared memory
SHARE_SPREAD_MAX = 0.05  # maximum difference between equal tenants

# The thesis's times relative to its native ones: figures 6.1 to 6.3 and table 6.1.
THESIS = {
    "rw_2147483648": (1.48, 4.14),
    "sobel_10x10": (8.7, 9.1),
    "sobel_1920x1080": (1.24, 1.65),
    "matmul_16": (6.2, 5.5),
    "matmul_4096": (1.005, 1.029),
    "alexnet": (1.31, None),
    "vgg16": (1.11, None),
}


def good(records):
    return [r for r in records if "failed" not in r["output"]]


def series_of(record):
    """[(metric, {median, p95, p99})] of one record."""
    out = record["output"]
    if record["suite"] == "micro":
        return [(m, out[m]) for m in MICRO]
    if record["suite"] == "bandwidth":
        return [(record["metric"], out["sizes"][0]["total_ms"])] if out.get("sizes") else []
    if record["suite"] == "apps":
        return [(record["metric"], out["total_ms"])]
    return []


class Table:
    """metric -> config -> round -> {median, p95, p99}"""

    def __init__(self, result):
        self.result = result
        self.cells = {}
        for record in good(result["records"]):
            for metric, values in series_of(record):
                self.cells.setdefault(metric, {}).setdefault(record["config"], {})[
                    record["round"]
                ] = values
        streams = [
            r["output"]["bytes_per_s"]
            for r in good(result["records"])
            if r["metric"] == "tcp_stream"
        ]
        self.stream = statistics.median(streams) if streams else None

    def median(self, metric, config, what="median"):
        rounds = self.cells.get(metric, {}).get(config, {})
        return statistics.median(r[what] for r in rounds.values()) if rounds else None

    def ratio(self, metric, config):
        """Median over rounds of (this round's median / the same round's native median)."""
        rounds, native = (self.cells.get(metric, {}).get(c, {}) for c in (config, "native"))
        pairs = [
            rounds[r]["median"] / native[r]["median"]
            for r in rounds
            if r in native and native[r]["median"]
        ]
        return statistics.median(pairs) if pairs else None


def verdict(table, metric, config):
    """(target as text, met or None)"""
    rule = TARGETS.get(metric, {}).get(config["kind"])
    value, native, ratio = (
        table.median(metric, config["name"]),
        table.median(metric, "native"),
        table.ratio(metric, config["name"]),
    )
    if not rule or value is None or native is None:
        return "", None
    if rule[0] == "add":
        return f"≤ native + {rule[1]} µs", value <= native + rule[1]
    if rule[0] == "most":
        return f"≤ {rule[1]} × native", ratio <= rule[1]
    if rule[0] == "least":
        return f"≥ {rule[1]} × native", ratio >= rule[1]
    if rule[0] == "stream" and table.stream:
        limit = 2 * int(metric[3:]) / table.stream * 1e3 / rule[1]
        return f"≤ {limit:.3g} ms ({rule[1]} × one TCP stream)", value <= limit
    return "", None


def met(flag):
    return {True: "met", False: "**not met**", None: ""}[flag]


def figure(value):
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 10000 else f"{value:.4g}"


def rows(table, metrics, label, thesis=False):
    names = [c["name"] for c in table.result["configs"]]
    head = [
        "",
        "configuration",
        "median",
        "p95",
        "p99",
        "× native",
        "target",
        "",
        *(["thesis shm, gRPC: × native"] if thesis else []),
    ]
    out = [
        "| " + " | ".join(head) + " |",
        "|---|---|--:|--:|--:|--:|---|---|" + ("---|" if thesis else ""),
    ]
    for metric in metrics:
        for i, config in enumerate(table.result["configs"]):
            name = names[i]
            if table.median(metric, name) is None:
                continue
            ratio = table.ratio(metric, name)
            target, flag = verdict(table, metric, config)
            cells = [
                label(metric) if i == 0 else "",
                name,
                *(figure(table.median(metric, name, w)) for w in ("median", "p95", "p99")),
                f"{ratio:.3f}" if ratio and name != "native" else "",
                target,
                met(flag),
            ]
            if thesis:
                cells.append(
                    ", ".join(f"{v}" for v in THESIS.get(metric, ()) if v) if i == 0 else ""
                )
            out.append("| " + " | ".join(cells) + " |")
    return out


def bytes_label(size):
    for unit, scale in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= scale:
            return f"{size // scale} {unit}"
    return f"{size} B"


def clients_section(result):
    groups = {}
    for r in result["records"]:
        if r["suite"] == "clients":
            groups.setdefault((int(r["metric"].split("_")[1]), r["config"]), {}).setdefault(
                r["round"], []
            ).append(r)
    if not groups:
        return [], {}
    summary = {}
    for key, rounds in groups.items():
        sums, spreads, p50, p99, failures = [], [], [], [], 0
        for records in rounds.values():
            fine = good(records)
            failures += len(records) - len(fine)
            failures += sum(1 for r in fine if r["output"]["wrong"])
            if not fine:
                continue
            rates = [r["output"]["per_s"] for r in fine]
            sums.append(sum(rates))
            mean = sum(rates) / len(rates)
            spreads.append(max(abs(rate - mean) / mean for rate in rates))
            p50.append(statistics.median(r["output"]["latency_us"]["median"] for r in fine))
            p99.append(max(r["output"]["latency_us"]["p99"] for r in fine))
        middle = lambda values: statistics.median(values) if values else None
        summary[key] = {
            "sum": middle(sums),
            "spread": middle(spreads),
            "p50": middle(p50),
            "p99": middle(p99),
            "failures": failures,
        }
    out = [
        "## The 4 KB task from several clients at once",
        "",
        "| clients | configuration | tasks/s together | × native | most unequal share | p50 µs | "
        "worst p99 µs | failures | target | |",
        "|--:|---|--:|--:|--:|--:|--:|--:|---|---|",
    ]
    for count in sorted({k[0] for k in summary}):
        for config in result["configs"]:
            s = summary.get((count, config["name"]))
            if not s:
                continue
            native = summary.get((count, "native"), {}).get("sum")
            ratio = s["sum"] / native if s["sum"] and native else None
            target, flag = "", None
            if config["kind"] == "shm" and ratio:
                target = f"≥ {SHARE_OF_NATIVE_SUM} × native, shares within {SHARE_SPREAD_MAX:.0%}, no failures"
                flag = (
                    ratio >= SHARE_OF_NATIVE_SUM
                    and s["spread"] <= SHARE_SPREAD_MAX
                    and not s["failures"]
                )
            elif config["kind"] == "tcp":
                target, flag = "no failures", not s["failures"]
            spread = f"{s['spread']:.1%}" if s["spread"] is not None else "–"
            out.append(
                f"| {count} | {config['name']} | {figure(s['sum'])} | "
                f"{f'{ratio:.2f}' if ratio and config['name'] != 'native' else ''} "
                f"| {spread} | {figure(s['p50'])} | {figure(s['p99'])} | {s['failures']} | "
                f"{target} | {met(flag)} |"
            )
    return out + [""], summary


def neighbor_section(result):
    records = [r for r in good(result["records"]) if r["suite"] == "neighbor"]
    if not records:
        return []
    out = [
        "## The 4 KB task concurrent with a client that loops matrix multiplications",
        "",
        "| configuration | tasks/s alone | tasks/s concurrent | ratio | p50 µs | p99 µs | worst µs "
        "| multiplications/s | time of one, ms | target | |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|---|",
    ]
    for config in result["configs"]:

        def values(metric, work, get):
            found = [
                get(r["output"])
                for r in records
                if (r["config"], r["metric"], r["work"]) == (config["name"], metric, work)
            ]
            return statistics.median(found) if found else None

        alone, beside = (values(m, "task", lambda o: o["per_s"]) for m in ("alone", "beside"))
        if beside is None:
            continue
        latency = [
            values("beside", "task", lambda o, w=w: o["latency_us"][w])
            for w in ("median", "p99", "max")
        ]
        kept = f"{beside / alone:.1%}" if alone else "–"
        rate = values("beside", "matmul", lambda o: o["per_s"])
        one_us = values("beside", "matmul", lambda o: o["latency_us"]["median"])
        target, flag = "", None
        if config["kind"] != "native" and one_us:
            target, flag = "p99 ≤ one multiplication", latency[1] <= one_us
        out.append(
            f"| {config['name']} | {figure(alone)} | {figure(beside)} | {kept} | "
            + " | ".join(map(figure, latency))
            + f" | {figure(rate)} | {figure(one_us / 1e3 if one_us else None)} | {target} | "
            f"{met(flag)} |"
        )
    return out + [""]


def starts_section(result, suite, title, key):
    """One chart per process, in milliseconds."""
    out = []
    for config in result["configs"]:
        totals = sorted(
            r["output"][key]
            for r in good(result["records"])
            if r["suite"] == suite and r["config"] == config["name"]
        )
        if not totals:
            continue
        at = lambda p: totals[min(len(totals) - 1, round(p / 100 * (len(totals) - 1)))]
        rule = TARGETS[suite].get(config["kind"])
        target = f"≤ {rule[1]} ms, p99 ≤ {rule[2]} ms" if rule else ""
        flag = at(50) <= rule[1] and at(99) <= rule[2] if rule else None
        out.append(
            f"| {config['name']} | {len(totals)} | {figure(at(50))} | {figure(at(95))} | "
            f"{figure(at(99))} | {target} | {met(flag)} |"
        )
    if not out:
        return []
    return [
        f"## {title}, ms",
        "",
        "| configuration | processes | median | p95 | p99 | target | |",
        "|---|--:|--:|--:|--:|---|---|",
        *out,
        "",
    ]


def checks_section(result):
    """Every configuration must have computed the same bytes."""
    sums = {}
    for r in good(result["records"]):
        if "checksum" in r["output"]:
            sums.setdefault(r["metric"], {}).setdefault(r["output"]["checksum"], set()).add(
                r["config"]
            )
    differing = [m for m, by in sums.items() if len(by) > 1]
    failed = [r for r in result["records"] if "failed" in r["output"]]
    out = []
    if sums:
        out.append(
            f"Results of {len(sums)} computations compared: "
            + (
                "all have the same bytes."
                if not differing
                else "**different bytes in " + ", ".join(differing) + "**."
            )
        )
    out.append(f"Processes that failed: {len(failed)} of {len(result['records'])}.")
    out += [f"- {r['config']} {r['metric']}: {r['output']['failed']}" for r in failed[:20]]
    return out + [""]


def charts(table, summary):
    names = [c["name"] for c in table.result["configs"]]

    def lines(metrics, x_of):
        return {
            n: [(x_of(m), table.median(m, n)) for m in metrics if table.median(m, n)] for n in names
        }

    of = lambda start: [m for m in table.cells if m.startswith(start)]
    pixels = lambda m: int(m[6:].split("x")[0]) * int(m.split("x")[1])
    sizes = {int(m[3:]): bytes_label(int(m[3:])) for m in of("rw_")}
    found = {
        "fig-6.1-bandwidth": svg.chart(
            "Write + read of one buffer",
            "bytes",
            "ms",
            lines(of("rw_"), lambda m: int(m[3:])),
            x_labels=sizes,
        ),
        "fig-6.2-sobel": svg.chart("Sobel", "pixels", "ms", lines(of("sobel_"), pixels)),
        "fig-6.3-matmul": svg.chart(
            "Matrix multiply",
            "rows and columns",
            "ms",
            lines(of("matmul_"), lambda m: int(m[7:])),
            x_labels={int(m[7:]): m[7:] for m in of("matmul_")},
        ),
    }
    counts = {k[0]: str(k[0]) for k in summary}
    for what, title, unit in (
        ("sum", "4 KB tasks per second, all clients together", "tasks/s"),
        ("p99", "4 KB task, worst client's p99", "µs"),
    ):
        found[f"clients-{what}"] = svg.chart(
            title,
            "clients",
            unit,
            {
                n: [(c, s[what]) for (c, name), s in summary.items() if name == n and s[what]]
                for n in names
            },
            log_y=what == "p99",
            x_labels=counts,
        )
    return {name: text for name, text in found.items() if text}


def render(result):
    table = Table(result)
    m = result["machine"]
    out = [
        f"# OpenCL, {result['started'][:10]}",
        "",
        f"{m['cpu']}, {m['cores']} cores, {m['memory_gb']} GB, kernel {m['kernel']}, commit "
        f"{m['commit']}."
        + (
            " A quick run, which checks that everything runs, and has too few repetitions to quote."
            if result["quick"]
            else ""
        ),
        "",
        "Medians over rounds of each round's median, p95 and p99; the ratio is the median of each "
        "round's own ratio.",
        "",
    ]
    of = lambda start: [k for k in table.cells if k.startswith(start)]
    if of("write_4b"):
        out += [
            "## Smallest operations",
            "",
            *rows(table, MICRO, MICRO.get),
            "",
            "The thesis adds 2–3 ms to the smallest task.",
            "",
        ]
    if of("rw_"):
        out += [
            "## Write + read of one buffer, ms (thesis, figure 6.1)",
            "",
            *rows(table, of("rw_"), lambda k: bytes_label(int(k[3:])), thesis=True),
            "",
        ]
    apps = of("sobel_") + of("matmul_") + of("alexnet") + of("vgg16")
    if apps:
        out += [
            "## Applications, ms (thesis, figures 6.2 and 6.3, table 6.1)",
            "",
            *rows(table, apps, lambda k: k.replace("_", " "), thesis=True),
            "",
        ]
    clients, summary = clients_section(result)
    out += clients + neighbor_section(result)
    out += starts_section(result, "connect", "Connect and first command", "total_ms")
    out += starts_section(
        result, "killed", "From SIGKILL in a transfer until all resources are freed", "freed_ms"
    )
    out += checks_section(result)
    return out, charts(table, summary)


def write(result, stem):
    """Writes STEM.md and STEM-*.svg; returns the Markdown."""
    out, pictures = render(result)
    for name, text in pictures.items():
        path = stem.with_name(f"{stem.name}-{name}.svg")
        path.write_text(text)
        out.append(f"![{name}]({path.name})")
    text = "\n".join(out) + "\n"
    stem.with_name(stem.name + ".md").write_text(text)
    return text


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    source = pathlib.Path(sys.argv[1])
    print(write(json.loads(source.read_text()), source.with_suffix("")), end="")
