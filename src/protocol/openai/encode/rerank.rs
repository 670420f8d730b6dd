//! `/rerank`, in the shape that Jina, Cohere and vLLM share.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{field, list, model, read, text};
use crate::job::Usage;
use crate::openai::field::{Field, FieldRow};
use crate::openai::shape::whole;
use crate::openai::{Problem, Shape, field as entries};

/// Documents of one request.
pub const MOST_DOCUMENTS: usize = 2048;

/// Documents to order by how well they answer a query.
#[derive(Debug, Clone, PartialEq)]
pub struct RerankRequest {
    pub model: Arc<str>,
    pub query: String,
    pub documents: Vec<String>,
    /// Number of best results to return; `None` is all.
    pub top: Option<usize>,
    pub with_documents: bool,
}

#[derive(Default)]
pub(super) struct RerankDraft {
    model: String,
    query: Option<String>,
    documents: Option<Vec<String>>,
    top: Option<usize>,
    with_documents: bool,
}

#[rustfmt::skip]
pub(super) const FIELDS: &[Field<RerankDraft>] = &[
    field("model", Shape::Text, "Model name as listed by /v1/models?type=all.", |draft, value| {
        draft.model = text(value);
        Ok(())
    }),
    field("query", Shape::Text, "What the documents are compared with.", |draft, value| {
        draft.query = Some(text(value));
        Ok(())
    }),
    field("documents", Shape::List, "Texts, or objects with text; at most 2048.", |draft, value| {
        draft.documents = Some(documents(list(value))?);
        Ok(())
    }),
    field("top_n", Shape::Integer(1..=MOST_DOCUMENTS as i64), "Return the best so many; all by default.", |draft, value| {
        draft.top = whole(&value).and_then(|number| usize::try_from(number).ok());
        Ok(())
    }),
    field("return_documents", Shape::Flag, "Return each document with its score.", |draft, value| {
        draft.with_documents = value == true;
        Ok(())
    }),
    field("user", Shape::Text, "Your identifier of the end user; no effect.", |_, _| Ok(())),
];

/// Every field of a request.
pub fn rows() -> Vec<FieldRow> {
    crate::openai::field::rows(FIELDS)
}

impl RerankRequest {
    pub fn read(body: Value) -> Result<Self, Problem> {
        let draft: RerankDraft = read(FIELDS, body)?;
        let model = model(&draft.model)?;
        let query = draft.query.filter(|query| !query.is_empty());
        let query = query
            .ok_or_else(|| Problem::invalid("query", "query is missing: send a non-empty text"))?;
        let documents = draft.documents.ok_or_else(|| {
            Problem::invalid("documents", "documents is missing: send an array of texts")
        })?;
        Ok(Self {
            model,
            query,
            documents,
            top: draft.top,
            with_documents: draft.with_documents,
        })
    }
}

fn documents(values: Vec<Value>) -> Result<Vec<String>, Problem> {
    match values.len() {
        0 => return Err(Problem::invalid("documents", "documents is empty")),
        count if count > MOST_DOCUMENTS => {
            let message =
                format!("documents must have at most {MOST_DOCUMENTS} entries, found {count}");
            return Err(Problem::invalid("documents", message));
        }
        _ => {}
    }
    let read = values.into_iter().enumerate().map(|(index, value)| {
        let place = format!("documents[{index}]");
        let found = match value {
            Value::String(text) => Some(text),
            Value::Object(mut entries) => {
                entries::nothing_but(&["text"], &place, &entries)?;
                entries.remove("text").map(text)
            }
            _ => None,
        };
        found.filter(|text| !text.is_empty()).ok_or_else(|| {
            let message = format!("{place} must be a non-empty string or an object with text");
            Problem::invalid(place, message)
        })
    });
    read.collect()
}

/// The reply: the best first; equal scores in the order of the documents.
pub fn reply(id: &str, request: &RerankRequest, scores: &[f32], usage: Usage) -> Value {
    let mut order: Vec<usize> = (0..scores.len().min(request.documents.len())).collect();
    order.sort_by(|&one, &other| scores[other].total_cmp(&scores[one]));
    order.truncate(request.top.unwrap_or(order.len()));
    let results = order.into_iter().map(|index| {
        let mut result = json!({"index": index, "relevance_score": scores[index]});
        if request.with_documents {
            result["document"] = json!({"text": request.documents[index]});
        }
        result
    });
    json!({
        "id": id,
        "model": &*request.model,
        "usage": {"total_tokens": usage.prompt_tokens},
        "results": results.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{RerankRequest, reply};
    use crate::job::Usage;

    fn body(fields: Value) -> Value {
        let mut body = json!({"model": "m", "query": "q", "documents": ["a", {"text": "b"}, "c"]});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    }

    #[test]
    fn the_best_documents_come_first() {
        let request = body(json!({"top_n": 2, "return_documents": true}));
        let request = RerankRequest::read(request).unwrap();
        assert_eq!(request.documents, ["a", "b", "c"]);
        let reply = reply("id", &request, &[0.25, 0.5, 0.25], Usage::default());
        let wanted = json!([
            {"index": 1, "relevance_score": 0.5, "document": {"text": "b"}},
            {"index": 0, "relevance_score": 0.25, "document": {"text": "a"}},
        ]);
        assert_eq!(reply["results"], wanted);
    }

    #[test]
    fn a_field_that_means_nothing_is_refused_by_name() {
        let cases = [
            (json!({"query": ""}), "query"),
            (json!({"documents": []}), "documents"),
            (json!({"documents": ["a", 1]}), "documents[1]"),
            (json!({"documents": [{"title": "a"}]}), "documents[0].title"),
            (json!({"documents": vec!["a"; 100_000]}), "documents"),
            (json!({"top_n": 0}), "top_n"),
            (json!({"max_chunks_per_doc": 1}), "max_chunks_per_doc"),
        ];
        for (fields, param) in cases {
            let problem = RerankRequest::read(body(fields)).unwrap_err();
            assert_eq!(problem.param.as_deref(), Some(param));
        }
    }
}
