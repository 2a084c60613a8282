//! NBD messages: known byte sequences, round trips, limits, and bytes that are damaged or random.

use hindsight_wire as wire;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::{collection, option};
use wire::nbd::decode::{self, Garbage, OptionError};
use wire::nbd::limits::{META_CONTEXTS_MAX, META_QUERIES_MAX, STRING_BYTES_MAX};
use wire::nbd::{
    ChunkKind, ClientFlags, ClientOption, Command, CommandFlags, Errno, HeaderStyle, InfoItem,
    InfoRequest, MetaRequest, OptionCode, OptionReplyKind, ReplyHeader, ReplyStyle, Request,
    Status, TransmissionFlags, encode,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("digits");
        u8::from_str_radix(pair, 16).expect("digits")
    };
    digits.chunks(2).map(byte).collect()
}

const READ: Request = Request {
    flags: CommandFlags(0),
    command: Command::Read,
    cookie: 0x0102_0304_0506_0708,
    offset: 0x1000,
    length_bytes: 0x200,
};

#[test]
fn the_greeting_is_fixed_newstyle_without_padding() {
    assert_eq!(encode::greeting().to_vec(), hex("4e42444d41474943 49484156454f5054 0003"));
    let client = decode::client_flags([0, 0, 0, 3]).expect("known flags");
    assert_eq!(client, ClientFlags { fixed_newstyle: true, no_zeroes: true });
    assert_eq!(decode::client_flags([0, 0, 0, 4]), Err(Garbage::ClientFlags(4)));
}

#[test]
fn options_have_their_known_bytes() {
    let mut data = Vec::new();
    encode::info_request("pg", &[InfoItem::BLOCK_SIZE], &mut data);
    let mut bytes = Vec::new();
    encode::option(OptionCode::GO, &data, &mut bytes);
    assert_eq!(bytes, hex("49484156454f5054 00000007 0000000a 00000002 7067 0001 0003"));
    let (header, data) = bytes.split_first_chunk().expect("a header");
    let header = decode::option_header(header).expect("an option");
    assert_eq!((header.code, header.length_bytes), (OptionCode::GO, 10));
    let go = decode::option(header.code, data);
    assert_eq!(go, Ok(ClientOption::Go(InfoRequest { name: "pg", items: vec![3] })));
}

#[test]
fn replies_to_options_have_their_known_bytes() {
    let mut bytes = Vec::new();
    let flags = TransmissionFlags::HAS_FLAGS.with(TransmissionFlags::FLUSH);
    encode::info_item(OptionCode::GO, InfoItem::Export { size_bytes: 1 << 30, flags }, &mut bytes);
    assert_eq!(
        bytes,
        hex("0003e889045565a9 00000007 00000003 0000000c 0000 0000000040000000 0005")
    );
    bytes.clear();
    encode::option_error(OptionCode(99), OptionReplyKind::UNSUPPORTED, "no", &mut bytes);
    assert_eq!(bytes, hex("0003e889045565a9 00000063 80000001 00000002 6e6f"));
    bytes.clear();
    encode::listed_export("a", "b", &mut bytes);
    assert_eq!(bytes, hex("0003e889045565a9 00000003 00000002 00000006 00000001 61 62"));
    bytes.clear();
    encode::meta_context(OptionCode::SET_META_CONTEXT, 7, "x:y", &mut bytes);
    assert_eq!(bytes, hex("0003e889045565a9 0000000a 00000004 00000007 00000007 783a79"));
    bytes.clear();
    let client = ClientFlags { fixed_newstyle: true, no_zeroes: false };
    encode::export_name_answer(512, flags, client, &mut bytes);
    assert_eq!(bytes.len(), 134);
}

#[test]
fn requests_have_their_known_bytes() {
    let compact = hex("25609513 0000 0000 0102030405060708 0000000000001000 00000200");
    assert_eq!(encode::request(&READ, HeaderStyle::Compact).as_bytes(), compact);
    assert_eq!(decode::request(&compact, HeaderStyle::Compact), Ok(Some(READ)));
    let extended = hex("21e41c71 0000 0000 0102030405060708 0000000000001000 0000000000000200");
    assert_eq!(encode::request(&READ, HeaderStyle::Extended).as_bytes(), extended);
    assert_eq!(decode::request(&extended, HeaderStyle::Extended), Ok(Some(READ)));
    let other = decode::request(&extended, HeaderStyle::Compact);
    assert_eq!(other, Err(Garbage::RequestMagic(0x21e4_1c71)));
    assert_eq!(decode::request(&compact[..27], HeaderStyle::Compact), Ok(None));
}

#[test]
fn replies_have_their_known_bytes() {
    use wire::nbd::ReplyStyle::{Extended, Simple, Structured};
    let of = |prefix: encode::Prefix| prefix.as_bytes().to_vec();
    assert_eq!(of(encode::done(Simple, &READ)), hex("67446698 00000000 0102030405060708"));
    assert_eq!(of(encode::done(Structured, &READ)), of(encode::done(Simple, &READ)));
    assert_eq!(
        of(encode::done(Extended, &READ)),
        hex("6e8a278c 0001 0000 0102030405060708 0000000000001000 0000000000000000")
    );
    assert_eq!(
        of(encode::read_data(Structured, &READ, 512)),
        hex("668e33ef 0001 0001 0102030405060708 00000208 0000000000001000")
    );
    assert_eq!(
        of(encode::read_hole(Structured, &READ, 512)),
        hex("668e33ef 0001 0002 0102030405060708 0000000c 0000000000001000 00000200")
    );
    assert_eq!(
        of(encode::read_nothing(Structured, &READ)),
        hex("668e33ef 0001 0000 0102030405060708 00000000")
    );
    let mut bytes = Vec::new();
    encode::error(Structured, &READ, Errno::NoSpace, "full", &mut bytes);
    assert_eq!(bytes, hex("668e33ef 0001 8001 0102030405060708 0000000a 0000001c 0004 66756c6c"));
    bytes.clear();
    encode::error(Simple, &READ, Errno::Io, "not sent", &mut bytes);
    assert_eq!(bytes, hex("67446698 00000005 0102030405060708"));
}

#[test]
fn block_status_has_its_known_bytes() {
    let extents = [
        Status { length_bytes: 4096, flags: 0 },
        Status { length_bytes: 8192, flags: Status::HOLE | Status::ZERO },
    ];
    let mut bytes = Vec::new();
    encode::block_status(ReplyStyle::Structured, &READ, true, 1, &extents, &mut bytes);
    assert_eq!(
        bytes,
        hex("668e33ef 0001 0005 0102030405060708 00000014 00000001
             00001000 00000000 00002000 00000003")
    );
    bytes.clear();
    encode::block_status(ReplyStyle::Extended, &READ, false, 2, &extents[..1], &mut bytes);
    assert_eq!(
        bytes,
        hex("6e8a278c 0000 0006 0102030405060708 0000000000001000 0000000000000018
             00000002 00000001 0000000000001000 0000000000000000")
    );
}

#[test]
fn read_prefixes_are_as_long_as_announced() {
    for style in [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended] {
        let prefix = encode::read_data(style, &READ, 1);
        assert_eq!(prefix.as_bytes().len(), encode::read_data_bytes(style));
    }
}

#[test]
fn a_payload_follows_where_the_style_says_so() {
    let write = Request { command: Command::Write, ..READ };
    assert_eq!(write.payload_bytes(HeaderStyle::Compact), 512);
    assert_eq!(write.payload_bytes(HeaderStyle::Extended), 0);
    let flagged = Request { flags: CommandFlags::PAYLOAD_LEN, ..READ };
    assert_eq!(flagged.payload_bytes(HeaderStyle::Compact), 0);
    assert_eq!(flagged.payload_bytes(HeaderStyle::Extended), 512);
}

#[test]
fn limits_hold_exactly() {
    let mut data = Vec::new();
    encode::meta_request("v", &["a:b"; META_QUERIES_MAX], &mut data);
    assert!(decode::option(OptionCode::SET_META_CONTEXT, &data).is_ok());
    data.clear();
    encode::meta_request("v", &["a:b"; META_QUERIES_MAX + 1], &mut data);
    let over = decode::option(OptionCode::SET_META_CONTEXT, &data);
    assert!(matches!(over, Err(OptionError::TooBig(_))));

    let name = "n".repeat(STRING_BYTES_MAX);
    assert!(decode::option(OptionCode::EXPORT_NAME, name.as_bytes()).is_ok());
    let name = "n".repeat(STRING_BYTES_MAX + 1);
    let over = decode::option(OptionCode::EXPORT_NAME, name.as_bytes());
    assert!(matches!(over, Err(OptionError::TooBig(_))));

    let payload = [0; 8 + 4 * META_CONTEXTS_MAX];
    assert!(decode::status_payload(&payload).is_some());
    assert!(decode::status_payload(&[0; 12 + 4 * META_CONTEXTS_MAX]).is_none());
    assert!(decode::status_payload(&payload[..8]).is_none());
    assert!(decode::status_payload(&payload[..13]).is_none());

    let mut bytes = Vec::new();
    let long = "\u{e9}".repeat(STRING_BYTES_MAX);
    encode::error(ReplyStyle::Structured, &READ, Errno::Io, &long, &mut bytes);
    assert_eq!(bytes.len(), 20 + 6 + STRING_BYTES_MAX);
}

#[test]
fn a_huge_count_of_queries_allocates_nothing() {
    let mut data = Vec::new();
    encode::string("v", &mut data);
    data.extend_from_slice(&u32::MAX.to_be_bytes());
    let refused = decode::option(OptionCode::LIST_META_CONTEXT, &data);
    assert!(matches!(refused, Err(OptionError::Invalid(_))));
}

fn any_request() -> impl Strategy<Value = Request> {
    (any::<u16>(), any::<u16>(), any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
        |(flags, command, cookie, offset, length)| Request {
            flags: CommandFlags(flags),
            command: Command::from_number(command),
            cookie,
            offset,
            length_bytes: u64::from(length),
        },
    )
}

fn any_style() -> impl Strategy<Value = ReplyStyle> {
    (0..3_usize).prop_map(|i| [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended][i])
}

proptest! {
    #[test]
    fn requests_survive_the_wire(request in any_request(), long in any::<u64>()) {
        let compact = encode::request(&request, HeaderStyle::Compact);
        let decoded = decode::request(compact.as_bytes(), HeaderStyle::Compact);
        prop_assert_eq!(decoded, Ok(Some(request)));
        let request = Request { length_bytes: long, ..request };
        let extended = encode::request(&request, HeaderStyle::Extended);
        let decoded = decode::request(extended.as_bytes(), HeaderStyle::Extended);
        prop_assert_eq!(decoded, Ok(Some(request)));
    }

    #[test]
    fn options_survive_the_wire(
        name in "[^\0]{0,40}",
        items in collection::vec(any::<u16>(), 0..9),
        queries in collection::vec("[^\0]{0,20}", 0..9),
    ) {
        let mut data = Vec::new();
        encode::info_request(&name, &items, &mut data);
        let info = InfoRequest { name: &name, items };
        prop_assert_eq!(decode::option(OptionCode::INFO, &data), Ok(ClientOption::Info(info)));
        data.clear();
        let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
        encode::meta_request(&name, &queries, &mut data);
        let meta = MetaRequest { name: &name, queries };
        let decoded = decode::option(OptionCode::SET_META_CONTEXT, &data);
        prop_assert_eq!(decoded, Ok(ClientOption::SetMetaContext(meta)));
    }

    #[test]
    fn replies_survive_the_wire(
        style in any_style(),
        to in any_request(),
        length in 1..1_u32 << 25,
    ) {
        let data = encode::read_data(style, &to, length);
        let (header, consumed) =
            decode::reply(data.as_bytes()).expect("a reply").expect("whole");
        match header {
            ReplyHeader::Simple { error, cookie } => {
                prop_assert_eq!((style, error, cookie), (ReplyStyle::Simple, 0, to.cookie));
                prop_assert_eq!(consumed, data.as_bytes().len());
            }
            ReplyHeader::Chunk { done, kind, cookie, length_bytes, .. } => {
                prop_assert!(done && kind == ChunkKind::OFFSET_DATA && cookie == to.cookie);
                prop_assert_eq!(length_bytes, u64::from(length) + 8);
                prop_assert_eq!(consumed + 8, data.as_bytes().len());
            }
        }
    }

    #[test]
    fn random_bytes_are_decoded_or_refused(
        code in 0..14_u32,
        bytes in collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = decode::option(OptionCode(code), &bytes);
        let _ = decode::request(&bytes, HeaderStyle::Compact);
        let _ = decode::request(&bytes, HeaderStyle::Extended);
        let _ = decode::reply(&bytes);
        let _ = decode::status_payload(&bytes);
    }

    #[test]
    fn a_damaged_option_is_decoded_or_refused(
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
        cut in option::of(any::<proptest::sample::Index>()),
        queries in collection::vec("[a-z:]{0,20}", 1..9),
    ) {
        let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
        for code in [OptionCode::SET_META_CONTEXT, OptionCode::GO, OptionCode::EXPORT_NAME] {
            let mut data = Vec::new();
            if code == OptionCode::GO {
                encode::info_request("volume", &[0, 1, 2, 3], &mut data);
            } else {
                encode::meta_request("volume", &queries, &mut data);
            }
            let index = at.index(data.len());
            data[index] = byte;
            if let Some(cut) = cut {
                data.truncate(cut.index(data.len()));
            }
            match decode::option(code, &data) {
                Ok(ClientOption::SetMetaContext(meta)) => {
                    let held: usize = meta.queries.iter().map(|q| q.len() + 4).sum();
                    prop_assert_eq!(held + meta.name.len() + 8, data.len());
                }
                Ok(ClientOption::Go(go)) => {
                    prop_assert_eq!(go.items.len() * 2 + go.name.len() + 6, data.len());
                }
                _ => {}
            }
        }
    }
}
