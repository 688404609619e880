//! A page of names, kept in one piece: of a listing without attributes there are millions of entries a second.

use crate::cache::Asked;
use crate::{Error, Result};
use prost::DecodeError;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{self, DecodeContext, WireType};
use vazao_model::{Attributes, Code, FileKind, InodeId};
use vazao_wire::Method;
use vazao_wire::operation::Operation;
use vazao_wire::proto;

/// An entry of a listing, as it lies in its page.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its inode.
    pub inode: InodeId,
    /// Its type.
    pub kind: FileKind,
    /// Where a listing continues after it.
    pub cookie: u64,
    /// Its attributes, where they were asked for.
    pub attributes: Option<&'a Attributes>,
}

/// An entry of a directory listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its inode.
    pub inode: InodeId,
    /// Its type.
    pub kind: FileKind,
    /// Where a listing continues after it.
    pub cookie: u64,
    /// Its attributes, where asked for.
    pub attributes: Option<Attributes>,
}

impl Entry {
    /// The same as it is listed.
    pub fn listed(&self) -> Listed<'_> {
        Listed {
            name: &self.name,
            inode: self.inode,
            kind: self.kind,
            cookie: self.cookie,
            attributes: self.attributes.as_ref(),
        }
    }
}

/// A page of a directory listing, without `.` and `..`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Entries in cookie order.
    pub entries: Vec<Entry>,
    /// True when there are none after these.
    pub end: bool,
    /// The directory above.
    pub parent: InodeId,
    /// As of when it shows the directory.
    pub asked: Asked,
}

/// A page of a directory listing without attributes, and without `.` and `..`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamePage {
    names: Names,
    /// As of when it shows the directory.
    pub asked: Asked,
}

impl NamePage {
    pub(crate) fn new(names: Names, asked: Asked) -> Result<NamePage> {
        match names.spots.iter().find(|spot| FileKind::from_number(spot.kind).is_none()) {
            Some(spot) => {
                let detail = format!("an entry with inode {} has unknown kind {}", spot.inode, spot.kind);
                Err(Error::new(Code::BadRequest, detail))
            }
            None => Ok(NamePage { names, asked }),
        }
    }

    /// The names of a page with whatever else it has.
    pub fn of(page: Page) -> NamePage {
        let mut names = Names { end: page.end, parent: page.parent.0, ..Names::default() };
        for entry in &page.entries {
            names.bytes.extend_from_slice(&entry.name);
            let (cookie, inode, kind) = (entry.cookie, entry.inode.0, entry.kind.number());
            names.spots.push(Spot { cookie, inode, kind, name_end: names.bytes.len() });
        }
        NamePage { names, asked: page.asked }
    }

    /// Number of entries, which are in cookie order.
    pub fn len(&self) -> usize {
        self.names.spots.len()
    }

    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.names.spots.is_empty()
    }

    /// True when there are none after these.
    pub fn end(&self) -> bool {
        self.names.end
    }

    /// The directory above.
    pub fn parent(&self) -> InodeId {
        InodeId(self.names.parent)
    }

    /// The cookie of one.
    pub fn cookie(&self, index: usize) -> Option<u64> {
        self.names.spots.get(index).map(|spot| spot.cookie)
    }

    /// One of them.
    pub fn entry(&self, index: usize) -> Option<Listed<'_>> {
        let spot = self.names.spots.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.names.spots[before].name_end);
        Some(Listed {
            name: self.names.bytes.get(start..spot.name_end)?,
            inode: InodeId(spot.inode),
            kind: FileKind::from_number(spot.kind)?,
            cookie: spot.cookie,
            attributes: None,
        })
    }
}

/// Where an entry lies, and what else is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Spot {
    cookie: u64,
    inode: u64,
    kind: u32,
    /// The name begins where the one before ends.
    name_end: usize,
}

/// `ListResponse` as far as it is about names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Names {
    /// All names, one after the other.
    bytes: Vec<u8>,
    spots: Vec<Spot>,
    end: bool,
    parent: u64,
}

/// [`vazao_wire::op::List`] for names alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListNames;

impl Operation for ListNames {
    const METHOD: Method = Method::List;
    type Request = proto::ListRequest;
    type Response = Names;
}

impl Names {
    fn merge_entry(
        &mut self,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> std::result::Result<(), DecodeError> {
        encoding::check_wire_type(WireType::LengthDelimited, wire_type)?;
        let start = self.bytes.len();
        let mut entry = (&mut self.bytes, Spot { name_end: start, ..Spot::default() });
        encoding::merge_loop(&mut entry, buffer, context, |(bytes, spot), buffer, context| {
            let (tag, wire_type) = encoding::decode_key(buffer)?;
            match tag {
                1 => {
                    bytes.truncate(start);
                    put_name(wire_type, bytes, buffer)?;
                    spot.name_end = bytes.len();
                    Ok(())
                }
                2 => encoding::uint64::merge(wire_type, &mut spot.inode, buffer, context),
                3 => encoding::uint32::merge(wire_type, &mut spot.kind, buffer, context),
                4 => encoding::uint64::merge(wire_type, &mut spot.cookie, buffer, context),
                _ => encoding::skip_field(wire_type, tag, buffer, context),
            }
        })?;
        let (_, spot) = entry;
        self.spots.push(spot);
        Ok(())
    }
}

fn put_name(
    wire_type: WireType,
    bytes: &mut Vec<u8>,
    buffer: &mut impl Buf,
) -> std::result::Result<(), DecodeError> {
    encoding::check_wire_type(WireType::LengthDelimited, wire_type)?;
    let length = encoding::decode_varint(buffer)?;
    if length > buffer.remaining() as u64 {
        // It ends too early, and fails as a number does that ends too early.
        return encoding::decode_varint(&mut [].as_slice()).map(drop);
    }
    bytes.put(buffer.take(length as usize));
    Ok(())
}

impl prost::Message for Names {
    /// It is only received.
    fn encode_raw(&self, _: &mut impl BufMut) {}

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> std::result::Result<(), DecodeError> {
        match tag {
            1 => self.merge_entry(wire_type, buffer, context),
            2 => encoding::bool::merge(wire_type, &mut self.end, buffer, context),
            3 => encoding::uint64::merge(wire_type, &mut self.parent, buffer, context),
            _ => encoding::skip_field(wire_type, tag, buffer, context),
        }
    }

    fn encoded_len(&self) -> usize {
        0
    }

    fn clear(&mut self) {
        *self = Names::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    fn message() -> proto::ListResponse {
        let named = |name: &[u8], inode, kind, cookie| proto::DirectoryEntry {
            name: name.to_vec(),
            inode,
            kind,
            cookie,
            attributes: Some(proto::Attributes { inode, size: 70_000, ..Default::default() }),
        };
        let entries = vec![named(b"a", 300, 1, 17), named(&[b'n'; 255], 301, 2, 20), named(b"", 302, 1, 21)];
        proto::ListResponse { entries, end: true, parent: 9 }
    }

    #[test]
    fn a_page_of_names_says_what_the_message_says() {
        let message = message();
        let names = Names::decode(message.encode_to_vec().as_slice()).expect("it is whole");
        let page = NamePage::new(names, Asked::default()).expect("its kinds are known");
        assert_eq!((page.len(), page.end(), page.parent()), (3, true, InodeId(9)));
        for (index, entry) in message.entries.iter().enumerate() {
            let listed = page.entry(index).expect("there are three");
            assert_eq!((listed.name, listed.inode.0), (entry.name.as_slice(), entry.inode));
            assert_eq!((listed.kind.number(), listed.cookie), (entry.kind, entry.cookie));
            assert_eq!(page.cookie(index), Some(entry.cookie));
        }
        assert!(page.entry(3).is_none() && page.cookie(3).is_none());
    }

    #[test]
    fn what_is_cut_short_or_torn_is_refused_as_by_the_message_and_never_panics() {
        let whole = message().encode_to_vec();
        for length in 0..whole.len() {
            let theirs = proto::ListResponse::decode(&whole[..length]);
            assert_eq!(Names::decode(&whole[..length]).is_ok(), theirs.is_ok(), "{length} bytes");
        }
        for position in 0..whole.len() {
            for bit in 0..8 {
                let mut torn = whole.clone();
                torn[position] ^= 1 << bit;
                let Ok(names) = Names::decode(torn.as_slice()) else { continue };
                let Ok(page) = NamePage::new(names, Asked::default()) else { continue };
                (0..page.len()).for_each(|index| assert!(page.entry(index).is_some()));
            }
        }
    }

    #[test]
    fn a_kind_that_is_not_known_is_an_error() {
        let mut message = message();
        message.entries[1].kind = 99;
        let names = Names::decode(message.encode_to_vec().as_slice()).expect("it is whole");
        let error = NamePage::new(names, Asked::default()).expect_err("it cannot be shown");
        assert_eq!(error.code, Code::BadRequest);
    }
}
