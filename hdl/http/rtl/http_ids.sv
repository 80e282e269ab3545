// The ids of requests (X-Request-Id), one per session: written one byte at a time while it is
// parsed, and read eight bytes at a time for replies. There is one copy per reader.
//
// Parameters: SESSIONS. Latency: 1 cycle.
module http_ids #(
    parameter  int SESSIONS = 16,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic         clk,
    input  logic         write,
    input  logic [S-1:0] write_session,
    input  logic [5:0]   write_at,      // the byte
    input  logic [7:0]   write_data,
    input  logic         read,
    input  logic [S-1:0] session,
    input  logic [2:0]   word,
    output logic [63:0]  data           // byte 8 * word in bits 7:0
);

  // No reply is sent while the id of its request is written.
  (* ram_style = "block", no_rw_check = 1 *) logic [63:0] words[8*SESSIONS];

  logic own_clk;  // gated while no state changes
  clock_gate u_gate (
      .clk,
      .wake (write || read),
      .gated(own_clk)
  );

  always_ff @(posedge own_clk) begin
    if (write)
      for (int i = 0; i < 8; i++) if (write_at[2:0] == 3'(i)) words[{write_session, write_at[5:3]}][8*i+:8] <= write_data;
    if (read) data <= words[{session, word}];
  end

`ifndef SYNTHESIS
  ids_fit : assert property (@(posedge clk) write |-> write_at < 6'(http_pkg::ID_BYTES));
`endif

endmodule
