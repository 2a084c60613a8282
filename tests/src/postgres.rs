//! PostgreSQL of our own: no TCP, its socket in a folder of the test, apart from any cluster of
//! the machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::command::{self, call, run};

/// A cluster that may be started and stopped.
pub struct Postgres {
    programs: PathBuf,
    data: PathBuf,
    sockets: PathBuf,
    running: bool,
}

impl Postgres {
    /// A cluster in `data`, which exists already or is made by [`Postgres::init`].
    pub fn at(data: &Path, sockets: &Path) -> Result<Postgres> {
        std::fs::create_dir_all(sockets)?;
        give_to_postgres(sockets)?;
        Ok(Postgres {
            programs: programs()?,
            data: data.to_owned(),
            sockets: sockets.to_owned(),
            running: false,
        })
    }

    /// Makes the cluster.
    pub fn init(&self) -> Result<()> {
        std::fs::create_dir_all(&self.data)?;
        give_to_postgres(&self.data)?;
        let data = self.data.to_str().context("a path in UTF-8")?;
        let arguments = ["-D", data, "-U", "postgres", "--auth=trust", "--no-locale", "-E", "UTF8"];
        run(self.command("initdb").args(arguments))?;
        let settings = "listen_addresses = ''\njit = off\nmax_connections = 20\n\
            shared_buffers = 32MB\nautovacuum_naptime = 5s\ncheckpoint_timeout = 30s\n\
            full_page_writes = on\nfsync = on\n";
        let sockets = format!("unix_socket_directories = '{}'\n", self.sockets.display());
        let file = self.data.join("postgresql.conf");
        let before = std::fs::read_to_string(&file)?;
        std::fs::write(&file, format!("{before}{settings}{sockets}"))?;
        Ok(())
    }

    /// Starts the cluster, with recovery if it needs one.
    pub fn start(&mut self) -> Result<()> {
        // Of a cluster that was not stopped: another one's process id means nothing here.
        let _ = std::fs::remove_file(self.data.join("postmaster.pid"));
        let sockets = format!("-k {}", self.sockets.display());
        let log = self.sockets.join("log");
        let mut start = self.control(&["-w", "-t", "120", "start", "-o", &sockets, "-l"]);
        // pg_ctl's child keeps what it inherits open: nothing of ours.
        let started = start.arg(&log).stdout(std::process::Stdio::null()).status()?;
        ensure!(
            started.success(),
            "PostgreSQL did not start:\n{}",
            std::fs::read_to_string(&log).unwrap_or_default()
        );
        self.running = true;
        Ok(())
    }

    /// Stops the cluster: `fast` is clean, `immediate` is a crash.
    pub fn stop(&mut self, mode: &str) -> Result<()> {
        if self.running {
            self.running = false;
            run(&mut self.control(&["-w", "-m", mode, "stop"]))?;
        }
        Ok(())
    }

    /// The answer to a query, fields parted by `|`.
    pub fn query(&self, sql: &str) -> Result<String> {
        let sockets = self.sockets.to_str().context("a path in UTF-8")?;
        let arguments = ["-h", sockets, "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-qAtc", sql];
        Ok(run(self.command("psql").args(arguments))?.trim().to_owned())
    }

    /// `pgbench` with arguments, not yet started.
    #[must_use]
    pub fn bench(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("pgbench");
        command.arg("-h").arg(&self.sockets).args(["-U", "postgres"]).args(arguments);
        command.arg("postgres");
        command
    }

    /// The sums that `pgbench` keeps equal in every transaction, and how many there were.
    pub fn check_bench(&self) -> Result<u64> {
        let sums = self.query(
            "select (select sum(abalance) from pgbench_accounts), \
             (select sum(bbalance) from pgbench_branches), \
             (select sum(tbalance) from pgbench_tellers), \
             (select coalesce(sum(delta), 0) from pgbench_history), \
             (select count(*) from pgbench_history)",
        )?;
        let fields: Vec<&str> = sums.split('|').collect();
        ensure!(fields.len() == 5, "not five sums: {sums}");
        ensure!(fields[..4].iter().all(|sum| *sum == fields[0]), "the sums differ: {sums}");
        Ok(fields[4].parse()?)
    }

    fn control(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("pg_ctl");
        command.arg("-D").arg(&self.data).args(arguments);
        command
    }

    /// A program of PostgreSQL as user postgres, who alone may run a server.
    fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        let mut command = if command::is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        command.current_dir("/").env("LC_ALL", "C.UTF-8").env("PGCONNECT_TIMEOUT", "10");
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The test has failed already; what matters is that no process stays.
        let _ = self.stop("immediate");
    }
}

fn give_to_postgres(folder: &Path) -> Result<()> {
    if command::is_root() {
        call("chown", &["postgres:postgres", folder.to_str().context("a path in UTF-8")?])?;
    }
    Ok(())
}

/// The newest PostgreSQL of this machine.
fn programs() -> Result<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .context("PostgreSQL is not installed: scripts/install-packages test")?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let number = path.file_name()?.to_str()?.parse().ok()?;
            Some((number, path.join("bin")))
        })
        .filter(|(_, path)| path.join("initdb").is_file())
        .collect();
    found.sort();
    Ok(found.pop().context("PostgreSQL has no initdb: scripts/install-packages test")?.1)
}
