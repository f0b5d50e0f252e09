//! The same rules on a faster clock.

pub const FACTOR: u64 = 60;

/// Divides every duration of the rules by [`FACTOR`].
pub fn faster(rules: &str) -> String {
    let line = |line: &str| {
        // Comments may name durations, too.
        let (text, comment) = line
            .split_once(" #")
            .map_or((line, ""), |(text, _)| (text, &line[text.len()..]));
        let is_text = text.trim_start().starts_with(['#', '>']) || text.contains(": \"");
        let text = if is_text { text.to_owned() } else { faster_line(text) };
        format!("{text}{comment}\n")
    };
    rules.lines().map(line).collect()
}

fn faster_line(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let (number, after) = from.split_at(from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len()));
        let is_part_of_a_word = before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let unit = after.chars().next().and_then(seconds);
        let ends = !after.chars().nth(1).is_some_and(|c| c.is_ascii_alphanumeric());
        text += before;
        if let Some(unit) = unit.filter(|_| ends && !is_part_of_a_word) {
            let milliseconds = number.parse::<u64>().unwrap() * unit * 1000 / FACTOR;
            text += &milliseconds.to_string();
            text += "ms";
            rest = &after[1..];
        } else {
            text += number;
            rest = after;
        }
    }
    text + rest
}

fn seconds(unit: char) -> Option<u64> {
    match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3_600),
        'd' => Some(86_400),
        _ => None,
    }
}

#[test]
fn only_durations_are_changed() {
    for (line, expected) in [
        ("        for: 5m", "        for: 5000ms"),
        ("        for: 0m", "        for: 0ms"),
        (
            "60 * sum by (job) (rate(x9m[5m])) > 10 # --failures 5m",
            "60 * sum by (job) (rate(x9m[5000ms])) > 10 # --failures 5m",
        ),
        (
            "last_over_time(x[1h] offset 15m)",
            "last_over_time(x[60000ms] offset 15000ms)",
        ),
        ("# for 5m", "# for 5m"),
        ("  summary: \"for 5m\"", "  summary: \"for 5m\""),
    ] {
        assert_eq!(faster(line), format!("{expected}\n"));
    }
}
