  // Between axi_write_ports.svh and the structs of axi_pkg.
  axi_write_t axi_write;
  axi_write_reply_t axi_write_reply;

  assign {awvalid, awaddr, awlen} = {axi_write.awvalid, axi_write.awaddr, axi_write.awlen};
  assign {awsize, awburst, bready} = {axi_write.awsize, axi_write.awburst, axi_write.bready};
  assign {wvalid, wdata, wstrb, wlast} = {axi_write.wvalid, axi_write.wdata, axi_write.wstrb, axi_write.wlast};
  assign axi_write_reply = '{awready: awready, wready: wready, bvalid: bvalid, bresp: bresp};
