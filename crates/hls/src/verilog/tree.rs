//! The nodes of the tree.

/// A module whose ports are declared by an included file.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Lines of the comment before the module.
    pub comment: Vec<String>,
    /// Definitions of the file with the ports.
    pub defines: Vec<String>,
    pub name: String,
    /// Packages whose names are all imported.
    pub imports: Vec<String>,
    /// The included file with the ports.
    pub ports: String,
    pub items: Vec<Item>,
}

/// An item of a module.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Blank,
    /// A comment that begins a section.
    Section(String),
    Enumeration {
        name: String,
        bits: u32,
        variants: Vec<Variant>,
    },
    Declaration(Declaration),
    /// Declarations whose names are aligned.
    Aligned(Vec<Declaration>),
    /// A continuous assignment.
    Assign(Expression, Expression),
    Instance(Instance),
    /// Statements that are executed when the simulation or the configuration begins.
    Initial(Vec<Statement>),
    Combinational(Vec<Statement>),
    /// Statements at each rising edge of `clk`.
    Clocked(Vec<Statement>),
}

/// A value of an enumeration, with a comment that may be empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    pub name: String,
    pub comment: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataType {
    /// A bit, or a vector of more than one bit.
    Logic(u32),
    /// A vector, also of one bit.
    Vector(u32),
    Named(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    pub ty: DataType,
    pub names: Vec<String>,
    /// Words of an array.
    pub words: Option<usize>,
    pub comment: Option<String>,
}

impl Declaration {
    pub fn new(ty: DataType, name: impl Into<String>) -> Declaration {
        Declaration {
            ty,
            names: vec![name.into()],
            words: None,
            comment: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    pub module: String,
    /// Names and values.
    pub parameters: Vec<(&'static str, u32)>,
    pub name: String,
    pub connections: Vec<Connection>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Connection {
    /// All ports to signals of their names.
    All,
    /// A port to the signal of its name.
    Same(&'static str),
    Port(&'static str, Expression),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    Line(Line),
    /// Blocking assignments whose values are aligned.
    Aligned(Vec<(Expression, Expression)>),
    If {
        condition: Expression,
        then: Vec<Statement>,
        otherwise: Vec<Statement>,
    },
    Case {
        subject: Expression,
        arms: Vec<(Expression, Vec<Statement>)>,
        default: Vec<Statement>,
    },
}

/// A statement on one line.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A blocking assignment.
    Assign(Expression, Expression),
    /// A nonblocking assignment.
    Register(Expression, Expression),
    If(Expression, Box<Line>),
    /// A loop from 0.
    For {
        variable: &'static str,
        count: u64,
        body: Box<Line>,
    },
}

impl Line {
    pub fn guarded(self, condition: Expression) -> Line {
        Line::If(condition, Box::new(self))
    }
}

impl From<Line> for Statement {
    fn from(line: Line) -> Statement {
        Statement::Line(line)
    }
}

impl Statement {
    pub fn assign(target: Expression, value: Expression) -> Statement {
        Line::Assign(target, value).into()
    }

    pub fn register(target: Expression, value: Expression) -> Statement {
        Line::Register(target, value).into()
    }

    pub fn when(condition: Expression, then: Vec<Statement>) -> Statement {
        Statement::If {
            condition,
            then,
            otherwise: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOperator {
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOperator {
    Multiply,
    Add,
    Subtract,
    ShiftLeft,
    ShiftRight,
    ArithmeticShiftRight,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    And,
    Xor,
    Or,
    LogicalAnd,
    LogicalOr,
}

/// An expression. The printer adds parentheses where precedence needs them.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    Name(String),
    /// A number without a width.
    Number(u64),
    /// A number of N bits.
    Literal(u64, u32),
    /// The contents of a word of N bits, with all digits.
    Word(u64, u32),
    /// N bits 0.
    Zeroes(u32),
    /// All bits 0 or 1.
    Fill(bool),
    Unary(UnaryOperator, Box<Expression>),
    Binary(BinaryOperator, Box<Expression>, Box<Expression>),
    Conditional(Box<Expression>, Box<Expression>, Box<Expression>),
    /// A conversion to N bits.
    Resize(u32, Box<Expression>),
    Signed(Box<Expression>),
    Unsigned(Box<Expression>),
    Index(Box<Expression>, Box<Expression>),
    /// Bits from the first to the second.
    Slice(Box<Expression>, u32, u32),
    /// N bits from a variable one on.
    Part(Box<Expression>, Box<Expression>, u32),
    /// The start of a part: an index in units of N bits.
    Scaled(u64, Box<Expression>),
    Member(Box<Expression>, &'static str),
    Concatenation(Vec<Expression>),
    Repetition(u64, Box<Expression>),
    /// Parentheses that make an expression easier to read.
    Group(Box<Expression>),
}

impl Expression {
    pub fn name(name: impl Into<String>) -> Expression {
        Expression::Name(name.into())
    }

    pub fn binary(self, operator: BinaryOperator, other: Expression) -> Expression {
        Expression::Binary(operator, Box::new(self), Box::new(other))
    }

    pub fn and(self, other: Expression) -> Expression {
        self.binary(BinaryOperator::LogicalAnd, other)
    }

    pub fn or(self, other: Expression) -> Expression {
        self.binary(BinaryOperator::LogicalOr, other)
    }

    pub fn equals(self, other: Expression) -> Expression {
        self.binary(BinaryOperator::Equal, other)
    }

    pub fn negated(self) -> Expression {
        Expression::Unary(UnaryOperator::Not, Box::new(self))
    }

    pub fn select(self, yes: Expression, no: Expression) -> Expression {
        Expression::Conditional(Box::new(self), Box::new(yes), Box::new(no))
    }

    pub fn resized(self, bits: u32) -> Expression {
        Expression::Resize(bits, Box::new(self))
    }

    pub fn signed(self) -> Expression {
        Expression::Signed(Box::new(self))
    }

    pub fn index(self, index: Expression) -> Expression {
        Expression::Index(Box::new(self), Box::new(index))
    }

    pub fn bit(self, bit: u32) -> Expression {
        self.index(Expression::Number(u64::from(bit)))
    }

    /// Bits of any expression. Verilog has them of signals and elements only (IEEE 1800-2017, 11.5.1),
    /// which Verilator does not check.
    pub fn slice(self, high: u32, low: u32) -> Expression {
        match self {
            Expression::Slice(all, _, first) => Expression::Slice(all, first + high, first + low),
            Expression::Name(_) | Expression::Index(..) => {
                Expression::Slice(Box::new(self), high, low)
            }
            _ => self.shifted(Expression::Number(u64::from(low)), high + 1 - low),
        }
    }

    /// The same from a position that is a signal.
    pub fn part(self, start: Expression, bits: u32) -> Expression {
        match self {
            Expression::Name(_) | Expression::Index(..) => {
                Expression::Part(Box::new(self), Box::new(start), bits)
            }
            _ => self.shifted(start, bits),
        }
    }

    fn shifted(self, start: Expression, bits: u32) -> Expression {
        self.binary(BinaryOperator::ShiftRight, start).resized(bits)
    }

    pub fn scaled(self, by: u64) -> Expression {
        Expression::Scaled(by, Box::new(self))
    }

    pub fn member(self, name: &'static str) -> Expression {
        Expression::Member(Box::new(self), name)
    }

    pub fn repeated(self, times: u64) -> Expression {
        Expression::Repetition(times, Box::new(self))
    }

    pub fn grouped(self) -> Expression {
        Expression::Group(Box::new(self))
    }
}
