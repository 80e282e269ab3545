//! The console at `/ui/` in a real headless Chromium: a real pool and function, a phone, a lost
//! connection, and names that contain markup. Pictures go to `target/screenshots`.

mod actions;
mod data;

use baltra_gateway::console::{self, model::State};
use baltra_testkit::{Daemon, Options, Service};
use baltra_tests::browser::Browser;
use baltra_tests::{baltra, compile, root, tenants, through, Running};
use data::{hostile_state, views, Page};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// A registry, a node and a gateway as processes.
struct Pool {
    gateway: Service,
    node: Daemon,
    registry: Service,
}

/// The registry's token for each role in [`Pool::start_closed`].
const TOKENS: [(&str, &str); 3] = [
    ("operator", "operator-4f1c"),
    ("node", "node-9a3d"),
    ("application", "application-77e0"),
];

impl Pool {
    fn start() -> Pool {
        let registry = Service::start(baltra(), "registry", &Options::default()).unwrap();
        Pool::join(registry, &[], &[])
    }

    /// A pool whose registry has a token for each role.
    fn start_closed() -> Pool {
        let set = TOKENS.map(|(role, token)| format!("registry.tokens.{role}={token}"));
        let options = Options {
            set: set.into(),
            ..Options::default()
        };
        let registry = Service::start(baltra(), "registry", &options).unwrap();
        let node = format!("node.registry_token={}", TOKENS[1].1);
        let gateway = format!("gateway.engine.registry_token={}", TOKENS[2].1);
        Pool::join(registry, &[&node], &[&gateway])
    }

    fn join(registry: Service, node_options: &[&str], gateway_options: &[&str]) -> Pool {
        Pool::join_with(registry, node_options, "", gateway_options)
    }

    /// `config`: the node's configuration file.
    fn join_with(
        registry: Service,
        node_options: &[&str],
        config: &str,
        gateway_options: &[&str],
    ) -> Pool {
        let url = format!("node.registry={}", registry.url());
        let set = [&["node.name=isabela", &url], node_options].concat();
        let node = Options {
            set: set.iter().map(|s| s.to_string()).collect(),
            config: config.to_owned(),
            ..Options::default()
        };
        let node = Daemon::start_with(baltra(), &node).expect("a node starts");
        let mut options = Pool::options(&registry, &node);
        let more = gateway_options.iter().map(|o| o.to_string());
        options.set.extend(more);
        let gateway = Service::start(baltra(), "gateway", &options).unwrap();
        Pool {
            gateway,
            node,
            registry,
        }
    }

    fn options(registry: &Service, _node: &Daemon) -> Options {
        Options {
            set: vec![format!("gateway.engine.registry={}", registry.url())],
            ..Options::default()
        }
    }

    /// Makes examples of `apps/functions` and deploys them.
    fn deploy(&self, names: &[&str]) {
        let made = tempfile::tempdir().unwrap();
        let out = format!("OUT={}", made.path().display());
        let make = std::process::Command::new("make")
            .arg("-s")
            .arg("-C")
            .arg(root().join("apps/functions"))
            .arg(out)
            .args(names)
            .status();
        assert!(make.unwrap().success());
        let path = made.path().to_str().unwrap();
        let url = self.gateway.url();
        let deployed = self
            .gateway
            .text(&["function", "deploy", path, "--gateway", url]);
        deployed.unwrap();
    }

    fn page(&self, view: &str) -> String {
        format!("{}/ui/#/{view}", self.gateway.url())
    }
}

/// Calls a function repeatedly until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Load {
    fn start(url: &str, path: &str, body: Vec<u8>) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let address = url.trim_start_matches("http://").to_owned();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/octet-stream\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let stopped = stop.clone();
        let call = move || {
            let mut stream = TcpStream::connect(&address)?;
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body)?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            std::io::Result::Ok(answer.starts_with(b"HTTP/1.1 200"))
        };
        let thread = std::thread::spawn(move || {
            let mut done = 0;
            while !stopped.load(Ordering::Relaxed) {
                done += u64::from(call().unwrap_or(false));
            }
            done
        });
        Load {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let done = self.thread.take().map_or(0, |t| t.join().unwrap_or(0));
        if !std::thread::panicking() {
            assert!(done > 0, "no call was answered with 200");
        }
    }
}

/// The number at the beginning of an element's text is positive.
const POSITIVE: &str =
    "return parseFloat(document.querySelector(arguments[0])?.innerText.replaceAll(',', '')) > 0";

fn tile(name: &str) -> String {
    format!("[data-tile=\"{name}\"] b")
}

/// Checks that the page's scripts had no errors, and that the content security policy blocked
/// nothing.
fn nothing_went_wrong(browser: &Browser) {
    let bad: Vec<String> = browser
        .console()
        .into_iter()
        // Some tests stop the gateway or make a call that fails.
        .filter(|line| {
            let meant = [
                "ERR_CONNECTION_REFUSED",
                "ERR_CONNECTION_RESET",
                "ERR_INCOMPLETE",
                "status of 415",
            ];
            !meant.iter().any(|part| line.contains(part))
        })
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn a_real_device_and_a_called_function_are_shown_and_move() {
    let pool = Pool::start();
    let browser = Browser::desktop();
    browser.prefer("dark");
    browser.open(&pool.page(""));
    browser.until_text(".devices", "isabela");
    browser.until_text(".devices", "ready");
    browser.until_text("#main", "No function yet");

    pool.deploy(&["sobel", "uppercase"]);
    browser.until_text("#main table", "sobel");
    let load = Load::start(
        pool.gateway.url(),
        "/function/sobel?width=512&height=512",
        vec![7; 512 * 512],
    );
    browser.until(
        "requests are counted",
        POSITIVE,
        &[tile("Requests / s").into()],
    );
    browser.until("latency is shown", POSITIVE, &[tile("Latency p50").into()]);
    browser.until("the device works", POSITIVE, &[tile("Utilization").into()]);
    // The chart has several points.
    let moved = "window.seen ??= new Set(); seen.add(document.querySelector(arguments[0]).innerText); return seen.size > 5";
    browser.until("the rate moves", moved, &[tile("Requests / s").into()]);
    browser.screenshot("console-overview-dark", true);
    browser.prefer("light");
    browser.screenshot("console-overview-light", true);

    browser.open(&pool.page("functions/sobel"));
    browser.until(
        "requests are counted",
        POSITIVE,
        &[tile("Requests / s").into()],
    );
    browser.until(
        "a cold start is counted",
        POSITIVE,
        &[tile("Cold starts").into()],
    );
    browser.until_text(".placements", "isabela");
    browser.until(
        "the histogram has calls",
        "return document.querySelector('[aria-label^=\"Latency histogram: p50\"]') !== null",
        &[],
    );
    browser.screenshot("console-function", true);
    browser.open(&pool.page("devices/isabela/device0"));
    browser.until(
        "tasks a second are shown",
        "return parseFloat(document.querySelector('[aria-label^=\"Tasks per second: tasks \"]')?.ariaLabel.slice(24)) > 0",
        &[],
    );
    choose(&browser, "1 h", " min ");
    browser.screenshot("console-hour", true);
    choose(&browser, "24 h", " h ");
    choose(&browser, "5 min", " ago");
    for view in ["devices", "tenants", "nodes", "functions"] {
        browser.open(&pool.page(view));
        browser.until_text(
            "#main table",
            if view == "devices" || view == "nodes" {
                "isabela"
            } else {
                ""
            },
        );
        browser.screenshot(&format!("console-{view}"), true);
    }
    drop(load);
    nothing_went_wrong(&browser);
}

/// An endless kernel is shown with its tenant and its program, ends by an order with the operator's
/// token only, and the page reports the end that it observed; then the lost node is reported.
#[test]
fn an_endless_kernel_is_shown_and_ended() {
    let pool = Pool::start_closed();
    tenants(&pool.node, &["red"]);
    let browser = Browser::desktop();
    browser.open(&pool.page("devices"));
    browser.until_text("#main table", "isabela");
    let mut command = through(&pool.node, "red", compile("harm"));
    command.arg("endless");
    let mut program = Running::start(command);
    program.wait_line("ready");
    let row = "[...document.querySelectorAll('#main table')].find((t) => t.caption.innerText === 'Running tasks')?.checkVisibility()";
    browser.until("the task is shown", &format!("return {row} === true"), &[]);
    browser.until_text("#main", "harm");
    browser.until_text("#main", "red");
    browser.screenshot("console-running", true);

    let end = "[...document.querySelectorAll('#main button')].find((b) => b.innerText === 'End …').click()";
    browser.script(end, &[]);
    browser.until_text("dialog", "End the task of red");
    browser.click("dialog [type=submit]");
    browser.until_text("dialog .result", "Refused");
    browser.type_into("[name=operator-token]", TOKENS[2].1);
    browser.click("dialog [type=submit]");
    browser.until_text("dialog .result", "operator");
    browser.script(
        "document.querySelector('[name=operator-token]').value = ''",
        &[],
    );
    browser.type_into("[name=operator-token]", TOKENS[0].1);
    browser.click("dialog [type=submit]");
    browser.until_text("dialog .result", "executor has ended. Observed");
    browser.screenshot("console-ended", false);
    browser.click("dialog [type=button]");
    let ended = program.finish();
    assert!(ended.out.ends_with("ended"), "{ended:?}");
    let devices = baltra_tests::json(&pool.node, &["devices", "--local"]);
    let faults = devices[0]["faults"].as_array().unwrap();
    assert!(
        faults.iter().any(|f| f["cause"] == "operator"),
        "{faults:?}"
    );

    browser.open(&pool.page("devices/isabela/device0"));
    browser.until_text("#main", "No task runs");
    let cordon = "[...document.querySelectorAll('#main button')].find((b) => b.innerText === 'Cordon …').click()";
    browser.script(cordon, &[]);
    browser.type_into("[name=operator-token]", TOKENS[0].1);
    browser.click("dialog [type=submit]");
    browser.until_text("dialog .result", "The device is cordoned. Observed");

    // A lost node has its time and its reason.
    let mut pool = pool;
    pool.node.kill().unwrap();
    browser.until_text("#problems", "no heartbeat for");
    browser.until_text("#problems", "its lease of");
    browser.open(&pool.page("nodes"));
    browser.until_text("#main table", "its manager, its host or the network");
    browser.screenshot("console-lost-node", true);
}

#[test]
fn a_function_is_called_from_the_page() {
    let pool = Pool::start();
    pool.deploy(&["sobel", "uppercase"]);
    let browser = Browser::desktop();
    browser.open(&pool.page("functions/uppercase"));
    browser.until(
        "the form is there",
        "return document.querySelector('form.try select')?.options.length > 0",
        &[],
    );
    browser.script("[...document.querySelectorAll('form.try .body button')].find((b) => b.innerText === 'text').click()", &[]);
    browser.type_into("[name=body]", "galapagos");
    browser.click("form.try [type=submit]");
    browser.until_text(".answer", "200");
    browser.until_text(".answer .content", "GALAPAGOS");
    browser.until_text(".answer .headers", "x-request-id");
    browser.until_text(".answer .timing", "device");

    // The function takes and returns a picture.
    let photo = root().join("target/screenshots/in.png");
    std::fs::create_dir_all(photo.parent().unwrap()).unwrap();
    browser.screenshot("in", false);
    browser.open(&pool.page("functions/sobel"));
    browser.until(
        "the form takes a file",
        "return document.querySelector('[name=file]')?.checkVisibility()",
        &[],
    );
    browser.type_into("[name=file]", photo.to_str().unwrap());
    browser.script(
        "document.querySelector('[name=type]').value = 'image/png'",
        &[],
    );
    browser.click("form.try [type=submit]");
    browser.until_text(".answer", "200");
    browser.until(
        "the picture is drawn",
        "return document.querySelector('.answer img')?.naturalWidth > 0",
        &[],
    );
    browser.script("document.querySelector('.answer').scrollIntoView()", &[]);
    browser.screenshot("console-try", false);

    // The page displays the gateway's errors with their reasons.
    browser.script(
        "document.querySelector('[name=type]').value = 'text/csv'",
        &[],
    );
    browser.click("form.try [type=submit]");
    browser.until_text(".answer", "415");
    nothing_went_wrong(&browser);
}

/// The document of every view is as wide as the phone.
#[test]
fn nothing_is_wider_than_a_phone() {
    let page = Page::start(hostile_state());
    for width in [320, 390] {
        let browser = Browser::phone(width);
        for view in views(&page.state()) {
            browser.open(&page.at(&view));
            browser.until(
                "the view is there",
                "return document.querySelector('#main h1, #main h2') !== null",
                &[],
            );
            let wide = browser.script(
                "return [document.documentElement.scrollWidth, innerWidth]",
                &[],
            );
            assert_eq!(wide[0], wide[1], "{view} at {width}");
            assert_eq!(wide[1], width, "{view}");
        }
        browser.open(&page.at(""));
        browser.until_text("#main table", "sobel");
        browser.screenshot(&format!("console-phone-{width}"), false);
        // On a phone, all five views can be reached, each through a target of sufficient size.
        let small = "return [...document.querySelectorAll('nav a')].filter((a) => a.getBoundingClientRect().height < 40 || a.getBoundingClientRect().width < 40).length";
        assert_eq!(browser.script(small, &[]), 0);
        assert_eq!(browser.count("nav a"), 5);
    }
}

#[test]
fn a_lost_connection_is_said_and_mended() {
    let mut pool = Pool::start();
    let browser = Browser::desktop();
    browser.open(&pool.page(""));
    browser.until_text("#status", "live");
    browser.until_text(".devices", "isabela");
    pool.gateway.kill().unwrap();
    browser.until_text("#lost", "Connection lost");
    browser.until_text("#status", "lost");
    // The last known state stays visible, marked as outdated.
    assert!(browser.text(".devices").contains("isabela"));
    assert_eq!(browser.count("body.stale"), 1);
    browser.screenshot("console-lost", false);
    let options = Pool::options(&pool.registry, &pool.node);
    pool.gateway = pool.gateway.restart(&options).unwrap();
    browser.until_text("#status", "live");
    browser.until(
        "the banner is gone",
        "return document.querySelector('#lost').hidden",
        &[],
    );
    browser.until_text(".devices", "isabela");
    nothing_went_wrong(&browser);
}

#[test]
fn a_registry_that_is_away_is_said() {
    let mut pool = Pool::start();
    let browser = Browser::desktop();
    browser.open(&pool.page(""));
    browser.until_text(".devices", "isabela");
    pool.registry.kill().unwrap();
    browser.until_text("#problems", "does not respond");
    assert!(browser.text(".devices").contains("isabela"));
    pool.registry = pool.registry.restart(&Options::default()).unwrap();
    browser.until(
        "it is well again",
        "return !document.querySelector('#problems').innerText.includes('does not respond')",
        &[],
    );
}

/// Names that would be harmful as markup, as an address or as a selector; that change the direction
/// of text; or that equal a property of every object.
const HOSTILE: [&str; 5] = [
    "<img src=x onerror=\"window.pwned=1;alert(1)\">",
    "\"><script>window.pwned=1;alert(2)</script>",
    "javascript:alert(3)//\u{202e}gnp.exe\u{0007}",
    "__proto__",
    "../../system/functions?name=a#/b%00",
];

#[test]
fn hostile_names_are_only_text() {
    let page = Page::start(hostile_state());
    let browser = Browser::desktop();
    for view in views(&page.state()) {
        browser.open(&page.at(&view));
        browser.until_text("#status", "live");
        browser.until(
            "the view is there",
            "return document.querySelector('#main h1, #main h2') !== null",
            &[],
        );
        assert_eq!(
            browser.script("return [window.pwned ?? null, ({}).name ?? null]", &[]),
            serde_json::json!([null, null]),
            "{view}"
        );
        // The page contains only elements that it created itself.
        let alien = "return document.querySelectorAll('#main img, #main script, #main iframe, [onerror], [href^=javascript]').length";
        assert_eq!(browser.script(alien, &[]), 0, "{view}");
        // No character that changes the direction of text remains.
        assert_eq!(
            browser.script(
                "return /[\\u202e\\u0007]/.test(document.documentElement.textContent)",
                &[]
            ),
            false
        );
        assert!(!browser.has_dialog(), "{view}");
    }
    browser.open(&page.at(""));
    browser.until_text("#main table", "onerror");
    browser.screenshot("console-hostile", true);
    // Each name's link leads to its own view, for all characters in the name.
    for name in HOSTILE {
        let wanted = name.replace(['\u{202e}', '\u{0007}'], "\u{fffd}");
        browser.open(&page.at(""));
        let click = "const a = [...document.querySelectorAll('#main tbody th a')].find((a) => a.innerText === arguments[0]); a?.click(); return Boolean(a)";
        browser.until("the row is there", click, &[wanted.clone().into()]);
        let title = "return document.querySelector('#main h1')?.textContent === arguments[0] && document.querySelector('form.try select')?.options.length > 0";
        browser.until("its view opens", title, &[wanted.into()]);
    }
    nothing_went_wrong(&browser);
}

#[test]
fn the_keyboard_reaches_everything() {
    let page = Page::start(hostile_state());
    let browser = Browser::desktop();
    browser.open(&page.at("functions"));
    browser.until_text("#main table", "sobel");
    // The first tab stop skips the navigation.
    browser.press('\u{e004}');
    assert_eq!(
        browser.script("return document.activeElement.className", &[]),
        "skip"
    );
    // A slash moves the focus to the filter, which hides rows that do not match.
    browser.press('/');
    assert_eq!(
        browser.script("return document.activeElement.id", &[]),
        "filter"
    );
    browser.type_into("#filter", "sobel");
    browser.until(
        "one row is left",
        "return document.querySelectorAll('#main tbody tr').length === 1",
        &[],
    );
    browser.press('\u{e00c}');
    browser.until(
        "all rows are back",
        "return document.querySelectorAll('#main tbody tr').length > 1",
        &[],
    );
    // Enter sorts by a column, which shows the order.
    browser.script("document.querySelector('#main thead button').focus()", &[]);
    browser.press('\u{e007}');
    let sorted = "const names = [...document.querySelectorAll('#main tbody th')].map((e) => e.innerText); return document.querySelector('#main thead th').getAttribute('aria-sort') === arguments[0] && JSON.stringify(names) === JSON.stringify([...names].sort(new Intl.Collator('en', { numeric: true, sensitivity: 'base' }).compare)[arguments[1]]())";
    browser.until("it sorts", sorted, &["ascending".into(), "slice".into()]);
    browser.press('\u{e007}');
    browser.until(
        "it sorts the other way",
        sorted,
        &["descending".into(), "reverse".into()],
    );
    // A chart can be read point by point with the keyboard.
    browser.open(&page.at(""));
    browser.until(
        "there are charts",
        "return document.querySelector('.plotbox[aria-label]') !== null",
        &[],
    );
    browser.script(
        "[...document.querySelectorAll('.plotbox')].find((e) => e.checkVisibility()).focus()",
        &[],
    );
    browser.press('\u{e012}');
    browser.until_text(".plotbox:focus .tip", "ago");
    // While paused, the chart does not change.
    browser.script("document.activeElement.blur()", &[]);
    browser.press('p');
    browser.until_text("#status", "held");
    // Every control has an accessible name.
    let nameless = "return [...document.querySelectorAll('a, button, input, select, textarea')].filter((e) => e.checkVisibility() && !(e.innerText || e.ariaLabel || e.labels?.length || e.title)).map((e) => e.outerHTML)";
    assert_eq!(browser.script(nameless, &[]), serde_json::json!([]));
    nothing_went_wrong(&browser);
}

/// Every view and range is accessible in both color schemes, on a desktop and on a phone.
#[test]
fn axe_finds_nothing() {
    let page = Page::start(hostile_state());
    let mut found = Vec::new();
    for browser in [Browser::desktop(), Browser::phone(390)] {
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            for view in views(&page.state()) {
                browser.open(&page.at(&view));
                browser.until(
                    "the view is there",
                    "return document.querySelector('#main h1, #main h2') !== null",
                    &[],
                );
                for violation in browser.violations().as_array().unwrap() {
                    found.push(format!("{view} in {scheme}: {violation:#}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    // It finds an image without a text and a button without a name.
    let browser = Browser::desktop();
    browser.open(&page.at("nodes"));
    browser.until_text("#main h1", "Nodes");
    browser.script(
        "document.querySelector('#main').append(document.createElement('img'), document.createElement('button'))",
        &[],
    );
    let found = browser.violations().to_string();
    assert!(
        found.contains("image-alt") && found.contains("button-name"),
        "{found}"
    );
}

/// A screen reader names a chart that has no values yet.
#[test]
fn charts_have_names_before_their_values() {
    let page = Page::start(hostile_state());
    let browser = Browser::desktop();
    browser.open(&page.at("nodes"));
    browser.until_text("#main h1", "Nodes");
    let names = browser.script(
        "return import(new URL('chart.js', document.querySelector('script[type=module]').src)).then((charts) => \
         ['TimeChart', 'HeatMap', 'HistogramChart'].map((kind) => { \
           const { element } = new charts[kind]({ label: kind }); \
           const image = element.matches('[role=img]') ? element : element.querySelector('[role=img]'); \
           return image.getAttribute('aria-label'); }))",
        &[],
    );
    assert_eq!(
        names.to_string(),
        r#"["TimeChart","HeatMap","HistogramChart"]"#
    );
}

/// Chooses a range of time; the first chart of the view covers it, read with the keyboard.
fn choose(browser: &Browser, range: &str, oldest: &str) {
    let choose = "[...document.querySelectorAll('#range button')].find((b) => b.innerText === arguments[0]).click()";
    browser.script(choose, &[range.into()]);
    let chosen =
        "return document.querySelector('#range [aria-pressed=true]').innerText === arguments[0]";
    browser.until("the range is chosen", chosen, &[range.into()]);
    let focus =
        "[...document.querySelectorAll('.plotbox')].find((e) => e.checkVisibility()).focus()";
    // The points of a longer range arrive after the choice.
    let reads = format!("{focus}; document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{ key: 'Home' }})); return document.querySelector('.plotbox:focus .tip').innerText.includes(arguments[0])");
    browser.until("the range is shown", &reads, &[oldest.into()]);
    browser.script("document.activeElement.blur()", &[]);
}

#[test]
fn an_empty_gateway_says_what_to_do() {
    let page = Page::start(State::default());
    let browser = Browser::desktop();
    browser.open(&page.at(""));
    browser.until_text("#main", "baltra function deploy");
    browser.until_text("#main", "baltra manager --registry");
    browser.screenshot("console-empty", true);
    for (view, text) in [
        ("tenants", "No tenant yet"),
        ("nodes", "No node yet"),
        ("devices", "No device yet"),
        ("functions/gone", "No function gone"),
    ] {
        browser.open(&page.at(view));
        browser.until_text("#main", text);
    }
    nothing_went_wrong(&browser);
}

/// The number of streams is limited: a page that is closed releases its stream.
#[test]
fn pages_that_are_left_hold_nothing() {
    let page = Page::start(State::default());
    let browser = Browser::desktop();
    for _ in 0..console::STREAMS_MAX + 8 {
        browser.open("about:blank");
        browser.open(&page.at(""));
    }
    browser.until_text("#status", "live");
}
