// Proof harness: the application reads the last notification of each session, and no data of other
// sessions: the position of its stream, the acknowledged position, and its end.
// Changes are reported once.
//
// The solver picks the session that is followed.
module net_numbers_f (
    input logic        clk,
    input logic        rst,
    input logic        rcv_notify,
    input logic [1:0]  rcv_at,
    input logic [31:0] rcv_notify_next,
    input logic        rcv_notify_ended,
    input logic        rcv_arrived,
    input logic        open,
    input logic [1:0]  open_at,
    input logic [31:0] open_una,
    input logic        notify,
    input logic [1:0]  notify_at,
    input logic [31:0] notify_una,
    input logic        notify_dead,
    input logic        notify_shut,
    input logic        notify_wake,
    input logic [1:0]  rcv_of,
    input logic [1:0]  una_of,
    input logic        release_valid,
    input logic [1:0]  release_at,
    input logic [1:0]  pick
);

  logic        started, rcv_ended, arrived, woken, notified, reported, is_dead, is_shut, new_arrived, new_woken;
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
    if (rcv_notify && rcv_at == pick) {notified, ended, next} <= {1'b1, rcv_notify_ended, rcv_notify_next};
    if (notify && notify_at == pick) {reported, una, is_dead, is_shut} <= {1'b1, notify_una, notify_dead, notify_shut};
    if (release_valid && release_at == pick) is_dead <= 1'b0;
    if (open && open_at == pick) {reported, una, is_dead, is_shut} <= {1'b1, open_una, 2'b00};
    new_arrived <= rcv_arrived && rcv_at == pick && !rst;
    new_woken   <= notify && notify_wake && notify_at == pick && !rst;
    if (rst) {is_dead, is_shut} <= '0;
    if (!started) {notified, reported} <= '0;
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else begin
      assume (pick == pick_before);
      // There is no notification of a session in the cycle in which one is opened.
      assume (!(open && notify));
      if (notified && rcv_of == pick) assert (rcv_next == next && rcv_ended == ended);
      if (reported && una_of == pick) assert (snd_una == una);
      assert (dead[pick] == is_dead && shut[pick] == is_shut);
      assert ((arrived && arrived_at == pick) == new_arrived);
      assert ((woken && woken_at == pick) == new_woken);
    end
  end

endmodule
