//! Processes that never outlive their owner.
//!
//! A run that is left behind costs a gigabyte of memory and a port, and the owner may end in ways
//! in which none of its code runs: `kill -9`, an aborting panic, the memory killer. So there is a
//! *supervisor*, a few lines of shell that read the ids of the processes from a pipe. The kernel
//! closes the pipe with its owner, however that ends; then the supervisor ends the processes that
//! it knows.
//!
//! Three details make this hold:
//! - A process is registered with the supervisor *before* it runs its program: it starts as a shell
//!   that waits for one line, so that there is no moment in which it is unknown.
//! - A process is an id **and** its start time ([`Identity`]): an id alone may by now belong to
//!   another process.
//! - Every process and the supervisor have a process group of their own, so that Ctrl-C reaches the
//!   owner only, which ends them in order.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) mod table;

/// How long a process may take to end by itself before it is killed, when all end.
const GRACE: Duration = Duration::from_secs(3);

/// The patience with a process that is stopped by a test, which wants to see an orderly end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends the processes that it knows when its input closes. After `detach` it leaves them running.
///
/// `$state` and `$started` are fields 3 and 22 of `/proc/PID/stat`, counted after the command's
/// name, which ends with the last `)`.
const SUPERVISOR: &str = r#"
trap '' HUP INT
known=
while read -r pid started; do
    [ "$pid" = detach ] && exit 0
    known="$known $pid:$started"
done
living() {
    living=
    for one in $known; do
        pid=${one%:*}
        stat=$(cat "/proc/$pid/stat" 2>/dev/null) || continue
        set -- ${stat##*)}
        [ "$1" != Z ] && [ "${20}" = "${one#*:}" ] && living="$living $pid"
    done
    [ -n "$living" ]
}
living || exit 0
kill -TERM $living 2>/dev/null
# A paused process hears nothing until it is woken.
kill -CONT $living 2>/dev/null
for second in 1 2 3; do
    sleep 1
    living || exit 0
done
kill -KILL $living 2>/dev/null
"#;

/// Waits for one line, then becomes the program that its arguments name.
const GATE: &str = r#"read -r word && exec "$@" </dev/null"#;

/// One process: an id is reused, but not together with its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pid: Pid,
    /// In clock ticks since the machine's start, as `/proc` has it.
    started: u64,
}

impl Identity {
    /// The process that has this id now, if there is one.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let pid = to_pid(pid)?;
        Some(Self { pid, started: look_up(pid)?.1 })
    }

    /// The id of the process.
    pub(crate) fn id(self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Returns true if it still runs; a zombie does not.
    pub(crate) fn runs(self) -> bool {
        look_up(self.pid).is_some_and(|(state, started)| state != 'Z' && started == self.started)
    }

    fn signal(self, signal: Signal) {
        if self.runs() {
            // It may end between the look and the signal: then there is nothing left to do.
            let _ = kill_process(self.pid, signal);
        }
    }
}

/// Zero and what wraps around would be whole groups of processes to `kill`.
fn to_pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

/// State and start time of a process, from `/proc/PID/stat`.
fn look_up(pid: Pid) -> Option<(char, u64)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name may hold anything, also spaces and parentheses; the last one ends it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Ends the first process (etcd) last: an API server without etcd waits for it instead of ending.
pub(crate) fn end_all(processes: &[Identity]) {
    if let Some((first, others)) = processes.split_first() {
        end(others, GRACE);
        end(&[*first], GRACE);
    }
}

/// Asks all to end, waits, kills what is left. Returns when none runs.
fn end(processes: &[Identity], grace: Duration) {
    for (signal, grace) in [(Signal::TERM, grace), (Signal::KILL, GRACE)] {
        for process in processes {
            process.signal(signal);
            // A paused process hears nothing until it is woken.
            process.signal(Signal::CONT);
        }
        let end = Instant::now() + grace;
        while Instant::now() < end {
            if !processes.iter().any(|process| process.runs()) {
                return;
            }
            sleep(Duration::from_millis(10));
        }
    }
}

/// The shell that ends the registered processes after this process has ended.
#[derive(Debug)]
pub(crate) struct Supervisor {
    shell: Child,
    orders: Option<ChildStdin>,
}

impl Supervisor {
    /// Starts one.
    pub(crate) fn start() -> Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SUPERVISOR, "testbed-supervisor"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start the supervisor /bin/sh")?;
        let orders = shell.stdin.take();
        Ok(Self { shell, orders })
    }

    /// Starts `program` under supervision.
    ///
    /// The rest of `command` (arguments, environment, output) is for the caller to have set on the
    /// command that [`gated`] made.
    pub(crate) fn launch(&mut self, command: &mut Command) -> Result<(Child, Identity)> {
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        let begun = self.let_begin(&mut child);
        if begun.is_err() {
            // It waits for a word that will not come, and ends with its input. Not a zombie,
            // please.
            drop(child.stdin.take());
            let _ = child.wait();
        }
        begun.map(|identity| (child, identity))
    }

    fn let_begin(&mut self, child: &mut Child) -> Result<Identity> {
        let identity = Identity::of(child.id()).context("it ended before it began")?;
        self.order(&format!("{} {}", identity.pid.as_raw_nonzero(), identity.started))?;
        let mut gate = child.stdin.take().context("its gate has no rope")?;
        gate.write_all(b"begin\n")?;
        Ok(identity)
    }

    /// Lets everything that was started live on, and ends.
    pub(crate) fn detach(mut self) -> Result<()> {
        self.order("detach")
    }

    fn order(&mut self, line: &str) -> Result<()> {
        let orders = self.orders.as_mut().context("the supervisor has ended")?;
        writeln!(orders, "{line}").context("the supervisor has ended")
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.shell.wait();
    }
}

/// A command that begins only once the supervisor knows it (see [`Supervisor::launch`]).
pub(crate) fn gated(program: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", GATE, "testbed-gate"]).arg(program);
    command
}

/// The processes of one run.
#[derive(Debug)]
pub(crate) struct Processes {
    table: PathBuf,
    supervisor: Option<Supervisor>,
    running: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    identity: Identity,
}

impl Processes {
    /// An empty run that keeps its table at `table`.
    pub(crate) fn new(table: PathBuf) -> Result<Self> {
        Ok(Self { table, supervisor: Some(Supervisor::start()?), running: Vec::new() })
    }

    /// Starts a program under `name`; both of its outputs are appended to `log`.
    pub(crate) fn spawn(
        &mut self,
        name: &str,
        program: &Path,
        arguments: &[String],
        environment: &[(&str, &OsStr)],
        log: &Path,
    ) -> Result<()> {
        let mut launch = || {
            let output = File::options().create(true).append(true).open(log)?;
            let mut command = gated(program);
            command
                .args(arguments)
                .envs(environment.iter().copied())
                .stdout(output.try_clone()?)
                .stderr(output)
                .process_group(0);
            for variable in PROXIES {
                command.env_remove(variable);
            }
            self.supervisor.as_mut().context("the run was detached")?.launch(&mut command)
        };
        let (child, identity) = launch().with_context(|| format!("cannot start {name}"))?;
        self.running.push(Process { name: name.to_owned(), child, identity });
        self.write_table()
    }

    /// A process that ended without having been asked to, and how.
    pub(crate) fn lost(&mut self) -> Option<(String, ExitStatus)> {
        self.running.iter_mut().find_map(|process| {
            let status = process.child.try_wait().ok()??;
            Some((process.name.clone(), status))
        })
    }

    /// Asks the process of this name to end, and waits until it has: a minute, then it is killed.
    /// Returns how it ended; none if there is no such process.
    pub(crate) fn end(&mut self, name: &str) -> Result<Option<ExitStatus>> {
        self.take(name, |identity| end(&[identity], PATIENCE))
    }

    /// Kills the process of this name: none of its code runs any more.
    pub(crate) fn kill(&mut self, name: &str) -> Result<Option<ExitStatus>> {
        self.take(name, |identity| identity.signal(Signal::KILL))
    }

    /// Pauses the process of this name. Returns when it is paused.
    pub(crate) fn pause(&mut self, name: &str) -> Result<()> {
        let identity = self.identity(name)?;
        identity.signal(Signal::STOP);
        let end = Instant::now() + GRACE;
        // T is stopped by a signal.
        while look_up(identity.pid).is_some_and(|(state, _)| state != 'T') {
            ensure!(Instant::now() < end, "{name} does not stop");
            sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Lets a process that was paused go on.
    pub(crate) fn resume(&mut self, name: &str) -> Result<()> {
        self.identity(name)?.signal(Signal::CONT);
        Ok(())
    }

    /// The id of the process of this name.
    pub(crate) fn id(&self, name: &str) -> Result<u32> {
        Ok(self.identity(name)?.pid.as_raw_nonzero().get().unsigned_abs())
    }

    fn identity(&self, name: &str) -> Result<Identity> {
        self.running
            .iter()
            .find(|process| process.name == name && process.identity.runs())
            .map(|process| process.identity)
            .with_context(|| format!("{name} does not run"))
    }

    fn take(&mut self, name: &str, end: impl Fn(Identity)) -> Result<Option<ExitStatus>> {
        let Some(at) = self.running.iter().position(|process| process.name == name) else {
            return Ok(None);
        };
        let mut process = self.running.remove(at);
        end(process.identity);
        let status = process.child.wait().with_context(|| format!("cannot wait for {name}"))?;
        self.write_table()?;
        Ok(Some(status))
    }

    /// Ends everything. Called again, or after [`Processes::detach`], it does nothing.
    pub(crate) fn end_all(&mut self) {
        if self.supervisor.is_none() {
            return;
        }
        reap(std::mem::take(&mut self.running));
        // Only a hint for `down`; the directory may have been removed.
        let _ = self.write_table();
        self.supervisor = None;
    }

    /// Lets everything live on without us.
    pub(crate) fn detach(&mut self) -> Result<()> {
        self.running.clear();
        self.supervisor.take().map_or(Ok(()), Supervisor::detach)
    }

    fn write_table(&self) -> Result<()> {
        let processes = self.running.iter().map(|process| (&*process.name, process.identity));
        table::write(&self.table, processes)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// Everything here is local: a proxy of the user's must not see it. (Go spares loopback addresses,
/// but the API server dials the webhook by its Service's name.)
pub(crate) const PROXIES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

fn reap(mut processes: Vec<Process>) {
    let identities: Vec<_> = processes.iter().map(|process| process.identity).collect();
    end_all(&identities);
    for process in &mut processes {
        let _ = process.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_supervisor_ends_what_its_owner_could_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut processes = Processes::new(dir.path().join("pids")).unwrap();
        for (name, script) in [
            ("usual", "sleep 600"),
            ("deaf", "trap '' TERM; while :; do sleep 1; done"),
            ("paused", "sleep 600"),
        ] {
            let arguments = ["-c".to_owned(), script.to_owned()];
            let log = dir.path().join(name);
            processes.spawn(name, Path::new("/bin/sh"), &arguments, &[], &log).unwrap();
        }
        processes.pause("paused").unwrap();
        // As after the end of the owner: the pipe closes, and no other process sends a signal.
        drop(processes.supervisor.take());
        let end = Instant::now() + Duration::from_secs(30);
        while let Some(one) = processes.running.iter().find(|one| one.identity.runs()) {
            assert!(Instant::now() < end, "{} still runs", one.name);
            sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn an_id_with_another_start_time_is_another_process() {
        let own = Identity::of(std::process::id()).unwrap();
        assert!(own.runs());
        let stranger = Identity { started: own.started + 1, ..own };
        assert!(!stranger.runs());
        // Would end the test.
        end_all(&[stranger]);
    }
}
