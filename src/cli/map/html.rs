//! Writes a map as a page: the picture, and below it everything that waits, and all groups.

use super::lines::plain;
use super::markup::Markup;
use super::scene::{Scene, count};
use super::svg;
use stowplan_core::systems::map::{Map, MapGroup, Waiting};

const STYLES: &str = "
body{font:15px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff;margin:24px;max-width:1200px}
table{border-collapse:collapse;margin:8px 0 32px}
th,td{text-align:left;vertical-align:top;padding:6px 16px 6px 0;border-bottom:1px solid #d8dde3;overflow-wrap:anywhere}
td:first-child{font-weight:700}th,td:first-child{white-space:nowrap}h2{font-size:18px;margin-bottom:0}
svg{max-width:none}.picture{overflow-x:auto}
@media print{body{margin:0}}
";

/// Writes the page.
pub(super) fn write(map: &Map) -> String {
    let scene = Scene::new(map);
    let mut markup = Markup::new();
    markup.raw("<!DOCTYPE html>\n");
    markup.element("html", &[("lang", "en")], |markup| {
        markup.element("head", &[], |markup| {
            markup.empty("meta", &[("charset", "utf-8")]);
            markup.text("title", &[], &format!("stowplan map: {}", scene.title));
            markup.element("style", &[], |markup| markup.raw(STYLES));
        });
        markup.line();
        markup.element("body", &[], |markup| {
            markup.element("div", &[("class", "picture")], |of| svg::write_into(of, &scene));
            write_waiting(markup, map);
            write_groups(markup, map);
        });
    });
    markup.finish()
}

fn write_waiting(markup: &mut Markup, map: &Map) {
    let row = |waiting: &Waiting| {
        let mark = waiting.group.map_or("", |group| &map.groups[group].mark);
        let objects = format!("{} {}", waiting.kind, waiting.objects.join(", "));
        let says = waiting.autoscaler.iter().map(|says| format!("; autoscaler {says}"));
        let why = [super::scene::why(waiting)].into_iter().chain(says).collect();
        [mark.to_owned(), objects, why, waiting.remedy.clone()]
    };
    let rows: Vec<_> = map.waiting.iter().map(row).collect();
    let head = ["Group", "Object", "Why it waits", "What to do"];
    write_table(markup, "What waits, and for what", &head, &rows);
}

fn write_groups(markup: &mut Markup, map: &Map) {
    let row = |group: &MapGroup| {
        let kind = match group.detail.as_str() {
            "" => group.kind.to_owned(),
            detail => format!("{}, {detail}", group.kind),
        };
        [group.mark.clone(), group.full_name(), kind, count(group)]
    };
    let rows: Vec<_> = map.groups.iter().map(row).collect();
    write_table(markup, "Groups", &["Group", "Name", "Kind", "Pods"], &rows);
}

/// Writes a table with a title, if it has rows.
fn write_table(markup: &mut Markup, title: &str, head: &[&str; 4], rows: &[[String; 4]]) {
    if rows.is_empty() {
        return;
    }
    markup.text("h2", &[], title);
    markup.element("table", &[], |markup| {
        markup.element("tr", &[], |row| head.iter().for_each(|cell| row.text("th", &[], cell)));
        for cells in rows {
            markup.line();
            markup.element("tr", &[], |row| {
                cells.iter().for_each(|cell| row.text("td", &[], &plain(cell)));
            });
        }
    });
    markup.line();
}
