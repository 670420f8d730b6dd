use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::sample::Index;

use serde_json::json;

use super::{Markup, OfferedTool, OutputParser, Piece, ToolMarkup};

const QWEN: Markup = Markup {
    thinks: true,
    tools: Some(ToolMarkup::Tagged),
    channels: false,
};
const LLAMA: Markup = Markup {
    thinks: false,
    tools: Some(ToolMarkup::Bare),
    channels: false,
};
const MISTRAL: Markup = Markup {
    thinks: false,
    tools: Some(ToolMarkup::Listed),
    channels: false,
};

const DEEPSEEK: Markup = Markup {
    thinks: true,
    tools: Some(ToolMarkup::Separated),
    channels: false,
};

const QWEN_3_5: Markup = Markup {
    thinks: true,
    tools: Some(ToolMarkup::FunctionTags),
    channels: false,
};
const GLM: Markup = Markup {
    thinks: true,
    tools: Some(ToolMarkup::KeyTags),
    channels: false,
};
const MINISTRAL: Markup = Markup {
    thinks: false,
    tools: Some(ToolMarkup::Named),
    channels: false,
};
const LFM2: Markup = Markup {
    thinks: false,
    tools: Some(ToolMarkup::Pythonic),
    channels: false,
};
const GEMMA: Markup = Markup {
    thinks: true,
    tools: Some(ToolMarkup::Gemma),
    channels: false,
};

fn parser(markup: Markup) -> OutputParser {
    let parameters = json!({"properties": {
        "a": {"type": "integer"}, "s": {"type": "string"}, "list": {"type": "array"},
    }});
    let offered = [
        OfferedTool::new("add", Some(&parameters)),
        OfferedTool::new("now", None),
    ];
    OutputParser::new(markup, offered.into(), false)
}

/// The pieces of a text parsed at once, formatted as `text|think:…|0=name|0+arguments`.
fn read(mut parser: OutputParser, text: &str) -> String {
    let mut pieces = Vec::new();
    parser.push(text, &mut pieces);
    parser.finish(&mut pieces);
    shown(&pieces)
}

fn shown(pieces: &[Piece]) -> String {
    let shown = pieces.iter().map(|piece| match piece {
        Piece::Content(text) => text.clone(),
        Piece::Reasoning(text) => format!("think:{text}"),
        Piece::Call { index, name } => format!("{index}={name}"),
        Piece::Arguments { index, text } => format!("{index}+{text}"),
    });
    shown.collect::<Vec<_>>().join("|")
}

fn check(markup: Markup, text: &str, wanted: &str) {
    assert_eq!(read(parser(markup), text), wanted, "{text}");
}

#[test]
fn tagged_calls_are_found_between_texts() {
    check(QWEN, "Hello <b>you</b>.", "Hello <b>you</b>.");
    check(
        QWEN,
        "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2]}}\n</tool_call>\n",
        r#"Let me see.|0=add|0+{"a": 1, "b": [2]}"#,
    );
    check(
        QWEN,
        r#"<tool_call>{"name":"add","arguments":{}}</tool_call><tool_call>{"name":"now"}</tool_call> Done."#,
        "0=add|0+{}|1=now|1+{}|Done.",
    );
    check(
        QWEN,
        r#"<tool_call>{"arguments": "{\"a\": 1}", "id": 7, "name": "add"}</tool_call>"#,
        r#"0=add|0+{"a": 1}"#,
    );
}

#[test]
fn a_thought_is_told_apart_from_the_answer() {
    check(
        QWEN,
        "<think>\nhm\n\nso\n</think>\n\nYes.",
        "think:hm\n\nso|Yes.",
    );
    check(QWEN, "<think>\n\n</think>\n\nYes.", "Yes.");
    check(QWEN, "<think>hm < 3", "think:hm < 3");
    check(QWEN, "  I <think> so.", "  I <think> so.");
    let inside = OutputParser::new(QWEN, [].into(), true);
    assert_eq!(read(inside, "hm</think>Yes."), "think:hm|Yes.");
    check(
        QWEN,
        r#"<think>a</think><tool_call>{"name": "now", "arguments": {}}</tool_call>"#,
        "think:a|0=now|0+{}",
    );
}

#[test]
fn bare_calls_are_the_whole_answer_and_of_a_known_tool() {
    check(
        LLAMA,
        r#"{"name": "add", "parameters": {"a": "1"}}"#,
        r#"0=add|0+{"a": "1"}"#,
    );
    check(
        LLAMA,
        r#"<|python_tag|>{"name": "add", "parameters": {}}; {"name": "now", "parameters": {}}"#,
        "0=add|0+{}|1=now|1+{}",
    );
    let answer = r#"{"name": "Ann", "parameters": {"age": 7}}"#;
    check(LLAMA, answer, answer);
    check(
        LLAMA,
        r#"It is {"name": "add"}."#,
        r#"It is {"name": "add"}."#,
    );
}

#[test]
fn calls_of_gemma_become_json() {
    check(
        GEMMA,
        "<|channel>thought\nhm\n<channel|>See.<|tool_call>call:add{a:1,b:[<|\"|>x<y<|\"|>,true,{c:<|\"|>\"q\"\n<|\"|>}],d:{}}<tool_call|>",
        r#"think:hm|See.|0=add|0+{"a":1,"b":["x<y",true,{"c":"\"q\"\n"}],"d":{}}"#,
    );
    check(
        GEMMA,
        "<|tool_call>call:now{}<tool_call|><|tool_call>call:add{<|\"|>a key<|\"|>:None, \"b\": \"t\", c: two words,d:-1.50}<tool_call|> Done.",
        r#"0=now|0+{}|1=add|1+{"a key":null,"b":"t","c":"two words","d":-1.50}|Done."#,
    );
    check(GEMMA, "<|channel>thought\n<channel|>Yes.", "Yes.");
    check(GEMMA, "a <|tool_call>no", "a <|tool_call>no");
    check(GEMMA, "<|tool_call>call:{}", "<|tool_call>call:{}");
    let unasked = OutputParser::new(GEMMA, [].into(), false);
    let call = "<|tool_call>call:now{}<tool_call|>";
    assert_eq!(read(unasked, call), call);
}

#[test]
fn listed_calls_follow_their_mark() {
    check(
        MISTRAL,
        r#"[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name": "now", "arguments": {}}]"#,
        r#"0=add|0+{"a": 1}|1=now|1+{}"#,
    );
    check(MISTRAL, "[TOOL] no", "[TOOL] no");
    check(MISTRAL, "[TOOL_CALLS] sorry", "[TOOL_CALLS] sorry");
}

#[test]
fn separated_calls_lie_between_marks() {
    check(
        DEEPSEEK,
        "<think>so</think>See.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": {\"b\": 1}}\
         <｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        r#"think:so|See.|0=add|0+{"a": {"b": 1}}|1=now|1+{}"#,
    );
    // The format of V3 and R1.
    check(
        DEEPSEEK,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": \"```\"}\n```\
         <｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>\
         <｜tool▁calls▁end｜>Done.",
        r#"0=add|0+{"a": "```"}|1=now|1+{}|Done."#,
    );
    for text in [
        "<｜tool▁calls▁begin｜>oops",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁begin｜> <｜tool▁ca",
        "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜><｜tool▁sep｜>{}<｜tool▁call▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```yaml",
        "a <｜tool▁sep｜> b",
    ] {
        check(DEEPSEEK, text, text);
    }
    check(
        DEEPSEEK,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": oops",
        r#"0=add|0+{"a": |oops"#,
    );
}

#[test]
fn what_only_looks_like_a_call_is_text() {
    for text in [
        "<tool_call>oops</tool_call>",
        "<tool_call>",
        "a <tool_cal",
        r#"<tool_call>{"name": 7}</tool_call>"#,
        r#"<tool_call>{"arguments": {}}</tool_call>"#,
        r#"<tool_call>{"name": "add", "arguments": [1]}</tool_call>"#,
        r#" <tool_call>{"name": "add", "argum"#,
    ] {
        check(QWEN, text, text);
    }
    check(
        QWEN,
        r#"<tool_call><tool_call>{"name": "now"}</tool_call>"#,
        "<tool_call>|0=now|0+{}",
    );
}

#[test]
fn a_call_that_breaks_off_keeps_what_was_told() {
    check(
        QWEN,
        r#"<tool_call>{"name": "add", "arguments": {"a": 1"#,
        r#"0=add|0+{"a": 1"#,
    );
    check(
        QWEN,
        r#"<tool_call>{"name": "add", "arguments": {"a": oops"#,
        r#"0=add|0+{"a": |oops"#,
    );
}

#[test]
fn without_tools_nothing_is_a_call() {
    let text = r#"<tool_call>{"name": "add", "arguments": {}}</tool_call>"#;
    assert_eq!(read(OutputParser::new(QWEN, [].into(), false), text), text);
}

#[test]
fn arguments_in_tags_are_what_their_schema_says() {
    check(
        QWEN_3_5,
        "Let me see.\n\n<tool_call>\n<function=add>\n<parameter=a>\n3\n</parameter>\n<parameter=s>\n3 \"b\"\n\n</p>\n\
         </parameter>\n<parameter=list>\n[1, {\"x\": null}]\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n\
         <function=now>\n</function>\n</tool_call>",
        "Let me see.|0=add|0+{\"a\": 3, \"s\": \"3 \\\"b\\\"\\n\\n</p>\", \"list\": [1, {\"x\": null}]}|1=now|1+{}",
    );
    check(
        QWEN_3_5,
        "<tool_call><function=add><parameter=s></parameter><parameter=other>no</parameter></tool_call> Done.",
        r#"0=add|0+{"s": "", "other": "no"}|Done."#,
    );
    check(
        QWEN_3_5,
        r#"<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>"#,
        r#"0=add|0+{"a": 1}"#,
    );
    check(
        QWEN_3_5,
        "<tool_call>\n<function=add>\n<parameter=s>\ncut <",
        r#"0=add|0+{"s": "cut "#,
    );
    for text in [
        "<tool_call>\nno",
        "<tool_call>\n<function=>",
        "<tool",
        "a <function=add>",
    ] {
        check(QWEN_3_5, text, text);
    }
    check(
        GLM,
        "<think>hm</think>\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>3</arg_value>\n<arg_key>s</arg_key>\n\
         <arg_value>\nx</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
        "think:hm|0=add|0+{\"a\": 3, \"s\": \"\\nx\"}|1=now|1+{}",
    );
    check(
        GLM,
        "<tool_call>add<arg_key>a</arg_key><arg_value>3</arg_value></tool_call><tool_call>now</tool_call>Done.",
        r#"0=add|0+{"a": 3}|1=now|1+{}|Done."#,
    );
}

#[test]
fn named_calls_have_their_arguments_behind_a_mark() {
    check(
        MINISTRAL,
        r#"So:[TOOL_CALLS]add[ARGS]{"a": [1]}[TOOL_CALLS]now[CALL_ID]x12[ARGS]{}"#,
        r#"So:|0=add|0+{"a": [1]}|1=now|1+{}"#,
    );
    check(
        MINISTRAL,
        r#"[TOOL_CALLS] [{"name": "now", "arguments": {}}]"#,
        "0=now|0+{}",
    );
    check(MISTRAL, "[TOOL_CALLS]now[ARGS]{}", "0=now|0+{}");
    for text in ["[TOOL_CALLS]add[ARGS]no", "[TOOL_CALLS]add"] {
        check(MINISTRAL, text, text);
    }
}

#[test]
fn pythonic_calls_are_functions_of_python() {
    check(
        LFM2,
        "<|tool_call_start|>[add(a=1, s='it's'), now()]<|tool_call_end|>Done.",
        r#"0=add|0+{"a":1,"s":"it's"}|1=now|1+{}|Done."#,
    );
    check(
        LFM2,
        r#"<|tool_call_start|>[{"name": "add", "arguments": {"a": 1}}]<|tool_call_end|>"#,
        r#"0=add|0+{"a": 1}"#,
    );
    check(
        LFM2,
        "<|tool_call_start|>now()<|tool_call_end|>",
        "0=now|0+{}",
    );
    for text in [
        "<|tool_call_start|>[add(a=b)]",
        "<|tool_call_start|>[3]",
        "<|tool_call_start|>[add(",
    ] {
        check(LFM2, text, text);
    }
}

#[test]
fn templates_say_which_marks_to_expect() {
    let tools = |template: &str| Markup::of([template]).tools;
    assert_eq!(tools("{% if tools %}<tool_call>"), Some(ToolMarkup::Tagged));
    assert_eq!(
        tools("{% if tools %}[TOOL_CALLS]"),
        Some(ToolMarkup::Listed)
    );
    assert_eq!(
        tools("{% if tools %}<|python_tag|>"),
        Some(ToolMarkup::Bare)
    );
    assert_eq!(tools("<tool_call>"), None);
    for (template, wanted) in [
        (
            "<tool_call>\n<function=f>\n<parameter=p>",
            ToolMarkup::FunctionTags,
        ),
        ("<tool_call>{name}\n<arg_key>", ToolMarkup::KeyTags),
        ("[TOOL_CALLS]' + name + '[ARGS]", ToolMarkup::Named),
        ("List of tools: <|tool_list_start|>[", ToolMarkup::Pythonic),
        ("<|tool_call_start|>[", ToolMarkup::Pythonic),
    ] {
        assert_eq!(
            tools(&format!("{{% if tools %}}{template}")),
            Some(wanted),
            "{template}"
        );
    }
    let deepseek = "{% if tools %}<｜tool▁calls▁begin｜>";
    assert_eq!(tools(deepseek), Some(ToolMarkup::Separated));
    let fenced = format!("{deepseek}{{{{ '\\n```json' }}}}");
    assert_eq!(tools(&fenced), Some(ToolMarkup::Fenced));
    assert!(Markup::of(["{{ '</think>' }}"]).thinks);
}

fn fragments() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        Just("<think>"),
        Just("</think>"),
        Just("<tool_call>"),
        Just("</tool_call>"),
        Just("[TOOL_CALLS]"),
        Just("<｜tool▁calls▁begin｜>"),
        Just("<｜tool▁call▁begin｜>"),
        Just("now<｜tool▁sep｜>{\"a\": 1}"),
        Just("function<｜tool▁sep｜>add\n```json\n{}\n```"),
        Just("<｜tool▁call▁end｜>"),
        Just("<｜tool▁calls▁end｜>"),
        Just("<function=add>"),
        Just("<parameter=s>\n"),
        Just("<parameter=a>"),
        Just("\n</parameter>"),
        Just("</function>"),
        Just("now\n<arg_key>s</arg_key>"),
        Just("<arg_value>"),
        Just("</arg_value>"),
        Just("add[ARGS]{\"a\": 1}"),
        Just("<|tool_call_start|>"),
        Just("<|tool_call_end|>"),
        Just("add(a=1, s='it's')"),
        Just("<|python_tag|>"),
        Just(r#"{"name": "add", "arguments": {"a": "\u00e9\n}"}}"#),
        Just(r#"{"parameters": {"b": [1, {}]}, "name": "now"}"#),
        Just(r#"{"name": ""#),
        Just("["),
        Just(","),
        Just(";"),
        Just("]"),
        Just("\n"),
        Just(" "),
        Just("<"),
        Just("é word"),
    ];
    vec(fragment, 0..12).prop_map(|fragments| fragments.concat())
}

fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (all.last_mut(), piece) {
            (Some(Piece::Content(text)), Piece::Content(more))
            | (Some(Piece::Reasoning(text)), Piece::Reasoning(more)) => text.push_str(&more),
            (
                Some(Piece::Arguments { text, index }),
                Piece::Arguments {
                    text: more,
                    index: next,
                },
            ) if *index == next => {
                text.push_str(&more);
            }
            (_, piece) => all.push(piece),
        }
    }
    all
}

proptest! {
    #[test]
    fn any_chunking_of_the_text_gives_the_same_pieces(
        text in prop_oneof![fragments(), any::<String>()],
        cuts in vec(any::<Index>(), 0..8),
        markup in prop_oneof![
            Just(QWEN), Just(LLAMA), Just(MISTRAL), Just(DEEPSEEK), Just(QWEN_3_5), Just(GLM), Just(MINISTRAL),
            Just(LFM2),
        ],
    ) {
        let mut whole = Vec::new();
        let mut at_once = parser(markup);
        at_once.push(&text, &mut whole);
        at_once.finish(&mut whole);

        let letters: Vec<char> = text.chars().collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(letters.len() + 1)).collect();
        cuts.extend([0, letters.len()]);
        cuts.sort_unstable();
        let (mut pieces, mut in_parts) = (Vec::new(), parser(markup));
        for pair in cuts.windows(2) {
            let part: String = letters[pair[0]..pair[1]].iter().collect();
            let mut some = Vec::new();
            in_parts.push(&part, &mut some);
            pieces.extend(some);
        }
        in_parts.finish(&mut pieces);
        assert_eq!(joined(pieces), joined(whole));
    }

    #[test]
    fn nothing_is_lost_where_nothing_is_marked(text in "[^<\\[{]*") {
        for markup in [QWEN, LLAMA, MISTRAL, QWEN_3_5, GLM, MINISTRAL, LFM2] {
            assert_eq!(read(parser(markup), &text), text);
        }
    }
}
