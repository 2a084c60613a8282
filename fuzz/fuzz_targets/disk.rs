//! What a disk may return: every structure is decoded or refused, never a panic. The checksum is
//! made right first, so that what lies behind it is reached.

#![no_main]

use hindsight_format::PageAddress;
use hindsight_format::batch::{Batch, peek_header_bytes};
use hindsight_format::crypt::CryptHeader;
use hindsight_format::map::LeafPage;
use hindsight_format::pack::{PACK_HEADER_BYTES, PackDecoder, PackHeader};
use hindsight_format::run::{IndexPage, RunFooter};
use hindsight_format::segment::SegmentHeader;
use hindsight_format::share::directory::DirectoryNode;
use hindsight_format::share::inode::InodeBlock;
use hindsight_format::share::log::LogBlock;
use hindsight_format::share::place::ShareAddress;
use hindsight_format::share::root::ShareRoot;
use hindsight_format::share::stack::StackBlock;
use hindsight_format::superblock::Superblock;
use hindsight_format::time::TimePage;
use libfuzzer_sys::fuzz_target;

const PAGE: usize = 4096;

fn with_checksum(bytes: &[u8], offset: usize, salt: &[u8; 4]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= offset + 4 {
        let covered = [&bytes[..offset], &bytes[offset + 4..]].concat();
        let crc = hindsight_format::checksum::salted_crc(u32::from_le_bytes(*salt), &covered);
        bytes[offset..offset + 4].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

fn page(bytes: &[u8], salt: &[u8; 4]) -> Box<[u8; PAGE]> {
    let mut whole = vec![0; PAGE];
    let length = bytes.len().min(PAGE);
    whole[..length].copy_from_slice(&bytes[..length]);
    let whole = with_checksum(&whole, 4, salt);
    Box::new(<[u8; PAGE]>::try_from(whole).expect("a page"))
}

/// A block of a share that says that it is what and where it is looked for.
fn share_block(bytes: &[u8], magic: &[u8; 4], at: ShareAddress) -> Box<[u8; PAGE]> {
    let mut block = Box::new([0; PAGE]);
    let length = bytes.len().min(PAGE);
    block[..length].copy_from_slice(&bytes[..length]);
    block[..4].copy_from_slice(magic);
    block[4..8].copy_from_slice(&at.tag.to_le_bytes());
    block[8..16].copy_from_slice(&at.block.to_le_bytes());
    block
}

/// A pack with the checksums of what it says is stored.
fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().max(PACK_HEADER_BYTES), 0);
    bytes[..8].copy_from_slice(b"HPACKVER");
    let (header, stored) = bytes.split_at_mut(PACK_HEADER_BYTES);
    let length = u32::from_le_bytes([header[28], header[29], header[30], header[31]]) as usize;
    let crc = hindsight_format::checksum::block_crc(&stored[..length.min(stored.len())]);
    header[48..52].copy_from_slice(&crc.to_le_bytes());
    let header = with_checksum(header, 8, b"pack");
    [&header[..], &*stored].concat()
}

fuzz_target!(|input: (u8, &[u8])| {
    let (which, bytes) = input;
    let address = PageAddress { pool_tag: 0, run: 1, page: 0 };
    let sector = &bytes[..bytes.len().min(512)];
    let at = |block| ShareAddress { tag: 1, block, has_more: false };
    match which % 15 {
        0 => drop(Superblock::decode(&with_checksum(bytes, 8, b"supr"), 0)),
        1 => drop(SegmentHeader::decode(&with_checksum(bytes, 8, b"segm"))),
        2 => {
            let bytes = with_checksum(bytes, 8, b"btch");
            let _ = peek_header_bytes(&bytes);
            if let Ok(batch) = Batch::decode(&bytes) {
                for descriptor in batch.descriptors() {
                    assert!(descriptor.crcs().len() as u64 <= u64::from(descriptor.blocks));
                }
            }
        }
        3 => drop(LeafPage::decode(page(bytes, b"leaf"), address)),
        4 => drop(IndexPage::decode(&page(bytes, b"indx"), address, &mut Vec::new())),
        5 => drop(RunFooter::decode(&page(bytes, b"runf"), address)),
        6 => {
            let mut page = page(bytes, b"lfex");
            page[..4].copy_from_slice(b"HLFX");
            drop(LeafPage::decode(self::page(&page[..], b"lfex"), address));
        }
        7 => drop(CryptHeader::decode(&with_checksum(sector, 8, b"cryp"), 0)),
        8 => drop(InodeBlock::decode(&share_block(bytes, b"HSIN", at(1 << 34)), at(1 << 34))),
        9 => drop(DirectoryNode::decode(&share_block(bytes, b"HSDN", at(1 << 39)), at(1 << 39))),
        10 => drop(StackBlock::decode(&share_block(bytes, b"HSFR", at(1 << 36)), at(1 << 36))),
        11 => {
            let block = share_block(bytes, b"HSOP", at(1 << 20));
            if let Ok(block) = LogBlock::decode(&block, at(1 << 20)) {
                assert!(block.operations().all(|found| found.number <= block.state.operation));
            }
        }
        12 => {
            let mut block = share_block(bytes, b"HSHA", at(1));
            block[4..8].copy_from_slice(b"ROOT");
            drop(ShareRoot::decode(&block));
        }
        13 => {
            let bytes = pack(bytes);
            if let Ok(header) = PackHeader::decode(&bytes) {
                let mut decoder = PackDecoder::default();
                let stored = decoder.open(&header, bytes);
                drop(stored.and_then(|stored| stored.unpack(&mut decoder)));
            }
        }
        _ => drop(TimePage::decode(page(bytes, b"time"), address)),
    }
});
