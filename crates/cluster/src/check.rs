//! Rules that the logical file and the map file must satisfy together.

use crate::model::{
    Cluster, Comm, Node, NodeKind, KERNELS_BESIDE_HTTP_MAX, KERNELS_MAX, KERNELS_PER_BOARD_MAX,
    SESSIONS_PER_BOARD_MAX,
};
use crate::problem::Problem;
use std::collections::BTreeMap;

pub fn check(cluster: &Cluster) -> Vec<Problem> {
    let mut found = Found(Vec::new());
    numbers(cluster, &mut found);
    places(cluster, &mut found);
    for (index, node) in cluster.map.nodes.iter().enumerate() {
        addresses(cluster, index, node, &mut found);
    }
    pairs(cluster, &mut found);
    found.0
}

struct Found(Vec<Problem>);

impl Found {
    fn logical(&mut self, cluster: &Cluster, line: usize, text: String) {
        let path = cluster.logical.path.clone();
        self.0.push(Problem { path, line, text });
    }

    fn map(&mut self, cluster: &Cluster, line: usize, text: String) {
        let path = cluster.map.path.clone();
        self.0.push(Problem { path, line, text });
    }
}

/// Each number belongs to one kernel.
fn numbers(cluster: &Cluster, found: &mut Found) {
    let mut owners: BTreeMap<u32, usize> = BTreeMap::new();
    for (index, kernel) in cluster.logical.kernels.iter().enumerate() {
        for number in kernel.numbers() {
            if let Some(&other) = owners.get(&number) {
                let other = &cluster.logical.kernels[other];
                found.logical(
                    cluster,
                    kernel.line,
                    format!(
                        "kernel '{}' has number {number}, as has '{}' in line {}",
                        kernel.name, other.name, other.line
                    ),
                );
                break;
            }
            owners.insert(number, index);
        }
    }
    if cluster.size() > KERNELS_MAX as usize {
        found.logical(
            cluster,
            0,
            format!(
                "too many kernels: {}, a cluster has at most {KERNELS_MAX}",
                cluster.size()
            ),
        );
    }
}

/// Each kernel is on one node, and each board has room for its kernels.
fn places(cluster: &Cluster, found: &mut Found) {
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    for (index, node) in cluster.map.nodes.iter().enumerate() {
        for place in &node.kernels {
            let number = place.kernel;
            if cluster.logical.kernel(number).is_none() {
                let path = cluster.logical.path.display();
                found.map(
                    cluster,
                    place.line,
                    format!("kernel {number} not found in {path}"),
                );
            }
            if let Some(other) = places.insert(number, index) {
                let other = cluster.node_name(other);
                found.map(
                    cluster,
                    place.line,
                    format!("kernel {number} is already on {other}"),
                );
            }
        }
        if node.kind == NodeKind::Hardware && node.kernels.len() > KERNELS_PER_BOARD_MAX {
            let (name, count) = (cluster.node_name(index), node.kernels.len());
            found.map(
                cluster,
                node.line,
                format!("{name}: {count} kernels on a board, but its router has {KERNELS_PER_BOARD_MAX} ports"),
            );
        }
    }
    for kernel in &cluster.logical.kernels {
        let missing: Vec<u32> = kernel
            .numbers()
            .filter(|n| !places.contains_key(n))
            .collect();
        if let Some(first) = missing.first() {
            let others = match missing.len() {
                1 => String::new(),
                n => format!(" and {} more", n - 1),
            };
            let path = cluster.map.path.display();
            found.logical(
                cluster,
                kernel.line,
                format!(
                    "kernel '{}', number {first}{others}, is on no node of {path}",
                    kernel.name
                ),
            );
        }
    }
}

/// Checks that each node that other nodes connect to has a unique address for its protocol.
fn addresses(cluster: &Cluster, index: usize, node: &Node, found: &mut Found) {
    let name = cluster.node_name(index);
    let alone = cluster.map.nodes.len() == 1;
    match node.comm {
        Some(Comm::Eth) if node.mac.is_none() && !alone => {
            found.map(
                cluster,
                node.line,
                format!("{name} has comm eth and no <mac>"),
            );
        }
        Some(Comm::Tcp | Comm::Udp)
            if node.ip.is_none() && !(alone && node.kind == NodeKind::Software) =>
        {
            found.map(
                cluster,
                node.line,
                format!(
                    "{name} has comm {} and no <ip>",
                    node.comm.map_or("", Comm::word)
                ),
            );
        }
        None if !alone && node.ip.is_none() && node.mac.is_none() => {
            found.map(
                cluster,
                node.line,
                format!("{name} has no address, which it needs to reach the other nodes"),
            );
        }
        _ => {}
    }
    let others = (cluster.map.nodes.iter().enumerate()).filter(|(other, _)| *other != index);
    let stations: usize = others
        .map(|(_, other)| match other.kind {
            NodeKind::Software => other.kernels.len(),
            NodeKind::Hardware => 1,
        })
        .sum();
    if node.kind == NodeKind::Hardware
        && node.comm == Some(Comm::Tcp)
        && stations > SESSIONS_PER_BOARD_MAX
    {
        found.map(
            cluster,
            node.line,
            format!("{name}: {stations} boards and processes elsewhere, but a board has {SESSIONS_PER_BOARD_MAX} TCP sessions"),
        );
    }
    if node.kind == NodeKind::Hardware && node.comm == Some(Comm::Shm) {
        found.map(
            cluster,
            node.line,
            format!("{name}: a board cannot use shared memory (comm shm)"),
        );
    }
    if node.http.is_some() {
        let why = if node.kind == NodeKind::Software {
            Some("only a board serves HTTP".to_owned())
        } else if node.comm.is_some_and(|comm| comm != Comm::Eth) {
            Some("a board with HTTP exchanges messages over raw Ethernet (comm eth)".to_owned())
        } else if node.kernels.len() > KERNELS_BESIDE_HTTP_MAX {
            Some(format!(
                "{} kernels, but a board with HTTP has regions for {KERNELS_BESIDE_HTTP_MAX}",
                node.kernels.len()
            ))
        } else {
            None
        };
        if let Some(why) = why {
            found.map(cluster, node.line, format!("{name}: {why}"));
        }
    }
    for (earlier, other) in cluster.map.nodes[..index].iter().enumerate() {
        let same_ip = node.ip.is_some() && node.ip == other.ip;
        let same_mac = node.mac.is_some() && node.mac == other.mac;
        if same_ip || same_mac {
            let what = if same_ip {
                node.ip.map(|ip| ip.to_string())
            } else {
                node.mac.clone()
            };
            found.map(
                cluster,
                node.line,
                format!(
                    "node {index} and node {earlier} (line {}) have the same address, {}",
                    other.line,
                    what.unwrap_or_default()
                ),
            );
        }
    }
}

/// Any two nodes must share a protocol.
fn pairs(cluster: &Cluster, found: &mut Found) {
    for (b, second) in cluster.map.nodes.iter().enumerate() {
        for (a, first) in cluster.map.nodes[..b].iter().enumerate() {
            let why = match (first.comm, second.comm) {
                (Some(Comm::Shm), _) | (_, Some(Comm::Shm)) => {
                    "shared memory does not reach other nodes".to_owned()
                }
                (Some(x), Some(y)) if x != y => {
                    format!("one uses {}, the other {}", x.word(), y.word())
                }
                _ => continue,
            };
            let (a, b) = (cluster.node_name(a), cluster.node_name(b));
            found.map(
                cluster,
                second.line,
                format!(
                    "{b} and {a} (line {}) cannot reach each other: {why}",
                    first.line
                ),
            );
        }
    }
}
