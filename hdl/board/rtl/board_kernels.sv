// The kernels, and the switch that connects one of them. Only the chosen kernel sees `start` and
// input; only its output is seen. The order is that of functions_pkg.
//
// Latency: one register in each direction is the kernel's own.
module board_kernels (
    input  logic         clk,
    input  logic         rst,
    input  logic [  3:0] number,
    input  logic         start,
    input  logic [127:0] params,
    output logic         done,
    input  logic         s_valid,
    output logic         s_ready,
    input  logic [ 63:0] s_data,
    input  logic [  7:0] s_keep,
    input  logic         s_last,
    output logic         m_valid,
    input  logic         m_ready,
    output logic [ 63:0] m_data,
    output logic [  7:0] m_keep,
    output logic         m_last
);

  localparam int N = functions_pkg::FUNCTIONS;

  logic [N-1:0] k_start, k_done, k_s_valid, k_s_ready, k_m_valid, k_m_ready, k_m_last;
  logic [63:0] k_m_data[N];
  logic [7:0] k_m_keep[N];

  always_comb begin
    k_start = '0;
    k_s_valid = '0;
    k_m_ready = '0;
    for (int i = 0; i < N; i++) begin
      k_start[i] = start && number == 4'(i);
      k_s_valid[i] = s_valid && number == 4'(i);
      k_m_ready[i] = m_ready && number == 4'(i);
    end
  end

  logic [$clog2(N)-1:0] chosen;
  assign chosen = number[$clog2(N)-1:0];

  assign done = k_done[chosen];
  assign s_ready = k_s_ready[chosen];
  assign m_valid = k_m_valid[chosen];
  assign m_data = k_m_data[chosen];
  assign m_keep = k_m_keep[chosen];
  assign m_last = k_m_last[chosen];

`define KERNEL(NAME, I) \
  NAME #( \
      .W(64) \
  ) u_``NAME ( \
      .clk, \
      .rst, \
      .start(k_start[I]), \
      .params, \
      .done(k_done[I]), \
      .s_valid(k_s_valid[I]), \
      .s_ready(k_s_ready[I]), \
      .s_data, \
      .s_keep, \
      .s_last, \
      .m_valid(k_m_valid[I]), \
      .m_ready(k_m_ready[I]), \
      .m_data(k_m_data[I]), \
      .m_keep(k_m_keep[I]), \
      .m_last(k_m_last[I]) \
  );

  `KERNEL(kernel_echo, 0)
  `KERNEL(kernel_uppercase, 1)
  `KERNEL(kernel_checksum, 2)
  `KERNEL(kernel_sobel, 3)
  `KERNEL(kernel_sha256, 4)
  `KERNEL(kernel_aes128, 5)

`undef KERNEL

endmodule
