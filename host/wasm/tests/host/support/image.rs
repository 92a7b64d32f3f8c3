//! Memory of a guest with answers of the contract laid out as the canonical ABI wants them: every field of
//! these records is a multiple of four bytes, so an answer is a row of words.

use std::fmt::Write as _;

/// Where the data begins; what lies below is never used, so that a null pointer is not an answer.
const BASE: u32 = 1024;

/// The bytes, and where things are in them.
#[derive(Default)]
pub(crate) struct Image {
    bytes: Vec<u8>,
}

/// A row of words.
pub(crate) type Words = Vec<u32>;

impl Image {
    /// Stores bytes; pointer and length.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Words {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
        let at = BASE + u32::try_from(self.bytes.len()).unwrap();
        self.bytes.extend_from_slice(bytes);
        vec![at, u32::try_from(bytes.len()).unwrap()]
    }

    /// A string; pointer and length.
    pub(crate) fn text(&mut self, text: &str) -> Words {
        self.bytes(text.as_bytes())
    }

    /// An optional string.
    pub(crate) fn option(&mut self, text: Option<&str>) -> Words {
        match text {
            None => vec![0, 0, 0],
            Some(text) => [vec![1], self.text(text)].concat(),
        }
    }

    /// Stores a row of words; its address.
    pub(crate) fn place(&mut self, words: &[u32]) -> u32 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.bytes(&bytes)[0]
    }

    /// A list of rows; pointer and number.
    pub(crate) fn list(&mut self, rows: &[Words]) -> Words {
        vec![self.place(&rows.concat()), u32::try_from(rows.len()).unwrap()]
    }

    /// A list of pairs.
    pub(crate) fn pairs(&mut self, pairs: &[(&str, &str)]) -> Words {
        let rows: Vec<Words> = pairs.iter().map(|(k, v)| [self.text(k), self.text(v)].concat()).collect();
        self.list(&rows)
    }

    /// Where the data ends.
    pub(crate) fn end(&self) -> u32 {
        BASE + u32::try_from(self.bytes.len()).unwrap()
    }

    /// The data segment in WAT.
    pub(crate) fn segment(&self) -> String {
        let mut escaped = String::new();
        for byte in &self.bytes {
            write!(escaped, "\\{byte:02x}").unwrap();
        }
        format!("(data (i32.const {BASE}) \"{escaped}\")")
    }
}

/// An empty list or string.
pub(crate) fn nothing() -> Words {
    vec![0, 0]
}

/// A machine with parts that a test may want to spoil.
pub(crate) struct Machine<'a> {
    pub(crate) id: &'a [u8],
    pub(crate) name: &'a str,
    pub(crate) incarnation: Option<&'a str>,
    pub(crate) state: u32,
    pub(crate) address: Option<&'a str>,
    pub(crate) tags: &'a [(&'a str, &'a str)],
}

/// Tags that prove that a machine is ours.
pub(crate) const OWNER: [(&str, &str); 2] =
    [("proxy-operator-uid", "u-1"), ("proxy-operator-cluster", "c-1")];

impl Default for Machine<'_> {
    fn default() -> Self {
        Self {
            id: b"m-1",
            name: "px-u-1",
            incarnation: Some("i-1"),
            state: 1,
            address: Some("5.6.7.8"),
            tags: &OWNER,
        }
    }
}

impl Machine<'_> {
    /// The record `instance`.
    pub(crate) fn words(&self, image: &mut Image) -> Words {
        let endpoints = match self.address {
            None => nothing(),
            Some(address) => {
                let row = [
                    image.text(address),
                    vec![3128],
                    image.text("http"),
                    image.text("public"),
                    vec![0, 0, 0, 0, 0],
                    nothing(),
                ]
                .concat();
                image.list(&[row])
            }
        };
        [
            image.bytes(self.id),
            image.text(self.name),
            image.option(self.incarnation),
            vec![self.state, 0, 0],
            endpoints,
            image.option(Some("2026-01-02T03:04:05Z")),
            image.option(Some("here")),
            vec![0; 14],
            image.pairs(self.tags),
            nothing(),
        ]
        .concat()
    }
}
