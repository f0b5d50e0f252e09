//! What reaches a terminal: colours only where they are wanted, and no control characters from messages.
//!
//! Keys, errors and host names come from producers, brokers and other machines. Printed as they are, an escape sequence in
//! one of them could clear or forge the operator's screen.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, StdoutLock, Write};

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use serde::Serialize;

/// Says something beside what a command prints, which is for programs. There may be nobody to read it: `eprintln!` would panic.
pub fn note(text: &impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", harmless(&text.to_string()));
}

/// Whether text written there may be coloured: `NO_COLOR`, `CLICOLOR_FORCE` and `TERM` are obeyed, and a file gets none.
pub fn has_colors(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// The text with every character replaced that a terminal would obey. Line feeds and tabs stay.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(is_obeyed, "\u{fffd}"))
}

/// The same on one line, for a cell of a table.
pub fn harmless_line(text: &str) -> String {
    harmless(text).replace(['\n', '\t'], " ")
}

fn is_obeyed(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t')) || is_bidirectional(c)
}

/// Characters that reverse the direction of text, and can make a line read as what it is not.
fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Prints results for people or as JSON. Everything that goes through `write!` is made harmless.
pub struct Printer<W> {
    out: W,
    is_terminal: bool,
}

/// A printer on standard output.
pub fn stdout() -> Printer<StdoutLock<'static>> {
    let out = io::stdout().lock();
    Printer {
        is_terminal: out.is_terminal(),
        out,
    }
}

impl<W: Write> Printer<W> {
    /// A printer on something that is no terminal.
    #[cfg(test)]
    pub fn on(out: W) -> Self {
        let is_terminal = false;
        Self { out, is_terminal }
    }

    #[cfg(test)]
    pub fn into_inner(self) -> W {
        self.out
    }

    /// What `write!` and `writeln!` call.
    pub fn write_fmt(&mut self, arguments: fmt::Arguments<'_>) -> io::Result<()> {
        self.out.write_all(harmless(&arguments.to_string()).as_bytes())
    }

    /// One line of JSON.
    pub fn json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        self.json_text(serde_json::to_string(value)?)
    }

    /// Several lines of JSON.
    pub fn json_pretty(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        self.json_text(serde_json::to_string_pretty(value)?)
    }

    /// JSON escapes the control characters of ASCII only. On a terminal the others are escaped too; a program gets every
    /// byte of a payload as it is.
    fn json_text(&mut self, mut text: String) -> anyhow::Result<()> {
        if self.is_terminal && text.contains(is_obeyed) {
            text = text
                .chars()
                .map(|c| {
                    if is_obeyed(c) {
                        format!("\\u{:04x}", u32::from(c))
                    } else {
                        c.to_string()
                    }
                })
                .collect();
        }
        writeln!(self.out, "{text}")?;
        Ok(())
    }

    /// Empties the screen, if there is one.
    pub fn clear(&mut self) -> io::Result<()> {
        if self.is_terminal {
            self.out.write_all(b"\x1b[2J\x1b[H")?;
        }
        Ok(())
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        assert_eq!(harmless("\x1b[2Jgone\r\n\tx"), "\u{fffd}[2Jgone\u{fffd}\n\tx");
        assert_eq!(harmless("\u{9b}31m \u{202e}txt"), "\u{fffd}31m \u{fffd}txt");
        assert_eq!(harmless("é ü 日本"), "é ü 日本");
        assert_eq!(harmless_line("first\nsecond"), "first second");
    }

    #[test]
    fn json_is_exact_for_programs_and_escaped_for_terminals() {
        let printed = |is_terminal| {
            let mut out = Vec::new();
            let mut printer = Printer {
                out: &mut out,
                is_terminal,
            };
            printer.json(&"\x1b\u{9b}é").unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(printed(false), "\"\\u001b\u{9b}é\"\n");
        assert_eq!(printed(true), "\"\\u001b\\u009bé\"\n");
    }
}
