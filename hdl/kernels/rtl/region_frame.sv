// A kernel that is compiled from OpenCL C as the content of a region: kernel_frame behind the ports
// of every kernel (docs/kernels.md) and a port to board memory.
//
// The body has the launch, the answer the kernel's text and its end (docs/kernels.md). The
// kernel is in reset outside of a launch, so that nothing of one launch is left for the next one.
// Beats in excess of what the first one announces are ignored.
//
// Parameters: W, 64. Latency: the body's beats and six cycles until the kernel starts; three cycles
// from its end to the answer's. Throughput: a character of text per cycle.
module region_frame #(
    parameter int W = 64
) (
`include "stream_kernel_ports.svh"
    ,
`include "msg_axi_ports.svh"
`include "kernel_channel_ports.svh"
);

  localparam int Characters = 7;  // of a beat of text
  localparam logic [10:0] WordsMost = 11'd1034;

  typedef enum logic [2:0] {
    Idle,
    Clear,    // the kernel's reset
    Head,
    Words,
    Buffers,
    Run,
    Ended,    // the end's first beat
    Cycles    // and its second
  } state_t;

  if (W != 64) $error("W must be 64");

  state_t      state, after_words, after_head;
  logic [1:0]  reset_left;
  logic [10:0] word;             // number of the next word, and of the next buffer from 1 on
  logic [3:0]  buffer;
  logic [10:0] words_left;
  logic [3:0]  buffers_left;
  logic [31:0] text_left;        // beats
  logic        s_open;           // the body has not ended
  logic [63:0] cycles;
  logic        started, unused_signals;

  logic        frame_rst, arg_valid, set_valid, frame_start, frame_done, print_valid, print_ready;
  logic [7:0]  status, print_data;
  logic        fault, fault_write;
  logic [3:0]  fault_buffer;
  logic [27:0] fault_offset;

  // Text: up to seven characters and their number on top.
  logic [Characters-1:0][7:0] text;
  logic [2:0]  characters;
  logic        text_full, text_sent;

  logic        out_valid, out_ready, out_last;
  logic [63:0] out;

  assign unused_signals = &{1'b0, params, s_keep};

  // ---- the body ----
  assign s_ready = s_open;
  assign arg_valid = state == Words && s_valid;
  assign set_valid = state == Buffers && s_valid;
  assign after_words = buffers_left == '0 ? Run : Buffers;
  assign after_head  = s_data[10:0] != '0 ? Words : s_data[19:16] != '0 ? Buffers : Run;

  always_ff @(posedge clk) begin
    frame_start <= 1'b0;
    done        <= 1'b0;
    unique case (state)
      Idle: begin
        reset_left <= '1;
        started    <= 1'b0;
        cycles     <= '0;
        if (start) state <= Clear;
      end
      Clear: begin
        reset_left <= reset_left - 1'b1;
        if (reset_left == '0) begin
          state  <= Head;
          s_open <= 1'b1;
        end
      end
      Head: begin
        word         <= '0;
        buffer       <= 4'd1;
        words_left   <= s_data[10:0] > WordsMost ? WordsMost : s_data[10:0];
        buffers_left <= s_data[19:16];
        if (s_valid) state <= s_last ? Run : after_head;
      end
      Words: if (s_valid) begin
        word       <= word + 1'b1;
        words_left <= words_left - 1'b1;
        if (s_last) state <= Run;
        else if (words_left == 11'd1) state <= after_words;
      end
      Buffers: if (s_valid) begin
        buffer       <= buffer + 1'b1;
        buffers_left <= buffers_left - 1'b1;
        if (s_last || buffers_left == 4'd1) state <= Run;
      end
      Run: begin
        started     <= 1'b1;
        frame_start <= !started;
        cycles      <= cycles + 64'(started);
        if (started && (frame_done || fault)) state <= Ended;
      end
      Ended: if (out_ready && !text_full && characters == '0) state <= Cycles;
      default: if (out_ready && !s_open) begin
        state <= Idle;
        done  <= 1'b1;
      end
    endcase
    if (s_valid && s_open && s_last) s_open <= 1'b0;
    if (rst) begin
      state  <= Idle;
      s_open <= 1'b0;
    end
  end

  // ---- the kernel ----
  assign frame_rst = rst || state == Idle || state == Clear;

  kernel_frame u_frame (
      .rst       (frame_rst),
      .arg_valid,
      .arg_index (word),
      .arg_data  (s_data),
      .start     (frame_start),
      .done      (frame_done),
      .set_valid,
      .set_buffer(buffer),
      .set_address (s_data[31:0]),
      .set_bytes   (s_data[60:32]),
      .set_writable(s_data[63]),
      .*
  );

  // The status is there with `done`; a kernel that has faulted has none.
  logic [7:0] end_status;
  logic       end_fault;
  always_ff @(posedge clk)
    if (state == Run) begin
      end_status <= frame_done ? status : '0;
      end_fault  <= !frame_done;
    end

  // ---- the answer ----
  // A beat of text leaves when it is full, and at the end.
  assign print_ready = !text_full;
  assign text_sent   = out_ready && (text_full || (state == Ended && characters != '0));

  always_ff @(posedge clk) begin
    if (text_sent) begin
      characters <= '0;
      text_full  <= 1'b0;
    end else if (state == Run && print_valid && print_ready) begin
      text[characters] <= print_data;
      characters       <= characters + 1'b1;
      text_full        <= characters == 3'(Characters - 1);
    end
    if (frame_rst) begin
      characters <= '0;
      text_full  <= 1'b0;
    end
  end

  // Text beyond the limit is lost.
  always_ff @(posedge clk) begin
    if (state == Head) text_left <= s_data[63:32];
    else if (text_sent && text_left != '0) text_left <= text_left - 1'b1;
  end

  always_comb begin
    out_last = 1'b0;
    if (text_full || (state == Ended && characters != '0)) begin
      out_valid = text_left != '0;
      out       = {5'd0, characters, text};
    end else if (state == Ended) begin
      out_valid = 1'b1;
      out       = {8'h80, 12'd0, fault_offset, fault_buffer, 2'd0, fault_write, end_fault,
                   end_status};
    end else begin
      out_valid = state == Cycles && !s_open;
      out       = cycles;
      out_last  = 1'b1;
    end
  end

  assign m_valid   = out_valid;
  assign m_data    = out;
  assign m_keep    = '1;
  assign m_last    = out_last;
  assign out_ready = m_ready || !out_valid;

`ifndef SYNTHESIS
  starts_when_idle : assert property (@(posedge clk) disable iff (rst) start |-> state == Idle);
  words_remain : assert property (@(posedge clk) disable iff (rst)
      state == Words |-> words_left != '0);
  buffers_remain : assert property (@(posedge clk) disable iff (rst)
      state == Buffers |-> buffers_left != '0);
  full_text_has_all : assert property (@(posedge clk) disable iff (rst)
      text_full == (characters == 3'(Characters)));
  beats_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable({m_data, m_keep, m_last}));
  body_is_taken_once : assert property (@(posedge clk) disable iff (rst)
      s_valid && s_ready |-> s_open);
`endif

endmodule
