//! Resolves calls: finds the functions that are reachable from the entry, and rejects recursion and
//! calls of functions without a definition.

use super::{channels, pipes, printf};
use crate::error::{Error, Result};
use crate::ir::{BinaryOp, Callee, EngineCall, FunctionId, Module, Op, Type, Value};
use std::collections::HashMap;

/// Resolves the calls of all reachable functions, and lists these functions, callees before their
/// callers.
pub fn resolve(module: &mut Module, entry: &str) -> Result<Vec<FunctionId>> {
    let names = (module.functions.iter().enumerate())
        .map(|(i, f)| (f.name.clone(), FunctionId(i)))
        .collect();
    let mut resolver = Resolver {
        module,
        names,
        path: Vec::new(),
        reached: Vec::new(),
    };
    let found = resolver.names.get(entry).copied();
    let missing = || Error::internal(format!("the IR has no function '{entry}'"));
    resolver.reach(found.ok_or_else(missing)?)?;
    Ok(resolver.reached)
}

/// Updates calls after the functions have been replaced by the reachable ones in reverse order.
pub fn renumber(module: &mut Module, reached: &[FunctionId]) {
    let order = reached.iter().rev().enumerate();
    let moved: HashMap<FunctionId, FunctionId> =
        order.map(|(new, old)| (*old, FunctionId(new))).collect();
    let blocks = module.functions.iter_mut().flat_map(|f| &mut f.blocks);
    for instruction in blocks.flat_map(|b| &mut b.code) {
        if let Op::Call(Callee::Function(f), _) = &mut instruction.op {
            *f = moved[f];
        }
    }
}

struct Resolver<'a> {
    module: &'a mut Module,
    names: HashMap<String, FunctionId>,
    path: Vec<FunctionId>,
    reached: Vec<FunctionId>,
}

impl Resolver<'_> {
    fn reach(&mut self, at: FunctionId) -> Result<()> {
        if self.reached.contains(&at) {
            return Ok(());
        }
        if self.path.contains(&at) {
            let f = &self.module[at];
            return Err(Error::unsupported(format!(
                "'{}' calls itself: hardware has no stack",
                f.name
            ))
            .remedy("replace the recursion by a loop")
            .at(&f.position));
        }
        self.path.push(at);
        // `printf` first, as its format determines which of the library's functions are called.
        let function = &mut self.module.functions[at.0];
        printf::expand(function, &mut self.module.globals)?;
        let mut callees = Vec::new();
        let function_values = &function.values;
        let blocks = function.blocks.iter_mut();
        for instruction in blocks.flat_map(|b| &mut b.code) {
            let position = &instruction.position;
            if let Op::Binary(op @ (BinaryOp::Fdiv | BinaryOp::Frem), a, b) = instruction.op {
                let ty = instruction.result.map(|r| function_values[r.0].ty.clone());
                instruction.op = division(&self.names, op, ty.unwrap_or(Type::Void), a, b)
                    .map_err(|e| e.at(position))?;
            }
            let Op::Call(callee, arguments) = &mut instruction.op else {
                continue;
            };
            if let Callee::Elementwise(function) = callee {
                callees.push(*function);
            }
            let Callee::Named(name) = &*callee else {
                continue;
            };
            if let Some(&function) = self.names.get(name) {
                if !callees.contains(&function) {
                    callees.push(function);
                }
                *callee = Callee::Function(function);
            } else if let Some(engine) = EngineCall::named(name) {
                if arguments.len() != engine.arguments() {
                    return Err(Error::unsupported(format!(
                        "call of '{name}' with {} arguments, expected {}",
                        arguments.len(),
                        engine.arguments()
                    ))
                    .at(position));
                }
                *callee = Callee::Engine(engine);
            } else if pipes::is_of_sub_group(name) {
                return Err(
                    Error::unsupported("reservations of sub-groups are not supported")
                        .remedy("reserve packets for a work-item or a work-group")
                        .at(position),
                );
            } else if !name.starts_with("llvm.")
                && !channels::is_call(name)
                && !pipes::is_call(name)
            {
                return Err(Error::undefined_function(name).at(position));
            }
        }
        for callee in callees {
            self.reach(callee)?;
        }
        self.path.pop();
        self.reached.push(at);
        Ok(())
    }
}

/// The library's function for a division or remainder of floats, by its operands' type.
fn division(
    names: &HashMap<String, FunctionId>,
    op: BinaryOp,
    ty: Type,
    a: Value,
    b: Value,
) -> Result<Op> {
    let word = match op {
        BinaryOp::Fdiv => "divide",
        _ => "remainder",
    };
    let width = match ty.element() {
        Type::Float(32) => "float",
        _ => "double",
    };
    let name = format!("__baltra_{word}_{width}");
    if !names.contains_key(&name) {
        let what = match op {
            BinaryOp::Fdiv => "division",
            _ => "remainder",
        };
        let of = match width {
            "float" => "floats",
            _ => "doubles",
        };
        let error = Error::unsupported(format!("{what} of {of} is not supported"));
        return Err(error.remedy(match width {
            "float" => "use integers, or multiply by a constant",
            _ => "use floats, or multiply by a constant",
        }));
    }
    let callee = match ty {
        Type::Vector(..) => Callee::Elementwise(names[&name]),
        _ => Callee::Named(name),
    };
    Ok(Op::Call(callee, vec![(ty.clone(), a), (ty, b)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn resolved(text: &str) -> Result<(Module, Vec<FunctionId>)> {
        let mut module = parse::module(text)?;
        let reached = resolve(&mut module, crate::ir::ENTRY)?;
        Ok((module, reached))
    }

    #[test]
    fn lists_reachable_functions_callees_first() {
        let text = "define void @unused() {\n  ret void\n}\n\
                    define void @hum_main() {\n  call void @f()\n  ret void\n}\n\
                    define void @f() {\n  %x = call i32 @hum_port_rank()\n  ret void\n}\n";
        let (module, reached) = resolved(text).unwrap();
        assert_eq!(reached, [FunctionId(2), FunctionId(1)]);
        let call = |f: usize| &module.functions[f].blocks[0].code[0].op;
        assert!(matches!(
            call(1),
            Op::Call(Callee::Function(FunctionId(2)), _)
        ));
        assert!(matches!(
            call(2),
            Op::Call(Callee::Engine(EngineCall::Rank), _)
        ));
    }

    #[test]
    fn rejects_recursion_and_undefined_functions() {
        let error = resolved("define void @hum_main() {\n  call void @hum_main()\n  ret void\n}\n");
        assert!(error.unwrap_err().message.contains("calls itself"));
        let error = resolved("define void @hum_main() {\n  call void @exec()\n  ret void\n}\n");
        assert!(error.unwrap_err().message.contains("'exec'"));
    }
}
