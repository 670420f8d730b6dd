//! Styles and collections: lookup by id, name and page, partial changes, and deletion.

use serde_json::json;
use uuid::Uuid;

use super::on_both_engines;
use super::scratch::{SOUND, Scratch};
use crate::kudos::{Cause, Posting};
use crate::storage::{
    CollectionChange, Dues, NewCollection, NewStyle, NotNamed, RequestRow, Store, StylePage, Wanted,
};
use crate::values::styles::{
    Example, ExampleChange, NotChanged, Params, Recipe, RecipeChange, Style, Use,
};
use crate::values::{NewSharedKey, Roles};
use muster_protocol::job::{AccountId, Kind, Kudos, RequestId, SharedKeyId, UnixMillis};
use muster_protocol::legacy::shared_key::JobLimits;
use muster_protocol::legacy::style::{PAGE, Sort};
use muster_protocol::legacy::words::Making;

on_both_engines! {
    a_style_is_found_by_id_and_by_name,
    a_change_touches_what_it_names,
    pages_hold_every_public_style_once,
    examples_are_changed_one_at_a_time,
    a_collection_holds_its_styles_in_order_until_they_go,
    a_use_is_paid_as_far_as_the_floor_allows,
    a_style_is_paid_for_by_a_key_of_its_owner_which_works_alone_again_without_it,
}

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

async fn account(store: &Store, name: &str) -> AccountId {
    store.create_account(name, Roles::USER, NOW).await.unwrap()
}

fn recipe(name: &str, making: Making) -> Recipe {
    Recipe {
        name: name.to_owned(),
        info: None,
        prompt: "{p}{np}".to_owned(),
        params: Params::read(making, &json!({"min_p": 0.5, "steps": 7}).to_string()).unwrap(),
        public: true,
        nsfw: false,
        tags: vec!["new".to_owned()],
        models: vec!["m".to_owned(), "n".to_owned()],
    }
}

async fn made(store: &Store, owner: AccountId, recipe: Recipe) -> Uuid {
    let id = Uuid::new_v4();
    let style = NewStyle {
        id,
        owner,
        recipe,
        shared_key: None,
        created_at: NOW,
    };
    assert_eq!(store.create_style(style).await.unwrap(), Ok(()));
    id
}

async fn named(store: &Store, owner: Option<AccountId>, making: Making) -> Option<Uuid> {
    let style = store.style_named(owner, "oil", making).await.unwrap();
    style.map(|style: Style| style.id)
}

async fn a_style_is_found_by_id_and_by_name(scratch: Scratch) {
    let store = scratch.open().await;
    let (alice, bob) = (account(&store, "alice").await, account(&store, "bob").await);
    let hidden = Recipe {
        public: false,
        ..recipe("oil", Making::Image)
    };
    let hers = made(&store, alice, hidden).await;
    let his = made(&store, bob, recipe("oil", Making::Image)).await;
    let style = store.style(his).await.unwrap().unwrap();
    assert_eq!(
        (style.creator(), &style.recipe),
        (format!("bob#{}", bob.0), &recipe("oil", Making::Image))
    );
    assert_eq!(named(&store, Some(alice), Making::Image).await, Some(hers));
    // Public styles before private ones, and the requested kind before both.
    assert_eq!(named(&store, None, Making::Image).await, Some(his));
    let carol = account(&store, "carol").await;
    let text = made(&store, carol, recipe("oil", Making::Text)).await;
    assert_eq!(named(&store, None, Making::Text).await, Some(text));
    assert_eq!(named(&store, None, Making::Image).await, Some(his));
    let again = NewStyle {
        id: Uuid::new_v4(),
        owner: bob,
        recipe: recipe("oil", Making::Text),
        shared_key: None,
        created_at: NOW,
    };
    assert_eq!(
        store.create_style(again).await.unwrap(),
        Err(NotNamed::Taken)
    );
    assert_eq!(store.delete_style(his).await, Ok(true));
    assert_eq!(store.delete_style(his).await, Ok(false));
    assert_eq!(store.style(his).await.unwrap(), None);
    assert_eq!(
        store.style_named(None, "a\0b", Making::Text).await.unwrap(),
        None
    );
}

async fn a_change_touches_what_it_names(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = account(&store, "alice").await;
    let id = made(&store, alice, recipe("oil", Making::Image)).await;
    made(&store, alice, recipe("ink", Making::Image)).await;
    let change = RecipeChange {
        info: Some("with a brush".to_owned()),
        tags: Some(vec!["old".to_owned(), "old".to_owned()]),
        public: Some(false),
        ..RecipeChange::default()
    };
    let changed = store.change_style(id, change.clone(), None).await.unwrap();
    assert_eq!(changed, Ok(()));
    let style = store.style(id).await.unwrap().unwrap();
    assert_eq!(style.recipe, recipe("oil", Making::Image).changed(change));
    let rename = |name: &str| RecipeChange {
        name: Some(name.to_owned()),
        ..RecipeChange::default()
    };
    let taken = store.change_style(id, rename("ink"), None).await.unwrap();
    assert_eq!(taken, Err(NotNamed::Taken));
    let same = store.change_style(id, rename("oil"), None).await.unwrap();
    assert_eq!(same, Ok(()));
    let gone = store.change_style(Uuid::new_v4(), rename("x"), None).await;
    assert_eq!(gone.unwrap(), Err(NotNamed::Gone));
}

async fn pages_hold_every_public_style_once(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = account(&store, "alice").await;
    let mut all = Vec::new();
    for number in 0..60 {
        let recipe = Recipe {
            public: number % 10 != 0,
            tags: vec![format!("tag {}", number % 3)],
            ..recipe(&format!("style {number}"), Making::Text)
        };
        let (public, id) = (recipe.public, made(&store, alice, recipe).await);
        all.extend(public.then_some((number, id)));
    }
    let page = |sort, page, tag: Option<&str>| StylePage {
        making: Making::Text,
        sort,
        page,
        tag: tag.map(str::to_owned),
        model: Some("n".to_owned()),
    };
    for sort in [Sort::Age, Sort::Popular] {
        let mut found = Vec::new();
        for (number, expected) in [PAGE, PAGE, 4, 0].into_iter().enumerate() {
            let styles = store
                .styles(&page(sort, number as u32, None))
                .await
                .unwrap();
            assert_eq!(styles.len(), expected);
            found.extend(styles.into_iter().map(|style| style.id));
        }
        assert_eq!(found, all.iter().map(|(_, id)| *id).collect::<Vec<_>>());
    }
    let tagged = store
        .styles(&page(Sort::Age, 0, Some("tag 1")))
        .await
        .unwrap();
    let expected = all.iter().filter(|(number, _)| number % 3 == 1);
    assert!(
        tagged
            .iter()
            .map(|style| &style.id)
            .eq(expected.map(|(_, id)| id))
    );
    let mut none = page(Sort::Age, 0, None);
    none.model = Some("nobody's".to_owned());
    assert!(store.styles(&none).await.unwrap().is_empty());
    let last = store.styles(&page(Sort::Age, u32::MAX, None)).await;
    assert!(last.unwrap().is_empty());
}

async fn examples_are_changed_one_at_a_time(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = account(&store, "alice").await;
    let style = made(&store, alice, recipe("oil", Making::Image)).await;
    let example = |number: u128| Example {
        id: Uuid::from_u128(number),
        url: format!("https://example.org/{number}"),
        primary: number == 1,
    };
    for number in 1..=4 {
        let add = ExampleChange::Add(example(number));
        assert_eq!(store.change_examples(style, add).await.unwrap(), Ok(()));
    }
    let add = || ExampleChange::Add(example(5));
    let refused = store.change_examples(style, add()).await.unwrap();
    assert_eq!(refused, Err(NotChanged::TooMany));
    let lost = store.change_examples(Uuid::new_v4(), add()).await.unwrap();
    assert_eq!(lost, Err(NotChanged::NoStyle));
    let found = store.style(style).await.unwrap().unwrap().examples;
    assert_eq!(found, (1..=4).map(example).collect::<Vec<_>>());
}

async fn a_collection_holds_its_styles_in_order_until_they_go(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = account(&store, "alice").await;
    let mut styles = Vec::new();
    for name in ["one", "two", "three"] {
        styles.push(made(&store, alice, recipe(name, Making::Image)).await);
    }
    styles.reverse();
    let id = Uuid::new_v4();
    let new = NewCollection {
        id,
        owner: alice,
        making: Making::Image,
        name: "all".to_owned(),
        info: None,
        public: true,
        members: styles.clone(),
        created_at: NOW,
    };
    assert_eq!(store.create_collection(new.clone()).await.unwrap(), Ok(()));
    let again = NewCollection {
        id: Uuid::new_v4(),
        ..new
    };
    assert_eq!(
        store.create_collection(again).await.unwrap(),
        Err(NotNamed::Taken)
    );
    let members = async || {
        let found = store.collection(id).await.unwrap().unwrap();
        found
            .members
            .iter()
            .map(|member| member.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(members().await, styles);
    store.delete_style(styles[0]).await.unwrap();
    assert_eq!(members().await, styles[1..]);
    let change = CollectionChange {
        members: Some(vec![styles[2], styles[2], styles[0]]),
        ..CollectionChange::default()
    };
    assert_eq!(store.change_collection(id, change).await.unwrap(), Ok(()));
    assert_eq!(members().await, styles[2..]);
    let listed = |making| store.collections(making, Sort::Popular, 0);
    assert_eq!(listed(None).await.unwrap()[0].members.len(), 1);
    assert!(listed(Some(Making::Text)).await.unwrap().is_empty());
    let named = store
        .collection_named(Some(alice), "all", Making::Text)
        .await;
    assert_eq!(named.unwrap().map(|found| found.id), Some(id));
    assert_eq!(store.delete_collection(id).await, Ok(true));
    assert_eq!(store.collection(id).await.unwrap(), None);
}

async fn a_use_is_paid_as_far_as_the_floor_allows(scratch: Scratch) {
    let store = scratch.open().await;
    let (alice, bob) = (account(&store, "alice").await, account(&store, "bob").await);
    let style = made(&store, alice, recipe("oil", Making::Text)).await;
    let used = Use {
        style,
        collection: None,
        owner: alice,
        shared_key: None,
    };
    let balances = async || {
        let of = |account| store.balance(account);
        (of(alice).await.unwrap().0, of(bob).await.unwrap().0)
    };
    let ask = |account, fee| {
        let request = RequestRow {
            id: RequestId::random(),
            account,
            kind: Kind::Text,
            body: String::new(),
            accepted_at: NOW,
            expires_at: NOW,
            wanted: Wanted::Everything,
            fee: Kudos(fee),
        };
        let dues = Dues {
            style: Some(used),
            ..Dues::default()
        };
        store.accept(request, dues)
    };
    let (hers, his) = balances().await;
    let gift = Posting::from_house(Cause::Award, bob, Kudos(4000), NOW);
    store.post(gift).await.unwrap();
    // The reward does not exceed the payer's balance.
    for (paid, left) in [(2000, 1000), (3000, 0), (3000, 0)] {
        ask(bob, 3000).await.unwrap();
        assert_eq!(balances().await, (hers + paid, his + left));
    }
    ask(alice, 1000).await.unwrap();
    assert_eq!(balances().await, (hers + 2000, his));
    assert_eq!(store.style(style).await.unwrap().unwrap().use_count, 4);
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn key_of(store: &Store, owner: AccountId) -> SharedKeyId {
    let id = SharedKeyId(Uuid::new_v4());
    let key = NewSharedKey {
        id,
        sealed: "v1.sealed".to_owned(),
        owner,
        name: None,
        budget: None,
        expires_at: None,
        limits: JobLimits {
            image_pixels: -1,
            image_steps: -1,
            text_tokens: -1,
        },
        now: NOW,
        most: 9,
    };
    assert_eq!(store.create_shared_key(key).await, Ok(true));
    id
}

async fn a_style_is_paid_for_by_a_key_of_its_owner_which_works_alone_again_without_it(
    scratch: Scratch,
) {
    let store = scratch.open().await;
    let (alice, bob) = (account(&store, "alice").await, account(&store, "bob").await);
    let (hers, his) = (key_of(&store, alice).await, key_of(&store, bob).await);
    let style = |name: &str, shared_key| NewStyle {
        id: Uuid::new_v4(),
        owner: alice,
        recipe: recipe(name, Making::Image),
        shared_key: Some(shared_key),
        created_at: NOW,
    };
    let of_a_stranger = store.create_style(style("oil", his)).await.unwrap();
    assert_eq!(of_a_stranger, Err(NotNamed::NoKey));
    let plain = made(&store, alice, recipe("oil", Making::Image)).await;
    let taken = store.create_style(style("oil", hers)).await.unwrap();
    assert_eq!(taken, Err(NotNamed::Taken));
    let is_bound = async |key| store.shared_key(key).await.unwrap().unwrap().has_styles;
    assert!(!is_bound(hers).await, "nothing was written");
    let change = |key| store.change_style(plain, RecipeChange::default(), Some(key));
    assert_eq!(change(his).await.unwrap(), Err(NotNamed::NoKey));
    assert_eq!(change(hers).await.unwrap(), Ok(()));
    assert!(is_bound(hers).await && !is_bound(his).await);
    let found = store.style(plain).await.unwrap().unwrap();
    assert_eq!(found.shared_key, Some(hers));
    let among = store.shared_keys_among(&[hers, his]).await.unwrap();
    assert_eq!(among.len(), 2);
    let second = key_of(&store, alice).await;
    assert_eq!(change(second).await.unwrap(), Ok(()));
    assert!(is_bound(second).await && !is_bound(hers).await);
    store.delete_style(plain).await.unwrap();
    assert!(!is_bound(second).await);
    let other = style("ink", hers);
    let id = other.id;
    assert_eq!(store.create_style(other).await.unwrap(), Ok(()));
    assert_eq!(store.remove_shared_key(hers, alice).await, Ok(true));
    assert_eq!(store.style(id).await.unwrap().unwrap().shared_key, None);
}
