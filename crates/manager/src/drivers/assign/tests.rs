use super::*;
use baltra_wire::listing::{Listing, PciAddress, Uuid};

const GPU: u64 = 4;
const CPU: u64 = 2;
const ACCELERATOR: u64 = 8;

fn device(number: usize, name: &str, kind: u64) -> Listed {
    Listed {
        number,
        platform: "P".into(),
        name: name.into(),
        version: "OpenCL 3.0".into(),
        kind,
        memory_bytes: 1,
        uuid: None,
        pci: None,
    }
}

fn at(mut device: Listed, uuid: u8, bus: u32) -> Listed {
    device.uuid = Some(Uuid([uuid; 16]));
    device.pci = Some(PciAddress {
        domain: 0,
        bus,
        device: 0,
        function: 0,
    });
    device
}

fn library(name: &str, devices: Vec<Listed>) -> Probed {
    Probed {
        library: name.into(),
        listing: Ok(Listing {
            library: Some(Path::new("/lib").join(name)),
            devices,
        }),
    }
}

/// Two GPUs with a digit in their names, of one driver.
fn gpus() -> Probed {
    let devices = vec![
        at(device(0, "H100 1", GPU), 1, 0x17),
        at(device(1, "H100 1", GPU), 2, 0x65),
    ];
    library("libgpu.so", devices)
}

fn pocl() -> Probed {
    library("libpocl.so", vec![device(0, "cpu 1", CPU)])
}

fn entry(name: &str, driver: &str, select: &str) -> DeviceOptions {
    DeviceOptions {
        name: name.into(),
        driver: driver.into(),
        select: select.into(),
        ..DeviceOptions::default()
    }
}

/// Name, library and ordinal in the library of each served device.
fn places(served: &[Served]) -> Vec<(String, String, usize)> {
    let place = |s: &Served| {
        let origin = s.origin.as_ref().expect("it was found");
        let selector = Selector::parse(&s.options.select);
        assert!(selector.matches(origin.device.number, &origin.device));
        let library = s.driver.display().to_string();
        (s.options.name.clone(), library, origin.device.number)
    };
    served.iter().map(place).collect()
}

fn expect(served: &[Served], expected: &[(&str, &str, usize)]) {
    let own =
        |(name, library, n): &(&str, &str, usize)| (name.to_string(), library.to_string(), *n);
    assert_eq!(places(served), expected.iter().map(own).collect::<Vec<_>>());
}

#[test]
fn without_configuration_every_device_of_every_driver_is_served_gpus_first() {
    let empty = library("libempty.so", Vec::new());
    let broken = Probed {
        library: "libbroken.so".into(),
        listing: Err("cannot load it".into()),
    };
    let card = library("libcard.so", vec![device(0, "card", ACCELERATOR)]);
    let inventory = Inventory::new(vec![broken, empty, pocl(), card, gpus()]);
    let served = assign(&[DeviceOptions::default()], &inventory, &[]).unwrap();
    expect(
        &served,
        &[
            ("device0", "libgpu.so", 0),
            ("device1", "libgpu.so", 1),
            ("device2", "libcard.so", 0),
            ("device3", "libpocl.so", 0),
        ],
    );
    let reasons: Vec<_> = inventory.unused.iter().map(|u| u.reason.as_str()).collect();
    assert_eq!(reasons, ["cannot load it", "it has no device on this host"]);
}

#[test]
fn an_ordinal_is_not_a_part_of_a_name() {
    let inventory = Inventory::new(vec![gpus(), pocl()]);
    for driver in [AUTO, "libgpu.so"] {
        let entries = [entry("b", driver, "1"), entry("a", driver, "0")];
        let served = assign(&entries, &inventory, &[gpus()]).unwrap();
        expect(&served, &[("b", "libgpu.so", 1), ("a", "libgpu.so", 0)]);
    }
}

#[test]
fn uuid_and_position_select_one_device() {
    let inventory = Inventory::new(vec![gpus()]);
    for select in ["GPU-02020202-0202-0202-0202-020202020202", "65:00.0"] {
        let served = assign(&[entry("x", AUTO, select)], &inventory, &[]).unwrap();
        expect(&served, &[("x", "libgpu.so", 1)]);
    }
}

#[test]
fn a_part_of_a_name_selects_every_device_of_that_name() {
    let inventory = Inventory::new(vec![gpus(), pocl()]);
    let entries = [entry("gpu", AUTO, "H100"), DeviceOptions::default()];
    let served = assign(&entries, &inventory, &[]).unwrap();
    expect(
        &served,
        &[
            ("gpu0", "libgpu.so", 0),
            ("gpu1", "libgpu.so", 1),
            ("device0", "libpocl.so", 0),
        ],
    );
}

#[test]
fn two_entries_that_are_one_device_are_refused() {
    let inventory = Inventory::new(vec![gpus()]);
    let pairs = [
        ("1", "1"),
        ("1", "65:00.0"),
        ("H100", "0"),
        ("02020202020202020202020202020202", "1"),
        ("all", "all"),
        ("all", "H100"),
    ];
    for (one, other) in pairs {
        let entries = [entry("a", AUTO, one), entry("b", "libgpu.so", other)];
        let error = assign(&entries, &inventory, &[gpus()]).unwrap_err();
        let is_pair = |e: &Error| {
            matches!(
                e,
                Error::Twice {
                    entry: 1,
                    other: 0,
                    ..
                }
            )
        };
        assert!(is_pair(&error), "{one} {other}: {error}");
    }
    let boards = [entry("a", "board:/x", "all"), entry("b", "board:/x", "all")];
    assert!(matches!(
        assign(&boards, &inventory, &[]),
        Err(Error::Twice { .. })
    ));
    let emulated = [entry("a", "emulate:", "all"), entry("b", "emulate:", "all")];
    let served = assign(&emulated, &inventory, &[]).unwrap();
    assert_eq!(served.len(), 2);
}

#[test]
fn one_gpu_through_two_drivers_is_served_once_and_one_cpu_twice() {
    let mesa = library("libmesa.so", vec![at(device(0, "same", GPU), 9, 0x65)]);
    let again = Probed {
        library: "/usr/lib/libpocl.so.2".into(),
        ..pocl()
    };
    let intel = library("libintel.so", vec![device(0, "cpu 1", CPU)]);
    let inventory = Inventory::new(vec![gpus(), mesa, pocl(), again, intel]);
    let served = assign(&[DeviceOptions::default()], &inventory, &[]).unwrap();
    expect(
        &served,
        &[
            ("device0", "libgpu.so", 0),
            ("device1", "libgpu.so", 1),
            ("device2", "libpocl.so", 0),
            ("device3", "libintel.so", 0),
        ],
    );
    let reasons: Vec<_> = inventory.unused.iter().map(|u| u.reason.as_str()).collect();
    let through = |library: &str| format!("it is served through {library}");
    assert_eq!(reasons, [through("libgpu.so"), through("libpocl.so")]);
}

#[test]
fn a_driver_that_fails_is_left_to_its_executors() {
    let broken = Probed {
        library: "libbroken.so".into(),
        listing: Err("cannot load it".into()),
    };
    let entries = [entry("x", "libbroken.so", "1"), DeviceOptions::default()];
    let served = assign(&entries, &Inventory::new(vec![pocl()]), &[broken]).unwrap();
    assert_eq!(served[0].origin, None);
    assert_eq!(served[0].options, entries[0]);
    expect(&served[1..], &[("device0", "libpocl.so", 0)]);
}

#[test]
fn nothing_to_serve_is_an_error_with_the_reasons() {
    let inventory = Inventory::new(vec![library("libempty.so", Vec::new())]);
    let error = assign(&[DeviceOptions::default()], &inventory, &[]).unwrap_err();
    assert!(error.to_string().contains("libempty.so: it has no device"));
    let inventory = Inventory::new(vec![gpus()]);
    let error = assign(&[entry("x", AUTO, "2")], &inventory, &[]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("'2'") && text.contains("1: H100 1"), "{text}");
}

#[test]
fn given_names_stay_unique() {
    let inventory = Inventory::new(vec![gpus(), pocl()]);
    let entries = [DeviceOptions::default(), entry("device0", AUTO, "2")];
    let served = assign(&entries, &inventory, &[]).unwrap();
    expect(
        &served,
        &[
            ("device1", "libgpu.so", 0),
            ("device2", "libgpu.so", 1),
            ("device0", "libpocl.so", 0),
        ],
    );
}
