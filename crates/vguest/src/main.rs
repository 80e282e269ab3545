//! `vfun`: a command line for calling the host's functions from a guest.
#![forbid(unsafe_code)]

use baltra_vguest::{interrupts, Client, Codec, Device, Error, Preference, Values};
use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: vfun [--device DEVICE] COMMAND

  vfun list                           list the functions that this VM may call
  vfun call NAME [VALUE …]            call a function: `vfun call fibonacci 93`
  vfun time NAME [VALUE …]            call a function repeatedly; print times as JSON
  vfun interrupts                     serve the device's interrupts, through vfio, to all programs of this VM

Values are given in the manifest's order, or as name=value.

  --device DEVICE   a PCI device's directory in sysfs, serial:PATH for a virtio-serial port,
                    tcp:ADDRESS:PORT, or unix:PATH for the daemon's socket [default: $VFUN_DEVICE; if unset,
                    the first ivshmem device, a port named baltra.vfun…, or $VFUN_TCP]
  --hardware        run on an accelerator only
  --software        run on the host's processors only
  --body FILE       the request's body (-: standard input)
  --as FORM         the form of the body: raw, json, npy, png, jpeg [default: raw]
  --out FORM        the form of the answer [default: json]
  --raw             do not convert the answer: --out raw
  --verbose         print the implementation and the duration to standard error
  --calls N         with time: number of calls [default: 10000]
  --idle-us US      with time: pause before each call, so that both sides sleep [default: 0]
";

struct Options {
    device: String,
    command: String,
    words: Vec<String>,
    preference: Preference,
    body: Option<String>,
    body_codec: Codec,
    answer_codec: Codec,
    verbose: bool,
    calls: u32,
    idle: Duration,
}

fn codec(name: &str) -> Result<Codec, String> {
    Ok(match name {
        "raw" => Codec::Raw,
        "json" => Codec::Json,
        "npy" => Codec::Npy,
        "png" => Codec::Png,
        "jpeg" => Codec::Jpeg,
        _ => {
            return Err(format!(
                "unknown form '{name}' (available: raw, json, npy, png, jpeg)"
            ))
        }
    })
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        device: String::new(),
        command: String::new(),
        words: Vec::new(),
        preference: Preference::Any,
        body: None,
        body_codec: Codec::Raw,
        answer_codec: Codec::Json,
        verbose: false,
        calls: 10_000,
        idle: Duration::ZERO,
    };
    let mut args = std::env::args().skip(1);
    while let Some(word) = args.next() {
        let mut value = || args.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--device" => options.device = value()?,
            "--hardware" => options.preference = Preference::Hardware,
            "--software" => options.preference = Preference::Software,
            "--body" => options.body = Some(value()?),
            "--as" => options.body_codec = codec(&value()?)?,
            "--out" => options.answer_codec = codec(&value()?)?,
            "--raw" => options.answer_codec = Codec::Raw,
            "--verbose" => options.verbose = true,
            "--calls" => options.calls = number(&value()?)?,
            "--idle-us" => options.idle = Duration::from_micros(number(&value()?)?.into()),
            "-h" | "--help" => {
                print!("{USAGE}");
                std::process::exit(0);
            }
            _ if word.starts_with("--") => {
                return Err(format!("unknown option {word} (vfun --help lists them)"))
            }
            _ if options.command.is_empty() => options.command = word,
            _ => options.words.push(word),
        }
    }
    Ok(options)
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|e| format!("{text}: {e}"))
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(text) => {
            eprint!("error: {text}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    if !["list", "call", "time", "interrupts"].contains(&options.command.as_str()) {
        return Err(format!(
            "missing command (vfun --help lists them)\n\n{USAGE}"
        ));
    }
    let device = Device::find(&options.device).map_err(|e| e.to_string())?;
    if options.command == "interrupts" {
        let Device::Pci(directory) = &device else {
            return Err("interrupts need an ivshmem device".into());
        };
        let ready = |path: &std::path::Path| println!("interrupts at {}", path.display());
        return interrupts::serve(directory, ready).map_err(|e| e.to_string());
    }
    let mut client = Client::open(&device).map_err(|e| e.to_string())?;
    match options.command.as_str() {
        "list" => list(&mut client),
        _ => call(&mut client, options),
    }
}

fn list(client: &mut Client) -> Result<(), String> {
    let mut out = std::io::stdout();
    for name in client.list().map_err(|e| e.to_string())? {
        writeln!(out, "{name}").map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn call(client: &mut Client, options: &Options) -> Result<(), String> {
    let (name, values) = options
        .words
        .split_first()
        .ok_or("missing function's name (`vfun list` prints them)")?;
    let message = |error: Error| error.to_string();
    let (function, offer) = client.request(name, options.preference).map_err(message)?;
    let arguments = arguments(values, &offer.arguments)?;
    client.activate(function).map_err(message)?;
    let mut body = Vec::new();
    match options.body.as_deref() {
        None => {}
        Some("-") => {
            let read = std::io::stdin().read_to_end(&mut body);
            read.map_err(|e| e.to_string())?;
        }
        Some(file) => body = std::fs::read(file).map_err(|e| format!("{file}: {e}"))?,
    }
    let values = Values {
        arguments: &arguments,
        body: &body,
        body_codec: options.body_codec,
        answer_codec: options.answer_codec,
    };
    let mut answer = Vec::new();
    if options.command == "time" {
        let times = times(client, function, &values, options).map_err(message)?;
        println!("{times}");
    } else {
        let began = Instant::now();
        client.set(function, &values).map_err(message)?;
        client.get(function, None, &mut answer).map_err(message)?;
        if options.verbose {
            let (how, took) = (offer.implementation, began.elapsed());
            eprintln!("{name}: {how:?}, {took:?}");
        }
    }
    client.release(function).map_err(message)?;
    std::io::stdout()
        .write_all(&answer)
        .map_err(|e| e.to_string())
}

/// Measures sequential calls, each from just before `set` to just after `get`.
fn times(
    client: &mut Client,
    function: baltra_vguest::client::Function,
    values: &Values,
    options: &Options,
) -> Result<String, Error> {
    let mut answer = Vec::new();
    let mut once = |client: &mut Client| {
        answer.clear();
        client.set(function, values)?;
        client.get(function, None, &mut answer)
    };
    for _ in 0..options.calls.min(100) {
        once(client)?;
    }
    let mut times = Vec::with_capacity(options.calls as usize);
    let began = Instant::now();
    for _ in 0..options.calls {
        if !options.idle.is_zero() {
            std::thread::sleep(options.idle);
        }
        let started = Instant::now();
        once(client)?;
        times.push(started.elapsed().as_nanos() as u64);
    }
    let total_s = began.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| {
        let last = times.len().saturating_sub(1);
        times
            .get((last as f64 * share) as usize)
            .copied()
            .unwrap_or(0) as f64
            / 1e3
    };
    let (min, p50, p90, p99) = (at(0.0), at(0.5), at(0.9), at(0.99));
    let calls = options.calls;
    Ok(format!(
        "{{\"calls\": {calls}, \"total_s\": {total_s:.6}, \"min_us\": {min:.3}, \"p50_us\": {p50:.3}, \"p90_us\": {p90:.3}, \"p99_us\": {p99:.3}}}"
    ))
}

/// Converts values, in order or by name, to a URL's query.
fn arguments(values: &[String], names: &[String]) -> Result<String, String> {
    let mut query = String::new();
    let mut names = names.iter();
    for value in values {
        if !query.is_empty() {
            query.push('&');
        }
        if value.contains('=') {
            query.push_str(value);
            continue;
        }
        let name = names.next();
        let name =
            name.ok_or_else(|| format!("too many values: the function takes no '{value}'"))?;
        query.push_str(name);
        query.push('=');
        for byte in value.bytes() {
            match byte {
                b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' | b',' => {
                    query.push(byte.into());
                }
                _ => query.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    Ok(query)
}
