//! Tests of boards that exchange messages and serve functions over HTTP at the same time.

mod common;

use baltra_cluster::{build, run, Options};
use common::Bench;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread::JoinHandle;

/// `end`: the file that ends the job.
fn logical(end: &Path) -> String {
    format!(
        "kernel: [{{name: first, num: 0, source: first.c, args: '{}'}}, \
         {{name: worker, num: 1, rep: 3, source: worker.c}}]",
        end.display()
    )
}

/// Sends each worker numbers and checks the sums that come back, until a file exists, and in any
/// case a number of times.
const FIRST: &str = r#"
#include "HUMBoldt.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
enum { COUNT = 600, TURNS = 20 };
static int data[COUNT];
int main(int argc, char *argv[]) {
    HUM_Init(&argc, &argv);
    int size, turns = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (;; turns++) {
        int count = turns % COUNT, last = turns >= TURNS && access(argv[1], F_OK) == 0;
        for (int r = 1; r < size; r++) {
            for (int i = 0; i < count; i++) data[i] = i * r + turns;
            HUM_Send(&count, 1, MPI_INT, r, last ? 2 : 1, MPI_COMM_WORLD);
            HUM_Send(data, count, MPI_INT, r, 3, MPI_COMM_WORLD);
        }
        for (int r = 1; r < size; r++) {
            int sum, expected = 0;
            for (int i = 0; i < count; i++) expected += (i * r + turns) * 3;
            HUM_Recv(&sum, 1, MPI_INT, r, 4, MPI_COMM_WORLD);
            if (sum != expected) { printf("turn %d, rank %d: %d, expected %d\n", turns, r, sum, expected); exit(3); }
        }
        if (last) break;
    }
    printf("all sums are right\n");
    HUM_Finalize();
    return 0;
}
"#;

const WORKER: &str = r#"
#include "HUMBoldt.h"
#include <stdio.h>
enum { COUNT = 600 };
static int data[COUNT];
int main(int argc, char *argv[]) {
    HUM_Init(&argc, &argv);
    int last = 0, turns = 0;
    while (!last) {
        MPI_Status status;
        int count, sum = 0;
        HUM_Recv(&count, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        last = status.MPI_TAG == 2;
        HUM_Recv(data, COUNT, MPI_INT, 0, 3, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) sum += data[i] * 3;
        HUM_Send(&sum, 1, MPI_INT, 0, 4, MPI_COMM_WORLD);
        turns++;
    }
    printf("at least twenty turns: %d\n", turns > 20);
    HUM_Finalize();
    return 0;
}
"#;

fn map(workers: &str, http: &str) -> String {
    format!(
        "node: [{{type: sw, comm: eth, mac: '02:00:00:00:00:01', kernel: 0}}, \
         {{type: hw, comm: eth, mac: '02:00:00:00:00:02', http: {http}, kernel: [{workers}]}}]"
    )
}

/// The workers as hardware, and one on a processor.
const WORKERS: &str = "{num: 1}, {num: 2, type: core}, {num: 3}";

/// Sends a request, and returns the reply's status and body.
fn post(port: u16, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: board\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    let end = reply
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .expect("a head")
        + 4;
    let status = std::str::from_utf8(&reply[9..12]).unwrap().parse().unwrap();
    (status, reply[end..].to_vec())
}

/// Calls functions of the board, and then creates the file.
fn calls(port: u16, end: &Path) {
    for turn in 0..15u8 {
        let body: Vec<u8> = (0..3000u32).map(|i| b'a' + (i as u8 ^ turn) % 26).collect();
        let (status, reply) = post(port, "/function/uppercase", &body);
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&reply));
        assert_eq!(reply, body.to_ascii_uppercase());
        // Another function in the same region: it is loaded again each time.
        let (status, reply) = post(port, "/function/echo", &body);
        assert_eq!((status, reply), (200, body));
    }
    fs::write(end, "").unwrap();
}

#[test]
fn ranks_exchange_messages_while_functions_are_called_over_http() {
    let bench = Bench::new(&[("first.c", FIRST), ("worker.c", WORKER)]);
    let end = bench.dir.path().join("end");
    fs::write(bench.dir.path().join("logical.yaml"), logical(&end)).unwrap();
    let cluster = bench.cluster(&map(WORKERS, "0"));
    let built = build(&cluster, &bench.with(), &|_| {}).unwrap();
    let mut client: Option<JoinHandle<()>> = None;
    let mut lines = Vec::new();
    let outcome = run(&cluster, &built, &Options::default(), &mut |_, line| {
        if let Some((_, rest)) = line.split_once("board on port ") {
            let port = rest.split(' ').next().unwrap().parse().unwrap();
            let end = end.clone();
            client = Some(std::thread::spawn(move || calls(port, &end)));
        }
        lines.push(line.to_owned());
    })
    .unwrap();
    let client = client.expect("the board's port is in its output");
    assert!(client.join().is_ok(), "{lines:#?}");
    assert_eq!(outcome.code, 0, "{lines:#?}");
    assert!(lines.iter().any(|l| l == "[0] all sums are right"));
    for rank in 1..4 {
        let line = format!("[{rank}] at least twenty turns: 1");
        assert!(lines.contains(&line), "{line} is missing: {lines:#?}");
        assert!(outcome.ranks[rank].counters.received > 40);
    }
}
