    // Widths of tcp_types.svh, for ports: of positions, windows and records.
    localparam int RxBits = RX_RING_BITS + 2,
    localparam int TxBits = TX_RING_BITS + 2,
    localparam int CwndBits = TX_RING_BITS < 21 ? TX_RING_BITS + 1 : 22,
    localparam int RecoverBits = ACTIVE_OPEN ? 32 : TxBits,
    localparam int TcbBits = 302 + RxBits + 2 * TxBits + 3 * CwndBits + RecoverBits,
    localparam int ReportBits = 1 + RxBits + TxBits
