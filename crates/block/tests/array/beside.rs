//! What layers keep beside their data, their headers, on a device that takes the place of a member:
//! it must be enough by itself afterwards.

use std::sync::Arc;

use hindsight_block::{Array, BlockDevice};
use sim::SimMedia;

use crate::settling::Settling;
use crate::{AREA_BYTES, DATA_BYTES, MIB, Rig, bring_up, candidate, lose, materials, read, write};

/// A device of which only the first MiB is blank, as that is all that is looked at.
fn used_before(seed: u64) -> Arc<SimMedia> {
    let media = Arc::new(SimMedia::filled(AREA_BYTES + DATA_BYTES, seed, 0x77));
    let device = hindsight_block::MediaDevice::new(Arc::<SimMedia>::clone(&media));
    write(&device, 0, &[0; AREA_BYTES as usize]);
    device.flush().expect("flushed");
    media
}

#[test]
fn a_device_in_the_place_of_a_member_is_enough_by_itself() {
    for stack in [
        "crypt[key=env:K](mirror(a, b))",
        "crypt[key=env:K](parity[journal=64KiB](a, c, b))",
        "crypt[key=env:K](crypt[key=env:L](mirror(a, b)))",
    ] {
        let rig = Rig::new(stack, 61);
        let array = rig.open();
        let last = rig.media.len() - 1;
        // Nothing is in the second region and after it.
        write(&array, 100, &[5; 9000]);
        array.flush().expect("flushed");
        let fresh = used_before(62);
        lose(&array, &rig.media[last], last);
        array.replace(last, candidate("new", &fresh), 63).expect("replaced");
        bring_up(&array);
        array.close().expect("closed");
        drop(array);
        let mut candidates = rig.candidates(&[0, last]);
        candidates.push(candidate("new", &fresh));
        let array = Array::open(candidates, &materials()).expect(stack);
        array.settle_by_the_first().expect("settled");
        assert_eq!(read(&array, 100, 9000), [5; 9000], "{stack}");
        for at in [100, MIB + 100, array.len_bytes() - 9000] {
            write(&array, at, &[6; 9000]);
            array.flush().expect("flushed");
            assert_eq!(read(&array, at, 9000), [6; 9000], "{stack}");
        }
    }
}
