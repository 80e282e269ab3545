//! Types, operands and constant expressions.

use super::cursor::Cursor;
use crate::error::{Error, Result};
use crate::ir::{masked, signed, AggregateId, GlobalId, ScaledIndex, Type, Value, ValueId};
use std::cell::RefCell;
use std::collections::HashMap;

/// The names of a module's types and globals.
#[derive(Default)]
pub struct Symbols {
    /// A type that cannot be synthesized is an error where it is used.
    pub types: HashMap<String, Result<Type>>,
    pub globals: HashMap<String, GlobalId>,
    /// Constant structures that are operands of instructions.
    pub aggregates: RefCell<Vec<(Type, Vec<Value>)>>,
}

/// The names of a function's values.
pub type Locals = HashMap<String, ValueId>;

/// The operands of `getelementptr`: base, constant offset in bytes, variable indices.
pub type Address = (Value, i64, Vec<ScaledIndex>);

impl Symbols {
    /// Reads a module's types, given by names and texts. A type may precede those of its members.
    pub fn define(&mut self, mut types: Vec<(&str, &str)>) {
        loop {
            let before = types.len();
            types.retain(|(name, text)| match self.ty(&mut Cursor::new(text)) {
                Ok(ty) => {
                    self.types.insert((*name).to_owned(), Ok(ty));
                    false
                }
                Err(_) => true,
            });
            if types.len() == before {
                break;
            }
        }
        // Members last, in LLVM's order: a structure has the error of its member.
        for (name, text) in types.into_iter().rev() {
            let ty = self.ty(&mut Cursor::new(text));
            self.types.insert(name.to_owned(), ty);
        }
    }

    /// Reads a type.
    pub fn ty(&self, t: &mut Cursor<'_>) -> Result<Type> {
        let c = t.peek();
        if t.take("[") {
            let length = t.word();
            let n = length
                .parse()
                .map_err(|_| Error::malformed(format!("malformed array length '{length}'")))?;
            t.expect("x")?;
            let of = self.ty(t)?;
            t.expect("]")?;
            return Ok(Type::Array(n, Box::new(of)));
        }
        if t.take("<{") {
            return self.members(t, "}>", true);
        }
        if t.take("{") {
            return self.members(t, "}", false);
        }
        if c == '%' {
            t.skip(1);
            let name = t.name();
            return match self.types.get(&name) {
                Some(found) => found.clone(),
                None => Err(Error::malformed(format!("unknown type '%{name}'"))),
            };
        }
        if t.take("<") {
            let lanes = t.word();
            let n = lanes
                .parse()
                .map_err(|_| Error::unsupported(format!("vector of '{lanes}' elements")))?;
            t.expect("x")?;
            let of = self.ty(t)?;
            t.expect(">")?;
            return Ok(Type::Vector(n, Box::new(of)));
        }
        let word = t.word();
        Ok(match word {
            "void" => Type::Void,
            "ptr" => {
                if t.take("addrspace") {
                    t.parenthesis();
                }
                Type::Ptr
            }
            "float" => Type::Float(32),
            "double" => Type::Float(64),
            _ => match word.strip_prefix('i').and_then(|n| n.parse().ok()) {
                Some(bits) => Type::Int(bits),
                None => {
                    return Err(Error::unsupported(format!(
                        "values of type '{word}' cannot be synthesized"
                    )))
                }
            },
        })
    }

    fn members(&self, t: &mut Cursor<'_>, end: &str, packed: bool) -> Result<Type> {
        let mut members = Vec::new();
        while !t.take(end) {
            members.push(self.ty(t)?);
            t.take(",");
        }
        Ok(Type::Struct(members, packed))
    }

    /// Reads a type and a value of it.
    pub fn typed(&self, t: &mut Cursor<'_>, locals: &Locals) -> Result<(Type, Value)> {
        let ty = self.ty(t)?;
        let value = self.value(t, &ty, locals)?;
        Ok((ty, value))
    }

    /// Reads a value of a type.
    pub fn value(&self, t: &mut Cursor<'_>, ty: &Type, locals: &Locals) -> Result<Value> {
        t.attributes();
        if ty.is_aggregate() && t.peek() != '%' {
            let mut members = Vec::new();
            self.aggregate(t, ty, &mut members)?;
            let mut all = self.aggregates.borrow_mut();
            all.push((ty.clone(), members));
            return Ok(Value::Aggregate(AggregateId(all.len() - 1)));
        }
        if t.take("true") {
            return Ok(Value::Bits(1));
        }
        if t.take("false") || t.take("zeroinitializer") {
            return Ok(Value::Bits(0));
        }
        if t.take("null") {
            return Ok(Value::Null);
        }
        if t.take("undef") || t.take("poison") {
            return Ok(Value::Undef);
        }
        if let Some(value) = self.expression(t, locals)? {
            return Ok(value);
        }
        match t.peek() {
            '%' => {
                t.skip(1);
                let name = t.name();
                let found = locals.get(&name).copied().map(Value::Local);
                found.ok_or_else(|| Error::malformed(format!("unknown value '%{name}'")))
            }
            '@' => {
                t.skip(1);
                let name = t.name();
                let found = self.globals.get(&name).map(|g| Value::Global(*g, 0));
                found.ok_or_else(|| {
                    Error::unsupported(format!(
                        "the address of function '{name}' is used: hardware has no calls \
                         through pointers"
                    ))
                    .remedy("call the function by its name")
                })
            }
            _ => number(t.word(), ty),
        }
    }

    /// Reads the members of a constant structure.
    fn aggregate(&self, t: &mut Cursor<'_>, ty: &Type, out: &mut Vec<Value>) -> Result<()> {
        if !ty.is_aggregate() {
            out.push(self.value(t, ty, &Locals::new())?);
        } else if t.take("undef") || t.take("poison") {
            out.extend(ty.members().iter().map(|_| Value::Undef));
        } else if t.take("zeroinitializer") {
            out.extend(ty.members().iter().map(|(ty, _)| match ty {
                Type::Ptr => Value::Null,
                _ => Value::Bits(0),
            }));
        } else {
            let open = ["<{", "{", "[", "<"].into_iter().find(|open| t.take(open));
            let end = match open {
                Some("<{") => "}>",
                Some("{") => "}",
                Some("<") => ">",
                Some(_) => "]",
                None => return Err(Error::malformed("malformed constant structure")),
            };
            while !t.take(end) {
                let member = self.ty(t)?;
                self.aggregate(t, &member, out)?;
                t.take(",");
            }
        }
        Ok(())
    }

    /// Reads and evaluates a constant expression, if one follows.
    fn expression(&self, t: &mut Cursor<'_>, locals: &Locals) -> Result<Option<Value>> {
        if t.take("getelementptr") {
            t.attributes();
            t.expect("(")?;
            let (base, offset, indices) = self.address(t, locals)?;
            t.expect(")")?;
            return match base {
                Value::Global(g, o) if indices.is_empty() => Ok(Some(Value::Global(g, o + offset))),
                _ => Err(Error::unsupported("constant address with a variable index")),
            };
        }
        if ["ptrtoint", "inttoptr", "bitcast", "addrspacecast"]
            .iter()
            .any(|word| t.take(word))
        {
            t.expect("(")?;
            let value = self.typed(t, locals)?.1;
            t.expect("to")?;
            self.ty(t)?;
            t.expect(")")?;
            return Ok(Some(value));
        }
        if t.take("select") {
            t.expect("(")?;
            let condition = self.typed(t, locals)?.1;
            t.expect(",")?;
            let yes = self.typed(t, locals)?.1;
            t.expect(",")?;
            let no = self.typed(t, locals)?.1;
            t.expect(")")?;
            return match condition {
                Value::Bits(c) => Ok(Some(if c & 1 == 1 { yes } else { no })),
                _ => Err(Error::unsupported(
                    "constant expression 'select' whose condition is not a constant",
                )),
            };
        }
        if t.take("icmp") {
            let predicate = t.word();
            t.expect("(")?;
            let a = self.typed(t, locals)?.1;
            t.expect(",")?;
            let b = self.typed(t, locals)?.1;
            t.expect(")")?;
            // Different objects have different addresses.
            return match (predicate, a, b) {
                ("eq", Value::Global(..), Value::Global(..) | Value::Null) => {
                    Ok(Some(Value::Bits(u64::from(a == b))))
                }
                ("ne", Value::Global(..), Value::Global(..) | Value::Null) => {
                    Ok(Some(Value::Bits(u64::from(a != b))))
                }
                _ => Err(Error::unsupported(
                    "constant expression that compares addresses other than for equality",
                )),
            };
        }
        Ok(None)
    }

    /// Reads the operands of `getelementptr`.
    pub fn address(&self, t: &mut Cursor<'_>, locals: &Locals) -> Result<Address> {
        let mut ty = self.ty(t)?;
        t.expect(",")?;
        let (_, base) = self.typed(t, locals)?;
        let (mut offset, mut indices, mut first) = (0_i64, Vec::new(), true);
        while t.take(",") {
            if t.rest.starts_with('!') {
                break;
            }
            t.take("inrange");
            let (index_type, value) = self.typed(t, locals)?;
            let bits = index_type.bits().unwrap_or(32);
            let scale;
            if first {
                scale = ty.size() as i64;
            } else if let Type::Struct(members, _) = &ty {
                let Value::Bits(member) = value else {
                    return Err(Error::malformed(
                        "index of a structure's member is not a constant",
                    ));
                };
                offset += ty.offset(member as usize) as i64;
                ty = members.get(member as usize).cloned().ok_or_else(|| {
                    Error::malformed(format!("structure has no member with index {member}"))
                })?;
                continue;
            } else if let Type::Array(_, of) | Type::Vector(_, of) = ty {
                scale = of.size() as i64;
                ty = *of;
            } else {
                return Err(Error::malformed(
                    "index into a value that is not an array, a vector or a structure",
                ));
            }
            first = false;
            match value {
                Value::Bits(n) => offset += signed(n, bits).wrapping_mul(scale),
                Value::Undef => {}
                value => indices.push(ScaledIndex { value, bits, scale }),
            }
        }
        Ok((base, offset, indices))
    }
}

/// Reads a number of a type.
fn number(word: &str, ty: &Type) -> Result<Value> {
    let wrong = || Error::malformed(format!("'{word}' is not a number"));
    let decimal = |word: &str| word.parse::<f64>().map_err(|_| wrong());
    let hexadecimal = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| wrong());
    let bits = match ty {
        Type::Float(32) => {
            // LLVM writes floats as doubles.
            let double = match word.strip_prefix("0x") {
                Some(digits) => f64::from_bits(hexadecimal(digits)?),
                None => decimal(word.trim_end_matches('+'))?,
            };
            u64::from((double as f32).to_bits())
        }
        Type::Float(_) => match word.strip_prefix("0x") {
            Some(digits) => hexadecimal(digits)?,
            None => decimal(word)?.to_bits(),
        },
        Type::Int(bits) if *bits <= 64 => {
            let value = word.parse::<i128>().map_err(|_| wrong())?;
            masked(value as u64, *bits)
        }
        _ => {
            return Err(Error::unsupported(format!(
                "'{word}' is an integer of more than 64 bits"
            )))
        }
    };
    Ok(Value::Bits(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<(Type, Value)> {
        let mut symbols = Symbols::default();
        symbols.globals.insert("a".to_owned(), GlobalId(0));
        symbols.typed(&mut Cursor::new(text), &Locals::new())
    }

    #[test]
    fn reads_numbers_as_their_bits() {
        for (text, bits) in [
            ("i8 -1", 0xff),
            ("i1 true", 1),
            ("float 0x3FF8000000000000", 0x3fc0_0000),
            ("double 1.500000e+00", 0x3ff8_0000_0000_0000),
        ] {
            assert_eq!(value(text).unwrap().1, Value::Bits(bits), "{text}");
        }
        assert!(value("i128 7").is_err());
    }

    #[test]
    fn evaluates_constant_addresses() {
        let element =
            "ptr getelementptr inbounds ([4 x { i32, i16 }], ptr @a, i64 0, i64 2, i32 1)";
        assert_eq!(
            value(element).unwrap().1,
            Value::Global(GlobalId(0), 2 * 8 + 4)
        );
        let element = "ptr getelementptr (<4 x i16>, ptr @a, i64 1, i64 3)";
        assert_eq!(value(element).unwrap().1, Value::Global(GlobalId(0), 14));
        let equal = "i1 icmp eq (ptr @a, ptr null)";
        assert_eq!(value(equal).unwrap().1, Value::Bits(0));
        let function = value("ptr @f").unwrap_err();
        assert_eq!(function.remedy, Some("call the function by its name"));
    }
}
