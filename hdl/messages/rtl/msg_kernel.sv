// A kernel of any form (the macro KERNEL is its module), with its port to the router. With the
// macro STREAMS it has AXI streams, and no engines.
//
// Parameters: PROBE, a capture core on its streams; MEMORY, board memory (msg_memory); without
// it, the AXI4 port is unused. A kernel that accesses memory that it does not have ends with 139.
`ifndef KERNEL
`define KERNEL msg_echo
`endif
module msg_kernel
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter int PROBE = 0,
    parameter int MEMORY = 0
) (
`include "msg_load_ports.svh"
    output logic        ended,
    output logic [7:0]  code,
`include "msg_observed_ports.svh"
    ,
    input  logic [31:0] memory_address,  // see msg_memory_ports.svh
    input  logic [28:0] memory_bytes,
`include "msg_word_ports.svh"
    ,
`include "msg_axi_ports.svh"
);

  beat_t m_beat, s_beat;

  // Longer than an engine searches its buffers after the last packet.
  logic       asleep;
  logic [9:0] quiet;

  assign still = quiet == '1;

  always_ff @(posedge clk) begin
    if (rst || !asleep || m_valid || s_valid) quiet <= '0;
    else if (!still) quiet <= quiet + 1'b1;
  end

  assign m_last = m_beat.last;
  assign m_data = m_beat.data;
  assign s_beat = '{last: s_last, data: s_data};

  // Accepted commands that the engines have not completed.
  logic sending, receiving;

`ifdef STREAMS
  assign sending   = 1'b0;
  assign receiving = 1'b0;
  assign waits     = '0;
`else
  logic send_valid, send_ready, out_valid, out_ready, send_done;
  logic receive_valid, receive_ready, in_valid, in_ready, receive_done;
  logic [7:0]  send_fault;
  logic [63:0] out_data, in_data;
  send_t       send_command;
  receive_t    receive_command;
  outcome_t    receive_outcome;
  send_t       sent;
  receive_t    wanted;

  assign waits = {
    wanted.tag, wanted.source, sent.tag, sent.dest,
    2'b0, wanted.any_tag, wanted.any_source, wanted.collective, sent.collective, receiving, sending
  };

  always_ff @(posedge clk) begin
    if (send_done) sending <= 1'b0;
    if (receive_done) receiving <= 1'b0;
    if (send_valid && send_ready) begin
      sending <= 1'b1;
      sent    <= send_command;
    end
    if (receive_valid && receive_ready) begin
      receiving <= 1'b1;
      wanted    <= receive_command;
    end
    if (rst) begin
      sending   <= 1'b0;
      receiving <= 1'b0;
    end
  end
`endif

  if (PROBE != 0) begin : g_probe
    logic out, in;
    assign out = probe[0] && m_valid;
    assign in  = probe[1] && s_valid;
    // Signals that are not valid are undefined, and do not count as changes.
    capture #(
        .W(136)
    ) u_capture (
        .clk,
        .rst,
        .now,
        .sample({
          receiving, sending, in && s_last, in && s_ready, in, out && m_last, out && m_ready, out,
          out ? m_data : 64'b0, in ? s_data : 64'b0
        }),
        .m_valid(note_valid),
        .m_ready(1'b1),
        .m_gap(note_gap),
        .m_at(note_at),
        .m_sample({note_flags, note_out, note_in})
    );
  end else begin : g_no_probe
    assign note_valid = 1'b0;
    assign note_gap   = 1'b0;
    assign note_at    = '0;
    assign note_flags = '0;
    assign note_out   = '0;
    assign note_in    = '0;
  end

  // A kernel that does not use off-chip memory lacks these ports and leaves the signals undriven.
  logic        mem_valid, mem_ready, mem_fault, faulty, over;
  logic [31:0] mem_address;
  logic [7:0]  mem_strobe, end_code;
  logic [63:0] mem_data, mem_word;

  if (MEMORY != 0) begin : g_memory
    msg_memory u_memory (.*);
  end else begin : g_no_memory
    assign mem_ready = mem_valid;
    assign mem_word  = '0;
    assign mem_fault = mem_valid;
    assign arvalid   = 1'b0;
    assign araddr    = '0;
    assign rready    = 1'b0;
    assign awvalid   = 1'b0;
    assign awaddr    = '0;
    assign wvalid    = 1'b0;
    assign wdata     = '0;
    assign wlast     = 1'b0;
    assign bready    = 1'b0;
  end

  always_ff @(posedge clk) begin
    if (mem_fault && !over) faulty <= 1'b1;
    if (rst) faulty <= 1'b0;
  end

  assign ended = over || faulty;
  assign code  = faulty ? 8'd139 : end_code;

`ifdef STREAMS
  logic        out_tvalid, out_tready, out_tlast, in_tvalid, in_tready, in_tlast, idle, kernel_idle;
  logic [63:0] out_tdata, in_tdata;
  logic [7:0]  out_tkeep, out_tdest, in_tkeep, in_tid, fault;
  tag_t        out_tuser, in_tuser;

  // A stream that has lost data is invalid.
  assign over        = fault != FaultNone;
  assign end_code    = fault;
  assign asleep      = over || (idle && kernel_idle && !in_tvalid);
  assign text_valid  = 1'b0;
  assign text        = '0;
  assign mem_valid   = 1'b0;
  assign mem_address = '0;
  assign mem_strobe  = '0;
  assign mem_data    = '0;

  msg_axis u_axis (.*);
  `KERNEL u_kernel (.*);
`else
  msg_port u_port (.*);
  `KERNEL u_kernel (
      .ended(over),
      .code (end_code),
      .*
  );
`endif

`ifndef SYNTHESIS
  packets_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable({m_last, m_data}));
  end_is_last : assert property (@(posedge clk) disable iff (rst) ended |=> ended);
  still_kernels_are_asleep : assert property (@(posedge clk) disable iff (rst)
      still |-> $past(asleep));
`endif

endmodule
