// http_calls for its bench, its structs signal by signal.
module http_calls_top
  import fn_pkg::*;
  import net_pkg::ring_note_t;
  import net_pkg::ring_read_t;
  import net_pkg::ring_word_t;
  import net_pkg::ring_write_t;
#(
    localparam int REGIONS = 4
) (
    input  logic                    clk,
    input  logic                    rst,
    input  logic [3:0]              session,
    input  logic [21:0]             room,
    input  logic                    called,
    input  logic [22:0]             body_at,
    input  logic [20:0]             body_bytes,
    input  logic [22:0]             answer_at,
    input  logic [5:0]              id_bytes,
    input  logic                    keep_alive,
    input  logic                    close,
    input  logic                    grant,
    input  logic [1:0]              grant_region,
    input  logic [3:0]              grant_tag,
    input  logic [REGIONS-1:0]      next_valid,
    input  logic [3:0]              next_tag[REGIONS],
    input  logic [1:0]              finish_region,
    input  logic                    take,
    output logic                    complete,
    output logic                    over,
    output logic [22:0]             answer_to,
    // The regions' streams.
    output logic [REGIONS-1:0]      s_valid,
    input  logic [REGIONS-1:0]      s_ready,
    output logic [63:0]             s_data[REGIONS],
    output logic [7:0]              s_keep[REGIONS],
    output logic [REGIONS-1:0]      s_last,
    input  logic [REGIONS-1:0]      m_valid,
    output logic [REGIONS-1:0]      m_ready,
    input  logic [63:0]             m_data[REGIONS],
    input  logic [7:0]              m_keep[REGIONS],
    input  logic [REGIONS-1:0]      m_last,
    input  logic                    own_rx_wants,
    output logic                    own_rx_may,
    input  logic                    own_rx_read,
    input  logic [21:0]             own_rx_address,
    input  logic [3:0]              own_rx_note,
    output logic                    own_word_valid,
    input  logic                    rx_ready,
    output logic                    rx_read_valid,
    output logic [31:0]             rx_read_address,
    output logic [11:0]             rx_read_note,
    input  logic                    rx_word_valid,
    input  logic [11:0]             rx_word_note,
    input  logic [63:0]             rx_word_data,
    input  logic                    tx_ready,
    input  logic                    own_turn,
    input  logic                    put_start,
    input  logic [22:0]             put_from,
    input  logic                    put_chunk,
    input  logic                    put,
    input  logic [3:0]              put_length,
    input  logic [63:0]             put_data,
    input  logic                    flush,
    output logic [22:0]             position,
    output logic                    tx_write_valid,
    output logic                    fill_valid,
    output logic [31:0]             write_address,  // of the one that is valid
    output logic [63:0]             write_data,
    output logic [7:0]              write_keep,
    input  logic                    id_read,
    input  logic [2:0]              id_word,
    output logic [63:0]             id_data,
    input  logic                    id_write,
    input  logic [7:0]              id_byte,
    input  logic [5:0]              id_at
);
  streams_in_t  region_in [REGIONS];
  streams_out_t region_out[REGIONS];
  ring_read_t   rx_read;
  ring_word_t   rx_word;
  ring_write_t tx_write, fill;
  logic unused_next, unused_waits;

  for (genvar i = 0; i < REGIONS; i++) begin : g_region
    assign s_valid[i] = region_in[i].s_valid;
    assign s_data[i] = region_in[i].s_data;
    assign s_keep[i] = region_in[i].s_keep;
    assign s_last[i] = region_in[i].s_last;
    assign m_ready[i] = region_in[i].m_ready;
    assign region_out[i] = '{
      s_ready: s_ready[i],
      m_valid: m_valid[i],
      m_data:  m_data[i],
      m_keep:  m_keep[i],
      m_last:  m_last[i]
    };
  end
  http_calls #(
      .REGIONS(REGIONS)
  ) u_calls (
      .rx_next (unused_next),
      .tx_waits(unused_waits),
      .*
  );
  assign rx_read_valid = rx_read.valid;
  assign rx_read_address = rx_read.address;
  assign rx_read_note = rx_read.note;
  assign rx_word = '{valid: rx_word_valid, note: ring_note_t'(rx_word_note), data: rx_word_data};
  assign tx_write_valid = tx_write.valid;
  assign fill_valid = fill.valid;
  assign write_address = fill.valid ? fill.address : tx_write.address;
  assign write_data = fill.valid ? fill.data : tx_write.data;
  assign write_keep = fill.valid ? fill.keep : tx_write.keep;

  // One memory is written in a cycle.
  one_write : assert property (@(posedge clk) disable iff (rst) !(fill.valid && tx_write.valid));
endmodule
