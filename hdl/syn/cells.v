// Simulation models of Yosys' ECP5 cells for netlist.py: Yosys' own models, and for block RAM, for which it has none, the features
// used by its mapping rules (brams_map_16kd.v): no output registers, rising clock edges, synchronous resets. A read of an address that
// the other port writes is undefined on the chip; here it returns a wrong value, so that benches reveal such reads.
/* verilator lint_off SPECIFYIGN */
/* verilator lint_off INITIALDLY */
`include "common_sim.vh"
`include "ccu2c_sim.vh"

module DP16KD (
    input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0,
    input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0,
    input CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0,
    output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0,
    input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0,
    input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0,
    input CEB, OCEB, CLKB, WEB, RSTB, CSB2, CSB1, CSB0,
    output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0
);
  parameter DATA_WIDTH_A = 18, DATA_WIDTH_B = 18;
  parameter REGMODE_A = "NOREG", REGMODE_B = "NOREG", RESETMODE = "SYNC", ASYNC_RESET_RELEASE = "SYNC";
  parameter CSDECODE_A = "0b000", CSDECODE_B = "0b000", WRITEMODE_A = "NORMAL", WRITEMODE_B = "NORMAL";
  parameter CLKAMUX = "CLKA", CLKBMUX = "CLKB", GSR = "ENABLED";
  // Sixteen words of 18 bits each, 20 bits apart.
  parameter [319:0] INITVAL_00 = 0, INITVAL_01 = 0, INITVAL_02 = 0, INITVAL_03 = 0, INITVAL_04 = 0, INITVAL_05 = 0, INITVAL_06 = 0,
      INITVAL_07 = 0, INITVAL_08 = 0, INITVAL_09 = 0, INITVAL_0A = 0, INITVAL_0B = 0, INITVAL_0C = 0, INITVAL_0D = 0, INITVAL_0E = 0,
      INITVAL_0F = 0, INITVAL_10 = 0, INITVAL_11 = 0, INITVAL_12 = 0, INITVAL_13 = 0, INITVAL_14 = 0, INITVAL_15 = 0, INITVAL_16 = 0,
      INITVAL_17 = 0, INITVAL_18 = 0, INITVAL_19 = 0, INITVAL_1A = 0, INITVAL_1B = 0, INITVAL_1C = 0, INITVAL_1D = 0, INITVAL_1E = 0,
      INITVAL_1F = 0, INITVAL_20 = 0, INITVAL_21 = 0, INITVAL_22 = 0, INITVAL_23 = 0, INITVAL_24 = 0, INITVAL_25 = 0, INITVAL_26 = 0,
      INITVAL_27 = 0, INITVAL_28 = 0, INITVAL_29 = 0, INITVAL_2A = 0, INITVAL_2B = 0, INITVAL_2C = 0, INITVAL_2D = 0, INITVAL_2E = 0,
      INITVAL_2F = 0, INITVAL_30 = 0, INITVAL_31 = 0, INITVAL_32 = 0, INITVAL_33 = 0, INITVAL_34 = 0, INITVAL_35 = 0, INITVAL_36 = 0,
      INITVAL_37 = 0, INITVAL_38 = 0, INITVAL_39 = 0, INITVAL_3A = 0, INITVAL_3B = 0, INITVAL_3C = 0, INITVAL_3D = 0, INITVAL_3E = 0,
      INITVAL_3F = 0;
  localparam [64*320-1:0] Initial = {
    INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B, INITVAL_3A, INITVAL_39, INITVAL_38, INITVAL_37, INITVAL_36, INITVAL_35,
    INITVAL_34, INITVAL_33, INITVAL_32, INITVAL_31, INITVAL_30, INITVAL_2F, INITVAL_2E, INITVAL_2D, INITVAL_2C, INITVAL_2B, INITVAL_2A,
    INITVAL_29, INITVAL_28, INITVAL_27, INITVAL_26, INITVAL_25, INITVAL_24, INITVAL_23, INITVAL_22, INITVAL_21, INITVAL_20, INITVAL_1F,
    INITVAL_1E, INITVAL_1D, INITVAL_1C, INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18, INITVAL_17, INITVAL_16, INITVAL_15, INITVAL_14,
    INITVAL_13, INITVAL_12, INITVAL_11, INITVAL_10, INITVAL_0F, INITVAL_0E, INITVAL_0D, INITVAL_0C, INITVAL_0B, INITVAL_0A, INITVAL_09,
    INITVAL_08, INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04, INITVAL_03, INITVAL_02, INITVAL_01, INITVAL_00
  };

  if (CLKAMUX != "CLKA" || CLKBMUX != "CLKB" || REGMODE_A != "NOREG" || REGMODE_B != "NOREG")
    $error("unsupported kind of block RAM");
  // Yosys' kind where there is no reset.
  always @(posedge CLKA) if (RESETMODE != "SYNC" && (RSTA || RSTB)) $fatal(1, "unsupported reset of block RAM");

  // A wide word uses the data of both ports.
  wire [35:0] di = {
    DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0,
    DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0
  };
  wire [13:0] a = {ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0};
  wire [13:0] b = {ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0};

  // Four bytes of nine bits each. An address counts bits, eight per byte; for words wider than a byte, its last bits are the
  // byte enables.
  reg [35:0] words[512];
  initial for (int i = 0; i < 512; i++) words[i] = {Initial[20*(2*i+1)+:18], Initial[20*(2*i)+:18]};

  function automatic [5:0] place(input int width, input [13:0] at);
    case (width)
      1: place = 6'd9 * at[4:3] + at[2:0];
      2: place = 6'd9 * at[4:3] + {at[2:1], 1'b0};
      4: place = 6'd9 * at[4:3] + {at[2], 2'b00};
      9: place = 6'd9 * at[4:3];
      18: place = 6'd18 * at[4];
      default: place = 6'd0;
    endcase
  endfunction
  function automatic [35:0] span(input int width, input [13:0] at);
    case (width)
      36: span = {{9{at[3]}}, {9{at[2]}}, {9{at[1]}}, {9{at[0]}}};
      18: span = {18'd0, {9{at[1]}}, {9{at[0]}}} << place(width, at);
      default: span = ((36'd1 << width) - 36'd1) << place(width, at);
    endcase
  endfunction

  // One port cannot read an address while the other writes it.
  wire [35:0] put_a = CEA && WEA && !RSTA ? span(DATA_WIDTH_A, a) : '0;
  wire [35:0] put_b = CEB && WEB && !RSTB ? span(DATA_WIDTH_B, b) : '0;
  wire same = a[13:5] == b[13:5];
  wire [35:0] old_a = words[a[13:5]] ^ (same ? put_b : '0);
  wire [35:0] old_b = words[b[13:5]] ^ (same ? put_a : '0);
  wire [35:0] in_a = (DATA_WIDTH_A == 36 ? di : {18'd0, di[17:0]}) << place(DATA_WIDTH_A, a);
  wire [35:0] in_b = {18'd0, di[35:18]} << place(DATA_WIDTH_B, b);
  wire [35:0] new_a = old_a & ~put_a | in_a & put_a;
  wire [35:0] new_b = old_b & ~put_b | in_b & put_b;
  reg [35:0] out_a = 0, out_b = 0;

  always @(posedge CLKA) begin
    for (int i = 0; i < 4; i++) if (|put_a[9*i+:9]) words[a[13:5]][9*i+:9] <= new_a[9*i+:9];
    if (RSTA) out_a <= 0;
    else if (CEA) begin
      if (!WEA || WRITEMODE_A == "READBEFOREWRITE") out_a <= old_a >> place(DATA_WIDTH_A, a);
      else if (WRITEMODE_A == "WRITETHROUGH") out_a <= new_a >> place(DATA_WIDTH_A, a);
    end
  end

  always @(posedge CLKB) begin
    for (int i = 0; i < 4; i++) if (|put_b[9*i+:9]) words[b[13:5]][9*i+:9] <= new_b[9*i+:9];
    if (RSTB) out_b <= 0;
    else if (CEB) begin
      if (!WEB || WRITEMODE_B == "READBEFOREWRITE") out_b <= old_b >> place(DATA_WIDTH_B, b);
      else if (WRITEMODE_B == "WRITETHROUGH") out_b <= new_b >> place(DATA_WIDTH_B, b);
    end
  end

  // A word of 36 bits is read at B, and output through both ports.
  assign {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0,
      DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0} =
      DATA_WIDTH_B == 36 ? out_b : {out_b[17:0], out_a[17:0]};
endmodule
