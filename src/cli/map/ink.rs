//! The colour and the pattern of a group. Two groups with the same ones have different letters.

/// The dark and the light shade of each colour. White letters are readable on the dark one, black ones on
/// the light one.
const COLOURS: [(&str, &str); 8] = [
    ("#1d5fa6", "#e6effa"),
    ("#b04a06", "#fcece0"),
    ("#24733a", "#e4f3e7"),
    ("#6b3fa0", "#efe8f8"),
    ("#ab2238", "#fbe6e9"),
    ("#0a6b7c", "#e0f2f5"),
    ("#6f5a0c", "#f6f0da"),
    ("#434a52", "#eceef0"),
];

/// The patterns as paths in a strip of 24 by 6; the first one is plain.
const PATTERNS: [&str; 6] = [
    "",
    "M-1 7L7-1M5 7L13-1M11 7L19-1M17 7L25-1",
    "M0 3H24",
    "M3 0V6M9 0V6M15 0V6M21 0V6",
    "M2 3H5M8 3H11M14 3H17M20 3H23",
    "M0 6L4 0L8 6L12 0L16 6L20 0L24 6",
];

/// A colour with a pattern.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Ink {
    colour: usize,
    pattern: usize,
}

impl Ink {
    /// The ink of the group with this index. Neighbours differ in both, and 24 groups in one of them.
    pub(super) fn of(group: usize) -> Self {
        Self { colour: group % COLOURS.len(), pattern: group % PATTERNS.len() }
    }

    /// The number of the colour, for the names of style classes.
    pub(super) fn colour(self) -> usize {
        self.colour
    }

    pub(super) fn dark(self) -> &'static str {
        COLOURS[self.colour].0
    }

    pub(super) fn light(self) -> &'static str {
        COLOURS[self.colour].1
    }

    /// The path of the pattern in a strip of 24 by 6; `None`: it is plain.
    pub(super) fn strip(self) -> Option<&'static str> {
        Some(PATTERNS[self.pattern]).filter(|path| !path.is_empty())
    }

    /// The identifier of its pattern in a picture.
    pub(super) fn id(self) -> String {
        format!("i{}{}", self.colour, self.pattern)
    }

    /// The number of the terminal's colour that is closest.
    pub(super) fn terminal(self) -> u8 {
        [33, 166, 34, 134, 161, 37, 136, 244][self.colour]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn two_dozen_groups_have_different_inks() {
        let inks: BTreeSet<Ink> = (0..24).map(Ink::of).collect();
        assert_eq!(inks.len(), 24);
        for group in 0..6 {
            assert_ne!(Ink::of(group).strip(), Ink::of(group + 1).strip());
        }
    }
}
