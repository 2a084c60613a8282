//! Tests of the server from outside: its HTTP API on a real pool, and its OpenAPI document.

mod certificates;
mod fixture;
mod guards;
mod hooks;
mod http_tls;
mod life;
mod model;
mod nbd_rights;
mod openapi;
mod patterns;
mod proofs;
mod recording;
mod refusals;
mod rename;
mod rights;
mod schedules;
mod scratch;
mod share_archives;
mod share_files;
mod share_operations;
mod shares;
mod starting;
mod timeline;
mod tokens;
mod trash;
mod watches;
