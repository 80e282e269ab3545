#!/usr/bin/env python3
"""Tests of the check for assertions: which modules pass, and what it reports about the others."""

import unittest

import check_assertions

MODULE = "module m (input logic clk, input logic rst, input logic a);\n  logic b;\n"
TAIL = """`ifndef SYNTHESIS
  a_precedes_b : assert property (@(posedge clk) disable iff (rst) a |=> b);
`endif
"""


class Faults(unittest.TestCase):
    def faults(self, text, exempt=False):
        return list(check_assertions.faults(text, exempt))

    def test_named_assertions_at_the_end_pass(self):
        self.assertEqual(self.faults(MODULE + "\n" + TAIL + "\nendmodule\n"), [])

    def test_state_for_assertions_passes(self):
        tail = TAIL.replace("  a_pre", "  logic c;\n  always_ff @(posedge clk) c <= a;\n  a_pre")
        self.assertEqual(self.faults(MODULE + tail + "endmodule\n"), [])

    def test_packages_need_none(self):
        self.assertEqual(self.faults("package p;\nendpackage\n"), [])

    def test_module_without_assertions_is_reported(self):
        self.assertEqual(self.faults(MODULE + "endmodule\n"), ["has no assertion"])

    def test_assertion_in_a_comment_does_not_count(self):
        text = MODULE + TAIL.replace("a_precedes_b", "// a_precedes_b") + "endmodule\n"
        self.assertEqual(self.faults(text), ["has no assertion"])

    def test_assertion_without_a_name_is_reported(self):
        text = MODULE + TAIL.replace("a_precedes_b : ", "") + "endmodule\n"
        self.assertEqual(self.faults(text), ["has an assertion without a name"])

    def test_assertion_before_the_end_is_reported(self):
        early = "  early : assert property (@(posedge clk) a);\n"
        self.assertEqual(
            self.faults(MODULE + early + TAIL + "endmodule\n"),
            ["has an assertion before its last lines"],
        )
        self.assertEqual(
            self.faults(MODULE + TAIL + "  assign b = a;\nendmodule\n"),
            ["has assertions that are not its last lines, in `ifndef SYNTHESIS"],
        )

    def test_default_clock_is_reported(self):
        clock = "`ifndef SYNTHESIS\n  default clocking @(posedge clk); endclocking\n"
        text = MODULE + TAIL.replace("`ifndef SYNTHESIS\n", clock) + "endmodule\n"
        self.assertEqual(self.faults(text), ["has a default clock or reset"])

    def test_needless_exemption_is_reported(self):
        self.assertEqual(
            self.faults(MODULE + TAIL + "endmodule\n", True), ["is exempt, but has assertions"]
        )
        self.assertEqual(
            self.faults("package p;\nendpackage\n", True), ["is exempt, but has no module"]
        )
        self.assertEqual(self.faults(MODULE + "endmodule\n", True), [])


if __name__ == "__main__":
    unittest.main()
