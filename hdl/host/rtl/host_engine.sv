// Carries out descriptors of the host, one after another (host_pkg::descriptor_t).
//
// A call reads its body from host memory, requests a region from the function engine like the HTTP
// server, streams the body through the region and the reply back, and reports its cycles. A copy
// writes host memory into board memory, where images and the kernels' buffers are stored; a read does
// the reverse. The report is written to host memory, after the descriptor, before `ended`.
//
// `abort_valid` ends the call of the descriptor at `abort_address`, from the descriptor's fetch on:
// its region stops the kernel as at the end of its time. A call that waits for a region is stopped
// when it is granted. Copies, and descriptors that have not been fetched, are unaffected.
//
// Parameters: REGIONS; CALLS, COPIES and READS, whether these are supported; otherwise they are
// malformed; NUMBER_BITS, of a function's number; BURST, beats of a copy's bursts; READ_AHEAD, beats.
// Latency: the bus's twice, and 14 cycles, from a descriptor's address to its body's first beat in the
// region, if that has the function. Throughput: 8 bytes per cycle in each direction; one descriptor at
// a time.
module host_engine
  import axi_pkg::*;
  import host_pkg::*;
  import fn_pkg::*;
#(
    parameter int REGIONS = 4,
    parameter bit CALLS = 1,
    parameter bit COPIES = 1,
    parameter bit READS = 1,
    parameter int NUMBER_BITS = 7,
    parameter int BURST = 32,
    parameter int READ_AHEAD = 256
) (
    input  logic                       clk,
    input  logic                       rst,
    // The address of a descriptor in host memory; accepted while the engine is free.
    input  logic                       start,
    input  logic [63:0]                start_address,
    output logic                       free,
    output logic                       ended,         // a descriptor has completed
    input  logic                       abort_valid,
    input  logic [31:0]                abort_address,
    // Host memory.
`include "host_read_ports.svh"
    output logic                       write_valid,
    input  logic                       write_ready,
    output logic [63:0]                write_address,
    output logic [63:0]                write_data,
    output logic [7:0]                 write_keep,
    // Board memory.
    output axi_read_t                  axi_read,
    input  axi_read_reply_t            axi_read_reply,
    output axi_write_t                 axi_write,
    input  axi_write_reply_t           axi_write_reply,
    // The function engine. `grant` and `finish` are those of this module's requests.
    output host_call_t                 call,
    input  host_call_reply_t           call_reply,
    // The granted region: its number, its body and its reply.
    output logic [REGIONS-1:0]         region_on,
    output logic                       region_kill,
    output streams_in_t                region_in,
    input  streams_out_t               region_out
);

  logic own_clk;  // gated while no state changes

  localparam int RegionBits = $clog2(REGIONS);
  localparam int BurstBytes = 8 * BURST;
  localparam int BeatBits = $clog2(BURST);

  if (NUMBER_BITS > 8) $error("a descriptor's number has 8 bits");

  typedef enum logic [3:0] {
    Idle,
    Fetch,
    Check,
    Ask,
    Run,
    CopyAddress,
    CopyData,
    CopyAnswer,
    ReadAddress,
    ReadData,
    Discard,      // discards prefetched data
    Report,       // writes the first half of the report
    ReportRest
  } state_t;

  state_t      state;
  descriptor_t d;
  report_t     report;
  logic [63:0] at;            // the descriptor
  logic [2:0]  word;
  logic [31:0] left, left_next, taken;   // remaining bytes of the body; received bytes of the
                                         // reply,
  logic [31:0] room;          // and remaining space for the reply
  logic [31:0] cycles;
  logic [BeatBits-1:0] beat;
  logic [RegionBits-1:0] region;
  logic        fed, answered, failed_read, on, aborted;

  logic        s_valid, s_last, m_ready, finish_ready;
  logic [7:0]  s_keep;
  logic        awvalid, wvalid, wlast;
  logic        unused_signals;

  assign unused_signals = &{1'b0, call_reply, axi_read_reply, axi_write_reply};

  assign free = state == Idle;

  // ---- host memory ----
  logic reader_start, read_over, in_valid, in_ready, in_error;
  logic right;  // the descriptor is valid
  logic reading;  // it is a read
  logic [63:0] in_data;

  assign reader_start = (state == Idle && start) || (state == Check && right && !reading);

  host_reader #(
      .BURST(BURST),
      .DEPTH(READ_AHEAD)
  ) u_reader (
      .clk(own_clk),
      .rst,
      .start  (reader_start),
      .address(state == Idle ? start_address : d.source),
      .beats  (state == Idle ? 29'(DescriptorBeats) : CALLS ? 29'((33'(d.bytes) + 33'd7) >> 3) : d.bytes[31:3]),
      .over   (read_over),
      .read_valid,
      .read_ready,
      .read_address,
      .read_beats,
      .data_valid,
      .data,
      .data_error,
      .m_valid(in_valid),
      .m_ready(in_ready),
      .m_data (in_data),
      .m_error(in_error)
  );

  always_comb begin
    unique case (state)
      Fetch, Discard: in_ready = 1'b1;
      Run:            in_ready = CALLS && s_valid && region_out.s_ready && left != '0;
      CopyData:       in_ready = axi_write_reply.wready;
      default:        in_ready = 1'b0;
    endcase
  end

  // ---- validity of a descriptor ----
  assign reading = READS && kind_t'(d.kind) == KindRead;

  always_comb begin
    unique case (kind_t'(d.kind))
      KindRead: right = READS && d.bytes != '0 && d.bytes % BurstBytes == '0 && d.board % BurstBytes == '0 && d.answer[2:0] == '0;
      KindCopy: right = COPIES && d.bytes != '0 && d.bytes % BurstBytes == '0 && d.board % BurstBytes == '0;
      KindCall: right = CALLS && d.answer[2:0] == '0;
      default:  right = 1'b0;
    endcase
    if (d.source[2:0] != '0 || failed_read) right = 1'b0;
  end

  // ---- a call ----
  assign call = '{
    request_valid:    CALLS && state == Ask,
    request_engine:   '0,  // host_port's
    request_function: 8'({d.fn[7], d.fn[NUMBER_BITS-2:0]}),
    request_call:     '{bound: 1'b0, regions: d.regions, cost: d.cost, timeout: d.timeout, image: d.board, params: d.params},
    finish_ready:     finish_ready
  };

  always_comb begin
    region_on = '0;
    region_on[region] = CALLS && on;
  end
  assign region_kill = CALLS && aborted;

  assign region_in = '{s_valid: s_valid, s_data: in_data, s_keep: s_keep, s_last: s_last, m_ready: m_ready};

  // An empty body is one beat without bytes.
  assign s_valid = CALLS && on && !fed && (in_valid || left == '0);
  assign s_last  = left <= 32'd8;
  assign left_next = left[31:3] == '0 ? '0 : {left[31:3] - 1'b1, left[2:0]};
  assign s_keep = |left[31:3] ? '1 : ~(8'hff << left[2:0]);

  // The reply is written as it arrives, as far as it fits. The bus need not be ready for what does
  // not.
  logic [7:0] fits;
  logic [3:0] came;
  assign fits = |room[31:3] ? region_out.m_keep : region_out.m_keep & ~(8'hff << room[2:0]);
  assign came = 4'($countones(region_out.m_keep));
  assign m_ready = CALLS && on && !answered && (write_ready || fits == '0);

  assign finish_ready = state == Run && (call_reply.finish.load != LoadOk || answered);

  // The report follows the descriptor. One adder serves all addresses.
  always_comb begin
    write_address = ((CALLS && state == Run) || (READS && state == ReadData) ? d.answer : at)
        + {32'd0, (CALLS && state == Run) || (READS && state == ReadData) ? taken : 32'(8 * DescriptorBeats) | {28'd0, state == ReportRest, 3'd0}};
    write_data    = state == Report ? report[63:0] : {cycles, report.kernel_cycles};
    write_keep    = '1;
    write_valid   = state == Report || state == ReportRest;
    if (CALLS && state == Run) begin
      write_data  = region_out.m_data;
      write_keep  = fits;
      write_valid = on && !answered && region_out.m_valid && fits != '0;
    end
    if (READS && state == ReadData) begin
      write_data  = axi_read_reply.rdata;
      write_valid = axi_read_reply.rvalid;
    end
  end

  // ---- a read ----
  assign axi_read = '{
    arvalid: READS && state == ReadAddress,
    araddr:  d.board,
    arlen:   8'(BURST - 1),
    arsize:  3'd3,
    arburst: BurstIncr,
    rready:  READS && state == ReadData && write_ready
  };

  // ---- a copy ----
  assign awvalid = COPIES && state == CopyAddress;
  assign wvalid  = COPIES && state == CopyData && in_valid;
  assign wlast   = beat == '1;
  assign axi_write = '{
    awvalid: awvalid,
    awaddr:  d.board,
    awlen:   8'(BURST - 1),
    awsize:  3'd3,
    awburst: BurstIncr,
    wvalid:  wvalid,
    wdata:   in_data,
    wstrb:   '1,
    wlast:   wlast,
    bready:  1'b1
  };

  // ---- the states of a descriptor ----
  assign ended = state == ReportRest && write_ready;

  always_ff @(posedge own_clk) begin
    if (rst) begin
      state   <= Idle;
      on      <= 1'b0;
      aborted <= 1'b0;
    end else begin
      if (state == Idle) aborted <= 1'b0;
      else if (abort_valid && abort_address == at[31:0]) aborted <= 1'b1;
      unique case (state)
        Idle:   if (start) state <= Fetch;
        Fetch:  if (in_valid && word == '1) state <= Check;
        Check:  state <= !right ? Report : reading ? ReadAddress : !CALLS || kind_t'(d.kind) == KindCopy ? CopyAddress : Ask;
        Ask:    if (call_reply.request_ready) state <= Run;
        Run: begin
          if (CALLS && call_reply.grant) on <= 1'b1;
          if (call_reply.finish_valid && finish_ready) begin
            on    <= 1'b0;
            state <= Discard;
          end
        end
        CopyAddress: if (axi_write_reply.awready) state <= CopyData;
        CopyData:    if (wvalid && axi_write_reply.wready && wlast) state <= CopyAnswer;
        CopyAnswer:  if (axi_write_reply.bvalid) state <= left == '0 || axi_write_reply.bresp[1] ? Discard : CopyAddress;
        ReadAddress: if (axi_read_reply.arready) state <= ReadData;
        ReadData:    if (axi_read_reply.rvalid && write_ready && axi_read_reply.rlast) state <= left == 32'd8 ? Report : ReadAddress;
        Discard:     if (read_over) state <= Report;
        Report:      if (write_ready) state <= ReportRest;
        default:     if (write_ready) state <= Idle;
      endcase
    end
  end

  always_ff @(posedge own_clk) begin
    // The report does not change while the bus waits.
    if (cycles != '1 && state != ReportRest) cycles <= cycles + 1'b1;
    unique case (state)
      Idle: begin
        at          <= start_address;
        word        <= '0;
        cycles      <= '0;
        report      <= '0;
        failed_read <= 1'b0;
        fed         <= 1'b0;
        answered    <= 1'b0;
        taken       <= '0;
        beat        <= '0;
      end
      Fetch: if (in_valid) begin
        d    <= {in_data, d[$bits(descriptor_t)-1:64]};
        word <= word + 1'b1;
        if (in_error) failed_read <= 1'b1;
      end
      Check: begin
        left          <= d.bytes;
        room          <= CALLS ? d.room : '0;
        report.status <= failed_read ? EndHost : right ? EndOk : EndMalformed;
      end
      Run: if (CALLS) begin
        if (call_reply.grant) region <= call_reply.grant_region[RegionBits-1:0];
        if (s_valid && region_out.s_ready) begin
          left <= left_next;
          fed  <= s_last;
          if (in_error && left != '0) report.status <= EndHost;
        end
        if (region_out.m_valid && m_ready) begin
          // Bytes of an incomplete beat end a reply.
          taken    <= taken + 32'(came);
          room     <= room > 32'(came) ? room - 32'(came) : '0;
          answered <= region_out.m_last;
          if (fits != region_out.m_keep && report.status == EndOk) report.status <= EndRoom;
        end
        if (call_reply.finish_valid && finish_ready) begin
          report.loaded        <= 8'(call_reply.finish.loaded);
          report.region        <= call_reply.finish_region;
          report.kernel_cycles <= call_reply.finish.cycles;
          report.bytes         <= taken;
          if (call_reply.finish.load != LoadOk) report.status <= 8'(EndImage) + 8'(call_reply.finish.load);
          else if (call_reply.finish.killed) report.status <= EndKilled;
        end
      end
      CopyData: if (in_valid && axi_write_reply.wready) begin
        left <= left_next;
        beat <= beat + 1'b1;
        if (in_error) report.status <= EndHost;
      end
      ReadData: if (READS && axi_read_reply.rvalid && write_ready) begin
        left  <= left_next;
        taken <= taken + 32'd8;
        if (axi_read_reply.rlast) d.board <= d.board + 32'(BurstBytes);
        if (axi_read_reply.rresp[1]) report.status <= EndBoard;
      end
      CopyAnswer: if (axi_write_reply.bvalid) begin
        d.board <= d.board + 32'(BurstBytes);
        if (axi_write_reply.bresp[1]) report.status <= EndBoard;
      end
      default: ;
    endcase
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || start || state != Idle || data_valid || in_valid),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  // A region is granted only to a pending request, and finishes only granted ones.
  granted_when_asked : assert property (@(posedge clk) disable iff (rst)
      call_reply.grant |-> state == Run && !on);
  finished_when_running : assert property (@(posedge clk) disable iff (rst)
      call_reply.finish_valid && finish_ready |-> state == Run);
  starts_when_free : assert property (@(posedge clk) disable iff (rst) start |-> free);
  writes_stay : assert property (@(posedge clk) disable iff (rst)
      write_valid && !write_ready |=>
      write_valid && $stable({write_address, write_data, write_keep}));
  copies_stay : assert property (@(posedge clk) disable iff (rst)
      awvalid && !axi_write_reply.awready |=> awvalid && $stable(axi_write.awaddr));
  data_stay : assert property (@(posedge clk) disable iff (rst)
      wvalid && !axi_write_reply.wready |=> wvalid && $stable({axi_write.wdata, axi_write.wlast}));
  responses_were_requested : assert property (@(posedge clk) disable iff (rst)
      COPIES && axi_write_reply.bvalid |-> state == CopyAnswer);
  words_were_requested : assert property (@(posedge clk) disable iff (rst)
      READS && axi_read_reply.rvalid |-> state == ReadData);
`endif

endmodule
