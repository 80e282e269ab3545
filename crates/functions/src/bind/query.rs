//! Query parameters, headers and the sub-path.

use super::text::{number, numbers};
use super::{Bind, Binding};
use crate::error::BindError;
use crate::manifest::Source;
use crate::request::Request;
use std::borrow::Cow;

impl Binding<'_> {
    /// Binds the sub-path, which must be empty for functions that do not read it.
    pub(super) fn path(&mut self, path: &str) -> Bind<()> {
        let Some(input) = self
            .plan
            .inputs
            .iter()
            .position(|input| input.from == Source::Path)
        else {
            return match path {
                "" | "/" => Ok(()),
                _ => Err(BindError::NotFound(
                    "the function has no paths below its name".into(),
                )),
            };
        };
        let path = decode(path, false)
            .ok_or_else(|| BindError::BadRequest("the path is not percent-encoded UTF-8".into()))?;
        self.text(input, path.as_bytes())
    }

    fn text(&mut self, input: usize, text: &[u8]) -> Bind<()> {
        self.set_array(input, &[text.len() as u64], text.to_vec().into())
    }

    /// Binds the query's parameters; each must be a scalar or a symbol of the function.
    pub(super) fn query(&mut self, query: &str) -> Bind<()> {
        let mut seen: Vec<Cow<'_, str>> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decode(name, true), decode(value, true)) else {
                return Err(BindError::BadRequest(format!(
                    "the parameter '{}' is not percent-encoded UTF-8",
                    shown(pair)
                )));
            };
            if seen.contains(&name) {
                return Err(BindError::BadRequest(format!(
                    "duplicate parameter '{}'",
                    shown(&name)
                )));
            }
            let from_query =
                |input: &crate::plan::InputPlan| input.name == *name && input.from == Source::Query;
            if let Some(input) = self.plan.inputs.iter().position(from_query) {
                self.value(input, &value, "parameter")?;
            } else if let Some(variable) = self
                .plan
                .variable(&name)
                .filter(|v| self.plan.variables[*v].input.is_none())
            {
                let value = number(crate::types::Type::U64, &value)
                    .and_then(|scalar| scalar.integer())
                    .ok_or_else(|| {
                        BindError::BadRequest(format!(
                            "the parameter '{name}' is '{}', not a whole number",
                            shown(&value)
                        ))
                    })?;
                self.set_variable(variable, value, "the parameter")?;
            } else {
                return Err(BindError::BadRequest(format!(
                    "the function has no parameter '{}'{}",
                    shown(&name),
                    self.known()
                )));
            }
            seen.push(name);
        }
        Ok(())
    }

    /// Binds headers, and the method's name if the function has it as an input.
    pub(super) fn headers(&mut self, request: &Request<'_>) -> Bind<()> {
        for (index, input) in self.plan.inputs.iter().enumerate() {
            if input.from == Source::Method {
                self.text(index, request.method.as_str().as_bytes())?;
            }
            let Some(name) = &input.header else { continue };
            let mut values = request.headers.get_all(name).iter();
            let Some(value) = values.next() else { continue };
            if values.next().is_some() {
                return Err(BindError::BadRequest(format!("duplicate header '{name}'")));
            }
            let value = value.to_str().map_err(|_| {
                BindError::BadRequest(format!("the header '{name}' is not ASCII text"))
            })?;
            self.value(index, value.trim(), "header")?;
        }
        Ok(())
    }

    fn value(&mut self, input: usize, text: &str, place: &str) -> Bind<()> {
        let plan = &self.plan.inputs[input];
        let (name, kind) = (&plan.name, plan.kind);
        let wrong = |text: &str| {
            BindError::BadRequest(format!(
                "the {place} '{name}' is '{}', not a valid {kind}",
                shown(text)
            ))
        };
        if plan.is_scalar() {
            return self.set_scalar(input, number(kind, text).ok_or_else(|| wrong(text))?);
        }
        let (count, bytes) = numbers(kind, text).map_err(|part| wrong(&part))?;
        self.set_array(input, &[count], bytes.into())
    }

    /// The existing parameters, for an error message.
    fn known(&self) -> String {
        let inputs = self
            .plan
            .inputs
            .iter()
            .filter(|input| input.from == Source::Query)
            .map(|input| input.name.as_str());
        let symbols = self
            .plan
            .variables
            .iter()
            .filter(|v| v.input.is_none())
            .map(|v| v.name.as_str());
        match inputs.chain(symbols).collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => ": it has none".into(),
            names => format!(": it has {names}"),
        }
    }
}

/// Shortens a request's text for a message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

/// Percent-decoding; `None` if a percent sign is not followed by two digits, or the bytes are not
/// UTF-8.
fn decode(text: &str, plus_is_space: bool) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' if plus_is_space => b' ',
            b'%' => {
                let digit = |c: Option<u8>| c.and_then(|c| (c as char).to_digit(16));
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                (high * 16 + low) as u8
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_are_decoded_or_refused() {
        assert_eq!(decode("a%20b+c", true).unwrap(), "a b c");
        assert_eq!(decode("a+b", false).unwrap(), "a+b");
        assert_eq!(decode("%C3%A9", true).unwrap(), "é");
        for wrong in ["%", "%1", "%zz", "%ff"] {
            assert!(decode(wrong, true).is_none(), "{wrong}");
        }
    }
}
