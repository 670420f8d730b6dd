//! The moderators' room: what filters find, and what is done about it.

mod prompts;
mod room;
mod talks;
