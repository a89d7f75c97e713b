//! A drawing as data: rectangles with texts, each inside of the rectangle that it belongs to. Lengths are in
//! pixels.

use super::ink::Ink;
use super::lines::fit;

/// The sizes of texts.
pub(super) const TITLE: u32 = 18;
pub(super) const NORMAL: u32 = 12;
pub(super) const SMALL: u32 = 11;

/// The longest text that is shown while the pointer is on a rectangle, in columns.
const LONGEST_TITLE: usize = 300;

/// The width of a column, in hundredths of the size of the text. Monospaced fonts have 55 to 61.
const COLUMN: u32 = 62;

/// The width of so many columns.
pub(super) fn width_of(columns: usize, size: u32) -> u32 {
    let columns = u32::try_from(columns).unwrap_or(u32::MAX);
    columns.saturating_mul(size * COLUMN).div_ceil(100)
}

/// Returns the number of columns that fit into a width.
pub(super) fn columns_in(width: u32, size: u32) -> usize {
    (width * 100 / (size * COLUMN)) as usize
}

/// A rectangle.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Rect {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Rect {
    pub(super) fn right(self) -> u32 {
        self.x + self.width
    }

    pub(super) fn bottom(self) -> u32 {
        self.y + self.height
    }
}

/// The look of a rectangle.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Look {
    /// It is not drawn, and only holds what is in it.
    Bare,
    Page,
    Card,
    /// The head of a card, of one that takes no pods.
    Closed,
    Panel,
    Cell,
    Pod(Ink),
    /// A pod that only keeps a group together.
    Placeholder(Ink),
    /// A slot without a pod.
    Reserved(Ink),
    /// A pod without a group.
    Alone,
    Chip(Ink),
    /// The chip of a pod that only keeps a group together.
    HollowChip(Ink),
    /// The chip of a slot without a pod.
    DashedChip(Ink),
    Badge(Option<Ink>),
    Bar(Ink),
}

impl Look {
    /// Returns the class of its style, with the ink whose colour that has. No class: it is not drawn.
    pub(super) fn style(self) -> (&'static str, Option<Ink>) {
        match self {
            Self::Bare => ("", None),
            Self::Page => ("page", None),
            Self::Card => ("card", None),
            Self::Closed => ("closed", None),
            Self::Panel => ("panel", None),
            Self::Cell => ("cell", None),
            Self::Alone => ("alone", None),
            Self::Badge(None) => ("badge", None),
            Self::Badge(ink) => ("badge h", ink),
            Self::Pod(ink) => ("p", Some(ink)),
            Self::Placeholder(ink) => ("o", Some(ink)),
            Self::Reserved(ink) | Self::DashedChip(ink) => ("d", Some(ink)),
            Self::HollowChip(ink) => ("h", Some(ink)),
            Self::Chip(ink) | Self::Bar(ink) => ("f", Some(ink)),
        }
    }
}

/// The style of a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Style {
    Plain,
    Bold,
    Muted,
    /// On a dark rectangle.
    White,
    /// In the dark shade of a group.
    Inked(Ink),
    Italic,
}

/// A text on one line.
#[derive(Clone, Debug)]
pub(super) struct Label {
    pub(super) x: u32,
    /// The base line.
    pub(super) y: u32,
    pub(super) size: u32,
    pub(super) style: Style,
    pub(super) text: String,
}

/// A rectangle with texts and other rectangles in it.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) rect: Rect,
    pub(super) look: Look,
    /// The text that is shown while the pointer is on it.
    pub(super) title: Option<String>,
    pub(super) labels: Vec<Label>,
    pub(super) blocks: Vec<Self>,
}

impl Block {
    /// A block at the origin.
    pub(super) fn new(width: u32, height: u32, look: Look) -> Self {
        let rect = Rect { width, height, ..Rect::default() };
        Self { rect, look, title: None, labels: Vec::new(), blocks: Vec::new() }
    }

    pub(super) fn titled(mut self, title: &str) -> Self {
        self.title = Some(fit(title, LONGEST_TITLE));
        self
    }

    /// Adds a text at a position relative to the rectangle.
    pub(super) fn label(&mut self, x: u32, y: u32, size: u32, style: Style, text: String) {
        if !text.is_empty() {
            let (x, y) = (self.rect.x + x, self.rect.y + y);
            self.labels.push(Label { x, y, size, style, text });
        }
    }

    /// Adds a block, which is at the origin, at a position relative to the rectangle. Returns where it
    /// ends.
    pub(super) fn put(&mut self, x: u32, y: u32, mut block: Self) -> u32 {
        block.move_by(self.rect.x + x, self.rect.y + y);
        let end = block.rect.bottom() - self.rect.y;
        self.blocks.push(block);
        end
    }

    /// Moves it with all that is in it.
    pub(super) fn move_by(&mut self, x: u32, y: u32) {
        self.rect.x += x;
        self.rect.y += y;
        for label in &mut self.labels {
            label.x += x;
            label.y += y;
        }
        self.blocks.iter_mut().for_each(|block| block.move_by(x, y));
    }
}

/// Puts blocks into rows of so many; those of a row get the same height. Returns the height of all.
pub(super) fn arrange(blocks: &mut [Block], in_row: usize, gap: u32) -> u32 {
    let mut y = 0;
    for row in blocks.chunks_mut(in_row.max(1)) {
        let height = row.iter().map(|block| block.rect.height).max().unwrap_or_default();
        let mut x = 0;
        for block in row {
            block.move_by(x, y);
            block.rect.height = height;
            x += block.rect.width + gap;
        }
        y += height + gap;
    }
    y.saturating_sub(gap)
}

/// Puts blocks one after the other into lines of a width. Returns the height of all.
pub(super) fn flow(blocks: &mut [Block], width: u32, gap: u32) -> u32 {
    let (mut x, mut y, mut height) = (0, 0, 0);
    for block in blocks {
        if x > 0 && x + block.rect.width > width {
            (x, y) = (0, y + height + gap);
            height = 0;
        }
        block.move_by(x, y);
        x += block.rect.width + gap;
        height = height.max(block.rect.height);
    }
    y + height
}
