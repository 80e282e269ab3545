//! Tests on IR as text. `crates/cluster/tests/forms.rs` tests kernels in C.

mod chance;
mod helpers;
mod interpret;
mod kernels;
mod overflow;

use crate::error::Result;
use crate::{from_ir, Hardware};

const HEAD: &str = r#"@a = internal global [100 x i32] zeroinitializer, align 4
@b = internal global [100 x float] zeroinitializer, align 4
"#;
const TAIL: &str = r#"
declare void @hum_port_text(i32)
declare i32 @hum_port_rank()
!1 = distinct !DISubprogram(name: "f", file: !2, line: 3)
!2 = !DIFile(filename: "k.c", directory: "/")
!7 = !DILocation(line: 7, column: 3, scope: !1)
!8 = !DILocation(line: 8, column: 3, scope: !1)
"#;

fn made(body: &str) -> Result<Hardware> {
    from_ir(
        &format!("{HEAD}define i32 @hum_main() !dbg !1 {{\n{body}\n}}\n{TAIL}"),
        "msg_test",
        "k.c",
        0,
    )
}

/// A loop over an array around a body.
fn turns(body: &str) -> String {
    format!(
        r#"entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
{body}
  %next = add nuw nsw i32 %i, 1
  %over = icmp eq i32 %next, 100
  br i1 %over, label %done, label %loop, !dbg !7
done:
  ret i32 0"#
    )
}

fn interval(body: &str) -> u32 {
    let hardware = made(&turns(body)).unwrap();
    assert_eq!(hardware.pipelines.len(), 1, "{}", hardware.text);
    hardware.pipelines[0].interval
}

#[test]
fn pipelines_have_the_smallest_interval() {
    let address = "  %p = getelementptr inbounds [100 x i32], ptr @a, i32 0, i32 %i\n";
    // Iterations access different elements.
    assert_eq!(
        interval(&format!(
            r#"{address}  %old = load i32, ptr %p, align 4, !dbg !7
  %new = mul i32 %old, %old
  store i32 %new, ptr %p, align 4, !dbg !7"#
        )),
        1
    );
    // Two loads share a memory's read port.
    assert_eq!(
        interval(&format!(
            r#"{address}  %old = load i32, ptr %p, align 4, !dbg !7
  %more = load i32, ptr @a, align 4, !dbg !7
  %new = add i32 %old, %more
  %q = getelementptr inbounds [100 x float], ptr @b, i32 0, i32 %i
  store i32 %new, ptr %q, align 4"#
        )),
        2
    );
    // An iteration stores the element that the next one loads: iterations do not overlap.
    let body = format!(
        r#"{address}  %old = load i32, ptr %p, align 4, !dbg !7
  %new = mul i32 %old, %old
  %q = getelementptr inbounds i32, ptr %p, i32 1
  store i32 %new, ptr %q, align 4"#
    );
    assert!(made(&turns(&body)).unwrap().pipelines.is_empty());
}

#[test]
fn large_arrays_are_off_the_chip() {
    let large = "@large = internal global [200000 x i32] zeroinitializer, align 4\n";
    let body = turns(
        r#"  %p = getelementptr inbounds [200000 x i32], ptr @large, i32 0, i32 %i
  %old = load i32, ptr %p, align 4, !dbg !7
  %q = getelementptr inbounds [100 x i32], ptr @a, i32 0, i32 %i
  store i32 %old, ptr %q, align 4"#,
    );
    let with = |far, large: &str| {
        let text = format!("{large}{HEAD}define i32 @hum_main() !dbg !1 {{\n{body}\n}}\n{TAIL}");
        from_ir(&text, "msg_test", "k.c", far)
    };
    let hardware = with(1 << 20, large).unwrap();
    assert_eq!((hardware.memory_bytes, hardware.far_bytes), (400, 800_000));
    assert_eq!(hardware.text.matches("CallLoad").count(), 1);
    let error = |far, large| with(far, large).unwrap_err().to_string();
    assert!(error(0, large).contains("m_axi"));
    assert!(error(4096, large).contains("the m_axi port has 4096"));
    let full = "@large = internal global <{ i32, [199999 x i32] }> \
                <{ i32 1, [199999 x i32] zeroinitializer }>, align 4\n";
    assert!(error(1 << 20, full).contains("has initial contents"));
}

#[test]
fn interval_of_a_float_sum_is_its_latency() {
    let body = r#"entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %sum = phi float [ 0.000000e+00, %entry ], [ %new, %loop ]
  %p = getelementptr inbounds [100 x float], ptr @b, i32 0, i32 %i
  %x = load float, ptr %p, align 4, !dbg !7
  %new = fadd float %sum, %x, !dbg !7
  %next = add nuw nsw i32 %i, 1
  %over = icmp eq i32 %next, 100
  br i1 %over, label %done, label %loop, !dbg !7
done:
  %whole = fptosi float %new to i32
  ret i32 %whole"#;
    assert_eq!(made(body).unwrap().pipelines[0].interval, 6);
}

#[test]
fn a_sum_of_several_iterations_before_has_their_intervals() {
    let interval = |first: [&str; 3]| {
        let body = format!(
            r#"entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %a = phi float [ {}, %entry ], [ %new, %loop ]
  %b = phi float [ {}, %entry ], [ %a, %loop ]
  %c = phi float [ {}, %entry ], [ %b, %loop ]
  %p = getelementptr inbounds [100 x float], ptr @b, i32 0, i32 %i
  %x = load float, ptr %p, align 4, !dbg !7
  %new = fadd float %c, %x, !dbg !7
  %next = add nuw nsw i32 %i, 1
  %over = icmp eq i32 %next, 100
  br i1 %over, label %done, label %loop, !dbg !7
done:
  %rest = fadd float %a, %b
  %sum = fadd float %rest, %new
  %whole = fptosi float %sum to i32
  ret i32 %whole"#,
            first[0], first[1], first[2]
        );
        made(&body).unwrap().pipelines[0].interval
    };
    // The latency of a sum is six clocks; registers that begin differently take a clock each.
    assert_eq!(interval(["0.0", "0.0", "0.0"]), 2);
    assert_eq!(interval(["0.0", "1.0", "2.0"]), 3);
}

#[test]
fn branches_in_loops_are_flattened() {
    let body = r#"entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %more ]
  %p = getelementptr inbounds [100 x i32], ptr @a, i32 0, i32 %i
  %odd = trunc i32 %i to i1
  br i1 %odd, label %then, label %more
then:
  store i32 %i, ptr %p, align 4, !dbg !7
  br label %more
more:
  %next = add nuw nsw i32 %i, 1
  %over = icmp eq i32 %next, 100
  br i1 %over, label %done, label %loop, !dbg !7
done:
  ret i32 0"#;
    let hardware = made(body).unwrap();
    assert!(
        hardware.states <= 4,
        "{} states\n{}",
        hardware.states,
        hardware.text
    );
}

#[test]
fn rejects_unsupported_code_with_its_line() {
    let error = |body: &str| made(body).unwrap_err().to_string();
    assert_eq!(
        error("entry:\n  %x = call i32 @rand(), !dbg !8\n  ret i32 %x, !dbg !7"),
        "k.c:8: call of 'rand', which neither the sources nor the library define"
    );
    assert_eq!(
        error("entry:\n  %x = call i32 %f(), !dbg !8\n  ret i32 0"),
        "k.c:8: call through a pointer cannot be synthesized (call the function by its name)"
    );
    assert_eq!(
        error("entry:\n  %x = fdiv float 1.0, 2.0, !dbg !8\n  ret i32 0"),
        "k.c:8: division of floats is not supported (use integers, or multiply by a constant)"
    );
    assert!(error(
        r#"entry:
  %r = call i32 @hum_port_rank()
  %x = inttoptr i32 %r to ptr, !dbg !8
  %y = load i32, ptr %x, align 4, !dbg !8
  ret i32 %y"#
    )
    .starts_with("k.c:8: access through an address that is computed from a number"));
    assert_eq!(
        error("entry:\n  %x = call i32 @hum_main(), !dbg !8\n  ret i32 %x"),
        "k.c:3: 'hum_main' calls itself: hardware has no stack (replace the recursion by a loop)"
    );
}

/// Pointers that are copied as integers, as the compiler copies structures.
const POINTERS: &str = r#"@p = internal global { ptr, i64 } { ptr @a, i64 7 }, align 8
@q = internal global [2 x { ptr, i64 }] zeroinitializer, align 8
"#;
const TAGS: &str = r#"!20 = !{!21, !21, i64 0}
!21 = !{!"long", !22, i64 0}
!22 = !{!"omnipotent char", !23, i64 0}
!23 = !{!"Simple C/C++ TBAA"}
!24 = !{!22, !22, i64 0}
"#;

fn pointers(body: &str, more: &str) -> Result<Hardware> {
    let text = format!(
        r#"{POINTERS}{HEAD}{more}define i32 @hum_main() !dbg !1 {{
{body}
}}
{TAIL}{TAGS}declare i64 @hum_port_beat()
"#
    );
    from_ir(&text, "msg_test", "k.c", 0)
}

#[test]
fn addresses_copied_as_integers_keep_their_memory() {
    for tag in ["", ", !tbaa !24"] {
        let body = format!(
            r#"entry:
  %bits = load i64, ptr @p, align 8{tag}
  store i64 %bits, ptr @q, align 8
  %there = load ptr, ptr @q, align 8
  %x = load i8, ptr %there, align 1, !dbg !7
  %y = zext i8 %x to i32
  ret i32 %y"#
        );
        let hardware = pointers(&body, "").unwrap();
        // The load reads the array's memory.
        assert!(
            hardware.text.contains("x = a_memory_q;"),
            "{}",
            hardware.text
        );
    }
    // An address assembled from halves, and through a call that takes and returns a structure by
    // value.
    let call = r#"define internal [2 x i64] @turned([2 x i64] %v) !dbg !1 {
entry:
  %d = extractvalue [2 x i64] %v, 0
  %n = extractvalue [2 x i64] %v, 1
  %w = insertvalue [2 x i64] poison, i64 %n, 0
  %both = insertvalue [2 x i64] %w, i64 %d, 1
  ret [2 x i64] %both
}
"#;
    let body = r#"entry:
  %v = load [2 x i64], ptr @p, align 8
  %w = call [2 x i64] @turned([2 x i64] %v)
  %d = extractvalue [2 x i64] %w, 1
  %low = and i64 %d, 4294967295
  %high = and i64 %d, -4294967296
  %whole = or i64 %low, %high
  %there = inttoptr i64 %whole to ptr
  %x = load i8, ptr %there, align 1, !dbg !7
  %y = zext i8 %x to i32
  ret i32 %y"#;
    let hardware = pointers(body, call).unwrap();
    assert!(
        hardware.text.contains("x = a_memory_q;"),
        "{}",
        hardware.text
    );
}

#[test]
fn rejects_addresses_without_an_object_with_their_line() {
    let error = |body: &str| pointers(body, "").unwrap_err().to_string();
    let number = "k.c:8: access through an address that is computed from a number";
    // Received in a message; loaded from an object of an arithmetic type.
    for from in [
        "%bits = call i64 @hum_port_beat()",
        "%bits = load i64, ptr @p, align 8, !tbaa !20",
    ] {
        let body = format!(
            r#"entry:
  {from}
  store i64 %bits, ptr @q, align 8
  %there = load ptr, ptr @q, align 8
  %x = load i32, ptr %there, align 4, !dbg !8
  ret i32 %x"#
        );
        assert!(error(&body).starts_with(number), "{from}");
    }
    let constant =
        "entry:\n  %x = load i32, ptr inttoptr (i64 4096 to ptr), align 4, !dbg !8\n  ret i32 %x";
    assert_eq!(
        error(constant),
        "k.c:8: access through a null pointer (assign the address of an object or a buffer first)"
    );
}

#[test]
fn indices_have_the_width_of_addresses() {
    let body = turns(
        r#"  %wide = sext i32 %i to i64
  %more = add i64 %wide, 1
  %p = getelementptr inbounds [100 x i32], ptr @a, i64 0, i64 %more
  %old = load i32, ptr %p, align 4, !dbg !7
  %q = getelementptr inbounds [100 x float], ptr @b, i64 0, i64 %wide
  store i32 %old, ptr %q, align 4"#,
    );
    let hardware = made(&body).unwrap();
    assert_eq!(hardware.pipelines.len(), 1);
    assert!(
        hardware.text.contains("assign more = wide + 32'd1;"),
        "{}",
        hardware.text
    );
}

#[test]
fn counters_of_64_bits_pipeline_as_those_of_32() {
    for end in ["100", "%n"] {
        let body = format!(
            r#"entry:
  %r = call i32 @hum_port_rank()
  %n = zext i32 %r to i64
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr inbounds [100 x i32], ptr @a, i64 0, i64 %i
  %old = load i32, ptr %p, align 4, !dbg !7
  %new = mul i32 %old, %old
  store i32 %new, ptr %p, align 4, !dbg !7
  %next = add nuw nsw i64 %i, 1
  %over = icmp eq i64 %next, {end}
  br i1 %over, label %done, label %loop, !dbg !7
done:
  ret i32 0"#
        );
        let pipelines = made(&body).unwrap().pipelines;
        assert_eq!(pipelines.len(), 1, "{end}");
        assert_eq!(pipelines[0].interval, 1, "{end}");
    }
}
