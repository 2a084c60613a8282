//! Relays before NFS servers, and the shares that follow: the server's side of the crate
//! `intercept`. `docs/design/2026-11-28-interceptor.md`.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

use intercept::{Ground, Interceptor, PrimaryAddress, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use share::{Lack, Share, VolumeBlocks};
use units::{Moment, WallTime};
use volume::{Pool, RoomWait, Volume, VolumeSpec};

use crate::admission::is_loopback;
use crate::attach::VolumeId;
use crate::nfs::Shares;
use crate::prometheus::tell_each;
use crate::relay_settings::{Form, Intercept};
use crate::{Config, StartError, listen};

#[cfg(test)]
mod tests;

/// The mark of shares that were made to follow.
const FOLLOWS: &str = "follows";

/// A relay that runs.
struct Running {
    form: Form,
    listen: SocketAddr,
    volume: Arc<Volume>,
    interceptor: Interceptor,
}

/// The relays of a server.
#[derive(Default)]
pub(crate) struct Intercepts {
    running: Vec<Running>,
}

/// A relay, as it is shown.
pub(crate) struct Shown<'i> {
    pub(crate) form: &'static str,
    pub(crate) listen: SocketAddr,
    pub(crate) primary: &'i PrimaryAddress,
    pub(crate) clients: usize,
    /// None of `inline`.
    pub(crate) status: Option<Status>,
}

impl fmt::Debug for Intercepts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intercepts").field("running", &self.running.len()).finish()
    }
}

/// The share that a follower writes.
struct FollowerGround {
    shares: Arc<Shares>,
    volume: Arc<Volume>,
}

impl Ground for FollowerGround {
    type Present = VolumeBlocks;

    fn with_share<T>(&self, work: impl FnOnce(&Share<VolumeBlocks>) -> T) -> share::Result<T> {
        Ok(work(self.shares.open_volume(&self.volume)?.share()))
    }

    fn now(&self) -> WallTime {
        self.volume.now()
    }

    fn wait_for(&self, lack: Lack, goes_on: &dyn Fn() -> bool) -> share::Result<()> {
        let opened = self.shares.open_volume(&self.volume)?;
        opened.share().present().wait_for(lack, &mut RoomWait::default(), goes_on)
    }
}

/// The sockets of relays, bound. All that can be refused before there is a pool is refused here.
pub(crate) fn bind(config: &Config) -> Result<Vec<(Intercept, TcpListener)>, StartError> {
    let mut shares = HashSet::new();
    let mut bound = Vec::new();
    for intercept in &config.intercepts {
        if !shares.insert(&intercept.share) {
            return Err(StartError::setting(
                format!("intercept: two relays have the share {}", intercept.share),
                "a share follows one server: give each relay its own",
            ));
        }
        if intercept.form == Form::Inline && config.nfs.tcp.is_empty() {
            return Err(StartError::setting(
                "intercept: inline stands before this server's own NFS, which is off",
                "give --nfs ADDRESS:PORT",
            ));
        }
        let sockets = listen::bind(&intercept.listening, crate::exposure::nfs_protection(config))?;
        bound.extend(sockets.tcp.into_iter().map(|socket| (intercept.clone(), socket)));
    }
    Ok(bound)
}

impl Intercepts {
    /// Starts them; a share that is not there is made. `own` is where this server serves NFS.
    pub(crate) fn start(
        pool: &Pool,
        shares: &Arc<Shares>,
        bound: Vec<(Intercept, TcpListener)>,
        own: Option<SocketAddr>,
    ) -> Result<Intercepts, StartError> {
        let mut running = Vec::new();
        for (intercept, listener) in bound {
            running.push(run(pool, shares, intercept, listener, own)?);
        }
        let followers = running.iter().filter(|one| one.form != Form::Inline);
        shares.set_followers(followers.map(|one| one.volume.id()).collect());
        Ok(Intercepts { running })
    }

    /// The relay of a share.
    pub(crate) fn of(&self, volume: VolumeId) -> Option<Shown<'_>> {
        self.running.iter().find(|one| one.volume.id() == volume).map(Running::show)
    }

    /// Ends them: every client is disconnected, and what waits is compared at the next start.
    pub(crate) fn stop(&self) {
        self.running.iter().for_each(|one| one.interceptor.stop());
    }
}

impl Running {
    fn show(&self) -> Shown<'_> {
        Shown {
            form: self.form.name(),
            listen: self.listen,
            primary: self.interceptor.primary(),
            clients: self.interceptor.clients(),
            status: self.interceptor.status(),
        }
    }
}

fn run(
    pool: &Pool,
    shares: &Arc<Shares>,
    intercept: Intercept,
    listener: TcpListener,
    own: Option<SocketAddr>,
) -> Result<Running, StartError> {
    let Intercept { form, share, primary, .. } = intercept;
    let volume = share_of(pool, &share, form)?;
    let listen = listen::local_address(&listener)?;
    let (primary, ground) = match primary {
        Some(primary) => {
            let (shares, volume) = (Arc::clone(shares), Arc::clone(&volume));
            (primary, Some(FollowerGround { shares, volume }))
        }
        None => {
            let address = own.expect("`bind` refuses it without").to_string();
            let (nfs, mount, export) = (address.clone(), address, format!("/{share}"));
            (PrimaryAddress { nfs, mount, export }, None)
        }
    };
    let admitted = Arc::clone(&volume);
    // A server on this machine takes what the relay passes on for its own users'.
    let is_far = is_far(&primary);
    let admits = move |ip: IpAddr| {
        let setting = admitted.share().filter(|_| is_far);
        let is_allowed = setting.is_some_and(|setting| {
            setting.allowed.iter().any(|allowed| allowed.network.contains(ip))
        });
        is_loopback(ip) || is_allowed
    };
    let interceptor = Interceptor::start(listener, primary, ground, admits);
    let interceptor = interceptor.map_err(StartError::Thread)?;
    Ok(Running { form, listen, volume, interceptor })
}

/// Whether none of a primary's addresses is this machine's loopback.
fn is_far(primary: &PrimaryAddress) -> bool {
    let found = primary.nfs.to_socket_addrs();
    found.is_ok_and(|mut all| all.all(|address| !is_loopback(address.ip())))
}

/// The share of a relay, made if it is not there. One that is there has to have been made for that:
/// it becomes what the primary is.
fn share_of(pool: &Pool, name: &str, form: Form) -> Result<Arc<Volume>, StartError> {
    match pool.volume(name) {
        Ok(volume) if volume.share().is_some() => {
            if form == Form::Inline || volume.has_mark(FOLLOWS) {
                return Ok(volume);
            }
            Err(StartError::setting(
                format!("intercept: the share {name} is there, and was not made to follow"),
                "all in it would give way to what the server has: give another name, which is made",
            ))
        }
        Ok(_) => Err(StartError::setting(
            format!("intercept: {name} is a volume, not a share"),
            "give another name: a share that is not there is made",
        )),
        Err(error) if matches!(error.kind, volume::ErrorKind::NotFound) => {
            let spec = VolumeSpec { architecture: form.architecture(), ..VolumeSpec::share(name) };
            let spec = VolumeSpec { share: Some(volume::ShareSetting::default()), ..spec };
            let volume = pool.create_volume(&spec).map_err(StartError::Pool)?;
            if form != Form::Inline {
                // Pinned, so that it stays: a share that follows is told from others by it.
                let marked = volume.create_mark(FOLLOWS, &Moment::Latest, true);
                marked.map_err(StartError::Pool)?;
            }
            Ok(volume)
        }
        Err(error) => Err(StartError::Pool(error)),
    }
}

/// The state of followers, for Prometheus.
#[derive(Debug)]
pub(crate) struct InterceptCollector(pub(crate) Arc<Intercepts>);

impl Collector for InterceptCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let followers: Vec<(String, Status)> = (self.0.running.iter())
            .filter_map(|one| Some((one.volume.name().to_owned(), one.interceptor.status()?)))
            .collect();
        type Gauge = fn(&Status) -> i64;
        let gauges: [(&str, &str, Gauge); 3] = [
            (
                "hindsight_follower_following",
                "1 if the follower does what its server did",
                |status| i64::from(status.state == intercept::State::Following),
            ),
            (
                "hindsight_follower_waiting",
                "Operations of the server that the follower lacks",
                |s| i64::try_from(s.waiting).unwrap_or(i64::MAX),
            ),
            ("hindsight_follower_waiting_bytes", "Bytes of them", |status| {
                i64::try_from(status.waiting_bytes).unwrap_or(i64::MAX)
            }),
        ];
        for (name, help, value) in gauges {
            let gauge = |status| ConstGauge::new(value(status));
            let told =
                followers.iter().map(|(share, status)| ([("share", &**share)], gauge(status)));
            tell_each(&mut encoder, (name, help), told)?;
        }
        type Count = fn(&Status) -> u64;
        let counters: [(&str, &str, Count); 4] = [
            (
                "hindsight_follower_left_out",
                "Objects of the server that it cannot hold",
                |status| status.left_out,
            ),
            ("hindsight_follower_followed", "Operations done after the server", |s| s.followed),
            ("hindsight_follower_compared", "Objects compared with the server's", |s| s.compared),
            (
                "hindsight_follower_comparisons",
                "Times that the follower had to be compared",
                |status| status.comparisons,
            ),
        ];
        for (name, help, value) in counters {
            let count = |status| ConstCounter::new(value(status));
            let told =
                followers.iter().map(|(share, status)| ([("share", &**share)], count(status)));
            tell_each(&mut encoder, (name, help), told)?;
        }
        Ok(())
    }
}
