//! Views of a node's inputs and outputs in the one arena that holds all activations.
//!
//! In:  the arena, and where the plan puts tensors.
//! Out: shared views of the inputs and exclusive views of the outputs, without `unsafe`.
//!
//! The arena is split at the outputs' ranges; inputs lie between them. Channel slices of one buffer interleave, so an input
//! that shares its buffer with an output (a pool of SPPELAN reads a slice of the concatenation that it writes another slice
//! of) would lie inside the output's range: it is copied to scratch first. So is an output whose range overlaps that of an
//! earlier output, and copied back afterwards. These are the only copies that the executor makes.

use std::ops::Range;

use super::view::{View, ViewMut};
use crate::engine::graph::{Shape, TensorId};
use crate::engine::plan::Plan;

/// Where one operand of a node is.
#[derive(Clone, Debug)]
struct Operand {
    /// From the first channel of the first pixel to the last of the last, in the arena.
    range: Range<usize>,
    shape: Shape,
    pixel_stride: usize,
    /// Where its packed copy is in the scratch, if it needs one.
    copy_at: Option<usize>,
}

/// Where the operands of one node are.
#[derive(Clone, Debug)]
pub struct Operands {
    inputs: Vec<Operand>,
    outputs: Vec<Operand>,
    /// Elements of the input copies, which come first in the scratch, and of all copies.
    input_copies_len: usize,
    scratch_len: usize,
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Operand {
    fn new(plan: &Plan, id: TensorId) -> Self {
        let (placement, shape) = (plan.placement(id), plan.graph.shape(id));
        let len = if shape.is_empty() { 0 } else { (shape.n_pixels() - 1) * placement.pixel_stride + shape.c };
        let start = placement.offset / size_of::<f32>();
        Self { range: start..start + len, shape, pixel_stride: placement.pixel_stride, copy_at: None }
    }

    fn view<'a>(&self, arena: &'a [f32]) -> View<'a> {
        View { data: &arena[self.range.clone()], shape: self.shape, pixel_stride: self.pixel_stride }
    }

    fn view_mut<'a>(&self, arena: &'a mut [f32]) -> ViewMut<'a> {
        ViewMut { data: &mut arena[self.range.clone()], shape: self.shape, pixel_stride: self.pixel_stride }
    }
}

/// The value of a tensor.
pub fn view<'a>(plan: &Plan, arena: &'a [f32], id: TensorId) -> View<'a> {
    Operand::new(plan, id).view(arena)
}

/// The place of a tensor.
pub fn view_mut<'a>(plan: &Plan, arena: &'a mut [f32], id: TensorId) -> ViewMut<'a> {
    Operand::new(plan, id).view_mut(arena)
}

impl Operands {
    pub fn new(plan: &Plan, inputs: &[TensorId], outputs: &[TensorId]) -> Self {
        let mut inputs: Vec<Operand> = inputs.iter().map(|&id| Operand::new(plan, id)).collect();
        let mut outputs: Vec<Operand> = outputs.iter().map(|&id| Operand::new(plan, id)).collect();
        let mut scratch_len = 0;
        let mut copy = |shape: Shape| {
            scratch_len += shape.len();
            Some(scratch_len - shape.len())
        };
        for input in &mut inputs {
            if outputs.iter().any(|output| overlap(&output.range, &input.range)) {
                input.copy_at = copy(input.shape);
            }
        }
        let input_copies_len = copy(Shape::new(0, 0, 0, 0)).unwrap_or(0);
        for index in 1..outputs.len() {
            let (before, rest) = outputs.split_at_mut(index);
            if before.iter().any(|other| other.copy_at.is_none() && overlap(&other.range, &rest[0].range)) {
                rest[0].copy_at = copy(rest[0].shape);
            }
        }
        Self { inputs, outputs, input_copies_len, scratch_len }
    }

    /// Elements of scratch that [`with_views`](Self::with_views) needs.
    pub fn scratch_len(&self) -> usize {
        self.scratch_len
    }

    /// Calls `f` with the views of all inputs and outputs.
    pub fn with_views(&self, arena: &mut [f32], scratch: &mut [f32], f: impl FnOnce(&[View], &mut [ViewMut])) {
        let (input_copies, output_copies) = scratch[..self.scratch_len].split_at_mut(self.input_copies_len);
        for input in &self.inputs {
            if let Some(at) = input.copy_at {
                ViewMut::packed(&mut input_copies[at..at + input.shape.len()], input.shape).copy_from(input.view(arena));
            }
        }
        // An output that is added to starts from its old value.
        for output in &self.outputs {
            if let Some(at) = output.copy_at {
                let at = at - self.input_copies_len;
                ViewMut::packed(&mut output_copies[at..at + output.shape.len()], output.shape).copy_from(output.view(arena));
            }
        }

        self.split(arena, input_copies, output_copies, f);

        for output in &self.outputs {
            if let Some(at) = output.copy_at {
                let at = at - self.input_copies_len;
                let copy = View::packed(&output_copies[at..at + output.shape.len()], output.shape);
                output.view_mut(arena).copy_from(copy);
            }
        }
    }

    /// Splits the arena into the outputs' ranges and what lies between them.
    fn split(&self, arena: &mut [f32], input_copies: &[f32], mut output_copies: &mut [f32], f: impl FnOnce(&[View], &mut [ViewMut])) {
        let mut order: Vec<usize> = (0..self.outputs.len()).filter(|&index| self.outputs[index].copy_at.is_none()).collect();
        order.sort_by_key(|&index| self.outputs[index].range.start);

        let mut outputs: Vec<Option<ViewMut>> = self.outputs.iter().map(|_| None).collect();
        let mut between: Vec<(usize, &[f32])> = Vec::with_capacity(order.len() + 1);
        let (mut rest, mut position) = (arena, 0);
        for index in order {
            let Operand { range, shape, pixel_stride, .. } = &self.outputs[index];
            let (before, tail) = rest.split_at_mut(range.start - position);
            let (data, tail) = tail.split_at_mut(range.len());
            between.push((position, before));
            outputs[index] = Some(ViewMut { data, shape: *shape, pixel_stride: *pixel_stride });
            (rest, position) = (tail, range.end);
        }
        between.push((position, rest));

        for (operand, output) in self.outputs.iter().zip(&mut outputs) {
            if output.is_none() {
                let (data, tail) = output_copies.split_at_mut(operand.shape.len());
                *output = Some(ViewMut::packed(data, operand.shape));
                output_copies = tail;
            }
        }
        let mut outputs: Vec<ViewMut> = outputs.into_iter().flatten().collect();

        let inputs: Vec<View> = self
            .inputs
            .iter()
            .map(|input| {
                if let Some(at) = input.copy_at {
                    return View::packed(&input_copies[at..at + input.shape.len()], input.shape);
                }
                let gap = between.partition_point(|&(start, _)| start <= input.range.start) - 1;
                let (start, data) = between[gap];
                View {
                    data: &data[input.range.start - start..input.range.end - start],
                    shape: input.shape,
                    pixel_stride: input.pixel_stride,
                }
            })
            .collect();
        f(&inputs, &mut outputs);
    }
}
