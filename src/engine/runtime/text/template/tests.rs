//! Templates in the style of the families we serve, written for these tests.

use serde_json::json;

use super::ChatTemplate;
use crate::runtime::Chat;

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(&[("default".to_owned(), source.to_owned())], "<s>", "</s>").unwrap()
}

fn chat(messages: serde_json::Value) -> Chat {
    Chat {
        messages: messages.as_array().unwrap().clone(),
        ..Chat::default()
    }
}

fn check(source: &str, chat: &Chat, wanted: &str) {
    assert_eq!(template(source).render(chat), Ok(wanted.to_owned()));
}

const LLAMA_3: &str = r#"{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}{{- tool_call.arguments | tojson }}{{- "}" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"#;

#[test]
fn reasoning_before_a_call_is_thinking_where_a_template_says_so() {
    let source = "{% for message in messages %}{% if message.thinking %}({{ message.thinking }}){% endif %}{{ message.content or '' }};{% endfor %}";
    let call = json!([{"function": {"name": "look", "arguments": {}}}]);
    let messages = json!([
        {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": call},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": call},
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."},
    ]);
    check(source, &chat(messages), "(Hm.);I look.;Yes.;");
}

#[test]
fn a_template_in_the_style_of_llama_3_renders() {
    let mut dated = chat(json!([
        {"role": "system", "content": " Be brief. "},
        {"role": "user", "content": "Hi\n"},
    ]));
    dated
        .variables
        .insert("date_string".to_owned(), "1 Jan".into());
    check(
        LLAMA_3,
        &dated,
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 1 Jan\n\nBe brief.<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    );
    let rendered = template(LLAMA_3)
        .render(&chat(json!([{"role": "user", "content": "x"}])))
        .unwrap();
    assert!(rendered.contains(" 20"), "today has a year: {rendered}");
}

#[test]
fn what_a_template_refuses_reaches_the_user() {
    let call = json!({"function": {"name": "f", "arguments": {"b": 1, "a": [true]}}});
    let two = chat(json!([{"role": "assistant", "tool_calls": [call, call]}]));
    let refusal = template(LLAMA_3).render(&two).unwrap_err().to_string();
    let wanted = "the model's chat template refuses the messages: This model only supports single tool-calls at once!";
    assert_eq!(refusal, wanted);
    let one = chat(json!([{"role": "assistant", "tool_calls": [call]}]));
    let rendered = template(LLAMA_3).render(&one).unwrap();
    assert!(
        rendered.contains(r#"{"name": "f", "parameters": {"b": 1, "a": [true]}}"#),
        "{rendered}"
    );
}

const QWEN_25: &str = r#"{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- else %}{{- 'You are a helper.' }}{%- endif %}
    {{- "\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"#;

#[test]
fn a_template_in_the_style_of_qwen_25_takes_tools() {
    let mut with_tools = chat(json!([
        {"role": "user", "content": "weather?"},
        {"role": "tool", "content": "sun"},
        {"role": "tool", "content": "wind"},
    ]));
    with_tools.tools =
        vec![json!({"type": "function", "function": {"name": "look", "strict": false}})];
    check(
        QWEN_25,
        &with_tools,
        "<|im_start|>system\nYou are a helper.\n<tools>\n\
         {\"type\": \"function\", \"function\": {\"name\": \"look\", \"strict\": false}}\n</tools><|im_end|>\n\
         <|im_start|>user\nweather?<|im_end|>\n\
         <|im_start|>user\n<tool_response>\nsun\n</tool_response>\n<tool_response>\nwind\n</tool_response><|im_end|>\n\
         <|im_start|>assistant\n",
    );
}

const QWEN_3: &str = r#"{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"#;

#[test]
fn a_template_in_the_style_of_qwen_3_forgets_old_thoughts_and_can_be_told_not_to_think() {
    let mut talk = chat(json!([
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\n1"},
        {"role": "user", "content": "two"},
    ]));
    let told = "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n1<|im_end|>\n\
                <|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n";
    check(QWEN_3, &talk, told);
    talk.variables
        .insert("enable_thinking".to_owned(), false.into());
    check(QWEN_3, &talk, &format!("{told}<think>\n\n</think>\n\n"));
}

#[test]
fn the_template_for_tools_is_used_when_there_are_tools() {
    let named = [("default", "plain"), ("tool_use", "tools")]
        .map(|(name, text)| (name.to_owned(), text.to_owned()));
    let templates = ChatTemplate::new(&named, "", "").unwrap();
    let mut request = chat(json!([]));
    assert_eq!(templates.render(&request), Ok("plain".to_owned()));
    request.tools = vec![json!({})];
    assert_eq!(templates.render(&request), Ok("tools".to_owned()));
}

#[test]
fn a_template_that_does_not_end_is_stopped() {
    let endless =
        "{% for a in range(100000) %}{% for b in range(100000) %}{{ b }}{% endfor %}{% endfor %}";
    let refusal = template(endless)
        .render(&chat(json!([])))
        .unwrap_err()
        .to_string();
    assert!(
        refusal.starts_with("the model's chat template failed: engine ran out of fuel"),
        "{refusal}"
    );
    let flood = "{% set long = 'x' * 1000000 %}{% for a in range(100) %}{{ long }}{% endfor %}";
    let refusal = template(flood)
        .render(&chat(json!([])))
        .unwrap_err()
        .to_string();
    assert!(
        refusal.contains("the output exceeds 16777216 bytes"),
        "{refusal}"
    );
}

#[test]
fn training_marks_are_no_output() {
    let source = "{% for m in messages %}{%- generation -%} {{ m.content }} {%- endgeneration %}{% endfor %}";
    check(
        source,
        &chat(json!([{"content": "a"}, {"content": "b"}])),
        "ab",
    );
}

#[test]
fn a_template_with_a_mistake_is_refused_with_its_line() {
    let broken = ChatTemplate::new(&[("default".to_owned(), "a\n{% if %}".to_owned())], "", "");
    let error = broken.err().unwrap().to_string();
    assert!(
        error.starts_with("the chat template is invalid: syntax error") && error.contains("line 2"),
        "{error}"
    );
}
