#!/usr/bin/env python3
"""Writes the reference pages of docs/reference from the program and its sources.

usage: scripts/reference.py            writes the pages
       scripts/reference.py --check    fails if a page differs from what would be written

The command line and the metrics come from the built program ($BALTRA, by default
target/release/baltra), the defaults of the configuration too; the meanings of its keys are the
comments of the options' fields, and those of errors the comments of their variants. The HTTP API is
crates/gateway/src/http/manage/openapi.json.
"""

import difflib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import tomllib
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs/reference"

# Sections of the configuration, with the structures that define their keys.
SECTIONS = [
    ("node", "manager/src/options.rs", "NodeOptions"),
    ("paths", "manager/src/options.rs", "PathOptions"),
    ("listen", "manager/src/options.rs", "ListenOptions"),
    ("metrics", "manager/src/options.rs", "MetricsOptions"),
    ("executors", "manager/src/options.rs", "ExecutorOptions"),
    ("log", "manager/src/options.rs", "LogOptions"),
    ("limits", "manager/src/options.rs", "LimitOptions"),
    ("device", "manager/src/options.rs", "DeviceOptions"),
    ("tenant", "manager/src/options.rs", "TenantOptions"),
    ("registry", "registry/src/options.rs", "Options"),
    ("registry.limits", "registry/src/options.rs", "LimitOptions"),
    ("registry.tokens", "registry/src/options.rs", "TokenOptions"),
    ("gateway", "gateway/src/options.rs", "Options"),
    ("gateway.admin", "gateway/src/options.rs", "AdminOptions"),
    ("gateway.key", "gateway/src/options.rs", "KeyOptions"),
    ("gateway.engine", "engine/src/options.rs", "Options"),
    ("gateway.limits", "gateway/src/options.rs", "LimitOptions"),
]
# Sections that are lists, one entry for each device, tenant or key.
LISTS = {"device", "tenant", "gateway.key"}
# Files that may name metrics.
SUFFIXES = {".md", ".json", ".yaml", ".yml", ".tpl"}
# Defaults that depend on the host or the user.
OF_HOST = {"node.name", "paths.runtime", "paths.state", "registry.state", "gateway.state"}

FIELD = re.compile(r"^    pub (?:r#)?(\w+): (.+),$")


def cell(text):
    """A text in a cell of a table."""
    text = re.sub(r"\[`(?:\w+::)*(\w+)`\](?!\()", r"`\1`", " ".join(text.split()))
    return text.replace("|", "\\|").rstrip(".") or "–"


def fields_of(path, name):
    """(key, meaning) of the public fields of a structure."""
    text = (ROOT / "crates" / path).read_text()
    found = re.search(rf"^pub struct {name} \{{\n(.*?)^\}}", text, re.M | re.S)
    if not found:
        sys.exit(f"error: crates/{path} has no structure {name}")
    comment, key = [], None
    for line in found.group(1).split("\n"):
        field = FIELD.match(line)
        renamed = re.search(r'rename = "(\w+)"', line)
        if line.startswith("    ///"):
            comment.append(line.removeprefix("    ///").strip())
        elif renamed and line.strip().startswith("#["):
            key = renamed.group(1)
        elif field:
            yield key or field.group(1), " ".join(comment)
            comment, key = [], None


def defaults_of(baltra):
    """The resulting configuration without a file, as a mapping."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BALTRA_")}
    dump = subprocess.run(
        [baltra, "up", "--dump-config"], env=environment, capture_output=True, text=True, check=True
    )
    return tomllib.loads(dump.stdout)


def default_text(value):
    if value is None or isinstance(value, dict):
        return "–"
    return f"`{json.dumps(value)}`"


def configuration(baltra):
    defaults = defaults_of(baltra)
    sections = {section for section, _, _ in SECTIONS}
    yield (
        "All daemons read one configuration: embedded defaults, a file (`--config FILE`), environment variables\n"
        "(`BALTRA_SECTION__KEY`, such as `BALTRA_GATEWAY__ADDRESS`) and flags (`--set section.key=value`); later\n"
        "layers replace earlier ones. `baltra up --dump-config` prints the result. Unknown keys are refused.\n"
    )
    for section, path, name in SECTIONS:
        values = defaults
        for part in section.split("."):
            values = values.get(part, {})
        if section in LISTS:
            values = values[0] if values else {}
        yield f"## {section}\n"
        if section in LISTS:
            yield f"A list: each `[[{section}]]` begins an entry.\n"
        yield "| key | default | meaning |\n|---|---|---|"
        for key, meaning in fields_of(path, name):
            if f"{section}.{key}" in sections:
                continue
            default = values.get(key)
            text = "–" if f"{section}.{key}" in OF_HOST else default_text(default)
            yield f"| `{key}` | {cell(text)} | {cell(meaning)} |"
        yield ""


def help_of(baltra, *words):
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    for name in [name for name in environment if name.startswith("BALTRA_")]:
        del environment[name]
    shown = subprocess.run(
        [baltra, *words, "--help"], env=environment, capture_output=True, text=True, check=True
    )
    return shown.stdout


def command_line(baltra):
    yield "`baltra COMMAND --help` prints these texts. Each command ends with status 0 if it succeeded.\n"

    def pages(words):
        text = help_of(baltra, *words)
        yield "#" * min(2 + max(len(words) - 1, 0), 4) + " " + " ".join(["baltra", *words]) + "\n"
        yield f"```text\n{text.rstrip()}\n```\n"
        listed = re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", text, re.M | re.S)
        for name in re.findall(r"^  (\w[\w-]*)", listed.group(1) if listed else "", re.M):
            if name != "help":
                yield from pages([*words, name])

    yield from pages([])


def http_api(_):
    api = json.loads((ROOT / "crates/gateway/src/http/manage/openapi.json").read_text())
    yield (
        "The gateway serves this description as `/openapi.json`. [The HTTP door](../http.md) explains calls, keys and\n"
        "limits.\n"
    )
    yield "| method and path | purpose | status |\n|---|---|---|"
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            if method not in ("get", "post", "put", "delete", "patch"):
                continue
            purpose = operation.get("summary") or operation.get("description", "")
            codes = ", ".join(sorted(operation.get("responses", {})))
            yield f"| `{method.upper()} {path}` | {cell(purpose)} | {codes} |"
    yield ""


def commented(path, item, ends):
    """(groups of the match, comment) of each item with a comment in a source file: `item` matches
    its line. Other lines than attributes end a comment; `ends` matches the line that ends the
    search."""
    comment = []
    for line in (ROOT / "crates" / path).read_text().split("\n"):
        stripped = line.strip()
        found = re.match(item, stripped)
        if re.match(ends, line):
            return
        if stripped.startswith("///"):
            comment.append(stripped.removeprefix("///").strip())
        elif found:
            yield found.groups(), " ".join(comment)
            comment = []
        elif not stripped.startswith("#["):
            comment = []


def failures(path, name):
    """(number, name, meaning, remedy) of each variant of an enumeration, whose comments have the
    meaning and, after "Remedy:", the remedy."""
    text = (ROOT / "crates" / path).read_text()
    declared = re.search(rf"^pub enum {name} \{{\n(.*?)^\}}", text, re.M | re.S)
    if not declared:
        sys.exit(f"error: crates/{path} has no enumeration {name}")
    variants = re.findall(r"^    (\w+) = \d+,$", declared.group(1), re.M)
    for (variant, number), comment in commented(path, r"(\w+) = (\d+),$", r"impl "):
        meaning, _, remedy = comment.partition(" Remedy: ")
        if not meaning:
            sys.exit(f"error: crates/{path}: {name}::{variant} has no comment")
        variants.remove(variant)
        yield number, variant, meaning, remedy
    if variants:
        sys.exit(f"error: crates/{path}: cannot read {name}::{variants[0]}")


def opencl_errors():
    """(number, name, meaning, remedy) of the errors that have a remedy."""
    constant = r"pub const (\w+): i32 = (-\d+);$"
    for (name, number), comment in commented("wire/src/opencl.rs", constant, r"#\[cfg\(test"):
        meaning, _, remedy = comment.partition(" Remedy: ")
        if remedy:
            yield number, f"CL_{name}", meaning.removeprefix(f"`CL_{name}`: "), remedy


def check_statuses():
    """Statuses are created by the enumerations only, so that the page has all of them."""
    created = {
        "registry": r"\bStatus::(?:new|[a-z_]+)\(",
        "gateway": r"Problem::new\(\s*(?:http::)?StatusCode",
    }
    for crate, pattern in created.items():
        for path in sorted((ROOT / "crates" / crate / "src").rglob("*.rs")):
            text = path.read_text()
            found = re.search(pattern, text)
            if found and path.name != "failure.rs":
                line = text.count("\n", 0, found.start()) + 1
                sys.exit(
                    f"error: {path.relative_to(ROOT)}:{line}: a status that failure.rs lacks "
                    "(use Failure, whose comments are docs/reference/errors.md)"
                )


def errors(_):
    check_statuses()

    def table(head, rows):
        yield f"| {head} | meaning | remedy |\n|---|---|---|"
        for label, meaning, remedy in rows:
            yield f"| {label} | {cell(meaning)} | {cell(remedy)} |"
        yield ""

    yield (
        "Errors that Baltra itself reports. Each message names the failed object, the value and the reason;\n"
        "[troubleshooting](../troubleshooting.md) is sorted by symptom.\n"
    )
    yield "## HTTP statuses of the gateway\n"
    yield (
        "The body is `application/problem+json` (RFC 9457): `status`, `title`, and `detail` for people. The console's\n"
        "paths (`/ui/`) answer with text. Of calls of the inference protocol, the member `error` has the text, and gRPC\n"
        "the corresponding code. A function in a container may answer with any status.\n"
    )
    found = failures("gateway/src/http/failure.rs", "Failure")
    yield from table("status", ((n, m, r) for n, _, m, r in found))
    yield "## gRPC codes of the registry\n"
    yield (
        "A request without a fitting device is not an error of this list: the reply has the refusal, with each device\n"
        "and the filter that rejected it.\n"
    )
    found = failures("registry/src/failure.rs", "Failure")
    codes = ((re.sub(r"(?<!^)(?=[A-Z])", "_", v).upper(), n, m, r) for n, v, m, r in found)
    yield from table("code", ((f"`{c}` ({n})", m, r) for c, n, m, r in codes))
    yield "## Exit codes of the command line\n"
    yield (
        "`baltra run` ends with the code of its program, or 128 plus the number of the signal that ended it; `baltra\n"
        "cluster run` with that of the first rank that failed.\n"
    )
    found = failures("cli/src/exit.rs", "Exit")
    yield from table("code", ((n, m, r) for n, _, m, r in found))
    yield "## OpenCL errors\n"
    yield (
        "Arguments that the specification forbids cause the error that it defines, before a command leaves the\n"
        "program. Other errors are the driver's own, unchanged, except these, which Baltra returns itself.\n"
    )
    yield from table("error", ((f"`{v}` ({n})", m, r) for n, v, m, r in opencl_errors()))


def families_of(address):
    """(name, type, help) of the metrics that a daemon serves."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as reply:
        text = reply.read().decode()
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    for name, kind in sorted(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)):
        yield name, kind, helps.get(name, "")


def free_addresses(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def later_families():
    """(name, type, help) of the registry's counters that have no value before their first event."""
    text = (ROOT / "crates/registry/src/metrics.rs").read_text()
    pattern = r'let help = "([^"]+)";\s+page\.register\("(\w+)", help, c\.'
    for meaning, name in re.findall(pattern, text):
        yield f"baltra_registry_{name}_total", "counter", meaning


def kubernetes_families():
    """(name, type, help) of the metrics of Kubernetes' daemons, which run only in a cluster."""
    for daemon in ("controller", "node", "webhook"):
        text = (ROOT / f"crates/kubernetes/src/{daemon}.rs").read_text()
        table = re.search(r"^const COUNTERS: .*?^\];", text, re.M | re.S)[0]
        for name, meaning in re.findall(r'\(\s*"(\w+)",\s*"([^"]+)",?\s*\)', table):
            yield f"baltra_kubernetes_{name}_total", "counter", f"{meaning} ({daemon})"
        for name, meaning in re.findall(r'Durations::new\(\s*"(\w+)",\s*"([^"]+)"', text):
            yield f"baltra_kubernetes_{name}_seconds", "histogram", f"{meaning} ({daemon})"


def unknown_metrics(page):
    """The metrics that documents, dashboards and alert rules name, and that the page lacks."""
    known = set(re.findall(r"^\| `(\w+)`", page, re.M))
    files = subprocess.run(
        ["git", "ls-files", "-z", "docs", "deploy", "*.md"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for file in filter(None, files.split("\0")):
        path = ROOT / file
        # The changelog has former names; records of past runs keep theirs.
        if path.suffix not in SUFFIXES or file == "CHANGELOG.md" or file.startswith("bench/"):
            continue
        for name in re.findall(r"\bbaltra_\w+_(?:total|seconds|bytes|ratio)\b", path.read_text()):
            if name not in known:
                yield f"{file}: metric '{name}' is not in docs/reference/metrics.md"


def metrics(baltra):
    home = pathlib.Path(tempfile.mkdtemp(prefix="baltra-reference-"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("BALTRA_", "OTEL_"))}
    environment["BALTRA_RUNTIME_DIR"] = str(home / "run")
    # With a collector, daemons count the spans that they export.
    environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
    manager, registry, gateway = free_addresses(3)
    command = [baltra, "up", "--state-dir", home / "state"]
    for setting in (
        f"metrics.address={manager}",
        "registry.address=auto",
        f"registry.metrics={registry}",
        f"gateway.address={gateway}",
        "gateway.grpc_address=",
    ):
        command += ["--set", setting]
    yield "Each daemon serves its metrics at `/metrics`, as text 0.0.4 or, by `Accept`, OpenMetrics 1.0.\n"
    try:
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        for daemon, setting, address in (
            ("Device Manager", "metrics.address", manager),
            ("Registry", "registry.metrics", registry),
            ("Gateway", "gateway.address", gateway),
        ):
            yield f"## {daemon}\n"
            yield f"At `{setting}`.\n"
            yield "| metric | type | meaning |\n|---|---|---|"
            families = set(families_of(address))
            if daemon == "Registry":
                families |= set(later_families())
            for name, kind, meaning in sorted(families):
                yield f"| `{name}` | {kind} | {cell(meaning)} |"
            yield ""
        yield "## Daemons on Kubernetes\n"
        yield "At `--metrics` of `baltra kubernetes`.\n"
        yield "| metric | type | meaning |\n|---|---|---|"
        for name, kind, meaning in sorted(kubernetes_families()):
            yield f"| `{name}` | {kind} | {cell(meaning)} |"
    finally:
        down = [baltra, "down", "--drain-ms", "0"]
        subprocess.run(down, env=environment, capture_output=True, check=False)
        shutil.rmtree(home, ignore_errors=True)


PAGE = {
    "cli.md": ("Command line", command_line),
    "configuration.md": ("Configuration keys", configuration),
    "errors.md": ("Errors", errors),
    "http-api.md": ("The gateway's HTTP API", http_api),
    "metrics.md": ("Metrics", metrics),
}


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    baltra = pathlib.Path(os.environ.get("BALTRA", ROOT / "target/release/baltra")).resolve()
    if not baltra.is_file():
        print(f"error: {baltra} does not exist (run make build, or set BALTRA)", file=sys.stderr)
        return 2
    stale = []
    for name, (title, content) in PAGE.items():
        text = f"# {title}\n\n" + "\n".join(content(baltra)).rstrip() + "\n"
        page = PAGES / name
        if sys.argv[1:]:
            if page.read_text() != text:
                stale.append(name)
                old, new = page.read_text().split("\n"), text.split("\n")
                sys.stdout.writelines(
                    line + "\n" for line in difflib.unified_diff(old, new, name, "now", lineterm="")
                )
        else:
            PAGES.mkdir(exist_ok=True)
            page.write_text(text)
    for name in stale:
        print(f"error: docs/reference/{name} is out of date (run scripts/reference.py)")
    unknown = list(unknown_metrics((PAGES / "metrics.md").read_text()))
    for error in unknown:
        print(f"error: {error}")
    return 1 if stale or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
