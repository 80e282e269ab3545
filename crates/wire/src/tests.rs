use super::*;

fn launch<'a>(waits: &'a [u8], args: &'a [u8]) -> Command<'a> {
    Command {
        event: event(7, 3),
        after_control: 12,
        waits: Waits(waits),
        operation: Operation::Launch {
            kernel: 4,
            dimensions: 1,
            offset: [0; 3],
            global: [1024, 1, 1],
            local: [0; 3],
            arg_count: 2,
            args,
            svm_indirect: &[],
        },
    }
}

#[test]
fn a_command_survives_the_round_trip() {
    let waits = event(1, 1).to_le_bytes();
    let mut args = Vec::new();
    encode(&Arg::Memory(9), &mut args).unwrap();
    encode(&Arg::Value(&[1, 2, 3, 4]), &mut args).unwrap();
    let command = launch(&waits, &args);
    let mut bytes = Vec::new();
    encode(&command, &mut bytes).unwrap();
    assert_eq!(decode::<Command>(&bytes).unwrap(), command);
    assert!(
        bytes.len() < 64,
        "a launch takes {} bytes of its ring",
        bytes.len()
    );
}

#[test]
fn truncated_messages_are_errors() {
    let mut bytes = Vec::new();
    encode(&launch(&[0; 16], &[1, 2, 3]), &mut bytes).unwrap();
    for len in 0..bytes.len() {
        assert!(decode::<Command>(&bytes[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..20_000 {
        let mut bytes = [0u8; 48];
        for b in &mut bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *b = state as u8;
        }
        let _ = decode::<Command>(&bytes);
        let _ = decode::<Control>(&bytes);
        let _ = decode::<Notice>(&bytes);
        let _ = decode::<Hello>(&bytes);
    }
}

#[test]
fn an_adoption_may_lack_the_executors_version() {
    use executor::{Adoption, ToManager};
    let message = ToManager::Unused {
        session: 1,
        digest: "d".into(),
    };
    let (mut old, mut new) = (Vec::new(), Vec::new());
    encode(&message, &mut old).unwrap();
    encode(&(&message, VERSION), &mut new).unwrap();
    let expected = (message.clone(), Trailing(None));
    assert_eq!(decode::<Adoption>(&old).unwrap(), expected);
    let expected = (message.clone(), Trailing(Some(VERSION)));
    assert_eq!(decode::<Adoption>(&new).unwrap(), expected);
    // A manager of an earlier release reads the message alone.
    assert_eq!(decode::<ToManager>(&new).unwrap(), message);
}

#[test]
fn a_hello_may_lack_its_purpose() {
    let hello = Hello {
        version: VERSION,
        token: "t".into(),
        ..Hello::default()
    };
    let (mut old, mut new) = (Vec::new(), Vec::new());
    encode(&hello, &mut old).unwrap();
    encode(&(&hello, Purpose::Arrive), &mut new).unwrap();
    let decoded = decode::<(Hello, Trailing<Purpose>)>(&old).unwrap();
    assert_eq!(decoded, (hello.clone(), Trailing(None)));
    let decoded = decode::<(Hello, Trailing<Purpose>)>(&new).unwrap();
    assert_eq!(decoded, (hello.clone(), Trailing(Some(Purpose::Arrive))));
    // A manager of an earlier release reads the hello alone.
    assert_eq!(decode::<Hello>(&new).unwrap(), hello);
}

#[test]
fn a_token_is_not_printed() {
    let remote = executor::Remote {
        endpoint: "tls://node-2:7473".into(),
        device: "gpu0".into(),
        token: "secret".into(),
    };
    assert_eq!(format!("{remote:?}"), "tls://node-2:7473/gpu0");
}

#[test]
fn an_event_keeps_its_slot_and_generation() {
    let e = event(u32::MAX, 5);
    assert_eq!((event_slot(e), event_generation(e)), (u32::MAX, 5));
}
