// The list of functions as JSON: `[{"name":"echo"},{"name":"sobel"}]` and a newline, in words of up
// to eight bytes. Names are copied from the table without escaping;
// the host that enters them omits other characters.
//
// Parameters: SLOTS of the table. Latency: 4 cycles to the first word. Throughput: a slot in 3
// cycles, and a word per cycle.
module http_list #(
    parameter int SLOTS = 64,
    localparam int S = $clog2(SLOTS)
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         start,
    output logic         valid,
    output logic [ 63:0] data,
    output logic [  3:0] length,   // 1 to 8 bytes
    output logic         last,
    // The table (fn_table): a slot, and its content a cycle later.
    output logic [S-1:0] slot,
    output logic         slot_word,
    input  logic         slot_used,
    input  logic [ 63:0] slot_name
);

  typedef enum logic [3:0] {
    Idle,
    First,      // reads the slot's first half from memory
    Second,     // and its second half
    Look,
    Comma,
    Open,
    Quote,
    Lower,
    Upper,
    Close,
    Finish
  } state_t;

  state_t state;
  logic any, used;
  logic [63:0] lower, upper;

  // Bytes before the first zero.
  function automatic logic [3:0] filled(input logic [63:0] name);
    filled = 4'd8;
    for (int i = 7; i >= 0; i--) if (name[8*i+:8] == '0) filled = 4'(i);
  endfunction

  // Text in the layout of the memory: its first character in bits 7:0.
  function automatic logic [63:0] spelled(input logic [63:0] text);
    for (int i = 0; i < 8; i++) spelled[8*i+:8] = text[8*(7-i)+:8];
  endfunction

  assign slot_word = state == Second || state == Look;

  always_comb begin
    valid  = 1'b1;
    data   = '0;
    length = 4'd1;
    last   = 1'b0;
    case (state)
      Comma: data[7:0] = any ? "," : "[";
      Open: begin
        data   = spelled("{\"name\":");
        length = 4'd8;
      end
      Quote: data[7:0] = "\"";
      Lower: begin
        data   = lower;
        length = filled(lower);
        valid  = length != '0;
      end
      Upper: begin
        data   = upper;
        length = filled(upper);
        valid  = length != '0;
      end
      Close: begin
        data[15:0] = {"}", "\""};
        length = 4'd2;
      end
      Finish: begin
        data[23:0] = {8'h0a, "]", "["};
        length = 4'd3;
        if (any) begin
          data[15:0] = {8'h0a, "]"};
          length = 4'd2;
        end
        last = 1'b1;
      end
      default: valid = 1'b0;
    endcase
  end

  always_ff @(posedge clk) begin
    if (rst) state <= Idle;
    else
      case (state)
        Idle: if (start) state <= First;
        First: state <= Second;
        Second: state <= Look;
        Look: state <= used ? Comma : slot == S'(SLOTS - 1) ? Finish : First;
        Comma: state <= Open;
        Open: state <= Quote;
        Quote: state <= Lower;
        Lower: state <= Upper;
        Upper: state <= Close;
        Close: state <= slot == S'(SLOTS - 1) ? Finish : First;
        default: state <= Idle;
      endcase
  end

  always_ff @(posedge clk) begin
    case (state)
      Idle: begin
        slot <= '0;
        any  <= 1'b0;
      end
      Second: begin
        used  <= slot_used;
        lower <= slot_name;
      end
      Look: if (!used) slot <= slot + 1'b1;
      Comma: begin
        upper <= slot_name;
        any   <= 1'b1;
      end
      Close: slot <= slot + 1'b1;
      default: ;
    endcase
  end

`ifndef SYNTHESIS
  starts_when_idle : assert property (@(posedge clk) disable iff (rst) start |-> state == Idle);
  words_have_bytes : assert property (@(posedge clk) disable iff (rst)
      valid |-> length inside {[4'd1:4'd8]});
  list_ends_once : assert property (@(posedge clk) disable iff (rst) last |=> !valid);
`endif

endmodule
