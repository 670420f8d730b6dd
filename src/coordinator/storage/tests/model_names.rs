//! Further names of models.

use super::on_both_engines;
use super::scratch::Scratch;
use crate::storage::ModelName;

on_both_engines! {
    names_of_models_outlast_the_process,
}

async fn names_of_models_outlast_the_process(scratch: Scratch) {
    let named = |name: &str, model: &str| ModelName {
        name: name.to_owned(),
        model: model.to_owned(),
    };
    let before = scratch.open().await;
    assert!(before.name_model(named("b", "tiny")).await.unwrap());
    assert!(before.name_model(named("a", "tiny")).await.unwrap());
    assert!(before.name_model(named("b", "big")).await.unwrap());
    drop(before);
    let after = scratch.open().await;
    let names = [named("a", "tiny"), named("b", "big")];
    assert_eq!(after.model_names().await.unwrap(), names);
    assert!(after.remove_model_name("a".to_owned()).await.unwrap());
    assert!(!after.remove_model_name("a".to_owned()).await.unwrap());
    assert_eq!(after.model_names().await.unwrap(), names[1..]);
}
