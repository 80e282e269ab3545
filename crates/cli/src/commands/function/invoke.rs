//! `baltra function invoke`: calls a function and writes the response to stdout.

use crate::args::Invoke;
use crate::exit::Exit;
use crate::http::{escaped, refusal, Answer, As, Call, Gateway};
use crate::output::{self, Stdout};
use anyhow::{anyhow, bail, Context, Result};
use http::header::{HeaderName, HeaderValue, CONTENT_TYPE};
use http::Method;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// Calls a function.
pub fn invoke(gateway: &Gateway, args: &Invoke) -> Result<ExitCode> {
    let answer = gateway.send(As::Caller, call(args)?)?;
    if args.include {
        eprintln!("{}", answer.status);
        for (name, value) in &answer.headers {
            eprintln!("{name}: {}", String::from_utf8_lossy(value.as_bytes()));
        }
    }
    if !answer.status.is_success() {
        let status = answer.status;
        let body = gateway.collect(answer)?;
        output::error(&refusal(status, &body));
        return Ok(Exit::Failure.into());
    }
    if args.deferred {
        let id = answer.headers.get("x-call-id");
        let id = id.context("the gateway's response has no call id")?;
        println!("{}", String::from_utf8_lossy(id.as_bytes()));
        return Ok(ExitCode::SUCCESS);
    }
    write(gateway, answer, args.output.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

fn call(args: &Invoke) -> Result<Call> {
    let method: Method = args
        .method
        .to_uppercase()
        .parse()
        .map_err(|_| anyhow!("invalid HTTP method '{}'", args.method))?;
    let door = if args.deferred {
        "async-function"
    } else {
        "function"
    };
    let name: Vec<String> = args.name.split('/').map(escaped).collect();
    let mut path = format!("/{door}/{}", name.join("/"));
    for (i, parameter) in args.query.iter().enumerate() {
        let (key, value) = parameter
            .split_once('=')
            .with_context(|| format!("invalid parameter '{parameter}': expected key=value"))?;
        let separator = if i == 0 { '?' } else { '&' };
        path.push_str(&format!("{separator}{}={}", escaped(key), escaped(value)));
    }
    let mut call = Call::new(method.clone(), path);
    if let Some(content_type) = &args.content_type {
        call = call.header(CONTENT_TYPE, HeaderValue::from_str(content_type)?);
    }
    for header in &args.header {
        let (name, value) = header
            .split_once(':')
            .with_context(|| format!("invalid header '{header}': expected 'name: value'"))?;
        let name: HeaderName = name.trim().parse()?;
        call = call.header(name, HeaderValue::from_str(value.trim())?);
    }
    let bodiless = matches!(method, Method::GET | Method::HEAD);
    Ok(match body(args.data.as_deref(), bodiless)? {
        Some(body) => call.bytes(body),
        None => call,
    })
}

/// The body: the argument, or the standard input if it is not a terminal.
fn body(data: Option<&str>, bodiless: bool) -> Result<Option<Vec<u8>>> {
    let input = || -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match data {
        Some("-") => input().map(Some),
        Some(text) => match text.strip_prefix('@') {
            Some("-") => input().map(Some),
            Some(path) => {
                let bytes = std::fs::read(path).with_context(|| format!("cannot read {path}"))?;
                Ok(Some(bytes))
            }
            None => Ok(Some(text.as_bytes().to_vec())),
        },
        None if bodiless || std::io::stdin().is_terminal() => Ok(None),
        None => input().map(Some),
    }
}

fn write(gateway: &Gateway, answer: Answer, path: Option<&Path>) -> Result<()> {
    let Some(path) = path else {
        let text = answer.headers.get(CONTENT_TYPE).is_some_and(|t| {
            let t = t.as_bytes();
            t.starts_with(b"text/") || t.starts_with(b"application/json")
        });
        if std::io::stdout().is_terminal() && !text {
            bail!("the response is binary: write it to a file (--output, or >)");
        }
        return gateway.stream(answer, |part| Ok(Stdout.write_all(part)?));
    };
    let mut file =
        std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    gateway.stream(answer, |part| Ok(file.write_all(part)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_a_text_or_a_file() {
        assert_eq!(body(Some("abc"), false).unwrap().unwrap(), b"abc");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "def").unwrap();
        let named = format!("@{}", file.path().display());
        assert_eq!(body(Some(&named), false).unwrap().unwrap(), b"def");
        assert!(body(Some("@/no/such/file"), false).is_err());
        assert_eq!(body(None, true).unwrap(), None);
    }
}
