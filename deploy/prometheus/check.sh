#!/usr/bin/env bash
# Checks the files that an operator loads: the scrape configuration, the alert rules with their unit
# tests, and that Prometheus can parse every query of the Grafana dashboards, which are up to date. Needs promtool (Debian:
# prometheus) and python3.
set -euo pipefail
cd "$(dirname "$0")"
command -v promtool > /dev/null || { echo "error: promtool is missing: scripts/setup.sh test installs it" >&2; exit 3; }

promtool check config prometheus.yaml
promtool check rules alerts.yaml
promtool test rules alerts_test.yaml

# Each alert has a test.
for alert in $(sed -n 's/^ *- alert: //p' alerts.yaml); do
  grep -q "alertname: $alert\$" alerts_test.yaml || { echo "error: no test expects $alert" >&2; exit 1; }
done

../grafana/dashboards.py --check

# Replaces Grafana's variables with a duration and patterns; the queries are parsed as rules.
rules=$(mktemp --suffix .yaml)
trap 'rm -f "$rules"' EXIT
python3 - ../grafana/*.json > "$rules" << 'PYTHON'
import json
import re
import sys

rules = []
for path in sys.argv[1:]:
    dashboard = json.load(open(path))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expr = re.sub(r"\$[a-z]+", ".*", target["expr"].replace("$__rate_interval", "1m"))
            name = f"{dashboard['uid'].replace('-', '_')}:panel{panel['id']}:{target['refId']}"
            rules.append({"record": name, "expr": expr})
json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, sys.stdout)
PYTHON
promtool check rules "$rules"
