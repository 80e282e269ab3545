//! `baltra board`: finds the board's model, a separate program that `make -C hdl/board` builds, and
//! executes it.

use crate::args::{Board, BoardCommand, Network, Policy, Trace};
use anyhow::{anyhow, bail, Context, Result};
use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable with the path of the model.
const VARIABLE: &str = "BALTRA_BOARD";

/// Candidate paths relative to the program's directory: in a build tree, and as packaged.
const PLACES: [&str; 2] = ["../board", "../lib/baltra/board"];

/// Default number of regions of the built model.
const USUAL_REGIONS: u8 = 4;

/// Replaces this process with the model; returns only on failure.
pub fn board(args: &Board) -> Result<Infallible> {
    let own = std::env::current_exe().ok();
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let beside = own.as_deref().and_then(Path::parent);
    let (model, line) = match &args.command {
        Some(BoardCommand::Trace(trace)) => (find_trace(beside, named)?, trace_arguments(trace)),
        None => (find(args.regions, beside, named)?, arguments(args)?),
    };
    let error = Command::new(&model).args(line).exec();
    Err(error).with_context(|| format!("running {}", model.display()))
}

/// The model with that many regions.
fn find(regions: u8, beside: Option<&Path>, named: Option<PathBuf>) -> Result<PathBuf> {
    let (name, option) = match regions {
        USUAL_REGIONS => ("board".to_owned(), String::new()),
        _ => (
            format!("board-{regions}-regions"),
            format!(" REGIONS={regions}"),
        ),
    };
    existing(places(&name, beside, named)).map_err(|list| {
        anyhow!(
            "the model of a board with {regions} regions is not at {list}: build it (make -C hdl/board{option}), \
             or set {VARIABLE} to its path"
        )
    })
}

/// The model that records waveforms: beside the configured model, or in the usual places.
fn find_trace(beside: Option<&Path>, named: Option<PathBuf>) -> Result<PathBuf> {
    let named = named.map(|path| path.with_file_name("trace"));
    existing(places("trace", beside, named)).map_err(|list| {
        anyhow!(
            "the model that keeps waveforms is not at {list}: build it (make -C hdl/board trace)"
        )
    })
}

fn places(name: &str, beside: Option<&Path>, named: Option<PathBuf>) -> Vec<PathBuf> {
    match (named, beside) {
        (Some(path), _) => vec![path],
        (None, Some(dir)) => PLACES.iter().map(|p| dir.join(p).join(name)).collect(),
        (None, None) => Vec::new(),
    }
}

/// The first existing path, or the candidates for an error.
fn existing(places: Vec<PathBuf>) -> Result<PathBuf, String> {
    if let Some(path) = places.iter().find(|p| p.is_file()) {
        return Ok(path.clone());
    }
    let list: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
    Err(list.join(" or "))
}

/// The command line of the model that records waveforms.
fn trace_arguments(args: &Trace) -> Vec<OsString> {
    let mut all: Vec<OsString> = args.call.iter().map(Into::into).collect();
    let mut put = |option: &str, value: Option<OsString>| {
        if let Some(value) = value {
            all.extend([option.into(), value]);
        }
    };
    put("--body", args.body.as_ref().map(Into::into));
    put("--body-file", args.body_file.as_ref().map(Into::into));
    put("--replay", args.replay.as_ref().map(Into::into));
    put("--request", args.request.map(|n| n.to_string().into()));
    put("--out", Some(args.out.clone().into()));
    put("--functions", args.functions.as_ref().map(Into::into));
    put("--seed", args.seed.map(|n| n.to_string().into()));
    if args.cold {
        all.push("--cold".into());
    }
    all
}

/// The model's own command line.
fn arguments(args: &Board) -> Result<Vec<OsString>> {
    if args.net == Some(Network::User) && args.tap.is_some() {
        bail!("--tap requires --net tap, not --net user");
    }
    if args.net == Some(Network::Tap) && args.tap.is_none() {
        bail!("--net tap requires the device's name (--tap NAME)");
    }
    let mut all: Vec<OsString> = Vec::new();
    let mut put = |option: &str, value: Option<OsString>| {
        if let Some(value) = value {
            all.extend([option.into(), value]);
        }
    };
    put("--tap", args.tap.as_ref().map(Into::into));
    put(
        "--net",
        (args.net == Some(Network::User)).then(|| "user".into()),
    );
    put("--forward", args.forward.as_ref().map(Into::into));
    put("--ip", args.ip.map(|ip| ip.to_string().into()));
    put("--port", args.port.map(|port| port.to_string().into()));
    put("--functions", args.functions.as_ref().map(Into::into));
    put("--store", args.store.as_ref().map(Into::into));
    put("--gateway", args.gateway.map(|ip| ip.to_string().into()));
    put("--netmask", args.netmask.map(|ip| ip.to_string().into()));
    put(
        "--policy",
        args.policy.map(|policy| {
            match policy {
                Policy::Fifo => "fifo",
                Policy::Affinity => "affinity",
                Policy::Shortest => "shortest",
            }
            .into()
        }),
    );
    put("--host-port", args.host_port.as_ref().map(Into::into));
    put("--pcap", args.pcap.as_ref().map(Into::into));
    put("--replay", args.replay.as_ref().map(Into::into));
    put("--seed", args.seed.map(|n| n.to_string().into()));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        board: Board,
    }

    fn parse(line: &str) -> Result<Vec<OsString>> {
        arguments(&Line::try_parse_from(line.split(' '))?.board)
    }

    #[test]
    fn every_option_reaches_the_model() {
        let line = "--tap tap0 --ip 10.0.0.2 --port 81 --functions dir --store 10.0.0.1:80/images \
                    --gateway 10.0.0.9 --netmask 255.255.0.0 --policy fifo --host-port port --pcap frames";
        assert_eq!(
            parse(&format!("board {line}")).unwrap().join(" ".as_ref()),
            OsString::from(line)
        );
        for line in [
            "--net user --forward 127.0.0.1:0",
            "--replay frames --seed 7",
        ] {
            assert_eq!(
                parse(&format!("board {line}")).unwrap().join(" ".as_ref()),
                OsString::from(line)
            );
        }
    }

    #[test]
    fn a_trace_is_of_a_call_or_of_a_recording() {
        let parse = |line: &str| -> Result<OsString> {
            match Line::try_parse_from(line.split(' '))?.board.command {
                Some(BoardCommand::Trace(trace)) => Ok(trace_arguments(&trace).join(" ".as_ref())),
                None => bail!("no trace"),
            }
        };
        for line in [
            "sobel?width=8 --body-file picture --out x.vcd --functions dir --cold",
            "echo --body words --out request.vcd",
            "--replay frames --request 3 --out request.vcd --seed 1",
        ] {
            let parsed = parse(&format!("board trace {line}")).unwrap();
            assert_eq!(parsed, OsString::from(line));
        }
        for line in [
            "board trace",
            "board trace --replay frames",
            "board trace echo --replay frames --request 1",
            "board trace echo --request 1",
            "board trace --replay frames --request 0",
            "board --tap tap0 trace echo",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn half_a_network_is_refused() {
        for line in [
            "board",
            "board --net tap",
            "board --net user --tap tap0",
            "board --forward 80",
            "board --tap tap0 --forward 80",
            "board --tap tap0 --regions 1",
            "board --net user --store 10.0.0.1:80/images",
            "board --tap tap0 --store 10.0.0.1:80",
            "board --tap tap0 --store 10.0.0.1/images",
            "board --tap tap0 --store 10.0.0.1:0/images",
            "board --tap tap0 --gateway 10.0.0.9",
            "board --tap tap0 --replay frames",
            "board --net user --replay frames",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_model_that_is_not_built_is_named_with_its_command() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("release");
        let text = find(2, Some(&bin), None).unwrap_err().to_string();
        assert!(text.contains("board-2-regions"), "{text}");
        assert!(text.contains("make -C hdl/board REGIONS=2"), "{text}");
        let text = find(4, Some(&bin), Some("elsewhere".into()))
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("elsewhere") && text.contains("make -C hdl/board)"),
            "{text}"
        );

        let text = find_trace(Some(&bin), None).unwrap_err().to_string();
        assert!(text.contains("make -C hdl/board trace"), "{text}");

        let model = dir.path().join("board/board");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(model.parent().unwrap()).unwrap();
        std::fs::write(&model, "").unwrap();
        let found = find(4, Some(&bin), None).unwrap();
        assert_eq!(found.canonicalize().unwrap(), model.canonicalize().unwrap());

        let trace = model.with_file_name("trace");
        std::fs::write(&trace, "").unwrap();
        let found = find_trace(None, Some(model)).unwrap();
        assert_eq!(found, trace);
    }
}
