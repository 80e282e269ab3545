//! An image's kernels as a page: one file without scripts, which needs nothing else.

use super::html::Html;
use super::placement::Placed;
use super::summary::{argument_bytes, counted, interval, luts, space};
use crate::output;
use baltra_board::accelerator::manifest::{Area, Kernel, Loop, OnChip};
use baltra_hls::opencl::device;
use std::collections::BTreeMap;

const STYLE: &str = include_str!("page.css");
/// Forbids everything that could come from elsewhere, also if a text were not escaped.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
/// Rows of the longest table: an image has up to 4 MiB of them.
const ROWS_MAX: usize = 1000;
/// Part of an iteration between two lines of a schedule below which they are not drawn.
const GRID_MIN: f64 = 0.02;

/// The content of a page.
#[derive(Debug)]
pub struct Page<'a> {
    /// The image's file name.
    pub title: &'a str,
    /// Its kernels.
    pub kernels: &'a [Kernel],
    /// By kernel: the results of its placement.
    pub placed: &'a [Option<Placed>],
    /// The program, if it is at hand.
    pub source: Option<&'a Source>,
}

/// A program's source.
#[derive(Debug)]
pub struct Source {
    /// The file's name.
    pub name: String,
    /// Its lines.
    pub lines: Vec<String>,
    /// Whether the image was built from it; `None`: the image does not have a checksum of its
    /// source.
    pub matches: Option<bool>,
}

impl Page<'_> {
    /// The page's text.
    pub fn text(&self) -> String {
        let mut html = Html::document();
        html.element("html", &[("lang", "en")], |html| {
            html.element("head", &[], |html| self.head(html));
            html.element("body", &[], |html| self.body(html));
        });
        html.into_text()
    }

    fn head(&self, html: &mut Html) {
        html.empty("meta", &[("charset", "utf-8")]);
        html.empty(
            "meta",
            &[
                ("http-equiv", "Content-Security-Policy"),
                ("content", POLICY),
            ],
        );
        let viewport = "width=device-width, initial-scale=1";
        html.empty("meta", &[("name", "viewport"), ("content", viewport)]);
        html.leaf("title", &[], &format!("{} – kernels", self.title));
        html.element("style", &[], |html| html.raw(STYLE));
    }

    fn body(&self, html: &mut Html) {
        html.leaf("h1", &[], self.title);
        let about = "Area is an estimate for ECP5. Cycles are those of the circuit's clock.";
        html.leaf("p", &[("class", "muted")], about);
        if self.kernels.len() > 1 {
            html.element("p", &[], |html| self.contents(html));
        }
        for (at, kernel) in self.kernels.iter().enumerate() {
            let placed = self.placed.get(at).and_then(Option::as_ref);
            html.element("section", &[("id", &format!("kernel-{at}"))], |html| {
                self.kernel(html, kernel, placed);
            });
        }
        if let Some(source) = self.source {
            html.element("section", &[], |html| self.listing(html, source));
        }
    }

    /// Links to the kernels.
    fn contents(&self, html: &mut Html) {
        for (at, kernel) in self.kernels.iter().enumerate() {
            html.leaf("a", &[("href", &format!("#kernel-{at}"))], &kernel.name);
            html.text(" ");
        }
    }

    fn kernel(&self, html: &mut Html, kernel: &Kernel, placed: Option<&Placed>) {
        html.element("h2", &[], |html| {
            html.text("kernel ");
            html.leaf("code", &[], &kernel.name);
        });
        numbers(html, kernel, placed);
        arguments(html, kernel);
        channels(html, kernel);
        html.leaf("h3", &[], "Loops");
        self.loops(html, &kernel.report.loops);
        html.leaf("h3", &[], "Memories on the chip");
        self.memories(html, &kernel.report.memories);
        if !kernel.report.area.is_empty() {
            html.leaf("h3", &[], "Estimated area by part");
            area(html, &kernel.report.area);
        }
    }

    fn loops(&self, html: &mut Html, loops: &[Loop]) {
        if loops.is_empty() {
            let text = "Not a loop of the kernel is a pipeline.";
            html.leaf("p", &[("class", "muted")], text);
            return;
        }
        let groups = groups(loops);
        let heads = [
            ("", "Line"),
            ("number", "Loops"),
            ("", "Iterations"),
            ("number", "Interval"),
            ("number", "Cycles"),
            ("", "Limited by"),
        ];
        self.table(html, &heads, &groups, |html, (each, count)| {
            html.element("td", &[], |html| self.line(html, each.line));
            number(html, &count.to_string());
            html.leaf("td", &[], iterations(each));
            number(html, &each.interval.to_string());
            number(html, &known(each.steps));
            let limit = match (each.limit.as_str(), each.interval) {
                ("", 0 | 1) => "none",
                ("", _) => "unknown",
                (limit, _) => limit,
            };
            html.leaf("td", &[], limit);
            each.line
        });
        let with_stages = groups.iter().filter(|(each, _)| !each.stages.is_empty());
        for (each, count) in with_stages.take(ROWS_MAX) {
            self.schedule(html, each, *count);
        }
    }

    /// The steps of a loop, by line.
    fn schedule(&self, html: &mut Html, each: &Loop, count: usize) {
        let last = each.stages.iter().map(|stage| stage.last).max();
        let steps = each.steps.max(last.unwrap_or(0).saturating_add(1));
        let part = |number: u64| (number as f64 / steps as f64).clamp(0.0, 1.0);
        html.element("details", &[("open", "")], |html| {
            html.element("summary", &[], |html| {
                match count {
                    1 => html.text("Schedule of the loop at "),
                    _ => html.text(&format!("Schedule of each of the {count} loops at ")),
                }
                self.line(html, each.line);
                let begun = each.steps.div_ceil(each.interval.max(1));
                let text = format!(
                    ": an iteration takes {}, the next one begins after {}; up to {} at a time",
                    counted(steps, "cycle"),
                    counted(each.interval, "cycle"),
                    counted(begun, "iteration"),
                );
                html.text(&text);
            });
            let heads = [("", "Line"), ("number", "Cycles"), ("bars", "")];
            let grid = grid(part(each.interval));
            self.table(html, &heads, &each.stages, |html, stage| {
                let to = stage.last.max(stage.first);
                html.element("td", &[], |html| self.line(html, stage.line));
                number(html, &range(stage.first, to));
                let length = part((to - stage.first).saturating_add(1));
                let from = part(stage.first).min(1.0 - length);
                html.element("td", &[("class", "bars steps")], |html| {
                    html.element("span", &[("class", "track"), ("style", &grid)], |html| {
                        bar(html, from, length);
                    });
                });
                stage.line
            });
        });
    }

    /// A table whose rows end with a line of the source, if that is at hand; `row` returns its
    /// number.
    fn table<T>(
        &self,
        html: &mut Html,
        heads: &[Head],
        items: &[T],
        row: impl Fn(&mut Html, &T) -> u64,
    ) {
        let mut heads = heads.to_vec();
        heads.extend(self.source.map(|_| ("", "Source")));
        table(html, &heads, items, |html, item| {
            let line = row(html, item);
            if self.source.is_some() {
                let text = self.source_line(line).unwrap_or_default().trim();
                html.element("td", &[], |html| {
                    html.leaf("div", &[("class", "line mono")], text);
                });
            }
        });
    }

    fn memories(&self, html: &mut Html, memories: &[OnChip]) {
        if memories.is_empty() {
            let text = "The kernel has none.";
            html.leaf("p", &[("class", "muted")], text);
            return;
        }
        let heads = [
            ("", "Name"),
            ("", "Kind"),
            ("number", "Size"),
            ("number", "Banks"),
            ("number", "Bits of a word"),
            ("", "Accesses by line"),
        ];
        table(html, &heads, memories, |html, memory| {
            html.element("td", &[], |html| html.leaf("code", &[], &memory.name));
            html.leaf("td", &[], &memory.kind);
            number(html, &output::bytes(memory.bytes));
            number(html, &memory.banks.to_string());
            number(html, &known(memory.word_bits));
            html.element("td", &[("class", "list")], |html| {
                self.accesses(html, memory)
            });
        });
    }

    fn accesses(&self, html: &mut Html, memory: &OnChip) {
        // Of values that the compiler keeps across barriers, or in an image of an older version.
        if memory.accesses.is_empty() {
            html.text("–");
        }
        for (at, access) in memory.accesses.iter().take(ROWS_MAX).enumerate() {
            if at > 0 {
                html.text(", ");
            }
            self.line(html, access.line);
            let all = [(access.loads, "load"), (access.stores, "store")];
            let all = all.into_iter().filter(|(number, _)| *number > 0);
            let all: Vec<_> = all.map(|(number, noun)| counted(number, noun)).collect();
            html.text(&format!(" ({})", all.join(", ")));
        }
    }

    /// A line's number, with a link if the page has the line.
    fn line(&self, html: &mut Html, line: u64) {
        let text = format!("line {line}");
        match (line, self.source_line(line)) {
            (0, _) => html.text("unknown line"),
            (_, Some(_)) => html.leaf("a", &[("href", &format!("#L{line}"))], &text),
            (_, None) => html.text(&text),
        }
    }

    fn source_line(&self, line: u64) -> Option<&str> {
        let at = usize::try_from(line.checked_sub(1)?).ok()?;
        self.source?.lines.get(at).map(String::as_str)
    }

    /// The source with the pipelines that begin at each line.
    fn listing(&self, html: &mut Html, source: &Source) {
        html.element("h2", &[], |html| html.leaf("code", &[], &source.name));
        let warning = match source.matches {
            Some(true) => None,
            Some(false) => Some("The image was built from another version of this file."),
            None => Some("The image has no checksum of its source: lines may differ."),
        };
        if let Some(warning) = warning {
            html.leaf("p", &[("class", "note")], warning);
        }
        let mut notes: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for kernel in self.kernels {
            for (each, _) in groups(&kernel.report.loops) {
                let note = format!("{}: II {}", kernel.name, each.interval);
                let notes = notes.entry(each.line).or_default();
                if notes.last() != Some(&note) {
                    notes.push(note);
                }
            }
        }
        html.element("div", &[("class", "card")], |html| {
            html.element("table", &[("class", "source mono")], |html| {
                for (line, text) in (1_u64..).zip(&source.lines) {
                    html.element("tr", &[("id", &format!("L{line}"))], |html| {
                        html.leaf("td", &[], &line.to_string());
                        html.leaf("td", &[], text);
                        let notes = notes.get(&line).map(|all| all.join("; "));
                        html.leaf("td", &[], &notes.unwrap_or_default());
                    });
                }
            });
        });
    }
}

/// The numbers of a kernel.
fn numbers(html: &mut Html, kernel: &Kernel, placed: Option<&Placed>) {
    let report = &kernel.report;
    let share = |used: u64, all: u64| format!("{:.1} %", 100.0 * used as f64 / all as f64);
    html.element("dl", &[], |html| {
        let mut item = |name: &'static str, value: &str, more: &str| {
            html.element("div", &[], |html| {
                html.leaf("dt", &[], name);
                html.element("dd", &[], |html| {
                    html.text(value);
                    html.text(" ");
                    html.leaf("span", &[], more);
                });
            });
        };
        let interval = interval(report).unwrap_or("–".to_owned());
        item("Initiation interval", &interval, "cycles");
        item("Pipelines", &report.loops.len().to_string(), "");
        if report.item_cycles_min > 0 {
            let cycles = format!("≥ {}", report.item_cycles_min);
            item("Cycles per work-item", &cycles, "without waits for memory");
        }
        let lut_share = share(report.luts, device::LUTS);
        item(
            "LUT, estimated",
            luts(report.luts).trim_end_matches(" LUT"),
            &lut_share,
        );
        let block_rams = share(report.block_rams, device::BLOCK_RAMS);
        item(
            "Block RAMs, estimated",
            &report.block_rams.to_string(),
            &block_rams,
        );
        let multipliers = share(report.multipliers, device::MULTIPLIERS);
        item(
            "Multipliers, estimated",
            &report.multipliers.to_string(),
            &multipliers,
        );
        if let Some([x, y, z]) = kernel.required_work_group_size {
            item("Work-group size", &format!("{x} × {y} × {z}"), "required");
        }
        for (bytes, name) in [
            (kernel.local_bytes, "Local memory"),
            (kernel.private_bytes, "Private memory"),
        ] {
            if bytes > 0 {
                item(name, &output::bytes(bytes), "");
            }
        }
        if let Some(placed) = placed {
            item("Clock, placed", &format!("{:.1}", placed.mhz), "MHz");
            let lut_share = share(placed.luts, device::LUTS);
            item("LUT, placed", &placed.luts.to_string(), &lut_share);
            item("Flip-flops, placed", &placed.flip_flops.to_string(), "");
            item("Block RAMs, placed", &placed.block_rams.to_string(), "");
            item("Multipliers, placed", &placed.multipliers.to_string(), "");
            item("Placed on", &placed.part, "");
        }
    });
    let text = format!("Shares are of {}.", device::NAME);
    html.leaf("p", &[("class", "muted")], &text);
}

fn arguments(html: &mut Html, kernel: &Kernel) {
    if kernel.arguments.is_empty() {
        return;
    }
    html.leaf("h3", &[], "Arguments");
    let heads = [
        ("", "Name"),
        ("", "Type"),
        ("", "Memory"),
        ("number", "Bytes"),
    ];
    table(html, &heads, &kernel.arguments, |html, argument| {
        html.element("td", &[], |html| html.leaf("code", &[], &argument.name));
        html.element("td", &[], |html| {
            html.leaf("code", &[], &argument.type_name)
        });
        html.leaf("td", &[], space(argument));
        number(html, &argument_bytes(argument));
    });
}

fn channels(html: &mut Html, kernel: &Kernel) {
    if kernel.channels.is_empty() {
        return;
    }
    html.leaf("h3", &[], "Channels");
    let heads = [
        ("", "Name"),
        ("", "Direction"),
        ("number", "Bytes of an element"),
        ("number", "Depth"),
    ];
    table(html, &heads, &kernel.channels, |html, channel| {
        html.element("td", &[], |html| html.leaf("code", &[], &channel.name));
        html.leaf("td", &[], if channel.writes { "written" } else { "read" });
        number(html, &channel.bytes.to_string());
        number(html, &channel.depth.to_string());
    });
}

fn area(html: &mut Html, parts: &[Area]) {
    let mut parts: Vec<&Area> = parts.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse((part.luts, part.block_rams, part.multipliers)));
    let sum = parts.iter().map(|part| part.luts as f64).sum::<f64>();
    let heads = [
        ("", "Part"),
        ("number", "Instances"),
        ("number", "LUT"),
        ("bars", "Share of the LUTs"),
        ("number", "Block RAMs"),
        ("number", "Multipliers"),
    ];
    table(html, &heads, &parts, |html, part| {
        html.leaf("td", &[], &part.name);
        number(html, &part.count.to_string());
        number(html, &part.luts.to_string());
        html.element("td", &[("class", "bars")], |html| {
            html.element("span", &[("class", "track")], |html| {
                bar(html, 0.0, part.luts as f64 / sum.max(1.0));
            });
        });
        number(html, &part.block_rams.to_string());
        number(html, &part.multipliers.to_string());
    });
}

/// Equal loops that follow each other, such as those of an unrolled one, and their number.
fn groups(loops: &[Loop]) -> Vec<(&Loop, usize)> {
    let groups = loops.chunk_by(|a, b| a == b);
    groups
        .filter_map(|own| Some((own.first()?, own.len())))
        .collect()
}

/// The class of a column, and its head.
type Head = (&'static str, &'static str);

/// A table with a row for each item.
fn table<T>(html: &mut Html, heads: &[Head], items: &[T], row: impl Fn(&mut Html, &T)) {
    html.element("div", &[("class", "card")], |html| {
        html.element("table", &[], |html| {
            html.element("thead", &[], |html| {
                html.element("tr", &[], |html| {
                    for (class, head) in heads {
                        html.leaf("th", &[("scope", "col"), ("class", class)], head);
                    }
                });
            });
            html.element("tbody", &[], |html| {
                for item in items.iter().take(ROWS_MAX) {
                    html.element("tr", &[], |html| row(html, item));
                }
            });
        });
        if let Some(rest) = items.len().checked_sub(ROWS_MAX).filter(|rest| *rest > 0) {
            let text = format!("{rest} more are not shown.");
            html.leaf("p", &[("class", "muted")], &text);
        }
    });
}

fn number(html: &mut Html, text: &str) {
    html.leaf("td", &[("class", "number")], text);
}

/// A bar from a place on, both as parts of the width.
fn bar(html: &mut Html, from: f64, length: f64) {
    // The style makes short bars wide enough to see.
    if length <= 0.0 {
        return;
    }
    let percent = |part: f64| 100.0 * part.clamp(0.0, 1.0);
    let style = format!(
        "margin-left: {:.2}%; width: {:.2}%",
        percent(from),
        percent(length)
    );
    html.leaf("span", &[("class", "bar"), ("style", &style)], "");
}

/// Lines where iterations begin, at this distance as a part of the width.
fn grid(distance: f64) -> String {
    if !(GRID_MIN..1.0).contains(&distance) {
        return String::new();
    }
    let percent = 100.0 * distance;
    format!(
        "background-image: repeating-linear-gradient(to right, transparent 0 \
         calc({percent:.3}% - 1px), var(--line) calc({percent:.3}% - 1px) {percent:.3}%)"
    )
}

fn iterations(each: &Loop) -> &'static str {
    match (each.work_items, each.line) {
        (true, _) | (_, 0) => "work-items",
        _ => "of the loop",
    }
}

/// A number that is 0 in images of older versions.
fn known(number: u64) -> String {
    match number {
        0 => "–".to_owned(),
        number => number.to_string(),
    }
}

fn range(first: u64, last: u64) -> String {
    if first == last {
        first.to_string()
    } else {
        format!("{first} to {last}")
    }
}

#[cfg(test)]
mod tests;
