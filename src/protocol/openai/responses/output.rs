//! Output items, gathered from events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::job::{Channel, TokenEvent, ToolCallEvent};
use crate::openai::chat::logprob;

use super::client_tools::ClientTool;
use super::dialect::Sealer;
use super::intent::{prefix_of, request_of};
use super::tools::{INPUT, NamespacedName};

/// How items are shown.
#[derive(Debug, Clone)]
pub struct OutputOptions {
    /// Names of tools that take text.
    pub custom: BTreeSet<String>,
    /// Tools of namespaces, by the name under which the model sees them.
    pub namespaced: BTreeMap<String, NamespacedName>,
    /// Tools that OpenAI defines and the client runs.
    pub client: BTreeSet<ClientTool>,
    pub logprobs: bool,
    /// Thoughts are shown as their own summary.
    pub summary: bool,
    /// Thoughts are sealed too.
    pub sealer: Option<Arc<dyn Sealer>>,
}

/// All items of one response.
#[derive(Debug)]
pub struct OutputItems {
    /// The unique part of every id.
    request: String,
    options: OutputOptions,
    pub items: Vec<Item>,
}

#[derive(Debug)]
pub struct Item {
    pub kind: ItemKind,
    pub id: String,
    /// Text of a message or of reasoning, or the arguments of a call.
    pub text: String,
    pub logprobs: Vec<Value>,
    pub call: Option<FunctionCall>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind {
    Reasoning,
    Text,
    Refusal,
    Function,
    Custom,
    Client(ClientTool),
}

#[derive(Debug)]
pub struct FunctionCall {
    index: u32,
    pub id: String,
    pub name: String,
    pub namespace: Option<String>,
}

/// An item that an event belongs to, and whether it begins with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemUpdate {
    pub index: usize,
    pub is_new: bool,
}

impl OutputItems {
    /// `response` is the response's id.
    pub fn new(response: &str, options: OutputOptions) -> Self {
        Self {
            request: request_of(response).unwrap_or_default().to_owned(),
            options,
            items: Vec::new(),
        }
    }

    pub fn clear(&mut self) {
        self.items.clear();
    }

    pub fn shows_summary(&self) -> bool {
        self.options.summary
    }

    /// None for an event without text.
    pub fn token(&mut self, token: &TokenEvent) -> Option<ItemUpdate> {
        if token.text.is_empty() && (!self.options.logprobs || token.logprobs.is_empty()) {
            return None;
        }
        let kind = match token.channel {
            Channel::Reasoning => ItemKind::Reasoning,
            Channel::Content => ItemKind::Text,
            Channel::Refusal => ItemKind::Refusal,
        };
        let is_new = self.items.last().is_none_or(|item| item.kind != kind);
        if is_new {
            self.push(kind, None);
        }
        let index = self.items.len() - 1;
        let item = &mut self.items[index];
        item.text.push_str(&token.text);
        if self.options.logprobs && kind == ItemKind::Text {
            item.logprobs.extend(token.logprobs.iter().map(logprob));
        }
        Some(ItemUpdate { index, is_new })
    }

    pub fn call(&mut self, piece: &ToolCallEvent) -> ItemUpdate {
        let known = self.items.iter().position(|item| {
            item.call
                .as_ref()
                .is_some_and(|call| call.index == piece.index)
        });
        let index = known.unwrap_or_else(|| {
            let name = piece.name.clone().unwrap_or_default();
            let tool = ClientTool::of_type(&name);
            let kind = match tool.filter(|tool| self.options.client.contains(tool)) {
                Some(tool) => ItemKind::Client(tool),
                None if self.options.custom.contains(&name) => ItemKind::Custom,
                None => ItemKind::Function,
            };
            let made_up = || format!("call_{}_{}", self.request, piece.index);
            let id = piece.id.clone().unwrap_or_else(made_up);
            let (name, namespace) = match self.options.namespaced.get(&name) {
                Some(known) => (known.name.clone(), Some(known.namespace.clone())),
                None => (name, None),
            };
            let call = FunctionCall {
                index: piece.index,
                id,
                name,
                namespace,
            };
            self.push(kind, Some(call));
            self.items.len() - 1
        });
        self.items[index].text.push_str(&piece.arguments);
        ItemUpdate {
            index,
            is_new: known.is_none(),
        }
    }

    fn push(&mut self, kind: ItemKind, call: Option<FunctionCall>) {
        let prefix = prefix_of(kind.word());
        self.items.push(Item {
            kind,
            id: format!("{prefix}_{}_{}", self.request, self.items.len()),
            text: String::new(),
            logprobs: Vec::new(),
            call,
        });
    }

    /// All items of a response that ended: the last one may be cut off.
    pub fn rendered(&self, is_whole: bool) -> Vec<Value> {
        let last = self.items.len().saturating_sub(1);
        let items = self.items.iter().enumerate();
        items
            .map(|(index, item)| match is_whole || index < last {
                true => self.render(item, "completed"),
                false => self.render(item, "incomplete"),
            })
            .collect()
    }

    pub fn render(&self, item: &Item, status: &str) -> Value {
        let is_open = status == "in_progress";
        match item.kind {
            ItemKind::Reasoning => {
                let mut value =
                    json!({"id": item.id, "type": "reasoning", "summary": [], "status": status});
                if !is_open {
                    let parts = json!([self.part(item)]);
                    let key = if self.options.summary {
                        "summary"
                    } else {
                        "content"
                    };
                    value[key] = parts;
                }
                if let (Some(sealer), false) = (&self.options.sealer, is_open) {
                    value["encrypted_content"] = sealer.seal(&item.text).into();
                }
                value
            }
            ItemKind::Text | ItemKind::Refusal => {
                let content = match is_open {
                    true => json!([]),
                    false => json!([self.part(item)]),
                };
                json!({"id": item.id, "type": "message", "role": "assistant", "status": status, "content": content})
            }
            ItemKind::Client(tool) => {
                let call_id = item.call.as_ref().map(|call| call.id.as_str());
                let mut value = json!({
                    "id": item.id, "type": item.kind.word(), "status": status, "call_id": call_id,
                });
                value[tool.field()] = tool.asked(&item.text);
                value
            }
            ItemKind::Function | ItemKind::Custom => {
                let key = item.kind.argument();
                let mut value = json!({"id": item.id, "type": item.kind.word(), "status": status});
                if let Some(call) = &item.call {
                    value["call_id"] = call.id.as_str().into();
                    value["name"] = call.name.as_str().into();
                    if let Some(namespace) = &call.namespace {
                        value["namespace"] = namespace.as_str().into();
                    }
                }
                value[key] = if is_open {
                    "".into()
                } else {
                    item.argument().into()
                };
                value
            }
        }
    }

    /// The one part of an item's content.
    pub fn part(&self, item: &Item) -> Value {
        match item.kind {
            ItemKind::Reasoning if self.options.summary => {
                json!({"type": "summary_text", "text": item.text})
            }
            ItemKind::Reasoning => json!({"type": "reasoning_text", "text": item.text}),
            ItemKind::Refusal => json!({"type": "refusal", "refusal": item.text}),
            _ => {
                json!({"type": "output_text", "text": item.text, "annotations": [], "logprobs": item.logprobs})
            }
        }
    }
}

impl Item {
    /// The arguments of a function, or the text of a custom tool. Arguments cut off by the token limit are no valid
    /// JSON, and returned as they are.
    pub fn argument(&self) -> String {
        if self.kind != ItemKind::Custom {
            return self.text.clone();
        }
        let arguments: Value = serde_json::from_str(&self.text).unwrap_or_default();
        match arguments[INPUT].as_str() {
            Some(input) => input.to_owned(),
            None => self.text.clone(),
        }
    }
}

impl ItemKind {
    /// The item's type.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reasoning => "reasoning",
            Self::Text | Self::Refusal => "message",
            Self::Function => "function_call",
            Self::Custom => "custom_tool_call",
            Self::Client(tool) => tool.call_type(),
        }
    }

    /// The field of a call that holds the tool's input.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Custom => INPUT,
            _ => "arguments",
        }
    }
}
