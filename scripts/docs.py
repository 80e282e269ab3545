#!/usr/bin/env python3
"""Checks the links of the documentation, and builds its site with mdBook.

usage: scripts/docs.py check          every page of docs/ is in docs/SUMMARY.md; every relative link
                                      and anchor of a tracked Markdown file resolves; no page is
                                      harder to read than grade 10
       scripts/docs.py grades         prints the reading grade of each page
       scripts/docs.py build MDBOOK   builds target/docs/site with that mdBook, and checks the links
                                      of its pages

The sources of the site have the folders of the tree, so that relative links stay valid. A link to
a folder becomes plain text; a linked file that is not a page is part of the site as it is.
Exit status: 0 success, 1 findings, 2 usage.
"""

import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

import reading

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUMMARY = ROOT / "docs/SUMMARY.md"
OUT = ROOT / "target/docs"

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]*)\)")
FENCE = re.compile(r"^\s*(```+|~~~+)")


def prose_of(text):
    """The lines of a page with code blanked, so that line numbers stay valid."""
    fence = None
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if mark and fence is None:
            fence = mark.group(1)
            yield ""
        elif fence is not None:
            fence = None if mark and mark.group(1).startswith(fence) else fence
            yield ""
        else:
            yield line


def links_of(path):
    """(line number, target) of every relative link of a page; a link may span two lines."""
    text = "\n".join(re.sub(r"`[^`]*`", "``", line) for line in prose_of(path.read_text()))
    for found in LINK.finditer(text):
        target = found.group(2)
        if target and not re.match(r"[a-z]+:", target):
            yield text.count("\n", 0, found.end()) + 1, urllib.parse.unquote(target)


def anchors_of(path):
    """The anchors of a page's headings, as GitHub and mdBook make them."""
    anchors, seen = set(), {}
    for line in prose_of(path.read_text()):
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if not heading:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        anchors.add(f"{slug}-{count}" if count else slug)
    return anchors


def pages():
    """The Markdown files of the tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    names = [name for name in listed.split("\0") if name and not name.startswith("bench/results/")]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def listed_pages():
    """The files that the summary lists, in its order."""
    return [(SUMMARY.parent / target).resolve() for _, target in links_of(SUMMARY)]


def grades():
    """(page, reading grade) of every listed page with enough prose."""
    for page in listed_pages():
        grade = reading.grade(prose_of(page.read_text()))
        if grade is not None:
            yield page, grade


def check_sources():
    findings = []
    for page in pages():
        name = page.relative_to(ROOT)
        for number, link in links_of(page):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.is_relative_to(ROOT) or not target.exists():
                findings.append(f"{name}:{number}: link to '{link}': the file does not exist")
            elif anchor and target.suffix == ".md" and anchor not in anchors_of(target):
                findings.append(f"{name}:{number}: link to '{link}': no heading has that anchor")
    for page, grade in grades():
        if grade > reading.GRADE_MAX:
            findings.append(
                f"{page.relative_to(ROOT)}: reading grade {grade:.1f}, {reading.GRADE_MAX:.0f} "
                "allowed: shorten sentences"
            )
    listed = listed_pages()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if page != SUMMARY and page not in listed:
            findings.append(f"{page.relative_to(ROOT)}: not listed in docs/SUMMARY.md")
    for page in sorted({page for page in listed if listed.count(page) > 1}):
        findings.append(f"docs/SUMMARY.md: lists {page.relative_to(ROOT)} more than once")
    return findings


def arrange(source):
    """Copies the listed pages and the files that the pages link to."""
    shutil.rmtree(source, ignore_errors=True)
    listed = listed_pages()
    for page in listed:
        target = source / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)

        def site_link(found, page=page):
            link = found.group(2)
            path = link.partition("#")[0]
            linked = (page.parent / path).resolve()
            if not path or re.match(r"[a-z]+:", link):
                return found.group(0)
            if linked in listed:
                # mdBook makes index.html of a README.md, but does not change links to it.
                return re.sub(r"README\.md(?=[#)])", "index.md", found.group(0))
            if not linked.is_file() or linked.suffix == ".md":
                return found.group(1)
            copy = source / linked.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(linked, copy)
            return found.group(0)

        target.write_text(LINK.sub(site_link, page.read_text()))

    def from_root(found):
        path = found.group(2) and (SUMMARY.parent / found.group(2)).resolve().relative_to(ROOT)
        return f"[{found.group(1)}]({path})"

    (source / "SUMMARY.md").write_text(LINK.sub(from_root, SUMMARY.read_text()))


class Page(html.parser.HTMLParser):
    """Links and ids of a page of the site."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.add(attributes.get("id"))
        for name in ("href", "src"):
            if attributes.get(name) and not re.match(r"[a-z]+:|//", attributes[name]):
                self.links.add(urllib.parse.unquote(attributes[name]))


def check_site(site):
    parsed = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    findings = []
    for path, page in parsed.items():
        # The error page has absolute links, for any address below the site's root.
        if path.name in ("404.html", "toc.html"):
            continue
        for link in sorted(page.links):
            name, _, anchor = link.partition("#")
            target = (path.parent / name.partition("?")[0]).resolve() if name else path
            if not target.is_file():
                findings.append(f"{path.relative_to(site)}: '{link}' does not exist")
            elif anchor and target in parsed and anchor not in parsed[target].ids:
                findings.append(f"{path.relative_to(site)}: '{link}': no such anchor")
    return len(parsed), findings


def build(mdbook):
    arrange(OUT / "src")
    shutil.copyfile(ROOT / "book.toml", OUT / "book.toml")
    shutil.rmtree(OUT / "site", ignore_errors=True)
    subprocess.run([mdbook, "build", OUT], check=True)
    count, findings = check_site((OUT / "site").resolve())
    if not findings:
        print(f"{count} pages; begin at {OUT / 'site/index.html'}")
    return findings


def main():
    if sys.argv[1:] == ["check"]:
        findings = check_sources()
    elif sys.argv[1:] == ["grades"]:
        findings = []
        for page, grade in sorted(grades(), key=lambda pair: -pair[1]):
            print(f"{grade:5.1f}  {page.relative_to(ROOT)}")
    elif len(sys.argv) == 3 and sys.argv[1] == "build":
        findings = check_sources() or build(sys.argv[2])
    else:
        print(__doc__, file=sys.stderr)
        return 2
    for finding in findings:
        print(finding)
    if findings:
        print(f"error: {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
