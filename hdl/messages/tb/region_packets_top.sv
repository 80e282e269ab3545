// region_packets, signal by signal.
module region_packets_top
  import fn_pkg::*;
  import msg_pkg::*;
(
`include "region_packets_ports.svh"
    // The kernel.
    input  logic        out_valid,
    output logic        out_ready,
    input  logic        out_last,
    input  logic [63:0] out_data,
    output logic        in_valid,
    input  logic        in_ready,
    output logic        in_last,
    output logic [63:0] in_data,
    // The router.
    output logic        k_valid,
    input  logic        k_ready,
    output logic        k_last,
    output logic [63:0] k_data,
    input  logic        m_valid,
    output logic        m_ready,
    input  logic        m_last,
    input  logic [63:0] m_data
);

  packets_t kernel, kernel_reply;
  beat_t    k_beat;

  assign kernel = '{valid: out_valid, last: out_last, data: out_data, ready: in_ready};
  assign {in_valid, in_last, in_data, out_ready} = kernel_reply;
  assign {k_last, k_data} = k_beat;

  region_packets u_packets (
      .m_beat('{last: m_last, data: m_data}),
      .*
  );

endmodule
