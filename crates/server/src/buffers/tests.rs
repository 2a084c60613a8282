//! Buffers: how many, whose, and who waits for whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use wire::nbd::{ReplyStyle, encode};

use super::pool::HEADROOM;
use super::{BUFFERS_BYTES_MIN, Buffers, Chain, OWN_BYTES, Purpose, Taker};

const LONGEST: usize = 32 << 20;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Woken {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn taker(buffers: &Arc<Buffers>) -> (Taker, Arc<Woken>) {
    let woken = Arc::new(Woken::default());
    let mut taker = Taker::new(buffers);
    taker.begin(&Waker::from(Arc::clone(&woken)));
    (taker, woken)
}

/// A turn that asks for buffers once.
fn turn(taker: &mut Taker, offset: u64, length: usize) -> Option<Chain> {
    taker.begin(&Waker::noop().clone());
    let taken = taker.take(Purpose::Write, offset, length);
    taker.end();
    taken
}

#[test]
fn the_longest_request_fits_the_least_memory_wherever_it_begins() {
    for is_pool in [true, false] {
        let buffers = Arc::new(Buffers::new(0, is_pool));
        assert_eq!(buffers.total_bytes, BUFFERS_BYTES_MIN);
        let (mut taker, _) = taker(&buffers);
        for offset in [0, 512, 4095] {
            let mut chain = taker.take(Purpose::Write, offset, LONGEST).expect("enough");
            let mut at = offset;
            for piece in chain.pieces_mut() {
                piece.fill((at % 251) as u8);
                at += piece.len() as u64;
                assert!(at.is_multiple_of(4096) || at == offset + LONGEST as u64, "{at}");
            }
            assert_eq!((chain.len(), at), (LONGEST, offset + LONGEST as u64));
            assert!(chain.unfilled(LONGEST).is_empty());
            assert_eq!(chain.unfilled(LONGEST - 7).len(), 7);
            drop(chain);
            assert_eq!(buffers.held_bytes(), 0);
        }
    }
}

#[test]
fn a_reply_is_its_header_and_its_data() {
    let buffers = Arc::new(Buffers::default());
    let (mut taker, _) = taker(&buffers);
    for length in [1, 4096, (256 << 10) + 5] {
        let mut chain = taker.take(Purpose::Write, 0, length).expect("enough");
        chain.pieces_mut().for_each(|piece| piece.fill(7));
        assert_eq!(chain.reply_bytes(), length);
        chain.set_header(b"header");
        let whole: Vec<u8> = chain.reply().flatten().copied().collect();
        assert_eq!(whole.len(), chain.reply_bytes());
        assert_eq!(&whole[..6], b"header");
        assert!(whole[6..].iter().all(|&byte| byte == 7) && whole.len() == 6 + length);
    }
}

#[test]
fn a_header_of_any_style_fits() {
    for style in [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended] {
        assert!(encode::read_data_bytes(style) <= HEADROOM, "{style:?}");
    }
}

#[test]
fn one_connection_gets_its_share_and_then_its_own_and_others_the_rest() {
    let buffers = Arc::new(Buffers::default());
    let (mut greedy, woken) = taker(&buffers);
    let mut chains: Vec<Chain> = (0..65).map_while(|_| turn(&mut greedy, 0, 256 << 10)).collect();
    assert_eq!(chains.len(), 64, "a quarter of 64 MiB");
    assert!(!greedy.is_waiting(), "its own requests wake it");
    let own = turn(&mut greedy, 0, OWN_BYTES).expect("its own");
    assert!(turn(&mut greedy, 0, OWN_BYTES).is_none(), "one at a time");
    assert!(turn(&mut greedy, 0, OWN_BYTES + 1).is_none());
    drop(own);
    let _own = turn(&mut greedy, 0, OWN_BYTES).expect("again");
    let (mut other, _) = taker(&buffers);
    drop(turn(&mut other, 0, LONGEST).expect("what the share of one leaves"));
    chains.pop();
    assert!(turn(&mut greedy, 0, 256 << 10).is_some() && woken.count() == 0);
}

#[test]
fn who_waits_is_served_in_order_and_loses_its_place_when_it_stops_asking() {
    let buffers = Arc::new(Buffers::default());
    let (mut first, _) = taker(&buffers);
    let all = first.take(Purpose::Write, 0, LONGEST).expect("enough");
    let (mut second, woken_second) = taker(&buffers);
    let (mut third, woken_third) = taker(&buffers);
    assert!(second.take(Purpose::Write, 0, LONGEST).is_none() && second.is_waiting());
    assert!(
        third.take(Purpose::Write, 0, 1 << 20).is_none(),
        "some are left, but the second came before"
    );
    let small = third.take(Purpose::Write, 0, 4096).expect("of another size");
    assert!(third.take(Purpose::Write, 0, 1 << 20).is_none() && third.is_waiting());
    drop(all);
    assert!(woken_second.count() > 0 && woken_third.count() == 0);
    // The second has a turn in which it does not ask: its client takes no replies.
    second.begin(&Waker::noop().clone());
    second.end();
    assert!(!second.is_waiting() && woken_third.count() == 1);
    drop(small);
    assert!(third.take(Purpose::Write, 0, 1 << 20).is_some() && !third.is_waiting());
    let rest = second.take(Purpose::Write, 0, LONGEST).expect("enough");
    assert!(first.take(Purpose::Write, 0, LONGEST).is_none() && first.is_waiting());
    drop(first);
    drop(rest);
    assert_eq!(buffers.held_bytes(), 0);
    assert!(third.take(Purpose::Write, 0, 1 << 20).is_some(), "who is gone waits no more");
}

#[test]
fn without_a_pool_there_are_as_many() {
    let buffers = Arc::new(Buffers::new(64 << 20, false));
    let chains: Vec<Chain> =
        std::iter::repeat_with(|| taker(&buffers).0.take(Purpose::Write, 0, 256 << 10))
            .map_while(|chain| chain)
            .collect();
    assert_eq!(chains.len(), 192);
    drop(chains);
    assert_eq!(buffers.held_bytes(), 0);
}

#[test]
fn reads_have_some_that_writes_do_not_take() {
    let buffers = Arc::new(Buffers::default());
    let mut writes: Vec<Chain> =
        std::iter::repeat_with(|| taker(&buffers).0.take(Purpose::Write, 0, 256 << 10))
            .map_while(|chain| chain)
            .collect();
    assert_eq!(writes.len(), 192);
    let (mut writer, woken_writer) = taker(&buffers);
    assert!(writer.take(Purpose::Write, 0, 256 << 10).is_none() && writer.is_waiting());
    let (mut reader, woken_reader) = taker(&buffers);
    let read = reader.take(Purpose::Read, 0, 2 << 20).expect("some are for reads");
    let (mut second, woken_second) = taker(&buffers);
    assert!(second.take(Purpose::Read, 0, 2 << 20).is_none(), "four are left of twelve");
    drop(second.take(Purpose::Read, 0, 1 << 20).expect("as many as are left"));
    assert!(second.take(Purpose::Read, 0, 2 << 20).is_none() && second.is_waiting());
    let before = woken_writer.count();
    drop(read);
    assert!(woken_second.count() > 0 && woken_writer.count() == before, "they are not for it");
    assert!(second.take(Purpose::Read, 0, 2 << 20).is_some());
    // Buffers that writes give back are for the first in line.
    drop(writes.pop());
    assert!(woken_writer.count() > before && woken_reader.count() == 0);
    assert!(writer.take(Purpose::Write, 0, 256 << 10).is_some());
    drop(writes);
    assert_eq!(buffers.held_bytes(), 0);
}

#[test]
fn a_read_is_woken_though_a_longer_one_came_before() {
    let buffers = Arc::new(Buffers::default());
    let all: Vec<_> =
        std::iter::repeat_with(|| taker(&buffers).0.take(Purpose::Write, 0, 256 << 10))
            .map_while(|taken| taken)
            .collect();
    let (mut reader, _) = taker(&buffers);
    let kept = reader.take(Purpose::Read, 0, 3 << 20).expect("twelve are for reads");
    let ((mut long, long_woken), (mut short, short_woken)) = (taker(&buffers), taker(&buffers));
    assert!(long.take(Purpose::Read, 0, 4 << 20).is_none() && long.is_waiting());
    assert!(short.take(Purpose::Read, 0, 256 << 10).is_none() && short.is_waiting());
    drop(kept);
    assert!(short_woken.count() > 0, "one of twelve is enough for it");
    assert_eq!(long_woken.count(), 0, "twelve are not enough for sixteen");
    assert!(short.take(Purpose::Read, 0, 256 << 10).is_some());
    drop(all);
    assert!(long.take(Purpose::Read, 0, 4 << 20).is_some());
}
