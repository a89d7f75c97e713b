//! The panel beside the nodes: the groups with their letters, the signs, and what waits for what.

use super::super::ink::Ink;
use super::super::layout::{Block, Look, NORMAL, Rect, SMALL, Style, columns_in};
use super::super::lines::{counted, fit, fit_name, wrap};
use super::{CHIP, Form, MOST_DETAILED, chip, group_title, is_by_zone, lettered};
use stowplan_core::systems::map::{Map, MapGroup, MapPod, Waiting};

const WIDTH: u32 = 388;
const INSET: u32 = 14;
const INNER: u32 = WIDTH - 2 * INSET;
/// Where the text begins that follows a chip.
const TEXT: u32 = INSET + CHIP.0 + 10;
/// The height of a line.
const LINE: u32 = 16;

/// The most groups and waiting objects that are listed, where the nodes are not higher.
const GROUPS: usize = 12;
const WAITING: usize = 8;

/// Builds the panel beside nodes of this height.
pub(super) fn build(map: &Map, height: u32) -> Block {
    let mut panel = Block::new(Rect::new(0, 0, WIDTH, 0), Look::Panel);
    let mut y = INSET;
    if !map.groups.is_empty() {
        y = add_groups(map, &mut panel, y, height);
    }
    if !map.waiting.is_empty() {
        y = add_waiting(map, &mut panel, y, height);
    }
    y = add_signs(map, &mut panel, y);
    panel.rect.height = y.max(height);
    panel
}

fn heading(panel: &mut Block, y: u32, text: &str) -> u32 {
    panel.label(INSET, y + 12, 13, Style::Bold, text.to_owned());
    y + 26
}

/// One line that says how many are left out.
fn add_rest(panel: &mut Block, y: u32, text: &str) -> u32 {
    panel.label(INSET, y + 12, SMALL, Style::Muted, fit(text, columns_in(INNER, SMALL)));
    y + LINE + 4
}

fn add_groups(map: &Map, panel: &mut Block, y: u32, height: u32) -> u32 {
    let mut y = heading(panel, y, "Groups");
    let room = columns_in(WIDTH - TEXT - INSET, NORMAL);
    for (index, group) in map.groups.iter().enumerate() {
        // Half of the height is for what waits.
        if index >= GROUPS && y + 60 > height / 2 {
            y = add_rest(
                panel,
                y,
                &format!("and {}", counted(map.groups.len() - index, "more group")),
            );
            break;
        }
        let mut entry = Block::new(Rect::new(INSET, y, INNER, 32), Look::Bare);
        let mut mark = chip(map, index, Form::Solid);
        mark.move_by(INSET, y + 4);
        entry.blocks.push(mark);
        let x = TEXT - INSET;
        let name = fit_name(&group.full_name(), room);
        entry.label(x, 12, NORMAL, Style::Bold, name);
        let text = format!("{}: {}{}", group.kind, count(group), describe_detail(group));
        let below = fit(&text, columns_in(WIDTH - TEXT - INSET, SMALL));
        entry.label(x, 27, SMALL, Style::Muted, below);
        panel
            .blocks
            .push(entry.titled(fit(&format!("{}: {}", group_title(group), count(group)), 300)));
        y += 38;
    }
    y + 8
}

fn describe_detail(group: &MapGroup) -> String {
    if group.detail.is_empty() { String::new() } else { format!(" · {}", group.detail) }
}

/// Describes how many pods a group has.
pub(in crate::cli::map) fn count(group: &MapGroup) -> String {
    let mut parts = vec![counted(group.placed + group.pending - group.placeholders, "pod")];
    if group.placeholders > 0 {
        parts.push("placeholder".to_owned());
    }
    if group.pending > 0 {
        parts.push(format!("{} without a node", group.pending));
    }
    if group.reserved > 0 {
        parts.push(format!("{} reserved", group.reserved));
    }
    parts.join(", ")
}

fn add_waiting(map: &Map, panel: &mut Block, y: u32, height: u32) -> u32 {
    let mut y = heading(panel, y, "What waits, and for what");
    for (index, waiting) in map.waiting.iter().enumerate() {
        // What is left is for the signs.
        if index >= WAITING && y + 260 > height {
            let more: usize = map.waiting[index..].iter().map(|of| of.objects.len()).sum();
            let text = format!("and {}: stowplan check -A", counted(more, "more object"));
            y = add_rest(panel, y, &text);
            break;
        }
        let entry = build_entry(map, waiting, y);
        y = entry.rect.bottom() + 10;
        panel.blocks.push(entry);
    }
    y + 8
}

/// An object, or several, with what it waits for.
fn build_entry(map: &Map, waiting: &Waiting, y: u32) -> Block {
    let mut entry = Block::new(Rect::new(INSET, y, INNER, 0), Look::Bare);
    let mut mark = match waiting.group {
        Some(group) => chip(map, group, Form::Solid),
        None => lettered("·", Look::Alone, Style::Plain),
    };
    mark.move_by(INSET, y);
    entry.blocks.push(mark);
    let x = TEXT - INSET;
    let (normal, small) = (columns_in(INNER - x, NORMAL), columns_in(INNER - x, SMALL));
    let mut line = 13;
    entry.label(x, line, NORMAL, Style::Bold, name_objects(waiting, normal));
    for text in wrap(&why(waiting), normal, 4) {
        line += LINE;
        entry.label(x, line, NORMAL, Style::Plain, text);
    }
    if !waiting.remedy.is_empty() {
        for text in wrap(&format!("→ {}", waiting.remedy), small, 3) {
            line += LINE;
            entry.label(x, line, SMALL, Style::Muted, text);
        }
    }
    entry.rect.height = (line + 6).max(CHIP.1);
    let all = waiting.objects.join(", ");
    entry.titled(fit(&format!("{} {all}: {}. {}", waiting.kind, why(waiting), waiting.remedy), 580))
}

/// The objects by their names: the first one, and how many more.
pub(in crate::cli::map) fn name_objects(waiting: &Waiting, most: usize) -> String {
    let first = waiting.objects.first().map_or("", String::as_str);
    let more = match waiting.objects.len().saturating_sub(1) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let room = most.saturating_sub(waiting.kind.len() + 1 + more.len());
    format!("{} {}{more}", waiting.kind, fit_name(first, room))
}

/// Explains why the objects wait.
pub(in crate::cli::map) fn why(waiting: &Waiting) -> String {
    match waiting.more {
        0 => waiting.why.clone(),
        more => format!("{} (and {})", waiting.why, counted(more, "more obstacle")),
    }
}

/// The signs that the map has, with their meanings.
fn add_signs(map: &Map, panel: &mut Block, y: u32) -> u32 {
    let signs = if is_by_zone(map) { signs_of_zones(map) } else { signs_of_nodes(map) };
    if signs.is_empty() {
        return y;
    }
    let mut y = heading(panel, y, "Signs");
    for (look, style, letter, text) in signs {
        panel.blocks.push(lettered(letter, look, style).moved(INSET, y));
        let text = fit(text, columns_in(WIDTH - TEXT - INSET, NORMAL));
        panel.label(TEXT, y + 14, NORMAL, Style::Plain, text);
        y += 26;
    }
    y + 8
}

/// A sign: its look, the characters in it, and its meaning.
type Sign = (Look, Style, &'static str, &'static str);

fn signs_of_zones(map: &Map) -> Vec<Sign> {
    let has_reserved = map.groups.iter().any(|group| group.reserved > 0);
    let sign = (Look::Bare, Style::Plain, "+ 2", "reserved slots without a pod");
    has_reserved.then_some(sign).into_iter().collect()
}

fn signs_of_nodes(map: &Map) -> Vec<Sign> {
    let pods = || map.nodes.iter().flat_map(|node| &node.pods);
    let first = |is: fn(&MapPod) -> bool| pods().find(|pod| is(pod));
    let mut signs = Vec::new();
    if let Some(reserved) = map.nodes.iter().find_map(|node| node.reserved.first()) {
        let ink = Ink::of(reserved.group);
        let text = "reserved: its pod does not run there yet";
        signs.push((Look::DashedChip(ink), Style::Inked(ink), "", text));
    }
    if let Some(group) = first(|pod| pod.is_placeholder).and_then(MapPod::group) {
        let ink = Ink::of(group);
        let text = "placeholder: keeps its group on one node";
        signs.push((Look::HollowChip(ink), Style::Inked(ink), "", text));
    }
    // Narrow cards have no room for what a node is for a pool.
    let has_badges = map.nodes.iter().any(|node| !node.badges.is_empty());
    if has_badges && map.nodes.len() <= MOST_DETAILED {
        signs.push((Look::Badge(None), Style::Plain, "[0]", "the node is this member of a pool"));
    }
    if first(|pod| pod.groups.is_empty()).is_some() {
        signs.push((Look::Alone, Style::Plain, "·", "a pod that its own annotations place"));
    }
    if first(|pod| pod.has_obstacle).is_some() && map.nodes.len() <= MOST_DETAILED {
        signs.push((Look::Bare, Style::Plain, "!", "something is wrong with it: see the list"));
    }
    if map.nodes.iter().any(|node| !node.states.is_empty()) {
        signs.push((Look::Closed, Style::Plain, "", "the head of a node that takes no pods"));
    }
    signs
}
