#!/usr/bin/env python3
"""Tests of the check of the text: sentences that it finds, and sentences that it leaves."""

import unittest
from unittest import mock

import lint_text

# Sentences that a reader has to decode, each as it was once written.
FOUND = [
    "'{library}' is no OpenCL driver",
    "'{0}' is no endpoint: expected …",
    "this is no question",
    "a folder whose name is no text",
    "a kernel without a number",
    '.context("a kernel without a number")',
    "the bell is no eventfd",
    "Spans that the collector took",
    "without it nobody is told and nothing is made",
    "Who receives says when.",
    "Behind the client's news: it is nobody's in a hurry.",
    "who takes bytes is known last, and that moves a few numbers, not the words",
    "Positions are compared as far as the rings go, but where the wire has them.",
    "What an older Verilator compiled is compiled again",
    "A session whose call is under way is not idle",
    "vfun: A program that was not rung need not have been",
    "it runs for ever",
    "it waits in vain",
    "so long as it runs",
    "besides, it waits",
    "// It waits, else it fails.",
    "so many bytes",
    "a kernel of so many states",
    "## Who may",
    "## What cannot move",
    "/// What a file holds.",
    "//! Which arenas are pinned.",
    "    /// How long a thread is kept.",
    "// Where the ring is.",
    "struct DeviceWish {",
    "enum Place {",
    "use baltra_functions::Request as Asked;",
]

# The same facts in plain words, and similar words with another meaning.
LEFT = [
    "'{library}' is not an OpenCL driver",
    "there is no driver",
    "internal error: no kernel with rank {n}",
    "Spans accepted by the collector",
    "Flow control is receiver-driven.",
    "The consumer is selected late, so only pointers move, never data.",
    "hdl: Rebuild models after a Verilator upgrade",
    "net: Do not close sessions with a call in progress",
    "vfun: Treat a missed doorbell as normal",
    "// Where memory is short, blocks are smaller.",
    "/// The client, who sends the hello.",
    "// Is the driver loaded? What does it report?",
    "struct KernelPlacement {",
    "use crate::Request as DeviceRequest;",
]


def rules(line):
    """The rules that find a line."""
    return {rule for _, rule, _ in lint_text.findings_in("name.rs", [line])}


class Phrases(unittest.TestCase):
    def test_finds_each_sentence_that_a_reader_has_to_decode(self):
        for line in FOUND:
            with self.subTest(line):
                self.assertTrue(rules(line))

    def test_leaves_plain_sentences(self):
        for line in LEFT:
            with self.subTest(line):
                self.assertEqual(rules(line), set())


class Widths(unittest.TestCase):
    def test_prose_is_bounded_but_tables_code_and_images_are_not(self):
        wide = "word " * 25
        for line, expected in (
            (wide + "end", {"width"}),
            (wide + "[a link](page.md)", {"width"}),
            ("| " + wide + "|", set()),
            ("![" + wide + "](picture.svg)", set()),
        ):
            found = {rule for _, rule, _ in lint_text.findings_in("page.md", [line])}
            self.assertEqual(found, expected, line)
        block = ["```", wide + "end", "```"]
        self.assertEqual(list(lint_text.findings_in("page.md", block)), [])


class Base(unittest.TestCase):
    def test_is_the_upstream_branch_or_else_the_merge_base_with_main(self):
        for answers, expected in (
            (["a\n"], "a"),
            ([None, "b\n"], "b"),
            ([None, None, "c\n"], "c"),
            ([None, None, None], None),
        ):
            with mock.patch.object(lint_text, "git", side_effect=answers):
                self.assertEqual(lint_text.base(), expected)


if __name__ == "__main__":
    unittest.main()
