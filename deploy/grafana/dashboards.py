#!/usr/bin/env python3
"""Writes the Grafana dashboards of the doors, and the links between all dashboards.

usage: deploy/grafana/dashboards.py [--check]

  --check   compares the files instead of writing them; exit status 1: some differ

`baltra.json`, the overview, is edited in Grafana. The tests check that the daemons export each
metric of every dashboard (crates/tests/tests/monitoring.rs), and that Prometheus can parse each
query (deploy/prometheus/check.sh)."""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RATE = "[$__rate_interval]"
COLUMNS = 24


def rate(metric, by="", match=""):
    """The growth of a counter per second, summed."""
    by = f" by ({by})" if by else ""
    return f"sum{by} (rate({metric}{match}{RATE}))"


def quantile(q, metric, by, match=""):
    """A quantile of a histogram."""
    return f"histogram_quantile({q}, {rate(f'{metric}_bucket', f'{by}, le', match)})"


def mean(total, count, by, match=""):
    """The mean of what two counters count."""
    return f"{rate(total, by, match)} / {rate(count, by, match)}"


DEVICE = '{device=~"$device"}'
TENANT = '{tenant=~"$tenant"}'
FUNCTION = '{function=~"$function"}'
NODE = '{node=~"$node"}'
AT = "instance, device"
HERE_ = "{{instance}} {{device}}"

# Each dashboard: title, description, variables {name: metric with that label}, rows
# [(title, [(panel's title, unit, [(query, legend)])])].
DASHBOARDS = {
    "opencl": (
        "Baltra: OpenCL",
        "Sessions of OpenCL programs, their tasks and their memory",
        {"device": "baltra_device_up", "tenant": "baltra_sessions"},
        [
            (
                "Sessions",
                [
                    (
                        "Open sessions by tenant",
                        "short",
                        [(f"sum by (tenant) (baltra_sessions{DEVICE})", "{{tenant}}")],
                    ),
                    (
                        "Open sessions by transport",
                        "short",
                        [
                            (
                                f"sum by (transport) (baltra_transport_sessions{DEVICE})",
                                "{{transport}}",
                            )
                        ],
                    ),
                    (
                        "Opened sessions / s",
                        "short",
                        [(rate("baltra_sessions_opened_total", "tenant", DEVICE), "{{tenant}}")],
                    ),
                ],
            ),
            (
                "Tasks",
                [
                    (
                        "Tasks / s by tenant",
                        "ops",
                        [(rate("baltra_tasks_total", "tenant", DEVICE), "{{tenant}}")],
                    ),
                    (
                        "Commands / s by tenant",
                        "ops",
                        [(rate("baltra_commands_total", "tenant", DEVICE), "{{tenant}}")],
                    ),
                    (
                        "Device time by tenant (1: a whole device)",
                        "short",
                        [
                            (
                                rate("baltra_device_busy_seconds_total", "tenant", DEVICE),
                                "{{tenant}}",
                            )
                        ],
                    ),
                    (
                        "Task latency",
                        "s",
                        [
                            (
                                quantile(q, "baltra_task_latency_seconds", AT, DEVICE),
                                f"{name} {HERE_}",
                            )
                            for q, name in ((0.5, "p50"), (0.99, "p99"))
                        ],
                    ),
                    (
                        "Longest time without progress",
                        "s",
                        [(f"max by ({AT}) (baltra_task_stalled_seconds{DEVICE})", HERE_)],
                    ),
                    (
                        "Executors ended by tenants' work in 10 minutes",
                        "short",
                        [
                            (
                                f"sum by (tenant, cause) (increase(baltra_executor_faults_total{DEVICE}[10m]))",
                                "{{tenant}}: {{cause}}",
                            )
                        ],
                    ),
                ],
            ),
            (
                "Memory",
                [
                    (
                        "Held by sessions",
                        "bytes",
                        [(f"sum by (tenant) (baltra_memory_bytes{DEVICE})", "{{tenant}}")],
                    ),
                    (
                        "Resident and swapped objects",
                        "bytes",
                        [
                            (
                                f"sum by (device) (baltra_resident_memory_bytes{DEVICE})",
                                "{{device}} resident",
                            ),
                            (
                                f"sum by (device) (baltra_swapped_memory_bytes{DEVICE})",
                                "{{device}} swapped",
                            ),
                        ],
                    ),
                    (
                        "Bytes moved",
                        "Bps",
                        [
                            (
                                rate("baltra_bytes_total", "tenant, direction", DEVICE),
                                "{{tenant}} {{direction}}",
                            )
                        ],
                    ),
                ],
            ),
        ],
    ),
    "http": (
        "Baltra: HTTP",
        "Functions behind URLs: calls, latency, overload, containers",
        {"function": "baltra_gateway_calls_total", "tenant": "baltra_gateway_calls_total"},
        [
            (
                "Calls",
                [
                    (
                        "Calls / s by tenant",
                        "reqps",
                        [(rate("baltra_gateway_calls_total", "tenant", TENANT), "{{tenant}}")],
                    ),
                    (
                        "Calls / s by ending",
                        "reqps",
                        [(rate("baltra_gateway_calls_total", "ending", FUNCTION), "{{ending}}")],
                    ),
                    (
                        "Latency",
                        "s",
                        [
                            (
                                quantile(
                                    q, "baltra_gateway_call_latency_seconds", "function", FUNCTION
                                ),
                                f"{name} {{{{function}}}}",
                            )
                            for q, name in ((0.5, "p50"), (0.99, "p99"))
                        ],
                    ),
                    (
                        "Mean time in the queue",
                        "s",
                        [
                            (
                                mean(
                                    "baltra_gateway_call_queue_seconds_total",
                                    "baltra_gateway_calls_total",
                                    "function",
                                    FUNCTION,
                                ),
                                "{{function}}",
                            )
                        ],
                    ),
                    (
                        "Mean time on the device",
                        "s",
                        [
                            (
                                mean(
                                    "baltra_gateway_call_device_seconds_total",
                                    "baltra_gateway_calls_total",
                                    "function",
                                    FUNCTION,
                                ),
                                "{{function}}",
                            )
                        ],
                    ),
                    (
                        "Requests merged into one launch, mean",
                        "short",
                        [
                            (
                                mean(
                                    "baltra_gateway_batch_sum",
                                    "baltra_gateway_batch_count",
                                    "function",
                                    FUNCTION,
                                ),
                                "{{function}}",
                            )
                        ],
                    ),
                ],
            ),
            (
                "Overload",
                [
                    (
                        "Refused calls / s by reason",
                        "reqps",
                        [
                            (
                                rate("baltra_gateway_calls_shed_total", "reason", FUNCTION),
                                "{{reason}}",
                            )
                        ],
                    ),
                    (
                        "Longest time past a deadline; time without calls",
                        "s",
                        [
                            (
                                f"max by (function) (baltra_gateway_overdue_seconds{FUNCTION})",
                                "{{function}} overdue",
                            ),
                            (
                                f"max by (function) (baltra_gateway_held_off_seconds{FUNCTION})",
                                "{{function}} held off",
                            ),
                        ],
                    ),
                    (
                        "Memory of requests and responses",
                        "bytes",
                        [
                            ("sum(baltra_gateway_memory_held_bytes)", "held"),
                            ("sum(baltra_gateway_memory_max_bytes)", "limit"),
                        ],
                    ),
                    (
                        "Open connections",
                        "short",
                        [("sum(baltra_gateway_connections)", "connections")],
                    ),
                    (
                        "Asynchronous calls and callbacks",
                        "short",
                        [
                            ("sum(baltra_gateway_async_calls)", "calls"),
                            ("sum(baltra_gateway_callbacks)", "callbacks"),
                        ],
                    ),
                    (
                        "Replicas by state",
                        "short",
                        [
                            (
                                f"sum by (function, state) (baltra_gateway_replicas{FUNCTION})",
                                "{{function}} {{state}}",
                            )
                        ],
                    ),
                ],
            ),
        ],
    ),
    "vm": (
        "Baltra: virtual machines",
        "Sessions from inside virtual machines (transport ivshmem), and the device time of the tenants "
        "that they belong to: choose these tenants",
        {"device": "baltra_device_up", "tenant": "baltra_sessions"},
        [
            (
                "Virtual machines",
                [
                    (
                        "Open sessions of virtual machines",
                        "short",
                        [
                            (
                                'sum by (device) (baltra_transport_sessions{device=~"$device",transport="ivshmem"})',
                                "{{device}}",
                            )
                        ],
                    ),
                    (
                        "Open sessions of the tenants",
                        "short",
                        [(f"sum by (tenant) (baltra_sessions{TENANT})", "{{tenant}}")],
                    ),
                    (
                        "Tasks / s",
                        "ops",
                        [(rate("baltra_tasks_total", "tenant", TENANT), "{{tenant}}")],
                    ),
                    (
                        "Device time (1: a whole device)",
                        "short",
                        [
                            (
                                rate("baltra_device_busy_seconds_total", "tenant", TENANT),
                                "{{tenant}}",
                            )
                        ],
                    ),
                    (
                        "Task latency",
                        "s",
                        [
                            (
                                quantile(q, "baltra_task_latency_seconds", "tenant", TENANT),
                                f"{name} {{{{tenant}}}}",
                            )
                            for q, name in ((0.5, "p50"), (0.99, "p99"))
                        ],
                    ),
                    (
                        "Bytes moved",
                        "Bps",
                        [
                            (
                                rate("baltra_bytes_total", "tenant, direction", TENANT),
                                "{{tenant}} {{direction}}",
                            )
                        ],
                    ),
                ],
            ),
        ],
    ),
    "messages": (
        "Baltra: boards and messages",
        "Boards, their regions and images. The ranks of a message job export no metrics; "
        "`baltra cluster run` reports on a job",
        {"device": "baltra_device_up"},
        [
            (
                "Boards",
                [
                    (
                        "Images in regions",
                        "short",
                        [
                            (
                                f"sum by (device, region, name) (baltra_region_image{DEVICE})",
                                "{{device}} {{region}}: {{name}}",
                            )
                        ],
                    ),
                    (
                        "Regions and occupied regions",
                        "short",
                        [
                            (f"sum by (device) (baltra_device_regions{DEVICE})", "{{device}}"),
                            (
                                f"count by (device) (baltra_region_image{DEVICE})",
                                "{{device}} occupied",
                            ),
                        ],
                    ),
                    (
                        "Reconfigurations in 10 minutes",
                        "short",
                        [(f"increase(baltra_reconfigurations_total{DEVICE}[10m])", HERE_)],
                    ),
                    (
                        "Images that wait for their turn",
                        "short",
                        [(f"sum by ({AT}) (baltra_images_waiting{DEVICE})", HERE_)],
                    ),
                    (
                        "Device time by tenant (1: a whole board)",
                        "short",
                        [
                            (
                                rate("baltra_device_busy_seconds_total", "tenant", DEVICE),
                                "{{tenant}}",
                            )
                        ],
                    ),
                    (
                        "Usable boards",
                        "short",
                        [(f"min by ({AT}) (baltra_device_up{DEVICE})", HERE_)],
                    ),
                ],
            ),
        ],
    ),
    "pool": (
        "Baltra: pool",
        "The registry: nodes, devices, instances and their allocation",
        {"node": "baltra_registry_device_utilization_ratio"},
        [
            (
                "Nodes and devices",
                [
                    (
                        "Nodes by state",
                        "short",
                        [("sum by (state) (baltra_registry_nodes)", "{{state}}")],
                    ),
                    (
                        "Devices by state",
                        "short",
                        [("sum by (state) (baltra_registry_devices)", "{{state}}")],
                    ),
                    (
                        "Utilization",
                        "percentunit",
                        [
                            (
                                f"baltra_registry_device_utilization_ratio{NODE}",
                                "{{node}} {{device}}",
                            )
                        ],
                    ),
                    (
                        "Mean wait for the device",
                        "s",
                        [
                            (
                                f"baltra_registry_device_queue_wait_seconds{NODE}",
                                "{{node}} {{device}}",
                            )
                        ],
                    ),
                    (
                        "Executor deaths in 10 minutes",
                        "short",
                        [
                            (
                                f"increase(baltra_registry_executor_deaths_total{NODE}[10m])",
                                "{{node}} {{device}}",
                            )
                        ],
                    ),
                    (
                        "Time since the managers' start",
                        "s",
                        [(f"baltra_registry_node_uptime_seconds{NODE}", "{{node}}")],
                    ),
                ],
            ),
            (
                "Instances",
                [
                    (
                        "Instances by state",
                        "short",
                        [("sum by (state) (baltra_registry_instances)", "{{state}}")],
                    ),
                    (
                        "Allocations, refusals, releases / s",
                        "ops",
                        [
                            (rate("baltra_registry_allocations_total"), "allocations"),
                            (
                                rate("baltra_registry_refusals_total", "filter"),
                                "refused: {{filter}}",
                            ),
                            (rate("baltra_registry_releases_total"), "releases"),
                        ],
                    ),
                    (
                        "Moves and expired leases / s",
                        "ops",
                        [
                            (rate("baltra_registry_migrations_total"), "moves"),
                            (rate("baltra_registry_instances_expired_total"), "expired"),
                        ],
                    ),
                ],
            ),
            (
                "Registry",
                [
                    (
                        "Heartbeats and registrations / s",
                        "ops",
                        [
                            (rate("baltra_registry_heartbeats_total"), "heartbeats"),
                            (rate("baltra_registry_registrations_total"), "registrations"),
                        ],
                    ),
                    (
                        "Failed writes and queries / s",
                        "ops",
                        [
                            (rate("baltra_registry_store_failures_total"), "writes"),
                            (rate("baltra_registry_metrics_failures_total"), "queries"),
                        ],
                    ),
                    (
                        "Replicas: actual and desired",
                        "short",
                        [
                            ("baltra_registry_function_replicas", "{{function}}"),
                            ("baltra_registry_function_replicas_desired", "{{function}} desired"),
                        ],
                    ),
                ],
            ),
        ],
    ),
}

OVERVIEW = "baltra.json"


def links():
    """Links to all dashboards of Baltra."""
    return [
        {
            "title": "Baltra",
            "type": "dashboards",
            "tags": ["baltra"],
            "asDropdown": True,
            "includeVars": False,
            "keepTime": True,
            "targetBlank": False,
            "icon": "external link",
            "tooltip": "",
            "url": "",
        }
    ]


def variable(name, metric):
    """A variable with the values of a label."""
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "type": "query",
        "label": name.capitalize(),
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,
        "sort": 1,
    }


def series(title, unit, targets):
    """A panel of lines over time."""
    custom = {
        "lineWidth": 1,
        "fillOpacity": 10,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "none", "group": "A"},
    }
    letters = "ABCDEFGH"
    return {
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"custom": custom, "unit": unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": letters[at],
                "datasource": SOURCE,
                "expr": query,
                "legendFormat": legend,
                "range": True,
            }
            for at, (query, legend) in enumerate(targets)
        ],
    }


def panels(rows):
    """The panels of rows: three beside each other."""
    placed, y = [], 0
    for title, content in rows:
        row = {"type": "row", "title": title, "collapsed": False, "panels": []}
        placed.append(row | {"gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y}})
        y += 1
        for at, (name, unit, targets) in enumerate(content):
            place = {"h": 8, "w": 8, "x": at % 3 * 8, "y": y + at // 3 * 8}
            placed.append(series(name, unit, targets) | {"gridPos": place})
        y += (len(content) + 2) // 3 * 8
    return [{"id": at} | panel for at, panel in enumerate(placed, 1)]


def dashboard(name):
    """The dashboard of a door."""
    title, description, variables, rows = DASHBOARDS[name]
    source = {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "Prometheus",
        "current": {},
        "hide": 0,
    }
    return {
        "title": title,
        "uid": f"baltra-{name}",
        "description": description,
        "tags": ["baltra"],
        "timezone": "browser",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "5s",
        "time": {"from": "now-30m", "to": "now"},
        "graphTooltip": 1,
        "links": links(),
        "templating": {"list": [source, *(variable(*pair) for pair in variables.items())]},
        "annotations": overview()["annotations"],
        "panels": panels(rows),
    }


def overview():
    """The overview, with links to the others."""
    return json.loads((HERE / OVERVIEW).read_text()) | {"links": links()}


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    files = {f"{name}.json": dashboard(name) for name in DASHBOARDS} | {OVERVIEW: overview()}
    differ = 0
    for name, content in files.items():
        path = HERE / name
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        if sys.argv[1:] == []:
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            print(f"error: {path} differs: run deploy/grafana/dashboards.py", file=sys.stderr)
            differ = 1
    return differ


if __name__ == "__main__":
    sys.exit(main())
