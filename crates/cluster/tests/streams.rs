//! Users' kernels in RTL, with AXI streams and no engines, and with engines: data passes through
//! them unchanged for all senders and receivers, and their faults are reported. The boards are
//! those of `boards.rs`.

mod common;

use baltra_cluster::Options;
use common::{tree, Bench};
use std::fs;

/// Adds PLUS to every byte and sends the result to rank NEXT.
const ADDS: &str = r#"
// Not in_tdest, nor a clock called aclk.
module adds #(
    parameter int NEXT = 0
) (
    input  logic        clk,
    input  logic [7:0]  PLUS,
    output logic        idle,
    input  logic        in_tvalid,
    output logic        in_tready,
    input  logic [63:0] in_tdata,
    input  logic [7:0]  in_tkeep,
    input  logic        in_tlast,
    input  logic [11:0] in_tuser,
    output logic        out_tvalid,
    input  logic        out_tready,
    output logic [63:0] out_tdata,
    output logic [7:0]  out_tkeep,
    output logic        out_tlast,
    output logic [7:0]  out_tdest,
    output logic [11:0] out_tuser
);
  assign idle       = 1'b1;
  assign out_tvalid = in_tvalid;
  assign in_tready  = out_tready;
  assign out_tkeep  = in_tkeep;
  assign out_tlast  = in_tlast;
  assign out_tuser  = in_tuser;
  assign out_tdest  = NEXT;  // a width that is not its own business
  always_comb for (int i = 0; i < 8; i++) out_tdata[8*i+:8] = in_tdata[8*i+:8] + PLUS;
endmodule
"#;

/// The same with names as another tool generates them: from the logical file, in capitals, with a
/// register. It supports only tags below 256.
const PASSES: &str = r#"
module passes (
    input             aclk, aresetn,
    input      [7:0]  id,
    input             from_net_TVALID,
    output            from_net_TREADY,
    input      [63:0] from_net_TDATA,
    input      [7:0]  from_net_TKEEP,
    input             from_net_TLAST,
    input      [7:0]  from_net_TUSER,
    output reg        to_net_TVALID,
    input             to_net_TREADY,
    output reg [63:0] to_net_TDATA,
    output reg [7:0]  to_net_TKEEP,
    output reg        to_net_TLAST,
    output reg [7:0]  to_net_TUSER,
    output     [7:0]  to_net_TDEST
);
  assign from_net_TREADY = !to_net_TVALID || to_net_TREADY;
  assign to_net_TDEST = id + 1;
  always @(posedge aclk) begin
    if (from_net_TREADY) begin
      to_net_TVALID <= from_net_TVALID;
      to_net_TDATA  <= from_net_TDATA;
      to_net_TKEEP  <= from_net_TKEEP;
      to_net_TLAST  <= from_net_TLAST;
      to_net_TUSER  <= from_net_TUSER;
    end
    if (!aresetn) to_net_TVALID <= 0;
  end
endmodule
"#;

/// Rank 0 sends, rank 3 prints the result: messages of many lengths, and a stream.
const ENDS: &str = r#"
#include <humboldt.h>
#include <stdio.h>
enum { MOST = 5000, PIECES = 40, PIECE = 300 };
static unsigned char data[MOST];
static HUM_Stream stream;
static const int sizes[] = {0, 1, 8, 13, 1447, 1448, 1449, 2896, MOST};
int main(int argc, char **argv)
{
    int rank;
    HUM_Init(&argc, &argv);
    HUM_Comm_rank(HUM_COMM_WORLD, &rank);
    for (int n = 0; n < 9; n++) {
        if (rank == 0) {
            for (int i = 0; i < sizes[n]; i++) data[i] = (unsigned char)(i * 7 + n);
            HUM_Send(data, sizes[n], HUM_BYTE, 1, 10 + n, HUM_COMM_WORLD);
        } else {
            HUM_Status status;
            int wrong = 0;
            HUM_Recv(data, MOST, HUM_BYTE, 2, 10 + n, HUM_COMM_WORLD, &status);
            for (int i = 0; i < sizes[n]; i++) wrong += data[i] != (unsigned char)(i * 7 + n + 3);
            printf("%d bytes, %d wrong\n", (int)status.bytes, wrong);
        }
    }
    unsigned sum = 0, all = 0;
    HUM_Stream_open(&stream, rank == 0 ? 1 : 2, 3, HUM_COMM_WORLD);
    if (rank == 0) {
        for (int n = 0; n < PIECES; n++) {
            for (int i = 0; i < PIECE; i++) data[i] = (unsigned char)(n + i);
            HUM_Push(&stream, data, PIECE);
        }
        HUM_Stream_end(&stream);
    } else {
        for (size_t bytes = 1; bytes > 0;) {
            HUM_Pull(&stream, data, 1000, &bytes);
            for (size_t i = 0; i < bytes; i++) {
                unsigned at = all + (unsigned)i;
                sum += data[i] != (unsigned char)(at / PIECE + at % PIECE + 3);
            }
            all += (unsigned)bytes;
        }
        printf("a stream of %u bytes, %u wrong\n", all, sum);
    }
    HUM_Finalize();
    return 0;
}
"#;

const LOGICAL: &str = "kernel:
- {name: ends, num: 0}
- {name: adds, num: 1, const: [{name: NEXT, val: 2}, {name: PLUS, val: 3, width: 8}]}
- {name: passes, num: 2, s_axis: {name: from_net}, m_axis: {name: to_net}, aresetn: aresetn, id_port: id, clk: aclk}
- {name: ends, num: 3}
";

fn bench(logical: &str) -> Bench {
    Bench::new(&[
        ("logical.yaml", logical),
        ("ends.c", ENDS),
        ("adds.sv", ADDS),
        ("passes.v", PASSES),
    ])
}

fn expected(rank: usize) -> Vec<String> {
    let sizes = [0, 1, 8, 13, 1447, 1448, 1449, 2896, 5000];
    let mut lines: Vec<_> = (sizes.iter())
        .map(|bytes| format!("[{rank}] {bytes} bytes, 0 wrong"))
        .collect();
    lines.push(format!("[{rank}] a stream of 12000 bytes, 0 wrong"));
    lines.sort();
    lines
}

#[test]
fn streams_go_from_kernel_to_kernel_and_to_and_from_processes() {
    let bench = bench(LOGICAL);
    for map in [
        "node:\n- {type: sw, comm: eth, mac: '02:00:00:00:00:01', kernel: [0, 3]}\n- {type: hw, comm: eth, mac: '02:00:00:00:00:02', kernel: [1, 2]}",
        "node:\n- {type: sw, comm: tcp, ip: 127.0.0.1, kernel: [0, 3]}\n- {type: hw, comm: tcp, ip: 127.0.0.2, kernel: 1}\n- {type: hw, comm: tcp, ip: 127.0.0.3, kernel: 2}",
    ] {
        let (outcome, lines) = bench.run(map, &Options::default()).unwrap();
        assert_eq!(outcome.code, 0, "{map}: {lines:?}");
        let printed: Vec<_> = lines.into_iter().filter(|l| l.starts_with('[')).collect();
        assert_eq!(printed, expected(3), "{map}");
    }
}

#[test]
fn kernels_in_c_on_a_board_send_to_streams_and_receive_from_them() {
    let bench = bench(LOGICAL);
    for form in ["core", "hls"] {
        let map = format!(
            "node: {{type: hw, kernel: [{{num: 0, type: {form}}}, 1, 2, {{num: 3, type: {form}}}]}}"
        );
        let (outcome, lines) = bench.run(&map, &Options::default()).unwrap();
        assert_eq!(outcome.code, 0, "{map}: {lines:?}");
        let printed: Vec<_> = lines.into_iter().filter(|l| l.starts_with('[')).collect();
        assert_eq!(printed, expected(3), "{form}");
    }
}

#[test]
fn a_kernel_of_ones_own_sends_and_receives_by_engines() {
    let echo = fs::read_to_string(tree().join("hdl/messages/rtl/msg_echo.sv")).unwrap();
    let mirror = echo.replace("module msg_echo", "module mirror");
    let asks = r#"
#include <humboldt.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    char out[] = "a message", in[16];
    HUM_Init(&argc, &argv);
    HUM_Send(out, sizeof out, HUM_BYTE, 1, 4, HUM_COMM_WORLD);
    HUM_Recv(in, sizeof in, HUM_BYTE, 1, 4, HUM_COMM_WORLD, HUM_STATUS_IGNORE);
    puts(in);
    HUM_Finalize();
    return 0;
}
"#;
    let bench = Bench::new(&[
        ("logical.yaml", "kernel: [{name: asks, num: 0}, {name: mirror, num: 1, source: mirror.sv, const: {name: DEPTH, val: 64}}]"),
        ("asks.c", asks),
        ("mirror.sv", &mirror),
    ]);
    let map = "node:\n- {type: sw, comm: eth, mac: '02:00:00:00:00:01', kernel: 0}\n- {type: hw, comm: eth, mac: '02:00:00:00:00:02', kernel: 1}";
    let (outcome, lines) = bench.run(map, &Options::default()).unwrap();
    assert_eq!(outcome.code, 0, "{lines:?}");
    assert!(lines.contains(&"[0] a message".to_owned()), "{lines:?}");
}

#[test]
fn what_a_stream_has_not_is_said_with_its_place() {
    let map = "node: {type: hw, kernel: 0-3}";
    for (was, is, message) in [
        (
            "out_tdest",
            "out_where",
            "kernel 'adds' in RTL lacks a signal of its stream <m_axis>: out_tdest",
        ),
        (
            "input  logic        clk,",
            "",
            "kernel 'adds' in RTL lacks a clock: clk",
        ),
        (
            "module adds",
            "module subtracts",
            "kernel 'adds' in RTL lacks a module of its name: adds",
        ),
        (
            "PLUS",
            "MORE",
            "kernel 'adds' in RTL lacks a parameter or port for a constant: PLUS",
        ),
    ] {
        let bench = bench(LOGICAL);
        fs::write(bench.dir.path().join("adds.sv"), ADDS.replace(was, is)).unwrap();
        let error = bench.compile(map).unwrap_err();
        assert!(
            error.contains(message) && error.contains("logical.yaml:3: "),
            "{error}"
        );
    }
    let memory = LOGICAL.replace("id_port: id", "id_port: id, m_axi: {name: memory}");
    let error = bench(&memory).compile(map).unwrap_err();
    assert!(error.contains("cannot have off-chip memory"), "{error}");
    let wrong = bench(LOGICAL);
    fs::write(
        wrong.dir.path().join("adds.sv"),
        ADDS.replace("endmodule", ""),
    )
    .unwrap();
    let error = wrong.compile(map).unwrap_err();
    assert!(
        error.contains("building a model of") && error.contains("adds.sv"),
        "{error}"
    );
}

/// The output of a run that must fail.
fn failed(bench: &Bench, map: &str) -> String {
    let (outcome, lines) = bench.run(map, &Options::default()).unwrap();
    assert_ne!(outcome.code, 0, "{lines:?}");
    lines.join("\n")
}

#[test]
fn a_stream_to_nobody_a_lost_packet_and_a_collective_end_the_job() {
    let map = |fault: &str| {
        format!("node:\n- {{type: sw, comm: eth, mac: '02:00:00:00:00:01', kernel: [0, 3]}}\n- {{type: hw, comm: eth, mac: '02:00:00:00:00:02', kernel: [1, 2]{fault}}}")
    };
    let bench = bench(LOGICAL);
    let message = failed(&bench, &map(", fault: lose 5"));
    assert!(
        message.contains("rank 1 missed a packet of this rank"),
        "{message}"
    );
    let barrier = ENDS.replace(
        "    for (int n = 0; n < 9",
        "    HUM_Barrier(HUM_COMM_WORLD);\n    for (int n = 0; n < 9",
    );
    fs::write(bench.dir.path().join("ends.c"), barrier).unwrap();
    let message = failed(&bench, &map(""));
    assert!(
        message.contains("HUM_Barrier") && message.contains("rank 1 has only streams"),
        "{message}"
    );
    // Only kernels on boards, without a process that could report the fault: one on a processor,
    // one synthesized.
    for form in ["core", "hls"] {
        let message = failed(
            &bench,
            &format!("node: {{type: hw, kernel: [{{num: 0, type: {form}}}, 1, 2, {{num: 3, type: {form}}}]}}"),
        );
        assert!(
            message.contains("HUM_Barrier: with rank 1, ") && message.contains("has only streams"),
            "{message}"
        );
    }
    fs::write(bench.dir.path().join("ends.c"), ENDS).unwrap();
    let nobody = LOGICAL.replace("val: 2", "val: 9");
    fs::write(bench.dir.path().join("logical.yaml"), nobody).unwrap();
    let message = failed(&bench, &map(""));
    assert!(
        message.contains("rank 1 (adds) failed: exit status: 5"),
        "{message}"
    );
}
