#!/usr/bin/env python3
"""Checks that the files of a crate do not import each other in cycles.

Files that import each other in a cycle can only be read, tested and moved together. The remedy is
to move what both need into a file below them.

An import is a name that a file uses from another file of its crate, by `use` or by a qualified
path. It counts for the file that defines the name: a module that only declares its children and
exports their names again imports nothing. Not counted are names from the modules that contain a
file, whose part it is, code for tests alone, and calls of methods.

usage: scripts/check_cycles.py [CRATE …]    default: all crates

Exit status: 0 clean, 1 a cycle with more files than the crate's limit.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Maximum number of files in a cycle, by crate; crates that are not listed have none. Apart from
# those of `icd` and `manager`, whose objects and node refer to all of their parts, 4 at most.
LIMITS = {
    "icd": 49,
    "ivshmem": 2,
    "manager": 15,
    "registry": 2,
    "ring": 2,
    "session": 4,
    "simulate": 2,
}

TOKEN = re.compile(
    r"""//[^\n]*
      | (?P<block>/\*)
      | \b[bc]?r(?P<raw>\#*)"
      | (?P<string>(?:\b[bc])?"(?:[^"\\]|\\.)*")
      | b?'(?:[^'\\\n]|\\(?:x..|u\{[^}]*\}|.))'
      | '\w+
      | (?P<name>(?:r\#)?[A-Za-z_]\w*)
      | \d\w*
      | (?P<mark>::|[^\s\w])""",
    re.VERBOSE | re.DOTALL,
)
NAME = re.compile(r"[A-Za-z_]\w*")
# Ends with a semicolon, also after braces.
STATEMENTS = {"use", "const", "static", "let", "type"}
ITEMS = {"fn", "struct", "enum", "union", "trait", "const", "static", "type"}
OPEN, CLOSE = "([{", ")]}"


def tokens(text):
    """Names, marks and strings of Rust's source."""
    found, at = [], 0
    while match := TOKEN.search(text, at):
        at = match.end()
        if match["block"]:
            depth = 1
            while depth and (edge := re.compile(r"/\*|\*/").search(text, at)):
                depth += 1 if edge[0] == "/*" else -1
                at = edge.end()
        elif match["raw"] is not None:
            at = text.index('"' + match["raw"], at) + 1 + len(match["raw"])
        elif match["name"]:
            found.append(match["name"].removeprefix("r#"))
        elif match["string"] or match["mark"]:
            found.append(match[0])
    return found


class Module:
    """A module: the file that contains it, and the names in it."""

    def __init__(self, file, parent=None):
        self.file = file
        self.parent = parent
        self.children = {}
        self.items = {}  # name -> keyword of its definition
        self.uses = {}  # imported name -> its path
        self.globs = []  # paths of `use …::*`
        self.private = []  # (path, name) of imports that are not exported again
        self.paths = set()  # paths in the code; a name alone is one too

    def lineage(self):
        """The module and those that contain it, the inmost first."""
        module = self
        while module:
            yield module
            module = module.parent

    def all(self):
        """The module and those that it contains."""
        yield self
        for child in self.children.values():
            yield from child.all()

    def resolve(self, path, visited=frozenset()):
        """The module that a path leads to, and the name of the item in it, None for the module
        itself; (None, None): the path leads to another crate or to a local name."""
        module, rest = self, list(path)
        while module and rest:
            name = rest.pop(0)
            if name == "crate":
                *_, module = self.lineage()
            elif name == "super":
                module = module.parent
            elif name == "self":
                continue
            elif rest and name in module.children:
                module = module.children[name]
            elif name in module.items:
                return module, name
            elif (module, name) in visited:
                return None, None
            elif name in module.uses:
                path = (*module.uses[name], *rest)
                return module.resolve(path, visited | {(module, name)})
            elif name in module.children:
                module = module.children[name]
            else:
                return module.through_globs((name, *rest), visited | {(module, name)})
        return module, None

    def through_globs(self, path, visited):
        """As `resolve`, of a name that another module defines."""
        for glob in self.globs:
            module, item = self.resolve(glob, visited)
            found = module.resolve(path, visited) if module and not item else (None, None)
            if found != (None, None):
                return found
        return None, None

    def imports(self):
        """The modules and items that the code names, except those in modules that contain it."""
        named = {path[0] for path in self.paths}
        paths = set(self.paths)
        for path, name in self.private:
            # A trait is imported for its methods, without its name.
            module, item = self.resolve(path)
            if name not in named and item and module.items[item] == "trait":
                paths.add(path)
        for module, item in map(self.resolve, paths):
            if item and module not in self.lineage():
                yield module, item


def closing(code, at):
    """The index of the bracket that closes the one at `at`."""
    depth = 0
    for index in range(at, len(code)):
        depth += (code[index] in OPEN) - (code[index] in CLOSE)
        if depth == 0:
            return index
    return len(code) - 1


def is_for_tests(attribute):
    """Whether an attribute excludes an item from all builds but those of tests."""
    text = " ".join(attribute)
    return re.match(r"# \[ cfg \( (?:all \( (?:.* , )?)?test\b", text) is not None


def item_end(code, at):
    """The index behind the item, field or arm at `at`."""
    words = []
    while at < len(code):
        token = code[at]
        if token in OPEN:
            at = closing(code, at)
            if token == "{" and not STATEMENTS & set(words):
                return at + 1
        elif token in CLOSE:
            return at
        elif token == ";" or (token == "," and not ITEMS & set(words)):
            return at + 1
        else:
            words.append(token)
        at += 1
    return at


def use_tree(code, at, prefix=()):
    """The imports of a `use` from `at` on, as (path, name), and the index behind them."""
    path = list(prefix)
    while code[at] not in (";", ",", "}"):
        token = code[at]
        if token == "{":
            found = []
            while code[at] != "}":
                more, at = use_tree(code, at + 1, path)
                found += more
            return found, at + 1
        if token == "as":
            return [(tuple(path), code[at + 1])], at + 2
        if token == "*":
            return [(tuple(path), "*")], at + 1
        # `a::{self}` names `a`.
        if token != "::" and not (token == "self" and path):
            path.append(token)
        at += 1
    return ([(tuple(path), path[-1])] if code[at - 1] != "{" and path else []), at


class Reader:
    """Reads a module and those that it contains."""

    def __init__(self, module, folder, code=None):
        self.module = module
        # Of the files of its children.
        self.folder = folder
        self.code = tokens(module.file.read_text()) if code is None else code
        self.at = 0
        self.read()

    def read(self):
        depth = 0
        while self.at < len(self.code):
            token, following = self.code[self.at], self.code[self.at + 1 : self.at + 3]
            if token == "#" and "[" in following:
                self.attribute()
            elif token == "mod" and following[1:] in (["{"], [";"]):
                self.child()
            # Not `use<…>`, which lists what a type captures.
            elif token == "use" and following[:1] != ["<"]:
                self.use()
            elif token == "macro_rules":
                self.module.items[following[1]] = token
                self.at += 3
            elif depth == 0 and token in ITEMS:
                self.definition()
            elif NAME.fullmatch(token):
                self.path()
            else:
                depth += (token in OPEN) - (token in CLOSE)
                self.at += 1

    def attribute(self):
        """Skips an item for tests alone; other attributes may contain paths, serde's in strings."""
        end = closing(self.code, self.code.index("[", self.at)) + 1
        attribute = self.code[self.at : end]
        if is_for_tests(attribute):
            self.at = item_end(self.code, end)
            return
        for token in attribute:
            if re.fullmatch(r'"(\w+::)+\w+"', token):
                self.module.paths.add(tuple(token.strip('"').split("::")))
        # Its names are read as those of other code.
        self.at += 1

    def child(self):
        name = self.code[self.at + 1]
        if self.code[self.at + 2] == "{":
            end = closing(self.code, self.at + 2)
            child = self.module.children[name] = Module(self.module.file, self.module)
            Reader(child, self.folder / name, self.code[self.at + 3 : end])
            self.at = end + 1
            return
        self.at += 3
        file = self.folder / f"{name}.rs"
        if file.is_file():
            child = self.module.children[name] = Module(file, self.module)
            Reader(child, self.folder / name)

    def use(self):
        before = " ".join(self.code[max(0, self.at - 8) : self.at])
        is_public = re.search(r"\bpub(?: \( [^()]* \))?$", before)
        found, self.at = use_tree(self.code, self.at + 1)
        for path, name in found:
            if name == "*":
                self.module.globs.append(path)
                continue
            self.module.uses[name] = path
            if not is_public:
                self.module.private.append((path, name))

    def definition(self):
        """Reads `struct S`, `const fn f`, `static mut X` and others, but not the type `fn(…)`."""
        keyword = self.code[self.at]
        self.at += 1
        while self.code[self.at] in ("fn", "mut", "unsafe", "async"):
            keyword = "fn" if self.code[self.at] == "fn" else keyword
            self.at += 1
        if NAME.fullmatch(self.code[self.at]):
            self.module.items[self.code[self.at]] = keyword
            self.at += 1

    def path(self):
        is_member = self.code[self.at - 1 : self.at] == ["."]
        path = [self.code[self.at]]
        self.at += 1
        while self.code[self.at : self.at + 1] == ["::"] and NAME.fullmatch(self.code[self.at + 1]):
            path.append(self.code[self.at + 1])
            self.at += 2
        if not is_member:
            self.module.paths.add(tuple(path))


def imports(source):
    """The imports between the files below a crate's `src`: {(file, file): names}."""
    found = collections.defaultdict(set)
    for file in [source / "lib.rs", source / "main.rs", *sorted(source.glob("bin/*.rs"))]:
        if not file.is_file():
            continue
        root = Module(file)
        Reader(root, file.parent)
        for importer in root.all():
            for module, item in importer.imports():
                if module.file != importer.file:
                    pair = (importer.file.relative_to(source), module.file.relative_to(source))
                    found[tuple(map(str, pair))].add(item)
    return found


def cycles(edges):
    """The sets of files that reach each other by edges, the largest first (Tarjan's algorithm)."""
    following = collections.defaultdict(list)
    for source, target in sorted(edges):
        following[source].append(target)
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in following.get(node, ()):
            if target not in index:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == index[node]:
            members = stack[stack.index(node) :]
            del stack[-len(members) :]
            if len(members) > 1:
                found.append(set(members))

    for node in list(following):
        if node not in index:
            visit(node)
    return sorted(found, key=lambda files: (-len(files), sorted(files)))


def main():
    crates = sys.argv[1:] or sorted(path.parent.name for path in ROOT.glob("crates/*/src"))
    failed = False
    for crate in crates:
        edges = imports(ROOT / "crates" / crate / "src")
        limit = LIMITS.get(crate, 0)
        for files in cycles(edges):
            print(f"crates/{crate}/src: a cycle of {len(files)} files, at most {limit}")
            failed |= len(files) > limit
            for (source, target), names in sorted(edges.items()):
                if {source, target} <= files:
                    print(f"  {source} -> {target}: {', '.join(sorted(names))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
