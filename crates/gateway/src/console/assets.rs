//! The files of the console's page, from `web/`, embedded in the binary.

use axum::http::HeaderValue;
use sha2::{Digest, Sha256};
use std::sync::OnceLock;

/// A file of the page.
#[derive(Debug)]
pub struct Asset {
    /// The path below `/ui/`.
    pub path: &'static str,
    /// Its content type.
    pub kind: &'static str,
    /// Its text.
    pub text: &'static str,
    tag: OnceLock<HeaderValue>,
}

impl Asset {
    /// Its entity tag: a hash of its content.
    pub fn tag(&self) -> &HeaderValue {
        self.tag.get_or_init(|| {
            let digest = Sha256::digest(self.text);
            let hex: String = digest.iter().take(12).map(|b| format!("{b:02x}")).collect();
            HeaderValue::try_from(format!("\"{hex}\"")).expect("hexadecimal digits")
        })
    }
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! assets {
    ($($kind:ident $path:literal),* $(,)?) => {
        [$(Asset {
            path: $path,
            kind: $kind,
            text: include_str!(concat!("../../../../web/", $path)),
            tag: OnceLock::new(),
        }),*]
    };
}

const FILES: usize = 23;

/// All files.
pub fn all() -> &'static [Asset] {
    static ALL: [Asset; FILES] = assets![
        HTML "index.html",
        CSS "style.css",
        SVG "icon.svg",
        SCRIPT "action.js",
        SCRIPT "app.js",
        SCRIPT "chart.js",
        SCRIPT "dom.js",
        SCRIPT "format.js",
        SCRIPT "images.js",
        SCRIPT "parts.js",
        SCRIPT "running.js",
        SCRIPT "sessions.js",
        SCRIPT "store.js",
        SCRIPT "stream.js",
        SCRIPT "table.js",
        SCRIPT "try.js",
        SCRIPT "views/device.js",
        SCRIPT "views/devices.js",
        SCRIPT "views/function.js",
        SCRIPT "views/functions.js",
        SCRIPT "views/nodes.js",
        SCRIPT "views/overview.js",
        SCRIPT "views/tenants.js",
    ];
    &ALL
}

/// Finds the file of a path below `/ui/`; the empty path is the page.
pub fn find(path: &str) -> Option<&'static Asset> {
    let path = match path {
        "" => "index.html",
        path => path,
    };
    all().iter().find(|asset| asset.path == path)
}
