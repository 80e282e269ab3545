// Finds the hardware address of an IPv4 address: in a small cache, or by ARP (RFC 826) with up to
// TRIES requests, a second apart. An address outside of the own network uses the gateway. Only
// replies to pending requests are accepted.
//
// One lookup at a time: `valid` and `ip` are held until `done`. Entries expire after LIFE_MS, or by
// `forget` if their address has stopped responding; a new entry replaces the oldest.
//
// Parameters: ENTRIES, a power of two; TRIES; RETRY_MS; LIFE_MS. Latency:
// 3 cycles for a cached address.
module net_resolve #(
    parameter int ENTRIES = 4,
    parameter int TRIES = 3,
    parameter int RETRY_MS = 1000,
    parameter int LIFE_MS = 60000
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        tick,       // once per millisecond
    input  logic [31:0] own_ip,
    input  logic [31:0] netmask,
    input  logic [31:0] gateway,    // 0: none, all hosts are on this network
    input  logic        valid,
    input  logic [31:0] ip,
    output logic        done,       // for one cycle
    output logic        ok,         // this and the address stay valid
    output logic [47:0] mac,
    input  logic        forget,     // removes the last result from the cache
    // net_arp
    output logic        ask_valid,
    input  logic        ask_ready,
    output logic [31:0] ask_ip,
    input  logic        reply,      // with the addresses of its sender
    input  logic [47:0] reply_mac,
    input  logic [31:0] reply_ip
);

  logic own_clk;  // gated while no state changes

  localparam int E = $clog2(ENTRIES);

  typedef enum logic [2:0] {
    IDLE,
    SEARCH,
    ASK,
    WAIT,
    DONE
  } state_t;

  state_t state;
  logic [ENTRIES-1:0] known, same;
  logic [31:0] ips[ENTRIES];
  logic [47:0] macs[ENTRIES];
  logic [$clog2(LIFE_MS+1)-1:0] ages[ENTRIES];
  logic [E-1:0] oldest, place, there;
  logic [1:0] tries;
  logic [$clog2(RETRY_MS+1)-1:0] wait_ms;

  always_comb begin
    there = '0;
    for (int i = 0; i < ENTRIES; i++) begin
      same[i] = known[i] && ips[i] == ask_ip;
      if (same[i]) there |= E'(i);
    end
  end

  assign ask_valid = state == ASK;
  assign done = state == DONE;

  always_ff @(posedge own_clk) begin
    if (tick) begin
      for (int i = 0; i < ENTRIES; i++) begin
        ages[i] <= ages[i] + 1'b1;
        if (ages[i] == ($clog2(LIFE_MS + 1))'(LIFE_MS)) known[i] <= 1'b0;
      end
    end
    if (forget) known[place] <= 1'b0;
    case (state)
      IDLE: begin
        ask_ip <= gateway != '0 && ((ip ^ own_ip) & netmask) != '0 ? gateway : ip;
        tries <= 2'(TRIES);
        if (valid) state <= SEARCH;
      end
      SEARCH: begin
        ok <= same != '0;
        mac <= macs[there];
        place <= there;
        state <= same != '0 ? DONE : ASK;
      end
      ASK: begin
        wait_ms <= ($clog2(RETRY_MS + 1))'(RETRY_MS);
        if (ask_ready) begin
          tries <= tries - 2'd1;
          state <= WAIT;
        end
      end
      WAIT: begin
        if (reply && reply_ip == ask_ip) begin
          ok <= 1'b1;
          mac <= reply_mac;
          place <= oldest;
          known[oldest] <= 1'b1;
          ips[oldest] <= ask_ip;
          macs[oldest] <= reply_mac;
          ages[oldest] <= '0;
          oldest <= oldest + 1'b1;
          state <= DONE;
        end else if (tick) begin
          wait_ms <= wait_ms - 1'b1;
          if (wait_ms == '0) begin
            state <= tries == '0 ? DONE : ASK;
            ok <= 1'b0;
          end
        end
      end
      default: state <= IDLE;  // DONE
    endcase
    if (rst) begin
      state <= IDLE;
      known <= '0;
      oldest <= '0;
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || valid || tick || forget || reply || state != IDLE),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  one_place : assert property (@(posedge clk) disable iff (rst) $onehot0(same));
  lookups_stay : assert property (@(posedge clk) disable iff (rst)
      valid && !done |=> done || (valid && $stable(ip)));
  done_for_a_cycle : assert property (@(posedge clk) disable iff (rst) done |=> !done);
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      ask_valid && !ask_ready |=> ask_valid && $stable(ask_ip));
  tries_are_bounded : assert property (@(posedge clk) disable iff (rst)
      state != IDLE |-> tries <= 2'(TRIES));
`endif

endmodule
