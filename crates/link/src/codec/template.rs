//! [`Template`]: a record without its numbers and times.
//!
//! Most records are like one that came before in all but these. Then one decision, or a few, say which, and
//! the numbers follow.

use std::sync::Arc;

use super::record::{Node, Record};

/// Cap: values, and bytes of text, of a record that gets a template.
const MAX_TEMPLATE_NODES: usize = 96;
const MAX_TEMPLATE_TEXT: usize = 1 << 10;

/// A record without its numbers and times.
#[derive(Debug)]
pub(super) struct Template {
    /// Numbers and times are 0.
    pub(super) nodes: Box<[Node]>,
    pub(super) leaves: Box<[Leaf]>,
    pub(super) sum: u64,
    /// What the record is known by to those that follow.
    pub(super) kind: u32,
}

/// A number or time in a record: which node it is, and what the walk knows there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) at: u32,
    pub(super) slot: u32,
    pub(super) texts: u32,
    pub(super) last_text: u32,
}

impl Template {
    /// The template of a record, if it gets one.
    pub(super) fn new(nodes: &[Node], leaves: Vec<Leaf>, kind: u32) -> Option<Arc<Self>> {
        let text: usize = nodes.iter().map(Node::text_len).sum();
        let is_small = nodes.len() <= MAX_TEMPLATE_NODES && text <= MAX_TEMPLATE_TEXT;
        is_small.then(|| {
            Arc::new(Self {
                sum: sum_of(nodes),
                leaves: leaves.into(),
                nodes: nodes.iter().map(without_number).collect(),
                kind,
            })
        })
    }

    /// Whether these values have this template.
    pub(super) fn fits(&self, nodes: &[Node]) -> bool {
        self.nodes.len() == nodes.len()
            && self.nodes.iter().zip(nodes).all(|pair| match pair {
                (Node::Int(_), Node::Int(_))
                | (Node::Double(_), Node::Double(_))
                | (Node::Time(_), Node::Time(_)) => true,
                (ours, theirs) => ours == theirs,
            })
    }
}

/// A sum of all but the numbers and times.
pub(super) fn sum_of(nodes: &[Node]) -> u64 {
    Record::sum_of(nodes.iter().map(|node| match node {
        Node::Int(_) => (Node::INT, 0),
        Node::Double(_) => (Node::DOUBLE, 0),
        Node::Time(_) => (Node::TIME, 0),
        node => node.sum_part(),
    }))
}

fn without_number(node: &Node) -> Node {
    match node {
        Node::Int(_) => Node::Int(0),
        Node::Double(_) => Node::Double(0),
        Node::Time(_) => Node::Time(0),
        node => node.clone(),
    }
}
