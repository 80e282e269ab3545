// Capture: signals sampled each cycle into block RAM around a trigger, and read out through registers.
//
// While it is armed it keeps the last samples; at the trigger it goes on until BEFORE of them are from before it and the rest
// from it on. With STEP the samples are that many cycles apart (the trigger looks at samples alone). Whoever carries the
// registers to a host (a window of its port, a packet's handler) is outside.
//
// Registers, 32 bits each; reading takes 2 cycles from `address`, those behind RESULT 3 from a write of INDEX:
//
//   0 CONTROL  written: 1 arms, and forgets what there is; 2 triggers now; 0 stops. Read: 0 idle, 1 armed, 2 triggered, 3 done
//   1 MASK     lower and 2 upper half: bits of a sample that the trigger looks at; none: any sample is one
//   3 VALUE    lower and 4 upper half: what they must be
//   5 BEFORE   samples that are kept from before the trigger, less than DEPTH
//   6 STEP     cycles between samples, less 1
//   7 SHAPE    read: WIDTH in bits 7:0, log2 DEPTH in 15:8
//   8 COUNT    read: samples that there are; 9 MARK: which of them is the trigger's
//   10 INDEX   the sample that RESULT shows, from 0, the oldest
//   11 RESULT  read: lower and 12 upper half
//
// Parameters: WIDTH, bits of a sample, up to 64; DEPTH, samples, a power of two. Latency: none to what is looked at.
module msg_capture #(
    parameter  int WIDTH = 64,
    parameter  int DEPTH = 1024,
    localparam int A = $clog2(DEPTH)
) (
    input  logic             clk,
    input  logic             rst,
    input  logic [WIDTH-1:0] signals,
    input  logic             write,
    input  logic [3:0]       address,
    input  logic [31:0]      write_data,
    output logic [31:0]      read_data
);

  if (DEPTH != 1 << A || WIDTH > 64 || WIDTH < 1) $error("DEPTH must be a power of two, WIDTH at most 64");

  typedef enum logic [1:0] { Idle, Armed, Triggered, Done } state_t;

  state_t           state;
  logic [63:0]      mask, value, shown;
  logic [A-1:0]     earlier, next, index;  // next: where the next sample goes
  logic [A:0]       count, mark, left;     // left: samples that are still to come
  logic [31:0]      step, wait_for;
  logic [WIDTH-1:0] memory[DEPTH];
  logic [WIDTH-1:0] sample, result;
  logic             sampled, hit, force_now;

  assign shown = 64'(sample);
  assign hit   = force_now || ((shown ^ value) & mask) == '0;

  always_ff @(posedge clk) begin
    sample  <= signals;
    sampled <= wait_for == '0;
    wait_for <= wait_for == '0 || (write && address == 4'd0) ? step : wait_for - 1'b1;
    if (sampled && (state == Armed || state == Triggered)) memory[next] <= sample;
    // The oldest one is behind the newest.
    result <= memory[next - count[A-1:0] + index];
    case (address)
      4'd0: read_data <= 32'(state);
      4'd7: read_data <= {16'd0, 8'(A), 8'(WIDTH)};
      4'd8: read_data <= 32'(count);
      4'd9: read_data <= 32'(mark);
      4'd11: read_data <= 32'(64'(result));
      4'd12: read_data <= 32'(64'(result) >> 32);
      default: read_data <= '0;
    endcase
  end

  always_ff @(posedge clk) begin
    if (sampled && (state == Armed || state == Triggered)) begin
      next <= next + 1'b1;
      if (!count[A]) count <= count + 1'b1;
    end
    if (sampled) begin
      case (state)
        Armed:
        if (hit) begin
          force_now <= 1'b0;
          // What is older than BEFORE falls out as the others come.
          left      <= (A + 1)'(DEPTH) - (A + 1)'(earlier) - 1'b1;
          mark      <= count > (A + 1)'(earlier) ? (A + 1)'(earlier) : count;
          state     <= (A + 1)'(earlier) == (A + 1)'(DEPTH - 1) ? Done : Triggered;
        end
        Triggered: begin
          left <= left - 1'b1;
          if (left == (A + 1)'(1)) state <= Done;
        end
        default: ;
      endcase
    end
    if (write) begin
      case (address)
        4'd0: begin
          force_now <= write_data[1];
          if (write_data[0]) begin
            state <= Armed;
            count <= '0;
            mark  <= '0;
          end else if (!write_data[1]) state <= Idle;
        end
        4'd1: mask[31:0] <= write_data;
        4'd2: mask[63:32] <= write_data;
        4'd3: value[31:0] <= write_data;
        4'd4: value[63:32] <= write_data;
        4'd5: earlier <= write_data[A-1:0];
        4'd6: step <= write_data;
        4'd10: index <= write_data[A-1:0];
        default: ;
      endcase
    end
    if (rst) begin
      state     <= Idle;
      force_now <= 1'b0;
      count     <= '0;
      mark      <= '0;
      next      <= '0;
      mask      <= '0;
      value     <= '0;
      earlier   <= '0;
      step      <= '0;
      index     <= '0;
    end
  end

endmodule
