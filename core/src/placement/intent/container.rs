//! The changes to a container.

use std::fmt;

use serde_json::Value;

/// A change that a container should have.
#[derive(Clone, Debug, PartialEq)]
pub enum ContainerChange {
    /// A variable of the environment.
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// A part of a volume at a path.
    Mount {
        /// The name of the volume.
        volume: &'static str,
        /// The part: a file or directory of the volume; `None`: all of it.
        part: Option<&'static str>,
        /// The path in the container.
        path: String,
    },
    /// This command. Never for a container that has a command or arguments.
    Command(Vec<String>),
    /// This readiness probe. Never for a container that has one.
    ReadinessProbe(Value),
}

impl fmt::Display for ContainerChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable { name, value } => write!(formatter, "variable {name}={value}"),
            Self::Mount { volume, path, .. } => write!(formatter, "volume {volume} at {path}"),
            Self::Command(command) => write!(formatter, "command {}", command.join(" ")),
            Self::ReadinessProbe(_) => formatter.write_str("readiness probe"),
        }
    }
}
