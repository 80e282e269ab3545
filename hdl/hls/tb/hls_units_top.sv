// Every unit of synthesized kernels, for its bench.
module hls_units_top (
    input  logic        clk,
    input  logic        rst,
    input  logic        enable,
    input  logic [63:0] a,
    input  logic [63:0] b,
    output logic [31:0] fadd32,
    output logic [63:0] fadd64,
    output logic [31:0] fmul32,
    output logic [63:0] fmul64,
    output logic [8:0]  fadd9,
    output logic [8:0]  fmul9,
    output logic [31:0] float32_int32,
    output logic [31:0] float32_unsigned64,
    output logic [63:0] float64_int64,
    output logic [63:0] float64_unsigned32,
    output logic [31:0] int32_float32,
    output logic [63:0] int64_float64,
    output logic [31:0] unsigned32_float32,
    output logic [63:0] widen,
    output logic [31:0] narrow,
    output logic [17:0] multiply18,
    output logic [35:0] product,
    output logic [31:0] multiply32,
    output logic [63:0] multiply64,
    output logic [31:0] delay3,
    output logic        delay17,
    output logic [63:0] delay22,
    output logic [2:0]  order32,
    output logic [2:0]  order64,
    input  logic        start,
    input  logic        is_signed,
    output logic        done,
    output logic [63:0] quotient,
    output logic [63:0] rest
);

  hls_fadd u_fadd32 (.clk, .enable, .a(a[31:0]), .b(b[31:0]), .y(fadd32));
  hls_fadd #(.EXP(11), .MAN(52)) u_fadd64 (.clk, .enable, .a, .b, .y(fadd64));
  hls_fmul u_fmul32 (.clk, .enable, .a(a[31:0]), .b(b[31:0]), .y(fmul32));
  hls_fmul #(.EXP(11), .MAN(52)) u_fmul64 (.clk, .enable, .a, .b, .y(fmul64));
  hls_fadd #(.EXP(5), .MAN(3)) u_fadd9 (.clk, .enable, .a(a[8:0]), .b(b[8:0]), .y(fadd9));
  hls_fmul #(.EXP(5), .MAN(3)) u_fmul9 (.clk, .enable, .a(a[8:0]), .b(b[8:0]), .y(fmul9));
  hls_from_integer u_from32 (.clk, .enable, .a(a[31:0]), .y(float32_int32));
  hls_from_integer #(.I(64), .SIGNED(0)) u_from64 (.clk, .enable, .a, .y(float32_unsigned64));
  hls_from_integer #(.I(64), .EXP(11), .MAN(52)) u_wide64 (.clk, .enable, .a, .y(float64_int64));
  hls_from_integer #(.I(32), .SIGNED(0), .EXP(11), .MAN(52)) u_wide32 (.clk, .enable, .a(a[31:0]), .y(float64_unsigned32));
  hls_to_integer u_to32 (.clk, .enable, .a(a[31:0]), .y(int32_float32));
  hls_to_integer #(.I(64), .EXP(11), .MAN(52)) u_to64 (.clk, .enable, .a, .y(int64_float64));
  hls_to_integer #(.SIGNED(0)) u_unsigned32 (.clk, .enable, .a(a[31:0]), .y(unsigned32_float32));
  hls_widen u_widen (.clk, .enable, .a(a[31:0]), .y(widen));
  hls_narrow u_narrow (.clk, .enable, .a, .y(narrow));
  hls_multiply #(.W(18)) u_multiply18 (.clk, .enable, .a(a[17:0]), .b(b[17:0]), .y(multiply18));
  hls_product u_product (.clk, .enable, .a(a[17:0]), .b(b[17:0]), .y(product));
  hls_multiply u_multiply32 (.clk, .enable, .a(a[31:0]), .b(b[31:0]), .y(multiply32));
  hls_multiply #(.W(64)) u_multiply64 (.clk, .enable, .a, .b, .y(multiply64));
  hls_delay #(.STEPS(3)) u_delay3 (.clk, .enable, .a(a[31:0]), .y(delay3));
  hls_delay #(.W(1), .STEPS(17)) u_delay17 (.clk, .enable, .a(a[0]), .y(delay17));
  hls_delay #(.W(64), .STEPS(22)) u_delay22 (.clk, .enable, .a, .y(delay22));
  hls_fcompare u_order32 (.a(a[31:0]), .b(b[31:0]), .less(order32[0]), .equal(order32[1]), .unordered(order32[2]));
  hls_fcompare #(.EXP(11), .MAN(52)) u_order64 (.a, .b, .less(order64[0]), .equal(order64[1]), .unordered(order64[2]));
  hls_divide #(.W(64)) u_divide (.clk, .rst, .start, .is_signed, .a, .b, .done, .y(quotient), .rest);

endmodule
