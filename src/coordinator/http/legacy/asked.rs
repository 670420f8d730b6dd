//! Path parameters and query of this API. A malformed path parameter matches no record, and unknown query parameters
//! are ignored.

use std::collections::HashMap;
use std::convert::Infallible;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use url::form_urlencoded;
use uuid::Uuid;

use muster_protocol::legacy::words::{self, Word};
use muster_protocol::legacy::{Code, Refusal};

/// The named parts of the path.
#[derive(Debug, Default)]
pub struct Named(HashMap<String, String>);

#[derive(Debug, Default)]
pub struct Query(HashMap<String, String>);

impl Named {
    /// `None` if missing or malformed.
    pub fn id(&self, name: &str) -> Option<Uuid> {
        self.0.get(name)?.parse().ok()
    }

    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

impl Query {
    /// `None` if missing or empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        let text = self.0.get(name).map(String::as_str);
        text.filter(|text| !text.is_empty())
    }

    pub fn word<W: Word>(&self, name: &str, default: W) -> Result<W, Refusal> {
        words::asked(name, self.text(name), default)
    }

    /// A non-negative number.
    pub fn whole(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let number = self.text(name).map(str::parse::<u64>).transpose();
        number.map_err(|_| {
            let message = format!("{name} must be a non-negative integer");
            Refusal::new(Code::BadRequest, message)
        })
    }

    /// The page of a list: 1-based in the query, 0-based here.
    pub fn page(&self) -> Result<u32, Refusal> {
        let page = self.text("page").map_or(Ok(1), str::parse::<u32>);
        let page = page.ok().and_then(|page| page.checked_sub(1));
        page.ok_or_else(|| Refusal::invalid("page", "must be a page number of at least 1"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let named = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
        Ok(named.map(|Path(named)| Self(named)).unwrap_or_default())
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
        Ok(Self(pairs.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::Query;
    use muster_protocol::legacy::style::Sort;

    fn query(name: &str, value: &str) -> Query {
        Query([(name.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn pages_are_counted_from_one() {
        assert_eq!(Query::default().page(), Ok(0));
        assert_eq!(query("page", "3").page(), Ok(2));
        for wrong in ["0", "-1", "x", "1.5", "99999999999"] {
            let refusal = query("page", wrong).page().unwrap_err();
            assert_eq!(refusal.status(), 400);
            assert!(refusal.body()["errors"]["page"].is_string(), "{wrong}");
        }
    }

    #[test]
    fn a_word_is_one_of_its_list() {
        assert_eq!(
            query("sort", "age").word("sort", Sort::Popular),
            Ok(Sort::Age)
        );
        assert_eq!(
            Query::default().word("sort", Sort::Popular),
            Ok(Sort::Popular)
        );
        let refusal = query("sort", "size")
            .word("sort", Sort::Popular)
            .unwrap_err();
        assert_eq!(refusal.body()["rc"], "BadRequest");
    }
}
