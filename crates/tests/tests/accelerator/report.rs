//! Reports of images.

use super::tool;
use serde_json::Value;

const SOURCE: &str = "kernel void scale(global float *x, float f) {\n  \
     x[get_global_id(0)] *= f;\n}\n";

#[test]
fn a_build_prints_the_report_of_its_image() {
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
}
