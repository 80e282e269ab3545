// Start and end of a kernel's run: controls when it may accept input, and when it is done.
//
// A run begins with `start` and ends with a pulse of `done`, in the cycle after both the last input
// beat and the last output beat have passed, so that no part of a body remains.
// `start` may come in the same cycle as `done`.
//
// Parameters: none. Latency: 1 cycle from `start` to `taking`, 1 from the last handshake to `done`.
module kernel_control (
    input  logic clk,
    input  logic rst,
    input  logic start,
    input  logic s_end,   // the last input beat is being accepted
    input  logic m_end,   // the last output beat is being accepted
    output logic taking,  // input may be accepted
    output logic done
);

  logic running;  // the last output beat has not been accepted
  logic ending;

  assign ending = (taking || running) && !(taking && !s_end) && !(running && !m_end);

  always_ff @(posedge clk) begin
    if (rst) begin
      taking  <= 1'b0;
      running <= 1'b0;
      done    <= 1'b0;
    end else begin
      if (start) begin
        taking  <= 1'b1;
        running <= 1'b1;
      end else begin
        if (s_end) taking <= 1'b0;
        if (m_end) running <= 1'b0;
      end
      done <= ending;
    end
  end

`ifndef SYNTHESIS
  starts_when_idle : assert property (@(posedge clk) disable iff (rst)
      start |-> !taking && !running);
  input_ends_once : assert property (@(posedge clk) disable iff (rst) s_end |-> taking);
  output_ends_once : assert property (@(posedge clk) disable iff (rst) m_end |-> running);
  // The output of a run may end before its input, but a run is over only after both.
  done_follows_both_ends : assert property (@(posedge clk) disable iff (rst)
      done |-> !taking && !running);
`endif

endmodule
