//! Tests of the server from outside: its HTTP API on a real pool, and its OpenAPI document.

mod openapi;
