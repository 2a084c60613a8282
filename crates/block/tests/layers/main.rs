//! What the layers over one device do, each beside the others in a file of its own.

mod crypt;
mod guard;
mod integrity;
mod integrity_copies;
mod integrity_crashes;
mod pair;
mod passing;
