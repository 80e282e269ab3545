#!/usr/bin/env python3
"""Prints the envelope of src/envelope.def as a SystemVerilog package."""

import re
import sys

text = re.sub(r"/\*.*?\*/", "", open(sys.argv[1]).read(), flags=re.S)
entries = re.findall(
    r"^(FIELD|PACKET|FLAGBIT|CODE|FAULT|LIMIT)\((\w+),\s*(\d+)(?:,\s*(\d+))?\)", text, re.M
)
print(
    "// The envelope of a packet. Generated from humboldt/src/envelope.def: change it "
    "there.\npackage hum_envelope_pkg;"
)
fields = sorted(
    (int(low), name.lower(), int(width)) for kind, name, low, width in entries if kind == "FIELD"
)
end = 0
for low, name, width in fields:
    assert low == end, f"a gap or an overlap before {name}"
    end = low + width
assert end == 64
print("  typedef struct packed {")
for low, name, width in reversed(fields):
    name = "kind" if name == "type" else name  # a word of the language
    print(f"    logic [{width - 1}:0] {name};  // [{low + width - 1}:{low}]")
print("  } hum_envelope_t;")
for kind, prefix, width in (
    ("PACKET", "Packet", 4),
    ("FLAGBIT", "Flag", 4),
    ("CODE", "Code", 4),
    ("FAULT", "Fault", 8),
    ("LIMIT", "Limit", 16),
):
    for each, name, value, _ in entries:
        if each == kind:
            value = 1 << int(value) if kind == "FLAGBIT" else int(value)
            print(
                f"  localparam logic [{width - 1}:0] {prefix}{name.title().replace('_', '')} = "
                f"{width}'d{value};"
            )
print("endpackage")
