//! `baltra function`: manages functions, which are called over HTTP.

mod bind;
pub mod deploy;
mod init;
mod invoke;
mod push;
mod show;

use crate::args::Function;
use crate::http::{escaped, As, Call, Gateway};
use anyhow::Result;
use baltra_manager::options::PathOptions;
use http::Method;
use serde_json::json;
use std::process::ExitCode;

/// Runs `baltra function`; returns the process's exit code.
pub fn function(command: Function, paths: &PathOptions) -> Result<ExitCode> {
    match command {
        Function::Init {
            name,
            template,
            dir,
            list,
        } => match (list, name) {
            (false, Some(name)) => init::init(&name, template.as_deref(), dir.as_deref()),
            _ => {
                init::list();
                Ok(())
            }
        },
        Function::Deploy {
            paths: files,
            door,
            json,
        } => deploy::deploy(&Gateway::new(&door, paths)?, &files, json.json),
        Function::Push(args) => match &args.kernel {
            Some(kernel) => bind::bind(&args, kernel),
            None => push::push(&args),
        },
        Function::List { door, json } => show::list(&Gateway::new(&door, paths)?, json.json),
        Function::Describe { name, door, json } => {
            show::describe(&Gateway::new(&door, paths)?, &name, json.json)
        }
        Function::Invoke(invoke) => {
            return invoke::invoke(&Gateway::new(&invoke.door, paths)?, &invoke);
        }
        Function::Logs {
            name,
            follow,
            lines,
            door,
        } => show::logs(&Gateway::new(&door, paths)?, &name, follow, lines),
        Function::Remove {
            names,
            board: Some(board),
            ..
        } => push::remove(&board, &names),
        Function::Remove { names, door, .. } => remove(&Gateway::new(&door, paths)?, &names),
        Function::Scale {
            name,
            replicas,
            door,
        } => scale(&Gateway::new(&door, paths)?, &name, replicas),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// `baltra function remove`
fn remove(gateway: &Gateway, names: &[String]) -> Result<()> {
    for name in names {
        let body = json!({"functionName": name}).to_string();
        let call = Call::new(Method::DELETE, "/system/functions").body("application/json", body);
        gateway.ask(As::Admin, call)?;
        println!("{name} removed");
    }
    Ok(())
}

/// `baltra function scale`
fn scale(gateway: &Gateway, name: &str, replicas: u32) -> Result<()> {
    let body = json!({"serviceName": name, "replicas": replicas}).to_string();
    let path = format!("/system/scale-function/{}", escaped(name));
    let call = Call::new(Method::POST, path).body("application/json", body);
    gateway.ask(As::Admin, call)?;
    println!("{name}: scaled to {replicas}");
    Ok(())
}
