//! Calls about the files of shares.

use hyper::Method;

use super::connection::{self, Outgoing};
use super::{Client, ClientError, Page, Result, read, share};
use crate::{
    API_PREFIX, FileDiffQuery, FileDifference, FileEntry, FileQuery, RestoreFiles, RestoredFiles,
    TreeQuery,
};

impl Client {
    /// A page of the entries of a directory, or what is no directory itself.
    pub fn tree(&self, name: &str, query: &TreeQuery) -> Result<Page<FileEntry>> {
        self.page(&share(name).part("tree").query(query))
    }

    /// The bytes of a file, as they come.
    pub fn file(
        &self,
        name: &str,
        query: &FileQuery,
        keep: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<()> {
        let target = format!("{API_PREFIX}{}", share(name).part("file").query(query));
        let outgoing = Outgoing { method: Method::GET, target, body: None };
        match self.runtime.block_on(connection::receive(&self.address, outgoing, keep))? {
            None => Ok(()),
            Some(answer) => Err(ClientError::Problem(Box::new(read(&answer)?))),
        }
    }

    /// Puts files back as they were.
    pub fn restore_files(&self, name: &str, body: &RestoreFiles) -> Result<RestoredFiles> {
        self.post(&share(name).part("restores"), body)
    }

    /// A page of the paths that differ between two moments.
    pub fn diff_files(&self, name: &str, query: &FileDiffQuery) -> Result<Page<FileDifference>> {
        self.page(&share(name).part("diff").query(query))
    }
}
