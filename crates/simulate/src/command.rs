//! `baltra simulate`.

use crate::scenario::Scenario;
use crate::world::run;
use anyhow::Context;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// Simulate a cluster and its load with the registry's allocator and the manager's gate
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  baltra simulate bench/simulate/sobel.yaml
  baltra simulate bench/simulate/sobel.yaml --case high --json
  baltra simulate bench/simulate/bursty.yaml --seed 7")]
pub struct Args {
    /// The scenario, YAML
    #[arg(value_name = "SCENARIO.yaml")]
    pub scenario: PathBuf,
    /// Seed, to replay a run [default: the scenario's, or one drawn and printed]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Run only this case of the scenario
    #[arg(long, value_name = "NAME")]
    pub case: Option<String>,
    /// Print one JSON document: a list of reports
    #[arg(long)]
    pub json: bool,
}

/// Runs a scenario, or each of its cases, and prints the reports.
///
/// # Errors
/// The scenario cannot be read, is invalid, or lacks the case.
pub fn command(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    let path = &args.scenario;
    let scenario = Scenario::load(path).with_context(|| format!("in {}", path.display()))?;
    let seed = match args.seed.or(scenario.seed) {
        Some(seed) => seed,
        // Short enough to type.
        None => getrandom::u64().context("cannot get a random seed: set one with --seed")? >> 32,
    };
    let mut runs = scenario.runs();
    if let Some(case) = &args.case {
        let names: Vec<String> = runs.iter().map(|(name, _)| name.clone()).collect();
        runs.retain(|(name, _)| name == case);
        anyhow::ensure!(
            !runs.is_empty(),
            "unknown case '{case}' in {}: use one of {}",
            path.display(),
            names.join(", ")
        );
    }
    let mut reports = Vec::new();
    for (n, (_, one)) in runs.iter().enumerate() {
        let begun = Instant::now();
        let report = run(one, seed);
        if args.json {
            reports.push(report);
            continue;
        }
        let before = if n > 0 { "\n" } else { "" };
        write!(out, "{before}{}", report.text())?;
        let took = begun.elapsed().as_secs_f64();
        writeln!(out, "{} events in {took:.2} s", report.events)?;
    }
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &reports)?;
        writeln!(out)?;
    }
    Ok(())
}
