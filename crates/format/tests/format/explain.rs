//! The texts that `inspect` prints.

use crate::examples;

#[test]
fn a_superblock_is_explained_without_its_secret() {
    let text = examples::superblock().explain();
    assert!(text.contains("  catalogue_zones       [1, 44]\n"), "{text}");
    assert!(text.contains("  pool_id               0f1e2d3c4b5a69788796a5b4c3d2e1f0\n"), "{text}");
    assert!(!text.contains("123456789abcdef"), "{text}");
}

#[test]
fn a_label_is_explained_with_its_members() {
    let text = examples::label().explain();
    assert!(text.contains("stack                 mirror(0, 1)"), "{text}");
    assert!(text.contains("out, 1073741824 bytes, put out by generation 5, b.img"), "{text}");
}
