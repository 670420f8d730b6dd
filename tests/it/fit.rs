//! What fits where: real models' sizes on made-up machines.

use muster::catalog::Catalog;
use muster::config::{Config, DeviceSetting, OwnerConfig, Sources};
use muster::daemon::fit::{Needs, NoDevice, Room, Wishes, fit, quantization, room};
use muster::hardware::Machine;
use muster::hardware::readings::{CardReading, NoDriver, Readings};
use muster::runtime::DeviceChoice;
use proptest::prelude::*;

use crate::support::machines::{h200, machine, readings, rtx_3070, rtx_3090};

const GIB: u64 = 1 << 30;

/// An 8-billion model in 4 bits: 32 layers, 8 key heads of 128, 16-bit keys and values.
const EIGHT_BILLION: Needs = Needs {
    weight_bytes: 49 * GIB / 10,
    kv_bytes_per_token: 2 * 32 * 8 * 128 * 2,
    workspace_bytes: 3 * GIB / 10,
    scratch_bytes_per_token: 0,
    context: 131_072,
    runs_one_job: false,
};

const SIXTEEN_JOBS: Wishes = Wishes {
    context: None,
    kv_bytes: None,
    max_running: 16,
    sharers: 0,
};

fn owner() -> OwnerConfig {
    Config::load(&Sources {
        environment: [("HOME".to_owned(), "/home/ada".to_owned())].into(),
        ..Sources::default()
    })
    .unwrap()
    .config
    .owner
}

fn place(machine: &Machine, wanted: DeviceSetting) -> Result<Room, NoDevice> {
    room(machine, wanted, &owner(), true)
}

fn room_of(free_bytes: u64) -> Room {
    Room {
        device: DeviceChoice::Cpu,
        place: "this machine".to_owned(),
        free_bytes,
        kept_bytes: 0,
    }
}

#[test]
fn without_a_card_models_go_to_main_memory() {
    let machine = machine(Err(NoDriver::NotInstalled));
    let room = place(&machine, DeviceSetting::Auto).unwrap();
    assert_eq!(room.device, DeviceChoice::Cpu);
    assert_eq!(
        room.left_bytes(),
        20 * GIB - GIB / 2,
        "what the owner keeps is not there"
    );
}

#[test]
fn auto_takes_the_card_with_the_most_free_memory() {
    let machine = machine(readings(vec![Ok(rtx_3070()), Ok(rtx_3090())]));
    assert_eq!(
        place(&machine, DeviceSetting::Auto).unwrap().device,
        DeviceChoice::Cuda(1)
    );
    assert_eq!(
        place(&machine, DeviceSetting::Cuda(Some(0)))
            .unwrap()
            .device,
        DeviceChoice::Cuda(0)
    );
    assert_eq!(
        place(&machine, DeviceSetting::Cpu).unwrap().device,
        DeviceChoice::Cpu
    );
}

#[test]
fn a_card_that_is_not_there_is_named_with_those_that_are() {
    let machine = machine(readings(vec![Ok(rtx_3070())]));
    let refusal = place(&machine, DeviceSetting::Cuda(Some(3)))
        .unwrap_err()
        .to_string();
    assert_eq!(
        refusal,
        "engine.device is cuda:3, but this machine has only GPU 0"
    );
}

#[test]
fn a_build_without_cuda_computes_on_the_cpu_and_says_so_when_asked_for_a_card() {
    let machine = machine(readings(vec![Ok(rtx_3070())]));
    let auto = room(&machine, DeviceSetting::Auto, &owner(), false).unwrap();
    assert_eq!(auto.device, DeviceChoice::Cpu);
    let cuda = room(&machine, DeviceSetting::Cuda(None), &owner(), false).unwrap_err();
    assert!(cuda.to_string().contains("--features cuda"), "{cuda}");
}

#[test]
fn an_old_card_and_an_old_driver_are_named_and_work_goes_to_the_cpu() {
    let old_card = CardReading {
        name: Some("NVIDIA GeForce GTX 1080".to_owned()),
        compute_capability: Some((6, 1)),
        ..rtx_3070()
    };
    let machine_of = |readings| machine(readings);
    let old = machine_of(readings(vec![Ok(old_card)]));
    let wanted = "GPU 0 (NVIDIA GeForce GTX 1080) cannot run models: its compute capability is 6.1, and 8.0 is the \
                  least (Ampere: GeForce RTX 30, A100 and newer)";
    assert_eq!(old.notes, [wanted]);
    let auto = place(&old, DeviceSetting::Auto).unwrap();
    assert_eq!(auto.device, DeviceChoice::Cpu);
    let asked = place(&old, DeviceSetting::Cuda(Some(0))).unwrap_err();
    let asked = asked.to_string();
    assert!(
        asked.starts_with("engine.device is cuda:0, but GPU 0 cannot run models"),
        "{asked}"
    );
    let driver = readings(vec![Ok(rtx_3090())]).map(|known| Readings {
        driver_version: Some("550.54.14".to_owned()),
        cuda_version: Some(12_040),
        ..known
    });
    let old = machine_of(driver);
    assert!(
        old.notes[0]
            .ends_with("the driver 550.54.14 runs CUDA up to 12.4; install driver 580 or newer")
    );
    assert_eq!(
        place(&old, DeviceSetting::Auto).unwrap().device,
        DeviceChoice::Cpu
    );
}

/// A GPU of so many GB, of which its context and other programs take half a GB.
fn gpu_of(gigabytes: u64) -> Room {
    Room {
        device: DeviceChoice::Cuda(0),
        place: "GPU 0".to_owned(),
        free_bytes: gigabytes * 1_000_000_000 - GIB / 2,
        kept_bytes: GIB / 2,
    }
}

#[test]
fn a_gpu_is_used_whole() {
    let wishes = Wishes {
        max_running: 256,
        ..Wishes::default()
    };
    let of = |gigabytes| fit(EIGHT_BILLION, wishes, &gpu_of(gigabytes)).unwrap();
    // On 24 GB the rest is less than a whole context and 256 short jobs need.
    let middle = of(24);
    assert_eq!(middle.context, middle.kv_tokens.min(131_072));
    assert!((120_000..135_000).contains(&middle.kv_tokens), "{middle:?}");
    let large = of(80);
    assert_eq!((large.context, large.kv_tokens), (131_072, 256 * 1024));
    let small = of(8);
    assert!((8_000..12_000).contains(&small.context), "{small:?}");
    // A main memory is not for models alone.
    let on_cpu = fit(EIGHT_BILLION, SIXTEEN_JOBS, &room_of(80 * GIB)).unwrap();
    assert_eq!(on_cpu.kv_tokens, 16 * 1024);
}

#[test]
fn models_of_one_gpu_share_what_is_left() {
    let shared = Wishes {
        max_running: 256,
        sharers: 2,
        ..Wishes::default()
    };
    let alone = Wishes {
        sharers: 1,
        ..shared
    };
    let (half, whole) = [shared, alone]
        .map(|wishes| fit(EIGHT_BILLION, wishes, &gpu_of(24)).unwrap().kv_tokens)
        .into();
    assert!(half.abs_diff(whole / 2) < 32, "{half} of {whole}");
    // The first has a usable context even where that leaves the second too little.
    let of_three = Wishes {
        sharers: 3,
        ..shared
    };
    let tight = fit(EIGHT_BILLION, of_three, &gpu_of(7)).unwrap();
    assert_eq!(tight.kv_tokens, 1024);
}

#[test]
fn an_8_gb_card_in_use_refuses_an_8_billion_model_with_the_arithmetic() {
    let machine = machine(readings(vec![Ok(rtx_3070())]));
    let room = place(&machine, DeviceSetting::Auto).unwrap();
    let wishes = Wishes {
        context: Some(8192),
        ..SIXTEEN_JOBS
    };
    let refusal = fit(EIGHT_BILLION, wishes, &room).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "needs 6.2 GiB = 4.9 GiB weights + 1.0 GiB KV for 8192 tokens + 307.2 MiB workspace; \
         GPU 0 (NVIDIA GeForce RTX 3070) has 4.7 GiB left for models \
         (5.2 GiB free, 512.0 MiB reserved for the owner)"
    );
    assert!(!refusal.fits_without_keep());
}

#[test]
fn a_refusal_tells_whether_only_the_owners_share_is_in_the_way() {
    let kept = |kept_bytes| Room {
        kept_bytes,
        ..room_of(20 * GIB)
    };
    assert!(fit(EIGHT_BILLION, SIXTEEN_JOBS, &kept(0)).is_ok());
    let refusal = fit(EIGHT_BILLION, SIXTEEN_JOBS, &kept(900 << 40)).unwrap_err();
    assert!(refusal.fits_without_keep());
    let said = refusal.to_string();
    let left = "has 0.0 MiB left for models (20.0 GiB free, 900.0 TiB reserved for the owner)";
    assert!(said.contains(left), "{said}");
    let nothing_kept = fit(EIGHT_BILLION, SIXTEEN_JOBS, &room_of(GIB)).unwrap_err();
    assert!(!nothing_kept.fits_without_keep());
    assert!(
        nothing_kept
            .to_string()
            .ends_with("has 1.0 GiB left for models")
    );
}

#[test]
fn a_larger_card_takes_it_with_all_of_its_context() {
    let machine = machine(readings(vec![Ok(rtx_3090())]));
    let fitted = fit(
        EIGHT_BILLION,
        SIXTEEN_JOBS,
        &place(&machine, DeviceSetting::Auto).unwrap(),
    )
    .unwrap();
    assert_eq!(fitted.kv_tokens, 131_072);
    assert_eq!(fitted.kv_bytes, 16 * GIB);
    assert_eq!(fitted.context, 131_072);
}

#[test]
fn an_h200_holds_the_whole_context_when_asked() {
    let machine = machine(readings(vec![Ok(h200())]));
    let wishes = Wishes {
        context: Some(131_072),
        ..SIXTEEN_JOBS
    };
    let fitted = fit(
        EIGHT_BILLION,
        wishes,
        &place(&machine, DeviceSetting::Auto).unwrap(),
    )
    .unwrap();
    assert_eq!(fitted.context, 131_072);
    assert_eq!(fitted.kv_bytes, 16 * GIB);
}

#[test]
fn a_tight_place_shortens_the_context_down_to_what_is_of_use() {
    let tight = |tokens: u64| {
        let free = EIGHT_BILLION.weight_bytes + EIGHT_BILLION.workspace_bytes;
        fit(
            EIGHT_BILLION,
            SIXTEEN_JOBS,
            &room_of(free + tokens * EIGHT_BILLION.kv_bytes_per_token),
        )
    };
    assert_eq!(tight(3000).unwrap().context, 3000);
    assert!(tight(1024).is_ok());
    assert!(tight(1023).is_err());
}

/// Besides, on a card without an attention of its own, as much for each token as keys and values take.
const WITH_SCRATCH: Needs = Needs {
    scratch_bytes_per_token: EIGHT_BILLION.kv_bytes_per_token,
    ..EIGHT_BILLION
};

#[test]
fn a_budget_for_keys_and_values_buys_nothing_else() {
    let wishes = Wishes {
        context: Some(4096),
        kv_bytes: Some(GIB),
        ..SIXTEEN_JOBS
    };
    let fitted = fit(WITH_SCRATCH, wishes, &room_of(40 * GIB)).unwrap();
    assert_eq!((fitted.kv_tokens, fitted.kv_bytes), (8192, GIB));
    // What no sequence is longer than is held once, whatever the number of jobs.
    let fixed = WITH_SCRATCH.weight_bytes + WITH_SCRATCH.workspace_bytes;
    assert_eq!(fitted.total_bytes, fixed + GIB + GIB / 2);
    let tight = room_of(fixed + GIB);
    let refusal = fit(WITH_SCRATCH, wishes, &tight).unwrap_err();
    assert_eq!(
        refusal.workspace_bytes,
        WITH_SCRATCH.workspace_bytes + GIB / 2
    );
    assert!(
        refusal.to_string().contains("819.2 MiB workspace"),
        "{refusal}"
    );
}

#[test]
fn a_tight_place_shortens_what_is_held_for_each_token_too() {
    let fixed = WITH_SCRATCH.weight_bytes + WITH_SCRATCH.workspace_bytes;
    let room = room_of(fixed + 3000 * 2 * WITH_SCRATCH.kv_bytes_per_token);
    let fitted = fit(WITH_SCRATCH, SIXTEEN_JOBS, &room).unwrap();
    assert_eq!((fitted.context, fitted.kv_tokens), (3000, 3000));
    assert_eq!(fitted.total_bytes, room.free_bytes);
}

#[test]
fn a_budget_for_keys_and_values_is_kept() {
    let wishes = Wishes {
        kv_bytes: Some(GIB),
        ..SIXTEEN_JOBS
    };
    assert_eq!(
        fit(EIGHT_BILLION, wishes, &room_of(40 * GIB))
            .unwrap()
            .kv_bytes,
        GIB
    );
    assert!(fit(EIGHT_BILLION, wishes, &room_of(6 * GIB)).is_err());
}

#[test]
fn every_model_of_the_catalog_fits_an_h200_as_it_is_meant() {
    let room = place(&machine(readings(vec![Ok(h200())])), DeviceSetting::Auto).unwrap();
    for entry in Catalog::builtin().unwrap().entries() {
        // The size of a model that comes with the program is known when it is opened.
        if Needs::of_entry(entry, &entry.default_quantization).is_none() {
            continue;
        }
        let (name, _) = quantization(entry, SIXTEEN_JOBS, &room).unwrap();
        assert_eq!(name, entry.default_quantization, "{}", entry.id);
    }
}

#[test]
fn the_nearest_quantization_is_the_one_refused() {
    let catalog = Catalog::builtin().unwrap();
    let entry = catalog.find("llama-3.1-8b-instruct").unwrap();
    let refusal = quantization(entry, SIXTEEN_JOBS, &room_of(GIB))
        .unwrap_err()
        .unwrap();
    assert!(refusal.to_string().starts_with("needs "), "{refusal}");
}

proptest! {
    #[test]
    fn what_fits_never_takes_more_than_there_is(
        weight_bytes in 0_u64..1 << 45,
        kv_bytes_per_token in 0_u64..1 << 24,
        workspace_bytes in 0_u64..1 << 40,
        scratch_bytes_per_token in 0_u64..1 << 24,
        context in 0_usize..1 << 22,
        wish in proptest::option::of(0_usize..1 << 22),
        kv_bytes in proptest::option::of(0_u64..1 << 45),
        max_running in 0_usize..4096,
        free in 0_u64..1 << 46,
    ) {
        let needs = Needs {
            weight_bytes, kv_bytes_per_token, workspace_bytes, scratch_bytes_per_token, context,
            runs_one_job: false,
        };
        let wishes = Wishes { context: wish, kv_bytes, max_running, sharers: 0 };
        match fit(needs, wishes, &room_of(free)) {
            Ok(fit) => {
                prop_assert!(fit.total_bytes <= free);
                prop_assert!(fit.context <= context && fit.context <= fit.kv_tokens);
            }
            Err(refusal) => prop_assert!(refusal.to_string().contains("needs")),
        }
    }
}
