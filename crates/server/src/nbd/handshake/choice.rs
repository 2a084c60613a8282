//! The two options about metadata contexts.

use std::sync::Arc;

use wire::nbd::limits::META_CONTEXTS_MAX;
use wire::nbd::{MetaRequest, OptionCode, OptionReplyKind, ReplyStyle, encode};

use super::super::contexts::{self, MetaContext};
use super::{Handshake, HandshakeError, Next};
use crate::serving::{Export, OpenError, off_thread};

impl Handshake<'_> {
    pub(super) async fn list_contexts(
        &mut self,
        code: OptionCode,
        meta: &MetaRequest<'_>,
    ) -> Result<Next, HandshakeError> {
        if self.style == ReplyStyle::Simple {
            return Ok(self.refuse(code, OptionReplyKind::INVALID, "structured replies first"));
        }
        let export = match self.open(meta.name).await? {
            Ok(export) => export,
            Err((kind, error)) => return Ok(self.refuse(code, kind, &error.message)),
        };
        let queries: Vec<String> = meta.queries.iter().map(|&q| q.to_owned()).collect();
        let found = off_thread(move || {
            let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
            contexts::listed(&export, &queries)
        });
        match found.await? {
            Ok(found) => {
                for name in &found {
                    encode::meta_context(code, 0, name, &mut self.out);
                }
                Ok(self.ack(code))
            }
            Err(error) => Ok(self.refuse_contexts(code, error)),
        }
    }

    pub(super) async fn set_contexts(
        &mut self,
        code: OptionCode,
        meta: &MetaRequest<'_>,
    ) -> Result<Next, HandshakeError> {
        // Earlier choices are gone, also when this fails.
        self.contexts = None;
        if self.style == ReplyStyle::Simple {
            return Ok(self.refuse(code, OptionReplyKind::INVALID, "structured replies first"));
        }
        let export = match self.open(meta.name).await? {
            Ok(export) => export,
            Err((kind, error)) => return Ok(self.refuse(code, kind, &error.message)),
        };
        let queries: Vec<String> = meta.queries.iter().map(|&q| q.to_owned()).collect();
        match off_thread(move || choose_contexts(&export, &queries)).await? {
            Ok(chosen) if chosen.len() > META_CONTEXTS_MAX => {
                Ok(self.refuse(code, OptionReplyKind::TOO_BIG, "more than 16 contexts"))
            }
            Ok(chosen) => {
                for context in &chosen {
                    encode::meta_context(code, context.id, &context.name, &mut self.out);
                }
                self.contexts = Some((meta.name.to_owned(), chosen));
                Ok(self.ack(code))
            }
            Err(error) => Ok(self.refuse_contexts(code, error)),
        }
    }

    fn refuse_contexts(&mut self, code: OptionCode, error: OpenError) -> Next {
        let (_, error) = self.told(error);
        self.refuse(code, OptionReplyKind::INVALID, &error.message)
    }
}

/// The contexts that queries choose, at most one more than allowed.
fn choose_contexts(
    export: &Arc<dyn Export>,
    queries: &[String],
) -> Result<Vec<MetaContext>, OpenError> {
    let mut chosen: Vec<MetaContext> = Vec::new();
    for name in queries {
        if chosen.len() > META_CONTEXTS_MAX || chosen.iter().any(|c| c.name == *name) {
            continue;
        }
        if let Some(kind) = contexts::choose(export, name)? {
            let id = u32::try_from(chosen.len()).expect("a few") + 1;
            chosen.push(MetaContext { id, name: name.clone(), kind });
        }
    }
    Ok(chosen)
}
