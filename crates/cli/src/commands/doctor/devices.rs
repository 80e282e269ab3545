//! The installed drivers, their devices, and which of them are served.

use super::Finding;
use crate::args::Config;
use crate::configuration;
use crate::control::Control;
use crate::daemons::Daemon;
use baltra_api::control as proto;
use baltra_manager::drivers::{self, Inventory, Origin, Served};
use baltra_manager::options::{Options, PathOptions};
use std::path::Path;

const DRIVER: &str = "OpenCL driver";
const DEVICE: &str = "device";

/// All findings about drivers and devices.
pub fn findings(paths: &PathOptions) -> Vec<Finding> {
    let none = Config {
        config: None,
        set: Vec::new(),
        state_dir: None,
    };
    let options = match configuration::manager(&none, Some(&paths.runtime)) {
        Ok(options) => options,
        Err(error) => {
            let mend = "correct the variable named in the message";
            return vec![Finding::bad("configuration", format!("{error:#}"), mend)];
        }
    };
    let announced = drivers::announced(&options.paths.vendors);
    if announced.is_empty() {
        return vec![none_announced(&options.paths.vendors)];
    }
    let libraries: Vec<_> = announced.into_iter().map(|a| a.library).collect();
    let probed = options.executors.prober().probe(libraries.iter());
    let inventory = Inventory::new(probed);
    let mut findings = driver_findings(&inventory);
    findings.extend(left_out(&inventory));
    let served = serves(&options, &inventory, paths);
    for (ordinal, origin) in inventory.devices.iter().enumerate() {
        findings.push(device(ordinal, origin, &served));
    }
    findings
}

fn none_announced(vendors: &Path) -> Finding {
    Finding::bad(
        DRIVER,
        format!("no driver is registered in {}", vendors.display()),
        "install one (Debian, Ubuntu: apt install pocl-opencl-icd), or set its library: baltra up --set device.driver=/path/to/driver.so",
    )
}

/// Findings about drivers with devices, or about their absence.
fn driver_findings(inventory: &Inventory) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    let mut seen = Vec::new();
    for origin in &inventory.devices {
        if seen.contains(&&origin.library) {
            continue;
        }
        seen.push(&origin.library);
        let text = format!("{} ({})", origin.library.display(), origin.device.platform);
        found.push(Finding::good(DRIVER, text));
    }
    if found.is_empty() {
        found.push(Finding::bad(
            DRIVER,
            "no installed driver has a device",
            "install one for a device of this host (any processor: apt install pocl-opencl-icd)",
        ));
    }
    found
}

/// Drivers and devices that are skipped, which is harmless.
fn left_out(inventory: &Inventory) -> Vec<Finding> {
    let finding = |unused: &drivers::Unused| {
        let library = unused.library.display();
        match &unused.device {
            Some(device) => Finding::good(
                DEVICE,
                format!("{device} through {library}: not served: {}", unused.reason),
            ),
            None => Finding::weak(
                DRIVER,
                format!("{library}: skipped: {}", unused.reason),
                "if the host has a device for this driver, install the driver's missing dependencies",
            ),
        }
    };
    inventory.unused.iter().map(finding).collect()
}

/// The devices that are or would be served.
enum Serves {
    /// Served by the running manager.
    Now(Vec<proto::Device>),
    /// Would be served by a manager that `baltra up` starts.
    Then(Vec<Served>),
    /// None, with the reason.
    Nothing(String),
}

fn serves(options: &Options, inventory: &Inventory, paths: &PathOptions) -> Serves {
    if Daemon::Manager.holder(paths).is_some() {
        let devices = Control::connect(paths).and_then(|mut control| {
            control.call(|mut c| async move { c.devices(proto::DevicesRequest {}).await })
        });
        return match devices {
            Ok(reply) => Serves::Now(reply.devices),
            Err(error) => Serves::Nothing(format!("the manager does not respond ({error:#})")),
        };
    }
    match drivers::assign(&options.devices, inventory, &[]) {
        Ok(served) => Serves::Then(served),
        Err(error) => Serves::Nothing(error.to_string()),
    }
}

fn device(ordinal: usize, origin: &Origin, serves: &Serves) -> Finding {
    let uuid = origin
        .device
        .uuid
        .map_or_else(String::new, |u| format!(", UUID {u}"));
    let text = format!("{ordinal}: {}{uuid}", origin.describe());
    match serves {
        Serves::Now(devices) => {
            let library = origin.library.display().to_string();
            let is_this = |d: &&proto::Device| d.driver == library && d.select == origin.selector;
            match devices.iter().find(is_this) {
                Some(d) if d.reason.is_empty() => {
                    Finding::good(DEVICE, format!("{text}: served as {}", d.name))
                }
                Some(d) => Finding::bad(
                    DEVICE,
                    format!("{text}: {} cannot be served: {}", d.name, d.reason),
                    "see `baltra logs`",
                ),
                None => Finding::weak(
                    DEVICE,
                    format!("{text}: not served by the running manager"),
                    "its configuration selects other devices, or it was started before this device appeared: restart it (baltra down, baltra up)",
                ),
            }
        }
        Serves::Then(served) => {
            let name = served.iter().find(|s| s.origin.as_ref() == Some(origin));
            match name {
                Some(s) => Finding::good(
                    DEVICE,
                    format!("{text}: `baltra up` would serve it as {}", s.options.name),
                ),
                None => Finding::good(DEVICE, format!("{text}: not selected by the configuration")),
            }
        }
        Serves::Nothing(reason) => Finding::bad(
            DEVICE,
            format!("{text}: not served: {reason}"),
            "correct the configuration",
        ),
    }
}
