// The host port's registers: identity of the board, settings of its scheduler, its function table,
// and the doorbell.
//
// One 32-bit word at an address, in words; README.md lists them. A read returns a cycle later. A
// write that starts an operation (Change, Doorbell, Forget) while the same is in progress is lost:
// the host must check first.
//
// `abort_valid` lasts one cycle: the call of the descriptor at `abort_address` ends (host_engine).
//
// Parameters: REGIONS; CALLS at once; SHELL, the id for images; IMAGE_BYTES, the longest image's body.
module host_registers
  import fn_pkg::*;
  import functions_pkg::*;
  import host_pkg::*;
#(
    parameter int REGIONS = 4,
    parameter int CALLS = 4,
    parameter logic [31:0] SHELL = 32'h1,
    parameter int IMAGE_BYTES = 1 << 26
) (
    input  logic        clk,
    input  logic        rst,
    // The bus.
    input  logic        write,
    input  logic [5:0]  address,
    input  logic [31:0] data,
    output logic [31:0] read_data,
    // The scheduler's settings.
    output policy_t     policy,
    output logic [ 7:0] patience,
    output logic [31:0] load_cost,
    // The function table (fn_table).
    output logic        change_valid,
    input  logic        change_ready,
    output logic        change_remove,
    output name_t       change_name,
    output entry_t      change_entry,
    input  logic        changed_valid,
    input  logic        changed,
    input  logic [NUMBER_BITS-1:0] changed_function,
    // A program of the host has a new image: regions that hold the old one no longer serve it.
    output logic        forget,
    output logic [NUMBER_BITS-1:0] forget_program,
    // Descriptors (host_engine).
    output logic        post_valid,
    input  logic        post_ready,
    output logic        post_copy,
    output logic [63:0] post_address,
    input  logic [1:0]  queue_ready,
    output logic        abort_valid,
    output logic [31:0] abort_address,
    input  logic        ended,
    // The message door (board_messages).
    output message_tables_t messages,
    // The regions.
    input  logic [REGIONS-1:0] decouple,
    input  logic [31:0] region_loads[REGIONS],
    input  logic [63:0] region_busy[REGIONS],
    input  logic [31:0] region_image[REGIONS]
);

  localparam logic [31:0] Magic = 32'h5048_4C42;  // "BLHP" in memory
  localparam logic [31:0] Version = 32'd1;
  localparam int EntryWords = $bits(entry_t) / 32;
  // Written, where AtLoads is read: the hardware address, 2 words; the IPv4 address; a rank, its port
  // from bit 8 on, its station from bit 16 on, which enters the line; a station, its role from bit 8
  // on, which enters it; the own IPv4 address; the own station, the port from bit 16 on; the secret, 2
  // words; the job's key, 4 words.
  localparam logic [5:0] AtMessages = 6'd32, AtPut = 6'd35, AtStation = 6'd36;

  typedef enum logic [5:0] {
    AtMagic    = 6'd0,
    AtVersion  = 6'd1,
    AtShell    = 6'd2,
    AtSizes    = 6'd3,   // regions; calls at once from bit 8 on; slots of the table from bit 16
                         // on
    AtImage    = 6'd4,   // maximum bytes of an image's body
    AtCycles   = 6'd5,   // reading it, or AtBusy, latches the upper half
    AtUpper    = 6'd6,   // the last latched half
    AtDecouple = 6'd7,   // regions that are empty, or being loaded
    AtPolicy   = 6'd8,   // fn_pkg::policy_t; patience from bit 8 on
    AtLoadCost = 6'd9,
    AtPostLow  = 6'd10,  // a descriptor's address, plus 1 if it is a copy or a read
    AtPostHigh = 6'd11,  // writing it rings the doorbell; reading: whether there is space for another
                         // copy (bit 0), call (bit 1)
    AtEnded    = 6'd12,  // descriptors completed since the reset
    AtForget   = 6'd13,  // a program's number
    AtChange   = 6'd14,  // 1 adds or replaces, 2 removes; reading: 1 in progress, 2 done; the
                         // function from bit 16 on
    AtAbort    = 6'd15,  // the lower half of a call's descriptor
    AtName     = 6'd16,  // 4 words; reading: of each region the checksum of its image's header
    AtEntry    = 6'd20,  // 11 words
    AtLoads    = 6'd32,  // of each region, up to 16; writing 32 to 45: the message door (AtMessages)
    AtBusy     = 6'd48
  } at_t;

  if (REGIONS > 16) $error("REGIONS must be at most 16");

  logic [63:0] cycles;
  logic [31:0] upper, count_ended;
  logic [31:0] value;
  logic changing, change_done;
  logic [NUMBER_BITS-1:0] change_number;

  // Constant and variable registers.
  logic [31:0] fixed, variable;

  always_comb begin
    unique case (address)
      AtMagic:   fixed = Magic;
      AtVersion: fixed = Version;
      AtShell:   fixed = SHELL;
      AtSizes:   fixed = {16'(FUNCTIONS), 8'(CALLS), 8'(REGIONS)};
      AtImage:   fixed = 32'(IMAGE_BYTES);
      default:   fixed = '0;
    endcase
  end

  function automatic logic [31:0] at(input logic [5:0] a, input logic [31:0] word);
    return address == a ? word : '0;
  endfunction

  always_comb begin
    variable = at(AtCycles, cycles[31:0]) | at(AtUpper, upper) | at(AtLoadCost, load_cost) | at(AtEnded, count_ended)
        | at(AtDecouple, 32'(decouple)) | at(AtPolicy, {16'd0, patience, 6'd0, policy})
        | at(AtPostHigh, post_valid ? '0 : 32'(queue_ready))
        | at(AtChange, {16'(change_number), 14'd0, change_done, changing});
    for (int i = 0; i < REGIONS; i++)
      variable = variable | at(6'(AtLoads) + 6'(i), region_loads[i]) | at(6'(AtBusy) + 6'(i), region_busy[i][31:0])
          | at(6'(AtName) + 6'(i), region_image[i]);
    value = fixed | variable;
  end

  always_ff @(posedge clk) begin
    read_data <= value;
    if (address == AtCycles) upper <= cycles[63:32];
    for (int i = 0; i < REGIONS; i++) if (address == 6'(AtBusy) + 6'(i)) upper <= region_busy[i][63:32];
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      cycles       <= '0;
      count_ended  <= '0;
      policy       <= Affinity;
      patience     <= 8'd16;
      load_cost    <= 32'd65536;
      post_valid   <= 1'b0;
      forget       <= 1'b0;
      messages.put <= 1'b0;
      messages.station_put <= 1'b0;
      abort_valid  <= 1'b0;
      change_valid <= 1'b0;
      changing     <= 1'b0;
    end else begin
      cycles <= cycles + 1'b1;
      if (ended) count_ended <= count_ended + 1'b1;
      forget <= write && address == AtForget;
      messages.put <= write && address == AtPut;
      messages.station_put <= write && address == AtStation;
      abort_valid <= write && address == AtAbort;
      if (post_ready) post_valid <= 1'b0;
      if (change_ready) change_valid <= 1'b0;
      if (changed_valid) changing <= 1'b0;
      if (write) begin
        unique case (address)
          AtPolicy: begin
            policy   <= policy_t'(data[1:0]);
            patience <= data[15:8];
          end
          AtLoadCost: load_cost <= data;
          AtPostHigh: post_valid <= 1'b1;
          AtChange: if (!changing) begin
            change_valid <= 1'b1;
            changing     <= 1'b1;
          end
          default: ;
        endcase
      end
    end
  end

  always_ff @(posedge clk) begin
    if (changed_valid) begin
      change_done   <= changed;
      change_number <= changed_function;
    end
    if (write) begin
      if (address == AtPostLow) {post_address[31:0], post_copy} <= {data[31:1], 1'b0, data[0]};
      if (address == AtPostHigh) post_address[63:32] <= data;
      if (address == AtForget) forget_program <= data[NUMBER_BITS-1:0];
      if (address == AtAbort) abort_address <= data;
      case (address)
        AtMessages:          messages.address[31:0] <= data;
        AtMessages + 6'd1:   messages.address[47:32] <= data[15:0];
        AtMessages + 6'd2:   messages.ip <= data;
        AtPut:               {messages.at, messages.port, messages.rank} <= {data[23:16], data[12:0]};
        AtStation:           {messages.role, messages.station} <= data[9:0];
        AtMessages + 6'd5:   messages.own_ip <= data;
        AtMessages + 6'd6:   {messages.tcp_port, messages.own_station} <= {data[31:16], data[7:0]};
        AtMessages + 6'd7:   messages.secret[31:0] <= data;
        AtMessages + 6'd8:   messages.secret[63:32] <= data;
        AtMessages + 6'd9:   messages.job_key[31:0] <= data;
        AtMessages + 6'd10:  messages.job_key[63:32] <= data;
        AtMessages + 6'd11:  messages.job_key[95:64] <= data;
        AtMessages + 6'd12:  messages.job_key[127:96] <= data;
        default: ;
      endcase
      // Data of a pending change of the table does not change.
      if (!changing) begin
        if (address == AtChange) begin
          change_remove <= data[1];
          change_done   <= 1'b0;
        end
        for (int i = 0; i < 4; i++) if (address == 6'(AtName) + 6'(i)) change_name[32*i+:32] <= data;
        for (int i = 0; i < EntryWords; i++) if (address == 6'(AtEntry) + 6'(i)) change_entry[32*i+:32] <= data;
      end
    end
  end

`ifndef SYNTHESIS
  changes_stay : assert property (@(posedge clk) disable iff (rst)
      change_valid && !change_ready |=>
      change_valid && $stable({change_remove, change_name, change_entry}));
  results_were_requested : assert property (@(posedge clk) disable iff (rst)
      changed_valid |-> changing);
  posts_stay : assert property (@(posedge clk) disable iff (rst)
      post_valid && !post_ready |=> post_valid);
  pending_changes_are_in_progress : assert property (@(posedge clk) disable iff (rst)
      change_valid |-> changing);
`endif

endmodule
