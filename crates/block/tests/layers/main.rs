//! What the layers over one device do, each beside the others in a file of its own.

mod crypt;
mod pair;
