//! Settings of images that came later: which workers are given them, and what those are told.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::images::{self, ASYNC, PNG, with};
use super::post;
use crate::support::app::App;
use crate::support::contract::assert_fits;

/// A pop of this version of the usual program.
async fn pop(app: &App, version: u32, more: Value) -> Value {
    let agent = json!({"bridge_agent": format!("AI Horde Worker reGen:{version}:test")});
    let popped = images::pop(app, with(agent, more)).await;
    assert_fits("GenerationPayloadImage", &popped);
    popped
}

fn assert_skipped(popped: &Value, controlnet: u32, bridge_version: u32) {
    assert!(popped["id"].is_null(), "{popped}");
    let skipped = &popped["skipped"];
    assert_eq!(
        (&skipped["controlnet"], &skipped["bridge_version"]),
        (&json!(controlnet), &json!(bridge_version))
    );
}

fn assert_told(popped: &Value, params: &Value) {
    assert!(popped["id"].is_string(), "{popped}");
    for (name, value) in params.as_object().unwrap() {
        assert_eq!(&popped["payload"][name], value, "{name}");
    }
}

#[tokio::test]
async fn a_newer_sampler_and_its_settings_go_to_software_that_knows_them() {
    let app = App::start().await;
    let params = json!({
        "sampler_name": "er_sde", "scheduler": "beta", "karras": false, "sampler_s_noise": 1.5,
        "sampler_solver_type": "phi_1", "sampler_order": 2,
    });
    images::ask(&app, json!({"params": params})).await;
    assert_skipped(&pop(&app, 13, json!({})).await, 0, 1);
    assert_told(&pop(&app, 17, json!({})).await, &params);
}

#[tokio::test]
async fn a_schedule_that_the_old_flag_can_tell_goes_to_every_worker() {
    let app = App::start().await;
    images::ask(&app, json!({"params": {"scheduler": "normal"}})).await;
    let popped = pop(&app, 13, json!({})).await;
    assert_told(&popped, &json!({"karras": false}));
    assert!(popped["payload"].get("scheduler").is_none(), "{popped}");
}

#[tokio::test]
async fn later_kinds_of_control_maps_go_to_owners_who_allow_them_apart() {
    let app = App::start().await;
    let params = json!({"control_type": "lineart", "control_strength": 0.75});
    images::ask(&app, json!({"source_image": PNG, "params": params})).await;
    let classic = json!({"allow_controlnet": true});
    let all = json!({"allow_controlnet": true, "allow_extended_controlnet": true});
    assert_skipped(&pop(&app, 13, all.clone()).await, 0, 1);
    assert_skipped(&pop(&app, 17, all.clone()).await, 0, 1);
    assert_skipped(&pop(&app, 18, classic).await, 1, 0);
    assert_told(&pop(&app, 18, all).await, &params);
}

#[tokio::test]
async fn who_shifts_the_flow_of_a_model_that_has_none_is_told_where() {
    let app = App::start().await;
    let asked = json!({"prompt": "a cat", "models": ["tiny"], "params": {"flow_shift": 3}});
    let (status, told) = post(&app, ASYNC, asked).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{told}");
    assert!(told["errors"]["params.flow_shift"].is_string(), "{told}");
    assert_eq!(told["rc"], "FlowShiftInapplicable");
}
