//! `printf`: the text of each conversion.

use super::kernels::done;
use super::launch::{must, Argument, Program};
use std::path::Path;
use std::process::Command;
use Argument::{Buffer, Word};

/// The functions that print an item, compiled for this processor and compared with its `printf`.
#[test]
fn items_are_printed_as_by_the_printf_of_this_host() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("printing");
    must(
        Command::new("clang-16")
            .args(["-O1", "-w", "-fsanitize=undefined", "-fno-sanitize-recover"])
            .arg("-I")
            .arg(crate_folder.join("../../humboldt/fabric"))
            .arg(crate_folder.join("tests/opencl/printing.c"))
            .args(["-lm", "-o"])
            .arg(&program),
    );
    must(&mut Command::new(&program));
}

#[test]
fn kernels_print_floats_in_each_style_and_numbers_with_prefixes() {
    let source = r#"
kernel void items(global long *address, float f)
{
    printf("%e|%-12.3E|%g|%G|%#g|%.2a|%F\n", f, f, f, f * 1e-10f, 2.0f, f, 1.0f / 0.0f);
    printf("%#x %#o %#X|%#v2hhx|%.2v2hle\n", 43981, 8, 0, (uchar2)(250, 0), (float2)(f, 0.5f));
    printf("%p\n", address);
    address[0] = (long)address;
}"#;
    let program = Program::new(source, &[]);
    let mut address = vec![0; 8];
    let mut arguments = [Buffer(&mut address), Word(u64::from(1234.5_f32.to_bits()))];
    let outcome = program.run("items", [1; 3], [1; 3], &mut arguments);
    done("items", 1, &outcome);
    let address = i64::from_le_bytes(address.try_into().unwrap());
    let expected = format!(
        "1.234500e+03|1.234E+03   |1234.5|1.2345E-07|2.00000|0x1.35p+10|INF\n\
         0xabcd 010 0|0xfa,0|1.23e+03,5.00e-01\n{address:#x}\n"
    );
    assert_eq!(outcome.text, expected);
}

#[test]
fn printf_returns_zero_and_takes_formats_widths_and_texts_from_variables() {
    let source = r#"
constant char format[] = "%d of %s\n";
kernel void lines(global int *results, char c, long l)
{
    results[0] = printf(format, (int)c, "text") + 1;
    results[1] = printf("no arguments\n") == 0;
    printf("%hhd %hu %ld %lx %3c|%-3c|\n", c, c, l, l, c, c);
    printf("%v4hhd %v2ld %+.3v2hlf\n", (char4)(c), (long2)(l), (float2)(1.0f, -2.0f));
    printf("%*d|%-*d|%.*f|%5.1s|%%|%s\n", 6, 42, 6, 42, 2, 3.14159f, "abc", c == 65 ? "yes" : "no");
}"#;
    let program = Program::new(source, &[]);
    let mut results = vec![0; 8];
    let mut arguments = [Buffer(&mut results), Word(65), Word(-5_i64 as u64)];
    let outcome = program.run("lines", [1; 3], [1; 3], &mut arguments);
    done("lines", 1, &outcome);
    assert_eq!(results, [1, 0, 0, 0, 1, 0, 0, 0]);
    let expected = "65 of text\nno arguments\n65 65 -5 fffffffffffffffb   A|A  |\n\
                    65,65,65,65 -5,-5 +1.000,-2.000\n    42|42    |3.14|    a|%|yes\n";
    assert_eq!(outcome.text, expected);
}
