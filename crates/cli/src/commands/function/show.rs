//! `baltra function list`, `describe`, `logs`.

use crate::http::{escaped, As, Call, Gateway};
use crate::output::{self, Stdout, Table};
use anyhow::Result;
use http::Method;
use serde_json::Value;
use std::io::Write;

fn text(value: &Value, key: &str) -> String {
    match value.get(key) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn count(value: &Value, key: &str) -> String {
    let number = value.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    format!("{number}")
}

/// `baltra function list`
pub fn list(gateway: &Gateway, as_json: bool) -> Result<()> {
    let all = gateway.json(As::Admin, Call::new(Method::GET, "/system/functions"))?;
    if as_json {
        output::json(&all);
        return Ok(());
    }
    let mut table = Table::new(&["NAME", ">REPLICAS", ">READY", ">CALLS", "IMAGE"]);
    for function in all.as_array().into_iter().flatten() {
        table.row([
            text(function, "name"),
            count(function, "replicas"),
            count(function, "availableReplicas"),
            count(function, "invocationCount"),
            text(function, "image"),
        ]);
    }
    table.print();
    Ok(())
}

/// `baltra function describe`
pub fn describe(gateway: &Gateway, name: &str, as_json: bool) -> Result<()> {
    let path = format!("/system/function/{}", escaped(name));
    let function = gateway.json(As::Admin, Call::new(Method::GET, path))?;
    if as_json {
        output::json(&function);
        return Ok(());
    }
    println!("{:<18} {}", "url", gateway.function(name));
    print(&function, 0);
    Ok(())
}

/// Prints a value as text, one line per item.
fn print(value: &Value, depth: usize) {
    let Value::Object(fields) = value else {
        return;
    };
    let indent = "  ".repeat(depth);
    for (key, value) in fields {
        match value {
            Value::Null => {}
            Value::Object(inner) if inner.is_empty() => {}
            Value::Array(inner) if inner.is_empty() => {}
            Value::Object(_) => {
                println!("{indent}{key}");
                print(value, depth + 1);
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                for (i, item) in items.iter().enumerate() {
                    println!("{indent}{key} {i}");
                    print(item, depth + 1);
                }
            }
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(plain).collect();
                println!("{indent}{key:<18} {}", items.join(", "));
            }
            _ => println!("{indent}{key:<18} {}", plain(value)),
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim_end().replace('\n', "\n    "),
        other => other.to_string(),
    }
}

/// `baltra function logs`
pub fn logs(gateway: &Gateway, name: &str, follow: bool, lines: usize) -> Result<()> {
    let path = format!(
        "/system/logs?name={}&tail={lines}&follow={follow}",
        escaped(name)
    );
    let answer = gateway.send(As::Admin, Call::new(Method::GET, path))?;
    if !answer.status.is_success() {
        let status = answer.status;
        let body = gateway.collect(answer)?;
        return Err(crate::http::refusal(status, &body));
    }
    let mut rest = Vec::new();
    let mut out = Stdout;
    gateway.stream(answer, |part| {
        rest.extend_from_slice(part);
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            writeln!(out, "{}", shown(&line))?;
        }
        Ok(out.flush()?)
    })?;
    if !rest.is_empty() {
        writeln!(out, "{}", shown(&rest))?;
    }
    Ok(())
}

/// Formats a line of OpenFaaS's log for display.
fn shown(line: &[u8]) -> String {
    let text_of = |line: &Value| {
        format!(
            "{} {} {}",
            text(line, "timestamp"),
            text(line, "instance"),
            text(line, "text").trim_end()
        )
    };
    match serde_json::from_slice::<Value>(line) {
        Ok(line) => text_of(&line),
        Err(_) => String::from_utf8_lossy(line).trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_shown_as_people_read_them() {
        let line =
            br#"{"name":"a","namespace":"","instance":"n/d","timestamp":"T","text":"hello\n"}"#;
        assert_eq!(shown(line), "T n/d hello");
        assert_eq!(shown(b"plain\n"), "plain");
    }
}
