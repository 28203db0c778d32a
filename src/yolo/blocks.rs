//! The blocks that the layer tables name, as graph nodes.
