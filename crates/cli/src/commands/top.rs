//! `baltra top`: devices and tenants, live on a terminal, or once as a table.

mod screen;
mod view;

use crate::control::Control;
use crate::output;
use anyhow::Result;
use baltra_api::control as proto;
use baltra_manager::options::PathOptions;
use std::io::IsTerminal;
use std::time::Duration;
use view::{Sample, View};

/// Shows the table until `q`, or once if the output is not a terminal.
pub fn top(paths: &PathOptions, once: bool, interval_ms: u64, as_json: bool) -> Result<()> {
    let mut control = Control::connect(paths)?;
    let interval = Duration::from_millis(interval_ms);
    if !once && !as_json && std::io::stdout().is_terminal() {
        return screen::run(&mut control, interval);
    }
    // Utilization is the difference of two samples.
    let first = sample(&mut control)?;
    std::thread::sleep(interval.min(Duration::from_millis(500)));
    let second = sample(&mut control)?;
    let view = View::between(&first, &second);
    if as_json {
        output::json(&view.json());
        return Ok(());
    }
    view.devices().print();
    println!();
    view.tenants().print();
    Ok(())
}

fn sample(control: &mut Control) -> Result<Sample> {
    let devices = control.call(|mut c| async move { c.devices(proto::DevicesRequest {}).await })?;
    let request = proto::UsageRequest {
        tenant: String::new(),
    };
    let usage = control.call(|mut c| async move { c.usage(request).await })?;
    Ok(Sample { devices, usage })
}
