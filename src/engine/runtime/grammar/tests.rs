//! Tests of grammars with a network of random logits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Answer, Calls, Function, Grammar, Thought};
use crate::runtime::engine::fake::{CONTEXT, END, Fake, Rule};
use crate::runtime::text::{Markup, OfferedTool, OutputParser, Piece, ToolMarkup};
use crate::runtime::{
    CacheRoom, CacheScope, EngineLimits, Event, Failure, FinishReason, Generation, ModelSource,
    Prompt, Runtime, Sampling, Speculation, StopRules, TextRequest, TokenInfo, Usage,
};

async fn start(fake: &Fake) -> Runtime {
    start_with(fake, EngineLimits::default()).await
}

async fn start_with(fake: &Fake, limits: EngineLimits) -> Runtime {
    let runtime = Runtime::start_with(fake.loader(), limits).unwrap();
    let source = ModelSource {
        cache: CacheRoom::Tokens(16 * CONTEXT),
        ..ModelSource::new("nowhere")
    };
    runtime.load("fake", source, |_, _| ()).await.unwrap();
    runtime
}

fn request(grammar: Grammar) -> TextRequest {
    TextRequest {
        model: "fake".to_owned(),
        prompt: Prompt::Text("say>".to_owned()),
        generated: Vec::new(),
        sampling: Sampling {
            temperature: Some(1.0),
            seed: Some(1),
            ..Sampling::default()
        },
        max_tokens: Some(1500),
        window: None,
        stop: Vec::new(),
        stop_rules: StopRules::default(),
        logprobs: None,
        prompt_logprobs: None,
        grammar: Some(Arc::new(grammar)),
        choice: 0,
        scope: CacheScope::default(),
    }
}

struct GrammarOutput {
    text: String,
    tokens: Vec<TokenInfo>,
    end: Result<(FinishReason, Usage), Failure>,
}

impl GrammarOutput {
    fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }

    fn reason(&self) -> FinishReason {
        self.end.clone().unwrap().0
    }
}

async fn listen(mut generation: Generation) -> GrammarOutput {
    let (mut said, mut all) = (String::new(), Vec::new());
    while let Some(event) = generation.next().await {
        let end = match event {
            Event::Started { .. } | Event::Prompt { .. } => continue,
            Event::Text { text, tokens } => {
                said.push_str(&text);
                all.extend(tokens);
                continue;
            }
            Event::Done { reason, usage } => Ok((reason, usage)),
            Event::Failed(failure) => Err(failure),
        };
        return GrammarOutput {
            text: said,
            tokens: all,
            end,
        };
    }
    panic!("a generation ends with a last word");
}

async fn run(runtime: &Runtime, request: TextRequest) -> GrammarOutput {
    listen(runtime.generate(request).await.unwrap()).await
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 8},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "mood": {"enum": ["calm", "cross", null]},
            "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
        },
        "required": ["name", "age", "mood", "tags"],
        "additionalProperties": false,
    })
}

fn is_person(text: &str) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    let name = value["name"]
        .as_str()
        .map_or(0, |name| name.chars().count());
    let moods = [json!("calm"), json!("cross"), Value::Null];
    let tags = value["tags"].as_array().map_or(&[][..], Vec::as_slice);
    value.as_object().is_some_and(|entries| entries.len() == 4)
        && (1..=8).contains(&name)
        && value["age"].as_u64().is_some_and(|age| age <= 150)
        && moods.contains(&value["mood"])
        && (1..=3).contains(&tags.len())
        && tags.iter().all(Value::is_boolean)
}

fn calls(markup: ToolMarkup, single: bool) -> Calls {
    let function = |name: &str, parameters| Function {
        name: name.to_owned(),
        parameters,
        strict: true,
    };
    Calls {
        markup,
        functions: vec![function("greet", Some(person())), function("leave", None)],
        single,
    }
}

/// The calls parsed from a text, as clients receive them.
fn told(markup: ToolMarkup, text: &str) -> (String, Vec<(String, String)>) {
    let markup = Markup {
        thinks: false,
        tools: Some(markup),
        channels: false,
    };
    let offered = [
        OfferedTool::new("greet", Some(&person())),
        OfferedTool::new("leave", None),
    ];
    let mut parser = OutputParser::new(markup, offered.into(), false);
    let mut pieces = Vec::new();
    parser.push(text, &mut pieces);
    parser.finish(&mut pieces);
    let (mut content, mut calls) = (String::new(), Vec::<(String, String)>::new());
    for piece in pieces {
        match piece {
            Piece::Content(text) | Piece::Reasoning(text) => content.push_str(&text),
            Piece::Call { name, .. } => calls.push((name, String::new())),
            Piece::Arguments { index, text } => calls[index as usize].1.push_str(&text),
        }
    }
    (content, calls)
}

fn are_calls(markup: ToolMarkup, text: &str, most: usize) -> bool {
    let (content, calls) = told(markup, text);
    let is_right = |(name, arguments): &(String, String)| match name.as_str() {
        "greet" => is_person(arguments),
        _ => arguments == "{}",
    };
    content.trim().is_empty() && (1..=most).contains(&calls.len()) && calls.iter().all(is_right)
}

type Check = Box<dyn Fn(&str) -> bool>;

/// Grammars of every kind, and whether a text is right.
fn kinds() -> Vec<(&'static str, Grammar, Check)> {
    let answer = Grammar::answer;
    let lark = "start: greeting \" \" NAME\ngreeting: \"hello\" | \"bye\"\nNAME: /[A-Z][a-z]{1,4}/";
    let alone = |markup, single| Grammar {
        thought: Thought::None,
        calls: Some(calls(markup, single)),
        answer: Answer::Nothing,
    };
    let mut kinds: Vec<(&'static str, Grammar, Check)> = vec![
        (
            "schema",
            answer(Answer::JsonSchema(person())),
            Box::new(is_person),
        ),
        (
            "regex",
            answer(Answer::Regex("[a-c]{2,5}-(x|yy)".to_owned())),
            Box::new(|text| {
                let (head, tail) = text.split_once('-').unwrap_or_default();
                (2..=5).contains(&head.len()) && ["x", "yy"].contains(&tail)
            }),
        ),
        (
            "choice",
            answer(Answer::Choice(vec![
                "yes".to_owned(),
                "yesterday \"é\"".to_owned(),
            ])),
            Box::new(|text| ["yes", "yesterday \"é\""].contains(&text)),
        ),
        (
            "lark",
            answer(Answer::Lark(lark.to_owned())),
            Box::new(|text| {
                let (greeting, name) = text.split_once(' ').unwrap_or_default();
                ["hello", "bye"].contains(&greeting) && (2..=5).contains(&name.len())
            }),
        ),
        (
            "call or schema",
            Grammar {
                thought: Thought::None,
                calls: Some(calls(ToolMarkup::Tagged, true)),
                answer: Answer::JsonSchema(person()),
            },
            Box::new(|text| is_person(text) || are_calls(ToolMarkup::Tagged, text, 1)),
        ),
    ];
    for markup in [
        ToolMarkup::Tagged,
        ToolMarkup::Bare,
        ToolMarkup::Listed,
        ToolMarkup::Named,
        ToolMarkup::FunctionTags,
        ToolMarkup::KeyTags,
        ToolMarkup::Pythonic,
        ToolMarkup::Separated,
        ToolMarkup::Fenced,
    ] {
        let many = (alone(markup, false), usize::MAX);
        for (grammar, most) in [(alone(markup, true), 1), many] {
            let check = move |text: &str| are_calls(markup, text, most);
            kinds.push(("calls", grammar, Box::new(check)));
        }
    }
    kinds
}

fn settings() -> Vec<Sampling> {
    let plain = |seed| Sampling {
        temperature: Some(1.0),
        seed: Some(seed),
        ..Sampling::default()
    };
    vec![
        Sampling {
            temperature: Some(0.0),
            ..plain(1)
        },
        plain(2),
        plain(3),
        Sampling {
            top_k: Some(2),
            ..plain(4)
        },
        Sampling {
            top_p: Some(0.3),
            min_p: Some(0.2),
            ..plain(5)
        },
        Sampling {
            repetition_penalty: Some(1.5),
            presence_penalty: Some(1.0),
            frequency_penalty: Some(1.0),
            ..plain(6)
        },
        Sampling {
            typical: Some(0.5),
            top_a: Some(0.1),
            ..plain(7)
        },
        Sampling {
            logit_bias: vec![(END, 100.0), (1, 100.0), (90, 50.0)],
            ..plain(8)
        },
    ]
}

#[tokio::test]
async fn every_kind_of_grammar_holds_at_every_setting_in_one_batch() {
    let runtime = start(&Fake::new(Rule::Scatters)).await;
    let kinds = kinds();
    for sampling in settings() {
        let mut generations = Vec::new();
        for (_, grammar, _) in &kinds {
            let request = TextRequest {
                sampling: sampling.clone(),
                ..request(grammar.clone())
            };
            generations.push(runtime.generate(request).await.unwrap());
        }
        let free = TextRequest {
            grammar: None,
            max_tokens: Some(40),
            ..request(Grammar::answer(Answer::Text))
        };
        let free = runtime.generate(free).await.unwrap();
        for ((kind, _, is_right), generation) in kinds.iter().zip(generations) {
            let said = listen(generation).await;
            let text = &said.text;
            assert!(said.end.is_ok(), "{kind}: {:?}", said.end);
            if said.reason() == FinishReason::Length {
                // Only a list of calls may be endless.
                assert_eq!(*kind, "calls", "{text:?}");
                continue;
            }
            assert!(is_right(text), "{kind} at {sampling:?}: {text:?}");
        }
        assert!(listen(free).await.end.is_ok());
    }
}

#[tokio::test]
async fn any_json_object_is_one() {
    let runtime = start(&Fake::new(Rule::Scatters)).await;
    let mut whole = 0;
    for seed in 0..8 {
        let grammar = Grammar::answer(Answer::JsonObject);
        let mut request = request(grammar);
        request.sampling.seed = Some(seed);
        let said = run(&runtime, request).await;
        if said.reason() == FinishReason::EndOfTurn {
            match serde_json::from_str::<Value>(&said.text) {
                Ok(value) => assert!(value.is_object(), "{value}"),
                // JSON has larger numbers than this library.
                Err(error) => assert!(error.to_string().contains("out of range"), "{error}"),
            }
            whole += 1;
        }
    }
    assert!(whole > 0, "no object was finished");
}

#[tokio::test]
async fn a_text_goes_on_from_every_token_as_it_would_have() {
    let runtime = start(&Fake::new(Rule::Scatters)).await;
    for (kind, grammar, is_right) in kinds() {
        let mut asked = request(grammar);
        asked.max_tokens = Some(200);
        let whole = run(&runtime, asked.clone()).await;
        let ids = whole.ids();
        for cut in 0..=ids.len() {
            let resumed = TextRequest {
                generated: ids[..cut].to_vec(),
                ..asked.clone()
            };
            let rest = run(&runtime, resumed).await;
            let again = [&ids[..cut], &rest.ids()].concat();
            assert_eq!(again, ids, "{kind}, cut at {cut} of {}", whole.text);
            assert!(whole.text.ends_with(&rest.text), "{kind}, cut at {cut}");
            assert_eq!(rest.reason(), whole.reason(), "{kind}, cut at {cut}");
        }
        assert!(whole.reason() == FinishReason::Length || is_right(&whole.text));
    }
}

#[tokio::test]
async fn what_the_grammar_forces_costs_no_step_of_its_own() {
    let fake = Fake::new(Rule::Scatters);
    let limits = EngineLimits {
        speculation: Speculation::Off,
        ..EngineLimits::default()
    };
    let runtime = start_with(&fake, limits).await;
    let long = "0123456789".repeat(6);
    let schema = json!({"type": "object", "properties": {"kind": {"const": long}},
        "required": ["kind"], "additionalProperties": false});
    let grammar = Grammar::answer(Answer::JsonSchema(schema));
    let said = run(&runtime, request(grammar.clone())).await;
    let wanted = format!("{{\"kind\": \"{long}\"}}");
    assert_eq!(
        (said.text.as_str(), said.tokens.len()),
        (wanted.as_str(), 72)
    );
    let steps = fake.steps();
    assert!(steps <= 6, "{steps} steps for {} tokens", said.tokens.len());

    let told = TextRequest {
        logprobs: Some(1),
        ..request(grammar)
    };
    let slow = run(&runtime, told).await;
    assert_eq!(slow.ids(), said.ids());
    assert!(slow.tokens.iter().all(|token| token.logprob.is_some()));
    assert_eq!(fake.steps(), steps + slow.tokens.len());
}

/// Each token can be derived in many ways, more of them with each token before.
const AMBIGUOUS: &str = "start: x{1000}\nx: \"a\" | \"a\" \"a\" | \"a\"?";

#[tokio::test]
async fn costly_masks_end_their_own_texts_and_no_other() {
    let runtime = start(&Fake::new(Rule::Scatters)).await;
    let mut costly = Vec::new();
    for choice in 0..14 {
        let grammar = Grammar::answer(Answer::Lark(AMBIGUOUS.to_owned()));
        let asked = TextRequest {
            choice,
            ..request(grammar)
        };
        costly.push(runtime.generate(asked).await);
    }
    let mut plain = request(Grammar::answer(Answer::Text));
    plain.max_tokens = Some(300);
    plain.grammar = None;
    plain.stop_rules.ignore_eos = true;
    let mut digits = request(Grammar::answer(Answer::Regex("[0-9]{200}".to_owned())));
    digits.sampling.seed = Some(5);
    let (plain, digits) = tokio::join!(run(&runtime, plain), run(&runtime, digits));
    assert_eq!(plain.reason(), FinishReason::Length);
    assert_eq!(digits.text.len(), 200, "{:?}", digits.end);
    for generation in costly {
        let end = match generation {
            Ok(generation) => listen(generation).await.end,
            Err(failure) => Err(failure),
        };
        let is_own = matches!(end, Ok(_) | Err(Failure::BadRequest(_)));
        assert!(is_own, "{end:?}");
    }
}

#[tokio::test]
async fn rules_about_the_end_keep_to_the_grammar() {
    let runtime = start(&Fake::new(Rule::Scatters)).await;
    let digits = || request(Grammar::answer(Answer::Regex("[0-9]{2,9}".to_owned())));
    let with = |stop_rules| TextRequest {
        stop_rules,
        ..digits()
    };
    let endless = with(StopRules {
        ignore_eos: true,
        ..StopRules::default()
    });
    let said = run(&runtime, endless).await;
    assert_eq!(
        (said.text.len(), said.reason()),
        (9, FinishReason::EndOfTurn)
    );

    let long = with(StopRules {
        min_tokens: 7,
        ..StopRules::default()
    });
    let said = run(&runtime, long).await;
    assert!((7..=9).contains(&said.text.len()), "{}", said.text);

    // A token that ends the text is allowed where the grammar accepts, and nowhere else.
    for seed in 0..8 {
        let mut stopped = with(StopRules {
            stop_token_ids: (0..=255).collect(),
            ..StopRules::default()
        });
        stopped.sampling.seed = Some(seed);
        let said = run(&runtime, stopped).await;
        assert!(
            matches!(said.end, Err(Failure::BadRequest(_))),
            "{:?}",
            said.end
        );
    }
    let stop = TextRequest {
        stop: vec!["5".to_owned(), "6".to_owned(), "7".to_owned()],
        ..digits()
    };
    let said = run(&runtime, stop).await;
    assert!(!said.text.contains(['5', '6', '7']), "{}", said.text);
}

#[tokio::test]
async fn text_is_free_until_a_call_begins() {
    let grammar = |markup| Grammar {
        thought: Thought::None,
        calls: Some(calls(markup, false)),
        answer: Answer::Text,
    };
    let free = start(&Fake::new(Rule::Says("just {words} <tool"))).await;
    let mut asked = request(grammar(ToolMarkup::Tagged));
    asked.sampling.temperature = Some(0.0);
    assert_eq!(run(&free, asked.clone()).await.text, "just {words} <tool");
    asked.grammar = Some(Arc::new(grammar(ToolMarkup::Listed)));
    assert_eq!(run(&free, asked.clone()).await.text, "just {words} <tool");
    asked.grammar = Some(Arc::new(grammar(ToolMarkup::Bare)));
    assert_eq!(run(&free, asked.clone()).await.text, "just {words} <tool");

    let says = "Well. <tool_call>{\"name\": \"gone\", \"arguments\": {}}</tool_call>";
    let wrong = start(&Fake::new(Rule::Says(says))).await;
    asked.grammar = Some(Arc::new(grammar(ToolMarkup::Tagged)));
    let said = run(&wrong, asked).await;
    let (content, calls) = told(ToolMarkup::Tagged, &said.text);
    assert!(content.starts_with("Well."), "{}", said.text);
    assert!(
        matches!(calls[0].0.as_str(), "greet" | "leave"),
        "{}",
        said.text
    );
}

#[tokio::test]
async fn an_answer_after_a_thought_keeps_to_its_schema() {
    for thought in [Thought::Open, Thought::Possible] {
        let says = match thought {
            Thought::Open => "so {it} is</think>\n\n{\"name\": \"a\", \"x",
            _ => "<think>so {it} is</think>\n\n{\"name\": \"a\", \"x",
        };
        let runtime = start(&Fake::new(Rule::Says(says))).await;
        let mut asked = request(Grammar {
            thought,
            calls: None,
            answer: Answer::JsonSchema(person()),
        });
        asked.sampling.temperature = Some(0.0);
        let said = run(&runtime, asked).await;
        let (thought, answer) = said.text.split_once("</think>").unwrap();
        assert!(thought.ends_with("so {it} is"), "{thought}");
        assert!(is_person(answer.trim()), "{answer}");
    }
}

#[tokio::test]
async fn a_mark_inside_a_thought_begins_no_call() {
    for markup in [ToolMarkup::Tagged, ToolMarkup::Listed, ToolMarkup::Bare] {
        let says = "<think>a <tool_call>[TOOL_CALLS]{ is none</think>\n\nNo.";
        let runtime = start(&Fake::new(Rule::Says(says))).await;
        let mut asked = request(Grammar {
            thought: Thought::Possible,
            calls: Some(calls(markup, false)),
            answer: Answer::Text,
        });
        asked.sampling.temperature = Some(0.0);
        assert_eq!(run(&runtime, asked).await.text, says);
    }
}

fn refused(failure: Result<Generation, Failure>) -> String {
    match failure {
        Err(Failure::BadRequest(message)) => message,
        Err(other) => panic!("refused for another reason: {other}"),
        Ok(_) => panic!("the grammar was taken"),
    }
}

#[tokio::test]
async fn what_cannot_be_enforced_is_refused_with_its_path() {
    let runtime = start(&Fake::new(Rule::Scatters)).await;
    let cases = [
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}),
            ".properties.a.uniqueItems",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"not": {"type": "null"}}]}),
            ".anyOf[1].not",
        ),
        (json!({"$ref": "https://example.com/schema"}), ".$ref"),
        (json!({"x-guidance": {"lenient": true}}), ".x-guidance"),
        (json!({"type": "strange"}), ""),
        (json!({"type": "string", "pattern": "("}), ""),
        (json!({"type": "integer", "minimum": 5, "maximum": 4}), ""),
        (json!({"$ref": "#/$defs/missing"}), ""),
        (json!(false), "no value"),
    ];
    for (schema, part) in cases {
        let grammar = Grammar::answer(Answer::JsonSchema(schema.clone()));
        let message = refused(runtime.generate(request(grammar)).await);
        assert!(message.contains(part), "{schema}: {message}");
        assert!(
            message.len() < 500 && !message.contains("panic"),
            "{message}"
        );
    }
    let answers = [
        Answer::Regex("(".to_owned()),
        Answer::Regex(String::new()),
        Answer::Lark("start: missing".to_owned()),
        Answer::Lark(String::new()),
        Answer::Choice(Vec::new()),
    ];
    for answer in answers {
        let generation = runtime
            .generate(request(Grammar::answer(answer.clone())))
            .await;
        if answer != Answer::Regex(String::new()) {
            refused(generation);
        }
    }
}

#[tokio::test]
async fn tokens_that_do_not_fit_the_grammar_are_refused() {
    let runtime = start(&Fake::new(Rule::Scatters)).await;
    let foreign = TextRequest {
        generated: vec![66, 67],
        ..request(Grammar::answer(Answer::JsonObject))
    };
    let message = refused(runtime.generate(foreign).await);
    assert!(message.contains("generated does not fit"), "{message}");
}

#[tokio::test]
async fn hostile_grammars_are_refused_within_seconds_while_others_go_on() {
    let runtime = start(&Fake::new(Rule::Rambles)).await;
    let free = TextRequest {
        grammar: None,
        max_tokens: Some(4000),
        ..request(Grammar::answer(Answer::Text))
    };
    let other = runtime.generate(free).await.unwrap();
    let mut nested = json!({"type": "string"});
    for _ in 0..100 {
        nested = json!({"type": "array", "items": nested});
    }
    let exponential = |key: &str| {
        let branch = |i: usize| {
            let part = |k: usize| json!({"properties": {format!("p{i}"): {"const": k}}});
            json!({key: [part(0), part(1), part(2)]})
        };
        json!({"allOf": (0..24).map(branch).collect::<Vec<_>>()})
    };
    let hostile = [
        Answer::JsonSchema(nested),
        Answer::JsonSchema(exponential("anyOf")),
        Answer::JsonSchema(exponential("oneOf")),
        Answer::JsonSchema(json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}})),
        Answer::JsonSchema(json!({"enum": vec!["x".repeat(1000); 1000]})),
        Answer::Regex("a".repeat(1 << 20)),
        Answer::Regex("(((a{1000}){1000}){1000})b".to_owned()),
        Answer::Lark("start: start \"a\" | ".repeat(10_000)),
    ];
    for (index, answer) in hostile.into_iter().enumerate() {
        let began = Instant::now();
        let mut asked = request(Grammar::answer(answer));
        asked.max_tokens = Some(3);
        let is_refused = runtime.generate(asked).await.is_err();
        let took = began.elapsed();
        assert!(is_refused, "grammar {index} was taken");
        assert!(
            took < Duration::from_secs(5),
            "grammar {index} took {took:?}"
        );
    }
    assert_eq!(listen(other).await.reason(), FinishReason::Length);
}

#[tokio::test]
async fn a_compiled_grammar_is_kept() {
    let runtime = start(&Fake::new(Rule::Scatters)).await;
    let properties = (0..200).map(|i| (format!("field_{i}"), json!({"type": "string"})));
    let properties: serde_json::Map<String, Value> = properties.collect();
    let schema = json!({"type": "object", "properties": properties});
    let grammar = Grammar::answer(Answer::JsonSchema(schema));
    let mut asked = request(grammar);
    asked.max_tokens = Some(1);
    let mut times = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        runtime.generate(asked.clone()).await.unwrap();
        times.push(began.elapsed());
    }
    let later = times[1..].iter().min().unwrap();
    assert!(*later < times[0], "{times:?}");
}
