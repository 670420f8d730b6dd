//! The nodes of a cluster of coordinators, from `/health`.

use serde_json::Value;

use super::{Finding, Step};

/// Nodes and problems that are named.
const MOST: usize = 16;
/// Characters of a name.
const LONGEST: usize = 300;
const REMEDY: &str = "ask the coordinator's operator: a node that is cut off has ended, or cannot reach the leading one";

/// `None` for a coordinator without a cluster.
pub fn finding(health: &Value) -> Option<Finding> {
    let problems = health["problems"].as_array().into_iter().flatten();
    let problems = problems.filter(|problem| problem["part"] == "cluster");
    let problems: Vec<String> = problems
        .filter_map(|problem| plain(&problem["cause"]))
        .take(MOST)
        .collect();
    let nodes = health["cluster"]["nodes"].as_array().into_iter().flatten();
    let nodes: Vec<String> = nodes.filter_map(node).take(MOST).collect();
    let nodes = (!nodes.is_empty()).then(|| nodes.join(", "));
    let found: Vec<String> = nodes.into_iter().chain(problems.iter().cloned()).collect();
    match (found.is_empty(), problems.is_empty()) {
        (true, _) => None,
        (false, true) => Some(Finding::good(Step::Cluster, found.join("; "))),
        (false, false) => Some(Finding::odd(Step::Cluster, found.join("; "), REMEDY)),
    }
}

/// `http://10.0.0.2:7010 follows`
fn node(node: &Value) -> Option<String> {
    let address = plain(&node["address"])?;
    let state = match (node["role"].as_str(), node["status"].as_str()) {
        (_, Some("cut_off")) => "is cut off",
        (Some("leader"), _) => "leads",
        _ => "follows",
    };
    Some(format!("{address} {state}"))
}

fn plain(text: &Value) -> Option<String> {
    let characters = text.as_str()?.chars().filter(|one| !one.is_control());
    Some(characters.take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::finding;
    use crate::link::inquiry::Verdict;

    #[test]
    fn the_nodes_of_a_cluster_are_named_with_those_that_are_cut_off() {
        assert_eq!(finding(&json!({"status": "ok"})), None);
        let node = |address: &str, role: &str, status: &str| json!({"address": address, "role": role, "status": status});
        let nodes = [
            node("http://a:1", "leader", "ready"),
            node("http://b:1", "follower", "ready"),
        ];
        let whole = finding(&json!({"cluster": {"epoch": 1, "nodes": nodes}})).unwrap();
        assert_eq!(
            (whole.verdict, whole.found.as_str()),
            (Verdict::Good, "http://a:1 leads, http://b:1 follows")
        );
        let nodes = [
            node("http://a:1", "leader", "ready"),
            node("http://b:1\n", "follower", "cut_off"),
        ];
        let problems = json!([
            {"part": "media", "cause": "the bucket does not answer"},
            {"part": "cluster", "cause": "the coordinator at http://b:1 was last heard 4 s ago"},
        ]);
        let broken =
            finding(&json!({"cluster": {"epoch": 1, "nodes": nodes}, "problems": problems}))
                .unwrap();
        assert_eq!(broken.verdict, Verdict::Odd);
        let expected = "http://a:1 leads, http://b:1 is cut off; the coordinator at http://b:1 was last heard 4 s ago";
        assert_eq!(broken.found, expected);
        // A node that follows, and does not reach its leader.
        let lost = json!({
            "status": "degraded", "role": "follower",
            "problems": [{"part": "cluster", "cause": "the leader at http://a:1 does not answer"}],
        });
        assert_eq!(finding(&lost).unwrap().verdict, Verdict::Odd);
    }
}
