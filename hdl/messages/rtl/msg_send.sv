// Send engine: a kernel's command and payload → packets.
//
// A message takes four packets: envelope, clear to send, data (in as many as needed), done; an
// eager one is sent as data at once. `done` is a pulse at the end, with `fault` (0: success): an
// invalid rank, or a fault of the receiver. The receiver's reply to an eager message comes late:
// the next command ends with its fault, and is not carried out.
//
// Latency: 1 cycle from command to the first packet. Throughput: one beat per cycle,
// plus the packets' envelopes.
module msg_send
  import hum_envelope_pkg::*;
  import msg_pkg::*;
(
    input  logic          clk,
    input  logic          rst,
    input  logic [7:0]    own,      // this rank
    input  logic [8:0]    ranks,    // number of ranks
    input  logic          s_valid,
    output logic          s_ready,
    input  send_t         s_command,
    input  logic          d_valid,  // payload, from the lowest byte of each beat
    output logic          d_ready,
    input  logic [63:0]   d_data,
    output logic          done,
    output logic [7:0]    fault,
    output logic          m_valid,
    input  logic          m_ready,
    output beat_t         m_beat,
    input  logic          r_valid,  // replies: CLEAR, DONE, ERROR; accepted at once
    input  hum_envelope_t r_head
);

  typedef enum logic [2:0] { Idle, Head, Data, AwaitClear, AwaitDone } state_t;

  state_t      state;
  send_t       command;
  logic [3:0]  kind;
  logic [23:0] left;       // bytes that are not announced yet
  logic [7:0]  beats_left;
  logic [7:0]  refused;    // a fault that is not reported yet
  logic        reply;
  logic        more;
  logic [10:0] piece;      // bytes of the next packet
  hum_envelope_t head;

  assign reply = r_valid && r_head.src == command.dest;
  assign more  = left > PacketBytes;
  assign piece = more ? PacketBytes[10:0] : left[10:0];

  always_comb begin
    head = '0;
    head.dest  = command.dest;
    head.src   = own;
    head.kind  = kind;
    head.size  = kind == PacketEnvelope ? left : 24'(piece);
    {head.tag_high, head.tag} = command.tag;
    head.dtype = command.dtype;
    head.flag  = (command.collective ? FlagCollective : '0) | (more && kind != PacketEnvelope ? FlagMore : '0);
  end

  assign s_ready = state == Idle;
  assign d_ready = state == Data && m_ready;
  assign m_valid = state == Head || (state == Data && d_valid);
  assign m_beat.data = state == Data ? d_data : head;
  assign m_beat.last = state == Data ? beats_left == 8'd1 : kind == PacketEnvelope || piece == '0;

  always_ff @(posedge clk) begin
    done <= 1'b0;
    if (r_valid && r_head.kind == PacketError && (reply || r_head.tag != FaultLost)) refused <= r_head.tag;
    case (state)
      Idle: begin
        command <= s_command;
        left    <= s_command.size;
        kind    <= s_command.eager ? PacketEager : PacketEnvelope;
        fault   <= refused;
        if (s_valid) begin
          refused <= FaultNone;
          if (refused != FaultNone) done <= 1'b1;
          else if ({1'b0, s_command.dest} >= ranks || s_command.dest == own) begin
            done  <= 1'b1;
            fault <= FaultRank;
          end else state <= Head;
        end
      end
      Head:
      if (m_ready) begin
        if (kind == PacketEnvelope) state <= AwaitClear;
        else begin
          left       <= left - 24'(piece);
          beats_left <= beats(piece);
          state      <= piece == '0 ? (kind == PacketEager ? Idle : AwaitDone) : Data;
          if (piece == '0 && kind == PacketEager) done <= 1'b1;
        end
      end
      Data:
      if (d_valid && m_ready) begin
        beats_left <= beats_left - 1'b1;
        if (beats_left == 8'd1) begin
          if (left != '0) state <= Head;
          else if (kind == PacketEager) begin
            state <= Idle;
            done  <= 1'b1;
          end else state <= AwaitDone;
        end
      end
      AwaitClear: begin
        kind <= PacketData;
        if (refused != FaultNone) begin
          state   <= Idle;
          done    <= 1'b1;
          fault   <= refused;
          refused <= FaultNone;
        end else if (reply && r_head.kind == PacketClear) state <= Head;
      end
      AwaitDone:
      if (refused != FaultNone) begin
        state   <= Idle;
        done    <= 1'b1;
        fault   <= refused;
        refused <= FaultNone;
      end else if (reply && r_head.kind == PacketDone) begin
        state <= Idle;
        done  <= 1'b1;
      end
      default: state <= Idle;
    endcase
    if (rst) begin
      state   <= Idle;
      done    <= 1'b0;
      refused <= FaultNone;
    end
  end

  logic unused_reply;
  assign unused_reply = &{1'b0, r_head.dest, r_head.size, r_head.tag_high, r_head.dtype, r_head.flag};

`ifndef SYNTHESIS
  packets_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m_beat));
  data_has_beats : assert property (@(posedge clk) disable iff (rst)
      state == Data |-> beats_left != '0);
  done_for_a_cycle : assert property (@(posedge clk) disable iff (rst) done |=> !done);
  commands_have_a_rank : assert property (@(posedge clk) disable iff (rst)
      state != Idle |-> {1'b0, command.dest} < ranks && command.dest != own);
`endif

endmodule
