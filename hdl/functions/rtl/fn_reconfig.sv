// Reconfiguration controller: streams a partial bitstream from board memory into a region.
//
// A request names a region and the address of an image (format in hdl/functions/README.md), a
// multiple of BURST bytes. The header is checked before any data reaches the configuration port: an
// image that is damaged, for another shell or for another region leaves the region unchanged. Then
// the region is decoupled while the body is streamed; its checksum is compared at the end. A wrong
// body leaves the region decoupled, and so empty, until a later load succeeds.
//
// The configuration port accepts 32 bits in each cycle in which it is ready, like ICAP.
//
// Parameters: REGIONS; SHELL, the id that images must carry; DATA, memory bus in bits (32 or 64);
// BURST, bytes of a read burst; BURSTS, bursts prefetched; MAX_BYTES,
// longest body.
// Latency: memory latency + 15 cycles to the first configuration word. Throughput:
// 4 bytes per cycle.
module fn_reconfig
  import axi_pkg::*;
  import fn_pkg::*;
#(
    parameter int REGIONS = 4,
    parameter logic [31:0] SHELL = 32'h1,
    parameter int DATA = 64,
    parameter int BURST = 256,
    parameter int BURSTS = 4,
    parameter int MAX_BYTES = 1 << 26
) (
    input  logic                       clk,
    input  logic                       rst,
    // Request, and its one-cycle reply.
    input  logic                       load_valid,
    output logic                       load_ready,
    input  logic [$clog2(REGIONS)-1:0] load_region,
    input  logic [31:0]                load_address,
    output logic                       done,
    output load_result_t               result,
    output logic [31:0]                kernel,        // the image's kernel number; with `done`
    output logic [31:0]                checksum,      // that of its header; with `done`
    output logic [REGIONS-1:0]         decouple,      // regions that are being loaded, or empty
    // Board memory, AXI4 reads: INCR bursts of whole beats.
    output axi_read_t                  axi_read,
    input  axi_read_reply_t            axi_read_reply,
    // Configuration port.
    output logic                       icap_valid,
    input  logic                       icap_ready,
    output logic [31:0]                icap_data,
    output logic [$clog2(REGIONS)-1:0] icap_region
);

  logic own_clk;  // gated while no state changes

  localparam logic [31:0] ImageMagic = 32'h4752_4C42;  // "BLRG" in memory
  localparam logic [31:0] ImageVersion = 32'd1;
  localparam logic [31:0] AnyRegion = '1;
  localparam int HeaderBytes = 32;

  localparam int Beats = BURST / (DATA / 8);
  localparam int Depth = Beats * BURSTS;
  localparam int CreditBits = $clog2(BURSTS + 1);
  localparam int LengthBits = $clog2(MAX_BYTES + 1);
  localparam int BurstBits = $clog2((MAX_BYTES + HeaderBytes) / BURST + 2);
  localparam logic [31:0] Residue = 32'hDEBB_20E3;  // the CRC of any data followed by its own CRC

  if (DATA != 32 && DATA != 64) $error("DATA must be 32 or 64");
  if (Beats > 256 || BURST > 4096) $error("BURST exceeds the limits of AXI4");

  typedef enum logic [2:0] {
    Idle,
    Header,
    Check,
    Body,
    Compare,
    Drain    // prefetched data is received and discarded
  } state_t;

  state_t                state;
  logic                  word_valid, word_taken, failed_read, aligned;
  logic [31:0]           word, crc, crc_next, body_crc;
  logic [2:0]            header_word;
  logic [LengthBits-3:0] to_go;   // remaining words of the body
  logic                  header_good;

  // Prefetching, in whole bursts. The first one contains the header,
  // which determines the number of the others.

  logic [BurstBits-1:0]       bursts_left;
  logic [CreditBits-1:0]      credit;       // bursts for which there is space
  logic [$clog2(Beats)-1:0]   freed;        // consumed beats of the burst being consumed
  logic                       ar_go, burst_freed, fifo_valid, fifo_take, fifo_ready;
  logic [DATA:0]              beat, came;   // with the error bit on top
  logic                       came_valid;
  logic [$clog2(Depth+2)-1:0] fifo_level;
  logic                       arvalid, unused_signals;
  logic [31:0]                araddr;

  assign unused_signals = &{1'b0, axi_read_reply, fifo_ready, fifo_level};
  assign arvalid = bursts_left != '0 && credit != '0;
  assign ar_go   = arvalid && axi_read_reply.arready;
  // Every requested burst has space, so that memory never waits.
  assign axi_read = '{
    arvalid: arvalid,
    araddr:  araddr,
    arlen:   8'(Beats - 1),
    arsize:  3'($clog2(DATA / 8)),
    arburst: BurstIncr,
    rready:  1'b1
  };

  axis_fifo #(
      .T    (logic [DATA:0]),
      .DEPTH(Depth)
  ) u_ahead (
      .clk(own_clk),
      .rst,
      .s_valid  (axi_read_reply.rvalid),
      .s_ready  (fifo_ready),
      .s_payload({axi_read_reply.rresp[1], axi_read_reply.rdata[DATA-1:0]}),
      .m_valid  (came_valid),
      .m_ready  (!fifo_valid || fifo_take),
      .m_payload(came),
      .level    (fifo_level)
  );

  // From memory into a register: the decision on a word takes the rest of a cycle.
  always_ff @(posedge own_clk) begin
    if (!fifo_valid || fifo_take) begin
      fifo_valid <= came_valid && !rst;
      beat       <= came;
    end
    if (rst) fifo_valid <= 1'b0;
  end

  assign burst_freed = fifo_valid && fifo_take && freed == '1;

  always_ff @(posedge own_clk) begin
    if (rst) begin
      credit <= CreditBits'(BURSTS);
      freed  <= '0;
    end else begin
      if (ar_go != burst_freed) credit <= ar_go ? credit - 1'b1 : credit + 1'b1;
      if (fifo_valid && fifo_take) freed <= freed + 1'b1;
    end
  end

  // Beats become words of 32 bits.

  if (DATA == 32) begin : g_word
    assign word      = beat[31:0];
    assign fifo_take = word_taken;
  end else begin : g_words
    logic upper;
    assign word      = upper ? beat[63:32] : beat[31:0];
    assign fifo_take = state == Drain || (word_taken && upper);
    always_ff @(posedge own_clk) begin
      if (state == Idle) upper <= 1'b0;
      else if (word_taken) upper <= !upper;
    end
  end

  assign word_valid  = fifo_valid;
  assign failed_read = fifo_valid && beat[DATA];

  always_comb begin
    unique case (state)
      Header, Drain: word_taken = word_valid;
      Body:          word_taken = word_valid && !failed_read && icap_ready;
      default:       word_taken = 1'b0;
    endcase
  end

  assign icap_valid = state == Body && word_valid && !failed_read;
  assign icap_data  = word;

  crc32_beat #(
      .W(32)
  ) u_crc (
      .crc,
      .data(word),
      .keep('1),
      .next(crc_next)
  );

  // The states of a load.

  assign load_ready = state == Idle;
  assign aligned    = load_address % 32'(BURST) == '0;
  // Its last word is its checksum. The other fields of a damaged header are ignored.
  assign header_good = result == LoadOk && crc == Residue;

  always_ff @(posedge own_clk) begin
    done <= 1'b0;
    if (rst) begin
      state       <= Idle;
      decouple    <= '1;   // all regions are empty
    end else begin
      unique case (state)
        Idle: begin
          if (load_valid && aligned) state <= Header;
          done <= load_valid && !aligned;
        end
        Header: begin
          if (failed_read) begin
            state <= Drain;
            done  <= 1'b1;
          end else if (word_valid && header_word == 3'd7) begin
            state <= Check;
          end
        end
        Check: begin
          if (header_good) begin
            state                 <= Body;
            decouple[icap_region] <= 1'b1;
          end else begin
            state <= Drain;
            done  <= 1'b1;
          end
        end
        Body: begin
          if (failed_read) begin
            state <= Drain;
            done  <= 1'b1;
          end else if (word_taken && to_go == (LengthBits - 2)'(1)) begin
            state <= Compare;
          end
        end
        Compare: begin
          state <= Drain;
          done  <= 1'b1;
          if (~crc == body_crc) decouple[icap_region] <= 1'b0;
        end
        // All credit has returned when all requested data has arrived.
        default: if (bursts_left == '0 && credit == CreditBits'(BURSTS)) state <= Idle;
      endcase
    end
  end

  always_ff @(posedge own_clk) begin
    if (rst) bursts_left <= '0;
    else if (state == Idle) bursts_left <= BurstBits'(load_valid && aligned);
    // The words of the body in the header's burst have arrived.
    else if (state == Check && header_good)
      bursts_left <= BurstBits'(((LengthBits - 1)'(to_go) + (LengthBits - 1)'(HeaderBytes / 4 - 1)) / (LengthBits - 1)'(BURST / 4));
    // An offered address stays until it is accepted.
    else if (state == Body && failed_read) bursts_left <= BurstBits'(arvalid && !axi_read_reply.arready);
    else if (ar_go) bursts_left <= bursts_left - 1'b1;
  end

  always_ff @(posedge own_clk) begin
    if (ar_go) araddr <= araddr + 32'(BURST);
    if (word_taken) crc <= crc_next;
    unique case (state)
      Idle: if (load_valid) begin
        araddr      <= load_address;
        icap_region <= load_region;
        header_word <= '0;
        crc         <= '1;
        result      <= aligned ? LoadOk : LoadAlignment;
      end
      Header: if (word_valid) begin
        header_word <= header_word + 1'b1;
        unique case (header_word)
          3'd0: if (word != ImageMagic) result <= LoadMagic;
          3'd1: if (result == LoadOk && word != ImageVersion) result <= LoadVersion;
          3'd2: if (result == LoadOk && word != SHELL) result <= LoadShell;
          3'd3: if (result == LoadOk && word != AnyRegion && word != 32'(icap_region)) result <= LoadRegion;
          3'd4: begin
            to_go <= (LengthBits - 2)'(word >> 2);
            if (result == LoadOk && (word == '0 || word[1:0] != '0 || word > MAX_BYTES)) result <= LoadLength;
          end
          3'd5: body_crc <= word;
          3'd6: kernel <= word;
          default: checksum <= word;
        endcase
        if (failed_read) result <= LoadMemory;
      end
      Check: begin
        crc <= '1;
        if (crc != Residue && result != LoadMagic && result != LoadVersion) result <= LoadHeader;
      end
      Body: begin
        if (failed_read) result <= LoadMemory;
        if (word_taken) to_go <= to_go - 1'b1;
      end
      Compare: if (~crc != body_crc) result <= LoadBody;
      default: ;
    endcase
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || load_valid || state != Idle || done || axi_read_reply.rvalid || came_valid || fifo_valid),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  // Every requested burst has space.
  words_have_place : assert property (@(posedge clk) disable iff (rst)
      axi_read_reply.rvalid |-> fifo_ready);
  bursts_are_bounded : assert property (@(posedge clk) disable iff (rst)
      credit <= CreditBits'(BURSTS));
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      arvalid && !axi_read_reply.arready |=> arvalid && $stable(araddr));
  words_stay : assert property (@(posedge clk) disable iff (rst)
      icap_valid && !icap_ready |=> icap_valid && $stable({icap_data, icap_region}));
  // A region is off while it is configured.
  configured_regions_are_off : assert property (@(posedge clk) disable iff (rst)
      icap_valid |-> decouple[icap_region]);
  results_are_for_a_load : assert property (@(posedge clk) disable iff (rst)
      done |-> $past(!load_ready || load_valid));
`endif

endmodule
