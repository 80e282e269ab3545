//! Completion of names that only daemons have, in the shells themselves.

use baltra_testkit::{Daemon, Options, Service};
use std::path::Path;
use std::process::Command;

const BALTRA: &str = env!("CARGO_BIN_EXE_baltra");

/// A command whose `baltra` is the one that was built, and finds these daemons.
fn command(program: &str, runtime: &Path) -> Command {
    let mut command = Command::new(program);
    let directory = Path::new(BALTRA).parent().unwrap().display();
    let path = std::env::var("PATH").unwrap();
    for name in ["BALTRA_ENDPOINT", "BALTRA_REGISTRY", "BALTRA_GATEWAY"] {
        command.env_remove(name);
    }
    command
        .env("PATH", format!("{directory}:{path}"))
        .env("BALTRA_RUNTIME_DIR", runtime);
    command
}

fn output(mut command: Command) -> Vec<String> {
    let output = command
        .output()
        .expect("the shell is installed: scripts/setup.sh test");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// The names that `baltra complete` prints for the last word.
fn names(runtime: &Path, words: &[&str]) -> Vec<String> {
    let mut command = command("baltra", runtime);
    command
        .arg("complete")
        .arg(words.len().to_string())
        .args(["--", "baltra"])
        .args(words);
    output(command)
}

/// The completions that bash offers.
fn bash(runtime: &Path, words: &[&str]) -> Vec<String> {
    let script = "source <(baltra completion bash)
        COMP_WORDS=(baltra \"$@\") COMP_CWORD=$#
        [[ $(complete -p baltra) == *'-F _baltra_values'* ]] || exit 3
        _baltra_values baltra \"${!#}\" && printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut command = command("bash", runtime);
    command.args(["-c", script, "bash"]).args(words);
    output(command)
}

/// The completions that fish offers.
fn fish(runtime: &Path, line: &str) -> Vec<String> {
    let script = "baltra completion fish | source; complete -C $argv[1]";
    let home = tempfile::tempdir().unwrap();
    let mut command = command("fish", runtime);
    command
        .args(["--no-config", "-c", script, line])
        .env("HOME", home.path());
    let lines = output(command);
    // A candidate may have a description after a tab.
    let name = |line: &String| line.split('\t').next().unwrap().to_owned();
    lines.iter().map(name).collect()
}

/// The line that zsh makes of a line and a tab, in a terminal of its own.
fn zsh(runtime: &Path, line: &str) -> String {
    let script = r#"
        zmodload zsh/zpty
        zpty inner zsh -f -i
        zpty -w inner 'PS1=; PS2=; unsetopt zle_bracketed_paste 2>/dev/null; stty -echo 2>/dev/null'
        zpty -w inner 'fpath=('$1' $fpath); autoload -Uz compinit; compinit -u -D'
        zpty -w inner 'print re''ady'
        while zpty -r inner out; do [[ $out == *ready* ]] && break; done
        zpty -w inner 'bindkey "^X" accept-line; zle-line-finish() { print -r -- "<$BUFFER>" }; zle -N zle-line-finish'
        zpty -w inner 'print s''et'
        while zpty -r inner out; do [[ $out == *set* ]] && break; done
        zpty -n -w inner $2$'\t'$'\x18'
        while zpty -r inner out; do
            [[ $out == *'<baltra '*'>'* ]] && { print -r -- ${${out##*\<}%%\>*}; break }
        done
        zpty -d inner
    "#;
    let directory = tempfile::tempdir().unwrap();
    let mut print = command("baltra", runtime);
    let text = output({
        print.args(["completion", "zsh"]);
        print
    });
    std::fs::write(directory.path().join("_baltra"), text.join("\n") + "\n").unwrap();
    let mut command = command("zsh", runtime);
    command
        .args(["-f", "-c", script, "zsh"])
        .arg(directory.path())
        .arg(line)
        .env("HOME", directory.path())
        .env("TERM", "xterm");
    output(command).join("\n").trim_end().to_owned()
}

fn pool() -> (Service, Daemon) {
    let registry = Service::start(BALTRA, "registry", &Options::default()).unwrap();
    let options = Options {
        set: vec![
            format!("node.registry={}", registry.url()),
            "node.name=isabela".into(),
        ],
        ..Options::default()
    };
    let daemon = Daemon::start_with(BALTRA, &options).unwrap();
    for tenant in ["red", "rose", "blue"] {
        daemon.text(&["tenant", "add", tenant]).unwrap();
    }
    (registry, daemon)
}

#[test]
fn names_of_the_daemons_are_offered() {
    let (registry, daemon) = pool();
    let runtime = daemon.runtime_dir();
    assert_eq!(names(&runtime, &["tenant", "rm", "r"]), ["red", "rose"]);
    assert_eq!(names(&runtime, &["run", "--device", ""]), ["device0"]);
    let at = ["--registry", registry.url()];
    let offered = || names(&runtime, &[&["device", "drain"][..], &at, &[""]].concat());
    baltra_testkit::until("the device is in the pool", || {
        offered() == ["isabela/device0"]
    })
    .unwrap();
    // The manager names the registry that its node has joined.
    assert_eq!(
        names(&runtime, &["device", "drain", "isa"]),
        ["isabela/device0"]
    );
    assert_eq!(bash(&runtime, &["tenant", "rm", "r"]), ["red", "rose"]);
    // Where no daemon has names, the script has them.
    assert_eq!(bash(&runtime, &["tenant", "us"]), ["usage"]);
    let offered = fish(&runtime, "baltra tenant rm r");
    assert!(offered.contains(&"red".to_owned()), "{offered:?}");
    assert!(offered.contains(&"rose".to_owned()), "{offered:?}");
    assert!(fish(&runtime, "baltra tenant us").contains(&"usage".to_owned()));
    assert_eq!(zsh(&runtime, "baltra tenant rm b"), "baltra tenant rm blue");
    assert_eq!(zsh(&runtime, "baltra tenant us"), "baltra tenant usage");
}

#[test]
fn failures_are_silent() {
    let home = tempfile::tempdir().unwrap();
    for words in [
        &["tenant", "rm", ""][..],
        &["device", "drain", "--registry", "http://127.0.0.1:1", ""],
        &["device", "drain", "--registry", "not a url", ""],
        &["function", "logs", "--gateway", "http://127.0.0.1:1", ""],
        &["run", "--", ""],
        &["no-such-command", ""],
        &[""],
    ] {
        let mut command = command("baltra", home.path());
        command
            .arg("complete")
            .arg(words.len().to_string())
            .args(["--", "baltra"])
            .args(words);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert_eq!(
            (output.stdout, output.stderr),
            (vec![], vec![]),
            "{words:?}"
        );
    }
}

/// A daemon that accepts and never answers does not hold the shell.
#[test]
fn a_daemon_that_does_not_answer_is_not_waited_for() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let home = tempfile::tempdir().unwrap();
    let words = ["function", "logs", "--gateway", &url, ""];
    assert!(names(home.path(), &words).is_empty());
}
