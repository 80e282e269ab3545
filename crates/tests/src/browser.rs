//! A real headless Chromium, driven through WebDriver by `chromedriver` (Debian: `chromium`,
//! `chromium-driver`).

use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a page to reach an expected state, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page, closed when dropped.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// A window of a desktop's size.
    pub fn desktop() -> Browser {
        Browser::start(&["--window-size=1440,1000"], None)
    }

    /// A phone's screen with touch, `width` CSS pixels wide.
    pub fn phone(width: u32) -> Browser {
        let metrics = json!({"width": width, "height": 640, "pixelRatio": 2.0, "touch": true});
        Browser::start(&[], Some(json!({"deviceMetrics": metrics})))
    }

    fn start(arguments: &[&str], emulation: Option<Value>) -> Browser {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is installed (scripts/setup.sh test)");
        let port = announced_port(&mut driver);
        let profile = tempfile::tempdir().expect("a place for a profile");
        let mut all = vec![
            "--headless=new".to_owned(),
            "--disable-gpu".into(),
            "--disable-dev-shm-usage".into(),
            "--no-first-run".into(),
            "--disable-background-networking".into(),
            "--disable-component-update".into(),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        all.extend(arguments.iter().map(|a| a.to_string()));
        if rustix::process::geteuid().is_root() {
            // Chromium's sandbox does not start as root, which CI uses.
            all.push("--no-sandbox".into());
        }
        let mut chrome = json!({"args": all});
        if let Some(emulation) = emulation {
            chrome["mobileEmulation"] = emulation;
        }
        let mut browser = Browser {
            driver,
            port,
            session: String::new(),
            _profile: profile,
        };
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": chrome,
            "goog:loggingPrefs": {"browser": "ALL"},
            "unhandledPromptBehavior": "ignore",
        }}});
        let session = browser
            .ask("POST", "/session", &wanted)
            .expect("a browser starts");
        browser.session = session["sessionId"].as_str().expect("an id").to_owned();
        browser
    }

    /// One request to the driver; returns its value or its error.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(|e| e.to_string())?;
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let body = if method == "POST" {
            body.to_string()
        } else {
            String::new()
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let written = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body.as_bytes()));
        written.map_err(|e| e.to_string())?;
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            let n = reader.read_line(&mut line).map_err(|e| e.to_string())?;
            if n == 0 || line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().map_err(|_| "a length that is none")?;
                }
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer).map_err(|e| e.to_string())?;
        let mut answer: Value = serde_json::from_slice(&answer).map_err(|e| e.to_string())?;
        let value = answer["value"].take();
        match value["error"].as_str() {
            Some(error) => Err(format!(
                "{error}: {}",
                value["message"].as_str().unwrap_or("")
            )),
            None => Ok(value),
        }
    }

    fn command(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.ask("POST", &format!("/session/{}/{path}", self.session), body)
    }

    /// Opens an address.
    pub fn open(&self, url: &str) {
        self.command("url", &json!({ "url": url }))
            .expect("the page opens");
    }

    /// Runs a function's body with `arguments` and returns its result.
    pub fn script(&self, body: &str, arguments: &[Value]) -> Value {
        let script = json!({"script": body, "args": arguments});
        self.command("execute/sync", &script)
            .unwrap_or_else(|e| panic!("{body}: {e}"))
    }

    /// The visible text of the first element that matches.
    pub fn text(&self, selector: &str) -> String {
        let body = "return document.querySelector(arguments[0])?.innerText ?? ''";
        let text = self.script(body, &[selector.into()]);
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Number of visible elements that match.
    pub fn count(&self, selector: &str) -> usize {
        let body = "return [...document.querySelectorAll(arguments[0])].filter((e) => e.checkVisibility()).length";
        self.script(body, &[selector.into()]).as_u64().unwrap_or(0) as usize
    }

    /// Waits until a function's body returns a true value, and returns that.
    pub fn until(&self, what: &str, body: &str, arguments: &[Value]) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value = self.script(body, arguments);
            if !matches!(value, Value::Null | Value::Bool(false)) {
                return value;
            }
            if Instant::now() > deadline {
                let page = self.script("return document.body.innerText", &[]);
                panic!(
                    "not so after {PATIENCE:?}: {what}\n{}\n{:#?}",
                    page.as_str().unwrap_or(""),
                    self.console()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the text of the first element that matches contains `part`.
    pub fn until_text(&self, selector: &str, part: &str) {
        let body = "return document.querySelector(arguments[0])?.innerText.includes(arguments[1])";
        self.until(
            &format!("{selector} says '{part}'"),
            body,
            &[selector.into(), part.into()],
        );
    }

    fn element(&self, selector: &str) -> String {
        let found = self.command(
            "element",
            &json!({"using": "css selector", "value": selector}),
        );
        let found = found.unwrap_or_else(|e| panic!("{selector}: {e}"));
        let id = found
            .as_object()
            .and_then(|o| o.values().next())
            .and_then(Value::as_str);
        id.expect("an element's id").to_owned()
    }

    /// Clicks on an element, as a pointer does.
    pub fn click(&self, selector: &str) {
        // In the middle of the window, because a header covers the edge.
        let into_view = "document.querySelector(arguments[0])?.scrollIntoView({block: 'center'})";
        self.script(into_view, &[selector.into()]);
        let id = self.element(selector);
        let clicked = self.command(&format!("element/{id}/click"), &json!({}));
        clicked.unwrap_or_else(|e| panic!("{selector}: {e}"));
    }

    /// Types into an element; a path chooses a file.
    pub fn type_into(&self, selector: &str, text: &str) {
        let id = self.element(selector);
        let typed = self.command(&format!("element/{id}/value"), &json!({ "text": text }));
        typed.unwrap_or_else(|e| panic!("{selector}: {e}"));
    }

    /// Presses and releases a key on the focused element. Names are WebDriver's code points.
    pub fn press(&self, key: char) {
        let keys = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": keys}]});
        self.command("actions", &actions).expect("a key");
    }

    /// Sets the preferred color scheme, light or dark.
    pub fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let command =
            json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        self.command("goog/cdp/execute", &command)
            .expect("a scheme");
    }

    /// The violations that axe's rules (WCAG 2.2, levels A and AA, and best practices) find in the
    /// visible page: for each violated rule its name, its meaning and the elements.
    pub fn violations(&self) -> Value {
        if self.script("return window.axe === undefined", &[]) == true {
            self.script(&axe(), &[]);
        }
        let run = "window.violations = null; \
            axe.run().then(({ violations }) => { window.violations = violations.map((v) => \
                [v.id, v.help, v.nodes.map((n) => [n.html.slice(0, 200), n.failureSummary])]); })";
        self.script(run, &[]);
        self.until("axe has ended", "return window.violations !== null", &[]);
        self.script("return window.violations", &[])
    }

    /// The page's console output since the last call, including errors and refused requests.
    pub fn console(&self) -> Vec<String> {
        let log = self
            .command("se/log", &json!({"type": "browser"}))
            .unwrap_or_default();
        let log = log.as_array().cloned().unwrap_or_default();
        let message = |entry: &Value| entry["message"].as_str().unwrap_or("").to_owned();
        log.iter().map(message).collect()
    }

    /// Whether a script has opened a dialog.
    pub fn has_dialog(&self) -> bool {
        let path = format!("/session/{}/alert/text", self.session);
        self.ask("GET", &path, &Value::Null).is_ok()
    }

    /// Saves a picture as `target/screenshots/NAME.png`; `whole`: of the whole page.
    pub fn screenshot(&self, name: &str, whole: bool) {
        let command = json!({"cmd": "Page.captureScreenshot", "params": {"format": "png", "captureBeyondViewport": whole}});
        let taken = self
            .command("goog/cdp/execute", &command)
            .expect("a picture");
        let png = decode(taken["data"].as_str().expect("base64"));
        let folder = crate::root().join("target/screenshots");
        std::fs::create_dir_all(&folder).expect("target can be written");
        write(&folder.join(format!("{name}.png")), &png);
    }
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.ask(
                "DELETE",
                &format!("/session/{}", self.session),
                &Value::Null,
            );
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The port that the driver announces.
fn announced_port(driver: &mut Child) -> u16 {
    let output = driver.stdout.take().expect("piped");
    let mut lines = BufReader::new(output).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.rsplit_once("started successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    // Later output is discarded, so that the driver never blocks on it.
    std::thread::spawn(move || lines.for_each(drop));
    port.expect("chromedriver listens")
}

/// Decodes plain Base64.
fn decode(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|c| *c != b'=').collect();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let sum = group.iter().fold(0, |sum, c| sum << 6 | value(*c)) << (6 * (4 - group.len()));
        bytes.extend_from_slice(&sum.to_be_bytes()[1..group.len()]);
    }
    bytes
}

/// The script of axe.
fn axe() -> String {
    let packages = crate::root().join("target/venv/lib");
    let script = std::fs::read_dir(packages)
        .expect("scripts/setup.sh test has made an environment")
        .filter_map(|python| Some(python.ok()?.path()))
        .map(|python| python.join("site-packages/axe_playwright_python/axe.min.js"))
        .find(|script| script.exists());
    let script = script.expect("scripts/setup.sh test installs axe");
    std::fs::read_to_string(script).expect("a script")
}
