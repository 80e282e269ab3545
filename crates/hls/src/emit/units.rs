//! Arithmetic units, and the selection of their operands.

use super::emitter::{unit_name, Emitter, Use};
use super::selection;
use crate::units::{Registered, Unit};
use crate::verilog::{Connection, DataType, Declaration, Expression, Instance, Item, Statement};

/// Ports of the operands.
const OPERANDS: [&str; 2] = ["a", "b"];

impl Emitter<'_> {
    pub fn units(&self, out: &mut Vec<Item>) {
        let registered = Registered::new(self.bodies.iter().map(|body| body.function));
        for ((kind, instance), uses) in &self.units {
            unit(*kind, *instance, uses, registered.units.contains(kind), out);
        }
    }
}

/// An instance of a unit; `is_registered`: its operands come from registers.
fn unit(kind: Unit, instance: u32, uses: &[Use], is_registered: bool, out: &mut Vec<Item>) {
    let name = unit_name(kind, instance);
    let (wide, result) = kind.bits();
    let operands = &OPERANDS[..kind.operands()];
    let signal = |suffix: &str| Expression::name(format!("{name}_{suffix}"));
    let declare = |bits, suffix: &str| {
        let declaration = Declaration::new(DataType::Logic(bits), format!("{name}_{suffix}"));
        Item::Declaration(declaration)
    };
    out.push(Item::Section(name.clone()));
    out.push(Item::Blank);
    out.extend(operands.iter().map(|operand| declare(wide, operand)));
    out.push(declare(result, "y"));
    if kind.waits() {
        out.push(declare(result, "rest"));
        let mut flags = Declaration::new(DataType::Logic(1), format!("{name}_start"));
        flags.names.push(format!("{name}_signed"));
        flags.names.push(format!("{name}_done"));
        out.push(Item::Declaration(flags));
    }
    let mut inputs = Vec::new();
    for (i, operand) in operands.iter().enumerate() {
        let choices = uses.iter().map(|u| (u.when.clone(), u.operands[i].clone()));
        inputs.extend(selection::or_any(&signal(operand), choices.collect()));
    }
    if kind.waits() {
        let active = |uses: &mut dyn Iterator<Item = &Use>| {
            selection::any(uses.map(|u| u.when.clone())).grouped()
        };
        let started = Expression::name("step").and(active(&mut uses.iter()));
        inputs.push(Statement::assign(signal("start"), started));
        let signed = active(&mut uses.iter().filter(|u| u.signed));
        inputs.push(Statement::assign(signal("signed"), signed));
    }
    out.push(Item::Combinational(inputs));
    let mut ports = operands.iter().map(|o| signal(o)).collect::<Vec<_>>();
    if is_registered {
        out.push(Item::Blank);
        let mut registers = Vec::new();
        for (operand, port) in operands.iter().zip(&mut ports) {
            let register = format!("{operand}_q");
            out.push(declare(wide, &register));
            let selected = std::mem::replace(port, signal(&register));
            registers.push(Statement::register(port.clone(), selected));
        }
        let held = Statement::when(Expression::name("step"), registers);
        out.push(Item::Clocked(vec![held]));
    }
    let mut connections = vec![Connection::Same("clk")];
    if kind.waits() {
        connections.push(Connection::Same("rst"));
        connections.push(Connection::Port("start", signal("start")));
        connections.push(Connection::Port("is_signed", signal("signed")));
        connections.push(Connection::Port("done", signal("done")));
        connections.push(Connection::Port("rest", signal("rest")));
    } else {
        connections.push(Connection::Port("enable", Expression::name("step")));
    }
    let operands = operands.iter().zip(ports);
    connections.extend(operands.map(|(operand, port)| Connection::Port(operand, port)));
    connections.push(Connection::Port("y", signal("y")));
    let (module, parameters) = kind.module();
    out.push(Item::Blank);
    out.push(Item::Instance(Instance {
        module: module.to_owned(),
        parameters,
        name: format!("u_{name}"),
        connections,
    }));
}
