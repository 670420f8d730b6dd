//! PDF files written by hand: their objects as text, a table of where they are, and nothing else.

use std::fmt::Write as _;
use std::io::Write as _;

/// Objects of a PDF, whose numbers begin at 1. The first is the catalog.
#[derive(Debug, Default)]
pub struct PdfObjects(Vec<Vec<u8>>);

impl PdfObjects {
    /// Adds an object and returns its number.
    pub fn add(&mut self, object: impl Into<Vec<u8>>) -> usize {
        self.0.push(object.into());
        self.0.len()
    }

    /// The same for a stream with these entries beside its length.
    pub fn add_stream(&mut self, entries: &str, data: &[u8]) -> usize {
        let length = data.len();
        let mut object = format!("<< {entries} /Length {length} >>\nstream\n").into_bytes();
        object.extend(data);
        object.extend(b"\nendstream");
        self.add(object)
    }

    /// The file.
    pub fn file(&self) -> Vec<u8> {
        let mut file = b"%PDF-1.7\n".to_vec();
        let mut table = String::new();
        for (index, object) in self.0.iter().enumerate() {
            let _ = writeln!(table, "{:010} 00000 n ", file.len());
            let _ = writeln!(file, "{} 0 obj", index + 1);
            file.extend(object);
            file.extend(b"\nendobj\n");
        }
        let (start, count) = (file.len(), self.0.len() + 1);
        let _ = write!(
            file,
            "xref\n0 {count}\n0000000000 65535 f \n{table}trailer\n<< /Size {count} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n"
        );
        file
    }
}

/// What one page has.
#[derive(Debug, Clone, Copy)]
pub struct PageContent<'a> {
    /// Points.
    pub size: (f64, f64),
    /// Operators.
    pub content: &'a str,
}

impl<'a> PageContent<'a> {
    /// A page of 200 by 100 points.
    pub const fn of(content: &'a str) -> Self {
        Self {
            size: (200.0, 100.0),
            content,
        }
    }
}

/// A file of these pages, whose font `/F` is Helvetica.
pub fn pdf(pages: &[PageContent<'_>]) -> Vec<u8> {
    let mut objects = PdfObjects::default();
    objects.add("<< /Type /Catalog /Pages 2 0 R >>");
    // The third object is the font; two for each page follow.
    let kids: Vec<String> = (0..pages.len())
        .map(|page| format!("{} 0 R", 4 + 2 * page))
        .collect();
    let count = pages.len();
    objects.add(format!(
        "<< /Type /Pages /Count {count} /Kids [{}] /Resources << /Font << /F 3 0 R >> >> >>",
        kids.join(" ")
    ));
    objects.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>");
    for (page, PageContent { size, content }) in pages.iter().enumerate() {
        let (width, height) = size;
        let stream = 5 + 2 * page;
        objects.add(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] /Contents {stream} 0 R >>"
        ));
        objects.add_stream("", content.as_bytes());
    }
    objects.file()
}

/// Operators that write a line of text.
pub fn line(x: u32, y: u32, text: &str) -> String {
    format!("BT /F 12 Tf {x} {y} Td ({text}) Tj ET\n")
}
