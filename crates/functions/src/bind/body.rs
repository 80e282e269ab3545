//! The body: selects its codec and decodes it.

use super::{describe, Bind, Binding};
use crate::call::Body;
use crate::codec::{json, npy, picture};
use crate::error::BindError;
use crate::manifest::Codec;
use crate::request::Request;
use crate::types::Type;
use bytes::Bytes;
use http::header::CONTENT_TYPE;

/// The content type without parameters, in lower case.
pub(super) fn content_type(request: &Request<'_>) -> Bind<Option<String>> {
    let Some(value) = request.headers.get(CONTENT_TYPE) else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .map_err(|_| BindError::UnsupportedType("the content type is not text".into()))?;
    let essence = text.split(';').next().unwrap_or_default();
    Ok(Some(essence.trim().to_ascii_lowercase()))
}

impl Binding<'_> {
    pub(super) fn body(&mut self, request: &Request<'_>, body: Body) -> Bind<()> {
        let plan = self.plan;
        if plan.body.is_empty() {
            return if body.is_empty() {
                Ok(())
            } else {
                Err(BindError::BadRequest("the function accepts no body".into()))
            };
        }
        let content_type = content_type(request)?;
        match self.codec(content_type.as_deref(), &body)? {
            Codec::Raw => self.raw(body),
            Codec::Json => {
                let inputs: Vec<_> = plan.body.iter().map(|index| &plan.inputs[*index]).collect();
                let arrays = json::body(&body.to_bytes(), &inputs, plan.body_bytes)?;
                for (index, array) in plan.body.iter().zip(arrays) {
                    if let Some((shape, bytes)) = array {
                        self.set_array(*index, &shape, bytes.into())?;
                    }
                }
                Ok(())
            }
            Codec::Npy => self.npy(body),
            codec => {
                let index = plan.body[0];
                let input = &plan.inputs[index];
                let channels = input
                    .shape
                    .get(2)
                    .and_then(|dimension| dimension.constant());
                let (shape, bytes) = picture::decode(
                    codec,
                    &body.to_bytes(),
                    input.kind,
                    channels,
                    plan.body_bytes,
                )?;
                self.set_array(index, &shape, bytes.into())
            }
        }
    }

    /// Selects the codec by the content type, by the first bytes, or as the first codec without a
    /// signature.
    pub(super) fn codec(&self, content_type: Option<&str>, body: &Body) -> Bind<Codec> {
        let codecs = &self.plan.body_codecs;
        let named = match content_type {
            // The default content type of curl.
            None | Some("" | "application/x-www-form-urlencoded") => None,
            Some("application/octet-stream") => codecs.contains(&Codec::Raw).then_some(Codec::Raw),
            Some("application/json") => Some(Codec::Json),
            Some("application/x-npy" | "application/npy") => Some(Codec::Npy),
            Some("image/png") => Some(Codec::Png),
            Some("image/jpeg" | "image/jpg") => Some(Codec::Jpeg),
            Some("text/plain")
                if self
                    .plan
                    .body
                    .iter()
                    .all(|i| self.plan.inputs[*i].kind == Type::U8) =>
            {
                Some(Codec::Raw)
            }
            Some(other) => {
                return Err(self.unsupported(&format!("'{}'", super::query::shown(other))))
            }
        };
        if let Some(codec) = named {
            return if codecs.contains(&codec) {
                Ok(codec)
            } else {
                Err(self.unsupported(&format!("'{}'", content_type.unwrap_or_default())))
            };
        }
        let start = body.slice(0, 8).to_bytes();
        let signed = [
            (Codec::Png, &b"\x89PNG\r\n\x1a\n"[..]),
            (Codec::Jpeg, b"\xff\xd8\xff"),
            (Codec::Npy, b"\x93NUMPY"),
        ];
        let recognized = signed
            .iter()
            .find(|(codec, sign)| codecs.contains(codec) && start.starts_with(sign));
        let unsigned = codecs
            .iter()
            .find(|codec| matches!(codec, Codec::Raw | Codec::Json));
        recognized
            .map(|(codec, _)| *codec)
            .or(unsigned.copied())
            .ok_or_else(|| self.unsupported("the body's format is not recognized and"))
    }

    fn unsupported(&self, what: &str) -> BindError {
        let types: Vec<&str> = self
            .plan
            .body_codecs
            .iter()
            .map(|codec| codec.content_type())
            .collect();
        BindError::UnsupportedType(format!(
            "{what} is not supported by the function, which accepts {}",
            types.join(", ")
        ))
    }

    /// Concatenated arrays. One unknown dimension follows from the body's length.
    fn raw(&mut self, body: Body) -> Bind<()> {
        let plan = self.plan;
        let length = body.len();
        if let Some(unknown) = self.unknown()? {
            let about = &plan.variables[unknown];
            let (mut low, mut high) = (about.min.max(0), about.max);
            // Usually there is one array, and its length is a multiple of the unknown dimension.
            let guess = i128::from(length)
                / i128::try_from(self.total(Some((unknown, 1))))
                    .unwrap_or(i128::MAX)
                    .max(1);
            if (low..=high).contains(&guess)
                && self.total(Some((unknown, guess))) == u128::from(length)
            {
                (low, high) = (guess, guess);
            }
            // The total is monotonic in the unknown dimension: search by bisection.
            while low < high {
                let middle = low + (high - low) / 2;
                if self.total(Some((unknown, middle))) < u128::from(length) {
                    low = middle + 1
                } else {
                    high = middle
                }
            }
            if self.total(Some((unknown, low))) != u128::from(length) {
                let shapes = self.shapes();
                let reason = format!(
                    "the body has {length} bytes, which match {shapes} for no value of '{}'",
                    about.name
                );
                return Err(BindError::Unprocessable(reason));
            }
            self.set_variable(unknown, low, "the body")?;
        }
        let total = self.total(None);
        if total != u128::from(length) {
            let shapes = self.shapes();
            return Err(BindError::Unprocessable(format!(
                "the body has {length} bytes; {shapes} has {total}"
            )));
        }
        let mut at = 0;
        for index in &plan.body {
            let input = &plan.inputs[*index];
            let shape: Vec<u64> = input
                .shape
                .iter()
                .map(|size| {
                    size.value(&|v| self.values[v])
                        .ok()
                        .flatten()
                        .and_then(|v| v.try_into().ok())
                        .unwrap_or(0)
                })
                .collect();
            let bytes = shape.iter().product::<u64>() * input.kind.size();
            self.set_array(*index, &shape, body.slice(at, bytes))?;
            at += bytes;
        }
        Ok(())
    }

    /// The one variable of the body's shapes that has no value; defaults apply if there are
    /// several.
    fn unknown(&mut self) -> Bind<Option<usize>> {
        let plan = self.plan;
        let list = |values: &[Option<i128>]| {
            let mut unknown: Vec<usize> = Vec::new();
            for variable in plan
                .body
                .iter()
                .flat_map(|i| &plan.inputs[*i].shape)
                .filter_map(|size| size.variable())
            {
                if values[variable].is_none() && !unknown.contains(&variable) {
                    unknown.push(variable);
                }
            }
            unknown
        };
        let mut unknown = list(&self.values);
        if unknown.len() > 1 {
            for variable in unknown {
                let about = &plan.variables[variable];
                let input = about
                    .input
                    .and_then(|input| plan.inputs[input].default)
                    .and_then(|scalar| scalar.integer());
                if let Some(value) = about.default.or(input) {
                    self.set_variable(variable, value, "its default")?;
                }
            }
            unknown = list(&self.values);
        }
        if let (Some(batch), true) = (plan.batch, unknown.len() > 1) {
            if unknown.contains(&batch) {
                self.set_variable(batch, 1, "a body of one")?;
                unknown = list(&self.values);
            }
        }
        if unknown.len() > 1 {
            let names: Vec<&str> = unknown
                .iter()
                .map(|variable| plan.variables[*variable].name.as_str())
                .collect();
            let names = names.join("' or '");
            return Err(BindError::BadRequest(format!(
                "parameter '{names}' is missing: the shape of raw bytes is unknown without it"
            )));
        }
        Ok(unknown.first().copied())
    }

    /// Bytes of all arrays of the body; the sum saturates.
    fn total(&self, assumed: Option<(usize, i128)>) -> u128 {
        let value = |variable: usize| {
            assumed
                .filter(|(v, _)| *v == variable)
                .map(|(_, value)| value)
                .or(self.values[variable])
        };
        let array = |index: &usize| {
            let input = &self.plan.inputs[*index];
            input
                .shape
                .iter()
                .fold(u128::from(input.kind.size()), |bytes, size| {
                    let size = size
                        .value(&value)
                        .ok()
                        .flatten()
                        .and_then(|size| u128::try_from(size).ok())
                        .unwrap_or(0);
                    bytes.saturating_mul(size)
                })
        };
        self.plan
            .body
            .iter()
            .map(array)
            .fold(0, u128::saturating_add)
    }

    fn shapes(&self) -> String {
        let shape = |index: &usize| {
            let input = &self.plan.inputs[*index];
            format!("{}: {}{}", input.name, input.kind, describe(&input.shape))
        };
        self.plan
            .body
            .iter()
            .map(shape)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Concatenated NumPy files.
    fn npy(&mut self, body: Body) -> Bind<()> {
        let plan = self.plan;
        let length = body.len();
        let mut at = 0;
        for index in &plan.body {
            let input = &plan.inputs[*index];
            let wrong =
                |reason: String| BindError::Unprocessable(format!("'{}': {reason}", input.name));
            let start: Bytes = body.slice(at, npy::HEADER_MAX).to_bytes();
            let header = npy::header(&start).map_err(wrong)?;
            if header.kind != input.kind {
                return Err(wrong(format!(
                    "the elements are {}, not {}",
                    header.kind, input.kind
                )));
            }
            let bytes = header
                .bytes()
                .filter(|bytes| *bytes <= length - at)
                .ok_or_else(|| wrong("the file is truncated".into()))?;
            at += header.data as u64;
            let data = body.slice(at, bytes);
            if data.len() != bytes {
                return Err(wrong("the file is truncated".into()));
            }
            at += bytes;
            self.set_array(*index, &header.shape, data)?;
        }
        if at == length {
            Ok(())
        } else {
            Err(BindError::Unprocessable(format!(
                "{} trailing bytes after the last array",
                length - at
            )))
        }
    }
}
