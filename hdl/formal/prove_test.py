#!/usr/bin/env python3
"""Tests of the record of proofs: a proof is skipped only if nothing that it depends on has changed."""

import contextlib
import io
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import prove


class Record(unittest.TestCase):
    """Works on a copy of the sources."""

    def setUp(self):
        self.copy = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.copy)
        for room in ("formal", *(f"{room}/rtl" for room in prove.ROOMS)):
            shutil.copytree(prove.HDL / room, self.copy / room)
        formal = self.copy / "formal"
        for name, value in (
            ("HDL", self.copy),
            ("HERE", formal),
            ("RECORD", formal / "proven"),
            ("WORK", self.copy / "work"),
        ):
            patch = mock.patch.object(prove, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def changed(self, file, old, new):
        """Changes a source, and returns the harnesses whose digest differs afterwards."""
        before = self.digests()
        path = self.copy / file
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1))
        after = self.digests()
        return {name for name in before if before[name] != after[name]}

    def digests(self):
        harnesses = prove.HERE.glob("*_f.sv")
        return {harness.stem: prove.digest(prove.inputs(harness)) for harness in harnesses}

    def run_prover(self, *arguments):
        # Its lines are not results of the tests.
        silent = contextlib.redirect_stdout(io.StringIO())
        with mock.patch.object(sys, "argv", ["prove.py", *map(str, arguments)]), silent:
            return prove.main()

    def test_changed_module_changes_digests_of_its_harnesses(self):
        # The parser is a module inside the receiver's harness; the ports are included by both.
        self.assertEqual(
            self.changed("net/rtl/net_parse.sv", "endmodule", "endmodule "), {"tcp_rx_f"}
        )
        self.assertEqual(self.changed("net/rtl/net_rx_ports.svh", "input", "input "), {"tcp_rx_f"})

    def test_changed_include_of_a_module_changes_digests(self):
        # The last two have a queue and a skid buffer in their modules.
        queues = {"axis_fifo_f", "axis_skid_f", "fifo_f", "axi_writers_f", "region_packets_f"}
        self.assertEqual(self.changed("common/rtl/payload_ports.svh", "input", "input "), queues)

    def test_changed_package_changes_digests(self):
        changed = self.changed("net/rtl/net_pkg.sv", "package", "package ")
        self.assertLessEqual({"net_mux_f", "tcp_rx_f", "tcp_tx_f"}, changed)
        self.assertNotIn("fifo_f", changed)

    def test_changed_harness_changes_only_its_digest(self):
        self.assertEqual(self.changed("formal/fifo_f.sv", "assert (", "assert  ("), {"fifo_f"})

    def test_changed_assertion_of_a_module_changes_no_digest(self):
        self.assertEqual(self.changed("common/rtl/arbiter.sv", "one_grant :", "a_grant :"), set())

    def test_record_does_not_hide_a_broken_module(self):
        harness = prove.HERE / "arbiter_f.sv"
        self.assertFalse(self.run_prover("--write", harness))
        with mock.patch.object(prove, "prove") as again:
            self.assertFalse(self.run_prover(harness))
            again.assert_not_called()
        # The lowest requester instead of the next one.
        self.changed("common/rtl/arbiter.sv", "lowest(later)", "lowest(request)")
        self.assertTrue(self.run_prover("--write", harness))
        self.assertNotIn("arbiter_f", prove.recorded())


if __name__ == "__main__":
    unittest.main()
