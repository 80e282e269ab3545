//! `baltra demo`: an OpenCL program natively, through Baltra, and as four copies at once; then the
//! same kernel as a function over HTTP and as a circuit. Compares every result with the native one. The daemons are
//! the demonstration's own, and end with it; their files are in a temporary directory.

mod hardware;
mod picture;
pub mod program;

use super::function::deploy;
use super::library;
use super::run::Signals;
use crate::args::{Config, Demo, Door};
use crate::configuration::{self, DaemonConfiguration};
use crate::control::Control;
use crate::daemons::{Running, Tie};
use crate::exit::Exit;
use crate::http::{As, Call, Gateway};
use crate::output;
use anyhow::{bail, ensure, Context, Result};
use baltra_api::control as proto;
use baltra_manager::options::PathOptions;
use http::header::{HeaderValue, ACCEPT};
use http::Method;
use program::{median, Report};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Clients of the demonstration.
const TENANTS: [&str; 4] = ["ada", "bea", "cleo", "dora"];
/// Alternations of native and shared runs.
const ROUNDS: usize = 3;
/// The manager updates its usage accounts every second.
const ACCOUNTS: Duration = Duration::from_millis(1_200);
/// Files of the function.
const FUNCTION: [(&str, &str); 2] = [
    (
        "function.yaml",
        include_str!("../../../../apps/functions/sobel/function.yaml"),
    ),
    (
        "sobel.cl",
        include_str!("../../../../apps/functions/sobel/sobel.cl"),
    ),
];

/// Runs the demonstration; returns the process's exit code.
pub fn demo(args: &Demo) -> Result<ExitCode> {
    let interrupted = watch_signals()?;
    let home = tempfile::Builder::new()
        .prefix("baltra-demo-")
        .tempdir()
        .context("cannot create a temporary directory (set 'TMPDIR')")?;
    let result = Demonstration::prepare(args, home.path(), interrupted.clone())
        .and_then(|mut demonstration| demonstration.show(args.output.as_deref()));
    let left = home.path().display().to_string();
    if let Err(error) = home.close() {
        eprintln!("cannot remove {left}: {error}");
    }
    if interrupted.load(Ordering::Relaxed) {
        eprintln!("baltra: interrupted; the daemons have ended");
        return Ok(Exit::Interrupted.into());
    }
    result.map(|()| ExitCode::SUCCESS)
}

/// Catches SIGINT and SIGTERM, so that the daemons end before this process. The result becomes true
/// on either.
fn watch_signals() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut signals = {
        let _context = runtime.enter();
        Signals::new()?
    };
    let flag = interrupted.clone();
    std::thread::spawn(move || {
        runtime.block_on(signals.any());
        flag.store(true, Ordering::Relaxed);
    });
    Ok(interrupted)
}

/// The picture, the daemons and their directories.
struct Demonstration {
    home: PathBuf,
    paths: PathOptions,
    library: PathBuf,
    /// The driver and the selector of the device.
    driver: (String, String),
    device: String,
    width: u32,
    height: u32,
    pixels: Vec<u8>,
    daemons: Vec<Running>,
    interrupted: Arc<AtomicBool>,
    began: Instant,
}

impl Drop for Demonstration {
    fn drop(&mut self) {
        self.daemons.iter_mut().rev().for_each(Running::stop);
    }
}

impl Demonstration {
    /// Starts the daemons.
    fn prepare(args: &Demo, home: &Path, interrupted: Arc<AtomicBool>) -> Result<Demonstration> {
        let began = Instant::now();
        let picture = picture::load(args.picture.as_deref())?;
        let library = library::find()?;
        step(
            began,
            "Starting Baltra on this host, in a directory of its own",
        );
        let (configuration, arguments) = configure(&args.set, home)?;
        let daemons = super::up::start(&configuration, &arguments, Tie::Leashed)?;
        let mut demonstration = Demonstration {
            home: home.to_owned(),
            paths: configuration.manager.paths.clone(),
            library,
            driver: Default::default(),
            device: String::new(),
            width: picture.width(),
            height: picture.height(),
            pixels: picture.into_raw(),
            daemons,
            interrupted,
            began,
        };
        demonstration.choose_device()?;
        std::fs::write(home.join("photo"), &demonstration.pixels)?;
        Ok(demonstration)
    }

    /// Takes the first device that serves, and adds the tenants.
    fn choose_device(&mut self) -> Result<()> {
        let mut control = Control::connect(&self.paths)?;
        let devices =
            control.call(|mut c| async move { c.devices(proto::DevicesRequest {}).await })?;
        let reasons: Vec<_> = devices.devices.iter().map(|d| d.reason.clone()).collect();
        let device = devices.devices.into_iter().find(|d| d.state == "ready");
        let device = device.with_context(|| {
            let reasons = reasons.join("; ");
            format!("no device is ready: {reasons} (`baltra doctor` lists drivers and devices)")
        })?;
        println!(
            "{}: {} ({} units, {})",
            device.name,
            device.model,
            device.compute_units,
            output::bytes(device.memory_bytes)
        );
        (self.driver, self.device) = ((device.driver, device.select), device.name);
        for tenant in TENANTS {
            let request = proto::TenantAddRequest {
                name: tenant.to_owned(),
                weight: 1,
                ..proto::TenantAddRequest::default()
            };
            control.call(|mut c| async move { c.tenant_add(request).await })?;
        }
        Ok(())
    }

    fn step(&self, text: &str) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        step(self.began, text);
        Ok(())
    }

    fn show(&mut self, keep: Option<&Path>) -> Result<()> {
        self.step("The same program, alternately native and through Baltra")?;
        let (native, shared) = self.alternate()?;
        println!("the two pictures are identical, byte for byte");
        print_medians((self.width, self.height), native, shared);
        self.step("Four copies at once, each a tenant of its own")?;
        self.four()?;
        self.step("The kernel as a function over HTTP")?;
        self.call()?;
        self.step("The kernel as a circuit, in simulation")?;
        self.hardware()?;
        if let Some(dir) = keep {
            self.keep(dir)?;
        }
        step(self.began, "Stopping Baltra");
        self.daemons.iter_mut().rev().for_each(Running::stop);
        println!("nothing is left running; to keep Baltra running: baltra up");
        Ok(())
    }

    /// The medians of native and shared runs, milliseconds, after a comparison of their pictures.
    fn alternate(&self) -> Result<(f64, f64)> {
        let (mut native, mut shared) = (Vec::new(), Vec::new());
        for round in 1..=ROUNDS {
            native.push(self.finish(self.start(None, "native")?)?.median_ms);
            let through = self.start(Some(TENANTS[0]), "shared")?;
            shared.push(self.finish(through)?.median_ms);
            self.compare("shared")?;
            println!(
                "round {round}: native {:.2} ms, through Baltra {:.2} ms",
                native[round - 1],
                shared[round - 1]
            );
        }
        Ok((median(&mut native), median(&mut shared)))
    }

    /// Starts the program: natively, or for a tenant of Baltra.
    fn start(&self, tenant: Option<&str>, name: &str) -> Result<Child> {
        let (library, select) = match tenant {
            None => (self.driver.0.clone(), self.driver.1.as_str()),
            Some(_) => (self.library.display().to_string(), ""),
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        self.program(&mut command, &library, name);
        command.args(["--select", select]);
        self.own_caches(&mut command);
        if let Some(tenant) = tenant {
            let socket = self.paths.session_socket();
            command
                .env("BALTRA_ENDPOINT", format!("unix:{}", socket.display()))
                .env("BALTRA_DEVICE", &self.device)
                .env("BALTRA_TENANT", tenant)
                .env_remove("BALTRA_TOKEN");
        }
        command.spawn().context("cannot start the program")
    }

    /// Adds the program and its arguments, for a picture `name` that it makes with an OpenCL library.
    fn program<'a>(&self, command: &'a mut Command, library: &str, name: &str) -> &'a mut Command {
        command
            .args(["demo-program", "--library", library])
            .args(["--width", &self.width.to_string()])
            .args(["--height", &self.height.to_string()])
            .arg("--input")
            .arg(self.home.join("photo"))
            .arg("--edges")
            .arg(self.home.join(name))
    }

    /// Drivers keep compiled kernels in caches; these end with the demonstration.
    fn own_caches(&self, command: &mut Command) {
        for variable in ["HOME", "XDG_CACHE_HOME", "TMPDIR", "POCL_CACHE_DIR"] {
            command.env(variable, &self.home);
        }
    }

    /// The report of the program, after its end.
    fn finish(&self, child: Child) -> Result<Report> {
        let output = child.wait_with_output()?;
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Self::report(&output)
    }

    fn report(output: &Output) -> Result<Report> {
        ensure!(
            output.status.success(),
            "the program ended ({}); see its error above",
            output.status
        );
        serde_json::from_slice(&output.stdout).context("the program printed no report")
    }

    /// Fails unless a picture equals the native one.
    fn compare(&self, name: &str) -> Result<()> {
        let native = std::fs::read(self.home.join("native"))?;
        let differing = std::fs::read(self.home.join(name))?
            .iter()
            .zip(&native)
            .position(|(a, b)| a != b);
        match differing {
            None => Ok(()),
            Some(at) => bail!("the picture '{name}' differs from the native one at byte {at}"),
        }
    }

    fn four(&self) -> Result<()> {
        let before = self.usage()?;
        let began = Instant::now();
        let programs: Result<Vec<_>> = TENANTS
            .iter()
            .map(|tenant| self.start(Some(tenant), tenant))
            .collect();
        let reports: Result<Vec<_>> = programs?
            .into_iter()
            .map(|child| self.finish(child))
            .collect();
        let (reports, wall) = (reports?, began.elapsed().as_secs_f64());
        TENANTS.iter().try_for_each(|tenant| self.compare(tenant))?;
        println!("all four pictures equal the native one");
        std::thread::sleep(ACCOUNTS);
        let after = self.usage()?;
        let mut table = output::Table::new(&["TENANT", ">MEDIAN", ">DEVICE BUSY", ">OF WALL TIME"]);
        for (tenant, report) in TENANTS.iter().zip(reports) {
            let busy = |usage: &[proto::Usage]| -> u64 {
                let own = usage.iter().filter(|u| u.tenant == *tenant);
                own.map(|u| u.busy_ns).sum()
            };
            let busy_s = busy(&after).saturating_sub(busy(&before)) as f64 / 1e9;
            table.row([
                (*tenant).to_owned(),
                format!("{:.2} ms", report.median_ms),
                format!("{busy_s:.2} s"),
                format!("{:.0} %", 100.0 * busy_s / wall),
            ]);
        }
        table.print();
        Ok(())
    }

    fn usage(&self) -> Result<Vec<proto::Usage>> {
        let request = proto::UsageRequest::default();
        let mut control = Control::connect(&self.paths)?;
        let reply = control.call(|mut c| async move { c.usage(request).await })?;
        Ok(reply.usage)
    }

    /// Deploys the kernel as a function, and compares its result for one color with the native one.
    fn call(&self) -> Result<()> {
        let directory = self.home.join("sobel");
        std::fs::create_dir(&directory)?;
        for (name, text) in FUNCTION {
            std::fs::write(directory.join(name), text)?;
        }
        let gateway = Gateway::new(&Door::default(), &self.paths)?;
        deploy::deploy(&gateway, &[directory], false)?;
        let native = std::fs::read(self.home.join("native"))?;
        let (expected, body) = (picture::green(&native), picture::green(&self.pixels));
        let path = format!(
            "/function/sobel?width={}&height={}",
            self.width, self.height
        );
        for round in ["first", "second"] {
            let call = Call::new(Method::POST, &path)
                .header(ACCEPT, HeaderValue::from_static("application/octet-stream"))
                .bytes(body.clone());
            let began = Instant::now();
            let edges = gateway.ask(As::Caller, call)?;
            let ms = began.elapsed().as_secs_f64() * 1e3;
            ensure!(
                edges == expected,
                "the function's result differs from the native one"
            );
            println!("{round} call: {ms:.1} ms, the bytes equal the native ones");
        }
        Ok(())
    }

    fn keep(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        for (file, name) in [
            ("photo", "photo.png"),
            ("native", "native.png"),
            ("shared", "baltra.png"),
        ] {
            let pixels = std::fs::read(self.home.join(file))?;
            picture::save(&dir.join(name), self.width, self.height, &pixels)?;
        }
        println!(
            "\npictures: photo.png, native.png and baltra.png in {}",
            dir.display()
        );
        Ok(())
    }
}

/// The configuration of the daemons, and their arguments.
fn configure(set: &[String], home: &Path) -> Result<(DaemonConfiguration, Vec<String>)> {
    let mut assignments: Vec<String> = [
        "metrics.address=off",
        "registry.address=auto",
        "registry.metrics=",
        "gateway.address=auto",
        "gateway.grpc_address=",
    ]
    .map(String::from)
    .into();
    assignments.extend(set.iter().cloned());
    let config = Config {
        config: None,
        set: assignments.clone(),
        state_dir: Some(home.join("state")),
    };
    let configuration = configuration::daemon_configuration(&config, Some(&home.join("run")))?;
    let flags = assignments.into_iter().flat_map(|s| ["--set".into(), s]);
    Ok((configuration, flags.collect()))
}

fn step(began: Instant, text: &str) {
    let colors = std::io::stdout().is_terminal();
    let line = format!("{:5.1} s  {text}", began.elapsed().as_secs_f64());
    println!("\n{}", output::paint(colors, "1", &line));
}

fn print_medians((width, height): (u32, u32), native: f64, shared: f64) {
    let added = shared - native;
    println!("\nSobel {width}x{height}: medians of write, kernel and read");
    println!("  native           {native:8.2} ms");
    println!("  through Baltra   {shared:8.2} ms");
    println!(
        "  added            {added:+8.2} ms  ({:+.1} %)",
        100.0 * added / native
    );
}
