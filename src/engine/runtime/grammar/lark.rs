//! Converts a [`Grammar`] to llguidance: a main grammar in Lark, and a named grammar per schema.

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::regex_to_lark;
use serde_json::{Map, Value, json};

use super::arguments::{Argument, ArgumentForm, one_by_one};
use super::{Answer, Calls, Function, Grammar, Thought};
use crate::runtime::text::{
    DEEPSEEK_CALL, DEEPSEEK_CALLS, DEEPSEEK_END_CALL, DEEPSEEK_SEPARATOR, MISTRAL_ARGUMENTS,
    ParameterTags, ToolMarkup,
};
use muster_schema::{self as schema, SchemaRefusal, check_weight, check_weight_of_lark, mend};

/// The longest regular expression and Lark grammar.
const MOST_REGEX_BYTES: usize = 16 << 10;
const MOST_LARK_BYTES: usize = 64 << 10;
const MOST_CHOICES: usize = 4096;
const MOST_CHOICE_BYTES: usize = 256 << 10;

/// The keyword before a schema in a Lark grammar.
const SCHEMA_KEYWORD: &str = "%json";
/// The keyword for JSON's format.
const STYLE: &str = "x-guidance";

/// Behind a call that begins with `<tool_call>`.
const END_TAG: &str = "</tool_call>";
/// Any text.
const ANY: &str = "/(.|\\n)*/";

pub fn top_level(grammar: &Grammar) -> Result<TopLevelGrammar, SchemaRefusal> {
    let is_answer_alone = grammar.thought == Thought::None && grammar.calls.is_none();
    if is_answer_alone && let Some(answer) = sub_grammar("answer", &grammar.answer)? {
        return Ok(TopLevelGrammar::from_grammar(answer));
    }
    let mut main = Main::default();
    let thought = main.thought(grammar.thought);
    let body = match &grammar.calls {
        Some(calls) => main.calls(calls, &grammar.answer)?,
        None => main.answer(&grammar.answer)?,
    };
    main.rules.push(format!("start: {thought}{body}"));
    let source = GrammarWithLexer {
        name: Some("main".to_owned()),
        lark_grammar: Some(main.rules.join("\n")),
        ..GrammarWithLexer::default()
    };
    let grammars = std::iter::once(source).chain(main.others);
    Ok(TopLevelGrammar {
        grammars: grammars.collect(),
        max_tokens: None,
    })
}

#[derive(Default)]
struct Main {
    rules: Vec<String>,
    others: Vec<GrammarWithLexer>,
    /// Excludes thoughts from free text, since they have their own rule.
    is_no_thought: &'static str,
}

impl Main {
    /// The part of `start` before the body.
    fn thought(&mut self, thought: Thought) -> &'static str {
        let opening = match thought {
            Thought::None => return "",
            Thought::Possible => "<think>",
            Thought::Open => "",
        };
        self.rules
            .push(format!(r#"thought[suffix="</think>"]: /{opening}(.|\n)*/"#));
        match thought {
            Thought::Possible => {
                self.is_no_thought = r" & ~/<think>(.|\n)*/";
                r#"(thought ("\n" "\n"?)?)? "#
            }
            _ => r#"thought ("\n" "\n"?)? "#,
        }
    }

    /// An expression for the answer.
    fn answer(&mut self, answer: &Answer) -> Result<String, SchemaRefusal> {
        match sub_grammar("answer", answer)? {
            Some(grammar) => {
                self.others.push(grammar);
                Ok("@answer".to_owned())
            }
            None if *answer == Answer::Text => Ok(ANY.to_owned()),
            None => Ok("\"\"".to_owned()),
        }
    }

    /// An expression for calls, and for the answer where there may be one.
    fn calls(&mut self, calls: &Calls, answer: &Answer) -> Result<String, SchemaRefusal> {
        if calls.markup == ToolMarkup::Gemma {
            let reason = "calls in the form of Gemma 4 cannot be held to a schema";
            return Err(SchemaRefusal::new("tools", reason));
        }
        if calls.functions.is_empty() {
            return Err(SchemaRefusal::new("tools", "there is no function to call"));
        }
        let mut functions = Vec::new();
        for (index, function) in calls.functions.iter().enumerate() {
            let parameters = parameters_of(index, function)?;
            if let Some(call) = self.in_own_form(calls.markup, index, function, &parameters) {
                functions.push(call);
                continue;
            }
            let name = format!("arguments_{index}");
            let (opening, closing) = around_arguments(calls.markup, &function.name);
            let (opening, closing) = (literal(&opening), literal(&closing));
            functions.push(format!("{opening} @{name} {closing}"));
            self.others
                .push(json_grammar(name, parameters, function.strict));
        }
        self.rules
            .push(format!("function: {}", functions.join(" | ")));
        match answer {
            Answer::Text => Ok(self.calls_in_text(calls)),
            Answer::Nothing => Ok(self.calls_alone(calls)),
            answer => {
                let alone = self.calls_alone(calls);
                let answer = self.answer(answer)?;
                Ok(format!("({alone} | {answer})"))
            }
        }
    }

    /// A call in the model's native format with separate arguments. `None` if the format cannot express the schema: the
    /// arguments are then a JSON object.
    fn in_own_form(
        &mut self,
        markup: ToolMarkup,
        index: usize,
        function: &Function,
        parameters: &Value,
    ) -> Option<String> {
        let tags = ParameterTags::of(markup);
        if tags.is_none() && markup != ToolMarkup::Pythonic {
            return None;
        }
        let can_hold = |name: &str| match tags {
            Some(tags) => tags.can_hold(name),
            None => is_python_name(name),
        };
        let arguments = one_by_one(parameters, function.strict, tags.is_none())?;
        let mut names = arguments.iter().map(|argument| &argument.name);
        if !can_hold(&function.name) || !names.all(|name| can_hold(name)) {
            return None;
        }
        Some(match tags {
            Some(tags) => self.in_tags(tags, index, function, arguments),
            None => self.in_python(index, function, arguments),
        })
    }

    fn in_tags(
        &mut self,
        tags: &ParameterTags,
        index: usize,
        function: &Function,
        arguments: Vec<Argument>,
    ) -> String {
        let line = if tags.is_on_lines { "\n" } else { "" };
        let end_value = literal(tags.end_values[0]);
        let space = r#""\n"?"#;
        let name = literal(&format!("{}{}{}", tags.name, function.name, tags.end_name));
        let mut call = format!("{name} {space}");
        for (place, argument) in arguments.into_iter().enumerate() {
            let key = format!("{}{}{}", tags.key, argument.name, tags.end_key);
            let opening = match tags.value.is_empty() {
                true => literal(&format!("{key}{line}")),
                false => format!("{} {space} {}", literal(&key), literal(tags.value)),
            };
            let value = match argument.written {
                ArgumentForm::Text { least, most } => {
                    let rule = format!("text_{index}_{place}");
                    let most = most.map_or(String::new(), |most| most.to_string());
                    let text = format!(r"/(.|\n){{{least},{most}}}/");
                    self.rules
                        .push(format!("{rule}[suffix={end_value}]: {text}"));
                    rule
                }
                ArgumentForm::OneOf(values) => {
                    let values: Vec<String> = values.iter().map(|value| literal(value)).collect();
                    format!("({}) {end_value}", values.join(" | "))
                }
                ArgumentForm::Json(schema) => {
                    let rule = format!("argument_{index}_{place}");
                    let grammar = json_grammar(rule.clone(), schema, function.strict);
                    self.others.push(grammar);
                    format!("@{rule} {end_value}")
                }
            };
            let argument = match argument.is_required {
                true => format!(" {opening} {value} {space}"),
                false => format!(" ({opening} {value} {space})?"),
            };
            call.push_str(&argument);
        }
        // Formats without an end tag end a call with the common closing tag.
        match tags.end == END_TAG {
            true => call,
            false => format!("{call} {}", literal(tags.end)),
        }
    }

    /// Rules that write a list with commas, of which some items may be left out.
    fn in_python(&mut self, index: usize, function: &Function, arguments: Vec<Argument>) -> String {
        let count = arguments.len();
        let rule = |kind: &str, place: usize| match place == count {
            true => literal(""),
            false => format!("{kind}_{index}_{place}"),
        };
        for (place, argument) in arguments.into_iter().enumerate() {
            let value = match argument.written {
                ArgumentForm::Json(schema) => schema,
                ArgumentForm::Text { .. } | ArgumentForm::OneOf(_) => Value::Bool(true),
            };
            let name = format!("argument_{index}_{place}");
            let item = format!("{} @{name}", literal(&format!("{}=", argument.name)));
            self.others.push(json_grammar(name, value, function.strict));
            let (next_first, next) = (rule("first", place + 1), rule("next", place + 1));
            let (skip_first, skip) = match argument.is_required {
                true => (String::new(), String::new()),
                false => (format!(" | {next_first}"), format!(" | {next}")),
            };
            self.rules.extend([
                format!("first_{index}_{place}: {item} {next}{skip_first}"),
                format!(r#"next_{index}_{place}: ", " {item} {next}{skip}"#),
            ]);
        }
        let opening = literal(&format!("{}(", function.name));
        format!(r#"{opening} {} ")""#, rule("first", 0))
    }

    fn calls_alone(&mut self, calls: &Calls) -> String {
        let (opening, one, between, closing) = match calls.markup {
            ToolMarkup::Tagged | ToolMarkup::FunctionTags | ToolMarkup::KeyTags => {
                self.rules
                    .push(r#"call: "<tool_call>" "\n"? function "\n"? "</tool_call>""#.to_owned());
                ("", "call", r#""\n"?"#, "")
            }
            // Gemma's are refused before.
            ToolMarkup::Bare | ToolMarkup::Gemma => {
                (r#""<|python_tag|>"?"#, "function", r#""; ""#, "")
            }
            ToolMarkup::Listed => (r#""[TOOL_CALLS] [""#, "function", r#"", ""#, r#""]""#),
            ToolMarkup::Named => ("", r#""[TOOL_CALLS]" function"#, "", ""),
            ToolMarkup::Pythonic => (
                r#""<|tool_call_start|>" "[""#,
                "function",
                r#"", ""#,
                r#""]" "<|tool_call_end|>""#,
            ),
            ToolMarkup::Separated | ToolMarkup::Fenced => (
                r#""<｜tool▁calls▁begin｜>""#,
                "function",
                r#""\n"?"#,
                r#""<｜tool▁calls▁end｜>""#,
            ),
        };
        let more = match calls.single {
            true => String::new(),
            false => format!("({between} {one})*"),
        };
        self.rules
            .push(format!("calls: {opening} {one} {more} {closing}"));
        "calls".to_owned()
    }

    /// Text is free up to the mark of a call; from there on the call is kept to its form.
    fn calls_in_text(&mut self, calls: &Calls) -> String {
        if calls.markup == ToolMarkup::Bare {
            // A text is a call from its first character or not at all.
            let alone = self.calls_alone(calls);
            let free = match calls.functions.iter().any(|function| function.strict) {
                true => r"/([ \t\r\n]*[^ \t\r\n{](.|\n)*)?/",
                // JSON that names no function is text.
                false => r#"/(.|\n)*/ & ~/[ \t\r\n]*\{[ \t\r\n]*"name"(.|\n)*/"#,
            };
            self.rules.push(format!(
                r"FREE: {free} & ~/(.|\n)*<\|python_tag\|>(.|\n)*/{}",
                self.is_no_thought
            ));
            return format!("({alone} | FREE)");
        }
        let (mark, pattern, call, between) = match calls.markup {
            ToolMarkup::Listed => (
                "[TOOL_CALLS]",
                r"\[TOOL_CALLS\]",
                match calls.single {
                    true => r#"" [" function "]""#,
                    false => r#"" [" function (", " function)* "]""#,
                },
                "?",
            ),
            ToolMarkup::Named => (
                "[TOOL_CALLS]",
                r"\[TOOL_CALLS\]",
                "function",
                if calls.single { "?" } else { "*" },
            ),
            ToolMarkup::Pythonic => (
                "<|tool_call_start|>",
                r"<\|tool_call_start\|>",
                match calls.single {
                    true => r#""[" function "]" "<|tool_call_end|>""#,
                    false => r#""[" function (", " function)* "]" "<|tool_call_end|>""#,
                },
                "?",
            ),
            ToolMarkup::Separated | ToolMarkup::Fenced => (
                DEEPSEEK_CALLS,
                DEEPSEEK_CALLS,
                match calls.single {
                    true => r#"function "<｜tool▁calls▁end｜>""#,
                    false => r#"function ("\n"? function)* "<｜tool▁calls▁end｜>""#,
                },
                "?",
            ),
            _ => (
                "<tool_call>",
                "<tool_call>",
                r#""\n"? function "\n"? "</tool_call>""#,
                if calls.single { "?" } else { "*" },
            ),
        };
        self.rules.extend([
            format!(r"BEFORE: /(.|\n)*/{}", self.is_no_thought),
            format!(r#"until_call[suffix="{mark}"]: BEFORE"#),
            format!("call: until_call {call}"),
            format!(
                r"FREE: /(.|\n)*/ & ~/(.|\n)*{pattern}(.|\n)*/{}",
                self.is_no_thought
            ),
        ]);
        format!("call{between} FREE")
    }
}

/// The text before and after the arguments of a call.
fn around_arguments(markup: ToolMarkup, name: &str) -> (String, String) {
    let object = |key: &str| {
        let opening = format!("{{\"name\": {}, \"{key}\": ", json!(name));
        (opening, "}".to_owned())
    };
    match markup {
        ToolMarkup::Bare => object("parameters"),
        ToolMarkup::Tagged
        | ToolMarkup::Listed
        | ToolMarkup::FunctionTags
        | ToolMarkup::KeyTags
        | ToolMarkup::Pythonic
        | ToolMarkup::Gemma => object("arguments"),
        ToolMarkup::Named => (format!("{name}{MISTRAL_ARGUMENTS}"), String::new()),
        ToolMarkup::Separated => (
            format!("{DEEPSEEK_CALL}{name}{DEEPSEEK_SEPARATOR}"),
            DEEPSEEK_END_CALL.to_owned(),
        ),
        ToolMarkup::Fenced => (
            format!("{DEEPSEEK_CALL}function{DEEPSEEK_SEPARATOR}{name}\n```json\n"),
            format!("\n```{DEEPSEEK_END_CALL}"),
        ),
    }
}

/// `None` for an answer that needs no grammar.
fn sub_grammar(name: &str, answer: &Answer) -> Result<Option<GrammarWithLexer>, SchemaRefusal> {
    let lark = |source: String| GrammarWithLexer {
        name: Some(name.to_owned()),
        lark_grammar: Some(source),
        ..GrammarWithLexer::default()
    };
    let object = || Value::Object(Map::from_iter([("type".to_owned(), json!("object"))]));
    Ok(Some(match answer {
        Answer::Nothing | Answer::Text => return Ok(None),
        Answer::JsonObject => json_grammar(name.to_owned(), object(), true),
        Answer::JsonSchema(schema) => {
            schema::check(schema, "response_format.json_schema.schema", true)?;
            json_grammar(name.to_owned(), schema.clone(), true)
        }
        Answer::Regex(pattern) => {
            check_length("the regular expression", pattern.len(), MOST_REGEX_BYTES)?;
            check_weight("the regular expression", pattern)?;
            lark(format!("start: /{}/", regex_to_lark(pattern, "")))
        }
        Answer::Choice(choices) => lark(choice(choices)?),
        Answer::Lark(source) => {
            check_length("the grammar", source.len(), MOST_LARK_BYTES)?;
            check_weight_of_lark("the grammar", source)?;
            lark(with_checked_schemas(source)?)
        }
    }))
}

/// Checks the schemas in a Lark grammar and tightens their bounds. A schema follows its keyword; JSON after the same
/// letters in a pattern or a comment is checked alike.
fn with_checked_schemas(source: &str) -> Result<String, SchemaRefusal> {
    let mut checked = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once(SCHEMA_KEYWORD) {
        checked.push_str(before);
        checked.push_str(SCHEMA_KEYWORD);
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        let Some(Ok(schema)) = values.next() else {
            // Invalid JSON is reported by the library, with its position.
            rest = after;
            continue;
        };
        let (text, behind) = after.split_at(values.byte_offset());
        let mut plain = schema.clone();
        if let Value::Object(entries) = &mut plain {
            // A grammar may define the format of its JSON.
            entries.shift_remove(STYLE);
            schema::check(&plain, "the grammar's %json", false)?;
        }
        let mut drawn = schema.clone();
        schema::draw_in_bounds(&mut drawn);
        mend(&mut drawn);
        match drawn == schema {
            true => checked.push_str(text),
            false => checked.push_str(&format!(" {drawn}")),
        }
        rest = behind;
    }
    checked.push_str(rest);
    Ok(checked)
}

fn choice(choices: &[String]) -> Result<String, SchemaRefusal> {
    if choices.is_empty() || choices.len() > MOST_CHOICES {
        let message = format!(
            "must list 1 to {MOST_CHOICES} choices, found {}",
            choices.len()
        );
        return Err(SchemaRefusal::new("choice", message));
    }
    let bytes = choices.iter().map(String::len).sum();
    check_length("the choices together", bytes, MOST_CHOICE_BYTES)?;
    if choices.iter().any(String::is_empty) {
        return Err(SchemaRefusal::new("choice", "a choice must not be empty"));
    }
    let choices: Vec<String> = choices.iter().map(|choice| literal(choice)).collect();
    Ok(format!("start: {}", choices.join(" | ")))
}

fn check_length(what: &str, found: usize, most: usize) -> Result<(), SchemaRefusal> {
    match found > most {
        true => Err(SchemaRefusal::new(
            what,
            format!("must not exceed {most} bytes, found {found}"),
        )),
        false => Ok(()),
    }
}

/// The schema of a function's arguments, which are an object in any case.
fn parameters_of(index: usize, function: &Function) -> Result<Value, SchemaRefusal> {
    let place = format!("tools[{index}].function.parameters");
    let none = || json!({"type": "object", "properties": {}, "additionalProperties": false});
    let mut parameters = function.parameters.clone().unwrap_or_else(none);
    schema::check(&parameters, &place, function.strict)?;
    match &mut parameters {
        Value::Object(entries) => {
            match entries.get("type") {
                None => {
                    entries.insert("type".to_owned(), json!("object"));
                }
                Some(kind) if kind == "object" => {}
                Some(_) => return Err(SchemaRefusal::new(&place, "must describe an object")),
            }
            // Arguments that the function does not have: a model could write the same one again and again.
            if !function.strict && entries.contains_key("properties") {
                let more = entries.entry("additionalProperties");
                more.or_insert(Value::Bool(false));
            }
        }
        _ => return Err(SchemaRefusal::new(&place, "must be an object")),
    }
    Ok(parameters)
}

/// JSON is restricted to the style of `json.dumps`: models could add white space without end, and text that the schema
/// determines needs no forward pass.
fn json_grammar(name: String, mut schema: Value, strict: bool) -> GrammarWithLexer {
    let style = json!({
        "whitespace_flexible": false,
        "item_separator": ", ",
        "key_separator": ": ",
        "lenient": !strict,
    });
    schema::draw_in_bounds(&mut schema);
    mend(&mut schema);
    if schema == Value::Bool(true) {
        schema = Value::Object(Map::new());
    }
    if let Value::Object(entries) = &mut schema {
        entries.insert(STYLE.to_owned(), style);
    }
    GrammarWithLexer {
        name: Some(name),
        json_schema: Some(schema),
        ..GrammarWithLexer::default()
    }
}

fn is_python_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|c| c.is_alphabetic() || c == '_')
        && letters.all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// A string in Lark.
fn literal(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
