//! What the XML formats share: the root of a file that is cut off, and text that is safe to write.

use quick_xml::Reader;
use quick_xml::escape;
use quick_xml::events::Event;

/// The name of the outermost element, from the first bytes of a file.
pub(super) fn root_name(head: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut reader = Reader::from_str(text);
    loop {
        match reader.read_event().ok()? {
            Event::Start(element) | Event::Empty(element) => return Some(element.name().as_ref().to_owned()),
            Event::Eof => return None,
            _ => {}
        }
    }
}

/// A text as it stands in an element or attribute; signs that XML has no way to write become U+FFFD.
pub(super) fn text(text: &str) -> String {
    let is_allowed = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    let allowed: String = text.chars().map(|c| if is_allowed(c) && c != '\u{fffe}' && c != '\u{ffff}' { c } else { '\u{fffd}' }).collect();
    escape::escape(allowed.as_str()).into_owned()
}

/// A list with a name a line.
pub(super) fn lines(names: &[String]) -> String {
    names.iter().flat_map(|name| [name.replace(['\n', '\r'], " "), "\n".to_owned()]).collect()
}
