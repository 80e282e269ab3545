#!/usr/bin/env python3
"""Tests of the check for import cycles: what counts as an import, and which cycles it reports."""

import contextlib
import io
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import check_cycles


class Crate(unittest.TestCase):
    """Writes a crate's files."""

    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.source = self.root / "crates/one/src"

    def write(self, **files):
        for name, text in files.items():
            path = self.source / (name.replace("__", "/") + ".rs")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def imports(self, **files):
        """The imports of a crate with these files, as text."""
        self.write(**files)
        found = check_cycles.imports(self.source)
        return {f"{pair[0]} -> {pair[1]}: {', '.join(sorted(found[pair]))}" for pair in found}


class Imports(Crate):
    LIB = "mod a;\nmod b;\n"

    def test_uses_and_qualified_paths_count_with_their_names(self):
        found = self.imports(
            lib=self.LIB,
            a="use crate::b::{self, One, Two as Other};\nfn f(_: One) -> Other { b::g() }",
            b="pub struct One;\npub struct Two;\npub fn g() {}\nfn h() { super::a::f(); }",
        )
        self.assertEqual(found, {"a.rs -> b.rs: One, Two, g", "b.rs -> a.rs: f"})

    def test_an_imported_module_counts_by_the_names_that_are_used(self):
        found = self.imports(
            lib=self.LIB, a="use crate::b;\nuse super::b as c;\nfn f() {}", b="pub fn g() {}"
        )
        self.assertEqual(found, set())

    def test_a_name_counts_for_the_file_that_defines_it(self):
        found = self.imports(
            lib="mod a;\nmod b;\npub use b::One;\n",
            a="use crate::b::{Two, child};\nfn f(_: crate::One, _: Two) { child::h() }",
            b="pub mod child;\npub use child::Two;\nuse child::Three as One;",
            b__child="pub struct Two;\npub struct Three;\npub fn h() {}",
        )
        self.assertEqual(found, {"a.rs -> b/child.rs: Three, Two, h"})

    def test_a_module_imports_from_its_children_and_not_the_other_way_round(self):
        found = self.imports(
            lib="mod a;\n",
            a="mod b;\nuse b::One;\npub struct Outer(One);",
            a__b="use super::Outer;\npub struct One;\nimpl Outer { fn f(&self) {} }",
        )
        self.assertEqual(found, {"a.rs -> a/b.rs: One"})

    def test_code_for_tests_does_not_count(self):
        found = self.imports(
            lib=self.LIB,
            a="""
            #[cfg(test)]
            use crate::b::One;
            struct S { #[cfg(test)] a: crate::b::One, #[cfg(not(test))] b: crate::b::Two }
            #[cfg(all(test, not(loom)))]
            mod tests { use crate::b::Three; fn f(_: Three) { if true {} } }
            #[cfg(test)]
            mod more;
            """,
            b="pub struct One;\npub struct Two;\npub struct Three;",
            a__more="fn f(_: crate::b::Three) {}",
        )
        self.assertEqual(found, {"a.rs -> b.rs: Two"})

    def test_comments_strings_and_locals_do_not_count(self):
        found = self.imports(
            lib=self.LIB,
            a="""
            // crate::b::g()
            /* /* crate::b::g() */ crate::b::g() */
            fn f<'a>(x: &'a str) -> char {
                let g = ("crate::b::g()\\"", r#"" crate::b::g()"#, '"', x.g);
                g.3
            }
            type Callback = fn(u32);
            """,
            b="pub fn g() {}",
        )
        self.assertEqual(found, set())

    def test_names_behind_a_type_of_a_function_count(self):
        found = self.imports(
            lib=self.LIB,
            a="type F = Option<unsafe extern fn(u32)>;\npub const fn one() {}",
            b="fn f() { crate::a::one() }",
        )
        self.assertEqual(found, {"b.rs -> a.rs: one"})

    def test_globs_count_by_the_names_that_are_used(self):
        found = self.imports(
            lib=self.LIB,
            a="use super::b::*;\nfn f(_: One) {}",
            b="pub struct One;\npub struct Two;",
        )
        self.assertEqual(found, {"a.rs -> b.rs: One"})

    def test_traits_count_without_their_names(self):
        found = self.imports(
            lib=self.LIB,
            a="use crate::b::{One, Two as _};\nfn f(x: u32) { x.one() }",
            b="pub trait One {}\npub trait Two {}",
        )
        self.assertEqual(found, {"a.rs -> b.rs: One, Two"})

    def test_macros_and_attributes_count(self):
        found = self.imports(
            lib=self.LIB,
            a='use crate::b::made;\nmade!();\nstruct S { #[serde(with = "crate::b::hex")] x: u32 }',
            b="macro_rules! made { () => { $crate::a::S } }\npub(crate) use made;\npub fn hex() {}",
        )
        self.assertEqual(found, {"a.rs -> b.rs: hex, made", "b.rs -> a.rs: S"})

    def test_names_that_import_each_other_end(self):
        found = self.imports(
            lib=self.LIB, a="pub use crate::b::*;\nfn f(_: X) {}", b="pub use crate::a::*;"
        )
        self.assertEqual(found, set())


class Cycles(Crate):
    def run_check(self, limits):
        printed = io.StringIO()
        with (
            mock.patch.object(check_cycles, "ROOT", self.root),
            mock.patch.object(check_cycles, "LIMITS", limits),
            mock.patch.object(sys, "argv", ["check_cycles.py"]),
            contextlib.redirect_stdout(printed),
        ):
            return check_cycles.main(), printed.getvalue()

    def test_files_that_reach_each_other_are_found(self):
        edges = ["ab", "bc", "ca", "cd", "de", "ed", "ef", "ga"]
        found = check_cycles.cycles({tuple(edge): set() for edge in edges})
        self.assertEqual(found, [set("abc"), set("de")])

    def test_fails_only_beyond_the_limit_of_the_crate(self):
        self.write(
            lib="mod a;\nmod b;\n",
            a="pub fn f() { crate::b::g() }",
            b="pub fn g() { crate::a::f() }",
        )
        text = (
            "crates/one/src: a cycle of 2 files, at most {}\n  a.rs -> b.rs: g\n  b.rs -> a.rs: f\n"
        )
        self.assertEqual(self.run_check({}), (1, text.format(0)))
        self.assertEqual(self.run_check({"one": 2}), (0, text.format(2)))
        self.write(b="pub fn g() {}")
        self.assertEqual(self.run_check({}), (0, ""))


if __name__ == "__main__":
    unittest.main()
