#!/usr/bin/env python3
"""Checks the text of the tree: line lengths, white space, and phrases that a reader has to decode.

usage: scripts/lint_text.py [PATH …]     default: every tracked text file, and the subjects of new
                                         commits
       scripts/lint_text.py --counts     findings per rule and folder instead of lines
       scripts/lint_text.py --phrases    line lengths of code only in new lines, because older code
                                         exceeds them
       scripts/lint_text.py --base REV   what is new: commits and lines that REV lacks; by default,
                                         REV is the upstream branch, or else the merge base with
                                         main. Without any, a note names the checks that are skipped

A line that has to keep a phrase (a protocol's own word, another program's output) ends with the
comment `text-ok`. Exit status: 0 clean, 1 findings, 2 usage.
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The beginning of a comment, for words that are names or plain text elsewhere.
COMMENT = r"(?://|# |\* ).*"

# (name, pattern, replacement). The patterns are matched with whole lines, code and comments alike.
PHRASES = [
    (
        "is-no",
        r"(?<!here )\b(?:is|are|was|were|be) no\b"
        r"(?! (?:longer|more|less|fewer|later|earlier|greater|larger|smaller|worse|better|such)\b)",
        "'is not a' (but 'there is no' is fine)",
    ),
    ("test-name", r"\bfn test_", "name the property, without 'test_'"),
    ("for-ever", r"\bfor ever\b", "forever, indefinitely"),
    ("in-vain", r"\bin vain\b", "without success"),
    ("so-long-as", r"\bso long as\b", "while, if"),
    ("besides", r"\b[Bb]esides\b", "also, in addition to"),
    ("so-many", r"\b[Ss]o many\b", "that many, N"),
    ("else-adverb", r"(?:^|//.*|# .*|\* .*)[,;] else (?!if\b|\{)\w+", "otherwise"),
    (
        "clause-subject",
        r"(?:^|[.:] |//[/!]? |# |\* )(?:Who|Whose|What|Which)\b(?![^.]*\?)"
        r"|(?://[/!]? |# |/\* |\* )How\b(?![^.]*\?)"
        r"|(?://[/!]? |# |/\* |\* )Where\b(?!.*,)(?![^.]*\?)"
        r"|(?:^|[.:;] |//[/!]? |# )who \w+s\b",
        "name the subject: 'the time for which', 'the parts that'",
    ),
    (
        "fragment",
        r"""(?:^|["'])an? \w+ without (?:an?|its) \w+(?:["']|$)""",
        "what failed, the value, the reason",
    ),
    ("machines-take", r"\bthat (?:the|an?|its) \w+ took\b", "accepted by, received by"),
    ("need-not-have", r"\bneed not have been\b", "the cause, or its effect"),
    ("but-where", r", but (?:where|what|as)\b", "except"),
    (
        "what-is-is",
        r"\bWhat [^.?]*\b(?:is|are|was|does|do|has), (?:is|are|was|has|does)\b",
        "name it",
    ),
    ("machines-hear", r"(?i)(?<![a-z])(?:hears?|heard)(?![a-z]|_ms\b)", "receive, read"),
    (
        "machines-tell",
        r"(?i)(?<![a-z])(?<!\.)(?:tells?|told|telling)(?![a-z])",
        "send, report, notify, export",
    ),
    ("machines-know", r"(?i)(?<![a-z])(?:knows?|knew)(?![a-z])", "has, holds, finds, can compute"),
    ("owned-by-nobody", r"\b(?:nobody|somebody)'s\b", "name the owner"),
    (
        "no-person",
        COMMENT + r"\b(?:[Ss]omebody|[Ww]hoever|[Ww]hom)\b",
        "name the client, the thread, the component",
    ),
    (
        "who-clause",
        COMMENT + r"\bwho (?:asks|calls|waits|comes|holds|listens|wants)\b",
        "a noun: the caller, the holder",
    ),
    (
        "what-clause",
        r"\b[Ww]hat (?:becomes|became|comes|came) of\b"
        r"|\b[Ww]hat(?:ever)? (?:is|was) (?:there|asked|wanted|left|meant)\b"
        r"|^\s*(?://[/!]?|#|/?\*+) (?:Whether what|Since when|By whom|(?:In|Of|Through) which)\b",
        "a noun: the result, the request, the start",
    ),
    ("to-be-had", r"\b(?:to|can|cannot|may) be had\b", "available"),
    ("go-on", COMMENT + r"\b(?:go(?:es)?|went|gone) on\b(?! (?:to|the|a|an)\b)", "continue"),
    ("under-way", r"\bunder way\b", "in progress, in flight"),
    ("for-good", COMMENT + r"\bfor good\b", "permanently"),
    ("lately", r"\blately\b|\bof late\b", "recently, last"),
    ("chance", r"\b(?:of|by) chance\b", "random"),
    (
        "sake",
        r"\bfor (?:its|their|others'|another's) (?:own )?sake\b|\bsees? to it\b|\bunasked\b",
        "state the cause",
    ),
    (
        "spelling",
        r"(?i)(?:neighbo|colo|hono|favo|behavio)ur|(?:synthes|recogn|initial|serial|optim|normal)is(?:e|ed|es|ing)\b"
        r"|\b(?:modelled|towards|licence)\b",
        "American spelling",
    ),
    (
        "wish-type",
        r"\b(?:struct|enum|trait|type|as) \w*(?:Told|Asked|Heard|Wish|Wants?|Wanted|Known)\b"
        r"|\b(?:struct|enum|trait|type) "
        r"(?:Brought|Doubt|Everything|How|Made|New|Own|Places?|Then|What|Where|Which|Who)\b",
        "a noun for what it holds",
    ),
]
PHRASES = [(name, re.compile(pattern), remedy) for name, pattern, remedy in PHRASES]

# Sources of recorded proofs (hdl/formal): a change of their comments would have them proven again.
UNCHANGED = {"hdl/net/rtl/tcp_pkg.sv", "hdl/net/rtl/tcp_transmit.sv"}

# Columns by file suffix, as in .editorconfig.
WIDTHS = {
    "rs": 100,
    "py": 100,
    "sv": 100,
    "c": 100,
    "h": 100,
    "cpp": 100,
    "hpp": 100,
    "cl": 100,
    "js": 100,
}
WIDTHS["md"] = 120

# Records of past runs keep their wording; the check and its tests contain the phrases; the license
# is a third-party text.
SKIPPED = re.compile(
    r"^(?:bench/results/|LICENSE$|Cargo\.lock$|scripts/lint_text(?:_test)?\.py$)"
    r"|\.(?:svg|png|ppm|lock|json|bin|img|snap|hex|pem|gz)$"
)


def tracked():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    return [name for name in listed.decode().split("\0") if name and not SKIPPED.search(name)]


def text_of(name):
    """The file's lines; empty if it is not UTF-8 text or is a link."""
    path = ROOT / name
    if path.is_symlink() or not path.is_file():
        return []
    data = path.read_bytes()
    try:
        return [] if b"\0" in data else data.decode().split("\n")
    except UnicodeDecodeError:
        return []


def findings_in(name, lines):
    suffix = name.rpartition(".")[2]
    width = WIDTHS.get(suffix)
    fenced = False
    for number, line in enumerate(lines, 1):
        if suffix == "md" and line.lstrip().startswith("```"):
            fenced = not fenced
        if suffix == "md":
            # Tables, blocks of code and images do not wrap.
            is_wide = len(line) > width and not fenced and not line.lstrip().startswith(("|", "!["))
        else:
            # Formatters do not break a string.
            breakable = re.sub(r'"[^"]*"?', "", line)
            is_wide = width and len(breakable) > width and "http" not in line
        if is_wide:
            yield number, "width", f"{len(line)} columns, {width} allowed"
        if line.endswith((" ", "\t")) and suffix != "md":
            yield number, "white-space", "white space at the end of the line"
        if "text-ok" in line:
            continue
        for rule, pattern, remedy in PHRASES:
            found = pattern.search(line)
            if found and not (rule == "clause-subject" and name in UNCHANGED):
                yield number, rule, f"'{found.group().strip()}': {remedy}"


def git(*arguments):
    """The output of git; None: it failed."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, errors="replace"
    )
    return done.stdout if done.returncode == 0 else None


def base():
    """The commit since which commits and lines are new; None: there is no upstream branch and no
    branch main."""
    for command in (
        ("rev-parse", "--verify", "--quiet", "@{upstream}"),
        ("merge-base", "main", "HEAD"),
        ("merge-base", "origin/main", "HEAD"),
    ):
        if found := git(*command):
            return found.strip()
    return None


def subjects(since):
    """Subjects of the commits that `since` lacks."""
    return git("log", "--no-merges", "--format=%h %s", f"{since}..HEAD").splitlines()


def added(since):
    """Numbers of the lines that `since` lacks, by file."""
    diff = git("diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-prefix", since)
    lines = collections.defaultdict(set)
    name = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            name = line[4:].rstrip("\t")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines[name].update(range(first, first + count))
    return lines


def main(arguments):
    if any(a in ("-h", "--help") for a in arguments):
        print(__doc__.strip())
        return 0
    counts = "--counts" in arguments
    phrases = "--phrases" in arguments
    since = None
    if "--base" in arguments:
        at = arguments.index("--base")
        revision = "".join(arguments[at + 1 : at + 2])
        since = git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if not since:
            print(f"error: '{revision}' is not a commit (set --base REV)", file=sys.stderr)
            return 2
        since = since.strip()
        arguments = arguments[:at] + arguments[at + 2 :]
    since = since or base()
    names = [a for a in arguments if a not in ("--counts", "--phrases")]
    if any(a.startswith("-") for a in names):
        print(f"error: unknown option in {' '.join(names)} (--help lists them)", file=sys.stderr)
        return 2
    everything = tracked()
    chosen = [
        n
        for n in everything
        if not names or any(n == p or n.startswith(p.rstrip("/") + "/") for p in names)
    ]
    table = collections.Counter()
    total = 0
    if not since:
        print(
            "skipped: subjects of commits, and with --phrases widths of code: there is neither an "
            "upstream branch nor a branch main (set --base REV)"
        )
    new = added(since) if phrases and since else {}
    for name in chosen:
        for number, rule, text in findings_in(name, text_of(name)):
            is_old = number not in new.get(name, ()) and not name.endswith(".md")
            if phrases and rule == "width" and is_old:
                continue
            total += 1
            if counts:
                table[rule, "/".join(name.split("/")[:2])] += 1
            else:
                print(f"{name}:{number}: {rule}: {text}")
    if not names and since:
        for commit in subjects(since):
            short, _, subject = commit.partition(" ")
            if len(subject) > 72:
                total += 1
                print(f"commit {short}: width: {len(subject)} columns in the subject, 72 allowed")
            for rule, pattern, remedy in PHRASES:
                if pattern.search(subject):
                    total += 1
                    print(f"commit {short}: {rule}: {remedy}")
    for (rule, folder), number in sorted(table.items()):
        print(f"{number:6d}  {rule:16s} {folder}")
    if total:
        print(f"{total} findings in {len(chosen)} files", file=sys.stderr)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
