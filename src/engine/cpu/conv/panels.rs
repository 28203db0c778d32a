//! Weights in panels of 16 output channels, in the order that the kernels read them.
//!
//! A panel is `depth` rows of 16: row `d` holds the weights of product `d` (row of the kernel, column, input channel) for
//! 16 neighbouring output channels. Each group of a convolution has panels of its own; where its channels are no multiple
//! of 16, the last panel ends in zeros.

/// Output channels of a panel: two AVX2 registers.
pub(super) const LANES: usize = 16;

/// The panels of all groups.
#[derive(Clone, Debug)]
pub(super) struct Panels {
    /// Group, panel, depth, lane.
    data: Vec<f32>,
    /// Products in a sum.
    depth: usize,
    group_out: usize,
}

impl Panels {
    /// `fill(group, first, panel)` fills the panel of a group's channels `first..first + 16`; it holds zeros before, which must
    /// stay where the group has no such channel.
    pub(super) fn new(groups: usize, group_out: usize, depth: usize, fill: impl Fn(usize, usize, &mut [[f32; LANES]])) -> Self {
        let panels_per_group = group_out.div_ceil(LANES);
        let mut data = vec![0.0; groups * panels_per_group * depth * LANES];
        if depth > 0 {
            for (index, panel) in data.chunks_exact_mut(depth * LANES).enumerate() {
                let (group, first) = (index / panels_per_group, index % panels_per_group * LANES);
                fill(group, first, panel.as_chunks_mut().0);
            }
        }
        Self { data, depth, group_out }
    }

    /// Output channels of a group.
    pub(super) fn group_out(&self) -> usize {
        self.group_out
    }

    /// Weights with the zeros that fill the panels: multiply-adds for one output pixel.
    pub(super) fn len(&self) -> usize {
        self.data.len()
    }

    /// Panel `index` of a group.
    pub(super) fn panel(&self, group: usize, index: usize) -> &[f32] {
        let len = self.depth * LANES;
        &self.data[(group * self.group_out.div_ceil(LANES) + index) * len..][..len]
    }
}

#[cfg(test)]
mod tests {
    use super::Panels;

    #[test]
    fn a_panel_holds_sixteen_channels_a_row_and_ends_in_zeros() {
        let panels = Panels::new(2, 18, 3, |group, first, panel| {
            for (depth, row) in panel.iter_mut().enumerate() {
                for (lane, out) in row.iter_mut().zip(first..18) {
                    *lane = (group * 1000 + out * 10 + depth) as f32;
                }
            }
        });
        assert_eq!(panels.panel(0, 0)[..2], [0.0, 10.0]);
        assert_eq!(panels.panel(1, 0)[16..18], [1001.0, 1011.0]);
        assert_eq!(panels.panel(1, 1)[32..36], [1162.0, 1172.0, 0.0, 0.0]);
        assert_eq!(panels.panel(1, 1).len(), 48);
        assert!(Panels::new(1, 16, 0, |_, _, _| unreachable!()).panel(0, 0).is_empty());
    }
}
