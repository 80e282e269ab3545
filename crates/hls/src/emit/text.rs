//! The module's text: header, declarations, memories, units and states.

use super::*;

impl Emitter<'_> {
    pub(super) fn text(&mut self, name: &str, sources: &str) -> String {
        let mut out = String::new();
        let cells = self.states.len();
        let bits = usize::BITS - (cells.max(2) - 1).leading_zeros();
        let _ = writeln!(
            out,
            "// {sources}, synthesized by `baltra cluster build`: do not edit."
        );
        let _ = writeln!(out, "//\n// Ports: those that every kernel of a live board has. One state per clock while `step` is high; comments\n// give the source line of each state.");
        let _ = writeln!(out, "module {name}\n{HEADER}");
        let _ = writeln!(out, "  typedef enum logic [{}:0] {{", bits - 1);
        for (i, (state, comment)) in self.order.iter().enumerate() {
            let comma = if i + 1 < self.order.len() { "," } else { "" };
            let _ = writeln!(
                out,
                "    {state}{comma}{}{comment}",
                if comment.is_empty() { "" } else { "  // " }
            );
        }
        let _ = writeln!(
            out,
            "  }} state_t;\n\n  state_t state;\n  logic   step;\n{CALLS}"
        );
        // Return states and results of functions.
        for (f, body) in self.bodies.iter().enumerate() {
            if f == 0 {
                continue;
            }
            let _ = writeln!(out, "  state_t {}_return;", self.functions[f]);
            if let Some(bits) = body.function.result.bits() {
                let _ = writeln!(out, "  logic {}{}_result;", range(bits), self.functions[f]);
            }
        }
        let _ = writeln!(out, "\n  // ---- registers ----\n");
        for (f, v) in &self.marks.registers {
            let _ = writeln!(
                out,
                "  logic {}{};",
                range(self.bits(*f, *v)),
                self.values[*f][*v]
            );
        }
        for (lane, bits, _) in &self.lanes {
            let _ = writeln!(out, "  logic {}{lane};", range(*bits));
        }
        out.push_str(&self.declared);
        self.memories_text(&mut out);
        self.units_text(&mut out);
        out.push_str(&self.wires);
        let waits: Vec<String> = self
            .waiting
            .iter()
            .map(|(unit, states)| {
                let states: Vec<String> = states.iter().map(|s| format!("state == {s}")).collect();
                format!(
                    "!(({}) && !{}_done)",
                    states.join(" || "),
                    unit_name(*unit, 0)
                )
            })
            .collect();
        let _ = writeln!(
            out,
            "\n  assign step = {}port_ready;",
            waits.iter().map(|w| format!("{w} && ")).collect::<String>()
        );
        // Calls.
        let _ = writeln!(out, "\n  always_comb begin\n    call         = CallNone;\n    call_command = '0;\n    call_bytes   = '0;\n    call_data    = '0;");
        for (when, drive) in &self.calls {
            let _ = writeln!(out, "    if ({when}) begin");
            for line in drive.lines().filter(|l| !l.is_empty()) {
                let _ = writeln!(out, "      {line}");
            }
            let _ = writeln!(out, "    end");
        }
        let _ = writeln!(
            out,
            "  end\n\n  always_ff @(posedge clk) begin\n    if (step) begin"
        );
        for (lane, _, view) in &self.lanes {
            let _ = writeln!(out, "      {lane} <= {view};");
        }
        let _ = writeln!(out, "      case (state)");
        for (state, acts) in &self.steps {
            if acts.is_empty() {
                continue;
            }
            let _ = writeln!(out, "        {state}: begin");
            let mut depth = 10;
            for line in acts.iter().flat_map(|a| a.lines()) {
                if line.starts_with("end") {
                    depth -= 2;
                }
                let _ = writeln!(out, "{:depth$}{line}", "");
                if line.ends_with("begin") || line.starts_with("case ") {
                    depth += 2;
                }
            }
            let _ = writeln!(out, "        end");
        }
        let first = self.states[&(0, 0, 0)].clone();
        let _ = writeln!(out, "        default: ;\n      endcase\n    end\n    if (rst) state <= {first};\n  end\n\nendmodule");
        out
    }

    fn memories_text(&mut self, out: &mut String) {
        for (m, memory) in self.memories.all.iter().enumerate() {
            if memory.far {
                let _ = writeln!(
                    out,
                    "\n  // ---- {}: off the chip ----",
                    memory.objects.join(", ")
                );
                continue;
            }
            let name = &self.memory_names[m];
            let (words, bits) = (memory.words(), memory.width * 8);
            let index = index_bits(words);
            let objects = memory
                .objects
                .iter()
                .take(6)
                .cloned()
                .collect::<Vec<_>>()
                .join(", ");
            let more = if memory.objects.len() > 6 { " …" } else { "" };
            let _ = writeln!(out, "\n  // ---- {objects}{more}: {words} words ----\n");
            let _ = writeln!(
                out,
                "  logic [{}:0] {name}[{words}];\n  logic [{}:0] {name}_q;",
                bits - 1,
                bits - 1
            );
            let reads = self.reads.get(&m).cloned().unwrap_or_default();
            let writes = self.writes.get(&m).cloned().unwrap_or_default();
            if !reads.is_empty() {
                let _ = writeln!(
                    out,
                    "  logic {name}_read;\n  logic {}{name}_from;",
                    range(index)
                );
            }
            if !writes.is_empty() {
                let _ = writeln!(
                    out,
                    "  logic {}{name}_write;\n  logic {}{name}_to;\n  logic [{}:0] {name}_data;",
                    range(memory.width as u32),
                    range(index),
                    bits - 1
                );
            }
            let _ = writeln!(
                out,
                "\n  initial begin\n    for (int i = 0; i < {words}; i++) {name}[i] = '0;"
            );
            for (i, word) in memory.bytes.chunks(memory.width as usize).enumerate() {
                if word.iter().any(|b| *b != 0) {
                    let hex: String = word.iter().rev().map(|b| format!("{b:02x}")).collect();
                    let _ = writeln!(out, "    {name}[{i}] = {bits}'h{hex};");
                }
            }
            let _ = writeln!(out, "  end\n\n  always_comb begin");
            if !reads.is_empty() {
                let _ = writeln!(out, "    {name}_read = 1'b0;\n    {name}_from = '0;");
            }
            for (when, word) in &reads {
                let _ = writeln!(out, "    if ({when}) begin\n      {name}_read = step;\n      {name}_from = {word};\n    end");
            }
            if !writes.is_empty() {
                let _ = writeln!(
                    out,
                    "    {name}_write = '0;\n    {name}_to = '0;\n    {name}_data = '0;"
                );
            }
            for (when, [word, mask, data]) in &writes {
                let _ = writeln!(out, "    if ({when}) begin\n      {name}_write = {mask};\n      {name}_to = {word};\n      {name}_data = {data};\n    end");
            }
            let _ = writeln!(out, "  end\n\n  always_ff @(posedge clk) begin");
            if !reads.is_empty() {
                let _ = writeln!(out, "    if ({name}_read) {name}_q <= {name}[{name}_from];");
            }
            if !writes.is_empty() {
                let _ = match memory.width {
                    1 => writeln!(out, "    if (step && {name}_write) {name}[{name}_to] <= {name}_data;"),
                    w => writeln!(out, "    for (int b = 0; b < {w}; b++) if (step && {name}_write[b]) {name}[{name}_to][8*b+:8] <= {name}_data[8*b+:8];"),
                };
            }
            let _ = writeln!(out, "  end");
        }
    }

    fn units_text(&mut self, out: &mut String) {
        for ((kind, instance), uses) in self.units.clone() {
            let name = unit_name(kind, instance);
            let (wide, result) = kind.bits();
            let (module, parameters) = kind.module();
            let letters = ["a", "b"];
            let _ = writeln!(out, "\n  // ---- {name} ----\n");
            for letter in &letters[..kind.operands()] {
                let _ = writeln!(out, "  logic {}{name}_{letter};", range(wide));
            }
            let _ = writeln!(out, "  logic {}{name}_y;", range(result));
            if kind.waits() {
                let _ = writeln!(
                    out,
                    "  logic {}{name}_rest;\n  logic {name}_start, {name}_signed, {name}_done;",
                    range(result)
                );
            }
            let _ = writeln!(out, "\n  always_comb begin");
            for letter in &letters[..kind.operands()] {
                let _ = writeln!(out, "    {name}_{letter} = '0;");
            }
            if kind.waits() {
                let _ = writeln!(out, "    {name}_start = 1'b0;\n    {name}_signed = 1'b0;");
            }
            for (when, inputs) in &uses {
                let _ = writeln!(out, "    if ({when}) begin");
                for (letter, input) in letters[..kind.operands()].iter().zip(inputs) {
                    let _ = writeln!(out, "      {name}_{letter} = {input};");
                }
                if kind.waits() {
                    let _ = writeln!(
                        out,
                        "      {name}_start = step;\n      {name}_signed = {};",
                        inputs[2]
                    );
                }
                let _ = writeln!(out, "    end");
            }
            let ports: String = letters[..kind.operands()]
                .iter()
                .map(|l| format!(".{l}({name}_{l}), "))
                .collect();
            let parameters = if parameters.is_empty() {
                String::new()
            } else {
                format!("#({parameters}) ")
            };
            let more = match kind.waits() {
                true => format!(".rst, .start({name}_start), .is_signed({name}_signed), .done({name}_done), .rest({name}_rest), "),
                false => ".enable(step), ".to_owned(),
            };
            let _ = writeln!(
                out,
                "  end\n\n  {module} {parameters}u_{name} (.clk, {more}{ports}.y({name}_y));"
            );
        }
    }
}

const HEADER: &str = "  import hum_envelope_pkg::*;
  import msg_pkg::*;
  import msg_calls_pkg::*;
(
`include \"msg_kernel_ports.svh\"
);
";

const CALLS: &str = "
  // ---- calls of the message engines and of memory off the chip ----

  call_t       call;
  logic [31:0] call_command, call_bytes;
  logic [63:0] call_data, port_cycles, port_word;
  logic        port_ready, port_there;
  logic [7:0]  port_fault;
  outcome_t    port_outcome;

  msg_calls u_calls (.*);
";
