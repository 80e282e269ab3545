//! `baltra vfun`, and its client `baltra vm`.

use crate::args::{Attach, Json, Vfun, Vm};
use crate::commands::daemon::log_to_stderr;
use crate::output::Table;
use crate::registry;
use anyhow::{bail, Context, Result};
use baltra_manager::options::PathOptions;
use baltra_session::Endpoint;
use baltra_vfun::control::{ask, Answer, Attached, Request};
use baltra_vfun::{Definition, Options, PoolOptions};
use std::os::unix::net::UnixStream;

/// `baltra vfun`
pub fn daemon(args: &Vfun, paths: &PathOptions) -> Result<()> {
    log_to_stderr("info");
    std::fs::create_dir_all(&paths.runtime)
        .with_context(|| format!("cannot make {}", paths.runtime.display()))?;
    let _lock = baltra_manager::lock::hold(&paths.runtime.join("vfun.lock"), "vfun")?;
    let functions = args.functions.canonicalize();
    let functions =
        functions.with_context(|| format!("no functions in {}", args.functions.display()))?;
    // Without managers, there is nothing to allocate. Without --registry: that of this host's
    // manager, if it is the first one on this host.
    let mut on_host = args.endpoint.iter().filter_map(|endpoint| match endpoint {
        Endpoint::Unix(path) => Some(path),
        _ => None,
    });
    let is_own = on_host.next() == Some(&paths.session_socket());
    let is_named = |url: &String| !url.is_empty() && !args.endpoint.is_empty();
    let named = args.at.registry.clone().filter(is_named);
    let url = match named {
        None if is_own => registry::find(&args.at, paths),
        named => named,
    };
    let pool = url.map(|url| PoolOptions {
        token: args.at.registry_token.clone().unwrap_or_default(),
        ca: registry::authority(&url),
        url,
    });
    let options = Options {
        pool,
        runtime: paths.runtime.clone(),
        state: args.state_dir.clone().unwrap_or(paths.state.clone()),
        functions,
        endpoints: args.endpoint.iter().map(ToString::to_string).collect(),
        program: std::env::current_exe()?,
        sandbox: !args.no_sandbox,
    };
    let (stop, stopped) = UnixStream::pair()?;
    let ends = std::thread::Builder::new().name("signals".into());
    ends.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let end_requested = runtime.block_on(crate::commands::daemon::end_requested());
        // Closing this end makes the other end readable.
        drop(stopped);
        end_requested
    })?;
    baltra_vfun::serve(&options, &stop)
}

/// `baltra vm`
pub fn vm(command: Vm, paths: &PathOptions) -> Result<()> {
    match command {
        Vm::Attach(args) => attach(*args, paths),
        Vm::Ls(json) => list(json, paths),
        Vm::Detach { name } => {
            let name_said = name.clone();
            match ask(&paths.runtime, &Request::Detach { name })? {
                Answer::Done => {
                    println!("{name_said} detached");
                    Ok(())
                }
                answer => bail!("unexpected response of the daemon: {answer:?}"),
            }
        }
    }
}

fn attach(args: Attach, paths: &PathOptions) -> Result<()> {
    let definition = Definition {
        memory_bytes: args.memory,
        parts: args.parts,
        handles_max: args.handles,
        calls_max: args.calls,
        call_ms_max: args.call_ms,
        call_bytes_max: args.call_memory,
        tenant: args.tenant,
        user: args.user,
        opencl: args.opencl,
        tcp: args.tcp,
        plain: args.plain,
        ..Definition::new(&args.name, args.functions)
    };
    definition.check()?;
    match ask(&paths.runtime, &Request::Attach(Box::new(definition)))? {
        Answer::Attached(attached) if args.json.json => {
            println!("{}", serde_json::to_string_pretty(&attached)?);
        }
        Answer::Attached(attached) => println!("{}", lines(&attached)),
        answer => bail!("unexpected response of the daemon: {answer:?}"),
    }
    Ok(())
}

/// The options for QEMU and libvirt.
fn lines(attached: &Attached) -> String {
    let stream = attached.stream.display();
    let mut lines = region_lines(attached);
    lines.push_str(&format!(
        "

Where there can be no such device, a port for each program at a time:
  -device virtio-serial-pci -chardev socket,path={stream},reconnect=1,id=vfun0 -device virtserialport,chardev=vfun0,name=baltra.vfun.0"
    ));
    if let Some(tcp) = attached.definition.tcp {
        lines.push_str(&format!(
            "\nOr in the guest, by its own name for this address: VFUN_TCP={tcp}"
        ));
    }
    lines
}

fn region_lines(attached: &Attached) -> String {
    let name = &attached.definition.name;
    let bytes = attached.definition.memory_bytes;
    match &attached.memory {
        None => {
            let (socket, vectors) = (attached.socket.display(), attached.vectors);
            format!(
                "QEMU:
  -chardev socket,path={socket},id=vfun -device ivshmem-doorbell,vectors={vectors},chardev=vfun

libvirt, in <devices>:
  <shmem name='vfun-{name}'>
    <model type='ivshmem-doorbell'/>
    <server path='{socket}'/>
    <msi vectors='{vectors}'/>
  </shmem>

Outside of a VM: VFUN_DEVICE=unix:{socket} vfun list"
            )
        }
        Some(memory) => format!(
            "QEMU, as long as this daemon lives:
  -object memory-backend-file,id=vfun,share=on,mem-path={},size={bytes} -device ivshmem-plain,memdev=vfun",
            memory.display()
        ),
    }
}

fn list(json: Json, paths: &PathOptions) -> Result<()> {
    let Answer::Vms(vms) = ask(&paths.runtime, &Request::List)? else {
        bail!("unexpected response of the daemon");
    };
    if json.json {
        println!("{}", serde_json::to_string_pretty(&vms)?);
        return Ok(());
    }
    let mut table = Table::new(&[
        "NAME",
        ">PEERS",
        ">APPLICATIONS",
        ">CALLS",
        ">BUSY",
        ">REFUSED",
        ">RESTARTS",
        "FUNCTIONS",
    ]);
    for vm in vms {
        let usage = &vm.usage;
        table.row([
            vm.definition.name,
            vm.peers.len().to_string(),
            usage.applications.to_string(),
            usage.calls.to_string(),
            format!("{:.3}s", usage.busy_us as f64 / 1e6),
            usage.refused.to_string(),
            vm.restarts.to_string(),
            vm.definition.functions.join(","),
        ]);
    }
    table.print();
    Ok(())
}
