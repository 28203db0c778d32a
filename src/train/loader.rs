//! Pictures into batches: decoded once, kept in memory where they fit, each sample made from its recipe.
