//! Which nodes run beside the others, for executors that can run several at once.
//!
//! In:  a forward graph. Out: a lane for each node, for which nodes of other lanes it waits, and how long buffers must live.
//!
//! Lane 0 runs what everything waits for, in the graph's order. Where a node reads several values, the chain that leads to the one
//! made last stays on lane 0; chains that lead to the others and to nothing else run on other lanes, from the moment when what they
//! read is there (the **fork**) to the node that reads them (the **join**). In between they may run at any time, so what they touch
//! must be theirs alone from the fork to the join.

use std::ops::Range;

use super::graph::{Graph, TensorId};
use super::op::Op;

/// Lanes at most, with lane 0.
pub const MAX_LANES: usize = 6;

/// Lanes of a graph's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// By node.
    pub lane: Vec<usize>,
    /// By node: nodes of other lanes that must be done first and that are not known to be.
    pub waits: Vec<Vec<usize>>,
    /// By node off lane 0: from its fork to its join, both inclusive as nodes of lane 0.
    windows: Vec<Option<(usize, usize)>>,
}

/// A chain off lane 0.
struct Chain {
    /// In the graph's order.
    nodes: Vec<usize>,
    fork: usize,
    join: usize,
}

impl Lanes {
    /// Finds what can run beside lane 0.
    pub fn new(graph: &Graph) -> Self {
        let producers = producers(graph);
        let mut consumers = vec![Vec::new(); graph.nodes.len()];
        for (index, made_by) in producers.iter().enumerate() {
            for &producer in made_by {
                consumers[producer].push(index);
            }
        }
        let n = graph.nodes.len();
        let mut lanes = Self { lane: vec![0; n], waits: vec![Vec::new(); n], windows: vec![None; n] };
        let mut is_chained = vec![false; n];
        let mut chains = Vec::new();
        for join in 0..n {
            let Some(&last) = producers[join].last() else { continue };
            for &end in producers[join].iter().filter(|&&producer| producer != last) {
                let nodes = chain_to(end, graph, &producers, &consumers);
                if !nodes.is_empty() && nodes.iter().all(|&node| !is_chained[node]) {
                    for &node in &nodes {
                        is_chained[node] = true;
                    }
                    chains.push(nodes);
                }
            }
        }
        // A chain may begin at one and lead to one that is not on lane 0 itself: both are decided in the graph's order.
        let chains = with_windows(chains, &is_chained, &producers, &consumers);
        lanes.assign(&chains);
        lanes.find_waits(&producers);
        lanes
    }

    /// Lanes that are used.
    pub fn n_lanes(&self) -> usize {
        self.lane.iter().max().map_or(1, |most| most + 1)
    }

    /// The lives of buffers (by root) that are touched off lane 0, as nodes of lane 0.
    pub fn widen(&self, graph: &Graph, root: TensorId, life: &mut Range<usize>) {
        for (index, window) in self.windows.iter().enumerate() {
            let node = &graph.nodes[index];
            let Some((fork, join)) = window else { continue };
            if node.inputs.iter().chain(&node.outputs).any(|&id| graph.root(id).0 == root) {
                life.start = life.start.min(fork + 1);
                life.end = life.end.max(join + 1);
            }
        }
    }

    /// Gives each chain the first lane that is free from its fork on, or the one that is free soonest.
    fn assign(&mut self, chains: &[Chain]) {
        let mut free_after = [0usize; MAX_LANES - 1];
        for chain in chains {
            let free = free_after.iter().position(|&after| after <= chain.fork);
            let soonest = || (0..free_after.len()).min_by_key(|&lane| free_after[lane]).expect("there are lanes");
            let lane = free.unwrap_or_else(soonest);
            free_after[lane] = free_after[lane].max(chain.join);
            for &node in &chain.nodes {
                self.lane[node] = lane + 1;
                self.windows[node] = Some((chain.fork, chain.join));
            }
        }
    }

    fn find_waits(&mut self, producers: &[Vec<usize>]) {
        // For each lane, one past the last node of each other lane that it has waited for.
        let mut seen = [[0usize; MAX_LANES]; MAX_LANES];
        for (index, made_by) in producers.iter().enumerate() {
            let lane = self.lane[index];
            // The last of a lane stands for those before.
            for &producer in made_by.iter().rev() {
                let other = self.lane[producer];
                if other != lane && seen[lane][other] <= producer {
                    seen[lane][other] = producer + 1;
                    self.waits[index].push(producer);
                }
            }
        }
    }
}

/// By node: the nodes that write what it reads, in order.
fn producers(graph: &Graph) -> Vec<Vec<usize>> {
    let place = |id: TensorId| {
        let (root, channel) = graph.root(id);
        (root, channel..channel + graph.shape(id).c)
    };
    let mut writers: Vec<Vec<(usize, Range<usize>)>> = vec![Vec::new(); graph.tensors.len()];
    let mut producers = Vec::with_capacity(graph.nodes.len());
    for (index, node) in graph.nodes.iter().enumerate() {
        let mut made_by: Vec<usize> = Vec::new();
        for &x in &node.inputs {
            let (root, range) = place(x);
            let overlaps = |(_, written): &&(usize, Range<usize>)| written.start < range.end && range.start < written.end;
            made_by.extend(writers[root.0 as usize].iter().filter(overlaps).map(|(writer, _)| *writer));
        }
        made_by.sort_unstable();
        made_by.dedup();
        producers.push(made_by);
        for &y in &node.outputs {
            let (root, range) = place(y);
            writers[root.0 as usize].push((index, range));
        }
    }
    producers
}

/// The longest chain of nodes that ends with `end` and that nothing else reads; empty if another node than one reads `end` itself,
/// or it may not leave lane 0.
fn chain_to(end: usize, graph: &Graph, producers: &[Vec<usize>], consumers: &[Vec<usize>]) -> Vec<usize> {
    let is_own = |node: usize| consumers[node].len() == 1 && graph.nodes[node].op != Op::Input && !producers[node].is_empty();
    if !is_own(end) {
        return Vec::new();
    }
    let mut chain = vec![end];
    let mut first = end;
    while let &[before] = producers[first].as_slice()
        && is_own(before)
    {
        chain.push(before);
        first = before;
    }
    chain.reverse();
    chain
}

/// Adds forks and joins, and sorts by fork.
fn with_windows(mut chains: Vec<Vec<usize>>, is_chained: &[bool], producers: &[Vec<usize>], consumers: &[Vec<usize>]) -> Vec<Chain> {
    let n = is_chained.len();
    // A producer comes before its consumers, so forks are found forwards and joins backwards.
    chains.sort_by_key(|nodes| nodes[0]);
    let mut forks = vec![0; n];
    for nodes in &chains {
        let fork_of = |&producer: &usize| if is_chained[producer] { forks[producer] } else { producer };
        let fork = producers[nodes[0]].iter().map(fork_of).max().expect("a chain reads something");
        for &node in nodes {
            forks[node] = fork;
        }
    }
    let mut joins = vec![0; n];
    chains.sort_by_key(|nodes| nodes[nodes.len() - 1]);
    for nodes in chains.iter().rev() {
        let reader = consumers[nodes[nodes.len() - 1]][0];
        let join = if is_chained[reader] { joins[reader] } else { reader };
        for &node in nodes {
            joins[node] = join;
        }
    }
    let mut chains: Vec<Chain> = chains.into_iter().map(|nodes| Chain { fork: forks[nodes[0]], join: joins[nodes[0]], nodes }).collect();
    chains.sort_by_key(|chain| (chain.fork, chain.nodes[0]));
    chains
}

/// Panics where two nodes that may run at once touch the same bytes, and one of them writes.
#[cfg(test)]
pub(crate) fn assert_no_races(plan: &super::plan::Plan) {
    let graph = &plan.graph;
    let lanes = plan.lanes.as_ref().expect("a plan with lanes");
    let n = graph.nodes.len();
    // By node: which nodes are surely done before it begins.
    let mut before: Vec<Vec<bool>> = Vec::with_capacity(n);
    let mut last_of_lane = [None; MAX_LANES];
    for index in 0..n {
        let mut done = vec![false; n];
        let same_lane = last_of_lane[lanes.lane[index]].replace(index);
        for &earlier in lanes.waits[index].iter().chain(&same_lane) {
            done[earlier] = true;
            done.iter_mut().zip(&before[earlier]).for_each(|(done, &earlier)| *done |= earlier);
        }
        before.push(done);
    }
    let bytes = |root: TensorId| {
        let start = plan.placement(root).offset;
        start..start + graph.shape(root).len() * plan.element_bytes(root)
    };
    let meet = |a: TensorId, b: TensorId| {
        let ((root_a, channel_a), (root_b, channel_b)) = (graph.root(a), graph.root(b));
        if root_a == root_b {
            return channel_a < channel_b + graph.shape(b).c && channel_b < channel_a + graph.shape(a).c;
        }
        let (a, b) = (bytes(root_a), bytes(root_b));
        a.start < b.end && b.start < a.end
    };
    for (later, done) in before.iter().enumerate() {
        for earlier in (0..later).filter(|&earlier| !done[earlier]) {
            let (a, b) = (&graph.nodes[earlier], &graph.nodes[later]);
            let reads = |reader: &super::graph::Node, writer: &super::graph::Node| {
                reader.inputs.iter().any(|&x| writer.outputs.iter().any(|&y| meet(x, y)))
            };
            let writes = a.outputs.iter().any(|&x| b.outputs.iter().any(|&y| meet(x, y)));
            assert!(!writes && !reads(a, b) && !reads(b, a), "{} and {} may run at once", a.name, b.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::graph::{DType, Shape};
    use crate::engine::plan::Plan;

    fn side(c: usize) -> Shape {
        Shape::new(1, 8, 8, c)
    }

    #[test]
    fn the_shorter_branches_leave_lane_0_and_are_waited_for() {
        let mut graph = Graph::default();
        let x = graph.input("x", side(8), DType::Compute);
        let a = graph.upsample2("a", x);
        let mut long = graph.avg_pool2("b", a);
        let short = graph.avg_pool2("c", a);
        for _ in 0..3 {
            long = graph.max_pool("d", long, 3, 1, 1);
        }
        let both = graph.concat("both", &[short, long]);
        let end = graph.max_pool("end", both, 3, 1, 1);
        let lanes = Lanes::new(&graph);
        //                      x  a  b  c  d  d  d  end
        assert_eq!(lanes.lane, [0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(lanes.waits[3], [1]);
        assert_eq!(lanes.waits[7], [3]);
        assert_eq!(lanes.waits.iter().flatten().count(), 2);
        assert_no_races(&Plan::in_lanes(graph, &[end], 2));
    }

    #[test]
    fn a_branch_of_a_branch_has_a_lane_of_its_own() {
        let mut graph = Graph::default();
        let x = graph.input("x", side(8), DType::Compute);
        let a = graph.upsample2("a", x);
        let b1 = graph.avg_pool2("b1", a);
        let b2 = graph.avg_pool2("b2", a);
        let b = graph.concat("b", &[b1, b2]);
        let b = graph.max_pool("b", b, 3, 1, 1);
        let mut c = graph.avg_pool2("c", a);
        for _ in 0..2 {
            c = graph.max_pool("c", c, 3, 1, 1);
        }
        let all = graph.concat("all", &[b, c]);
        let end = graph.max_pool("end", all, 3, 1, 1);
        let lanes = Lanes::new(&graph);
        //                      x  a  b1 b2 b  c  c  c  end
        assert_eq!(lanes.lane, [0, 0, 1, 0, 2, 0, 0, 0, 0]);
        assert_eq!(lanes.n_lanes(), 3);
        assert_no_races(&Plan::in_lanes(graph, &[end], 2));
    }

    #[test]
    fn without_lives_that_are_widened_nodes_would_race() {
        let mut graph = Graph::default();
        let x = graph.input("x", side(8), DType::Compute);
        let a = graph.upsample2("a", x);
        let short = graph.avg_pool2("c", a);
        let mut long = graph.avg_pool2("b", a);
        for _ in 0..5 {
            long = graph.max_pool("d", long, 3, 1, 1);
        }
        let both = graph.concat("both", &[short, long]);
        let end = graph.max_pool("end", both, 3, 1, 1);
        let mut tight = Plan::new(graph.clone(), &[end]);
        tight.lanes = Some(Lanes::new(&graph));
        assert!(std::panic::catch_unwind(|| assert_no_races(&tight)).is_err());
    }
}
