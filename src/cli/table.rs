//! Columns that line up, for people; programs ask for `--json`.

use std::fmt;

/// Rows of text under headings.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Rows without headings.
    pub fn plain() -> Self {
        Self { rows: Vec::new() }
    }

    pub fn new<const COLUMNS: usize>(headings: [&str; COLUMNS]) -> Self {
        Self {
            rows: vec![headings.map(str::to_owned).to_vec()],
        }
    }

    pub fn row<const COLUMNS: usize>(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells.to_vec());
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let cells = row
                .iter()
                .enumerate()
                .map(|(column, cell)| format!("{cell:<0$}", self.width(column)));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_trailing_spaces() {
        let mut table = Table::new(["name", "size"]);
        table.row(["größer".to_owned(), "1".to_owned()]);
        assert_eq!(table.to_string(), "name    size\ngrößer  1\n");
    }
}
