//! Settings changed in the text of a configuration file. Comments, order and blank lines stay.

use toml_edit::{Array, DocumentMut, Item, RawString, Table, TableLike, Value};

use super::problem::ConfigError;
use super::setting::Setting;
use super::sources::Sources;
use super::{Config, nearest, sections};

/// A setting and its new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    /// `section.key`
    pub name: String,
    /// In TOML, or a text or a list without quotes: `22:00-07:00, sat`. `None` deletes the setting from the file.
    pub value: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("there is no setting {0}{1}")]
    Unknown(String, String),
    #[error("{0}")]
    Syntax(String),
    #[error("{name} stands in the file in a way that cannot be changed here: edit the file")]
    Shape { name: String },
    #[error(transparent)]
    Wrong(#[from] ConfigError),
}

/// The text of a file with these changes. A value is taken as TOML, else as a text, else as a list of texts: the first of
/// them with which the configuration is valid.
pub fn change(
    text: &str,
    changes: &[SettingChange],
    sources: &Sources,
) -> Result<String, ChangeError> {
    let mut text = text.to_owned();
    for change in changes {
        let setting = setting(&change.name)?;
        let Some(value) = &change.value else {
            text = without(&text, setting)?;
            Config::load_text(sources, &text)?;
            continue;
        };
        let mut first_error = None;
        let mut changed = None;
        for value in readings(value) {
            let candidate = with(&text, setting, value)?;
            match Config::load_text(sources, &candidate) {
                Ok(_) => {
                    changed = Some(candidate);
                    break;
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        text = match (changed, first_error) {
            (Some(changed), _) => changed,
            (None, Some(error)) => return Err(error.into()),
            // A text is always among the readings.
            (None, None) => text,
        };
    }
    Ok(text)
}

fn setting(name: &str) -> Result<&'static Setting, ChangeError> {
    let all = || sections().into_iter().flatten();
    if let Some(setting) = all().find(|setting| setting.name() == name) {
        return Ok(setting);
    }
    let names: Vec<String> = all().map(Setting::name).collect();
    let near = nearest(name, names.iter().map(String::as_str));
    let advice = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    Err(ChangeError::Unknown(name.to_owned(), advice))
}

/// The possible meanings of a typed value, the most literal first.
fn readings(typed: &str) -> Vec<Value> {
    let typed = typed.trim();
    let literal = typed.parse::<Value>().ok();
    let literal = literal.filter(|value| !value.is_inline_table() && !value.is_datetime());
    let parts = typed.split(',').map(str::trim);
    let list: Array = parts.filter(|part| !part.is_empty()).collect();
    let others = [Value::from(typed), Value::from(list)];
    literal.into_iter().chain(others).collect()
}

fn parse(text: &str) -> Result<DocumentMut, ChangeError> {
    let parsed = text.parse::<DocumentMut>();
    parsed.map_err(|error| ChangeError::Syntax(error.to_string()))
}

fn with(text: &str, setting: &Setting, mut value: Value) -> Result<String, ChangeError> {
    let mut document = parse(text)?;
    let shape = || ChangeError::Shape {
        name: setting.name(),
    };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for name in setting.section.split('.') {
        let item = table
            .entry(name)
            .or_insert_with(|| Item::Table(Table::new()));
        table = item.as_table_like_mut().ok_or_else(shape)?;
    }
    match table.get_mut(setting.key) {
        Some(item) => {
            let old = item.as_value_mut().ok_or_else(shape)?;
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => {
            table.insert(setting.key, Item::Value(value));
        }
    }
    Ok(document.to_string())
}

fn without(text: &str, setting: &Setting) -> Result<String, ChangeError> {
    let mut document = parse(text)?;
    let mut item = Some(document.as_item_mut());
    for name in setting.section.split('.') {
        item = item.and_then(|item| item.get_mut(name));
    }
    let Some(item) = item else {
        return Ok(text.to_owned());
    };
    match item {
        Item::Table(table) => remove(table, setting.key),
        other => {
            if let Some(table) = other.as_table_like_mut() {
                table.remove(setting.key);
            }
        }
    }
    Ok(document.to_string())
}

/// Takes a key out of a table. The comments of the key stay, after the line before.
fn remove(table: &mut Table, key: &str) {
    let keys: Vec<String> = table.iter().map(|(name, _)| name.to_owned()).collect();
    let Some(at) = keys.iter().position(|name| name == key) else {
        return;
    };
    let above = table
        .key(key)
        .and_then(|key| key.leaf_decor().prefix())
        .map(text_of);
    let beside = table
        .get(key)
        .and_then(Item::as_value)
        .and_then(|value| value.decor().suffix())
        .map(text_of);
    let comments = format!(
        "{}{}",
        above.unwrap_or_default(),
        beside.unwrap_or_default().trim_start()
    );
    table.remove(key);
    if !comments.contains('#') {
        return;
    }
    let before = at.checked_sub(1).and_then(|at| keys.get(at));
    let before = before.and_then(|name| table.get_mut(name)?.as_value_mut());
    let decor = match before {
        Some(value) => value.decor_mut(),
        None => table.decor_mut(),
    };
    let suffix = decor.suffix().map(text_of).unwrap_or_default();
    decor.set_suffix(format!("{suffix}\n{}", comments.trim_end()));
}

fn text_of(raw: &RawString) -> String {
    raw.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"# My worker.
[models]
serve = ["demo-text"] # the small one

[owner]
# At night the rates are low.
hours = ["22:00-07:00"] # and never at noon
# My games.
pause_for = [
    "game",
]

# The network.
[[coordinator]]
url = "ws://127.0.0.1:7010"
key = "env:KEY"
"#;

    fn sources() -> Sources {
        let variables = [("KEY", "k"), ("HOME", "/nonexistent")];
        let owned = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Sources {
            environment: owned.into_iter().collect(),
            ..Sources::default()
        }
    }

    fn changed(text: &str, name: &str, value: Option<&str>) -> Result<String, String> {
        let change_of = SettingChange {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        };
        change(text, &[change_of], &sources()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_changed_value_leaves_the_rest_of_the_file_as_it_is() {
        let text = changed(FILE, "owner.hours", Some("sat, sun")).unwrap();
        let expected = FILE.replace(r#"["22:00-07:00"]"#, r#"["sat", "sun"]"#);
        assert_eq!(text, expected);
        let text = changed(FILE, "owner.most_heat", Some("80")).unwrap();
        let expected = FILE.replace("    \"game\",\n]\n", "    \"game\",\n]\nmost_heat = 80\n");
        assert_eq!(text, expected);
    }

    #[test]
    fn comments_of_a_setting_that_leaves_stay() {
        let text = changed(FILE, "owner.hours", None).unwrap();
        let expected = FILE.replace(
            "hours = [\"22:00-07:00\"] # and never at noon\n",
            "# and never at noon\n",
        );
        assert_eq!(text, expected);
        let text = changed(FILE, "owner.pause_for", None).unwrap();
        assert!(
            text.contains("# and never at noon\n# My games.\n"),
            "{text}"
        );
        assert!(!text.contains("game\""), "{text}");
        assert_eq!(changed(FILE, "owner.idle_for", None).unwrap(), FILE);
    }

    #[test]
    fn a_value_is_read_as_the_setting_wants_it() {
        let check = |name: &str, typed: &str, line: &str| {
            let text = changed("", name, Some(typed)).unwrap();
            assert_eq!(text, format!("[owner]\n{line}\n"));
        };
        check("owner.hours", "22:00-07:00", r#"hours = ["22:00-07:00"]"#);
        check("owner.pause_for", "game", r#"pause_for = ["game"]"#);
        check("owner.pause_for", r#"["a b"]"#, r#"pause_for = ["a b"]"#);
        check("owner.idle_for", "10min", r#"idle_for = "10min""#);
        check("owner.energy_price", "0.31", "energy_price = 0.31");
        check("owner.keep_free", " 2 GiB ", r#"keep_free = "2 GiB""#);
        check("owner.page", "false", "page = false");
    }

    #[test]
    fn a_wrong_value_is_refused_with_the_words_of_its_setting() {
        let error = changed(FILE, "owner.others_load", Some("500")).unwrap_err();
        assert!(error.contains("from 1 to 100, found 500"), "{error}");
        let error = changed(FILE, "owner.hours", Some("25:00-26:00")).unwrap_err();
        assert!(error.contains("owner.hours must be"), "{error}");
        let error = changed(FILE, "owner.hour", Some("1")).unwrap_err();
        assert!(error.contains("did you mean owner.hours?"), "{error}");
        let error = changed("[owner", "owner.hours", Some("sat")).unwrap_err();
        assert!(!error.is_empty());
        let error = changed(FILE, "owner.page", Some("0.0.0.0:7861")).unwrap_err();
        assert!(error.contains("loopback"), "{error}");
    }

    #[test]
    fn sections_in_one_line_are_changed_as_well() {
        let text = changed(
            "owner = { most_heat = 70 }\n",
            "owner.most_heat",
            Some("60"),
        );
        assert_eq!(text.unwrap(), "owner = { most_heat = 60 }\n");
        let text = changed("owner.most_heat = 70\n", "owner.others_load", Some("60"));
        let text = text.unwrap();
        assert!(text.contains("most_heat = 70") && text.contains("others_load = 60"));
    }
}
