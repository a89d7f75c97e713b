//! Writes a map for terminals: a line for each group, then each node with its pods, then what waits.

use anstyle::{Ansi256Color, Style};
use textwrap::core::display_width;

use super::ink::Ink;
use super::lines::{columns, counted, fit, fit_name, number, wrap};
use super::scene::{count, describe, is_by_zone, name_group, name_objects, why};
use super::zones::{Counts, Zone, find_zones};
use crate::cli::page::{BAD, Painter, REMEDY, TITLE};
use stowplan_core::systems::map::{Map, MapCell, MapNode, MapPod, MapReserved};

/// The fewest columns for which lines are made.
pub(super) const NARROWEST: usize = 40;

/// The widest column of names.
const WIDEST_NAME: usize = 28;

/// The longest name of a pod.
const LONGEST_POD: usize = 36;

/// A text form in the making.
struct Writer<'m> {
    map: &'m Map,
    width: usize,
    painter: Painter,
    text: String,
}

/// The text form for so many columns.
pub(super) fn format(map: &Map, width: usize, painter: Painter) -> String {
    let width = width.max(NARROWEST);
    let mut writer = Writer { map, width, painter, text: String::new() };
    writer.line(&describe(map));
    writer.write_groups();
    match is_by_zone(map) {
        true => writer.write_zones(),
        false => writer.write_nodes(),
    }
    writer.write_waiting();
    writer.text
}

impl Writer<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn title(&mut self, title: &str) {
        let title = self.painter.paint(TITLE, title);
        self.line("");
        self.line(&title);
    }

    /// Returns the mark of a group in its colour, in at least so many columns. `None`: of what has no group.
    fn mark(&self, group: Option<usize>, widest: usize) -> String {
        let Some(group) = group else { return format!("{:<widest$}", "·") };
        let colour = Ansi256Color(Ink::of(group).terminal());
        let mark = format!("{:<widest$}", self.map.groups[group].mark);
        self.painter.paint(Style::new().fg_color(Some(colour.into())), &mark)
    }

    /// Returns the columns of the longest mark.
    fn widest_mark(&self) -> usize {
        self.map.groups.iter().map(|group| group.mark.len()).max().unwrap_or(1)
    }

    fn write_groups(&mut self) {
        if self.map.groups.is_empty() {
            return;
        }
        self.title("Groups");
        let widest = self.widest_mark();
        for (index, group) in self.map.groups.iter().enumerate() {
            let mark = self.mark(Some(index), widest);
            let count = count(group);
            let room = self.width.saturating_sub(widest + 6 + count.len());
            let name = fit(&name_group(group), room);
            self.line(&format!("  {mark}  {name}: {count}"));
        }
    }

    fn write_nodes(&mut self) {
        if self.map.nodes.is_empty() {
            return;
        }
        self.title("Nodes");
        let names = self.map.nodes.iter().map(|node| columns(&node.name));
        let widest = names.max().unwrap_or_default().min(WIDEST_NAME);
        let indent = widest + 4;
        let map = self.map;
        for node in &map.nodes {
            let name = fit_name(&node.name, widest);
            let pad = " ".repeat(widest - columns(&name));
            let badges = node.badges.iter().map(|badge| {
                let group = badge.group.map(|group| &*map.groups[group].mark);
                [group.unwrap_or_default(), &badge.label].join(" ").trim().to_owned()
            });
            let states = node.states.iter().map(|state| (*state).to_owned());
            let about: Vec<String> = states.chain(node.zone_in_words()).chain(badges).collect();
            let mut lines = match about.join(" · ") {
                about if about.is_empty() => Vec::new(),
                about => wrap(&about, self.width - indent, 3),
            };
            for cell in &node.cells {
                lines.extend(self.flow(self.cell_tokens(node, cell), indent));
            }
            let pods = node.pods_outside_cells().map(|pod| self.pod_token(pod));
            let reserved = node.reserved.iter().map(|reserved| self.reserved_token(reserved));
            let mut tokens: Vec<String> = pods.chain(reserved).collect();
            let others = node.count_others();
            if others > 0 {
                tokens.push(format!("+ {}", counted(others, "other pod")));
            } else if tokens.is_empty() && node.cells.is_empty() {
                tokens.push("no pods".to_owned());
            }
            lines.extend(self.flow(tokens, indent));
            let mut before = format!("  {name}{pad}  ");
            for line in lines {
                self.line(&(before + &line));
                before = " ".repeat(indent);
            }
        }
    }

    fn pod_token(&self, pod: &MapPod) -> String {
        let name = match pod.role {
            Some(role) if pod.is_placeholder => format!("({role})"),
            _ => fit_name(&pod.name, LONGEST_POD),
        };
        let warning = if pod.has_obstacle { "!" } else { "" };
        format!("{} {name}{warning}", self.mark(pod.group(), 0))
    }

    fn reserved_token(&self, reserved: &MapReserved) -> String {
        let name = fit_name(&reserved.label, LONGEST_POD);
        format!("{} [{name}]", self.mark(Some(reserved.group), 0))
    }

    fn cell_tokens(&self, node: &MapNode, cell: &MapCell) -> Vec<String> {
        let mut tokens = vec![format!("{}:", fit(&cell.label, WIDEST_NAME))];
        tokens.extend(cell.pods.iter().map(|pod| self.pod_token(&node.pods[*pod])));
        if cell.pods.is_empty() {
            tokens.push("free".to_owned());
        }
        tokens
    }

    /// Puts tokens, which may be coloured, into lines.
    fn flow(&self, tokens: Vec<String>, indent: usize) -> Vec<String> {
        let room = self.width.saturating_sub(indent).max(1);
        let mut lines: Vec<String> = Vec::new();
        let mut used = 0;
        for text in tokens {
            // Without the escape sequences.
            let columns = display_width(&text);
            match lines.last_mut().filter(|_| used + 2 + columns <= room) {
                Some(line) => {
                    line.push_str("  ");
                    line.push_str(&text);
                    used += 2 + columns;
                }
                None => {
                    lines.push(text);
                    used = columns;
                }
            }
        }
        lines
    }

    fn write_zones(&mut self) {
        self.title("Zones");
        find_zones(self.map).iter().for_each(|zone| self.write_zone(zone));
    }

    fn write_zone(&mut self, zone: &Zone) {
        let head = fit(&format!("{}: {}", zone.title, zone.describe()), self.width - 2);
        self.line(&format!("  {head}"));
        let of_group = |(group, counts): (&usize, &Counts)| {
            let reserved = match counts.reserved {
                0 => String::new(),
                reserved => format!(" + [{reserved}]"),
            };
            format!("{} {}{reserved}", self.mark(Some(*group), 0), number(counts.pods))
        };
        let mut tokens: Vec<String> = zone.groups.iter().map(of_group).collect();
        if zone.alone > 0 {
            tokens.push(format!("· {}", number(zone.alone)));
        }
        if zone.others > 0 {
            tokens.push(format!("+ {}", counted(zone.others, "other pod")));
        }
        for line in self.flow(tokens, 4) {
            self.line(&format!("    {line}"));
        }
    }

    fn write_waiting(&mut self) {
        if self.map.waiting.is_empty() {
            return;
        }
        self.title("What waits, and for what");
        let widest = self.widest_mark();
        let room = self.width - widest - 4;
        for waiting in &self.map.waiting {
            let mark = self.mark(waiting.group, widest);
            self.line(&format!("  {mark}  {}", name_objects(waiting, room)));
            let indent = " ".repeat(widest + 4);
            let mut texts = vec![(BAD, why(waiting))];
            let says = waiting.autoscaler.iter();
            texts.extend(says.map(|says| (Style::new(), format!("autoscaler {says}"))));
            if !waiting.remedy.is_empty() {
                texts.push((REMEDY, format!("→ {}", waiting.remedy)));
            }
            for (style, text) in texts {
                for line in wrap(&text, room, 4) {
                    self.line(&format!("{indent}{}", self.painter.paint(style, &line)));
                }
            }
        }
    }
}
