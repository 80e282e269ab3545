//! Tests of the dialects, of malformed files, and of random input.

use crate::model::{Cluster, Comm, NodeKind};
use crate::problem::Problems;
use crate::read::formatted_text;
use proptest::prelude::*;
use std::path::Path;

fn parse(logical: &str, map: &str) -> Result<Cluster, Problems> {
    Cluster::parse((Path::new("logical"), logical), (Path::new("map"), map))
}

const PAPER_LOGICAL: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<cluster>
  <kernel> core
    <num> 1 </num>
    <rep> 16 </rep>
    <clk> aclk </clk>
    <aresetn> aresetn </aresetn>
    <id_port> kernel_id </id_port>
    <interface>
      <direction> in </direction>
      <name> stream_in_V </name>
      <debug/>
    </interface>
    <interface>
      <direction> out </direction>
      <name> stream_out_V </name>
    </interface>
    <const>
      <name> size </name>
      <val> 4 </val>
      <width> 16 </width>
    </const>
  </kernel>
  <kernel> cpu
    <num> 0 </num>
    <rep> 1 </rep>
  </kernel>
</cluster>
"#;

const PAPER_MAP: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<cluster>
  <node>
    <type> sw </type>
    <kernel> 0 </kernel>
    <mac_addr> ac:c4:7a:88:c0:47 </mac_addr>
    <ip_addr> 10.1.2.152 </ip_addr>
  </node>
  <node>
    <appBridge>
      <name> communication_bridge_eth_mpi </name>
      <to_app> to_app_V </to_app>
    </appBridge>
    <board> adm-8k5-debug </board>
    <type> hw </type>
    <comm> eth </comm>
    <kernel> 1-16 </kernel>
    <mac_addr> fa:16:3e:55:ca:02 </mac_addr>
    <ip_addr> 10.1.2.101 </ip_addr>
  </node>
</cluster>
"#;

#[test]
fn the_papers_files() {
    let cluster = parse(PAPER_LOGICAL, PAPER_MAP).unwrap();
    assert_eq!(cluster.size(), 17);
    let core = &cluster.logical.kernels[0];
    assert_eq!((core.name.as_str(), core.num, core.rep), ("core", 1, 16));
    assert_eq!(
        core.constants,
        [("size".to_owned(), "4".to_owned(), Some(16))]
    );
    assert_eq!(
        (core.ports[0].kind.as_str(), core.ports[0].debug),
        ("s_axis", true)
    );
    assert_eq!(
        (core.ports[1].kind.as_str(), core.ports[1].debug),
        ("m_axis", false)
    );
    let [host, board] = &cluster.map.nodes[..] else {
        panic!("two nodes");
    };
    assert_eq!((host.kind, host.comm), (NodeKind::Software, None));
    assert_eq!(
        (board.kind, board.comm, board.kernels.len()),
        (NodeKind::Hardware, Some(Comm::Eth), 16)
    );
    assert_eq!(board.bridge["name"], "communication_bridge_eth_mpi");
}

#[test]
fn memory_off_the_chip_is_behind_an_m_axi() {
    let map = "node: {type: hw, kernel: 0}";
    let with = |port: &str| {
        let cluster = parse(&format!("kernel: {{name: k, num: 0, m_axi: {port}}}"), map);
        cluster.map(|c| {
            (
                c.logical.kernels[0].memory(),
                crate::write::logical(&c.logical),
            )
        })
    };
    assert_eq!(with("{name: m}").unwrap().0, Some(16 << 20));
    assert_eq!(with("{name: m, scope: local}").unwrap().0, None);
    let (bytes, text) = with("{name: m, bytes: 3M}").unwrap();
    assert_eq!(bytes, Some(3 << 20));
    assert!(text.contains("<bytes>3145728</bytes>"), "{text}");
    for wrong in ["100", "2G", "M", "-1", "99999999999G"] {
        let why = with(&format!("{{name: m, bytes: {wrong}}}")).unwrap_err();
        assert!(format!("{why:#}").contains("a multiple of 64"), "{why:#}");
    }
}

#[test]
fn the_dialect_of_2019_and_its_json() {
    let xml = parse(
        "<cluster><packet><data> 64 </data></packet><kernel> fifo <vendor> x </vendor><num> 0 </num><rep> 6 </rep>
         <s_axis><scope> global </scope><name> RXD </name></s_axis><s_axi><scope> local </scope><name> S </name></s_axi></kernel>
         <kernel> cpu <num> 6 </num><m_axis><name> out </name></m_axis></kernel></cluster>",
        "<cluster><node><type> sw </type><kernel> 6 </kernel><ip> 10.0.0.1 </ip><mac> 0c:c4:7a:88:c0:47 </mac></node>
         <node><board> b </board><comm> tcp </comm><type> hw </type><kernel> 0-5 </kernel><ip> 10.0.0.2 </ip></node></cluster>",
    )
    .unwrap();
    assert_eq!(xml.logical.kernels[0].ports[1].scope, "local");
    let json = parse(
        r#"{"cluster": {"packet": {"data": 64}, "kernel": [
            {"name": "fifo", "vendor": "x", "num": 0, "rep": 6,
             "s_axis": {"scope": "global", "name": "RXD"}, "s_axi": [{"scope": "local", "name": "S"}]},
            {"name": "cpu", "num": 6, "m_axis": {"name": "out"}}]}}"#,
        r#"{"cluster": {"node": [
            {"type": "sw", "kernel": 6, "ip": "10.0.0.1", "mac": "0c:c4:7a:88:c0:47"},
            {"board": "b", "comm": "tcp", "type": "hw", "kernel": [0, 1, 2, 3, 4, 5], "ip": "10.0.0.2"}]}}"#,
    )
    .unwrap();
    assert_eq!(
        crate::write::logical(&json.logical),
        crate::write::logical(&xml.logical)
    );
    assert_eq!(crate::write::map(&json.map), crate::write::map(&xml.map));
}

#[test]
fn the_dialect_of_2025() {
    let cluster = parse(
        "<cluster><clusterNumber> 1 </clusterNumber><userIpPath>/ip</userIpPath>
         <kernel> core <type> open </type><num> 2 </num><control> False </control><control_type> both </control_type>
         <wan><enabled> FALSE </enabled><name> w </name></wan></kernel>
         <kernel> core <num> 1 </num><type> system_verilog </type><control><enabled> True </enabled></control></kernel></cluster>",
        "<cluster><node><board> u200 </board><comm> udp </comm><type> hw </type><autorun> False </autorun>
         <kernel><num> 1 </num><slr> SLR2 </slr></kernel><mac> 0c:c4:7a:88:bd:83  </mac><ip> 10.1.9.209 </ip></node>
         <node><type> sw </type><kernel> 2 </kernel><mac>  fa:16:3e:55:ca:08 </mac><ip> 10.1.9.208 </ip></node>
         <dns> 10.1.9.109 </dns></cluster>",
    )
    .unwrap();
    assert_eq!(cluster.map.nodes[0].kernels[0].slr.as_deref(), Some("SLR2"));
    let text = crate::write::logical(&cluster.logical);
    assert!(
        text.contains("<control>False</control>") && text.contains("<userIpPath>/ip</userIpPath>"),
        "{text}"
    );
}

#[test]
fn yaml() {
    let cluster = parse(
        "kernel:\n  - name: coordinator\n    num: 0\n    source: fork.c\n    args: 10 20\n  - {name: worker, num: 1, rep: 3, source: [fork.c, more.c]}\n",
        "node:\n  - type: sw\n    comm: shm\n    kernel: 0-3\n",
    )
    .unwrap();
    assert_eq!(
        cluster.logical.kernels[0].args.as_deref(),
        Some(&["10".to_owned(), "20".to_owned()][..])
    );
    assert_eq!(cluster.logical.kernels[1].sources, ["fork.c", "more.c"]);
    assert_eq!(cluster.map.nodes[0].comm, Some(Comm::Shm));
}

#[test]
fn the_canonical_form_is_stable_and_says_the_same() {
    for text in [PAPER_LOGICAL, PAPER_MAP] {
        let once = formatted_text(Path::new("f"), text).unwrap();
        assert_eq!(formatted_text(Path::new("f"), &once).unwrap(), once);
    }
    let again = parse(
        &formatted_text(Path::new("logical"), PAPER_LOGICAL).unwrap(),
        &formatted_text(Path::new("map"), PAPER_MAP).unwrap(),
    )
    .unwrap();
    assert_eq!(
        again.logical.kernels[0].ports,
        parse(PAPER_LOGICAL, PAPER_MAP).unwrap().logical.kernels[0].ports
    );
}

/// A malformed file: its name, the two files, and the expected message with file and line.
const WRONG: &[(&str, &str, &str, &str)] = &[
    ("empty", "", MAP, "logical:1: the file is empty"),
    ("not a tree", "hello", MAP, "logical:1: unknown file format: use .xml, .json or .yaml"),
    ("unclosed", "<cluster>\n<kernel> a", MAP, "logical:1: the root node was opened but never closed"),
    ("closed wrongly", "<cluster>\n<kernel> a </node></cluster>", MAP, "logical:2: expected 'kernel' tag, not 'node'"),
    ("a DTD", "<!DOCTYPE a [<!ENTITY b \"c\">]>\n<cluster/>", MAP, "logical:1: XML with DTD detected"),
    ("json unclosed", "{\"kernel\": [", MAP, "logical:1:"),
    ("aliases", "kernel: &a\n  name: x\nother: *a\n", MAP, "logical:3: aliases are not supported"),
    ("no kernels", "<cluster>\n</cluster>", MAP, "logical:1: the logical file has no kernels"),
    ("no nodes", LOGICAL, "<cluster/>", "map:1: the map file has no nodes"),
    ("no name", "<cluster>\n<kernel> <num>0</num></kernel></cluster>", MAP, "logical:2: invalid kernel name ''"),
    ("a path as name", "<cluster>\n<kernel> ../../etc/passwd <num>0</num></kernel></cluster>", MAP, "logical:2: invalid kernel name '../../etc/passwd'"),
    ("an option as name", "<cluster>\n<kernel> -o <num>0</num></kernel></cluster>", MAP, "logical:2: invalid kernel name '-o'"),
    ("no number", "<cluster>\n<kernel> a </kernel></cluster>", MAP, "logical:2: kernel 'a' has no <num>"),
    ("a word as number", "<cluster><kernel> a\n<num> one </num></kernel></cluster>", MAP, "logical:2: the number 'one' is not a number"),
    ("a number too large", "<cluster><kernel> a\n<num> 256 </num></kernel></cluster>", MAP, "logical:2: the number 256: must be below 256"),
    ("copies beyond the end", "<cluster><kernel> a <num> 250 </num><rep> 10 </rep></kernel></cluster>", MAP, "logical:1: kernel 'a': its copies are 250 to 259, but numbers end at 255"),
    ("no copies", "<cluster><kernel> a <num> 0 </num>\n<rep> 0 </rep></kernel></cluster>", MAP, "logical:2: 0 copies"),
    ("a direction", "<cluster><kernel> a <num> 0 </num>\n<interface><direction> up </direction></interface></kernel></cluster>", MAP, "logical:2: invalid direction 'up': use in or out"),
    ("a number twice", "<cluster><kernel> a <num> 0 </num><rep> 2 </rep></kernel>\n<kernel> b <num> 1 </num></kernel></cluster>", "<cluster><node><type> sw </type><kernel> 0-1 </kernel></node></cluster>", "logical:2: kernel 'b' has number 1, as has 'a' in line 1"),
    ("an unknown kernel", LOGICAL, "<cluster><node><type> sw </type><kernel> 0-1 </kernel>\n<kernel> 7 </kernel></node></cluster>", "map:2: kernel 7 not found in logical"),
    ("a kernel twice", LOGICAL, "<cluster><node><type> sw </type><kernel> 0-1 </kernel>\n<kernel> 1 </kernel></node></cluster>", "map:2: kernel 1 is already on node 0"),
    ("a kernel nowhere", LOGICAL, "<cluster><node><type> sw </type><kernel> 1 </kernel></node></cluster>", "logical:1: kernel 'a', number 0, is on no node of map"),
    ("backwards", LOGICAL, "<cluster><node>\n<kernel> 1-0 </kernel></node></cluster>", "map:2: kernels 1 to 0: the first is greater than the last"),
    ("a node's type", LOGICAL, "<cluster><node>\n<type> gpu </type><kernel> 0-1 </kernel></node></cluster>", "map:2: invalid node type 'gpu': use sw or hw"),
    ("a node's comm", LOGICAL, "<cluster><node>\n<comm> pigeon </comm><kernel> 0-1 </kernel></node></cluster>", "map:2: invalid comm 'pigeon': use shm, tcp, udp or eth"),
    ("an address", LOGICAL, "<cluster><node>\n<ip> 10.0.0.300 </ip><kernel> 0-1 </kernel></node></cluster>", "map:2: invalid IP address '10.0.0.300'"),
    ("a MAC address", LOGICAL, "<cluster><node>\n<mac> 00:11:22:33:44 </mac><kernel> 0-1 </kernel></node></cluster>", "map:2: invalid MAC address '00:11:22:33:44'"),
    ("no address", LOGICAL, "<cluster><node><ip> 10.0.0.1 </ip><kernel> 0 </kernel></node>\n<node><kernel> 1 </kernel></node></cluster>", "map:2: node 1 has no address, which it needs to reach the other nodes"),
    ("no MAC address", LOGICAL, "<cluster><node><ip> 10.0.0.1 </ip><kernel> 0 </kernel></node>\n<node><board> b </board><comm> eth </comm><ip> 10.0.0.2 </ip><kernel> 1 </kernel></node></cluster>", "map:2: node 1 (10.0.0.2) has comm eth and no <mac>"),
    ("no IP address", LOGICAL, "<cluster><node><ip> 10.0.0.1 </ip><kernel> 0 </kernel></node>\n<node><board> b </board><comm> tcp </comm><mac> 00:11:22:33:44:55 </mac><kernel> 1 </kernel></node></cluster>", "map:2: node 1 (00:11:22:33:44:55) has comm tcp and no <ip>"),
    ("one address", LOGICAL, "<cluster><node><ip> 10.0.0.1 </ip><kernel> 0 </kernel></node>\n<node><ip> 10.0.0.1 </ip><kernel> 1 </kernel></node></cluster>", "map:2: node 1 and node 0 (line 1) have the same address, 10.0.0.1"),
    ("one MAC address", LOGICAL, "<cluster><node><ip> 10.0.0.1 </ip><mac> 00:11:22:33:44:55 </mac><kernel> 0 </kernel></node>\n<node><ip> 10.0.0.2 </ip><mac> 00-11-22-33-44-55 </mac><kernel> 1 </kernel></node></cluster>", "map:2: node 1 and node 0 (line 1) have the same address, 00:11:22:33:44:55"),
    ("two protocols", LOGICAL, "<cluster><node><board> b </board><comm> tcp </comm><ip> 10.0.0.1 </ip><kernel> 0 </kernel></node>\n<node><board> b </board><comm> eth </comm><mac> 00:11:22:33:44:55 </mac><kernel> 1 </kernel></node></cluster>", "map:2: node 1 (00:11:22:33:44:55) and node 0 (10.0.0.1) (line 1) cannot reach each other: one uses tcp, the other eth"),
    ("shared memory across", LOGICAL, "<cluster><node><comm> shm </comm><ip> 10.0.0.1 </ip><kernel> 0 </kernel></node>\n<node><ip> 10.0.0.2 </ip><kernel> 1 </kernel></node></cluster>", "map:2: node 1 (10.0.0.2) and node 0 (10.0.0.1) (line 1) cannot reach each other: shared memory does not reach other nodes"),
    ("a board with shared memory", LOGICAL, "<cluster>\n<node><board> b </board><comm> shm </comm><kernel> 0-1 </kernel></node></cluster>", "map:2: node 0: a board cannot use shared memory"),
    ("seventeen on a board", "<cluster><kernel> a <num> 0 </num><rep> 17 </rep></kernel></cluster>", "<cluster>\n<node><board> b </board><comm> eth </comm><mac> 00:11:22:33:44:55 </mac><kernel> 0-16 </kernel></node></cluster>", "map:2: node 0 (00:11:22:33:44:55): 17 kernels on a board, but its router has 16 ports"),
    ("too many for a board's sessions", "<cluster><kernel> a <num> 0 </num><rep> 34 </rep></kernel></cluster>", "<cluster>\n<node><board> b </board><comm> tcp </comm><ip> 10.0.0.1 </ip><kernel> 0 </kernel></node>\n<node><comm> tcp </comm><ip> 10.0.0.2 </ip><kernel> 1-33 </kernel></node></cluster>", "map:2: node 0 (10.0.0.1): 33 boards and processes elsewhere, but a board has 32 TCP sessions"),
];
const LOGICAL: &str =
    "<cluster><kernel> a <num> 0 </num></kernel><kernel> b <num> 1 </num></kernel></cluster>";
const MAP: &str = "<cluster><node><type> sw </type><kernel> 0 </kernel></node></cluster>";

#[test]
fn each_wrong_file_is_refused_with_its_line() {
    let mut silent = Vec::new();
    for (name, logical, map, expected) in WRONG {
        let problems = parse(logical, map).expect_err(name).to_string();
        if !problems.lines().any(|line| line.starts_with(expected)) {
            silent.push(format!("{name}:\n{problems}\nlacks\n{expected}"));
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

#[test]
fn deep_and_large_files_are_refused_soon() {
    let deep = "<a>".repeat(1_000_000);
    assert!(parse(&deep, MAP)
        .unwrap_err()
        .to_string()
        .contains("nested too deeply"));
    let deep = "[".repeat(100_000);
    parse(&deep, MAP).unwrap_err();
    let long = format!("<cluster>{}</cluster>", "<a/>".repeat(2_000_000));
    parse(&long, MAP).unwrap_err();
    let many = format!("kernel:\n{}", "- {name: a, num: 0}\n".repeat(100_000));
    parse(&many, MAP).unwrap_err();
}

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "<cluster>",
        "</cluster>",
        "<kernel>",
        "</kernel>",
        "<node>",
        "</node>",
        "<num>",
        "</num>",
        "<rep>",
        "</rep>",
        "<type>",
        "</type>",
        "<comm>",
        "</comm>",
        "<ip>",
        "</ip>",
        "<mac>",
        "</mac>",
        "<board/>",
        "<interface>",
        "</interface>",
        "sw",
        "hw",
        "tcp",
        "eth",
        "0",
        "1",
        "255",
        "256",
        "-1",
        "0-300",
        "99999999999",
        "10.0.0.1",
        "a",
        "kernel:",
        "node:",
        "\n  - ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"",
        ": ",
        "&a",
        "*a",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "&amp;",
        "&#0;",
        "\u{0}",
        "é",
    ])
    .prop_map(str::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any contents of the files give a result, and every problem names a file.
    #[test]
    fn files_of_chance(words in prop::collection::vec(word(), 0..60), other in prop::collection::vec(word(), 0..60)) {
        let (logical, map) = (words.concat(), other.concat());
        if let Err(problems) = parse(&logical, &map) {
            prop_assert!(!problems.0.is_empty());
        }
        // Formatting is idempotent.
        if let Ok(once) = formatted_text(Path::new("f"), &logical) {
            prop_assert_eq!(formatted_text(Path::new("f"), &once).map_err(|p| p.to_string()), Ok(once));
        }
    }

    /// Well-formed files with some bytes changed.
    #[test]
    fn damaged_files(at in prop::collection::vec((0..1200_usize, any::<u8>()), 1..8), which in any::<bool>()) {
        let mut bytes = if which { PAPER_LOGICAL } else { PAPER_MAP }.as_bytes().to_vec();
        for (place, byte) in at {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let _ = if which { parse(&text, PAPER_MAP) } else { parse(PAPER_LOGICAL, &text) };
    }

    /// Generated clusters are unchanged after they have been written in the canonical form and read
    /// again.
    #[test]
    fn written_and_read_again(reps in prop::collection::vec(1..5_u32, 1..8), nodes in 1..5_usize) {
        let mut logical = String::from("<cluster>");
        let mut next = 0;
        for (i, rep) in reps.iter().enumerate() {
            logical += &format!("<kernel> k{i} <num> {next} </num> <rep>{rep}</rep></kernel>");
            next += rep;
        }
        logical += "</cluster>";
        let mut map = String::from("<cluster>");
        for node in 0..nodes {
            map += &format!("<node><type>sw</type><ip>10.0.0.{node}</ip>");
            for kernel in (node as u32..next).step_by(nodes) {
                map += &format!("<kernel>{kernel}</kernel>");
            }
            map += "</node>";
        }
        map += "</cluster>";
        let cluster = parse(&logical, &map).unwrap();
        prop_assert_eq!(cluster.size() as u32, next);
        let (l, m) = (crate::write::logical(&cluster.logical), crate::write::map(&cluster.map));
        let again = parse(&l, &m).unwrap();
        prop_assert_eq!(crate::write::logical(&again.logical), l);
        prop_assert_eq!(crate::write::map(&again.map), m);
    }
}
