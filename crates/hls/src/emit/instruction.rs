//! Instructions: the expressions of their results, and the inputs of units and engines.

use super::emitter::{unit_name, Call, CallKind, Emitter, Spot, Use};
use crate::ir::{
    BinaryOp, Callee, Cast, EngineCall, FloatOrder, FloatPredicate, IntPredicate, Op, Predicate,
    ScaledIndex, Type, Value,
};
use crate::units::{float_parameters, shifts, unit, Shifts, Unit};
use crate::verilog::{
    BinaryOperator, Connection, DataType, Declaration, Expression, Instance, Item,
};

/// Bits of an address.
const ADDRESS: u32 = 32;

impl Emitter<'_> {
    /// Emits an instruction; `index`: its place in the block, `instance`: that of its unit.
    pub fn instruction(&mut self, spot: Spot, index: usize, instance: u32) {
        let f = spot.function;
        let instruction = &self.code(f, spot.block).code[index];
        let kind = unit(self.function(f), instruction);
        let expression = match kind {
            Some(kind) => Some(self.unit(spot, index, kind, instance)),
            None => self.expression(spot, index),
        };
        if let (Some(v), Some(expression)) = (instruction.result, expression) {
            let pure = kind.is_none() && !matches!(instruction.op, Op::Load(..) | Op::Call(..));
            if pure && self.is_known(spot, v, &expression) && !self.has_register(f, v) {
                return;
            }
            let wire = self.wire(f, v);
            self.declare(self.bits(f, v), wire.clone());
            self.wires
                .push(Item::Assign(Expression::name(wire), expression));
        }
    }

    /// The expression of an instruction without a unit; `None` if it has no result.
    fn expression(&mut self, spot: Spot, index: usize) -> Option<Expression> {
        let f = spot.function;
        let (op, bits) = self.operation(spot, index);
        let when = self.when(spot);
        Some(match op {
            Op::Binary(op, a, b) => {
                let (x, y) = (self.view(spot, *a, bits), self.view(spot, *b, bits));
                binary(*op, x, y, bits, b)
            }
            Op::Compare {
                predicate,
                bits: width,
                left: a,
                right: b,
            } => {
                let (x, y) = (self.view(spot, *a, *width), self.view(spot, *b, *width));
                match predicate {
                    Predicate::Float(p) => self.compare_floats(spot, index, *p, *width, x, y),
                    Predicate::Int(p) => compare(*p, x, y),
                }
            }
            Op::Select(c, a, b) => {
                let c = self.view(spot, *c, 1);
                let (x, y) = (self.view(spot, *a, bits), self.view(spot, *b, bits));
                c.select(x, y)
            }
            Op::Cast(cast, from, a) => {
                let from = self.function(f).bits_of(*a, *from);
                let x = self.view(spot, *a, from);
                match cast {
                    Cast::Sext => x.signed().resized(bits),
                    _ => x.resized(bits),
                }
            }
            Op::Fneg(a) => invert_sign(self.view(spot, *a, bits), bits),
            Op::Fabs(a) => {
                let mask = Expression::Literal(!(1 << (bits - 1)), bits);
                self.view(spot, *a, bits).binary(BinaryOperator::And, mask)
            }
            Op::Copy(a) => self.view(spot, *a, bits),
            Op::Address {
                base,
                offset,
                indices,
            } => self.address(spot, *base, *offset, indices),
            Op::Load(from, size, condition) if self.memories.far(f, *from) => {
                self.far_load(spot, index, (*from, *size), *condition, bits, when)
            }
            Op::Store {
                value,
                address: to,
                size,
                condition,
            } if self.memories.far(f, *to) => {
                self.far_store(spot, *value, *to, *size, *condition, when);
                return None;
            }
            Op::Load(from, size, _) => self.load(spot, index, *from, *size, when),
            Op::Store {
                value,
                address: to,
                size,
                condition,
            } => {
                self.store(spot, *value, *to, *size, *condition, when);
                return None;
            }
            Op::Call(Callee::Engine(call), arguments)
                if call.uses_channel() || matches!(call, EngineCall::ChannelWord(_)) =>
            {
                return self.channel_call(spot, *call, arguments, when)
            }
            Op::Call(Callee::Engine(call), arguments) => {
                return self.engine_call(spot, *call, arguments, when)
            }
            Op::Call(..) => return None,
            _ => Expression::Literal(0, bits.max(1)),
        })
    }

    /// Adds a use of a unit, and returns its result.
    fn unit(&mut self, spot: Spot, index: usize, kind: Unit, instance: u32) -> Expression {
        let f = spot.function;
        let (op, result) = self.operation(spot, index);
        let (wide, out) = kind.bits();
        let signed = matches!(
            op,
            Op::Binary(BinaryOp::Sdiv | BinaryOp::Srem, ..) | Op::Cast(Cast::Sitofp, ..)
        );
        let mut operands = Vec::new();
        for (i, operand) in op.uses().into_iter().enumerate().take(kind.operands()) {
            let constant = match op {
                Op::Cast(_, from, _) => *from,
                _ => result,
            };
            let from = self.operand_bits(f, operand, constant);
            let mut view = self.view(spot, operand, from);
            if kind == Unit::Product {
                view = view.resized(wide);
            } else if from < wide {
                view = if signed { view.signed() } else { view }.resized(wide);
            }
            if i == 1 && matches!(op, Op::Binary(BinaryOp::Fsub, ..)) {
                view = invert_sign(view, wide);
            }
            operands.push(view);
        }
        if kind.waits() {
            self.waiting.insert(kind);
        }
        let when = self.when(spot);
        self.units.entry((kind, instance)).or_default().push(Use {
            when,
            operands,
            signed,
        });
        let name = unit_name(kind, instance);
        let y = Expression::name(match op {
            Op::Binary(BinaryOp::Urem | BinaryOp::Srem, ..) => format!("{name}_rest"),
            _ => format!("{name}_y"),
        });
        match result {
            _ if result < out => y.resized(result),
            _ if kind == Unit::Product => y.signed().resized(result),
            _ => y,
        }
    }

    fn compare_floats(
        &mut self,
        spot: Spot,
        index: usize,
        predicate: FloatPredicate,
        width: u32,
        x: Expression,
        y: Expression,
    ) -> Expression {
        let f = spot.function;
        let result = self.code(f, spot.block).code[index].result;
        let name = result.map_or("", |v| self.value_name(f, v)).to_owned();
        let signal = |suffix: &str| format!("{name}_{suffix}");
        let mut declaration = Declaration::new(DataType::Logic(1), signal("less"));
        declaration
            .names
            .extend([signal("equal"), signal("unordered")]);
        self.declared.push(Item::Declaration(declaration));
        let [less, equal, unordered] =
            ["less", "equal", "unordered"].map(|s| Expression::Name(signal(s)));
        self.wires.push(Item::Instance(Instance {
            module: "hls_fcompare".to_owned(),
            parameters: float_parameters(width),
            name: format!("u_{name}"),
            connections: vec![
                Connection::Port("a", x),
                Connection::Port("b", y),
                Connection::Port("less", less.clone()),
                Connection::Port("equal", equal.clone()),
                Connection::Port("unordered", unordered.clone()),
            ],
        }));
        match (predicate.order, predicate.unordered) {
            (FloatOrder::Equal, false) => equal,
            (FloatOrder::NotEqual, false) => equal.or(unordered).negated(),
            (FloatOrder::Less, false) => less,
            (FloatOrder::LessEqual, false) => less.or(equal),
            (FloatOrder::Greater, false) => less.or(equal).or(unordered).negated(),
            (FloatOrder::GreaterEqual, false) => less.or(unordered).negated(),
            (FloatOrder::Always, false) => unordered.negated(),
            (FloatOrder::Never, true) => unordered,
            (FloatOrder::Equal, true) => equal.or(unordered),
            (FloatOrder::NotEqual, true) => equal.negated(),
            (FloatOrder::Less, true) => less.or(unordered),
            (FloatOrder::LessEqual, true) => less.or(equal).or(unordered),
            (FloatOrder::Greater, true) => less.or(equal).negated(),
            (FloatOrder::GreaterEqual, true) => less.negated(),
            (FloatOrder::Always, true) => Expression::Literal(1, 1),
            (FloatOrder::Never, false) => Expression::Literal(0, 1),
        }
    }

    fn address(
        &mut self,
        spot: Spot,
        base: Value,
        offset: i64,
        indices: &[ScaledIndex],
    ) -> Expression {
        let mut terms = Vec::new();
        let mut constant = offset;
        match base {
            Value::Global(g, o) => constant += self.memories.offset(g) as i64 + o,
            Value::Null | Value::Undef => {}
            base => terms.push(self.view(spot, base, ADDRESS)),
        }
        for index in indices {
            let view = self.view(spot, index.value, index.bits);
            let view = match index.bits {
                ADDRESS => view,
                0..ADDRESS => view.signed().resized(ADDRESS),
                _ => view.resized(ADDRESS),
            };
            terms.push(match index.scale {
                1 => view,
                s if s.count_ones() == 1 => {
                    let by = Expression::Number(u64::from(s.trailing_zeros()));
                    view.binary(BinaryOperator::ShiftLeft, by).grouped()
                }
                s => {
                    let by = Expression::Literal(s as u64, ADDRESS);
                    view.binary(BinaryOperator::Multiply, by).grouped()
                }
            });
        }
        if constant != 0 || terms.is_empty() {
            terms.push(Expression::Literal(constant as u64, ADDRESS));
        }
        let sum = terms
            .into_iter()
            .reduce(|a, b| a.binary(BinaryOperator::Add, b));
        sum.unwrap_or(Expression::Literal(0, ADDRESS))
    }

    /// Adds a call of an engine, and returns its result, if any.
    fn engine_call(
        &mut self,
        spot: Spot,
        call: EngineCall,
        arguments: &[(Type, Value)],
        when: Expression,
    ) -> Option<Expression> {
        let inputs: &[(&'static str, u32)] = match call {
            EngineCall::Send | EngineCall::Take => &[("call_command", 32), ("call_bytes", 32)],
            EngineCall::Put => &[("call_data", 64)],
            EngineCall::Text | EngineCall::End => &[("call_command", 32)],
            _ => &[],
        };
        let when = match (call, arguments.first()) {
            (EngineCall::Fence, Some((_, condition @ Value::Local(_)))) => {
                when.and(self.view(spot, *condition, 1))
            }
            _ => when,
        };
        if call.waits() {
            let values = inputs.iter().zip(arguments);
            let inputs = values.map(|((name, bits), (_, v))| (*name, self.view(spot, *v, *bits)));
            let call = Call {
                inputs: inputs.collect(),
                made: when.clone(),
                when,
                kind: CallKind::Engine(call),
            };
            self.calls.push(call);
        }
        let outcome = |member| Expression::name("port_outcome").member(member);
        Some(match call {
            EngineCall::Rank => Expression::name("own").resized(32),
            EngineCall::Cycles => Expression::name("port_cycles"),
            EngineCall::Sent => Expression::name("port_fault").resized(32),
            EngineCall::Get => Expression::name("port_there"),
            EngineCall::Beat => Expression::name("in_data"),
            EngineCall::Outcome => Expression::Concatenation(vec![
                Expression::Zeroes(4),
                outcome("tag"),
                outcome("source"),
                outcome("fault"),
            ]),
            EngineCall::Bytes => outcome("size").resized(32),
            // Calls without a result, and those that other code emits.
            EngineCall::Fence
            | EngineCall::ChannelRead(_)
            | EngineCall::ChannelWrite(_)
            | EngineCall::ChannelTryRead(_)
            | EngineCall::ChannelTryWrite(_)
            | EngineCall::ChannelWord(_) => return None,
            EngineCall::Send
            | EngineCall::Start
            | EngineCall::Word
            | EngineCall::LocalId
            | EngineCall::GroupId
            | EngineCall::GlobalId
            | EngineCall::Barrier
            | EngineCall::Put
            | EngineCall::Take
            | EngineCall::Text
            | EngineCall::End => return None,
        })
    }
}

fn invert_sign(value: Expression, bits: u32) -> Expression {
    value.binary(
        BinaryOperator::Xor,
        Expression::Literal(1 << (bits - 1), bits),
    )
}

fn binary(op: BinaryOp, x: Expression, y: Expression, bits: u32, b: &Value) -> Expression {
    let less = |signed| compare(IntPredicate::Less { signed }, x.clone(), y.clone()).grouped();
    let operator = match op {
        BinaryOp::Add => BinaryOperator::Add,
        BinaryOp::Sub => BinaryOperator::Subtract,
        // Products with other factors use a unit.
        BinaryOp::Mul => {
            let shift = |x: Expression, by: u32| {
                let by = Expression::Number(u64::from(by));
                x.binary(BinaryOperator::ShiftLeft, by)
            };
            let found = match b {
                Value::Bits(n) => shifts(*n, bits),
                _ => None,
            };
            return match found {
                Some(Shifts::One(by)) => shift(x, by),
                Some(Shifts::Sum(a, b)) => shift(x.clone(), a)
                    .grouped()
                    .binary(BinaryOperator::Add, shift(x, b).grouped()),
                Some(Shifts::Difference(a, b)) => shift(x.clone(), a)
                    .grouped()
                    .binary(BinaryOperator::Subtract, shift(x, b).grouped()),
                _ => Expression::Literal(0, bits),
            };
        }
        BinaryOp::And => BinaryOperator::And,
        BinaryOp::Or => BinaryOperator::Or,
        BinaryOp::Xor => BinaryOperator::Xor,
        BinaryOp::Shl => BinaryOperator::ShiftLeft,
        BinaryOp::Lshr => BinaryOperator::ShiftRight,
        BinaryOp::Ashr => {
            let shifted = x.signed().binary(BinaryOperator::ArithmeticShiftRight, y);
            return Expression::Unsigned(Box::new(shifted));
        }
        BinaryOp::Umin => return less(false).select(x, y),
        BinaryOp::Umax => return less(false).select(y, x),
        BinaryOp::Smin => return less(true).select(x, y),
        BinaryOp::Smax => return less(true).select(y, x),
        _ => return Expression::Literal(0, bits),
    };
    x.binary(operator, y)
}

fn compare(predicate: IntPredicate, x: Expression, y: Expression) -> Expression {
    let (operator, signed) = match predicate {
        IntPredicate::Equal => (BinaryOperator::Equal, false),
        IntPredicate::NotEqual => (BinaryOperator::NotEqual, false),
        IntPredicate::Less { signed } => (BinaryOperator::Less, signed),
        IntPredicate::LessEqual { signed } => (BinaryOperator::LessEqual, signed),
        IntPredicate::Greater { signed } => (BinaryOperator::Greater, signed),
        IntPredicate::GreaterEqual { signed } => (BinaryOperator::GreaterEqual, signed),
    };
    if signed {
        x.signed().binary(operator, y.signed())
    } else {
        x.binary(operator, y)
    }
}
