//! Actions of an operator in the console: sessions move, functions scale; and changes without an
//! action: images, alerts.

use super::data::{hostile_state, Page};
use super::{nothing_went_wrong, Pool, TOKENS};
use baltra_gateway::console::model::{Accelerator, Region};
use baltra_testkit::{Options, Service};
use baltra_tests::browser::Browser;
use baltra_tests::prometheus::Prometheus;
use baltra_tests::{baltra, compile, tenants, through_with, Running};

/// Clicks the first visible button of the view with this text.
fn press(browser: &Browser, text: &str) {
    let find = "const b = [...document.querySelectorAll('#main button')].find((b) => b.innerText === arguments[0] && b.checkVisibility() && !b.disabled); b?.click(); return Boolean(b)";
    browser.until(&format!("there is a button {text}"), find, &[text.into()]);
}

/// Types the operator's token and sends the order.
fn order(browser: &Browser) {
    browser.type_into("[name=operator-token]", TOKENS[0].1);
    browser.click("dialog [type=submit]");
}

/// The dialog, accessible in both color schemes.
fn check_dialog(browser: &Browser, name: &str) {
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let found = browser.violations();
        assert_eq!(
            found.as_array().map(Vec::len),
            Some(0),
            "{scheme}: {found:#}"
        );
    }
    browser.screenshot(name, false);
}

/// A session is listed with its memory, moves by an order with the operator's token while its
/// program runs, and the page reports where it is; a session that cannot move has the reason.
#[test]
fn a_session_is_listed_and_moved() {
    let set = TOKENS.map(|(role, token)| format!("registry.tokens.{role}={token}"));
    let options = Options {
        set: set.into(),
        ..Options::default()
    };
    let registry = Service::start(baltra(), "registry", &options).unwrap();
    let devices = "[[device]]\nname = 'a'\nselect = '0'\n[[device]]\nname = 'b'\nselect = '1'\n";
    let node = format!("node.registry_token={}", TOKENS[1].1);
    let gateway = format!("gateway.engine.registry_token={}", TOKENS[2].1);
    let pool = Pool::join_with(registry, &[&node], devices, &[&gateway]);
    tenants(&pool.node, &["red"]);
    let mut command = through_with(
        &pool.node,
        &["--tenant", "red", "--device", "a"],
        compile("moving"),
    );
    command.args(["0", "1048576", "20"]);
    let mut program = Running::start(command);
    program.wait_line("round");

    let browser = Browser::desktop();
    browser.open(&pool.page("devices/isabela/a"));
    browser.until_text("#main", "moving");
    let moves = "return [...document.querySelectorAll('#main td[data-label=\"Can move\"]')].some((e) => e.innerText === 'yes')";
    browser.until("the session can move", moves, &[]);
    browser.until_text("#main td[data-label=\"Resident\"]", "B");
    browser.screenshot("console-sessions", true);

    press(&browser, "Move …");
    browser.until_text("dialog", "red from a of isabela");
    check_dialog(&browser, "console-move");
    // Without the token, the order is refused and nothing moves.
    browser.click("dialog [type=submit]");
    browser.until_text("dialog .result", "Refused");
    order(&browser);
    browser.until_text("dialog .result", "The session is on b; it was stopped for");
    browser.screenshot("console-moved", false);
    program.wait_progress();
    let sessions = baltra_tests::json(&pool.node, &["session", "ls"]);
    assert_eq!(sessions[0]["device"], "b", "{sessions}");
    browser.click("dialog [type=button]");
    browser.open(&pool.page("devices/isabela/b"));
    browser.until_text("#main", "moving");
    drop(program);
    browser.until_text("#main", "No session is open");
    nothing_was_refused_but_the_order(&browser);
}

fn nothing_was_refused_but_the_order(browser: &Browser) {
    let all = browser.console();
    let bad = all.iter().filter(|line| !line.contains("status of 403"));
    let bad: Vec<&String> = bad.collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// The number of replicas is set with a confirmation; the page reports the number that the gateway
/// has, and a function that scales with its demand is refused with the reason.
#[test]
fn a_function_is_scaled() {
    let pool = Pool::start();
    pool.deploy(&["sobel"]);
    let browser = Browser::desktop();
    browser.open(&pool.page("functions/sobel"));
    press(&browser, "Scale …");
    browser.until_text("dialog", "Scale sobel");
    assert_eq!(browser.count("[name=operator-token]"), 0);
    check_dialog(&browser, "console-scale");
    browser.script("document.querySelector('[name=replicas]').value = ''", &[]);
    browser.type_into("[name=replicas]", "2");
    browser.click("dialog [type=submit]");
    browser.until_text("dialog .result", "The desired number is 2");
    let shown = pool.gateway.text(&[
        "function",
        "describe",
        "sobel",
        "--gateway",
        pool.gateway.url(),
        "--json",
    ]);
    let shown: serde_json::Value = serde_json::from_str(&shown.unwrap()).unwrap();
    assert_eq!(shown["replicas"], 2, "{shown}");
    nothing_went_wrong(&browser);
}

/// Alerts that fire at a real Prometheus server are a problem at the top and a row of the overview;
/// others are not shown.
#[test]
fn firing_alerts_are_listed() {
    let config = "global:\n  evaluation_interval: 200ms\nrule_files: [rules.yml]\n";
    let alert = |name: &str, more: &str| {
        format!(
            "  - alert: {name}\n    expr: vector(1)\n    labels: {{severity: critical}}\n    \
             annotations: {{summary: 'the summary of {name}'}}\n{more}"
        )
    };
    let rules = [
        alert("BaltraTest", ""),
        alert("BaltraLater", "    for: 1h\n"),
        alert("DiskFull", ""),
    ];
    let rules = format!("groups:\n- name: test\n  rules:\n{}", rules.concat());
    let prometheus = Prometheus::start(config, &rules);
    let registry = Service::start(baltra(), "registry", &Options::default()).unwrap();
    let server = format!("gateway.prometheus={}", prometheus.url);
    let pool = Pool::join(registry, &[], &[&server]);
    let browser = Browser::desktop();
    browser.open(&pool.page(""));
    browser.until_text("#problems", "BaltraTest");
    browser.until_text("#main table", "the summary of BaltraTest");
    let page = browser.text("body");
    assert!(
        !page.contains("BaltraLater") && !page.contains("DiskFull"),
        "{page}"
    );
    browser.screenshot("console-alerts", true);
    // A server that does not respond leaves no old alert.
    drop(prometheus);
    browser.until_text("#problems", "are unknown");
    browser.until_text("#main", "Unknown: ");
    assert!(!browser.text("body").contains("the summary of BaltraTest"));
}

/// Changes of a board's images are on a timeline and in a list, with their times and both images.
#[test]
fn image_changes_are_on_a_timeline() {
    let page = Page::start(hostile_state());
    let browser = Browser::desktop();
    browser.open(&page.at("devices/sobel/sobel"));
    browser.until_text("#main", "No image has changed");
    let lanes = "return document.querySelectorAll('.lane').length === 3";
    browser.until("each region has a lane", lanes, &[]);
    let load = |region: usize, loaded: Vec<Accelerator>| {
        let mut state = page.state.lock().unwrap();
        let device = state
            .devices
            .iter_mut()
            .find(|d| d.name == "sobel")
            .unwrap();
        // A lost device has no present images.
        device.state = Default::default();
        device.regions[region] = Region {
            loaded,
            loading: false,
        };
    };
    load(1, Vec::new());
    browser.until_text(".changes", "region 1: sobel → blank");
    let edges = Accelerator {
        name: "edges".into(),
        digest: "e".repeat(64),
    };
    load(1, vec![edges]);
    browser.until_text(".changes", "region 1: blank → edges");
    let bars = "return document.querySelectorAll('.lane i').length > 3";
    browser.until("both images have bars", bars, &[]);
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let found = browser.violations();
        assert_eq!(found.as_array().map(Vec::len), Some(0), "{found:#}");
        browser.screenshot(&format!("console-images-{scheme}"), true);
    }
    nothing_went_wrong(&browser);
}
