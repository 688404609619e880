//! What a command works with: the common options and, once it is needed, a client of the chosen cluster.

use crate::cli::Common;
use crate::failure::{Failure, Outcome};
use std::path::PathBuf;
use vazao_client::{Client, Config, Options};

/// The environment variable that names the cluster.
pub(crate) const CLUSTER_VARIABLE: &str = "VAZAO_CLUSTER";

/// The surroundings of one command.
pub(crate) struct Context {
    /// Options that every command has.
    pub(crate) common: Common,
}

impl Context {
    /// The client.toml in effect: the option's, the environment's, the user's default.
    pub(crate) fn cluster_file(&self) -> Outcome<PathBuf> {
        if let Some(file) = &self.common.cluster {
            return Ok(file.clone());
        }
        let given = std::env::var_os(CLUSTER_VARIABLE).is_some_and(|file| !file.is_empty());
        let file = Config::default_path();
        if given {
            return Ok(file);
        }
        if !file.exists() {
            return Err(Failure::new(format!(
                "no cluster given and {} does not exist; start one with `vazao up --dir DIR` and run the export line it prints, or give --cluster FILE",
                file.display()
            )));
        }
        Ok(file)
    }

    /// Connects to the cluster.
    pub(crate) fn client(&self) -> Outcome<Client> {
        self.client_with(|_| ())
    }

    /// Connects with other options than the configuration asks for.
    pub(crate) fn client_with(&self, change: impl FnOnce(&mut Options)) -> Outcome<Client> {
        let file = self.cluster_file()?;
        let config = Config::load(&file)?;
        let mut options = config.options();
        change(&mut options);
        Ok(Client::connect_with(&config, options)?)
    }
}
