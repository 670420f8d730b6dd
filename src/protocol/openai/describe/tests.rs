use bytes::Bytes;
use serde_json::{Value, json};

use super::{DescribeDialect, of_form, of_json};
use crate::openai::chat::Dialect;
use crate::openai::form::{FormBody, FormFile};

fn url(chat: &Value) -> &str {
    let part = &chat["messages"][0]["content"][0];
    part["image_url"]["url"].as_str().unwrap()
}

#[test]
fn an_image_and_a_prompt_become_a_chat() {
    let body = json!({
        "image": "https://example.org/a.png", "model": "sees", "prompt": "Where?", "detail": "low", "seed": 7,
    });
    let chat = of_json(body).unwrap();
    let image = json!({"url": "https://example.org/a.png", "detail": "low"});
    let content =
        json!([{"type": "image_url", "image_url": image}, {"type": "text", "text": "Where?"}]);
    let wanted =
        json!({"model": "sees", "seed": 7, "messages": [{"role": "user", "content": content}]});
    assert_eq!(chat, wanted);
    let least = of_json(json!({"image": "AAAA"})).unwrap();
    assert_eq!(url(&least), "data:application/octet-stream;base64,AAAA");
    assert_eq!(least["model"], "auto");
    let text = &least["messages"][0]["content"][1]["text"];
    assert_eq!(text, "Describe this image.");
}

#[test]
fn a_file_of_a_form_is_the_image() {
    let file = |name: &str| FormFile {
        name: name.to_owned(),
        bytes: Bytes::from_static(b"\x01\x02\x03"),
    };
    let form = |files: Vec<FormFile>, texts: &[(&str, &str)]| FormBody {
        texts: texts
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect(),
        files,
    };
    let chat = of_form(form(vec![file("image")], &[("max_tokens", "9")])).unwrap();
    assert_eq!(url(&chat), "data:application/octet-stream;base64,AQID");
    assert_eq!(chat["max_tokens"], 9);
    for (wrong, param) in [
        (form(vec![file("mask")], &[]), "mask"),
        (form(vec![file("image"), file("image")], &[]), "image"),
        (form(vec![file("image")], &[("image", "AAAA")]), "image"),
        (form(Vec::new(), &[("prompt", "Where?")]), "image"),
    ] {
        assert_eq!(of_form(wrong).unwrap_err().param.as_deref(), Some(param));
    }
}

#[test]
fn what_cannot_be_honoured_is_refused_by_its_name() {
    for (body, param) in [
        (json!({}), "image"),
        (json!({"image": " "}), "image"),
        (json!({"image": "AAAA", "stream": true}), "stream"),
        (json!({"image": "AAAA", "max_tokens": 0}), "max_tokens"),
        (json!({"image": "AAAA", "messages": []}), "messages"),
    ] {
        assert_eq!(of_json(body).unwrap_err().param.as_deref(), Some(param));
    }
    assert_eq!(
        DescribeDialect.param("messages[0].content[0].image_url"),
        "image"
    );
    assert_eq!(DescribeDialect.param("messages[0].content[1]"), "prompt");
    assert_eq!(DescribeDialect.param("model"), "model");
}
