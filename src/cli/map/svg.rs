//! Writes a page as SVG: one file without scripts, fonts or pictures of others.

use std::collections::BTreeSet;
use std::io;

use super::ink::Ink;
use super::layout::{Block, Label, Look, NORMAL, Style, width_of};
use super::lines::columns;
use super::markup::{Attributes, Markup};
use super::scene::Scene;

const NAMESPACE: &str = "http://www.w3.org/2000/svg";

/// The styles that do not depend on groups.
const STYLES: &str = "text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;fill:#1b1f24;white-space:pre}
.s11{font-size:11px}.s13{font-size:13px}.s14{font-size:14px}.s18{font-size:18px}
.b{font-weight:700}.m{fill:#57606a}.w{fill:#fff;font-weight:700}.i{font-style:italic}
.page{fill:#fff}.card,.cell,.alone,.badge{stroke:#c3cad1;fill:#fff}.closed{fill:#d3d9df;stroke:#8d959e}
.panel,.cell{fill:#f5f7f9}.alone{fill:#f5f7f9;stroke:#8d959e}
rect{rx:3px}.card,.panel,.closed{rx:6px}.badge{rx:9px}
";

/// Writes the page as a file of its own.
///
/// # Errors
/// Never: it is written to memory.
pub(super) fn write(scene: &Scene) -> io::Result<String> {
    let mut markup = Markup::new();
    write_into(&mut markup, scene)?;
    markup.finish()
}

/// Writes the page as an element.
pub(super) fn write_into(markup: &mut Markup, scene: &Scene) -> io::Result<()> {
    let rect = scene.page.rect;
    let (width, height) = (rect.width.to_string(), rect.height.to_string());
    let view = format!("0 0 {width} {height}");
    let attributes = [
        ("xmlns", NAMESPACE),
        ("viewBox", &*view),
        ("width", &*width),
        ("height", &*height),
        ("role", "img"),
    ];
    markup.element("svg", &attributes, |markup| {
        markup.text("title", &[], &scene.title)?;
        markup.line()?;
        markup.element("style", &[], |markup| markup.raw(STYLES))?;
        let mut inks = BTreeSet::new();
        collect_inks(&scene.page, &mut inks);
        write_styles(markup, &inks)?;
        write_patterns(markup, &inks)?;
        write_block(markup, &scene.page)
    })
}

fn collect_inks(block: &Block, inks: &mut BTreeSet<Ink>) {
    match block.look {
        Look::Pod(ink)
        | Look::Placeholder(ink)
        | Look::Reserved(ink)
        | Look::Chip(ink)
        | Look::HollowChip(ink)
        | Look::DashedChip(ink)
        | Look::Badge(Some(ink))
        | Look::Bar(ink) => _ = inks.insert(ink),
        _ => {}
    }
    block.blocks.iter().for_each(|inner| collect_inks(inner, inks));
}

/// The styles of the colours that are used.
fn write_styles(markup: &mut Markup, inks: &BTreeSet<Ink>) -> io::Result<()> {
    let used: BTreeSet<usize> = inks.iter().map(|ink| ink.colour()).collect();
    let mut styles = String::new();
    for (number, dark, light) in Ink::colours().filter(|(number, ..)| used.contains(number)) {
        styles.push_str(&format!(
            ".p{number}{{fill:{light};stroke:{dark}}}.h{number},.d{number},.o{number}{{fill:#fff;stroke:{dark}}}\
             .d{number}{{stroke-dasharray:5 3}}.o{number}{{stroke-dasharray:1 2}}.f{number}{{fill:{dark}}}\n"
        ));
    }
    markup.text("style", &[], &styles)?;
    markup.line()
}

/// A pattern for each ink that has one: the dark shade, with a strip below the letter.
fn write_patterns(markup: &mut Markup, inks: &BTreeSet<Ink>) -> io::Result<()> {
    markup.element("defs", &[], |markup| {
        for ink in inks {
            let Some(path) = ink.strip() else { continue };
            let id = ink.id();
            let attributes = [
                ("id", &*id),
                ("width", "1"),
                ("height", "1"),
                ("viewBox", "0 0 24 20"),
                ("preserveAspectRatio", "none"),
            ];
            markup.element("pattern", &attributes, |markup| {
                let dark = ink.dark();
                markup.empty("path", &[("d", "M0 0H24V20H0z"), ("fill", dark)])?;
                markup.empty("path", &[("d", "M1 14H23V19H1z"), ("fill", ink.light())])?;
                markup.empty(
                    "path",
                    &[
                        ("d", path),
                        ("transform", "translate(0 13.5)"),
                        ("stroke", dark),
                        ("stroke-width", "1.8"),
                        ("fill", "none"),
                    ],
                )
            })?;
        }
        Ok(())
    })?;
    markup.line()
}

fn write_block(markup: &mut Markup, block: &Block) -> io::Result<()> {
    let content = |markup: &mut Markup| {
        write_rect(markup, block)?;
        block.labels.iter().try_for_each(|label| write_label(markup, label))?;
        block.blocks.iter().try_for_each(|inner| write_block(markup, inner))
    };
    match &block.title {
        Some(title) => {
            markup.element("g", &[], |markup| {
                markup.text("title", &[], title)?;
                content(markup)
            })?;
            markup.line()
        }
        None => content(markup),
    }
}

fn write_rect(markup: &mut Markup, block: &Block) -> io::Result<()> {
    let class = match block.look {
        Look::Bare => return Ok(()),
        Look::Page => "page".to_owned(),
        Look::Card => "card".to_owned(),
        Look::Closed => "closed".to_owned(),
        Look::Panel => "panel".to_owned(),
        Look::Cell => "cell".to_owned(),
        Look::Alone => "alone".to_owned(),
        Look::Badge(None) => "badge".to_owned(),
        Look::Pod(ink) => format!("p{}", ink.colour()),
        Look::Badge(Some(ink)) => format!("badge h{}", ink.colour()),
        Look::Placeholder(ink) => format!("o{}", ink.colour()),
        Look::Reserved(ink) | Look::DashedChip(ink) => format!("d{}", ink.colour()),
        Look::HollowChip(ink) => format!("h{}", ink.colour()),
        Look::Chip(ink) | Look::Bar(ink) => format!("f{}", ink.colour()),
    };
    let rect = block.rect;
    let [x, y, width, height] =
        [rect.x, rect.y, rect.width, rect.height].map(|length| length.to_string());
    let mut attributes: Vec<(&str, &str)> = vec![
        ("class", class.as_str()),
        ("x", x.as_str()),
        ("y", y.as_str()),
        ("width", width.as_str()),
        ("height", height.as_str()),
    ];
    // A style would win over the attribute.
    let pattern = match block.look {
        Look::Chip(ink) if ink.strip().is_some() => format!("fill:url(#{})", ink.id()),
        _ => String::new(),
    };
    if !pattern.is_empty() {
        attributes[0] = ("style", pattern.as_str());
    }
    markup.empty("rect", &attributes)
}

fn write_label(markup: &mut Markup, label: &Label) -> io::Result<()> {
    let style = match label.style {
        Style::Plain => String::new(),
        Style::Bold => "b".to_owned(),
        Style::Muted => "m".to_owned(),
        Style::White => "w".to_owned(),
        Style::Italic => "i".to_owned(),
        Style::Inked(ink) => format!("b f{}", ink.colour()),
    };
    let size = match label.size {
        NORMAL => String::new(),
        size => format!("s{size}"),
    };
    let class = format!("{size} {style}");
    let (x, y) = (label.x.to_string(), label.y.to_string());
    // Fonts differ in the width of what is not Latin: it is made to fit.
    let length = width_of(columns(&label.text), label.size).to_string();
    let is_latin = |c: char| c <= '\u{24f}' || "…·→".contains(c);
    let fitted = [("textLength", length.as_str()), ("lengthAdjust", "spacingAndGlyphs")];
    let mut attributes: Vec<(&str, &str)> = vec![("x", x.as_str()), ("y", y.as_str())];
    match class.trim() {
        "" => {}
        class => attributes.insert(0, ("class", class)),
    }
    if !label.text.chars().all(is_latin) {
        attributes.extend(fitted);
    }
    let attributes: Attributes<'_> = &attributes;
    markup.text("text", attributes, &label.text)
}
