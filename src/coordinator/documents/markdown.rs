//! Converts Markdown to HTML: headings, paragraphs, lists, quotes, code, emphasis, links. The rest is text, and text is
//! escaped, so HTML within Markdown has no effect. Links lead to the web, to an email address or to a path of this
//! service.

/// The type of a block of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Paragraph,
    Bullets,
    Numbers,
    Quote,
    Code,
}

impl Block {
    fn tags(self) -> (&'static str, &'static str) {
        match self {
            Self::Paragraph => ("<p>", "</p>\n"),
            Self::Bullets => ("<ul>\n<li>", "</li>\n</ul>\n"),
            Self::Numbers => ("<ol>\n<li>", "</li>\n</ol>\n"),
            Self::Quote => ("<blockquote><p>", "</p></blockquote>\n"),
            Self::Code => ("<pre><code>", "</code></pre>\n"),
        }
    }
}

#[derive(Debug, Default)]
struct Page {
    html: String,
    open: Option<Block>,
    /// The unrendered text of the open paragraph or item: emphasis may span lines.
    text: String,
}

pub fn html(markdown: &str) -> String {
    let mut page = Page::default();
    for line in markdown.lines() {
        page.line(line);
    }
    page.close();
    page.html
}

impl Page {
    fn line(&mut self, line: &str) {
        let bare = line.trim();
        let is_fence = bare.starts_with("```");
        if self.open == Some(Block::Code) {
            match is_fence {
                true => self.close(),
                false => escape(line, &mut self.html),
            }
            if self.open.is_some() {
                self.html.push('\n');
            }
        } else if is_fence {
            self.begin(Block::Code);
        } else if bare.is_empty() {
            self.close();
        } else if let Some((level, title)) = heading(bare) {
            self.close();
            self.html.push_str(&format!("<h{level}>"));
            inline(title, &mut self.html);
            self.html.push_str(&format!("</h{level}>\n"));
        } else if let Some((block, text)) = marked(bare) {
            self.item(block, text);
        } else {
            self.go_on(bare);
        }
    }

    fn item(&mut self, block: Block, text: &str) {
        match self.open == Some(block) {
            true if block == Block::Quote => self.text.push('\n'),
            true => {
                self.flush();
                self.html.push_str("</li>\n<li>");
            }
            false => self.begin(block),
        }
        self.text.push_str(text);
    }

    /// A line without a mark continues the open block.
    fn go_on(&mut self, text: &str) {
        match self.open {
            None => self.begin(Block::Paragraph),
            Some(_) => self.text.push('\n'),
        }
        self.text.push_str(text);
    }

    fn begin(&mut self, block: Block) {
        self.close();
        self.html.push_str(block.tags().0);
        self.open = Some(block);
    }

    fn close(&mut self) {
        self.flush();
        if let Some(block) = self.open.take() {
            self.html.push_str(block.tags().1);
        }
    }

    fn flush(&mut self) {
        inline(&std::mem::take(&mut self.text), &mut self.html);
    }
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let title = line.get(level..)?.strip_prefix(' ')?;
    (1..=6).contains(&level).then_some((level, title.trim()))
}

/// Parses the first line of a list item or a quote.
fn marked(line: &str) -> Option<(Block, &str)> {
    let bullet = ["- ", "* ", "+ "]
        .iter()
        .find_map(|mark| line.strip_prefix(mark));
    if let Some(text) = bullet {
        return Some((Block::Bullets, text));
    }
    if let Some(text) = line.strip_prefix('>') {
        return Some((Block::Quote, text.trim_start()));
    }
    let (number, text) = line.split_once(". ")?;
    let is_number = (1..=9).contains(&number.len()) && number.bytes().all(|it| it.is_ascii_digit());
    is_number.then_some((Block::Numbers, text))
}

/// Renders marks within a line. An enclosed text is not searched for marks again, except for links in emphasis.
fn inline(mut text: &str, html: &mut String) {
    while let Some(at) = text.find(['`', '*', '[']) {
        escape(&text[..at], html);
        text = &text[at..];
        let taken = code(text, html)
            .or_else(|| emphasis(text, "**", "strong", html))
            .or_else(|| emphasis(text, "*", "em", html))
            .or_else(|| link(text, html));
        let taken = taken.unwrap_or_else(|| {
            escape(&text[..1], html);
            1
        });
        text = &text[taken..];
    }
    escape(text, html);
}

/// Returns the consumed bytes.
fn code(text: &str, html: &mut String) -> Option<usize> {
    let inside = text.strip_prefix('`')?;
    let end = inside.find('`')?;
    html.push_str("<code>");
    escape(&inside[..end], html);
    html.push_str("</code>");
    Some(end + 2)
}

fn emphasis(text: &str, mark: &str, tag: &str, html: &mut String) -> Option<usize> {
    let inside = text.strip_prefix(mark)?;
    let end = inside.find(mark)?;
    let words = &inside[..end];
    if words.is_empty() || words.starts_with(' ') || words.ends_with(' ') {
        return None;
    }
    html.push_str(&format!("<{tag}>"));
    match words.contains('*') {
        true => escape(words, html),
        false => inline(words, html),
    }
    html.push_str(&format!("</{tag}>"));
    Some(end + 2 * mark.len())
}

fn link(text: &str, html: &mut String) -> Option<usize> {
    let (words, rest) = text.strip_prefix('[')?.split_once("](")?;
    let (target, _) = rest.split_once(')')?;
    let is_plain = !words.contains(['[', ']', '\n']) && !target.contains(char::is_whitespace);
    if !is_plain || !is_harmless(target) {
        return None;
    }
    html.push_str("<a href=\"");
    escape(target, html);
    html.push_str("\" rel=\"noopener nofollow\">");
    escape(words, html);
    html.push_str("</a>");
    Some(words.len() + target.len() + 4)
}

fn is_harmless(target: &str) -> bool {
    let known = ["https://", "http://", "mailto:", "#"];
    let is_own = target.starts_with('/') && !target.starts_with("//") && !target.contains('\\');
    is_own || known.iter().any(|start| target.starts_with(start))
}

fn escape(text: &str, html: &mut String) {
    for character in text.chars() {
        match character {
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '&' => html.push_str("&amp;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::html;

    #[test]
    fn markdown_becomes_html() {
        let check = |markdown: &str, expected: &str| assert_eq!(html(markdown), expected);
        check("# A *title*", "<h1>A <em>title</em></h1>\n");
        check("one\ntwo\n\nthree", "<p>one\ntwo</p>\n<p>three</p>\n");
        check(
            "- a\n  more\n- **b** c",
            "<ul>\n<li>a\nmore</li>\n<li><strong>b</strong> c</li>\n</ul>\n",
        );
        check("1. a\n2. b", "<ol>\n<li>a</li>\n<li>b</li>\n</ol>\n");
        check(
            "> so\n> it is",
            "<blockquote><p>so\nit is</p></blockquote>\n",
        );
        check(
            "```\na < `b`\n```\nc",
            "<pre><code>a &lt; `b`\n</code></pre>\n<p>c</p>\n",
        );
        check("see `x<y` now", "<p>see <code>x&lt;y</code> now</p>\n");
        check(
            "[us](https://a.example/?b=1&c=2)",
            "<p><a href=\"https://a.example/?b=1&amp;c=2\" rel=\"noopener nofollow\">us</a></p>\n",
        );
        check("3 * 4 and #5", "<p>3 * 4 and #5</p>\n");
    }

    #[test]
    fn html_within_it_is_shown_and_not_obeyed() {
        let check = |markdown: &str| {
            let html = html(markdown).to_lowercase();
            assert!(
                !html.contains("<script") && !html.contains("<img"),
                "{html}"
            );
            assert!(!html.contains("href=\"javascript"), "{html}");
        };
        check("<script>alert(1)</script>");
        check("# <img src=x onerror=alert(1)>");
        check("[here](javascript:alert(1))");
        check("[here](https://a\"onmouseover=\"alert(1))");
        check("[<script>](https://a.example)");
        check("`</code><script>`");
        assert!(!html("[x](https://a\"b)").contains("a\"b"));
        assert!(!html("[x](//evil.example)").contains("<a"));
    }

    proptest! {
        #[test]
        fn any_text_is_rendered(text in "[ -~\\n`*\\[\\]()#>äß]{0,200}") {
            let html = html(&text);
            let tags = ["<p>", "<h", "<ul>", "<ol>", "<li>", "<pre>", "<code>", "<strong>", "<em>", "<a ", "<blockquote>", "</"];
            for (at, _) in html.match_indices('<') {
                assert!(tags.iter().any(|tag| html[at..].starts_with(tag)), "{html}");
            }
        }
    }
}
