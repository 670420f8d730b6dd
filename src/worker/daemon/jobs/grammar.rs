//! Converts a job's output constraints to the engine's grammar.

use muster_engine::runtime::grammar::{Answer, Calls, Function, Grammar, Thought};
use muster_engine::runtime::text::{Markup, ToolMarkup};
use muster_protocol::job::{
    Failure, FailureKind, OutputFormat, TextInput, TextRequest, ToolChoice,
};
use serde_json::Value;

/// `None` for unconstrained text. Takes the schemas out of the job.
pub fn of(
    asked: &mut TextRequest,
    markup: Markup,
    is_thinking: bool,
) -> Result<Option<Grammar>, Failure> {
    let choice = asked.tool_choice.clone();
    let mut functions = match (&asked.input, &choice) {
        (_, Some(ToolChoice::None)) => Vec::new(),
        (TextInput::Chat(chat), _) => chat.tools.iter().filter_map(function).collect(),
        _ => Vec::new(),
    };
    if let Some(ToolChoice::Named(name)) = &choice {
        functions.retain(|function| function.name == *name);
    }
    let must_call = matches!(choice, Some(ToolChoice::Required | ToolChoice::Named(_)));
    let answer = match asked.format.take() {
        _ if must_call => Answer::Nothing,
        None | Some(OutputFormat::Text) => Answer::Text,
        Some(OutputFormat::JsonObject) => Answer::JsonObject,
        Some(OutputFormat::JsonSchema(schema)) => Answer::JsonSchema(schema),
        Some(OutputFormat::Regex(pattern)) => Answer::Regex(pattern),
        Some(OutputFormat::Choice(choices)) => Answer::Choice(choices),
        Some(OutputFormat::Lark(grammar)) => Answer::Lark(grammar),
    };
    if markup.channels && (must_call || answer != Answer::Text) {
        let message = "structured output and tool_choice are not supported for models that write in channels \
                       (gpt-oss); describe the form in the prompt";
        return Err(Failure::new(FailureKind::UnsupportedValue, message));
    }
    // Calls of Gemma 4 are no JSON: they are read and not held to a schema.
    let is_free = markup.tools == Some(ToolMarkup::Gemma);
    if is_free && must_call {
        let message = "tool_choice that demands a call is not supported for models that write calls as Gemma 4 does; \
                       ask for the call in the prompt";
        return Err(Failure::new(FailureKind::UnsupportedValue, message));
    }
    let calls = markup.tools.filter(|_| !functions.is_empty() && !is_free);
    // Declared functions are the only callable ones, strict or not.
    if answer == Answer::Text && calls.is_none() {
        return Ok(None);
    }
    if must_call && functions.is_empty() {
        let message = "tool_choice asks for a call of a function that was not declared";
        return Err(Failure::new(FailureKind::InvalidRequest, message));
    }
    let single =
        asked.parallel_tool_calls == Some(false) || matches!(choice, Some(ToolChoice::Named(_)));
    Ok(Some(Grammar {
        thought: match (is_thinking, markup.thinks && !is_free) {
            (true, _) => Thought::Open,
            (false, true) => Thought::Possible,
            (false, false) => Thought::None,
        },
        calls: calls.map(|markup| Calls {
            markup,
            functions,
            single,
        }),
        answer,
    }))
}

fn function(tool: &Value) -> Option<Function> {
    let function = tool.get("function").unwrap_or(tool);
    Some(Function {
        name: function["name"].as_str()?.to_owned(),
        parameters: function
            .get("parameters")
            .filter(|it| !it.is_null())
            .cloned(),
        strict: function["strict"] == true,
    })
}

#[cfg(test)]
mod tests {
    use muster_engine::runtime::grammar::{Answer, Grammar, Thought};
    use muster_engine::runtime::text::{Markup, ToolMarkup};
    use muster_protocol::job::TextRequest;
    use serde_json::{Value, json};

    const TAGGED: Markup = Markup {
        thinks: false,
        tools: Some(ToolMarkup::Tagged),
        channels: false,
    };

    fn grammar(fields: Value, markup: Markup) -> Option<Grammar> {
        let mut request = json!({"input": {"chat": {"messages": [], "tools": fields["tools"]}}});
        for (name, value) in fields.as_object().unwrap() {
            if name != "tools" {
                request[name] = value.clone();
            }
        }
        if fields["tools"].is_null() {
            request["input"] = json!({"chat": {"messages": []}});
        }
        let mut request: TextRequest = serde_json::from_value(request).unwrap();
        super::of(&mut request, markup, false).unwrap()
    }

    fn tools(strict: bool) -> Value {
        json!([
            {"type": "function", "function": {"name": "look", "strict": strict}},
            {"type": "function", "function": {"name": "listen"}},
        ])
    }

    #[test]
    fn channels_are_free_and_no_form_is_kept_in_them() {
        let channels = Markup {
            thinks: false,
            tools: None,
            channels: true,
        };
        assert_eq!(grammar(json!({"tools": tools(false)}), channels), None);
        let mut request: TextRequest = serde_json::from_value(json!({
            "input": {"chat": {"messages": []}}, "format": {"regex": "a+"},
        }))
        .unwrap();
        let refused = super::of(&mut request, channels, false).unwrap_err();
        assert!(refused.message.contains("gpt-oss"), "{refused}");
    }

    #[test]
    fn free_text_has_no_grammar() {
        assert_eq!(grammar(json!({}), TAGGED), None);
        let no_calls = Markup {
            thinks: false,
            tools: None,
            channels: false,
        };
        assert_eq!(grammar(json!({"tools": tools(false)}), no_calls), None);
        assert_eq!(grammar(json!({"format": "text"}), TAGGED), None);
    }

    #[test]
    fn declared_functions_alone_may_be_called_without_strict() {
        let auto = grammar(json!({"tools": tools(false)}), TAGGED).unwrap();
        assert_eq!(auto.answer, Answer::Text);
        let names: Vec<String> = auto
            .calls
            .unwrap()
            .functions
            .into_iter()
            .map(|function| function.name)
            .collect();
        assert_eq!(names, ["look", "listen"]);
        let none = json!({"tools": tools(false), "tool_choice": "none"});
        assert_eq!(grammar(none, TAGGED), None);
    }

    #[test]
    fn a_required_call_leaves_no_other_answer() {
        let required = json!({"tools": tools(false), "tool_choice": "required"});
        let required = grammar(required, TAGGED).unwrap();
        assert_eq!(required.answer, Answer::Nothing);
        assert_eq!(required.calls.as_ref().unwrap().functions.len(), 2);
        assert!(!required.calls.unwrap().single);

        let named = json!({"tools": tools(false), "tool_choice": {"named": "listen"}});
        let calls = grammar(named, TAGGED).unwrap().calls.unwrap();
        assert_eq!(
            (calls.functions[0].name.as_str(), calls.single),
            ("listen", true)
        );
        assert_eq!(calls.functions.len(), 1);
    }

    #[test]
    fn a_strict_tool_leaves_text_free_and_keeps_its_calls() {
        let strict = grammar(json!({"tools": tools(true)}), TAGGED).unwrap();
        assert_eq!(strict.answer, Answer::Text);
        let strict = strict.calls.unwrap().functions;
        assert_eq!((strict[0].strict, strict[1].strict), (true, false));
    }

    #[test]
    fn an_answer_in_a_form_may_follow_a_thought() {
        let thinking = Markup {
            thinks: true,
            tools: None,
            channels: false,
        };
        let formed = grammar(json!({"format": {"regex": "a+"}}), thinking).unwrap();
        assert_eq!(formed.thought, Thought::Possible);
        assert_eq!(formed.answer, Answer::Regex("a+".to_owned()));
        assert_eq!(formed.calls, None);
    }
}
