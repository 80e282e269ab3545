  // Between client_ports.svh and the structs of a client of net_stack.
  client_t client;
  client_reply_t reply;

  always_comb begin
    reply = '0;
    reply.connect_done = connect_done;
    reply.connect_result = connect_result;
    reply.opened = '{valid: open, active: 1'b1, session: session_t'(open_at), next: open_next, una: open_una};
    reply.received = '{
      valid:   rcv_notify,
      session: session_t'(rcv_at),
      next:    rcv_next,
      ended:   rcv_ended,
      arrived: 1'b1
    };
    reply.change.valid = notify_dead;
    reply.change.dead = notify_dead;
    reply.change.session = session_t'(notify_at);
    reply.progress_ready = app_ready;
    reply.release_ready = release_ready;
    reply.rx_may = rx_may;
    reply.rx_word = '{valid: rx_word_valid, note: '{reader: '0, detail: rx_word_note}, data: rx_word_data};
    reply.tx_may = tx_may;
  end

  assign {connect_valid, session, working} = {client.connect, client.session[S-1:0], client.working};
  assign {app_valid, app_read_to} = {client.progress.valid, client.progress.read_to};
  assign {app_written_to, app_finish} = {client.progress.written_to, client.progress.finish};
  assign {release_valid, rx_wants, rx_read} = {client.released.valid, client.rx_wants, client.rx_read.valid};
  assign rx_read_address = client.rx_read.address[S+RX_RING_BITS-4:0];
  assign rx_read_note = client.rx_read.note.detail;
  assign {tx_write, tx_write_address} = {client.tx_write.valid, client.tx_write.address[S+TX_RING_BITS-4:0]};
  assign {tx_write_data, tx_write_keep} = {client.tx_write.data, client.tx_write.keep};
