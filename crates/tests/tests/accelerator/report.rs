//! Reports of images.

use super::tool;
use serde_json::Value;

const SOURCE: &str = "kernel void scale(global float *x, float f) {\n  \
     x[get_global_id(0)] *= f;\n}\n";

#[test]
fn a_build_prints_the_report_of_its_image_and_a_page_has_its_source() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("k.cl", SOURCE);
    let built = tool(dir.path(), &["build", "k.cl", "--json"]).unwrap();
    assert_eq!(
        built,
        tool(dir.path(), &["report", "k.img", "--json"]).unwrap()
    );
    let built: Value = serde_json::from_str(&built).unwrap();
    let report = &built["kernels"][0]["report"];
    for (field, number) in [
        ("pipelines", 1),
        ("interval_min", 1),
        ("interval_max", 1),
        ("item_cycles_min", 1),
        ("multipliers", 4),
    ] {
        assert_eq!(report[field], number, "{field}: {report}");
    }
    let text = tool(dir.path(), &["report", "k.img"]).unwrap();
    let line = text.lines().next().unwrap_or_default();
    assert!(
        line.starts_with("kernel scale: II 1, 1 pipeline, "),
        "{line}"
    );
    assert!(
        line.ends_with(", 4 multipliers (estimate); at least 1 cycle per work-item"),
        "{line}"
    );
    let page = |source: &str| {
        tool(
            dir.path(),
            &["report", "k.img", "--html", "--source", source],
        )
    };
    let with_source = page("k.cl").unwrap();
    assert!(with_source.contains("<a href=\"#L2\">line 2</a>"));
    assert!(!with_source.contains("built from another version"));
    write("other.cl", "// Another one.\n");
    let other = page("other.cl").unwrap();
    assert!(other.contains("built from another version"), "{other}");
    tool(
        dir.path(),
        &["report", "k.img", "--html", "-o", "page.html"],
    )
    .unwrap();
    let file = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(file.starts_with("<!DOCTYPE html>") && file.contains("line 2"));
    write("long.cl", &" ".repeat((1 << 20) + 1));
    for (arguments, reason) in [
        (&["--html", "--json"][..], "cannot be used with"),
        (&["-o", "page.html"], "--html"),
        (&["--source", "k.cl"], "--html"),
        (
            &["--html", "--source", "long.cl"],
            "the most that a page shows",
        ),
    ] {
        let arguments = [&["report", "k.img"], arguments].concat();
        let error = tool(dir.path(), &arguments).unwrap_err();
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
}
