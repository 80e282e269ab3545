    // Ports of http_call, up to those of the receive rings; also of its bench.
    input  logic                                   clk,
    input  logic                                   rst,
    // The call. Its operands are valid with `start`.
    input  logic                                   start,
    input  logic [SESSION_BITS-1:0]                session,
    input  logic [RX_POSITION_BITS-1:0]            body_at,
    input  logic [23:0]                            body_bytes,
    input  logic [TX_POSITION_BITS-1:0]            answer_at,
    // Maximum bytes of the reply, including its head.
    input  logic [23:0]                            room,
    input  text_t                                  ending,      // last part of the reply's head
    input  logic [5:0]                             id_bytes,    // of an id for the reply; 0: none
    // The id: eight bytes of it, a cycle after they are requested.
    output logic                                   id_read,
    output logic [SESSION_BITS-1:0]                id_session,
    output logic [2:0]                             id_word,
    input  logic [63:0]                            id_data,
    // The expected next call: its body is prefetched.
    input  logic                                   ahead,
    input  logic [SESSION_BITS-1:0]                ahead_session,
    input  logic [RX_POSITION_BITS-1:0]            ahead_body_at,
    input  logic [23:0]                            ahead_body_bytes,
    output logic                                   complete,    // until `taken`
    output logic                                   over,        // the reply exceeds `room`
    output logic [TX_POSITION_BITS-1:0]            answer_to,
    input  logic                                   taken,
    // The shared ports of the rings.
    output logic                                   rx_wants,
    input  logic                                   rx_may,
    output logic                                   rx_read,
    output logic [SESSION_BITS+RX_RING_BITS-4:0] rx_read_address,
    output logic [3:0]                             rx_read_note,
    input  logic                                   rx_word_valid,
    input  logic [3:0]                             rx_word_note,
    input  logic [63:0]                            rx_word_data,
