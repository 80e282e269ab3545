use super::*;
use baltra_board::accelerator::manifest::{Access, Address, Argument, Channel, Report, Stage};

const HOSTILE: &str = "</style></td><script>alert('1')</script>\"&\u{202e}";

fn kernel(name: &str) -> Kernel {
    let text = |what: &str| format!("{what} {name}");
    let each = |line| Loop {
        line,
        interval: line,
        limit: text("limit"),
        work_items: line == 1,
        steps: 7,
        stages: vec![Stage {
            line: line + 1,
            first: 2,
            last: 5,
        }],
    };
    let memory = |banks| OnChip {
        name: format!("memory {name} {banks}"),
        bytes: 4096,
        banks,
        kind: text("kind"),
        word_bits: 32,
        accesses: vec![Access {
            line: 2,
            loads: 1,
            stores: 2,
        }],
    };
    Kernel {
        name: name.to_owned(),
        arguments: vec![Argument {
            name: text("argument"),
            type_name: text("type"),
            address: Address::Global,
            qualifiers: text("qualifier"),
            bytes: 8,
            words: 1,
            access: String::new(),
            packet_bytes: 0,
        }],
        channels: vec![Channel {
            name: text("channel"),
            ..Channel::default()
        }],
        report: Report {
            loops: vec![each(1), each(3)],
            memories: vec![memory(1), memory(16)],
            area: vec![Area {
                name: text("part"),
                luts: 5,
                ..Area::default()
            }],
            ..Report::default()
        },
        ..Kernel::default()
    }
}

fn page(kernels: &[Kernel], source: Option<&Source>) -> String {
    let placed = Placed {
        part: HOSTILE.to_owned(),
        luts: 1,
        flip_flops: 2,
        block_rams: 3,
        multipliers: 4,
        mhz: 123.45,
    };
    let page = Page {
        title: "k.img",
        kernels,
        placed: &[Some(placed)],
        source,
    };
    page.text()
}

fn source(text: &str, matches: Option<bool>) -> Source {
    Source {
        name: "k.cl".to_owned(),
        lines: text.lines().map(str::to_owned).collect(),
        matches,
    }
}

/// The names of a page's elements; fails unless each that has an end is closed in its parent.
fn elements(page: &str) -> Vec<&str> {
    let (mut all, mut open) = (Vec::new(), Vec::new());
    for part in page.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("a tag ends");
        let name = tag.split_whitespace().next().unwrap_or_default();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if ["meta", "!DOCTYPE"].contains(&name) => {}
            None => {
                open.push(name);
                all.push(name);
            }
        }
    }
    assert_eq!(open, [""; 0]);
    all
}

#[test]
fn a_page_has_each_loop_and_each_memory() {
    let text = page(&[kernel("a"), kernel("b")], None);
    elements(&text);
    for name in ["a", "b"] {
        for part in [
            format!("<code>{name}</code>"),
            format!("<td>limit {name}</td>"),
            format!("<code>memory {name} 1</code>"),
            format!("<code>memory {name} 16</code>"),
            format!("<td>kind {name}</td>"),
            format!("<code>argument {name}</code>"),
            format!("<code>channel {name}</code>"),
            format!("<td>part {name}</td>"),
        ] {
            assert!(text.contains(&part), "{part}: {text}");
        }
    }
    for (part, number) in [
        ("Schedule of the loop at line 1:", 2),
        ("Schedule of the loop at line 3:", 2),
        (">2 to 5<", 4),
        ("line 2 (1 load, 2 stores)", 4),
        ("4.0 KiB", 4),
        ("123.5", 1),
    ] {
        assert_eq!(text.matches(part).count(), number, "{part}: {text}");
    }
    assert!(!text.contains("href=\"#L"), "{text}");
}

#[test]
fn hostile_names_and_sources_are_escaped() {
    let source = source(&format!("{HOSTILE}\n{HOSTILE}\n"), Some(true));
    let text = page(&[kernel(HOSTILE)], Some(&source));
    let elements = elements(&text);
    assert!(!elements.contains(&"script"), "{text}");
    assert_eq!(text.matches("<style>").count(), 1);
    assert!(!text.contains('\u{202e}'));
    assert!(text.contains("&lt;script&gt;"));
}

#[test]
fn extreme_numbers_and_lengths_stay_within_the_page() {
    let mut wide = kernel(&"x".repeat(1 << 16));
    let most = u64::MAX;
    wide.report.luts = most;
    wide.report.loops[0].steps = most;
    wide.report.loops[0].interval = 0;
    wide.report.loops[0].line = most;
    for (first, last) in [(most, 0), (0, most), (most, most)] {
        wide.report.loops[0].stages.push(Stage {
            line: most,
            first,
            last,
        });
    }
    let memory = wide.report.memories[0].clone();
    wide.report.memories.resize(ROWS_MAX + 7, memory);
    let area = Area {
        luts: most,
        ..Area::default()
    };
    wide.report.area.extend([area.clone(), area]);
    let text = page(&[wide], Some(&source("", None)));
    elements(&text);
    assert!(text.contains("7 more are not shown."), "{text}");
    assert!(text.len() < 2 << 20, "{}", text.len());
    let widths = text.split("width: ").skip(1);
    let widths = widths.filter_map(|rest| rest.split_once('%')?.0.parse::<f64>().ok());
    assert!(widths.fold(0.0, f64::max) <= 100.0);
}

#[test]
fn lines_are_links_to_the_source_where_it_has_them() {
    let source = source("one\n  two\nthree < four\n", Some(true));
    let text = page(&[kernel("k")], Some(&source));
    elements(&text);
    assert!(text.contains("<a href=\"#L3\">line 3</a>"), "{text}");
    assert!(text.contains("<tr id=\"L3\"><td>3</td>"), "{text}");
    assert!(text.contains("three &lt; four"), "{text}");
    assert!(text.contains("k: II 3"), "{text}");
    // The schedule of the loop at line 3 has a line that the source lacks.
    assert!(!text.contains("#L4"), "{text}");
}

#[test]
fn a_source_that_the_image_was_not_built_from_is_marked() {
    for (matches, warning) in [
        (Some(true), ""),
        (Some(false), "built from another version of this file"),
        (None, "has no checksum of its source"),
    ] {
        let source = source("one\n", matches);
        let text = page(&[kernel("k")], Some(&source));
        assert_eq!(text.contains("class=\"note\""), !warning.is_empty());
        assert!(text.contains(warning), "{text}");
    }
}

#[test]
fn reports_of_older_images_have_neither_schedules_nor_parts() {
    let mut old = kernel("k");
    for each in &mut old.report.loops {
        (each.steps, each.stages) = (0, Vec::new());
    }
    old.report.area.clear();
    let text = page(&[old], None);
    elements(&text);
    assert!(!text.contains("Schedule") && !text.contains("by part"));
}

#[test]
fn equal_loops_have_one_row_with_their_number() {
    let mut unrolled = kernel("k");
    let each = unrolled.report.loops[1].clone();
    unrolled.report.loops.extend(vec![each; 9]);
    let text = page(&[unrolled], None);
    elements(&text);
    assert!(text.contains("<td class=\"number\">10</td>"), "{text}");
    let summary = "Schedule of each of the 10 loops at line 3";
    assert_eq!(text.matches(summary).count(), 1, "{text}");
}
