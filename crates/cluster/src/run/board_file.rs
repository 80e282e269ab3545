//! The configuration file of a board's process.

use super::members::mac;
use crate::build::Built;
use crate::job::Job;
use crate::model::{Cluster, NodeKind};
use anyhow::{Context, Result};

/// The port of boards and of the processes that connect to boards, each at its own IP address (the
/// public libraries' port).
const TCP_PORT: u16 = 9000;

/// The configuration file of a board's process: its own address, its kernels, and the addresses of
/// all other ranks.
pub fn board_file(
    cluster: &Cluster,
    index: usize,
    built: &Built,
    job: &Job,
    nodes: &[usize],
) -> Result<String> {
    let node = &cluster.map.nodes[index];
    let mut text = format!("address {}\nranks {}\n", mac(cluster, index), nodes.len());
    let elsewhere = || (0..nodes.len()).filter(|r| nodes[*r] != index);
    let first = node.kernels.iter().map(|p| p.kernel as usize).min();
    let own = first.context("internal error: a board without kernels")?;
    let ip = |node: usize| match cluster.map.nodes[node].ip {
        Some(ip) => ip.to_string(),
        None => "-".to_owned(),
    };
    if job.udp(own).is_some() {
        text += &format!("udp {}\n", ip(index));
    }
    if job.tcp(own) {
        text += &format!("tcp {} {own} {TCP_PORT}\n", ip(index));
        for rank in elsewhere().filter(|r| job.station(*r) == *r) {
            // Of two boards, the later one connects; processes always connect.
            match job.frames_to(rank) {
                Some((mac, path)) => {
                    let role = if rank < own { 1 } else { 2 };
                    let (ip, path) = (ip(nodes[rank]), path.display());
                    text += &format!("station {rank} {role} {ip} {mac} {path}\n");
                }
                None => text += &format!("station {rank} 2 -\n"),
            }
        }
    }
    for (port, place) in node.kernels.iter().enumerate() {
        let kernel = cluster
            .logical
            .kernel(place.kernel)
            .context("internal error: no kernel with this number")?;
        let made = built
            .kernels
            .get(&place.kernel)
            .with_context(|| format!("kernel '{}' is not built for a board", kernel.name))?;
        let image = made
            .image
            .as_ref()
            .map(|i| i.display().to_string())
            .unwrap_or_default();
        text += &format!(
            "kernel {} {port} {} {image}\n",
            place.kernel,
            made.model.display()
        );
        if let Some(bytes) = kernel.memory() {
            text += &format!("memory {} {bytes}\n", place.kernel);
        }
        if let Some(streams) = kernel.captured() {
            let file = crate::probe::path(&built.out, &cluster.map.path, place.kernel);
            text += &format!("probe {} {streams} {}\n", place.kernel, file.display());
        }
    }
    for rank in elsewhere() {
        if job.tcp(own) {
            text += &format!("peer {rank} {}\n", job.station(rank));
        } else {
            let (mac, path) = job
                .frames_to(rank)
                .context("internal error: a rank without an address")?;
            let (path, ip) = (path.display(), ip(nodes[rank]));
            let kind = match cluster.map.nodes[nodes[rank]].kind {
                NodeKind::Hardware => " board",
                NodeKind::Software => "",
            };
            text += &format!("peer {rank} {mac} {path} {ip}{kind}\n");
        }
    }
    for fault in node.rest.iter().filter(|e| e.is("fault")) {
        text += &format!("fault {}\n", fault.text);
    }
    Ok(text)
}
