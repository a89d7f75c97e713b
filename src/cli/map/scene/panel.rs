//! The panel beside the nodes: the groups with their letters, the signs, and what waits for what.

use super::super::ink::Ink;
use super::super::layout::{Block, Look, NORMAL, SMALL, Style, columns_in};
use super::super::lines::{counted, fit, fit_name, wrap};
use super::{CHIP, MOST_DETAILED, chip, chip_or_dot, group_title, is_by_zone, lettered};
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

/// The panel, while it is filled from above.
struct Panel<'m> {
    map: &'m Map,
    block: Block,
    /// Where the next part begins.
    y: u32,
}

/// Builds the panel beside nodes of this height.
pub(super) fn build(map: &Map, height: u32) -> Block {
    let mut panel = Panel { map, block: Block::new(WIDTH, 0, Look::Panel), y: INSET };
    panel.add_groups(height);
    panel.add_waiting(height);
    panel.add_signs();
    panel.block.rect.height = panel.y.max(height);
    panel.block
}

impl Panel<'_> {
    fn heading(&mut self, text: &str) {
        self.block.label(INSET, self.y + 12, 13, Style::Bold, text.to_owned());
        self.y += 26;
    }

    /// Adds one line that says how many are left out.
    fn add_rest(&mut self, text: &str) {
        let text = fit(text, columns_in(INNER, SMALL));
        self.block.label(INSET, self.y + 12, SMALL, Style::Muted, text);
        self.y += LINE + 4;
    }

    fn add_groups(&mut self, height: u32) {
        if self.map.groups.is_empty() {
            return;
        }
        self.heading("Groups");
        for (index, group) in self.map.groups.iter().enumerate() {
            // Half of the height is for what waits.
            if index >= GROUPS && self.y + 60 > height / 2 {
                let more = counted(self.map.groups.len() - index, "more group");
                self.add_rest(&format!("and {more}"));
                break;
            }
            self.block.put(INSET, self.y, build_group(self.map, index, group));
            self.y += 38;
        }
        self.y += 8;
    }

    fn add_waiting(&mut self, height: u32) {
        if self.map.waiting.is_empty() {
            return;
        }
        self.heading("What waits, and for what");
        for (index, waiting) in self.map.waiting.iter().enumerate() {
            // What is left is for the signs.
            if index >= WAITING && self.y + 260 > height {
                let more = self.map.waiting[index..].iter().map(|of| of.objects.len()).sum();
                self.add_rest(&format!("and {}: stowplan check -A", counted(more, "more object")));
                break;
            }
            self.y = self.block.put(INSET, self.y, build_entry(self.map, waiting)) + 10;
        }
        self.y += 8;
    }

    /// Adds the signs that the map has, with their meanings.
    fn add_signs(&mut self) {
        let map = self.map;
        let signs = if is_by_zone(map) { signs_of_zones(map) } else { signs_of_nodes(map) };
        if signs.is_empty() {
            return;
        }
        self.heading("Signs");
        for (look, style, letter, text) in signs {
            self.block.put(INSET, self.y, lettered(letter, look, style));
            let text = fit(text, columns_in(WIDTH - TEXT - INSET, NORMAL));
            self.block.label(TEXT, self.y + 14, NORMAL, Style::Plain, text);
            self.y += 26;
        }
        self.y += 8;
    }
}

/// A group with its letter.
fn build_group(map: &Map, index: usize, group: &MapGroup) -> Block {
    let mut entry = Block::new(INNER, 32, Look::Bare);
    entry.put(0, 4, chip(map, index, Look::Chip));
    let (x, room) = (TEXT - INSET, WIDTH - TEXT - INSET);
    let name = fit_name(&group.full_name(), columns_in(room, NORMAL));
    entry.label(x, 12, NORMAL, Style::Bold, name);
    let count = count(group);
    let mut text = format!("{}: {count}", group.kind);
    if !group.detail.is_empty() {
        text += &format!(" · {}", group.detail);
    }
    entry.label(x, 27, SMALL, Style::Muted, fit(&text, columns_in(room, SMALL)));
    entry.titled(&format!("{}: {count}", group_title(group)))
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

/// An object, or several, with what it waits for.
fn build_entry(map: &Map, waiting: &Waiting) -> Block {
    let mut entry = Block::new(INNER, 0, Look::Bare);
    entry.put(0, 0, chip_or_dot(map, waiting.group, Look::Chip, Look::Alone));
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
    let title = format!("{} {all}: {}. {}", waiting.kind, why(waiting), waiting.remedy);
    Block { title: Some(fit(&title, 580)), ..entry }
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
