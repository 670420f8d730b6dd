//! What two peers may agree on, each extension in three companies: a worker and a coordinator of ours, heard by a tap;
//! our coordinator with a worker of the public network; a public coordinator with a worker of ours. With a public
//! peer nothing of it is seen.
//!
//! What becomes of jobs when something breaks is in `link`, `chat_over_socket` and `killed`.

mod both_ours;
mod public_coordinator;
mod public_worker;
