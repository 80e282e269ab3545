//! The kernels of a program: clang's metadata in the IR.

use super::manifest::{AddressSpace, Argument, KernelInfo};
use crate::ir::space;
use crate::parse::{unescape, Cursor};
use std::collections::HashMap;

/// The nodes of a module by their names, such as `!7`.
type Nodes<'a> = HashMap<&'a str, &'a str>;

/// Describes all kernels, without what the synthesis finds.
pub fn kernels(ir: &str) -> Vec<KernelInfo> {
    let nodes: Nodes<'_> = ir
        .lines()
        .filter(|line| line.starts_with('!'))
        .filter_map(|line| line.split_once(" = "))
        .collect();
    let kernels = ir.lines().filter(|line| line.starts_with("define "));
    kernels.filter_map(|line| kernel(line, &nodes)).collect()
}

fn kernel(line: &str, nodes: &Nodes<'_>) -> Option<KernelInfo> {
    if !line.contains(" spir_kernel ") {
        return None;
    }
    let (_, rest) = line.split_once('@')?;
    let name = Cursor::new(rest).name();
    let node = |name: &str| -> &str {
        let found = line.split_once(&format!(" !{name} ")).map(|(_, rest)| rest);
        let id = found.and_then(|rest| rest.split(' ').next());
        id.and_then(|id| nodes.get(id)).copied().unwrap_or("")
    };
    let field = |name: &str| elements(node(name));
    let spaces = field("kernel_arg_addr_space");
    let (access, types) = (field("kernel_arg_access_qual"), field("kernel_arg_type"));
    let (qualifiers, names) = (field("kernel_arg_type_qual"), field("kernel_arg_name"));
    let text = |list: &[String], i: usize| list.get(i).cloned().unwrap_or_default();
    let arguments = spaces.iter().enumerate().map(|(i, number)| Argument {
        name: text(&names, i),
        type_name: text(&types, i),
        address_space: match number.parse() {
            Ok(space::GLOBAL) => AddressSpace::Global,
            Ok(space::CONSTANT) => AddressSpace::Constant,
            Ok(space::LOCAL) => AddressSpace::Local,
            _ => AddressSpace::Private,
        },
        access: text(&access, i),
        qualifiers: text(&qualifiers, i),
        bytes: 0,
        words: 0,
        packet_bytes: 0,
    });
    let size = |name: &str| -> Option<[u32; 3]> {
        let numbers: Vec<u32> = field(name).iter().filter_map(|n| n.parse().ok()).collect();
        numbers.try_into().ok()
    };
    let required = size("reqd_work_group_size");
    let mut attributes = Vec::new();
    for name in ["reqd_work_group_size", "work_group_size_hint"] {
        if let Some([x, y, z]) = size(name) {
            attributes.push(format!("{name}({x},{y},{z})"));
        }
    }
    if let Some(ty) = hinted_type(node("vec_type_hint")) {
        attributes.push(format!("vec_type_hint({ty})"));
    }
    Some(KernelInfo {
        arguments: arguments.collect(),
        name,
        required_work_group_size: required,
        attributes: attributes.join(" "),
        ..KernelInfo::default()
    })
}

/// The type in OpenCL C of a node such as `!{<4 x i32> undef, i32 1}`: an undefined value, and
/// whether integers have a sign.
fn hinted_type(node: &str) -> Option<String> {
    let inner = node.strip_prefix("!{")?.strip_suffix('}')?;
    let (value, sign) = inner.split_once(", i32 ")?;
    let (element, count) = match value.strip_prefix('<') {
        Some(vector) => {
            let (count, rest) = vector.split_once(" x ")?;
            (rest.split('>').next()?, count)
        }
        None => (value.split(' ').next()?, ""),
    };
    let name = match element {
        "i8" => "char",
        "i16" => "short",
        "i32" => "int",
        "i64" => "long",
        "half" | "float" | "double" => element,
        _ => return None,
    };
    let unsigned = if element.starts_with('i') && sign == "0" {
        "u"
    } else {
        ""
    };
    Some(format!("{unsigned}{name}{count}"))
}

/// The elements of a node such as `!{!"a", i32 1}`: texts and numbers.
fn elements(node: &str) -> Vec<String> {
    let inner = node.trim_start_matches("!{").trim_end_matches('}');
    let mut out = Vec::new();
    let mut rest = inner;
    while !rest.is_empty() {
        let element;
        if let Some(text) = rest.strip_prefix("!\"") {
            let end = text.find('"').unwrap_or(text.len());
            element = String::from_utf8_lossy(&unescape(&text[..end])).into_owned();
            rest = text[end..].trim_start_matches('"');
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            element = rest[..end].rsplit(' ').next().unwrap_or("").to_owned();
            rest = &rest[end..];
        }
        out.push(element);
        rest = rest.trim_start_matches([',', ' ']);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_arguments_and_attributes() {
        let ir = "define dso_local spir_kernel void @f(ptr addrspace(1) %a, i32 %n) #0 \
                  !kernel_arg_addr_space !1 !kernel_arg_access_qual !2 !kernel_arg_type !3 \
                  !kernel_arg_type_qual !4 !kernel_arg_name !5 !reqd_work_group_size !6 {\n\
                  !1 = !{i32 1, i32 0}\n!2 = !{!\"none\", !\"none\"}\n\
                  !3 = !{!\"float*\", !\"int\"}\n!4 = !{!\"const restrict\", !\"\"}\n\
                  !5 = !{!\"a\", !\"n\"}\n!6 = !{i32 16, i32 8, i32 1}\n";
        let kernels = kernels(ir);
        let [kernel] = kernels.as_slice() else {
            panic!("{kernels:?}");
        };
        assert_eq!(kernel.name, "f");
        assert_eq!(kernel.required_work_group_size, Some([16, 8, 1]));
        assert_eq!(kernel.attributes, "reqd_work_group_size(16,8,1)");
        let [a, n] = kernel.arguments.as_slice() else {
            panic!("{kernel:?}");
        };
        assert_eq!((a.name.as_str(), a.type_name.as_str()), ("a", "float*"));
        assert_eq!(a.address_space, AddressSpace::Global);
        assert_eq!(a.qualifiers, "const restrict");
        assert_eq!((n.name.as_str(), n.qualifiers.as_str()), ("n", ""));
        assert_eq!(n.address_space, AddressSpace::Private);
    }

    #[test]
    fn hinted_types_have_their_names_in_opencl_c() {
        let ir = "define spir_kernel void @f() #0 !work_group_size_hint !1 !vec_type_hint !2 {\n\
                  !1 = !{i32 16, i32 8, i32 1}\n!2 = !{<3 x i16> undef, i32 0}\n";
        let attributes = &kernels(ir)[0].attributes;
        assert_eq!(
            attributes,
            "work_group_size_hint(16,8,1) vec_type_hint(ushort3)"
        );
        for (node, name) in [
            ("!{i8 undef, i32 0}", Some("uchar")),
            ("!{<16 x i64> undef, i32 1}", Some("long16")),
            ("!{<2 x float> undef, i32 0}", Some("float2")),
            ("!{double undef, i32 0}", Some("double")),
            ("!{ptr undef, i32 0}", None),
            ("", None),
        ] {
            assert_eq!(hinted_type(node).as_deref(), name, "{node}");
        }
    }
}
