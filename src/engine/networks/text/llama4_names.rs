//! Llama 4's tensor names of parts that other families have, too.

use super::family::Part;

pub const LLAMA4_PARTS: &[(Part, &str)] = &[
    (Part::Gate, "feed_forward.gate_proj"),
    (Part::Up, "feed_forward.up_proj"),
    (Part::Down, "feed_forward.down_proj"),
    (Part::Router, "feed_forward.router"),
    (Part::SharedGate, "feed_forward.shared_expert.gate_proj"),
    (Part::SharedUp, "feed_forward.shared_expert.up_proj"),
    (Part::SharedDown, "feed_forward.shared_expert.down_proj"),
    (Part::GateUpExperts, "feed_forward.experts.gate_up_proj"),
    (Part::DownExperts, "feed_forward.experts.down_proj"),
];
