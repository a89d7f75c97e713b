//! The card of a zone.

use super::super::ink::Ink;
use super::super::layout::{Block, Look, NORMAL, SMALL, Style, columns_in, width_of};
use super::super::lines::{columns, counted, fit, fit_name, number};
use super::super::zones::{Counts, Zone};
use super::{CHIP, chip, group_title};
use stowplan_core::systems::map::Map;

const WIDTH: u32 = 392;
const INSET: u32 = 14;
const INNER: u32 = WIDTH - 2 * INSET;
const ROW: u32 = 25;
/// The most groups of a card.
const MOST_GROUPS: usize = 12;
/// Where the name, the bar and the number of a group begin.
const NAME: u32 = CHIP.0 + 8;
const BAR: u32 = NAME + 172;
const NUMBER: u32 = BAR + 88;

/// The card: how many nodes there are, and how many pods each group has on them.
pub(super) fn build(map: &Map, zone: &Zone) -> Block {
    let mut card = Block::new(WIDTH, 0, Look::Card);
    let title = fit_name(&zone.title, columns_in(INNER, 14));
    card.label(INSET, 24, 14, Style::Bold, title);
    card.label(INSET, 43, NORMAL, Style::Muted, fit(&zone.describe(), columns_in(INNER, NORMAL)));
    let mut y = 58;
    let mut groups: Vec<(usize, Counts)> =
        zone.groups.iter().map(|(group, counts)| (*group, *counts)).collect();
    groups
        .sort_by_key(|(group, counts)| (std::cmp::Reverse(counts.pods + counts.reserved), *group));
    let most = groups.first().map_or(1, |(_, counts)| (counts.pods + counts.reserved).max(1));
    let left = groups.len().saturating_sub(MOST_GROUPS);
    for (group, counts) in groups.iter().take(MOST_GROUPS) {
        card.put(INSET, y, build_row(map, *group, *counts, most));
        y += ROW;
    }
    let mut rest = Vec::new();
    if left > 0 {
        rest.push(counted(left, "more group"));
    }
    if zone.alone > 0 {
        rest.push(format!("{} by their own annotations", number(zone.alone)));
    }
    if zone.others > 0 {
        rest.push(counted(zone.others, "other pod"));
    }
    if rest.is_empty() && groups.is_empty() {
        rest.push("no pods".to_owned());
    }
    if !rest.is_empty() {
        let rest = fit(&rest.join(", "), columns_in(INNER, SMALL));
        card.label(INSET, y + 12, SMALL, Style::Muted, rest);
        y += 18;
    }
    card.rect.height = y + 8;
    card
}

/// A group, a bar as long as its share of the largest group's pods, and their number.
fn build_row(map: &Map, group: usize, counts: Counts, most: usize) -> Block {
    let mut row = Block::new(INNER, CHIP.1, Look::Bare);
    row.blocks.push(chip(map, group, Look::Chip));
    let name = fit_name(&map.groups[group].name, columns_in(BAR - NAME - 6, NORMAL));
    row.label(NAME, 14, NORMAL, Style::Plain, name);
    let total = counts.pods + counts.reserved;
    let length = u32::try_from(total * 80 / most).unwrap_or(80).clamp(2, 80);
    row.put(BAR, 5, Block::new(length, 10, Look::Bar(Ink::of(group))));
    let text = match counts.reserved {
        0 => number(counts.pods),
        reserved => format!("{} + {reserved}", number(counts.pods)),
    };
    let text = fit(&text, columns_in(INNER - NUMBER, NORMAL));
    let x = INNER - width_of(columns(&text), NORMAL);
    row.label(x, 14, NORMAL, Style::Bold, text);
    let reserved = match counts.reserved {
        0 => String::new(),
        reserved => format!(", {reserved} reserved"),
    };
    let title = group_title(&map.groups[group]);
    row.titled(&format!("{title}: {}{reserved}", counted(counts.pods, "pod")))
}
