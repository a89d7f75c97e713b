//! Arranges a map on a page: the nodes, or the zones of a large cluster, as cards; beside them the groups,
//! the signs and what waits.

mod card;
mod panel;
mod zone;

use super::ink::Ink;
use super::layout::{Block, Look, NORMAL, Style, TITLE, arrange, columns_in, width_of};
use super::lines::{columns, counted, fit, number};
use super::zones::find_zones;
pub(super) use panel::{count, name_objects, why};
use stowplan_core::systems::map::{Map, MapGroup};

/// The most nodes that are drawn; more are summed up by their zones.
const MOST_NODES: usize = 200;

/// The most nodes that are drawn with the names of their pods.
const MOST_DETAILED: usize = 24;

const MARGIN: u32 = 24;
const GAP: u32 = 12;
/// Between the nodes and what is beside them.
const GUTTER: u32 = 28;
/// The height of the title with the summary.
const HEAD: u32 = 56;

/// Returns true if a map has so many nodes that they are summed up by their zones.
pub(super) fn is_by_zone(map: &Map) -> bool {
    map.nodes.len() > MOST_NODES
}

/// A page.
pub(super) struct Scene {
    /// Its content in a few words.
    pub(super) title: String,
    pub(super) page: Block,
}

impl Scene {
    pub(super) fn new(map: &Map) -> Self {
        let (mut cards, in_row) = build_cards(map);
        let height = arrange(&mut cards, in_row, GAP);
        let width = cards.iter().map(|card| card.rect.right()).max().unwrap_or_default();
        let side = panel::build(map, height);
        let left = MARGIN + width + if width == 0 { 0 } else { GUTTER };
        let right = left + side.rect.width + MARGIN;
        let below = MARGIN + HEAD + height.max(side.rect.height) + MARGIN;
        let mut page = Block::new(right, below, Look::Page);
        let title = describe(map);
        let room = right - 2 * MARGIN;
        page.label(MARGIN, MARGIN + 16, TITLE, Style::Bold, fit(&title, columns_in(room, TITLE)));
        let summary = fit(&explain(map), columns_in(room, NORMAL));
        page.label(MARGIN, MARGIN + 38, NORMAL, Style::Muted, summary);
        cards.into_iter().for_each(|card| _ = page.put(MARGIN, MARGIN + HEAD, card));
        page.put(left, MARGIN + HEAD, side);
        Self { title, page }
    }
}

/// The cards of the nodes or zones, and how many are in a row.
fn build_cards(map: &Map) -> (Vec<Block>, usize) {
    match map.nodes.len() {
        _ if is_by_zone(map) => {
            let zones = find_zones(map);
            let cards = zones.iter().map(|of| zone::build(map, of)).collect();
            (cards, if zones.len() > 6 { 3 } else { 2 })
        }
        nodes if nodes > MOST_DETAILED => {
            let in_row = (1..=10).find(|n| 2 * nodes <= 5 * n * n).unwrap_or(10).max(6);
            (map.nodes.iter().map(|node| card::compact(map, node)).collect(), in_row)
        }
        nodes => {
            let cards = map.nodes.iter().map(|node| card::detailed(map, node)).collect();
            (cards, if nodes > 4 { 3 } else { 2 })
        }
    }
}

/// Describes the map in a few words.
pub(super) fn describe(map: &Map) -> String {
    let waiting: usize = map.waiting.iter().map(|of| of.objects.len()).sum();
    let mut parts = vec![counted(map.nodes.len(), "node"), counted(map.groups.len(), "group")];
    let reserved: usize = map.groups.iter().map(|group| group.reserved).sum();
    if reserved > 0 {
        parts.push(format!("{} reserved", counted(reserved, "slot")));
    }
    match waiting {
        0 => parts.push("nothing waits".to_owned()),
        1 => parts.push("1 object waits".to_owned()),
        more => parts.push(format!("{} objects wait", number(more))),
    }
    parts.join(", ")
}

fn explain(map: &Map) -> String {
    match is_by_zone(map) {
        true => format!(
            "More than {MOST_NODES} nodes: summed up by zone. A letter stands for the pods that belong together."
        ),
        false => "A box is a node. A letter stands for the pods that belong together.".to_owned(),
    }
}

/// The size of a chip.
const CHIP: (u32, u32) = (24, 20);

/// The letter of a group in a small box, which has one of the looks of chips.
fn chip(map: &Map, group: usize, look: fn(Ink) -> Look) -> Block {
    let ink = Ink::of(group);
    let look = look(ink);
    let style = if look == Look::Chip(ink) { Style::White } else { Style::Inked(ink) };
    lettered(&map.groups[group].mark, look, style)
}

/// The letter of a group, or the sign of what has no group, which has the look `alone`.
fn chip_or_dot(map: &Map, group: Option<usize>, look: fn(Ink) -> Look, alone: Look) -> Block {
    match group {
        Some(group) => chip(map, group, look),
        None => lettered("·", alone, Style::Plain),
    }
}

/// A box of a chip's size with a few characters.
fn lettered(text: &str, look: Look, style: Style) -> Block {
    let mut chip = Block::new(CHIP.0, CHIP.1, look);
    let text = fit(text, 3);
    let x = CHIP.0.saturating_sub(width_of(columns(&text), 11)) / 2;
    // A solid chip has its pattern below the letter.
    let y = if style == Style::White { 12 } else { 14 };
    chip.label(x, y, 11, style, text);
    chip
}

/// The name of a group with its kind.
fn group_title(group: &MapGroup) -> String {
    format!("Group {}: {}", group.mark, name_group(group))
}

/// The kind and the name of a group, with what distinguishes it from others.
pub(super) fn name_group(group: &MapGroup) -> String {
    let name = format!("{} {}", group.kind, group.full_name());
    if group.detail.is_empty() { name } else { format!("{name} ({})", group.detail) }
}

#[cfg(test)]
mod tests;
