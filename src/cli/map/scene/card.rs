//! The card of a node.

use super::super::ink::Ink;
use super::super::layout::{Block, Look, NORMAL, SMALL, Style, columns_in, flow, width_of};
use super::super::lines::{columns, counted, fit, fit_name, number};
use super::{CHIP, chip, chip_or_dot, group_title, lettered};
use stowplan_core::systems::map::{Map, MapBadge, MapNode, MapPod, MapReserved};

const WIDTH: u32 = 236;
const INSET: u32 = 10;
/// The width of what is in a card.
const INNER: u32 = WIDTH - 2 * INSET;
/// The height of a pod with the gap below.
const ROW: u32 = 24;
/// The most pods of a card that are drawn.
const MOST_PODS: usize = 14;

const NARROW: u32 = 150;
const NARROW_INSET: u32 = 8;
const NARROW_INNER: u32 = NARROW - 2 * NARROW_INSET;
/// The gap between chips.
const CHIP_GAP: u32 = 3;
/// The most chips in three lines.
const MOST_CHIPS: usize = 15;

/// A card with the names of the pods.
pub(super) fn detailed(map: &Map, node: &MapNode) -> Block {
    let mut card = Block::new(WIDTH, 0, Look::Card);
    card.blocks.push(head(node, WIDTH, INSET, NORMAL));
    let mut y = 46;
    let mut badges: Vec<Block> = node.badges.iter().map(|badge| build_badge(map, badge)).collect();
    if !badges.is_empty() {
        let height = flow(&mut badges, INNER, 4);
        badges.into_iter().for_each(|badge| _ = card.put(INSET, y, badge));
        y += height + 8;
    }
    for cell in &node.cells {
        let pods: Vec<&MapPod> = cell.pods.iter().map(|pod| &node.pods[*pod]).collect();
        let mut block = Block::new(INNER, 0, Look::Cell);
        let label = fit(&cell.label, columns_in(INNER - 12, SMALL));
        block.label(6, 14, SMALL, Style::Muted, label);
        let mut height = 20;
        for row in build_rows(map, &pods, &[], INNER - 12) {
            block.put(6, height, row);
            height += ROW;
        }
        if pods.is_empty() {
            block.label(6, 32, SMALL, Style::Muted, "free".to_owned());
            height += 18;
        }
        block.rect.height = height + 2;
        y = card.put(INSET, y, block) + 6;
    }
    let free: Vec<&MapPod> = node.pods_outside_cells().collect();
    for row in build_rows(map, &free, &node.reserved, INNER) {
        card.put(INSET, y, row);
        y += ROW;
    }
    if let Some(others) = build_others(node, INNER) {
        card.put(INSET, y, others);
        y += 18;
    }
    card.rect.height = y + 6;
    card
}

/// A card in which each pod is a chip.
pub(super) fn compact(map: &Map, node: &MapNode) -> Block {
    let mut card = Block::new(NARROW, 0, Look::Card);
    card.blocks.push(head(node, NARROW, NARROW_INSET, SMALL));
    let mut y = 42;
    let pods = node.pods.iter().map(|pod| {
        let look = if pod.is_placeholder { Look::HollowChip } else { Look::Chip };
        chip_or_dot(map, pod.group(), look, Look::Alone).titled(&pod_title(map, pod))
    });
    let reserved = node.reserved.iter().map(|reserved| {
        chip(map, reserved.group, Look::DashedChip).titled(&reserved_title(map, reserved))
    });
    let mut chips: Vec<Block> = pods.chain(reserved).collect();
    if chips.len() > MOST_CHIPS {
        let more = chips.len() - (MOST_CHIPS - 1);
        chips.truncate(MOST_CHIPS - 1);
        let text = if more > 99 { "99+".to_owned() } else { format!("+{more}") };
        let title = format!("{} more pods and slots", number(more));
        chips.push(lettered(&text, Look::Alone, Style::Plain).titled(&title));
    }
    if !chips.is_empty() {
        let height = flow(&mut chips, NARROW_INNER, CHIP_GAP);
        chips.into_iter().for_each(|chip| _ = card.put(NARROW_INSET, y, chip));
        y += height + 6;
    }
    if let Some(others) = build_others(node, NARROW_INNER) {
        card.put(NARROW_INSET, y, others);
        y += 18;
    }
    card.rect.height = y + 4;
    card.titled(&describe(node))
}

/// The head of a card: the name, and why the node takes no pods.
fn head(node: &MapNode, width: u32, inset: u32, size: u32) -> Block {
    let look = if node.states.is_empty() { Look::Bare } else { Look::Closed };
    let mut head = Block::new(width, 38, look);
    let inner = width - 2 * inset;
    head.label(inset, 17, size, Style::Bold, fit_name(&node.name, columns_in(inner, size)));
    let zone = node.zone_in_words();
    let states = (!node.states.is_empty()).then(|| node.states.join(", "));
    let style = if states.is_some() { Style::Plain } else { Style::Muted };
    let below: Vec<String> = states.into_iter().chain(zone).collect();
    head.label(inset, 32, SMALL, style, fit(&below.join(" · "), columns_in(inner, SMALL)));
    head.titled(&describe(node))
}

/// A node in words.
fn describe(node: &MapNode) -> String {
    let mut parts = vec![format!("Node {}", node.name)];
    parts.extend(node.zone_in_words());
    parts.extend(node.states.iter().map(|state| (*state).to_owned()));
    parts.extend(node.badges.iter().map(|badge| badge.label.clone()));
    parts.join(", ")
}

fn build_badge(map: &Map, badge: &MapBadge) -> Block {
    let mark = badge.group.map(|group| format!("{} ", map.groups[group].mark)).unwrap_or_default();
    let text = fit(&format!("{mark}{}", badge.label), columns_in(INNER - 12, SMALL));
    let ink = badge.group.map(Ink::of);
    let width = width_of(columns(&text), SMALL) + 12;
    let mut block = Block::new(width, 18, Look::Badge(ink));
    block.label(6, 13, SMALL, ink.map_or(Style::Plain, Style::Inked), text);
    let of = badge.group.map(|group| format!(" of {}", map.groups[group].full_name()));
    block.titled(&format!("Pool member {}{}", badge.label, of.unwrap_or_default()))
}

/// A row for each pod and each reserved slot. Too many are counted.
fn build_rows(map: &Map, pods: &[&MapPod], reserved: &[MapReserved], width: u32) -> Vec<Block> {
    let of_pods = pods.iter().map(|pod| build_pod(map, pod, width));
    let of_reserved = reserved.iter().map(|reserved| build_reserved(map, reserved, width));
    let mut rows: Vec<Block> = of_pods.chain(of_reserved).collect();
    if rows.len() > MOST_PODS {
        let more = rows.len() - (MOST_PODS - 1);
        rows.truncate(MOST_PODS - 1);
        let mut row = Block::new(width, CHIP.1, Look::Bare);
        let text = format!("and {} more", number(more));
        row.label(6, 14, SMALL, Style::Muted, text);
        rows.push(row);
    }
    rows
}

fn build_pod(map: &Map, pod: &MapPod, width: u32) -> Block {
    let look = match pod.group().map(Ink::of) {
        None => Look::Alone,
        Some(ink) if pod.is_placeholder => Look::Placeholder(ink),
        Some(ink) => Look::Pod(ink),
    };
    let of_chip = if pod.is_placeholder { Look::HollowChip } else { Look::Chip };
    let mut row = Block::new(width, CHIP.1, look);
    row.put(0, 0, chip_or_dot(map, pod.group(), of_chip, Look::Bare));
    let warning = if pod.has_obstacle { " !" } else { "" };
    let room = columns_in(width - CHIP.0 - 12, NORMAL) - warning.len();
    let (name, style) = match pod.role {
        Some(role) if pod.is_placeholder => (fit(role, room), Style::Italic),
        _ => (fit_name(&pod.name, room), Style::Plain),
    };
    row.label(CHIP.0 + 6, 14, NORMAL, style, format!("{name}{warning}"));
    row.titled(&pod_title(map, pod))
}

fn build_reserved(map: &Map, reserved: &MapReserved, width: u32) -> Block {
    let ink = Ink::of(reserved.group);
    let mut row = Block::new(width, CHIP.1, Look::Reserved(ink));
    row.blocks.push(chip(map, reserved.group, Look::DashedChip));
    let room = columns_in(width - CHIP.0 - 12, NORMAL);
    row.label(CHIP.0 + 6, 14, NORMAL, Style::Italic, fit_name(&reserved.label, room));
    row.titled(&reserved_title(map, reserved))
}

fn pod_title(map: &Map, pod: &MapPod) -> String {
    let role = pod.role.map(|role| format!(", {role}")).unwrap_or_default();
    let warning = if pod.has_obstacle { "; see what waits" } else { "" };
    let groups: Vec<String> =
        pod.groups.iter().map(|group| group_title(&map.groups[*group])).collect();
    let groups = match groups.is_empty() {
        true => "placed by its own annotations".to_owned(),
        false => groups.join("; "),
    };
    format!("Pod {}{role}. {groups}{warning}", pod.full_name())
}

fn reserved_title(map: &Map, reserved: &MapReserved) -> String {
    let group = group_title(&map.groups[reserved.group]);
    format!("Reserved for {}, which does not run here yet. {group}", reserved.label)
}

/// The number of pods with which stowplan has nothing to do. `None`: the card says enough.
fn build_others(node: &MapNode, width: u32) -> Option<Block> {
    let others = node.count_others();
    let is_empty = node.pods.is_empty() && node.reserved.is_empty() && node.cells.is_empty();
    let text = match (others, is_empty) {
        (0, false) => return None,
        (0, true) => "no pods".to_owned(),
        (others, _) => counted(others, "other pod"),
    };
    let mut block = Block::new(width, 16, Look::Bare);
    block.label(0, 12, SMALL, Style::Muted, fit(&text, columns_in(width, SMALL)));
    let listed = node.others.join(", ");
    Some(match listed.is_empty() {
        true => block,
        false => block.titled(&format!("Other pods: {listed}")),
    })
}
