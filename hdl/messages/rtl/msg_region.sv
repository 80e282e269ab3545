// A kernel of the message door as the content of a region: the ports of every kernel
// (docs/kernels.md), a port to board memory, and packets to and from the board's router.
//
// A run is a rank of a job: it begins with `start` and ends when the kernel has ended. `params`
// has the rank, from bit 8 on the number of ranks, and from bits 32 and 64 on the place and the
// size of the kernel's memory (msg_memory_ports.svh). The body is the program of a kernel that is a
// processor, in words of 32 bits; others ignore it. The answer is one beat, the kernel's exit
// code; `code` is 1 if that is not zero. If params[127:96] is not zero, the run is refused (`code`
// 2, an empty answer): calls over HTTP cannot be ranks (region_call).
//
// The kernel is in reset from the next `start` on. Until then its engines still answer packets:
// a rank's partner may end later.
//
// Parameters: W, 64; PROBE and MEMORY as of msg_kernel. Latency: the body's words and six cycles
// until the kernel starts.
module msg_region #(
    parameter int W = 64,
    parameter int PROBE = 0,
    parameter int MEMORY = 0
) (
`include "stream_kernel_ports.svh"
    ,
    output logic [1:0]  code,
`include "msg_region_ports.svh"
    ,
`include "msg_observed_ports.svh"
    ,
`include "msg_axi_ports.svh"
);

  localparam logic [1:0] Failed = 2'd1, Unsuitable = 2'd2;
  localparam int WordBits = 15;  // of a processor's program

  if (W != 64) $error("W must be 64");

  typedef enum logic [2:0] {
    Idle,
    Clear,   // the kernel's reset
    Load,    // the program, a word per cycle
    Run,
    Reply,
    Refuse   // discards the body
  } state_t;

  state_t            state;
  logic [2:0]        reset_left;
  logic              half;      // the upper word of a beat is next
  logic [WordBits:0] word;
  logic              refused, kernel_rst, ready, ended;
  logic [7:0]        exit_code;

  // Packets wait for the kernel's start.
  assign packet_in_ready = ready && !kernel_rst;

  assign s_ready = (state == Load && half) || state == Refuse;
  assign m_valid = state == Reply;
  assign m_last  = 1'b1;
  assign m_keep  = refused ? '0 : 8'h01;
  assign m_data  = {56'd0, exit_code};

  always_ff @(posedge clk) begin
    done <= 1'b0;
    unique case (state)
      Idle: begin
        reset_left <= '1;
        half       <= 1'b0;
        word       <= '0;
        if (start) begin
          refused    <= params[127:96] != '0;
          kernel_rst <= 1'b1;
          state      <= params[127:96] != '0 ? Refuse : Clear;
        end
      end
      Clear: begin
        reset_left <= reset_left - 1'b1;
        if (reset_left == '0) state <= Load;
      end
      Load: if (s_valid) begin
        half <= !half;
        if (!word[WordBits]) word <= word + 1'b1;
        if (half && s_last) begin
          kernel_rst <= 1'b0;
          state      <= Run;
        end
      end
      Run: if (ended) state <= Reply;
      Refuse: if (s_valid && s_last) state <= Reply;
      default: if (m_ready) begin
        state <= Idle;
        done  <= 1'b1;
        code  <= refused ? Unsuitable : exit_code != '0 ? Failed : 2'd0;
      end
    endcase
    if (rst) begin
      state      <= Idle;
      kernel_rst <= 1'b1;
    end
  end

  msg_kernel #(
      .PROBE (PROBE),
      .MEMORY(MEMORY)
  ) u_kernel (
      .rst           (kernel_rst),
      .own           (params[7:0]),
      .ranks         (params[16:8]),
      .memory_address(params[63:32]),
      .memory_bytes  (params[92:64]),
      .load_valid    (state == Load && s_valid && !word[WordBits] && s_keep[half ? 4 : 0]),
      .load_address  ({1'b0, word[WordBits-1:0]}),
      .load_data     (half ? s_data[63:32] : s_data[31:0]),
      .m_valid       (packet_out_valid),
      .m_ready       (packet_out_ready),
      .m_last        (packet_out_last),
      .m_data        (packet_out),
      .s_valid       (packet_in_valid && !kernel_rst),
      .s_ready       (ready),
      .s_last        (packet_in_last),
      .s_data        (packet_in),
      .ended,
      .code          (exit_code),
      .*
  );

`ifndef SYNTHESIS
  starts_when_idle : assert property (@(posedge clk) disable iff (rst) start |-> state == Idle);
  done_for_a_cycle : assert property (@(posedge clk) disable iff (rst) done |=> !done);
  packets_stay : assert property (@(posedge clk) disable iff (rst)
      packet_out_valid && !packet_out_ready && !kernel_rst |=>
      kernel_rst || (packet_out_valid && $stable({packet_out_last, packet_out})));
  refused_runs_are_empty : assert property (@(posedge clk) disable iff (rst)
      m_valid && refused |-> m_keep == '0);
`endif

endmodule
