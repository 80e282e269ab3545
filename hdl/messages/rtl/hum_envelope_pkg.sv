// The envelope of a packet. Generated from humboldt/src/envelope.def: change it there.
package hum_envelope_pkg;
  typedef struct packed {
    logic [3:0] flag;  // [63:60]
    logic [3:0] dtype;  // [59:56]
    logic [7:0] tag;  // [55:48]
    logic [23:0] size;  // [47:24]
    logic [3:0] tag_high;  // [23:20]
    logic [3:0] kind;  // [19:16]
    logic [7:0] src;  // [15:8]
    logic [7:0] dest;  // [7:0]
  } hum_envelope_t;
  localparam logic [3:0] PacketEnvelope = 4'd0;
  localparam logic [3:0] PacketClear = 4'd1;
  localparam logic [3:0] PacketData = 4'd2;
  localparam logic [3:0] PacketEager = 4'd3;
  localparam logic [3:0] PacketError = 4'd4;
  localparam logic [3:0] PacketDone = 4'd5;
  localparam logic [3:0] PacketBye = 4'd6;
  localparam logic [3:0] PacketWait = 4'd7;
  localparam logic [3:0] PacketProbe = 4'd8;
  localparam logic [3:0] PacketState = 4'd9;
  localparam logic [3:0] PacketStream = 4'd10;
  localparam logic [3:0] FlagExtended = 4'd1;
  localparam logic [3:0] FlagMore = 4'd2;
  localparam logic [3:0] FlagCollective = 4'd4;
  localparam logic [3:0] CodeUntyped = 4'd0;
  localparam logic [3:0] CodeChar = 4'd1;
  localparam logic [3:0] CodeInt8 = 4'd2;
  localparam logic [3:0] CodeUint8 = 4'd3;
  localparam logic [3:0] CodeInt16 = 4'd4;
  localparam logic [3:0] CodeUint16 = 4'd5;
  localparam logic [3:0] CodeInt32 = 4'd6;
  localparam logic [3:0] CodeUint32 = 4'd7;
  localparam logic [3:0] CodeInt64 = 4'd8;
  localparam logic [3:0] CodeUint64 = 4'd9;
  localparam logic [3:0] CodeFloat = 4'd10;
  localparam logic [3:0] CodeDouble = 4'd11;
  localparam logic [3:0] CodeLongDouble = 4'd12;
  localparam logic [3:0] CodeComplex = 4'd13;
  localparam logic [3:0] CodePair = 4'd14;
  localparam logic [3:0] CodeMixed = 4'd15;
  localparam logic [7:0] FaultNone = 8'd0;
  localparam logic [7:0] FaultTruncate = 8'd1;
  localparam logic [7:0] FaultType = 8'd2;
  localparam logic [7:0] FaultFull = 8'd3;
  localparam logic [7:0] FaultLost = 8'd4;
  localparam logic [7:0] FaultRank = 8'd5;
  localparam logic [15:0] LimitPacketBytes = 16'd1448;
  localparam logic [15:0] LimitEthertype = 16'd29696;
  localparam logic [15:0] LimitUdpPort = 16'd9000;
endpackage
