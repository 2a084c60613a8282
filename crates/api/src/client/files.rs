//! Calls about the files of shares.

use std::io::{self, Read};

use hyper::Method;

use super::connection::{self, Content, Outgoing};
use super::target::Target;
use super::{Client, ClientError, Page, Result, read, share};
use crate::{
    API_PREFIX, ArchiveQuery, FileDiffQuery, FileDifference, FileEntry, FileQuery,
    ImportFilesQuery, ImportedFiles, RestoreFiles, RestoredFiles, TreeQuery,
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
        keep: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<()> {
        self.receive(&share(name).part("file").query(query), keep)
    }

    /// A tree as an archive, as it comes.
    pub fn archive(
        &self,
        name: &str,
        query: &ArchiveQuery,
        keep: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<()> {
        self.receive(&share(name).part("archive").query(query), keep)
    }

    fn receive(
        &self,
        target: &Target,
        keep: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<()> {
        let target = format!("{API_PREFIX}{target}");
        let outgoing = Outgoing { method: Method::GET, target, content: Content::None };
        match self.runtime.block_on(connection::receive(self.place(), outgoing, keep))? {
            None => Ok(()),
            Some(answer) => Err(ClientError::Problem(Box::new(read(&answer)?))),
        }
    }

    /// Puts an archive into a share, as it is read.
    pub fn import_files(
        &self,
        name: &str,
        query: &ImportFilesQuery,
        archive: impl Read + Send + 'static,
    ) -> Result<ImportedFiles> {
        let target = format!("{API_PREFIX}{}", share(name).part("archive").query(query));
        let content = Content::Archive(Box::new(archive));
        let outgoing = Outgoing { method: Method::POST, target, content };
        read(&self.send(outgoing)?)
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
