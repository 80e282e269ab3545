// Makes room for connections that find no free session: the session to evict at once, and sessions that close after
// their present reply.
//
// Each session is scanned every 64 ms. The laggard is the session whose peer makes no progress for longest, or whose
// request takes too long (`scan_lag`). If there is none to evict, the attempt waits: the session that is open for
// longest is to close after its reply (`yields`), and the next free session is kept for the address that waits. An
// attempt that comes again after a second lets a further session yield; an address that makes no attempt for WAITER_MS
// does not wait any longer. One address waits at a time.
//
// Parameters: SESSIONS; WANTED_MS, the least lag of a session to evict and the least age of one that yields; WAITER_MS.
// Latency: two cycles from a scan to its effect.
module tcp_evict
  import tcp_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int WANTED_MS = 1000,
    parameter  int WAITER_MS = 4000,  // exceeds the first five intervals of Linux' retransmissions
    localparam int S = $clog2(SESSIONS)
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                tick_64,         // 64 ms have passed
    // A session is scanned.
    input  logic                scan,
    input  logic [S-1:0]        scan_at,
    input  logic                scan_evictable,
    input  logic [9:0]          scan_lag,        // in 64 ms, as the age
    input  logic                scan_closable,
    input  logic [9:0]          scan_age,
    // The laggard, which is evicted.
    output logic [S-1:0]        laggard,
    output logic                laggard_over,    // it lags for WANTED_MS or more
    input  logic                evicts,
    // An attempt to connect: its address from `look` on, and whether it was refused.
    input  logic                look,
    input  logic [47:0]         address,
    input  logic                refused,
    output logic                kept,            // a free session is kept for another address
    // A session begins.
    input  logic                birth,
    input  logic [S-1:0]        birth_at,
    input  logic                birth_active,    // by the board, which closes it
    output logic [SESSIONS-1:0] yields           // these close after their present reply
);

  localparam logic [9:0] Wanted = slow(WANTED_MS);
  localparam int WaiterBits = $clog2(WAITER_MS / 64 + 1);
  localparam int PauseBits = $clog2(WANTED_MS / 64 + 1);
  if (WANTED_MS < 64 || WAITER_MS < WANTED_MS) begin : g_limits
    $error("WANTED_MS must be 64 or more, and WAITER_MS at least as long");
  end

  logic [S-1:0] eldest;
  logic [9:0] laggard_lag, eldest_age;
  logic eldest_over;                      // it is open for WANTED_MS or more
  logic waiting, known;                   // an address waits; it is that of the attempt
  logic [47:0] waiter;
  logic [WaiterBits-1:0] waiter_left;     // until it does not wait any longer, in 64 ms
  logic [PauseBits-1:0] pause;            // until another session may yield for it
  logic asks;

  assign kept = waiting && !known;
  assign asks = refused && eldest_over && (!waiting || (known && pause == '0));

  always_ff @(posedge clk) begin
    laggard_over <= laggard_lag >= Wanted;
    eldest_over <= eldest_age >= Wanted && !asks;
    if (scan) begin
      if (scan_evictable) begin
        if (scan_lag > laggard_lag || scan_at == laggard) begin
          laggard <= scan_at;
          laggard_lag <= scan_lag;
        end
      end else if (scan_at == laggard) laggard_lag <= '0;
      if (scan_closable && !yields[scan_at]) begin
        if (scan_age > eldest_age || scan_at == eldest) begin
          eldest <= scan_at;
          eldest_age <= scan_age;
        end
      end else if (scan_at == eldest) eldest_age <= '0;
    end
    if (evicts) laggard_lag <= '0;

    if (look) known <= address == waiter;
    if (tick_64) begin
      if (pause != '0) pause <= pause - 1'b1;
      waiter_left <= waiter_left - 1'b1;
      if (waiter_left == '0) waiting <= 1'b0;
    end
    if (refused && waiting && known) waiter_left <= WaiterBits'(WAITER_MS / 64);
    if (asks) begin
      waiting <= 1'b1;
      known <= 1'b1;
      waiter <= address;
      waiter_left <= WaiterBits'(WAITER_MS / 64);
      pause <= PauseBits'(WANTED_MS / 64);
      yields[eldest] <= 1'b1;
      eldest_age <= '0;
    end
    if (birth) begin
      yields[birth_at] <= birth_active;  // such a session is never asked to yield
      if (birth_at == eldest) eldest_age <= '0;
      if (!birth_active && known) waiting <= 1'b0;
    end
    if (rst) begin
      laggard_lag <= '0;
      eldest_age <= '0;
      waiting <= 1'b0;
      pause <= '0;
      yields <= '0;
    end
  end

`ifndef SYNTHESIS
  // While an address waits, no session yields for another.
  sessions_yield_for_one_address : assert property (@(posedge clk) disable iff (rst)
      asks && waiting |-> address == waiter);
  // Only a session that is open for long enough yields.
  yielding_sessions_are_old : assert property (@(posedge clk) disable iff (rst)
      asks |-> eldest_age >= Wanted);
`endif

endmodule
