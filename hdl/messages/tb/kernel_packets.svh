          // The packets of kernel k of a board, connected to its port.
          .m_valid        (k_valid[k]),
          .m_ready        (k_ready[k]),
          .m_beat         (k_beat[k]),
          .s_valid        (m_valid[k]),
          .s_ready        (m_ready[k]),
          .s_beat         (m_beat[k]),
