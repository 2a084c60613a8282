//! The patterns of the OpenAPI document against what reads the texts. A pattern is for makers of
//! requests, and may be narrower than what the server takes, never wider.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{SizeInput, SpanInput};
use block::{BlockDevice, MemoryDevice};
use env::{RealClock, RealEntropy};
use serde_json::Value;
use units::{Cron, Granularity, Moment, NamePattern, Network, Size, Span, WallTime};
use volume::{
    AccessChange, Architecture, CacheChange, Credential, EncodingChange, Machine, Pool, PoolFormat,
    PoolOptions, Secret, Volume, VolumeSpec,
};

/// A part of a pattern, of what those of the document are made of.
#[derive(Debug)]
enum Node {
    /// One of these characters.
    One(Vec<char>),
    /// All of these.
    All(Vec<Node>),
    /// One of these.
    Any(Vec<Node>),
    /// So many of it, at least and at most.
    Many(Box<Node>, usize, usize),
}

/// Reads a pattern; a sign that it does not know is a panic.
fn parsed(pattern: &str) -> Node {
    let whole = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$'));
    let chars: Vec<char> = whole.expect("a pattern is of a whole text").chars().collect();
    let mut at = 0;
    let node = any(&chars, &mut at);
    assert_eq!(at, chars.len(), "{pattern} is read to its end");
    node
}

fn any(chars: &[char], at: &mut usize) -> Node {
    let mut ways = vec![all(chars, at)];
    while chars.get(*at) == Some(&'|') {
        *at += 1;
        ways.push(all(chars, at));
    }
    Node::Any(ways)
}

fn all(chars: &[char], at: &mut usize) -> Node {
    let mut parts = Vec::new();
    while let Some(&c) = chars.get(*at).filter(|c| !"|)".contains(**c)) {
        *at += 1;
        let node = match c {
            '(' => {
                let inner = any(chars, at);
                assert_eq!(chars[*at], ')', "groups are closed");
                *at += 1;
                inner
            }
            '[' => Node::One(set(chars, at)),
            _ => {
                assert!(c.is_ascii_alphanumeric() || "-: ".contains(c), "{c} is not known");
                Node::One(vec![c])
            }
        };
        parts.push(counted(node, chars, at));
    }
    Node::All(parts)
}

fn set(chars: &[char], at: &mut usize) -> Vec<char> {
    let mut set = Vec::new();
    while chars[*at] != ']' {
        assert!(!r"^\".contains(chars[*at]), "such sets are not known");
        let (first, is_range) = (chars[*at], chars[*at + 1] == '-' && chars[*at + 2] != ']');
        let last = if is_range { chars[*at + 2] } else { first };
        set.extend(first..=last);
        *at += if is_range { 3 } else { 1 };
    }
    *at += 1;
    set
}

fn counted(node: Node, chars: &[char], at: &mut usize) -> Node {
    let rest: String = chars[*at..].iter().collect();
    let (count, length) = if rest.starts_with('?') {
        ((0, 1), 1)
    } else if let Some(text) = rest.strip_prefix('{') {
        let (text, _) = text.split_once('}').expect("a count ends");
        let (least, most) = text.split_once(',').unwrap_or((text, text));
        let number = |text: &str| text.parse().expect("a number");
        ((number(least), number(most)), text.len() + 2)
    } else {
        assert!(!rest.starts_with(['*', '+']), "{rest} has no bound");
        return node;
    };
    *at += length;
    Node::Many(Box::new(node), count.0, count.1)
}

/// Where a text can be at when a node was read from a place.
fn ends(node: &Node, text: &[char], at: usize) -> BTreeSet<usize> {
    let after = |node: &Node, places: BTreeSet<usize>| -> BTreeSet<usize> {
        places.into_iter().flat_map(|at| ends(node, text, at)).collect()
    };
    match node {
        Node::One(set) => {
            text.get(at).filter(|c| set.contains(c)).map(|_| at + 1).into_iter().collect()
        }
        Node::All(parts) => parts.iter().fold(BTreeSet::from([at]), |at, part| after(part, at)),
        Node::Any(ways) => ways.iter().flat_map(|way| ends(way, text, at)).collect(),
        Node::Many(node, least, most) => {
            let (mut places, mut found) = (BTreeSet::from([at]), BTreeSet::new());
            for count in 0..=*most {
                if count >= *least {
                    found.extend(&places);
                }
                places = after(node, places);
            }
            found
        }
    }
}

fn fits(node: &Node, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    ends(node, &text, 0).contains(&text.len())
}

/// Texts at the edges of a node: the first and the last character, the fewest and the most, each
/// way once.
fn edges(node: &Node) -> Vec<String> {
    match node {
        Node::One(set) => {
            let ends = [set[0], set[set.len() - 1]];
            BTreeSet::from(ends).into_iter().map(String::from).collect()
        }
        Node::Any(ways) => ways.iter().flat_map(edges).collect(),
        Node::Many(node, least, most) => {
            let texts = edges(node);
            BTreeSet::from([*least, (*least).max(1), *most])
                .into_iter()
                .flat_map(|count| texts.iter().map(move |text| text.repeat(count)))
                .collect()
        }
        Node::All(parts) => {
            let of_parts: Vec<Vec<String>> = parts.iter().map(edges).collect();
            let mut texts = vec![of_parts.iter().map(|texts| &*texts[texts.len() - 1]).collect()];
            for (number, own) in of_parts.iter().enumerate() {
                texts.extend(own.iter().map(|own| {
                    let one = |(i, texts): (usize, &Vec<String>)| {
                        if i == number { own.clone() } else { texts[0].clone() }
                    };
                    of_parts.iter().enumerate().map(one).collect::<String>()
                }));
            }
            texts
        }
    }
}

/// A text of a node, drawn.
fn drawn(node: &Node, draw: &mut dyn FnMut(usize) -> usize) -> String {
    match node {
        Node::One(set) => set[draw(set.len())].to_string(),
        Node::All(parts) => parts.iter().map(|part| drawn(part, draw)).collect(),
        Node::Any(ways) => drawn(&ways[draw(ways.len())], draw),
        Node::Many(node, least, most) => {
            (0..least + draw(most - least + 1)).map(|_| drawn(node, draw)).collect()
        }
    }
}

/// A text with something left out, doubled or put in at a place.
fn changed(text: &str, draw: &mut dyn FnMut(usize) -> usize) -> String {
    const SIGNS: &[char] = &['0', '9', 'a', 'Z', '-', '.', ':', '+', ' ', '/', '@', '\u{e9}', '*'];
    let mut chars: Vec<char> = text.chars().collect();
    let at = draw(chars.len() + 1);
    match draw(3) {
        0 if at < chars.len() => drop(chars.remove(at)),
        1 if at < chars.len() => chars.insert(at, chars[at]),
        _ => chars.insert(at, SIGNS[draw(SIGNS.len())]),
    }
    chars.into_iter().collect()
}

/// All patterns with the names of what they are of.
fn patterns() -> BTreeMap<String, BTreeSet<String>> {
    fn walk(value: &Value, name: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
        match value {
            Value::Array(all) => all.iter().for_each(|one| walk(one, name, found)),
            Value::Object(fields) => {
                let own = fields
                    .get("name")
                    .and_then(Value::as_str)
                    .filter(|_| fields.contains_key("in"));
                for (key, value) in fields {
                    match value.as_str().filter(|_| key == "pattern") {
                        Some(pattern) => drop(
                            found.entry(pattern.to_owned()).or_default().insert(name.to_owned()),
                        ),
                        None => {
                            let is_inside = ["schema", "items", "oneOf"].contains(&&**key);
                            walk(value, own.unwrap_or(if is_inside { name } else { key }), found);
                        }
                    }
                }
            }
            _ => {}
        }
    }
    let document = serde_json::from_str(api::OPENAPI_JSON).expect("JSON");
    let mut found = BTreeMap::new();
    walk(&document, "", &mut found);
    found
}

/// A pool in memory, whose marks show what a name is.
fn pool() -> Arc<Pool> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(256 << 20));
    let (clock, entropy) = (Arc::new(RealClock::new()), Arc::new(RealEntropy::default()));
    let machine = Machine { clock, entropy };
    let format = PoolFormat { zone_bytes: 1 << 20 };
    Pool::create(&device, &machine, &format).expect("a pool");
    Pool::open(device, machine, PoolOptions::default()).expect("opened")
}

fn spec() -> VolumeSpec {
    VolumeSpec {
        name: "v".to_owned(),
        size_bytes: 1 << 20,
        architecture: Architecture::Logging,
        granularity: volume::Granularity::EveryWrite,
        window_ns: 1 << 40,
        history_limit_bytes: None,
        cache: CacheChange { bytes: None, dirty_percent: None },
        extent: units::MapExtent::BLOCK,
        copy_unit: units::MapExtent::BLOCK,
        encoding: EncodingChange::default(),
        dedup: false,
        strict: false,
        share: None,
    }
}

/// Whether a share takes it for a path.
fn is_path(text: &str) -> bool {
    let bytes = api::path_bytes(text);
    bytes.is_ok_and(|bytes| share::FilePath::new(&bytes).is_ok())
}

/// Whether the volume takes it for the name of a user.
fn is_user(pool: &Pool, text: &str) -> bool {
    let secret = Secret::new("twelve-bytes".to_owned()).expect("it fits");
    let chap = Some(Some(Credential { user: text.to_owned(), secret }));
    let change = AccessChange { chap, ..AccessChange::default() };
    pool.set_access(&spec().name, &change).is_ok()
}

/// Whether the server reads a text as what has this name in the document.
fn reads(pool: &Pool, volume: &Volume, name: &str, text: &str) -> bool {
    let is_name = |text: &str| match volume.create_mark(text, &Moment::Latest, false) {
        Ok(_) => true,
        Err(error) if error.kind == volume::ErrorKind::Exists => true,
        Err(error) => {
            assert_eq!(error.kind, volume::ErrorKind::Invalid, "{text}: {error}");
            false
        }
    };
    match name {
        "SizeInput" => serde_json::from_value::<SizeInput>(text.into()).is_ok(),
        "SpanInput" => serde_json::from_value::<SpanInput>(text.into()).is_ok(),
        "cache" | "history_limit" | "limit" => text.parse::<Size>().is_ok(),
        "step" | "for" | "window" => text.parse::<Span>().is_ok(),
        "granularity" => text.parse::<Granularity>().is_ok(),
        "cron" => text.parse::<Cron>().is_ok(),
        "next" => text.parse::<WallTime>().is_ok(),
        "path" => is_path(text),
        // Of a diff the moment, of a restore the path.
        "to" if text.starts_with('/') => is_path(text),
        "at" | "from" | "to" | "since" | "until" => text.parse::<Moment>().is_ok(),
        "name" | "volume" | "volumes" | "share" | "to_volume" | "to_share" | "group" | "like"
        | "mark" | "hook" | "prove" | "token" => is_name(text),
        "allow" => wire::iscsi::names::fold_initiator(text).is_ok(),
        "network" => text.parse::<Network>().is_ok(),
        "Pattern" => text.parse::<NamePattern>().is_ok(),
        "user" => is_user(pool, text),
        "secret" => Secret::new(text.to_owned()).is_ok(),
        _ => panic!("nobody says what reads {name}"),
    }
}

#[test]
fn a_pattern_has_nothing_that_the_server_does_not_read() {
    let pool = pool();
    let volume = pool.create_volume(&spec()).expect("a volume");
    let reads = |name: &str, text: &str| reads(&pool, &volume, name, text);
    let mut state = 11_u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % below
    };
    let mut narrower = BTreeSet::new();
    for (pattern, names) in patterns() {
        let node = parsed(&pattern);
        let mut texts = edges(&node);
        texts.extend((0..100).map(|_| drawn(&node, &mut draw)));
        for name in &names {
            for text in &texts {
                assert!(fits(&node, text), "{pattern} has {text}");
                assert!(reads(name, text), "{name}: {pattern} has {text}, which is not read");
            }
            let mut refused = 0;
            for text in texts.iter().cycle().take(2000) {
                let text = changed(text, &mut draw);
                match (fits(&node, &text), reads(name, &text)) {
                    (true, false) => panic!("{name}: {pattern} has {text}, which is not read"),
                    (false, true) => drop(narrower.insert(name.clone())),
                    (false, false) => refused += 1,
                    (true, true) => {}
                }
            }
            // Initiators have names that break all rules, and paths take nearly everything.
            let is_path = pattern.starts_with("^[/]");
            let is_lenient = is_path || ["allow", "user"].contains(&name.as_str());
            assert!(
                refused > 100 || is_lenient,
                "{name}: {pattern} and the server refuse next to nothing"
            );
        }
    }
    let wide = edges(&parsed("^[a-z._]{1,129}$"));
    assert_eq!(wide.iter().filter(|text| reads("name", text)).count(), 1, "a wider one is found");
    // Names are just what their pattern says.
    for name in ["name", "volume", "group", "mark", "hook"] {
        assert!(!narrower.contains(name), "{name}: {narrower:?}");
    }
}
