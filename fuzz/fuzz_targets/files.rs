//! A disk that somebody made to break its reader: read or refused, and it comes to an end. Images
//! without checksums reach everything; the corpus begins well with one of mke2fs, `-O
//! ^metadata_csum`, of a MiB.

#![no_main]

use std::ops::ControlFlow;
use std::rc::Rc;

use hindsight_files::{Error, Kind, Node, Source, Tree, open, parts, read_all, walk};
use libfuzzer_sys::fuzz_target;

/// Objects and bytes that are looked at.
const OBJECTS_MAX: usize = 1000;
const BYTES_MAX: usize = 4 << 20;

fn look(tree: &dyn Tree, node: Node, kind: Kind) {
    let _ = tree.extended(node);
    let mut left = BYTES_MAX;
    match kind {
        Kind::Symlink => drop(tree.link(node)),
        Kind::File => drop(read_all(tree, node, &mut |_, bytes| {
            left = left.saturating_sub(bytes.len());
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })),
        _ => {}
    }
}

fuzz_target!(|bytes: &[u8]| {
    let disk: Rc<dyn Source> = Rc::new(bytes.to_vec());
    let Ok((_, parts)) = parts(&disk) else { return };
    for part in parts {
        let Ok((_, tree)) = open(&disk, &part) else { continue };
        let mut left = OBJECTS_MAX;
        let _ = walk(&*tree, tree.top(), &mut |_, node, known| -> Result<(), Option<Error>> {
            left = left.checked_sub(1).ok_or(None)?;
            look(&*tree, node, known.kind);
            Ok(())
        });
    }
});
