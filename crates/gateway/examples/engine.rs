//! Calls a second of the engine alone: no HTTP, one process, closed loops.
//!
//! ```console
//! $ baltra up && make -C apps/functions
//! $ cargo run --release -p baltra-gateway --example engine -- target/functions/empty
//! ```
//!
//! Each line: so many callers, each of which calls again as soon as it is answered, for some
//! seconds. Timed is [`Engine::call`] alone: requests are bound beforehand, answers are dropped.
//! `queue` and `device` are the means of what the answers say of themselves.

use anyhow::{bail, Context, Result};
use baltra_functions::{Body, Call, Function, Request};
use baltra_gateway::engine::{native_worker_main, Engine, Options, Trace};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const USAGE: &str = "engine FUNCTION-DIRECTORY [--endpoint ENDPOINT] [--seconds S] \
    [--callers N,N,…] [--body BYTES] [--query QUERY] [--threads N] [--lanes N] [--slots N] \
    [--native-threads N] [--sequential CALLS] [--reloads N]";

struct Arguments {
    function: PathBuf,
    options: Options,
    seconds: f64,
    callers: Vec<usize>,
    body: usize,
    query: String,
    threads: usize,
    sequential: usize,
    reloads: usize,
}

fn arguments() -> Result<Arguments> {
    let mut given = std::env::args().skip(1);
    let mut arguments = Arguments {
        function: PathBuf::new(),
        options: Options::default(),
        seconds: 3.0,
        callers: vec![1, 2, 8, 32, 128],
        body: 0,
        query: String::new(),
        threads: std::thread::available_parallelism()?.get(),
        sequential: 0,
        reloads: 0,
    };
    while let Some(word) = given.next() {
        if !word.starts_with("--") {
            arguments.function = word.into();
            continue;
        }
        let value = given.next().context(USAGE)?;
        match word.as_str() {
            "--endpoint" => arguments.options.endpoints = vec![value],
            "--seconds" => arguments.seconds = value.parse()?,
            "--callers" => {
                let numbers = value.split(',').map(str::parse);
                arguments.callers = numbers.collect::<Result<_, _>>()?;
            }
            "--body" => arguments.body = value.parse()?,
            "--query" => arguments.query = value,
            "--threads" => arguments.threads = value.parse()?,
            "--lanes" => arguments.options.lanes = value.parse()?,
            "--slots" => arguments.options.slots = value.parse()?,
            "--native-threads" => arguments.options.native_threads = value.parse()?,
            "--sequential" => arguments.sequential = value.parse()?,
            "--reloads" => arguments.reloads = value.parse()?,
            _ => bail!("{word}: {USAGE}"),
        }
    }
    if arguments.function.as_os_str().is_empty() {
        bail!("{USAGE}");
    }
    Ok(arguments)
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "native-worker") {
        return native_worker_main(&words[1..]);
    }
    let arguments = arguments()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.threads)
        .enable_all()
        .build()?;
    runtime.block_on(run(arguments))
}

async fn run(arguments: Arguments) -> Result<()> {
    let function = Arc::new(Function::load(&arguments.function)?);
    let engine = Engine::new(arguments.options).map_err(anyhow::Error::msg)?;
    engine.deploy(&function, 1).await;
    let begun = Instant::now();
    let cold = engine.warm(&function).await?;
    println!(
        "loaded in {:.1} ms: {cold:?}",
        begun.elapsed().as_secs_f64() * 1e3
    );
    // Given up and taken in again: what is known of the function makes it quicker.
    for _ in 0..arguments.reloads {
        tokio::time::sleep(Duration::from_millis(300)).await;
        engine.remove(&function);
        engine.deploy(&function, 0).await;
        let begun = Instant::now();
        let cold = engine.warm(&function).await?;
        println!(
            "again in {:.1} ms: {cold:?}",
            begun.elapsed().as_secs_f64() * 1e3
        );
    }
    let headers = http::HeaderMap::new();
    let request = Request {
        method: &http::Method::POST,
        path: "",
        query: &arguments.query,
        headers: &headers,
    };
    let body = Body::from(vec![b'a'; arguments.body]);
    let call = function.bind(&request, body)?;
    let first = measure(
        &engine,
        &function,
        &call,
        1,
        Duration::from_millis(200),
        usize::MAX,
    )
    .await?;
    println!("first: {:.1} µs", first.times_ns[0] as f64 / 1e3);
    if arguments.sequential > 0 {
        let long = Duration::from_secs(3600);
        let ran = measure(&engine, &function, &call, 1, long, arguments.sequential).await?;
        let us = |q| ran.quantile(q) / 1e3;
        println!(
            "{} sequential calls: minimum {:.1} µs, p50 {:.1}, p95 {:.1} (minimum to p95 {:.1}), p99 {:.1}",
            ran.times_ns.len(), us(0.0), us(0.5), us(0.95), us(0.95) - us(0.0), us(0.99)
        );
    }
    println!("callers   calls/s   p50 µs   p95 µs   p99 µs   queue µs   device µs   batch");
    for callers in arguments.callers {
        let time = Duration::from_secs_f64(arguments.seconds);
        let ran = measure(&engine, &function, &call, callers, time, usize::MAX).await?;
        let count = ran.times_ns.len() as f64;
        println!(
            "{callers:7} {:9.0} {:8.1} {:8.1} {:8.1} {:10.1} {:11.1} {:7.1}",
            count / ran.took.as_secs_f64(),
            ran.quantile(0.5) / 1e3,
            ran.quantile(0.95) / 1e3,
            ran.quantile(0.99) / 1e3,
            ran.queue_ns as f64 / count / 1e3,
            ran.device_ns as f64 / count / 1e3,
            ran.batch as f64 / count,
        );
    }
    engine.remove(&function);
    Ok(())
}

#[derive(Default)]
struct Ran {
    times_ns: Vec<u64>,
    took: Duration,
    queue_ns: u64,
    device_ns: u64,
    batch: u64,
}

impl Ran {
    fn quantile(&self, q: f64) -> f64 {
        let last = self.times_ns.len().saturating_sub(1) as f64;
        self.times_ns
            .get((last * q) as usize)
            .map_or(f64::NAN, |ns| *ns as f64)
    }
}

/// `callers` closed loops for `time`, or `calls` calls each; times come sorted, the first call of
/// the first caller aside when there is one only.
async fn measure(
    engine: &Engine,
    function: &Arc<Function>,
    call: &Call,
    callers: usize,
    time: Duration,
    calls: usize,
) -> Result<Ran> {
    let begun = Instant::now();
    let until = begun + time;
    let mut tasks = Vec::new();
    for _ in 0..callers {
        let (engine, function, call) = (engine.clone(), function.clone(), call.clone());
        tasks.push(tokio::spawn(async move {
            let mut ran = Ran::default();
            while Instant::now() < until && ran.times_ns.len() < calls {
                let call = call.clone();
                let begun = Instant::now();
                let deadline = begun + Duration::from_secs(60);
                let reply = engine
                    .call(&function, call, deadline, &Trace::default())
                    .await?;
                ran.times_ns.push(begun.elapsed().as_nanos() as u64);
                ran.queue_ns += reply.timing.queue_ns;
                ran.device_ns += reply.timing.device_ns;
                ran.batch += u64::from(reply.batch);
            }
            anyhow::Ok(ran)
        }));
    }
    let mut all = Ran::default();
    for task in tasks {
        let ran = task.await??;
        all.times_ns.extend(ran.times_ns);
        all.queue_ns += ran.queue_ns;
        all.device_ns += ran.device_ns;
        all.batch += ran.batch;
    }
    all.took = begun.elapsed();
    if time > Duration::from_millis(200) {
        all.times_ns.sort_unstable();
    }
    Ok(all)
}
