//! The command `pictures`: draws the maps of `docs/pictures`, and checks them in a browser.
//!
//! The checks of `stowplan`'s own tests trust the widths that it assumes for texts. A browser knows the
//! widths of a font: it measures every text and every rectangle of a picture.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use testbed::command;
use testbed::pictures::{SITUATIONS, Situation};

use super::Ended;
use super::cargo::{build_stowplan, metadata, target_directory};

const EXAMPLES: &str = "\
Examples:
  apt-get install -y chromium    what it needs on Debian
  cargo testbed pictures         writes docs/pictures/*.svg, and target/pictures/*.png to look at";

/// The names of the browser's program.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// What measures a picture. Its findings replace the page.
const MEASURE: &str = include_str!("pictures/measure.js");

/// The most bytes of a picture in the repository.
const MOST_BYTES: usize = 150_000;

/// Draws the pictures of the documents, and checks in headless Chromium that no text leaves its rectangle,
/// no rectangle is over another one, and nothing is outside of the picture.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {}

pub(super) fn run() -> Result<Ended> {
    let browser = find_browser()?;
    let stowplan = build_stowplan()?;
    let target = target_directory(&metadata(&["--no-deps"])?)?.join("pictures");
    let documents = super::workspace()?.join("docs/pictures");
    fs::create_dir_all(&target)?;
    fs::create_dir_all(&documents)?;
    let mut faults = Vec::new();
    for situation in SITUATIONS {
        let svg = draw(&stowplan, situation, "svg")?;
        let name = situation.name;
        ensure!(svg.len() <= MOST_BYTES, "{name}: {} bytes are more than {MOST_BYTES}", svg.len());
        fs::write(documents.join(format!("{name}.svg")), &svg)?;
        let found = measure(&browser, &target, name, &svg)?;
        let size = size(&svg)?;
        take_picture(&browser, &target, name, &svg, size)?;
        say!(
            "{name:6} {:3} kB, {} by {} pixels: {}",
            svg.len().div_ceil(1000),
            size.0,
            size.1,
            if found.is_empty() { "nothing overlaps, nothing is cut" } else { "FAULTS" }
        );
        faults.extend(found.into_iter().map(|fault| format!("{name}: {fault}")));
        fs::write(target.join(format!("{name}.html")), draw(&stowplan, situation, "html")?)?;
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    say!("To look at: {}/*.png, *.html", super::shown(&target));
    Ok(Ended::Done)
}

fn find_browser() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let programs = folders.iter().flat_map(|folder| BROWSERS.map(|name| folder.join(name)));
    programs.into_iter().find(|program| program.is_file()).with_context(|| {
        format!("none of {} is on the PATH: apt-get install -y chromium", BROWSERS.join(", "))
    })
}

/// The map of a situation.
fn draw(stowplan: &Path, situation: &Situation, form: &str) -> Result<String> {
    let mut command = Command::new(stowplan);
    command.current_dir(super::workspace()?).args(situation.arguments()).args(["-o", form]);
    let drawn = command::run_with(&mut command, situation.input());
    Ok(String::from_utf8(drawn.context(situation.name)?)?)
}

/// The width and the height of a picture.
fn size(svg: &str) -> Result<(u32, u32)> {
    let read = |name: &str| {
        let (_, rest) = svg.split_once(&format!(" {name}=\""))?;
        rest.split('"').next()?.parse::<u32>().ok()
    };
    read("width").zip(read("height")).context("a picture has a width and a height")
}

/// What is wrong with a picture, by the measures of a browser.
fn measure(browser: &Path, folder: &Path, name: &str, svg: &str) -> Result<Vec<String>> {
    let page = folder.join(format!("{name}-measured.html"));
    let text = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><body style=\"margin:0\">{svg}<script>{MEASURE}</script>"
    );
    fs::write(&page, text)?;
    let output = start(browser, &["--dump-dom"], &page)?;
    let dom = String::from_utf8_lossy(&output);
    let (_, rest) = dom
        .split_once("<pre id=\"measured\">")
        .with_context(|| format!("{name}: the browser measured nothing: {dom:.400}"))?;
    let report = rest.split("</pre>").next().unwrap_or_default();
    let mut lines = report.lines().filter(|line| !line.is_empty());
    let counted = lines.next().unwrap_or_default();
    ensure!(counted.starts_with("measured "), "{name}: the browser measured nothing: {counted}");
    Ok(lines.map(str::to_owned).collect())
}

fn take_picture(
    browser: &Path,
    folder: &Path,
    name: &str,
    svg: &str,
    (width, height): (u32, u32),
) -> Result<()> {
    let page = folder.join("page.html");
    let text = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><body style=\"margin:0;background:#fff\">{svg}"
    );
    fs::write(&page, text)?;
    let png = folder.join(format!("{name}.png"));
    let _ = fs::remove_file(&png);
    let picture = format!("--screenshot={}", png.display());
    let window = format!("--window-size={width},{height}");
    start(browser, &[&picture, &window, "--hide-scrollbars"], &page)?;
    let taken = png.is_file();
    let _ = fs::remove_file(&page);
    ensure!(taken, "{name}: the browser took no picture");
    Ok(())
}

/// Runs the browser on a page until it has ended.
fn start(browser: &Path, arguments: &[&str], page: &Path) -> Result<Vec<u8>> {
    let profile = tempfile::TempDir::new()?;
    let mut command = Command::new("timeout");
    command
        .arg("120")
        .arg(browser)
        // In containers there are no user namespaces for the sandbox; the page is the own one.
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--virtual-time-budget=10000", "--force-device-scale-factor=1"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()));
    command::run(&mut command).context("the browser")
}
