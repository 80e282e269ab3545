// Proof harness: of each session an application is told what was told last, and nothing of another's: where its stream
// has come to, what is acknowledged, whether it is over. What is new is said once.
//
// The solver picks the session that is followed.
module net_numbers_f (
    input logic        clk,
    input logic        rst,
    input logic        rcv_told,
    input logic [1:0]  rcv_at,
    input logic [31:0] rcv_told_next,
    input logic        rcv_told_ended,
    input logic        rcv_arrived,
    input logic        open,
    input logic [1:0]  open_at,
    input logic [31:0] open_una,
    input logic        tell,
    input logic [1:0]  tell_at,
    input logic [31:0] tell_una,
    input logic        tell_dead,
    input logic        tell_shut,
    input logic        tell_wake,
    input logic [1:0]  rcv_of,
    input logic [1:0]  una_of,
    input logic        release_valid,
    input logic [1:0]  release_at,
    input logic [1:0]  pick
);

  logic        started, rcv_ended, arrived, woken, told, said, is_dead, is_shut, new_arrived, new_woken;
  logic [1:0]  arrived_at, woken_at, pick_before;
  logic [3:0]  dead, shut;
  logic [31:0] rcv_next, snd_una, next, una;
  logic        ended;

  initial started = 1'b0;

  net_numbers #(
      .SESSIONS(4)
  ) dut (
      .*
  );

  always_ff @(posedge clk) begin
    started     <= 1'b1;
    pick_before <= pick;
    if (rcv_told && rcv_at == pick) {told, ended, next} <= {1'b1, rcv_told_ended, rcv_told_next};
    if (tell && tell_at == pick) {said, una, is_dead, is_shut} <= {1'b1, tell_una, tell_dead, tell_shut};
    if (release_valid && release_at == pick) is_dead <= 1'b0;
    if (open && open_at == pick) {said, una, is_dead, is_shut} <= {1'b1, open_una, 2'b00};
    new_arrived <= rcv_arrived && rcv_at == pick && !rst;
    new_woken   <= tell && tell_wake && tell_at == pick && !rst;
    if (rst) {is_dead, is_shut} <= '0;
    if (!started) {told, said} <= '0;
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else begin
      assume (pick == pick_before);
      // Nothing is told of a session in the cycle in which one is opened.
      assume (!(open && tell));
      if (told && rcv_of == pick) assert (rcv_next == next && rcv_ended == ended);
      if (said && una_of == pick) assert (snd_una == una);
      assert (dead[pick] == is_dead && shut[pick] == is_shut);
      assert ((arrived && arrived_at == pick) == new_arrived);
      assert ((woken && woken_at == pick) == new_woken);
    end
  end

endmodule
