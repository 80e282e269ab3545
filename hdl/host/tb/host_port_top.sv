// host_port for its bench, with four regions and three calls at once; its structs signal by signal.
module host_port_top
  import axi_pkg::*;
  import host_pkg::*;
  import fn_pkg::*;
  import functions_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
`include "host_ports.svh"
    output logic        busy,
`include "axi_read_ports.svh"
`include "axi_write_ports.svh"
    output policy_t     policy,
    output logic [ 7:0] patience,
    output logic [31:0] load_cost,
    output logic        change_remove,
    output name_t       change_name,
    output entry_t      change_entry,
    output logic        change_valid,
    input  logic        change_ready,
    input  logic        changed,
    input  logic        changed_valid,
    input  logic [NUMBER_BITS-1:0] changed_function,
    output logic        forget,
    output logic [6:0] forget_function,
    output logic        request_valid,
    input  logic        request_ready,
    output logic [ 7:0] request_engine,
    output logic [6:0] request_function,
    output logic        request_bound,
    output logic [15:0] request_regions,
    output logic [31:0] request_cost,
    output logic [31:0] request_timeout,
    output logic [31:0] request_image,
    output logic [127:0] request_params,
    input  logic        grant,
    input  logic [ 7:0] grant_engine,
    input  logic [1:0] grant_region,
    input  logic        finish_valid,
    input  logic [ 7:0] finish_engine,
    input  logic [1:0] finish_region,
    output logic        finish_ready,
    input  logic        finish_killed,
    input  load_result_t finish_load,
    input  logic        finish_loaded,
    input  logic [31:0] finish_cycles,
    input  logic [3:0] decouple,
    input  logic [31:0] region_loads[4],
    input  logic [63:0] region_busy[4],
    input  logic [31:0] region_image[4],
    output logic [3:0] region_on,
    output logic [3:0]  region_kill,
    output logic [3:0]  s_valid,
    input  logic [3:0]  s_ready,
    output logic [63:0] s_data[4],
    output logic [ 7:0] s_keep[4],
    output logic [3:0]  s_last,
    input  logic [3:0]  m_valid,
    output logic [3:0]  m_ready,
    input  logic [63:0] m_data[4],
    input  logic [ 7:0] m_keep[4],
    input  logic [3:0]  m_last
);

`include "axi_read_signals.svh"
`include "axi_write_signals.svh"

  host_in_t host_in;
  host_out_t host_out;
  scheduling_t scheduling;
  table_change_t change;
  table_changed_t table_changed;
  host_call_t call;
  host_call_reply_t call_reply;
  streams_in_t region_in[4];
  streams_out_t region_out[4];

  assign host_in = '{
    write:           host_write,
    address:         host_address,
    data:            host_data,
    dma_read_ready:  dma_read_ready,
    dma_data_valid:  dma_data_valid,
    dma_data:        dma_data,
    dma_data_error:  dma_data_error,
    dma_write_ready: dma_write_ready
  };
  assign {host_read_data, host_ended} = {host_out.read_data, host_out.ended};
  assign {dma_read_valid, dma_read_address, dma_read_beats} =
      {host_out.dma_read_valid, host_out.dma_read_address, host_out.dma_read_beats};
  assign {dma_write_valid, dma_write_address} = {host_out.dma_write_valid, host_out.dma_write_address};
  assign {dma_write_data, dma_write_keep} = {host_out.dma_write_data, host_out.dma_write_keep};
  assign {policy, patience, load_cost} = scheduling;
  assign {change_valid, change_remove} = {change.valid, change.remove};
  assign {change_name, change_entry} = {change.name, change.entry};
  assign table_changed = '{valid: changed_valid, changed: changed, number: changed_function};
  assign {request_valid, request_engine, request_function} =
      {call.request_valid, call.request_engine, call.request_function[6:0]};
  assign {request_bound, request_regions, request_cost, request_timeout, request_image, request_params} = call.request_call;
  assign finish_ready = call.finish_ready;
  assign call_reply = '{
    request_ready: request_ready,
    grant:         grant,
    grant_engine:  grant_engine,
    grant_region:  8'(grant_region),
    finish_valid:  finish_valid,
    finish_engine: finish_engine,
    finish_region: 8'(finish_region),
    finish:        '{killed: finish_killed, code: '0, load: finish_load, loaded: finish_loaded, cycles: finish_cycles}
  };
  for (genvar i = 0; i < 4; i++) begin : g_region
    assign {s_valid[i], s_data[i], s_keep[i], s_last[i], m_ready[i]} = region_in[i];
    assign region_out[i] = '{
      s_ready: s_ready[i],
      m_valid: m_valid[i],
      m_data:  m_data[i],
      m_keep:  m_keep[i],
      m_last:  m_last[i]
    };
  end

  message_tables_t unused_messages;
  host_port #(
      .CALLS(3)
  ) u_port (
      .changed(table_changed),
      .messages(unused_messages),
      .*
  );

endmodule
