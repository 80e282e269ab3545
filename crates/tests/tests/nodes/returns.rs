//! Sessions that return from another node, or go on to a third one.

use super::{
    far_options, forwarders, kills, only, processes, refusal, Nodes, Victim, APART, ENDLESS,
};
use baltra_testkit::{until, Daemon};
use baltra_tests::{
    baltra, by_variables, compile, descriptors, free_port, json, nothing_panicked, session_count,
    through_with, Cutter, Random, Running,
};
use std::time::Duration;

#[test]
fn a_session_returns_from_another_node() {
    let nodes = Nodes::start(APART);
    let mut program = nodes.program("moving", &["0", "3000000", "20"]);
    let session = only(&nodes.near);
    let mut open = None;
    for round in 0..3 {
        nodes.must_send(nodes.port);
        program.wait_progress();
        if round == 0 {
            // From another device than the one to which it has moved.
            let there = only(&nodes.far).to_string();
            let arguments = ["session", "move", &there, "--to", "b"];
            nodes.far.text(&arguments).expect("it moves there");
        }
        let returned = nodes.must_return(session);
        let remote = format!("tcp://127.0.0.1:{}/a", nodes.port);
        assert_eq!(returned["from"], remote.as_str(), "{returned}");
        assert_eq!(returned["to"], "a", "{returned}");
        println!("round {round}: {returned}");
        for _ in 0..2 {
            program.wait_progress();
        }
        let near = json(&nodes.near, &["session", "ls"]);
        assert_eq!(near[0]["id"], session, "{near}");
        assert!(near[0]["remote"].is_null(), "{near}");
        nodes.has_left();
        // Each manager has as many descriptors as after the first return.
        let count = || [&nodes.near, &nodes.far].map(|node| descriptors(node.pid()));
        let most = *open.get_or_insert_with(count);
        until("the managers have closed what they opened", || {
            count().iter().zip(&most).all(|(now, most)| now <= most)
        })
        .unwrap();
    }
    drop(program);
    nodes.is_empty();
}

#[test]
fn a_session_goes_on_from_another_node_to_a_third() {
    let nodes = Nodes::start(APART);
    let port = free_port();
    let third = Daemon::start_with(baltra(), &far_options(APART, port, "")).unwrap();
    third.text(&["tenant", "add", "blue"]).unwrap();
    let token = third.text(&["tenant", "token", "blue"]).unwrap();
    let mut program = nodes.program("moving", &ENDLESS);
    let session = only(&nodes.near);
    nodes.must_send(nodes.port);
    program.wait_progress();
    let on = nodes.send(session, port, "b", token.trim());
    assert!(on.status.success(), "{on:?}");
    program.wait_progress();
    let near = json(&nodes.near, &["session", "ls"]);
    let remote = format!("tcp://127.0.0.1:{port}/b");
    assert_eq!(near[0]["remote"], remote.as_str(), "{near}");
    until("nothing of it is left on the second node", || {
        session_count(&nodes.far) == 0 && forwarders(&nodes.near).len() == 1
    })
    .unwrap();
    nodes.must_return(session);
    program.wait_progress();
    until("nothing of it is left on the third node", || {
        session_count(&third) == 0
    })
    .unwrap();
    nothing_panicked(&third);
    drop(program);
    nodes.is_empty();
}

#[test]
fn a_session_of_a_program_over_tcp_returns() {
    let port = free_port();
    let nodes = Nodes::start_listening(APART, port);
    let token = nodes.near.text(&["tenant", "token", "red"]).unwrap();
    let mut command = by_variables(&format!("tcp://127.0.0.1:{port}"), compile("moving"));
    command
        .args(ENDLESS)
        .env("BALTRA_TOKEN", token.trim())
        .env("BALTRA_DEVICE", "a");
    let mut program = Running::start(command);
    program.wait_line("round");
    let session = only(&nodes.near);
    for _ in 0..2 {
        nodes.must_send(nodes.port);
        program.wait_progress();
        nodes.must_return(session);
        program.wait_progress();
    }
    drop(program);
    nodes.is_empty();
}

#[test]
fn a_session_stays_on_another_node_if_it_cannot_return() {
    let nodes = Nodes::start(APART);
    let mut program = nodes.program("moving", &ENDLESS);
    let session = only(&nodes.near);
    nodes.must_send(nodes.port);
    nodes
        .near
        .text(&["tenant", "quota", "red", "--memory", "1K"])
        .unwrap();
    for _ in 0..2 {
        let error = refusal(&nodes.returning(session));
        assert!(error.contains("cannot be made"), "{error}");
        program.wait_progress();
    }
    let near = json(&nodes.near, &["session", "ls"]);
    assert!(near[0]["remote"].is_string(), "{near}");
    nodes
        .near
        .text(&["tenant", "quota", "red", "--memory", "1G"])
        .unwrap();
    nodes.must_return(session);
    program.wait_progress();
    nodes.has_left();
    drop(program);
    nodes.is_empty();
}

/// Ends one of them at a random moment of a return from the other node, many times. The program
/// continues unless what has its session, or is between both nodes, was ended before it returned.
fn ended_returning(victim: Victim) {
    let nodes = Nodes::start(APART);
    let mut random = Random::new();
    let mut took_us = 0;
    for round in 0..1 + kills() {
        let mut program = nodes.program("moving", &ENDLESS);
        let session = only(&nodes.near);
        let cutter = (victim == Victim::Connection).then(|| Cutter::to(nodes.port));
        nodes.must_send(cutter.as_ref().map_or(nodes.port, |cutter| cutter.port));
        program.wait_progress();
        if round == 0 {
            let returned = nodes.must_return(session);
            took_us = returned["took_us"].as_u64().expect("a number");
            nodes.end(program);
            continue;
        }
        let wait = Duration::from_micros(random.below(took_us * 5 / 4));
        let output = std::thread::scope(|scope| {
            let returned = scope.spawn(|| nodes.returning(session));
            std::thread::sleep(wait);
            let [source, target] = [&nodes.far, &nodes.near].map(|n| || processes(n, "executor"));
            victim.kill(&nodes, &program, source, target);
            if let Some(cutter) = &cutter {
                cutter.cut();
            }
            returned.join().expect("no panic")
        });
        let has_returned = output.status.success();
        println!("{victim:?} round {round}, {wait:?}: returned {has_returned}");
        let lives = match victim {
            Victim::Client => false,
            Victim::Connection => true,
            Victim::Target => !has_returned,
            Victim::Source | Victim::Forwarder | Victim::Relays => has_returned,
        };
        if lives {
            program.wait_progress();
        } else if victim != Victim::Target {
            until("the program ends", || program.has_ended()).unwrap();
        }
        nodes.end(program);
    }
}

#[test]
fn a_session_stays_on_another_node_if_the_executor_ends_to_which_it_returns() {
    ended_returning(Victim::Target);
}

#[test]
fn a_session_outlives_a_connection_that_breaks_during_its_return() {
    ended_returning(Victim::Connection);
}

#[test]
fn a_session_ends_with_what_has_it_during_its_return() {
    for victim in [
        Victim::Source,
        Victim::Forwarder,
        Victim::Relays,
        Victim::Client,
    ] {
        ended_returning(victim);
    }
}

#[test]
fn programs_give_the_native_answers_while_their_sessions_go_there_and_back() {
    let nodes = Nodes::start(APART);
    let runs: [(&str, &[&str]); 3] = [
        ("threads", &["5", "150"]),
        ("gated", &[]),
        ("transfers", &["untimed"]),
    ];
    for (program, arguments) in runs {
        let options = ["--tenant", "red", "--device", "a"];
        let mut command = through_with(&nodes.near, &options, compile(program));
        command.args(arguments);
        let mut running = Running::start(command);
        let (mut sent, mut returned) = (0, 0);
        while !running.has_ended() {
            let sessions = json(&nodes.near, &["session", "ls"]);
            let first = sessions.as_array().expect("a list").first();
            let Some(first) = first else {
                continue;
            };
            let session = first["id"].as_u64().expect("a number");
            if first["remote"].is_null() {
                let output = nodes.send(session, nodes.port, "a", &nodes.token);
                sent += usize::from(output.status.success());
            } else {
                let output = nodes.returning(session);
                returned += usize::from(output.status.success());
            }
        }
        println!("{program}: went {sent} times, returned {returned} times");
        let patience = Duration::from_secs(280);
        let answer = running.finish_within(patience).ok();
        assert!(answer.out.ends_with("done"), "{program}: {answer:?}");
    }
    nodes.is_empty();
}
