// The function engine with four regions, board memory, and three kernels to load, for its bench:
// number 0 is echo, 1 uppercase, and any other one never reacts.
module fn_engine_top
  import axi_pkg::*;
  import fn_pkg::*;
#(
    parameter int W = 64
) (
`include "fn_scheduler_ports.svh"
    input  logic [5:0]   request_tag,
    input  logic [5:0]   request_function,
    input  logic [15:0]  request_regions,
    input  logic [31:0]  request_cost,
    input  logic [31:0]  request_timeout,
    input  logic [31:0]  request_image,
    output logic         grant,
    output logic [1:0]   grant_region,
    output logic [5:0]   grant_tag,
    output logic         finish_valid,
    input  logic         finish_ready,
    output logic [5:0]   finish_tag,
    output logic [1:0]   finish_region,
    output logic         finish_killed,
    output load_result_t finish_load,
    output logic         finish_loaded,
    output logic [31:0]  finish_cycles,
    output logic         swap,
    output logic [1:0]   swap_region,
    output logic [31:0]  swap_kernel,
    output logic         icap_valid,
    input  logic         icap_ready,
    output logic [31:0]  icap_data,
    output logic [1:0]   icap_region,
    input  logic [5:0]   read_function,
    output logic [31:0]  calls,
    output logic [31:0]  failures,
    output logic [31:0]  loads,
    output logic [47:0]  cycles,
    input  logic [3:0]     s_valid,
    output logic [3:0]     s_ready,
    input  logic [W-1:0]   s_data[4],
    input  logic [W/8-1:0] s_keep[4],
    input  logic [3:0]     s_last,
    output logic [3:0]     m_valid,
    input  logic [3:0]     m_ready,
    output logic [W-1:0]   m_data[4],
    output logic [W/8-1:0] m_keep[4],
    output logic [3:0]     m_last,
    output logic [3:0]     m_failed,
    output logic [3:0]     next_valid,
    output logic [5:0]     next_tag[4]
);

  logic [3:0]   region_start, region_decouple, region_idle, region_done, region_failed;
  logic [127:0] region_params;
  logic [31:0]  region_timeout, region_cycles[4];
  logic         unused_bound;
  logic [1:0]   unused_code;
  logic [3:0][1:0] region_code;
  axi_read_t        axi_read;
  axi_read_reply_t  axi_read_reply;
  axi_write_reply_t unused_reply;
  scheduling_t    scheduling;
  call_t          request_call;
  finish_t        finish;
  configuration_t configuration;

  assign scheduling = '{policy: policy, patience: patience, load_cost: load_cost};
  assign request_call = '{
    bound:   1'b0,
    regions: request_regions,
    cost:    request_cost,
    timeout: request_timeout,
    image:   request_image,
    params:  {96'd0, request_cost}
  };
  assign {finish_killed, unused_code, finish_load, finish_loaded, finish_cycles} = finish;
  assign {icap_valid, icap_data, icap_region} =
      {configuration.valid, configuration.data, configuration.region[1:0]};
  assign {swap, swap_region, swap_kernel} =
      {configuration.swap, configuration.region[1:0], configuration.swap_kernel};

  logic [31:0]  unused_loads[4];
  logic [63:0]  unused_busy[4];
  logic [31:0]  unused_image[4];

  fn_engine #(
      .DATA(W),
      .MAX_BYTES(1 << 20)
  ) u_engine (
      .scheduling,
      .request_call,
      .finish,
      .configuration,
      .configuration_ready(icap_ready),
      .forget(1'b0),
      .forget_function('0),
      .region_loads(unused_loads),
      .region_busy(unused_busy),
      .region_image(unused_image),
      .region_bound(unused_bound),
      .next_valid,
      .next_tag,
      .*
  );

  dram_model #(
      .DATA(W)
  ) u_dram (
      .axi_write('0),
      .axi_write_reply(unused_reply),
      .*
  );

  for (genvar r = 0; r < 4; r++) begin : g_region
    logic           k_rst, k_start, k_done, k_s_valid, k_s_ready, k_s_last, k_m_valid, k_m_ready, k_m_last;
    logic [127:0]   k_params;
    logic [W-1:0]   k_s_data, k_m_data;
    logic [W/8-1:0] k_s_keep, k_m_keep;
    logic [31:0]    number;
    logic [1:0]     done, ready, valid, last;
    logic [W-1:0]   data[2];
    logic [W/8-1:0] keep[2];

    always_ff @(posedge clk) begin
      if (swap && swap_region == 2'(r)) number <= swap_kernel;
    end

    region #(
        .W(W)
    ) u_region (
        .clk,
        .rst,
        .start   (region_start[r]),
        .params  (region_params),
        .timeout (region_timeout),
        .kill    (1'b0),
        .decouple(region_decouple[r]),
        .idle    (region_idle[r]),
        .done    (region_done[r]),
        .failed  (region_failed[r]),
        .code    (region_code[r]),
        .k_code  ('0),
        .cycles  (region_cycles[r]),
        .s_valid (s_valid[r]),
        .s_ready (s_ready[r]),
        .s_data  (s_data[r]),
        .s_keep  (s_keep[r]),
        .s_last  (s_last[r]),
        .m_valid (m_valid[r]),
        .m_ready (m_ready[r]),
        .m_data  (m_data[r]),
        .m_keep  (m_keep[r]),
        .m_last  (m_last[r]),
        .m_failed(m_failed[r]),
        .*
    );

    kernel_echo #(
        .W(W)
    ) u_echo (
        .clk,
        .rst    (k_rst),
        .start  (k_start && number == 32'd0),
        .params (k_params),
        .done   (done[0]),
        .s_valid(k_s_valid && number == 32'd0),
        .s_ready(ready[0]),
        .s_data (k_s_data),
        .s_keep (k_s_keep),
        .s_last (k_s_last),
        .m_valid(valid[0]),
        .m_ready(k_m_ready),
        .m_data (data[0]),
        .m_keep (keep[0]),
        .m_last (last[0])
    );

    kernel_uppercase #(
        .W(W)
    ) u_uppercase (
        .clk,
        .rst    (k_rst),
        .start  (k_start && number == 32'd1),
        .params (k_params),
        .done   (done[1]),
        .s_valid(k_s_valid && number == 32'd1),
        .s_ready(ready[1]),
        .s_data (k_s_data),
        .s_keep (k_s_keep),
        .s_last (k_s_last),
        .m_valid(valid[1]),
        .m_ready(k_m_ready),
        .m_data (data[1]),
        .m_keep (keep[1]),
        .m_last (last[1])
    );

    assign k_done    = number < 32'd2 && done[number[0]];
    assign k_s_ready = number < 32'd2 && ready[number[0]];
    assign k_m_valid = number < 32'd2 && valid[number[0]];
    assign k_m_data  = data[number[0]];
    assign k_m_keep  = keep[number[0]];
    assign k_m_last  = last[number[0]];
  end

endmodule
