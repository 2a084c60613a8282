//! Which bytes of the catalogue are right, where they can be had in several ways.
//!
//! The library below checks every page when a catalogue is opened, against checksums in other
//! pages, and may write while it does. So each way of reading it all is tried with what is written
//! kept in memory, and the first that holds together is put in the place of what is there before
//! the catalogue is really opened. Where several members are wrong in different places no way may
//! be right as a whole: then pages are chosen one by one, until all hold together.
//!
//! A consistent state may be out of date: see [`first_page`]. Nothing is tried at another commit
//! than the last that a way knows of.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::Builder;
use units::BLOCK_BYTES;

use super::backend::{CACHE_BYTES, CatalogueMedia};
use super::first_page::{self, FLAGS, Names, ROOT_CHECKSUMS, ROOT_SECOND, TWO_PHASES};
use super::guard::guarded;

/// How often it is tried with one page more that is read otherwise, from each of the ways that held
/// longest.
const TRIALS_MAX: usize = 512;
/// How often a page is read in the way that held together, until it can be made that.
const READS_MAX: usize = 2;
/// The ways that pages are chosen from, beginning with each.
const BEGINNINGS_MAX: usize = 8;

/// How far the library's repair tells to be when all pages were checked and were right.
const CHECKED: f64 = 0.5;

/// Which content of its contents a page is given; the first if nothing is said.
type Choice = BTreeMap<u64, usize>;

/// Pages while they are chosen; at first every one is as the first way has it.
#[derive(Default)]
struct Chosen {
    /// The different contents of pages that have several, in the order of the ways.
    contents: BTreeMap<u64, Vec<Vec<u8>>>,
    /// Those that are the same in every way.
    agreed: BTreeSet<u64>,
    choice: Choice,
    /// Pages with several contents, in the order in which they were read last.
    order: Vec<u64>,
    /// Whether the library is made to check all pages first, root before leaves.
    checks_first: bool,
}

/// The outcome of a trial.
#[derive(Default)]
struct Seen {
    /// Pages that were read.
    pages: BTreeSet<u64>,
    /// How pages are chosen, if they are.
    chosen: Option<Chosen>,
}

/// A way of reading the catalogue, and the last commit that any way knows of.
#[derive(Clone, Copy)]
struct Way {
    number: usize,
    last_commit: u64,
}

/// The catalogue read in one way, and what was written over it.
struct Trial {
    media: CatalogueMedia,
    way: Way,
    written: Mutex<Written>,
    seen: Arc<Mutex<Seen>>,
}

struct Written {
    len: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial").field("way", &self.way.number).finish_non_exhaustive()
    }
}

impl Chosen {
    /// The content of a page that is chosen; none if there is no choice.
    fn page(&mut self, media: &CatalogueMedia, way: usize, page: u64) -> Option<Vec<u8>> {
        if self.agreed.contains(&page) {
            return None;
        }
        if !self.contents.contains_key(&page) {
            let Some(contents) = contents(media, way, page) else {
                self.agreed.insert(page);
                return None;
            };
            self.contents.insert(page, contents);
        }
        self.order.retain(|other| *other != page);
        self.order.push(page);
        let choice = self.choice.get(&page).copied().unwrap_or(0);
        Some(self.contents[&page][choice].clone())
    }

    /// Chooses the next content of the last page that has another; false if all were tried.
    fn turn(&mut self) -> bool {
        let mut order = std::mem::take(&mut self.order);
        while let Some(page) = order.pop() {
            let next = self.choice.get(&page).copied().unwrap_or(0) + 1;
            if next < self.contents[&page].len() {
                self.choice.retain(|other, _| order.contains(other));
                self.choice.insert(page, next);
                return true;
            }
        }
        false
    }
}

/// A page in one of the ways.
fn read(media: &CatalogueMedia, way: usize, page: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    media.read_way(way, page * BLOCK_BYTES, &mut bytes)?;
    Ok(bytes)
}

/// The different contents of a page, that of one way first; none if there are no others than that.
fn contents(media: &CatalogueMedia, first: usize, page: u64) -> Option<Vec<Vec<u8>>> {
    let mut contents: Vec<_> = read(media, first, page).into_iter().collect();
    let is_in_first = !contents.is_empty();
    for way in std::iter::once(first).chain(0..media.ways()) {
        match read(media, way, page) {
            Ok(bytes) if !contents.contains(&bytes) => contents.push(bytes),
            Ok(_) | Err(_) => {}
        }
    }
    // One that cannot be read in the first way is to be had in another.
    let is_choice = if is_in_first { contents.len() > 1 } else { !contents.is_empty() };
    is_choice.then_some(contents)
}

impl Trial {
    /// A page as it is now; zeros beyond what the catalogue has.
    fn page(&self, written: &Written, page: u64) -> io::Result<Vec<u8>> {
        if let Some(bytes) = written.pages.get(&page) {
            return Ok(bytes.clone());
        }
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        if (page + 1) * BLOCK_BYTES > redb::StorageBackend::len(&self.media)? {
            return Ok(bytes);
        }
        let mut seen = self.seen.lock();
        let choose = |chosen: &mut Chosen| chosen.page(&self.media, self.way.number, page);
        match seen.chosen.as_mut().and_then(choose) {
            Some(content) => bytes = content,
            None => bytes = read(&self.media, self.way.number, page)?,
        }
        // One that could not be read, and all holds together without it, is nothing.
        seen.pages.insert(page);
        if page == 0 && first_page::put_right(&mut bytes, self.way.last_commit) == Names::Neither {
            return Err(is_older());
        }
        if page == 0 && seen.chosen.as_ref().is_some_and(|chosen| chosen.checks_first) {
            // As if the pages of the newest commit had been written with its root: all of them are
            // checked then. The other root's do not count.
            bytes[FLAGS] &= !TWO_PHASES;
            let other = usize::from(bytes[FLAGS] & ROOT_SECOND == 0);
            bytes[ROOT_CHECKSUMS[other]] ^= 1;
        }
        Ok(bytes)
    }

    /// Calls `each` with each page of a range, the part of it and the part of the range.
    fn each(
        offset: u64,
        length: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = (at % BLOCK_BYTES) as usize;
            let count = (BLOCK_BYTES as usize - within).min(length - done);
            each(at / BLOCK_BYTES, within..within + count, done..done + count)?;
            done += count;
        }
        Ok(())
    }
}

impl redb::StorageBackend for Trial {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written.lock();
        Trial::each(offset, out.len(), |page, of_page, of_out| {
            out[of_out].copy_from_slice(&self.page(&written, page)?[of_page]);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.written.lock().len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written.lock();
        Trial::each(offset, data.len(), |page, of_page, of_data| {
            let mut bytes = self.page(&written, page)?;
            bytes[of_page].copy_from_slice(&data[of_data]);
            written.pages.insert(page, bytes);
            Ok(())
        })
    }
}

fn trial(media: &CatalogueMedia, way: Way, seen: &Arc<Mutex<Seen>>) -> io::Result<Trial> {
    let written = Written { len: redb::StorageBackend::len(media)?, pages: BTreeMap::new() };
    let (media, written, seen) = (media.clone(), Mutex::new(written), Arc::clone(seen));
    Ok(Trial { media, way, written, seen })
}

/// Whether all pages have their checksums; no more is looked at when one has not.
fn checks(trial: Trial) -> bool {
    let progress = Arc::new(Mutex::new(0.0));
    let told = Arc::clone(&progress);
    let _ = guarded(|| {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        builder.set_repair_callback(move |session| {
            *told.lock() = session.progress();
            if session.progress() > 0.0 {
                session.abort();
            }
        });
        builder.create_with_backend(trial).ok()
    });
    // Of three parts of a repair the first checks; where it fails the other root is next.
    let progress = *progress.lock();
    progress > CHECKED
}

/// Whether the catalogue holds together in one way.
fn holds(media: &CatalogueMedia, way: Way, seen: &Arc<Mutex<Seen>>) -> io::Result<bool> {
    let trial = trial(media, way, seen)?;
    let holds = guarded(|| {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let mut database = builder.create_with_backend(trial).ok()?;
        let holds = database.check_integrity().is_ok();
        drop(database);
        holds.then_some(())
    });
    Ok(holds.flatten().is_some())
}

/// Chooses pages one by one, beginning with those of one way. Each is checked when it is read, so
/// what made a trial fail is the last one, or one of the last if they are checked together.
fn choose(media: &CatalogueMedia, way: Way, failed: &mut dyn FnMut()) -> io::Result<Option<Seen>> {
    let mut chosen = Chosen::default();
    for _ in 0..TRIALS_MAX {
        chosen.checks_first = true;
        let seen = Arc::new(Mutex::new(Seen { pages: BTreeSet::new(), chosen: Some(chosen) }));
        let is_checked = checks(trial(media, way, &seen)?);
        chosen = seen.lock().chosen.take().expect("it was given");
        if is_checked {
            chosen.checks_first = false;
            *seen.lock() = Seen { pages: BTreeSet::new(), chosen: Some(chosen) };
            let holds = holds(media, way, &seen)?;
            return Ok(Some(std::mem::take(&mut *seen.lock())).filter(|_| holds));
        }
        failed();
        if !chosen.turn() {
            break;
        }
    }
    Ok(None)
}

fn is_older() -> io::Error {
    let text = "its first page names a root that is older than the last commit";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The last commit that any way knows of; 0 if none does.
fn last_commit(media: &CatalogueMedia) -> u64 {
    let mut page = vec![0; BLOCK_BYTES as usize];
    let mut of =
        |way| media.read_way(way, 0, &mut page).ok().and_then(|()| first_page::last_commit(&page));
    (0..media.ways()).filter_map(&mut of).max().unwrap_or(0)
}

/// Hears how often the catalogue was tried in vain, and how often it may be.
pub type Told<'a> = dyn FnMut(u64, u64) + 'a;

/// Puts what holds together in the place of what does not. Where nothing does, opening it says what
/// is wrong.
///
/// # Errors
/// The device's; `InvalidData` where only an earlier commit is left.
pub fn settle_copies(media: &CatalogueMedia, told: &mut Told<'_>) -> io::Result<()> {
    let (ways, last_commit) = (media.ways(), last_commit(media));
    let way = |number| Way { number, last_commit };
    if ways == 1 {
        return put_first_right(media, last_commit);
    }
    let most = (ways + BEGINNINGS_MAX.min(ways) * TRIALS_MAX) as u64;
    let mut tried = 0;
    let mut failed = || {
        tried += 1;
        told(tried, most);
    };
    let mut held_longest = Vec::new();
    for number in 0..ways {
        let seen = Arc::<Mutex<Seen>>::default();
        if holds(media, way(number), &seen)? {
            return put_all(media, way(number), &seen.lock().pages);
        }
        failed();
        held_longest.push((seen.lock().pages.len(), number));
    }
    held_longest.sort_by_key(|&(pages, way)| (std::cmp::Reverse(pages), way));
    for (_, number) in held_longest.into_iter().take(BEGINNINGS_MAX) {
        let chosen = choose(media, way(number), &mut failed)?;
        if let Some(Seen { pages, chosen: Some(mut chosen) }) = chosen {
            // Pages that were not read stay as they are.
            for page in pages {
                put(media, way(number), page, chosen.page(media, number, page))?;
            }
            return Ok(());
        }
    }
    put_first_right(media, last_commit)
}

/// Sees to it that the first page names the last commit, whatever the other pages have.
fn put_first_right(media: &CatalogueMedia, last_commit: u64) -> io::Result<()> {
    let in_first = read(media, 0, 0);
    let mut page = (1..media.ways()).fold(in_first, |page, way| page.or(read(media, way, 0)))?;
    match first_page::put_right(&mut page, last_commit) {
        Names::It => Ok(()),
        Names::Mended => media.write_header(&page),
        Names::Neither => Err(is_older()),
    }
}

/// Makes all pages what one way says. Those that were not read are nothing, but shall agree.
fn put_all(media: &CatalogueMedia, way: Way, read: &BTreeSet<u64>) -> io::Result<()> {
    for page in 0..redb::StorageBackend::len(media)? / BLOCK_BYTES {
        match put(media, way, page, None) {
            Err(error) if read.contains(&page) => return Err(error),
            _ => {}
        }
        if !read.contains(&page) {
            // Nobody has anything there, so nobody has verified what the way says.
            media.forget(page);
        }
    }
    Ok(())
}

/// Makes a page what was chosen for it, or else what one way says. A read may bring another place's
/// bytes, which nobody finds again, and is tried once more.
fn put(media: &CatalogueMedia, way: Way, page: u64, chosen: Option<Vec<u8>>) -> io::Result<()> {
    for _ in 0..READS_MAX {
        let mut bytes = match &chosen {
            Some(bytes) => bytes.clone(),
            None => read(media, way.number, page)?,
        };
        if page == 0 && first_page::put_right(&mut bytes, way.last_commit) == Names::Mended {
            media.write_header(&bytes)?;
            let sealed = first_page::sealed(&bytes[..first_page::HEADER_BYTES]);
            bytes[..sealed.len()].copy_from_slice(&sealed);
        }
        if media.settle(page, &bytes)? {
            return Ok(());
        }
    }
    let text = format!("page {page} of the catalogue is another one each time it is read");
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}
