//! A network path that breaks on request.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Forwards connections, counts their bytes, and cuts the open ones on request.
pub struct Cutter {
    /// Its port on the loopback address.
    pub port: u16,
    open: Arc<Mutex<Vec<TcpStream>>>,
    bytes: Arc<AtomicU64>,
    is_closed: Arc<AtomicBool>,
}

impl Cutter {
    /// Forwards to a port of the loopback address.
    pub fn to(port: u16) -> Cutter {
        Cutter::holding(port, u64::MAX)
    }

    /// As [`Cutter::to`], but keeps what each client sends after its first `most` bytes, as a path
    /// that has stopped without an error.
    pub fn holding(port: u16, most: u64) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let open: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let streams = open.clone();
        let bytes: Arc<AtomicU64> = Arc::default();
        let count = bytes.clone();
        let is_closed: Arc<AtomicBool> = Arc::default();
        let closed = is_closed.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                let mut streams = streams.lock().unwrap();
                if closed.load(Ordering::SeqCst) {
                    continue;
                }
                for (from, to, most) in [(&client, &server, most), (&server, &client, u64::MAX)] {
                    let path = Path {
                        from: from.try_clone().unwrap(),
                        to: to.try_clone().unwrap(),
                        most,
                        count: count.clone(),
                    };
                    std::thread::spawn(move || path.pass());
                }
                streams.extend([client, server]);
            }
        });
        Cutter {
            port: own,
            open,
            bytes,
            is_closed,
        }
    }

    /// Bytes forwarded in both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Cuts the open connections; returns their number.
    pub fn cut(&self) -> usize {
        let streams = std::mem::take(&mut *self.open.lock().unwrap());
        for stream in &streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
        streams.len() / 2
    }

    /// Cuts the open connections, and all that come.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.cut();
    }
}

/// One direction of a connection.
struct Path {
    from: TcpStream,
    to: TcpStream,
    /// Bytes that it forwards; the rest is kept.
    most: u64,
    count: Arc<AtomicU64>,
}

impl Path {
    fn pass(mut self) {
        let mut bytes = vec![0; 64 << 10];
        let mut left = self.most;
        while let Ok(n @ 1..) = self.from.read(&mut bytes) {
            let passed = left.min(n as u64) as usize;
            left -= passed as u64;
            self.count.fetch_add(passed as u64, Ordering::Relaxed);
            if self.to.write_all(&bytes[..passed]).is_err() {
                break;
            }
        }
        let _ = self.to.shutdown(Shutdown::Both);
        let _ = self.from.shutdown(Shutdown::Both);
    }
}
