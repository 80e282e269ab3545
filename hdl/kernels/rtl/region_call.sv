// A kernel that is compiled from OpenCL C as the content of a region: region_frame, and before it
// the calls of a function that is bound to the kernel (docs/kernels.md).
//
// Without a binding (params[127:96] is zero) body and answer are those of region_frame. 1 refuses the
// call. Otherwise these bits are the address of the binding in board memory: the body is written into the binding's
// buffer for bodies, the buffer for answers is zeroed, the argument block is evaluated from the
// binding, the scalars and the body's length, the kernel runs, and the answer is read from its
// buffer. The guard (memory_guard) has the body's and the answer's lengths, so that nothing of an
// earlier call is readable.
//
// A binding has beats of 8 bytes, in whole bursts:
//   0      words of the argument block, its buffers from bit 16 on
//   1, 2   address and maximum bytes (from bit 32 on) of the body's buffer, and of the answer's,
//          multiples of a burst
//   3      the bytes of the answer, an operand (operand_t)
//   4 …    the words, operands; then the buffers: 0 is the body, 1 the answer
//
// `code`, with `done`: 0 success; 1 the kernel's access to memory was refused, or it ended with a
// status; 2 body and scalars do not suit the binding: a quotient that is not whole, a size of zero,
// a body or an answer that is too long. The answer is empty then.
//
// Parameters: W, 64. Latency: that of region_frame, and for a binding 330 cycles beyond the copies
// of body and answer. Throughput: 16 beats per burst and its latency.
module region_call #(
    parameter int W = 64
) (
`include "stream_kernel_ports.svh"
    ,
    output logic [1:0] code,
`include "msg_axi_ports.svh"
`include "kernel_channel_ports.svh"
);

  localparam int Burst = 16;       // beats
  localparam int Bursts = 6;       // of a binding
  localparam int Operands = 4;     // the beat of the first one of the block
  localparam logic [1:0] Failed = 2'd1, Unsuitable = 2'd2;

  if (W != 64) $error("W must be 64");

  typedef enum logic [1:0] {
    Constant,
    Scalar,
    BodyBytes
  } source_t;

  // A value: the dividend, or its quotient.
  typedef struct packed {
    logic [22:0] unused;
    logic        positive;        // zero does not suit
    logic [1:0]  divisor_scalar;
    logic [1:0]  divisor;         // source_t; the body's bytes: there is no divisor
    logic [1:0]  scalar;
    source_t     source;
    logic [31:0] constant;
  } operand_t;

  typedef enum logic [4:0] {
    Idle,
    Frame,        // a launch: region_frame has all ports
    Ask,          // a read burst
    Get,
    Body,         // takes a burst of the body
    Put,          // a write burst
    PutData,
    PutAnswer,
    Fetch,        // reads a beat of the binding
    Evaluate,     // an operand
    Divide,
    Result,
    Send,         // a beat to region_frame
    Run,
    Reply,
    Fail,
    Finish
  } state_t;

  // The purpose of bursts, and the operand that is evaluated.
  typedef enum logic [1:0] {
    Binding,
    Bodies,       // then the answer's bytes
    Zeroes,       // then the argument block
    Answers
  } part_t;

  state_t      state;
  part_t       part;
  logic [63:0] binding[Bursts*Burst];
  logic [63:0] beat;              // of the binding, as `at` was a cycle before
  logic [6:0]  at;
  logic [63:0] line[Burst];       // a burst
  logic [3:0]  fill;              // its next beat
  logic [4:0]  filled;            // beats that are not zero, of a burst that is written
  logic [31:0] address, left;     // of the next burst, and bytes from there on
  logic [31:0] body_bytes, answer_bytes;
  logic [63:0] body_place, answer_place;
  logic [6:0]  words, words_left;
  logic [3:0]  buffers, buffers_left;
  logic [95:0] scalars;
  logic        s_open, at_head, failed, bound;

  assign bound = params[127:96] != '0;

  // ---- region_frame ----
  logic        f_start, f_done, f_s_valid, f_s_ready, f_s_last, f_m_valid, f_m_last;
  logic        f_arvalid, f_awvalid, f_wvalid, f_wlast, own, unused_ready;
  logic [63:0] f_s_data, f_m_data, f_wdata;
  logic [7:0]  f_m_keep;
  logic [31:0] f_araddr, f_awaddr;

  // Outside of its runs the port to memory is this module's.
  assign own = !(state inside {Frame, Run});

  region_frame #(
      .W(W)
  ) u_frame (
      .rst    (rst || state == Idle),  // a refused call may leave it in the middle of a launch
      .start  (f_start),
      .done   (f_done),
      .s_valid(f_s_valid),
      .s_ready(f_s_ready),
      .s_data (f_s_data),
      .s_last (f_s_last),
      .m_valid(f_m_valid),
      .m_ready(state == Run || (state == Frame && m_ready)),
      .m_data (f_m_data),
      .m_keep (f_m_keep),
      .m_last (f_m_last),
      .arvalid(f_arvalid),
      .arready(arready && !own),
      .araddr (f_araddr),
      .rvalid (rvalid && !own),
      .rready (unused_ready),
      .awvalid(f_awvalid),
      .awready(awready && !own),
      .awaddr (f_awaddr),
      .wvalid (f_wvalid),
      .wready (wready && !own),
      .wdata  (f_wdata),
      .wlast  (f_wlast),
      .bvalid (bvalid && !own),
      .bready (),
      .*
  );

  // A beat of a call's launch.
  always_comb begin
    f_s_valid = state == Send;
    f_s_data  = {32'd0, quotient};
    f_s_last  = words_left == 7'd1 ? buffers == '0 : words_left == '0 && buffers_left == 4'd1;
    if (at_head) begin
      f_s_data = {44'd0, buffers, 9'd0, words};
      f_s_last = words == '0 && buffers == '0;
    end else if (words_left == '0) begin
      f_s_data = beat[0] ? {3'b100, answer_bytes[28:0], answer_place[31:0]} : {3'b000, body_bytes[28:0], body_place[31:0]};
    end
    if (state == Frame) begin
      f_s_valid = s_valid;
      f_s_data  = s_data;
      f_s_last  = s_last;
    end
  end

  // ---- operands ----
  operand_t    operand;
  logic [31:0] dividend, divisor, quotient, rest;
  logic [32:0] trial;
  logic [4:0]  step;
  logic        divides, fits;

  assign operand = operand_t'(beat);
  assign divides = operand.divisor != 2'(BodyBytes);
  assign trial   = {rest, quotient[31]};
  assign fits    = trial >= {1'b0, divisor};

  always_comb begin
    unique case (operand.source)
      Scalar:    dividend = scalars[32*operand.scalar+:32];
      BodyBytes: dividend = body_bytes;
      default:   dividend = operand.constant;
    endcase
    divisor = operand.divisor == 2'(Scalar) ? scalars[32*operand.divisor_scalar+:32] : operand.constant;
  end

  // ---- the states ----
  logic last_burst, long;
  assign last_burst = at == 7'(Bursts * Burst - 1);
  assign long = body_bytes >= body_place[63:32] && s_keep != '0;

  always_ff @(posedge clk) begin
    f_start <= 1'b0;
    done    <= 1'b0;
    beat    <= binding[at];
    unique case (state)
      Idle: begin
        scalars    <= params[95:0];
        body_bytes <= '0;
        failed     <= 1'b0;
        code       <= '0;
        at         <= '0;
        part       <= Binding;
        address    <= params[127:96];
        if (start) begin
          f_start <= !bound;
          state   <= !bound ? Frame : params[96] ? Fail : Ask;
        end
      end
      Frame: if (f_done) begin
        state <= Idle;
        done  <= 1'b1;
      end

      Ask: begin
        fill <= '0;
        if (arready) state <= Get;
      end
      Get: if (rvalid) begin
        fill <= fill + 1'b1;
        if (rresp[1]) failed <= 1'b1;
        if (part == Binding) begin
          at <= last_burst ? 7'd3 : at + 1'b1;
          if (at == 7'd0) {buffers, words} <= {rdata[19:16], rdata[6:0]};
          if (at == 7'd1) body_place <= rdata;
          if (at == 7'd2) answer_place <= rdata;
        end
        if (rlast) begin
          address <= address + 32'(8 * Burst);
          state   <= part == Answers ? Reply : last_burst ? Body : Ask;
          if (part == Binding && last_burst) begin
            part    <= Bodies;
            address <= body_place[31:0];
          end
        end
      end

      Body: if (s_valid) begin
        fill       <= fill + 1'b1;
        filled     <= {1'b0, fill} + 1'b1;
        body_bytes <= body_bytes + 32'($countones(s_keep));
        if (failed || long) state <= Fail;
        else if (s_last || fill == '1) state <= Put;
      end
      Put: begin
        fill <= '0;
        if (awready) state <= PutData;
      end
      PutData: if (wready) begin
        fill <= fill + 1'b1;
        if (wlast) state <= PutAnswer;
      end
      PutAnswer: if (bvalid) begin
        if (bresp[1]) failed <= 1'b1;
        address <= address + 32'(8 * Burst);
        left    <= left - 32'(8 * Burst);
        if (part == Bodies) state <= s_open ? Body : Evaluate;
        else state <= left > 32'(8 * Burst) ? Put : Send;
      end

      Fetch: state <= words_left == '0 ? Send : Evaluate;
      Evaluate: begin
        quotient <= dividend;
        rest     <= '0;
        step     <= '0;
        state    <= failed || (divides && divisor == '0) ? Fail : divides ? Divide : Result;
      end
      Divide: begin
        step     <= step + 1'b1;
        rest     <= fits ? 32'(trial - {1'b0, divisor}) : trial[31:0];
        quotient <= {quotient[30:0], fits};
        if (step == '1) state <= Result;
      end
      Result: begin
        state <= Send;
        if (part == Bodies) begin
          part         <= Zeroes;
          answer_bytes <= quotient;
          left         <= quotient;
          address      <= answer_place[31:0];
          filled       <= '0;
          at           <= 7'(Operands);
          at_head      <= 1'b1;
          words_left   <= words;
          buffers_left <= buffers;
          f_start      <= 1'b1;
          if (quotient != '0) state <= Put;
        end
        if ((rest != '0) || (operand.positive && quotient == '0) || (part == Bodies && quotient > answer_place[63:32])) begin
          state   <= Fail;
          f_start <= 1'b0;
        end
      end
      Send: if (f_s_ready) begin
        at_head <= 1'b0;
        state   <= f_s_last ? Run : Fetch;
        if (!at_head) begin
          at <= at + 1'b1;
          if (words_left != '0) words_left <= words_left - 1'b1;
          else buffers_left <= buffers_left - 1'b1;
        end
      end
      Run: begin
        part    <= Answers;
        left    <= answer_bytes;
        address <= answer_place[31:0];
        fill    <= '0;
        // The first beat of the end.
        if (f_m_valid && !f_m_last && f_m_data[8:0] != '0) failed <= 1'b1;
        if (f_done) state <= failed ? Fail : answer_bytes == '0 ? Reply : Ask;
      end

      Reply: if (m_ready) begin
        fill <= fill + 1'b1;
        left <= left - 32'd8;
        if (m_last) state <= failed ? Fail : Finish;
        else if (fill == '1) state <= Ask;
      end
      Fail: begin
        code <= failed ? Failed : Unsuitable;
        if (!s_open && m_ready) state <= Finish;
      end
      default: begin
        state <= Idle;
        done  <= 1'b1;
      end
    endcase
    if (state == Idle && start) s_open <= 1'b1;
    else if (s_valid && s_ready && s_last) s_open <= 1'b0;
    if (rst) begin
      state  <= Idle;
      s_open <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    if (state == Get && rvalid) begin
      if (part == Binding) binding[at] <= rdata;
      else line[fill] <= rdata;
    end
    if (state == Body && s_valid) for (int i = 0; i < 8; i++) line[fill][8*i+:8] <= s_keep[i] ? s_data[8*i+:8] : '0;
  end

  // ---- the streams ----
  assign s_ready = state == Frame ? f_s_ready : state == Body || (state == Fail && s_open);

  always_comb begin
    m_valid = state == Reply || (state == Fail && !s_open);
    m_data  = line[fill];
    m_last  = state == Fail || left <= 32'd8;
    m_keep  = state == Fail ? '0 : left > 32'd8 ? '1 : ~(8'hff << left[3:0]);
    if (state == Frame) begin
      m_valid = f_m_valid;
      m_data  = f_m_data;
      m_keep  = f_m_keep;
      m_last  = f_m_last;
    end
  end

  // ---- board memory ----
  assign arvalid = own ? state == Ask : f_arvalid;
  assign araddr  = own ? address : f_araddr;
  assign rready  = 1'b1;
  assign awvalid = own ? state == Put : f_awvalid;
  assign awaddr  = own ? address : f_awaddr;
  assign wvalid  = own ? state == PutData : f_wvalid;
  assign wdata   = !own ? f_wdata : {1'b0, fill} < filled ? line[fill] : '0;
  assign wlast   = own ? fill == '1 : f_wlast;
  assign bready  = 1'b1;

`ifndef SYNTHESIS
  starts_when_idle : assert property (@(posedge clk) disable iff (rst) start |-> state == Idle);
  words_were_requested : assert property (@(posedge clk) disable iff (rst)
      rvalid && own |-> state == Get);
  bursts_are_whole : assert property (@(posedge clk) disable iff (rst)
      rvalid && own |-> rlast == (fill == '1));
  responses_were_requested : assert property (@(posedge clk) disable iff (rst)
      bvalid && own |-> state == PutAnswer);
  operands_are_in_binding : assert property (@(posedge clk) disable iff (rst)
      at < 7'(Bursts * Burst));
  beats_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable({m_data, m_keep, m_last}));
  body_is_taken_once : assert property (@(posedge clk) disable iff (rst)
      s_valid && s_ready |-> s_open);
  // A failure has a code, and an answer without bytes.
  failures_are_empty : assert property (@(posedge clk) disable iff (rst)
      state == Fail && m_valid |-> m_last && m_keep == '0);
`endif

endmodule
