//! Structures of members with sound checksums and absurd numbers: an error, or whatever the other
//! copies say, but never a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use format::checksum::salted_crc;
use format::field::Field;
use format::{crypt, label, parity};
use hindsight_block::{Array, BlockDevice, MediaDevice, named_by};
use sim::{Random, SimMedia};

use crate::settling::Settling;
use crate::{AREA_BYTES, MIB, Rig, candidate, grow, materials, read, write};

/// What is put into every field: the ends of what it holds, and the numbers about limits.
const NUMBERS: [u64; 15] = [
    0,
    1,
    2,
    33,
    511,
    4097,
    (1 << 31) + 1,
    u32::MAX as u64,
    1 << 40,
    1 << 56,
    (1 << 56) + 1,
    1 << 62,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// A structure on every member.
struct Structure {
    name: &'static str,
    salt: &'static [u8; 4],
    bytes: usize,
    places: &'static [u64],
    fields: Vec<Field>,
}

fn structures() -> Vec<Structure> {
    let of = |name, salt, bytes, places, fields: &[Field]| Structure {
        name,
        salt,
        bytes,
        places,
        fields: fields.to_vec(),
    };
    let row = |number: usize| {
        let start = 4224 + number * label::layout::MEMBER_BYTES;
        let moved = move |field: &Field| Field { offset: start + field.offset, ..*field };
        label::layout::MEMBER_FIELDS.iter().map(moved).collect::<Vec<_>>()
    };
    let whole = label::layout::BYTES;
    vec![
        of("label", b"labl", whole, &label::COPY_OFFSETS, label::layout::FIELDS),
        of("member 0", b"labl", whole, &label::COPY_OFFSETS, &row(0)),
        of("member 1", b"labl", whole, &label::COPY_OFFSETS, &row(1)),
        of(
            "regions",
            b"rgns",
            label::layout::REGIONS_BYTES,
            &label::REGIONS_OFFSETS,
            label::layout::REGIONS_FIELDS,
        ),
        of("crypt", b"cryp", 512, &[AREA_BYTES, AREA_BYTES + 65_536], crypt::layout::FIELDS),
        of("record", b"prty", 4096, &[AREA_BYTES, AREA_BYTES + 65_536], parity::layout::FIELDS),
    ]
}

/// Puts a number into a field of the copies of a structure on a member, with a right checksum;
/// whether there was any that was sound before.
fn alter(media: &SimMedia, structure: &Structure, field: &Field, number: u64) -> bool {
    let mut is_any = false;
    for &place in structure.places {
        let mut bytes = vec![0; structure.bytes];
        env::Media::read_at(media, place, &mut bytes).expect("read");
        let salt = u32::from_le_bytes(*structure.salt);
        let crc = |bytes: &[u8]| salted_crc(salt, &[&bytes[..8], &bytes[12..]].concat());
        if crc(&bytes).to_le_bytes() != bytes[8..12] {
            continue;
        }
        is_any = true;
        let wide: Vec<u8> =
            number.to_le_bytes().iter().copied().cycle().take(field.bytes).collect();
        bytes[field.offset..field.end()].copy_from_slice(&wide);
        let crc = crc(&bytes);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        env::Media::write_at(media, place, &[std::io::IoSlice::new(&bytes)]).expect("written");
        env::Media::sync(media).expect("synced");
    }
    is_any
}

/// Uses an array for all that it can be used for.
fn exercise(rig: &Rig) {
    if let Ok(array) = rig.try_open(&[]) {
        let length = array.len_bytes();
        let _ = array.settle_by_the_first();
        let _ = array.write_at(0, &[std::io::IoSlice::new(&[1; 5000])]);
        let _ = array.write_at(length.saturating_sub(5000), &[std::io::IoSlice::new(&[1; 5000])]);
        let _ = array.discard(MIB, 2 * MIB);
        let _ = array.flush();
        let _ = array.read_at(100, &mut [0; 9000]);
        (0..3).for_each(|_| _ = array.tidy());
        let _ = array.step();
        let spare = std::sync::Arc::new(SimMedia::new(32 * MIB, 5));
        let _ = array.add_spare(candidate("s", &spare), 7);
        let _ = array.remove_spare("s");
        let _ = (array.members(), array.behind_bytes(), array.stack(), array.unsettled());
        let _ = array.close();
    }
    let _ = grow::grow(rig.candidates(&[]), None);
    let new = grow::blank(&["x", "y", "z"], 4 * MIB);
    let part = "parity[journal=64KiB](x, y, z)";
    let _ = grow::grow(rig.candidates(&[]), Some((part, grow::candidates(&new))));
    if let Ok(array) = rig.try_open(&[0]) {
        let _ = array.settle_by_the_first();
        let _ = array.read_at(100, &mut [0; 9000]);
    }
}

#[test]
fn absurd_numbers_with_a_right_checksum_are_errors_and_no_panics() {
    let mut random = Random::new(71);
    for (stack, names) in [
        ("mirror(a, b)", &["label", "member 0", "member 1", "regions"][..]),
        ("concat(a, b)", &["label", "member 0", "member 1"]),
        ("crypt[key=env:K](mirror(a, b))", &["crypt"]),
        ("mirror(crypt[key=env:K](a), crypt[key=env:K](b))", &["crypt"]),
        ("parity[journal=64KiB](a, b, c)", &["label", "member 1", "regions", "record"]),
    ] {
        for structure in structures().iter().filter(|s| names.contains(&s.name)) {
            for field in structure.fields.iter().filter(|field| field.name != "crc") {
                for number in NUMBERS.into_iter().chain([random.below(u64::MAX)]) {
                    let rig = Rig::new(stack, 71);
                    let array = rig.open();
                    write(&array, 100, &[3; 9000]);
                    array.close().expect("closed");
                    drop(array);
                    // One member, or all of them.
                    let count = if random.chance(500) { 1 } else { rig.media.len() };
                    for media in &rig.media[..count] {
                        assert!(alter(media, structure, field, number), "{}", structure.name);
                    }
                    let outcome = catch_unwind(AssertUnwindSafe(|| exercise(&rig)));
                    let (structure, field) = (structure.name, field.name);
                    assert!(outcome.is_ok(), "{stack}: {field} of {structure} is {number}");
                }
            }
        }
    }
}

#[test]
fn what_is_altered_on_one_member_is_had_from_the_other() {
    let structures = structures();
    let label = &structures[0];
    let generation = label.fields.iter().find(|f| f.name == "generation").expect("it has one");
    let rig = Rig::new("mirror(a, b)", 72);
    let array = rig.open();
    write(&array, 100, &[3; 9000]);
    array.close().expect("closed");
    drop(array);
    assert!(alter(&rig.media[0], label, generation, u64::MAX));
    let array = rig.open();
    assert_eq!(read(&array, 100, 9000), [3; 9000]);
    drop(array);
    let device = MediaDevice::new(std::sync::Arc::<SimMedia>::clone(&rig.media[0]));
    assert!(!hindsight_block::has_label(&device), "a label of the end of time is none");
    drop(Array::open(rig.candidates(&[0]), &materials()).expect("the other one"));
}

/// A layer that there was once: what lies on it is not read as something else.
#[test]
fn a_label_that_names_a_layer_that_is_no_more_is_refused_with_what_to_do() {
    let rig = Rig::new("mirror(a, b)", 73);
    let array = rig.open();
    write(&array, 100, &[3; 9000]);
    array.close().expect("closed");
    drop(array);
    for media in &rig.media {
        let device = MediaDevice::new(Arc::<SimMedia>::clone(media));
        for (copy, at) in label::COPY_OFFSETS.into_iter().enumerate() {
            let bytes = read(&device, at, label::layout::BYTES);
            let Ok(sound) = label::Label::decode(&bytes, copy) else { continue };
            let named = label::Label { stack: "integrity(mirror(0, 1))".to_owned(), ..sound };
            write(&device, at, &named.encode(copy));
        }
        device.flush().expect("flushed");
    }
    let before: Vec<_> = rig.media.iter().map(|media| media.fork()).collect();
    let device = rig.candidates(&[]).remove(0).device.expect("there");
    let told = [
        rig.try_open(&[]).map(drop).expect_err("refused").to_string(),
        grow::grow(rig.candidates(&[]), None).expect_err("refused").to_string(),
        named_by(&*device).expect_err("refused").to_string(),
    ];
    for error in told {
        assert!(error.contains("integrity was removed") && error.contains("export"), "{error}");
    }
    for (before, now) in before.into_iter().zip(&rig.media) {
        let of = |media: Arc<SimMedia>| {
            let device = MediaDevice::new(media);
            read(&device, 0, device.len_bytes() as usize)
        };
        assert!(of(Arc::new(before)) == of(Arc::clone(now)), "something was written");
    }
}
