  // Between axi_read_ports.svh and the structs of axi_pkg.
  axi_read_t axi_read;
  axi_read_reply_t axi_read_reply;

  assign {arvalid, araddr, arlen} = {axi_read.arvalid, axi_read.araddr, axi_read.arlen};
  assign {arsize, arburst, rready} = {axi_read.arsize, axi_read.arburst, axi_read.rready};
  assign axi_read_reply = '{arready: arready, rvalid: rvalid, rdata: rdata, rresp: rresp, rlast: rlast};
