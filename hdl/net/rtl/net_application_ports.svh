    // The application of a network stack: its progress in each session, after `opened` and `received`.
    output session_change_t           change,
    input  progress_t                 progress,
    input  release_t                  released,
    input  logic [SESSIONS-1:0]       working,      // the application works on these, which does
                                                    // not count as idle time
    input  logic [SESSIONS-1:0]       mid_request,  // a request of these has begun, without a
                                                    // complete reply
    output logic [SESSIONS-1:0]       yields,       // these are to be closed after their present
                                                    // reply, because a connection waits
