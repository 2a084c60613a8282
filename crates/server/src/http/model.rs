//! The cost model on what clients ask of a volume, and advice from it.

use std::str::FromStr;
use std::sync::LazyLock;

use api::{AdviceQuery, ModelQuery, ProblemKind};
use axum::Json;
use axum::extract::State;
use model::{
    Advice, Architecture, Constraints, DIRTY_SHARE_DEFAULT, EngineSettings, Model, Profile,
    advise as advice_on, ladder,
};
use units::{Granularity, Size, Span};

use super::answer::{Answer, Refusal};
use super::ask::{Asked, Named};
use super::context::Context;

/// Granularities in one answer.
const GRANULARITIES_MAX: usize = 64;
/// Blocks written that `auto` must have seen: fewer say nothing of a workload.
const WRITES_MIN: u64 = 1000;

/// Architectures that volumes can have.
static ARCHITECTURES: LazyLock<Vec<Architecture>> = LazyLock::new(|| {
    let is_there =
        |one: &Architecture| volume::Architecture::ALL.iter().any(|a| a.name() == one.name());
    Architecture::ALL.into_iter().filter(is_there).collect()
});

/// Says what each architecture would cost for what clients asked of the volume since the server
/// started.
#[utoipa::path(get, path = "/volumes/{volume}/model", tag = "volumes",
    params(ModelQuery),
    responses(
        (status = 200, body = api::Model),
        (status = 409, description = "Nothing was measured"),
    ))]
pub(super) async fn show(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<ModelQuery>,
) -> Answer<Json<Model>> {
    let granularities = match query.granularity.as_deref() {
        None => ladder(),
        Some(list) => list.split(',').map(granularity).collect::<Answer<_>>()?,
    };
    if granularities.len() > GRANULARITIES_MAX {
        return Err(Refusal::malformed("more than 64 granularities", None));
    }
    let cache_bytes = query.cache.as_deref().map_or(Ok(0), bytes)?;
    let share = dirty_share(query.dirty)?;
    context
        .json(move |context| {
            let profile = measured(context, &name)?;
            let memory_bytes = context.pool.memory_bytes();
            let settings = EngineSettings::of(memory_bytes, cache_bytes, share);
            Ok(profile.model(&granularities, settings))
        })
        .await
}

/// Says how the volume had better be set up, going by what clients asked of it since the server
/// started, and why.
#[utoipa::path(get, path = "/volumes/{volume}/advice", tag = "volumes",
    params(AdviceQuery),
    responses(
        (status = 200, body = api::Advice),
        (status = 409, description = "Too little was measured"),
    ))]
pub(super) async fn advise(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<AdviceQuery>,
) -> Answer<Json<Advice>> {
    let asked = Constraints {
        architectures: &ARCHITECTURES,
        volume_bytes: None,
        granularity: query.granularity.as_deref().map(granularity).transpose()?,
        window: query.window.as_deref().map(span).transpose()?,
        history_limit_bytes: query.history_limit.as_deref().map(bytes).transpose()?,
        cache_bytes: query.cache.as_deref().map(bytes).transpose()?,
        dirty_share: dirty_share(query.dirty)?,
        memory_bytes: context.pool.memory_bytes(),
    };
    context
        .json(move |context| {
            let profile = measured(context, &name)?;
            let info = context.volume(&name)?.info()?;
            let limit = asked.history_limit_bytes.or(info.history_limit_bytes);
            let volume_bytes = Some(info.size_bytes);
            let decided = Constraints { volume_bytes, history_limit_bytes: limit, ..asked };
            advice_on(&profile, &decided).map_err(refused)
        })
        .await
}

/// The architecture for a volume that will be used as another is.
pub(super) fn choose(
    context: &Context,
    like: &str,
    decided: Constraints,
) -> Answer<volume::Architecture> {
    let profile = measured(context, like)?;
    if profile.writes() < WRITES_MIN {
        let text =
            format!("{} blocks of {like} were written since it is measured", profile.writes());
        return Err(Refusal::new(ProblemKind::NotMeasured, format!("{text}: too few to go by"))
            .with_hint(HINT));
    }
    let decided = Constraints { architectures: &ARCHITECTURES, ..decided };
    let advice = advice_on(&profile, &decided).map_err(refused)?;
    let name = advice.plan.architecture.name();
    tracing::info!(like, architecture = name, reasons = advice.reasons.join("; "), "auto");
    let mut all = volume::Architecture::ALL.into_iter();
    Ok(all.find(|one| one.name() == name).expect("only those that are there were given"))
}

const HINT: &str = "let its clients work for a while, or record them (hindsight trace record) and \
                    ask about the trace (hindsight model advise FILE)";

fn measured(context: &Context, name: &str) -> Answer<Profile> {
    let volume = context.volume(name)?;
    context.meters.profile(volume.id()).ok_or_else(|| {
        let text = format!("no NBD client of {name} was measured since the server started");
        Refusal::new(ProblemKind::NotMeasured, text).with_hint(HINT)
    })
}

fn refused(error: model::Error) -> Refusal {
    let hint = error.hint.unwrap_or_else(|| HINT.to_owned());
    Refusal::new(ProblemKind::NotMeasured, error.message).with_hint(hint)
}

fn granularity(text: &str) -> Answer<Granularity> {
    Granularity::from_str(text).map_err(|e| Refusal::malformed(e.message, e.hint))
}

fn span(text: &str) -> Answer<Span> {
    Span::from_str(text).map_err(|e| Refusal::malformed(e.message, e.hint))
}

fn bytes(text: &str) -> Answer<u64> {
    Size::from_str(text).map(Size::bytes).map_err(|e| Refusal::malformed(e.message, e.hint))
}

fn dirty_share(percent: Option<f64>) -> Answer<f64> {
    match percent {
        None => Ok(DIRTY_SHARE_DEFAULT),
        Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        Some(_) => {
            let hint = Some("give a percentage above 0, up to 100".to_owned());
            Err(Refusal::malformed("dirty is no share of a cache", hint))
        }
    }
}
