"""The slowest paths of a mapped netlist, estimated in seconds, while place and route takes an hour.

Every net has the same estimated delay, so the figures are rough: they show which modules limit the
clock, and in what order, but not the clock itself, which nextpnr reports.
"""

import collections
import json
import re

# ns, approximately nextpnr's delays for speed grade 8.
NET = 0.6
LUT = 0.2
INTO_CARRY, ALONG_CARRY, OUT_OF_CARRY = 0.45, 0.07, 0.45
MULTIPLIER = 3.9
STARTS = {"TRELLIS_FF": 0.4, "DP16KD": 4.3, "TRELLIS_DPR16X4": 1.0}
# Within a slice there is no routing between these.
JOINED = {("LUT4", "PFUMX"), ("PFUMX", "L6MUX21"), ("L6MUX21", "L6MUX21")}
ENDS = {"TRELLIS_FF": ("DI", "CE", "LSR"), "TRELLIS_DPR16X4": ("DI", "WAD", "WRE")}


def arcs(cell, output):
    """The inputs on which the output depends combinationally, each with its delay."""
    kind = cell["type"]
    if kind == "LUT4":
        return [(pin, LUT) for pin in "ABCD"]
    if kind == "PFUMX":
        return [(pin, LUT) for pin in ("ALUT", "BLUT", "C0")]
    if kind == "L6MUX21":
        return [(pin, LUT) for pin in ("D0", "D1", "SD")]
    if kind == "CCU2C":
        lower, upper = [f"{pin}0" for pin in "ABCD"], [f"{pin}1" for pin in "ABCD"]
        if output == "COUT":
            return [("CIN", ALONG_CARRY)] + [(pin, INTO_CARRY) for pin in lower + upper]
        own = [(pin, LUT) for pin in (lower if output == "S0" else upper)]
        return (
            [("CIN", OUT_OF_CARRY)]
            + own
            + ([(pin, INTO_CARRY) for pin in lower] if output == "S1" else [])
        )
    if kind == "TRELLIS_DPR16X4":
        return [("RAD", LUT)]
    if kind == "MULT18X18D":
        return [(pin, MULTIPLIER) for pin in cell["connections"] if re.fullmatch(r"[AB]\d+", pin)]
    return []


class Netlist:
    def __init__(self, path, top="harness"):
        self.cells = json.loads(path.read_text())["modules"][top]["cells"]
        self.driver = {
            bit: (name, pin)
            for name, cell in self.cells.items()
            for pin, bits in cell["connections"].items()
            if cell["port_directions"][pin] == "output"
            for bit in bits
            if isinstance(bit, int)
        }
        self.known = {}  # bit: its arrival time, and the bit that determines it

    def kind(self, bit):
        return self.cells[self.driver[bit][0]]["type"] if bit in self.driver else None

    def arrival(self, bit):
        """Depth first without recursion: paths are longer than Python's stack."""
        waiting = [bit]
        while waiting:
            at = waiting[-1]
            if at in self.known or at not in self.driver:
                self.known.setdefault(at, (0.0, None))
                waiting.pop()
                continue
            name, output = self.driver[at]
            cell = self.cells[name]
            before = [
                (source, pin, delay)
                for pin, delay in (
                    [] if cell["type"] in ("TRELLIS_FF", "DP16KD") else arcs(cell, output)
                )
                for source in cell["connections"].get(pin, [])
                if isinstance(source, int)
            ]
            missing = [source for source, _, _ in before if source not in self.known]
            if missing:
                # A combinational loop would never end; Yosys leaves none.
                waiting.extend(missing)
                continue
            best = (STARTS.get(cell["type"], 0.0), None)
            for source, pin, delay in before:
                wire = 0 if pin == "CIN" or (self.kind(source), cell["type"]) in JOINED else NET
                best = max(
                    best, (self.known[source][0] + wire + delay, source), key=lambda pair: pair[0]
                )
            self.known[at] = best
            waiting.pop()
        return self.known[bit][0]

    def origin(self, bit):
        luts = 0
        while self.known[bit][1] is not None:
            luts += self.kind(bit) in ("LUT4", "PFUMX", "L6MUX21")
            bit = self.known[bit][1]
        return self.driver.get(bit, ("a port",))[0], luts

    def ends(self):
        for name, cell in self.cells.items():
            kind = cell["type"]
            pins = ENDS.get(kind, ())
            if kind == "DP16KD":
                pins = [
                    pin
                    for pin in cell["connections"]
                    if cell["port_directions"][pin] == "input" and not pin.startswith("CLK")
                ]
            for pin in pins:
                for bit in cell["connections"].get(pin, []):
                    if isinstance(bit, int):
                        yield self.arrival(bit) + NET, name, bit


def signal(cell):
    """A cell's name without suffixes of the mapping, and without the prefix common to all."""
    return (
        re.sub(
            r"_(LUT4|PFUMX|CCU2C|L6MUX21|TRELLIS|DO|DI)\b.*|_(LUT4|PFUMX|CCU2C|L6MUX21|TRELLIS)_.*",
            "",
            cell,
        )
        .removeprefix("u.")
        .removeprefix("u_shell.")
    )


def slowest(path, period_ns, count):
    """The slowest path of each pair of modules, and the number of endpoints slower than the
    period."""
    netlist, worst = Netlist(path), {}
    late = collections.Counter()
    for ns, end, bit in netlist.ends():
        start, luts = netlist.origin(bit)
        pair = signal(start).rpartition(".")[0], signal(end).rpartition(".")[0]
        late[pair] += ns > period_ns
        if ns > worst.get(pair, (0,))[0]:
            worst[pair] = ns, luts, signal(start), signal(end)
    rows = sorted(((*row, late[pair]) for pair, row in worst.items()), reverse=True)
    return rows[:count]
