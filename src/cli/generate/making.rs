//! An output of a maker, with a progress meter. Ctrl-C cancels it.

use std::time::Instant;

use super::step_meter::StepMeter;
use crate::cli::{Exit, Failure};
use crate::runtime;
use crate::runtime::maker::{MakeEvent, MakeRequest, MakeStream, Maker, Output};

/// Hands every part to `take`. Returns the seconds that were spent.
pub async fn make(
    (maker, model): (&Maker, &str),
    request: MakeRequest,
    mut meter: StepMeter,
    take: impl AsyncFnMut(Output) -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let started = Instant::now();
    let made = tokio::select! {
        made = parts(maker.make(model, request)?, &mut meter, take) => made,
        _ = tokio::signal::ctrl_c() => Err(Failure::new(Exit::Interrupted, "interrupted")),
    };
    meter.end();
    made.map(|()| started.elapsed().as_secs_f64())
}

/// The same of an output that comes whole.
pub async fn make_one(
    maker: (&Maker, &str),
    request: MakeRequest,
    meter: StepMeter,
) -> Result<(Output, f64), Failure> {
    let mut made = None;
    let spent = make(maker, request, meter, async |output| {
        made = Some(output);
        Ok(())
    });
    let spent = spent.await?;
    let made = made.ok_or(runtime::Failure::Stopped)?;
    Ok((made, spent))
}

async fn parts(
    mut stream: MakeStream,
    meter: &mut StepMeter,
    mut take: impl AsyncFnMut(Output) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut has_output = false;
    while let Some(event) = stream.next().await {
        match event {
            MakeEvent::Step { at, of, .. } => meter.step(at, of),
            MakeEvent::Made(output) => {
                has_output = true;
                take(output).await?;
            }
            MakeEvent::Done => {}
            MakeEvent::Failed(failure) => return Err(failure.into()),
        }
    }
    match has_output {
        true => Ok(()),
        false => Err(runtime::Failure::Stopped.into()),
    }
}
