use image::{DynamicImage, GenericImageView, Rgba};
use muster_testing::pdf::{PageContent, PdfObjects, line, pdf};

use super::read;
use crate::task::{PageForm, PdfLimits, Reply};

const LIMITS: PdfLimits = PdfLimits {
    pages: 5,
    side: 400,
    text_bytes: 1000,
};

/// Text and image of each page.
fn pages(file: Vec<u8>, form: PageForm) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut bytes = Vec::new();
    let reply = read(file, form, LIMITS, &mut |block| {
        bytes.extend(block);
        Ok(())
    });
    match reply.unwrap() {
        Reply::Pages(lengths) => {
            let mut rest = bytes.into_iter();
            let mut take = |count: usize| rest.by_ref().take(count).collect::<Vec<u8>>();
            let pages = lengths.iter();
            let pages = pages.map(|page| {
                let text = String::from_utf8(take(page.text)).unwrap();
                (text, take(page.image))
            });
            Ok(pages.collect())
        }
        Reply::Refused(why) => Err(why),
        other => unreachable!("{other:?}"),
    }
}

fn texts(file: Vec<u8>) -> Vec<String> {
    let pages = pages(file, PageForm::Text).unwrap();
    assert!(pages.iter().all(|(_, image)| image.is_empty()));
    pages.into_iter().map(|(text, _)| text).collect()
}

fn images(file: Vec<u8>) -> Vec<DynamicImage> {
    let pages = pages(file, PageForm::Image).unwrap();
    let images = pages.iter();
    images
        .map(|(_, bytes)| image::load_from_memory(bytes).unwrap())
        .collect()
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/");
    std::fs::read(format!("{folder}{name}")).unwrap()
}

#[test]
fn pages_are_images_of_what_is_drawn() {
    let red = PageContent::of("1 0 0 rg 0 0 100 50 re f");
    let tall = PageContent {
        size: (100.0, 800.0),
        content: "0 0 1 rg 0 0 100 800 re f",
    };
    let images = images(pdf(&[red, tall]));
    // 200 by 100 points at twice their size, by the limit; 800 points at half of it.
    assert_eq!(images[0].dimensions(), (400, 200));
    assert_eq!(images[1].dimensions(), (50, 400));
    let at = |x, y| images[0].get_pixel(x, y);
    assert_eq!(at(50, 150), Rgba([255, 0, 0, 255]));
    assert_eq!(at(50, 50), Rgba([255; 4]));
    assert_eq!(at(300, 150), Rgba([255; 4]));
    assert_eq!(images[1].get_pixel(25, 200), Rgba([0, 0, 255, 255]));
}

#[test]
fn a_page_is_neither_enlarged_without_end_nor_a_line() {
    let stamp = PageContent {
        size: (36.0, 18.0),
        content: "",
    };
    let band = PageContent {
        size: (100_000.0, 1.0),
        content: "",
    };
    let images = images(pdf(&[stamp, band]));
    assert_eq!(images[0].dimensions(), (100, 50));
    assert_eq!(images[1].dimensions(), (400, 32));
}

#[test]
fn text_is_read_in_words_and_lines() {
    let content = [
        line(10, 80, "Sixty ships"),
        line(10, 60, "came"),
        line(80, 60, "in"),
        // Single letters, as placed by word processors.
        "BT /F 12 Tf 10 40 Td [(H) 20 (ar) -30 (bour) -400 (town)] TJ ET".to_owned(),
    ];
    let content = content.concat();
    let file = pdf(&[PageContent::of(&content), PageContent::of("")]);
    assert_eq!(texts(file), ["Sixty ships\ncame in\nHarbour town", ""]);
}

#[test]
fn a_report_with_subsets_of_fonts_is_read() {
    let pages = texts(fixture("report.pdf"));
    assert_eq!(pages.len(), 2);
    for words in [
        "Harbour report 2026",
        "Sixty ships came into the harbour of Z\u{fc}rich this year",
        "The office\u{2019}s figures are affluent with fluff, and efficient to file.",
        "West",
    ] {
        let flat = pages[0].replace('\n', " ");
        assert!(flat.contains(words), "{words}: {flat}");
    }
    assert!(
        pages[1].contains("The West leads with twenty-two."),
        "{}",
        pages[1]
    );
    let images = images(fixture("report.pdf"));
    assert_eq!(images[1].dimensions(), (283, 400));
    let is_red = |pixel: Rgba<u8>| pixel.0[0] > 200 && pixel.0[1] < 60 && pixel.0[2] < 60;
    let red = images[1].pixels().filter(|(_, _, pixel)| is_red(*pixel));
    assert!(red.count() > 500);
}

#[test]
fn a_file_that_is_no_open_pdf_is_refused_with_the_reason() {
    let why = |file: Vec<u8>| pages(file, PageForm::Text).unwrap_err();
    assert!(why(fixture("encrypted.pdf")).contains("encrypted"));
    assert!(why(b"%PDF-1.7\nnothing".to_vec()).contains("damaged"));
    let mut empty = PdfObjects::default();
    empty.add("<< /Type /Catalog /Pages 2 0 R >>");
    empty.add("<< /Type /Pages /Count 0 /Kids [] >>");
    let told = why(empty.file());
    assert!(
        told.contains("no pages") || told.contains("damaged"),
        "{told}"
    );
    let told = why(pdf(&[PageContent::of(""); 6]));
    assert_eq!(told, "the PDF has 6 pages, where at most 5 are read");
    let long = line(0, 0, &"x".repeat(2000));
    let told = why(pdf(&[PageContent::of(&long)]));
    assert!(told.contains("larger than 1000 bytes"), "{told}");
}

#[test]
fn a_damaged_table_of_objects_is_repaired() {
    let mut file = pdf(&[PageContent::of(&line(10, 10, "found"))]);
    let text = String::from_utf8_lossy(&file).into_owned();
    let start = text.rfind("startxref").unwrap();
    file.truncate(start);
    file.extend(b"startxref\n7\n%%EOF");
    assert_eq!(texts(file), ["found"]);
}
