//! `baltra completion`, and `baltra complete`, which its scripts call for names that only the daemons
//! have: devices, functions, tenants, sessions, pools and accelerators.
//!
//! A key press must neither wait nor print: the names are those that arrive within [`PATIENCE`], and
//! every failure is an empty list.

use crate::args::{Args, Complete, Door, RegistryAt};
use crate::control::{self, Control};
use crate::http::{As, Call, Gateway};
use crate::output::Stdout;
use crate::registry::Registry;
use anyhow::Result;
use baltra_api::control as proto;
use baltra_api::registry::{DevicesRequest, PoolsRequest};
use baltra_manager::options::PathOptions;
use clap::{Command, CommandFactory, Parser};
use clap_complete::Shell;
use http::Method;
use std::io::Write;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Time limit of all requests together.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Most names that are printed.
const NAMES_MAX: usize = 1_000;

/// Prints the script of a shell.
pub fn script(shell: Shell) -> Result<()> {
    let mut command = Args::command();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "baltra", &mut text);
    let text = String::from_utf8(text)?;
    let whole = match shell {
        Shell::Bash => text + BASH,
        Shell::Fish => text + FISH,
        // The end of the script registers it, which the values' function does in its place.
        Shell::Zsh => {
            let end = text.rfind("\nif [ \"$funcstack[1]\"").unwrap_or(text.len());
            text[..end].to_owned() + ZSH
        }
        _ => text,
    };
    Stdout.write_all(whole.as_bytes())?;
    Ok(())
}

const BASH: &str = r#"
_baltra_values() {
    local values
    values=$(baltra complete "$COMP_CWORD" -- "${COMP_WORDS[@]}" 2>/dev/null)
    if [[ -n $values ]]; then
        mapfile -t COMPREPLY <<<"$values"
        return
    fi
    _baltra "$@"
}

complete -F _baltra_values -o nosort -o bashdefault -o default baltra
"#;

const FISH: &str = r#"
function __baltra_values
    set -l words (commandline -opc)
    baltra complete (count $words) -- $words (commandline -ct) 2>/dev/null
end

complete -c baltra -k -a '(__baltra_values)'
"#;

const ZSH: &str = r#"
_baltra_values() {
    local -a values
    values=(${(f)"$(baltra complete $((CURRENT - 1)) -- "${words[@]}" 2>/dev/null)"})
    if (( $#values )); then
        compadd -a values
        return
    fi
    _baltra "$@"
}

compdef _baltra_values baltra
if [ "$funcstack[1]" = "_baltra" ]; then
    _baltra_values "$@"
fi
"#;

/// A kind of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Devices of this host's manager.
    LocalDevices,
    /// Devices of the pool, node/name.
    PoolDevices,
    Functions,
    Tenants,
    Sessions,
    Pools,
    Accelerators,
}

impl Kind {
    /// The kind of an argument's values, if only a daemon has them.
    fn of(path: &[String], argument: &str) -> Option<Kind> {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match (path.as_slice(), argument) {
            (["session", _], "session") => Some(Kind::Sessions),
            (["session", _], "to")
            | (["accelerator", "load"] | ["device", "upgrade-driver"] | ["run"], "device") => {
                Some(Kind::LocalDevices)
            }
            (["device", _] | ["instances"], "device") => Some(Kind::PoolDevices),
            (
                ["function", "describe" | "logs" | "remove" | "scale" | "invoke"],
                "name" | "names",
            )
            | (["instances"], "function") => Some(Kind::Functions),
            (["tenant", "quota" | "token" | "usage" | "rm"], "name")
            | (["run"] | ["instances"], "tenant") => Some(Kind::Tenants),
            (["pool", "rm"], "name") => Some(Kind::Pools),
            (["accelerator", "rm" | "load"], "accelerator") => Some(Kind::Accelerators),
            _ => None,
        }
    }
}

/// The argument at the cursor: the subcommands above it and its id.
fn argument(words: &[String], index: usize) -> Option<(Vec<String>, String)> {
    let mut root = Args::command();
    root.build();
    let (mut command, mut path): (&Command, _) = (&root, Vec::new());
    let (mut positional, mut option) = (0, None);
    for word in words.get(1..index)? {
        if option.take().is_some() {
            continue;
        }
        if word == "--" {
            return None;
        }
        if word.starts_with('-') {
            option = valued(command, word);
        } else if let Some(next) = command.find_subcommand(word) {
            path.push(next.get_name().to_owned());
            (command, positional) = (next, 0);
        } else {
            positional += 1;
        }
    }
    if let Some(option) = option {
        return Some((path, option));
    }
    let current = words.get(index).map_or("", String::as_str);
    if current.starts_with('-') || command.has_subcommands() {
        return None;
    }
    let positionals: Vec<_> = command.get_positionals().collect();
    // The last one may be repeated.
    let is_repeated = |a: &&&clap::Arg| a.get_num_args().is_some_and(|n| n.max_values() > 1);
    let at = positionals.get(positional);
    let at = at.or_else(|| positionals.last().filter(is_repeated));
    Some((path, at?.get_id().to_string()))
}

/// The id of an option whose value is the next word.
fn valued(command: &Command, word: &str) -> Option<String> {
    let mut arguments = command.get_arguments();
    let found = match word.strip_prefix("--") {
        Some(long) => arguments.find(|a| a.get_long() == Some(long)),
        None => arguments.find(|a| a.get_short().is_some_and(|s| word.ends_with(s))),
    };
    let found = found.filter(|a| a.get_action().takes_values())?;
    Some(found.get_id().to_string())
}

/// The value of an option that names a daemon.
fn value(words: &[String], option: &str) -> Option<String> {
    let at = words.iter().position(|word| word == option)?;
    words.get(at + 1).cloned()
}

/// The options of a gateway in the words and in the environment.
#[derive(Parser)]
struct DoorOnly {
    #[command(flatten)]
    door: Door,
}

/// The options of a registry in the words and in the environment.
#[derive(Parser)]
struct RegistryOnly {
    #[command(flatten)]
    at: RegistryAt,
}

/// Prints the names that may be at the cursor.
pub fn complete(args: Complete, paths: PathOptions) {
    let Some((path, id)) = argument(&args.words, args.index) else {
        return;
    };
    let Some(kind) = Kind::of(&path, &id) else {
        return;
    };
    let prefix = args.words.get(args.index).cloned().unwrap_or_default();
    let (sender, names) = channel();
    let words = args.words;
    std::thread::spawn(move || {
        let _ = sender.send(names_of(kind, &words, paths).unwrap_or_default());
    });
    // The process ends before a daemon that does not respond.
    let mut names = names.recv_timeout(PATIENCE).unwrap_or_default();
    let plain = |c: char| !c.is_whitespace() && !c.is_control();
    names.retain(|name| name.starts_with(&prefix) && !name.is_empty() && name.chars().all(plain));
    names.sort();
    names.dedup();
    names.truncate(NAMES_MAX);
    for name in names {
        println!("{name}");
    }
}

fn names_of(kind: Kind, words: &[String], paths: PathOptions) -> Result<Vec<String>> {
    let paths = match value(words, "--runtime-dir") {
        Some(dir) => control::paths(Some(&dir.into())),
        None => paths,
    };
    match kind {
        Kind::LocalDevices | Kind::Tenants | Kind::Sessions | Kind::Accelerators => {
            of_manager(kind, Control::connect(&paths)?)
        }
        Kind::Functions => {
            let address = value(words, "--gateway");
            let address = address.iter().flat_map(|url| ["--gateway", url]);
            let door = DoorOnly::try_parse_from(["baltra"].into_iter().chain(address))?.door;
            let gateway = Gateway::new(&door, &paths)?;
            let all = gateway.json(As::Admin, Call::new(Method::GET, "/system/functions"))?;
            let all = all.as_array().into_iter().flatten();
            let name = |f: &serde_json::Value| f["name"].as_str().map(str::to_owned);
            Ok(all.filter_map(name).collect())
        }
        Kind::PoolDevices | Kind::Pools => {
            let address = value(words, "--registry");
            let address = address.iter().flat_map(|url| ["--registry", url]);
            let at = RegistryOnly::try_parse_from(["baltra"].into_iter().chain(address))?.at;
            of_registry(kind, &Registry::connect(&at, &paths)?)
        }
    }
}

fn of_manager(kind: Kind, mut control: Control) -> Result<Vec<String>> {
    Ok(match kind {
        Kind::Tenants => {
            let request = proto::TenantsRequest {};
            let reply = control.call(|mut c| async move { c.tenants(request).await })?;
            reply.tenants.into_iter().map(|t| t.name).collect()
        }
        Kind::Sessions => {
            let request = proto::SessionsRequest { details: false };
            let reply = control.call(|mut c| async move { c.sessions(request).await })?;
            reply.sessions.iter().map(|s| s.id.to_string()).collect()
        }
        Kind::Accelerators => {
            let request = proto::AcceleratorsRequest {};
            let reply = control.call(|mut c| async move { c.accelerators(request).await })?;
            reply.accelerators.into_iter().map(|a| a.name).collect()
        }
        _ => {
            let request = proto::DevicesRequest {};
            let reply = control.call(|mut c| async move { c.devices(request).await })?;
            reply.devices.into_iter().map(|d| d.name).collect()
        }
    })
}

fn of_registry(kind: Kind, registry: &Registry) -> Result<Vec<String>> {
    if kind == Kind::Pools {
        let pools =
            registry.call(|mut s| async move { s.operators.pools(PoolsRequest {}).await })?;
        return Ok(pools.pools.into_iter().map(|p| p.name).collect());
    }
    let request = DevicesRequest {
        silent: true,
        ..DevicesRequest::default()
    };
    let reply = registry.call(|mut s| async move { s.operators.devices(request).await })?;
    let name = |d: baltra_api::registry::Device| {
        let description = d.description.unwrap_or_default();
        format!("{}/{}", d.node, description.name)
    };
    Ok(reply.devices.into_iter().map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> Option<Kind> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (path, id) = argument(&words, words.len() - 1)?;
        Kind::of(&path, &id)
    }

    #[test]
    fn arguments_with_names_of_daemons_are_found() {
        for (line, expected) in [
            ("baltra tenant rm ", Kind::Tenants),
            ("baltra tenant usage --json re", Kind::Tenants),
            ("baltra run --tenant ", Kind::Tenants),
            (
                "baltra --runtime-dir /x run --device gp",
                Kind::LocalDevices,
            ),
            ("baltra session move ", Kind::Sessions),
            ("baltra session move 7 --force --to ", Kind::LocalDevices),
            ("baltra session resume ", Kind::Sessions),
            ("baltra session resume 7 --to ", Kind::LocalDevices),
            ("baltra device upgrade-driver ", Kind::LocalDevices),
            ("baltra device drain --wait 3 ", Kind::PoolDevices),
            ("baltra instances --device ", Kind::PoolDevices),
            ("baltra function invoke -t text/plain ", Kind::Functions),
            ("baltra function remove one ", Kind::Functions),
            ("baltra pool rm ", Kind::Pools),
            ("baltra accelerator load ", Kind::Accelerators),
            ("baltra accelerator load x --device ", Kind::LocalDevices),
        ] {
            assert_eq!(kind(line), Some(expected), "{line}");
        }
        for line in [
            "baltra ",
            "baltra tenant ",
            "baltra tenant add ",
            "baltra tenant rm --js",
            "baltra tenant rm red ",
            "baltra run -- ",
            "baltra run -- clinfo --device ",
            "baltra unknown --option ",
            "",
        ] {
            assert_eq!(kind(line), None, "{line}");
        }
        assert_eq!(argument(&[], 3), None);
        assert_eq!(argument(&["baltra".into()], usize::MAX), None);
    }
}
