    // First ports of a module that uses a store of images.
    input  logic                    clk,
    input  logic                    rst,
    input  logic                    tick,
    input  logic [31:0]             server_ip,    // 0: no store
    input  logic [15:0]             server_port,
    input  logic [8*PATH_BYTES-1:0] path,         // prefix of the file; its first character in bits
                                                  // 7:0, padded with zeros
