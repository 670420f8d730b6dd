//! Rules for examples, recipes and names.

use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::values::styles::{
    Example, ExampleChange, NotChanged, Recipe, RecipeChange, is_findable,
};
use muster_protocol::legacy::style::image::ModelStyleInputImage;
use muster_protocol::legacy::style::text::ModelStyleInputText;
use muster_protocol::legacy::{Body, Code};

fn add(number: u128, primary: bool) -> ExampleChange {
    ExampleChange::Add(Example {
        id: Uuid::from_u128(number),
        url: format!("https://example.org/{number}.webp"),
        primary,
    })
}

fn change(number: u128, primary: bool) -> ExampleChange {
    ExampleChange::Change {
        id: Uuid::from_u128(number),
        url: None,
        primary: Some(primary),
    }
}

fn main_of(examples: &[Example]) -> Vec<u128> {
    let mains = examples.iter().filter(|example| example.primary);
    mains.map(|example| example.id.as_u128()).collect()
}

/// Numbers of the main examples after these changes.
fn after(changes: &[ExampleChange]) -> Vec<u128> {
    let examples = changes.iter().fold(Vec::new(), |examples, change| {
        change.apply(examples).unwrap()
    });
    main_of(&examples)
}

#[test]
fn the_first_example_is_the_main_one_until_another_is() {
    assert_eq!(after(&[add(1, false)]), [1]);
    assert_eq!(after(&[add(1, true)]), [1]);
    assert_eq!(after(&[add(1, false), add(2, false)]), [1]);
    assert_eq!(after(&[add(1, false), add(2, true)]), [2]);
    assert_eq!(after(&[add(1, true), add(2, false), change(2, true)]), [2]);
    assert_eq!(after(&[add(1, true), add(2, false), change(1, false)]), [2]);
    assert_eq!(after(&[add(1, true), change(1, false)]), [1]);
    let gone = ExampleChange::Remove(Uuid::from_u128(1));
    assert_eq!(
        after(&[add(1, true), add(2, false), add(3, false), gone.clone()]),
        [2]
    );
    assert!(after(&[add(1, true), gone]).is_empty());
}

#[test]
fn a_fifth_example_a_url_twice_and_an_unknown_one_are_refused() {
    let four = (1..=4).fold(Vec::new(), |examples, number| {
        add(number, false).apply(examples).unwrap()
    });
    assert_eq!(add(5, false).apply(four.clone()), Err(NotChanged::TooMany));
    let twice = ExampleChange::Change {
        id: Uuid::from_u128(1),
        url: Some(four[1].url.clone()),
        primary: None,
    };
    assert_eq!(twice.apply(four.clone()), Err(NotChanged::SameUrl));
    assert_eq!(change(9, true).apply(four), Err(NotChanged::NoExample));
}

proptest! {
    #[test]
    fn while_there_are_examples_one_is_the_main_one(changes in proptest::collection::vec(some_change(), 0..30)) {
        let mut examples = Vec::new();
        for change in changes {
            examples = change.apply(examples.clone()).unwrap_or(examples);
            assert_eq!(main_of(&examples).len(), usize::from(!examples.is_empty()));
            assert!(examples.len() <= 4);
        }
    }
}

fn some_change() -> impl Strategy<Value = ExampleChange> {
    let number = 0_u128..6;
    prop_oneof![
        (number.clone(), any::<bool>()).prop_map(|(number, primary)| add(number, primary)),
        (number.clone(), any::<bool>()).prop_map(|(number, primary)| change(number, primary)),
        number.prop_map(|number| ExampleChange::Remove(Uuid::from_u128(number))),
    ]
}

fn check_image(change: Value, special: bool, expected: Option<Code>) {
    let mut body = json!({"name": "oil", "models": ["m"]});
    for (name, value) in change.as_object().unwrap() {
        body[name] = value.clone();
    }
    let recipe = Recipe::from(ModelStyleInputImage::read(body).unwrap());
    let refusal = recipe.check(special).err();
    assert_eq!(
        refusal.and_then(|refusal| refusal.code()),
        expected,
        "{change}"
    );
}

#[test]
fn the_parameters_of_a_style_go_together_and_with_its_models() {
    check_image(
        json!({"params": {"steps": 30, "hires_fix": true}}),
        false,
        None,
    );
    check_image(
        json!({"params": {"hires_fix": true}, "models": ["a [Flux]"]}),
        false,
        Some(Code::HiResMismatch),
    );
    check_image(
        json!({"params": {"cfg_scale": 7.123}}),
        false,
        Some(Code::BadCFGDecimals),
    );
    check_image(
        json!({"models": ["GFPGAN"]}),
        false,
        Some(Code::UnexpectedModelName),
    );
    let special = json!({"params": {"special": {"x": 1}}});
    check_image(
        special.clone(),
        false,
        Some(Code::SpecialFieldNeedsSpecialUser),
    );
    check_image(special, true, None);
    check_image(
        json!({"prompt": format!("{{p}}{{np}}{}", "x".repeat(70_000))}),
        false,
        Some(Code::BadRequest),
    );
}

#[test]
fn a_change_leaves_what_it_does_not_name() {
    let body = json!({"name": "oil", "models": ["m"], "tags": ["t"], "params": {"top_k": 3}, "public": false});
    let recipe = Recipe::from(ModelStyleInputText::read(body).unwrap());
    let renamed = recipe.clone().changed(RecipeChange {
        name: Some("ink".to_owned()),
        ..Default::default()
    });
    let expected = Recipe {
        name: "ink".to_owned(),
        ..recipe
    };
    assert_eq!(renamed, expected);
}

#[test]
fn what_reads_as_something_else_is_no_name() {
    for good in ["oil", "my style", "a::b", "naïve #1", "style"] {
        assert!(is_findable(good), "{good}");
    }
    for bad in [
        "style::oil",
        "collection::oil",
        "alice#1::oil",
        "00000000-0000-0000-0000-000000000001",
    ] {
        assert!(!is_findable(bad), "{bad}");
    }
}
