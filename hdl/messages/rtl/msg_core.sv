// A kernel that is a processor: RISC-V (RV32IM) with its own memory and the message engines in its
// address space.
//
// The program is loaded while `rst` is set. From 0x10000000 on, words (R: read, W: written; an
// access that has to wait stalls):
//   00 W destination, tag << 8, type << 20, collective << 24, eager << 25; 04 W bytes: begins a
//   send 08 W low and 0c W high half of a beat of payload; 10 R the fault, after the end of the
//   send 20 W source, tag << 8, type << 20, collective << 24, any source << 26, any tag << 27, once
//   << 28; 24 W buffer size: begins a receive 30 R 1: a beat of payload is valid, 0: the receive
//   has ended; 28 R its low and 2c R its high half 34 R fault, source << 8, tag << 16; 38 R bytes
//   40 W a character; 44 W the end, with a code; 48 R this rank, ranks << 16; 4c R and 50 R cycles,
//   low and high 54 R operations that would not wait: 1 begin of a send, 2 a beat of its payload, 4
//   its end; 8 a beat of a receive, 16 its end
// Off-chip memory, if present, starts at 0x40000000.
//
// Parameters: WORDS, of memory.
module msg_core
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter int WORDS = 32768
) (
`include "msg_kernel_ports.svh"
);

  localparam int A = $clog2(WORDS);

  logic        valid, instr, ready, trap;
  logic [31:0] address, wdata, rdata;
  logic [3:0]  strobe;

  picorv32 #(
      .ENABLE_MUL(1),
      .ENABLE_FAST_MUL(1),
      .ENABLE_DIV(1),
      .BARREL_SHIFTER(1),
      .ENABLE_COUNTERS(0),
      .STACKADDR(4 * WORDS)
  ) u_cpu (
      .clk,
      .resetn   (!rst),
      .trap,
      .mem_valid(valid),
      .mem_instr(instr),
      .mem_ready(ready),
      .mem_addr (address),
      .mem_wdata(wdata),
      .mem_wstrb(strobe),
      .mem_rdata(rdata),
      .irq      (32'd0),
      .mem_la_read(), .mem_la_write(), .mem_la_addr(), .mem_la_wdata(), .mem_la_wstrb(), .pcpi_valid(), .pcpi_insn(),
      .pcpi_rs1(), .pcpi_rs2(), .pcpi_wr(1'b0), .pcpi_rd(32'd0), .pcpi_wait(1'b0), .pcpi_ready(1'b0), .eoi(),
      .trace_valid(), .trace_data()
  );

  // ---- memory ----

  logic [31:0] memory[WORDS];
  logic [31:0] word, port_word, port_value;
  logic        is_port, is_far, was_near, reach, write;

  assign is_port = address[28];
  assign is_far  = address[30];
  assign reach   = valid && !ready;
  assign write   = strobe != '0;

  always_ff @(posedge clk) begin
    word <= memory[address[2+:A]];
    if (rst) begin
      if (load_valid) memory[load_address[A-1:0]] <= load_data;
    end else if (reach && !is_port && !is_far)
      for (int b = 0; b < 4; b++) if (strobe[b]) memory[address[2+:A]][8*b+:8] <= wdata[8*b+:8];
  end

  // ---- ports ----

  logic        sending, receiving, over;  // over: the processor has exited, or stopped at an
                                          // invalid instruction
  logic [7:0]  send_outcome;
  outcome_t    outcome;
  send_t       to;
  receive_t    from;
  logic [63:0] now;
  logic [31:0] low;
  logic        done;

  always_comb begin
    port_value = '0;
    done       = 1'b1;
    case (address[7:0])
      8'h04: done = send_ready && !sending;
      // A refused send accepts no payload.
      8'h0c: done = out_ready || !sending;
      8'h10: begin
        done = !sending;
        port_value = {24'd0, send_outcome};
      end
      8'h24: done = receive_ready && !receiving;
      8'h28: port_value = in_data[31:0];
      8'h2c: port_value = in_data[63:32];
      8'h30: begin
        done = in_valid || !receiving;
        port_value = {31'd0, in_valid};
      end
      8'h34: port_value = {4'd0, outcome.tag, outcome.source, outcome.fault};
      8'h38: port_value = {8'd0, outcome.size};
      8'h48: port_value = {7'd0, ranks, 8'd0, own};
      8'h4c: port_value = now[31:0];
      8'h50: port_value = now[63:32];
      8'h54: port_value = {27'd0, !receiving && !in_valid, receiving && in_valid, !sending, sending && out_ready, send_ready && !sending};
      default: ;
    endcase
  end

  assign mem_valid   = reach && is_far;
  assign mem_address = {2'b00, address[29:0]};
  assign mem_strobe  = address[2] ? {strobe, 4'd0} : {4'd0, strobe};
  assign mem_data    = {wdata, wdata};

  logic touch;
  assign touch         = reach && is_port;
  assign send_valid    = touch && write && address[7:0] == 8'h04 && !sending;
  assign out_valid     = touch && write && address[7:0] == 8'h0c && sending;
  assign out_data      = {wdata, low};
  assign receive_valid = touch && write && address[7:0] == 8'h24 && !receiving;
  assign in_ready      = touch && !write && address[7:0] == 8'h2c;
  assign text_valid    = touch && write && address[7:0] == 8'h40;
  assign text          = wdata[7:0];
  assign rdata         = was_near ? word : port_word;
  assign ended         = over;
  assign asleep        = over || (touch && !done);

  always_ff @(posedge clk) begin
    ready     <= reach && (is_port ? done : !is_far || mem_ready);
    was_near  <= !is_port && !is_far;
    port_word <= is_port ? port_value : address[2] ? mem_word[63:32] : mem_word[31:0];
    now       <= now + 1'b1;
    if (touch && write) begin
      case (address[7:0])
        8'h00: begin
          to.dest       <= wdata[7:0];
          to.tag        <= wdata[19:8];
          to.dtype      <= wdata[23:20];
          to.collective <= wdata[24];
          to.eager      <= wdata[25];
        end
        8'h04: if (done) sending <= 1'b1;
        8'h08: low <= wdata;
        8'h20: begin
          from.source     <= wdata[7:0];
          from.tag        <= wdata[19:8];
          from.dtype      <= wdata[23:20];
          from.collective <= wdata[24];
          from.any_source <= wdata[26];
          from.any_tag    <= wdata[27];
          from.once       <= wdata[28];
        end
        8'h24: if (done) receiving <= 1'b1;
        8'h44: begin
          over <= 1'b1;
          code <= wdata[7:0];
        end
        default: ;
      endcase
    end
    if (send_done) begin
      sending      <= 1'b0;
      send_outcome <= send_fault;
    end
    if (receive_done) begin
      receiving <= 1'b0;
      outcome   <= receive_outcome;
    end
    if (trap && !over) begin
      over <= 1'b1;
      code <= 8'd132;
    end
    if (rst) begin
      ready     <= 1'b0;
      sending   <= 1'b0;
      receiving <= 1'b0;
      over      <= 1'b0;
      code      <= '0;
      now       <= '0;
    end
  end

  // The length is sent with the first word.
  always_comb begin
    send_command         = to;
    send_command.size    = wdata[23:0];
    receive_command      = from;
    receive_command.room = wdata[23:0];
  end

`ifndef SYNTHESIS
  accesses_end_once : assert property (@(posedge clk) disable iff (rst) ready |=> !ready);
  sends_end_once : assert property (@(posedge clk) disable iff (rst) send_done |-> sending);
  receives_end_once : assert property (@(posedge clk) disable iff (rst) receive_done |-> receiving);
  end_is_last : assert property (@(posedge clk) disable iff (rst) ended |=> ended);
`endif

endmodule
