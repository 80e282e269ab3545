//! Converts trees to the model. Accepts the names of all dialects and blanks anywhere, and keeps
//! unknown elements.

use crate::model::{
    Cluster, Comm, Kernel, KernelPlacement, Logical, Map, Node, NodeKind, Port, KERNELS_MAX,
};
use crate::problem::{Problem, Problems};
use crate::tree::{self, Element, FILE_BYTES_MAX};
use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;

/// Collects problems of one file.
struct Reader<'a> {
    path: &'a Path,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn wrong(&mut self, line: usize, text: impl Into<String>) {
        self.problems.push(Problem {
            path: self.path.to_owned(),
            line,
            text: text.into(),
        });
    }

    /// A number below a bound.
    fn number(&mut self, e: &Element, what: &str, below: u32) -> Option<u32> {
        match e.text.parse::<u32>() {
            Ok(n) if n < below => Some(n),
            Ok(n) => {
                self.wrong(e.line, format!("{what} {n}: must be below {below}"));
                None
            }
            Err(_) => {
                self.wrong(
                    e.line,
                    format!("{what} '{}' is not a number", shown(&e.text)),
                );
                None
            }
        }
    }
}

/// Shortens a text of a file for a message.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(60).collect()
}

impl Cluster {
    /// Reads and checks both files.
    ///
    /// # Errors
    ///
    /// All [`Problems`] that were found, those of the logical file first.
    pub fn read(logical: &Path, map: &Path) -> Result<Cluster, Problems> {
        Cluster::read_with(logical, map, |_| Ok(()))
    }

    /// Like [`Cluster::read`]; `fill` may complete the map file before both files are checked
    /// together.
    ///
    /// # Errors
    /// As for [`Cluster::read`], and those of `fill`.
    pub fn read_with(
        logical: &Path,
        map: &Path,
        fill: impl FnOnce(&mut Cluster) -> Result<(), String>,
    ) -> Result<Cluster, Problems> {
        Cluster::combine((logical, load(logical)), (map, load(map)), fill)
    }

    /// Like [`Cluster::read`], from texts. The paths are for messages and for finding the sources.
    ///
    /// # Errors
    ///
    /// As for [`Cluster::read`].
    pub fn parse(logical: (&Path, &str), map: (&Path, &str)) -> Result<Cluster, Problems> {
        Cluster::combine(
            (logical.0, Ok(logical.1.to_owned())),
            (map.0, Ok(map.1.to_owned())),
            |_| Ok(()),
        )
    }

    fn combine(
        logical: (&Path, Result<String, Problem>),
        map: (&Path, Result<String, Problem>),
        fill: impl FnOnce(&mut Cluster) -> Result<(), String>,
    ) -> Result<Cluster, Problems> {
        let path = map.0.to_owned();
        let (logical, mut problems) = both(logical.0, logical.1, self::logical);
        let (map, more) = both(map.0, map.1, self::map);
        problems.extend(more);
        match (logical, map) {
            // The common rules apply only to files that are correct by themselves.
            (Some(logical), Some(map)) if problems.is_empty() => {
                let mut cluster = Cluster { logical, map };
                if let Err(text) = fill(&mut cluster) {
                    return Err(Problems(vec![Problem {
                        path,
                        line: 0,
                        text,
                    }]));
                }
                problems = crate::check::check(&cluster);
                if problems.is_empty() {
                    Ok(cluster)
                } else {
                    Err(Problems(problems))
                }
            }
            _ => Err(Problems(problems)),
        }
    }
}

/// Returns a file of either kind, recognized by its contents, in the canonical form.
///
/// # Errors
///
/// The file cannot be read or parsed.
pub fn formatted(path: &Path) -> Result<String, Problems> {
    let text = load(path).map_err(|p| Problems(vec![p]))?;
    formatted_text(path, &text)
}

/// Like [`formatted`], from a text.
pub fn formatted_text(path: &Path, text: &str) -> Result<String, Problems> {
    let root = tree_of(path, text).map_err(|p| Problems(vec![p]))?;
    let nodes = root.children.iter().any(|c| c.is("node"));
    let (out, problems) = if nodes {
        let (map, problems) = map(path, &root);
        (crate::write::map(&map), problems)
    } else {
        let (logical, problems) = logical(path, &root);
        (crate::write::logical(&logical), problems)
    };
    if problems.is_empty() {
        Ok(out)
    } else {
        Err(Problems(problems))
    }
}

fn load(path: &Path) -> Result<String, Problem> {
    let wrong = |text: String| Problem {
        path: path.to_owned(),
        line: 0,
        text,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|e| wrong(e.to_string()))?;
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|e| wrong(e.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        Err(wrong(format!("larger than {FILE_BYTES_MAX} bytes")))
    } else {
        Ok(text)
    }
}

fn tree_of(path: &Path, text: &str) -> Result<Element, Problem> {
    tree::parse(text).map_err(|e| Problem {
        path: path.to_owned(),
        line: e.line,
        text: e.text,
    })
}

fn both<T>(
    path: &Path,
    text: Result<String, Problem>,
    read: fn(&Path, &Element) -> (T, Vec<Problem>),
) -> (Option<T>, Vec<Problem>) {
    match text.and_then(|text| tree_of(path, &text)) {
        Ok(root) => {
            let (read, problems) = read(path, &root);
            (Some(read), problems)
        }
        Err(problem) => (None, vec![problem]),
    }
}

/// The value of a flag: `<debug/>`, or a word.
fn flag(e: &Element) -> bool {
    !matches!(e.text.to_ascii_lowercase().as_str(), "false" | "0" | "no")
}

fn logical(path: &Path, root: &Element) -> (Logical, Vec<Problem>) {
    let mut reader = Reader {
        path,
        problems: Vec::new(),
    };
    let mut logical = Logical {
        path: path.to_owned(),
        kernels: Vec::new(),
        rest: Vec::new(),
    };
    for child in &root.children {
        if child.is("kernel") {
            logical.kernels.extend(kernel(&mut reader, child))
        } else {
            logical.rest.push(child.clone())
        }
    }
    if logical.kernels.is_empty() && reader.problems.is_empty() {
        reader.wrong(root.line, "the logical file has no kernels");
    }
    (logical, reader.problems)
}

fn kernel(reader: &mut Reader<'_>, e: &Element) -> Option<Kernel> {
    // The name is the element's text in XML, a member in JSON and YAML.
    let name = match (e.text.is_empty(), e.child(&["name"])) {
        (false, _) => e.text.clone(),
        (true, Some(name)) => name.text.clone(),
        (true, None) => String::new(),
    };
    // The name becomes a file name: it must not be a path or look like an option.
    let plain = !name.is_empty()
        && name.len() <= 100
        && !name.starts_with('-')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.+".contains(c))
        && name.chars().any(|c| c.is_ascii_alphanumeric());
    if !plain {
        reader.wrong(e.line, format!("invalid kernel name '{}'", shown(&name)));
        return None;
    }
    let mut kernel = Kernel {
        name,
        line: e.line,
        num: 0,
        rep: 1,
        sources: Vec::new(),
        args: None,
        constants: Vec::new(),
        ports: Vec::new(),
        rest: Vec::new(),
    };
    let mut numbered = None;
    for c in &e.children {
        if c.is("num") {
            numbered = reader.number(c, "the number", KERNELS_MAX);
            kernel.num = numbered?;
        } else if c.is("rep") {
            kernel.rep = reader.number(c, "the number of copies", KERNELS_MAX + 1)?;
            if kernel.rep == 0 {
                reader.wrong(c.line, "0 copies: remove the kernel");
                return None;
            }
        } else if c.is("source") {
            kernel.sources.push(c.text.clone());
        } else if c.is("args") {
            kernel.args = Some(c.text.split_whitespace().map(str::to_owned).collect());
        } else if c.is("const") {
            let text = |names: &[&str]| c.child(names).map(|v| v.text.clone()).unwrap_or_default();
            let width = match c.child(&["width"]) {
                Some(w) => Some(reader.number(w, "the width", 4097)?),
                None => None,
            };
            kernel
                .constants
                .push((text(&["name"]), text(&["val", "value"]), width));
        } else if c.is("interface")
            || ["s_axis", "m_axis", "s_axi", "m_axi"]
                .iter()
                .any(|n| c.is(n))
        {
            kernel.ports.extend(port(reader, c));
        } else if !(c.is("name") && e.text.is_empty()) {
            kernel.rest.push(c.clone());
        }
    }
    if numbered.is_none() {
        reader.wrong(e.line, format!("kernel '{}' has no <num>", kernel.name));
        return None;
    }
    if kernel.num + kernel.rep > KERNELS_MAX {
        reader.wrong(
            e.line,
            format!(
                "kernel '{}': its copies are {} to {}, but numbers end at {}",
                kernel.name,
                kernel.num,
                kernel.num + kernel.rep - 1,
                KERNELS_MAX - 1
            ),
        );
        return None;
    }
    Some(kernel)
}

fn port(reader: &mut Reader<'_>, e: &Element) -> Option<Port> {
    let text = |name: &str| e.child(&[name]).map(|v| v.text.clone());
    let kind = if e.is("interface") {
        match text("direction").as_deref() {
            Some("in") => "s_axis".to_owned(),
            Some("out") => "m_axis".to_owned(),
            other => {
                let other = shown(other.unwrap_or_default());
                reader.wrong(
                    e.line,
                    format!("invalid direction '{other}': use in or out"),
                );
                return None;
            }
        }
    } else {
        e.name.to_ascii_lowercase()
    };
    let bytes = match e.child(&["bytes"]) {
        Some(b) => Some(bytes(reader, b)?),
        None => None,
    };
    Some(Port {
        kind,
        bytes,
        name: text("name").unwrap_or_default(),
        scope: text("scope").unwrap_or_else(|| "global".to_owned()),
        debug: e.child(&["debug"]).is_some_and(flag),
    })
}

/// Parses a size of memory: a multiple of 64 bytes, at most 256 MB (`memory_guard`).
fn bytes(reader: &mut Reader<'_>, e: &Element) -> Option<u64> {
    let text = e.text.trim();
    let (digits, shift) = match text.chars().last()?.to_ascii_uppercase() {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let bytes = (digits.trim().parse::<u64>().ok()).and_then(|n| n.checked_mul(1 << shift));
    match bytes {
        Some(bytes) if (64..=1 << 28).contains(&bytes) && bytes % 64 == 0 => Some(bytes),
        _ => {
            let text = shown(text);
            reader.wrong(
                e.line,
                format!(
                    "invalid memory '{text}': use a multiple of 64 bytes up to 256M, such as 16M"
                ),
            );
            None
        }
    }
}

fn map(path: &Path, root: &Element) -> (Map, Vec<Problem>) {
    let mut reader = Reader {
        path,
        problems: Vec::new(),
    };
    let mut map = Map {
        path: path.to_owned(),
        nodes: Vec::new(),
        rest: Vec::new(),
    };
    for child in &root.children {
        if child.is("node") {
            map.nodes.extend(node(&mut reader, child))
        } else {
            map.rest.push(child.clone())
        }
    }
    if map.nodes.is_empty() && reader.problems.is_empty() {
        reader.wrong(root.line, "the map file has no nodes");
    }
    (map, reader.problems)
}

fn node(reader: &mut Reader<'_>, e: &Element) -> Option<Node> {
    let before = reader.problems.len();
    let mut node = Node {
        line: e.line,
        kind: match e.child(&["board"]) {
            Some(_) => NodeKind::Hardware,
            None => NodeKind::Software,
        },
        board: None,
        comm: None,
        kernels: Vec::new(),
        mac: None,
        ip: None,
        http: None,
        bridge: Default::default(),
        rest: Vec::new(),
    };
    for c in &e.children {
        let word = c.text.to_ascii_lowercase();
        if c.is("type") {
            match word.as_str() {
                "sw" | "software" => node.kind = NodeKind::Software,
                "hw" | "hardware" => node.kind = NodeKind::Hardware,
                _ => reader.wrong(
                    c.line,
                    format!("invalid node type '{}': use sw or hw", shown(&c.text)),
                ),
            }
        } else if c.is("board") {
            node.board = Some(c.text.clone());
        } else if c.is("comm") {
            node.comm = match word.as_str() {
                "shm" => Some(Comm::Shm),
                "tcp" => Some(Comm::Tcp),
                "udp" => Some(Comm::Udp),
                "eth" | "ethernet" => Some(Comm::Eth),
                _ => {
                    let what = shown(&c.text);
                    reader.wrong(
                        c.line,
                        format!("invalid comm '{what}': use shm, tcp, udp or eth"),
                    );
                    None
                }
            };
        } else if c.is("kernel") {
            places(reader, c, &mut node.kernels);
        } else if c.is("mac") || c.is("mac_addr") {
            node.mac = mac(&c.text);
            if node.mac.is_none() {
                reader.wrong(c.line, format!("invalid MAC address '{}'", shown(&c.text)));
            }
        } else if c.is("ip") || c.is("ip_addr") {
            node.ip = c.text.parse().ok();
            if node.ip.is_none() {
                reader.wrong(c.line, format!("invalid IP address '{}'", shown(&c.text)));
            }
        } else if c.is("http") {
            node.http = http(&c.text);
            if node.http.is_none() {
                reader.wrong(
                    c.line,
                    format!(
                        "invalid HTTP port '{}': use a port of this host, or ADDRESS:PORT",
                        shown(&c.text)
                    ),
                );
            }
        } else if c.is("app_bridge") {
            for role in &c.children {
                node.bridge
                    .insert(role.name.to_ascii_lowercase(), role.text.clone());
            }
        } else {
            node.rest.push(c.clone());
        }
    }
    (reader.problems.len() == before).then_some(node)
}

/// `<kernel> 3 </kernel>`, `<kernel> 3-18 </kernel>`, or with `<num>`, `<slr>` and `<type>`.
fn places(reader: &mut Reader<'_>, e: &Element, places: &mut Vec<KernelPlacement>) {
    let number = e.child(&["num"]).unwrap_or(e);
    let slr = e.child(&["slr"]).map(|s| s.text.clone());
    let form = e.child(&["type"]).map(|s| s.text.clone());
    let mut ends = number.text.splitn(2, '-').map(|end| Element {
        text: end.trim().to_owned(),
        line: number.line,
        ..Element::default()
    });
    let first = ends
        .next()
        .and_then(|end| reader.number(&end, "kernel", KERNELS_MAX));
    let last = match ends.next() {
        Some(end) => reader.number(&end, "kernel", KERNELS_MAX),
        None => first,
    };
    let (Some(first), Some(last)) = (first, last) else {
        return;
    };
    if first > last {
        reader.wrong(
            number.line,
            format!("kernels {first} to {last}: the first is greater than the last"),
        );
    }
    places.extend((first..=last).map(|kernel| KernelPlacement {
        kernel,
        line: e.line,
        slr: slr.clone(),
        form: form.clone(),
    }));
}

/// A port of the loopback address (0: any free one), or an address and a port.
fn http(text: &str) -> Option<SocketAddr> {
    match text.parse() {
        Ok(port) => Some((Ipv4Addr::LOCALHOST, port).into()),
        Err(_) => text.parse::<SocketAddrV4>().ok().map(SocketAddr::from),
    }
}

/// Six pairs of hexadecimal digits, in lower case.
fn mac(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    let good = parts.len() == 6
        && parts
            .iter()
            .all(|p| p.len() == 2 && p.chars().all(|c| c.is_ascii_hexdigit()));
    good.then(|| parts.join(":").to_ascii_lowercase())
}
