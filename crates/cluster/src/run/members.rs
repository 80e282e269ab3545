//! The ranks' nodes and addresses, checked against each other.

use super::Options;
use crate::build::Built;
use crate::job::Member;
use crate::model::{Cluster, Comm, NodeKind};
use anyhow::{bail, ensure, Result};
use std::net::{IpAddr, Ipv4Addr};

/// The ranks' nodes and addresses.
pub fn members(
    cluster: &Cluster,
    built: &Built,
    options: &Options,
) -> Result<(Vec<Member>, Vec<usize>)> {
    let size = cluster.size();
    let nodes = nodes_of_ranks(cluster)?;
    let several = cluster.map.nodes.len() > 1;
    let boards = (cluster.map.nodes.iter()).any(|n| n.kind == NodeKind::Hardware);
    let speaks = |comm| cluster.map.nodes.iter().any(|n| n.comm == Some(comm));
    let tcp_boards = boards && several && speaks(Comm::Tcp);
    let udp = several && speaks(Comm::Udp);
    let ether = boards && !tcp_boards || several && (speaks(Comm::Eth) || udp);
    for (index, node) in cluster.map.nodes.iter().enumerate() {
        let what = match node.comm {
            _ if udp && !matches!(node.ip, Some(IpAddr::V4(_))) => {
                "needs an <ip> of IPv4 for its ranks to be reached over UDP"
            }
            _ if ether && !udp && several && node.mac.is_none() => {
                "needs a <mac> for its ranks to be reached over raw Ethernet"
            }
            _ if !ether && several && node.ip.is_none() => {
                "needs an <ip> for its ranks to be reached over TCP"
            }
            _ if tcp_boards && !matches!(node.ip, Some(IpAddr::V4(_))) => {
                "needs an <ip> of IPv4: boards support no other"
            }
            _ => continue,
        };
        let (path, name) = (cluster.map.path.display(), cluster.node_name(index));
        bail!("{path}:{}: {name} {what}", node.line);
    }
    ensure!(
        !ether && !boards || options.nodes.is_empty(),
        "--node: raw Ethernet, UDP and boards work between nodes of one host only"
    );
    if let Some(mpi) = &options.mpi {
        ensure!(
            options.nodes.is_empty(),
            "--mpi: all processes must run on this host (omit --node)"
        );
        let hardware = |rank: usize| cluster.map.nodes[nodes[rank]].kind == NodeKind::Hardware;
        let first = (0..size).find(|r| hardware(*r)).unwrap_or(size);
        if let Some(later) = (first..size).find(|r| !hardware(*r)) {
            bail!("--mpi: rank {later} is a process, but rank {first} is on a board: the processes of {mpi} must be the first ranks");
        }
        ensure!(first > 0, "--mpi: no rank is a process");
    }
    if !options.nodes.is_empty() {
        let known = cluster.map.nodes.len();
        ensure!(
            options.nodes.iter().all(|n| *n < known),
            "--node: unknown node, use 0 to {}",
            known - 1
        );
        ensure!(
            options.port.is_some() && options.key.is_some(),
            "--node requires --port and --key-file, the same on all nodes"
        );
    }
    let members = (0..size)
        .map(|rank| {
            let node = &cluster.map.nodes[nodes[rank]];
            // With "tcp" on the only node, its ranks do not share memory: each is a separate group.
            // With several nodes, "tcp" is the protocol between nodes.
            let apart = node.comm == Some(Comm::Tcp) && cluster.map.nodes.len() == 1;
            Member {
                group: if apart {
                    cluster.map.nodes.len() + rank
                } else {
                    nodes[rank]
                },
                listen: Some(node.ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))),
                port: options.port.map_or(0, |p| p.saturating_add(rank as u16)),
                here: options.nodes.is_empty() || options.nodes.contains(&nodes[rank]),
                mac: if node.kind == NodeKind::Hardware || ether {
                    Some(mac(cluster, nodes[rank]))
                } else {
                    None
                },
                udp: match node.ip {
                    Some(IpAddr::V4(ip)) if udp => Some(ip),
                    _ => None,
                },
                tcp: !ether,
                board: node.kind == NodeKind::Hardware,
                streams: (built.kernels.get(&(rank as u32))).is_some_and(|k| k.streams),
                mpi: options.mpi.is_some() && node.kind == NodeKind::Software,
            }
        })
        .collect();
    Ok((members, nodes))
}

/// The node of each rank.
fn nodes_of_ranks(cluster: &Cluster) -> Result<Vec<usize>> {
    let size = cluster.size();
    let mut nodes = vec![None; size];
    for (index, node) in cluster.map.nodes.iter().enumerate() {
        for place in &node.kernels {
            let Some(slot) = nodes.get_mut(place.kernel as usize) else {
                bail!(
                    "{}: ranks must be numbered from 0 without gaps: there are {size} kernels, and one has number {}",
                    cluster.logical.path.display(),
                    place.kernel
                );
            };
            *slot = Some(index);
        }
    }
    let nodes: Vec<usize> = nodes.into_iter().flatten().collect();
    ensure!(nodes.len() == size, "a kernel is not on any node");
    Ok(nodes)
}

/// A node's hardware address. The map file need not have one for nodes with UDP, boards with TCP
/// and single nodes.
pub fn mac(cluster: &Cluster, node: usize) -> String {
    let given = cluster.map.nodes[node].mac.clone();
    given.unwrap_or_else(|| format!("02:00:00:00:01:{node:02x}"))
}
