//! One test per row of the decision table in `docs/lifecycle.md`, of the same name. What a row does stands in that
//! table only: the tests fill its cells from the decisions, and compare.

mod case;
mod foreign;
mod machine;
mod making;
mod removing;
mod replacing;
mod surroundings;
mod table;
mod words;

use std::collections::BTreeSet;

/// Makes a test of each row: of a case, or of several, the cells of the document must follow.
macro_rules! rows {
    ($($row:ident: $cases:expr,)*) => {
        $(#[test]
        fn $row() {
            super::table::holds(stringify!($row), $cases);
        })*

        /// The rows that are tested here.
        pub(super) const ROWS: &[&str] = &[$(stringify!($row)),*];
    };
}
use rows;

#[test]
fn the_document_has_exactly_the_rows_that_are_tested() {
    let documented: BTreeSet<&str> = table::documented().into_keys().collect();
    let groups = [surroundings::ROWS, machine::ROWS, making::ROWS, removing::ROWS, replacing::ROWS];
    let tested: BTreeSet<&str> = groups.iter().flat_map(|rows| rows.iter().copied()).collect();
    assert_eq!(documented, tested);
}

#[test]
fn every_row_of_the_code_is_tested() {
    let sources = [
        include_str!("../mod.rs"),
        include_str!("../context.rs"),
        include_str!("../create.rs"),
        include_str!("../delete.rs"),
        include_str!("../external.rs"),
        include_str!("../foreign.rs"),
        include_str!("../gone.rs"),
        include_str!("../leave.rs"),
        include_str!("../managed.rs"),
        include_str!("../removal.rs"),
        include_str!("../replace.rs"),
        include_str!("../search.rs"),
    ];
    let groups = [surroundings::ROWS, machine::ROWS, making::ROWS, removing::ROWS, replacing::ROWS];
    let tested: BTreeSet<&str> = groups.iter().flat_map(|rows| rows.iter().copied()).collect();
    let is_row =
        |text: &&str| text.contains('_') && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    for row in sources.iter().flat_map(|source| source.split('"')).filter(is_row) {
        assert!(tested.contains(row), "{row} has no test");
    }
}
