//! A request body on its way to jobs, with the memory that it takes.

use axum::http::HeaderMap;
use bytes::Bytes;
use serde_json::Value;

use super::endpoint::beside;
use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::form::read_json_or_form;
use crate::http::room::Room;
use crate::moderation::Asker;
use muster_protocol::openai::form::FormBody;
use muster_protocol::openai::{Problem, json};

/// A request body on its way to jobs.
#[derive(Debug)]
pub struct Incoming<B> {
    pub(super) body: B,
    /// In bytes, as it came.
    pub(super) size: usize,
    pub(super) room: Room,
    /// Whether the request continues stored responses, and waits for memory instead of failing.
    pub(super) is_patient: bool,
    /// Whether the client is behind a VPN or proxy.
    pub(super) is_hidden: bool,
    pub(super) who: Asker,
}

impl Incoming<Bytes> {
    /// Reads the JSON.
    pub async fn parse(self) -> Result<Incoming<Value>, ApiError> {
        let Self {
            body,
            size,
            room,
            is_patient,
            is_hidden,
            who,
        } = self;
        Ok(Incoming {
            body: beside(size, move || Ok(json::parse(&body)?)).await?,
            size,
            room,
            is_patient,
            is_hidden,
            who,
        })
    }
}

impl Incoming<Bytes> {
    /// Reads JSON or a form, as the content type says, into the body of a chat.
    pub async fn read(
        self,
        headers: &HeaderMap,
        of_json: fn(Value) -> Result<Value, Problem>,
        of_form: fn(FormBody) -> Result<Value, Problem>,
    ) -> Result<Incoming<Value>, ApiError> {
        let whole = Whole {
            bytes: self.body,
            room: self.room,
        };
        let (body, room) = read_json_or_form(headers, whole, of_json, of_form).await?;
        Ok(Incoming {
            body,
            room,
            size: self.size,
            is_patient: self.is_patient,
            is_hidden: self.is_hidden,
            who: self.who,
        })
    }
}

impl Incoming<Value> {
    pub fn body(&self) -> &Value {
        &self.body
    }

    pub fn body_mut(&mut self) -> &mut Value {
        &mut self.body
    }

    /// For a route of its own, with the memory that the body takes.
    pub fn into_parts(self) -> (Value, Room) {
        (self.body, self.room)
    }
}
