//! Many requests in flight on several connections, to their end or until the server is killed.

use anyhow::{Context, Result, bail, ensure};

use super::link::Link;
use super::plan::Op;
use crate::image::Image;
use crate::nbd::{Completion, Reply, Request, describe};
use crate::random::Random;

/// What is in flight under a cookie.
enum Sent {
    Op(usize),
    /// A flush, sent after so many requests had been acknowledged.
    Flush(u64),
    /// A read beside the writes, of bytes that none of them touches.
    Read {
        offset: u64,
        expected: Vec<u8>,
    },
}

pub(super) struct Storm<'a> {
    pub ops: &'a mut [Op],
    pub links: &'a mut [Link],
    pub image: &'a Image,
    in_flight: Vec<Vec<(u64, Sent)>>,
    acknowledged: u64,
    /// So many requests, the first to be acknowledged, are flushed.
    flushed: u64,
}

impl<'a> Storm<'a> {
    pub fn new(ops: &'a mut [Op], links: &'a mut [Link], image: &'a Image) -> Storm<'a> {
        let in_flight = links.iter().map(|_| Vec::new()).collect();
        Storm { ops, links, image, in_flight, acknowledged: 0, flushed: 0 }
    }

    /// Sends everything and waits for everything; every request must succeed.
    pub fn run(&mut self, random: &mut Random, depth: usize) -> Result<()> {
        for index in 0..self.ops.len() {
            let link = random.index(self.links.len());
            while self.in_flight[link].len() >= depth {
                self.wait(link)?;
            }
            self.send_op(link, index)?;
            self.send_beside(random, link)?;
            if random.chance(30) {
                self.poll()?;
            }
        }
        for link in 0..self.links.len() {
            while !self.in_flight[link].is_empty() {
                self.wait(link)?;
            }
        }
        Ok(())
    }

    /// Sends until `until` requests are acknowledged or all are sent, calls `kill`, and collects
    /// what was acknowledged before it.
    pub fn run_until_killed(
        &mut self,
        random: &mut Random,
        until: u64,
        kill: impl FnOnce(),
    ) -> Result<()> {
        for index in 0..self.ops.len() {
            if self.acknowledged >= until {
                break;
            }
            let link = random.index(self.links.len());
            self.send_op(link, index)?;
            self.send_beside(random, link)?;
            self.poll()?;
        }
        while self.acknowledged < until && self.in_flight.iter().any(|sent| !sent.is_empty()) {
            self.poll()?;
            std::thread::yield_now();
        }
        kill();
        for link in 0..self.links.len() {
            while !self.in_flight[link].is_empty() {
                let Ok(completion) = self.links[link].wait() else { break };
                self.settle_one(link, completion)?;
            }
        }
        Ok(())
    }

    /// For a volume with a write-back cache, after a kill: what was not flushed counts as not
    /// acknowledged.
    pub fn forget_unflushed(&mut self) {
        let flushed = self.flushed;
        for op in self.ops.iter_mut().filter(|op| !op.is_forced()) {
            op.done_as = op.done_as.filter(|place| *place < flushed);
        }
    }

    fn send_op(&mut self, link: usize, index: usize) -> Result<()> {
        self.ops[index].sent_after = Some(self.acknowledged);
        let cookie = self.links[link].send(&self.ops[index].request)?;
        self.in_flight[link].push((cookie, Sent::Op(index)));
        Ok(())
    }

    fn send_beside(&mut self, random: &mut Random, link: usize) -> Result<()> {
        if random.chance(8) {
            let cookie = self.links[link].send(&Request::Flush)?;
            self.in_flight[link].push((cookie, Sent::Flush(self.acknowledged)));
        }
        if random.chance(15) {
            let unit = self.links[link].unit();
            let (offset, length) = super::plan::range_of(random, self.image.size(), unit);
            if !self.ops.iter().any(|op| op.overlaps(offset, length)) {
                let expected = self.image.read(offset, length);
                let length = u32::try_from(length)?;
                let cookie = self.links[link].send(&Request::Read { offset, length })?;
                self.in_flight[link].push((cookie, Sent::Read { offset, expected }));
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<()> {
        for link in 0..self.links.len() {
            while let Some(completion) = self.links[link].poll()? {
                self.settle_one(link, completion)?;
            }
        }
        Ok(())
    }

    fn wait(&mut self, link: usize) -> Result<()> {
        let completion = self.links[link].wait()?;
        self.settle_one(link, completion)
    }

    fn settle_one(&mut self, link: usize, completion: Completion) -> Result<()> {
        let place = self.in_flight[link]
            .iter()
            .position(|(cookie, _)| *cookie == completion.cookie)
            .context("a reply to a request of another connection")?;
        match (self.in_flight[link].swap_remove(place).1, completion.reply) {
            (Sent::Op(index), Reply::Done) => {
                let op = &mut self.ops[index];
                op.done_as = Some(self.acknowledged);
                self.acknowledged += 1;
                if op.is_forced() {
                    self.flushed = self.flushed.max(op.sent_after.unwrap_or(0));
                }
            }
            (Sent::Op(index), reply) => {
                bail!("{}: {reply:?}", describe(&self.ops[index].request))
            }
            (Sent::Flush(before), Reply::Done) => self.flushed = self.flushed.max(before),
            (Sent::Flush(_), reply) => bail!("flush: {reply:?}"),
            (Sent::Read { offset, expected }, Reply::Bytes(bytes)) => {
                ensure!(bytes == expected, "a read of {} at {offset} is wrong", bytes.len());
            }
            (Sent::Read { offset, expected }, reply) => {
                bail!("read of {} at {offset}: {reply:?}", expected.len())
            }
        }
        Ok(())
    }
}
