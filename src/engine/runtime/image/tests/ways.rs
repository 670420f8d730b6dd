//! Options of image generation: tiling, second passes, inpainting networks, tiled decoding.

use super::*;

#[test]
fn a_tiling_image_agrees_with_the_reference() {
    let pipeline = open("tiny-image");
    let request = ImageRequest {
        tiles: true,
        ..request()
    };
    let found = latent_of(&pipeline, request.clone());
    check_latent(&found, &ways().numbers("tiled"), "tiled");
    let image = draw(&pipeline, request);
    assert!(largest_gap(&image.bytes, &ways().bytes("tiled.image")) <= 2);
}

#[test]
fn a_second_pass_agrees_with_the_reference() {
    let pipeline = open("tiny-image");
    let large = ImageRequest {
        width: Some(128),
        height: Some(96),
        hires: Some(0.65),
        ..request()
    };
    let found = latent_of(&pipeline, large.clone());
    check_latent(&found, &ways().numbers("two"), "two");
    let (image, steps, blocks) = follow(&pipeline, large.clone());
    assert_eq!((image.width, image.height), (128, 96));
    let steps: Vec<u32> = steps.iter().map(|step| step.0).collect();
    assert_eq!(steps, (1..=10).collect::<Vec<_>>());
    let request = large.into();
    assert_eq!(pipeline.check(&request).unwrap().blocks, blocks);
    // An image of the model's own size needs no second pass.
    let small = ImageRequest {
        hires: Some(0.65),
        ..self::request()
    };
    assert_eq!(
        latent_of(&pipeline, small),
        latent_of(&pipeline, self::request())
    );
}

fn open_painting() -> ImagePipeline {
    let mut source = ImageSource::new(fixtures().join("tiny-image"));
    let unet = fixtures().join("golden/ways/painting");
    source.components.insert("unet".to_owned(), unet);
    source.load(DeviceChoice::of_tests()).unwrap()
}

#[test]
fn a_network_made_for_painting_agrees_with_the_reference() {
    let pipeline = open_painting();
    let golden = DrawingGolden::open();
    let masked = ImageRequest {
        sampler: Some(DiffusionSampler::Euler),
        ..masked(request(), &golden)
    };
    let found = latent_of(&pipeline, masked.clone());
    check_latent(&found, &ways().numbers("painted"), "painted");
    let (image, _, blocks) = follow(&pipeline, masked.clone());
    assert_eq!(image.bytes[..64 * 3], golden.source().bytes[..64 * 3]);
    let request = masked.into();
    assert_eq!(pipeline.check(&request).unwrap().blocks, blocks);
    // Without a mask the network paints everything.
    draw(&pipeline, self::request());
}

#[test]
fn decoding_in_tiles_agrees_with_the_reference() {
    let pipeline = open("tiny-image");
    let golden = ways();
    let latent = LatentMap {
        values: golden.numbers("wide.latent"),
        height: 40,
        width: 26,
    };
    let scale = pipeline.networks.autoencoder.spec().scale;
    let latent = LatentMap {
        values: latent.values.iter().map(|it| it * scale).collect(),
        ..latent
    };
    let plan = TilePlan { side: 16 };
    let image = run(pipeline.networks.decode_in_tiles(&latent, plan)).unwrap();
    let image = pixels(&image, None).unwrap();
    assert_eq!((image.width, image.height), (104, 160));
    let gap = largest_gap(&image.bytes, &golden.bytes("wide.image"));
    assert!(gap <= 2, "{gap}");
}
