//! Programs that are run to their end.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};

/// Runs a program without input. Returns its standard output.
///
/// # Errors
/// It cannot be run, or it fails: the root cause is then its standard error.
pub fn run(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output();
    let program = command.get_program().display().to_string();
    check(&program, output.with_context(|| format!("cannot run {program}"))?)
}

/// As [`run`], with the standard output as text.
///
/// # Errors
/// As for [`run`], or the output is not UTF-8.
pub fn text(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8(run(command)?)?)
}

/// As [`run`], with this input. A program may close its input early.
///
/// # Errors
/// As for [`run`].
pub fn run_with(command: &mut Command, input: Vec<u8>) -> Result<Vec<u8>> {
    let program = command.get_program().display().to_string();
    check(&program, output_with(command, input)?)
}

/// As [`run_with`], whether the program succeeds or not: both of its outputs and how it ended.
///
/// # Errors
/// It cannot be run.
pub fn output_with(command: &mut Command, input: Vec<u8>) -> Result<Output> {
    let program = command.get_program().display().to_string();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {program}"))?;
    let pipe = child.stdin.take();
    let writer = thread::spawn(move || pipe.map(|mut pipe| pipe.write_all(&input)));
    let output = child.wait_with_output()?;
    let _ = writer.join();
    Ok(output)
}

/// As [`text`], without blocking. The program is killed if the future is dropped.
///
/// # Errors
/// As for [`text`].
pub async fn text_of(command: Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let mut command = tokio::process::Command::from(command);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("cannot run {program}"))?;
    Ok(String::from_utf8(check(&program, output)?)?)
}

fn check(program: &str, output: Output) -> Result<Vec<u8>> {
    let failed = || format!("{program} failed ({})", output.status);
    let message = String::from_utf8_lossy(&output.stderr);
    let checked = || -> Result<()> {
        ensure!(output.status.success(), "{}", message.trim());
        Ok(())
    };
    checked().with_context(failed)?;
    Ok(output.stdout)
}
