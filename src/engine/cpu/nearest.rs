//! Nearest-neighbour enlargement: upsample by two, and the sum of enlarged maps.
