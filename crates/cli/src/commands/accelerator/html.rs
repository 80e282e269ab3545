//! HTML whose texts are escaped and whose elements are closed, whatever the texts contain.

/// Characters of the longest text in an element or an attribute: names from an image have any
/// length.
const TEXT_MAX: usize = 400;

/// A part of a page. Names of elements and attributes are the program's, all other text is not.
#[derive(Debug, Default)]
pub struct Html(String);

/// Names and values of an element's attributes.
type Attributes<'a> = &'a [(&'static str, &'a str)];

impl Html {
    /// A document's beginning.
    pub fn document() -> Html {
        Html("<!DOCTYPE html>\n".to_owned())
    }

    /// Adds text of the program, as it is.
    pub fn raw(&mut self, text: &'static str) {
        self.0.push_str(text);
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) {
        self.0.push_str(&escaped(text));
    }

    /// Adds an element with its content.
    pub fn element(
        &mut self,
        name: &'static str,
        attributes: Attributes<'_>,
        content: impl FnOnce(&mut Html),
    ) {
        self.empty(name, attributes);
        content(self);
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push('>');
        if !INLINE.contains(&name) {
            self.0.push('\n');
        }
    }

    /// Adds an element with a text.
    pub fn leaf(&mut self, name: &'static str, attributes: Attributes<'_>, text: &str) {
        self.element(name, attributes, |html| html.text(text));
    }

    /// Adds an element that has no end, such as `meta`.
    pub fn empty(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.0.push('<');
        self.0.push_str(name);
        for (attribute, value) in attributes {
            self.0.push(' ');
            self.0.push_str(attribute);
            self.0.push_str("=\"");
            self.0.push_str(&escaped(value));
            self.0.push('"');
        }
        self.0.push('>');
    }

    /// The document's text.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// Elements within a line, where white space is visible.
const INLINE: [&str; 4] = ["a", "b", "code", "span"];

/// A text without characters that have a meaning in HTML, that control a terminal, or that change
/// the order in which others are shown.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(TEXT_MAX));
    for (at, c) in text.chars().enumerate() {
        if at == TEXT_MAX {
            out.push('…');
            break;
        }
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' => out.push('\t'),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push('\u{fffd}');
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_attributes_are_escaped_and_bounded() {
        let mut html = Html::default();
        html.leaf("td", &[("title", "\"><b>")], "<script>&'\u{202e}\0\t");
        assert_eq!(
            html.into_text(),
            "<td title=\"&quot;&gt;&lt;b&gt;\">&lt;script&gt;&amp;&#39;\u{fffd}\u{fffd}\t</td>\n"
        );
        assert_eq!(escaped(&"<".repeat(1 << 20)).len(), TEXT_MAX * 4 + 3);
    }

    #[test]
    fn elements_are_nested_and_closed() {
        let mut html = Html::default();
        html.element("p", &[], |html| {
            html.leaf("code", &[], "a");
            html.text(" b");
        });
        assert_eq!(html.into_text(), "<p><code>a</code> b</p>\n");
    }
}
