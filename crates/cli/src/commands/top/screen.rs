//! The live screen.

use super::view::{Sample, View};
use crate::control::Control;
use crate::output::Table;
use anyhow::Result;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Gauge, Paragraph};
use ratatui::Frame;
use std::time::{Duration, Instant};

/// Shows the screen until `q`, Escape or Control-C.
pub fn run(control: &mut Control, interval: Duration) -> Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = watch(&mut terminal, control, interval);
    ratatui::restore();
    result
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    control: &mut Control,
    interval: Duration,
) -> Result<()> {
    let mut last: Sample = super::sample(control)?;
    let mut view = View::between(&last, &last);
    let mut paused = false;
    let mut due = Instant::now() + interval.min(Duration::from_millis(250));
    loop {
        terminal.draw(|frame| draw(frame, &view, paused))?;
        let left = due.saturating_duration_since(Instant::now());
        if event::poll(left)? {
            if let Event::Key(key) = event::read()? {
                let pressed = key.kind == KeyEventKind::Press;
                let control_c =
                    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
                match key.code {
                    _ if control_c => return Ok(()),
                    KeyCode::Char('q') | KeyCode::Esc if pressed => return Ok(()),
                    KeyCode::Char(' ' | 'p') if pressed => paused = !paused,
                    _ => {}
                }
            }
            continue;
        }
        due = Instant::now() + interval;
        if !paused {
            let fresh = super::sample(control)?;
            view = View::between(&last, &fresh);
            last = fresh;
        }
    }
}

fn draw(frame: &mut Frame<'_>, view: &View, paused: bool) {
    let rows = view.device_rows();
    let gauges = (rows.len() as u16).min(8);
    let devices = rows.len() as u16 + 3;
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(gauges),
        Constraint::Length(devices),
        Constraint::Min(3),
    ])
    .split(frame.area());
    let state = if paused { "paused" } else { "live" };
    let head = Line::from(vec![
        Span::styled("baltra top", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!("  {state}  (q ends, space pauses)")),
    ]);
    frame.render_widget(head, areas[0]);
    let bars = Layout::vertical(vec![Constraint::Length(1); gauges.into()]).split(areas[1]);
    for (row, area) in rows.iter().zip(bars.iter()) {
        // If tenants run concurrently, the full value is the number of slots.
        let full = f64::from(row.device.slots.clamp(1, row.device.compute_units.max(1)));
        let part = (row.utilization / full).clamp(0.0, 1.0);
        let color = match part {
            p if p > 0.9 => Color::Red,
            p if p > 0.5 => Color::Yellow,
            _ => Color::Green,
        };
        let gauge = Gauge::default()
            .ratio(part)
            .label(format!("{} {:.0} %", row.device.name, part * 100.0))
            .gauge_style(Style::new().fg(color));
        frame.render_widget(gauge, *area);
    }
    let table = |table: Table, title: &'static str| {
        let lines = table.lines().into_iter().enumerate().map(|(i, line)| {
            let style = match i {
                0 => Style::new().add_modifier(Modifier::BOLD),
                _ => Style::new(),
            };
            Line::styled(line, style)
        });
        Paragraph::new(Text::from_iter(lines)).block(Block::bordered().title(title))
    };
    frame.render_widget(table(view.devices(), "devices"), areas[2]);
    frame.render_widget(table(view.tenants(), "tenants"), areas[3]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_api::control as proto;
    use ratatui::backend::TestBackend;

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        let device = proto::Device {
            name: "cpu".into(),
            state: "ready".into(),
            slots: 2,
            compute_units: 2,
            ..Default::default()
        };
        let sample = Sample {
            devices: proto::DevicesReply {
                devices: vec![device; 12],
            },
            usage: proto::UsageReply::default(),
        };
        let view = View::between(&sample, &sample);
        for (width, height) in [(1, 1), (20, 5), (120, 50)] {
            let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|f| draw(f, &view, false)).unwrap();
        }
    }
}
