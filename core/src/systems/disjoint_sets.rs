//! Disjoint sets of indices (union-find).

/// Disjoint sets of indices. The root of each set is its smallest member.
pub(crate) struct DisjointSets(Vec<usize>);

impl DisjointSets {
    /// Returns a set of its own for each index below `count`.
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    /// Returns the smallest member of the set of an index.
    pub(crate) fn root(&mut self, of: usize) -> usize {
        let mut root = of;
        while self.0[root] != root {
            // Path halving: shortens the path for later look-ups.
            self.0[root] = self.0[self.0[root]];
            root = self.0[root];
        }
        root
    }

    /// Joins the sets of two indices.
    pub(crate) fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one.max(other)] = one.min(other);
    }
}
