use super::launch::{Argument, End, Program};

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn test_vector_add() {
    let program = Program::new(include_str!("basic.cl"), &[]);
    for kernel in &program.accelerator.manifest.kernels {
        println!("{kernel:?}");
    }
    let n = 1000;
    let a: Vec<f32> = (0..n).map(|i| i as f32 * 1.25).collect();
    let b: Vec<f32> = (0..n).map(|i| 7.5 - i as f32).collect();
    let sum: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let mut c = vec![0; 4 * n];
    let outcome = program.run(
        "add",
        [n as u64, 1, 1],
        [1; 3],
        &mut [
            Argument::ReadOnly(&floats(&a)),
            Argument::ReadOnly(&floats(&b)),
            Argument::Buffer(&mut c),
        ],
    );
    assert_eq!(outcome.end, End::Done);
    println!("{} cycles", outcome.cycles);
    assert_eq!(c, floats(&sum));
}
