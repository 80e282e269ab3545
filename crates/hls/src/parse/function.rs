//! Functions: parameters, blocks, and the lines of instructions.

use super::cursor::Cursor;
use super::instruction::{Blocks, Reader};
use super::metadata::Metadata;
use super::operand::{Locals, Symbols};
use crate::error::{Error, Result};
use crate::ir::{Block, BlockId, Function, Instruction, Local, Passing, Type};

/// Reads a function from its lines.
pub fn function(symbols: &Symbols, metadata: &Metadata<'_>, lines: &[&str]) -> Result<Function> {
    let position = metadata.position(lines[0]);
    let (mut function, mut locals) =
        header(symbols, lines[0]).map_err(|e: Error| e.at(&position))?;
    function.position = position;
    let blocks = names(&mut function, &mut locals, &lines[1..]);
    let reader = Reader {
        symbols,
        locals: &locals,
        blocks: &blocks,
    };
    let mut current = BlockId(0);
    let mut at = 1;
    while at < lines.len() {
        let whole = joined(lines, &mut at);
        let line = whole.as_str();
        if line.trim().is_empty() || line.trim_start().starts_with(';') {
            continue;
        }
        if !line.starts_with(' ') {
            let name = line.split(':').next().unwrap_or("").trim_matches('"');
            current = blocks.get(name).copied().unwrap_or(BlockId(0));
            continue;
        }
        let debug = line
            .trim_start()
            .strip_prefix("call void @llvm.dbg.value(metadata ");
        if let Some(rest) = debug {
            name_value(metadata, rest, &locals, &mut function.values);
            continue;
        }
        let position = metadata.position(line);
        let mut t = Cursor::new(line);
        let mut result = None;
        if t.peek() == '%' {
            t.skip(1);
            let name = t.name();
            t.take("=");
            result = locals.get(&name).copied();
        }
        let read = reader.instruction(&mut t).map_err(|e| e.at(&position))?;
        let Some((op, ty)) = read else {
            continue;
        };
        if let Some(result) = result {
            function[result].ty = ty;
        }
        let mut instruction = Instruction::new(result, op, &position);
        instruction.numeric = metadata.is_numeric(line);
        instruction.volatile = line.contains(" volatile ");
        function[current].code.push(instruction);
    }
    Ok(function)
}

/// Reads the line of a function's definition.
fn header(symbols: &Symbols, line: &str) -> Result<(Function, Locals)> {
    let mut t = Cursor::new(line.strip_prefix("define ").unwrap_or(line));
    t.attributes();
    let mut function = Function::empty();
    function.result = symbols.ty(&mut t)?;
    t.expect("@")?;
    function.name = t.name();
    t.take("(");
    let mut locals = Locals::new();
    while !t.take(")") {
        if t.take("...") {
            return Err(Error::unsupported(format!(
                "function '{}' has a variable number of arguments",
                function.name
            ))
            .remedy("declare each parameter"));
        }
        let whole = t.rest;
        let ty = symbols.ty(&mut t)?;
        t.attributes();
        let passing = passing(symbols, &whole[..whole.len() - t.rest.len()])?;
        function.passing.push(passing);
        t.skip(1);
        let name = t.name();
        locals.insert(name.clone(), function.value(&name, ty));
        t.take(",");
    }
    function.parameters = function.values.len();
    Ok((function, locals))
}

/// The way in which a parameter is passed, by its type and attributes.
fn passing(symbols: &Symbols, text: &str) -> Result<Passing> {
    let inside = |word: &str| text.split_once(word).map(|(_, rest)| rest);
    let space = inside("ptr addrspace(").and_then(|rest| rest.split(')').next()?.parse().ok());
    let by_value = inside(" byval(").map(|rest| symbols.ty(&mut Cursor::new(rest)));
    Ok(Passing {
        space: space.unwrap_or(0),
        by_value: by_value.transpose()?,
        read_only: text.contains(" readonly"),
    })
}

/// Adds blocks and results, as uses may precede definitions.
fn names(function: &mut Function, locals: &mut Locals, lines: &[&str]) -> Blocks {
    let mut blocks = Blocks::new();
    for line in lines {
        let line = line.split(';').next().unwrap_or("").trim_end();
        if let Some(name) = line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
            let name = name.trim_matches('"').to_owned();
            blocks.insert(name, BlockId(blocks.len()));
            function.blocks.push(Block::default());
        } else if !line.trim().is_empty() && function.blocks.is_empty() {
            // The first block may lack a name: its number follows the parameters'.
            let name = function.parameters.to_string();
            blocks.insert(name, BlockId(0));
            function.blocks.push(Block::default());
        }
        if let Some(rest) = line.strip_prefix("  %") {
            let mut t = Cursor { rest };
            let name = t.name();
            if t.take("=") && !locals.contains_key(&name) {
                let value = function.value(&name, Type::Void);
                locals.insert(name, value);
            }
        }
    }
    blocks
}

/// Reads a line; the cases of a `switch` have lines of their own, which are joined.
fn joined(lines: &[&str], at: &mut usize) -> String {
    let mut whole = lines[*at].to_owned();
    if whole.trim_start().starts_with("switch ") {
        while !lines[*at].trim_start().starts_with(']') && *at + 1 < lines.len() {
            *at += 1;
            whole.push(' ');
            whole.push_str(lines[*at].trim());
        }
    }
    *at += 1;
    whole
}

/// Names a value after the source's variable.
fn name_value(metadata: &Metadata<'_>, rest: &str, locals: &Locals, values: &mut [Local]) {
    let Some((value, rest)) = rest.split_once(", metadata !") else {
        return;
    };
    let (Some((_, name)), Some((id, expression))) = (value.split_once(" %"), rest.split_once(','))
    else {
        return;
    };
    let Some(variable) = metadata.variable(id) else {
        return;
    };
    // OpenCL's variables have an expression that gives their address space.
    let whole = expression.contains("!DIExpression()")
        || expression.contains("!DIExpression(DW_OP_constu, 0, DW_OP_swap, DW_OP_xderef)");
    if let (Some(&index), true) = (locals.get(name), whole) {
        if index.0 < values.len() {
            values[index.0].name = variable.to_owned();
        }
    }
}
