//! Sample recipes: what will be done to which image, drawn from (seed, epoch, index) before any pixel is touched.
