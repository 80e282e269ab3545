// The handshakes of the channels of a kernel that is compiled from OpenCL C.
//
// Operations of the current step: `reads` and `writes` wait, `read_tries` and `write_tries` do not.
// They complete in the cycle in which `step` is high, which requires `channels_ready`; one that does
// not wait transfers an element then if that is possible. An element that is written leaves as soon
// as all that the step reads is there (`rest_ready` and the channels) and its channel has space,
// although another channel may have none. `first_reads` are those with which an iteration of a
// pipeline begins: all of them are executed, or, while `first_ready` is low, none, and the iteration
// begins again. The kernel waits for their elements if the iterations before are complete
// (`others_done`).
//
// Parameters: IN, OUT, channels that are read and written. Latency: none. Throughput: an element of
// each channel per cycle.
module kernel_channels #(
    parameter int IN  = 1,
    parameter int OUT = 1
) (
    input  logic           clk,
    input  logic           rst,
    input  logic           step,
    input  logic           rest_ready,
    output logic           channels_ready,
    input  logic [IN-1:0]  reads,
    input  logic [IN-1:0]  read_tries,
    input  logic [IN-1:0]  first_reads,
    output logic           first_ready,
    input  logic           others_done,
    input  logic [OUT-1:0] writes,
    input  logic [OUT-1:0] write_tries,
    input  logic [IN-1:0]  channel_in_valid,
    output logic [IN-1:0]  channel_in_ready,
    output logic [IN-1:0]  channel_in_waits,
    output logic [OUT-1:0] channel_out_valid,
    input  logic [OUT-1:0] channel_out_ready,
    output logic [OUT-1:0] channel_out_waits
);

  logic [ IN-1:0] missing, starves, starving, starved;
  logic [OUT-1:0] sent, leaves;

  assign first_ready       = (first_reads & ~channel_in_valid) == '0;
  assign missing           = reads & ~channel_in_valid;
  assign channel_in_ready  = (reads | read_tries | (first_reads & {IN{first_ready}})) & {IN{step}};
  assign leaves            = writes & ~sent & {OUT{rest_ready && missing == '0}};
  assign channel_out_valid = leaves | (write_tries & {OUT{step}});
  assign channel_out_waits = leaves & ~channel_out_ready;
  assign channels_ready    = missing == '0 && channel_out_waits == '0;

  // Between two beginnings of an iteration, the kernel waits for the same elements.
  assign starves           = first_reads & {IN{others_done && !first_ready}};
  assign starving          = first_reads == '0 ? starved : starves;
  assign channel_in_waits  = missing | (starving & ~channel_in_valid);

  always_ff @(posedge clk) begin
    sent <= step ? '0 : sent | (leaves & channel_out_ready);
    if (step) starved <= starving;
    if (rst) begin
      sent    <= '0;
      starved <= '0;
    end
  end

`ifndef SYNTHESIS
  steps_when_ready : assert property (@(posedge clk) disable iff (rst)
      step |-> rest_ready && channels_ready);
  // Elements that left before their step are those of this step.
  sent_are_writes : assert property (@(posedge clk) disable iff (rst) (sent & ~writes) == '0);
  waits_or_not : assert property (@(posedge clk) disable iff (rst)
      (reads & read_tries) == '0 && (writes & write_tries) == '0);
`endif

endmodule
