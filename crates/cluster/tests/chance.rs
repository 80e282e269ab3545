//! Random programs print the same when they are synthesized and run on boards as when they are
//! processes. (`crates/hls` tests many more by interpreting their instructions.)

mod common;
#[path = "../../hls/src/tests/chance.rs"]
mod programs;

use baltra_cluster::Options;
use common::Bench;
use programs::Chance;

/// The output of the ranks, of a run that must succeed.
fn printed(bench: &Bench, map: &str) -> Vec<String> {
    let (outcome, lines) = bench.run(map, &Options::default()).unwrap();
    assert_eq!(outcome.code, 0, "{map}: {lines:?}");
    lines.into_iter().filter(|l| l.starts_with('[')).collect()
}

/// The environment variables FORMS_SEED and FORMS_ROUNDS set the seed and the number of programs.
#[test]
fn programs_of_chance_give_what_processes_give() {
    let number = |name: &str, other: u64| {
        std::env::var(name)
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(other)
    };
    let (seed, rounds) = (number("FORMS_SEED", 1), number("FORMS_ROUNDS", 1));
    let kernels: Vec<String> = (0..4)
        .map(|n| format!("{{name: k{n}, num: {n}}}"))
        .collect();
    let logical = format!("kernel: [{}]", kernels.join(", "));
    let hls: Vec<String> = (0..4).map(|n| format!("{{num: {n}, type: hls}}")).collect();
    let hls = format!("node: {{type: hw, kernel: [{}]}}", hls.join(", "));
    for round in seed..seed + rounds {
        let mut chance = Chance::new(round);
        let programs: Vec<(String, String)> = (0..4)
            .map(|n| (format!("k{n}.c"), chance.program(true)))
            .collect();
        let mut files: Vec<(&str, &str)> = programs
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        files.push(("logical.yaml", &logical));
        let bench = Bench::new(&files);
        let software = printed(&bench, "node: {type: sw, comm: shm, kernel: 0-3}");
        assert_eq!(software.len(), 4);
        let hardware = printed(&bench, &hls);
        if software != hardware {
            let kept = bench.dir.keep();
            panic!(
                "seed {round}, files in {}:\n{software:#?}\n{hardware:#?}",
                kept.display()
            );
        }
    }
}
