//! Numbers for people.

/// With thousands apart, and digits after the point only where they matter.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => grouped(&format!("{value:.0}")),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Of what there are only whole ones.
pub(super) fn count(value: f64) -> String {
    grouped(&format!("{value:.0}"))
}

fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_have_thousands_apart_and_small_ones_digits() {
        for (value, text) in [
            (1_234_567.8, "1,234,568"),
            (999.6, "1,000"),
            (12.34, "12.3"),
            (0.126, "0.13"),
            (-1_234.0, "-1,234"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
