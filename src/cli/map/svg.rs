//! Writes a page as SVG: one file without scripts, fonts or pictures of others.

use std::collections::{BTreeMap, BTreeSet};

use super::ink::Ink;
use super::layout::{Block, Label, Look, NORMAL, Style, width_of};
use super::lines::columns;
use super::markup::Markup;
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
pub(super) fn write(scene: &Scene) -> String {
    let mut markup = Markup::new();
    write_into(&mut markup, scene);
    markup.finish()
}

/// Writes the page as an element.
pub(super) fn write_into(markup: &mut Markup, scene: &Scene) {
    let [width, height] = [scene.page.rect.width, scene.page.rect.height].map(|of| of.to_string());
    let view = format!("0 0 {width} {height}");
    let attributes = [
        ("xmlns", NAMESPACE),
        ("viewBox", &*view),
        ("width", &*width),
        ("height", &*height),
        ("role", "img"),
    ];
    markup.element("svg", &attributes, |markup| {
        markup.text("title", &[], &scene.title);
        markup.line();
        markup.element("style", &[], |markup| markup.raw(STYLES));
        let mut inks = BTreeSet::new();
        collect_inks(&scene.page, &mut inks);
        write_styles(markup, &inks);
        write_patterns(markup, &inks);
        write_block(markup, &scene.page);
    });
}

fn collect_inks(block: &Block, inks: &mut BTreeSet<Ink>) {
    inks.extend(block.look.style().1);
    block.blocks.iter().for_each(|inner| collect_inks(inner, inks));
}

/// Writes the styles of the colours that are used.
fn write_styles(markup: &mut Markup, inks: &BTreeSet<Ink>) {
    let colours: BTreeMap<usize, &Ink> = inks.iter().map(|ink| (ink.colour(), ink)).collect();
    let mut styles = String::new();
    for (number, ink) in colours {
        let (dark, light) = (ink.dark(), ink.light());
        styles.push_str(&format!(
            ".p{number}{{fill:{light};stroke:{dark}}}.h{number},.d{number},.o{number}{{fill:#fff;stroke:{dark}}}\
             .d{number}{{stroke-dasharray:5 3}}.o{number}{{stroke-dasharray:1 2}}.f{number}{{fill:{dark}}}\n"
        ));
    }
    markup.text("style", &[], &styles);
    markup.line();
}

/// Writes a pattern for each ink that has one: the dark shade, with a strip below the letter.
fn write_patterns(markup: &mut Markup, inks: &BTreeSet<Ink>) {
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
                let stroke = [
                    ("d", path),
                    ("transform", "translate(0 13.5)"),
                    ("stroke", ink.dark()),
                    ("stroke-width", "1.8"),
                    ("fill", "none"),
                ];
                markup.empty("path", &[("d", "M0 0H24V20H0z"), ("fill", ink.dark())]);
                markup.empty("path", &[("d", "M1 14H23V19H1z"), ("fill", ink.light())]);
                markup.empty("path", &stroke);
            });
        }
    });
    markup.line();
}

fn write_block(markup: &mut Markup, block: &Block) {
    let content = |markup: &mut Markup| {
        write_rect(markup, block);
        block.labels.iter().for_each(|label| write_label(markup, label));
        block.blocks.iter().for_each(|inner| write_block(markup, inner));
    };
    let Some(title) = &block.title else { return content(markup) };
    markup.element("g", &[], |markup| {
        markup.text("title", &[], title);
        content(markup);
    });
    markup.line();
}

fn write_rect(markup: &mut Markup, block: &Block) {
    let Block { rect, look, .. } = block;
    let (key, value) = match (*look, look.style()) {
        (_, ("", _)) => return,
        // A style would win over the attribute.
        (Look::Chip(ink), _) if ink.strip().is_some() => {
            ("style", format!("fill:url(#{})", ink.id()))
        }
        (_, (class, Some(ink))) => ("class", format!("{class}{}", ink.colour())),
        (_, (class, None)) => ("class", class.to_owned()),
    };
    let [x, y, width, height] =
        [rect.x, rect.y, rect.width, rect.height].map(|length| length.to_string());
    markup.empty(
        "rect",
        &[(key, &value), ("x", &x), ("y", &y), ("width", &width), ("height", &height)],
    );
}

fn write_label(markup: &mut Markup, label: &Label) {
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
    let class = Some(("class", class.trim())).filter(|(_, class)| !class.is_empty());
    let [x, y, length] = [label.x, label.y, width_of(columns(&label.text), label.size)]
        .map(|length| length.to_string());
    // Fonts differ in the width of what is not Latin: it is made to fit.
    let is_latin = |c: char| c <= '\u{24f}' || "…·→".contains(c);
    let fitted = [("textLength", &*length), ("lengthAdjust", "spacingAndGlyphs")];
    let fitted = fitted.into_iter().filter(|_| !label.text.chars().all(is_latin));
    let at = [("x", &*x), ("y", &*y)];
    let attributes: Vec<_> = class.into_iter().chain(at).chain(fitted).collect();
    markup.text("text", &attributes, &label.text);
}
