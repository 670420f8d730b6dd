//! The text of a page, in drawing order. Characters come from fonts; words and lines are inferred from the positions of
//! glyphs.

use hayro::hayro_interpret::font::{Glyph, GlyphRun};
use hayro::hayro_interpret::hayro_cmap::BfString;
use hayro::hayro_interpret::{
    BlendMode, ClipPath, Context, Device, DrawMode, DrawProps, Image, ImageDrawProps,
    InterpreterCache, InterpreterSettings, RectExt, SoftMask, TransformExt, interpret_page,
};
use hayro::hayro_syntax::page::Page;
use hayro::kurbo::{BezPath, Point, Vec2};

/// Glyphs are described in thousandths of the font's size.
const UNITS: f64 = 1000.0;
/// Wider gaps, in sizes of the font, are a space.
const WORD_GAP: f64 = 0.15;
/// A glyph further above or below begins a line.
const LINE_GAP: f64 = 0.4;
/// A glyph this far before the end of the last one begins a line, too.
const BACK_GAP: f64 = 1.0;

/// At most `most` bytes and one character.
pub fn of<'a>(page: &'a Page<'a>, most: usize) -> String {
    let cache = InterpreterCache::new();
    let transform = page.initial_transform(true).to_kurbo();
    let bounds = transform.transform_rect_bbox(page.intersected_crop_box().to_kurbo());
    let settings = InterpreterSettings::default();
    let mut context = Context::new(transform, bounds, &cache, page.xref(), settings);
    let mut text = PageText {
        text: String::new(),
        end: None,
        most,
    };
    interpret_page(page, &mut context, &mut text);
    let lines = text.text.lines().map(str::trim_end);
    let lines: Vec<&str> = lines.collect();
    lines.join("\n").trim().to_owned()
}

struct PageText {
    text: String,
    end: Option<GlyphEnd>,
    most: usize,
}

/// End of the last glyph.
struct GlyphEnd {
    at: Point,
    /// Unit vector of its line.
    direction: Vec2,
    /// Size of its font.
    size: f64,
}

impl PageText {
    fn push(&mut self, glyph: &Glyph<'_>, start: Point, along: Vec2, size: f64) {
        if let Some(end) = &self.end {
            let gap = start - end.at;
            let size = size.max(end.size);
            let (beside, above) = (gap.dot(end.direction), gap.cross(end.direction));
            let is_apart = || !self.text.ends_with([' ', '\n']);
            if above.abs() > LINE_GAP * size || beside < -BACK_GAP * size {
                if !self.text.ends_with('\n') {
                    self.text.push('\n');
                }
            } else if beside > WORD_GAP * size && is_apart() {
                self.text.push(' ');
            }
        }
        match glyph.as_unicode() {
            Some(BfString::Char(one)) => self.character(one),
            Some(BfString::String(some)) => some.chars().for_each(|one| self.character(one)),
            None => {}
        }
        let advance = match glyph {
            Glyph::Outline(outline) => outline.advance_width(),
            Glyph::Type3(drawn) => drawn.advance_width(),
        };
        let advance = f64::from(advance.unwrap_or_default()) / UNITS;
        let length = along.hypot();
        if length > 0.0 && length.is_finite() {
            self.end = Some(GlyphEnd {
                at: start + along * advance,
                direction: along / length,
                size,
            });
        }
    }

    fn character(&mut self, one: char) {
        match one {
            '\0' | '\u{FEFF}' => {}
            // A ligature or a hyphen of the layout is written as its letters are.
            '\u{AD}' => self.text.push('-'),
            one if one.is_control() => self.text.push(' '),
            one => self.text.push(one),
        }
    }
}

impl<'a> Device<'a> for PageText {
    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, 'a>, props: DrawProps<'a>, _: &DrawMode) {
        for glyph in run.glyphs() {
            if self.text.len() >= self.most {
                return;
            }
            let [a, b, c, d, x, y] = (props.transform * glyph.transform()).as_coeffs();
            let (along, up) = (Vec2::new(a, b) * UNITS, Vec2::new(c, d) * UNITS);
            self.push(glyph, Point::new(x, y), along, up.hypot());
        }
    }

    fn draw_path(&mut self, _: &BezPath, _: DrawProps<'a>, _: &DrawMode) {}

    fn push_clip_path(&mut self, _: &ClipPath) {}

    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'a>>, _: BlendMode) {}

    fn draw_image(&mut self, _: Image<'a, '_>, _: ImageDrawProps<'a>) {}

    fn pop_clip(&mut self) {}

    fn pop_transparency_group(&mut self) {}
}
