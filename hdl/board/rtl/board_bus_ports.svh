    // The host: registers, and its memory (host_port).
    input  host_in_t         host_in,
    output host_out_t        host_out,
    // Board memory: reads of images (fn_reconfig); writes of fetched images (image_store); both of the host and
    // of kernels.
    output axi_read_t        axi_read,
    input  axi_read_reply_t  axi_read_reply,
    output axi_write_t       axi_write,
    input  axi_write_reply_t axi_write_reply,
