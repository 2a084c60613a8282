//! Writes that meet each other half way, which threads do too seldom.

use std::io::IoSlice;
use std::sync::Arc;

use env::{Media, PIECE_BYTES};
use format::label::AREA_BYTES;
use sim::{SimEntropy, SimMedia, SimMemories};

use super::{WriteBuffer, WriteBuffers};

fn over(media: &Arc<SimMedia>) -> (WriteBuffers, Arc<WriteBuffer>) {
    media.write_at(0, &[IoSlice::new(b"HINDLABL"), IoSlice::new(&[0; 512])]).expect("a label");
    let memories = Box::new(SimMemories::of(media, 1));
    let all = WriteBuffers::new(memories, Box::new(SimEntropy::new(1)));
    all.set_memory_bytes(2 * PIECE_BYTES);
    let buffer = all.over(Arc::<SimMedia>::clone(media)).expect("opened");
    all.tick();
    buffer.allocate(AREA_BYTES, PIECE_BYTES).expect("there is space");
    buffer.write_at(AREA_BYTES, &[IoSlice::new(&[1; 64])]).expect("written");
    assert!(all.grow() && all.grow());
    buffer.write_at(AREA_BYTES, &[IoSlice::new(&[1; 65_536])]).expect("it waits");
    (all, buffer)
}

fn at(media: &dyn Media, offset: u64) -> u8 {
    let mut byte = [0];
    media.read_at(AREA_BYTES + offset, &mut byte).expect("read");
    byte[0]
}

#[test]
fn what_is_written_past_a_slot_stays_though_something_beside_it_is_being_replaced() {
    let media = Arc::new(SimMedia::new(AREA_BYTES + PIECE_BYTES, 1));
    let (all, buffer) = over(&media);
    let slot = buffer.0.lock().slot_of(1).expect("it has one");
    buffer.0.lock().begin_overwrite(slot);
    buffer.write_durable(AREA_BYTES + 4096, &[IoSlice::new(&[2; 4096])]).expect("durable");
    buffer.0.lock().end_overwrite(slot);
    buffer.sync().expect("synced");
    assert_eq!([0, 4095, 4096, 8191, 8192].map(|o| at(&*media, o)), [1, 1, 2, 2, 1]);
    assert_eq!([0, 4095, 4096, 8191, 8192].map(|o| at(&*buffer, o)), [1, 1, 2, 2, 1]);
    drop(buffer);
    drop(all);
}

#[test]
fn what_was_replaced_while_it_was_written_is_written_again() {
    let media = Arc::new(SimMedia::new(AREA_BYTES + PIECE_BYTES, 1));
    let (all, buffer) = over(&media);
    let slot = buffer.0.lock().slot_of(1).expect("it has one");
    buffer.0.lock().begin_overwrite(slot);
    buffer.sync().expect("synced");
    assert_eq!(all.status()[0].waiting_bytes, PIECE_BYTES, "it may be there in part");
    buffer.0.lock().end_overwrite(slot);
    buffer.sync().expect("synced");
    assert_eq!(all.status()[0].waiting_bytes, 0);
}
