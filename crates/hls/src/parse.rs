//! Reads the text of LLVM's IR (version 16), restricted to the subset that kernels use. Anything
//! else is an error with the source line that it comes from.

mod cursor;
mod function;
mod global;
mod instruction;
mod metadata;
mod operand;

use crate::error::{Error, Position, Result};
use crate::ir::{Global, GlobalId, Module};
pub use cursor::{unescape, Cursor};
use function::function;
use global::global;
use metadata::Metadata;
use operand::Symbols;

/// Reads a module.
///
/// # Errors
///
/// The text is not IR of this version, or uses more than the supported subset.
pub fn module(text: &str) -> Result<Module> {
    let mut symbols = Symbols::default();
    let mut metadata = Metadata::default();
    let mut module = Module::default();
    let lines: Vec<&str> = text.lines().collect();
    let mut types = Vec::new();
    // Names first, as uses may precede definitions.
    for line in &lines {
        if let Some(rest) = line.strip_prefix('!') {
            metadata.add(rest);
        } else if let Some(rest) = line.strip_prefix('%') {
            if let Some((name, ty)) = rest.split_once(" = type ") {
                types.push((name.trim_matches('"'), ty));
            }
        } else if let Some(rest) = line.strip_prefix('@') {
            let name = Cursor::new(rest).name();
            let index = GlobalId(module.globals.len());
            symbols.globals.insert(name.clone(), index);
            module.globals.push(Global::zeroed(name, 0));
        }
    }
    symbols.define(types);
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if line.starts_with('@') {
            global(&symbols, line, &mut module.globals).map_err(|e: Error| {
                e.at(&metadata.position_of_global(line)).at(&Position {
                    file: "LLVM IR".to_owned(),
                    line: at + 1,
                })
            })?;
        } else if let Some(text) = line.strip_prefix("module asm ") {
            return Err(Error::unsupported(format!(
                "assembly outside of functions cannot be synthesized: {text}"
            ))
            .remedy("remove it"));
        } else if line.starts_with("define ") {
            let end = (at..lines.len())
                .find(|&i| lines[i] == "}")
                .unwrap_or(lines.len());
            let function = function(&symbols, &metadata, &lines[at..end])?;
            module.functions.push(function);
            at = end;
        }
        at += 1;
    }
    module.aggregates = symbols.aggregates.into_inner();
    Ok(module)
}

/// The first function of a text, for tests of passes.
#[cfg(test)]
pub fn first_function(text: &str) -> crate::ir::Function {
    module(text).unwrap().functions.remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{IntPredicate, Op, Predicate};

    #[test]
    fn reads_blocks_and_typed_instructions() {
        let text = "@a = internal global [2 x i16] [i16 1, i16 -1], align 2\n\
                    define i1 @f(i32 %x) {\nentry:\n  br label %next\nnext:\n  \
                    %less = icmp slt i32 %x, 7\n  ret i1 %less\n}\n";
        let module = module(text).unwrap();
        assert_eq!(module.globals[0].bytes, [1, 0, 0xff, 0xff]);
        let function = &module.functions[0];
        assert_eq!((function.parameters, function.blocks.len()), (1, 2));
        let less = Predicate::Int(IntPredicate::Less { signed: true });
        assert!(matches!(
            function.blocks[1].code[0].op,
            Op::Compare { predicate, bits: 32, .. } if predicate == less
        ));
    }

    #[test]
    fn types_may_precede_those_of_their_members() {
        let text =
            "%a = type { i8, %b, [2 x %c] }\n%b = type <{ i8, %c }>\n%c = type { i16, i32 }\n\
                    define ptr @f(ptr %x, i64 %i) {\n  \
                    %y = getelementptr %a, ptr %x, i64 %i, i32 2, i64 1, i32 1\n  ret ptr %y\n}\n";
        let function = first_function(text);
        let Op::Address {
            indices, offset, ..
        } = &function.blocks[0].code[0].op
        else {
            panic!("not an address");
        };
        // %b has no padding within, %c is aligned to 4 bytes.
        assert_eq!((indices[0].scale, *offset), (28, 24));
    }

    #[test]
    fn a_type_that_cannot_be_synthesized_is_an_error_where_it_is_used() {
        let text = "%a = type { i32, %b }\n%b = type { x86_fp80 }\n\
                    define ptr @f(ptr %x, i64 %i) {\n  \
                    %y = getelementptr %a, ptr %x, i64 %i\n  ret ptr %y\n}\n";
        let error = module(text).unwrap_err();
        assert!(error.message.contains("'x86_fp80'"), "{error}");
    }

    #[test]
    fn errors_of_globals_have_the_line_of_the_ir() {
        let error = module("\n@a = internal global x86_fp80 0, align 16\n").unwrap_err();
        assert!(error.to_string().starts_with("LLVM IR:2: "), "{error}");
    }
}
