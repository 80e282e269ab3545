//! A tree of the SystemVerilog that the synthesis emits, and its text.

mod print;
mod tree;

pub use tree::{
    BinaryOperator, Connection, DataType, Declaration, Expression, Instance, Item, Line, Module,
    Statement, Variant,
};
