  // Types of tcp_engine and its parts that depend on their parameters RX_RING_BITS, TX_RING_BITS, MSS and
  // ACTIVE_OPEN.

  // Differences of positions in the received and in the sent stream, whose FIN counts as a byte;
  // they may be negative.
  typedef logic [RxBits-1:0] rx_t;
  typedef logic [TxBits-1:0] tx_t;
  // A congestion window: the data in flight never exceeds the ring, or 2 MB.
  typedef logic [CwndBits-1:0] cwnd_t;
  localparam cwnd_t CwndMost = '1 >> 1;

  typedef struct packed {
    state_t      state;
    logic [31:0] una, nxt, max;    // oldest not acknowledged; next to send; after the last ever
                                   // sent
    logic [31:0] wl1;              // the segment that last updated the window
    logic [15:0] window;           // unscaled, as received
    logic [1:0]  scaling;          // 0: no scaling, otherwise index of `shift_of`
    rx_t         offered;          // the right edge of the last advertised window
    logic [13:0] mss;
    cwnd_t       cwnd, ssthresh, grown;
    logic [1:0]  dups;
    logic        recovering;       // by fast retransmit
    logic        repeating;        // until more than `recover` is acknowledged: duplicate ACKs may
                                   // result from retransmitted data
    logic [RecoverBits-1:0] recover;  // the end of the data sent before a loss; until the session
                                      // is open, the peer's first byte
    logic        closing, active;  // the own stream ends at fin_at; this side closed first
    tx_t         fin_at;
    logic        timing;           // a segment is being timed
    tx_t         timed;
    logic [15:0] timed_from;
    logic        measured;
    logic [18:0] srtt;             // in 1/8 ms
    logic [17:0] rttvar;           // in 1/4 ms
    logic [15:0] rto, timer;
    logic [3:0]  retries;
    logic [1:0]  unacked;          // segments received since the last own ACK
    logic [7:0]  ack_wait;
    logic [3:0]  progress;         // position in the peer's stream at the last progress, in 4 KB
    logic [9:0]  idle;             // time without progress, in 64 ms
    logic [9:0]  age;              // since the session was opened
    logic [7:0]  busy;             // since its present request began, or the reply after which it
                                   // closes was written
  } tcb_t;

  // The state reported by the application.
  typedef struct packed {
    logic finish;
    rx_t  read_to;
    tx_t  written_to;
  } report_t;

  if ($bits(tcb_t) != TcbBits || $bits(report_t) != ReportBits) begin : g_widths
    $error("TcbBits or ReportBits differs from its type");
  end

  function automatic logic [13:0] mss_of(input logic [2:0] i);
    case (i)
      3'd0: return 14'd256;
      3'd1: return 14'd536;
      3'd2: return 14'd1024;
      3'd3: return 14'd1220;
      3'd4: return 14'd1360;
      3'd5: return 14'd1440;
      3'd6: return 14'd1460;
      default: return 14'(MSS);
    endcase
  endfunction

  function automatic cwnd_t capped(input logic [22:0] v);
    return v > 23'(CwndMost) ? CwndMost : cwnd_t'(v);
  endfunction

  // Ten segments (RFC 6928).
  function automatic cwnd_t first_window(input logic [2:0] i);
    return capped(23'({mss_of(i), 3'b000}) + 23'({mss_of(i), 1'b0}));
  endfunction

  function automatic logic [2:0] mss_index(input logic [15:0] offered);
    mss_index = 3'd0;
    for (int i = 1; i < 8; i++)
    if (offered >= 16'(mss_of(3'(i))) && mss_of(3'(i)) <= 14'(MSS)) mss_index = 3'(i);
    // The default for a peer without the option is 536 (RFC 9293 section 3.7.1).
    if (offered == 16'd0) mss_index = 3'd1;
  endfunction
