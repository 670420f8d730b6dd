//! Results of the hardware probe, on made-up and real machines.

use muster::hardware::readings::{CardReading, NoDriver};

use crate::support::machines::{MIB, h200, machine, readings, rtx_3070, rtx_3090};
use crate::support::worker::worker;

#[test]
fn without_a_driver_there_are_no_cards_and_a_note_says_why() {
    for (reason, word) in [
        (NoDriver::NotInstalled, "no NVIDIA driver"),
        (NoDriver::NotLoaded, "not loaded"),
        (
            NoDriver::Failed("version mismatch".to_owned()),
            "version mismatch",
        ),
    ] {
        let machine = machine(Err(reason));
        assert!(machine.gpus.is_empty() && machine.driver.is_none());
        let [note] = machine.notes.as_slice() else {
            panic!("{:?}", machine.notes)
        };
        assert!(
            note.contains(word) && note.contains("run on the CPU"),
            "{note}"
        );
    }
}

#[test]
fn one_8_gb_card_is_read_whole() {
    let machine = machine(readings(vec![Ok(rtx_3070())]));
    let [gpu] = machine.gpus.as_slice() else {
        panic!("{:?}", machine.gpus)
    };
    assert_eq!(gpu.memory_total_bytes, 8 << 30);
    assert_eq!(gpu.compute_capability, Some((8, 6)));
    assert_eq!(
        (gpu.power_watts, gpu.power_limit_watts),
        (Some(31.5), Some(220.0))
    );
    assert_eq!(gpu.processes[0].name.as_deref(), Some("Xorg"));
    assert_eq!(machine.driver.unwrap().cuda, Some((13, 0)));
    assert!(machine.notes.is_empty());
}

#[test]
fn two_unequal_cards_keep_their_numbers() {
    let machine = machine(readings(vec![Ok(rtx_3070()), Ok(rtx_3090())]));
    let cards: Vec<_> = machine
        .gpus
        .iter()
        .map(|gpu| (gpu.index, gpu.memory_total_bytes >> 30))
        .collect();
    assert_eq!(cards, [(0, 8), (1, 24)]);
}

#[test]
fn an_h200_is_a_card_like_any_other() {
    let machine = machine(readings(vec![Ok(h200())]));
    assert_eq!(machine.gpus[0].compute_capability, Some((9, 0)));
    assert_eq!(machine.gpus[0].memory_total_bytes, 141_000_000_000);
}

#[test]
fn a_broken_card_is_a_note_and_the_others_keep_their_numbers() {
    let machine = machine(readings(vec![
        Err("the GPU is lost".to_owned()),
        Ok(rtx_3090()),
    ]));
    assert_eq!(machine.gpus[0].index, 1);
    assert_eq!(machine.notes, ["GPU 0 is unusable: the GPU is lost"]);
}

#[test]
fn a_card_that_hides_all_but_its_memory_is_of_use() {
    let card = CardReading {
        memory: Some((MIB, 2 * MIB)),
        ..CardReading::default()
    };
    let machine = machine(readings(vec![Ok(card), Ok(CardReading::default())]));
    assert_eq!(machine.gpus.len(), 1);
    assert_eq!(
        machine.gpus[0].memory_free_bytes, MIB,
        "no more is free than there is"
    );
    assert!(machine.notes[0].contains("GPU 1"), "{:?}", machine.notes);
}

#[test]
fn cards_have_the_numbers_that_cuda_gives_them() {
    let mut readings = readings(vec![Ok(rtx_3070()), Ok(rtx_3090()), Ok(h200())]).unwrap();
    readings.environment.visible = Some("2,1".to_owned());
    let machine = machine(Ok(readings));
    let cards: Vec<_> = machine
        .gpus
        .iter()
        .map(|gpu| (gpu.index, gpu.name.as_str()))
        .collect();
    assert_eq!(cards, [(0, "NVIDIA H200"), (1, "NVIDIA GeForce RTX 3090")]);
    assert_eq!(
        machine.notes,
        ["CUDA_VISIBLE_DEVICES is \"2,1\": 2 of 3 GPUs are used, numbered in this order"]
    );
}

#[test]
fn a_slice_of_a_card_is_the_only_card() {
    let uuid = "MIG-1f2e3d4c-0000-5000-8000-000000000000";
    let slice = CardReading {
        name: Some("NVIDIA H200 MIG 1g.18gb".to_owned()),
        uuid: Some(uuid.to_owned()),
        memory: Some((16 << 30, 15 << 30)),
        ..CardReading::default()
    };
    let mut readings = readings(vec![Ok(h200())]).unwrap();
    readings.environment.visible = Some(uuid.to_owned());
    readings.slice = Some(Ok(slice));
    let sliced = machine(Ok(readings.clone()));
    let [gpu] = sliced.gpus.as_slice() else {
        panic!("found {:?}", sliced.gpus);
    };
    assert_eq!((gpu.index, gpu.memory_free_bytes), (0, 15 << 30));
    assert_eq!(
        sliced.notes,
        [format!(
            "CUDA_VISIBLE_DEVICES names the MIG slice {uuid}: only this slice is used, as GPU 0"
        )]
    );
    readings.slice = Some(Err("not found".to_owned()));
    let notes = machine(Ok(readings)).notes;
    assert_eq!(notes[1], "GPU 0 is unusable: not found");
}

#[test]
fn hidden_cards_are_not_there() {
    let mut readings = readings(vec![Ok(rtx_3070())]).unwrap();
    readings.environment.visible = Some(String::new());
    let machine = machine(Ok(readings));
    assert!(machine.gpus.is_empty());
    assert_eq!(
        machine.notes,
        ["CUDA_VISIBLE_DEVICES is \"\" and hides every GPU; models run on the CPU"]
    );
}

#[test]
fn probe_describes_this_machine_for_people_and_for_programs() {
    let text = worker(&["probe"]).run().ok();
    for word in ["CPU", "thread", "memory", "free of"] {
        assert!(text.contains(word), "{word} is not in:\n{text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&worker(&["probe", "--json"]).run().ok()).unwrap();
    assert!(json["cpu"]["threads"].as_u64().unwrap() >= 1);
    assert!(
        json["memory"]["total_bytes"].as_u64().unwrap()
            >= json["memory"]["available_bytes"].as_u64().unwrap()
    );
    assert!(json["gpus"].is_array() && json["notes"].is_array());
}
