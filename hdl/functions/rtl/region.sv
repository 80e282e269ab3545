// A region's fixed boundary: the shell's interface to any loaded kernel,
// and its protection from it.
//
// A run begins with `start` (allowed while `idle`) and ends with `done`. Both streams are
// registered here, so that a region has no combinational path to the shell except from its
// `k_s_ready`, which is registered in the kernel (docs/kernels.md). A run that exceeds `timeout`
// cycles, without those in which the kernel waits for the shell, is stopped: the kernel is reset,
// the rest of its input is discarded, and its reply is ended. `kill` does the same at once. Then
// `failed` is high with `done`, and `m_failed` with the reply's last beat, which is empty and may
// follow full ones. While `decouple` is high the kernel is held in reset and its outputs are
// ignored; a run that is interrupted by it fails.
//
// Whatever a kernel does, the shell receives well-formed streams: output outside of a run or after
// its last beat is ignored, and input ends with its last beat.
//
// Parameters: W, stream width in bits. Latency: 1 cycle in each direction. Throughput:
// 1 beat per cycle.
module region #(
    parameter int W = 64
) (
    input  logic           clk,
    input  logic           rst,
    // Control.
    input  logic           start,
    input  logic [127:0]   params,
    input  logic [31:0]    timeout,     // cycles, sampled with `start`; 0: unlimited
    input  logic           kill,
    input  logic           decouple,
    output logic           idle,
    output logic           done,
    output logic           failed,
    output logic [1:0]     code,        // the kernel's, with `done`
    output logic [31:0]    cycles,      // of the last run, from `done` on; saturates
    // The kernel (docs/kernels.md).
    output logic           k_rst,
    output logic           k_start,
    output logic [127:0]   k_params,
    input  logic           k_done,
    input  logic [1:0]     k_code,      // with k_done
    output logic           k_s_valid,
    input  logic           k_s_ready,
    output logic [W-1:0]   k_s_data,
    output logic [W/8-1:0] k_s_keep,
    output logic           k_s_last,
    input  logic           k_m_valid,
    output logic           k_m_ready,
    input  logic [W-1:0]   k_m_data,
    input  logic [W/8-1:0] k_m_keep,
    input  logic           k_m_last,
    // The bodies of request and reply.
    output logic           m_failed,
`include "stream_in.svh"
`include "stream_out.svh"
);

  logic own_clk;  // gated while no state changes

  // Cycles of reset after a kill or a load.
  localparam logic [2:0] ResetCycles = 3'd4;

  typedef struct packed {
    logic [W-1:0]   data;
    logic [W/8-1:0] keep;
    logic           last;
  } beat_t;

  typedef struct packed {
    beat_t beat;
    logic  failed;
  } answer_t;

  typedef enum logic [1:0] {
    Resetting,
    Idle,
    Running,
    Ending      // killed: the streams are ended
  } state_t;

  state_t      state;
  logic [2:0]  reset_left;
  logic [31:0] limit;
  logic [31:0] turn;           // number of the next cycle that counts against the kernel, from 1 on
  logic        over;           // the last permitted cycle has passed
  logic        s_open, m_open; // the run's input or output has not ended, on the kernel's side
  logic        finished;       // the kernel has signaled done
  logic        waits, cut;

  assign idle = state == Idle && !decouple;

  // Input. In a stopped run the rest of it is discarded.

  logic  in_valid, in_ready, in_taken;
  beat_t in;

  // A register that can be filled as it is emptied,
  // because the kernel's ready is registered (docs/kernels.md).
  assign s_ready = !in_valid || in_ready;

  always_ff @(posedge own_clk) begin
    if (rst) in_valid <= 1'b0;
    else if (s_ready) in_valid <= s_valid;
  end

  always_ff @(posedge own_clk) if (s_ready) in <= '{data: s_data, keep: s_keep, last: s_last};

  assign k_s_valid = in_valid && s_open && state == Running;
  assign k_s_data  = in.data;
  assign k_s_keep  = in.keep;
  assign k_s_last  = in.last;
  assign in_ready  = s_open && ((state == Running && k_s_ready) || state == Ending);
  assign in_taken  = in_valid && in_ready;

  // Output. A stopped run gets an end if it had none.

  logic    out_valid, out_ready, out_taken;
  answer_t out, sent;

  always_comb begin
    if (state == Ending) begin
      out_valid = m_open;
      out       = '{beat: '{data: '0, keep: '0, last: 1'b1}, failed: 1'b1};
    end else begin
      out_valid = state == Running && m_open && k_m_valid;
      out       = '{beat: '{data: k_m_data, keep: k_m_keep, last: k_m_last}, failed: 1'b0};
    end
  end

  assign k_m_ready = out_ready && state == Running && m_open;
  assign out_taken = out_valid && out_ready;

  axis_skid #(
      .T(answer_t)
  ) u_out (
      .clk(own_clk),
      .rst,
      .s_valid  (out_valid),
      .s_ready  (out_ready),
      .s_payload(out),
      .m_valid,
      .m_ready,
      .m_payload(sent)
  );

  assign m_data   = sent.beat.data;
  assign m_keep   = sent.beat.keep;
  assign m_last   = sent.beat.last;
  assign m_failed = sent.failed;

  // The run.

  assign k_rst = state == Resetting || state == Ending || rst;
  // The kernel waits for the shell, which has no input or does not accept output.
  assign waits = (k_s_ready && s_open && !in_valid) || (k_m_valid && m_open && !out_ready);
  assign cut   = over || kill || decouple;

  // Saturates.
  function automatic logic [31:0] counted(input logic [31:0] number);
    logic [32:0] next;
    next = 33'(number) + 1'b1;
    return next[32] ? number : next[31:0];
  endfunction

  always_ff @(posedge own_clk) begin
    k_start <= 1'b0;
    done    <= 1'b0;
    failed  <= 1'b0;
    if (rst) begin
      state      <= Resetting;
      reset_left <= ResetCycles;
      s_open     <= 1'b0;
      m_open     <= 1'b0;
      finished   <= 1'b0;
    end else begin
      if (in_taken && in.last) s_open <= 1'b0;
      if (out_taken && out.beat.last) m_open <= 1'b0;
      unique case (state)
        Resetting: begin
          if (decouple) reset_left <= ResetCycles;
          else if (reset_left == '0) state <= Idle;
          else reset_left <= reset_left - 1'b1;
        end
        Idle: begin
          reset_left <= ResetCycles;
          if (decouple) begin
            state <= Resetting;
          end else if (start) begin
            state    <= Running;
            k_start  <= 1'b1;
            s_open   <= 1'b1;
            m_open   <= 1'b1;
            finished <= 1'b0;
            code     <= '0;
          end
        end
        Running: begin
          if (k_done) {finished, code} <= {1'b1, k_code};
          if ((k_done || finished) && !s_open && !m_open) begin
            state <= Idle;
            done  <= 1'b1;
          end else if (cut) begin
            state <= Ending;
          end
        end
        default: if (!s_open && !m_open) begin
          state  <= Resetting;
          done   <= 1'b1;
          failed <= 1'b1;
        end
      endcase
    end
  end

  always_ff @(posedge own_clk) begin
    if (state == Idle && start) begin
      k_params <= params;
      limit    <= timeout;
      cycles   <= '0;
      turn     <= 32'd1;
      over     <= 1'b0;
    end else if (state == Running || state == Ending) begin
      cycles <= counted(cycles);
      if (!waits) begin
        turn <= counted(turn);
        // The limit 0 is unlimited.
        if (turn == limit) over <= 1'b1;
      end
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || start || s_valid || in_valid || m_valid || k_start || done ||
             !(decouple ? state == Resetting : state == Idle)),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  starts_when_idle : assert property (@(posedge clk) disable iff (rst) start |-> idle);
  input_stays : assert property (@(posedge clk) disable iff (rst)
      s_valid && !s_ready |=> s_valid && $stable({s_data, s_keep, s_last}));
  output_stays : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable({m_data, m_keep, m_last}));
  // A kernel sees a stream that stays, or its reset.
  kernel_input_stays : assert property (@(posedge clk) disable iff (rst)
      k_s_valid && !k_s_ready |=> k_rst || (k_s_valid && $stable({k_s_data, k_s_keep, k_s_last})));
  runs_end_with_their_streams : assert property (@(posedge clk) disable iff (rst)
      done |-> !s_open && !m_open);
  done_for_a_cycle : assert property (@(posedge clk) disable iff (rst) done |=> !done);
  failures_are_ends : assert property (@(posedge clk) disable iff (rst) failed |-> done);
`endif

endmodule
