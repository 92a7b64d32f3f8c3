//! One test per row of the tables in `docs/gc.md`, of the same name, and what holds for any history.

mod case;
mod confirm;
mod machines;
mod passes;
mod properties;

use std::collections::BTreeSet;

fn documented(heading: &str) -> BTreeSet<&'static str> {
    let document = include_str!("../../../../../docs/gc.md");
    let table = document.split(heading).nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|line| line.split('`').next()).collect()
}

fn set(rows: &[&'static str]) -> BTreeSet<&'static str> {
    rows.iter().copied().collect()
}

#[test]
fn the_document_has_exactly_the_rows_that_are_tested() {
    assert_eq!(documented("## What becomes of a machine"), set(machines::ROWS));
    assert_eq!(documented("## What a pass is made of"), set(passes::ROWS));
    assert_eq!(documented("## Right before a delete"), set(confirm::ROWS));
}

#[test]
fn every_verdict_of_the_code_is_a_row() {
    let source = include_str!("../plan.rs");
    let is_row =
        |text: &&str| text.contains('_') && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let rows: BTreeSet<&str> = source.split('"').filter(is_row).collect();
    assert_eq!(rows, set(machines::ROWS));
}

/// Makes the tests, and the list of their names.
macro_rules! rows {
    ($($row:ident: $body:block)*) => {
        $(#[test]
        fn $row() $body)*

        /// The rows that are tested here.
        pub(super) const ROWS: &[&str] = &[$(stringify!($row)),*];
    };
}
use rows;
