//! Signals to this process, which a thread waits for.

use std::future::poll_fn;
use std::task::Poll;
use std::thread;

use tokio::signal::unix::{SignalKind, signal};

/// Has each of these signals call `then`.
pub fn catch<const N: usize>(
    kinds: [SignalKind; N],
    mut then: impl FnMut() + Send + 'static,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let caught = runtime.block_on(async { kinds.map(signal) });
    let mut caught = caught.into_iter().collect::<Result<Vec<_>, _>>()?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        loop {
            runtime.block_on(poll_fn(|context| {
                let mut came = caught.iter_mut().map(|one| one.poll_recv(context).is_ready());
                if came.any(|came| came) { Poll::Ready(()) } else { Poll::Pending }
            }));
            then();
        }
    })?;
    Ok(())
}
