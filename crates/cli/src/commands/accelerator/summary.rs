//! A kernel's circuit in one line, and the words that the reports share.

use super::placement::Placed;
use baltra_board::accelerator::manifest::{Address, Argument, Kernel, Report};
use serde_json::{json, Value};

/// A kernel in one line.
pub fn summary(kernel: &Kernel) -> String {
    let report = &kernel.report;
    let interval = interval(report).map(|text| format!("II {text}, "));
    let interval = interval.unwrap_or_default();
    let mut line = format!(
        "kernel {}: {interval}{}, {}, {}, {} (estimate)",
        kernel.name,
        counted(report.loops.len() as u64, "pipeline"),
        luts(report.luts),
        counted(report.block_rams, "block RAM"),
        counted(report.multipliers, "multiplier")
    );
    if report.item_cycles_min > 0 {
        let cycles = counted(report.item_cycles_min, "cycle");
        line.push_str(&format!("; at least {cycles} per work-item"));
    }
    line
}

/// A placed kernel in one line.
pub fn placed(placed: &Placed) -> String {
    format!(
        "placed on {}: {} LUT, {}, {}, {:.1} MHz",
        placed.part,
        placed.luts,
        counted(placed.block_rams, "block RAM"),
        counted(placed.multipliers, "multiplier"),
        placed.mhz
    )
}

/// The shortest and the longest interval of the pipelines.
pub fn intervals(report: &Report) -> Option<(u64, u64)> {
    let all = || report.loops.iter().map(|each| each.interval);
    all().min().zip(all().max())
}

/// The intervals of the pipelines as text.
pub fn interval(report: &Report) -> Option<String> {
    intervals(report).map(|range| match range {
        (min, max) if min == max => min.to_string(),
        (min, max) => format!("{min} to {max}"),
    })
}

/// The numbers of the line that a report's JSON has no other field for.
pub fn add(report: &Report, json: &mut Value) {
    let (min, max) = intervals(report).unzip();
    json["pipelines"] = json!(report.loops.len());
    json["interval_min"] = json!(min);
    json["interval_max"] = json!(max);
}

/// A number of things.
pub fn counted(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{s}")
}

/// An estimate, which is not exact enough for more than a digit after the thousands.
pub fn luts(luts: u64) -> String {
    match luts {
        0..=999 => format!("{luts} LUT"),
        _ => format!("{:.1} k LUT", luts as f64 / 1e3),
    }
}

/// The size of an argument by value.
pub fn argument_bytes(argument: &Argument) -> String {
    match argument.address {
        Address::Private => argument.bytes.to_string(),
        _ => "-".to_owned(),
    }
}

/// The memory that an argument refers to.
pub fn space(argument: &Argument) -> &'static str {
    match argument.address {
        Address::Private => "by value",
        Address::Global => "global",
        Address::Constant => "constant",
        Address::Local => "local",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_board::accelerator::manifest::Loop;

    fn kernel(intervals: &[u64], numbers: (u64, u64, u64), item_cycles_min: u64) -> Kernel {
        let (luts, block_rams, multipliers) = numbers;
        let each = |&interval: &u64| Loop {
            interval,
            ..Loop::default()
        };
        Kernel {
            name: "k".into(),
            report: Report {
                loops: intervals.iter().map(each).collect(),
                luts,
                block_rams,
                multipliers,
                item_cycles_min,
                ..Report::default()
            },
            ..Kernel::default()
        }
    }

    #[test]
    fn a_line_has_the_interval_pipelines_area_and_cycles() {
        for (kernel, line) in [
            (
                kernel(&[1], (2_149, 3, 0), 1),
                "kernel k: II 1, 1 pipeline, 2.1 k LUT, 3 block RAMs, 0 multipliers (estimate); \
                 at least 1 cycle per work-item",
            ),
            (
                kernel(&[4, 1, 4], (999, 1, 1), 0),
                "kernel k: II 1 to 4, 3 pipelines, 999 LUT, 1 block RAM, 1 multiplier (estimate)",
            ),
            (
                kernel(&[], (1_000, 0, 16), 0),
                "kernel k: 0 pipelines, 1.0 k LUT, 0 block RAMs, 16 multipliers (estimate)",
            ),
        ] {
            assert_eq!(summary(&kernel), line);
        }
    }

    #[test]
    fn json_has_the_numbers_of_the_line() {
        let kernel = kernel(&[4, 1, 4], (2_149, 3, 0), 2);
        let mut json = serde_json::to_value(&kernel.report).unwrap();
        add(&kernel.report, &mut json);
        for (field, number) in [
            ("pipelines", 3),
            ("interval_min", 1),
            ("interval_max", 4),
            ("luts", 2_149),
            ("block_rams", 3),
            ("multipliers", 0),
            ("item_cycles_min", 2),
        ] {
            assert_eq!(json[field], number, "{field}");
        }
    }

    #[test]
    fn one_block_ram_is_singular_in_placed_numbers() {
        let line = placed(&Placed {
            part: "X".into(),
            luts: 5,
            flip_flops: 4,
            block_rams: 1,
            multipliers: 2,
            mhz: 98.76,
        });
        assert_eq!(
            line,
            "placed on X: 5 LUT, 1 block RAM, 2 multipliers, 98.8 MHz"
        );
    }
}
