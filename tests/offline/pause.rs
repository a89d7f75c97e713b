//! `stowplan pause`, the process of a placeholder's pod: how much memory it uses, and how it ends.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::read_to_string;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A running `stowplan pause`, which is killed when it is dropped.
struct Pause(Child);

impl Drop for Pause {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Pause {
    /// Starts it and lets it come to where it waits: in the system call rt_sigtimedwait, which is
    /// the 128th of x86_64 and the 137th of the others.
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stowplan"));
        let child = command.arg("pause").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut pause = Self(child.unwrap());
        loop {
            let call = pause.file("syscall");
            if call.starts_with("128 ") || call.starts_with("137 ") {
                return pause;
            }
            assert_eq!(pause.0.try_wait().unwrap(), None, "it has ended");
            sleep(Duration::from_millis(5));
        }
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    /// Kilobytes: all that it could reach; pages that belong to it alone, as its stack, its heap and
    /// its static data; and pages of the binary and its libraries that are its own because the loader
    /// has written their addresses into them. The last are as large as the binary makes them, whatever
    /// the process does.
    fn memory(&self) -> [u64; 3] {
        let mut is_of_file = false;
        let [mut mapped, mut own, mut of_files] = [0; 3];
        for line in self.file("smaps").lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = || words[1].parse::<u64>().unwrap();
            match words[0] {
                "Size:" => mapped += number(),
                "Anonymous:" if is_of_file => of_files += number(),
                "Anonymous:" => own += number(),
                field if field.ends_with(':') => {}
                _ => is_of_file = words.get(5).is_some_and(|path| path.starts_with('/')),
            }
        }
        [mapped, own, of_files]
    }

    /// Its exit code, once it has ended. The limit is there for a process that does not end at all.
    fn ended(&mut self) -> Option<i32> {
        for _ in 0..1000 {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            sleep(Duration::from_millis(5));
        }
        panic!("it continues");
    }
}

#[test]
fn it_ends_at_once_and_well_when_it_is_told_to_and_says_nothing() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut pause = Pause::start();
        // Signals that it ignores.
        pause.signal(Signal::SIGWINCH);
        pause.signal(Signal::SIGCHLD);
        assert_eq!(pause.0.try_wait().unwrap(), None);
        pause.signal(signal);
        assert_eq!(pause.ended(), Some(0), "{signal}");
        assert_eq!(read_to_string(pause.0.stdout.take().unwrap()).unwrap(), "");
        assert_eq!(read_to_string(pause.0.stderr.take().unwrap()).unwrap(), "");
    }
}

#[test]
fn it_is_one_thread_and_next_to_no_memory_and_no_more_the_longer_it_waits() {
    let pause = Pause::start();
    assert!(pause.file("status").contains("\nThreads:\t1\n"), "{}", pause.file("status"));
    let first = pause.memory();
    let [_, own, of_files] = first;
    assert!((1..1024).contains(&own) && of_files > 0, "{first:?}");
    for _ in 0..20 {
        // It comes round to where it waits again.
        pause.signal(Signal::SIGSTOP);
        pause.signal(Signal::SIGCONT);
        pause.signal(Signal::SIGWINCH);
        sleep(Duration::from_millis(10));
        assert_eq!(pause.memory(), first);
    }
}
