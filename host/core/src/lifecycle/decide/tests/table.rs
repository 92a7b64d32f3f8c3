//! The decision table of `docs/lifecycle.md`, and its comparison with what the code does. What stands under `when` is
//! for people and is not compared.

use std::collections::BTreeMap;

use super::case::Case;
use super::words::cells;

/// Each row of the document, by name: effect, next pass and status.
pub(super) fn documented() -> BTreeMap<&'static str, [&'static str; 3]> {
    let document = include_str!("../../../../../../docs/lifecycle.md");
    let table = document.split("\n## Decisions\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut lines = table.lines().skip_while(|line| !line.starts_with("| row |"));
    assert_eq!(lines.next(), Some("| row | when | effect | next pass | status |"));
    assert_eq!(lines.next(), Some("|---|---|---|---|---|"));
    let mut rows = BTreeMap::new();
    for line in lines.take_while(|line| line.starts_with('|')) {
        let inner = line.strip_prefix('|').and_then(|line| line.strip_suffix('|'));
        let cells: Vec<&str> = inner.unwrap_or_default().split('|').map(str::trim).collect();
        let [row, _, effect, next_pass, status] = cells[..] else { panic!("not five cells: {line}") };
        let name = row.strip_prefix('`').and_then(|row| row.strip_suffix('`'));
        let name = name.unwrap_or_else(|| panic!("not a name in backticks: {row}"));
        assert_eq!(rows.insert(name, [effect, next_pass, status]), None, "two rows {name}");
    }
    rows
}

/// Compares the cells of a row with what it does in these cases: the words of a cell are those of its cases, in their
/// order.
pub(super) fn holds(row: &str, cases: impl Into<Vec<Case>>) {
    let [effect, next_pass, status] =
        documented().get(row).copied().unwrap_or_else(|| panic!("docs/lifecycle.md has no row `{row}`"));
    let done = cells(row, cases.into());
    let columns = [
        ("effect", effect, done.effect),
        ("next pass", next_pass, done.next_pass),
        ("status", status, done.status),
    ];
    let wrong: Vec<String> = columns
        .iter()
        .filter(|(_, says, does)| says != does)
        .map(|(column, says, does)| {
            format!("docs/lifecycle.md, row `{row}`, {column}: it says {says:?}, the code does {does:?}")
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
