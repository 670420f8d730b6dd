//! The moderation service: matches of filters and their consequences.

mod prompts;
mod room;
mod talks;
